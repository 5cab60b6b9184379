//! Hot loops that several formats share and that are independent of any format: numbers and their
//! text (`number`, `float`, `scalar`), bytes as text (`base64`), searches (`scan`), UTF-8
//! validation (`utf8`), short copies (`copy`). Codecs build their kernels from them.
//!
//! They work on slices, [`Input`](super::Input) and [`Output`](super::Output), and may access their
//! bytes without bounds checks where a comment states why that is safe. All functions for codecs
//! are safe to call with any arguments, and none panics on any bytes.

use super::{FaultKind, Input, Status};

pub(crate) mod base64;
pub(crate) mod copy;
pub(crate) mod float;
pub(crate) mod number;
pub(crate) mod scalar;
pub(crate) mod scan;
pub(crate) mod utf8;

/// Fails with an offset `ahead` bytes from here.
#[cold]
pub(crate) fn fail_at(input: &mut Input<'_>, ahead: usize, kind: FaultKind, expected: u64, got: u64) -> Status {
    input.pos = input.pos.saturating_add(ahead).min(input.end);
    input.fail(kind, expected, got)
}

/// Fails because the next byte is not `expected`, or is missing.
#[cold]
pub(crate) fn unexpected(input: &mut Input<'_>, expected: u8) -> Status {
    match input.rest().first() {
        Some(got) => input.fail(FaultKind::Syntax, expected.into(), (*got).into()),
        None => input.fail(FaultKind::Truncated, 1, 0),
    }
}
