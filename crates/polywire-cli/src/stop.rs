//! Handles SIGINT, SIGTERM and SIGHUP.
//!
//! Every command except `relay`, `bridge`, `agent`, `collect` and `serve` handles them in the same
//! way: it cleans up, and then the process ends by the same signal. A shell reports 130, 143 or
//! 129, and systemd counts an end by SIGTERM as a success. Commands without cleanup leave the
//! signals at their default action, which has the same effect. The five commands named here clean
//! up and end with an exit code.
//!
//! A command that has a configuration file reads it again on SIGHUP ([`on_hang_up`]), unless the
//! process has lost its terminal.
//!
//! One thread waits for the signals, which are blocked in all threads, so no code runs inside a
//! signal handler. `std::process::Command` unblocks them in the processes that it starts.

use std::{
    fs::File,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use nix::sys::signal::{SigSet, Signal, raise};
use parking_lot::Mutex;

use crate::{outcome::Outcome, terminal};

/// The actions on SIGHUP, which replace the end of the process.
static RELOAD: Mutex<Vec<Box<dyn FnMut() + Send>>> = Mutex::new(Vec::new());

/// Calls `reload` on each SIGHUP from now on, instead of ending the process. The call is made on
/// the thread that waits for signals, after the callbacks of earlier calls. If the process has a
/// terminal and loses it, SIGHUP still ends the process.
pub fn on_hang_up(reload: impl FnMut() + Send + 'static) {
    RELOAD.lock().push(Box::new(reload));
}

/// Blocks the signals, so that they do not end the process before a thread waits for them. Threads
/// inherit the signal mask, so this must be called before the first thread starts.
pub fn hold() -> anyhow::Result<()> {
    signals().thread_block().context("cannot hold back signals")
}

/// Set when the thread of [`after`] has received a signal. From then on, that thread ends the
/// process.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Starts a thread that waits for a signal, then cleans up and ends the process by the signal.
/// [`hold`] must be called first.
pub fn after(clean_up: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    wait(|signal| {
        ENDING.store(true, Ordering::SeqCst);
        clean_up();
        end_by(signal)
    })
}

/// Blocks forever if the thread of [`after`] is ending the process. The command may then have
/// failed only because its node was closed, and such an error must not decide the exit code.
pub fn give_way() {
    while ENDING.load(Ordering::SeqCst) {
        thread::park();
    }
}

/// A signal flag for commands that poll for signals. An arriving signal unparks the thread that
/// created the flag. [`hold`] must be called first.
#[derive(Clone)]
pub struct Stop(Arc<AtomicI32>);

impl Stop {
    pub fn new() -> anyhow::Result<Stop> {
        let came = Arc::new(AtomicI32::new(0));
        let (tell, here) = (came.clone(), thread::current());
        wait(move |signal| {
            tell.store(signal as i32, Ordering::Release);
            here.unpark();
        })?;
        Ok(Stop(came))
    }

    /// Waits until a signal arrives, for at most `longest`, and not beyond `until`. Only the thread
    /// that created this may call it. May return early.
    pub fn pause(&self, longest: Duration, until: Option<Instant>) {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        thread::park_timeout(left.map_or(longest, |left| left.min(longest)));
    }

    /// Returns the outcome of the command, if a signal has arrived.
    pub fn outcome(&self) -> Option<Outcome> {
        match self.0.load(Ordering::Acquire) {
            0 => None,
            signal if signal == Signal::SIGTERM as i32 => Some(Outcome::Terminated),
            signal if signal == Signal::SIGHUP as i32 => Some(Outcome::HungUp),
            _ => Some(Outcome::Interrupted),
        }
    }
}

/// A SIGHUP flag for commands that read their configuration again.
pub struct Hangup(Arc<AtomicBool>);

impl Hangup {
    /// Returns whether SIGHUP has arrived since the last call.
    pub fn came(&self) -> bool {
        self.0.swap(false, Ordering::AcqRel)
    }
}

/// Makes a SIGHUP flag for commands that poll: SIGHUP no longer ends the process ([`on_hang_up`]),
/// but unparks this thread.
pub fn hangup() -> Hangup {
    let came = Arc::new(AtomicBool::new(false));
    let (tell, here) = (came.clone(), thread::current());
    on_hang_up(move || {
        tell.store(true, Ordering::Release);
        here.unpark();
    });
    Hangup(came)
}

/// Ends the process by a signal if the outcome represents one; otherwise returns.
pub fn end(outcome: Outcome) {
    match outcome {
        Outcome::Interrupted => end_by(Signal::SIGINT),
        Outcome::Terminated => end_by(Signal::SIGTERM),
        Outcome::HungUp => end_by(Signal::SIGHUP),
        _ => {}
    }
}

fn signals() -> SigSet {
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect()
}

fn wait(then: impl FnOnce(Signal) + Send + 'static) -> anyhow::Result<()> {
    let had_terminal = has_terminal();
    let waiting = thread::Builder::new().name("signals".into()).spawn(move || {
        while let Ok(signal) = signals().wait() {
            let is_there_still = !had_terminal || has_terminal();
            if signal != Signal::SIGHUP || !is_there_still || !reload() {
                return then(signal);
            }
        }
    });
    waiting.map(|_| ()).context("cannot start a thread")
}

/// Returns whether the process has a controlling terminal.
fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

/// Calls the reload callbacks. Returns false if there are none.
fn reload() -> bool {
    let mut all = RELOAD.lock();
    all.iter_mut().for_each(|reload| reload());
    !all.is_empty()
}

fn end_by(signal: Signal) {
    terminal::give_screen_back();
    // The signals have their default action, so this ends the process, unless the parent process
    // had set the signal to be ignored.
    let _ = SigSet::from(signal).thread_unblock();
    let _ = raise(signal);
    std::process::exit(128 + signal as i32);
}
