//! The state of stateful formats: what a codec keeps from one message to the next (previous values,
//! in a bank of slots) and, within a message, its presence map, locals and the bytes in hand.
//!
//! A program that has a [`Bank`] runs with a [`State`]. Both back ends change it, the interpreter
//! through the methods in this folder, machine code also in memory. `exec.rs` calls
//! [`State::begin`] before a message, which saves the values, and [`State::roll_back`] if the
//! message failed or must leave no trace.
//!
//! The files beside this one are the reference for operations with state: `slots` (slots and
//! locals), `bits` (presence maps), `stop_bit` and `integer` (numbers), `decimal` and `float`
//! (decimals), `bytes` (strings). They touch `State`, `Input` and `Output`, never the value.
//! `specialised` is for direct functions.

use alloc::{boxed::Box, sync::Arc, vec, vec::Vec};
use core::ops::{Deref, DerefMut};

use super::{FaultKind, Input, Output, Status, io::SHORT_TEXT};

mod bits;
pub(crate) mod bytes;
pub(crate) mod decimal;
pub(crate) mod float;
pub(crate) mod integer;
mod slots;
#[cfg(feature = "jit")]
pub(crate) mod specialised;
pub(crate) mod stop_bit;

pub(crate) use bits::{begin_reading, begin_writing, end_reading, end_writing, expect_bits, put_bits};
pub(crate) use slots::{LOCALS, compute, cut};

/// The number of slots of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bank {
    /// Slots of 64 bits, each with a state.
    pub slots: u32,
    /// Slots for bytes. Each also has a slot of 64 bits, for its state: see
    /// [`ByteSlot`](super::ByteSlot).
    pub texts: u32,
}

/// A slot without a value yet.
pub(crate) const UNDEFINED: u8 = 0;
/// A slot whose value is known to be absent.
pub(crate) const EMPTY: u8 = 1;

/// The number of allocated slots is a multiple of this.
const ROW: usize = 8;

/// The largest number of slots that is copied in line, without a call.
const FEW_SLOTS: usize = 64;

/// Bytes of strings that a bank keeps at most, unless [`State::limit_texts`] says otherwise.
/// Strings that are short enough for a slot's word do not count.
const TEXT_BYTES: usize = 16 << 20;

/// The most reports that are kept until [`State::take_reports`].
const MAX_REPORTS: usize = 256;

/// The state of one sequence of messages, at its writer or at one of its readers.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct State {
    /// Addresses of values, texts and tags, for machine code; set before each message.
    pub(crate) values_at: usize,
    pub(crate) texts_at: usize,
    pub(crate) tags_at: usize,
    /// The locals, which live within a message.
    pub(crate) locals: [u64; LOCALS],
    /// For direct code: the address of the message's limits, and the rest of its memory budget.
    pub(crate) limits_at: usize,
    pub(crate) memory_left: usize,
    /// Bytes of slots that the message may still copy. This budget begins with the size of the
    /// memory budget, but is counted separately: a message that is decoded again after a bail-out
    /// copies the bytes again, but does not allocate the memory again.
    pub(crate) copies_left: usize,
    /// Values of the slots.
    pub(crate) values: Values,
    /// The state of each slot: undefined, empty, or the kind of its value.
    pub(crate) tags: Box<[u8]>,
    /// The presence map that is read or written.
    map: bits::Map,
    /// The bytes in hand.
    pub(crate) held: Vec<u8>,
    /// How many of them [`Wire::Octet`](super::Wire::Octet) has taken.
    taken: usize,
    /// Output of operations that direct code leaves to the interpreter.
    pub(crate) fallback: Vec<u8>,
    texts: Vec<Text>,
    text_bytes: usize,
    text_limit: usize,
    message: u64,
    saved_values: Values,
    saved_tags: Box<[u8]>,
    saved_texts: Vec<(u32, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
    broken: bool,
    #[cfg(feature = "jit")]
    specialised: specialised::SpecialisedState,
    lenient: bool,
    reports: Vec<Report>,
    bank: Arc<Bank>,
}

/// A slot for bytes.
#[derive(Debug)]
pub(crate) struct Text {
    /// The address of its bytes and their number, for machine code.
    pub(crate) at: usize,
    pub(crate) len: usize,
    bytes: Vec<u8>,
    /// The message that changed it last.
    changed: u64,
}

impl Text {
    /// Replaces the bytes, and returns the old ones.
    fn replace(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        let own = core::mem::replace(&mut self.bytes, bytes);
        self.note();
        own
    }

    /// Updates address and number after the bytes have changed. Machine code loads [`SHORT_TEXT`]
    /// bytes of a text that has some.
    fn note(&mut self) {
        if !self.bytes.is_empty() {
            self.bytes.reserve(SHORT_TEXT.saturating_sub(self.bytes.len()));
        }
        (self.at, self.len) = (self.bytes.as_ptr() as usize, self.bytes.len());
    }
}

