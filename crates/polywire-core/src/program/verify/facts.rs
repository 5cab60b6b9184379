//! What the verifier holds to be true of each operation. Passes and back ends have code of their
//! own for the same, and nobody but the verifier reads this: a mistake there is found here.
//!
//! Every operation has its line. A new one does not compile without.

use alloc::{vec, vec::Vec};

use crate::program::{Block, Bytes as InHand, Decimal, Direction, OpKind, TextForm, Wire};

/// One operation.
pub(super) struct Facts<'p> {
    /// The programs that may have it; none if both may.
    pub only: Option<Direction>,
    /// What it does with the bytes that a `Need` made sure of.
    pub bytes: Bytes,
    /// It works on the state of a stream.
    pub has_state: bool,
    /// What it does with the bytes in hand.
    pub hand: Hand,
    /// The blocks inside.
    pub blocks: Vec<&'p Block>,
}

/// The bytes of the message that an operation moves without looking whether they are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bytes {
    /// At most so many.
    Moves(u32),
    /// None, and so many are there behind it.
    Ensures(u32),
    /// It sees to its own bytes, however many; behind it there are as many as this.
    Leaves(u32),
}

/// See [`Facts::hand`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hand {
    /// Nothing.
    Ignores,
    /// Takes some.
    Fills,
    /// Uses those that are there, which stay.
    Uses,
    /// Uses those that are there, and takes others.
    Changes,
    /// Runs what may take others, or not.
    Loses,
}

impl<'p> Facts<'p> {
    /// An operation of both directions that sees to its own bytes and knows no state.
    fn of_bytes(bytes: Bytes) -> Facts<'p> {
        Facts { only: None, bytes, has_state: false, hand: Hand::Ignores, blocks: Vec::new() }
    }
}

const ENCODES: Option<Direction> = Some(Direction::Encode);
const DECODES: Option<Direction> = Some(Direction::Decode);

/// What is true of an operation in a program of this direction.
pub(super) fn facts(kind: &OpKind, direction: Direction) -> Facts<'_> {
    let encodes = direction == Direction::Encode;
    let any = Facts::of_bytes(Bytes::Leaves(0));
    // One of the accumulator or of memory alone.
    let silent = Facts::of_bytes(Bytes::Moves(0));
    match kind {
        OpKind::Need(n) => Facts { bytes: Bytes::Ensures(*n), ..any },
        // The worst case of an alignment need not be there at a message's end.
        OpKind::Align(n) if encodes => Facts { bytes: Bytes::Moves(u32::from(*n).saturating_sub(1)), ..any },
        OpKind::Align(_) => any,
        OpKind::Run { size, .. } => Facts { bytes: Bytes::Moves(*size), ..any },
        OpKind::Literal(bytes) => {
            Facts { only: ENCODES, bytes: Bytes::Moves(u32::try_from(bytes.len()).unwrap_or(u32::MAX)), ..any }
        }
        OpKind::Load(_) | OpKind::Const(..) | OpKind::Convert(_) | OpKind::Check(_) => silent,
        OpKind::Store(_) | OpKind::SetText(..) | OpKind::Clear(_) => Facts { only: DECODES, ..silent },
        OpKind::Length(_) | OpKind::Index => Facts { only: ENCODES, ..silent },
        OpKind::Get(wire) => Facts { only: DECODES, ..wire_facts(wire) },
        OpKind::Put(wire) => Facts { only: ENCODES, ..wire_facts(wire) },
        OpKind::Text { form, after, .. } => {
            let text = Facts { bytes: Bytes::Leaves(if encodes { *after } else { 0 }), ..any };
            match form {
                TextForm::CountedNul { .. } | TextForm::Kernel(_) => text,
                TextForm::Held => Facts { has_state: true, hand: moves_hand(encodes), ..text },
            }
        }
        OpKind::Bytes(bytes) => bytes_facts(bytes, encodes),
        OpKind::Decimal(Decimal::Join { .. }) => Facts { only: DECODES, has_state: true, ..silent },
        OpKind::Decimal(_) => Facts { only: ENCODES, has_state: true, ..silent },
        OpKind::PresenceMap { body, .. } => Facts { has_state: true, blocks: vec![body], ..any },
        OpKind::TakeBit => Facts { only: DECODES, has_state: true, ..any },
        OpKind::PutBit => Facts { only: ENCODES, has_state: true, ..any },
        OpKind::LoadSlot { .. }
        | OpKind::StoreSlot { .. }
        | OpKind::EmptySlot(_)
        | OpKind::SlotState(_)
        | OpKind::SlotHas { .. }
        | OpKind::LoadLocal(..)
        | OpKind::StoreLocal(_)
        | OpKind::Compute(..) => Facts { has_state: true, ..silent },
        OpKind::KnownBits { .. } => Facts { has_state: true, ..any },
        // The bytes in hand may be those of a slot.
        OpKind::Forget { .. } => Facts { has_state: true, hand: Hand::Loses, ..any },
        OpKind::Bulk { .. } | OpKind::Slice { .. } | OpKind::Action(..) | OpKind::Fail(_) => any,
        OpKind::Test(_) => Facts { only: DECODES, ..any },
        OpKind::Sequence { element, .. } => Facts { blocks: vec![element], ..any },
        OpKind::Map { key, value, .. } => Facts { blocks: vec![key, value], ..any },
        OpKind::IfPresent { then, otherwise, .. } => Facts { only: ENCODES, blocks: vec![then, otherwise], ..any },
        OpKind::Present { body, .. } | OpKind::Select { body, .. } => {
            Facts { only: DECODES, blocks: vec![body], ..any }
        }
        OpKind::Unbox { body, .. } | OpKind::Region { body, .. } => Facts { blocks: vec![body], ..any },
        OpKind::Union { arms, none, .. } => Facts { only: ENCODES, blocks: arms.iter().chain([none]).collect(), ..any },
        OpKind::Switch { arms, otherwise } => {
            Facts { blocks: arms.iter().map(|(_, block)| block).chain([otherwise]).collect(), ..any }
        }
        OpKind::If { then, otherwise } => Facts { blocks: vec![then, otherwise], ..any },
        OpKind::Members { arms, .. } => {
            Facts { only: DECODES, blocks: arms.iter().flat_map(|arm| [&arm.body, &arm.absent]).collect(), ..any }
        }
        OpKind::Call { .. } => Facts { hand: Hand::Loses, ..any },
    }
}

