//! The compressor `none`: no compression. It serves for comparison.

use alloc::{boxed::Box, vec::Vec};

use super::{Compress, CompressError, Compressor, Decompress, DecompressError, Properties, SettingsError};

/// The compressor `none`.
pub static NONE: None = None;

/// See [`NONE`].
#[derive(Debug)]
pub struct None;

static PROPERTIES: Properties = Properties {
    summary: "no compression",
    levels: Option::None,
    dictionary: false,
    typical_use: "comparison, and topics that override a default",
    specification: "spec/compress.md",
};

impl Compressor for None {
    fn name(&self) -> &'static str {
        "none"
    }

    fn properties(&self) -> &'static Properties {
        &PROPERTIES
    }

    fn compression(&self, _: i32, _: &[u8]) -> Result<Box<dyn Compress>, SettingsError> {
        Ok(Box::new(Copy))
    }

    fn decompression(&self, _: &[u8]) -> Result<Box<dyn Decompress>, SettingsError> {
        Ok(Box::new(Copy))
    }
}

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
            Option::None => Err(DecompressError::Truncated { written: input.len(), expected: output.len() }),
        }
    }
}
