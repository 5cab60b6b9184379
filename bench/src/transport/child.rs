//! Starts the child process at the other end, and runs in it. The parent reads the addresses from
//! the child's standard output and closes its standard input to end it.

use std::{
    env,
    io::{self, BufRead, BufReader, Read, Write},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::OnceLock,
    time::Duration,
};

use super::{Family, fanout, fleet::Fleet, hops, idle, latency, throughput};
use crate::process::{cpu_time, memory};

/// The first argument with which this program runs as the other end.
pub const CHILD: &str = "child";

/// The files by which an end proves who it is over TLS.
pub(super) type Identity = super::fleet::Member;

/// The environment variables that name the files of the child's identity, for Polywire too.
const IDENTITY: [&str; 3] = ["POLYWIRE_CERTIFICATE", "POLYWIRE_KEY", "POLYWIRE_AUTHORITY"];

/// Runs the other end that `words` name. Prints the addresses on which it listens, and returns when
/// standard input ends.
/// # Panics
/// If no other end has these words.
pub fn serve(words: &[String]) {
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let count = |text: &str| text.parse::<usize>().expect("a number");
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["latency", family] => latency::echo(Family::find(family)),
        ["throughput", family, turn, size] => throughput::count(Family::find(family), number(turn), count(size)),
        ["fan-out", family, turn, receivers, addresses @ ..] => {
            fanout::count(Family::find(family), number(turn), count(receivers), addresses);
        }
        ["echo", wire] => hops::echo(wire),
        ["hop", between] => hops::pass_on(between),
        ["idle", family, topics] => idle::run(Family::find(family), count(topics)),
        other => panic!("unknown arguments of the other end: {other:?}"),
    }
}

/// Prints the addresses for the parent, and blocks until the parent closes standard input or exits.
pub(super) fn stay(addresses: &[String]) {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", addresses.join(" ")).and_then(|()| out.flush()).expect("the parent reads standard output");
    // An error also means that the parent has gone.
    let _ = io::stdin().lock().read_to_end(&mut Vec::new());
}

impl Identity {
    /// The child's, as the parent gave it.
    pub(super) fn given() -> Identity {
        let [certificate, key, authority] =
            IDENTITY.map(|variable| PathBuf::from(env::var_os(variable).expect("the parent sets it")));
        Identity { certificate, key, authority }
    }
}

/// A running child process. Dropping this ends the child and waits for it.
pub(super) struct OtherEnd {
    child: Child,
    /// The addresses on which the child listens.
    pub addresses: Vec<String>,
    /// The parent's.
    pub identity: Identity,
    _fleet: Fleet,
}

impl OtherEnd {
    pub(super) fn start(words: &[&str]) -> OtherEnd {
        let fleet = Fleet::new();
        let (own, other) = (fleet.member(&["parent", "127.0.0.1"]), fleet.member(&["child", "127.0.0.1"]));
        let mut command = Command::new(program());
        command.args([CHILD]).args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.envs(IDENTITY.into_iter().zip([&other.certificate, &other.key, &other.authority]));
        let mut child = command.spawn().expect("the child starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("the child prints addresses");
        let addresses = line.split_whitespace().map(String::from).collect();
        OtherEnd { child, addresses, identity: own, _fleet: fleet }
    }

    /// CPU time that the child's threads have used, and its resident memory in bytes.
    pub(super) fn costs(&self) -> (Duration, u64) {
        (cpu_time(self.child.id()), memory(self.child.id()))
    }
}

impl Drop for OtherEnd {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // The child's exit code does not matter.
        let _ = self.child.wait();
    }
}

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Sets the path of the program that runs as the other end. Tests call it, because their own
/// program does not call [`serve`].
pub fn set_program(path: &str) {
    // If the path is set already, another test of this process set the same one.
    let _ = PROGRAM.set(path.into());
}

fn program() -> &'static std::path::Path {
    PROGRAM.get_or_init(|| env::current_exe().expect("the path of this program"))
}
