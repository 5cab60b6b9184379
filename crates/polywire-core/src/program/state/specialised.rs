//! The specialised state that direct functions expect.
//!
//! In a specialised state slots have no tags. A slot's word is a value of the one type that the
//! program stores there, or a reserved word that has the same effect as no value. A short string
//! lies inline in the word.
//!
//! `exec/direct.rs` calls [`State::begin_specialised`] before each message, which specialises the
//! state if it is not, and [`State::roll_back_specialised`] after a bail-out. [`State::begin`]
//! turns it back into an ordinary state for the general function. Direct functions change the words
//! in memory.

use alloc::{boxed::Box, sync::Arc};

use super::{EMPTY, State, UNDEFINED, bytes::MAX_INLINE};
use crate::program::{Limits, NO_VALUE};

/// The specialised part of a state.
#[derive(Clone, Debug)]
pub(super) struct SpecialisedState {
    wanted: Option<Arc<Specialisation>>,
    is_specialised: bool,
    /// No slot has a tag.
    is_fresh: bool,
    /// The message began with what stands for no value in all slots, so that they were not kept.
    began_fresh: bool,
    /// Tags were kept, because the message may change some.
    keeps_tags: bool,
}

impl Default for SpecialisedState {
    fn default() -> SpecialisedState {
        SpecialisedState { wanted: None, is_specialised: false, is_fresh: true, began_fresh: false, keeps_tags: false }
    }
}

impl SpecialisedState {
    /// All tags are gone.
    pub(super) fn note_fresh(&mut self) {
        (self.is_specialised, self.is_fresh) = (false, true);
    }
}

impl State {
    /// Before a message that a direct function handles; false if the state cannot be specialised.
    #[inline]
    pub(crate) fn begin_specialised(&mut self, wanted: &Arc<Specialisation>, limits: &Limits) -> bool {
        let is_specialised = self.specialised.is_specialised
            && self.specialised.wanted.as_ref().is_some_and(|specialised| Arc::ptr_eq(specialised, wanted));
        (self.specialised.began_fresh, self.specialised.keeps_tags) = (false, false);
        if !is_specialised && !self.specialise(wanted) {
            return false;
        }
        self.limits_at = core::ptr::from_ref(limits) as usize;
        if !self.specialised.began_fresh {
            self.keep_values();
        }
        self.begin_message();
        true
    }

    /// Takes back what a message changed after [`State::begin_specialised`].
    pub(crate) fn roll_back_specialised(&mut self) {
        match &self.specialised.wanted {
            Some(wanted) if self.specialised.began_fresh => wanted.begin(&mut self.values),
            _ => self.roll_back_values(),
        }
        if self.specialised.keeps_tags {
            core::mem::swap(&mut self.tags, &mut self.saved_tags);
        }
        self.roll_back_texts();
    }

    /// Before a direct function leaves an operation to the interpreter, whose slots have tags.
    pub(crate) fn keep_tags(&mut self) {
        if !core::mem::replace(&mut self.specialised.keeps_tags, true) {
            self.saved_tags.copy_from_slice(&self.tags);
            self.specialised.is_fresh = false;
        }
    }

