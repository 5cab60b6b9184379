//! The command `polywire bench`: measures scenarios, compares results, and writes the pages of the
//! experiments.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::{Args, builder::PossibleValuesParser};
use indicatif::{ProgressBar, ProgressStyle};
use polywire_measure::{
    Error, Results, Scenario,
    compare::{self, Comparison},
    experiments::{Experiment, papers::PAPERS, scaling::SCALING},
    report, run, table,
};

use crate::{
    outcome::{self, Misuse, Outcome},
    terminal::{Terminal, columns},
    verb::{Action, Verb},
};

const HELP: &str = "\
Exit codes:
  0  success: all criteria of the scenario are met
  1  a criterion is missed; with compare, a figure became worse
  2  nothing could be measured
  3  bad arguments, or a wrong scenario

Each figure is followed by its rank (#1). Cases whose intervals overlap share a rank, because it is unknown which is
better.";

pub const VERB: Verb =
    Verb::new::<Bench>("bench", "Measures what a scenario describes, and checks the scenario's criteria")
        .details(
            "A scenario is a TOML file: types, value models, codecs, compressors, engines, networks, rates and \
         subscribers, each a list; all combinations are measured in interleaved turns. The folder scenarios has \
         examples.",
        )
        .example("polywire bench small.toml --output before.json --html before.html --markdown before.md")
        .with(&[COMPARE_VERB, PAPERS_VERB, SCALING_VERB]);

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, after_help = HELP)]
pub struct Bench {
    /// The scenario's TOML file
    #[arg(value_name = "SCENARIO.toml")]
    scenario: PathBuf,
    /// Writes all results to this file, as JSON
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Writes a page with plots to this file, as HTML
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Writes the table to this file, as Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Seed of all random choices [default: the scenario's]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Number of repeats [default: the scenario's]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    repeats: Option<u16>,
}

const PAPERS_VERB: Verb = Verb::new::<Papers>(
    "papers",
    "Repeats the experiments of the papers, and writes their pages: Markdown, plots, and every figure as JSON",
)
.details(
    "Run it in the folder that has scenarios/papers, or name that folder with --scenarios. All experiments take \
         about half an hour.",
)
.example("polywire bench papers");

#[derive(Args)]
struct Papers {
    /// Experiments to repeat [default: all]
    #[arg(value_name = "EXPERIMENT", value_parser = PossibleValuesParser::new(PAPERS.iter().map(|paper| paper.name)))]
    names: Vec<String>,
    /// Folder to write to
    #[arg(short, long, value_name = "DIR", default_value = "docs/experiments")]
    output: PathBuf,
    /// Folder with the scenarios
    #[arg(long, value_name = "DIR", default_value = "scenarios/papers")]
    scenarios: PathBuf,
    #[command(flatten)]
    effort: Effort,
}

const SCALING_VERB: Verb = Verb::new::<Scaling>(
    "scaling",
    "Measures what a message costs in large systems, and extrapolates with a model",
)
.details(
    "Measures the cost of a message against subscribers, topics, fields and bytes, fits a model, and extrapolates \
         it to a thousand publishers and ten thousand subscribers. Run it in the folder that has scenarios/scaling, \
         or name that folder with --scenarios. Writes a page with plots, and every figure as JSON; takes about ten \
         minutes.",
)
.example("polywire bench scaling");

#[derive(Args)]
struct Scaling {
    /// Folder to write to
    #[arg(short, long, value_name = "DIR", default_value = "docs")]
    output: PathBuf,
    /// Folder with the scenarios
    #[arg(long, value_name = "DIR", default_value = "scenarios/scaling")]
    scenarios: PathBuf,
    #[command(flatten)]
    effort: Effort,
}

/// How much is measured for a page.
#[derive(Args)]
struct Effort {
    /// Number of repeats [default: the scenarios']
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    repeats: Option<u16>,
    /// Measures a few messages only, as a trial run
    #[arg(long)]
    quick: bool,
    /// Measures nothing, but writes the pages again from the saved results beside them
    #[arg(long, conflicts_with_all = ["quick", "repeats"])]
    redraw: bool,
}

