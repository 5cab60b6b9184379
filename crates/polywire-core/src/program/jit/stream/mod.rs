//! Direct functions of programs with a bank, which stateful formats such as FAST have.
//!
//! [`Eligibility`] walks a program and decides whether its slots and presence bits admit a direct
//! function; emitting the code finds out whether its operations do. `jit/direct.rs` asks for the
//! former, and `exec.rs` for the state that the function expects ([`Specialisation`]). The other
//! files emit the code of single operations. They are called by `jit/ops.rs` and its helpers where
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
use crate::program::{
    Block, Bytes, Coding, Direction, Op, OpKind, Program, SlotOp, passes,
    state::{
        UNDEFINED,
        specialised::{Specialisation, SpecialisedSlot},
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

pub(super) use bytes::{HEAD, Held};
pub(super) use map::Segment;
pub(super) use slots::{SlotWords, slot_words};

/// The most slots of an eligible program: instructions contain their offsets.
const MAX_SLOTS: usize = 1 << 16;

/// The analysis of a program: whether its slots and presence bits admit a direct function, and the
/// facts that direct code needs.
pub(super) struct Eligibility<'p> {
    program: &'p Program,
    specialised: Specialisation,
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
            kept: Vec::new(),
            fallback_bytes: BTreeSet::new(),
            held: HeldText::No,
            fallback: Vec::new(),
            uses: BTreeMap::new(),
            slot_words: Vec::new(),
            has_uneven_bits: false,
        })
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
            let held = self.held;
            let bits = self.op(op, behind)?;
            // Behind an operation with inner blocks no bytes are in hand.
            if !matches!(op.kind, OpKind::Bytes(_) | OpKind::Text { .. }) {
                self.held = held;
            }
            sum.checked_add(bits)
        })
    }

    /// The bits of the longest of alternative blocks.
    fn longest<'b>(&mut self, blocks: impl Iterator<Item = &'b Block>) -> Option<u32> {
        let (held, was_uneven) = (self.held, self.has_uneven_bits);
        let (mut bits, mut is_uneven) = (0, was_uneven);
        for block in blocks {
            (self.held, self.has_uneven_bits) = (held, was_uneven);
            bits = self.block(block)?.max(bits);
            is_uneven |= self.has_uneven_bits;
        }
        self.has_uneven_bits = is_uneven;
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

    /// The number of bits that an operation takes from the enclosing presence map; none if they
    /// admit no direct code. `behind` is the next operation.
    fn op(&mut self, op: &Op, behind: Option<&OpKind>) -> Option<u32> {
        match &op.kind {
            OpKind::Bytes(bytes) => {
                self.use_bytes(bytes);
                self.bytes(bytes);
                Some(0)
            }
            OpKind::Text { .. } => {
                if self.program.direction == Direction::Encode {
                    self.held = HeldText::Yes;
                }
                Some(0)
            }
            OpKind::If { then, otherwise } | OpKind::IfPresent { then, otherwise, .. } => {
                self.longest([then, otherwise].into_iter())
            }
            OpKind::Union { arms, none: rest, .. } | OpKind::Switch { arms, otherwise: rest, .. } => {
                self.cases(arms.iter().chain([rest]))
            }
            // Bits that each element takes have no constant positions.
            OpKind::Sequence { element, .. } => self.block(element).filter(|bits| *bits == 0),
            OpKind::Slot(SlotOp::Forget { except }) => {
                self.kept.push(*except);
                Some(0)
            }
            OpKind::Slot(op) => {
                self.use_slot(*op, behind);
                Some(0)
            }
            OpKind::KnownBits { .. } | OpKind::TakeBit if self.has_uneven_bits => None,
            OpKind::KnownBits { zeros, one } => zeros.checked_add(u32::from(*one)),
            OpKind::TakeBit => Some(1),
            OpKind::PresenceMap { bits, body, .. } => {
                let is_uneven = core::mem::take(&mut self.has_uneven_bits);
                let taken = self.block(body)?;
                self.has_uneven_bits = is_uneven;
                (taken == *bits).then_some(0)
            }
            kind if fallback::is_fallback(kind) => self.fall_back(op),
            kind => {
                let mut bits = Some(0u32);
                passes::inner_blocks(kind, &mut |block| {
                    bits = bits.and_then(|sum| sum.checked_add(self.block(block)?))
                });
                bits
            }
        }
    }

    /// Records an operation on the bytes in hand.
    fn bytes(&mut self, bytes: &Bytes) {
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
}
