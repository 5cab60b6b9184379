//! Rust functions that direct functions call for the bytes in hand.
//!
//! Only the code that `bytes` and `text` emit calls them, in verified programs. It passes the state
//! that the direct function was called with, strings and sequences of the value, and bytes that are
//! readable or room that is writable. None of the functions unwinds. In unusual cases they report
//! failure, and the caller bails out; until then they change nothing that a bail-out does not
//! restore.

use alloc::{string::String, vec::Vec};

use crate::{
    layout::SharedStr,
    program::{
        Bytes, State,
        io::SHORT_TEXT,
        kernels::utf8,
        state::bytes::{MAX_INLINE, join_bytes, split_bytes},
    },
};

/// Flags of the `facts` of [`set_text`], whose low 32 bits are the bound: the last byte has a stop
/// bit, and the bytes are UTF-8.
pub(super) const HAS_STOP: u64 = 1 << 32;
pub(super) const IS_TEXT: u64 = 1 << 33;

/// The result of [`find_stop`].
#[repr(C)]
#[derive(Default)]
pub(super) struct FoundStop {
    pub len: u64,
    pub there: u64,
    /// The first bytes, without the stop bit.
    pub first: [u8; SHORT_TEXT],
}

/// Finds 7-bit characters that end with a stop bit. Returns their end, or null if there is no stop
/// bit or a leading NUL needs the general function.
pub(super) unsafe extern "C" fn find_stop(
    at: *const u8,
    end: *const u8,
    nullable: u64,
    to: *mut FoundStop,
) -> *const u8 {
    // SAFETY: machine code passes both ends of the rest of one message, which is readable.
    let rest = unsafe { rest(at, end) };
    let Some(last) = rest.iter().position(|byte| byte & 0x80 != 0) else { return core::ptr::null() };
    let bytes = &rest[..=last];
    let mut found = FoundStop { len: bytes.len() as u64, there: 1, ..FoundStop::default() };
    match (bytes, nullable != 0) {
        ([0x80], true) => (found.len, found.there) = (0, 0),
        ([0x80], false) | ([0, 0x80], true) => found.len = 0,
        _ if bytes[0] & 0x7F == 0 => return core::ptr::null(),
        _ => {}
    }
    if found.len <= SHORT_TEXT as u64 {
        let own = &bytes[..found.len as usize];
        found.first.iter_mut().zip(own).for_each(|(to, byte)| *to = byte & 0x7F);
    }
    // SAFETY: machine code passes memory of its stack frame, of the size of `FoundStop`.
    unsafe { to.write(found) };
    rest[last + 1..].as_ptr()
}

/// # Safety
/// The bytes from `at` to `end` are readable for `'m`.
unsafe fn rest<'m>(at: *const u8, end: *const u8) -> &'m [u8] {
    // SAFETY: the bytes from `at` to `end` are readable by the contract.
    unsafe { core::slice::from_raw_parts(at, end.offset_from(at) as usize) }
}

/// Copies bytes without a stop bit.
fn copy_plain(to: &mut Vec<u8>, bytes: &[u8], has_stop: bool) {
    to.clear();
    to.extend_from_slice(bytes);
    if has_stop {
        to.last_mut().into_iter().for_each(|byte| *byte &= 0x7F);
    }
}

/// Copies bytes into the state's bytes in hand, without their stop bit, and returns their address.
pub(super) unsafe extern "C" fn hold(state: *mut State, data: *const u8, len: u64, has_stop: u64) -> *const u8 {
    // SAFETY: machine code passes its state, and `len` readable bytes of the message.
    unsafe {
        let (state, bytes) = (&mut *state, core::slice::from_raw_parts(data, len as usize));
        copy_plain(&mut state.held, bytes, has_stop != 0);
        state.held.as_ptr()
    }
}

