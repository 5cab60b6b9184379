//! Where messages begin and end in a file of a foreign feed: FAST itself does not say.
//!
//! A [`Splitter`] takes the bytes of a file as they come and cuts them into [pieces](Piece): frames, whose payload is one message or several, and whatever
//! lies between them. Nothing of the file is lost on the way: the pieces, one after the other, are the file again.
//!
//! ```
//! use polywire_core::codec::fast::framing::{Framing, Piece, Splitter, Step};
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
//! # Ok::<(), polywire_core::codec::fast::framing::FramingError>(())
//! ```

use alloc::{string::String, vec::Vec};
use core::{fmt, str::FromStr};

mod capture;

use capture::Capture;

/// Bytes that a frame has at most, unless [`Splitter::limit`] says otherwise.
const FRAME_BYTES: usize = 16 << 20;

/// How a file is cut into frames.
///
/// ```
/// use polywire_core::codec::fast::framing::Framing;
/// assert_eq!(Framing::ALL.map(|framing| framing.to_string().parse()), Framing::ALL.map(Ok));
/// let mut frame = Vec::new();
/// Framing::Block.put(&[0xAA; 200], &mut frame).unwrap();
/// assert_eq!(frame[..2], [0x01, 0xC8], "seven bits a byte, the last one marked");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Framing {
    /// Messages, one behind the other; the file is one frame without end.
    None,
    /// A length of four bytes in front of each frame, least significant byte first.
    Len4Le,
    /// A length of four bytes, most significant byte first.
    Len4Be,
    /// A length of two bytes, least significant byte first.
    Len2Le,
    /// A length of two bytes, most significant byte first.
    Len2Be,
    /// A block size as FAST has it: an unsigned integer with stop bits; it is not zero (D12).
    Block,
    /// A capture of packets, pcap or pcapng: the payload of each UDP datagram is a frame.
    Pcap,
}

impl Framing {
    /// All of them.
    pub const ALL: [Framing; 7] = [
        Framing::None,
        Framing::Len4Le,
        Framing::Len4Be,
        Framing::Len2Le,
        Framing::Len2Be,
        Framing::Block,
        Framing::Pcap,
    ];

    /// The name, as options have it.
    pub fn name(self) -> &'static str {
        match self {
            Framing::None => "none",
            Framing::Len4Le => "len4le",
            Framing::Len4Be => "len4be",
            Framing::Len2Le => "len2le",
            Framing::Len2Be => "len2be",
            Framing::Block => "block",
            Framing::Pcap => "pcap",
        }
    }

    /// Appends a frame. Of a capture, the payload alone: its packets' headers are not made up.
    pub fn put(self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), FramingError> {
        let long = |most: u64| FramingError::TooLong { bytes: payload.len() as u64, most, offset: 0 };
        let short = || u16::try_from(payload.len()).map_err(|_| long(u16::MAX.into()));
        let wide = || u32::try_from(payload.len()).map_err(|_| long(u32::MAX.into()));
        match self {
            Framing::None | Framing::Pcap => {}
            Framing::Len4Le => out.extend_from_slice(&wide()?.to_le_bytes()),
            Framing::Len4Be => out.extend_from_slice(&wide()?.to_be_bytes()),
            Framing::Len2Le => out.extend_from_slice(&short()?.to_le_bytes()),
            Framing::Len2Be => out.extend_from_slice(&short()?.to_be_bytes()),
            Framing::Block if payload.is_empty() => return Err(FramingError::ZeroBlock { offset: 0 }),
            Framing::Block => put_stop_bits(wide()?, out),
        }
        out.extend_from_slice(payload);
        Ok(())
    }
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

/// What is wrong with a file's frames. Offsets count from the start of the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FramingError {
    /// There is no such framing.
    #[error("there is no framing '{name}'; there are none, len4le, len4be, len2le, len2be, block, pcap")]
    Unknown {
        /// As given.
        name: String,
    },
    /// A frame is longer than the limit, or than its length can say. Another framing, or another byte order, may be the file's.
    #[error("at byte {offset}: a frame of {bytes} bytes, where at most {most} are allowed")]
    TooLong {
        /// What it has.
        bytes: u64,
        /// What it may have.
        most: u64,
        /// Where it begins.
        offset: u64,
    },
    /// A block of size zero (D12).
    #[error("[D12] at byte {offset}: a block of no bytes")]
    ZeroBlock {
        /// Where it begins.
        offset: u64,
    },
    /// A block size that is no 32-bit number.
    #[error("at byte {offset}: a block size of more than 32 bits")]
    BlockSize {
        /// Where it begins.
        offset: u64,
    },
    /// It is no capture, or its records contradict themselves.
    #[error("at byte {offset}: {what}")]
    Capture {
        /// Where.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
}

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// A frame, with what lies around its payload: a length, a packet's headers, padding.
    Frame {
        /// In front of the payload.
        head: &'a [u8],
        /// Messages.
        payload: &'a [u8],
        /// Behind the payload.
        tail: &'a [u8],
    },
    /// What is no frame: a capture's header, a packet that is no UDP datagram or only a part of one.
    Other(&'a [u8]),
}

