//! Messages of streams without a context, as hand-written code would have them: previous values at
//! known places, presence maps in registers, each bit at its known position (`elided` has what is
//! done where one is left out), bytes in hand wherever they are. It serves a [*specialised*
//! state](crate::program::state::specialised), and leaves whatever is not ordinary to the function
//! with a context.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec,
    vec::Vec,
};

use crate::{
    layout::Kind,
    program::{
        Block, Bytes, Coding, Direction, Op, OpKind, Overflow, Place, Program, Source, TextForm, Wire,
        state::{
            UNDEFINED,
            specialised::{Specialisation, SpecialisedSlot},
        },
    },
};

mod bytes;
mod calls;
mod elided;
mod entity;
mod fallback;
mod map;
mod slots;
mod text;

#[cfg(test)]
mod tests;

pub(super) use bytes::Held;
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
    /// Slots of operations that are left to the interpreter.
    fallback: Vec<u32>,
    /// What operations on slots do with them.
    uses: BTreeMap<u32, slots::Uses>,
    /// What the words of those slots may say.
    marks: Vec<Marks>,
    /// Bytes of slots of operations that are left to the interpreter.
    fallback_bytes: BTreeSet<u32>,
    /// What is known of the bytes in hand.
    held: HeldText,
}

/// Whether the bytes in hand are UTF-8.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HeldText {
    No,
    Yes,
    /// As those of a slot are.
    Of(u32),
}

impl HeldText {
    fn of(known: &[u8]) -> HeldText {
        if core::str::from_utf8(known).is_ok() { HeldText::Yes } else { HeldText::No }
    }
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
            fallback_bytes: BTreeSet::new(),
            held: HeldText::No,
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
            let held = self.held;
            let bits = self.op(op)?;
            // Behind blocks, of which one ran, there are no bytes in hand.
            if !matches!(op.kind, OpKind::Bytes(_) | OpKind::Text { .. }) {
                self.held = held;
            }
            sum.checked_add(bits)
        })
    }

    /// The bits of the longest of some blocks of which one runs, and room for the largest.
    fn longest<'b>(&mut self, blocks: impl Iterator<Item = &'b Block>) -> Option<u32> {
        let (before, held, mut bits, mut room) = (self.room, self.held, 0, self.room);
        for block in blocks {
            (self.room, self.held) = (before, held);
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
            OpKind::Bytes(bytes) => {
                self.bytes(bytes);
                Some(0)
            }
            OpKind::If { then, otherwise } | OpKind::IfPresent { then, otherwise, .. } => {
                self.longest([then, otherwise].into_iter())
            }
            OpKind::Present { place, body } => {
                self.is_optional(*place).then_some(())?;
                self.block(body)
            }
            OpKind::Clear(place) => self.is_optional(*place).then_some(0),
            OpKind::Text { place, form: TextForm::Held, bound, utf16_bound, overflow, .. } => {
                let bounded = *bound == 0 || !utf16_bound && *overflow == Overflow::Refuse;
                if self.program.direction == Direction::Encode {
                    self.held = HeldText::Yes;
                }
                (bounded && self.is_string(*place)).then_some(0)
            }
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

    /// Notes an operation on the bytes in hand.
    fn bytes(&mut self, bytes: &Bytes) {
        if let Bytes::Put(_) = bytes {
            self.room += bytes::HEAD;
        }
        self.held = match bytes {
            Bytes::Const(known) => HeldText::of(known),
            Bytes::Get(form) if form.coding == Coding::StopBit => HeldText::Yes,
            Bytes::LoadSlot { slot, .. } => HeldText::Of(slot.bytes),
            Bytes::Utf8(_) => HeldText::Yes,
            Bytes::Octets { .. } if self.program.direction == Direction::Decode => self.held,
            Bytes::Get(_) | Bytes::Octets { .. } | Bytes::Part { .. } => HeldText::No,
            Bytes::Put(_) | Bytes::StoreSlot { .. } | Bytes::SlotHas { .. } | Bytes::Equal(_) | Bytes::Length => {
                self.held
            }
        };
    }

    /// True if none of the slots that are kept has more than its value, and what is left to the
    /// interpreter stays away from what is not: a slot has a tag, which the interpreter knows, or
    /// is specialised.
    fn stand_apart(&self) -> bool {
        let slot = |at: &u32| self.specialised.slots.get(*at as usize);
        let specialised = self.specialised.slots.iter().filter_map(|slot| slot.text);
        self.kept.iter().all(|at| slot(at).is_none_or(|slot| slot.text.is_none()))
            && self.fallback.iter().all(|at| slot(at).is_some_and(|slot| slot.tag == UNDEFINED))
            && specialised.into_iter().all(|bytes| !self.fallback_bytes.contains(&bytes))
    }

    fn is_optional(&self, place: Place) -> bool {
        matches!(place.node().map(|node| &self.program.layout.node(node).kind), Some(Kind::Optional(_)))
    }

    /// True for a string that need not be asked where its bytes are, for one that may be a part of
    /// a message, and for none.
    fn is_string(&self, place: Place) -> bool {
        let kind = place.node().map(|node| &self.program.layout.node(node).kind);
        matches!(kind, None | Some(Kind::String { shared: true, .. } | Kind::String { words: Some(_), .. }))
    }

    /// True for an array, or a sequence that need not be asked where its elements are.
    fn has_elements(&self, place: Place) -> bool {
        match place.node().map(|node| &self.program.layout.node(node).kind) {
            Some(Kind::Sequence(sequence)) => sequence.words.is_some(),
            kind => matches!(kind, Some(Kind::Array { .. })),
        }
    }
}
