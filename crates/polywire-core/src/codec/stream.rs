//! Streams of a stateful codec over links that lose, repeat and reorder: key frames, and what the
//! messages between them refer to.
//!
//! A message of a stateful codec means something only together with what came before it. Two modes
//! say what that is:
//!
//! - [*chained*](Mode::Chained): the message before it. Nothing is smaller; one lost message makes
//!   all that follow unreadable up to the next key frame. For links that are reliable and ordered,
//!   whose receivers all get the same messages.
//! - [*anchored*](Mode::Anchored): a key frame, which the message names. Every message whose key
//!   frame arrived can be read, whatever became of the others.
//!
//! A key frame refers to nothing. The envelope's anchor says which is which: it is the message's
//! own sequence number in a key frame, that of the key frame in an anchored message, and none in a
//! chained one. So a reader need not be told the mode, and a writer may change it at a key frame.
//!
//! Nothing here knows a clock, a link or a codec: the caller encodes and decodes with the state it
//! is lent.

use alloc::collections::VecDeque;

use crate::program::State;

/// What messages refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The message before.
    Chained,
    /// The latest key frame.
    Anchored,
}

/// The writer's end of a stream.
///
/// ```
/// use polywire_core::codec::stream::{Mode, StreamError, StreamReader, StreamWriter};
/// # use polywire_core::program::{State, state::Bank};
/// # use std::sync::Arc;
/// # let new_state = || State::new(&Arc::new(Bank::default()));
///
/// let mut writer = StreamWriter::new(new_state(), Mode::Anchored, 100);
/// let mut reader = StreamReader::new(new_state());
/// // The closures stand for `Encoder::encode_with` and `Decoder::decode_with`.
/// let anchor = writer.write(1, |_state, _keep| Ok::<(), ()>(())).unwrap();
/// assert_eq!(anchor, Some(1), "the first message is a key frame");
/// assert_eq!(writer.write(2, |_, _| Ok::<(), ()>(())), Ok(Some(1)));
///
/// // The reader got the second message alone: it needs the key frame.
/// let told = reader.read(2, Some(1), |_, _| Ok::<(), ()>(()));
/// assert_eq!(told, Err(StreamError::NoKey { anchor: 1 }));
/// assert!(reader.wants_key());
/// assert!(reader.read(1, Some(1), |_, _| Ok::<(), ()>(())).is_ok());
/// assert!(reader.read(2, Some(1), |_, _| Ok::<(), ()>(())).is_ok());
///
/// // Asked for a key frame, or told to write in another mode, it begins anew.
/// writer.ask_for_key();
/// assert_eq!(writer.write(3, |_, _| Ok::<(), ()>(())), Ok(Some(3)));
/// writer.set_mode(Mode::Chained);
/// assert_eq!(writer.write(4, |_, _| Ok::<(), ()>(())), Ok(Some(4)));
/// assert_eq!(writer.write(5, |_, _| Ok::<(), ()>(())), Ok(None));
/// ```
#[derive(Clone, Debug)]
pub struct StreamWriter {
    mode: Mode,
    /// Chained: as it is after the last message. Anchored: as it is after the key frame.
    state: State,
    key: Option<u64>,
    last: u64,
    /// Messages from one key frame to the next.
    interval: u64,
    asked: bool,
}

impl StreamWriter {
    /// A stream whose first message will be a key frame, and then at least each `interval`th (0:
    /// only when asked).
    pub fn new(state: State, mode: Mode, interval: u64) -> StreamWriter {
        StreamWriter { mode, state, key: None, last: 0, interval, asked: false }
    }

    /// Makes the next message a key frame: somebody has joined, or lost one. Asking again before it
    /// is sent changes nothing.
    pub fn ask_for_key(&mut self) {
        self.asked = true;
    }

    /// What messages refer to from the next key frame on, which comes next.
    pub fn set_mode(&mut self, mode: Mode) {
        if self.mode != mode {
            self.mode = mode;
            self.asked = true;
        }
    }

    /// Encodes the message with this sequence number, which is larger than all before, and gives
    /// its anchor. `encode` gets the state and whether it is to keep what the message changes;
    /// where it fails the stream goes on as if it had not been asked.
    pub fn write<E>(
        &mut self,
        sequence: u64,
        encode: impl FnOnce(&mut State, bool) -> Result<(), E>,
    ) -> Result<Option<u64>, E> {
        let key = match self.key {
            Some(key) if !self.asked && !self.is_due(sequence, key) && self.continues(sequence) => key,
            _ => return self.write_key(sequence, encode),
        };
        encode(&mut self.state, self.mode == Mode::Chained)?;
        self.last = sequence;
        Ok((self.mode == Mode::Anchored).then_some(key))
    }

    fn write_key<E>(
        &mut self,
        sequence: u64,
        encode: impl FnOnce(&mut State, bool) -> Result<(), E>,
    ) -> Result<Option<u64>, E> {
        self.state.reset();
        // The state is gone: until a key frame has been written there is none to refer to.
        self.key = None;
        encode(&mut self.state, true)?;
        (self.key, self.last, self.asked) = (Some(sequence), sequence, false);
        Ok(Some(sequence))
    }

    fn is_due(&self, sequence: u64, key: u64) -> bool {
        self.interval > 0 && sequence.saturating_sub(key) >= self.interval
    }

