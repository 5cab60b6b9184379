//! Words in registers.

// SAFETY of all blocks: the functions are reached from those that were chosen because the machine
// has the instructions, and memory is as the trait demands.
#![allow(clippy::undocumented_unsafe_blocks, reason = "said once, above")]

use core::arch::x86_64::*;

use super::{
    super::{
        super::{
            Input, Output, Status,
            float::{EXACT, POWERS},
        },
        chunk::{Chunk, SHORT},
        get, put,
    },
    Wide, bytes_of, one_by_one,
};

/// A register.
pub(crate) struct Avx512;

impl Wide for Avx512 {
    type Words = __m512i;

    among_texts!(
        Avx512,
        #[inline(never)]
        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2")]
    );

    #[inline(always)]
    unsafe fn load(from: *const u64) -> __m512i {
        unsafe { _mm512_loadu_si512(from.cast()) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut u64, words: __m512i) {
        unsafe { _mm512_storeu_si512(to.cast(), words) }
    }
    #[inline(always)]
    unsafe fn add(a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_add_epi64(a, b) }
    }
    #[inline(always)]
    unsafe fn sub(a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_sub_epi64(a, b) }
    }
    #[inline(always)]
    unsafe fn xor(a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_xor_si512(a, b) }
    }
    #[inline(always)]
    unsafe fn splat(word: u64) -> __m512i {
        unsafe { _mm512_set1_epi64(word as i64) }
    }
    #[inline(always)]
    unsafe fn select(mask: u8, a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_mask_mov_epi64(b, mask, a) }
    }
    #[inline(always)]
    unsafe fn differ(a: __m512i, b: __m512i) -> u8 {
        unsafe { _mm512_cmpneq_epi64_mask(a, b) }
    }
    #[inline(always)]
    unsafe fn greater(a: __m512i, b: __m512i) -> u8 {
        unsafe { _mm512_cmpgt_epu64_mask(a, b) }
    }
    #[inline(always)]
    unsafe fn negative(a: __m512i) -> u8 {
        unsafe { _mm512_movepi64_mask(a) }
    }
    #[inline(always)]
    unsafe fn extract(value: u64, mask: u64) -> u64 {
        unsafe { _pext_u64(value, mask) }
    }
    #[inline(always)]
    unsafe fn deposit(value: u64, mask: u64) -> u64 {
        unsafe { _pdep_u64(value, mask) }
    }
    #[inline(always)]
    unsafe fn emit(to: *mut u8, words: __m512i, mask: u8, long: u8, signed: u8) -> usize {
        unsafe {
            if long == 0 {
                let bytes = _mm_or_si128(_mm512_cvtepi64_epi8(words), _mm_set1_epi8(i8::MIN));
                _mm_storel_epi64(to.cast(), _mm_maskz_compress_epi8(mask.into(), bytes));
                return mask.count_ones() as usize;
            }
            // Groups of seven bits, the highest first, and of the magnitude with a bit for the sign
            // to see how many are needed.
            let shifts = _mm512_set1_epi64(0x0007_0E15_1C23_2A31);
            let sevens = _mm512_set1_epi8(0x7F);
            let magnitude = _mm512_xor_si512(words, _mm512_srai_epi64::<63>(words));
            let magnitude = _mm512_mask_mov_epi64(words, signed, _mm512_slli_epi64::<1>(magnitude));
            let needed = _mm512_test_epi8_mask(_mm512_multishift_epi64_epi8(shifts, magnitude), sevens);
            // The last byte, and all from the first that says something: no byte of these bits is
            // zero, so that none borrows.
            let needed = needed | 0x8080_8080_8080_8080;
            let needed = !(needed.wrapping_sub(0x0101_0101_0101_0101) & !needed);
            let needed = needed & _pdep_u64(mask.into(), 0x0101_0101_0101_0101).wrapping_mul(0xFF);
            let groups = _mm512_and_si512(_mm512_multishift_epi64_epi8(shifts, words), sevens);
            let groups = _mm512_or_si512(groups, _mm512_set1_epi64(i64::MIN));
            _mm512_storeu_si512(to.cast(), _mm512_maskz_compress_epi8(needed, groups));
            needed.count_ones() as usize
        }
    }
    #[inline(always)]
    unsafe fn spread(bytes: u64, mask: u8, signed: u8) -> __m512i {
        unsafe {
            let bytes = _mm_cvtsi64_si128((bytes & 0x7F7F_7F7F_7F7F_7F7F) as i64);
            let words = _mm512_cvtepu8_epi64(_mm_maskz_expand_epi8(mask.into(), bytes));
            let sign = _mm512_set1_epi64(0x40);
            _mm512_mask_sub_epi64(words, signed, _mm512_xor_si512(words, sign), sign)
        }
    }
    #[inline(always)]
    unsafe fn gather(chunk: &Chunk, frame: *const u8, _: *const u64) -> __m512i {
        unsafe {
            let mut words = _mm512_setzero_si512();
            for window in &chunk.windows {
                // Bytes that are no members' are not touched.
                let bytes = _mm512_maskz_loadu_epi8(window.members, frame.add(window.offset as usize).cast());
                let index = _mm512_load_si512(window.index.as_ptr().cast());
                words = _mm512_or_si512(words, _mm512_maskz_permutexvar_epi8(window.lanes, index, bytes));
            }
            if chunk.negative == 0 {
                return words;
            }
            let signs = _mm512_load_si512(chunk.signs.as_ptr().cast());
            _mm512_sub_epi64(_mm512_xor_si512(words, signs), signs)
        }
    }
    #[inline(always)]
    unsafe fn scatter(chunk: &Chunk, frame: *mut u8, lanes: *const u64) {
        unsafe {
            let words = Self::load(lanes);
            for window in &chunk.windows {
                let index = _mm512_load_si512(window.index.as_ptr().cast());
                let bytes = _mm512_permutexvar_epi8(index, words);
                _mm512_mask_storeu_epi8(frame.add(window.offset as usize).cast(), window.members, bytes);
            }
        }
    }
    #[inline(always)]
    unsafe fn up(words: __m512i) -> __m512i {
        unsafe { _mm512_alignr_epi64::<7>(words, words) }
    }
    #[inline(always)]
    unsafe fn down(words: __m512i) -> __m512i {
        unsafe { _mm512_alignr_epi64::<1>(words, words) }
    }
    #[inline(always)]
    unsafe fn mantissas(doubles: __m512i, exponents: __m512i, mask: u8) -> (__m512i, u8) {
        unsafe {
            let (power, known) = powers(exponents, mask);
            let scaled = _mm512_mul_pd(_mm512_castsi512_pd(doubles), power);
            let small = _mm512_mask_cmp_pd_mask::<_CMP_LE_OQ>(known, _mm512_abs_pd(scaled), _mm512_set1_pd(EXACT));
            // To the nearest integer.
            let sign = _mm512_and_pd(scaled, _mm512_set1_pd(-0.0));
            let half = _mm512_or_pd(sign, _mm512_set1_pd(0.5));
            let mantissas = _mm512_cvttpd_epi64(_mm512_add_pd(scaled, half));
            let back = _mm512_div_pd(_mm512_cvtepi64_pd(mantissas), power);
            (mantissas, _mm512_mask_cmpeq_epi64_mask(small, doubles, _mm512_castpd_si512(back)))
        }
    }
    #[inline(always)]
    unsafe fn doubles(mantissas: __m512i, exponents: __m512i, mask: u8) -> (__m512i, u8) {
        unsafe {
            let (power, known) = powers(exponents, mask);
            let most = _mm512_set1_epi64(1 << 53);
            let small = _mm512_mask_cmple_epu64_mask(known, _mm512_abs_epi64(mantissas), most);
            (_mm512_castpd_si512(_mm512_div_pd(_mm512_cvtepi64_pd(mantissas), power)), small)
        }
    }
    #[inline(always)]
    unsafe fn other(text: &[u8], (short, len): &([u8; SHORT], usize)) -> bool {
        unsafe {
            let there = _bzhi_u32(0xFFFF, text.len().min(SHORT) as u32) as u16;
            let bytes = _mm_maskz_loadu_epi8(there, text.as_ptr().cast());
            let differ = _mm_cmpneq_epi8_mask(bytes, _mm_loadu_si128(short.as_ptr().cast()));
            (text.len() != *len) | (differ != 0)
        }
    }
}

