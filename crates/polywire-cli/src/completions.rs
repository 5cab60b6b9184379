//! `polywire completions`

use std::io::{self, Write as _};

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::{
    Cli,
    outcome::{self, Outcome},
};

/// Prints completions for a shell
///
/// For bash: source <(polywire completions bash)
#[derive(Args)]
pub struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub fn run(self) -> outcome::Result {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "polywire", &mut script);
        io::stdout().lock().write_all(&script)?;
        Ok(Outcome::Fine)
    }
}