const COMPARE_VERB: Verb =
    Verb::new::<Compare>("compare", "Reports which figures became worse or better from one result to another")
        .details(
            "Times are compared only if both were measured on similar machines, and count only if their intervals do \
         not overlap. Bytes are always compared.",
        )
        .example("polywire bench compare before.json before.json");

#[derive(Args)]
struct Compare {
    /// The earlier results, as `bench --output` wrote them
    #[arg(value_name = "A.json")]
    before: PathBuf,
    /// The later results
    #[arg(value_name = "B.json")]
    after: PathBuf,
    /// Compares times even if the machines differ
    #[arg(long)]
    force: bool,
}

impl Action for Bench {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        self.measure(terminal)
    }
}

impl Bench {
    fn measure(&self, terminal: &Terminal) -> outcome::Result {
        let path = &self.scenario;
        let mut scenario = Scenario::open(path).map_err(misuse)?;
        scenario.seed = self.seed.unwrap_or(scenario.seed);
        scenario.effort.repeats = self.repeats.map_or(scenario.effort.repeats, usize::from);
        scenario.cases().map_err(misuse)?;
        let bar = progress(&scenario.name)?;
        let mut results = run(&scenario, &mut |done| bar.set_position((done * 1000.0) as u64)).map_err(misuse)?;
        bar.finish_and_clear();
        results.command = self.command(path);
        self.show(&results, terminal)?;
        let nothing = results.cases.iter().all(|result| result.problem.is_some());
        Ok(match (nothing, results.holds()) {
            (true, _) => Outcome::Failed,
            (false, true) => Outcome::Fine,
            (false, false) => Outcome::Missed,
        })
    }

    /// Returns the command that repeats the measurement.
    fn command(&self, path: &Path) -> String {
        let mut command = format!("polywire bench {}", path.display());
        if let Some(seed) = self.seed {
            command += &format!(" --seed {seed}");
        }
        if let Some(repeats) = self.repeats {
            command += &format!(" --repeats {repeats}");
        }
        command
    }

    fn show(&self, results: &Results, terminal: &Terminal) -> anyhow::Result<()> {
        type Write = fn(&Results) -> String;
        let json: Write = Results::to_json;
        for (path, text) in [(&self.output, json), (&self.html, report::html), (&self.markdown, table::page)] {
            if let Some(path) = path {
                fs::write(path, text(results)).with_context(|| format!("cannot write {}", path.display()))?;
            }
        }
        match terminal.json {
            true => terminal.value(results),
            false => Ok(terminal.text(&table::terminal(results))?),
        }
    }
}

/// Turns the error for a wrong scenario into one for a wrong argument.
fn misuse(error: Error) -> anyhow::Error {
    match error {
        Error::Scenario(text) => Misuse(text).into(),
        other => other.into(),
    }
}

fn progress(name: &str) -> anyhow::Result<ProgressBar> {
    let bar = ProgressBar::new(1000);
    bar.set_style(ProgressStyle::with_template("{msg} [{bar:30}] {percent} % {eta}")?.progress_chars("=> "));
    bar.set_message(name.to_owned());
    Ok(bar)
}

impl Action for Compare {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        let comparison = compare::compare(&read(&self.before)?, &read(&self.after)?, self.force);
        match terminal.json {
            true => terminal.value(&comparison)?,
            false => terminal.text(&page(&comparison))?,
        }
        Ok(if comparison.holds() { Outcome::Fine } else { Outcome::Missed })
    }
}

impl Action for Papers {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        let wanted = |paper: &&Experiment| self.names.is_empty() || self.names.iter().any(|name| name == paper.name);
        let mut outcome = Outcome::Fine;
        for paper in PAPERS.iter().filter(wanted) {
            if !self.effort.write(paper, &self.scenarios, &self.output, terminal)? {
                outcome = Outcome::Missed;
            }
        }
        Ok(outcome)
    }
}

