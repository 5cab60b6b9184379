//! Entry points for single operations, which machine code leaves to the interpreter; `jit/shims.rs`
//! calls them. They run exactly as in a program, so results and errors are the same. They touch the
//! input or output, the value and the state.

use super::{DecodeRun, encode::Run as EncodeRun};
use crate::{
    layout::Scalar,
    program::{Input, Op, Output, Program, Status},
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
    let mut run = DecodeRun::new(program, input, *accumulator, scalar);
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
    let mut run = EncodeRun { program, output, accumulator: 0, scalar: Scalar::U64, index };
    let status = Status::of(run.named(op, frame));
    *accumulator = run.accumulator as u64;
    status
}
