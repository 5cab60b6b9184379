//! Starts the child process at the other end, and runs in it. The parent reads the addresses from
//! the child's standard output and closes its standard input to end it.

use std::{
    env,
    io::{self, BufRead, BufReader, Read, Write},
    process::{Child, Command, Stdio},
    sync::OnceLock,
};

use super::{Family, latency, throughput};

/// The first argument with which this program runs as the other end.
pub const CHILD: &str = "child";

/// Runs the other end that `words` name. Prints the addresses on which it listens, and returns when
/// standard input ends.
/// # Panics
/// If no other end has these words.
pub fn serve(words: &[String]) {
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["latency", "tcp"] => latency::echo(Family::Tcp),
        ["latency", "unix"] => latency::echo(Family::Unix),
        ["throughput", turn] => throughput::count(turn.parse().expect("a number of messages")),
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

/// A running child process. Dropping this ends the child and waits for it.
pub(super) struct OtherEnd {
    child: Child,
    /// The addresses on which the child listens.
    pub addresses: Vec<String>,
}

impl OtherEnd {
    pub(super) fn start(words: &[&str]) -> OtherEnd {
        let mut command = Command::new(program());
        command.arg(CHILD).args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the child starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("the child prints addresses");
        OtherEnd { child, addresses: line.split_whitespace().map(String::from).collect() }
    }
}

impl Drop for OtherEnd {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // The child's exit code does not matter.
        let _ = self.child.wait();
    }
}

static PROGRAM: OnceLock<std::path::PathBuf> = OnceLock::new();

/// Sets the path of the program that runs as the other end. Tests call it, because their own
/// program does not call [`serve`].
pub fn set_program(path: &str) {
    // If the path is set already, another test of this process set the same one.
    let _ = PROGRAM.set(path.into());
}

fn program() -> &'static std::path::Path {
    PROGRAM.get_or_init(|| env::current_exe().expect("the path of this program"))
}