/// Powers of ten for exponents from -15 to 0, and which of the mask's these are; any for the
/// others.
#[inline(always)]
unsafe fn powers(exponents: __m512i, mask: u8) -> (__m512d, u8) {
    unsafe {
        let places = _mm512_sub_epi64(_mm512_setzero_si512(), exponents);
        let known = _mm512_mask_cmple_epu64_mask(mask, places, _mm512_set1_epi64(15));
        let (low, high) = (_mm512_loadu_pd(POWERS.as_ptr()), _mm512_loadu_pd(POWERS.as_ptr().add(8)));
        (_mm512_permutex2var_pd(low, places, high), known)
    }
}

/// Two registers.
pub(crate) struct Avx2;

#[inline(always)]
unsafe fn lanes(mask: u8) -> [__m256i; 2] {
    unsafe {
        let each = _mm256_set1_epi64x(i64::from(mask));
        let (low, high) = (_mm256_setr_epi64x(1, 2, 4, 8), _mm256_setr_epi64x(16, 32, 64, 128));
        [_mm256_cmpeq_epi64(_mm256_and_si256(each, low), low), _mm256_cmpeq_epi64(_mm256_and_si256(each, high), high)]
    }
}

#[inline(always)]
unsafe fn mask(of: [__m256i; 2]) -> u8 {
    unsafe {
        let low = _mm256_movemask_pd(_mm256_castsi256_pd(of[0])) as u8;
        low | (_mm256_movemask_pd(_mm256_castsi256_pd(of[1])) as u8) << 4
    }
}

/// An instruction on both halves: not by a closure, which would be a function without the
/// instructions.
macro_rules! both {
    ($instruction:ident, $a:expr, $b:expr) => {{
        let (a, b) = ($a, $b);
        [$instruction(a[0], b[0]), $instruction(a[1], b[1])]
    }};
}

