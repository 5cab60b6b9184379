//! Compressors. [`COMPRESSORS`] is the table of all of them: a new compressor is a file in this
//! folder and a line in the table; then it is listed, tested and benchmarked like the others.
//!
//! A [`Compressor`] makes the state that is reused for each message: a [`Compress`] or a
//! [`Decompress`]. Publishers use a [`Packer`], which compresses a payload if that pays and writes
//! its size in front; subscribers use an [`Unpacker`], which reverses this within [`Limits`].
//! `spec/compress.md` defines the bytes.
//!
//! ```
//! use polywire_core::compress::{self, Limits, Packer, Settings, Unpacker};
//!
//! let lz4 = compress::find("lz4").unwrap();
//! let mut packer = Packer::new(lz4, &Settings::default(), &[])?;
//! let mut unpacker = Unpacker::new(lz4, &[], Limits::default())?;
//!
//! let payload = b"as often as not, ".repeat(100);
//! let mut packed = Vec::new();
//! packer.pack(&payload, &mut packed);
//! assert!(packed.len() < payload.len() / 10);
//! assert_eq!(unpacker.unpack(&packed)?, payload);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use alloc::{boxed::Box, vec::Vec};

mod bits;
#[cfg(feature = "std")]
mod bzip2;
#[cfg(feature = "zstd")]
pub mod dictionary;
mod error;
mod huffman;
mod lz4;
mod lz77;
mod lzo;
mod lzw;
mod matcher;
mod none;
mod payload;
mod rle;
mod settings;
#[cfg(feature = "std")]
mod zlib;
#[cfg(feature = "zstd")]
mod zstd;

pub use error::{CompressError, DecompressError, SettingsError, UnpackError};
pub use payload::{Limits, Packer, Unpacker};
pub use settings::{OPTIONS, Settings, announced_dictionary};

/// All compressors of this crate, in the order of listings.
pub static COMPRESSORS: &[&dyn Compressor] = &[
    &none::NONE,
    &rle::RLE,
    &huffman::HUFFMAN,
    &lzw::LZW,
    &lz77::LZ77,
    #[cfg(feature = "std")]
    &zlib::ZLIB,
    #[cfg(feature = "std")]
    &bzip2::BZIP2,
    &lzo::LZO,
    &lz4::LZ4,
    #[cfg(feature = "zstd")]
    &zstd::ZSTD,
];

/// The compressor with this name.
pub fn find(name: &str) -> Option<&'static dyn Compressor> {
    COMPRESSORS.iter().copied().find(|compressor| compressor.name() == name)
}

/// A compression format.
///
/// ```
/// use polywire_core::compress::{Compress, CompressError, Compressor, Decompress, DecompressError, Levels, Properties, SettingsError};
///
/// /// Bytes the other way round, which saves nothing.
/// struct Backwards;
///
/// static PROPERTIES: Properties = Properties {
///     summary: "bytes the other way round",
///     levels: Some(Levels { least: 1, most: 1, usual: 1 }),
///     dictionary: false,
///     typical_use: "an example",
///     specification: "this one",
/// };
///
/// impl Compressor for Backwards {
///     fn name(&self) -> &'static str { "backwards" }
///     fn properties(&self) -> &'static Properties { &PROPERTIES }
///     fn compression(&self, _: i32, _: &[u8]) -> Result<Box<dyn Compress>, SettingsError> { Ok(Box::new(Backwards)) }
///     fn decompression(&self, _: &[u8]) -> Result<Box<dyn Decompress>, SettingsError> { Ok(Box::new(Backwards)) }
/// }
///
/// impl Compress for Backwards {
///     fn compress(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), CompressError> {
///         out.extend(input.iter().rev());
///         Ok(())
///     }
/// }
///
/// impl Decompress for Backwards {
///     fn decompress(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), DecompressError> {
///         match output.len().checked_sub(input.len()) {
///             Some(0) => output.iter_mut().zip(input.iter().rev()).for_each(|(to, from)| *to = *from),
///             Some(_) => return Err(DecompressError::Truncated { written: input.len(), expected: output.len() }),
///             None => return Err(DecompressError::TooLong { expected: output.len() }),
///         }
///         Ok(())
///     }
/// }
///
/// let (mut compressed, mut back) = (Vec::new(), [0; 3]);
/// Backwards.compression(1, &[])?.compress(b"abc", &mut compressed)?;
/// Backwards.decompression(&[])?.decompress(&compressed, &mut back)?;
/// assert_eq!((&compressed[..], &back), (&b"cba"[..], b"abc"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # For implementers
/// Output of [`Compress`] must be readable by the [`Decompress`] of any instance with the same
/// dictionary, whatever the level. Both keep their memory from one message to the next, but no
/// contents: messages are independent of each other.
pub trait Compressor: Send + Sync {
    /// The name in a wire string: lower-case letters, digits and `-`.
    fn name(&self) -> &'static str;

