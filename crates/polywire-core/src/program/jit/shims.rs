//! Rust functions that machine code calls, general code and direct code alike.
//! `jit/stream/calls.rs` has those for the bytes in hand.
//!
//! Only code of verified programs calls them. It passes contexts that nobody else refers to during
//! the call, operations and layout nodes that live as long as the code, and places in live values.
//! None of the functions unwinds.

use alloc::string::String;

use crate::{
    layout::{EnumNode, Kind, NodeId, Scalar, text_at},
    program::{
        Bytes, Check, FaultKind, Input, Limits, Op, OpKind, Output, PathId, Place, Program, ScalarKernel, State,
        Status, TextKernel,
        interp::{self, DecodeRun, bytes::set_octets, op as interpret},
        kernels::utf8,
    },
};

pub(super) unsafe extern "C" fn name_input(input: *mut Input<'_>, path: u64) {
    // SAFETY: machine code passes its own input, which nobody else refers to during the call.
    unsafe { (*input).blame(PathId(path as u32)) }
}

pub(super) unsafe extern "C" fn name_output(output: *mut Output<'_>, path: u64) {
    // SAFETY: machine code passes its own output, which nobody else refers to during the call.
    unsafe { (*output).blame(PathId(path as u32)) }
}

pub(super) unsafe extern "C" fn index_input(input: *mut Input<'_>, index: u64) {
    // SAFETY: machine code passes its own input, which nobody else refers to during the call.
    unsafe { (*input).blame_element(index as u32) }
}

pub(super) unsafe extern "C" fn index_output(output: *mut Output<'_>, index: u64) {
    // SAFETY: machine code passes its own output, which nobody else refers to during the call.
    unsafe { (*output).blame_element(index as u32) }
}

pub(super) unsafe extern "C" fn truncated(input: *mut Input<'_>, wanted: u64) {
    // SAFETY: machine code passes its own input, which nobody else refers to during the call.
    let input = unsafe { &mut *input };
    let left = input.remaining() as u64;
    let _ = input.fail(FaultKind::Truncated, wanted, left);
}

pub(super) unsafe extern "C" fn fail_input(input: *mut Input<'_>, kind: u64, expected: u64, got: u64) -> Status {
    // SAFETY: machine code passes its own input, and the number of a `FaultKind`.
    unsafe { (*input).fail(core::mem::transmute::<u32, FaultKind>(kind as u32), expected, got) }
}

pub(super) unsafe extern "C" fn fail_output(output: *mut Output<'_>, kind: u64, expected: u64, got: u64) -> Status {
    // SAFETY: machine code passes its own output, and the number of a `FaultKind`.
    unsafe { (*output).fail(core::mem::transmute::<u32, FaultKind>(kind as u32), expected, got) }
}

pub(super) unsafe extern "C" fn too_deep_input(input: *mut Input<'_>, levels: u64) -> Status {
    // SAFETY: machine code passes its own input, which nobody else refers to during the call.
    unsafe { (*input).enter_levels(levels as u32) }
}

pub(super) unsafe extern "C" fn too_deep_output(output: *mut Output<'_>, levels: u64) -> Status {
    // SAFETY: machine code passes its own output, which nobody else refers to during the call.
    unsafe { (*output).enter_levels(levels as u32) }
}

pub(super) unsafe extern "C" fn grow(output: *mut Output<'_>, n: u64) -> Status {
    // SAFETY: machine code passes its own output, which nobody else refers to during the call.
    unsafe { (*output).reserve(n as usize) }
}

pub(super) unsafe extern "C" fn copy(from: *const u8, to: *mut u8, len: u64) {
    // SAFETY: machine code has checked bounds and room, and message and value do not overlap.
    unsafe { core::ptr::copy_nonoverlapping(from, to, len as usize) }
}

/// Decodes a string of CDR into one that has the capacity. Returns its bytes in the message, or 0
/// if there is no such string.
pub(super) unsafe extern "C" fn get_counted_nul(
    string: *mut String,
    at: *const u8,
    left: u64,
    is_little: u64,
    longest: u64,
) -> u64 {
    // SAFETY: direct code passes a string of the value that it decodes, and the rest of its
    // message, of `left` bytes.
    let (string, rest) = unsafe { (&mut *string, core::slice::from_raw_parts(at, left as usize)) };
    let Some((head, rest)) = rest.split_first_chunk() else { return 0 };
    let count = if is_little != 0 { u32::from_le_bytes(*head) } else { u32::from_be_bytes(*head) };
    let Some([text @ .., 0]) = rest.get(..count as usize) else { return 0 };
    match utf8::text(text) {
        Ok(text) if text.len() <= string.capacity() && text.len() as u64 <= longest => {
            string.clear();
            string.push_str(text);
            u64::from(count) + head.len() as u64
        }
        _ => 0,
    }
}

