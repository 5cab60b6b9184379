//! The other end of a live measurement as the sender sees it. Its receivers run in this process, or
//! in another process, which is started here and answers requests over pipes.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    clock::PATIENCE,
    receivers::{Receivers, Report, Vitals},
    setup::Setup,
};
use crate::scenario::Place;

/// The arguments with which this program starts itself as the other end; with them it calls
/// [`serve`](super::serve()).
const WORDS: &[&str] = &["bench-peer"];

/// The sender's requests to the other process, each a line of JSON.
#[derive(Serialize, Deserialize)]
pub enum Request {
    Report(usize),
    Vitals,
}

/// The other end, seen from the sender.
pub enum Peer {
    Here(Receivers),
    Process(Other),
}

/// Opens the receivers of a setup.
pub type Receive = fn(&Setup) -> Result<Receivers, String>;

impl Peer {
    /// Starts the other end: in this process with `receive`, or as another process, which finds
    /// the same function in the table of engines.
    pub fn start(setup: &Setup, place: Place, receive: Receive) -> Result<Peer, String> {
        Ok(match place {
            Place::Thread => Peer::Here(receive(setup)?),
            Place::Process => Peer::Process(Other::start(setup)?),
        })
    }

    /// Returns the arrivals since the last call, given the expected number.
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

/// The other end's process. Dropping this closes its standard input, so that it ends, and waits for
/// it.
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
        let mut child = command.spawn().map_err(|error| format!("cannot start the other process: {error}"))?;
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
            .map_err(|error| format!("the other process has ended: {error}"))?;
        serde_json::from_str(&line).map_err(|error| format!("the other process answered '{}': {error}", line.trim()))
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        drop(self.requests.take());
        let until = Instant::now() + PATIENCE;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > until {
                // An error means that the process has already ended.
                let _ = self.child.kill();
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
}
