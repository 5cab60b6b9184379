//! A verified program with the back end that runs it: [`Executable`]. Encoders and decoders
//! (`codec/coder.rs`) call it for each message. It chooses what runs (`exec/tier.rs`), prepares
//! input, output and state, and restores them after an error.

#[cfg(feature = "jit")]
mod direct;
#[cfg(feature = "jit")]
mod tier;

use alloc::{boxed::Box, sync::Arc, vec::Vec};
#[cfg(feature = "jit")]
use core::{ptr::NonNull, sync::atomic::AtomicUsize};

use super::{
    Direction, FaultKind, Program, State, Status,
    adapter::{Adapter, Events},
    idle::Idle,
    interp,
    io::{CodecError, Input, Limits, Output},
    passes,
    payload::{Decoded, Payload},
    verify::{VerifyError, verify},
};
use crate::layout::Growth;

/// Which back end runs a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// Machine code where it can be made, else the interpreter. `POLYWIRE_JIT=off` in the
    /// environment forbids machine code.
    #[default]
    Auto,
    /// The interpreter, unless [`Executable::compile`] is called later.
    Interpreter,
    /// Machine code, or an error.
    Jit,
}

/// Why a program cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExecError {
    /// The verifier refused the program: a bug in the codec that made it.
    #[error(transparent)]
    Refused(#[from] VerifyError),
    /// [`Backend::Jit`] was asked for, and machine code cannot be made: the build or the platform
    /// has none, or the environment forbids it. [`Backend::Auto`] uses the interpreter then.
    #[error("no machine code: {0}")]
    NoJit(alloc::string::String),
}

/// The largest room that is reserved ahead for a message.
#[cfg(feature = "jit")]
const MAX_AHEAD: usize = 1 << 11;

/// A program ready to run. It is cheap to clone. It has no state, so any number of threads may run
/// it at once.
///
/// ```
/// use polywire_core::codec::{self, Options};
/// use polywire_core::layout::Message;
/// use polywire_core::program::{Backend, ExecError, Executable, Limits};
///
/// #[derive(polywire_derive::Message)]
/// struct Pump { id: u32 }
/// let (cdr, shape) = (codec::find("cdr").unwrap(), Pump::shape());
/// let program = cdr.lower_encode(&Options::default(), shape.schema(), shape.layout()).unwrap();
/// let executable = Executable::prepared(program.prepared(), Backend::Interpreter)?;
/// executable.compile(); // goes on as machine code, where that is to be had
/// let mut bytes = Vec::new();
/// let pump = Pump { id: 7 };
/// // SAFETY: the program is one for the layout of `Pump`.
/// unsafe { executable.encode(std::ptr::from_ref(&pump).cast(), &mut bytes, &Limits::default()) }.unwrap();
/// assert_eq!((bytes.as_slice(), executable.program().paths.contains(&"id".to_string())), (&[7, 0, 0, 0][..], true));
/// println!("machine code: {}", executable.is_machine_code());
/// # Ok::<(), ExecError>(())
/// ```
#[derive(Clone)]
pub struct Executable(Arc<Inner>);

struct Inner {
    program: Arc<Program>,
    /// A spare state for messages that stand alone.
    idle: Idle,
    /// A copy of the program's adapter, to avoid an indirection.
    adapter: Option<&'static Adapter>,
    #[cfg(feature = "jit")]
    code: std::sync::OnceLock<Option<super::jit::Code>>,
    /// Which function of `code` runs a message, if any.
    #[cfg(feature = "jit")]
    tiers: tier::Tiers,
    /// The specialised state that direct code of a program with a bank expects.
    #[cfg(feature = "jit")]
    specialised: Option<Arc<super::state::specialised::Specialisation>>,
    /// What direct code, if there is some, must find when it is called: the smallest size of a
    /// message (decode), or room for so many bytes (encode).
    #[cfg(feature = "jit")]
    direct_size: usize,
    /// Room that is reserved ahead for a message of a stream, if it is more than `direct_size`.
    #[cfg(feature = "jit")]
    ahead: AtomicUsize,
}

impl Executable {
    /// Runs the passes over a lowered program, verifies it, and makes machine code if asked to.
    pub fn new(program: Program, backend: Backend) -> Result<Executable, ExecError> {
        Executable::prepared(passes::prepare(program), backend)
    }

