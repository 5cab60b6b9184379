//! Searches bytes many at a time, for the first byte that needs attention. Kernels of text formats
//! and `utf8` call it. It reads slices only.

use super::copy::copy_short;

/// The result of a search: the bytes in front of the first one that it stops at. Only searches of
/// this module make one, because its length and its ASCII flag are used without another check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Clean<'a> {
    /// The bytes that were searched.
    whole: &'a [u8],
    /// At most the length of `whole`.
    len: usize,
    /// Whether all bytes in front are ASCII.
    ascii: bool,
}

impl<'a> Clean<'a> {
    /// Makes the result of a search in `whole` from the length and the ASCII flag.
    #[inline(always)]
    fn new(whole: &'a [u8], (len, ascii): (usize, bool)) -> Clean<'a> {
        debug_assert!(len <= whole.len() && whole[..len].is_ascii() == ascii, "a search is wrong");
        Clean { whole, len, ascii }
    }

    /// The bytes that were searched.
    #[inline]
    pub(crate) fn whole(&self) -> &'a [u8] {
        self.whole
    }

    /// The number of bytes in front.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The bytes in front.
    #[inline]
    pub(crate) fn bytes(&self) -> &'a [u8] {
        // SAFETY: `len` is at most the length of `whole`.
        unsafe { self.whole.get_unchecked(..self.len) }
    }

    /// The byte that the search stopped at, and all behind it.
    #[inline]
    pub(crate) fn rest(&self) -> &'a [u8] {
        // SAFETY: `len` is at most the length of `whole`, so the rest begins within it.
        unsafe { self.whole.get_unchecked(self.len..) }
    }

    /// True if all bytes in front are ASCII.
    #[inline]
    pub(crate) fn is_ascii(&self) -> bool {
        self.ascii
    }

    /// The bytes in front as text, if all of them are ASCII.
    #[inline]
    pub(crate) fn as_ascii(&self) -> Option<&'a str> {
        // SAFETY: the search has found no byte beyond ASCII.
        self.ascii.then(|| unsafe { core::str::from_utf8_unchecked(self.bytes()) })
    }
}

/// True if there is no quote, backslash or control character. The last word overlaps the one
/// before.
#[inline]
pub(crate) fn is_clean(bytes: &[u8]) -> bool {
    let len = bytes.len();
    match len {
        0..8 => {
            let mut word = [b' '; 8];
            // SAFETY: `bytes` has fewer than the eight bytes of `word`, and they do not overlap.
            unsafe { copy_short(bytes, word.as_mut_ptr()) };
            stops(u64::from_le_bytes(word)) == 0
        }
        8..16 => {
            let word = |chunk: Option<&[u8; 8]>| chunk.map_or(0, |bytes| u64::from_le_bytes(*bytes));
            stops(word(bytes.first_chunk())) | stops(word(bytes.last_chunk())) == 0
        }
        _ => {
            let is_clean = |chunk: &[u8; 16]| !stops_sixteen(chunk);
            bytes.as_chunks().0.iter().all(is_clean) && bytes.last_chunk().is_none_or(is_clean)
        }
    }
}

/// True if a search stops in sixteen bytes.
#[inline]
fn stops_sixteen(bytes: &[u8; 16]) -> bool {
    // SAFETY: sixteen bytes are readable from the address on, and every x86-64 has SSE2.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    return unsafe { sse2::masks(bytes.as_ptr()) }.0 != 0;
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    return words(bytes, 0, true).0 < 16;
}

/// Searches for a quote, a backslash or a control character: the bytes that a JSON string must
/// escape.
#[inline]
pub(crate) fn clean(bytes: &[u8]) -> Clean<'_> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    let found = sse2::clean(bytes);
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let found = words(bytes, 0, true);
    Clean::new(bytes, found)
}

/// Searches for bytes that may need attention in XML: `<`, `>`, `&`, `]`, a quote, a control
/// character, an underscore in front of an `x`. Some other underscores are reported, too.
#[inline]
pub(crate) fn markup(bytes: &[u8]) -> Clean<'_> {
    let (mut at, mut ascii) = (0, true);
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    while bytes.len() - at >= 16 {
        // SAFETY: sixteen bytes are readable from the address on, and every x86-64 has SSE2.
        let (stops, high) = unsafe { sse2::markup(bytes.as_ptr().add(at)) };
        if stops != 0 {
            let len = stops.trailing_zeros();
            return Clean::new(bytes, (at + len as usize, ascii && high & ((1 << len) - 1) == 0));
        }
        ascii &= high == 0;
        at += 16;
    }
    while let Some(byte) = bytes.get(at) {
        let is_identifier = *byte == b'_' && bytes.get(at + 1).is_some_and(|next| *next != b'x');
        if STOPS_MARKUP[usize::from(*byte)] && !is_identifier {
            break;
        }
        ascii &= *byte < 0x80;
        at += 1;
    }
    Clean::new(bytes, (at, ascii))
}