/// What the bytes so far are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// More bytes are needed: so many in all.
    Need(usize),
    /// A whole piece, and its bytes.
    Piece {
        /// The piece.
        piece: Piece<'a>,
        /// Its bytes, with which the next step does not begin any more.
        used: usize,
    },
}

/// Cuts a file: see the [module](self).
#[derive(Clone, Debug)]
pub struct Splitter {
    framing: Framing,
    limit: usize,
    /// Of the file, before what the next step begins with.
    offset: u64,
    capture: Capture,
}

impl Splitter {
    /// At the start of a file.
    pub fn new(framing: Framing) -> Splitter {
        Splitter { framing, limit: FRAME_BYTES, offset: 0, capture: Capture::default() }
    }

    /// Takes frames of up to so many bytes.
    ///
    /// ```
    /// use polywire_core::codec::fast::framing::{Framing, Splitter, Step};
    /// let mut short = Splitter::new(Framing::Len4Le).limit(100);
    /// assert!(short.step(&[101, 0, 0, 0]).is_err());
    /// // Datagrams to one port of a capture that has several feeds.
    /// let mut one_feed = Splitter::new(Framing::Pcap).port(9000);
    /// assert!(matches!(one_feed.step(b""), Ok(Step::Need(_))));
    /// ```
    pub fn limit(mut self, bytes: usize) -> Splitter {
        self.limit = bytes;
        self
    }

    /// Of a capture, takes datagrams to this UDP port alone.
    pub fn port(mut self, port: u16) -> Splitter {
        self.capture.port = Some(port);
        self
    }

    /// Bytes of the file before those that the next step begins with.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The piece that these bytes begin with. Without framing, all of them.
    pub fn step<'a>(&mut self, bytes: &'a [u8]) -> Result<Step<'a>, FramingError> {
        let step = match self.framing {
            Framing::None => self.rest(bytes),
            Framing::Pcap => self.capture.step(bytes, self.offset, self.limit)?,
            framing => self.counted(framing, bytes)?,
        };
        if let Step::Piece { used, .. } = step {
            self.offset += used as u64;
        }
        Ok(step)
    }

    fn rest<'a>(&self, bytes: &'a [u8]) -> Step<'a> {
        match bytes.len() {
            0 => Step::Need(1),
            used => Step::Piece { piece: Piece::Frame { head: &[], payload: bytes, tail: &[] }, used },
        }
    }

    fn counted<'a>(&self, framing: Framing, bytes: &'a [u8]) -> Result<Step<'a>, FramingError> {
        let prefix = match framing {
            Framing::Len4Le => fixed(bytes).map(u32::from_le_bytes).map(|len| (4, len)),
            Framing::Len4Be => fixed(bytes).map(u32::from_be_bytes).map(|len| (4, len)),
            Framing::Len2Le => fixed(bytes).map(u16::from_le_bytes).map(|len| (2, len.into())),
            Framing::Len2Be => fixed(bytes).map(u16::from_be_bytes).map(|len| (2, len.into())),
            _ => self.block_size(bytes)?,
        };
        let Some((prefix, length)) = prefix else { return Ok(Step::Need(self.least(framing, bytes))) };
        let (length, most) = (length as usize, self.limit);
        if length > most {
            return Err(FramingError::TooLong { bytes: length as u64, most: most as u64, offset: self.offset });
        }
        let used = prefix + length;
        Ok(match bytes.split_at_checked(prefix).and_then(|(head, rest)| Some((head, rest.get(..length)?))) {
            Some((head, payload)) => Step::Piece { piece: Piece::Frame { head, payload, tail: &[] }, used },
            None => Step::Need(used),
        })
    }

    /// Bytes that tell the length.
    fn least(&self, framing: Framing, bytes: &[u8]) -> usize {
        match framing {
            Framing::Len4Le | Framing::Len4Be => 4,
            Framing::Len2Le | Framing::Len2Be => 2,
            _ => bytes.len() + 1,
        }
    }

    fn block_size(&self, bytes: &[u8]) -> Result<Option<(usize, u32)>, FramingError> {
        let offset = self.offset;
        let mut size = 0_u64;
        for (i, byte) in bytes.iter().enumerate() {
            size = size << 7 | u64::from(byte & 0x7f);
            let Ok(fits) = u32::try_from(size) else { return Err(FramingError::BlockSize { offset }) };
            match (byte & 0x80 != 0, fits) {
                (true, 0) => return Err(FramingError::ZeroBlock { offset }),
                (true, size) => return Ok(Some((i + 1, size))),
                // Zeros in front are superfluous; more of them than a number has are no number.
                (false, _) if i >= 9 => return Err(FramingError::BlockSize { offset }),
                (false, _) => {}
            }
        }
        Ok(None)
    }
}

/// The first bytes, if there are so many.
fn fixed<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    bytes.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_comes_byte_by_byte_is_cut_all_the_same() {
        for framing in [Framing::Len4Le, Framing::Len4Be, Framing::Len2Le, Framing::Len2Be, Framing::Block] {
            let payloads: Vec<Vec<u8>> = [1, 2, 127, 128, 300, 20_000].map(|len| alloc::vec![0x5a; len]).into();
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
        assert!(Framing::Block.put(&[], &mut Vec::new()).is_err());
    }
}
