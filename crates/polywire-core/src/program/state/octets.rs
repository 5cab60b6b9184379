//! Pending bytes one by one: for a reader whose elements are wider than octets.

use super::super::{Cursor, FaultKind, Input, Output, ScalarKernel, SequenceDialect, Status};
use crate::layout::Scalar;

/// The pending bytes as a sequence of [`OCTET`]s.
pub(crate) static OCTETS: SequenceDialect = SequenceDialect { name: "fast.octets", begin, next };

/// The next of the pending bytes.
pub(crate) static OCTET: ScalarKernel =
    ScalarKernel { name: "fast.octet", scalar: Scalar::U8, get, put, wide: None, form: None };

extern "C" fn begin(input: &mut Input<'_>, _: &mut Cursor) -> Status {
    match &mut input.state {
        Some(state) => {
            state.words[0] = 0;
            Status::Ok
        }
        None => input.fail(FaultKind::WrongKind, 0, 0),
    }
}

extern "C" fn next(input: &mut Input<'_>, _: &mut Cursor, more: &mut u64) -> Status {
    let left = |state: &&mut super::State| state.words[0] < state.pending.len() as u64;
    *more = input.state.as_ref().is_some_and(left).into();
    Status::Ok
}

extern "C" fn get(input: &mut Input<'_>, word: &mut u64) -> Status {
    let Some(state) = &mut input.state else { return input.fail(FaultKind::WrongKind, 0, 0) };
    *word = state.pending.get(state.words[0] as usize).copied().unwrap_or(0).into();
    state.words[0] += 1;
    Status::Ok
}

extern "C" fn put(output: &mut Output<'_>, _: u64) -> Status {
    output.fail(FaultKind::WrongKind, 0, 0)
}
