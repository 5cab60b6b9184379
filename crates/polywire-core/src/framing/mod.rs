//! Splits files and streams of foreign payloads into messages, if their format does not mark where
//! messages end. The command line uses this for files of other systems.
//!
//! A [`Splitter`] takes the bytes of a file in portions and splits them into [pieces](Piece):
//! frames, and the bytes between frames. No byte is lost: the pieces in sequence are the file.
//!
//! ```
//! use polywire_core::framing::{Framing, Piece, Splitter, Step};
//!
//! let framing: Framing = "len2be".parse()?;
//! let mut file = Vec::new();
//! for payload in [&b"first"[..], b"", b"second"] {
//!     framing.put(payload, &mut file)?;
//! }
//! let (mut splitter, mut at, mut payloads) = (Splitter::new(framing), 0, Vec::new());
//! while let Step::Piece { piece, used } = splitter.step(&file[at..])? {
//!     if let Piece::Frame { payload, .. } = piece {
//!         payloads.push(payload);
//!     }
//!     at += used;
//! }
//! assert_eq!((payloads, at), (vec![&b"first"[..], b"", b"second"], file.len()));
//! assert_eq!(splitter.last(&file[at..]), Ok(None), "the last frame is whole");
//! # Ok::<(), polywire_core::framing::FramingError>(())
//! ```

use alloc::{string::String, vec::Vec};
use core::{fmt, str::FromStr};

mod capture;

use capture::Capture;

/// Largest frame in bytes, unless [`Splitter::limit`] sets another limit.
const FRAME_BYTES: usize = 16 << 20;

/// Length of the longest varint in bytes: 64 bits, seven per byte.
const VARINT_BYTES: usize = 10;

/// How a file is split into frames.
///
/// ```
/// use polywire_core::framing::Framing;
/// assert_eq!(Framing::ALL.map(|framing| framing.to_string().parse()), Framing::ALL.map(Ok));
/// let mut frame = Vec::new();
/// Framing::Block.put(&[0xAA; 200], &mut frame).unwrap();
/// assert_eq!(frame[..2], [0x01, 0xC8], "seven bits a byte, the last one marked");
/// frame.clear();
/// Framing::Delimited.put(&[0xAA; 200], &mut frame).unwrap();
/// assert_eq!(frame[..2], [0xC8, 0x01], "seven bits a byte, the lowest first, all but the last one marked");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Framing {
    /// Messages without separation: the whole file is one frame, and the format itself marks where
    /// messages end.
    None,
    /// A length of one byte in front of each frame.
    Len1,
    /// A length of two bytes, least significant byte first.
    Len2Le,
    /// A length of two bytes, most significant byte first.
    Len2Be,
    /// A length of four bytes, least significant byte first.
    Len4Le,
    /// A length of four bytes, most significant byte first.
    Len4Be,
    /// A length of eight bytes, least significant byte first.
    Len8Le,
    /// A length of eight bytes, most significant byte first.
    Len8Be,
    /// A length as a varint, as Protobuf's `writeDelimitedTo` writes it.
    Delimited,
    /// A block size of FAST: an unsigned integer with stop bits, which must not be zero (D12).
    Block,
    /// One frame per line. Lines end with LF or CR LF; the last one may end with the file.
    Lines,
    /// A capture of packets, pcap or pcapng. The payload of each UDP datagram is a frame.
    Pcap,
}

impl Framing {
    /// All framings.
    pub const ALL: [Framing; 12] = [
        Framing::None,
        Framing::Len1,
        Framing::Len2Le,
        Framing::Len2Be,
        Framing::Len4Le,
        Framing::Len4Be,
        Framing::Len8Le,
        Framing::Len8Be,
        Framing::Delimited,
        Framing::Block,
        Framing::Lines,
        Framing::Pcap,
    ];

