//! Variable-length numbers (LEB128) of one to ten bytes: seven bits per byte, least significant
//! first. Only the shortest form is valid.

use alloc::vec::Vec;

/// Appends `value`.
#[inline]
pub fn put(out: &mut Vec<u8>, value: u64) {
    each_byte(value, |byte| out.push(byte));
}

/// Calls `put` with the bytes of `value`.
#[inline]
pub(super) fn each_byte(mut value: u64, mut put: impl FnMut(u8)) {
    while value >= 0x80 {
        put(value as u8 | 0x80);
        value >>= 7;
    }
    put(value as u8);
}

/// A number below 2^28 as a word, and its length in bits.
#[inline]
pub(super) fn word(value: u32) -> (u64, u32) {
    let value = u64::from(value);
    if value < 0x80 {
        return (value, 8);
    }
    let (mut word, mut bits, mut rest) = (value & 0x7F, 8, value >> 7);
    while rest > 0 {
        word |= 1 << (bits - 1) | (rest & 0x7F) << bits;
        rest >>= 7;
        bits += 8;
    }
    (word, bits)
}

/// Length of a number in bytes.
#[inline]
pub fn len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Splits a number from the start of `bytes`. Returns it with the rest. `None` if the bytes end too
/// early or the number is not in its shortest form.
pub fn split(bytes: &[u8]) -> Option<(u64, &[u8])> {
    match take(bytes) {
        Taken::Value(value, used) => Some((value, bytes.get(used..)?)),
        _ => None,
    }
}

/// The result of [`take`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// A number and its length in bytes.
    Value(u64, usize),
    /// The bytes end inside the number.
    Short,
    /// The number exceeds 64 bits or is not in its shortest form.
    Malformed,
}

/// Reads a number from the start of `bytes`. Most have one or two bytes.
#[inline]
pub(super) fn take(bytes: &[u8]) -> Taken {
    match *bytes {
        [value @ ..0x80, ..] => Taken::Value(u64::from(value), 1),
        [low, high @ 1..0x80, ..] => Taken::Value(u64::from(low & 0x7F) | u64::from(high) << 7, 2),
        _ => take_any(bytes),
    }
}

fn take_any(bytes: &[u8]) -> Taken {
    let mut value = 0u64;
    for (i, &byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7F) << (7 * i);
        if byte < 0x80 {
            let overflows = i == 9 && byte > 1;
            let padded = i > 0 && byte == 0;
            return if overflows || padded { Taken::Malformed } else { Taken::Value(value, i + 1) };
        }
    }
    if bytes.len() < 10 { Taken::Short } else { Taken::Malformed }
}

/// Maps signed numbers to unsigned ones such that numbers near zero stay short.
#[inline]
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The inverse of [`zigzag`].
#[inline]
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_comes_back() {
        for shift in 0..64 {
            for value in [(1u64 << shift) - 1, 1 << shift, u64::MAX >> (63 - shift)] {
                let mut out = Vec::new();
                put(&mut out, value);
                assert_eq!(out.len(), len(value));
                if value < 1 << 28 {
                    let (word, bits) = word(value as u32);
                    assert_eq!((&word.to_le_bytes()[..bits as usize / 8], word >> bits), (&out[..], 0));
                }
                assert_eq!(take(&out), Taken::Value(value, out.len()));
                assert_eq!(take(&out[..out.len() - 1]), Taken::Short);
                assert_eq!(unzigzag(zigzag(value as i64)), value as i64);
            }
        }
    }

    #[test]
    fn longer_forms_are_refused() {
        assert_eq!(take(&[0x80, 0x00]), Taken::Malformed);
        assert_eq!(take(&[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x02]), Taken::Malformed);
        assert_eq!(take(&[0x80; 10]), Taken::Malformed);
    }

    #[test]
    fn the_shortest_form_there_and_back() {
        use crate::frame::varint;
        let mut bytes = Vec::new();
        varint::put(&mut bytes, varint::zigzag(-150));
        assert_eq!((&bytes[..], varint::len(299)), (&[0xAB, 0x02][..], 2));
        let (value, rest) = varint::split(&bytes).unwrap();
        assert_eq!((varint::unzigzag(value), rest), (-150, &[][..]));
        assert_eq!(varint::split(&[0x80, 0x00]), None, "only the shortest form is valid");
    }
}
