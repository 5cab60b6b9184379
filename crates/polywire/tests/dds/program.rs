//! Programs that tests of the engine `dds` start, and the domains that they meet in.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use polywire_testing::tools;
pub use polywire_testing::{domains::lease as domain, tools::CYCLONE_ON_LOOPBACK as LOOPBACK};

pub const SOON: Duration = Duration::from_secs(60);

/// `peer.py` in a mode, on a topic with one of its types. `None` if Python has no Cyclone DDS.
pub fn peer(mode: &str, domain: u32, topic: &str, of: &str) -> Option<Command> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/dds/peer.py");
    let mut command = Command::new(tools::python());
    command.args([script, mode, &domain.to_string(), topic, of]);
    tools::python_has("cyclonedds").then_some(command)
}

/// A process that ends with this value.
pub struct Program {
    child: Child,
    /// The program ends when its standard input does.
    _stdin: Option<ChildStdin>,
    lines: mpsc::Receiver<String>,
}

impl Program {
    pub fn start(command: &mut Command) -> Program {
        Program::start_with(command, LOOPBACK)
    }

    /// With a configuration of its own.
    pub fn start_with(command: &mut Command, configuration: &str) -> Program {
        let command = command.env("CYCLONEDDS_URI", configuration).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().expect("standard output is a pipe"));
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            lines.for_each(|line| drop(sender.send(line)));
        });
        Program { child, _stdin: stdin, lines }
    }

    #[cfg(unix)]
    pub fn signal(&self, signal: rustix::process::Signal) {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, signal).expect("it runs");
    }

    #[allow(dead_code, reason = "not all test files need it")]
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    pub fn line(&self) -> String {
        self.line_within(SOON).expect("a line of the program")
    }

    pub fn line_within(&self, at_most: Duration) -> Option<String> {
        self.lines.recv_timeout(at_most).ok()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // An error means that it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
