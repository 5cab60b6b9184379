//! A reader of a frame's fields. Each field has a name, which errors contain.

use super::{FrameError, varint};
use crate::envelope::{ChannelId, Extensions, Id128};

pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Cursor { bytes, at: 0 }
    }

    pub(super) fn offset(&self) -> usize {
        self.at
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    #[inline]
    pub(super) fn byte(&mut self, field: &'static str) -> Result<u8, FrameError> {
        let byte = *self.bytes.get(self.at).ok_or(FrameError::Truncated { field, offset: self.at })?;
        self.at += 1;
        Ok(byte)
    }

    pub(super) fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], FrameError> {
        let array = *self.rest().first_chunk().ok_or(FrameError::Truncated { field, offset: self.bytes.len() })?;
        self.at += N;
        Ok(array)
    }

    pub(super) fn id(&mut self, field: &'static str) -> Result<Id128, FrameError> {
        self.array(field).map(Id128)
    }

    pub(super) fn slice(&mut self, len: usize, field: &'static str) -> Result<&'a [u8], FrameError> {
        let slice = self.rest().get(..len).ok_or(FrameError::Truncated { field, offset: self.bytes.len() })?;
        self.at += len;
        Ok(slice)
    }

    #[inline]
    pub(super) fn number(&mut self, field: &'static str) -> Result<u64, FrameError> {
        match varint::take(self.rest()) {
            varint::Taken::Value(value, used) => {
                self.at += used;
                Ok(value)
            }
            varint::Taken::Short => Err(FrameError::Truncated { field, offset: self.bytes.len() }),
            varint::Taken::Malformed => Err(FrameError::Number { field, offset: self.at }),
        }
    }

    #[inline]
    pub(super) fn channel(&mut self) -> Result<ChannelId, FrameError> {
        let offset = self.at;
        let number = self.number("channel")?;
        u32::try_from(number).map(ChannelId).map_err(|_| FrameError::Number { field: "channel", offset })
    }

    /// Reads a length within `limit` and that many bytes.
    pub(super) fn counted(&mut self, limit: usize, field: &'static str) -> Result<&'a [u8], FrameError> {
        let got = self.number(field)?;
        let len = usize::try_from(got).ok().filter(|len| *len <= limit);
        let len = len.ok_or(FrameError::TooLong { what: field, got, limit })?;
        self.slice(len, field)
    }

    pub(super) fn text(&mut self, limit: usize, field: &'static str) -> Result<&'a str, FrameError> {
        let bytes = self.counted(limit, field)?;
        let offset = self.at - bytes.len();
        core::str::from_utf8(bytes).map_err(|_| FrameError::Text { field, offset })
    }

    pub(super) fn extensions(&mut self, limit: usize) -> Result<Extensions<'a>, FrameError> {
        let bytes = self.counted(limit, "extensions")?;
        let start = self.at - bytes.len();
        Extensions::parse(bytes).map_err(|e| FrameError::Extension { offset: start + e.offset })
    }

    /// The rest of the frame as extensions.
    pub(super) fn remaining_extensions(&mut self, limit: usize) -> Result<Extensions<'a>, FrameError> {
        let (bytes, start) = (self.rest(), self.at);
        if bytes.len() > limit {
            return Err(FrameError::TooLong { what: "extensions", got: bytes.len() as u64, limit });
        }
        self.at += bytes.len();
        Extensions::parse(bytes).map_err(|e| FrameError::Extension { offset: start + e.offset })
    }

    pub(super) fn finish(&self) -> Result<(), FrameError> {
        match self.rest().len() {
            0 => Ok(()),
            left => Err(FrameError::Trailing { offset: self.at, left }),
        }
    }
}
