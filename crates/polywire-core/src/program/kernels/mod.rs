//! Hot loops that several formats share, and that know none of them: numbers and their text
//! (`number`, `float`, `scalar`), bytes as text (`base64`), searches (`scan`), bytes found to be
//! UTF-8 (`utf8`), short copies (`copy`). Codecs build their kernels from them.
//!
//! They work on slices, [`Input`](super::Input) and [`Output`](super::Output), whose bytes they may
//! touch without bounds checks where the code says why that is safe. All that codecs see is safe to
//! call with anything, and none panics on any bytes.

use super::{FaultKind, Input, Status};

pub(crate) mod base64;
pub(crate) mod copy;
pub(crate) mod float;
pub(crate) mod number;
pub(crate) mod scalar;
pub(crate) mod scan;
pub(crate) mod utf8;

/// Fails `ahead` bytes from here.
#[cold]
pub(crate) fn fail_at(input: &mut Input<'_>, ahead: usize, kind: FaultKind, expected: u64, got: u64) -> Status {
    input.pos = input.pos.saturating_add(ahead).min(input.end);
    input.fail(kind, expected, got)
}

/// Something else comes than `expected`, or nothing.
#[cold]
pub(crate) fn unexpected(input: &mut Input<'_>, expected: u8) -> Status {
    match input.rest().first() {
        Some(got) => input.fail(FaultKind::Syntax, expected.into(), (*got).into()),
        None => input.fail(FaultKind::Truncated, 1, 0),
    }
}
