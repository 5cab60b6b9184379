//! Messages of streams without a context, as hand-written code would have them: previous values at
//! known places, presence maps in registers, each bit at its known position (`elided` has what is
//! done where one is left out), texts by functions that know their form. It serves a [*specialised*
//! state](crate::program::state::specialised), and leaves whatever is not ordinary to the function
//! with a context.

use alloc::{collections::BTreeMap, vec, vec::Vec};

use crate::{
    layout::Kind,
    program::{
        Block, Direction, Field, FieldKind, Op, OpKind, Overflow, Place, Program, Source, TextForm, Wire,
        state::{
            Operator, UNDEFINED,
            specialised::{EMPTY_WORD, NO_TEXT, Specialisation, SpecialisedSlot, inline_text},
        },
    },
};

mod calls;
mod combined;
mod elided;
mod entity;
mod fallback;
mod map;
mod octets;
mod slots;
mod text;

#[cfg(test)]
mod tests;

pub(super) use map::Segment;
pub(super) use slots::{Marks, marks};

/// Slots up to which their distances are part of instructions.
const MAX_SLOTS: usize = 1 << 16;

/// Bytes that an integer takes at most.
const INTEGER: usize = 10;

/// What is to be known of a program that can do without a context.
pub(super) struct Eligibility<'p> {
    program: &'p Program,
    specialised: Specialisation,
    /// Bytes of an encoded message at most, without what texts have and with each sequence's
    /// element once.
    room: usize,
    /// Where it forgets all previous values, the slots whose values stay.
    kept: Vec<u32>,
    /// Texts, and the slots that they go with.
    texts: BTreeMap<u32, u32>,
    /// Slots of operations that are left to the interpreter.
    fallback: Vec<u32>,
    /// What operations on slots do with them.
    uses: BTreeMap<u32, slots::Uses>,
    /// What the words of those slots may say.
    marks: Vec<Marks>,
    fallback_texts: Vec<u32>,
}