    /// The name, as options use it.
    pub fn name(self) -> &'static str {
        match self {
            Framing::None => "none",
            Framing::Len1 => "len1",
            Framing::Len2Le => "len2le",
            Framing::Len2Be => "len2be",
            Framing::Len4Le => "len4le",
            Framing::Len4Be => "len4be",
            Framing::Len8Le => "len8le",
            Framing::Len8Be => "len8be",
            Framing::Delimited => "delimited",
            Framing::Block => "block",
            Framing::Lines => "lines",
            Framing::Pcap => "pcap",
        }
    }

    /// Appends a frame. For captures it appends only the payload, without packet headers.
    ///
    /// # Errors
    /// [`FramingError`] if the framing cannot hold the payload; nothing is appended then.
    pub fn put(self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), FramingError> {
        let bytes = payload.len() as u64;
        match self {
            Framing::None | Framing::Pcap => {}
            Framing::Delimited => put_varint(bytes, out),
            Framing::Block => match u32::try_from(bytes) {
                Ok(0) => return Err(FramingError::ZeroBlock { offset: 0 }),
                Ok(size) => put_stop_bits(size, out),
                Err(_) => return Err(FramingError::BlockSize { offset: 0 }),
            },
            Framing::Lines => match payload.iter().position(|byte| *byte == b'\n') {
                Some(at) => return Err(FramingError::LineBreak { at }),
                None => {
                    out.extend_from_slice(payload);
                    out.push(b'\n');
                    return Ok(());
                }
            },
            _ => self.put_length(bytes, out)?,
        }
        out.extend_from_slice(payload);
        Ok(())
    }

    fn put_length(self, bytes: u64, out: &mut Vec<u8>) -> Result<(), FramingError> {
        let (width, is_big) = self.length();
        let most = u64::MAX >> (64 - 8 * width);
        if bytes > most {
            return Err(FramingError::TooLong { bytes, most, offset: 0 });
        }
        match is_big {
            true => out.extend_from_slice(&bytes.to_be_bytes()[8 - width..]),
            false => out.extend_from_slice(&bytes.to_le_bytes()[..width]),
        }
        Ok(())
    }

    /// Length in bytes of a fixed-size length, and whether its most significant byte comes first. 0
    /// bytes for other framings.
    fn length(self) -> (usize, bool) {
        match self {
            Framing::Len1 => (1, false),
            Framing::Len2Le => (2, false),
            Framing::Len2Be => (2, true),
            Framing::Len4Le => (4, false),
            Framing::Len4Be => (4, true),
            Framing::Len8Le => (8, false),
            Framing::Len8Be => (8, true),
            _ => (0, false),
        }
    }
}

fn put_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_stop_bits(number: u32, out: &mut Vec<u8>) {
    let groups = (32 - number.leading_zeros()).div_ceil(7).max(1);
    for group in (0..groups).rev() {
        let stop = if group == 0 { 0x80 } else { 0 };
        out.push((number >> (7 * group)) as u8 & 0x7f | stop);
    }
}

impl fmt::Display for Framing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Framing {
    type Err = FramingError;

    fn from_str(name: &str) -> Result<Framing, FramingError> {
        let found = Framing::ALL.into_iter().find(|framing| framing.name() == name);
        found.ok_or_else(|| FramingError::Unknown { name: name.into() })
    }
}

/// An error in a file's framing. Offsets are in bytes from the start of the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FramingError {
    /// The framing does not exist.
    #[error("there is no framing '{name}'; there are {}", Framing::ALL.map(Framing::name).join(", "))]
    Unknown {
        /// The name, as given.
        name: String,
    },
    /// A frame exceeds the limit, or the range of its length field. The file may have another
    /// framing or byte order.
    #[error("at byte {offset}: a frame of {bytes} bytes, where at most {most} are allowed")]
    TooLong {
        /// Size of the frame in bytes. For a line, the number of bytes searched.
        bytes: u64,
        /// Largest allowed size in bytes.
        most: u64,
        /// Offset of the frame.
        offset: u64,
    },
    /// A block size is zero (D12).
    #[error("[D12] at byte {offset}: a block of no bytes")]
    ZeroBlock {
        /// Offset of the block.
        offset: u64,
    },
    /// A block size exceeds 32 bits.
    #[error("at byte {offset}: a block size of more than 32 bits")]
    BlockSize {
        /// Offset of the block.
        offset: u64,
    },
    /// A varint exceeds 64 bits.
    #[error("at byte {offset}: a length of more than 64 bits")]
    Varint {
        /// Offset of the varint.
        offset: u64,
    },
    /// A payload to be written as a line contains a line break.
    #[error("byte {at} of the message is a line break, which a line cannot hold: choose another framing than lines")]
    LineBreak {
        /// Offset in the payload, in bytes.
        at: usize,
    },
    /// The file is not a capture, or its records are inconsistent.
    #[error("at byte {offset}: {what}")]
    Capture {
        /// Offset of the record.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// The file ends inside a frame.
    #[error("at byte {offset}: the file ends in the middle of a frame")]
    Cut {
        /// Offset of the frame.
        offset: u64,
    },
}

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// A frame, with the bytes around its payload: a length, packet headers, padding, a line break.
    Frame {
        /// The bytes in front of the payload.
        head: &'a [u8],
        /// The payload: one or several messages.
        payload: &'a [u8],
        /// The bytes after the payload.
        tail: &'a [u8],
    },
    /// Bytes outside frames: a capture's header, or a packet that is not a complete UDP datagram.
    Other(&'a [u8]),
}

