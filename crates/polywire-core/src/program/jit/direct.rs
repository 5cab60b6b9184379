//! Decides for which programs a direct function is emitted, and what its caller checks before each
//! message.
//!
//! For a small message of scalars and strings, preparing the context costs about as much as
//! processing it. A direct function needs no context. It handles the whole message or bails out;
//! then the general function processes the message and reports the error, if there is one.
//!
//! Whether the operations of a program need a context is found by emitting them: `Emit::context`
//! gives up in direct code. This file says what has to be known before that. `jit/mod.rs` calls it
//! before it compiles, and for the size that `exec.rs` checks. It reads the program only.

use super::{
    SLACK,
    stream::{Eligibility, HEAD},
};
use crate::program::{
    Block, Bytes, Direction, Op, OpKind, Program, Wire,
    kernel::Room,
    passes::{Cost, cost, message_size},
};

/// Largest message that a direct function of a program without a bank writes, strings not counted,
/// unless all messages have the same size.
const MAX_ROOM: usize = 1 << 10;

/// Longest stop-bit integer.
const INTEGER: usize = 10;

/// The room that a direct function needs at its beginning (encode), or the bytes that the message
/// must have (decode). None if there is to be no direct function.
pub(super) fn size(program: &Program) -> Option<usize> {
    let constant = message_size(program);
    let is_eligible = match &program.bank {
        Some(_) => Eligibility::of(program).is_some(),
        None => constant.is_some() || program.adapter.is_none(),
    };
    match (program.direction, constant) {
        _ if !is_eligible => None,
        (Direction::Decode, size) => Some(size.unwrap_or(0)),
        (Direction::Encode, Some(size)) => Some(size + SLACK),
        (Direction::Encode, None) => {
            let room = block_room(&program.root)?;
            (program.bank.is_some() || room <= MAX_ROOM).then_some(room + SLACK)
        }
    }
}

/// The most bytes that a block writes without checking its own room: one element of each sequence
/// is counted, and strings are not. None if that is unknown.
fn block_room(block: &Block) -> Option<usize> {
    block.0.iter().try_fold(0usize, |sum, op| sum.checked_add(op_room(op)?))
}

/// The room of the largest of alternative blocks.
fn largest<'p>(blocks: impl IntoIterator<Item = &'p Block>) -> Option<usize> {
    blocks.into_iter().try_fold(0, |most, block| Some(block_room(block)?.max(most)))
}

fn op_room(op: &Op) -> Option<usize> {
    if let Cost::Bytes(bytes) = cost(&op.kind, Direction::Encode) {
        return Some(bytes as usize);
    }
    match &op.kind {
        OpKind::Put(Wire::Inline(..)) => Some(size_of::<Room>()),
        OpKind::Put(Wire::StopBit(_)) => Some(INTEGER),
        OpKind::Bytes(Bytes::Put(_)) => Some(HEAD),
        OpKind::Bytes(_) | OpKind::Text { .. } | OpKind::Bulk { .. } | OpKind::Map { .. } | OpKind::Slice { .. } => {
            Some(0)
        }
        OpKind::PresenceMap { bits, body, .. } => block_room(body)?.checked_add(bits.div_ceil(7).max(1) as usize),
        OpKind::IfPresent { then, otherwise, .. } | OpKind::If { then, otherwise } => largest([then, otherwise]),
        OpKind::Switch { arms, otherwise } => largest(arms.iter().map(|(_, arm)| arm).chain([otherwise])),
        OpKind::Union { arms, none, .. } => largest(arms.iter().chain([none])),
        OpKind::Unbox { body, .. } | OpKind::Sequence { element: body, .. } => block_room(body),
        _ => None,
    }
}
