//! The specialised state, which direct functions expect.
//!
//! In a specialised state slots have no tags. A slot's word is a value of the one type that the
//! program stores there, or a reserved word that has the same effect as no value. A short string
//! lies inline in the word, and only there: the slot's bytes are those of an earlier string.
//!
//! `exec/direct.rs` calls [`State::specialise`] before the first message and
//! [`State::begin_specialised`] before each, and [`State::roll_back_specialised`] after a bail-out.
//! [`State::begin`] turns it back into an ordinary state for the general function. Direct functions
//! change the words in memory.

use alloc::{boxed::Box, sync::Arc};
use core::ops::Deref;

use super::{EMPTY, State, UNDEFINED, bytes::MAX_INLINE, counted, keep};
use crate::program::{Limits, NO_VALUE};

/// The specialised part of a state.
#[derive(Clone, Debug)]
pub(super) struct SpecialisedState {
    /// What it was specialised for last.
    wanted: Option<Arc<Specialisation>>,
    /// The address of `wanted` while the state is specialised for it, else 0.
    current: usize,
    /// All slots are undefined.
    is_fresh: bool,
    /// The next message begins with all slots undefined.
    begins_fresh: bool,
    /// The message began with all slots undefined, so their values were not saved.
    began_fresh: bool,
    /// Tags were saved, because the message may change some.
    keeps_tags: bool,
}

impl Default for SpecialisedState {
    fn default() -> SpecialisedState {
        SpecialisedState {
            wanted: None,
            current: 0,
            is_fresh: true,
            begins_fresh: false,
            began_fresh: false,
            keeps_tags: false,
        }
    }
}

impl SpecialisedState {
    /// Records that all slots are undefined.
    pub(super) fn note_fresh(&mut self) {
        (self.current, self.is_fresh) = (0, true);
    }
}

impl State {
    /// True if the state is specialised for the program to which `wanted` belongs, so that
    /// [`State::specialise`] need not be called.
    #[inline(always)]
    pub(crate) fn is_specialised(&self, wanted: &Arc<Specialisation>) -> bool {
        self.specialised.current == Arc::as_ptr(wanted) as usize
    }

    /// Prepares a specialised state for a message of a direct function.
    #[inline(always)]
    pub(crate) fn begin_specialised(&mut self, limits: &Limits) {
        let begins_fresh = core::mem::take(&mut self.specialised.begins_fresh);
        (self.specialised.began_fresh, self.specialised.keeps_tags) = (begins_fresh, false);
        self.limits_at = core::ptr::from_ref(limits) as usize;
        if !begins_fresh {
            keep(&mut self.saved_values, &self.values);
        }
        self.begin_message();
    }

    /// Undoes a message's changes since [`State::begin_specialised`].
    #[inline(never)]
    pub(crate) fn roll_back_specialised(&mut self) {
        match &self.specialised.wanted {
            Some(wanted) if self.specialised.began_fresh => wanted.begin(&mut self.values),
            _ => core::mem::swap(&mut self.values, &mut self.saved_values),
        }
        if self.specialised.keeps_tags {
            core::mem::swap(&mut self.tags, &mut self.saved_tags);
        }
        self.roll_back_texts();
    }

    /// Saves the tags, before a direct function leaves an operation to the interpreter, which uses
    /// tags.
    pub(crate) fn keep_tags(&mut self) {
        if !core::mem::replace(&mut self.specialised.keeps_tags, true) {
            self.saved_tags.copy_from_slice(&self.tags);
            self.specialised.is_fresh = false;
        }
    }

