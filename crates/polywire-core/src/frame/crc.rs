//! CRC32C (Castagnoli), as in iSCSI and SCTP. It protects datagrams. With the standard library, the
//! crate `crc32c` uses the processor's instruction for it; without, tables serve.

/// The checksum of `bytes`.
///
/// ```
/// assert_eq!(polywire_core::frame::crc32c(b"123456789"), 0xE306_9283);
/// ```
pub fn crc32c(bytes: &[u8]) -> u32 {
    #[cfg(feature = "std")]
    return ::crc32c::crc32c(bytes);
    #[cfg(not(feature = "std"))]
    return by_tables(bytes);
}

#[cfg(any(test, not(feature = "std")))]
fn by_tables(bytes: &[u8]) -> u32 {
    let mut chunks = bytes.chunks_exact(8);
    let mut crc = !0u32;
    for chunk in &mut chunks {
        crc = eight(crc, chunk);
    }
    !chunks.remainder().iter().fold(crc, |crc, &byte| (crc >> 8) ^ TABLES[0][usize::from(crc as u8 ^ byte)])
}

#[cfg(any(test, not(feature = "std")))]
fn eight(crc: u32, chunk: &[u8]) -> u32 {
    chunk
        .iter()
        .zip(crc.to_le_bytes().into_iter().chain([0; 4]))
        .zip(TABLES.iter().rev())
        .fold(0, |sum, ((&byte, seed), table)| sum ^ table[usize::from(byte ^ seed)])
}

/// `TABLES[n][b]` is the contribution of byte `b` if `n` bytes follow it.
#[cfg(any(test, not(feature = "std")))]
static TABLES: [[u32; 256]; 8] = tables();

#[cfg(any(test, not(feature = "std")))]
const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0u32; 256]; 8];
    let mut i = 0;
    while i < 256 {
        let mut crc = i as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ (0x82F6_3B78 * (crc & 1));
            bit += 1;
        }
        tables[0][i] = crc;
        i += 1;
    }
    let mut n = 1;
    while n < 8 {
        let mut i = 0;
        while i < 256 {
            let before = tables[n - 1][i];
            tables[n][i] = (before >> 8) ^ tables[0][(before & 0xFF) as usize];
            i += 1;
        }
        n += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::{by_tables, crc32c};

    /// The check values of RFC 3720, appendix B.4, and the usual check value of nine digits.
    #[test]
    fn known_values() {
        assert_eq!(crc32c(b""), 0);
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA);
        assert_eq!(crc32c(&[0xFF; 32]), 0x62A8_AB43);
        let ascending: [u8; 32] = core::array::from_fn(|i| i as u8);
        assert_eq!(crc32c(&ascending), 0x46DD_794E);
    }

    #[test]
    fn tables_agree_with_the_crate() {
        let bytes: [u8; 300] = core::array::from_fn(|i| (i * 37 + i / 7) as u8);
        for len in 0..bytes.len() {
            assert_eq!(by_tables(&bytes[..len]), crc32c(&bytes[..len]), "{len} bytes");
        }
    }
}
