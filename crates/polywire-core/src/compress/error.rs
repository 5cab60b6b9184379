//! Errors of compressors, payloads and settings.

use alloc::string::String;

/// Why a message was not compressed. The sender sends it uncompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot compress: {0}")]
pub struct CompressError(pub &'static str);

/// Why bytes cannot be decompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecompressError {
    /// The input ends before the output is complete.
    #[error("the compressed bytes end after {written} of {expected} decompressed bytes")]
    Truncated {
        /// Bytes decompressed up to then.
        written: usize,
        /// Expected size in bytes.
        expected: usize,
    },
    /// The output exceeds the announced size.
    #[error("the compressed bytes expand to more than the announced {expected} bytes")]
    TooLong {
        /// Expected size in bytes.
        expected: usize,
    },
    /// The output is complete, but input is left.
    #[error("{left} compressed bytes are left over")]
    Trailing {
        /// Number of bytes left.
        left: usize,
    },
    /// The input violates the format.
    #[error("compressed byte {offset}: {what}")]
    Malformed {
        /// Offset in the input, in bytes.
        offset: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// A library refused the input without giving an offset.
    #[error("the compressed bytes are damaged: {0}")]
    Damaged(&'static str),
}

/// Why a payload cannot be unpacked.
///
/// ```
/// use polywire_core::compress::{self, Limits, UnpackError, Unpacker};
/// let mut unpacker = Unpacker::new(compress::find("lz4").unwrap(), &[], Limits::default())?;
/// // Five bytes that announce a gigabyte.
/// assert!(matches!(unpacker.unpack(b"\x80\x80\x80\x80\x04"), Err(UnpackError::TooLarge { .. } | UnpackError::Expansion { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnpackError {
    /// The size in front of the compressed bytes is not a valid number.
    #[error("the size in front of the payload is malformed")]
    Size,
    /// The announced size exceeds the limit of a message.
    #[error("the payload announces {said} bytes; the limit is {limit}")]
    TooLarge {
        /// The announced size in bytes.
        said: u64,
        /// The limit in bytes.
        limit: usize,
    },
    /// The announced size exceeds the limit for so few compressed bytes.
    #[error("{compressed} compressed bytes announce {said} bytes; the limit is {limit}")]
    Expansion {
        /// Number of compressed bytes.
        compressed: usize,
        /// The announced size in bytes.
        said: u64,
        /// The limit in bytes.
        limit: usize,
    },
    /// The compressed bytes are not valid.
    #[error(transparent)]
    Decompress(#[from] DecompressError),
}

/// Why a compressor cannot be set up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// No compressor has this option.
    #[error("compressor '{compressor}': there is no option '{option}'; there are: LEVEL, min, ratio, dict")]
    Unknown {
        /// Name of the compressor.
        compressor: String,
        /// The option, as given.
        option: String,
    },
    /// The option's value is not allowed.
    #[error("compressor '{compressor}': invalid option '{option}': {expected}")]
    Value {
        /// Name of the compressor.
        compressor: String,
        /// The option with its value, as given.
        option: String,
        /// The allowed values.
        expected: String,
    },
    /// The option occurs twice.
    #[error("compressor '{compressor}': '{option}' occurs twice")]
    Twice {
        /// Name of the compressor.
        compressor: String,
        /// The option.
        option: String,
    },
    /// A dictionary was given to a compressor that takes none.
    #[error("compressor '{compressor}' takes no dictionary; lz4 and zstd do")]
    NoDictionary {
        /// Name of the compressor.
        compressor: String,
    },
    /// The dictionary is damaged.
    #[error("compressor '{compressor}': the dictionary of {bytes} bytes is not valid: {reason}")]
    Dictionary {
        /// Name of the compressor.
        compressor: String,
        /// Size of the dictionary in bytes.
        bytes: usize,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The library could not allocate its state.
    #[error("compressor '{compressor}' cannot be set up: {reason}")]
    Setup {
        /// Name of the compressor.
        compressor: String,
        /// The library's reason.
        reason: &'static str,
    },
}