const STOPS_MARKUP: [bool; 256] = {
    let mut stops = [false; 256];
    let (mut i, marks) = (0, b"<>&]\"'_");
    while i < 32 {
        stops[i] = true;
        i += 1;
    }
    i = 0;
    while i < marks.len() {
        stops[marks[i] as usize] = true;
        i += 1;
    }
    stops
};

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// A word whose lowest set high bit is that of the first byte that a string must escape; higher
/// ones may be wrong.
#[inline]
fn stops(word: u64) -> u64 {
    let quote = word ^ (ONES * b'"' as u64);
    let backslash = word ^ (ONES * b'\\' as u64);
    let zero_in = |w: u64| w.wrapping_sub(ONES) & !w;
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    (zero_in(quote) | zero_in(backslash) | control) & HIGHS
}

/// Searches eight bytes at a time from `at` on; all bytes before are clean. Returns the length, and
/// whether all of it is ASCII.
#[inline]
fn words(bytes: &[u8], mut at: usize, mut ascii: bool) -> (usize, bool) {
    while let Some(chunk) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let word = u64::from_le_bytes(*chunk);
        let found = stops(word);
        if found != 0 {
            let len = found.trailing_zeros() as usize / 8;
            let before = (1u64 << (8 * len)) - 1;
            return (at + len, ascii && word & before & HIGHS == 0);
        }
        ascii &= word & HIGHS == 0;
        at += 8;
    }
    for byte in &bytes[at.min(bytes.len())..] {
        if *byte < 0x20 || *byte == b'"' || *byte == b'\\' {
            break;
        }
        ascii &= *byte < 0x80;
        at += 1;
    }
    (at, ascii)
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod sse2 {
    use core::arch::x86_64::{
        __m128i, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128, _mm_set1_epi8,
    };

    /// A bit for each byte that may need attention in XML, and one for each that is not ASCII.
    ///
    /// # Safety
    /// Sixteen bytes are readable at `at`.
    #[inline]
    pub(super) unsafe fn markup(at: *const u8) -> (u32, u32) {
        // SAFETY: the only load reads the sixteen bytes of the contract; all else is in registers.
        unsafe {
            let chunk = _mm_loadu_si128(at.cast::<__m128i>());
            let is = |byte: u8| _mm_cmpeq_epi8(chunk, _mm_set1_epi8(byte as i8));
            let angles = _mm_or_si128(is(b'<'), is(b'>'));
            let others = _mm_or_si128(_mm_or_si128(is(b'&'), is(b'\'')), _mm_or_si128(is(b'"'), is(b']')));
            let control = _mm_cmpeq_epi8(_mm_min_epu8(chunk, _mm_set1_epi8(0x1F)), chunk);
            let stops = _mm_movemask_epi8(_mm_or_si128(_mm_or_si128(angles, others), control)) as u32;
            let (underscores, x) = (_mm_movemask_epi8(is(b'_')) as u32, _mm_movemask_epi8(is(b'x')) as u32);
            // The byte behind the last of the sixteen is not known, so an underscore there counts.
            (stops | underscores & (x >> 1 | 0x8000), _mm_movemask_epi8(chunk) as u32)
        }
    }

    #[inline]
    pub(super) fn clean(bytes: &[u8]) -> (usize, bool) {
        let (mut at, mut ascii) = (0, true);
        while bytes.len() - at >= 16 {
            // SAFETY: sixteen bytes are readable from the address on, and every x86-64 has SSE2.
            let (stops, high) = unsafe { masks(bytes.as_ptr().add(at)) };
            if stops != 0 {
                let len = stops.trailing_zeros();
                return (at + len as usize, ascii && high & ((1 << len) - 1) == 0);
            }
            ascii &= high == 0;
            at += 16;
        }
        super::words(bytes, at, ascii)
    }

    /// A bit for each byte that a string must escape, and one for each that is not ASCII.
    ///
    /// # Safety
    /// Sixteen bytes are readable at `at`.
    #[inline]
    pub(super) unsafe fn masks(at: *const u8) -> (u32, u32) {
        // SAFETY: the only load reads the sixteen bytes of the contract; all else is in registers.
        unsafe {
            let chunk = _mm_loadu_si128(at.cast::<__m128i>());
            let quote = _mm_cmpeq_epi8(chunk, _mm_set1_epi8(b'"' as i8));
            let backslash = _mm_cmpeq_epi8(chunk, _mm_set1_epi8(b'\\' as i8));
            let control = _mm_cmpeq_epi8(_mm_min_epu8(chunk, _mm_set1_epi8(0x1F)), chunk);
            let stops = _mm_or_si128(_mm_or_si128(quote, backslash), control);
            (_mm_movemask_epi8(stops) as u32, _mm_movemask_epi8(chunk) as u32)
        }
    }
}