impl Default for Text {
    fn default() -> Text {
        let mut text = Text { at: 0, len: 0, bytes: Vec::new(), changed: 0 };
        // Machine code makes slices from the address, which must not be null even for an empty
        // text.
        text.note();
        text
    }
}

impl Clone for Text {
    fn clone(&self) -> Text {
        let mut text = Text { bytes: self.bytes.clone(), changed: self.changed, ..Text::default() };
        text.note();
        text
    }
}

/// How to treat deviations that the specification calls reportable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// The message is refused.
    #[default]
    Reject,
    /// They are noted in the state, and the message goes on.
    Report,
    /// The message goes on.
    Ignore,
}

impl Policy {
    /// The policy for a word from machine code.
    pub(crate) fn of_word(word: u64) -> Policy {
        match word {
            1 => Policy::Report,
            2 => Policy::Ignore,
            _ => Policy::Reject,
        }
    }
}

/// A deviation from the specification that was accepted because of the reader's options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The kind of deviation.
    pub kind: FaultKind,
    /// Byte of the message.
    pub offset: usize,
}

impl State {
    /// The state before the first message.
    pub fn new(bank: &Arc<Bank>) -> State {
        let slots = (bank.slots as usize).next_multiple_of(ROW);
        State {
            values_at: 0,
            texts_at: 0,
            tags_at: 0,
            locals: [0; LOCALS],
            limits_at: 0,
            memory_left: 0,
            copies_left: 0,
            values: Values::new(slots),
            tags: vec![UNDEFINED; slots].into(),
            map: bits::Map::default(),
            held: Vec::new(),
            taken: 0,
            fallback: Vec::new(),
            texts: vec![Text::default(); bank.texts as usize],
            text_bytes: 0,
            text_limit: TEXT_BYTES,
            message: 0,
            saved_values: Values::new(slots),
            saved_tags: vec![UNDEFINED; slots].into(),
            saved_texts: Vec::new(),
            spare: Vec::new(),
            broken: false,
            #[cfg(feature = "jit")]
            specialised: specialised::SpecialisedState::default(),
            lenient: false,
            reports: Vec::new(),
            bank: bank.clone(),
        }
    }

    /// Forgets all previous values: the next message can be read without any earlier one.
    pub fn reset(&mut self) {
        self.forget();
        self.broken = false;
        #[cfg(feature = "jit")]
        self.specialised.note_fresh();
    }

    fn forget(&mut self) {
        self.tags.fill(UNDEFINED);
    }

    /// True after a message could not be decoded, or after [`State::break_chain`]. Later messages
    /// may refer to unknown values, so they are refused until [`State::reset`] or [`State::mend`].
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Records that a message was lost.
    pub fn break_chain(&mut self) {
        self.broken = true;
    }

    /// Continues with the present values. The caller must know that the lost or refused message
    /// changed none of them.
    pub fn mend(&mut self) {
        self.broken = false;
    }

    /// Sets how many bytes of strings are kept at most. Strings of up to seven bytes do not count.
    /// The limit must be the same at the writer and at all readers, or far more than they need.
    pub fn limit_texts(&mut self, bytes: usize) {
        self.text_limit = bytes;
    }

    /// The deviations accepted since the last call.
    pub fn take_reports(&mut self) -> Vec<Report> {
        core::mem::take(&mut self.reports)
    }

    /// The bank that it was made for.
    pub fn bank(&self) -> &Arc<Bank> {
        &self.bank
    }

    /// Before a message.
    pub(crate) fn begin(&mut self) {
        #[cfg(feature = "jit")]
        self.despecialise();
        self.saved_tags.copy_from_slice(&self.tags);
        self.map = bits::Map::default();
        self.taken = 0;
        self.locals = [0; LOCALS];
        keep(&mut self.saved_values, &self.values);
        self.begin_message();
    }

    /// Before a message.
    #[inline(always)]
    fn begin_message(&mut self) {
        if !self.saved_texts.is_empty() {
            self.spare_texts();
        }
        self.message += 1;
        self.values_at = self.values.as_mut_ptr() as usize;
        self.texts_at = self.texts.as_ptr() as usize;
        self.tags_at = self.tags.as_mut_ptr() as usize;
    }

    #[inline(never)]
    fn spare_texts(&mut self) {
        self.spare.extend(self.saved_texts.drain(..).map(|(_, bytes)| bytes));
    }

    /// Undoes the message's changes.
    pub(crate) fn roll_back(&mut self) {
        core::mem::swap(&mut self.tags, &mut self.saved_tags);
        core::mem::swap(&mut self.values, &mut self.saved_values);
        self.roll_back_texts();
    }