    /// Stores the reserved words of slots without a value, and short strings inline. Returns false
    /// if a slot has a value that the program does not expect.
    #[inline(never)]
    pub(crate) fn specialise(&mut self, wanted: &Arc<Specialisation>) -> bool {
        let is_fresh = self.specialised.is_fresh && self.specialised.current == 0;
        self.despecialise();
        self.specialised.is_fresh = is_fresh;
        if is_fresh && wanted.may_be_fresh {
            self.specialised.begins_fresh = true;
            wanted.begin(&mut self.values);
            if !self.begin_texts(wanted) {
                return false;
            }
        } else {
            for (at, (slot, fresh)) in wanted.slots.iter().zip(&wanted.fresh).enumerate() {
                match self.tags[at] {
                    _ if slot.tag == UNDEFINED => {}
                    UNDEFINED if slot.may_be_fresh => {
                        self.values[at] = *fresh;
                        if !self.begin_text(slot) {
                            return false;
                        }
                    }
                    EMPTY if slot.may_be_empty => self.values[at] = EMPTY_WORD,
                    tag if tag != slot.tag => return false,
                    // The value equals a reserved word.
                    _ if slot.text.is_none() && matches!(self.values[at], EMPTY_WORD | NO_NUMBER) => return false,
                    _ => {
                        if let Some(text) = slot.text {
                            let text = self.text(text);
                            // A text that is not UTF-8 may have been accepted before, or stored by
                            // another program.
                            if !slot.octets && core::str::from_utf8(text).is_err() {
                                return false;
                            }
                            self.values[at] = inline_text(text);
                        }
                    }
                }
            }
        }
        if !self.specialised.wanted.as_ref().is_some_and(|specialised| Arc::ptr_eq(specialised, wanted)) {
            self.specialised.wanted = Some(wanted.clone());
        }
        self.specialised.current = Arc::as_ptr(wanted) as usize;
        true
    }

    /// Stores a slot's initial text, if it has one that its word does not hold. Returns false if
    /// the limit on texts is exceeded.
    fn begin_text(&mut self, slot: &SpecialisedSlot) -> bool {
        let (Some(text), Some(initial)) = (slot.text, &slot.initial) else { return true };
        initial.len() <= MAX_INLINE || self.set_text(text, initial).is_ok()
    }

    /// Stores the initial texts of all slots.
    fn begin_texts(&mut self, wanted: &Specialisation) -> bool {
        wanted.texts.iter().all(|slot| self.begin_text(&wanted.slots[*slot as usize]))
    }

    /// Restores the tags of all slots, and the bytes of short strings.
    pub(super) fn despecialise(&mut self) {
        (self.specialised.is_fresh, self.specialised.begins_fresh) = (false, false);
        if core::mem::take(&mut self.specialised.current) == 0 {
            return;
        }
        let Some(specialised) = &self.specialised.wanted else { return };
        let values: &[u64] = &self.values;
        let slots = specialised.slots.iter().zip(&specialised.fresh).zip(&mut self.tags).zip(values);
        for (((slot, fresh), tag), value) in slots {
            if slot.may_be_empty && *value == EMPTY_WORD {
                *tag = EMPTY;
            } else if slot.tag != UNDEFINED {
                let is_fresh = slot.may_be_fresh && slot.initial.is_none() && value == fresh;
                *tag = if is_fresh { UNDEFINED } else { slot.tag };
                let text = slot.text.and_then(|text| self.texts.get_mut(text as usize));
                if let (Some(text), Some(inline)) = (text, inline_bytes(*value)) {
                    self.text_bytes -= counted(&text.bytes);
                    text.replace(SlotText::Inline(inline).to_vec());
                }
            }
        }
    }

    /// Forgets all values of a specialised state but that of one slot. Returns false if the initial
    /// texts exceed the limit.
    pub(crate) fn forget_specialised(&mut self, kept: u32) -> bool {
        let Some(wanted) = self.specialised.wanted.take() else { return true };
        let value = self.value(kept);
        wanted.begin(&mut self.values);
        self.set_value(kept, value);
        let begun = self.begin_texts(&wanted);
        self.specialised.wanted = Some(wanted);
        begun
    }

    /// The text of a slot, if it has one.
    pub(crate) fn specialised_text(&self, (slot, text): (u32, u32)) -> Option<SlotText<'_>> {
        match self.value(slot) {
            LONG => Some(SlotText::Long(self.text(text))),
            word => inline_bytes(word).map(SlotText::Inline),
        }
    }

    /// Stores a text in a slot of a specialised state. The error is the limit that it would exceed.
    pub(crate) fn set_specialised_text(&mut self, (slot, text): (u32, u32), bytes: &[u8]) -> Result<(), usize> {
        if bytes.len() > MAX_INLINE {
            self.set_text(text, bytes)?;
        }
        self.set_value(slot, inline_text(bytes));
        Ok(())
    }
}