/// Stores bytes in a slot. Returns 0, or 1 if they exceed the limit.
pub(super) unsafe extern "C" fn keep(state: *mut State, slots: u64, data: *const u8, len: u64) -> u64 {
    // SAFETY: machine code passes its state, and `len` readable bytes of the value, the message or
    // the state, but not of the slot itself.
    let (state, bytes) = unsafe { (&mut *state, core::slice::from_raw_parts(data, len as usize)) };
    state.set_specialised_text(split_slots(slots), bytes).is_err().into()
}

/// The same for bytes with a stop bit.
pub(super) unsafe extern "C" fn keep_stopped(state: *mut State, slots: u64, data: *const u8, len: u64) -> u64 {
    // SAFETY: machine code passes its state, and `len` readable bytes of the message.
    let (state, bytes) = unsafe { (&mut *state, core::slice::from_raw_parts(data, len as usize)) };
    let mut few = [0; MAX_INLINE];
    if let Some(few) = few.get_mut(..bytes.len()) {
        few.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte & 0x7F);
        return state.set_specialised_text(split_slots(slots), few).is_err().into();
    }
    let mut held = core::mem::take(&mut state.held);
    copy_plain(&mut held, bytes, true);
    let kept = state.set_specialised_text(split_slots(slots), &held);
    state.held = held;
    kept.is_err().into()
}

/// Returns 1 if a slot has these bytes, else 0.
pub(super) unsafe extern "C" fn is_kept(state: *const State, slots: u64, data: *const u8, len: u64) -> u64 {
    // SAFETY: machine code passes its state, and `len` readable bytes of the value or the message.
    let (state, bytes) = unsafe { (&*state, core::slice::from_raw_parts(data, len as usize)) };
    (state.specialised_text(split_slots(slots)).as_deref() == Some(bytes)).into()
}

fn split_slots(slots: u64) -> (u32, u32) {
    ((slots >> 32) as u32, slots as u32)
}

/// Stores bytes in a string. Returns 0, or 1 if they are not UTF-8 or exceed bound or memory.
pub(super) unsafe extern "C" fn set_text(
    state: *mut State,
    string: *mut String,
    data: *const u8,
    len: u64,
    facts: u64,
) -> u64 {
    // SAFETY: machine code passes its state, a string of the value that it decodes, and `len`
    // readable bytes that are not of that string.
    let (state, string, bytes) =
        unsafe { (&mut *state, &mut *string, core::slice::from_raw_parts(data, len as usize)) };
    let is_text = facts & IS_TEXT != 0 || utf8::text(bytes).is_ok();
    let is_set = is_text && make_room(&mut state.memory_left, string, bytes.len(), facts & u64::from(u32::MAX));
    if is_set {
        // SAFETY: the bytes are UTF-8. Bytes with a stop bit are 7-bit characters once it is
        // cleared.
        copy_plain(unsafe { string.as_mut_vec() }, bytes, facts & HAS_STOP != 0);
    }
    u64::from(!is_set)
}

/// The same for a shared string, which gets its own bytes here.
pub(super) unsafe extern "C" fn set_shared(
    state: *mut State,
    text: *mut SharedStr,
    data: *const u8,
    len: u64,
    facts: u64,
) -> u64 {
    // SAFETY: machine code passes its state, a shared string of the value that it decodes, and
    // `len` readable bytes that are not of that string. `string` is a local string.
    unsafe {
        let mut string = (*text).take_string();
        let answer = set_text(state, &raw mut string, data, len, facts);
        *text = string.into();
        answer
    }
}

/// Returns 1 if bytes are UTF-8, else 0.
pub(super) unsafe extern "C" fn is_utf8(data: *const u8, len: u64) -> u64 {
    // SAFETY: machine code passes `len` readable bytes of the message or the state.
    u64::from(utf8::text(unsafe { core::slice::from_raw_parts(data, len as usize) }).is_ok())
}

