//! The compressor `zlib`: DEFLATE with a header and a checksum, by a library.

use alloc::{boxed::Box, vec::Vec};

use flate2::{Compression, FlushCompress, FlushDecompress, Status};

use super::{BuiltIn, Compress, CompressError, Decompress, DecompressError, Levels, Properties};

/// The compressor `zlib`.
pub(super) static ZLIB: BuiltIn = BuiltIn {
    name: "zlib",
    properties: &Properties {
        summary: "zlib: DEFLATE, the most widely supported format",
        levels: Some(Levels { least: 1, most: 9, usual: 6 }),
        dictionary: false,
        typical_use: "peers that support nothing else",
        specification: "RFC 1950",
    },
    compression: |level, _| Ok(Box::new(flate2::Compress::new(Compression::new(level.clamp(1, 9) as u32), true))),
    decompression: |_| Ok(Box::new(flate2::Decompress::new(true))),
};

/// Largest size of the output. At its fastest level, the library writes nine bits for an
/// incompressible byte; other levels add a thousandth.
fn bound(len: usize) -> usize {
    len + len / 7 + 64
}

impl Compress for flate2::Compress {
    fn compress(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), CompressError> {
        self.reset();
        let start = out.len();
        out.resize(start + bound(input.len()), 0);
        let room = out.get_mut(start..).unwrap_or_default();
        match flate2::Compress::compress(self, input, room, FlushCompress::Finish) {
            Ok(Status::StreamEnd) => {
                out.truncate(start + self.total_out() as usize);
                Ok(())
            }
            _ => Err(CompressError("the output buffer is too small")),
        }
    }
}

impl Decompress for flate2::Decompress {
    fn decompress(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), DecompressError> {
        self.reset(true);
        let expected = output.len();
        // The library needs room for output even if there is none.
        let room = if expected == 0 { &mut [0][..] } else { output };
        let status = flate2::Decompress::decompress(self, input, room, FlushDecompress::Finish);
        let (used, written) = (self.total_in() as usize, self.total_out() as usize);
        match status {
            Ok(Status::StreamEnd) if written > expected => Err(DecompressError::TooLong { expected }),
            Ok(Status::StreamEnd) if written < expected => Err(DecompressError::Truncated { written, expected }),
            Ok(Status::StreamEnd) => match input.len().saturating_sub(used) {
                0 => Ok(()),
                left => Err(DecompressError::Trailing { left }),
            },
            Ok(_) if used < input.len() => Err(DecompressError::TooLong { expected }),
            Ok(_) => Err(DecompressError::Truncated { written, expected }),
            Err(_) => {
                Err(DecompressError::Malformed { offset: used, what: "not a zlib stream, or its checksum is wrong" })
            }
        }
    }
}
