//! Fields with operators: what the interpreter does for them, and machine code leaves to it.

use alloc::string::String;

use super::{Failed, decode, encode, ok};
use crate::{
    layout::{Kind, Layout, NodeId, Scalar},
    program::{Elements, FaultKind, Field, Input, Overflow, Place, Status, state},
};

type Done = Result<(), Failed>;

impl decode::Run<'_, '_> {
    pub(super) fn test_field(&mut self, field: &Field) -> Done {
        let there = state::get(self.input, field).map_err(|_| Failed)?;
        self.set(i128::from(there), Scalar::Bool);
        Ok(())
    }

    pub(super) fn octets(
        &mut self,
        place: Place,
        field: Option<&Field>,
        (bound, overflow): (u32, &Overflow),
        frame: *mut u8,
    ) -> Done {
        if let Some(field) = field {
            ok(get_pending(self.input, field))?;
        }
        let Place::At { offset, node } = place else { return Ok(()) };
        let target = (&*self.program.layout, node, frame.wrapping_add(offset as usize));
        let pending = core::mem::take(&mut self.input.state().pending);
        // SAFETY: the verifier found a sequence or array of octets at the place.
        let status = unsafe { set_octets(self.input, target, &pending, (bound, overflow)) };
        self.input.state().pending = pending;
        ok(status)
    }
}

/// Gives a sequence or array its octets, as many of them as it may have.
///
/// # Safety
/// It is a live value of the node, one of octets, and nobody else refers to it.
pub(crate) unsafe fn set_octets(
    input: &mut Input<'_>,
    (layout, node, at): (&Layout, NodeId, *mut u8),
    bytes: &[u8],
    (bound, overflow): (u32, &Overflow),
) -> Status {
    // SAFETY: by the contract, a live value of the node, one of octets, is at `at`, and is ours
    // alone.
    let mut elements = unsafe { Elements::new(layout, node, at, Scalar::U8) };
    match elements.spare(input, bytes.len()) {
        Ok(room) => room[..bytes.len()].copy_from_slice(bytes),
        Err(status) => return status,
    }
    elements.take(bytes.len());
    elements.finish(input, |count| decode::keep(count, bound, overflow).map_err(|()| bound))
}

/// Reads a mandatory string, or bytes.
pub(super) fn get_pending(input: &mut Input<'_>, field: &Field) -> Status {
    match state::get(input, field) {
        Ok(true) => Status::Ok,
        Ok(false) => input.fail(FaultKind::MissingMember, 0, 0),
        Err(status) => status,
    }
}

/// Puts the pending bytes into a string.
pub(super) fn set_pending(input: &mut Input<'_>, string: &mut String) -> Status {
    let pending = core::mem::take(&mut input.state().pending);
    let status = match core::str::from_utf8(&pending) {
        Ok(text) => input.set_text(string, text),
        // Somebody was told, or did not want to be.
        Err(_) if input.state().is_lenient() => input.set_text(string, &String::from_utf8_lossy(&pending)),
        Err(_) => input.fail(FaultKind::BadText, 0, 0),
    };
    input.state().pending = pending;
    status
}

impl encode::Run<'_, '_> {
    pub(super) fn put_octets(&mut self, place: Place, field: &Field, bound: u32, frame: *const u8) -> Done {
        let (at, node) = encode::at(place, frame);
        let (data, len) = match &self.program.layout.node(node).kind {
            // SAFETY: the verifier found the sequence at the place.
            Kind::Sequence(sequence) => unsafe { sequence.access.slice(at) },
            Kind::Array { len, .. } => (at, *len as usize),
            _ => unreachable!("the verifier admits sequences and arrays only"),
        };
        self.hold(len, bound)?;
        // SAFETY: the verifier found the elements to be octets.
        let bytes = unsafe { core::slice::from_raw_parts(data, len) };
        ok(state::put(self.output, field, Some(bytes)))
    }
}
