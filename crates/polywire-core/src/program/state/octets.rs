//! The bytes of a field one by one: for a reader whose elements are wider than octets.

use super::super::{Cursor, FaultKind, Input, SequenceDialect, Status};

/// The pending bytes as elements.
pub(crate) static OCTETS: SequenceDialect = SequenceDialect { name: "octets", begin: begin_octets, next: more_octets };

/// Starts with the first of the pending bytes.
extern "C" fn begin_octets(input: &mut Input<'_>, _: &mut Cursor) -> Status {
    input.state().octets_taken = 0;
    Status::Ok
}

/// 1 if there is another byte, else 0.
extern "C" fn more_octets(input: &mut Input<'_>, _: &mut Cursor, more: &mut u64) -> Status {
    let state = input.state();
    *more = u64::from(state.octets_taken < state.pending.len());
    Status::Ok
}

/// The next byte.
pub(crate) extern "C" fn take_octet(input: &mut Input<'_>, octet: &mut u64) -> Status {
    let state = input.state();
    let Some(next) = state.pending.get(state.octets_taken).copied() else {
        return input.fail(FaultKind::WrongKind, 0, 0);
    };
    state.octets_taken += 1;
    *octet = next.into();
    Status::Ok
}
