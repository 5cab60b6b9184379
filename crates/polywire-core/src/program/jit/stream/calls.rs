//! What machine code calls for texts and bytes. It does so in verified programs only: with the
//! state, with strings of a live value, and with bytes that are there or may be written. None
//! unwinds. What is not ordinary they leave as it is.

use alloc::string::String;

use crate::{
    layout::SharedStr,
    program::{
        State,
        io::SHORT_TEXT,
        state::{
            integer::plain::{read_unsigned, write_unsigned},
            specialised::EMPTY_WORD,
        },
    },
};

/// Forms of what [`read_pending`] reads.
pub(super) const NULLABLE: u64 = 1;
pub(super) const ASCII: u64 = 2;
pub(super) const UNICODE: u64 = 4;

/// Keeps a text as the previous one: 0 if it is that already, 1 if not, 2 if there is no room for
/// it.
pub(super) unsafe extern "C" fn note_text(state: *mut State, slots: u64, data: *const u8, len: u64) -> u64 {
    // SAFETY: machine code gives its state, and so many bytes of the value or the message.
    let (state, text) = unsafe { (&mut *state, core::slice::from_raw_parts(data, len as usize)) };
    if state.specialised_text(split(slots)) == Some(text) {
        return 0;
    }
    if state.set_specialised_text(split(slots), text).is_ok() { 1 } else { 2 }
}

/// The same of a string that was read: 0, or 1 if there is no room.
pub(super) unsafe extern "C" fn keep_text(state: *mut State, slots: u64, string: *const String, _: u64) -> u64 {
    // SAFETY: machine code gives its state, and a string of the value that it decodes.
    let (state, string) = unsafe { (&mut *state, &*string) };
    state.set_specialised_text(split(slots), string.as_bytes()).is_err().into()
}

/// The previous text once more: 0, or 1 if the string has no room for it.
pub(super) unsafe extern "C" fn load_text(state: *mut State, slots: u64, string: *mut String, bound: u64) -> u64 {
    // SAFETY: machine code gives its state, and a string of the value that it decodes.
    let (state, string) = unsafe { (&mut *state, &mut *string) };
    let mut left = state.memory_left;
    let filled = state.specialised_text(split(slots)).is_some_and(|text| fill(&mut left, string, text, bound));
    state.memory_left = left;
    u64::from(!filled)
}

fn split(slots: u64) -> (u32, u32) {
    ((slots >> 32) as u32, slots as u32)
}

/// Makes a text pending.
pub(super) unsafe extern "C" fn load_pending(state: *mut State, data: *const u8, len: u64) {
    // SAFETY: machine code gives its state, and so many bytes of the message or of a slot.
    unsafe { (*state).set_pending(core::slice::from_raw_parts(data, len as usize)) }
}

/// Keeps what is pending, or that nothing is there: 0, or 1 if there is no room for it.
pub(super) unsafe extern "C" fn keep_pending(state: *mut State, slots: u64, there: u64) -> u64 {
    // SAFETY: machine code gives its state, which nobody else refers to meanwhile.
    let state = unsafe { &mut *state };
    if there == 0 {
        state.set_value((slots >> 32) as u32, EMPTY_WORD);
        return 0;
    }
    let pending = core::mem::take(&mut state.pending);
    let kept = state.set_specialised_text(split(slots), &pending);
    state.pending = pending;
    kept.is_err().into()
}

/// Makes the previous text pending: 1, or 0 if there is none.
pub(super) unsafe extern "C" fn previous_pending(state: *mut State, slots: u64) -> u64 {
    // SAFETY: machine code gives its state, which nobody else refers to meanwhile.
    let state = unsafe { &mut *state };
    let mut pending = core::mem::take(&mut state.pending);
    pending.clear();
    let previous = state.specialised_text(split(slots));
    previous.into_iter().for_each(|text| pending.extend_from_slice(text));
    let there = previous.is_some();
    state.pending = pending;
    there.into()
}

/// A string from what is pending: 0, or 1 if that is not ordinary.
pub(super) unsafe extern "C" fn take_pending(state: *mut State, string: *mut String, bound: u64) -> u64 {
    // SAFETY: machine code gives its state, and a string of the value that it decodes.
    let (state, string) = unsafe { (&mut *state, &mut *string) };
    let is_text = core::str::from_utf8(&state.pending).is_ok();
    u64::from(!(is_text && fill(&mut state.memory_left, string, &state.pending, bound)))
}

/// The same for a string that may be a part of a message, which this one is not.
pub(super) unsafe extern "C" fn take_shared(state: *mut State, text: *mut SharedStr, bound: u64) -> u64 {
    // SAFETY: machine code gives its state, and a shared string of the value that it decodes.
    unsafe {
        let mut string = (*text).take_string();
        let answer = take_pending(state, &raw mut string, bound);
        *text = string.into();
        answer
    }
}

/// Where pending bytes are, and how many.
pub(super) unsafe extern "C" fn pending_at(state: *mut State, to: *mut [u64; 2]) {
    // SAFETY: machine code gives its state, and two words of the stack.
    unsafe {
        let pending = &(*state).pending;
        to.write([pending.as_ptr() as u64, pending.len() as u64]);
    }
}

