//! The exit codes of commands, and the errors that cause them.

use std::{fmt, io, process::ExitCode};

use polywire::{NodeError, engine::EngineError};

/// The result of a command.
pub type Result = anyhow::Result<Outcome>;

/// The exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Fine = 0,
    Missed = 1,
    Failed = 2,
    Misused = 3,
    /// The code that shells report for a process that SIGHUP ended.
    HungUp = 129,
    /// The code that shells report for a process that SIGINT (Ctrl-C) ended.
    Interrupted = 130,
    /// The code that shells report for a process that SIGTERM ended.
    Terminated = 143,
}

/// Wrong arguments.
#[derive(Debug)]
pub struct Misuse(pub String);

/// A request that was not fulfilled, such as a message that did not arrive in time.
#[derive(Debug)]
pub struct Missed(pub String);

impl Outcome {
    /// Returns the exit code of an error.
    pub fn of(error: &anyhow::Error) -> Outcome {
        let mut causes = error.chain();
        if error.is::<Misuse>() || error.chain().any(is_misuse) {
            Outcome::Misused
        } else if error.is::<Missed>() {
            Outcome::Missed
        } else if causes.any(is_broken_pipe) {
            // The reader of a pipe has ended, as in `polywire echo | head`.
            Outcome::Fine
        } else {
            Outcome::Failed
        }
    }
}

/// True for errors in topics and wires that only the node detects. They are wrong arguments,
/// because topics and wires come from the command line.
fn is_misuse(cause: &(dyn std::error::Error + 'static)) -> bool {
    let named = |error: &NodeError| match error {
        NodeError::Topic(_) | NodeError::Wire(_) => true,
        NodeError::Engine(error) => matches!(error, EngineError::Address { .. }),
        _ => false,
    };
    cause.downcast_ref().is_some_and(named)
}

/// Returns an error and its causes in one line. A cause is omitted if the text before it already
/// ends with it.
pub fn chain(error: &anyhow::Error) -> String {
    error.chain().skip(1).fold(error.to_string(), |text, cause| match cause.to_string() {
        said if text.ends_with(&said) => text,
        more => format!("{text}: {more}"),
    })
}

fn is_broken_pipe(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> ExitCode {
        ExitCode::from(outcome as u8)
    }
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Missed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Misuse {}
impl std::error::Error for Missed {}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn a_cause_is_told_once() {
        #[derive(Debug)]
        struct Repeats(io::Error);
        impl fmt::Display for Repeats {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a.toml: {}", self.0)
            }
        }
        impl std::error::Error for Repeats {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                Some(&self.0)
            }
        }
        let no_file = || io::Error::from_raw_os_error(2);
        let repeats = anyhow::Error::from(Repeats(no_file())).context("cannot start");
        assert_eq!(chain(&repeats), "cannot start: a.toml: No such file or directory (os error 2)");
        let plain = anyhow::Error::from(no_file()).context("cannot read a.toml");
        assert_eq!(chain(&plain), "cannot read a.toml: No such file or directory (os error 2)");
    }

    #[test]
    fn errors_have_their_codes() {
        let broken = io::Error::from(io::ErrorKind::BrokenPipe);
        assert_eq!(Outcome::of(&Misuse("x".into()).into()), Outcome::Misused);
        assert_eq!(Outcome::of(&Missed("x".into()).into()), Outcome::Missed);
        assert_eq!(Outcome::of(&anyhow::anyhow!("x")), Outcome::Failed);
        let wrapped = Err::<(), _>(broken).context("cannot print").expect_err("an error");
        assert_eq!(Outcome::of(&wrapped), Outcome::Fine);
    }
}