/// The reserved word of an undefined slot for bytes.
pub(crate) const NO_TEXT: u64 = u64::MAX - 1;

/// The reserved word of an empty slot. It is neither a number of 32 bits nor an inline string. If a
/// message has this number with 64 bits, the direct function bails out.
pub(crate) const EMPTY_WORD: u64 = 3 << 61;

/// The reserved word of an undefined slot for numbers. Neither it nor its successor is a number of
/// 32 bits, and a message hardly ever has it as a number of 64 bits.
pub(crate) const NO_NUMBER: u64 = NO_VALUE;

/// The specialised state that a program expects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Specialisation {
    pub slots: Box<[SpecialisedSlot]>,
    /// By slot, its word if it is undefined: the reserved word, or the initial value if no
    /// operation can tell the two apart.
    pub fresh: Box<[u64]>,
    /// After [`Specialisation::settled`]: the slots that have an initial text which is not inline.
    pub texts: Box<[u32]>,
    /// After [`Specialisation::settled`]: all slots may be undefined.
    pub may_be_fresh: bool,
}

/// A slot of [`Specialisation`].
#[derive(Clone, Debug, Default)]
pub(crate) struct SpecialisedSlot {
    /// The tag of a value; [`UNDEFINED`] for a slot that no field uses.
    pub tag: u8,
    /// It may be undefined.
    pub may_be_fresh: bool,
    /// It may be empty.
    pub may_be_empty: bool,
    /// The index of its text, which is inline in the word if it is short.
    pub text: Option<u32>,
    /// The text need not be UTF-8.
    pub octets: bool,
    /// The text with which an undefined slot begins, if having it has the same effect as being
    /// undefined.
    pub initial: Option<Box<[u8]>>,
}

impl Specialisation {
    /// Computes the fields that are read before each message, once all slots are known.
    pub(crate) fn settled(mut self) -> Specialisation {
        let is_long = |slot: &SpecialisedSlot| slot.initial.as_ref().is_some_and(|text| text.len() > MAX_INLINE);
        self.texts = (0..).zip(&self.slots).filter(|(_, slot)| is_long(slot)).map(|(at, _)| at).collect();
        self.may_be_fresh = self.can_be_forgotten();
        self
    }

    /// Makes all slots undefined.
    fn begin(&self, values: &mut [u64]) {
        let count = self.fresh.len().min(values.len());
        values[..count].copy_from_slice(&self.fresh[..count]);
    }

    /// True if all slots may be undefined, so that all can be forgotten between two fields.
    pub(crate) fn can_be_forgotten(&self) -> bool {
        self.slots.iter().all(|slot| slot.may_be_fresh || slot.tag == UNDEFINED)
    }
}

/// The word of a slot whose text is too long for an inline string.
pub(crate) const LONG: u64 = u64::MAX;

/// An inline string: the bytes, the first lowest, and their number in the highest byte; [`LONG`]
/// for more bytes than fit.
pub(crate) fn inline_text(text: &[u8]) -> u64 {
    match text.len() {
        len @ 0..=MAX_INLINE => {
            text.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)) | (len as u64) << 56
        }
        _ => LONG,
    }
}

/// The bytes of an inline string, and their number last; none if the word is [`LONG`] or reserved.
fn inline_bytes(word: u64) -> Option<[u8; MAX_INLINE + 1]> {
    (word >> 56 <= MAX_INLINE as u64).then(|| word.to_le_bytes())
}

/// The text of a slot.
pub(crate) enum SlotText<'s> {
    /// The bytes of an inline string, and their number last.
    Inline([u8; MAX_INLINE + 1]),
    Long(&'s [u8]),
}

impl Deref for SlotText<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            SlotText::Inline(bytes) => &bytes[..usize::from(bytes[MAX_INLINE])],
            SlotText::Long(text) => text,
        }
    }
}
