//! CDR of version 1 behind its encapsulation header, as far as the messages of this folder need it.

use alloc::vec::Vec;

/// The bytes of an encapsulation header.
const HEADER: usize = 4;

/// Writes little endian.
pub(super) struct Output(Vec<u8>);

impl Output {
    pub(super) fn new() -> Output {
        Output(Vec::from([0, 1, 0, 0]))
    }

    /// The message, with its header.
    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }

    /// Appends bytes as they are.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
    }

    /// Fills up to a multiple of `to` bytes behind the header.
    pub(super) fn align(&mut self, to: usize) {
        self.0.resize(HEADER + (self.0.len() - HEADER).next_multiple_of(to), 0);
    }

    pub(super) fn count(&mut self, count: usize) {
        self.align(4);
        self.put(&(count as u32).to_le_bytes());
    }

    pub(super) fn text(&mut self, text: &str) {
        self.count(text.len() + 1);
        self.put(text.as_bytes());
        self.put(&[0]);
    }
}

/// Reads either order of bytes. What it returns is `None` where the message is malformed; the bytes
/// may come from anybody.
#[derive(Clone, Copy)]
pub(super) struct Input<'a> {
    body: &'a [u8],
    at: usize,
    is_little: bool,
}

impl<'a> Input<'a> {
    pub(super) fn new(message: &'a [u8]) -> Option<Input<'a>> {
        let (header, body) = message.split_first_chunk::<HEADER>()?;
        let is_little = match header {
            [0, 1, ..] => true,
            [0, 0, ..] => false,
            _ => return None,
        };
        Some(Input { body, at: 0, is_little })
    }

    /// The bytes that have not been read.
    pub(super) fn left(&self) -> usize {
        self.body.len() - self.at
    }

    pub(super) fn number<const N: usize, T>(&mut self, little: fn([u8; N]) -> T, big: fn([u8; N]) -> T) -> Option<T> {
        self.at = self.at.next_multiple_of(N);
        let (number, _) = self.take(N)?.split_first_chunk()?;
        Some(if self.is_little { little(*number) } else { big(*number) })
    }

    pub(super) fn count(&mut self) -> Option<usize> {
        let number = self.number(u32::from_le_bytes, u32::from_be_bytes)?;
        usize::try_from(number).ok()
    }

    pub(super) fn text(&mut self) -> Option<&'a str> {
        let len = self.count()?;
        core::str::from_utf8(self.take(len)?.strip_suffix(b"\0")?).ok()
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    pub(super) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let taken = self.body.get(self.at..)?.get(..len)?;
        self.at += len;
        Some(taken)
    }
}