impl<'p> Eligibility<'p> {
    /// None for a program that needs a context.
    pub(super) fn of(program: &'p Program) -> Option<Eligibility<'p>> {
        let mut eligibility = Eligibility::new(program)?;
        let bits = eligibility.block(&program.root)?;
        eligibility.settle_slots()?;
        let can_reset = eligibility.kept.is_empty()
            || eligibility.specialised.can_be_forgotten() && eligibility.fallback.is_empty();
        (bits == 0 && can_reset && eligibility.stand_apart()).then_some(eligibility)
    }

    fn new(program: &'p Program) -> Option<Eligibility<'p>> {
        let slots = program.bank.as_ref().map(|bank| bank.slots as usize).filter(|slots| *slots <= MAX_SLOTS)?;
        let specialised = Specialisation {
            slots: vec![SpecialisedSlot::default(); slots].into(),
            fresh: vec![0; slots].into(),
            ..Specialisation::default()
        };
        Some(Eligibility {
            program,
            specialised,
            room: 0,
            kept: Vec::new(),
            texts: BTreeMap::new(),
            fallback_texts: Vec::new(),
            fallback: Vec::new(),
            uses: BTreeMap::new(),
            marks: Vec::new(),
        })
    }

    /// Bytes that there must be room for, for [`Direction::Encode`].
    pub(super) fn room(&self) -> usize {
        match self.program.direction {
            Direction::Encode => self.room,
            Direction::Decode => 0,
        }
    }

    /// What it wants.
    pub(super) fn specialised(self) -> Specialisation {
        self.specialised.settled()
    }

    /// Bits that a block takes of the presence map around it.
    fn block(&mut self, block: &Block) -> Option<u32> {
        let behind = block.0.iter().skip(1).map(|op| Some(&op.kind)).chain([None]);
        block.0.iter().zip(behind).try_fold(0u32, |sum, (op, behind)| {
            self.use_slot(&op.kind, behind);
            sum.checked_add(self.op(op)?)
        })
    }

    /// The bits of the longest of some blocks of which one runs, and room for the largest.
    fn longest<'b>(&mut self, blocks: impl Iterator<Item = &'b Block>) -> Option<u32> {
        let (before, mut bits, mut room) = (self.room, 0, self.room);
        for block in blocks {
            self.room = before;
            bits = self.block(block)?.max(bits);
            room = self.room.max(room);
        }
        self.room = room;
        Some(bits)
    }

    fn op(&mut self, op: &Op) -> Option<u32> {
        match &op.kind {
            OpKind::Const(..)
            | OpKind::Load(_)
            | OpKind::Store(_)
            | OpKind::Length(_)
            | OpKind::Convert(_)
            | OpKind::Check(_)
            | OpKind::Need(_)
            | OpKind::Fail(_) => Some(0),
            OpKind::Literal(bytes) => {
                self.room += bytes.len();
                Some(0)
            }
            OpKind::Put(Wire::Fixed { scalar, .. }) | OpKind::Get(Wire::Fixed { scalar, .. }) => {
                self.room += scalar.size();
                Some(0)
            }
            OpKind::Put(Wire::StopBit(_)) | OpKind::Get(Wire::StopBit(_)) => {
                self.room += INTEGER;
                Some(0)
            }
            OpKind::TestField(field) | OpKind::PutAbsent(field) => self.text(field),
            OpKind::If { then, otherwise } | OpKind::IfPresent { then, otherwise, .. } => {
                self.longest([then, otherwise].into_iter())
            }
            OpKind::Present { place, body } => {
                self.is_optional(*place).then_some(())?;
                self.block(body)
            }
            OpKind::Clear(place) => self.is_optional(*place).then_some(0),
            OpKind::Text { place, form: TextForm::Field(field), bound, utf16_bound, overflow, .. } => {
                let bounded = *bound == 0 || !utf16_bound && *overflow == Overflow::Refuse;
                // One that might be absent is asked for before it is put anywhere.
                let asked = self.program.direction == Direction::Encode || !field.optional;
                let is_text = field.kind != FieldKind::Bytes;
                self.text(field).filter(|_| bounded && asked && is_text && self.is_string(*place))
            }
            OpKind::Text { place, form: TextForm::Pending, bound, utf16_bound, overflow, .. } => {
                let bounded = *bound == 0 || !utf16_bound && *overflow == Overflow::Refuse;
                (bounded && self.is_string(*place)).then_some(0)
            }
            OpKind::Octets { field: Some(field), .. } => {
                let asked = self.program.direction == Direction::Encode || !field.optional;
                self.text(field).filter(|_| asked && field.kind == FieldKind::Bytes)
            }
            OpKind::Octets { field: None, .. } => Some(0),
            OpKind::Sequence { place, source, element, bound, overflow, .. } => {
                let encodes = self.program.direction == Direction::Encode;
                let counted = encodes || matches!(source, Source::Count | Source::Fixed(_));
                let bounded = *bound == 0 || *overflow == Overflow::Refuse;
                (counted && bounded && self.has_elements(*place)).then_some(())?;
                // A bit that each element took would be at no known place.
                self.block(element).filter(|bits| *bits == 0)
            }
            OpKind::Switch { arms, otherwise } => self.longest(arms.iter().map(|(_, block)| block).chain([otherwise])),
            OpKind::Union { arms, none, .. } => self.longest(arms.iter().chain([none])),
            OpKind::Select { body, .. } => self.block(body),
            OpKind::Forget { except } => {
                self.kept.push(*except);
                Some(0)
            }
            OpKind::KnownBits { zeros, one } => zeros.checked_add(u32::from(*one)),
            OpKind::TakeBit | OpKind::PutBit => Some(1),
            OpKind::LoadLocal(..) | OpKind::StoreLocal(_) | OpKind::Compute(..) | OpKind::Decimal(_) => Some(0),
            OpKind::LoadSlot { .. }
            | OpKind::StoreSlot { .. }
            | OpKind::EmptySlot(_)
            | OpKind::SlotState(_)
            | OpKind::SlotHas { .. } => Some(0),
            OpKind::Unbox { body, .. } => self.block(body),
            OpKind::Map { .. } | OpKind::SetText(..) | OpKind::Slice { .. } => self.fall_back(op),
            OpKind::PresenceMap { bits, body, .. } => {
                let taken = self.block(body)?;
                self.room += taken.div_ceil(7).max(1) as usize;
                (taken == *bits).then_some(0)
            }
            _ => None,
        }
    }

    fn text(&mut self, field: &Field) -> Option<u32> {
        let initial = field.initial_bytes().unwrap_or_default();
        let sound = match field.kind {
            FieldKind::Ascii => initial.is_ascii(),
            FieldKind::Unicode => core::str::from_utf8(initial).is_ok(),
            _ => true,
        };
        sound.then_some(())?;
        let difference = if field.operator == Operator::Delta { INTEGER } else { 0 };
        self.keep(field, text::HEAD + difference)?;
        Some(field.bits())
    }

    /// Notes a field's slot, and the room that it takes.
    fn keep(&mut self, field: &Field, room: usize) -> Option<()> {
        self.room += room;
        if !field.has_slot() {
            return Some(());
        }
        let initial = field.initial_bytes();
        // A word that has the same effect as no value.
        let begins = match initial {
            Some(initial) => inline_text(initial),
            None if field.optional => EMPTY_WORD,
            None => NO_TEXT,
        };
        let octets = field.kind == FieldKind::Bytes;
        let may_be_empty = field.optional && field.operator != Operator::Delta;
        let (slot, fresh) = (
            self.specialised.slots.get_mut(field.slot as usize)?,
            self.specialised.fresh.get_mut(field.slot as usize)?,
        );
        if slot.tag == UNDEFINED {
            let (text, initial) = (Some(field.text), initial.map(Into::into));
            *slot = SpecialisedSlot { tag: field.tag, may_be_fresh: true, may_be_empty, text, octets, initial };
            *fresh = begins;
        } else {
            // Two fields that begin otherwise have no word that stands for no value.
            slot.may_be_fresh &= begins == *fresh && slot.initial.as_deref() == initial;
            // One that is never absent does not know the word for that.
            (may_be_empty == slot.may_be_empty).then_some(())?;
        }
        // Two types in one slot are never both there.
        let is_same = slot.text == Some(field.text) && slot.octets == octets;
        (slot.tag == field.tag && is_same).then_some(())?;
        // A text is nobody else's.
        (*self.texts.entry(field.text).or_insert(field.slot) == field.slot).then_some(())
    }

    /// True if none of the slots that are kept has more than its value, and what is left to the
    /// interpreter stays away from what is not: a slot has a tag, which the interpreter knows, or
    /// is specialised.
    fn stand_apart(&self) -> bool {
        let slot = |at: &u32| self.specialised.slots.get(*at as usize);
        self.kept.iter().all(|at| slot(at).is_none_or(|slot| slot.text.is_none()))
            && self.fallback.iter().all(|at| slot(at).is_some_and(|slot| slot.tag == UNDEFINED))
            && self.fallback_texts.iter().all(|text| !self.texts.contains_key(text))
    }

    fn is_optional(&self, place: Place) -> bool {
        matches!(place.node().map(|node| &self.program.layout.node(node).kind), Some(Kind::Optional(_)))
    }

    /// True for a string that need not be asked where its bytes are, or that may be a part of a
    /// message.
    fn is_string(&self, place: Place) -> bool {
        let kind = place.node().map(|node| &self.program.layout.node(node).kind);
        matches!(kind, Some(Kind::String { shared: true, .. } | Kind::String { words: Some(_), .. }))
    }

    /// True for an array, or a sequence that need not be asked where its elements are.
    fn has_elements(&self, place: Place) -> bool {
        match place.node().map(|node| &self.program.layout.node(node).kind) {
            Some(Kind::Sequence(sequence)) => sequence.words.is_some(),
            kind => matches!(kind, Some(Kind::Array { .. })),
        }
    }
}
