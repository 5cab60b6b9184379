//! Reads a file of messages in parts, and divides it into frames of a framing, or into messages
//! that show where they end. Used by `transcode` and `fast`.

use std::io::{BufRead, ErrorKind};

use anyhow::{Context as _, anyhow};
use polywire::extend::{
    framing::{Framing, FramingError, Piece, Splitter, Step},
    program::{CodecError, FaultKind},
};

/// Maximum length of a message, in bytes.
pub const MESSAGE_BYTES: usize = 64 << 20;

/// A file that is read in parts.
pub struct Input {
    pub name: String,
    from: Box<dyn BufRead>,
    buffer: Vec<u8>,
    /// Bytes of the buffer that have been used.
    at: usize,
    /// Bytes read so far.
    read: u64,
    ended: bool,
}

impl Input {
    pub fn new(name: String, from: Box<dyn BufRead>) -> Input {
        Input { name, from, buffer: Vec::new(), at: 0, read: 0, ended: false }
    }

    /// Reads until at least `need` unused bytes are in the buffer; false if the file has fewer.
    pub fn fill(&mut self, need: usize) -> anyhow::Result<bool> {
        if self.rest().len() >= need {
            return Ok(true);
        }
        self.buffer.drain(..self.at);
        self.at = 0;
        while self.buffer.len() < need && !self.ended {
            let more = match self.from.fill_buf() {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                read => read.with_context(|| format!("cannot read {}", self.name))?,
            };
            let count = more.len();
            self.buffer.extend_from_slice(more);
            self.from.consume(count);
            self.read += count as u64;
            self.ended = count == 0;
        }
        Ok(self.buffer.len() >= need)
    }

    /// Returns the unused bytes in the buffer.
    pub fn rest(&self) -> &[u8] {
        self.buffer.get(self.at..).unwrap_or_default()
    }

    /// Marks this many bytes of the rest as used.
    pub fn skip(&mut self, bytes: usize) {
        self.at = (self.at + bytes).min(self.buffer.len());
    }

    /// Returns the offset in the file at which the rest begins.
    pub fn offset(&self) -> u64 {
        self.read - self.rest().len() as u64
    }

    /// Returns the number of bytes read so far.
    pub fn bytes(&self) -> u64 {
        self.read
    }

    /// Reads the message at the start of the rest. Its length is not known, so after an error that
    /// truncation can cause, `read` is called again with more of the file.
    pub fn message<T, E>(
        &mut self,
        mut read: impl FnMut(&[u8]) -> Result<T, E>,
        may_be_cut: impl Fn(&E) -> bool,
    ) -> anyhow::Result<Result<T, E>> {
        let mut need = 1;
        loop {
            let enough = self.fill(need)?;
            match read(self.rest()) {
                Err(error) if enough && may_be_cut(&error) && self.rest().len() < MESSAGE_BYTES => {
                    need = self.rest().len() * 2;
                }
                done => return Ok(done),
            }
        }
    }

    /// Returns an error at this offset of the file.
    pub fn failed(&self, offset: u64, what: &str) -> anyhow::Error {
        anyhow!("{}: byte {offset}: {what}", self.name)
    }
}

/// Returns true if truncation can cause this error: the bytes end too early, or a length exceeds
/// them.
pub fn may_be_cut(error: &CodecError) -> bool {
    matches!(error.kind, FaultKind::Truncated | FaultKind::BadLength)
}

/// A frame of a framing.
pub struct Frame {
    /// Number of the frame, from 1; for lines, the line number.
    pub number: u64,
    pub head: Vec<u8>,
    pub payload: Vec<u8>,
    pub tail: Vec<u8>,
    /// Where the payload begins in the file.
    pub offset: u64,
}

/// A part of a file.
pub enum Part {
    Frame(Frame),
    /// Bytes that belong to no frame.
    Other(Vec<u8>),
}

/// A file that is divided into frames.
pub struct Parts {
    pub input: Input,
    framing: Framing,
    splitter: Splitter,
    frames: u64,
}

impl Parts {
    /// Makes the reader. `port` selects the datagrams of a capture to this port.
    pub fn new(input: Input, framing: Framing, port: Option<u16>) -> Parts {
        let splitter = Splitter::new(framing).limit(MESSAGE_BYTES);
        let splitter = match port {
            Some(port) => splitter.port(port),
            None => splitter,
        };
        Parts { input, framing, splitter, frames: 0 }
    }

    /// Returns the next part. An error means that the file is damaged and the rest cannot be read.
    pub fn next(&mut self) -> anyhow::Result<Option<Part>> {
        let mut need = 1;
        loop {
            let enough = self.input.fill(need)?;
            let rest = self.input.rest();
            let (piece, used) = match self.splitter.step(rest).map_err(|error| self.damaged(&error))? {
                Step::Piece { piece, used } => (piece, used),
                Step::Need(more) if enough => {
                    need = more.max(rest.len() + 1);
                    continue;
                }
                Step::Need(_) => match self.splitter.last(rest).map_err(|error| self.damaged(&error))? {
                    Some(piece) => (piece, rest.len()),
                    None => return Ok(None),
                },
            };
            let part = match piece {
                Piece::Other(bytes) => Part::Other(bytes.to_vec()),
                Piece::Frame { head, payload, tail } => {
                    self.frames += 1;
                    let offset = self.input.offset() + head.len() as u64;
                    let [head, payload, tail] = [head, payload, tail].map(<[u8]>::to_vec);
                    Part::Frame(Frame { number: self.frames, head, payload, tail, offset })
                }
            };
            self.input.skip(used);
            return Ok(Some(part));
        }
    }

    fn damaged(&self, error: &FramingError) -> anyhow::Error {
        anyhow!("{}: {error}; is the framing {}?", self.input.name, self.framing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(file: &'static [u8], framing: Framing) -> Parts {
        Parts::new(Input::new("f".into(), Box::new(file)), framing, None)
    }

    #[test]
    fn frames_are_counted_and_know_their_place() {
        let mut parts = parts(b"\x02ab\x00\x01c", Framing::Len1);
        let mut came = Vec::new();
        while let Some(Part::Frame(frame)) = parts.next().expect("whole") {
            came.push((frame.number, frame.offset, frame.payload));
        }
        assert_eq!(came, [(1, 1, b"ab".to_vec()), (2, 4, vec![]), (3, 5, b"c".to_vec())]);
        let mut cut = self::parts(b"\x02ab\x03c", Framing::Len1);
        assert!(matches!(cut.next(), Ok(Some(Part::Frame(_)))));
        let error = cut.next().map(|_| ()).expect_err("cut");
        assert_eq!(error.to_string(), "f: at byte 3: the file ends in the middle of a frame; is the framing len1?");
    }

    #[test]
    fn a_message_is_read_again_with_more_until_it_is_whole() {
        let mut input = Input::new("f".into(), Box::new(&b"\x05hello"[..]));
        let mut tries = Vec::new();
        let read = input.message(
            |bytes| {
                tries.push(bytes.len());
                if bytes.len() > 5 { Ok(6) } else { Err(()) }
            },
            |()| true,
        );
        assert_eq!(read.expect("read"), Ok(6));
        let never = input.message(|bytes| Err::<(), usize>(bytes.len()), |_| true);
        assert_eq!(never.expect("read"), Err(6), "the file has no more");
    }
}
