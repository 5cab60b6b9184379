//! Texts and bytes that the stream has only a part of: a tail, or what a delta puts at one end of
//! what was there before. They are put together by functions, which are told the field, and wait
//! then.

use cranelift_codegen::ir::{InstBuilder, Value, condcodes::IntCC};
use cranelift_frontend::Variable;

use super::{
    super::emit::Emit,
    calls::{Parsed, number, parse_ascii, parse_counted, rest, write_ascii, write_counted},
};
use crate::program::{
    Field, FieldKind, State,
    state::{
        Operator, differing_end,
        integer::plain::{read_signed, write_signed},
        replaced,
        specialised::EMPTY_WORD,
    },
};

/// True for a field of this kind.
pub(super) fn is_combined(field: &Field) -> bool {
    matches!(field.operator, Operator::Tail | Operator::Delta)
}

impl Emit<'_, '_> {
    /// Bytes as such a field.
    pub(super) fn put_combined(&mut self, field: &Field, data: Value, len: Value) {
        self.room_for_bytes(len);
        let bit = (field.operator == Operator::Tail).then(|| self.next_bit());
        let (state, address, here) = (self.state(), self.address(field), self.here());
        let behind = self.call_or_leave(put as *const u8, &[state, address, data, len, here]);
        if let Some(bit) = bit {
            let done = self.code.create_block();
            let same = self.code.ins().icmp(IntCC::Equal, behind, here);
            self.or_else(same, done);
            self.set_bit(bit);
            self.move_to(behind);
            self.code.ins().jump(done, &[]);
            self.code.switch_to_block(done);
        } else {
            self.move_to(behind);
        }
    }

    /// What is pending from such a field's part, and whether it is there.
    pub(super) fn read_combined(&mut self, field: &Field, there: Variable) {
        let (state, address, here) = (self.state(), self.address(field), self.here());
        let (end, word) = (self.code.use_var(self.end), self.word());
        let behind = self.call_or_leave(get as *const u8, &[state, address, here, end, word]);
        let some = self.load_word(0);
        self.code.def_var(there, some);
        self.move_to(behind);
    }
}

/// Writes what is to be said of bytes, which are the previous ones then, and gives where it ends:
/// where it begins, if they are so already and that is said by a bit. Null if they cannot be said
/// so.
unsafe extern "C" fn put(state: *mut State, field: *const Field, data: *const u8, len: u64, at: *mut u8) -> *mut u8 {
    // SAFETY: machine code gives the state, a field of its program, and bytes of a live value.
    let (state, field, value) = unsafe { (&mut *state, &*field, core::slice::from_raw_parts(data, len as usize)) };
    if field.kind == FieldKind::Ascii && !value.is_ascii() {
        return core::ptr::null_mut();
    }
    let is_delta = field.operator == Operator::Delta;
    if !is_delta && state.specialised_text((field.slot, field.text)) == Some(value) {
        return at;
    }
    let base = base(state, field);
    let part = if is_delta { Some(replaced(base, value)) } else { differing_end(base, value).map(|end| (0, end)) };
    let part = part.filter(|(subtracted, _)| i32::try_from(*subtracted).is_ok());
    let Some((subtracted, part)) = part else { return core::ptr::null_mut() };
    let nullable = !is_delta && field.optional;
    // SAFETY: there is room for as many bytes, and what stands in front of them.
    let behind = unsafe {
        let at = match is_delta {
            true => write_signed(at, (subtracted + i64::from(field.optional && subtracted >= 0)) as u64),
            false => at,
        };
        let (data, len) = (part.as_ptr(), part.len() as u64);
        match field.kind {
            FieldKind::Ascii => write_ascii(at, data, len, nullable.into()),
            _ => write_counted(at, data, len, nullable.into()),
        }
    };
    match state.set_specialised_text((field.slot, field.text), value) {
        Ok(()) => behind,
        Err(_) => core::ptr::null_mut(),
    }
}

/// What a part is put to.
fn base<'s>(state: &'s State, field: &'s Field) -> &'s [u8] {
    let previous = state.specialised_text((field.slot, field.text));
    previous.unwrap_or_else(|| field.initial_bytes().unwrap_or_default())
}

/// Makes pending what a part and the previous bytes are together, which is kept, and says whether
/// it is there; gives where the part ends, or null.
unsafe extern "C" fn get(
    state: *mut State,
    field: *const Field,
    at: *const u8,
    end: *const u8,
    there: *mut u64,
) -> *const u8 {
    // SAFETY: machine code gives the state, a field of its program, and the bytes that are left.
    let (state, field, rest) = unsafe { (&mut *state, &*field, rest(at, end)) };
    match read(state, field, rest) {
        Some((is_there, behind)) => {
            // SAFETY: it gives a word, too.
            unsafe { *there = is_there.into() };
            behind.as_ptr()
        }
        None => core::ptr::null(),
    }
}

fn read<'m>(state: &mut State, field: &Field, mut rest: &'m [u8]) -> Option<(bool, &'m [u8])> {
    let is_delta = field.operator == Operator::Delta;
    let mut subtracted = 0;
    if is_delta {
        let (word, behind) = number(read_signed, rest)?;
        (subtracted, rest) = (word as i64, behind);
        if field.optional && subtracted == 0 {
            return Some((false, rest));
        }
        subtracted -= i64::from(field.optional && subtracted > 0);
        i32::try_from(subtracted).ok()?;
    }
    let (is_ascii, nullable) = (field.kind == FieldKind::Ascii, !is_delta && field.optional);
    let Parsed { text, behind } = if is_ascii { parse_ascii(rest, nullable) } else { parse_counted(rest, nullable) }?;
    let Some(part) = text else {
        state.set_value(field.slot, EMPTY_WORD);
        return Some((false, behind));
    };
    let mut pending = core::mem::take(&mut state.pending);
    pending.clear();
    pending.extend_from_slice(part);
    if is_ascii {
        pending.last_mut().into_iter().for_each(|byte| *byte &= 0x7F);
    }
    let base = base(state, field);
    let front = match subtracted {
        _ if !is_delta => Some(base.len().saturating_sub(pending.len())),
        0.. => base.len().checked_sub(subtracted as usize),
        _ => None,
    };
    // Negative numbers are one off, so that there is one for nothing.
    let back = if is_delta && subtracted < 0 { base.get(!subtracted as usize..) } else { None };
    let is_well = front.is_some() || back.is_some();
    pending.splice(..0, base[..front.unwrap_or(0)].iter().copied());
    pending.extend_from_slice(back.unwrap_or_default());
    let is_text = field.kind != FieldKind::Unicode || core::str::from_utf8(&pending).is_ok();
    let is_kept = is_well && is_text && state.set_specialised_text((field.slot, field.text), &pending).is_ok();
    state.pending = pending;
    is_kept.then_some((true, behind))
}