    /// Gives slots without a value their reserved words, and puts short strings inline; false if a
    /// slot has a value that the program does not expect.
    #[inline(never)]
    fn specialise(&mut self, wanted: &Arc<Specialisation>) -> bool {
        let is_fresh = self.specialised.is_fresh && !self.specialised.is_specialised;
        self.despecialise();
        self.specialised.is_fresh = is_fresh;
        if is_fresh && wanted.may_be_fresh {
            self.specialised.began_fresh = true;
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
                    // A number that looks like none.
                    _ if slot.text.is_none() && matches!(self.values[at], EMPTY_WORD | NO_NUMBER) => return false,
                    _ => {
                        if let Some(text) = slot.text {
                            let text = self.text(text);
                            // What was let pass, or put there by another program, may be none.
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
        self.specialised.is_specialised = true;
        true
    }

    /// Gives a slot its initial text, if it has one; false if there is no room for it.
    fn begin_text(&mut self, slot: &SpecialisedSlot) -> bool {
        let (Some(text), Some(initial)) = (slot.text, &slot.initial) else { return true };
        self.set_text(text, initial).is_ok()
    }

    /// Gives all slots their initial texts.
    fn begin_texts(&mut self, wanted: &Specialisation) -> bool {
        wanted.texts.iter().all(|slot| self.begin_text(&wanted.slots[*slot as usize]))
    }

    /// Gives all slots their tags again.
    pub(super) fn despecialise(&mut self) {
        self.specialised.is_fresh = false;
        if !core::mem::take(&mut self.specialised.is_specialised) {
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
            }
        }
    }

    /// Forgets all values of a specialised state but that of one slot; false if there is no room
    /// for the texts that it begins with.
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
    pub(crate) fn specialised_text(&self, (slot, text): (u32, u32)) -> Option<&[u8]> {
        let word = self.value(slot);
        (word != NO_TEXT && word != EMPTY_WORD).then(|| self.text(text))
    }

    /// Puts bytes into a text slot of a specialised state, and a short text inline into the slot
    /// that goes with it; the error is the limit that they break.
    pub(crate) fn set_specialised_text(&mut self, (slot, text): (u32, u32), bytes: &[u8]) -> Result<(), usize> {
        self.set_text(text, bytes)?;
        self.set_value(slot, inline_text(bytes));
        Ok(())
    }
}

/// The reserved word of an undefined slot for bytes.
pub(crate) const NO_TEXT: u64 = u64::MAX - 1;

/// The reserved word of an empty slot: no number of 32 bits, and no inline string. If a message has
/// this number with 64 bits, the general function handles it.
pub(crate) const EMPTY_WORD: u64 = 3 << 61;

/// The reserved word of an undefined slot for numbers: no number of 32 bits, nor is its successor,
/// and hardly ever a number of 64 bits that a message has.
pub(crate) const NO_NUMBER: u64 = NO_VALUE;

/// The specialised state that a program expects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Specialisation {
    pub slots: Box<[SpecialisedSlot]>,
    /// By slot, the word that it begins with: the reserved word for an undefined slot, or the
    /// initial value if no operation can tell the two apart.
    pub fresh: Box<[u64]>,
    /// Of a settled one, the slots that have an initial text.
    pub texts: Box<[u32]>,
    /// Of a settled one: no slot needs a value.
    pub may_be_fresh: bool,
}

/// A slot of [`Specialisation`].
#[derive(Clone, Debug, Default)]
pub(crate) struct SpecialisedSlot {
    /// The tag of a value; [`UNDEFINED`] for a slot that no field looks at.
    pub tag: u8,
    /// It need not have a value.
    pub may_be_fresh: bool,
    /// Its value may be absent.
    pub may_be_empty: bool,
    /// The text that it has inline if that is short.
    pub text: Option<u32>,
    /// That need not be UTF-8.
    pub octets: bool,
    /// The text that it begins with: to have it has the same effect as to have none yet.
    pub initial: Option<Box<[u8]>>,
}

impl Specialisation {
    /// With what is asked before messages, when all slots are known.
    pub(crate) fn settled(mut self) -> Specialisation {
        self.texts = (0..).zip(&self.slots).filter(|(_, slot)| slot.initial.is_some()).map(|(at, _)| at).collect();
        self.may_be_fresh = self.can_be_forgotten();
        self
    }

    /// Gives all slots what stands for no value.
    fn begin(&self, values: &mut [u64]) {
        let count = self.fresh.len().min(values.len());
        values[..count].copy_from_slice(&self.fresh[..count]);
    }

    /// True if no slot needs a value, so that all of them can be forgotten between two fields.
    pub(crate) fn can_be_forgotten(&self) -> bool {
        self.slots.iter().all(|slot| slot.may_be_fresh || slot.tag == UNDEFINED)
    }
}

/// The word of a slot whose bytes are too many for an inline string.
pub(crate) const LONG: u64 = u64::MAX;

/// An inline string: the bytes with their number on top; [`LONG`] for more bytes than fit.
pub(crate) fn inline_text(text: &[u8]) -> u64 {
    match text.len() {
        len @ 0..=MAX_INLINE => {
            text.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)) | (len as u64) << 56
        }
        _ => LONG,
    }
}
