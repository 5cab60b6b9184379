//! The type of a *verb*: a command of `polywire`, such as `pub` or `idl check`. `VERBS` in
//! `main.rs` lists the verbs; help, completions, dispatch and the table in `docs/cli.md` come from
//! that list.

use clap::{ArgMatches, Args, Command};

use crate::{
    outcome::{self, Misuse},
    terminal::Terminal,
};

/// The arguments of a verb, and the code that runs it.
pub trait Action: Args {
    /// Runs the verb to its end. The outcome, or the error, decides the exit code.
    fn run(self, terminal: &Terminal) -> outcome::Result;
}

/// A verb such as `polywire pub`, or a verb below another, such as `polywire idl check`.
#[derive(Clone, Copy)]
pub struct Verb {
    /// The word on the command line.
    pub name: &'static str,
    /// One line for lists of verbs.
    pub summary: &'static str,
    /// Further paragraphs for `--help`.
    details: &'static str,
    /// A command line that `docs/cli.md` also shows. A test runs it there.
    example: &'static str,
    /// The verbs below this one.
    verbs: &'static [Verb],
    /// Not in `--help`: only the program itself starts processes with this verb.
    hidden: bool,
    arguments: fn(Command) -> Command,
    run: fn(&ArgMatches, &Terminal) -> outcome::Result,
}

impl Verb {
    /// Returns a verb with the arguments of `A`.
    pub const fn new<A: Action>(name: &'static str, summary: &'static str) -> Verb {
        Verb::custom(name, summary, A::augment_args, run::<A>)
    }

    /// Returns a verb that only groups the verbs below it.
    pub const fn group(name: &'static str, summary: &'static str, verbs: &'static [Verb]) -> Verb {
        Verb::custom(name, summary, one_of, no_verb).with(verbs)
    }

    /// Returns a verb whose arguments are built at run time. If a verb of [`Verb::with`] follows on
    /// the command line, that verb runs; otherwise `run` gets all arguments.
    pub const fn custom(
        name: &'static str,
        summary: &'static str,
        arguments: fn(Command) -> Command,
        run: fn(&ArgMatches, &Terminal) -> outcome::Result,
    ) -> Verb {
        Verb { name, summary, details: "", example: "", verbs: &[], hidden: false, arguments, run }
    }

    pub const fn details(self, details: &'static str) -> Verb {
        Verb { details, ..self }
    }

    pub const fn example(self, example: &'static str) -> Verb {
        Verb { example, ..self }
    }

    pub const fn with(self, verbs: &'static [Verb]) -> Verb {
        Verb { verbs, ..self }
    }

    pub const fn hidden(self) -> Verb {
        Verb { hidden: true, ..self }
    }

    /// Returns the clap command of this verb, with the verbs below it.
    fn command(&self) -> Command {
        let command = (self.arguments)(add(self.verbs, Command::new(self.name))).hide(self.hidden);
        let long = [self.summary, self.details].join("\n\n");
        let example = Some(self.example).filter(|example| !example.is_empty());
        let example = example.map(|example| format!("Example:\n  {example}"));
        let after: Vec<String> = command.get_after_help().map(ToString::to_string).into_iter().chain(example).collect();
        command.about(self.summary).long_about(long.trim_end().to_owned()).after_help(after.join("\n\n"))
    }
}

/// Adds these verbs to a command.
pub fn add(verbs: &[Verb], command: Command) -> Command {
    command.subcommands(verbs.iter().map(Verb::command))
}

/// Runs the verb that the arguments name; `None` if they name none of `verbs`.
pub fn dispatch(verbs: &[Verb], matches: &ArgMatches, terminal: &Terminal) -> Option<outcome::Result> {
    let (name, matches) = matches.subcommand()?;
    let verb = verbs.iter().find(|verb| verb.name == name)?;
    Some(dispatch(verb.verbs, matches, terminal).unwrap_or_else(|| (verb.run)(matches, terminal)))
}

fn run<A: Action>(matches: &ArgMatches, terminal: &Terminal) -> outcome::Result {
    A::from_arg_matches(matches)?.run(terminal)
}

/// Makes clap reject a command line that names no verb below this command.
pub fn one_of(command: Command) -> Command {
    command.subcommand_required(true).arg_required_else_help(true)
}

fn no_verb(_: &ArgMatches, _: &Terminal) -> outcome::Result {
    Err(Misuse("a command is missing: --help lists them".into()).into())
}

#[cfg(test)]
mod tests {
    use std::{env, fs, path::Path};

    use super::*;
    use crate::{VERBS, command};

    /// Returns full names and summaries of the visible verbs, in the order of `--help`; each is
    /// followed by the verbs below it.
    fn all(command: &Command, prefix: &str) -> Vec<(String, String)> {
        let visible = command.get_subcommands().filter(|verb| !verb.is_hide_set());
        let with_those_below = |verb: &Command| {
            let name = format!("{prefix}{}", verb.get_name());
            let summary = verb.get_about().map(ToString::to_string).unwrap_or_default();
            let below = all(verb, &format!("{name} "));
            [(name, summary)].into_iter().chain(below).collect::<Vec<_>>()
        };
        visible.flat_map(with_those_below).collect()
    }

    /// Returns the examples of the visible verbs. A verb has one exactly if it has arguments.
    fn examples(verbs: &[Verb]) -> Vec<&'static str> {
        let visible = verbs.iter().filter(|verb| !verb.hidden);
        let of = |verb: &Verb| {
            let has_arguments = (verb.arguments)(Command::new("")).get_arguments().next().is_some();
            assert_eq!(!verb.example.is_empty(), has_arguments, "{}: the example", verb.name);
            let own = Some(verb.example).filter(|example| !example.is_empty());
            own.into_iter().chain(examples(verb.verbs)).collect::<Vec<_>>()
        };
        visible.flat_map(of).collect()
    }

    #[test]
    fn clap_accepts_the_verbs() {
        command().debug_assert();
    }

    #[test]
    fn summaries_are_one_line_without_a_full_stop() {
        for (name, summary) in all(&command(), "") {
            assert!(!summary.is_empty() && !summary.ends_with('.') && !summary.contains('\n'), "{name}: {summary}");
        }
    }

    /// `POLYWIRE_BLESS=1` rewrites the table.
    #[test]
    fn the_documentation_lists_the_verbs() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
        let page = fs::read_to_string(&path).expect("docs/cli.md");
        let head = "| command | |\n|---|---|\n";
        let row = |(name, summary): (String, String)| format!("| `{name}` | {summary} |\n");
        let rows: String = all(&command(), "").into_iter().map(row).collect();
        let start = page.find(head).expect("docs/cli.md has a table of commands") + head.len();
        let len = page[start..].find("\n\n").expect("text after the table") + 1;
        if env::var_os("POLYWIRE_BLESS").is_some() {
            let written = [&page[..start], &rows, &page[start + len..]].concat();
            return fs::write(&path, written).expect("written");
        }
        assert_eq!(page[start..start + len], rows, "docs/cli.md: run with POLYWIRE_BLESS=1 and check the diff");
        for example in examples(VERBS) {
            let line = format!("$ {example}");
            let runs = |text: &str| {
                text.strip_prefix(&line).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', ';']))
            };
            assert!(page.lines().any(runs) || page.contains(&format!("`{example}`")), "docs/cli.md has no {example}");
        }
    }
}
