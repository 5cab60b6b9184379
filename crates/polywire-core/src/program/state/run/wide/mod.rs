//! Eight words at a time, as wide as the machine has it.

use super::{
    super::{Input, Output, Status, float},
    WIDTH,
    chunk::{Chunk, SHORT},
    get, put,
};

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
    pub(crate) fn name(self) -> &'static str {
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
    /// Eight words can be written.
    unsafe fn store(to: *mut u64, words: Self::Words);
    unsafe fn add(a: Self::Words, b: Self::Words) -> Self::Words;
    /// One more where the mask has a bit.
    #[inline(always)]
    unsafe fn add_one(a: Self::Words, mask: u8) -> Self::Words {
        // SAFETY: as for all.
        unsafe { Self::select(mask, Self::add(a, Self::splat(1)), a) }
    }
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
    /// Writes the entities of the mask's words, of which those of `long` have two to eight bytes;
    /// gives how many bytes. 64 may be written.
    ///
    /// # Safety
    /// There is room for 64 bytes.
    unsafe fn emit(to: *mut u8, words: Self::Words, mask: u8, long: u8, signed: u8) -> usize;
    /// The bytes of a word one after the other as the words of the mask, of which those of `signed`
    /// have a sign in bit 6; zeros for the others.
    unsafe fn spread(bytes: u64, mask: u8, signed: u8) -> Self::Words;

    /// The members of a chunk.
    ///
    /// # Safety
    /// The frame is the one that the chunk was made for; where the machine does not
    /// [gather](super::gathers) the members are in the lanes.
    #[inline(always)]
    unsafe fn gather(_: &Chunk, _: *const u8, lanes: *const u64) -> Self::Words {
        // SAFETY: as the caller promises.
        unsafe { Self::load(lanes) }
    }
    /// Puts the lanes of a chunk into its members, where the machine gathers.
    ///
    /// # Safety
    /// As [`Wide::gather`]; the words are values of their members.
    #[inline(always)]
    unsafe fn scatter(_: &Chunk, _: *mut u8, _: *const u64) {}
    #[inline(always)]
    unsafe fn each(words: Self::Words) -> [u64; WIDTH] {
        let mut all = [0; WIDTH];
        // SAFETY: there are eight.
        unsafe { Self::store(all.as_mut_ptr(), words) };
        all
    }
    /// Each word where the one before it, or behind it, was.
    #[inline(always)]
    unsafe fn up(words: Self::Words) -> Self::Words {
        // SAFETY: there are eight.
        unsafe {
            let mut words = Self::each(words);
            words.rotate_right(1);
            Self::load(words.as_ptr())
        }
    }
    #[inline(always)]
    unsafe fn down(words: Self::Words) -> Self::Words {
        // SAFETY: there are eight.
        unsafe {
            let mut words = Self::each(words);
            words.rotate_left(1);
            Self::load(words.as_ptr())
        }
    }
    /// The mantissas that make of the doubles of the mask decimals with these exponents, and which
    /// of them are exactly that.
    #[inline(always)]
    unsafe fn mantissas(doubles: Self::Words, exponents: Self::Words, mask: u8) -> (Self::Words, u8) {
        // SAFETY: there are eight.
        unsafe {
            let (doubles, exponents) = (Self::each(doubles), Self::each(exponents));
            let (mut mantissas, mut exact, mut rest) = ([0; WIDTH], 0, mask);
            while rest != 0 {
                let at = rest.trailing_zeros() as usize & 7;
                rest &= rest - 1;
                if let Some(mantissa) = float::mantissa(doubles[at], exponents[at] as i64) {
                    mantissas[at] = mantissa as u64;
                    exact |= 1 << at;
                }
            }
            (Self::load(mantissas.as_ptr()), exact)
        }
    }
    /// The doubles that decimals stand for, and which of the mask's it can tell.
    #[inline(always)]
    unsafe fn doubles(mantissas: Self::Words, exponents: Self::Words, mask: u8) -> (Self::Words, u8) {
        // SAFETY: there are eight.
        unsafe {
            let (mantissas, exponents) = (Self::each(mantissas), Self::each(exponents));
            let (mut doubles, mut rest) = ([0; WIDTH], mask);
            while rest != 0 {
                let at = rest.trailing_zeros() as usize & 7;
                rest &= rest - 1;
                doubles[at] = float::compose(exponents[at] as i64, mantissas[at] as i64, false);
            }
            (Self::load(doubles.as_ptr()), mask)
        }
    }
    /// [`put::among_texts`], which is a function apart, so that what it keeps over its calls does
    /// not slow down what has no strings.
    ///
    /// # Safety
    /// As there.
    unsafe fn put_among_texts(
        output: &mut Output<'_>,
        chunk: &Chunk,
        entities: (Self::Words, u8),
        frame: (*const u8, usize),
    ) -> Status;
    /// [`get::among_texts`] likewise.
    ///
    /// # Safety
    /// As there.
    unsafe fn get_among_texts(input: &mut Input<'_>, chunk: &Chunk, present: u8, frame: *mut u8)
    -> Option<Self::Words>;
    /// True if a string is another than a short one.
    ///
    /// # Safety
    /// The string's bytes can be read.
    #[inline(always)]
    unsafe fn other(text: &[u8], (short, len): &([u8; SHORT], usize)) -> bool {
        !put::same(text, &short[..*len])
    }
}

