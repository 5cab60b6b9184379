//! The compressor `lzw`: codes for strings that occurred before. Each string is another one plus
//! one byte. `spec/compress.md` defines the format.

use alloc::{boxed::Box, vec, vec::Vec};

use super::{
    BuiltIn, Compress, CompressError, Decompress, DecompressError, Properties,
    bits::{BitReader, BitWriter},
};

/// The compressor `lzw`.
pub(super) static LZW: BuiltIn = BuiltIn {
    name: "lzw",
    properties: &Properties {
        summary: "LZW: codes of 9 to 16 bits for earlier strings",
        levels: None,
        dictionary: false,
        typical_use: "comparison",
        specification: "spec/compress.md",
    },
    compression: |_, _| Ok(Box::new(Encoder { slots: vec![Slot::default(); SLOTS], generation: 0 })),
    decompression: |_| Ok(Box::new(Decoder { strings: Vec::new() })),
};

/// Smaller codes represent single bytes.
const BYTES: u32 = 256;
/// With this many strings the dictionary is full and is started again.
const FULL: u32 = 1 << 16;

/// Length of a code in bits after `strings` strings were added: enough for the largest code that
/// may follow.
fn width(strings: u32) -> u32 {
    (BYTES + strings - 1).max(BYTES).ilog2() + 1
}

/// Size of the hash table: twice the number of strings, so that a free slot is always near.
const SLOTS: usize = 1 << 17;

/// An entry of the hash table: the string of code `prefix` followed by `byte` has the code `code`.
/// Valid only in the current generation.
#[derive(Clone, Copy, Default)]
struct Slot {
    generation: u32,
    prefix: u16,
    byte: u8,
    code: u16,
}

struct Encoder {
    slots: Vec<Slot>,
    /// Incremented when the dictionary is started again, so that the table need not be cleared.
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

    /// The slot of this string, or the free slot for it.
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
    /// Start and length of each string at its first occurrence in the output. The last byte of the
    /// newest string is written with the next code.
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
                    let what = "a code without a string";
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
