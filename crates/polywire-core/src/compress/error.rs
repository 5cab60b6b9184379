//! What can go wrong.

use alloc::string::String;

/// Why something was not compressed. Whoever sends goes on without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot compress: {0}")]
pub struct CompressError(pub &'static str);

/// Why bytes are not what a compressor wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecompressError {
    /// The input ends too early.
    #[error("the compressed bytes end after {written} of {expected} bytes came out")]
    Truncated {
        /// Bytes that had come out by then.
        written: usize,
        /// Bytes that should come out.
        expected: usize,
    },
    /// More comes out than was said.
    #[error("more than the {expected} bytes that were said come out")]
    TooLong {
        /// Bytes that should come out.
        expected: usize,
    },
    /// Everything came out, and input is left.
    #[error("{left} compressed bytes are left over")]
    Trailing {
        /// How many.
        left: usize,
    },
    /// The format does not allow it.
    #[error("compressed byte {offset}: {what}")]
    Malformed {
        /// Where reading stood.
        offset: usize,
        /// What is wrong there.
        what: &'static str,
    },
    /// A library refused the input and does not say where.
    #[error("the compressed bytes are damaged: {0}")]
    Damaged(&'static str),
}

/// Why a payload cannot be unpacked.
///
/// ```
/// use polywire_core::compress::{self, Limits, UnpackError, Unpacker};
/// let mut unpacker = Unpacker::new(compress::find("lz4").unwrap(), &[], Limits::default())?;
/// // Five bytes that are to become a gigabyte.
/// assert!(matches!(unpacker.unpack(b"\x80\x80\x80\x80\x04"), Err(UnpackError::TooLarge { .. } | UnpackError::Expansion { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnpackError {
    /// The size in front of the compressed bytes is no number.
    #[error("the size in front of the payload is malformed")]
    Size,
    /// It says more than a message may have.
    #[error("a payload of {said} bytes is said to come; the limit is {limit}")]
    TooLarge {
        /// Bytes that it says.
        said: u64,
        /// The limit.
        limit: usize,
    },
    /// It says more than so few bytes may become.
    #[error("{compressed} bytes are said to become {said}; {limit} is the limit")]
    Expansion {
        /// Bytes that came.
        compressed: usize,
        /// Bytes that it says.
        said: u64,
        /// The limit.
        limit: usize,
    },
    /// The bytes are not what the compressor writes.
    #[error(transparent)]
    Decompress(#[from] DecompressError),
}

/// Why a compressor cannot be had as asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// An option that no compressor has.
    #[error("compressor '{compressor}': there is no option '{option}'; there are: LEVEL, min, ratio, dict")]
    Unknown {
        /// Its name.
        compressor: String,
        /// As given.
        option: String,
    },
    /// An option with a value that it does not take.
    #[error("compressor '{compressor}': '{option}' is given; {expected}")]
    Value {
        /// Its name.
        compressor: String,
        /// As given, with its value.
        option: String,
        /// What it takes.
        expected: String,
    },
    /// An option is there twice.
    #[error("compressor '{compressor}': '{option}' is there twice")]
    Twice {
        /// Its name.
        compressor: String,
        /// Which.
        option: String,
    },
    /// A dictionary for a compressor that takes none.
    #[error("compressor '{compressor}' takes no dictionary; lz4 and zstd do")]
    NoDictionary {
        /// Its name.
        compressor: String,
    },
    /// The dictionary is damaged.
    #[error("compressor '{compressor}': the dictionary of {bytes} bytes is none: {reason}")]
    Dictionary {
        /// Its name.
        compressor: String,
        /// Its length.
        bytes: usize,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The library has no memory for it.
    #[error("compressor '{compressor}' cannot be set up: {reason}")]
    Setup {
        /// Its name.
        compressor: String,
        /// What it said.
        reason: &'static str,
    },
}
