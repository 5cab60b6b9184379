//! Programs as machine code, made by Cranelift. `exec.rs` calls [`compile`] once for each program,
//! and [`decode`], [`encode`] and their direct variants for each message.
//!
//! Each program has a *general* function, which works on a context (`Input` or `Output`), and
//! perhaps a *direct* one, which works on the bare bytes (`jit/direct.rs`). Both come from the same
//! walk over the operations (`ops`).
//!
//! Frequent operations are in line (runs, alignment, bounds, short strings, loops, branches). For
//! the others the code calls Rust: kernels, growth, and whole operations that the interpreter runs
//! (`shims`). What finds an error sets the fault: the called function, or code in line by a
//! function of `shims`. Then the code adds the operation's path and exits. Where code in line finds
//! only that something is wrong, as in a run with several checks, the interpreter runs the
//! operation again and sets the fault.
//!
//! Memory is never writable and executable at once: it is written, then made executable, then run.
//! It is unmapped when the last user of the [`Code`] is gone.

use alloc::{boxed::Box, string::String, sync::Arc, vec::Vec};
use core::ptr::NonNull;

use cranelift_codegen::{
    ir::{AbiParam, Signature, types},
    settings::{self, Configurable},
};
use cranelift_jit::{ArenaMemoryProvider, JITBuilder, JITModule};
use cranelift_module::{FuncId, Linkage, Module, default_libcall_names};

use super::{Input, Output, Program, State, Status, passes::part_count, state::specialised::Specialisation};

mod decimal;
mod decode;
mod direct;
mod emit;
mod encode;
mod fields;
mod forms;
mod join;
mod members;
mod ops;
mod scalars;
mod shims;
mod slots;
mod stop_bit;
mod stream;

pub(crate) use direct::direct_size;
pub(crate) use encode::SLACK;

/// The most operations and checked scalars of a program that is compiled; for larger ones compiling
/// takes too long.
const MAX_PARTS: usize = 1 << 14;

/// The most bytes of machine code that a program may have.
const MAX_CODE: usize = 8 << 20;

/// Addresses that are reserved for a program's code, with room for alignment. They take memory only
/// as far as there is code. Calls between its functions reach 2 GiB, so they must lie together.
const ROOM: usize = MAX_CODE + (1 << 20);

/// False if `POLYWIRE_JIT=off` is in the environment.
pub(crate) fn allowed() -> bool {
    std::env::var_os("POLYWIRE_JIT").is_none_or(|value| value != "off" && value != "0")
}

/// A program's machine code, and the program, whose operations and nodes it refers to.
pub(crate) struct Code {
    // Declared before the program, so that it is dropped first.
    module: Option<JITModule>,
    root: *const u8,
    direct: *const u8,
    /// Operations and layout nodes whose addresses are in the code.
    _program: Arc<Program>,
}

// SAFETY: the code is immutable once made and has no state of its own; only `drop` touches the
// module, through an exclusive reference.
unsafe impl Send for Code {}
// SAFETY: nothing is changed through a shared reference: the code is immutable, and only `drop`
// touches the module.
unsafe impl Sync for Code {}

