//! The command `polywire compat`: checks in each format whether readers and writers with two
//! versions of a type are compatible.

use std::{fmt, path::PathBuf};

use clap::{Args, ValueEnum, builder::PossibleValuesParser};
use polywire::{
    codec::{CODECS, Codec},
    schema::{
        Schema,
        evolve::{Verdict, assess},
    },
};
use serde::Serialize;

use crate::{
    outcome::{self, Misuse, Outcome},
    terminal::Terminal,
    types::{CompilerArgs, count},
    verb::{Action, Verb},
};

mod trial;

pub const VERB: Verb = Verb::new::<Compat>(
    "compat",
    "Checks whether two versions of a type can read each other's messages, in each format",
)
.details("Exit code 0: compatible; 1: not compatible; 2: a file is wrong; 3: bad arguments.")
.example("polywire compat weather.idl report.idl");

#[derive(Args)]
pub struct Compat {
    /// File with the older types: IDL, PDL, .msg or .srv of ROS 2, or a schema that `typeof --save`
    /// wrote
    #[arg(value_name = "OLD")]
    old: PathBuf,
    /// File with the newer types
    #[arg(value_name = "NEW")]
    new: PathBuf,
    /// Compares only this type [default: all types that the files themselves define]
    #[arg(long = "type", value_name = "NAME")]
    name: Option<String>,
    /// Formats to check, separated by commas [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = PossibleValuesParser::new(names()))]
    format: Vec<String>,
    /// Which version must be able to read data of the other
    #[arg(long, value_enum, default_value_t = Direction::Full)]
    direction: Direction,
    /// Judges readers that know only their own type, as foreign programs do; Polywire's readers
    /// fetch the writer's type
    #[arg(long)]
    without_schema: bool,
    /// Counts the verdict "per value" as not compatible
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    compiler: CompilerArgs,
}

/// The terms of schema registries.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Direction {
    /// New readers, old data
    Backward,
    /// Old readers, new data
    Forward,
    /// Both
    Full,
}

/// A verdict: which values of a writer a reader can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    Always,
    PerValue,
    Refused,
    /// Some value is read as another value, without an error.
    Misread,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Judgement {
    verdict: Word,
    findings: Vec<Finding>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Finding {
    /// Empty for the type as a whole.
    path: String,
    problem: String,
    fix: Option<String>,
}

#[derive(Serialize)]
struct Formats {
    format: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    backward: Option<Judgement>,
    #[serde(skip_serializing_if = "Option::is_none")]
    forward: Option<Judgement>,
}

#[derive(Serialize)]
struct Compared {
    old: String,
    new: String,
    compatible: bool,
    formats: Vec<Formats>,
}

#[derive(Serialize)]
struct Report {
    compatible: bool,
    types: Vec<Compared>,
    /// Types that the newer file no longer has.
    removed: Vec<String>,
    /// Types that the older file does not have.
    added: Vec<String>,
}

fn names() -> impl Iterator<Item = &'static str> {
    CODECS.iter().map(|codec| codec.name())
}

impl Action for Compat {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        let mut old = self.compiler.schemas(&self.old, self.name.as_deref(), terminal)?;
        let mut new = self.compiler.schemas(&self.new, self.name.as_deref(), terminal)?;
        if old.is_empty() || new.is_empty() {
            let empty = if old.is_empty() { &self.old } else { &self.new };
            return Err(Misuse(format!("{} has no struct or union that can be a topic's type", empty.display())).into());
        }
        let mut types = Vec::new();
        let only = old.len() == 1 && new.len() == 1;
        old.retain(|before| {
            // If each file has one type, the names of the types need not be equal.
            let Some(at) = new.iter().position(|after| only || after.name() == before.name()) else { return true };
            types.push(self.compare(before, &new.remove(at)));
            false
        });
        let name = |schema: Schema| schema.name().to_owned();
        let removed: Vec<String> = old.into_iter().map(name).collect();
        let compatible = removed.is_empty() && types.iter().all(|compared| compared.compatible);
        let report = Report { compatible, types, removed, added: new.into_iter().map(name).collect() };
        match terminal.json {
            true => terminal.value(&report)?,
            false => terminal.text(&report.to_string())?,
        }
        Ok(if compatible { Outcome::Fine } else { Outcome::Missed })
    }
}

impl Compat {
    fn compare(&self, old: &Schema, new: &Schema) -> Compared {
        let wanted = |codec: &&&dyn Codec| self.format.is_empty() || self.format.iter().any(|f| f == codec.name());
        let formats: Vec<Formats> = CODECS.iter().filter(wanted).map(|codec| self.formats(*codec, old, new)).collect();
        let good = |judgement: &Judgement| match judgement.verdict {
            Word::Always => true,
            Word::PerValue => !self.strict,
            Word::Refused | Word::Misread => false,
        };
        let all = |formats: &Formats| formats.backward.iter().chain(&formats.forward).all(good);
        let compatible = formats.iter().all(all);
        Compared { old: old.name().to_owned(), new: new.name().to_owned(), compatible, formats }
    }

