//! Programs that tests start, and what they print.

use std::{
    io::{BufRead as _, BufReader},
    process::{ChildStdin, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use crate::waiting::{Process, SOON};

/// A process that prints lines, and is killed when this is dropped.
pub struct Program {
    process: Process,
    /// The program ends when its standard input does.
    _stdin: Option<ChildStdin>,
    lines: mpsc::Receiver<String>,
}

impl Program {
    /// Starts a program, with pipes for its standard input and output.
    pub fn start(command: &mut Command) -> Program {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().expect("standard output is a pipe"));
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            lines.for_each(|line| drop(sender.send(line)));
        });
        Program { process: Process(child), _stdin: stdin, lines }
    }

    /// Sends a signal to it.
    #[cfg(unix)]
    pub fn signal(&self, signal: rustix::process::Signal) {
        let id = rustix::process::Pid::from_child(&self.process.0);
        rustix::process::kill_process(id, signal).expect("it runs");
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.process.0.try_wait().is_ok_and(|status| status.is_some())
    }

    /// The next line that it prints, which must come [soon](SOON).
    pub fn line(&self) -> String {
        self.line_within(SOON).expect("a line of the program")
    }

    /// The next line that it prints; `None` if it prints none for so long, or ends.
    pub fn line_within(&self, at_most: Duration) -> Option<String> {
        self.lines.recv_timeout(at_most).ok()
    }
}
