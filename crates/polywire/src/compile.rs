//! Compiles decoders to machine code on a separate thread, so that a large schema of one peer does
//! not hold up the thread that reads its link.
//!
//! A decoder starts on the interpreter. One thread of the process compiles the queued programs, and
//! each decoder continues as machine code. A decoder stays on the interpreter for good if the queue
//! is full, or if its program is larger than [`LARGEST`].

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Instant,
};

use polywire_core::program::Executable;

/// Programs that may wait for compilation.
const QUEUE: usize = 256;
/// Programs with more operations stay on the interpreter: a schema of 32 kB can take seconds and
/// hundreds of megabytes to compile.
const LARGEST: usize = 1 << 12;

/// The number of programs that the process has compiled, and the nanoseconds that this took.
static COMPILED: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// Runs `make`, which makes a program, and counts the program and the time.
pub(crate) fn timed<T>(make: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let made = make();
    let took = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    COMPILED[0].fetch_add(1, Ordering::Relaxed);
    COMPILED[1].fetch_add(took, Ordering::Relaxed);
    made
}

/// Returns the number of programs that the process has compiled, and the nanoseconds that this
/// took.
pub(crate) fn counts() -> (u64, u64) {
    let [programs, ns] = COMPILED.each_ref().map(|count| count.load(Ordering::Relaxed));
    (programs, ns)
}

/// Queues a program for compilation. Never blocks.
pub(crate) fn soon(executable: &Executable) {
    if executable.program().op_count() > LARGEST {
        return;
    }
    static WORKER: OnceLock<Option<mpsc::SyncSender<Executable>>> = OnceLock::new();
    if let Some(worker) = WORKER.get_or_init(start) {
        // If the queue is full, the program stays on the interpreter, which is only slower.
        let _ = worker.try_send(executable.clone());
    }
}

/// Starts the compiler thread. `None` if the system refuses it: all programs are interpreted then.
fn start() -> Option<mpsc::SyncSender<Executable>> {
    let (sender, programs) = mpsc::sync_channel::<Executable>(QUEUE);
    let work = move || programs.iter().for_each(|program| timed(|| program.compile()));
    thread::Builder::new().name("polywire-compile".into()).spawn(work).ok()?;
    Some(sender)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use polywire_core::{
        codec::{Decoder, Options, cdr::CDR},
        layout::{Record, Shape},
        program::Backend,
        schema::{Def, Member, SchemaBuilder, Type},
    };

    use super::*;

    fn decoder(texts: usize, backend: Backend) -> Decoder<Record> {
        let mut types = SchemaBuilder::new();
        let members = (0..texts).map(|i| Member::new(format!("m{i}"), Type::string())).collect();
        let root = types.add(Def::structure("Texts", members));
        let shape = Shape::of(&types.finish(Type::Def(root)).expect("a schema")).expect("a shape");
        Decoder::for_shape_with_backend(&CDR, &Options::default(), shape.schema(), &shape, backend).expect("a decoder")
    }

    #[test]
    fn large_programs_stay_interpreted() {
        let (large, small) = (decoder(LARGEST + 1, Backend::Interpreter), decoder(1, Backend::Interpreter));
        soon(large.executable());
        soon(small.executable());
        // If machine code is forbidden or cannot be made, there is nothing to wait for.
        let possible = decoder(1, Backend::Auto).executable().is_machine_code();
        let until = Instant::now() + Duration::from_secs(60);
        while possible && !small.executable().is_machine_code() && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        // A program queued before the small one would have been compiled by now.
        assert_eq!((small.executable().is_machine_code(), large.executable().is_machine_code()), (possible, false));
    }
}
