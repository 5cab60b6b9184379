//! The compressor `none`: no compression. It serves for comparison.

use alloc::{boxed::Box, vec::Vec};

use super::{BuiltIn, Compress, CompressError, Decompress, DecompressError, Properties};

/// The compressor `none`.
pub(super) static NONE: BuiltIn = BuiltIn {
    name: "none",
    properties: &Properties {
        summary: "no compression",
        levels: None,
        dictionary: false,
        typical_use: "comparison, and topics that override a default",
        specification: "spec/compress.md",
    },
    compression: |_, _| Ok(Box::new(Copy)),
    decompression: |_| Ok(Box::new(Copy)),
};

struct Copy;

impl Compress for Copy {
    fn compress(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), CompressError> {
        out.extend_from_slice(input);
        Ok(())
    }
}

impl Decompress for Copy {
    fn decompress(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), DecompressError> {
        match input.len().checked_sub(output.len()) {
            Some(0) => {
                output.copy_from_slice(input);
                Ok(())
            }
            Some(left) => Err(DecompressError::Trailing { left }),
            None => Err(DecompressError::Truncated { written: input.len(), expected: output.len() }),
        }
    }
}
