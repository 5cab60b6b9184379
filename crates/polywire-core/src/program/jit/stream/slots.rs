//! Slots in direct functions, where they have no tags.
//!
//! [`Eligibility::settle_slots`] decides for each slot which words are reserved for its empty and
//! undefined states ([`SlotWords`]), and which word it begins with. It reserves no word for a state
//! that no operation can tell from a value. `slot_switch` emits switches on the state of a slot;
//! `jit/slots.rs` emits the other operations. The code touches the state only.

use alloc::{boxed::Box, collections::BTreeSet, vec::Vec};

use cranelift_codegen::ir::{InstBuilder, Value, condcodes::IntCC};

use super::{
    super::{emit::Emit, join::stops},
    Eligibility, HeldText,
};
use crate::{
    layout::Scalar,
    program::{
        Block, ByteSlot, Bytes, Op, OpKind, Place, Program, SlotOp, TextForm, arm_of,
        state::specialised::{EMPTY_WORD, NO_NUMBER, NO_TEXT, SpecialisedSlot, inline_text},
    },
};

/// The words of a slot without a tag.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct SlotWords {
    /// The kind of its values.
    pub kind: u8,
    /// The reserved word for an undefined slot, if an operation can tell that state from the
    /// initial value.
    pub undefined: Option<u64>,
    /// [`EMPTY_WORD`] is reserved for an empty slot.
    pub is_emptied: bool,
    /// Its values are bytes, and UTF-8.
    pub is_text: bool,
}

impl SlotWords {
    /// All reserved words.
    pub(in super::super) fn reserved(self) -> Vec<u64> {
        self.undefined.into_iter().chain(self.is_emptied.then_some(EMPTY_WORD)).collect()
    }
}

/// The initial value of a slot, which an operation takes if the slot is undefined.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Initial {
    Word(u64),
    Bytes(Box<[u8]>),
}

impl Initial {
    /// The word of a slot with this value.
    fn word(&self) -> u64 {
        match self {
            Initial::Word(word) => *word,
            Initial::Bytes(bytes) => inline_text(bytes),
        }
    }
}

/// How a program uses a slot.
#[derive(Default)]
pub(super) struct Uses {
    kinds: BTreeSet<u8>,
    /// The initial values that operations name.
    initials: BTreeSet<Initial>,
    /// Its values are numbers.
    has_words: bool,
    /// The byte slots of its values, if its values are bytes.
    bytes: BTreeSet<u32>,
    /// Some of them may not be UTF-8.
    has_octets: bool,
    /// An operation can tell the undefined state from any value, or from the empty state.
    tells_value: bool,
    tells_empty: bool,
    is_emptied: bool,
    switches: Vec<Vec<(i64, u32)>>,
}

impl Eligibility<'_> {
    /// Records how an operation uses a slot. `behind` is the next operation, which may switch on
    /// the slot's state.
    pub(super) fn use_slot(&mut self, op: SlotOp, behind: Option<&OpKind>) {
        let Some(slot) = op.slot() else { return };
        let uses = self.uses.entry(slot).or_default();
        match op {
            SlotOp::LoadSlot { initial, .. } => {
                uses.has_words = true;
                uses.initials.insert(Initial::Word(initial));
            }
            SlotOp::StoreSlot { kind, .. } => {
                uses.has_words = true;
                uses.kinds.insert(kind);
            }
            SlotOp::EmptySlot(_) => uses.is_emptied = true,
            SlotOp::SlotHas { kind, initial, .. } => {
                uses.has_words = true;
                uses.compare(kind, initial.map(Initial::Word));
            }
            SlotOp::SlotState(_) => match behind {
                Some(OpKind::Switch { labels, .. }) => uses.switches.push(labels.clone()),
                _ => (uses.tells_value, uses.tells_empty) = (true, true),
            },
            SlotOp::Forget { .. } | SlotOp::LoadLocal(..) | SlotOp::StoreLocal(_) | SlotOp::Compute(..) => {}
        }
    }

    /// Records how an operation on the bytes in hand uses a slot.
    pub(super) fn use_bytes(&mut self, bytes: &Bytes) {
        let held = self.held;
        match bytes {
            Bytes::LoadSlot { slot, initial } | Bytes::Part { slot, initial, .. } => {
                self.uses_of(*slot).initials.insert(Initial::Bytes(initial.clone()));
            }
            Bytes::StoreSlot { slot, kind } => {
                let uses = self.uses_of(*slot);
                uses.kinds.insert(*kind);
                uses.has_octets |= held == HeldText::No || matches!(held, HeldText::Of(other) if other != slot.bytes);
            }
            Bytes::SlotHas { slot, kind, initial } => {
                self.uses_of(*slot).compare(*kind, initial.clone().map(Initial::Bytes));
            }
            Bytes::Octets { .. }
            | Bytes::Const(_)
            | Bytes::Get(_)
            | Bytes::Put(_)
            | Bytes::Equal(_)
            | Bytes::Length
            | Bytes::Utf8(_) => {}
        }
    }

    fn uses_of(&mut self, slot: ByteSlot) -> &mut Uses {
        let uses = self.uses.entry(slot.slot).or_default();
        uses.bytes.insert(slot.bytes);
        uses
    }

    /// Decides which words the slots begin with and which are reserved. Returns none if a slot has
    /// values of several kinds.
    pub(super) fn settle_slots(&mut self) -> Option<()> {
        self.slot_words.resize(self.specialised.slots.len(), SlotWords::default());
        let mut all_bytes = BTreeSet::new();
        for (slot, uses) in &self.uses {
            let (own, begins) =
                (self.specialised.slots.get_mut(*slot as usize)?, self.specialised.fresh.get_mut(*slot as usize)?);
            (!self.fallback.contains(slot) && uses.kinds.len() < 2).then_some(())?;
            // A byte slot must belong to one slot, which has no numbers.
            let has_bytes = !uses.bytes.is_empty();
            let are_apart = uses.bytes.len() < 2 && !(has_bytes && uses.has_words);
            (are_apart && uses.bytes.iter().all(|bytes| all_bytes.insert(*bytes))).then_some(())?;
            let kind = uses.kinds.first().copied().unwrap_or(2);
            let tells = |a: i64, b: i64| {
                uses.switches.iter().any(|labels| arm_of(labels, a.into()) != arm_of(labels, b.into()))
            };
            let none = if has_bytes { NO_TEXT } else { 0 };
            let initial = uses.initials.first().map_or(none, Initial::word);
            // The undefined state must be distinguishable from the initial value.
            let is_told = uses.initials.len() > 1
                || uses.tells_value
                || tells(0, kind.into())
                || uses.is_emptied && initial == EMPTY_WORD;
            let begins_empty = uses.is_emptied && !uses.tells_empty && !tells(0, 1);
            let is_utf8 = |initial: &Initial| match initial {
                Initial::Bytes(bytes) => core::str::from_utf8(bytes).is_ok(),
                Initial::Word(_) => false,
            };
            let is_text = has_bytes && !uses.has_octets && uses.initials.iter().all(is_utf8);
            let mut words = SlotWords { kind, undefined: None, is_emptied: uses.is_emptied, is_text };
            *begins = match (is_told, begins_empty) {
                (false, _) => initial,
                (true, true) => EMPTY_WORD,
                (true, false) => {
                    let reserved = if has_bytes { NO_TEXT } else { NO_NUMBER };
                    words.undefined = Some(reserved);
                    reserved
                }
            };
            let initial = match uses.initials.first() {
                Some(Initial::Bytes(initial)) if !is_told => Some(initial.clone()),
                _ => None,
            };
            self.slot_words[*slot as usize] = words;
            let (text, octets) = (uses.bytes.first().copied(), !is_text);
            *own =
                SpecialisedSlot { tag: kind, may_be_fresh: true, may_be_empty: uses.is_emptied, text, octets, initial };
        }
        Some(())
    }
}