    fn formats(&self, codec: &'static dyn Codec, old: &Schema, new: &Schema) -> Formats {
        let judge = |wanted: Direction, writer: &Schema, reader: &Schema| {
            let judgement = || judge(codec, writer, reader, self.without_schema);
            [wanted, Direction::Full].contains(&self.direction).then(judgement)
        };
        Formats {
            format: codec.name(),
            backward: judge(Direction::Backward, old, new),
            forward: judge(Direction::Forward, new, old),
        }
    }
}

/// Applies the rules of evolution, which are the same for every format, and checks that the format
/// can carry the types. Without the writer's schema, also tries values.
fn judge(codec: &'static dyn Codec, writer: &Schema, reader: &Schema, without_schema: bool) -> Judgement {
    let by_rules = Judgement::from(assess(writer, reader));
    if by_rules.verdict == Word::Refused {
        return by_rules;
    }
    match trial::Trial::new(codec, writer, reader) {
        Ok(trial) if without_schema => trial.without_schema(by_rules),
        Ok(_) => by_rules,
        Err(error) => Judgement::refused(format!("{} cannot carry the type: {error:#}", codec.name())),
    }
}

impl From<Verdict> for Judgement {
    fn from(verdict: Verdict) -> Judgement {
        let (verdict, findings) = match verdict {
            Verdict::Always => (Word::Always, Vec::new()),
            Verdict::PerValue(conditions) => {
                let finding = |c: polywire::schema::evolve::Condition| Finding {
                    path: c.path,
                    problem: format!("{}: {}", c.text, c.policy),
                    fix: None,
                };
                (Word::PerValue, conditions.into_iter().map(finding).collect())
            }
            Verdict::Refused(reasons) => {
                let finding = |r: polywire::schema::evolve::Reason| {
                    let problem = format!("the writer has {}, the reader {}", r.writer, r.reader);
                    Finding { path: r.path, problem, fix: Some(r.fix) }
                };
                (Word::Refused, reasons.into_iter().map(finding).collect())
            }
        };
        Judgement { verdict, findings }
    }
}

impl Judgement {
    fn refused(problem: String) -> Judgement {
        Judgement { verdict: Word::Refused, findings: vec![Finding { path: String::new(), problem, fix: None }] }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for compared in &self.types {
            match compared.old == compared.new {
                true => writeln!(f, "{}", compared.new)?,
                false => writeln!(f, "{}, formerly {}", compared.new, compared.old)?,
            }
            let direction = |of: fn(&Formats) -> &Option<Judgement>| {
                compared.formats.iter().filter_map(|formats| Some((formats.format, of(formats).as_ref()?))).collect()
            };
            groups(f, "backward (new readers, old data)", direction(|formats| &formats.backward))?;
            groups(f, "forward (old readers, new data)", direction(|formats| &formats.forward))?;
        }
        self.removed.iter().try_for_each(|name| writeln!(f, "{name}\n  removed: the newer file does not have it"))?;
        self.added.iter().try_for_each(|name| writeln!(f, "{name}\n  added"))?;
        let types = count(self.types.len(), "type");
        writeln!(f, "{types}: {}", if self.compatible { "compatible" } else { "not compatible" })
    }
}

/// Prints the verdicts of one direction. Formats with the same verdict and findings share a line.
fn groups(f: &mut fmt::Formatter<'_>, title: &str, list: Vec<(&str, &Judgement)>) -> fmt::Result {
    let mut groups: Vec<(&Judgement, Vec<&str>)> = Vec::new();
    for (format, judgement) in list {
        match groups.iter_mut().find(|(known, _)| *known == judgement) {
            Some((_, formats)) => formats.push(format),
            None => groups.push((judgement, vec![format])),
        }
    }
    for (judgement, formats) in groups {
        writeln!(f, "  {title}: {} in {}", judgement.verdict, formats.join(", "))?;
        for Finding { path, problem, fix } in &judgement.findings {
            let path = if path.is_empty() { "the type" } else { path };
            writeln!(f, "    {path}: {problem}")?;
            fix.iter().try_for_each(|fix| writeln!(f, "      to fix it: {fix}"))?;
        }
    }
    Ok(())
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Word::Always => "always",
            Word::PerValue => "per value",
            Word::Refused => "refused",
            Word::Misread => "misread",
        })
    }
}