/// Makes a text pending that might be absent or not, and says whether it is there; gives where it
/// ends, or null.
pub(super) unsafe extern "C" fn read_pending(
    state: *mut State,
    at: *const u8,
    end: *const u8,
    form: u64,
    there: *mut u64,
) -> *const u8 {
    let (is_ascii, is_unicode, nullable) = (form & ASCII != 0, form & UNICODE != 0, form & NULLABLE != 0);
    // SAFETY: machine code gives its state, and two ends of one message.
    let (state, rest) = unsafe { (&mut *state, rest(at, end)) };
    let parsed = if is_ascii { parse_ascii(rest, nullable) } else { parse_counted(rest, nullable) };
    let Some(Parsed { text, behind }) = parsed else { return core::ptr::null() };
    // What nobody takes is kept all the same, and repeated.
    if is_unicode && text.is_some_and(|text| core::str::from_utf8(text).is_err()) {
        return core::ptr::null();
    }
    if let Some(text) = text {
        state.set_pending(text);
        if is_ascii {
            state.pending.last_mut().into_iter().for_each(|byte| *byte &= 0x7F);
        }
    }
    // SAFETY: machine code gives a word of the stack.
    unsafe { *there = u64::from(text.is_some()) };
    behind.as_ptr()
}

/// A text of 7-bit characters, none of them in front a NUL: where it ends, or null.
pub(super) unsafe extern "C" fn write_ascii(at: *mut u8, data: *const u8, len: u64, nullable: u64) -> *mut u8 {
    // SAFETY: machine code gives so many bytes of a text, and has found room for them and their
    // ends.
    unsafe {
        let text = core::slice::from_raw_parts(data, len as usize);
        let Some(last) = text.len().checked_sub(1) else {
            // Where it might be absent, that is what the shortest of all texts says.
            *at = 0;
            let behind = at.add(nullable as usize);
            *behind = 0x80;
            return behind.add(1);
        };
        if text[0] == 0 || !text.is_ascii() {
            return core::ptr::null_mut();
        }
        copy(text, at);
        *at.add(last) |= 0x80;
        at.add(text.len())
    }
}

/// Bytes behind their number: where they end, or null.
pub(super) unsafe extern "C" fn write_counted(at: *mut u8, data: *const u8, len: u64, nullable: u64) -> *mut u8 {
    if len > u32::MAX.into() {
        return core::ptr::null_mut();
    }
    // SAFETY: machine code gives so many bytes, and has found room for them and a length in front.
    unsafe {
        let behind = write_unsigned(at, len + nullable);
        copy(core::slice::from_raw_parts(data, len as usize), behind);
        behind.add(len as usize)
    }
}

/// The mirror of [`write_ascii`].
pub(super) unsafe extern "C" fn read_ascii(
    state: *mut State,
    at: *const u8,
    end: *const u8,
    string: *mut String,
    bound: u64,
) -> *const u8 {
    // SAFETY: machine code gives its state, two ends of one message, and a string of the value.
    let (state, rest, string) = unsafe { (&mut *state, rest(at, end), &mut *string) };
    let Some(Parsed { text: Some(text), behind }) = parse_ascii(rest, false) else { return core::ptr::null() };
    if !make_room(&mut state.memory_left, string, text.len(), bound) {
        return core::ptr::null();
    }
    // SAFETY: there is room, and without the stop bit all are 7-bit characters.
    unsafe {
        let bytes = string.as_mut_vec();
        bytes.set_len(0);
        if let Some(last) = text.len().checked_sub(1) {
            copy(text, bytes.as_mut_ptr());
            *bytes.as_mut_ptr().add(last) &= 0x7F;
            bytes.set_len(text.len());
        }
    }
    behind.as_ptr()
}

/// The mirror of [`write_counted`], of UTF-8.
pub(super) unsafe extern "C" fn read_counted(
    state: *mut State,
    at: *const u8,
    end: *const u8,
    string: *mut String,
    bound: u64,
) -> *const u8 {
    // SAFETY: machine code gives its state, two ends of one message, and a string of the value.
    let (state, rest, string) = unsafe { (&mut *state, rest(at, end), &mut *string) };
    match parse_counted(rest, false) {
        Some(Parsed { text: Some(text), behind })
            if core::str::from_utf8(text).is_ok() && fill(&mut state.memory_left, string, text, bound) =>
        {
            behind.as_ptr()
        }
        _ => core::ptr::null(),
    }
}

/// Says how many bytes there are behind their number, and gives where they end, or null.
pub(super) unsafe extern "C" fn find_counted(at: *const u8, end: *const u8, len: *mut u64) -> *const u8 {
    // SAFETY: machine code gives two ends of one message.
    match parse_counted(unsafe { rest(at, end) }, false) {
        Some(Parsed { text: Some(text), behind }) => {
            // SAFETY: machine code gives a word of the stack.
            unsafe { *len = text.len() as u64 };
            behind.as_ptr()
        }
        _ => core::ptr::null(),
    }
}

