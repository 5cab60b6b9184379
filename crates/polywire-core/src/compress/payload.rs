//! Payloads as they are sent: each begins with its uncompressed size, or with 0 if it is not
//! compressed. An empty payload stays empty.

use alloc::{boxed::Box, vec::Vec};

use super::{Compress, Compressor, Decompress, Settings, SettingsError, UnpackError};
use crate::frame::varint;

/// Limits on the decompression of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest size of a message in bytes.
    pub message_bytes: usize,
    /// Largest ratio of uncompressed to compressed size. Applies to messages larger than
    /// [`Limits::free_bytes`].
    pub expansion: usize,
    /// Uncompressed size in bytes up to which any ratio is allowed.
    pub free_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { message_bytes: 64 << 20, expansion: 1024, free_bytes: 1 << 20 }
    }
}

impl Limits {
    /// Largest uncompressed size allowed for a payload of `compressed` bytes.
    fn allows(&self, compressed: usize) -> usize {
        compressed.saturating_mul(self.expansion).max(self.free_bytes).min(self.message_bytes)
    }
}

/// Compresses payloads if that makes them sufficiently smaller.
pub struct Packer {
    compress: Box<dyn Compress>,
    min_bytes: usize,
    ratio_percent: u32,
    limits: Limits,
}

impl Packer {
    /// Makes a packer. `dictionary` has the contents of the dictionary that `settings` name; it is
    /// empty if there is none.
    pub fn new(compressor: &dyn Compressor, settings: &Settings, dictionary: &[u8]) -> Result<Packer, SettingsError> {
        let level = settings.level.unwrap_or(compressor.properties().default_level());
        Ok(Packer {
            compress: compressor.compression(level, dictionary)?,
            min_bytes: settings.least_bytes(!dictionary.is_empty()),
            ratio_percent: settings.ratio_percent,
            limits: Limits::default(),
        })
    }

    /// Appends to `out` what is to be sent for `payload`. The payload is sent uncompressed if
    /// compression saves too little, or if receivers with the default [`Limits`] would refuse the
    /// result.
    pub fn pack(&mut self, payload: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        if payload.is_empty() || (payload.len() >= self.min_bytes && self.pack_compressed(payload, out)) {
            return;
        }
        out.truncate(start);
        out.push(0);
        out.extend_from_slice(payload);
    }

    fn pack_compressed(&mut self, payload: &[u8], out: &mut Vec<u8>) -> bool {
        let start = out.len();
        varint::put(out, payload.len() as u64);
        let head = out.len();
        if self.compress.compress(payload, out).is_err() {
            return false;
        }
        let target = payload.len() as u64 * u64::from(self.ratio_percent) / 100;
        (out.len() - start) as u64 <= target && payload.len() <= self.limits.allows(out.len() - head)
    }
}

/// Reverses a [`Packer`] with the same compressor and dictionary.
pub struct Unpacker {
    decompress: Box<dyn Decompress>,
    limits: Limits,
    buffer: Vec<u8>,
}

impl Unpacker {
    /// Makes an unpacker. `dictionary` has the contents of the dictionary that the announcement
    /// names; it is empty if there is none.
    pub fn new(compressor: &dyn Compressor, dictionary: &[u8], limits: Limits) -> Result<Unpacker, SettingsError> {
        Ok(Unpacker { decompress: compressor.decompression(dictionary)?, limits, buffer: Vec::new() })
    }

    /// Returns the original payload. Checks the announced size against the limits before it
    /// allocates, and reuses the memory of earlier payloads.
    pub fn unpack<'a>(&'a mut self, packed: &'a [u8]) -> Result<&'a [u8], UnpackError> {
        if packed.is_empty() {
            return Ok(packed);
        }
        let (said, compressed) = varint::split(packed).ok_or(UnpackError::Size)?;
        if said == 0 {
            return Ok(compressed);
        }
        let size = self.check(said, compressed.len())?;
        if self.buffer.len() < size {
            self.buffer.resize(size, 0);
        }
        let output = self.buffer.get_mut(..size).unwrap_or_default();
        self.decompress.decompress(compressed, output)?;
        Ok(output)
    }

    fn check(&self, said: u64, compressed: usize) -> Result<usize, UnpackError> {
        let size = usize::try_from(said).unwrap_or(usize::MAX);
        let limit = self.limits.message_bytes;
        if size > limit {
            return Err(UnpackError::TooLarge { said, limit });
        }
        let limit = self.limits.allows(compressed);
        if size > limit { Err(UnpackError::Expansion { compressed, said, limit }) } else { Ok(size) }
    }
}
