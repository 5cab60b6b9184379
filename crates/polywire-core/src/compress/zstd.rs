//! The compressor `zstd`: Zstandard, by a library.

use alloc::{boxed::Box, string::ToString, vec::Vec};

use ::zstd::zstd_safe::{self, CCtx, CParameter, DCtx};

use super::{BuiltIn, Compress, CompressError, Decompress, DecompressError, Levels, Properties, SettingsError};

/// The compressor `zstd`: one Zstandard frame.
pub(super) static ZSTD: BuiltIn = BuiltIn {
    name: NAME,
    properties: &Properties {
        summary: "Zstandard: small and fast; try it first",
        levels: Some(Levels { least: -7, most: 22, usual: 3 }),
        dictionary: true,
        typical_use: "everything that is worth compressing; with a dictionary also small messages",
        specification: "RFC 8878",
    },
    compression,
    decompression,
};

const NAME: &str = "zstd";

fn compression(level: i32, dictionary: &[u8]) -> Result<Box<dyn Compress>, SettingsError> {
    let mut context = CCtx::try_create().ok_or_else(|| setup("no memory"))?;
    // The announcement of the channel names the dictionary, so frames need not.
    for parameter in [CParameter::CompressionLevel(level), CParameter::DictIdFlag(false)] {
        context.set_parameter(parameter).map_err(|code| setup(zstd_safe::get_error_name(code)))?;
    }
    if !dictionary.is_empty() {
        check(dictionary)?;
        context.load_dictionary(dictionary).map_err(|code| refused(dictionary, code))?;
    }
    Ok(Box::new(Encoder(context)))
}

fn decompression(dictionary: &[u8]) -> Result<Box<dyn Decompress>, SettingsError> {
    let mut context = DCtx::try_create().ok_or_else(|| setup("no memory"))?;
    if !dictionary.is_empty() {
        check(dictionary)?;
        context.load_dictionary(dictionary).map_err(|code| refused(dictionary, code))?;
    }
    Ok(Box::new(Decoder(context)))
}

/// Checks a dictionary: the library's context would accept a damaged one and fail at the first
/// message.
fn check(dictionary: &[u8]) -> Result<(), SettingsError> {
    let made = zstd_safe::DDict::try_create(dictionary);
    made.map(drop).ok_or_else(|| SettingsError::Dictionary {
        compressor: NAME.to_string(),
        bytes: dictionary.len(),
        reason: "its tables are damaged",
    })
}

fn refused(dictionary: &[u8], code: usize) -> SettingsError {
    let reason = zstd_safe::get_error_name(code);
    SettingsError::Dictionary { compressor: NAME.to_string(), bytes: dictionary.len(), reason }
}

fn setup(reason: &'static str) -> SettingsError {
    SettingsError::Setup { compressor: NAME.to_string(), reason }
}

struct Encoder(CCtx<'static>);

impl Compress for Encoder {
    fn compress(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), CompressError> {
        let start = out.len();
        out.resize(start + zstd_safe::compress_bound(input.len()), 0);
        let room = out.get_mut(start..).unwrap_or_default();
        let len = self.0.compress2(room, input).map_err(|code| CompressError(zstd_safe::get_error_name(code)))?;
        out.truncate(start + len);
        Ok(())
    }
}

struct Decoder(DCtx<'static>);

impl Decompress for Decoder {
    /// Decompresses straight into `output`. No window is allocated, whatever size a frame declares.
    fn decompress(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), DecompressError> {
        let expected = output.len();
        match self.0.decompress(output, input) {
            Ok(written) if written == expected => Ok(()),
            Ok(written) => Err(DecompressError::Truncated { written, expected }),
            Err(code) => Err(DecompressError::Damaged(zstd_safe::get_error_name(code))),
        }
    }
}
