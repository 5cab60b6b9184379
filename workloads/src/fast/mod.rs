//! The parts of the hand-written FAST codecs, which implement the operators of `*.fast.xml`. They
//! are yardsticks only: unlike a codec for untrusted bytes, they check neither ranges nor UTF-8,
//! and they never reset their state.

mod market_data;
mod processor_probe;

use crate::{Malformed, Sample, Samples, Workload, cdr::SLACK};

/// A type with a hand-written FAST codec for one template.
pub trait Fast {
    /// The previous values of the fields.
    type State: Default + Clone;

    /// The template, as XML.
    fn template() -> String;

    /// Writes the message. The writer's buffer must have room for it.
    fn write(&self, writer: &mut FastWriter, state: &mut Self::State);

    /// Reads the message into `self`, and reuses the memory of its strings and sequences.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes end too early.
    fn read(&mut self, reader: &mut FastReader, state: &mut Self::State) -> Result<(), Malformed>;
}

impl<T: Fast + Workload> Sample<'_, T> {
    /// Encodes the next message of a stream to the start of `buffer`, and returns its length in
    /// bytes.
    ///
    /// # Panics
    /// If the buffer is smaller than [`Samples::buffer`].
    #[inline(always)]
    pub fn encode_fast(&self, state: &mut T::State, buffer: &mut [u8]) -> usize {
        assert!(buffer.len() >= self.bound + SLACK, "the buffer is too small");
        // SAFETY: the buffer has room for the bound of CDR, which has 16 bytes per member plus the
        // bytes of strings. FAST takes less.
        unsafe { fast_encode(self.message, state, buffer.as_mut_ptr()) }
    }
}

impl<T: Workload> Samples<T> {
    /// A buffer with room for any of the messages.
    pub fn buffer(&self) -> Vec<u8> {
        vec![0; self.bound + SLACK]
    }
}

/// Encodes one message to the buffer at `base`.
///
/// # Safety
/// The buffer must have room for the message's bound of CDR, which is greater than its size in
/// FAST.
#[inline(never)]
unsafe fn fast_encode<T: Fast>(message: &T, state: &mut T::State, base: *mut u8) -> usize {
    let mut writer = FastWriter { next: base, map: base, byte: base, bits: 0, count: 0 };
    message.write(&mut writer, state);
    // SAFETY: both pointers are within the buffer.
    unsafe { writer.next.offset_from(base) as usize }
}

/// Decodes the next message of a stream into a reused value.
///
/// # Errors
/// [`Malformed`] if the bytes end too early.
#[inline(never)]
pub fn fast_decode<T: Fast>(bytes: &[u8], state: &mut T::State, into: &mut T) -> Result<(), Malformed> {
    into.read(&mut FastReader { bytes, position: 0, map: 0, map_end: 0, mask: 0 }, state)
}

/// Writes FAST without checks. It is `Copy` because the compiler keeps the fields of a local copy
/// in registers.
#[derive(Clone, Copy, Debug)]
pub struct FastWriter {
    next: *mut u8,
    map: *mut u8,
    byte: *mut u8,
    bits: u32,
    count: u32,
}

impl FastWriter {
    /// Begins a presence map with room for `bits` bits.
    #[inline(always)]
    pub(crate) fn begin(&mut self, bits: usize) {
        (self.map, self.byte, self.bits, self.count) = (self.next, self.next, 0, 0);
        // SAFETY: the buffer has room.
        self.next = unsafe { self.next.add(bits.div_ceil(7)) };
    }

    #[inline(always)]
    pub(crate) fn bit(&mut self, bit: bool) {
        self.bits = self.bits * 2 + u32::from(bit);
        self.count += 1;
        if self.count == 7 {
            // SAFETY: `begin` reserved the byte for the map.
            unsafe {
                *self.byte = self.bits as u8;
                self.byte = self.byte.add(1);
            }
            (self.bits, self.count) = (0, 0);
        }
    }

    /// Ends the presence map and removes its trailing zero bytes.
    #[inline(always)]
    pub(crate) fn end(&mut self) {
        // SAFETY: all accesses are within the bytes written since `begin`.
        unsafe {
            if self.count > 0 {
                *self.byte = (self.bits << (7 - self.count)) as u8;
                self.byte = self.byte.add(1);
            }
            let from = self.byte;
            let mut last = self.byte.sub(1);
            while last > self.map && *last == 0 {
                last = last.sub(1);
            }
            *last |= 0x80;
            let to = last.add(1);
            if to != from {
                let len = self.next.offset_from(from) as usize;
                std::ptr::copy(from, to, len);
                self.next = to.add(len);
            }
        }
    }

    #[inline(always)]
    pub(crate) fn unsigned(&mut self, value: u64) {
        if value < 0x80 {
            return self.octet(value as u8 | 0x80);
        }
        self.groups(value as i64, (64 - value.leading_zeros()).div_ceil(7));
    }

    #[inline(always)]
    pub(crate) fn signed(&mut self, value: i64) {
        if (value.wrapping_add(64) as u64) < 128 {
            return self.octet(value as u8 | 0x80);
        }
        let magnitude = (value ^ (value >> 63)) as u64;
        self.groups(value, (65 - magnitude.leading_zeros()).div_ceil(7));
    }

    #[inline(always)]
    fn octet(&mut self, byte: u8) {
        // SAFETY: the buffer has room.
        unsafe {
            *self.next = byte;
            self.next = self.next.add(1);
        }
    }

