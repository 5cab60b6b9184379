//! Decides which programs without a bank are eligible for a direct function.
//!
//! For a small message of scalars and strings, preparing the context costs about as much as
//! processing it. A direct function needs no context. It handles the whole message or bails out;
//! then the general function processes the message and reports the error, if there is one.
//!
//! `jit/mod.rs` calls this file before it compiles, and for the size that `exec.rs` checks.
//! `jit/stream` decides for programs with a bank. This file reads the program only.

use super::{SLACK, members::LONGEST_PREFIX, stream::Eligibility};
use crate::{
    layout::Kind,
    program::{
        Arm, Block, Ending, Op, OpKind, Place, PrefixTag, Program, TextForm, Wire,
        kernel::{RegionForm, Room},
        passes::{Cost, cost, message_size},
    },
};

/// Largest message that a direct function writes, strings not counted, unless all messages have the
/// same size.
const MAX_ROOM: usize = 1 << 10;

/// Most members that a direct function reads, unless all messages have the same size.
const MAX_MEMBERS: usize = 32;

/// The room that the direct function of an encode program needs at its beginning; none if the
/// program is not eligible. Strings check their own room.
pub(super) fn encode_room(program: &Program) -> Option<usize> {
    let most = match message_size(program) {
        Some(size) => size,
        None if program.bank.is_some() => Eligibility::of(program)?.room(),
        None if program.adapter.is_some() => return None,
        None => block_room(program, &program.root).filter(|most| *most <= MAX_ROOM)?,
    };
    Some(most + SLACK)
}

fn block_room(program: &Program, block: &Block) -> Option<usize> {
    block.0.iter().try_fold(0usize, |sum, op| sum.checked_add(op_room(program, op)?))
}

fn op_room(program: &Program, op: &Op) -> Option<usize> {
    let inside = |block: &Block| block_room(program, block);
    match &op.kind {
        OpKind::Put(Wire::Inline(..)) => Some(size_of::<Room>()),
        OpKind::Put(Wire::Fixed { .. })
        | OpKind::Need(_)
        | OpKind::Run { .. }
        | OpKind::Literal(_)
        | OpKind::Align(_)
        | OpKind::Load(_)
        | OpKind::Const(..)
        | OpKind::Length(_)
        | OpKind::Convert(_)
        | OpKind::Check(_) => match cost(&op.kind, program.direction) {
            Cost::Bytes(bytes) => Some(bytes as usize),
            Cost::Barrier => Some(0),
        },
        OpKind::Text { place, form, bound, utf16_bound, .. } => {
            let is_short = match form {
                TextForm::CountedNul { .. } => true,
                TextForm::Kernel(kernel) => kernel.short.is_some() && !is_shared(program, *place),
                _ => false,
            };
            (is_short && (*bound == 0 || !utf16_bound)).then_some(0)
        }
        OpKind::IfPresent { then, otherwise, .. } | OpKind::If { then, otherwise } => {
            Some(inside(then)?.max(inside(otherwise)?))
        }
        OpKind::Switch { arms, otherwise } => {
            arms.iter().try_fold(inside(otherwise)?, |most, (_, arm)| Some(most.max(inside(arm)?)))
        }
        _ => None,
    }
}

fn is_shared(program: &Program, place: Place) -> bool {
    place.node().is_some_and(|node| matches!(program.layout.node(node).kind, Kind::String { shared: true, .. }))
}

/// The bytes that a message must have for the direct function of a decode program; none if the
/// program is not eligible. Eligible are programs for messages of constant size, and programs for
/// scalar members that come in the usual order or are left out.
pub(super) fn decode_size(program: &Program) -> Option<usize> {
    if let Some(size) = message_size(program) {
        return Some(size);
    }
    if program.bank.is_some() {
        return Eligibility::of(program).map(|_| 0);
    }
    if program.adapter.is_some() {
        return None;
    }
    let is_region = |op: &&Op| matches!(op.kind, OpKind::Region { .. });
    let regions = program.root.0.iter().filter(is_region).count();
    let fits = |op: &Op| match &op.kind {
        OpKind::Region { dialect, body, .. } => dialect.form == Some(RegionForm::Rest) && is_members(body),
        kind => is_plain(kind),
    };
    (regions == 1 && program.root.0.iter().all(fits)).then_some(0)
}

fn is_members(block: &Block) -> bool {
    let [Op { kind: OpKind::Members { dialect, arms, .. }, .. }] = &block.0[..] else { return false };
    dialect.prefixes_suffice
        && dialect.ending == Some(Ending::Exhausted)
        && arms.len() <= MAX_MEMBERS
        && arms.iter().all(is_scalar)
}

/// True for a member that is a number behind an expected prefix that determines the tag.
fn is_scalar(arm: &Arm) -> bool {
    let Some(prefix) = &arm.prefix else { return false };
    let PrefixTag::Is(tag) = prefix.tag else { return false };
    let read = |op: &Op| match &op.kind {
        OpKind::Get(Wire::Kernel(kernel)) => kernel.form.is_some_and(|form| form.tag == tag & 7),
        kind => is_plain(kind),
    };
    prefix.bytes.len() <= LONGEST_PREFIX
        && !prefix.counted
        && arm.body.0.iter().all(read)
        && arm.absent.0.iter().all(|op| is_plain(&op.kind))
}

/// True for operations that use only the accumulator and the value.
fn is_plain(kind: &OpKind) -> bool {
    matches!(kind, OpKind::Const(..) | OpKind::Load(_) | OpKind::Convert(_) | OpKind::Check(_) | OpKind::Store(_))
}