    fn roll_back_texts(&mut self) {
        while let Some((slot, bytes)) = self.saved_texts.pop() {
            if let Some(text) = self.texts.get_mut(slot as usize) {
                self.text_bytes = self.text_bytes - counted(&text.bytes) + counted(&bytes);
                self.spare.push(text.replace(bytes));
            }
        }
    }

    /// True if a string of the message that is not UTF-8 was accepted.
    pub(crate) fn is_lenient(&self) -> bool {
        self.lenient
    }

    pub(crate) fn tag(&self, slot: u32) -> u8 {
        self.tags.get(slot as usize).copied().unwrap_or(UNDEFINED)
    }

    pub(crate) fn set_tag(&mut self, slot: u32, tag: u8) {
        if let Some(there) = self.tags.get_mut(slot as usize) {
            *there = tag;
        }
    }

    pub(crate) fn value(&self, slot: u32) -> u64 {
        self.values.get(slot as usize).copied().unwrap_or(0)
    }

    pub(crate) fn set_value(&mut self, slot: u32, value: u64) {
        if let Some(there) = self.values.get_mut(slot as usize) {
            *there = value;
        }
    }

    pub(crate) fn text(&self, slot: u32) -> &[u8] {
        self.texts.get(slot as usize).map_or(&[], |text| &text.bytes)
    }

    /// Stores bytes in a slot for bytes. The error is the limit that they would exceed.
    pub(crate) fn set_text(&mut self, slot: u32, bytes: &[u8]) -> Result<(), usize> {
        let Some(text) = self.texts.get_mut(slot as usize) else { return Ok(()) };
        if text.bytes == bytes {
            return Ok(());
        }
        let total = self.text_bytes - counted(&text.bytes) + counted(bytes);
        if total > self.text_limit {
            return Err(self.text_limit);
        }
        if text.changed != self.message {
            text.changed = self.message;
            let spare = self.spare.pop().unwrap_or_default();
            self.saved_texts.push((slot, text.replace(spare)));
        }
        text.bytes.clear();
        text.bytes.extend_from_slice(bytes);
        text.note();
        self.text_bytes = total;
        Ok(())
    }
}

/// How many of a string's bytes count against the limit.
fn counted(text: &[u8]) -> usize {
    if text.len() > bytes::MAX_INLINE { text.len() } else { 0 }
}

/// The values of slots, aligned to cache lines: copies that straddle lines may take twice as long.
#[derive(Clone, Debug)]
pub(crate) struct Values(Box<[Line]>);

/// A cache line of values.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Line([u64; ROW]);

impl Values {
    fn new(slots: usize) -> Values {
        Values(vec![Line([0; ROW]); slots.div_ceil(ROW)].into())
    }
}

impl Deref for Values {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        // SAFETY: a `Line` consists of its words without padding: they take all of its 64 bytes.
        unsafe { core::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len() * ROW) }
    }
}

impl DerefMut for Values {
    fn deref_mut(&mut self) -> &mut [u64] {
        // SAFETY: a `Line` consists of its words without padding, and all of them are borrowed
        // mutably.
        unsafe { core::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.0.len() * ROW) }
    }
}

/// Copies the values of slots. For few slots, a call of `memcpy` would take longer than the copy.
#[inline(always)]
fn keep(to: &mut Values, from: &Values) {
    if to.0.len() > FEW_SLOTS / ROW {
        return to.0.copy_from_slice(&from.0);
    }
    to.0.iter_mut().zip(&from.0).for_each(|(to, from)| *to = *from);
}

impl<'a> Input<'a> {
    /// The state of the stream, which a program with a bank has.
    pub(crate) fn state(&mut self) -> &mut State {
        self.state.as_mut().expect("an operation with state is in a program with a bank, which runs with a state")
    }

    /// Handles a deviation by the policy: refuses it, reports it, or ignores it.
    pub(crate) fn deviate(&mut self, kind: FaultKind, policy: Policy, got: u64) -> Result<(), Status> {
        match policy {
            Policy::Reject => return Err(self.fail(kind, 0, got)),
            Policy::Ignore if kind != FaultKind::CombinedText => return Ok(()),
            Policy::Report | Policy::Ignore => {}
        }
        let offset = self.position();
        let state = self.state();
        state.lenient |= kind == FaultKind::CombinedText;
        if policy == Policy::Report && state.reports.len() < MAX_REPORTS {
            state.reports.push(Report { kind, offset });
        }
        Ok(())
    }
}

impl<'a> Output<'a> {
    /// The state of the stream, which a program with a bank has.
    pub(crate) fn state(&mut self) -> &mut State {
        self.state.as_mut().expect("an operation with state is in a program with a bank, which runs with a state")
    }
}
