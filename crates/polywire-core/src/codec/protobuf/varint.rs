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
    let groups = word & (last ^ (last - 1)) & 0x7F7F_7F7F_7F7F_7F7F;
    let twos = groups & 0x007F_007F_007F_007F | (groups & 0x7F00_7F00_7F00_7F00) >> 1;
    let fours = twos & 0x0000_3FFF_0000_3FFF | (twos & 0x3FFF_0000_3FFF_0000) >> 2;
    let value = fours & 0x0FFF_FFFF | (fours & 0x0FFF_FFFF_0000_0000) >> 4;
    Some((value, last.trailing_zeros() as usize / 8 + 1))
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
}
