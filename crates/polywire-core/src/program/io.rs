//! The input and output of a running program.
//!
//! [`Input`] and [`Output`] are shared by both back ends and by kernels, so their fields lie where
//! machine code expects them (`repr(C)`) and are private; the methods are safe.

use alloc::{string::String, vec::Vec};
use core::marker::PhantomData;

use super::{PathId, State, kernel::Room, kernels::copy::copy_short};
pub use super::{
    fault::{CodecError, Fault, FaultKind, Status},
    limits::Limits,
};
use crate::layout::SharedBytes;

/// Every decoded string has at least this capacity, so that machine code can store a short one in
/// line.
pub(crate) const SHORT_TEXT: usize = 16;

/// A message being decoded.
///
/// ```
/// use polywire_core::program::{Fault, FaultKind, Input, Limits, Status};
/// let limits = Limits { depth: 1, memory_bytes: 40, ..Limits::default() };
/// Input::lend(b"\x01\0\0\0text", &limits, |input| {
///     assert_eq!((input.take(1), input.position(), input.padding(4)), (Ok(&[1][..]), 1, 3));
///     input.align(4);
///     assert_eq!((input.rest(), input.remaining(), input.message().len(), input.end()), (&b"text"[..], 4, 8, 8));
///
///     // A region ends earlier, and has an origin of its own.
///     let end = input.limit_end(6).unwrap();
///     let origin = input.replace_origin(4);
///     assert_eq!(input.take(3), Err(Status::Failed));
///     let fault: &Fault = input.fault().unwrap();
///     assert_eq!((fault.kind, fault.expected, fault.got), (FaultKind::Truncated, 3, 2));
///     assert_eq!(fault.kind.describe(), "the message ends too early");
///     input.restore_end(end);
///     input.replace_origin(origin);
///     input.seek(8);
///
///     // Depth and memory have limits.
///     assert_eq!((input.enter(), input.enter_levels(1)), (Status::Ok, Status::Failed));
///     input.leave();
///     let mut text = String::new();
///     assert_eq!((input.set_text(&mut text, "text"), text.as_str()), (Status::Ok, "text"));
///     assert_eq!(input.charge(input.limits().memory_bytes), Status::Failed);
///     assert_eq!(input.fail(FaultKind::BadText, 0, 0), Status::Failed);
/// });
/// ```
#[repr(C)]
pub struct Input<'a> {
    pub(super) base: *const u8,
    pub(super) pos: usize,
    pub(super) end: usize,
    pub(super) origin: usize,
    pub(super) memory_left: usize,
    pub(super) depth_left: u32,
    /// The kind that the format's delimiters gave the value which comes next: a BSON element's
    /// type, for instance.
    pub tag: u32,
    pub(super) len: usize,
    pub(super) limits: &'a Limits,
    /// The state of a stateful codec: for machine code a pointer, or null.
    pub(super) state: Option<&'a mut State>,
    pub(super) fault: Option<Fault>,
    /// The same bytes as a shared message, of which values may hold parts.
    pub(super) shared: Option<&'a SharedBytes>,
    bytes: PhantomData<&'a [u8]>,
}

impl<'a> Input<'a> {
    /// Calls `run` with an input over `bytes`. The first byte is the origin of alignment. An input
    /// is only ever passed by reference: a program relies on a kernel not replacing the input that
    /// it was given, and a kernel that owned one could do that.
    pub fn lend<R>(bytes: &[u8], limits: &Limits, run: impl FnOnce(&mut Input<'_>) -> R) -> R {
        run(&mut Input::new(bytes, limits))
    }

    /// An input over `bytes`. The first byte is the origin of alignment.
    #[inline]
    pub(crate) fn new(bytes: &'a [u8], limits: &'a Limits) -> Input<'a> {
        Input {
            base: bytes.as_ptr(),
            pos: 0,
            end: bytes.len(),
            origin: 0,
            memory_left: limits.memory(bytes.len()),
            depth_left: limits.depth,
            tag: 0,
            len: bytes.len(),
            limits,
            state: None,
            fault: None,
            shared: None,
            bytes: PhantomData,
        }
    }

