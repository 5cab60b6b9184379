//! A verified program with the back end that runs it.

use alloc::{sync::Arc, vec::Vec};

use super::{
    Direction, FaultKind, Program, Status,
    adapter::{Adapter, Events},
    interp,
    io::{CodecError, Input, Limits, Output},
    passes,
    verify::{VerifyError, verify},
};

/// Which back end runs a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// Machine code where it can be made, else the interpreter. `POLYWIRE_JIT=off` in the environment forbids machine code.
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
    /// The verifier refused it.
    #[error(transparent)]
    Refused(#[from] VerifyError),
    /// Machine code was asked for and cannot be made.
    #[error("no machine code: {0}")]
    NoJit(alloc::string::String),
}

/// A program ready to run. Cheap to clone; free of state, so that any number of threads may run it at once.
#[derive(Clone)]
pub struct Executable(Arc<Inner>);

struct Inner {
    program: Arc<Program>,
    /// The program's own, near at hand.
    adapter: Option<&'static Adapter>,
    #[cfg(feature = "jit")]
    code: std::sync::OnceLock<Option<super::jit::Code>>,
    /// The first instruction of `code`, or null: what each message asks for, without a way through `code`.
    #[cfg(feature = "jit")]
    entry: core::sync::atomic::AtomicPtr<u8>,
}

impl Executable {
    /// Runs the passes over a lowering's program, verifies it, and makes machine code if asked to.
    pub fn new(program: Program, backend: Backend) -> Result<Executable, ExecError> {
        Executable::prepared(passes::prepare(program), backend)
    }

    /// The same without the passes.
    pub fn prepared(program: Program, backend: Backend) -> Result<Executable, ExecError> {
        verify(&program)?;
        let executable = Executable(Arc::new(Inner {
            adapter: program.adapter,
            program: Arc::new(program),
            #[cfg(feature = "jit")]
            code: Default::default(),
            #[cfg(feature = "jit")]
            entry: Default::default(),
        }));
        match backend {
            Backend::Interpreter => {}
            Backend::Auto => executable.compile(),
            Backend::Jit => executable.compile_or_say()?,
        }
        Ok(executable)
    }

    /// Makes machine code, if it is allowed and can be made, and uses it from the next message on. Until then the interpreter serves, so that
    /// this can be done on any thread while others run the program. Blocks for milliseconds.
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
            self.0.entry.store(code.entry().cast_mut(), core::sync::atomic::Ordering::Release);
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

    /// Appends the value at `value` to `out`. After an error `out` is as before.
    ///
    /// # Safety
    /// `value` points to a live value of the program's layout, which nobody changes meanwhile.
    ///
    /// # Panics
    /// If it is a decode program.
    #[inline]
    pub unsafe fn encode(&self, value: *const u8, out: &mut Vec<u8>, limits: &Limits) -> Result<(), CodecError> {
        assert!(self.0.program.direction == Direction::Encode, "a decode program cannot encode");
        let mut output = Output::new(out, limits);
        // SAFETY: the program is verified, and the value is as the caller promises.
        let status = unsafe {
            match self.entry() {
                #[cfg(feature = "jit")]
                Some(entry) => super::jit::encode(entry, &mut output, value),
                _ => interp::encode(&self.0.program, &mut output, value),
            }
        };
        match output.finish(status) {
            Status::Ok => Ok(()),
            Status::Failed => Err(CodecError::new(output.fault(), &self.0.program)),
        }
    }

    /// Decodes `bytes` into the value at `value` and gives how many it took. After an error the value is valid, but of no use.
    ///
    /// # Safety
    /// `value` points to a live value of the program's layout, which nobody else refers to.
    ///
    /// # Panics
    /// If it is an encode program.
    #[inline]
    pub unsafe fn decode(&self, bytes: &[u8], value: *mut u8, limits: &Limits) -> Result<usize, CodecError> {
        assert!(self.0.program.direction == Direction::Decode, "an encode program cannot decode");
        if let Some(adapter) = self.0.adapter {
            // SAFETY: as the caller promises.
            return unsafe { self.decode_events(adapter, bytes, value, limits) };
        }
        // SAFETY: as the caller promises.
        unsafe { self.decode_bytes(bytes, value, limits) }
    }

    /// Decodes what an adapter makes of the message.
    ///
    /// # Safety
    /// As for [`Executable::decode`].
    #[cold]
    unsafe fn decode_events(
        &self,
        adapter: &Adapter,
        bytes: &[u8],
        value: *mut u8,
        limits: &Limits,
    ) -> Result<usize, CodecError> {
        Events::with(|events| {
            let mut input = Input::new(bytes, limits);
            let status = match bytes.len() > limits.message_bytes {
                true => input.fail(FaultKind::Limit, limits.message_bytes as u64, bytes.len() as u64),
                false => (adapter.run)(&mut input, events),
            };
            if status == Status::Failed {
                return Err(CodecError::new(input.fault(), &self.0.program));
            }
            // What the adapter wrote may be longer than the message, and was limited when it was written.
            let inner = Limits { message_bytes: usize::MAX, ..*limits };
            // SAFETY: as the caller promises.
            let decoded = unsafe { self.decode_bytes(events.text(), value, &inner) };
            decoded.map(|_| bytes.len()).map_err(|error| events.locate(error))
        })
    }

    /// Decodes what the program itself reads.
    ///
    /// # Safety
    /// As for [`Executable::decode`].
    #[inline]
    unsafe fn decode_bytes(&self, bytes: &[u8], value: *mut u8, limits: &Limits) -> Result<usize, CodecError> {
        let mut input = Input::new(bytes, limits);
        let status = if bytes.len() > limits.message_bytes {
            input.fail(FaultKind::Limit, limits.message_bytes as u64, bytes.len() as u64)
        } else {
            // SAFETY: the program is verified, and the value is as the caller promises.
            unsafe {
                match self.entry() {
                    #[cfg(feature = "jit")]
                    Some(entry) => super::jit::decode(entry, &mut input, value),
                    _ => interp::decode(&self.0.program, &mut input, value),
                }
            }
        };
        match status {
            Status::Ok => Ok(input.position().min(bytes.len())),
            Status::Failed => Err(CodecError::new(input.fault(), &self.0.program)),
        }
    }

    #[cfg(feature = "jit")]
    #[inline]
    fn entry(&self) -> Option<core::ptr::NonNull<u8>> {
        core::ptr::NonNull::new(self.0.entry.load(core::sync::atomic::Ordering::Acquire))
    }

    #[cfg(not(feature = "jit"))]
    fn entry(&self) -> Option<core::convert::Infallible> {
        None
    }
}
