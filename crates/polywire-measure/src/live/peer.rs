//! The other end, in another process or in this one.

use std::{
    env,
    io::{self, BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use polywire::{Schema, Shape, schema::SchemaLimits};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{PATIENCE, Setup, engines, now_ns, process_time};
use crate::{Error, host::peak_memory, scenario::Place};

/// The words with which this program is started as the other end: a host program calls [`serve`]
/// when it is given them.
pub const WORDS: &[&str] = &["bench-peer"];

/// When nothing has come for so long, nothing will.
const SILENCE: Duration = Duration::from_millis(300);

/// Sequence numbers in the order in which they came to one subscriber, and when.
pub type Arrivals = Arc<Mutex<Vec<(u64, u64)>>>;

/// What came since the last report.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// One list a subscriber.
    pub arrivals: Vec<Vec<(u64, u64)>>,
}

/// What has come to all subscribers of a process.
#[derive(Debug, Default)]
pub struct Traffic {
    messages: AtomicU64,
    bytes: AtomicU64,
}

impl Traffic {
    /// A message with so many bytes of payload has come.
    pub fn add(&self, bytes: usize) {
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// How a process fares.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Vitals {
    /// CPU time so far.
    pub cpu_ns: u64,
    /// The most memory so far; 0 for the sender's own process.
    pub peak_memory_bytes: u64,
    /// Messages that came to subscribers.
    pub messages: u64,
    /// Their payloads, as they travelled.
    pub bytes: u64,
}

#[derive(Serialize, Deserialize)]
enum Request {
    Report(usize),
    Vitals,
}

/// What receives; it ends with this.
pub struct Receivers {
    pub arrivals: Vec<Arrivals>,
    pub traffic: Arc<Traffic>,
    /// Whatever keeps them going.
    pub _held: Vec<Box<dyn Send>>,
}

/// Tells receiving threads by its flag, which is raised when it goes, that the case is over.
#[derive(Default)]
pub struct Ended(Arc<AtomicBool>);

impl Ended {
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.0.clone()
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Receivers {
    /// `other`: this process has nothing to do with the sender's.
    fn vitals(&self, other: bool) -> Vitals {
        let (messages, bytes) = (&self.traffic.messages, &self.traffic.bytes);
        let (messages, bytes) = (messages.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed));
        let (cpu_ns, peak_memory_bytes) = if other { (process_time(), peak_memory()) } else { (0, 0) };
        Vitals { cpu_ns, peak_memory_bytes, messages, bytes }
    }

    /// Waits until so many have come, or nothing more comes.
    fn report(&self, expected: usize) -> Report {
        let (mut count, mut changed) = (0, Instant::now());
        loop {
            let now: usize = self.arrivals.iter().map(|list| lock(list).len()).sum();
            if now >= expected || changed.elapsed() > SILENCE {
                break;
            }
            if now != count {
                (count, changed) = (now, Instant::now());
            }
            thread::sleep(Duration::from_millis(1));
        }
        Report { arrivals: self.arrivals.iter().map(|list| std::mem::take(&mut *lock(list))).collect() }
    }
}

/// The other end, seen from the sender.
pub enum Peer {
    Here(Receivers),
    Process(Other),
}

impl Peer {
    pub fn start(setup: &Setup, place: Place) -> Result<Peer, String> {
        Ok(match place {
            Place::Thread => Peer::Here(engines::receive(setup)?),
            Place::Process => Peer::Process(Other::start(setup)?),
        })
    }

    /// What has come since the last time, when so many are expected.
    pub fn report(&mut self, expected: usize) -> Result<Report, String> {
        match self {
            Peer::Here(receivers) => Ok(receivers.report(expected)),
            Peer::Process(other) => other.ask(&Request::Report(expected)),
        }
    }

    pub fn vitals(&mut self) -> Result<Vitals, String> {
        match self {
            Peer::Here(receivers) => Ok(receivers.vitals(false)),
            Peer::Process(other) => other.ask(&Request::Vitals),
        }
    }
}

/// A process that is told to end, and waited for, when this is dropped.
pub struct Other {
    child: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Other {
    fn start(setup: &Setup) -> Result<Other, String> {
        let program = env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(program);
        command.args(WORDS).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("no other process: {error}"))?;
        let (requests, answers) = (child.stdin.take(), child.stdout.take().expect("a pipe was asked for"));
        let mut other = Other { child, requests, answers: BufReader::new(answers) };
        let ready: Result<(), String> = other.ask(setup)?;
        ready.map(|()| other)
    }

    fn ask<T: DeserializeOwned>(&mut self, request: &impl Serialize) -> Result<T, String> {
        let requests = self.requests.as_mut().expect("it is there until this is dropped");
        let text = serde_json::to_string(request).map_err(|error| error.to_string())?;
        let mut line = String::new();
        writeln!(requests, "{text}")
            .and_then(|()| requests.flush())
            .and_then(|()| self.answers.read_line(&mut line))
            .map_err(|error| format!("the other process has gone: {error}"))?;
        serde_json::from_str(&line).map_err(|error| format!("the other process says '{}': {error}", line.trim()))
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        drop(self.requests.take());
        let until = Instant::now() + PATIENCE;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > until {
                // That it has gone is all that matters.
                let _ = self.child.kill();
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Is the other end of a real engine: a program that measures in
/// [`Mode::Closed`](crate::scenario::Mode::Closed) and the like is started again with the one
/// argument `bench-peer`, and is to call this then. It ends with its input.
///
/// # Errors
/// [`Error::Engine`] if standard input is empty or does not hold the commands of `bench`.
pub fn serve() -> Result<(), Error> {
    let wrong = |problem: String| Error::Engine { engine: "bench-peer".into(), problem };
    let mut lines = io::stdin().lines().map_while(Result::ok);
    let setup = lines.next().ok_or_else(|| wrong("it is started by `bench`, not by hand".into()))?;
    let setup: Setup = serde_json::from_str(&setup).map_err(|error| wrong(error.to_string()))?;
    let receivers = engines::receive(&setup);
    let ready = receivers.as_ref().map(|_| ()).map_err(String::clone);
    answer(&ready).map_err(wrong)?;
    let Ok(receivers) = receivers else { return Ok(()) };
    for line in lines {
        match serde_json::from_str(&line).map_err(|error| wrong(error.to_string()))? {
            Request::Report(expected) => answer(&receivers.report(expected)),
            Request::Vitals => answer(&receivers.vitals(true)),
        }
        .map_err(wrong)?;
    }
    Ok(())
}

fn answer(value: &impl Serialize) -> Result<(), String> {
    let text = serde_json::to_string(value).map_err(|error| error.to_string())?;
    let mut out = io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|error| error.to_string())
}

/// Notes that a message has come.
pub fn note(arrivals: &Arrivals, sequence: u64) {
    let at = now_ns();
    lock(arrivals).push((sequence, at));
}

fn lock(arrivals: &Arrivals) -> std::sync::MutexGuard<'_, Vec<(u64, u64)>> {
    arrivals.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The shapes of both versions.
pub fn shapes(setup: &Setup) -> Result<(Arc<Shape>, Arc<Shape>), String> {
    let shape = |bytes: &[u8]| {
        let schema = Schema::from_bytes(bytes, &SchemaLimits::default()).map_err(|error| error.to_string())?;
        Shape::of(&schema).map_err(|error| error.to_string())
    };
    Ok((shape(&setup.writer)?, shape(&setup.reader)?))
}