#[inline(always)]
unsafe fn widened(bytes: u64) -> [__m256i; 2] {
    unsafe {
        [
            _mm256_cvtepu8_epi64(_mm_cvtsi32_si128(bytes as u32 as i32)),
            _mm256_cvtepu8_epi64(_mm_cvtsi32_si128((bytes >> 32) as u32 as i32)),
        ]
    }
}

impl Wide for Avx2 {
    type Words = [__m256i; 2];

    among_texts!(
        Avx2,
        #[inline(never)]
        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
    );

    #[inline(always)]
    unsafe fn load(from: *const u64) -> [__m256i; 2] {
        unsafe { [_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(4).cast())] }
    }
    #[inline(always)]
    unsafe fn store(to: *mut u64, words: [__m256i; 2]) {
        unsafe {
            _mm256_storeu_si256(to.cast(), words[0]);
            _mm256_storeu_si256(to.add(4).cast(), words[1]);
        }
    }
    #[inline(always)]
    unsafe fn add(a: [__m256i; 2], b: [__m256i; 2]) -> [__m256i; 2] {
        unsafe { both!(_mm256_add_epi64, a, b) }
    }
    #[inline(always)]
    unsafe fn sub(a: [__m256i; 2], b: [__m256i; 2]) -> [__m256i; 2] {
        unsafe { both!(_mm256_sub_epi64, a, b) }
    }
    #[inline(always)]
    unsafe fn xor(a: [__m256i; 2], b: [__m256i; 2]) -> [__m256i; 2] {
        unsafe { both!(_mm256_xor_si256, a, b) }
    }
    #[inline(always)]
    unsafe fn splat(word: u64) -> [__m256i; 2] {
        unsafe { [_mm256_set1_epi64x(word as i64); 2] }
    }
    #[inline(always)]
    unsafe fn select(mask: u8, a: [__m256i; 2], b: [__m256i; 2]) -> [__m256i; 2] {
        unsafe {
            let own = lanes(mask);
            [_mm256_blendv_epi8(b[0], a[0], own[0]), _mm256_blendv_epi8(b[1], a[1], own[1])]
        }
    }
    #[inline(always)]
    unsafe fn differ(a: [__m256i; 2], b: [__m256i; 2]) -> u8 {
        unsafe { !mask(both!(_mm256_cmpeq_epi64, a, b)) }
    }
    #[inline(always)]
    unsafe fn greater(a: [__m256i; 2], b: [__m256i; 2]) -> u8 {
        unsafe {
            let sign = [_mm256_set1_epi64x(i64::MIN); 2];
            mask(both!(_mm256_cmpgt_epi64, both!(_mm256_xor_si256, a, sign), both!(_mm256_xor_si256, b, sign)))
        }
    }
    #[inline(always)]
    unsafe fn negative(a: [__m256i; 2]) -> u8 {
        unsafe { mask(a) }
    }
    #[inline(always)]
    unsafe fn extract(value: u64, mask: u64) -> u64 {
        unsafe { _pext_u64(value, mask) }
    }
    #[inline(always)]
    unsafe fn deposit(value: u64, mask: u64) -> u64 {
        unsafe { _pdep_u64(value, mask) }
    }
    #[inline(always)]
    unsafe fn emit(to: *mut u8, words: [__m256i; 2], mask: u8, long: u8, signed: u8) -> usize {
        unsafe {
            if long != 0 {
                return one_by_one(to, &Self::each(words), mask, signed);
            }
            // The lowest byte of each word, in both halves of each register.
            let low = _mm256_setr_epi8(
                0, 8, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 8, -1, -1, -1, -1, -1, -1, -1,
                -1, -1, -1, -1, -1,
            );
            let (first, second) = (_mm256_shuffle_epi8(words[0], low), _mm256_shuffle_epi8(words[1], low));
            let first = _mm_or_si128(_mm256_castsi256_si128(first), _mm256_extracti128_si256::<1>(first));
            let second = _mm_or_si128(_mm256_castsi256_si128(second), _mm256_extracti128_si256::<1>(second));
            let bytes = _mm_cvtsi128_si64(_mm_unpacklo_epi32(first, second)) as u64 | 0x8080_8080_8080_8080;
            to.cast::<u64>().write_unaligned(_pext_u64(bytes, bytes_of(mask)));
            mask.count_ones() as usize
        }
    }
    #[inline(always)]
    unsafe fn spread(bytes: u64, mask: u8, signed: u8) -> [__m256i; 2] {
        unsafe {
            let bytes = _pdep_u64(bytes, bytes_of(mask)) & 0x7F7F_7F7F_7F7F_7F7F;
            // The sign of those that have one, as a bit of their byte.
            let signs = 0x4040_4040_4040_4040 & bytes_of(signed);
            let (words, signs) = (widened(bytes), widened(signs));
            let words = both!(_mm256_xor_si256, words, signs);
            both!(_mm256_sub_epi64, words, signs)
        }
    }
}