pub(super) unsafe extern "C" fn decode_op(
    input: *mut Input<'_>,
    program: *const Program,
    op: *const Op,
    frame: *mut u8,
    accumulator: *mut u64,
    scalar: u64,
) -> Status {
    // SAFETY: machine code passes its own input, program and operation, which live as long as the
    // code, the operation's frame, a word of its stack frame, and the number of a `Scalar`.
    unsafe {
        let scalar = core::mem::transmute::<u8, Scalar>(scalar as u8);
        interpret::decode(&*program, &*op, &mut *input, frame, &mut *accumulator, scalar)
    }
}

pub(super) unsafe extern "C" fn encode_op(
    output: *mut Output<'_>,
    program: *const Program,
    op: *const Op,
    frame: *const u8,
    index: u64,
    accumulator: *mut u64,
) -> Status {
    // SAFETY: machine code passes its own output, program and operation, which live as long as the
    // code, the operation's frame, and a word of its stack frame.
    unsafe { interpret::encode(&*program, &*op, &mut *output, frame, index, &mut *accumulator) }
}

/// The same as [`decode_op`], for direct code. The bytes from `at` to `end` are the rest of the
/// message. Returns the end of the operation's bytes, or null on failure.
pub(super) unsafe extern "C" fn decode_fallback(
    state: *mut State,
    program: *const Program,
    op: *const Op,
    frame: *mut u8,
    mut accumulator: u64,
    scalar: u64,
    at: *const u8,
    end: *const u8,
) -> *const u8 {
    // SAFETY: machine code passes its state, the operation with its frame, and both ends of the
    // rest of one message. The caller of the direct function keeps the limits at `limits_at` alive.
    unsafe {
        let rest = core::slice::from_raw_parts(at, end.offset_from(at) as usize);
        (*state).keep_tags();
        specialised_input(state, rest, |input| {
            input.state = Some(&mut *state);
            let status = decode_op(input, program, op, frame, &raw mut accumulator, scalar);
            if status == Status::Ok { at.add(input.position()) } else { core::ptr::null() }
        })
    }
}

/// The same as [`encode_op`], for direct code. Writes at most `room` bytes at `at`. Returns their
/// end, or null on failure.
pub(super) unsafe extern "C" fn encode_fallback(
    state: *mut State,
    program: *const Program,
    op: *const Op,
    frame: *const u8,
    index: u64,
    at: *mut u8,
    room: u64,
) -> *mut u8 {
    // SAFETY: machine code passes its state, the operation with its frame, and `room` writable
    // bytes at `at`. The caller of the direct function keeps the limits at `limits_at` alive.
    unsafe {
        let limits = &*((*state).limits_at as *const Limits);
        let mut bytes = core::mem::take(&mut (*state).fallback);
        bytes.clear();
        (*state).keep_tags();
        let mut output = Output::new(&mut bytes, limits);
        output.state = Some(&mut *state);
        let mut accumulator = 0;
        let status = encode_op(&raw mut output, program, op, frame, index, &raw mut accumulator);
        let status = output.finish(status);
        let fits = status == Status::Ok && bytes.len() as u64 <= room;
        if fits {
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len());
        }
        let behind = if fits { at.add(bytes.len()) } else { core::ptr::null_mut() };
        (*state).fallback = bytes;
        behind
    }
}

/// 1 if the value is no literal.
pub(super) unsafe extern "C" fn no_literal(value: i64, node: *const EnumNode) -> u64 {
    // SAFETY: machine code passes an enum of the layout, which lives as long as the code.
    u64::from(!interp::is_literal(unsafe { &*node }, i128::from(value)))
}

/// Applies a check to the word; 1 if it must be refused.
pub(super) unsafe extern "C" fn check_word(
    program: *const Program,
    check: *const Check,
    word: *mut u64,
    scalar: u64,
) -> u64 {
    // SAFETY: machine code passes its program and a check in it, a word of its stack frame, and the
    // number of a `Scalar`.
    unsafe {
        let scalar = core::mem::transmute::<u8, Scalar>(scalar as u8);
        match interp::check(&(*program).layout, &*check, interp::from_word(*word, scalar)) {
            Ok(value) => {
                *word = value as u64;
                0
            }
            Err(_) => 1,
        }
    }
}

