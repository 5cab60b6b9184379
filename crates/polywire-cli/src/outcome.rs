//! How a verb ends: its exit code.

use std::{fmt, io, process::ExitCode};

/// What verbs give.
pub type Result = anyhow::Result<Outcome>;

/// The exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Fine = 0,
    Missed = 1,
    Failed = 2,
    Misused = 3,
    /// As shells say of a process that Ctrl-C ended.
    Interrupted = 130,
}

/// An error that is one of the arguments.
#[derive(Debug)]
pub struct Misuse(pub String);

/// What was asked for did not happen.
#[derive(Debug)]
pub struct Missed(pub String);

impl Outcome {
    /// The exit code that an error stands for.
    pub fn of(error: &anyhow::Error) -> Outcome {
        let mut causes = error.chain();
        if error.is::<Misuse>() {
            Outcome::Misused
        } else if error.is::<Missed>() {
            Outcome::Missed
        } else if causes.any(is_broken_pipe) {
            // `polywire echo | head` has seen enough.
            Outcome::Fine
        } else {
            Outcome::Failed
        }
    }
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
    fn errors_have_their_codes() {
        let broken = io::Error::from(io::ErrorKind::BrokenPipe);
        assert_eq!(Outcome::of(&Misuse("x".into()).into()), Outcome::Misused);
        assert_eq!(Outcome::of(&Missed("x".into()).into()), Outcome::Missed);
        assert_eq!(Outcome::of(&anyhow::anyhow!("x")), Outcome::Failed);
        let wrapped = Err::<(), _>(broken).context("cannot print").expect_err("an error");
        assert_eq!(Outcome::of(&wrapped), Outcome::Fine);
    }
}