    /// Does the same without the passes.
    pub fn prepared(program: Program, backend: Backend) -> Result<Executable, ExecError> {
        verify(&program)?;
        let executable = Executable(Arc::new(Inner {
            adapter: program.adapter,
            #[cfg(feature = "jit")]
            tiers: tier::Tiers::new(&program),
            #[cfg(feature = "jit")]
            specialised: super::jit::specialised(&program).map(Arc::new),
            #[cfg(feature = "jit")]
            direct_size: super::jit::direct_size(&program).unwrap_or(0),
            #[cfg(feature = "jit")]
            ahead: Default::default(),
            program: Arc::new(program),
            idle: Idle::default(),
            #[cfg(feature = "jit")]
            code: Default::default(),
        }));
        match backend {
            Backend::Interpreter => {}
            Backend::Auto => executable.compile(),
            Backend::Jit => executable.compile_or_say()?,
        }
        Ok(executable)
    }

    /// Makes machine code, if it is allowed and can be made, and uses it from the next message on.
    /// Until then the interpreter runs all messages, so any thread may call this while others run
    /// the program. It blocks for milliseconds.
    pub fn compile(&self) {
        #[cfg(feature = "jit")]
        self.keep(|| super::jit::allowed().then(|| super::jit::compile(&self.0.program).ok()).flatten());
    }

    #[cfg(feature = "jit")]
    fn compile_or_say(&self) -> Result<(), ExecError> {
        let code = super::jit::compile(&self.0.program).map_err(ExecError::NoJit)?;
        self.keep(|| Some(code));
        Ok(())
    }

    #[cfg(feature = "jit")]
    fn keep(&self, make: impl FnOnce() -> Option<super::jit::Code>) {
        if let Some(code) = self.0.code.get_or_init(make) {
            self.0.tiers.set(code.entry(), code.direct());
        }
    }

    #[cfg(not(feature = "jit"))]
    fn compile_or_say(&self) -> Result<(), ExecError> {
        Err(ExecError::NoJit("this build has no feature 'jit'".into()))
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.0.program
    }

    /// True if it runs as machine code.
    pub fn is_machine_code(&self) -> bool {
        #[cfg(feature = "jit")]
        return self.entry().is_some();
        #[cfg(not(feature = "jit"))]
        false
    }

    /// The state of a stream before its first message; none of a program that needs none.
    pub fn state(&self) -> Option<State> {
        self.0.program.bank.as_ref().map(State::new)
    }

    /// Appends the value at `value` to `out`. After an error `out` is as before.
    ///
    /// # Safety
    /// `value` points to a live value of the program's layout, which nobody changes meanwhile.
    ///
    /// # Panics
    /// If it is a decode program.
    #[inline]
    pub unsafe fn encode(&self, value: *const u8, out: &mut Vec<u8>, limits: &Limits) -> Result<(), CodecError> {
        // SAFETY: `value` is live and nobody changes it, by this function's own contract.
        #[cfg(feature = "jit")]
        if unsafe { self.encode_direct(value, out, limits) } {
            return Ok(());
        }
        // SAFETY: `value` is live and nobody changes it, by this function's own contract.
        unsafe { self.encode_long(value, out, limits) }
    }

    /// Encodes a message of a stream. The state advances if the message succeeds and `keep` is set;
    /// else the state is as before.
    ///
    /// # Safety
    /// As for [`Executable::encode`].
    ///
    /// # Panics
    /// If it is a decode program, or the state was made for another one.
    pub unsafe fn encode_with(
        &self,
        state: &mut State,
        keep: bool,
        value: *const u8,
        out: &mut Vec<u8>,
        limits: &Limits,
    ) -> Result<(), CodecError> {
        #[cfg(feature = "jit")]
        // SAFETY: `value` is live by this function's contract.
        if unsafe { self.encode_stream(state, keep, value, out, limits) } {
            return Ok(());
        }
        // SAFETY: `value` is live by this function's contract.
        unsafe { self.encode_stream_long(state, keep, value, out, limits) }
    }

    /// # Safety
    /// As for [`Executable::encode_with`].
    #[inline(never)]
    unsafe fn encode_stream_long(
        &self,
        state: &mut State,
        keep: bool,
        value: *const u8,
        out: &mut Vec<u8>,
        limits: &Limits,
    ) -> Result<(), CodecError> {
        self.admit(state, Direction::Encode);
        state.begin();
        let mut output = Output::new(out, limits);
        output.state = Some(state);
        // SAFETY: `admit` found the program to be an encode program, and `value` is live by this
        // function's contract.
        let encoded = unsafe { self.encode_to(&mut output, value) };
        match encoded {
            Ok(()) => self.settle(state, keep),
            Err(_) => state.roll_back(),
        }
        encoded
    }

