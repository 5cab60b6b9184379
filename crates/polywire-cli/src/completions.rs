//! `polywire completions`

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use serde::Serialize;

use crate::{
    Cli,
    outcome::{self, Outcome},
    terminal::Terminal,
};

/// Prints completions for a shell
///
/// For bash: source <(polywire completions bash)
#[derive(Args)]
pub struct Completions {
    /// The shell
    shell: Shell,
}

#[derive(Serialize)]
struct Printed {
    shell: String,
    script: String,
}

impl Completions {
    pub fn run(self, terminal: &Terminal) -> outcome::Result {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "polywire", &mut script);
        let (shell, script) = (self.shell.to_string(), String::from_utf8(script)?);
        match terminal.json {
            true => terminal.value(&Printed { shell, script })?,
            false => terminal.plain(&script)?,
        }
        Ok(Outcome::Fine)
    }
}
