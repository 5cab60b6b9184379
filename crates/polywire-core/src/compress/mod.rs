//! Compressors. [`COMPRESSORS`] is the table: a compressor is a file here and a line there, and is
//! then listed, tested and measured with the others.
//!
//! A [`Compressor`] makes state that is used again for each message: a [`Compress`], a
//! [`Decompress`]. What travels is not just their bytes: a [`Packer`] compresses where that pays
//! and says so in front of the payload, an [`Unpacker`] undoes it within [`Limits`].
//! `spec/compress.md` has the bytes.
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
pub use none::NONE;
pub use payload::{Limits, Packer, Unpacker};
pub use settings::{OPTIONS, Settings, announced_dictionary};

/// All compressors of this crate, in the order in which they are listed.
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

/// The compressor with a name.
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
///
/// What [`Compress`] writes, the [`Decompress`] of any instance with the same dictionary reads,
/// whatever the level. Both keep their memory from one message to the next, and nothing else:
/// messages do not depend on each other.
pub trait Compressor: Send + Sync {
    /// Name, as in a wire string: lower case, digits and `-`.
    fn name(&self) -> &'static str;

    /// What users compare.
    fn properties(&self) -> &'static Properties;

    /// What compresses at a level. Callers have checked the level against [`Properties::levels`],
    /// and give a dictionary only to those that take one; it is empty for none.
    fn compression(&self, level: i32, dictionary: &[u8]) -> Result<Box<dyn Compress>, SettingsError>;

    /// What decompresses what was compressed with the same dictionary.
    fn decompression(&self, dictionary: &[u8]) -> Result<Box<dyn Decompress>, SettingsError>;
}

/// What users compare compressors by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties {
    /// One line for listings.
    pub summary: &'static str,
    /// Levels to choose from; none where there is just one way.
    pub levels: Option<Levels>,
    /// It can be given a dictionary: bytes that messages are likely to share.
    pub dictionary: bool,
    /// What it is typically used for.
    pub typical_use: &'static str,
    /// Where it is defined.
    pub specification: &'static str,
}

/// From fast to small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    /// The fastest.
    pub least: i32,
    /// The one that gives the fewest bytes.
    pub most: i32,
    /// Taken where none is chosen.
    pub usual: i32,
}

impl Properties {
    /// The level taken where none is chosen; 0 where there are none.
    ///
    /// ```
    /// use polywire_core::compress::find;
    /// assert_eq!(find("zlib").unwrap().properties().usual_level(), 6);
    /// assert_eq!(find("rle").unwrap().properties().usual_level(), 0);
    /// ```
    pub fn usual_level(&self) -> i32 {
        self.levels.map_or(0, |levels| levels.usual)
    }
}

/// Compresses message after message.
pub trait Compress: Send {
    /// Appends the compressed bytes to `out`. After an error `out` is of no use past its old
    /// length.
    fn compress(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), CompressError>;
}

/// Decompresses message after message.
pub trait Decompress: Send {
    /// Fills `output`: it is an error if fewer or more bytes come out, or if bytes of `input` are
    /// left over. After an error `output` is of no use.
    ///
    /// # For implementers
    ///
    /// Nothing in `input` may make this panic, read what `output` held before, or allocate more
    /// than a fixed amount.
    fn decompress(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), DecompressError>;
}