/// A byte of ones for each bit of a mask.
#[cfg(target_arch = "x86_64")]
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
pub(super) unsafe fn one_by_one(to: *mut u8, words: &[u64; WIDTH], mut mask: u8, signed: u8) -> usize {
    let mut behind = to;
    while mask != 0 {
        let at = mask.trailing_zeros() as usize;
        mask &= mask - 1;
        // SAFETY: as the caller promises.
        behind = unsafe {
            match signed >> at & 1 {
                0 => super::super::integer::plain::write_unsigned(behind, words[at]),
                _ => super::super::integer::plain::write_signed(behind, words[at]),
            }
        };
    }
    behind.addr() - to.addr()
}

/// The functions of [`Wide`] that are functions apart, with these attributes.
macro_rules! among_texts {
    ($own:ty, $(#[$attribute:meta])*) => {
        unsafe fn put_among_texts(
            output: &mut Output<'_>,
            chunk: &Chunk,
            entities: (Self::Words, u8),
            frame: (*const u8, usize),
        ) -> Status {
            $(#[$attribute])*
            unsafe fn apart(
                output: &mut Output<'_>,
                chunk: &Chunk,
                entities: (<$own as Wide>::Words, u8),
                frame: (*const u8, usize),
            ) -> Status {
                // SAFETY: as the caller promises.
                unsafe { put::among_texts::<$own>(output, chunk, entities, frame) }
            }
            // SAFETY: as the caller promises.
            unsafe { apart(output, chunk, entities, frame) }
        }
        unsafe fn get_among_texts(
            input: &mut Input<'_>,
            chunk: &Chunk,
            present: u8,
            frame: *mut u8,
        ) -> Option<Self::Words> {
            $(#[$attribute])*
            unsafe fn apart(
                input: &mut Input<'_>,
                chunk: &Chunk,
                present: u8,
                frame: *mut u8,
            ) -> Option<<$own as Wide>::Words> {
                // SAFETY: as the caller promises.
                unsafe { get::among_texts::<$own>(input, chunk, present, frame) }
            }
            // SAFETY: as the caller promises.
            unsafe { apart(input, chunk, present, frame) }
        }
    };
}

/// Words one by one.
pub(super) struct Plain;

#[inline(always)]
fn all(f: impl Fn(usize) -> u64) -> [u64; WIDTH] {
    core::array::from_fn(f)
}

#[inline(always)]
fn mask_of(f: impl Fn(usize) -> bool) -> u8 {
    (0..WIDTH).fold(0, |mask, i| mask | u8::from(f(i)) << i)
}

impl Wide for Plain {
    type Words = [u64; WIDTH];
    among_texts!(Plain, #[inline(never)]);

    #[inline(always)]
    unsafe fn load(from: *const u64) -> [u64; WIDTH] {
        // SAFETY: as the caller promises.
        unsafe { from.cast::<[u64; WIDTH]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(to: *mut u64, words: [u64; WIDTH]) {
        // SAFETY: as the caller promises.
        unsafe { to.cast::<[u64; WIDTH]>().write_unaligned(words) };
    }
    #[inline(always)]
    unsafe fn add(a: [u64; WIDTH], b: [u64; WIDTH]) -> [u64; WIDTH] {
        all(|i| a[i].wrapping_add(b[i]))
    }
    #[inline(always)]
    unsafe fn sub(a: [u64; WIDTH], b: [u64; WIDTH]) -> [u64; WIDTH] {
        all(|i| a[i].wrapping_sub(b[i]))
    }
    #[inline(always)]
    unsafe fn xor(a: [u64; WIDTH], b: [u64; WIDTH]) -> [u64; WIDTH] {
        all(|i| a[i] ^ b[i])
    }
    #[inline(always)]
    unsafe fn splat(word: u64) -> [u64; WIDTH] {
        [word; WIDTH]
    }
    #[inline(always)]
    unsafe fn select(mask: u8, a: [u64; WIDTH], b: [u64; WIDTH]) -> [u64; WIDTH] {
        all(|i| if mask >> i & 1 != 0 { a[i] } else { b[i] })
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
mod x86;

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
                W::add_one(x, mask),
                W::up(x),
                W::down(x),
            ];
            let stored = words.map(|words| {
                let mut to = *b;
                W::store(to.as_mut_ptr(), words);
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
