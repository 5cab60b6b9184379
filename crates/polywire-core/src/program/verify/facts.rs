//! The verifier's table of facts about each operation. Passes and back ends have their own code for
//! the same facts and do not use this table, so that the verifier finds mistakes there. Only
//! `verify/mod.rs` calls this file. It reads operations only.
//!
//! The match is exhaustive: a new operation does not compile without an entry.

use alloc::{vec, vec::Vec};

use crate::program::{Block, Bytes, Decimal, Direction, OpKind, SlotOp, TextForm, Wire};

/// The facts about one operation.
pub(super) struct Facts<'p> {
    /// The direction of the programs that may have it; none if programs of both may.
    pub only: Option<Direction>,
    /// How it uses the bytes that a `Need` reserved.
    pub reserved: Reserved,
    /// Whether it uses the state of a stream.
    pub has_state: bool,
    /// How it uses the bytes in hand.
    pub hand: Hand,
    /// The blocks inside.
    pub blocks: Vec<&'p Block>,
}

/// The bytes of the message that an operation moves without a bounds check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reserved {
    /// It moves at most this many.
    Moves(u32),
    /// It moves none, and reserves this many.
    Ensures(u32),
    /// It checks its own bounds; behind it this many bytes are reserved.
    Leaves(u32),
}

/// See [`Facts::hand`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hand {
    /// It does not use them.
    Ignores,
    /// It takes bytes in hand.
    Fills,
    /// It requires bytes in hand and keeps them.
    Uses,
    /// It requires bytes in hand and replaces them.
    Changes,
    /// Behind it, it is unknown whether there are bytes in hand.
    Loses,
}

impl<'p> Facts<'p> {
    /// An operation of both directions that has this use of reserved bytes and does not use the
    /// state.
    fn of(reserved: Reserved) -> Facts<'p> {
        Facts { only: None, reserved, has_state: false, hand: Hand::Ignores, blocks: Vec::new() }
    }
}

const ENCODES: Option<Direction> = Some(Direction::Encode);
const DECODES: Option<Direction> = Some(Direction::Decode);

/// The facts about an operation in a program of this direction.
pub(super) fn facts(kind: &OpKind, direction: Direction) -> Facts<'_> {
    let encodes = direction == Direction::Encode;
    // An operation that checks its own bounds.
    let any = Facts::of(Reserved::Leaves(0));
    // An operation on the accumulator, the state or memory alone.
    let silent = Facts::of(Reserved::Moves(0));
    match kind {
        OpKind::Need(n) => Facts { reserved: Reserved::Ensures(*n), ..any },
        // When decoding, an `Align` reserves nothing: at the message's end its worst case may not
        // fit.
        OpKind::Align(n) if encodes => Facts { reserved: Reserved::Moves(u32::from(*n).saturating_sub(1)), ..any },
        OpKind::Align(_) => any,
        OpKind::Run { size, .. } => Facts { reserved: Reserved::Moves(*size), ..any },
        OpKind::Literal(bytes) => {
            Facts { only: ENCODES, reserved: Reserved::Moves(u32::try_from(bytes.len()).unwrap_or(u32::MAX)), ..any }
        }
        OpKind::Load(_) | OpKind::Const(..) | OpKind::Convert(_) | OpKind::Check(_) => silent,
        OpKind::Store(_) | OpKind::SetText(..) | OpKind::Clear(_) => Facts { only: DECODES, ..silent },
        OpKind::Length(_) | OpKind::Index => Facts { only: ENCODES, ..silent },
        OpKind::Get(wire) => Facts { only: DECODES, ..wire_facts(wire) },
        OpKind::Put(wire) => Facts { only: ENCODES, ..wire_facts(wire) },
        OpKind::Text { form, after, .. } => {
            let text = Facts { reserved: Reserved::Leaves(if encodes { *after } else { 0 }), ..any };
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
        OpKind::KnownBits { .. } => Facts { has_state: true, ..any },
        // The bytes in hand may be those of a slot that is forgotten.
        OpKind::Slot(SlotOp::Forget { .. }) => Facts { has_state: true, hand: Hand::Loses, ..any },
        OpKind::Slot(_) => Facts { has_state: true, ..silent },
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
        OpKind::Switch { arms, otherwise, .. } => Facts { blocks: arms.iter().chain([otherwise]).collect(), ..any },
        OpKind::If { then, otherwise } => Facts { blocks: vec![then, otherwise], ..any },
        OpKind::Members { arms, .. } => {
            Facts { only: DECODES, blocks: arms.iter().flat_map(|arm| [&arm.body, &arm.absent]).collect(), ..any }
        }
        OpKind::Call { .. } => Facts { hand: Hand::Loses, ..any },
    }
}

/// The facts about a scalar's form on the wire.
fn wire_facts(wire: &Wire) -> Facts<'static> {
    let any = Facts::of(Reserved::Leaves(0));
    match wire {
        Wire::Fixed { scalar, .. } => Facts { reserved: Reserved::Moves(scalar.size() as u32), ..any },
        Wire::Kernel(_) | Wire::Inline(..) | Wire::Symbol(..) => any,
        Wire::StopBit(_) => Facts { has_state: true, ..any },
        Wire::Octet => Facts { has_state: true, hand: Hand::Uses, ..any },
    }
}

/// The facts about an operation on the bytes in hand.
fn bytes_facts(bytes: &Bytes, encodes: bool) -> Facts<'static> {
    let any = Facts { has_state: true, ..Facts::of(Reserved::Leaves(0)) };
    let silent = Facts { has_state: true, ..Facts::of(Reserved::Moves(0)) };
    match bytes {
        Bytes::Octets { .. } => Facts { hand: moves_hand(encodes), ..any },
        Bytes::Const(_) | Bytes::LoadSlot { .. } => Facts { hand: Hand::Fills, ..silent },
        Bytes::Get(_) => Facts { only: DECODES, hand: Hand::Fills, ..any },
        Bytes::Put(_) => Facts { only: ENCODES, hand: Hand::Uses, ..any },
        Bytes::StoreSlot { .. } | Bytes::SlotHas { .. } | Bytes::Equal(_) | Bytes::Length => {
            Facts { hand: Hand::Uses, ..silent }
        }
        Bytes::Utf8(_) => Facts { only: DECODES, hand: Hand::Uses, ..silent },
        Bytes::Part { .. } => Facts { hand: Hand::Changes, ..silent },
    }
}

/// Encoding takes bytes in hand from memory; decoding stores them there.
fn moves_hand(encodes: bool) -> Hand {
    if encodes { Hand::Fills } else { Hand::Uses }
}