    /// An input over a shared message, of which values may hold parts.
    pub(crate) fn of_shared(message: &'a SharedBytes, limits: &'a Limits) -> Input<'a> {
        Input { shared: Some(message), ..Input::new(message, limits) }
    }

    /// Reads a whole message without a program. It must not be longer than the limits allow.
    pub(crate) fn inspect(
        bytes: &[u8],
        limits: &Limits,
        read: impl FnOnce(&mut Input<'_>) -> Status,
    ) -> Result<(), CodecError> {
        let mut input = Input::new(bytes, limits);
        let status = match bytes.len() > limits.message_bytes {
            true => input.fail(FaultKind::Limit, limits.message_bytes as u64, bytes.len() as u64),
            false => read(&mut input),
        };
        status.ok().map_err(|_| CodecError::without_path(input.fault()))
    }

    /// Records a fault at the current position.
    #[cold]
    pub fn fail(&mut self, kind: FaultKind, expected: u64, got: u64) -> Status {
        self.fault = Some(Fault::new(kind, self.pos, expected, got));
        Status::Failed
    }

    /// Moves to `position`, which must not lie behind the end of the region.
    pub fn seek(&mut self, position: usize) {
        // Alignment may have moved past the end. The position may stay there: the next read fails.
        assert!(position <= self.end.max(self.pos), "a kernel moved past the end of its input");
        self.pos = position;
    }

    /// Moves past the next `n` bytes of the region; if there are fewer, to its end.
    #[inline]
    pub(crate) fn advance(&mut self, n: usize) {
        // If the sum wraps around, the position still lies in the message.
        let position = self.pos.wrapping_add(n);
        if position > self.end {
            return self.advance_to_end();
        }
        self.pos = position;
    }

    #[cold]
    fn advance_to_end(&mut self) {
        self.pos = self.end.max(self.pos);
    }

    /// Narrows the input to end at `end`, and returns the former end, for [`Input::restore_end`].
    /// Returns none if `end` lies behind the present end.
    pub fn limit_end(&mut self, end: usize) -> Option<usize> {
        (end <= self.end).then(|| core::mem::replace(&mut self.end, end))
    }

    /// Undoes [`Input::limit_end`].
    pub fn restore_end(&mut self, end: usize) {
        assert!(end <= self.len, "a kernel moved the end past the message");
        self.end = end;
    }

    /// Sets the origin of alignment, and returns the former one.
    pub fn replace_origin(&mut self, origin: usize) -> usize {
        core::mem::replace(&mut self.origin, origin)
    }

    /// Enters one level. [`Input::leave`] undoes it.
    pub fn enter(&mut self) -> Status {
        self.enter_levels(1)
    }

    /// Enters `levels` levels. [`Input::leave_levels`] undoes it.
    pub fn enter_levels(&mut self, levels: u32) -> Status {
        let Some(left) = self.depth_left.checked_sub(levels) else {
            return self.fail(FaultKind::TooDeep, u64::from(self.limits.depth), u64::from(self.limits.depth) + 1);
        };
        self.depth_left = left;
        Status::Ok
    }

    /// Levels that are left to be entered.
    pub(crate) fn levels_left(&self) -> u32 {
        self.depth_left
    }

    /// Undoes [`Input::enter_levels`].
    pub fn leave_levels(&mut self, levels: u32) {
        self.depth_left = self.depth_left.saturating_add(levels).min(self.limits.depth);
    }

    /// Undoes [`Input::enter`].
    pub fn leave(&mut self) {
        self.leave_levels(1);
    }

    /// Takes `bytes` from the memory budget.
    pub fn charge(&mut self, bytes: usize) -> Status {
        if bytes > self.memory_left {
            let limit = self.memory_limit();
            let asked = limit.saturating_sub(self.memory_left).saturating_add(bytes);
            return self.fail(FaultKind::Limit, limit as u64, asked as u64);
        }
        self.memory_left -= bytes;
        Status::Ok
    }

    /// The memory budget at the beginning of the message.
    pub(crate) fn memory_limit(&self) -> usize {
        self.limits.memory(self.len)
    }

    /// The next `n` bytes, moving past them.
    #[inline]
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], Status> {
        match self.rest().get(..n) {
            Some(bytes) => {
                self.pos += n;
                Ok(bytes)
            }
            None => Err(self.fail(FaultKind::Truncated, n as u64, self.remaining() as u64)),
        }
    }

    /// Skips to the next multiple of `n`, a power of two up to 16, from the origin. The position
    /// may then lie behind the end.
    #[inline]
    pub fn align(&mut self, n: usize) {
        self.pos += self.padding(n);
    }

    /// Bytes to the next multiple of `n`, a power of two up to 16, from the origin.
    #[inline]
    pub fn padding(&self, n: usize) -> usize {
        // Machine code relies on a position not far behind the end, whatever `n` a kernel passes.
        // So the result is at most 15.
        self.pos.wrapping_sub(self.origin).wrapping_neg() & n.wrapping_sub(1) & 15
    }

    /// Replaces a string's content, charging for what it grows by.
    #[inline]
    pub fn set_text(&mut self, string: &mut String, text: &str) -> Status {
        if self.make_room(string, text.len()) == Status::Failed {
            return Status::Failed;
        }
        // SAFETY: the string has room for the text, which is UTF-8, and cannot overlap it, because
        // it is borrowed mutably.
        unsafe {
            let vector = string.as_mut_vec();
            copy_short(text.as_bytes(), vector.as_mut_ptr());
            vector.set_len(text.len());
        }
        Status::Ok
    }

    /// Empties a string and makes room for `len` bytes, charging for what it grows by.
    #[inline]
    pub(crate) fn make_room(&mut self, string: &mut String, len: usize) -> Status {
        string.clear();
        let room = len.max(SHORT_TEXT);
        if room <= string.capacity() { Status::Ok } else { self.grow(string, room) }
    }

    #[cold]
    fn grow(&mut self, string: &mut String, room: usize) -> Status {
        if self.charge(room) == Status::Failed {
            return Status::Failed;
        }
        match string.try_reserve(room) {
            Ok(()) => Status::Ok,
            Err(_) => self.fail(FaultKind::OutOfMemory, room as u64, 0),
        }
    }

    /// Byte of the message that comes next.
    #[inline]
    pub fn position(&self) -> usize {
        self.pos
    }

    /// Where the region ends.
    #[inline]
    pub fn end(&self) -> usize {
        self.end
    }

    /// Bytes left in the region.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.end.saturating_sub(self.pos)
    }

    /// The whole message.
    #[inline]
    pub fn message(&self) -> &'a [u8] {
        // SAFETY: `base` and `len` are those of the slice given to `new`, which is borrowed for
        // `'a`.
        unsafe { core::slice::from_raw_parts(self.base, self.len) }
    }

    /// What is left of the region.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        if self.pos >= self.end {
            return &[];
        }
        // SAFETY: `pos < end` was checked, and `end <= len` always holds: `limit_end` only narrows,
        // and `restore_end` checks it.
        unsafe { core::slice::from_raw_parts(self.base.add(self.pos), self.end - self.pos) }
    }

    /// The limits for this message.
    pub fn limits(&self) -> &Limits {
        self.limits
    }

    /// The fault, after a [`Status::Failed`].
    pub fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    /// Blames the fault on a field, unless a deeper operation has done so already.
    #[cold]
    pub(crate) fn blame(&mut self, path: PathId) {
        if let Some(fault) = &mut self.fault {
            fault.name(path);
        }
    }

    /// Adds an element's index to the fault, while the enclosing blocks return.
    #[cold]
    pub(crate) fn blame_element(&mut self, index: u32) {
        if let Some(fault) = &mut self.fault {
            fault.index(index);
        }
    }
}