type DecodeFn = unsafe extern "C" fn(*mut Input<'_>, *mut u8) -> u32;
type EncodeFn = unsafe extern "C" fn(*mut Output<'_>, *const u8) -> u32;
type DirectDecodeFn = unsafe extern "C" fn(*const u8, *mut u8, usize) -> usize;
type DirectEncodeFn = unsafe extern "C" fn(*mut u8, *const u8, usize) -> usize;
type StreamDecodeFn = unsafe extern "C" fn(*const u8, *mut u8, *const u8, *mut State) -> usize;
type StreamEncodeFn = unsafe extern "C" fn(*mut u8, *const u8, *mut u8, *mut State) -> usize;

impl Code {
    /// The address of the general function, for [`encode`] and [`decode`].
    pub(crate) fn entry(&self) -> *const u8 {
        self.root
    }

    /// The address of the direct function, for [`encode_direct`] and [`decode_direct`]; null if
    /// there is none.
    pub(crate) fn direct(&self) -> *const u8 {
        self.direct
    }
}

/// Runs a decode program.
///
/// # Safety
/// `entry` is the general function of a decode program's code, which is alive, and `value` is as
/// for [`interp::decode`](super::interp::decode).
#[inline]
pub(crate) unsafe fn decode(entry: NonNull<u8>, input: &mut Input<'_>, value: *mut u8) -> Status {
    // SAFETY: the code was compiled with this signature, for a verified program, and the caller
    // keeps its contract.
    let status = unsafe { core::mem::transmute::<NonNull<u8>, DecodeFn>(entry)(input, value) };
    if status == 0 { Status::Ok } else { Status::Failed }
}

/// Runs an encode program.
///
/// # Safety
/// `entry` is the general function of an encode program's code, which is alive, and `value` is as
/// for [`interp::encode`](super::interp::encode).
#[inline]
pub(crate) unsafe fn encode(entry: NonNull<u8>, output: &mut Output<'_>, value: *const u8) -> Status {
    // SAFETY: the code was compiled with this signature, for a verified program, and the caller
    // keeps its contract.
    let status = unsafe { core::mem::transmute::<NonNull<u8>, EncodeFn>(entry)(output, value) };
    if status == 0 { Status::Ok } else { Status::Failed }
}

/// Runs a decode program's direct function, and returns how many bytes it consumed. [`usize::MAX`]
/// is a bail-out: [`decode`] must process the message.
///
/// # Safety
/// `entry` is the direct function of a decode program's code, which is alive; `bytes` has at least
/// [`direct_size`] bytes, and `value` is as for [`decode`].
#[inline]
pub(crate) unsafe fn decode_direct(entry: NonNull<u8>, bytes: &[u8], value: *mut u8) -> usize {
    // SAFETY: the code was compiled with this signature, for a verified program, and the caller
    // keeps its contract.
    unsafe { core::mem::transmute::<NonNull<u8>, DirectDecodeFn>(entry)(bytes.as_ptr(), value, bytes.len()) }
}

/// Runs an encode program's direct function, and returns how many bytes it wrote, all of which are
/// initialised. [`usize::MAX`] is a bail-out: [`encode`] must process the value, and the bytes
/// written are to be discarded.
///
/// # Safety
/// `entry` is the direct function of an encode program's code, which is alive; `room` bytes are
/// writable at `bytes`, at least [`direct_size`], and `value` is as for [`encode`].
#[inline]
pub(crate) unsafe fn encode_direct(entry: NonNull<u8>, bytes: *mut u8, room: usize, value: *const u8) -> usize {
    // SAFETY: the code was compiled with this signature, for a verified program, and the caller
    // keeps its contract.
    unsafe { core::mem::transmute::<NonNull<u8>, DirectEncodeFn>(entry)(bytes, value, room) }
}

/// The same as [`decode_direct`], for a program with a bank. After a bail-out the caller must roll
/// the state back.
///
/// # Safety
/// The contract of the function for programs without a bank, and the state is specialised for the
/// program.
#[inline]
pub(crate) unsafe fn decode_stream(entry: NonNull<u8>, bytes: &[u8], value: *mut u8, state: &mut State) -> usize {
    let ends = bytes.as_ptr_range();
    // SAFETY: the code was compiled with this signature, for a verified program, and the caller
    // keeps its contract.
    unsafe { core::mem::transmute::<NonNull<u8>, StreamDecodeFn>(entry)(ends.start, value, ends.end, state) }
}

/// The same as [`encode_direct`], for a program with a bank. After a bail-out the caller must roll
/// the state back.
///
/// # Safety
/// The contract of the function for programs without a bank, and the state is specialised for the
/// program.
#[inline]
pub(crate) unsafe fn encode_stream(
    entry: NonNull<u8>,
    bytes: *mut u8,
    room: usize,
    value: *const u8,
    state: &mut State,
) -> usize {
    // SAFETY: the code was compiled with this signature, for a verified program, and the caller
    // keeps its contract.
    unsafe { core::mem::transmute::<NonNull<u8>, StreamEncodeFn>(entry)(bytes, value, bytes.add(room), state) }
}

impl Drop for Code {
    fn drop(&mut self) {
        if let Some(module) = self.module.take() {
            // SAFETY: every caller of the code holds a reference to this `Code`, and there is none
            // left.
            unsafe { module.free_memory() };
        }
    }
}

/// Makes machine code of a verified program.
pub(crate) fn compile(program: &Arc<Program>) -> Result<Code, String> {
    if size_of::<usize>() != 8 {
        return Err("machine code is made for 64-bit hosts only".into());
    }
    if part_count(program) > MAX_PARTS {
        return Err("the program has too many operations".into());
    }
    let mut module = JITModule::new(builder()?);
    match define(&mut module, program) {
        Ok((root, direct)) => {
            let root = module.get_finalized_function(root);
            let direct = direct.map_or(core::ptr::null(), |direct| module.get_finalized_function(direct));
            Ok(Code { module: Some(module), root, direct, _program: program.clone() })
        }
        Err(error) => {
            // SAFETY: compilation failed, so no code of the module was handed out or run.
            unsafe { module.free_memory() };
            Err(error)
        }
    }
}

fn builder() -> Result<JITBuilder, String> {
    let mut flags = settings::builder();
    let settings = [
        ("opt_level", "speed"),
        ("enable_verifier", "false"),
        ("unwind_info", "false"),
        // A stack frame larger than a page touches each of its pages, so that it cannot skip the
        // guard page.
        ("enable_probestack", "true"),
        ("probestack_strategy", "inline"),
    ];
    for (name, value) in settings {
        flags.set(name, value).map_err(|error| error.to_string())?;
    }
    let isa = cranelift_native::builder().map_err(String::from)?;
    let isa = isa.finish(settings::Flags::new(flags)).map_err(|error| error.to_string())?;
    let mut builder = JITBuilder::with_isa(isa, default_libcall_names());
    let memory = ArenaMemoryProvider::new_with_size(ROOM).map_err(|error| error.to_string())?;
    builder.memory_provider(Box::new(memory));
    Ok(builder)
}

/// The specialised state that the direct function of a program with a bank expects; none if there
/// is no such function.
pub(crate) fn specialised(program: &Program) -> Option<Specialisation> {
    stream::Eligibility::of(program).map(stream::Eligibility::specialised)
}

/// Compiles the root and all routines. Returns the root's general function, and its direct function
/// if it has one.
fn define(module: &mut JITModule, program: &Arc<Program>) -> Result<(FuncId, Option<FuncId>), String> {
    let signatures = [false, true].map(|direct| block_signature(module, direct, program.bank.is_some()));
    let mut declare = |name: &str, direct: bool| {
        module
            .declare_function(name, Linkage::Local, &signatures[usize::from(direct)])
            .map_err(|error| error.to_string())
    };
    let functions = (0..program.routines.len()).map(|i| declare(&alloc::format!("routine{i}"), false));
    let functions = functions.collect::<Result<Vec<FuncId>, String>>()?;
    let root = declare("root", false)?;
    let mut direct = direct_size(program).map(|_| declare("direct", true)).transpose()?;
    let routines = program.routines.iter().map(|r| &r.block).zip(functions.iter().copied());
    let roots = [Some(root), direct].into_iter().flatten().map(|function| (&program.root, function));
    let mut bytes = 0;
    for (block, function) in routines.chain(roots) {
        let is_direct = direct == Some(function);
        match emit::function(module, program, block, function, &functions, is_direct)? {
            Some(length) => bytes += length,
            None => direct = None,
        }
        if bytes > MAX_CODE {
            return Err("the machine code is too long".into());
        }
    }
    module.finalize_definitions().map_err(|error| error.to_string())?;
    Ok((root, direct))
}

/// The signature of a block's function. General: (input or output, frame) -> status. Direct: (first
/// byte, frame, bytes) -> bytes. Direct, with a bank: (first byte, frame, end, state) -> bytes.
fn block_signature(module: &JITModule, direct: bool, stateful: bool) -> Signature {
    let mut signature = module.make_signature();
    let count = if direct { 3 + usize::from(stateful) } else { 2 };
    signature.params.extend((0..count).map(|_| AbiParam::new(types::I64)));
    signature.returns.push(AbiParam::new(if direct { types::I64 } else { types::I32 }));
    signature
}
