//! The command `polywire completions`: prints completion scripts for shells.

use clap::Args;
use clap_complete::Shell;

use serde::Serialize;

use crate::{
    command,
    outcome::{self, Outcome},
    terminal::Terminal,
    verb::{Action, Verb},
};

pub const VERB: Verb = Verb::new::<Completions>("completions", "Prints completions for a shell")
    .details("For bash: source <(polywire completions bash)")
    .example("polywire completions bash");

#[derive(Args)]
pub struct Completions {
    /// Shell to print completions for
    shell: Shell,
}

#[derive(Serialize)]
struct Printed {
    shell: String,
    script: String,
}

impl Action for Completions {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command(), "polywire", &mut script);
        let (shell, script) = (self.shell.to_string(), String::from_utf8(script)?);
        match terminal.json {
            true => terminal.value(&Printed { shell, script })?,
            false => terminal.plain(&script)?,
        }
        Ok(Outcome::Fine)
    }
}
