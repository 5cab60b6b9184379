//! Decoders become machine code off the thread that reads: a stranger's schema must not hold up what others send.
//!
//! A decoder starts on the interpreter; one thread of the process compiles what has queued up and the decoder goes on as machine
//! code. Those that find the queue full stay interpreted.

use std::{
    sync::{OnceLock, mpsc},
    thread,
};

use polywire_core::program::Executable;

/// Programs that may wait.
const QUEUE: usize = 256;

/// Has a program compiled soon. Never blocks.
pub(crate) fn soon(executable: &Executable) {
    static WORKER: OnceLock<Option<mpsc::SyncSender<Executable>>> = OnceLock::new();
    if let Some(worker) = WORKER.get_or_init(start) {
        // A full queue leaves the program to the interpreter, which does the same, slower.
        let _ = worker.try_send(executable.clone());
    }
}

/// None where there are no threads to be had: everything is interpreted then.
fn start() -> Option<mpsc::SyncSender<Executable>> {
    let (sender, programs) = mpsc::sync_channel::<Executable>(QUEUE);
    let work = move || programs.iter().for_each(|program| program.compile());
    thread::Builder::new().name("polywire-compile".into()).spawn(work).ok()?;
    Some(sender)
}
