//! What a verb of the command line is. `VERBS` in `main.rs` lists the verbs; help, completions,
//! dispatch and the table in `docs/cli.md` come from that list.

use clap::{ArgMatches, Args, Command};

use crate::{
    outcome::{self, Misuse},
    terminal::Terminal,
};

/// The arguments of a verb, and what it does with them.
pub trait Action: Args {
    /// Runs the verb to its end. The outcome, or the error, decides the exit code.
    fn run(self, terminal: &Terminal) -> outcome::Result;
}

/// A verb, or one of the verbs below another, as `polywire idl check`.
#[derive(Clone, Copy)]
pub struct Verb {
    /// The word on the command line.
    pub name: &'static str,
    /// One line for lists of verbs.
    pub summary: &'static str,
    /// Further paragraphs for `--help`.
    details: &'static str,
    /// A command line that `docs/cli.md` has, too, where it runs as a test.
    example: &'static str,
    /// The verbs below this one.
    verbs: &'static [Verb],
    /// The program starts itself with this verb; people do not.
    hidden: bool,
    arguments: fn(Command) -> Command,
    run: fn(&ArgMatches, &Terminal) -> outcome::Result,
}

impl Verb {
    /// A verb with the arguments of `A`.
    pub const fn new<A: Action>(name: &'static str, summary: &'static str) -> Verb {
        Verb::custom(name, summary, A::augment_args, run::<A>)
    }

    /// A verb that only has others below it.
    pub const fn group(name: &'static str, summary: &'static str, verbs: &'static [Verb]) -> Verb {
        Verb::custom(name, summary, one_of, no_verb).with(verbs)
    }

    /// A verb whose arguments are made at run time. `run` is given everything behind the verb,
    /// unless that begins with a verb of [`Verb::with`].
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

    /// The verb as clap knows it, with those below it.
    fn command(&self) -> Command {
        let command = (self.arguments)(add(self.verbs, Command::new(self.name))).hide(self.hidden);
        let long = [self.summary, self.details].join("\n\n");
        let example = Some(self.example).filter(|example| !example.is_empty());
        let example = example.map(|example| format!("Example:\n  {example}"));
        let after: Vec<String> = command.get_after_help().map(ToString::to_string).into_iter().chain(example).collect();
        command.about(self.summary).long_about(long.trim_end().to_owned()).after_help(after.join("\n\n"))
    }
}

/// A command with these verbs below it.
pub fn add(verbs: &[Verb], command: Command) -> Command {
    command.subcommands(verbs.iter().map(Verb::command))
}

/// Runs the verb that the arguments name; `None` if it is none of these.
pub fn dispatch(verbs: &[Verb], matches: &ArgMatches, terminal: &Terminal) -> Option<outcome::Result> {
    let (name, matches) = matches.subcommand()?;
    let verb = verbs.iter().find(|verb| verb.name == name)?;
    Some(dispatch(verb.verbs, matches, terminal).unwrap_or_else(|| (verb.run)(matches, terminal)))
}

fn run<A: Action>(matches: &ArgMatches, terminal: &Terminal) -> outcome::Result {
    A::from_arg_matches(matches)?.run(terminal)
}

/// Clap refuses a command line without one of the verbs below.
pub fn one_of(command: Command) -> Command {
    command.subcommand_required(true).arg_required_else_help(true)
}

fn no_verb(_: &ArgMatches, _: &Terminal) -> outcome::Result {
    Err(Misuse("a verb is missing: --help lists them".into()).into())
}

#[cfg(test)]
mod tests {
    use std::{env, fs, path::Path};

    use super::*;
    use crate::{VERBS, command};

    /// Verbs for people and those below them, in the order of `--help`: whole names as clap has
    /// them, and summaries.
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

    /// The examples; a verb that is run for its own sake must have one.
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

    /// `POLYWIRE_BLESS=1` writes the table anew.
    #[test]
    fn the_documentation_lists_the_verbs() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
        let page = fs::read_to_string(&path).expect("docs/cli.md");
        let head = "| verb | |\n|---|---|\n";
        let row = |(name, summary): (String, String)| format!("| `{name}` | {summary} |\n");
        let rows: String = all(&command(), "").into_iter().map(row).collect();
        let start = page.find(head).expect("docs/cli.md has a table of verbs") + head.len();
        let len = page[start..].find("\n\n").expect("text behind the table") + 1;
        if env::var_os("POLYWIRE_BLESS").is_some() {
            let written = [&page[..start], &rows, &page[start + len..]].concat();
            return fs::write(&path, written).expect("written");
        }
        assert_eq!(page[start..start + len], rows, "docs/cli.md: run with POLYWIRE_BLESS=1 and look at the difference");
        for example in examples(VERBS) {
            let line = format!("$ {example}");
            let runs = |text: &str| {
                text.strip_prefix(&line).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', ';']))
            };
            assert!(page.lines().any(runs) || page.contains(&format!("`{example}`")), "docs/cli.md has no {example}");
        }
    }
}
