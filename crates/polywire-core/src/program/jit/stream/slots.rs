//! Slots without tags, of operations on slots: which words say that one has no value, so that no
//! operation can tell the difference.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};

use cranelift_codegen::ir::{InstBuilder, condcodes::IntCC};

use super::{
    super::{emit::Emit, join::stops},
    Eligibility,
};
use crate::{
    layout::Scalar,
    program::{
        Block, OpKind, Program,
        state::{
            UNDEFINED,
            specialised::{EMPTY_WORD, NO_NUMBER, SpecialisedSlot},
        },
    },
};

/// What a slot's word may say other than a value.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct Marks {
    /// The kind of its values.
    pub kind: u8,
    /// That it is undefined, if an operation can tell that from what an undefined slot begins with.
    pub undefined: Option<u64>,
    /// [`EMPTY_WORD`]: that it is empty.
    pub is_emptied: bool,
}

impl Marks {
    /// All of them.
    pub(in super::super) fn all(self) -> Vec<u64> {
        self.undefined.into_iter().chain(self.is_emptied.then_some(EMPTY_WORD)).collect()
    }
}

/// The arm of a switch on a slot's state for each label, and for all others.
pub(super) struct Arms(BTreeMap<i64, usize>);

impl Arms {
    fn of(arms: &[(Vec<i64>, Block)]) -> Arms {
        let labels = arms.iter().enumerate().flat_map(|(at, (labels, _))| labels.iter().map(move |label| (*label, at)));
        // Of a label that comes twice the first arm is the one.
        Arms(labels.rev().collect())
    }

    fn at(&self, label: i64) -> Option<usize> {
        self.0.get(&label).copied()
    }
}

/// What a program does with a slot.
#[derive(Default)]
pub(super) struct Uses {
    kinds: BTreeSet<u8>,
    /// What stands for a value that there is not.
    initials: BTreeSet<u64>,
    /// Undefined is told from any value, or from empty.
    tells_value: bool,
    tells_empty: bool,
    is_emptied: bool,
    switches: Vec<Arms>,
}

impl Eligibility<'_> {
    /// Notes an operation on a slot, and what is switched on behind it.
    pub(super) fn use_slot(&mut self, kind: &OpKind, behind: Option<&OpKind>) {
        let slot = match kind {
            OpKind::LoadSlot { slot, .. }
            | OpKind::StoreSlot { slot, .. }
            | OpKind::EmptySlot(slot)
            | OpKind::SlotHas { slot, .. }
            | OpKind::SlotState(slot) => slot,
            _ => return,
        };
        let uses = self.uses.entry(*slot).or_default();
        match kind {
            OpKind::LoadSlot { initial, .. } => _ = uses.initials.insert(*initial),
            OpKind::StoreSlot { kind, .. } => _ = uses.kinds.insert(*kind),
            OpKind::EmptySlot(_) => uses.is_emptied = true,
            OpKind::SlotHas { kind, initial, .. } => {
                uses.kinds.insert(*kind);
                match initial {
                    Some(initial) => {
                        uses.initials.insert(*initial);
                        uses.tells_empty = true;
                    }
                    None => uses.tells_value = true,
                }
            }
            _ => match behind {
                Some(OpKind::Switch { arms, .. }) => uses.switches.push(Arms::of(arms)),
                _ => (uses.tells_value, uses.tells_empty) = (true, true),
            },
        }
    }

    /// Decides what the slots begin with; none if one has values of several kinds.
    pub(super) fn settle_slots(&mut self) -> Option<()> {
        self.marks.resize(self.specialised.slots.len(), Marks::default());
        for (slot, uses) in &self.uses {
            let (own, begins) =
                (self.specialised.slots.get_mut(*slot as usize)?, self.specialised.fresh.get_mut(*slot as usize)?);
            (own.tag == UNDEFINED && !self.fallback.contains(slot) && uses.kinds.len() < 2).then_some(())?;
            let kind = uses.kinds.first().copied().unwrap_or(2);
            let tells = |a: i64, b: i64| uses.switches.iter().any(|arms| arms.at(a) != arms.at(b));
            let initial = uses.initials.first().copied().unwrap_or(0);
            // Undefined is another state than to have what the slot begins with.
            let is_told = uses.initials.len() > 1
                || uses.tells_value
                || tells(0, kind.into())
                || uses.is_emptied && initial == EMPTY_WORD;
            let begins_empty = uses.is_emptied && !uses.tells_empty && !tells(0, 1);
            let mut marks = Marks { kind, undefined: None, is_emptied: uses.is_emptied };
            *begins = match (is_told, begins_empty) {
                (false, _) => initial,
                (true, true) => EMPTY_WORD,
                (true, false) => {
                    marks.undefined = Some(NO_NUMBER);
                    NO_NUMBER
                }
            };
            self.marks[*slot as usize] = marks;
            let (tag, may_be_empty) = (kind, uses.is_emptied);
            *own = SpecialisedSlot { tag, may_be_fresh: true, may_be_empty, ..SpecialisedSlot::default() };
        }
        Some(())
    }
}

/// What the words of a program's slots may say.
pub(in super::super) fn marks(program: &Program) -> Vec<Marks> {
    Eligibility::of(program).map(|eligibility| eligibility.marks).unwrap_or_default()
}

impl<'e> Emit<'e, '_> {
    /// What a slot's word may say.
    pub(in super::super) fn marks(&self, slot: u32) -> Marks {
        self.slot_marks.get(slot as usize).copied().unwrap_or_default()
    }

    /// Runs the arm for the state of a slot.
    pub(in super::super) fn slot_switch(
        &mut self,
        slot: u32,
        arms: &'e [(Vec<i64>, Block)],
        otherwise: &'e Block,
        mut fill: impl FnMut(&mut Self, &'e Block),
    ) {
        let (marks, labels) = (self.marks(slot), Arms::of(arms));
        let arm = |at: Option<usize>| at.and_then(|at| arms.get(at)).map_or(otherwise, |(_, block)| block);
        let assigned = labels.at(marks.kind.into());
        let tests = [(0, marks.undefined), (1, marks.is_emptied.then_some(EMPTY_WORD))];
        let tests = tests.into_iter().filter_map(|(label, mark)| Some((label, mark?)));
        let mut join = self.begin_join();
        let done = self.code.create_block();
        for (label, mark) in tests.filter(|(label, _)| labels.at(*label) != assigned) {
            let block = arm(labels.at(label));
            let hit = if stops(block) { self.cold() } else { self.code.create_block() };
            let (word, go_on) = (self.word_of(slot), self.code.create_block());
            let is_so = self.code.ins().icmp_imm_s(IntCC::Equal, word, mark as i64);
            self.code.ins().brif(is_so, hit, &[], go_on, &[]);
            self.code.switch_to_block(hit);
            let state = self.constant(label);
            self.set(state, Scalar::U64);
            fill(self, block);
            self.end_arm(&mut join, stops(block));
            self.code.ins().jump(done, &[]);
            self.begin_arm(&join);
            self.code.switch_to_block(go_on);
        }
        let outer = self.assigned.clone();
        self.assigned.push(slot);
        let (state, block) = (self.constant(marks.kind.into()), arm(assigned));
        self.set(state, Scalar::U64);
        fill(self, block);
        self.end_arm(&mut join, stops(block));
        self.code.ins().jump(done, &[]);
        self.assigned = outer;
        self.code.switch_to_block(done);
        self.finish_join(join);
    }
}