    #[inline(always)]
    fn groups(&mut self, value: i64, count: u32) {
        if count > 8 {
            for k in (0..count).rev() {
                let group = (value >> (7 * k).min(63)) as u8 & 0x7F;
                self.octet(group | if k == 0 { 0x80 } else { 0 });
            }
            return;
        }
        let word = (spread(value as u64) | 0x80) << ((8 - count) * 8);
        // SAFETY: the buffer has room.
        unsafe {
            self.next.cast::<u64>().write_unaligned(word.swap_bytes());
            self.next = self.next.add(count as usize);
        }
    }

    #[inline(always)]
    pub(crate) fn ascii(&mut self, text: &str) {
        if text.is_empty() {
            return self.octet(0x80);
        }
        // SAFETY: the buffer has room, and the text is not empty.
        unsafe {
            crate::cdr::small_copy(text.as_ptr(), self.next, text.len());
            *self.next.add(text.len() - 1) |= 0x80;
            self.next = self.next.add(text.len());
        }
    }
}

/// Distributes the lower 56 bits of a number over eight bytes, seven bits in each.
#[inline(always)]
fn spread(value: u64) -> u64 {
    #[cfg(all(target_arch = "x86_64", target_feature = "bmi2"))]
    // SAFETY: the target of the compilation has the instruction `pdep`.
    return unsafe { core::arch::x86_64::_pdep_u64(value, 0x7F7F_7F7F_7F7F_7F7F) };
    #[cfg(not(all(target_arch = "x86_64", target_feature = "bmi2")))]
    {
        let x = (value & 0x0FFF_FFFF) | (value & 0x00FF_FFFF_F000_0000) << 4;
        let x = (x & 0x0000_3FFF_0000_3FFF) | (x & 0x0FFF_C000_0FFF_C000) << 2;
        (x & 0x007F_007F_007F_007F) | (x & 0x3F80_3F80_3F80_3F80) << 1
    }
}

/// Reads FAST, and checks bounds.
#[derive(Clone, Copy, Debug)]
pub struct FastReader<'a> {
    bytes: &'a [u8],
    position: usize,
    map: usize,
    map_end: usize,
    mask: u8,
}

impl FastReader<'_> {
    #[inline(always)]
    fn octet(&mut self) -> Result<u8, Malformed> {
        let byte = *self.bytes.get(self.position).ok_or(Malformed)?;
        self.position += 1;
        Ok(byte)
    }

    /// Begins a presence map.
    #[inline(always)]
    pub(crate) fn begin(&mut self) -> Result<(), Malformed> {
        self.map = self.position;
        while self.octet()? & 0x80 == 0 {}
        (self.map_end, self.mask) = (self.position, 0x40);
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn bit(&mut self) -> bool {
        if self.map >= self.map_end {
            return false;
        }
        let bit = self.bytes[self.map] & self.mask != 0;
        self.mask >>= 1;
        if self.mask == 0 {
            (self.mask, self.map) = (0x40, self.map + 1);
        }
        bit
    }

    #[inline(always)]
    pub(crate) fn unsigned(&mut self) -> Result<u64, Malformed> {
        match self.octet()? {
            byte if byte & 0x80 != 0 => Ok(u64::from(byte & 0x7F)),
            byte => self.longer(u64::from(byte)),
        }
    }

    #[inline(always)]
    pub(crate) fn signed(&mut self) -> Result<i64, Malformed> {
        let byte = self.octet()?;
        let value = i64::from((byte as i8) << 1 >> 1);
        if byte & 0x80 != 0 { Ok(value) } else { Ok(self.longer(value as u64)? as i64) }
    }

    #[inline(never)]
    fn longer(&mut self, mut value: u64) -> Result<u64, Malformed> {
        loop {
            let byte = self.octet()?;
            value = value << 7 | u64::from(byte & 0x7F);
            if byte & 0x80 != 0 {
                return Ok(value);
            }
        }
    }

    #[inline(always)]
    pub(crate) fn length(&mut self) -> Result<usize, Malformed> {
        let length = self.unsigned()? as usize;
        if length > self.bytes.len() - self.position { Err(Malformed) } else { Ok(length) }
    }

    #[inline(always)]
    pub(crate) fn ascii(&mut self, into: &mut String) -> Result<(), Malformed> {
        let start = self.position;
        while self.octet()? & 0x80 == 0 {}
        let bytes = &self.bytes[start..self.position];
        // SAFETY: only the last byte has its high bit set, and it is cleared, so the text is ASCII.
        unsafe {
            let text = into.as_mut_vec();
            text.clear();
            text.extend_from_slice(bytes);
            if let Some(last) = text.last_mut() {
                *last &= 0x7F;
            }
            if text[..] == [0] {
                text.clear();
            }
        }
        Ok(())
    }
}

/// Sets a string that the message does not contain to `text`, its constant, default or previous
/// value.
#[inline(always)]
pub(crate) fn set_text(into: &mut String, text: &str) {
    // SAFETY: the text is UTF-8, the string has room for it, and the length is set after the copy.
    unsafe {
        let target = into.as_mut_vec();
        target.clear();
        if target.capacity() < text.len() {
            target.reserve(text.len());
        }
        crate::cdr::small_copy(text.as_ptr(), target.as_mut_ptr(), text.len());
        target.set_len(text.len());
    }
}