/// Converts the word; 1 if it does not fit.
pub(super) unsafe extern "C" fn convert_word(word: *mut u64, from: u64, to: u64) -> u64 {
    // SAFETY: machine code passes a word of its stack frame, and the numbers of two `Scalar`s.
    unsafe {
        let [from, to] = [from, to].map(|s| core::mem::transmute::<u8, Scalar>(s as u8));
        match interp::convert(interp::from_word(*word, from), from, to) {
            Ok(value) => {
                *word = value as u64;
                0
            }
            Err(_) => 1,
        }
    }
}

pub(super) unsafe extern "C" fn get_wide(input: *mut Input<'_>, kernel: *const ScalarKernel, to: *mut u128) -> Status {
    // SAFETY: machine code passes its own input, a kernel, which lives forever, and sixteen bytes
    // of its stack frame.
    unsafe {
        let Some(wide) = &(*kernel).wide else { return (*input).fail(FaultKind::WrongKind, 0, 0) };
        match (wide.get)(&mut *input) {
            Ok(value) => {
                to.write_unaligned(value);
                Status::Ok
            }
            Err(status) => status,
        }
    }
}

pub(super) unsafe extern "C" fn put_wide(
    output: *mut Output<'_>,
    kernel: *const ScalarKernel,
    low: u64,
    high: u64,
) -> Status {
    // SAFETY: machine code passes its own output, and a kernel, which lives forever.
    unsafe {
        let Some(wide) = &(*kernel).wide else { return (*output).fail(FaultKind::Unrepresentable, 0, 0) };
        (wide.put)(&mut *output, u128::from(high) << 64 | u128::from(low))
    }
}

/// Reads a string as a codec's function does; `string` is null for none.
pub(super) unsafe extern "C" fn get_text(
    input: *mut Input<'_>,
    kernel: *const TextKernel,
    string: *mut String,
) -> Status {
    // SAFETY: machine code passes its own input, a kernel, and null or a string of the value that
    // it decodes.
    unsafe { ((*kernel).get)(&mut *input, string.as_mut()) }
}

/// Writes a string as a codec's function does.
pub(super) unsafe extern "C" fn put_text(
    output: *mut Output<'_>,
    kernel: *const TextKernel,
    string: *const String,
) -> Status {
    // SAFETY: machine code passes its own output, a kernel, and a string of the value that it
    // encodes.
    unsafe { ((*kernel).put)(&mut *output, &*string) }
}

/// Checks a count, makes room for `count` elements, and stores the address of the first.
pub(super) unsafe extern "C" fn sequence_begin(
    input: *mut Input<'_>,
    program: *const Program,
    op: *const Op,
    sequence: *mut u8,
    count: u64,
    first: *mut *mut u8,
) -> Status {
    // SAFETY: machine code passes its own input, program and operation, which live as long as the
    // code, the sequence at the operation's place, or for a sink any address, and a word of its
    // stack frame.
    unsafe { Status::give(begin(&mut *input, &*program, &*op, sequence, count), &mut *first) }
}

/// # Safety
/// `sequence` is the live sequence at the operation's place, or for a sink anything.
unsafe fn begin(
    input: &mut Input<'_>,
    program: &Program,
    op: &Op,
    sequence: *mut u8,
    count: u64,
) -> Result<*mut u8, Status> {
    let OpKind::Sequence { place, bound, overflow, min_wire, .. } = &op.kind else {
        unreachable!("only called for sequences")
    };
    let (mut run, limits) = (DecodeRun::new(program, input, count, Scalar::U64), (*bound, overflow, *min_wire));
    // SAFETY: `sequence` is as the run expects by the contract.
    unsafe { run.begin_sequence(*place, limits, sequence).map(|(_, first)| first) }
}

/// A run of the interpreter for a part of an operation, which does not use the accumulator.
fn resume<'r, 'a>(program: &'r Program, input: &'r mut Input<'a>) -> DecodeRun<'r, 'a> {
    DecodeRun::new(program, input, 0, Scalar::U64)
}