/// The result of [`Splitter::step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// More bytes are needed: this many in total.
    Need(usize),
    /// A complete piece.
    Piece {
        /// The piece.
        piece: Piece<'a>,
        /// Number of bytes that the piece takes. The next step begins after them.
        used: usize,
    },
}

/// Splits a file: see the [module](self).
#[derive(Clone, Debug)]
pub struct Splitter {
    framing: Framing,
    limit: usize,
    /// Number of bytes of the file before the next step.
    offset: u64,
    /// Number of bytes of the next line that were searched and contain no line break.
    searched: usize,
    capture: Capture,
}

impl Splitter {
    /// Makes a splitter for a file from its start.
    pub fn new(framing: Framing) -> Splitter {
        Splitter { framing, limit: FRAME_BYTES, offset: 0, searched: 0, capture: Capture::default() }
    }

    /// Sets the largest size of a frame, in bytes.
    ///
    /// ```
    /// use polywire_core::framing::{Framing, Splitter, Step};
    /// let mut short = Splitter::new(Framing::Len4Le).limit(100);
    /// assert!(short.step(&[101, 0, 0, 0]).is_err());
    /// // Datagrams to one port, from a capture of several feeds.
    /// let mut one_feed = Splitter::new(Framing::Pcap).port(9000);
    /// assert!(matches!(one_feed.step(b""), Ok(Step::Need(_))));
    /// ```
    pub fn limit(mut self, bytes: usize) -> Splitter {
        self.limit = bytes;
        self
    }

    /// Accepts only datagrams to this UDP port. Matters only for captures.
    pub fn port(mut self, port: u16) -> Splitter {
        self.capture.port = Some(port);
        self
    }

