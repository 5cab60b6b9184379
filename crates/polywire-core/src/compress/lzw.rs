//! LZW: codes for strings that came before, of which each is one byte longer than another.

use alloc::{boxed::Box, vec, vec::Vec};

use super::{
    Compress, CompressError, Compressor, Decompress, DecompressError, Properties, SettingsError,
    bits::{BitReader, BitWriter},
};

/// Codes for strings seen before.
pub static LZW: Lzw = Lzw;

/// See [`LZW`].
#[derive(Debug)]
pub struct Lzw;

static PROPERTIES: Properties = Properties {
    summary: "LZW: codes of 9 to 16 bits for strings that came before",
    levels: None,
    dictionary: false,
    typical_use: "comparison",
    specification: "spec/compress.md",
};

/// Codes below stand for their byte.
const BYTES: u32 = 256;
/// With so many strings the dictionary is full; it begins anew.
const FULL: u32 = 1 << 16;

/// Bits of the code after `strings` were added to the dictionary: as many as the largest that may
/// come needs.
fn width(strings: u32) -> u32 {
    (BYTES + strings - 1).max(BYTES).ilog2() + 1
}

impl Compressor for Lzw {
    fn name(&self) -> &'static str {
        "lzw"
    }

    fn properties(&self) -> &'static Properties {
        &PROPERTIES
    }

    fn compression(&self, _: i32, _: &[u8]) -> Result<Box<dyn Compress>, SettingsError> {
        Ok(Box::new(Encoder { slots: vec![Slot::default(); SLOTS], generation: 0 }))
    }

    fn decompression(&self, _: &[u8]) -> Result<Box<dyn Decompress>, SettingsError> {
        Ok(Box::new(Decoder { strings: Vec::new() }))
    }
}

/// Twice as many as strings, so that there is always a free one near.
const SLOTS: usize = 1 << 17;

/// The string of code `prefix` with `byte` behind it has the code `code`, if the slot is of the
/// present generation.
#[derive(Clone, Copy, Default)]
struct Slot {
    generation: u32,
    prefix: u16,
    byte: u8,
    code: u16,
}

struct Encoder {
    slots: Vec<Slot>,
    /// Counted up where the dictionary begins anew, so that nothing has to be cleared.
    generation: u32,
}

impl Compress for Encoder {
    fn compress(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), CompressError> {
        let Some((first, rest)) = input.split_first() else { return Ok(()) };
        self.begin();
        let mut bits = BitWriter::new(out);
        let (mut prefix, mut strings) = (u16::from(*first), 0);
        for byte in rest {
            let slot = self.find(prefix, *byte);
            let known = self.slots[slot];
            if known.generation == self.generation {
                prefix = known.code;
                continue;
            }
            bits.put(u32::from(prefix), width(strings));
            let code = (BYTES + strings) as u16;
            self.slots[slot] = Slot { generation: self.generation, prefix, byte: *byte, code };
            strings += 1;
            if BYTES + strings == FULL {
                strings = 0;
                self.begin();
            }
            prefix = u16::from(*byte);
        }
        bits.put(u32::from(prefix), width(strings));
        bits.finish();
        Ok(())
    }
}

impl Encoder {
    fn begin(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        if self.generation == 0 {
            self.slots.fill(Slot::default());
            self.generation = 1;
        }
    }

    /// The slot of this string, or the free one where it belongs.
    fn find(&self, prefix: u16, byte: u8) -> usize {
        let key = u32::from(prefix) << 8 | u32::from(byte);
        let mut at = (key.wrapping_mul(0x9E37_79B1) >> 15) as usize;
        loop {
            let slot = &self.slots[at];
            if slot.generation != self.generation || (slot.prefix, slot.byte) == (prefix, byte) {
                return at;
            }
            at = (at + 1) % SLOTS;
        }
    }
}

struct Decoder {
    /// Where each string came first: start and length. The last byte of the newest one is written
    /// with the next code.
    strings: Vec<(u32, u32)>,
}

impl Decompress for Decoder {
    fn decompress(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), DecompressError> {
        let mut bits = BitReader::new(input);
        let (expected, mut at) = (output.len(), 0);
        self.strings.clear();
        while at < expected {
            let strings = self.strings.len() as u32;
            let code = bits.take(width(strings));
            if bits.overrun() {
                return Err(DecompressError::Truncated { written: at, expected });
            }
            let length = match code.checked_sub(BYTES) {
                None => {
                    let to = output.get_mut(at).ok_or(DecompressError::TooLong { expected })?;
                    *to = code as u8;
                    1
                }
                Some(string) => {
                    let what = "a code that no string has yet";
                    let malformed = DecompressError::Malformed { offset: bits.offset(input), what };
                    let (start, length) = *self.strings.get(string as usize).ok_or(malformed)?;
                    let (start, length) = (start as usize, length as usize);
                    if length > expected - at {
                        return Err(DecompressError::TooLong { expected });
                    }
                    super::matcher::repeat(output, at, at - start, length);
                    length
                }
            };
            self.strings.push((at as u32, length as u32 + 1));
            if BYTES + self.strings.len() as u32 == FULL {
                self.strings.clear();
            }
            at += length;
        }
        bits.finish()
    }
}
