//! Direct functions of programs with a bank, which stateful formats such as FAST have.
//!
//! [`Eligibility`] walks a program and decides whether it can have a direct function.
//! `jit/direct.rs` asks it for that and for the room that encoding needs, and `exec.rs` for the
//! state that the function expects ([`Specialisation`]). The other files emit the code of single
//! operations. They are called by `jit/decode.rs`, `jit/encode.rs` and their helpers where
//! `Emit::direct` is true.
//!
//! A direct function touches the message, the value and the state. It has neither an `Input` nor an
//! `Output`, and it reports no error: in unusual cases it bails out, and the general function
//! processes the message from its beginning.
//!
//! | file | what it emits |
//! |---|---|
//! | `map`, `elided` | presence maps, whose bits have constant positions |
//! | `slots` | switches on the state of a slot; which words are reserved in a slot without a tag |
//! | `entity` | stop-bit integers |
//! | `bytes`, `text` | operations on the bytes in hand, and strings from them |
//! | `calls` | nothing: the Rust functions that `bytes` and `text` call |
//! | `fallback` | calls of the interpreter for maps |

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec,
    vec::Vec,
};

use super::join::stops;
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
pub(super) use slots::{SlotWords, slot_words};

/// The most slots of an eligible program: instructions contain their offsets.
const MAX_SLOTS: usize = 1 << 16;

/// Longest stop-bit integer.
const INTEGER: usize = 10;

/// The analysis of a program: whether it is eligible, and the facts that direct code needs.
pub(super) struct Eligibility<'p> {
    program: &'p Program,
    specialised: Specialisation,
    /// Longest encoded message, without the bytes of strings and with one element of each sequence.
    room: usize,
    /// Slots that a `Forget` keeps.
    kept: Vec<u32>,
    /// Slots of operations that fall back to the interpreter.
    fallback: Vec<u32>,
    /// How operations use the slots.
    uses: BTreeMap<u32, slots::Uses>,
    /// The words of those slots.
    slot_words: Vec<SlotWords>,
    /// Byte slots of operations that fall back to the interpreter.
    fallback_bytes: BTreeSet<u32>,
    /// Whether the bytes in hand are UTF-8.
    held: HeldText,
    /// Alternative blocks have taken different numbers of bits of the current presence map without
    /// eliding the rest, so a later bit has no constant position.
    has_uneven_bits: bool,
}

/// Whether the bytes in hand are UTF-8.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HeldText {
    No,
    Yes,
    /// If the bytes of this slot are.
    Of(u32),
}

impl HeldText {
    fn of(known: &[u8]) -> HeldText {
        if core::str::from_utf8(known).is_ok() { HeldText::Yes } else { HeldText::No }
    }
}