/// A message being encoded, at the end of a vector that it may grow.
///
/// ```
/// use polywire_core::program::{FaultKind, Limits, Output, Status};
/// let (limits, mut bytes) = (Limits { depth: 1, ..Limits::default() }, b"before".to_vec());
/// let status = Output::lend(&mut bytes, &limits, |output| {
///     assert_eq!((output.reserve(16), output.put(b"a"), output.align(4)), (Status::Ok, Status::Ok, Status::Ok));
///     assert_eq!((output.put_word(0x0201, 2), output.position()), (Status::Ok, 6));
///     output.patch(1, b"b");
///     *output.last().unwrap() = 3;
///     assert_eq!((output.insert(4, 1), output.written()), (Status::Ok, &mut *b"ab\0\0\x01\x01\x03".to_vec()));
///     output.truncate(4);
///     assert_eq!(output.replace_origin(4), 0);
///     assert_eq!((output.put_with(8, |room| { room[0] = 9; 1 }), output.position()), (Status::Ok, 5));
///     assert_eq!(output.enter_levels(1), Status::Ok);
///     output.leave_levels(1);
///     assert_eq!((output.enter_levels(2), output.fault().unwrap().kind), (Status::Failed, FaultKind::TooDeep));
///     output.fail(FaultKind::Unrepresentable, 0, 0)
/// });
/// assert_eq!((status, &bytes[..]), (Status::Failed, &b"before"[..]));
/// assert_eq!((Output::lend(&mut bytes, &limits, |output| output.put(b"!")), &bytes[..]), (Status::Ok, &b"before!"[..]));
/// ```
#[repr(C)]
pub struct Output<'a> {
    pub(super) base: *mut u8,
    pub(super) pos: usize,
    pub(super) capacity: usize,
    pub(super) origin: usize,
    pub(super) depth_left: u32,
    pub(super) limits: &'a Limits,
    pub(super) start: usize,
    pub(super) vector: &'a mut Vec<u8>,
    /// The state of a stateful codec: for machine code a pointer, or null.
    pub(super) state: Option<&'a mut State>,
    pub(super) fault: Option<Fault>,
    /// A position that a codec keeps from one of its kernels to the next.
    pub mark: usize,
}

