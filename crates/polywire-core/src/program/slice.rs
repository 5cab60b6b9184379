//! The elements of a sequence or array while a kernel of a codec reads them ([`Elements`]). Both
//! back ends make it for the operation `Slice`, and for octets from the bytes in hand. It may grow
//! and write that sequence or array, and charges the input for the growth.

use core::marker::PhantomData;

use super::{FaultKind, Input, Status};
use crate::layout::{Kind, Layout, NodeId, Scalar, SequenceNode};

/// Room for the elements of a sequence or array of plain scalars. They are always initialised, so a
/// kernel may stop at any time.
pub struct Elements<'v> {
    /// The sequence, which can grow; none for an array.
    sequence: Option<(&'v SequenceNode, *mut u8)>,
    data: *mut u8,
    /// Elements that are allocated and initialised.
    room: usize,
    /// Elements that were read.
    count: usize,
    size: usize,
    value: PhantomData<&'v mut [u8]>,
}

impl<'v> Elements<'v> {
    /// # Safety
    /// At `at` is a live value of `node`, a sequence or array of `scalar`, for as long as this
    /// lives and with no other reference to it.
    pub(crate) unsafe fn new(layout: &'v Layout, node: NodeId, at: *mut u8, scalar: Scalar) -> Elements<'v> {
        let (sequence, data, room) = match &layout.node(node).kind {
            Kind::Array { len, .. } => (None, at, *len as usize),
            Kind::Sequence(sequence) => {
                // SAFETY: the caller of `new` has a live sequence of the node at `at`.
                let (data, len) = unsafe { sequence.access.slice_mut(at) };
                (Some((sequence, at)), data, len)
            }
            _ => unreachable!("slices are of sequences and arrays"),
        };
        Elements { sequence, data, room, count: 0, size: scalar.size(), value: PhantomData }
    }

    /// The bytes of the elements behind those already read: of at least `wanted` elements, and of
    /// all further ones that are allocated. The caller fills them from the front, in the host's
    /// byte order, and then calls [`take`](Elements::take).
    pub fn spare(&mut self, input: &mut Input<'_>, wanted: usize) -> Result<&mut [u8], Status> {
        let needed = self.count.saturating_add(wanted);
        if needed > self.room && self.grow(input, needed) == Status::Failed {
            return Err(Status::Failed);
        }
        // SAFETY: `room` initialised elements lie at `data`, `count <= room` of which are taken,
        // and nobody else refers to them.
        Ok(unsafe {
            core::slice::from_raw_parts_mut(self.data.add(self.count * self.size), (self.room - self.count) * self.size)
        })
    }

    #[cold]
    fn grow(&mut self, input: &mut Input<'_>, needed: usize) -> Status {
        let Some((sequence, at)) = self.sequence else {
            return input.fail(FaultKind::Count, self.room as u64, needed as u64);
        };
        let most = input.limits().elements as usize;
        if needed > most {
            return input.fail(FaultKind::Limit, most as u64, needed as u64);
        }
        let len = needed.max(2 * self.room).max(16).min(most);
        if input.charge((len - self.room).saturating_mul(self.size)) == Status::Failed {
            return Status::Failed;
        }
        // SAFETY: `at` is the live sequence that `new` was given, which is borrowed as long as
        // this.
        match unsafe { sequence.access.resize(at, len) } {
            Ok(data) => {
                (self.data, self.room) = (data, len);
                Status::Ok
            }
            Err(_) => input.fail(FaultKind::OutOfMemory, len as u64, 0),
        }
    }

    /// The first `n` elements of the spare bytes were read.
    pub fn take(&mut self, n: usize) {
        assert!(n <= self.room - self.count, "a kernel took more elements than there are");
        self.count += n;
    }

    /// Cuts the sequence to the elements that were read, or to as many of them as `keep` returns.
    /// The error of `keep` is the bound.
    pub(crate) fn finish(self, input: &mut Input<'_>, keep: impl FnOnce(usize) -> Result<usize, u32>) -> Status {
        let Some((sequence, at)) = self.sequence else {
            let (expected, got) = (self.room as u64, self.count as u64);
            return if expected == got { Status::Ok } else { input.fail(FaultKind::Count, expected, got) };
        };
        let kept = match keep(self.count) {
            Ok(kept) => kept,
            Err(bound) => return input.fail(FaultKind::Bound, bound.into(), self.count as u64),
        };
        // SAFETY: `at` is the live sequence that `new` was given, which is borrowed as long as
        // this.
        match unsafe { sequence.access.resize(at, kept) } {
            Ok(_) => Status::Ok,
            Err(_) => input.fail(FaultKind::OutOfMemory, kept as u64, 0),
        }
    }
}
