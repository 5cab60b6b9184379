//! The compressor `bzip2`: Burrows-Wheeler blocks, by a library.

use alloc::{boxed::Box, vec::Vec};

use ::bzip2::{Action, Compression, Status};

use super::{BuiltIn, Compress, CompressError, Decompress, DecompressError, Levels, Properties};

/// The compressor `bzip2`.
pub(super) static BZIP2: BuiltIn = BuiltIn {
    name: "bzip2",
    properties: &Properties {
        summary: "bzip2: small for long texts, and slow",
        levels: Some(Levels { least: 1, most: 9, usual: 9 }),
        dictionary: false,
        typical_use: "comparison, and archives of large texts",
        specification: "the bzip2 program's format",
    },
    compression: |level, _| Ok(Box::new(Encoder { level: level.clamp(1, 9) as usize })),
    decompression: |_| Ok(Box::new(Decoder)),
};

/// Bytes of a block for each step of the level.
const BLOCK: usize = 100_000;

struct Encoder {
    level: usize,
}

impl Compress for Encoder {
    /// The library's state cannot be reused. It is made no larger than the message needs; the
    /// output is the same.
    fn compress(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), CompressError> {
        let level = self.level.min(input.len() / BLOCK + 1);
        let mut state = ::bzip2::Compress::new(Compression::new(level as u32), 0);
        let start = out.len();
        out.resize(start + input.len() + input.len() / 100 + 600, 0);
        loop {
            let rest = input.get(state.total_in() as usize..).unwrap_or_default();
            let room = out.get_mut(start + state.total_out() as usize..).unwrap_or_default();
            match state.compress(rest, room, Action::Finish) {
                Ok(Status::StreamEnd) => break,
                Ok(_) if !room.is_empty() => {}
                _ => return Err(CompressError("the output buffer is too small")),
            }
        }
        out.truncate(start + state.total_out() as usize);
        Ok(())
    }
}

struct Decoder;

impl Decompress for Decoder {
    fn decompress(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), DecompressError> {
        let mut state = ::bzip2::Decompress::new(false);
        let expected = output.len();
        // The library needs room for output even if there is none.
        let room = if expected == 0 { &mut [0][..] } else { output };
        loop {
            let before = (state.total_in() as usize, state.total_out() as usize);
            let rest = input.get(before.0..).unwrap_or_default();
            let status = state.decompress(rest, room.get_mut(before.1..).unwrap_or_default());
            let (used, written) = (state.total_in() as usize, state.total_out() as usize);
            match status {
                Ok(Status::StreamEnd) if written > expected => return Err(DecompressError::TooLong { expected }),
                Ok(Status::StreamEnd) if written < expected => {
                    return Err(DecompressError::Truncated { written, expected });
                }
                Ok(Status::StreamEnd) if used < input.len() => {
                    return Err(DecompressError::Trailing { left: input.len() - used });
                }
                Ok(Status::StreamEnd) => return Ok(()),
                Ok(_) if (used, written) != before => {}
                Ok(_) if used < input.len() => return Err(DecompressError::TooLong { expected }),
                Ok(_) => return Err(DecompressError::Truncated { written, expected }),
                Err(_) => {
                    let what = "not a bzip2 stream, or a checksum is wrong";
                    return Err(DecompressError::Malformed { offset: used, what });
                }
            }
        }
    }
}