    /// Number of bytes of the file before the next step.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the piece at the start of these bytes. Without framing, it takes all of them. After
    /// [`Step::Need`], pass the same bytes again with more after them.
    pub fn step<'a>(&mut self, bytes: &'a [u8]) -> Result<Step<'a>, FramingError> {
        let step = match self.framing {
            Framing::None => self.rest(bytes),
            Framing::Lines => self.line(bytes)?,
            Framing::Pcap => self.capture.step(bytes, self.offset, self.limit)?,
            framing => self.counted(framing, bytes)?,
        };
        if let Step::Piece { used, .. } = step {
            self.offset += used as u64;
            self.searched = 0;
        }
        Ok(step)
    }

    /// Returns what is left at the end of the file: the last line, if no line break ends it,
    /// otherwise nothing.
    ///
    /// ```
    /// use polywire_core::framing::{Framing, FramingError, Piece, Splitter};
    /// let last = Splitter::new(Framing::Lines).last(b"no line break");
    /// assert_eq!(last, Ok(Some(Piece::Frame { head: b"", payload: b"no line break", tail: b"" })));
    /// assert_eq!(Splitter::new(Framing::Len2Le).last(&[7, 0, 1]), Err(FramingError::Cut { offset: 0 }));
    /// ```
    ///
    /// # Errors
    /// [`FramingError::Cut`] if the rest is an incomplete frame.
    pub fn last<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<Piece<'a>>, FramingError> {
        let offset = self.offset;
        match self.framing {
            _ if bytes.is_empty() => Ok(None),
            Framing::Lines => {
                self.offset += bytes.len() as u64;
                Ok(Some(Piece::Frame { head: &[], payload: bytes, tail: &[] }))
            }
            _ => Err(FramingError::Cut { offset }),
        }
    }

    fn rest<'a>(&self, bytes: &'a [u8]) -> Step<'a> {
        match bytes.len() {
            0 => Step::Need(1),
            used => Step::Piece { piece: Piece::Frame { head: &[], payload: bytes, tail: &[] }, used },
        }
    }

    fn line<'a>(&mut self, bytes: &'a [u8]) -> Result<Step<'a>, FramingError> {
        // The longest line has its line break after the limit.
        let seen = bytes.len().min(self.limit.saturating_add(1));
        let unsearched = bytes.get(self.searched..seen).unwrap_or_default();
        let Some(at) = unsearched.iter().position(|byte| *byte == b'\n').map(|at| self.searched + at) else {
            if bytes.len() > self.limit {
                let (bytes, most) = (bytes.len() as u64, self.limit as u64);
                return Err(FramingError::TooLong { bytes, most, offset: self.offset });
            }
            self.searched = seen;
            return Ok(Step::Need(bytes.len() + 1));
        };
        let (whole, _) = bytes.split_at(at + 1);
        let end = if whole.ends_with(b"\r\n") { at - 1 } else { at };
        let (payload, tail) = whole.split_at(end);
        Ok(Step::Piece { piece: Piece::Frame { head: &[], payload, tail }, used: whole.len() })
    }

    fn counted<'a>(&self, framing: Framing, bytes: &'a [u8]) -> Result<Step<'a>, FramingError> {
        let prefix = match framing {
            Framing::Block => self.block_size(bytes)?,
            Framing::Delimited => self.varint(bytes)?,
            framing => fixed_length(framing, bytes),
        };
        let (width, _) = framing.length();
        let Some((prefix, length)) = prefix else { return Ok(Step::Need(width.max(bytes.len() + 1))) };
        if length > self.limit as u64 {
            return Err(FramingError::TooLong { bytes: length, most: self.limit as u64, offset: self.offset });
        }
        let length = length as usize;
        let used = prefix + length;
        Ok(match bytes.split_at_checked(prefix).and_then(|(head, rest)| Some((head, rest.get(..length)?))) {
            Some((head, payload)) => Step::Piece { piece: Piece::Frame { head, payload, tail: &[] }, used },
            None => Step::Need(used),
        })
    }

    fn varint(&self, bytes: &[u8]) -> Result<Option<(usize, u64)>, FramingError> {
        let mut length = 0_u64;
        for (i, byte) in bytes.iter().take(VARINT_BYTES).enumerate() {
            let bits = u64::from(byte & 0x7f);
            if i == VARINT_BYTES - 1 && *byte > 1 {
                return Err(FramingError::Varint { offset: self.offset });
            }
            length |= bits << (7 * i);
            if byte & 0x80 == 0 {
                return Ok(Some((i + 1, length)));
            }
        }
        Ok(None)
    }

    fn block_size(&self, bytes: &[u8]) -> Result<Option<(usize, u64)>, FramingError> {
        let offset = self.offset;
        let mut size = 0_u64;
        for (i, byte) in bytes.iter().enumerate() {
            size = size << 7 | u64::from(byte & 0x7f);
            if size > u32::MAX.into() {
                return Err(FramingError::BlockSize { offset });
            }
            match (byte & 0x80 != 0, size) {
                (true, 0) => return Err(FramingError::ZeroBlock { offset }),
                (true, size) => return Ok(Some((i + 1, size))),
                // Leading zeros are superfluous. More of them than the longest number has digits
                // are an error.
                (false, _) if i >= 9 => return Err(FramingError::BlockSize { offset }),
                (false, _) => {}
            }
        }
        Ok(None)
    }
}

/// A fixed-size length and its number of bytes. `None` if the bytes are too few.
fn fixed_length(framing: Framing, bytes: &[u8]) -> Option<(usize, u64)> {
    let (width, is_big) = framing.length();
    let digits = bytes.get(..width)?.iter().map(|byte| u64::from(*byte));
    let add = |number: u64, digit: u64| number << 8 | digit;
    Some((width, if is_big { digits.fold(0, add) } else { digits.rev().fold(0, add) }))
}

