//! `polywire idl`

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::{
    Args, Subcommand,
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
};

/// Checks IDL, PDL and ROS 2 files, and translates them
#[derive(Subcommand)]
pub enum Idl {
    Check(Check),
    Rust(RustTypes),
    Proto(ProtoTypes),
    Xsd(XsdTypes),
    Emit(Emit),
}

/// Tells what is wrong with IDL, PDL and ROS 2 files
#[derive(Args)]
pub struct Check {
    /// The files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    compiler: CompilerArgs,
    /// Takes warnings for errors
    #[arg(long)]
    strict: bool,
}

/// Prints Rust types that derive Message
#[derive(Args)]
pub struct RustTypes {
    #[command(flatten)]
    what: Translate,
}

/// Prints proto3 messages for peers of the codec protobuf
#[derive(Args)]
pub struct ProtoTypes {
    #[command(flatten)]
    what: Translate,
}

/// Prints the XML Schema of what the codec xml writes
#[derive(Args)]
pub struct XsdTypes {
    #[command(flatten)]
    what: Translate,
}

/// Prints the types of a file in another language
#[derive(Args)]
pub struct Emit {
    /// The language
    #[arg(value_name = "TARGET", value_parser = targets())]
    target: &'static Emitter,
    #[command(flatten)]
    what: Translate,
}

#[derive(Args)]
struct Translate {
    /// IDL or PDL file, or .msg, .srv or .action of ROS 2
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Only this type and those it needs
    #[arg(long = "type", value_name = "NAME")]
    name: Option<String>,
    /// Writes to this file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    compiler: CompilerArgs,
}

fn targets() -> impl clap::builder::TypedValueParser<Value = &'static Emitter> {
    let values = EMITTERS.iter().map(|emitter| PossibleValue::new(emitter.name).help(emitter.description));
    PossibleValuesParser::new(values)
        .try_map(|name| emitter(&name).ok_or_else(|| format!("there is no emitter '{name}'")))
}

impl Idl {
    pub fn run(self, terminal: &Terminal) -> outcome::Result {
        match self {
            Idl::Check(check) => check.run(terminal),
            Idl::Rust(rust) => rust.what.run(emitter("rust").context("there is no emitter 'rust'")?, terminal),
            Idl::Proto(proto) => proto.what.run(emitter("proto").context("there is no emitter 'proto'")?, terminal),
            Idl::Xsd(xsd) => xsd.what.run(emitter("xsd").context("there is no emitter 'xsd'")?, terminal),
            Idl::Emit(emit) => emit.what.run(emit.target, terminal),
        }
    }
}

impl Check {
    fn run(&self, terminal: &Terminal) -> outcome::Result {
        let (mut errors, mut warnings, mut all) = (0, 0, Vec::new());
        for file in &self.files {
            let found = self.compiler.parse(file);
            let found = found.as_ref().map_or_else(|diagnostics| diagnostics, |document| document.warnings());
            errors += found.errors();
            warnings += found.warnings();
            match terminal.json {
                true => all.extend(found.iter().map(describe)),
                false => eprint!("{}", found.render(terminal.colour)),
            }
        }
        // What is wrong comes first, whichever file it is in.
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
        eprint!("{}", document.warnings().render(terminal.colour));
        let named = |name: &String| {
            let schema = document.schema(name);
            schema.map_err(|error| Misuse(format!("{}: {error}", self.file.display())))
        };
        let text = match &self.name {
            // References of constants are to the whole document.
            Some(name) => (emitter.emit)(&named(name)?, &[]),
            None => (emitter.emit)(document.definitions(), document.constants()),
        };
        let text = text.with_context(|| format!("{} cannot be written as {}", self.file.display(), emitter.name))?;
        match &self.output {
            Some(path) => write(path, &text)?,
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