impl<'a> Output<'a> {
    /// Calls `run` with an output that appends to `vector`, whose present end is the origin of
    /// alignment. If `run` succeeds, the bytes written are in the vector; else the vector is as
    /// before. Like an [`Input`], an output is only ever passed by reference.
    pub fn lend(vector: &mut Vec<u8>, limits: &Limits, run: impl FnOnce(&mut Output<'_>) -> Status) -> Status {
        let mut output = Output::new(vector, limits);
        let status = run(&mut output);
        output.finish(status)
    }

    /// An output that appends to `vector`, whose present end is the origin of alignment.
    #[inline]
    pub(crate) fn new(vector: &'a mut Vec<u8>, limits: &'a Limits) -> Output<'a> {
        let start = vector.len();
        let mut output = Output {
            base: core::ptr::null_mut(),
            pos: 0,
            capacity: 0,
            origin: 0,
            depth_left: limits.depth,
            limits,
            start,
            vector,
            state: None,
            fault: None,
            mark: 0,
        };
        output.refresh();
        output
    }

    fn refresh(&mut self) {
        // SAFETY: start <= len <= capacity of the vector.
        self.base = unsafe { self.vector.as_mut_ptr().add(self.start) };
        self.capacity = self.vector.capacity() - self.start;
    }

    /// Records a fault at the current position.
    #[cold]
    pub fn fail(&mut self, kind: FaultKind, expected: u64, got: u64) -> Status {
        self.fault = Some(Fault::new(kind, self.pos, expected, got));
        Status::Failed
    }

    /// Makes room for `n` bytes.
    #[inline]
    pub fn reserve(&mut self, n: usize) -> Status {
        if n <= self.capacity - self.pos {
            return Status::Ok;
        }
        self.grow(n)
    }

    #[cold]
    fn grow(&mut self, n: usize) -> Status {
        let wanted = self.pos.saturating_add(n);
        // Operations reserve slightly more than they write, so the exact limit is checked at the
        // end.
        if wanted > self.limits.message_bytes.saturating_add(1 << 16) {
            return self.fail(FaultKind::Limit, self.limits.message_bytes as u64, wanted as u64);
        }
        // SAFETY: `pos` bytes behind `start` are written and within the capacity.
        unsafe { self.vector.set_len(self.start + self.pos) };
        if self.vector.try_reserve(n.max(64)).is_err() {
            return self.fail(FaultKind::OutOfMemory, n as u64, 0);
        }
        self.refresh();
        Status::Ok
    }

    /// Enters `levels` levels. [`Output::leave_levels`] undoes it.
    pub fn enter_levels(&mut self, levels: u32) -> Status {
        let Some(left) = self.depth_left.checked_sub(levels) else {
            return self.fail(FaultKind::TooDeep, u64::from(self.limits.depth), u64::from(self.limits.depth) + 1);
        };
        self.depth_left = left;
        Status::Ok
    }

    /// Undoes [`Output::enter_levels`].
    pub fn leave_levels(&mut self, levels: u32) {
        self.depth_left = self.depth_left.saturating_add(levels).min(self.limits.depth);
    }

