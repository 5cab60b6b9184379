//! Entry points for single operations, which machine code leaves to the interpreter; `jit/shims.rs`
//! calls them. They run exactly as in a program, so results and errors are the same. They touch the
//! input or output, the value and the state.

use super::{decode as decoding, encode as encoding, from_word, sequence_node};
use crate::{
    layout::{Kind, NodeId, Scalar},
    program::{FaultKind, Input, Op, Output, Overflow, Place, Program, Status},
};

/// Runs one decode operation, and updates the accumulator.
///
/// # Safety
/// The contract of [`super::decode`], where `frame` is a live value of the operation's frame node
/// and `accumulator` a word of type `scalar`, as the operation expects.
pub(crate) unsafe fn decode(
    program: &Program,
    op: &Op,
    input: &mut Input<'_>,
    frame: *mut u8,
    accumulator: &mut u64,
    scalar: Scalar,
) -> Status {
    let mut run = decoding::Run { program, input, accumulator: from_word(*accumulator, scalar), scalar };
    let status = Status::of(run.named(op, frame));
    *accumulator = run.accumulator as u64;
    status
}

/// Runs one encode operation, and stores the accumulator that it leaves.
///
/// # Safety
/// The contract of [`super::encode`], where `frame` is a live value of the operation's frame node.
/// `index` is that of the innermost element.
pub(crate) unsafe fn encode(
    program: &Program,
    op: &Op,
    output: &mut Output<'_>,
    frame: *const u8,
    index: u64,
    accumulator: &mut u64,
) -> Status {
    let mut run = encoding::Run { program, output, accumulator: 0, scalar: Scalar::U64, index };
    let status = Status::of(run.named(op, frame));
    *accumulator = run.accumulator as u64;
    status
}

/// Checks a count, resizes the sequence to it, and returns the first element.
///
/// # Safety
/// `sequence` is a live value of the place's node, or anything for a sink.
pub(crate) unsafe fn begin_sequence(
    program: &Program,
    input: &mut Input<'_>,
    place: Place,
    (bound, overflow, min_wire): (u32, &Overflow, u32),
    sequence: *mut u8,
    count: u64,
) -> Result<*mut u8, Status> {
    let mut run = decoding::Run { program, input, accumulator: i128::from(count), scalar: Scalar::U64 };
    let count = run.count(min_wire)?;
    decoding::keep(count, bound, overflow).map_err(|()| run.fail(FaultKind::Bound, bound.into(), count as u64))?;
    match place {
        Place::Sink => Ok(sequence),
        // SAFETY: by the contract, `sequence` is a live one of the place's node.
        Place::At { node, .. } => unsafe { run.resize(sequence_node(&program.layout, node), sequence, count) },
    }
}

/// Cuts a sequence to those of `count` elements that its bound keeps, or refuses an incomplete
/// array.
///
/// # Safety
/// `sequence` is a live value of the node.
pub(crate) unsafe fn end_sequence(
    program: &Program,
    input: &mut Input<'_>,
    node: NodeId,
    (bound, overflow): (u32, &Overflow),
    sequence: *mut u8,
    count: usize,
) -> Status {
    let mut run = decoding::Run { program, input, accumulator: 0, scalar: Scalar::U64 };
    match &program.layout.node(node).kind {
        Kind::Array { len, .. } if count == *len as usize => Status::Ok,
        Kind::Array { len, .. } => run.fail(FaultKind::Count, (*len).into(), count as u64),
        _ => {
            let kept = decoding::keep(count, bound, overflow).unwrap_or(count);
            // SAFETY: by the contract, `sequence` is a live one of the node, which is no array
            // here.
            unsafe { Status::of(run.resize(sequence_node(&program.layout, node), sequence, kept).map(drop)) }
        }
    }
}

/// The element with an index that the dialect has announced; grows the sequence if necessary.
///
/// # Safety
/// `sequence` is a live value of the place's node, or anything for a sink.
pub(crate) unsafe fn element_at(
    program: &Program,
    input: &mut Input<'_>,
    place: Place,
    (bound, overflow): (u32, &Overflow),
    sequence: *mut u8,
    index: usize,
) -> Result<*mut u8, Status> {
    let mut run = decoding::Run { program, input, accumulator: 0, scalar: Scalar::U64 };
    run.admit(index + 1, bound, overflow)?;
    let Place::At { node, .. } = place else { return Ok(sequence) };
    match &program.layout.node(node).kind {
        Kind::Array { len, .. } if index >= *len as usize => {
            Err(run.fail(FaultKind::Count, (*len).into(), index as u64 + 1))
        }
        Kind::Array { .. } => Ok(sequence.wrapping_add(index * run.array_stride(node))),
        _ => {
            let node = sequence_node(&program.layout, node);
            let stride = program.layout.node(node.element).size as usize;
            // SAFETY: by the contract, `sequence` is a live one of the node, which is no array
            // here.
            let data = unsafe { run.room(node, sequence, index)? };
            Ok(data.wrapping_add(index * stride))
        }
    }
}

/// Makes an optional present.
///
/// # Safety
/// `optional` is a live value of the node.
pub(crate) unsafe fn set_some(
    program: &Program,
    input: &mut Input<'_>,
    node: NodeId,
    optional: *mut u8,
) -> Result<*mut u8, Status> {
    let mut run = decoding::Run { program, input, accumulator: 0, scalar: Scalar::U64 };
    // SAFETY: by the contract, `optional` is a live one of the node.
    unsafe { run.set_some(node, optional) }
}

/// Selects a case of a union.
///
/// # Safety
/// `union` is a live value of the node, which has the case.
pub(crate) unsafe fn set_case(
    program: &Program,
    input: &mut Input<'_>,
    node: NodeId,
    union: *mut u8,
    (discriminator, case): (i64, Option<u32>),
) -> Result<*mut u8, Status> {
    let mut run = decoding::Run { program, input, accumulator: 0, scalar: Scalar::U64 };
    // SAFETY: by the contract, `union` is a live one of the node, which has the case.
    unsafe { run.set_case(node, union, discriminator, case) }
}
