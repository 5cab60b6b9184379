//! The command `polywire idl`: checks files with types, and translates them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::{
    ArgMatches, Args, Command, FromArgMatches as _,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser as _},
};
use polywire_idl::{
    Diagnostic, Severity,
    emit::{EMITTERS, Emitter, emitter},
};
use serde_json::{Value, json};

use crate::{
    outcome::{self, Misuse, Outcome},
    terminal::Terminal,
    types::{CompilerArgs, count},
    verb::{Action, Verb, one_of},
};

/// `polywire idl`. Each emitter of the front end becomes a command below it, so a new emitter
/// requires no change here.
pub const VERB: Verb = Verb::custom("idl", "Checks IDL, PDL and ROS 2 files, and translates them", targets, translate)
    .with(&[CHECK, EMIT]);

const CHECK: Verb = Verb::new::<Check>("check", "Reports errors and warnings in IDL, PDL and ROS 2 files")
    .example("polywire idl check weather.idl bad.idl");

#[derive(Args)]
struct Check {
    /// Files to check
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    compiler: CompilerArgs,
    /// Counts warnings as errors
    #[arg(long)]
    strict: bool,
}

const EMIT: Verb = Verb::new::<Emit>("emit", "Translates to the target that its first argument names")
    .example("polywire idl emit idl robot/msg/State.msg");

#[derive(Args)]
struct Emit {
    /// Target to translate to
    #[arg(value_name = "TARGET", value_parser = target())]
    target: &'static Emitter,
    #[command(flatten)]
    what: Translate,
}

#[derive(Args)]
struct Translate {
    /// IDL or PDL file, or .msg, .srv or .action file of ROS 2
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Translates only this type and the types that it needs
    #[arg(long = "type", value_name = "NAME")]
    name: Option<String>,
    /// File to write [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    compiler: CompilerArgs,
}

fn target() -> impl clap::builder::TypedValueParser<Value = &'static Emitter> {
    let values = EMITTERS.iter().map(|emitter| PossibleValue::new(emitter.name).help(emitter.description));
    PossibleValuesParser::new(values)
        .try_map(|name| emitter(&name).ok_or_else(|| format!("there is no emitter '{name}'")))
}

/// Adds a command for each emitter.
fn targets(command: Command) -> Command {
    let verb = |emitter: &Emitter| {
        let command = Translate::augment_args(Command::new(emitter.name));
        command.about(format!("Writes {}", emitter.description)).long_about(None)
    };
    one_of(command).subcommands(EMITTERS.iter().map(verb))
}

/// Runs the command of an emitter.
fn translate(matches: &ArgMatches, terminal: &Terminal) -> outcome::Result {
    let target = matches.subcommand().and_then(|(name, matches)| Some((emitter(name)?, matches)));
    let (emitter, matches) = target.ok_or_else(|| Misuse("a target is missing: --help lists them".into()))?;
    Translate::from_arg_matches(matches)?.run(emitter, terminal)
}

impl Action for Emit {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        self.what.run(self.target, terminal)
    }
}

impl Action for Check {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        let (mut errors, mut warnings, mut all) = (0, 0, Vec::new());
        for file in &self.files {
            let found = self.compiler.parse(file);
            let found = found.as_ref().map_or_else(|diagnostics| diagnostics, |document| document.warnings());
            errors += found.errors();
            warnings += found.warnings();
            match terminal.json {
                true => all.extend(found.iter().map(describe)),
                false => terminal.diagnostics(|colour| found.render(colour)),
            }
        }
        // Errors come before warnings, whichever file they are in.
        all.sort_by_key(|diagnostic| diagnostic["severity"] != "error");
        match terminal.json {
            true => terminal.value(&json!({ "errors": errors, "warnings": warnings, "diagnostics": all }))?,
            false => {
                let files = count(self.files.len(), "file");
                terminal.line(&format!("{files}: {}, {}", count(errors, "error"), count(warnings, "warning")))?;
            }
        }
        let bad = errors > 0 || (self.strict && warnings > 0);
        Ok(if bad { Outcome::Failed } else { Outcome::Fine })
    }
}

impl Translate {
    fn run(&self, emitter: &Emitter, terminal: &Terminal) -> outcome::Result {
        let document = self.compiler.document(&self.file, terminal)?;
        terminal.diagnostics(|colour| document.warnings().render(colour));
        let named = |name: &String| {
            let schema = document.schema(name);
            schema.map_err(|error| Misuse(format!("{}: {error}", self.file.display())))
        };
        let text = match &self.name {
            // Constants refer to types of the whole document, so a part of it has none.
            Some(name) => (emitter.emit)(&named(name)?, &[]),
            None => (emitter.emit)(document.definitions(), document.constants()),
        };
        let text = text.with_context(|| format!("{} cannot be written as {}", self.file.display(), emitter.name))?;
        match &self.output {
            Some(path) => {
                write(path, &text)?;
                if terminal.json {
                    terminal.value(&json!({ "target": emitter.name, "file": path }))?;
                }
            }
            None if terminal.json => terminal.value(&json!({ "target": emitter.name, "text": text }))?,
            None => terminal.text(&text)?,
        }
        Ok(Outcome::Fine)
    }
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn describe(diagnostic: &Diagnostic) -> Value {
    let place = &diagnostic.location;
    let note = |note: &polywire_idl::Note| {
        let at = note.location.as_ref().map(|at| json!({ "file": at.file, "line": at.line, "column": at.column }));
        json!({ "message": note.message, "location": at })
    };
    json!({
        "severity": if diagnostic.severity == Severity::Error { "error" } else { "warning" },
        "file": place.file,
        "line": place.line,
        "column": place.column,
        "length": place.length,
        "message": diagnostic.message,
        "help": diagnostic.help,
        "notes": diagnostic.notes.iter().map(note).collect::<Vec<_>>(),
    })
}