/// Joins a part with the bytes of a slot. Returns the address of the result and stores its length;
/// null on failure.
pub(super) unsafe extern "C" fn join(
    state: *mut State,
    op: *const Bytes,
    data: *const u8,
    len: u64,
    number: u64,
    to: *mut u64,
) -> *const u8 {
    // SAFETY: machine code passes its state, an operation of its program, `len` readable bytes of
    // the message or of the state's bytes in hand, and a word of its stack frame.
    unsafe {
        let (state, op) = (&mut *state, &*op);
        let Bytes::Part { kernel, slot, initial, .. } = op else { return core::ptr::null() };
        let mut held = core::mem::take(&mut state.held);
        // The part may be in the state's bytes in hand already.
        if !core::ptr::eq(held.as_ptr(), data) {
            held.clear();
            held.extend_from_slice(core::slice::from_raw_parts(data, len as usize));
        }
        held.truncate(len as usize);
        let known = state.specialised_text((slot.slot, slot.bytes));
        let joined = join_bytes(kernel, known.as_deref().unwrap_or(initial), &mut held, number as i64);
        state.held = held;
        let len = state.held.len();
        *to = len as u64;
        let copied = if len > MAX_INLINE { len } else { 0 };
        let Some(left) = state.copies_left.checked_sub(copied).filter(|_| joined.is_ok()) else {
            return core::ptr::null();
        };
        state.copies_left = left;
        state.held.as_ptr()
    }
}

/// Splits bytes relative to those of a slot: stores the number, the start and the length of the
/// part. Returns 0, or 1 if the kernel refuses.
pub(super) unsafe extern "C" fn split(
    state: *const State,
    op: *const Bytes,
    data: *const u8,
    len: u64,
    to: *mut [u64; 3],
) -> u64 {
    // SAFETY: machine code passes its state, an operation of its program, `len` readable bytes of a
    // live value, and three words of its stack frame.
    unsafe {
        let (state, op, value) = (&*state, &*op, core::slice::from_raw_parts(data, len as usize));
        let Bytes::Part { kernel, slot, initial, .. } = op else { return 1 };
        let known = state.specialised_text((slot.slot, slot.bytes));
        let Some((number, part)) = split_bytes(kernel, known.as_deref().unwrap_or(initial), value) else { return 1 };
        to.write([number as u64, part.start as u64, part.len() as u64]);
        0
    }
}

/// Writes 7-bit characters that do not begin with a NUL. Returns their end, or null for other
/// bytes.
pub(super) unsafe extern "C" fn write_stop(at: *mut u8, data: *const u8, len: u64, nullable: u64) -> *mut u8 {
    // SAFETY: machine code passes `len` readable bytes, and has checked the room for them and for
    // the two bytes of an empty text.
    unsafe {
        let text = core::slice::from_raw_parts(data, len as usize);
        let Some(last) = text.len().checked_sub(1) else {
            // An empty text: 0x80, or 0x00 0x80 if it is nullable, because 0x80 then means absent.
            *at = 0;
            let behind = at.add(nullable as usize);
            *behind = 0x80;
            return behind.add(1);
        };
        if text[0] == 0 || !text.is_ascii() {
            return core::ptr::null_mut();
        }
        core::ptr::copy_nonoverlapping(text.as_ptr(), at, text.len());
        *at.add(last) |= 0x80;
        at.add(text.len())
    }
}

/// Makes room for a text, if the memory budget and the bound allow it, like
/// [`Input::set_text`](crate::program::Input::set_text).
fn make_room(memory_left: &mut usize, string: &mut String, len: usize, bound: u64) -> bool {
    let room = len.max(SHORT_TEXT);
    let allowed = bound == 0 || len as u64 <= bound;
    if !allowed || string.capacity() >= room {
        return allowed;
    }
    string.clear();
    let affordable = memory_left.checked_sub(room).filter(|_| string.try_reserve(room).is_ok());
    *memory_left = affordable.unwrap_or(*memory_left);
    affordable.is_some()
}

pub(super) unsafe extern "C" fn differ(a: *const u8, b: *const u8, len: u64) -> u64 {
    // SAFETY: machine code passes the addresses of `len` readable bytes each.
    unsafe { u64::from(core::slice::from_raw_parts(a, len as usize) != core::slice::from_raw_parts(b, len as usize)) }
}
