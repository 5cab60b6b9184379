//! Varints: groups of seven bits, least significant first. The top bit of a byte says that more
//! follow.
//!
//! The length of numbers is not predictable, and a mispredicted branch costs more than all the
//! shifts here. Therefore numbers of up to eight bytes are converted without branches.

/// Numbers below this have at most eight bytes.
pub(super) const SHORT: u64 = 1 << 56;

/// The bytes of a number below [`SHORT`], the first in the lowest byte, and how many they are.
#[inline(always)]
pub(super) fn spread(value: u64) -> (u64, usize) {
    let fours = value & 0x0FFF_FFFF | (value & 0x00FF_FFFF_F000_0000) << 4;
    let twos = fours & 0x0000_3FFF_0000_3FFF | (fours & 0x0FFF_C000_0FFF_C000) << 2;
    let groups = twos & 0x007F_007F_007F_007F | (twos & 0x3F80_3F80_3F80_3F80) << 1;
    let bits = 64 - (value | 1).leading_zeros();
    // A seventh of the bits, rounded up, for up to 64 bits.
    let bytes = (bits * 9 + 64) / 64;
    let more = 0x8080_8080_8080_8080 & ((1u64 << (8 * bytes - 8)) - 1);
    (groups | more, bytes as usize)
}

/// The number at the start of these bytes and its length in bytes. `None` if it has more than
/// eight.
#[inline(always)]
pub(super) fn gather(bytes: [u8; 8]) -> Option<(u64, usize)> {
    let word = u64::from_le_bytes(bytes);
    let last = !word & 0x8080_8080_8080_8080;
    if last == 0 {
        return None;
    }
    // Keep the bits up to the first byte that ends the number.
    Some((joined(word & (last ^ (last - 1))), last.trailing_zeros() as usize / 8 + 1))
}

/// The number at the start of these bytes, if it has nine or ten bytes and 64 bits suffice, and its
/// length in bytes.
pub(super) fn gather_long(bytes: &[u8; 10]) -> Option<(u64, usize)> {
    let [front @ .., ninth, tenth] = *bytes;
    let word = u64::from_le_bytes(front);
    if !word & 0x8080_8080_8080_8080 > 0 {
        return None;
    }
    let value = joined(word) | u64::from(ninth & 0x7F) << 56;
    match (ninth, tenth) {
        (..0x80, _) => Some((value, 9)),
        (_, 0 | 1) => Some((value | u64::from(tenth) << 63, 10)),
        _ => None,
    }
}

/// The groups of seven bits in the bytes of a word, without gaps.
#[inline(always)]
fn joined(word: u64) -> u64 {
    let groups = word & 0x7F7F_7F7F_7F7F_7F7F;
    let twos = groups & 0x007F_007F_007F_007F | (groups & 0x7F00_7F00_7F00_7F00) >> 1;
    let fours = twos & 0x0000_3FFF_0000_3FFF | (twos & 0x3FFF_0000_3FFF_0000) >> 2;
    fours & 0x0FFF_FFFF | (fours & 0x0FFF_FFFF_0000_0000) >> 4
}

/// The bytes of a number, and how many they are.
pub(super) fn bytes(mut value: u64) -> ([u8; 10], usize) {
    let mut bytes = [0; 10];
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = value as u8 & 0x7F;
        value >>= 7;
        if value == 0 {
            return (bytes, i + 1);
        }
        *byte |= 0x80;
    }
    (bytes, 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spread_is_gathered_again() {
        for bit in 0..56 {
            for value in [1u64 << bit, (1 << bit) - 1, 0x00A5_5A3C_C3F0_0F69 & ((2 << bit) - 1)] {
                let (expected, len) = bytes(value);
                let (word, spread_len) = spread(value);
                assert_eq!((&word.to_le_bytes()[..spread_len], spread_len), (&expected[..len], len), "{value:#x}");
                for behind in [0, u64::MAX] {
                    let shift = 8 * len as u32;
                    let word = if shift == 64 { word } else { word | behind << shift };
                    assert_eq!(gather(word.to_le_bytes()), Some((value, len)), "{value:#x}");
                }
            }
        }
        assert_eq!(gather([0x80; 8]), None);
        assert_eq!(bytes(u64::MAX).1, 10);
    }

    #[test]
    fn long_numbers_are_gathered_up_to_64_bits() {
        for bit in 56..64 {
            for value in [1u64 << bit, u64::MAX >> (63 - bit), 0xA55A_3CC3_F00F_6996 >> (63 - bit)] {
                let (mut number, len) = bytes(value);
                for behind in [0, 0xFF] {
                    number[len..].fill(behind);
                    assert_eq!(gather_long(&number), Some((value, len)), "{value:#x}");
                }
            }
        }
        let [short, beyond] = [[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1, 0, 0], [0xFF; 10]];
        assert_eq!([gather_long(&short), gather_long(&beyond)], [None; 2]);
        // Not the shortest form, which is valid, too.
        assert_eq!(gather_long(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0]), Some((0, 10)));
    }
}