/// True if `bytes` begins with `prefix`: for short prefixes faster than a call to compare memory.
#[inline(always)]
pub(crate) fn starts_with(bytes: &[u8], prefix: &[u8]) -> bool {
    let len = prefix.len();
    if bytes.len() < len {
        return false;
    }
    if len < 8 {
        return bytes.iter().zip(prefix).all(|(a, b)| a == b);
    }
    // SAFETY: every read of eight bytes ends at most at `len`, which both have.
    let differ = |at: usize| unsafe {
        bytes.as_ptr().add(at).cast::<u64>().read_unaligned() != prefix.as_ptr().add(at).cast::<u64>().read_unaligned()
    };
    let mut at = 0;
    while at + 8 <= len {
        if differ(at) {
            return false;
        }
        at += 8;
    }
    !differ(len - 8)
}

#[cfg(test)]
mod tests {
    use alloc::{format, string::String, vec};

    use super::*;

    fn slow(bytes: &[u8]) -> (usize, bool) {
        let len = bytes.iter().position(|b| *b < 0x20 || matches!(b, b'"' | b'\\')).unwrap_or(bytes.len());
        (len, bytes[..len].is_ascii())
    }

    fn agree(bytes: &[u8], what: &dyn Fn() -> String) {
        let (found, wanted) = (clean(bytes), slow(bytes));
        assert_eq!((found.len(), found.is_ascii()), wanted, "{}", what());
        assert_eq!(words(bytes, 0, true), wanted, "{}", what());
        assert_eq!(is_clean(bytes), wanted.0 == bytes.len(), "{}", what());
        assert_eq!(found.as_ascii().map(str::as_bytes), wanted.1.then_some(found.bytes()), "{}", what());
        assert_eq!((found.bytes(), found.rest()), found.whole().split_at(wanted.0), "{}", what());
    }

    #[test]
    fn every_byte_at_every_place_is_found() {
        for len in 0..70 {
            for at in 0..len {
                for byte in [0, 0x1F, 0x20, b'!', b'"', b'#', b'[', b'\\', b']', 0x7F, 0x80, 0xA2, 0xDC, 0xFF] {
                    let mut bytes = vec![b'x'; len];
                    bytes[at] = byte;
                    agree(&bytes, &|| format!("{byte:#x} at {at} of {len}"));
                    bytes[len - 1] = b'"';
                    agree(&bytes, &|| format!("{byte:#x} at {at} of {len}, then a quote"));
                }
            }
        }
    }

    #[test]
    fn nothing_that_xml_needs_escaped_is_missed() {
        for len in 1..40 {
            for at in 0..len {
                for byte in 0..=255u8 {
                    let mut bytes = vec![b'y'; len + 1];
                    bytes[at] = byte;
                    bytes[at + 1] = b'x';
                    let stop = byte < 0x20 || b"<>&]\"'_".contains(&byte);
                    let found = markup(&bytes);
                    assert_eq!(found.len(), if stop { at } else { len + 1 }, "{byte:#x} at {at} of {len}");
                    assert_eq!(found.ascii, stop || byte < 0x80, "{byte:#x} at {at} of {len}");
                }
            }
        }
        // An identifier's underscores cost nothing where the bytes behind them are seen as well.
        assert_eq!(markup(b"an_identifier_aa_bit_longer_then").len(), 32);
    }

    #[test]
    fn prefixes_are_compared_to_the_last_byte() {
        let bytes: alloc::vec::Vec<u8> = (0..40).collect();
        for len in 0..40 {
            assert!(starts_with(&bytes, &bytes[..len]));
            for at in 0..len {
                let mut other = bytes[..len].to_vec();
                other[at] ^= 1;
                assert!(!starts_with(&bytes, &other), "{at} of {len}");
            }
            assert!(!starts_with(&bytes[..len], &bytes[..len + 1]));
        }
    }
}