    /// Decodes a message into the value at `value` and returns how many bytes of it were consumed.
    /// After an error the value is valid, but its content is unspecified. If a chained message with
    /// `keep` set is refused, its state is [broken](State::is_broken).
    ///
    /// # Safety
    /// `value` points to a live value of the program's layout, which nobody else refers to.
    ///
    /// # Panics
    /// If it is an encode program, or the state of a chained message was made for another one.
    #[inline]
    pub unsafe fn decode(&self, payload: Payload<'_>, value: *mut u8, limits: &Limits) -> Result<usize, CodecError> {
        // SAFETY: `value` is a live value of the layout that nobody else refers to, by this
        // function's contract.
        let decoded = unsafe { self.decode_into(payload, value, limits, &Growth::default()) };
        decoded.map(|decoded| decoded.bytes)
    }

    /// [`Executable::decode`] for a value that may have been decoded into before. `growth` counts
    /// by how much the decoder's values have grown; if that is too much, this value's memory is
    /// freed first.
    ///
    /// All decoding enters here. It tries direct code, which needs no context; all other cases go
    /// to [`Executable::decode_general`].
    ///
    /// # Safety
    /// As for [`Executable::decode`].
    #[inline(always)]
    pub(crate) unsafe fn decode_into(
        &self,
        payload: Payload<'_>,
        value: *mut u8,
        limits: &Limits,
        growth: &Growth,
    ) -> Result<Decoded, CodecError> {
        // The payload is moved, not borrowed, so that it stays in registers on the direct path.
        #[cfg(feature = "jit")]
        let payload = match payload {
            Payload::Bytes(bytes) => {
                // SAFETY: `value` is a live value of the layout that nobody else refers to, by this
                // function's contract.
                if let Some(taken) = unsafe { self.decode_direct(bytes, value, limits) } {
                    // Direct code without a bank allocates nothing.
                    return Ok(Decoded { bytes: taken, grown: 0 });
                }
                Payload::Bytes(bytes)
            }
            Payload::Shared(message) => Payload::Shared(message),
            Payload::Chained { state, keep, bytes } => {
                // SAFETY: `value` is a live value of the layout that nobody else refers to, by this
                // function's contract.
                if let Some(decoded) = unsafe { self.decode_stream((&mut *state, keep), bytes, value, limits, growth) }
                {
                    return Ok(decoded);
                }
                Payload::Chained { state, keep, bytes }
            }
        };
        // SAFETY: `value` is a live value of the layout that nobody else refers to, by this
        // function's contract.
        unsafe { self.decode_general(payload, value, limits, growth) }
    }

    /// Decodes any message, with the general function or the interpreter. Only
    /// [`Executable::decode_into`] calls it.
    ///
    /// # Safety
    /// As for [`Executable::decode`].
    #[inline(never)]
    unsafe fn decode_general(
        &self,
        payload: Payload<'_>,
        value: *mut u8,
        limits: &Limits,
        growth: &Growth,
    ) -> Result<Decoded, CodecError> {
        assert!(self.0.program.direction == Direction::Decode, "an encode program cannot decode");
        // SAFETY: `value` is a live value of the layout that nobody else refers to, by this
        // function's contract.
        unsafe {
            self.relieve(value, limits, growth);
            match payload {
                Payload::Chained { state, keep, bytes } => {
                    self.admit(state, Direction::Decode);
                    self.decode_chained((state, keep), bytes, value, limits, growth)
                }
                alone if self.0.program.bank.is_some() => {
                    let bytes = alone.bytes();
                    let decoded = self.alone(|state| {
                        self.decode_into(Payload::Chained { state, keep: false, bytes }, value, limits, growth)
                    });
                    decoded.map(|decoded| decoded.and_grown(alone.kept()))
                }
                Payload::Bytes(bytes) => self.decode_alone(&mut Input::new(bytes, limits), value, growth),
                Payload::Shared(message) => {
                    let decoded = self.decode_alone(&mut Input::of_shared(message, limits), value, growth);
                    decoded.map(|decoded| decoded.and_grown(message.len()))
                }
            }
        }
    }

