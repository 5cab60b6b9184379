//! The bytes in hand: their forms on the wire, their slots, and their parts. The interpreter calls
//! this file; general machine code calls it through the interpreter. Direct functions
//! (`jit/stream/bytes.rs`) must give the same results. It touches the state, the input and the
//! output.

use alloc::vec::Vec;
use core::ops::Range;

use super::{
    super::{ByteSlot, Bytes, BytesForm, Coding, FaultKind, Input, Output, PartKernel, Status},
    EMPTY, State, UNDEFINED, integer,
};

/// The largest length of an inline string, which lies in its slot's word.
pub(crate) const MAX_INLINE: usize = 7;

type Done = Result<(), Status>;

impl State {
    /// The bytes of a slot, or `initial` if it has none.
    fn bytes_of<'s>(&'s self, slot: ByteSlot, initial: &'s [u8]) -> &'s [u8] {
        if self.tag(slot.slot) > EMPTY { self.text(slot.bytes) } else { initial }
    }

    /// Takes bytes in hand.
    pub(crate) fn hold(&mut self, bytes: &[u8]) {
        self.held.clear();
        self.held.extend_from_slice(bytes);
        self.taken = 0;
    }

    /// Takes the bytes in hand that `make` writes.
    fn hold_with<R>(&mut self, make: impl FnOnce(&State, &mut Vec<u8>) -> R) -> R {
        let mut held = core::mem::take(&mut self.held);
        let made = make(self, &mut held);
        (self.held, self.taken) = (held, 0);
        made
    }

    /// Stores the bytes in hand in a slot. The error is the limit that they would exceed.
    fn store_held(&mut self, slot: ByteSlot, kind: u8) -> Result<(), usize> {
        let held = core::mem::take(&mut self.held);
        let kept = self.set_text(slot.bytes, &held);
        self.held = held;
        kept.map(|()| self.set_tag(slot.slot, kind))
    }

    /// Runs the operations that are the same in both directions. Returns the new accumulator, if
    /// the operation fills it. The error is a limit that was exceeded.
    pub(crate) fn with_bytes(&mut self, bytes: &Bytes) -> Result<Option<u64>, usize> {
        match bytes {
            Bytes::Const(known) => self.hold(known),
            Bytes::LoadSlot { slot, initial } => self.hold_with(|state, held| {
                held.clear();
                held.extend_from_slice(state.bytes_of(*slot, initial));
            }),
            Bytes::StoreSlot { slot, kind } => self.store_held(*slot, *kind)?,
            Bytes::SlotHas { slot, kind, initial } => {
                let has = match self.tag(slot.slot) {
                    UNDEFINED => initial.as_deref() == Some(&self.held),
                    tag => tag == *kind && self.text(slot.bytes) == self.held,
                };
                return Ok(Some(has.into()));
            }
            Bytes::Equal(known) => return Ok(Some((**known == *self.held).into())),
            Bytes::Length => return Ok(Some(self.held.len() as u64)),
            _ => {}
        }
        Ok(None)
    }
}

/// Takes bytes in hand from the wire.
pub(crate) fn get(input: &mut Input<'_>, form: &BytesForm) -> Done {
    let is_there = match form.coding {
        Coding::StopBit => get_stop_bit(input, form)?,
        Coding::Counted => get_counted(input, form)?,
    };
    if !is_there {
        input.state().hold(&[]);
    }
    if let Some(there) = form.there {
        input.state().set_local(there, is_there.into());
    }
    Ok(())
}

fn get_counted(input: &mut Input<'_>, form: &BytesForm) -> Result<bool, Status> {
    let len = match (integer::unsigned(input, form.policy)?, form.there) {
        (0, Some(_)) => return Ok(false),
        (len, there) => len - u128::from(there.is_some()),
    };
    let Ok(len) = u32::try_from(len) else { return Err(input.fail(FaultKind::IntegerRange, 32, len as u64)) };
    let bytes = input.take(len as usize)?;
    input.state().hold(bytes);
    Ok(true)
}

fn get_stop_bit(input: &mut Input<'_>, form: &BytesForm) -> Result<bool, Status> {
    let rest = input.rest();
    let Some(last) = rest.iter().position(|byte| byte & 0x80 != 0) else {
        return Err(input.fail(FaultKind::Truncated, rest.len() as u64 + 1, rest.len() as u64));
    };
    let mut bytes = &rest[..=last];
    input.seek(input.position() + bytes.len());
    let zeros = bytes.iter().take_while(|byte| **byte & 0x7F == 0).count();
    if zeros > 0 {
        // Leading zeros are a preamble: alone they mean null, the empty string, or NULs.
        let nullable = form.there.is_some();
        if nullable && bytes.len() == 1 {
            return Ok(false);
        }
        if zeros < bytes.len() {
            input.deviate(FaultKind::OverlongText, form.policy, zeros as u64)?;
            bytes = &bytes[zeros..];
        } else {
            bytes = &bytes[1 + usize::from(nullable)..];
        }
    }
    let state = input.state();
    state.hold(bytes);
    if let Some(last) = state.held.last_mut() {
        *last &= 0x7F;
    }
    Ok(true)
}