    /// A chain has no gaps: a reader could not tell one from a loss.
    fn continues(&self, sequence: u64) -> bool {
        self.mode == Mode::Anchored || self.last.checked_add(1) == Some(sequence)
    }
}

/// Key frames that a reader keeps: messages that refer to the one before the last may still be
/// under way when the last one comes.
const KEYS: usize = 4;

/// A reader's end of a stream.
#[derive(Clone, Debug)]
pub struct StreamReader {
    fresh: State,
    /// After key frames, the latest last.
    keys: VecDeque<(u64, State)>,
    /// After the last message of a chain, and its number.
    chain: Option<(u64, State)>,
    wants_key: bool,
}

/// Why a message of a stream was not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError<E> {
    /// It refers to a key frame that has not come, or is long gone.
    #[error("the key frame {anchor} that it refers to is not here")]
    NoKey {
        /// Number of the key frame.
        anchor: u64,
    },
    /// It refers to the message before it, which has not come.
    #[error("the message before it is not here: the last one that could be read is {last:?}")]
    Gap {
        /// The last message of the chain.
        last: Option<u64>,
    },
    /// It came before, or is older than what came.
    #[error("it comes again, or behind message {last}")]
    Stale {
        /// The last message of the chain.
        last: u64,
    },
    /// It refers to a message that comes after it.
    #[error("it refers to {anchor}, which comes after it")]
    Future {
        /// What it refers to.
        anchor: u64,
    },
    /// The decoder refused it.
    #[error(transparent)]
    Decode(#[from] E),
}

impl StreamReader {
    /// A reader that has seen nothing; the state is that of its decoder before the first message.
    pub fn new(state: State) -> StreamReader {
        StreamReader { fresh: state, keys: VecDeque::with_capacity(KEYS), chain: None, wants_key: false }
    }

    /// True after a message could not be read for want of a key frame, until one comes: time to ask
    /// the writer for one.
    pub fn wants_key(&self) -> bool {
        self.wants_key
    }

    /// Decodes the message with this sequence number and anchor. `decode` gets the state and
    /// whether it is to keep what the message changes; it is not called unless what the message
    /// refers to is here. After an error nothing has changed but that the chain may be broken.
    pub fn read<T, E>(
        &mut self,
        sequence: u64,
        anchor: Option<u64>,
        decode: impl FnOnce(&mut State, bool) -> Result<T, E>,
    ) -> Result<T, StreamError<E>> {
        match anchor {
            Some(anchor) if anchor == sequence => self.read_key(sequence, decode),
            Some(anchor) if anchor > sequence => Err(StreamError::Future { anchor }),
            Some(anchor) => self.read_anchored(anchor, decode),
            None => self.read_chained(sequence, decode),
        }
    }

    fn read_key<T, E>(
        &mut self,
        sequence: u64,
        decode: impl FnOnce(&mut State, bool) -> Result<T, E>,
    ) -> Result<T, StreamError<E>> {
        let mut state = self.spare();
        state.reset();
        let value = match decode(&mut state, true) {
            Ok(value) => value,
            Err(error) => {
                // What follows refers to it.
                self.wants_key = true;
                return Err(error.into());
            }
        };
        // One that was overtaken by another is kept for what refers to it, but no chain goes back
        // to it.
        if self.chain.as_ref().is_none_or(|(last, _)| *last < sequence) {
            self.chain = Some((sequence, state.clone()));
        }
        if let Some(known) = self.keys.iter().position(|(key, _)| *key == sequence) {
            self.keys.remove(known);
        }
        let at = self.keys.partition_point(|(key, _)| *key < sequence);
        self.keys.insert(at, (sequence, state));
        self.wants_key = false;
        Ok(value)
    }

    /// A state to read a key frame with: that of the oldest, where there are enough.
    fn spare(&mut self) -> State {
        match self.keys.len() < KEYS {
            true => self.fresh.clone(),
            false => self.keys.pop_front().map_or_else(|| self.fresh.clone(), |(_, state)| state),
        }
    }

    fn read_anchored<T, E>(
        &mut self,
        anchor: u64,
        decode: impl FnOnce(&mut State, bool) -> Result<T, E>,
    ) -> Result<T, StreamError<E>> {
        let Some((_, state)) = self.keys.iter_mut().rev().find(|(key, _)| *key == anchor) else {
            // An old one that comes late asks for nothing: newer ones are here.
            self.wants_key |= self.keys.back().is_none_or(|(newest, _)| *newest < anchor);
            return Err(StreamError::NoKey { anchor });
        };
        Ok(decode(state, false)?)
    }

    fn read_chained<T, E>(
        &mut self,
        sequence: u64,
        decode: impl FnOnce(&mut State, bool) -> Result<T, E>,
    ) -> Result<T, StreamError<E>> {
        let Some((last, state)) = self.chain.as_mut().filter(|(_, state)| !state.is_broken()) else {
            self.wants_key = true;
            return Err(StreamError::Gap { last: self.chain.as_ref().map(|(last, _)| *last) });
        };
        if sequence <= *last {
            return Err(StreamError::Stale { last: *last });
        }
        if *last + 1 != sequence {
            state.break_chain();
            self.wants_key = true;
            return Err(StreamError::Gap { last: Some(*last) });
        }
        match decode(state, true) {
            Ok(value) => {
                *last = sequence;
                Ok(value)
            }
            Err(error) => {
                state.break_chain();
                self.wants_key = true;
                Err(error.into())
            }
        }
    }
}
