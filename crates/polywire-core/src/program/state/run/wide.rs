//! Eight words at a time, as wide as the machine has it.

use super::WIDTH;

/// How wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Words one by one.
    Plain,
    /// AVX2 with BMI2.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 with the bytes of VBMI2, which come with all else that is used.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Level {
    /// For reports.
    pub fn name(self) -> &'static str {
        match self {
            Level::Plain => "none",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => "AVX2",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => "AVX-512",
        }
    }
}

/// What the machine has, and `POLYWIRE_SIMD` allows: `off`, `avx2` or, as without it, everything.
pub(crate) fn level() -> Level {
    static LEVEL: std::sync::OnceLock<Level> = std::sync::OnceLock::new();
    *LEVEL.get_or_init(|| {
        let allowed = std::env::var("POLYWIRE_SIMD").unwrap_or_default();
        detect(&allowed)
    })
}

#[cfg(target_arch = "x86_64")]
fn detect(allowed: &str) -> Level {
    use std::arch::is_x86_feature_detected as has;
    let avx2 = has!("avx2") && has!("bmi2") && has!("popcnt") && has!("lzcnt");
    let avx512 = avx2 && has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl");
    let bytes = has!("avx512vbmi") && has!("avx512vbmi2");
    match allowed {
        "off" => Level::Plain,
        "avx2" if avx2 => Level::Avx2,
        _ if avx512 && bytes => Level::Avx512,
        _ if avx2 => Level::Avx2,
        _ => Level::Plain,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detect(_: &str) -> Level {
    Level::Plain
}

/// Eight words. Masks have a bit for each, the first lowest.
///
/// # Safety
/// Whoever calls these functions runs on a machine that has the instructions.
pub(super) trait Wide {
    type Words: Copy;

    /// # Safety
    /// Eight words can be read.
    unsafe fn load(from: *const u64) -> Self::Words;
    /// # Safety
    /// The words of the mask can be written.
    unsafe fn store(to: *mut u64, mask: u8, words: Self::Words);
    unsafe fn add(a: Self::Words, b: Self::Words) -> Self::Words;
    unsafe fn sub(a: Self::Words, b: Self::Words) -> Self::Words;
    unsafe fn xor(a: Self::Words, b: Self::Words) -> Self::Words;
    unsafe fn splat(word: u64) -> Self::Words;
    /// `a` where the mask has a bit, else `b`.
    unsafe fn select(mask: u8, a: Self::Words, b: Self::Words) -> Self::Words;
    unsafe fn differ(a: Self::Words, b: Self::Words) -> u8;
    /// Unsigned.
    unsafe fn greater(a: Self::Words, b: Self::Words) -> u8;
    /// Words with their highest bit set.
    unsafe fn negative(a: Self::Words) -> u8;
    /// Bits of `value` at the mask's bits, side by side.
    unsafe fn extract(value: u64, mask: u64) -> u64;
    /// The other way.
    unsafe fn deposit(value: u64, mask: u64) -> u64;
    /// Writes the entities of the mask's words, of which those of `long` have two to eight bytes; gives how many bytes. 64 may be written.
    ///
    /// # Safety
    /// There is room for 64 bytes.
    unsafe fn emit(to: *mut u8, words: Self::Words, mask: u8, long: u8, signed: u8) -> usize;
    /// The bytes of a word one after the other as the words of the mask, of which those of `signed` have a sign in bit 6; zeros for the others.
    unsafe fn spread(bytes: u64, mask: u8, signed: u8) -> Self::Words;
}

/// A byte of ones for each bit of a mask.
#[inline(always)]
pub(super) fn bytes_of(mask: u8) -> u64 {
    let each = u64::from(mask).wrapping_mul(0x0101_0101_0101_0101) & 0x8040_2010_0804_0201;
    // What is not zero carries into the highest bit of its byte, and no further.
    let high = each.wrapping_add(0x7F7F_7F7F_7F7F_7F7F) & 0x8080_8080_8080_8080;
    (high >> 7).wrapping_mul(0xFF)
}

/// Writes entities one by one.
///
/// # Safety
/// There is room for ten bytes an entity.
#[inline(always)]
unsafe fn one_by_one(to: *mut u8, words: &[u64; WIDTH], mut mask: u8, signed: u8) -> usize {
    let mut len = 0;
    while mask != 0 {
        let at = mask.trailing_zeros() as usize;
        mask &= mask - 1;
        // SAFETY: as the caller promises.
        len += unsafe {
            match signed >> at & 1 {
                0 => super::super::integer::write_unsigned(to.add(len), words[at]),
                _ => super::super::integer::write_signed(to.add(len), words[at]),
            }
        } as usize;
    }
    len
}

/// Words one by one.
pub(super) struct Plain;

#[inline(always)]
fn each(f: impl Fn(usize) -> u64) -> [u64; WIDTH] {
    core::array::from_fn(f)
}

#[inline(always)]
fn mask_of(f: impl Fn(usize) -> bool) -> u8 {
    (0..WIDTH).fold(0, |mask, i| mask | u8::from(f(i)) << i)
}

impl Wide for Plain {
    type Words = [u64; WIDTH];

    #[inline(always)]
    unsafe fn load(from: *const u64) -> [u64; WIDTH] {
        // SAFETY: as the caller promises.
        unsafe { from.cast::<[u64; WIDTH]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(to: *mut u64, mask: u8, words: [u64; WIDTH]) {
        for (i, word) in words.into_iter().enumerate().filter(|(i, _)| mask >> i & 1 != 0) {
            // SAFETY: as the caller promises.
            unsafe { to.add(i).write_unaligned(word) };
        }
    }
    #[inline(always)]
    unsafe fn add(a: [u64; WIDTH], b: [u64; WIDTH]) -> [u64; WIDTH] {
        each(|i| a[i].wrapping_add(b[i]))
    }
    #[inline(always)]
    unsafe fn sub(a: [u64; WIDTH], b: [u64; WIDTH]) -> [u64; WIDTH] {
        each(|i| a[i].wrapping_sub(b[i]))
    }
    #[inline(always)]
    unsafe fn xor(a: [u64; WIDTH], b: [u64; WIDTH]) -> [u64; WIDTH] {
        each(|i| a[i] ^ b[i])
    }
    #[inline(always)]
    unsafe fn splat(word: u64) -> [u64; WIDTH] {
        [word; WIDTH]
    }
    #[inline(always)]
    unsafe fn select(mask: u8, a: [u64; WIDTH], b: [u64; WIDTH]) -> [u64; WIDTH] {
        each(|i| if mask >> i & 1 != 0 { a[i] } else { b[i] })
    }
    #[inline(always)]
    unsafe fn differ(a: [u64; WIDTH], b: [u64; WIDTH]) -> u8 {
        mask_of(|i| a[i] != b[i])
    }
    #[inline(always)]
    unsafe fn greater(a: [u64; WIDTH], b: [u64; WIDTH]) -> u8 {
        mask_of(|i| a[i] > b[i])
    }
    #[inline(always)]
    unsafe fn negative(a: [u64; WIDTH]) -> u8 {
        mask_of(|i| a[i] >> 63 != 0)
    }
    #[inline(always)]
    unsafe fn extract(value: u64, mut mask: u64) -> u64 {
        let (mut bits, mut at) = (0, 0);
        while mask != 0 {
            bits |= (value >> mask.trailing_zeros() & 1) << at;
            (mask, at) = (mask & (mask - 1), at + 1);
        }
        bits
    }
    #[inline(always)]
    unsafe fn deposit(mut value: u64, mut mask: u64) -> u64 {
        let mut bits = 0;
        while mask != 0 {
            bits |= (value & 1) << mask.trailing_zeros();
            (mask, value) = (mask & (mask - 1), value >> 1);
        }
        bits
    }
    #[inline(always)]
    unsafe fn emit(to: *mut u8, words: [u64; WIDTH], mut mask: u8, long: u8, signed: u8) -> usize {
        if long != 0 {
            // SAFETY: as the caller promises.
            return unsafe { one_by_one(to, &words, mask, signed) };
        }
        let mut len = 0;
        while mask != 0 {
            // SAFETY: eight at most.
            unsafe { *to.add(len) = words[mask.trailing_zeros() as usize & 7] as u8 | 0x80 };
            (mask, len) = (mask & (mask - 1), len + 1);
        }
        len
    }
    #[inline(always)]
    unsafe fn spread(mut bytes: u64, mask: u8, signed: u8) -> [u64; WIDTH] {
        let mut words = [0; WIDTH];
        for (i, word) in words.iter_mut().enumerate().filter(|(i, _)| mask >> i & 1 != 0) {
            let byte = bytes & 0x7F;
            *word = if signed >> i & 1 != 0 { (byte ^ 0x40).wrapping_sub(0x40) } else { byte };
            bytes >>= 8;
        }
        words
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    // SAFETY of all blocks: the functions are reached from those that were chosen because the machine has the instructions, and memory is as
    // the trait demands.
    #![allow(clippy::undocumented_unsafe_blocks, reason = "said once, above")]

    use core::arch::x86_64::*;

    use super::{WIDTH, Wide, bytes_of, one_by_one};

    /// A register.
    pub struct Avx512;

    impl Wide for Avx512 {
        type Words = __m512i;

        #[inline(always)]
        unsafe fn load(from: *const u64) -> __m512i {
            unsafe { _mm512_loadu_si512(from.cast()) }
        }
        #[inline(always)]
        unsafe fn store(to: *mut u64, mask: u8, words: __m512i) {
            unsafe { _mm512_mask_storeu_epi64(to.cast(), mask, words) }
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
                // Groups of seven bits, the highest first, and of the magnitude with a bit for the sign to see how many are needed.
                let shifts = _mm512_set1_epi64(0x0007_0E15_1C23_2A31);
                let sevens = _mm512_set1_epi8(0x7F);
                let magnitude = _mm512_xor_si512(words, _mm512_srai_epi64::<63>(words));
                let magnitude = _mm512_mask_mov_epi64(words, signed, _mm512_slli_epi64::<1>(magnitude));
                let needed = _mm512_test_epi8_mask(_mm512_multishift_epi64_epi8(shifts, magnitude), sevens);
                // The last byte, and all from the first that says something: no byte of these bits is zero, so that none borrows.
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
    }

    /// Two registers.
    pub struct Avx2;

    #[inline(always)]
    unsafe fn lanes(mask: u8) -> [__m256i; 2] {
        unsafe {
            let each = _mm256_set1_epi64x(i64::from(mask));
            let (low, high) = (_mm256_setr_epi64x(1, 2, 4, 8), _mm256_setr_epi64x(16, 32, 64, 128));
            [
                _mm256_cmpeq_epi64(_mm256_and_si256(each, low), low),
                _mm256_cmpeq_epi64(_mm256_and_si256(each, high), high),
            ]
        }
    }

    #[inline(always)]
    unsafe fn mask(of: [__m256i; 2]) -> u8 {
        unsafe {
            let low = _mm256_movemask_pd(_mm256_castsi256_pd(of[0])) as u8;
            low | (_mm256_movemask_pd(_mm256_castsi256_pd(of[1])) as u8) << 4
        }
    }

    /// An instruction on both halves: not by a closure, which would be a function without the instructions.
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

        #[inline(always)]
        unsafe fn load(from: *const u64) -> [__m256i; 2] {
            unsafe { [_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(4).cast())] }
        }
        #[inline(always)]
        unsafe fn store(to: *mut u64, mask: u8, words: [__m256i; 2]) {
            unsafe {
                let own = lanes(mask);
                _mm256_maskstore_epi64(to.cast(), own[0], words[0]);
                _mm256_maskstore_epi64(to.add(4).cast(), own[1], words[1]);
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
                    let mut each = [0; WIDTH];
                    _mm256_storeu_si256(each.as_mut_ptr().cast(), words[0]);
                    _mm256_storeu_si256(each.as_mut_ptr().add(4).cast(), words[1]);
                    return one_by_one(to, &each, mask, signed);
                }
                // The lowest byte of each word, in both halves of each register.
                let low = _mm256_setr_epi8(
                    0, 8, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 8, -1, -1, -1, -1, -1, -1,
                    -1, -1, -1, -1, -1, -1,
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::arbitrary::Random;

    #[test]
    fn masks_are_spread() {
        for mask in 0..=255u8 {
            let expected = (0..8).fold(0u64, |all, i| all | if mask >> i & 1 != 0 { 0xFF << (8 * i) } else { 0 });
            assert_eq!(bytes_of(mask), expected, "{mask:b}");
        }
    }

    /// Everything that eight words are used for, as words and bytes.
    #[inline(always)]
    fn everything<W: Wide>(a: &[u64; WIDTH], b: &[u64; WIDTH], mask: u8, signed: u8) -> (Vec<[u64; WIDTH]>, Vec<u8>) {
        let mut bytes = vec![0; 128];
        // SAFETY: the level is one that the machine has, and there is room.
        unsafe {
            let (x, y) = (W::load(a.as_ptr()), W::load(b.as_ptr()));
            let words = [
                x,
                W::add(x, y),
                W::sub(x, y),
                W::xor(x, y),
                W::splat(a[0]),
                W::select(mask, x, y),
                W::spread(a[1], mask, signed),
            ];
            let stored = words.map(|words| {
                let mut to = *b;
                W::store(to.as_mut_ptr(), mask, words);
                to
            });
            let masks = [W::differ(x, y), W::greater(x, y), W::greater(y, x), W::negative(x)];
            let (short, long) = (W::select(signed, W::add(x, W::splat(64)), x), u64::from(u8::MAX >> 1));
            let long = W::greater(short, W::splat(long)) & mask;
            let len = W::emit(bytes.as_mut_ptr(), x, mask, long, signed);
            bytes.truncate(len);
            bytes.extend(masks);
            bytes.extend(W::extract(a[2], b[2]).to_le_bytes());
            bytes.extend(W::deposit(a[2], b[2]).to_le_bytes());
            (stored.into(), bytes)
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
    fn by_avx2(a: &[u64; WIDTH], b: &[u64; WIDTH], mask: u8, signed: u8) -> (Vec<[u64; WIDTH]>, Vec<u8>) {
        everything::<Avx2>(a, b, mask, signed)
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2")]
    fn by_avx512(a: &[u64; WIDTH], b: &[u64; WIDTH], mask: u8, signed: u8) -> (Vec<[u64; WIDTH]>, Vec<u8>) {
        everything::<Avx512>(a, b, mask, signed)
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn wide_instructions_do_what_words_one_by_one_do() {
        let mut random = Random::new(11);
        for round in 0..20_000 {
            // Up to 56 bits with a sign, which is what entities have here.
            let mut word = |_| ((random.bits() as i64) >> (9 + random.below(55))) as u64;
            let (mut a, b): ([u64; WIDTH], [u64; WIDTH]) =
                (core::array::from_fn(&mut word), core::array::from_fn(&mut word));
            let (mask, signed) = (random.bits() as u8, random.bits() as u8);
            (0..WIDTH).filter(|i| signed >> i & 1 == 0).for_each(|i| a[i] &= (1 << 56) - 1);
            if round % 2 == 0 {
                a[round % WIDTH] = b[round % WIDTH] & ((1 << 55) - 1);
            }
            let expected = everything::<Plain>(&a, &b, mask, signed);
            if detect("avx2") == Level::Avx2 {
                // SAFETY: it was detected.
                assert_eq!(unsafe { by_avx2(&a, &b, mask, signed) }, expected, "{a:x?} {b:x?} {mask:x} {signed:x}");
            }
            if detect("") == Level::Avx512 {
                // SAFETY: it was detected.
                assert_eq!(unsafe { by_avx512(&a, &b, mask, signed) }, expected, "{a:x?} {b:x?} {mask:x} {signed:x}");
            }
        }
    }
}
