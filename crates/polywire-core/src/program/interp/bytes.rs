//! Operations on the bytes in hand, in both directions. `interp/decode.rs` and `interp/encode.rs`
//! call it for `Bytes` and for strings from the bytes in hand; `jit` calls [`set_octets`]. It moves
//! bytes between the state and the value; `state/bytes.rs` has the rest.

use alloc::string::String;

use super::{Done, decode, encode};
use crate::{
    layout::{Layout, NodeId, Scalar},
    program::{Bytes, Elements, FaultKind, Input, Overflow, Place, Status, kernels::utf8, state},
};

/// The type of the accumulator behind an operation that fills it.
pub(crate) fn filled(bytes: &Bytes) -> Option<Scalar> {
    match bytes {
        Bytes::SlotHas { .. } | Bytes::Equal(_) => Some(Scalar::Bool),
        Bytes::Length => Some(Scalar::U64),
        _ => None,
    }
}

impl decode::Run<'_, '_> {
    pub(super) fn bytes(&mut self, bytes: &Bytes, frame: *mut u8) -> Done {
        match bytes {
            Bytes::Octets { place, bound, overflow } => self.octets(*place, (*bound, overflow), frame),
            Bytes::Get(form) => state::bytes::get(self.input, form),
            Bytes::Utf8(policy) => state::bytes::check_utf8(self.input, *policy),
            Bytes::Part { kernel, slot, initial, number } => {
                state::bytes::join(self.input, kernel, (*slot, initial, *number))
            }
            _ => self.with_bytes(bytes),
        }
    }

    fn with_bytes(&mut self, bytes: &Bytes) -> Done {
        match self.input.state().with_bytes(bytes) {
            Ok(Some(word)) => self.set(word.into(), filled(bytes).unwrap_or(Scalar::U64))?,
            Ok(None) => {}
            Err(limit) => return Err(self.fail(FaultKind::Limit, limit as u64, limit as u64 + 1)),
        }
        match bytes {
            Bytes::LoadSlot { .. } => state::bytes::charge_copy(self.input),
            _ => Ok(()),
        }
    }

    fn octets(&mut self, place: Place, (bound, overflow): (u32, &Overflow), frame: *mut u8) -> Done {
        let Place::At { offset, node } = place else { return Ok(()) };
        let target = (&*self.program.layout, node, frame.wrapping_add(offset as usize));
        let held = core::mem::take(&mut self.input.state().held);
        // SAFETY: the verifier found a sequence or array of octets at the place.
        let status = unsafe { set_octets(self.input, target, &held, (bound, overflow)) };
        self.input.state().held = held;
        status.ok()
    }
}

/// Stores octets in a sequence or array, up to its bound.
///
/// # Safety
/// At `at` is a live value of `node`, a sequence or array of octets, and nobody else refers to it.
pub(crate) unsafe fn set_octets(
    input: &mut Input<'_>,
    (layout, node, at): (&Layout, NodeId, *mut u8),
    bytes: &[u8],
    (bound, overflow): (u32, &Overflow),
) -> Status {
    // SAFETY: by the contract, at `at` is a live sequence or array of octets that nobody else
    // refers to.
    let mut elements = unsafe { Elements::new(layout, node, at, Scalar::U8) };
    match elements.spare(input, bytes.len()) {
        Ok(room) => room[..bytes.len()].copy_from_slice(bytes),
        Err(status) => return status,
    }
    elements.take(bytes.len());
    elements.finish(input, |count| decode::keep(count, bound, overflow).map_err(|()| bound))
}

/// Stores the bytes in hand in a string.
pub(super) fn set_held(input: &mut Input<'_>, string: &mut String) -> Status {
    let held = core::mem::take(&mut input.state().held);
    let status = match utf8::text(&held) {
        Ok(text) => input.set_text(string, text),
        // The deviation was reported or ignored before, by `Utf8`.
        Err(_) if input.state().is_lenient() => input.set_text(string, &String::from_utf8_lossy(&held)),
        Err(_) => input.fail(FaultKind::BadText, 0, 0),
    };
    input.state().held = held;
    status
}

impl encode::Run<'_, '_> {
    pub(super) fn bytes(&mut self, bytes: &Bytes, frame: *const u8) -> Done {
        match bytes {
            Bytes::Octets { place, bound, .. } => self.take_octets(*place, *bound, frame),
            Bytes::Put(form) => state::bytes::put(self.output, form),
            Bytes::Part { kernel, slot, initial, number } => {
                state::bytes::split(self.output, kernel, (*slot, initial, *number))
            }
            _ => match self.output.state().with_bytes(bytes) {
                Ok(Some(word)) => self.set(word.into(), filled(bytes).unwrap_or(Scalar::U64)),
                Ok(None) => Ok(()),
                Err(limit) => Err(self.fail(FaultKind::Limit, limit as u64, limit as u64 + 1)),
            },
        }
    }

    fn take_octets(&mut self, place: Place, bound: u32, frame: *const u8) -> Done {
        let (data, len, _) = self.elements(place, frame);
        self.hold(len, bound)?;
        // SAFETY: the verifier found the elements to be octets.
        self.output.state().hold(unsafe { core::slice::from_raw_parts(data, len) });
        Ok(())
    }
}