impl<'p> Eligibility<'p> {
    /// Analyses a program; none if it is not eligible.
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
            slot_words: Vec::new(),
            has_uneven_bits: false,
        })
    }

    /// The room that an encode program needs, in bytes.
    pub(super) fn room(&self) -> usize {
        match self.program.direction {
            Direction::Encode => self.room,
            Direction::Decode => 0,
        }
    }

    /// The state that the direct function expects.
    pub(super) fn specialised(self) -> Specialisation {
        self.specialised.settled()
    }

    /// The number of bits that a block takes from the enclosing presence map; none if the block is
    /// not eligible.
    fn block(&mut self, block: &Block) -> Option<u32> {
        let behind = block.0.iter().skip(1).map(|op| Some(&op.kind)).chain([None]);
        block.0.iter().zip(behind).try_fold(0u32, |sum, (op, behind)| {
            self.use_slot(&op.kind, behind);
            let held = self.held;
            let bits = self.op(op)?;
            // Behind an operation with inner blocks no bytes are in hand.
            if !matches!(op.kind, OpKind::Bytes(_) | OpKind::Text { .. }) {
                self.held = held;
            }
            sum.checked_add(bits)
        })
    }

    /// The bits of the longest of alternative blocks. Adds the room of the largest.
    fn longest<'b>(&mut self, blocks: impl Iterator<Item = &'b Block>) -> Option<u32> {
        let (before, held, was_uneven) = (self.room, self.held, self.has_uneven_bits);
        let (mut bits, mut room, mut is_uneven) = (0, self.room, was_uneven);
        for block in blocks {
            (self.room, self.held, self.has_uneven_bits) = (before, held, was_uneven);
            bits = self.block(block)?.max(bits);
            room = self.room.max(room);
            is_uneven |= self.has_uneven_bits;
        }
        (self.room, self.has_uneven_bits) = (room, is_uneven);
        Some(bits)
    }

    /// The same for the blocks of a `Switch` or `Union`, whose shorter ones elide no bits.
    fn cases<'b>(&mut self, blocks: impl Iterator<Item = &'b Block> + Clone) -> Option<u32> {
        let bits = self.longest(blocks.clone())?;
        let mut taken = blocks.filter(|block| !stops(block)).map(elided::bits);
        let first = taken.next();
        self.has_uneven_bits |= taken.any(|bits| Some(bits) != first);
        Some(bits)
    }

    /// The number of bits that an operation takes from the enclosing presence map; none if it has
    /// no direct code. [`Eligibility::block`] has recorded its slot.
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
                // Bits that each element takes have no constant positions.
                self.block(element).filter(|bits| *bits == 0)
            }
            OpKind::Switch { arms, otherwise } => self.cases(arms.iter().map(|(_, block)| block).chain([otherwise])),
            OpKind::Union { arms, none, .. } => self.cases(arms.iter().chain([none])),
            OpKind::Select { body, .. } => self.block(body),
            OpKind::Forget { except } => {
                self.kept.push(*except);
                Some(0)
            }
            OpKind::KnownBits { .. } | OpKind::TakeBit if self.has_uneven_bits => None,
            OpKind::KnownBits { zeros, one } => zeros.checked_add(u32::from(*one)),
            OpKind::TakeBit => Some(1),
            OpKind::LoadLocal(..) | OpKind::StoreLocal(_) | OpKind::Compute(..) | OpKind::Decimal(_) => Some(0),
            OpKind::LoadSlot { .. }
            | OpKind::StoreSlot { .. }
            | OpKind::EmptySlot(_)
            | OpKind::SlotState(_)
            | OpKind::SlotHas { .. } => Some(0),
            OpKind::Unbox { body, .. } => self.block(body),
            OpKind::Map { .. } | OpKind::SetText(..) | OpKind::Slice { .. } => self.fall_back(op),
            OpKind::PresenceMap { bits, body, .. } => {
                let is_uneven = core::mem::take(&mut self.has_uneven_bits);
                let taken = self.block(body)?;
                self.has_uneven_bits = is_uneven;
                self.room += taken.div_ceil(7).max(1) as usize;
                (taken == *bits).then_some(0)
            }
            _ => None,
        }
    }

    /// Records an operation on the bytes in hand.
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

    /// True if no slot that a `Forget` keeps has bytes, and if the interpreter and the direct code
    /// share no slot: the interpreter uses tags, and specialised slots have none.
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

    /// True for a string whose words are at known positions, for a shared string, and for a sink.
    fn is_string(&self, place: Place) -> bool {
        let kind = place.node().map(|node| &self.program.layout.node(node).kind);
        matches!(kind, None | Some(Kind::String { shared: true, .. } | Kind::String { words: Some(_), .. }))
    }

    /// True for an array, and for a sequence whose words are at known positions.
    fn has_elements(&self, place: Place) -> bool {
        match place.node().map(|node| &self.program.layout.node(node).kind) {
            Some(Kind::Sequence(sequence)) => sequence.words.is_some(),
            kind => matches!(kind, Some(Kind::Array { .. })),
        }
    }
}
