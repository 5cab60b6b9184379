//! Strings in decode programs: owned strings, and shared ones, which may be parts of the message.
//! `interp/decode.rs` calls it; `jit/stream/calls.rs` must give the same results. It touches the
//! input and strings of the value.

use alloc::string::String;

use super::{Done, bytes::set_held, decode::Run};
use crate::{
    layout::{Kind, SharedStr},
    program::{FaultKind, Input, Order, Overflow, Place, Status, TextForm, kernels::utf8},
};

impl Run<'_, '_> {
    /// The string at a place; none for a sink, and for a shared one.
    pub(super) fn string<'v>(&self, place: Place, frame: *mut u8) -> Option<&'v mut String> {
        let Place::At { offset, node } = place else { return None };
        match &self.program.layout.node(node).kind {
            // SAFETY: the verifier found the string at the place, and nobody else refers to the
            // value while the program runs.
            Kind::String { shared: false, .. } => Some(unsafe { &mut *frame.add(offset as usize).cast::<String>() }),
            _ => None,
        }
    }

    /// The shared string at a place, if there is one.
    pub(super) fn shared_string<'v>(&self, place: Place, frame: *mut u8) -> Option<&'v mut SharedStr> {
        let Place::At { offset, node } = place else { return None };
        match &self.program.layout.node(node).kind {
            // SAFETY: the verifier found the shared string at the place, and nobody else refers to
            // the value while the program runs.
            Kind::String { shared: true, .. } => Some(unsafe { &mut *frame.add(offset as usize).cast::<SharedStr>() }),
            _ => None,
        }
    }

    /// Sets a string to a default.
    pub(super) fn set_text(&mut self, place: Place, text: &str, frame: *mut u8) -> Done {
        match (self.shared_string(place, frame), self.string(place, frame)) {
            (Some(target), _) => {
                let mut string = target.take_string();
                self.input.set_text(&mut string, text).ok()?;
                *target = string.into();
                Ok(())
            }
            (None, Some(string)) => self.input.set_text(string, text).ok(),
            (None, None) => Ok(()),
        }
    }

    /// Stores a shared string. It stays a part of the message if its bytes there are those of the
    /// string, and it is not too long.
    fn shared_text(&mut self, target: &mut SharedStr, form: &TextForm, bound: &TextBound<'_>) -> Done {
        if let (TextForm::CountedNul { order }, Some(message)) = (form, self.input.shared) {
            let start = self.input.pos + 4;
            let text = counted_text(self.input, *order)?;
            if bound.holds(text) {
                // SAFETY: the input reads `message`, so the range is the text's, and the text was
                // checked to be UTF-8.
                *target = unsafe { SharedStr::of_utf8(message.part(start..start + text.len())) };
                return Ok(());
            }
            self.input.pos = start - 4;
        }
        let mut string = target.take_string();
        self.own_text(&mut string, form, bound)?;
        *target = string.into();
        Ok(())
    }

    fn own_text(&mut self, string: &mut String, form: &TextForm, bound: &TextBound<'_>) -> Done {
        match form {
            TextForm::CountedNul { order } => counted_nul(self.input, *order, Some(string)).ok()?,
            TextForm::Kernel(kernel) => (kernel.get)(self.input, Some(string)).ok()?,
            TextForm::Held => set_held(self.input, string).ok()?,
        }
        match bound.hold(string) {
            Ok(None) => Ok(()),
            Ok(Some(default)) => self.input.set_text(string, default).ok(),
            Err(got) => Err(self.fail(FaultKind::Bound, bound.bound.into(), got)),
        }
    }

    pub(super) fn text(&mut self, place: Place, form: &TextForm, bound: &TextBound<'_>, frame: *mut u8) -> Done {
        if let Some(target) = self.shared_string(place, frame) {
            return self.shared_text(target, form, bound);
        }
        match (self.string(place, frame), form) {
            (Some(string), form) => self.own_text(string, form, bound),
            (None, TextForm::CountedNul { order }) => counted_nul(self.input, *order, None).ok(),
            (None, TextForm::Kernel(kernel)) => (kernel.get)(self.input, None).ok(),
            (None, TextForm::Held) => Ok(()),
        }
    }
}

/// The bound of a string, and what to do with a longer one.
pub(crate) struct TextBound<'p> {
    pub bound: u32,
    pub utf16: bool,
    pub overflow: &'p Overflow,
}

impl<'p> TextBound<'p> {
    /// Cuts a string that is too long, or returns the default text that must replace it. The error
    /// is its length, if it must be refused.
    pub(crate) fn hold(&self, string: &mut String) -> Result<Option<&'p str>, u64> {
        if self.holds(string) {
            return Ok(None);
        }
        let len = self.length(string);
        match self.overflow {
            Overflow::Refuse => Err(len as u64),
            Overflow::Trim => {
                string.truncate(self.cut(string));
                Ok(None)
            }
            Overflow::UseDefault(text) => Ok(Some(text)),
        }
    }

    /// True if a string is not too long.
    fn holds(&self, string: &str) -> bool {
        self.bound == 0 || self.length(string) <= self.bound as usize
    }

    fn length(&self, string: &str) -> usize {
        if self.utf16 { string.encode_utf16().count() } else { string.len() }
    }

    /// The last boundary between characters within the bound.
    fn cut(&self, string: &str) -> usize {
        let mut units = 0;
        for (at, c) in string.char_indices() {
            units += if self.utf16 { c.len_utf16() } else { c.len_utf8() };
            if units > self.bound as usize {
                return at;
            }
        }
        string.len()
    }
}

/// Reads a string as CDR and BSON have it: a count, the bytes, a NUL that is counted.
pub(crate) fn counted_nul(input: &mut Input<'_>, order: Order, string: Option<&mut String>) -> Status {
    match counted_text(input, order) {
        Ok(text) => string.map_or(Status::Ok, |string| input.set_text(string, text)),
        Err(failed) => failed,
    }
}

/// The text of such a string.
#[inline]
pub(crate) fn counted_text<'a>(input: &mut Input<'a>, order: Order) -> Result<&'a str, Status> {
    let start = input.pos;
    let head = input.take(4)?;
    let head = [head[0], head[1], head[2], head[3]];
    let count = if order == Order::Little { u32::from_le_bytes(head) } else { u32::from_be_bytes(head) } as usize;
    let left = input.remaining();
    if count == 0 || count > left {
        input.pos = start;
        return Err(input.fail(FaultKind::BadLength, left as u64, count as u64));
    }
    let bytes = &input.rest()[..count];
    let (text, nul) = bytes.split_at(count - 1);
    if nul != [0] {
        input.pos += count - 1;
        return Err(input.fail(FaultKind::BadTerminator, 0, u64::from(nul[0])));
    }
    let text = match utf8::text(text) {
        Ok(text) => text,
        Err(error) => {
            input.pos += error.valid_up_to();
            return Err(input.fail(FaultKind::BadText, 0, 0));
        }
    };
    input.pos += count;
    Ok(text)
}
