//! The process that holds a host. `Hosts` starts it as the first process of a process namespace, so
//! all processes that it starts end with it. It reads requests from standard input and writes
//! events to standard output, each as a line of JSON.

use std::{
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    process::{Command, Stdio},
    thread,
};

use serde::{Deserialize, Serialize};

/// A request to a host.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Run these programs with their arguments, one after the other.
    Setup(Vec<Vec<String>>),
    /// Start a shell command with these variables.
    Run { command: String, variables: Vec<(String, String)> },
}

/// An event of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Event {
    /// The host has started.
    Ready,
    /// The setup has succeeded, or why not.
    Done(Result<(), String>),
    /// A line of its command's standard output.
    Line(String),
    /// A line of its command's standard error.
    ErrorLine(String),
    /// Its command has ended, with this exit code if it was not killed.
    Ended(Option<i32>),
}

/// Holds a host until standard input ends: `polywire link-host`.
///
/// # Errors
/// Errors of standard input and output.
pub fn serve() -> io::Result<()> {
    // IPv6 sends packets of its own. They would be counted, and change which packets are lost. An
    // error means that the kernel has no IPv6.
    for group in ["all", "default"] {
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{group}/disable_ipv6"), "1");
    }
    tell(&Event::Ready);
    for line in io::stdin().lines() {
        match serde_json::from_str(&line?).map_err(io::Error::other)? {
            Request::Setup(steps) => tell(&Event::Done(steps.iter().try_for_each(|step| done(step)))),
            Request::Run { command, variables } => run(&command, variables),
        }
    }
    Ok(())
}

/// Runs a program and waits for its end.
pub fn done(step: &[String]) -> Result<(), String> {
    let Some((program, arguments)) = step.split_first() else { return Ok(()) };
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{}: {}", step.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
}

fn run(command: &str, variables: Vec<(String, String)>) {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).envs(variables);
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match shell.spawn() {
        Ok(child) => child,
        Err(error) => {
            tell(&Event::ErrorLine(format!("sh: {error}")));
            return tell(&Event::Ended(None));
        }
    };
    let (out, errors) = (child.stdout.take(), child.stderr.take());
    let readers = [
        out.map(|pipe| thread::spawn(move || lines(pipe, Event::Line))),
        errors.map(|pipe| thread::spawn(move || lines(pipe, Event::ErrorLine))),
    ];
    thread::spawn(move || {
        let status = child.wait();
        // Background processes of the command may keep its output open. Do not wait for them.
        let until = std::time::Instant::now() + std::time::Duration::from_millis(500);
        while readers.iter().flatten().any(|reader| !reader.is_finished()) && std::time::Instant::now() < until {
            thread::sleep(std::time::Duration::from_millis(5));
        }
        tell(&Event::Ended(status.ok().and_then(|status| status.code())));
    });
}

fn lines(pipe: impl Read, event: fn(String) -> Event) {
    for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
        tell(&event(String::from_utf8_lossy(&line).into_owned()));
    }
}

/// Sends an event to the parent. Ignores errors: they mean that the parent has ended, and then
/// standard input ends, too.
fn tell(event: &Event) {
    let mut out = io::stdout().lock();
    let _ = serde_json::to_writer(&mut out, event).map_err(io::Error::other).and_then(|()| {
        out.write_all(b"\n")?;
        out.flush()
    });
}
