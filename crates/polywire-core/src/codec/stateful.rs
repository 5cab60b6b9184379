//! Message sequences of a stateful codec over links that lose, repeat or reorder messages.
//! Publishers and subscribers use a [`StatefulWriter`] and a [`StatefulReader`] to decide which
//! messages are key frames, and which state a message refers to.
//!
//! In a stateful codec, a message can be decoded only with the state that an earlier one left.
//! There are two modes:
//!
//! - [*chained*](Mode::Chained): a message refers to the previous message. This gives the smallest
//!   messages, but after a lost message nothing can be read until the next key frame. It suits
//!   reliable, ordered links on which all receivers get the same messages.
//! - [*anchored*](Mode::Anchored): a message refers to a key frame, which it names. Every message
//!   can be read whose key frame arrived, even if others are lost.
//!
//! A key frame refers to no message. The anchor in a message's envelope tells the kinds apart: in a
//! key frame it is the message's own sequence number, in an anchored message that of its key frame,
//! and a chained message has none. A reader therefore needs no setting, and a writer may change the
//! mode at any key frame.
//!
//! This module has no clock, link or codec: the caller encodes and decodes with the state that the
//! functions pass to it.

use alloc::{
    collections::VecDeque,
    string::{String, ToString},
};

use crate::program::State;

/// What a message refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The previous message.
    Chained,
    /// The latest key frame.
    Anchored,
}

/// The writer's side of a message sequence.
///
/// ```
/// use polywire_core::codec::stateful::{Mode, StatefulError, StatefulReader, StatefulWriter};
/// # use polywire_core::program::{Bank, State};
/// # use std::sync::Arc;
/// # let new_state = || State::new(&Arc::new(Bank::default()));
///
/// let mut writer = StatefulWriter::new(new_state(), Mode::Anchored, 100);
/// let mut reader = StatefulReader::new(new_state());
/// // The closures take the place of `Encoder::encode_with` and `Decoder::decode_with`.
/// let anchor = writer.write(1, |_state, _keep| Ok::<(), ()>(())).unwrap();
/// assert_eq!(anchor, Some(1), "the first message is a key frame");
/// assert_eq!(writer.write(2, |_, _| Ok::<(), ()>(())), Ok(Some(1)));
///
/// // The reader gets only the second message, so it needs a key frame.
/// let told = reader.read(2, Some(1), |_, _| Ok::<(), ()>(()));
/// assert_eq!(told, Err(StatefulError::NoKey { anchor: 1 }));
/// assert!(reader.needs_key_frame());
/// assert!(reader.read(1, Some(1), |_, _| Ok::<(), ()>(())).is_ok());
/// assert!(reader.read(2, Some(1), |_, _| Ok::<(), ()>(())).is_ok());
///
/// // A request for a key frame, or another mode, makes the next message a key frame.
/// writer.request_key_frame();
/// assert_eq!(writer.write(3, |_, _| Ok::<(), ()>(())), Ok(Some(3)));
/// writer.set_mode(Mode::Chained);
/// assert_eq!(writer.write(4, |_, _| Ok::<(), ()>(())), Ok(Some(4)));
/// assert_eq!(writer.write(5, |_, _| Ok::<(), ()>(())), Ok(None));
/// ```
#[derive(Clone, Debug)]
pub struct StatefulWriter {
    mode: Mode,
    /// In chained mode, the state after the last message. In anchored mode, the state after the key
    /// frame.
    state: State,
    key: Option<u64>,
    last: u64,
    /// Number of messages from one key frame to the next.
    interval: u64,
    asked: bool,
}

impl StatefulWriter {
    /// Starts a sequence with a key frame. Every `interval`th message or earlier, another key frame
    /// follows; with 0, key frames follow only on request.
    pub fn new(state: State, mode: Mode, interval: u64) -> StatefulWriter {
        StatefulWriter { mode, state, key: None, last: 0, interval, asked: false }
    }

    /// Makes the next message a key frame, because a reader joined or lost a message. Several
    /// requests before that message have the effect of one.
    pub fn request_key_frame(&mut self) {
        self.asked = true;
    }

    /// Changes the mode. If it differs, the next message becomes a key frame.
    pub fn set_mode(&mut self, mode: Mode) {
        if self.mode != mode {
            self.mode = mode;
            self.asked = true;
        }
    }

