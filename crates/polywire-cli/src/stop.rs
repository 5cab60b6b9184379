//! Ends on request, by SIGINT or SIGTERM.
//!
//! Every verb ends in the same way: it cleans up, and then the process ends by the signal that it
//! got. A shell sees 130 or 143, and systemd, which counts an end by SIGTERM as a success, sees
//! that. Verbs with nothing to clean up leave both signals alone, which comes to the same.
//!
//! The signals are blocked in all threads while one waits for them: no code runs inside a signal
//! handler. Processes that are started have them unblocked again (`std::process::Command` sees to
//! it).

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI32, Ordering},
    },
    thread,
};

use anyhow::Context as _;
use nix::sys::signal::{SigSet, Signal, raise};

use crate::outcome::Outcome;

/// Keeps the signals from ending the process before anybody waits for them. Threads inherit that,
/// so this comes before the first one.
pub fn hold() -> anyhow::Result<()> {
    signals().thread_block().context("cannot hold back signals")
}

/// Set once [`after`] has a signal: from then on its thread decides how the process ends.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Waits for a signal in a thread of its own, then cleans up and ends the process by the signal.
/// [`hold`] was called.
pub fn after(clean_up: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    wait(|signal| {
        ENDING.store(true, Ordering::SeqCst);
        clean_up();
        end_by(signal)
    })
}

/// Does not return if a signal has come that ends the process. A verb may fail only because its
/// node was closed for that; such an error must not decide the exit code.
pub fn give_way() {
    while ENDING.load(Ordering::SeqCst) {
        thread::park();
    }
}

/// Whether a signal has come, for verbs that look at it themselves. [`hold`] was called.
#[derive(Clone)]
pub struct Stop(Arc<AtomicI32>);

impl Stop {
    pub fn new() -> anyhow::Result<Stop> {
        let came = Arc::new(AtomicI32::new(0));
        let tell = came.clone();
        wait(move |signal| tell.store(signal as i32, Ordering::Release))?;
        Ok(Stop(came))
    }

    /// How the verb ends then.
    pub fn outcome(&self) -> Option<Outcome> {
        match self.0.load(Ordering::Acquire) {
            0 => None,
            signal if signal == Signal::SIGTERM as i32 => Some(Outcome::Terminated),
            _ => Some(Outcome::Interrupted),
        }
    }
}

/// Ends the process by the signal that an outcome stands for, if it stands for one.
pub fn end(outcome: Outcome) {
    match outcome {
        Outcome::Interrupted => end_by(Signal::SIGINT),
        Outcome::Terminated => end_by(Signal::SIGTERM),
        _ => {}
    }
}

fn signals() -> SigSet {
    [Signal::SIGINT, Signal::SIGTERM].into_iter().collect()
}

fn wait(then: impl FnOnce(Signal) + Send + 'static) -> anyhow::Result<()> {
    let waiting = thread::Builder::new().name("signals".into()).spawn(|| {
        if let Ok(signal) = signals().wait() {
            then(signal);
        }
    });
    waiting.map(|_| ()).context("cannot start a thread")
}

fn end_by(signal: Signal) {
    // Nothing was changed about what the signals do, so this ends the process, unless whoever
    // started it had the signal ignored.
    let _ = SigSet::from(signal).thread_unblock();
    let _ = raise(signal);
    std::process::exit(128 + signal as i32);
}
