//! The process at the other end.

use std::{
    env,
    io::{self, BufRead, BufReader, Read, Write},
    process::{Child, Command, Stdio},
    sync::OnceLock,
};

use super::{Family, latency, throughput};

/// The word that makes this program the other end.
pub const CHILD: &str = "child";

/// Is the other end: says where it listens, and ends with its input.
pub fn serve(words: &[String]) {
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["latency", "tcp"] => latency::echo(Family::Tcp),
        ["latency", "unix"] => latency::echo(Family::Unix),
        ["throughput", turn] => throughput::count(turn.parse().expect("messages in a turn")),
        other => panic!("no other end is called {other:?}"),
    }
}

/// Tells the parent where to connect, and stays until it has gone.
pub(super) fn stay(addresses: &[String]) {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", addresses.join(" ")).and_then(|()| out.flush()).expect("the parent listens");
    // An error is as good as an end.
    let _ = io::stdin().lock().read_to_end(&mut Vec::new());
}

/// A running other end, which is told to end and waited for when this is dropped.
pub(super) struct OtherEnd {
    child: Child,
    /// Where it listens.
    pub addresses: Vec<String>,
}

impl OtherEnd {
    pub(super) fn start(words: &[&str]) -> OtherEnd {
        let mut command = Command::new(program());
        command.arg(CHILD).args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("this very program");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("addresses");
        OtherEnd { child, addresses: line.split_whitespace().map(String::from).collect() }
    }
}

impl Drop for OtherEnd {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // That it has gone is all that matters here.
        let _ = self.child.wait();
    }
}

static PROGRAM: OnceLock<std::path::PathBuf> = OnceLock::new();

/// For tests, whose own program is not the one that serves.
pub fn set_program(path: &str) {
    // A second test of the same process says the same.
    let _ = PROGRAM.set(path.into());
}

fn program() -> &'static std::path::Path {
    PROGRAM.get_or_init(|| env::current_exe().expect("the path of this program"))
}
