//! Reading and writing groups of bits. The first bit is the lowest bit of a byte. The compressors
//! `huffman` and `lzw` use this.

use alloc::vec::Vec;

use super::DecompressError;

/// Appends groups of bits to bytes.
pub(super) struct BitWriter<'a> {
    out: &'a mut Vec<u8>,
    held: u64,
    count: u32,
}

impl<'a> BitWriter<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>) -> Self {
        BitWriter { out, held: 0, count: 0 }
    }

    /// Appends the low `count` bits of `bits`, at most 32. All other bits must be clear.
    #[inline]
    pub(super) fn put(&mut self, bits: u32, count: u32) {
        self.held |= u64::from(bits) << self.count;
        self.count += count;
        if self.count >= 32 {
            self.out.extend_from_slice(&(self.held as u32).to_le_bytes());
            self.held >>= 32;
            self.count -= 32;
        }
    }

    /// Fills the last byte with zero bits.
    pub(super) fn finish(self) {
        let used = self.count.div_ceil(8) as usize;
        self.out.extend(self.held.to_le_bytes().iter().take(used));
    }
}

/// Takes groups of bits from bytes. Behind the end it returns zeros; [`BitReader::overrun`] detects
/// that.
pub(super) struct BitReader<'a> {
    rest: &'a [u8],
    held: u64,
    count: u32,
    /// Number of zero bits that were added after the end.
    missing: u32,
}

impl<'a> BitReader<'a> {
    pub(super) fn new(input: &'a [u8]) -> Self {
        BitReader { rest: input, held: 0, count: 0, missing: 0 }
    }

    /// Returns the next `count` bits, at most 32, without taking them.
    #[inline]
    pub(super) fn peek(&mut self, count: u32) -> u32 {
        if self.count < count {
            self.fill();
        }
        (self.held & ((1 << count) - 1)) as u32
    }

    /// Takes bits that [`BitReader::peek`] returned.
    #[inline]
    pub(super) fn skip(&mut self, count: u32) {
        self.held >>= count;
        self.count -= count;
    }

    #[inline]
    pub(super) fn take(&mut self, count: u32) -> u32 {
        let bits = self.peek(count);
        self.skip(count);
        bits
    }

    /// True once bits after the end were taken.
    #[inline]
    pub(super) fn overrun(&self) -> bool {
        self.missing > self.count
    }

    /// Offset of the byte with the next bit. `input` must be the whole input.
    pub(super) fn offset(&self, input: &[u8]) -> usize {
        input.len() - self.rest.len() - (self.held_bits() as usize).div_ceil(8)
    }

    /// Checks that all bits were taken, except zeros that fill the last byte.
    pub(super) fn finish(self) -> Result<(), DecompressError> {
        let held = self.held_bits();
        match self.rest.len() + held as usize / 8 {
            0 if self.held & ((1 << (held % 8)) - 1) == 0 => Ok(()),
            left => Err(DecompressError::Trailing { left: left.max(1) }),
        }
    }

    /// Number of bits that come from the input and were not taken.
    fn held_bits(&self) -> u32 {
        self.count.saturating_sub(self.missing)
    }

    #[inline]
    fn fill(&mut self) {
        if let Some((four, rest)) = self.rest.split_first_chunk::<4>() {
            self.held |= u64::from(u32::from_le_bytes(*four)) << self.count;
            self.count += 32;
            self.rest = rest;
            return;
        }
        while self.count <= 32 {
            let byte = self.rest.split_first();
            self.rest = byte.map_or(self.rest, |(_, rest)| rest);
            self.missing += if byte.is_none() { 8 } else { 0 };
            self.held |= u64::from(byte.map_or(0, |(byte, _)| *byte)) << self.count;
            self.count += 8;
        }
    }
}
