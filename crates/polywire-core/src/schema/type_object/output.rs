//! Writes XCDR2, little endian.

use alloc::vec::Vec;

#[derive(Default)]
pub(super) struct Output(pub(super) Vec<u8>);

impl Output {
    pub(super) fn align(&mut self, to: usize) {
        let padding = self.0.len().wrapping_neg() % to;
        self.0.extend(core::iter::repeat_n(0, padding));
    }

    pub(super) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(super) fn u16(&mut self, value: u16) {
        self.align(2);
        self.0.extend(value.to_le_bytes());
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.align(4);
        self.0.extend(value.to_le_bytes());
    }

    /// A number of 64 bits, which XCDR2 aligns to 4.
    pub(super) fn u64(&mut self, value: u64) {
        self.align(4);
        self.0.extend(value.to_le_bytes());
    }

    pub(super) fn text(&mut self, text: &str) {
        self.u32(text.len() as u32 + 1);
        self.0.extend(text.as_bytes());
        self.0.push(0);
    }

    /// What `write` writes, behind its length.
    pub(super) fn delimited(&mut self, write: impl FnOnce(&mut Output)) {
        self.u32(0);
        let start = self.0.len();
        write(self);
        let len = (self.0.len() - start) as u32;
        self.0[start - 4..start].copy_from_slice(&len.to_le_bytes());
    }

    /// A sequence of elements that are not primitive.
    pub(super) fn sequence<T>(&mut self, items: &[T], mut write: impl FnMut(&mut Output, &T)) {
        self.delimited(|out| {
            out.u32(items.len() as u32);
            items.iter().for_each(|item| write(out, item));
        });
    }
}