    /// Appends bytes.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) -> Status {
        if self.reserve(bytes.len()) == Status::Failed {
            return Status::Failed;
        }
        // SAFETY: `reserve` made room; `bytes` cannot overlap a vector that is borrowed mutably.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), self.here(), bytes.len()) };
        self.pos += bytes.len();
        Status::Ok
    }

    /// Appends the first `n` bytes of a word in little endian; at most eight.
    #[inline]
    pub fn put_word(&mut self, word: u64, n: usize) -> Status {
        if self.reserve(8) == Status::Failed {
            return Status::Failed;
        }
        // SAFETY: `reserve` made room for all eight.
        unsafe { self.here().cast::<[u8; 8]>().write(word.to_le_bytes()) };
        self.pos += n.min(8);
        Status::Ok
    }

    /// Appends zeros up to the next multiple of `n`, a power of two up to 16, from the origin.
    pub fn align(&mut self, n: usize) -> Status {
        let distance = self.pos.wrapping_sub(self.origin).wrapping_neg() & n.wrapping_sub(1) & 15;
        self.put(&[0; 16][..distance])
    }

    /// Sets the origin of alignment, and returns the former one.
    pub fn replace_origin(&mut self, origin: usize) -> usize {
        core::mem::replace(&mut self.origin, origin)
    }

    /// Bytes written so far.
    #[inline]
    pub fn position(&self) -> usize {
        self.pos
    }

    /// Where the next byte goes.
    #[inline]
    pub(crate) fn here(&self) -> *mut u8 {
        self.base.wrapping_add(self.pos)
    }

    /// Overwrites bytes that were written before. Bytes behind the position are not changed.
    #[inline]
    pub fn patch(&mut self, at: usize, bytes: &[u8]) {
        if let Some(written) = self.written().get_mut(at..at.saturating_add(bytes.len())) {
            written.copy_from_slice(bytes);
        }
    }

    /// The byte that was written last.
    #[inline]
    pub fn last(&mut self) -> Option<&mut u8> {
        // SAFETY: the byte before the position was written.
        (self.pos > 0).then(|| unsafe { &mut *self.base.wrapping_add(self.pos - 1) })
    }

    /// Moves the bytes written from `at` on back by `n` bytes. The gap's content is unspecified.
    pub fn insert(&mut self, at: usize, n: usize) -> Status {
        let end = self.pos;
        for left in (0..n).step_by(16).map(|done| n - done) {
            if self.put(&[0; 16][..left.min(16)]) == Status::Failed {
                return Status::Failed;
            }
        }
        if at <= end {
            self.written().copy_within(at..end, at + n);
        }
        Status::Ok
    }

    /// The bytes written so far, which may be read and changed.
    pub fn written(&mut self) -> &mut [u8] {
        // SAFETY: `pos` bytes behind `base` are written and within the capacity.
        unsafe { core::slice::from_raw_parts_mut(self.base, self.pos) }
    }

    /// Removes all but the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.pos = self.pos.min(len);
    }

    /// Calls `write` with `n` zeroed bytes of room, and keeps as many of them as it returns.
    #[inline]
    pub fn put_with(&mut self, n: usize, write: impl FnOnce(&mut [u8]) -> usize) -> Status {
        if self.reserve(n) == Status::Failed {
            return Status::Failed;
        }
        // SAFETY: `reserve` made room for `n` bytes, which are initialised before the slice is
        // made.
        let spare = unsafe {
            let spare = self.here();
            core::ptr::write_bytes(spare, 0, n);
            core::slice::from_raw_parts_mut(spare, n)
        };
        self.pos += write(spare).min(n);
        Status::Ok
    }

    /// The same as `put_inline`, for a kernel that may not write all bytes: the others are zero.
    pub(crate) fn put_cleared(&mut self, write: impl FnOnce(&mut Room) -> usize) -> Status {
        let write = |room: &mut Room| {
            *room = Room::new();
            write(room)
        };
        self.put_inline(write)
    }

    /// Appends the bytes that `write` writes into a [`Room`]. It returns their number and must have
    /// written all of them.
    #[inline]
    pub(crate) fn put_inline(&mut self, write: impl FnOnce(&mut Room) -> usize) -> Status {
        if self.reserve(size_of::<Room>()) == Status::Failed {
            return Status::Failed;
        }
        // SAFETY: `reserve` made room for a `Room`, and nobody else refers to it. A `Room` has
        // alignment 1, and its bytes may be uninitialised.
        let room = unsafe { &mut *self.here().cast::<Room>() };
        self.pos += write(room).min(size_of::<Room>());
        Status::Ok
    }

    /// The fault, after a [`Status::Failed`].
    pub fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    /// Blames the fault on a field, unless a deeper operation has done so already.
    #[cold]
    pub(crate) fn blame(&mut self, path: PathId) {
        if let Some(fault) = &mut self.fault {
            fault.name(path);
        }
    }

    /// Adds an element's index to the fault, while the enclosing blocks return.
    #[cold]
    pub(crate) fn blame_element(&mut self, index: u32) {
        if let Some(fault) = &mut self.fault {
            fault.index(index);
        }
    }

    /// Makes the bytes part of the vector, if the program succeeded and they are not too many; else
    /// leaves the vector as it was and keeps the fault.
    #[inline]
    pub(crate) fn finish(&mut self, mut status: Status) -> Status {
        if status == Status::Ok && self.pos > self.limits.message_bytes {
            status = self.fail(FaultKind::Limit, self.limits.message_bytes as u64, self.pos as u64);
        }
        let written = if status == Status::Ok { self.pos } else { 0 };
        // SAFETY: `written` bytes behind `start` are initialised and within the capacity.
        unsafe { self.vector.set_len(self.start + written) };
        status
    }
}
