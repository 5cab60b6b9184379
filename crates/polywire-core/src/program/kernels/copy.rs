//! Writes text: short copies without a call of `memcpy`, and line breaks. Kernels of text formats,
//! `scan` and `io.rs` call it. It touches the output only.

use core::ops::Range;

use super::super::{Output, Status};

/// Appends bytes; fast for few bytes.
#[inline]
pub(crate) fn put_short(output: &mut Output<'_>, bytes: &[u8]) -> Status {
    if output.reserve(bytes.len()) == Status::Failed {
        return Status::Failed;
    }
    // SAFETY: `reserve` made room for the bytes, and they cannot overlap a vector that is borrowed
    // mutably.
    unsafe { copy_short(bytes, output.here()) };
    output.pos += bytes.len();
    Status::Ok
}

/// Appends bytes between two quotes.
#[inline]
pub(crate) fn put_quoted(output: &mut Output<'_>, quote: u8, bytes: &[u8]) -> Status {
    if output.reserve(bytes.len() + 2) == Status::Failed {
        return Status::Failed;
    }
    // SAFETY: `reserve` made room for the bytes and two quotes, and the bytes cannot overlap a
    // vector that is borrowed mutably.
    unsafe {
        let to = output.here();
        *to = quote;
        copy_short(bytes, to.add(1));
        *to.add(bytes.len() + 1) = quote;
    }
    output.pos += bytes.len() + 2;
    Status::Ok
}

/// Appends a line break, and two blanks for each level.
pub(crate) fn put_line(output: &mut Output<'_>, level: usize) -> Status {
    let mut status = output.put(b"\n");
    for _ in 0..level {
        status = status.then(|| output.put(b"  "));
    }
    status
}

/// Appends a part of what was written before.
#[inline]
pub(crate) fn put_again(output: &mut Output<'_>, part: Range<usize>) -> Status {
    let (to, len) = (output.position(), part.len());
    let status = output.put_with(len, |_| len);
    if status == Status::Ok {
        output.written().copy_within(part, to);
    }
    status
}

/// Replaces the output between `start` and `end` by the output behind `end`.
pub(crate) fn replace_by_rest(output: &mut Output<'_>, start: usize, end: usize) {
    let written = output.position();
    output.written().copy_within(end..written, start);
    output.truncate(start + (written - end));
}

/// Copies to `to`, without a call for short inputs.
///
/// # Safety
/// `to` has room for the bytes of `from`, and they do not overlap.
#[inline]
pub(in crate::program) unsafe fn copy_short(from: &[u8], to: *mut u8) {
    let (len, from) = (from.len(), from.as_ptr());
    // SAFETY: each read and write lies within the first `len` bytes, which are readable at `from`
    // and writable at `to` by the contract.
    unsafe {
        match len {
            0 => {}
            1..4 => {
                *to = *from;
                *to.add(len / 2) = *from.add(len / 2);
                *to.add(len - 1) = *from.add(len - 1);
            }
            4..8 => {
                let (head, tail) =
                    (from.cast::<u32>().read_unaligned(), from.add(len - 4).cast::<u32>().read_unaligned());
                to.cast::<u32>().write_unaligned(head);
                to.add(len - 4).cast::<u32>().write_unaligned(tail);
            }
            8..17 => {
                let (head, tail) =
                    (from.cast::<u64>().read_unaligned(), from.add(len - 8).cast::<u64>().read_unaligned());
                to.cast::<u64>().write_unaligned(head);
                to.add(len - 8).cast::<u64>().write_unaligned(tail);
            }
            _ => core::ptr::copy_nonoverlapping(from, to, len),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::program::Limits;

    #[test]
    fn what_was_written_is_copied_and_replaced() {
        let (mut bytes, limits) = (Vec::new(), Limits::default());
        let mut output = Output::new(&mut bytes, &limits);
        assert_eq!(output.put(b"ab(cd)"), Status::Ok);
        assert_eq!(put_again(&mut output, 3..5), Status::Ok);
        assert_eq!(output.written(), b"ab(cd)cd");
        replace_by_rest(&mut output, 2, 6);
        let status = output.put(b"e");
        assert_eq!(output.finish(status), Status::Ok);
        assert_eq!(bytes, b"abcde");
    }

    #[test]
    fn every_length_is_copied() {
        let limits = Limits::default();
        for len in 0..40u8 {
            let from: Vec<u8> = (0..len).collect();
            let mut bytes = Vec::new();
            let mut output = Output::new(&mut bytes, &limits);
            assert_eq!(put_short(&mut output, &from), Status::Ok);
            let status = put_quoted(&mut output, b'!', &from);
            assert_eq!(output.finish(status), Status::Ok);
            assert_eq!(bytes, [&from[..], b"!", &from, b"!"].concat());
        }
    }
}