    /// Encodes the message with this sequence number, which must be greater than all before, and
    /// returns its anchor. `encode` gets the state, and whether to keep the changes that the
    /// message makes to it. If `encode` fails, the sequence continues with the next call.
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
        // The old state is lost: until a key frame is written, there is nothing to refer to.
        self.key = None;
        encode(&mut self.state, true)?;
        (self.key, self.last, self.asked) = (Some(sequence), sequence, false);
        Ok(Some(sequence))
    }

    fn is_due(&self, sequence: u64, key: u64) -> bool {
        self.interval > 0 && sequence.saturating_sub(key) >= self.interval
    }

    /// A chain has no gaps in its sequence numbers, because a reader would take a gap for a loss.
    fn continues(&self, sequence: u64) -> bool {
        self.mode == Mode::Anchored || self.last.checked_add(1) == Some(sequence)
    }
}

/// Number of key frames that a reader keeps. When a new key frame arrives, messages that refer to
/// older ones may still be under way.
const KEYS: usize = 4;

/// The reader's side of a message sequence.
#[derive(Clone, Debug)]
pub struct StatefulReader {
    initial: State,
    /// The states after key frames, in order of arrival.
    keys: VecDeque<(u64, State)>,
    /// A state that is no longer needed. The next key frame reuses its memory.
    spare: Option<State>,
    /// The last message of the chain: its number and the state after it.
    chain: Option<(u64, State)>,
    needs_key_frame: bool,
}

/// Why a message was not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StatefulError<E> {
    /// The message refers to a key frame that did not arrive or is no longer kept.
    #[error("the message refers to the key frame {anchor}, which is not available")]
    NoKey {
        /// Sequence number of the key frame.
        anchor: u64,
    },
    /// The message refers to the previous message, which was not read.
    #[error("the previous message is missing: the last one that could be read is {}", number_or_none(last))]
    Gap {
        /// Sequence number of the last message of the chain. `None` before the first.
        last: Option<u64>,
    },
    /// The message was read before, or a later one was.
    #[error("the message is a repetition, or arrived after message {last}")]
    Stale {
        /// Sequence number of the last message of the chain.
        last: u64,
    },
    /// The message refers to a later one.
    #[error("the message refers to {anchor}, a later message")]
    Future {
        /// Sequence number that it refers to.
        anchor: u64,
    },
    /// The decoder refused the message.
    #[error(transparent)]
    Decode(#[from] E),
}

/// A sequence number as text for messages.
fn number_or_none(number: &Option<u64>) -> String {
    number.map_or_else(|| "none".into(), |number| number.to_string())
}

impl StatefulReader {
    /// A reader before the first message. `state` is the decoder's state before the first message.
    pub fn new(state: State) -> StatefulReader {
        let keys = VecDeque::with_capacity(KEYS);
        StatefulReader { initial: state, keys, spare: None, chain: None, needs_key_frame: false }
    }

    /// True if a message could not be read for lack of a key frame, until the next key frame: the
    /// caller should ask the writer for one.
    pub fn needs_key_frame(&self) -> bool {
        self.needs_key_frame
    }

    /// Decodes the message with this sequence number and anchor. `decode` gets the state, and
    /// whether to keep the changes that the message makes to it. It is called only if what the
    /// message refers to is available. After an error nothing has changed, except that the chain
    /// may be interrupted.
    pub fn read<T, E>(
        &mut self,
        sequence: u64,
        anchor: Option<u64>,
        decode: impl FnOnce(&mut State, bool) -> Result<T, E>,
    ) -> Result<T, StatefulError<E>> {
        match anchor {
            Some(anchor) if anchor == sequence => self.read_key(sequence, decode),
            Some(anchor) if anchor > sequence => Err(StatefulError::Future { anchor }),
            Some(anchor) => self.read_anchored(anchor, decode),
            None => self.read_chained(sequence, decode),
        }
    }