impl Uses {
    /// Records a comparison with the slot's value.
    fn compare(&mut self, kind: u8, initial: Option<Initial>) {
        self.kinds.insert(kind);
        match initial {
            Some(initial) => {
                self.initials.insert(initial);
                self.tells_empty = true;
            }
            None => self.tells_value = true,
        }
    }
}

/// True if a block begins with taking the bytes of a slot into a string.
fn puts_into_string(block: &Block, slot: u32) -> bool {
    let [Op { kind: OpKind::Bytes(Bytes::LoadSlot { slot: from, .. }), .. }, Op { kind, .. }, ..] = &block.0[..] else {
        return false;
    };
    from.slot == slot && matches!(kind, OpKind::Text { form: TextForm::Held, place: Place::At { .. }, .. })
}

/// The words of a program's slots.
pub(in super::super) fn slot_words(program: &Program) -> Vec<SlotWords> {
    Eligibility::of(program).map(|eligibility| eligibility.slot_words).unwrap_or_default()
}

impl<'e> Emit<'e, '_> {
    /// The words of a slot.
    pub(in super::super) fn slot_words(&self, slot: u32) -> SlotWords {
        self.slot_words.get(slot as usize).copied().unwrap_or_default()
    }

    /// Emits a switch to the arm for the state of a slot.
    pub(in super::super) fn slot_switch(
        &mut self,
        slot: u32,
        (labels, arms, otherwise): (&[(i64, u32)], &'e [Block], &'e Block),
        frame: Value,
    ) {
        let words = self.slot_words(slot);
        let at = |label: i64| arm_of(labels, label.into());
        let arm = |at: Option<usize>| at.and_then(|at| arms.get(at)).unwrap_or(otherwise);
        let assigned = at(words.kind.into());
        let tests = [(0, words.undefined), (1, words.is_emptied.then_some(EMPTY_WORD))];
        let tests = tests.into_iter().filter_map(|(label, reserved)| Some((label, reserved?)));
        let mut join = self.begin_join();
        let done = self.new_block();
        let (start, end) = self.arm_bits(arms.iter().chain([otherwise]));
        // A string operation on a slot without bytes bails out itself, so no test is necessary.
        let asks = puts_into_string(arm(assigned), slot);
        let is_asked = |label: i64| asks && stops(arm(at(label)));
        for (label, reserved) in tests.filter(|(label, _)| at(*label) != assigned && !is_asked(*label)) {
            let block = arm(at(label));
            let hit = self.arm_block(block, false);
            let (word, go_on) = (self.word_of(slot), self.new_block());
            let is_so = self.code.ins().icmp_imm_s(IntCC::Equal, word, reserved as i64);
            self.code.ins().brif(is_so, hit, &[], go_on, &[]);
            self.code.switch_to_block(hit);
            let state = self.constant(label);
            self.set(state, Scalar::U64);
            self.set_bits_done(start);
            self.block(block, frame);
            self.fill_bits(end);
            self.end_arm(&mut join, stops(block));
            self.code.ins().jump(done, &[]);
            self.begin_arm(&join);
            self.code.switch_to_block(go_on);
        }
        let outer = self.assigned.clone();
        if !asks {
            self.assigned.push(slot);
        }
        let (state, block) = (self.constant(words.kind.into()), arm(assigned));
        self.set(state, Scalar::U64);
        self.set_bits_done(start);
        self.block(block, frame);
        self.fill_bits(end);
        self.end_arm(&mut join, stops(block));
        self.code.ins().jump(done, &[]);
        self.assigned = outer;
        self.code.switch_to_block(done);
        self.finish_join(join);
    }
}