impl Action for Scaling {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        let holds = self.effort.write(&SCALING, &self.scenarios, &self.output, terminal)?;
        Ok(if holds { Outcome::Fine } else { Outcome::Missed })
    }
}

impl Effort {
    /// Measures the scenarios of a page and writes it; false if a criterion is missed.
    fn write(&self, paper: &Experiment, scenarios: &Path, output: &Path, terminal: &Terminal) -> anyhow::Result<bool> {
        let measured = |name: &&str| match self.redraw {
            true => read(&output.join(paper.data).join(name).with_extension("json")),
            false => self.measure(&scenarios.join(name).with_extension("toml")),
        };
        let results: Vec<Results> = paper.scenarios.iter().map(measured).collect::<anyhow::Result<_>>()?;
        let missed = results.iter().filter(|results| !results.holds());
        missed.clone().for_each(|missed| {
            terminal.warning(&format!("{}: a criterion is missed", missed.scenario.name));
        });
        let files = paper.write(&results, output).with_context(|| format!("cannot write {}", output.display()))?;
        match terminal.json {
            true => terminal.value(&files)?,
            false => terminal.line(&format!(
                "{}: {}",
                paper.name,
                files.first().map_or(String::new(), |file| file.display().to_string())
            ))?,
        }
        Ok(missed.count() == 0)
    }

    fn measure(&self, path: &Path) -> anyhow::Result<Results> {
        if !path.exists() {
            let text = format!("there is no {}: name the folder with --scenarios", path.display());
            return Err(Misuse(text).into());
        }
        let mut scenario = Scenario::open(path).map_err(misuse)?;
        scenario.effort.repeats = self.repeats.map_or(scenario.effort.repeats, usize::from);
        if self.quick {
            let few = &mut scenario.effort;
            (few.repeats, few.messages, few.warm_up, few.turn_ms, few.emulated) = (1, few.messages.min(2), 1, 0.0, 5);
        }
        let bar = progress(&scenario.name)?;
        let mut results = run(&scenario, &mut |done| bar.set_position((done * 1000.0) as u64)).map_err(misuse)?;
        bar.finish_and_clear();
        results.command = format!("polywire bench {}", path.display());
        Ok(results)
    }
}

fn read(path: &Path) -> anyhow::Result<Results> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Results::from_json(&text)
        .with_context(|| format!("{} is not a result of `polywire bench --output`", path.display()))
}

fn page(comparison: &Comparison) -> String {
    let row = |change: &compare::Change| {
        let word = match change.worse {
            Some(true) => "worse",
            Some(false) => "better",
            None => "changed",
        };
        let [before, after] = [change.before, change.after].map(|value| table::figure(&change.metric, value));
        let arrow = match before == after {
            false => format!("{before} -> {after}"),
            // The short forms are equal, so all digits are shown.
            true => format!("{} -> {}", change.before, change.after),
        };
        let times = if change.before == 0.0 { "-".into() } else { format!("{:.2}x", change.after / change.before) };
        vec![word.to_owned(), change.metric.clone(), arrow, times, change.case.clone()]
    };
    let rows: Vec<Vec<String>> = comparison.changes.iter().map(row).collect();
    let mut text = columns(&rows);
    text += &format!(
        "{} unchanged: the intervals overlap, or the difference is negligible\n",
        crate::types::count(comparison.alike, "figure")
    );
    text.extend(comparison.failed.iter().map(|case| format!("failed: {case}\n")));
    text.extend(comparison.gone.iter().map(|case| format!("gone: {case}\n")));
    text.extend(comparison.new.iter().map(|case| format!("new: {case}\n")));
    text.extend(comparison.left_out.iter().map(|why| format!("{why}\n")));
    text
}

pub const PEER_VERB: Verb = Verb::new::<BenchPeer>("bench-peer", "The other end of a bench with real engines").hidden();

#[derive(Args)]
pub struct BenchPeer {}

impl Action for BenchPeer {
    fn run(self, _: &Terminal) -> outcome::Result {
        polywire_measure::serve()?;
        Ok(Outcome::Fine)
    }
}