    /// # Safety
    /// As for [`Executable::decode`], and the state is of this program.
    unsafe fn decode_chained(
        &self,
        (state, keep): (&mut State, bool),
        bytes: &[u8],
        value: *mut u8,
        limits: &Limits,
        growth: &Growth,
    ) -> Result<Decoded, CodecError> {
        if state.is_broken() {
            let mut input = Input::new(bytes, limits);
            let _ = input.fail(FaultKind::BrokenChain, 0, 0);
            return Err(CodecError::new(input.fault(), &self.0.program));
        }
        state.begin();
        let mut input = Input::new(bytes, limits);
        state.copies_left = input.memory_limit();
        #[cfg(feature = "jit")]
        {
            // Direct code that bailed out may already have grown the value; charge for that.
            let grown = input.memory_left.saturating_sub(state.memory_left);
            if grown > 0 {
                growth.add(grown);
            }
            input.memory_left = state.memory_left;
        }
        input.state = Some(state);
        // SAFETY: `value` is a live value of the layout that nobody else refers to, by this
        // function's contract.
        match unsafe { self.decode_input(&mut input, value, growth) } {
            Ok(decoded) => {
                self.settle(state, keep);
                Ok(decoded)
            }
            Err(error) => {
                state.roll_back();
                if keep {
                    state.break_chain();
                }
                Err(error)
            }
        }
    }

    /// Decodes a message that stands alone, directly or through the adapter.
    ///
    /// # Safety
    /// As for [`Executable::decode`].
    #[inline(always)]
    unsafe fn decode_alone(
        &self,
        input: &mut Input<'_>,
        value: *mut u8,
        growth: &Growth,
    ) -> Result<Decoded, CodecError> {
        #[cfg(feature = "jit")]
        self.0.tiers.went_generally();
        // SAFETY: `value` is a live value of the layout that nobody else refers to, by this
        // function's contract.
        unsafe {
            match self.0.adapter {
                None => self.decode_input(input, value, growth),
                Some(adapter) if adapter.only_after.is_none() => self.decode_events(adapter, input, value, growth),
                Some(_) => self.decode_or_adapt(input, value, growth),
            }
        }
    }

    /// Encodes any message. It is separate from [`Executable::encode`] so that the direct path sets
    /// up nothing that it does not need.
    ///
    /// # Safety
    /// As for [`Executable::encode`].
    #[inline(never)]
    unsafe fn encode_long(&self, value: *const u8, out: &mut Vec<u8>, limits: &Limits) -> Result<(), CodecError> {
        assert!(self.0.program.direction == Direction::Encode, "a decode program cannot encode");
        if self.0.program.bank.is_some() {
            // SAFETY: the state was made by this program, and `value` is live by this function's
            // contract.
            return self.alone(|state| unsafe { self.encode_with(state, false, value, out, limits) });
        }
        #[cfg(feature = "jit")]
        self.0.tiers.went_generally();
        // SAFETY: the program was just found to encode, and `value` is live by this function's
        // contract.
        unsafe { self.encode_to(&mut Output::new(out, limits), value) }?;
        // Direct code may have found too little room. Reserve it for the next message.
        #[cfg(feature = "jit")]
        if self.0.tiers.has_direct() && self.0.direct_size <= MAX_AHEAD {
            let _ = out.try_reserve(self.0.direct_size);
        }
        Ok(())
    }

    /// # Safety
    /// As for [`Executable::encode`], and the program is an encode program.
    #[inline(always)]
    unsafe fn encode_to(&self, output: &mut Output<'_>, value: *const u8) -> Result<(), CodecError> {
        // SAFETY: the program is verified and has the right direction, and `value` is live by this
        // function's contract.
        let status = unsafe {
            match self.entry() {
                #[cfg(feature = "jit")]
                Some(entry) => super::jit::encode(entry, output, value),
                _ => interp::encode(&self.0.program, output, value),
            }
        };
        match output.finish(status) {
            Status::Ok => Ok(()),
            Status::Failed => Err(CodecError::new(output.fault(), &self.0.program)),
        }
    }

    /// Decodes a message. If it is refused for one of the adapter's reasons, decodes it again
    /// through the adapter. This is a separate function so that programs without an adapter do not
    /// pay for it.
    ///
    /// # Safety
    /// As for [`Executable::decode`].
    #[inline(never)]
    unsafe fn decode_or_adapt(
        &self,
        input: &mut Input<'_>,
        value: *mut u8,
        growth: &Growth,
    ) -> Result<Decoded, CodecError> {
        let memory = input.memory_left;
        // SAFETY: nobody else refers to the value, by this function's contract.
        let decoded = unsafe { self.decode_input(input, value, growth) };
        match (&decoded, self.0.adapter) {
            (Err(error), Some(adapter)) if adapter.only_after.is_some_and(|kinds| kinds.contains(&error.kind)) => {
                let grown = memory.saturating_sub(input.memory_left);
                // SAFETY: the first attempt is over, and left the value valid; nobody else refers
                // to it.
                let adapted = unsafe { self.decode_events(adapter, input, value, growth) };
                adapted.map(|decoded| decoded.and_grown(grown))
            }
            _ => decoded,
        }
    }