/// The first `N` bytes. `None` if there are fewer.
fn fixed<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    bytes.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_comes_byte_by_byte_is_cut_all_the_same() {
        for framing in Framing::ALL.into_iter().filter(|framing| !matches!(framing, Framing::None | Framing::Pcap)) {
            let longest = if framing == Framing::Len1 { 255 } else { 20_000 };
            let payloads: Vec<Vec<u8>> = [1, 2, 127, 128, 200, longest].map(|len| alloc::vec![0x5a; len]).into();
            let mut file = Vec::new();
            payloads.iter().for_each(|payload| framing.put(payload, &mut file).unwrap());
            let (mut splitter, mut at, mut came) = (Splitter::new(framing), 0, Vec::new());
            for end in 1..=file.len() {
                match splitter.step(&file[at..end]).unwrap() {
                    Step::Need(need) => assert!(need > end - at && at + need <= file.len(), "{framing}"),
                    Step::Piece { piece: Piece::Frame { payload, .. }, used } => {
                        came.push(payload.to_vec());
                        at += used;
                    }
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!((came, at as u64), (payloads, splitter.offset()), "{framing}");
        }
    }

    #[test]
    fn lengths_out_of_bounds_are_refused() {
        let mut splitter = Splitter::new(Framing::Len4Le).limit(1000);
        let error = splitter.step(&[0xe9, 3, 0, 0]).unwrap_err();
        assert_eq!(error, FramingError::TooLong { bytes: 1001, most: 1000, offset: 0 });
        let block = |bytes: &[u8]| Splitter::new(Framing::Block).step(bytes).map(|_| ()).unwrap_err();
        assert_eq!(block(&[0x80]), FramingError::ZeroBlock { offset: 0 });
        assert_eq!(block(&[0, 0, 0x80]), FramingError::ZeroBlock { offset: 0 });
        assert_eq!(block(&[0x7f; 6]), FramingError::BlockSize { offset: 0 });
        assert_eq!(block(&[0; 20]), FramingError::BlockSize { offset: 0 });
        assert!(Framing::Len2Be.put(&[0; 65_536], &mut Vec::new()).is_err());
        assert!(Framing::Len1.put(&[0; 256], &mut Vec::new()).is_err());
        assert!(Framing::Block.put(&[], &mut Vec::new()).is_err());
        let varint = |bytes: &[u8]| Splitter::new(Framing::Delimited).step(bytes).map(|_| ()).unwrap_err();
        assert_eq!(varint(&[0xff; 10]), FramingError::Varint { offset: 0 });
        let long = [[0xff; 9].as_slice(), &[1]].concat();
        assert!(matches!(varint(&long), FramingError::TooLong { bytes: u64::MAX, .. }));
        let eight = Splitter::new(Framing::Len8Be).step(&[0xff; 8]).map(|_| ()).unwrap_err();
        assert!(matches!(eight, FramingError::TooLong { bytes: u64::MAX, .. }));
    }

    #[test]
    fn lines_end_with_either_line_break_or_the_file() {
        let file = b"one\r\n\ntwo\rthree\nlast";
        let (mut splitter, mut at, mut came) = (Splitter::new(Framing::Lines), 0, Vec::new());
        while let Step::Piece { piece: Piece::Frame { payload, .. }, used } = splitter.step(&file[at..]).unwrap() {
            came.push(payload);
            at += used;
        }
        assert_eq!(came, [&b"one"[..], b"", b"two\rthree"]);
        let last = Piece::Frame { head: &[], payload: b"last", tail: &[] };
        assert_eq!(splitter.last(&file[at..]), Ok(Some(last)));
        assert_eq!(Framing::Lines.put(b"a\nb", &mut Vec::new()), Err(FramingError::LineBreak { at: 1 }));
        let mut short = Splitter::new(Framing::Lines).limit(3);
        assert!(short.step(b"abc\n").is_ok());
        assert!(matches!(short.step(b"abcd\n"), Err(FramingError::TooLong { most: 3, offset: 4, .. })));
    }
}
