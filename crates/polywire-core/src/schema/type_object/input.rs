//! Reads XCDR2, little endian, that may come from anybody.

use alloc::{
    string::{String, ToString},
    vec::Vec,
};

use super::{MAX_NAME_BYTES, TypeObjectError};

type Result<T> = core::result::Result<T, TypeObjectError>;

/// Reads forward only, up to an end. Offsets are those of the whole, which alignment counts from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Input<'a> {
        Input { bytes, at: 0 }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }

    pub(super) fn take(&mut self, len: usize, what: &'static str) -> Result<&'a [u8]> {
        match self.bytes.get(self.at..).and_then(|rest| rest.get(..len)) {
            Some(bytes) => {
                self.at += len;
                Ok(bytes)
            }
            None => Err(TypeObjectError::Truncated { offset: self.bytes.len(), what }),
        }
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N]> {
        let align = N.min(4);
        self.at = self.at.next_multiple_of(align);
        self.octets(what)
    }

    /// An array of octets, which is not aligned.
    pub(super) fn octets<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, what)?);
        Ok(array)
    }

    pub(super) fn u8(&mut self, what: &'static str) -> Result<u8> {
        self.array(what).map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self, what: &'static str) -> Result<u16> {
        self.array(what).map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self, what: &'static str) -> Result<u32> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: &'static str) -> Result<u64> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// Whether an optional member is there.
    pub(super) fn is_present(&mut self) -> Result<bool> {
        match self.u8("a flag")? {
            0 => Ok(false),
            1 => Ok(true),
            got => Err(self.value("flag", got.into())),
        }
    }

    pub(super) fn text(&mut self) -> Result<String> {
        let len = self.u32("a length")? as usize;
        let offset = self.at;
        let bytes = self.take(len, "a text")?;
        let bytes = bytes.strip_suffix(b"\0").ok_or(TypeObjectError::Truncated { offset, what: "a zero byte" })?;
        let text = core::str::from_utf8(bytes).map_err(|_| TypeObjectError::Utf8 { offset })?;
        match bytes.len() <= MAX_NAME_BYTES {
            true => Ok(text.to_string()),
            false => Err(TypeObjectError::Limit {
                what: "bytes of a name",
                got: bytes.len() as u64,
                max: MAX_NAME_BYTES as u64,
            }),
        }
    }

    /// What lies behind a length. What a later version has added is skipped.
    pub(super) fn delimited(&mut self) -> Result<Input<'a>> {
        let len = self.u32("a length")? as usize;
        self.within(len)
    }

    /// The next `len` bytes.
    pub(super) fn within(&mut self, len: usize) -> Result<Input<'a>> {
        let at = self.at;
        self.take(len, "as much as a length says")?;
        Ok(Input { bytes: &self.bytes[..self.at], at })
    }

    /// A sequence of elements that are not primitive. Each takes at least one byte.
    pub(super) fn sequence<T>(&mut self, mut read: impl FnMut(&mut Input<'a>) -> Result<T>) -> Result<Vec<T>> {
        let mut inner = self.delimited()?;
        let count = inner.count("elements")?;
        (0..count).map(|_| read(&mut inner)).collect()
    }

    /// A number of elements, of which each takes at least one byte.
    pub(super) fn count(&mut self, what: &'static str) -> Result<usize> {
        let count = self.u32("a count")? as usize;
        match count <= self.bytes.len().saturating_sub(self.at) {
            true => Ok(count),
            false => Err(TypeObjectError::Truncated { offset: self.bytes.len(), what }),
        }
    }

    pub(super) fn value(&self, what: &'static str, got: u64) -> TypeObjectError {
        TypeObjectError::Value { offset: self.at, what, got }
    }
}