/// What is true of a scalar's form on the wire.
fn wire_facts(wire: &Wire) -> Facts<'static> {
    let any = Facts::of_bytes(Bytes::Leaves(0));
    match wire {
        Wire::Fixed { scalar, .. } => Facts { bytes: Bytes::Moves(scalar.size() as u32), ..any },
        Wire::Kernel(_) | Wire::Inline(..) | Wire::Symbol(..) => any,
        Wire::StopBit(_) => Facts { has_state: true, ..any },
        Wire::Octet => Facts { has_state: true, hand: Hand::Uses, ..any },
    }
}

/// What is true of an operation on the bytes in hand.
fn bytes_facts(bytes: &InHand, encodes: bool) -> Facts<'static> {
    let any = Facts { has_state: true, ..Facts::of_bytes(Bytes::Leaves(0)) };
    let silent = Facts { has_state: true, ..Facts::of_bytes(Bytes::Moves(0)) };
    match bytes {
        InHand::Octets { .. } => Facts { hand: moves_hand(encodes), ..any },
        InHand::Const(_) | InHand::LoadSlot { .. } => Facts { hand: Hand::Fills, ..silent },
        InHand::Get(_) => Facts { only: DECODES, hand: Hand::Fills, ..any },
        InHand::Put(_) => Facts { only: ENCODES, hand: Hand::Uses, ..any },
        InHand::StoreSlot { .. } | InHand::SlotHas { .. } | InHand::Equal(_) | InHand::Length => {
            Facts { hand: Hand::Uses, ..silent }
        }
        InHand::Utf8(_) => Facts { only: DECODES, hand: Hand::Uses, ..silent },
        InHand::Part { .. } => Facts { hand: Hand::Changes, ..silent },
    }
}

/// Encoding takes bytes in hand from memory, and decoding gives them to it.
fn moves_hand(encodes: bool) -> Hand {
    if encodes { Hand::Fills } else { Hand::Uses }
}