/// Writes the bytes in hand to the wire.
pub(crate) fn put(output: &mut Output<'_>, form: &BytesForm) -> Done {
    let held = core::mem::take(&mut output.state().held);
    let status = match form.coding {
        Coding::StopBit => put_stop_bit(output, &held, form.there.is_some()),
        Coding::Counted => put_counted(output, &held, form.there.is_some()),
    };
    output.state().held = held;
    status
}

fn put_counted(output: &mut Output<'_>, bytes: &[u8], nullable: bool) -> Done {
    let Ok(len) = u32::try_from(bytes.len()) else {
        return Err(output.fail(FaultKind::IntegerRange, 32, bytes.len() as u64));
    };
    integer::put_unsigned(output, u128::from(len) + u128::from(nullable)).ok()?;
    output.put(bytes).ok()
}

fn put_stop_bit(output: &mut Output<'_>, bytes: &[u8], nullable: bool) -> Done {
    if let Some(byte) = bytes.iter().find(|byte| !byte.is_ascii()) {
        return Err(output.fail(FaultKind::NotAscii, 0x7F, (*byte).into()));
    }
    if bytes.first().is_none_or(|byte| *byte == 0) {
        // A leading NUL is read as a preamble, so only NULs may follow it.
        if bytes.iter().any(|byte| *byte != 0) {
            return Err(output.fail(FaultKind::NotEncodable, 0, 0));
        }
        for _ in 0..bytes.len() + usize::from(nullable) {
            output.put(&[0]).ok()?;
        }
        return output.put(&[0x80]).ok();
    }
    output.put(bytes).ok()?;
    if let Some(last) = output.written().last_mut() {
        *last |= 0x80;
    }
    Ok(())
}

/// Checks that the bytes in hand are UTF-8.
pub(crate) fn check_utf8(input: &mut Input<'_>, policy: super::Policy) -> Done {
    match core::str::from_utf8(&input.state().held) {
        Ok(_) => Ok(()),
        Err(_) => input.deviate(FaultKind::CombinedText, policy, 0),
    }
}

/// The operands of a part: the slot of the known bytes, its initial bytes, and the local of the
/// number.
pub(crate) type Beside<'p> = (ByteSlot, &'p [u8], u8);

/// Replaces the part in hand by the full bytes.
pub(crate) fn join(input: &mut Input<'_>, kernel: &PartKernel, (slot, initial, number): Beside<'_>) -> Done {
    let number = input.state().local(number) as i64;
    let joined = input.state().hold_with(|state, held| {
        let known = state.bytes_of(slot, initial);
        join_bytes(kernel, known, held, number).map_err(|()| known.len())
    });
    match joined {
        Ok(()) => charge_copy(input),
        Err(known) => Err(input.fail(FaultKind::Subtraction, known as u64, number as u64)),
    }
}

/// Charges for the bytes in hand, which are copied from a slot, because a few bytes of a message
/// may cause many to be copied. Bytes that fit the slot's word are free.
pub(crate) fn charge_copy(input: &mut Input<'_>) -> Done {
    let (len, left) = (input.state().held.len(), input.state().copies_left);
    if len <= MAX_INLINE {
        return Ok(());
    }
    match left.checked_sub(len) {
        Some(left) => {
            input.state().copies_left = left;
            Ok(())
        }
        None => {
            let limit = input.memory_limit();
            Err(input.fail(FaultKind::Limit, limit as u64, (limit.saturating_sub(left) + len) as u64))
        }
    }
}

/// Turns a part into the full bytes.
pub(crate) fn join_bytes(kernel: &PartKernel, known: &[u8], part: &mut Vec<u8>, number: i64) -> Result<(), ()> {
    let (front, back) = (kernel.join)(known.len(), part.len(), number).ok_or(())?;
    let front = known.get(..front).ok_or(())?;
    let back = known.len().checked_sub(back).ok_or(())?;
    part.splice(..0, front.iter().copied());
    part.extend_from_slice(&known[back..]);
    Ok(())
}

/// Reduces the bytes in hand to the part that is sent.
pub(crate) fn split(output: &mut Output<'_>, kernel: &PartKernel, (slot, initial, number): Beside<'_>) -> Done {
    let state = output.state();
    match split_bytes(kernel, state.bytes_of(slot, initial), &state.held) {
        Some((n, part)) => {
            state.held.truncate(part.end);
            state.held.drain(..part.start);
            state.set_local(number, n as u64);
            Ok(())
        }
        None => {
            let len = state.held.len() as u64;
            Err(output.fail(FaultKind::NotEncodable, 0, len))
        }
    }
}

/// The number and the part of `value`, relative to the known bytes.
pub(crate) fn split_bytes(kernel: &PartKernel, known: &[u8], value: &[u8]) -> Option<(i64, Range<usize>)> {
    (kernel.split)(known, value).filter(|(_, part)| part.start <= part.end && part.end <= value.len())
}

/// The next of the bytes in hand.
pub(crate) extern "C" fn take_octet(input: &mut Input<'_>, octet: &mut u64) -> Status {
    let state = input.state();
    let Some(next) = state.held.get(state.taken).copied() else {
        return input.fail(FaultKind::WrongKind, 0, 0);
    };
    state.taken += 1;
    *octet = next.into();
    Status::Ok
}