/// A text in a message, or its absence, and what is behind.
pub(super) struct Parsed<'m> {
    pub text: Option<&'m [u8]>,
    pub behind: &'m [u8],
}

/// A text of 7-bit characters, the last of which has its stop bit yet. One that begins with a NUL
/// is not only its bytes, and so is left to others.
#[inline]
pub(super) fn parse_ascii(rest: &[u8], nullable: bool) -> Option<Parsed<'_>> {
    if nullable && rest.first() == Some(&0x80) {
        return Some(Parsed { text: None, behind: &rest[1..] });
    }
    let last = rest.iter().position(|byte| byte & 0x80 != 0)?;
    let (text, behind) = rest.split_at(last + 1);
    let is_empty = if nullable { text == [0, 0x80] } else { text == [0x80] };
    match text[0] & 0x7F {
        _ if is_empty => Some(Parsed { text: Some(&[]), behind }),
        0 => None,
        _ => Some(Parsed { text: Some(text), behind }),
    }
}

/// Bytes behind their number.
#[inline]
pub(super) fn parse_counted(rest: &[u8], nullable: bool) -> Option<Parsed<'_>> {
    let (len, rest) = match rest.split_first()? {
        (byte, rest) if byte & 0x80 != 0 => (u64::from(byte & 0x7F), rest),
        _ => number(read_unsigned, rest)?,
    };
    if nullable && len == 0 {
        return Some(Parsed { text: None, behind: rest });
    }
    let (text, behind) = rest.split_at_checked(usize::try_from(len - u64::from(nullable)).ok()?)?;
    Some(Parsed { text: Some(text), behind })
}

/// What a number's function reads of the bytes that there are, and what is behind it.
pub(super) fn number(
    read: unsafe extern "C" fn(*const u8, *const u8, *mut u64) -> *const u8,
    bytes: &[u8],
) -> Option<(u64, &[u8])> {
    let (ends, mut value) = (bytes.as_ptr_range(), 0);
    if bytes.is_empty() {
        return None;
    }
    // SAFETY: the ends are those of the bytes; what comes back is null or between them.
    unsafe {
        let behind = read(ends.start, ends.end, &mut value);
        (!behind.is_null()).then(|| (value, rest(behind, ends.end)))
    }
}

/// # Safety
/// The bytes from `at` to `end` are there.
pub(super) unsafe fn rest<'m>(at: *const u8, end: *const u8) -> &'m [u8] {
    // SAFETY: both ends are of one message, the bytes of which are there by the contract.
    unsafe { core::slice::from_raw_parts(at, end.offset_from(at) as usize) }
}

/// Puts UTF-8 into a string, if memory and bound allow it.
fn fill(memory_left: &mut usize, string: &mut String, text: &[u8], bound: u64) -> bool {
    let fits = make_room(memory_left, string, text.len(), bound);
    if fits {
        // SAFETY: there is room, and the text is UTF-8: that is what callers give.
        unsafe {
            let bytes = string.as_mut_vec();
            copy(text, bytes.as_mut_ptr());
            bytes.set_len(text.len());
        }
    }
    fits
}

/// Makes room for a text, as [`Input::set_text`](crate::program::Input::set_text) does.
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

/// The same for machine code: 0, or 1 if there is no memory.
pub(super) unsafe extern "C" fn grow(state: *mut State, string: *mut String, len: u64) -> u64 {
    // SAFETY: machine code gives its state, and a string of the value that it decodes.
    unsafe { u64::from(!make_room(&mut (*state).memory_left, &mut *string, len as usize, 0)) }
}

/// Copies bytes, mostly few.
///
/// # Safety
/// There is room for them.
#[inline]
unsafe fn copy(text: &[u8], to: *mut u8) {
    let (from, len) = (text.as_ptr(), text.len());
    // SAFETY: as the caller promises; pieces overlap where the length is no power of two.
    unsafe {
        match len {
            0 => {}
            1 => *to = *from,
            2..=3 => {
                let (first, last) = (from.cast::<[u8; 2]>().read(), from.add(len - 2).cast::<[u8; 2]>().read());
                to.cast::<[u8; 2]>().write(first);
                to.add(len - 2).cast::<[u8; 2]>().write(last);
            }
            4..=7 => {
                let (first, last) = (from.cast::<[u8; 4]>().read(), from.add(len - 4).cast::<[u8; 4]>().read());
                to.cast::<[u8; 4]>().write(first);
                to.add(len - 4).cast::<[u8; 4]>().write(last);
            }
            8..=16 => {
                let (first, last) = (from.cast::<[u8; 8]>().read(), from.add(len - 8).cast::<[u8; 8]>().read());
                to.cast::<[u8; 8]>().write(first);
                to.add(len - 8).cast::<[u8; 8]>().write(last);
            }
            _ => core::ptr::copy_nonoverlapping(from, to, len),
        }
    }
}

pub(super) unsafe extern "C" fn differ(a: *const u8, b: *const u8, len: u64) -> u64 {
    // SAFETY: machine code gives two texts, both of this length.
    unsafe { u64::from(core::slice::from_raw_parts(a, len as usize) != core::slice::from_raw_parts(b, len as usize)) }
}