    /// Decodes the text that the adapter makes of the message.
    ///
    /// # Safety
    /// As for [`Executable::decode`].
    #[cold]
    unsafe fn decode_events(
        &self,
        adapter: &Adapter,
        input: &Input<'_>,
        value: *mut u8,
        growth: &Growth,
    ) -> Result<Decoded, CodecError> {
        let (bytes, limits) = (input.message(), input.limits());
        Events::with(|events| {
            let mut input = Input::new(bytes, limits);
            let status = match bytes.len() > limits.message_bytes {
                true => input.fail(FaultKind::Limit, limits.message_bytes as u64, bytes.len() as u64),
                false => (adapter.run)(&self.0.program, &mut input, events),
            };
            if status == Status::Failed {
                return Err(CodecError::of_message(&input, &self.0.program));
            }
            // The adapter's text may be longer than the message; its length was limited when it was
            // written. The memory limit of the value depends on the length of the message.
            let memory = limits.memory(bytes.len());
            let inner = Limits { message_bytes: usize::MAX, expansion: 0, free_bytes: memory, ..*limits };
            // SAFETY: the program accepts any bytes, so also the events' text, and nobody else
            // refers to the value.
            let decoded = unsafe { self.decode_input(&mut Input::new(events.text(), &inner), value, growth) };
            decoded.map(|decoded| Decoded { bytes: bytes.len(), ..decoded }).map_err(|error| events.locate(error))
        })
    }

    /// # Safety
    /// As for [`Executable::decode`], and the program is a decode program.
    #[inline(always)]
    unsafe fn decode_input(
        &self,
        input: &mut Input<'_>,
        value: *mut u8,
        growth: &Growth,
    ) -> Result<Decoded, CodecError> {
        let (len, most) = (input.message().len(), input.limits().message_bytes);
        let memory = input.memory_left;
        let status = if len > most {
            input.fail(FaultKind::Limit, most as u64, len as u64)
        } else {
            // SAFETY: the program is verified and has the right direction, and `value` is live by
            // this function's contract.
            unsafe {
                match self.entry() {
                    #[cfg(feature = "jit")]
                    Some(entry) => super::jit::decode(entry, input, value),
                    _ => interp::decode(&self.0.program, input, value),
                }
            }
        };
        let grown = memory.saturating_sub(input.memory_left);
        if grown > 0 {
            growth.add(grown);
        }
        match status {
            Status::Ok => Ok(Decoded { bytes: input.position().min(len), grown }),
            Status::Failed => Err(CodecError::of_message(input, &self.0.program)),
        }
    }

    /// Frees the memory that a value keeps, if the decoder's values have grown by more than one
    /// message may allocate.
    ///
    /// # Safety
    /// As for [`Executable::decode`].
    #[inline(always)]
    unsafe fn relieve(&self, value: *mut u8, limits: &Limits, growth: &Growth) {
        if growth.bytes() > limits.memory_bytes {
            growth.begin_anew();
            // SAFETY: the value is one of the layout, and nobody else refers to it.
            unsafe { self.0.program.layout.release(value) };
        }
    }

    /// Called after a message of a stream that the general function or the interpreter processed.
    fn settle(&self, state: &mut State, keep: bool) {
        #[cfg(feature = "jit")]
        self.0.tiers.went_generally();
        if !keep {
            state.roll_back();
        }
    }

    /// Runs `run` with a fresh state, for a message that stands alone.
    fn alone<R>(&self, run: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.0.idle.take().or_else(|| self.state().map(Box::new));
        let spare = state.as_mut().expect("only programs with a bank ask for it");
        spare.reset();
        let result = run(spare);
        self.0.idle.put(state);
        result
    }

    fn admit(&self, state: &State, direction: Direction) {
        assert!(self.0.program.direction == direction, "the program runs the other way");
        let bank = self.0.program.bank.as_ref();
        assert!(bank.is_some_and(|bank| **bank == **state.bank()), "the state is of another program");
    }

    #[cfg(feature = "jit")]
    #[inline]
    fn entry(&self) -> Option<NonNull<u8>> {
        self.0.tiers.general()
    }

    #[cfg(not(feature = "jit"))]
    fn entry(&self) -> Option<core::convert::Infallible> {
        None
    }
}