/// Makes a temporary `Input` for a message of direct code, with the rest of its bytes, its limits
/// and its memory budget, and calls `run` with it.
///
/// # Safety
/// `state` is valid, and the limits at its `limits_at` are alive. Nobody else refers to the state
/// during the call, except through the input that `run` is given.
unsafe fn specialised_input<R>(state: *mut State, rest: &[u8], run: impl FnOnce(&mut Input<'_>) -> R) -> R {
    // SAFETY: the state and the limits are valid by the contract. No reference to the state is held
    // while `run` runs, so `run` may put it into the input.
    unsafe {
        let mut input = Input::new(rest, &*((*state).limits_at as *const Limits));
        input.memory_left = (*state).memory_left;
        let result = run(&mut input);
        (*state).memory_left = input.memory_left;
        result
    }
}

/// The same as [`sequence_begin`], for direct code. The `left` bytes at `at` are the rest of the
/// message. Returns the first element, or null on failure.
pub(super) unsafe extern "C" fn resize(
    state: *mut State,
    program: *const Program,
    op: *const Op,
    sequence: *mut u8,
    count: u64,
    at: *const u8,
    left: u64,
) -> *mut u8 {
    // SAFETY: machine code passes its state, the `left` readable bytes at `at`, its program and
    // operation, which live as long as the code, and the sequence at the operation's place.
    let first = unsafe {
        let rest = core::slice::from_raw_parts(at, left as usize);
        specialised_input(state, rest, |input| begin(input, &*program, &*op, sequence, count))
    };
    first.unwrap_or(core::ptr::null_mut())
}

/// For direct code: stores octets in a sequence or array. Returns 1, or 0 on failure.
pub(super) unsafe extern "C" fn set_octets_specialised(
    state: *mut State,
    program: *const Program,
    op: *const Op,
    at: *mut u8,
    data: *const u8,
    len: u64,
) -> u64 {
    // SAFETY: machine code passes its state, its program and operation, which live as long as the
    // code, `len` readable bytes at `data`, and the sequence or array at the operation's place.
    unsafe {
        let (program, op) = (&*program, &*op);
        let OpKind::Bytes(Bytes::Octets { place: Place::At { node, .. }, bound, overflow }) = &op.kind else {
            return 0;
        };
        let bytes = core::slice::from_raw_parts(data, len as usize);
        let target = (&*program.layout, *node, at);
        let status = specialised_input(state, &[], |input| set_octets(input, target, bytes, (*bound, overflow)));
        u64::from(status == Status::Ok)
    }
}

/// Cuts a sequence to those of `count` elements that its bound keeps, or refuses an incomplete
/// array.
pub(super) unsafe extern "C" fn sequence_end(
    input: *mut Input<'_>,
    program: *const Program,
    op: *const Op,
    sequence: *mut u8,
    count: u64,
) -> Status {
    // SAFETY: machine code passes its own input, program and operation, which live as long as the
    // code.
    let (input, program, op) = unsafe { (&mut *input, &*program, &*op) };
    let OpKind::Sequence { place, bound, overflow, .. } = &op.kind else { unreachable!("only called for sequences") };
    // SAFETY: machine code passes the sequence or array at the operation's place, or for a sink any
    // address.
    unsafe { Status::of(resume(program, input).end_sequence(*place, (*bound, overflow), sequence, count as usize)) }
}

/// Stores the address of the element with an index that the dialect has announced. Grows the
/// sequence if necessary.
pub(super) unsafe extern "C" fn element_at(
    input: *mut Input<'_>,
    program: *const Program,
    op: *const Op,
    sequence: *mut u8,
    index: u64,
    element: *mut *mut u8,
) -> Status {
    // SAFETY: machine code passes its own input, program and operation, which live as long as the
    // code.
    let (input, program, op) = unsafe { (&mut *input, &*program, &*op) };
    let OpKind::Sequence { place, bound, overflow, .. } = &op.kind else { unreachable!("only called for sequences") };
    let bound = (*bound, overflow);
    // SAFETY: machine code passes the sequence or array at the operation's place, or for a sink any
    // address, and a word of its stack frame.
    unsafe { Status::give(resume(program, input).element_at(*place, bound, sequence, index as usize), &mut *element) }
}

pub(super) unsafe extern "C" fn set_some(
    input: *mut Input<'_>,
    program: *const Program,
    node: u64,
    optional: *mut u8,
    value: *mut *mut u8,
) -> Status {
    // SAFETY: machine code passes its own input and program, a live optional of the node, and a
    // word of its stack frame.
    unsafe { Status::give(resume(&*program, &mut *input).set_some(NodeId(node as u32), optional), &mut *value) }
}

/// The same for direct code. Returns the value, or null on failure.
pub(super) unsafe extern "C" fn set_some_specialised(
    state: *mut State,
    program: *const Program,
    node: u64,
    optional: *mut u8,
) -> *mut u8 {
    // SAFETY: machine code passes its state and program, and a live optional of the node.
    let value = unsafe {
        specialised_input(state, &[], |input| resume(&*program, input).set_some(NodeId(node as u32), optional))
    };
    value.unwrap_or(core::ptr::null_mut())
}

pub(super) unsafe extern "C" fn set_none(kind: *const Kind, optional: *mut u8) {
    // SAFETY: machine code passes a node of the layout, and a live optional of it.
    unsafe {
        let Kind::Optional(node) = &*kind else { unreachable!("only called for optionals") };
        node.access.set_none(optional);
    }
}

pub(super) unsafe extern "C" fn get_some(kind: *const Kind, optional: *const u8) -> *const u8 {
    // SAFETY: machine code passes a node of the layout, and a live optional of it.
    unsafe {
        let Kind::Optional(node) = &*kind else { unreachable!("only called for optionals") };
        node.access.get(optional)
    }
}

pub(super) unsafe extern "C" fn unbox_mut(kind: *const Kind, boxed: *mut u8) -> *mut u8 {
    // SAFETY: machine code passes a node of the layout, and a live pointer of it.
    unsafe {
        let Kind::Boxed(node) = &*kind else { unreachable!("only called for pointers") };
        node.access.get_mut(boxed)
    }
}

pub(super) unsafe extern "C" fn unbox(kind: *const Kind, boxed: *const u8) -> *const u8 {
    // SAFETY: machine code passes a node of the layout, and a live pointer of it.
    unsafe {
        let Kind::Boxed(node) = &*kind else { unreachable!("only called for pointers") };
        node.access.get(boxed)
    }
}

pub(super) unsafe extern "C" fn select(
    input: *mut Input<'_>,
    program: *const Program,
    node: u64,
    union: *mut u8,
    discriminator: i64,
    case: i64,
    value: *mut *mut u8,
) -> Status {
    // SAFETY: machine code passes its own input and program, a live union of the node, and a word
    // of its stack frame.
    unsafe {
        let (node, case) = (NodeId(node as u32), u32::try_from(case).ok());
        Status::give(resume(&*program, &mut *input).set_case(node, union, discriminator, case), &mut *value)
    }
}

/// The same for direct code. Returns the value, or null on failure.
pub(super) unsafe extern "C" fn select_specialised(
    state: *mut State,
    program: *const Program,
    node: u64,
    union: *mut u8,
    discriminator: i64,
    case: i64,
) -> *mut u8 {
    let (node, case) = (NodeId(node as u32), u32::try_from(case).ok());
    // SAFETY: machine code passes its state and program, and a live union of the node.
    let value = unsafe {
        specialised_input(state, &[], |input| resume(&*program, input).set_case(node, union, discriminator, case))
    };
    value.unwrap_or(core::ptr::null_mut())
}

/// The content of a union: discriminator, case (-1 for none) and value.
#[repr(C)]
pub(super) struct Selection {
    pub discriminator: i64,
    pub case: i64,
    pub value: *const u8,
}

pub(super) unsafe extern "C" fn selected(kind: *const Kind, union: *const u8, to: *mut Selection) {
    // SAFETY: machine code passes a node of the layout, a live union of it, and a `Selection` in
    // its stack frame.
    unsafe {
        let Kind::Union(node) = &*kind else { unreachable!("only called for unions") };
        let selected = node.access.get(union);
        let case = selected.case.map_or(-1, i64::from);
        to.write(Selection { discriminator: selected.discriminator, case, value: selected.value });
    }
}

/// Stores the first element and the number of elements: bytes of a string, or entries of a map.
pub(super) unsafe extern "C" fn slice(kind: *const Kind, at: *const u8, to: *mut [u64; 2]) {
    // SAFETY: machine code passes a node of the layout, a live value of it, and two words of its
    // stack frame.
    unsafe {
        let (data, len) = match &*kind {
            Kind::Sequence(node) => node.access.slice(at),
            Kind::Map(node) => (at, node.access.len(at)),
            Kind::String { shared, .. } => {
                let text = text_at(*shared, at);
                (text.as_ptr(), text.len())
            }
            _ => unreachable!("only called for what has a length"),
        };
        to.write([data as u64, len as u64]);
    }
}