    fn read_key<T, E>(
        &mut self,
        sequence: u64,
        decode: impl FnOnce(&mut State, bool) -> Result<T, E>,
    ) -> Result<T, StatefulError<E>> {
        let mut state = self.spare.take().unwrap_or_else(|| self.initial.clone());
        state.reset();
        let value = match decode(&mut state, true) {
            Ok(value) => value,
            Err(error) => {
                // Messages that follow refer to the state after this one.
                self.needs_key_frame = true;
                self.spare = Some(state);
                return Err(error.into());
            }
        };
        // A key frame that arrives late is kept for messages that refer to it, but the chain does
        // not go back to it.
        if self.chain.as_ref().is_none_or(|(last, _)| *last < sequence) {
            self.chain = Some((sequence, state.clone()));
        }
        self.keep(sequence, state);
        self.needs_key_frame = false;
        Ok(value)
    }

    /// Keeps the state after a key frame. It replaces the state of the same key frame or, if enough
    /// are kept, that of the oldest.
    fn keep(&mut self, sequence: u64, state: State) {
        let at = self.keys.partition_point(|(key, _)| *key < sequence);
        if let Some((_, known)) = self.keys.get_mut(at).filter(|(key, _)| *key == sequence) {
            self.spare = Some(core::mem::replace(known, state));
        } else if self.keys.len() < KEYS {
            self.keys.insert(at, (sequence, state));
        } else if at == 0 {
            self.spare = Some(state);
        } else {
            self.spare = self.keys.pop_front().map(|(_, oldest)| oldest);
            self.keys.insert(at - 1, (sequence, state));
        }
    }

    fn read_anchored<T, E>(
        &mut self,
        anchor: u64,
        decode: impl FnOnce(&mut State, bool) -> Result<T, E>,
    ) -> Result<T, StatefulError<E>> {
        let Some((_, state)) = self.keys.iter_mut().rev().find(|(key, _)| *key == anchor) else {
            // An old message that arrives late requests nothing, because newer key frames are
            // available.
            self.needs_key_frame |= self.keys.back().is_none_or(|(newest, _)| *newest < anchor);
            return Err(StatefulError::NoKey { anchor });
        };
        Ok(decode(state, false)?)
    }

    fn read_chained<T, E>(
        &mut self,
        sequence: u64,
        decode: impl FnOnce(&mut State, bool) -> Result<T, E>,
    ) -> Result<T, StatefulError<E>> {
        let Some((last, state)) = self.chain.as_mut().filter(|(_, state)| !state.is_broken()) else {
            self.needs_key_frame = true;
            return Err(StatefulError::Gap { last: self.chain.as_ref().map(|(last, _)| *last) });
        };
        if sequence <= *last {
            return Err(StatefulError::Stale { last: *last });
        }
        if *last + 1 != sequence {
            state.break_chain();
            self.needs_key_frame = true;
            return Err(StatefulError::Gap { last: Some(*last) });
        }
        match decode(state, true) {
            Ok(value) => {
                *last = sequence;
                Ok(value)
            }
            Err(error) => {
                state.break_chain();
                self.needs_key_frame = true;
                Err(error.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;

    use super::*;
    use crate::program::Bank;

    type Read = Result<(), StatefulError<&'static str>>;

    fn key(reader: &mut StatefulReader, sequence: u64) -> Read {
        reader.read(sequence, Some(sequence), |_, _| Ok(()))
    }

    fn anchored(reader: &mut StatefulReader, anchor: u64) -> Read {
        reader.read(100, Some(anchor), |_, _| Ok(()))
    }

    #[test]
    fn a_refused_repeated_or_old_key_frame_replaces_no_other() {
        let mut reader = StatefulReader::new(State::new(&Arc::new(Bank::default())));
        (1..=4).for_each(|sequence| assert_eq!(key(&mut reader, sequence), Ok(())));
        let refused = reader.read(5, Some(5), |_, _| Err::<(), _>("refused"));
        assert_eq!(refused, Err(StatefulError::Decode("refused")));
        assert_eq!(key(&mut reader, 4), Ok(()));
        assert_eq!(key(&mut reader, 0), Ok(()));
        (1..=4).for_each(|sequence| assert_eq!(anchored(&mut reader, sequence), Ok(())));

        assert_eq!(key(&mut reader, 5), Ok(()));
        assert_eq!(anchored(&mut reader, 1), Err(StatefulError::NoKey { anchor: 1 }));
        (2..=5).for_each(|sequence| assert_eq!(anchored(&mut reader, sequence), Ok(())));
    }
}