    /// Properties for listings and choices.
    fn properties(&self) -> &'static Properties;

    /// Makes a compressor state for a level. Callers have checked the level against
    /// [`Properties::levels`], and pass a dictionary only to compressors that take one; it is empty
    /// if there is none.
    fn compression(&self, level: i32, dictionary: &[u8]) -> Result<Box<dyn Compress>, SettingsError>;

    /// Makes a decompressor state for messages that were compressed with the same dictionary.
    fn decompression(&self, dictionary: &[u8]) -> Result<Box<dyn Decompress>, SettingsError>;
}

/// A compressor of this crate: see [`Compressor`] for the meaning of the fields.
struct BuiltIn {
    name: &'static str,
    properties: &'static Properties,
    compression: fn(i32, &[u8]) -> Made<dyn Compress>,
    decompression: fn(&[u8]) -> Made<dyn Decompress>,
}

type Made<T> = Result<Box<T>, SettingsError>;

impl Compressor for BuiltIn {
    fn name(&self) -> &'static str {
        self.name
    }

    fn properties(&self) -> &'static Properties {
        self.properties
    }

    fn compression(&self, level: i32, dictionary: &[u8]) -> Result<Box<dyn Compress>, SettingsError> {
        (self.compression)(level, dictionary)
    }

    fn decompression(&self, dictionary: &[u8]) -> Result<Box<dyn Decompress>, SettingsError> {
        (self.decompression)(dictionary)
    }
}

/// Properties by which users compare compressors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties {
    /// One line for listings.
    pub summary: &'static str,
    /// The levels. `None` for a compressor without levels.
    pub levels: Option<Levels>,
    /// True if it takes a dictionary: bytes that messages are likely to share.
    pub dictionary: bool,
    /// What it is typically used for.
    pub typical_use: &'static str,
    /// The specification of the format.
    pub specification: &'static str,
}

/// A range of levels, from fast to small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    /// The fastest level.
    pub least: i32,
    /// The level with the smallest output.
    pub most: i32,
    /// The default level.
    pub usual: i32,
}

impl Properties {
    /// The default level, or 0 for a compressor without levels.
    ///
    /// ```
    /// use polywire_core::compress::find;
    /// assert_eq!(find("zlib").unwrap().properties().default_level(), 6);
    /// assert_eq!(find("rle").unwrap().properties().default_level(), 0);
    /// ```
    pub fn default_level(&self) -> i32 {
        self.levels.map_or(0, |levels| levels.usual)
    }
}

/// A compressor state, for one message after the other.
pub trait Compress: Send {
    /// Appends the compressed bytes to `out`. After an error, the bytes of `out` after its old
    /// length are undefined.
    fn compress(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), CompressError>;
}

/// A decompressor state, for one message after the other.
pub trait Decompress: Send {
    /// Decompresses exactly `output.len()` bytes. Fails if the input yields fewer or more bytes, or
    /// is longer than needed. After an error, the contents of `output` are undefined.
    ///
    /// # For implementers
    ///
    /// Whatever `input` contains, this must not panic, not read earlier contents of `output`, and
    /// not allocate more than a fixed amount.
    fn decompress(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), DecompressError>;
}
