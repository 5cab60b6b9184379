//! The command `polywire demo`: a demonstration with a publisher and two subscribers that have
//! other versions of its type, and with a node and a collector for the probes of this machine. This
//! process starts the other processes and prints the report.

mod children;
mod digest;
mod figures;
mod picture;
pub mod probes;
mod protocol;
pub mod publisher;
mod report;
pub mod subscriber;
mod types;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use polywire::Wire;
use polywire::codec::CODECS;
use serde_json::value::RawValue;

use self::{
    children::{Children, Heard, Part},
    protocol::{Figures, Told},
    report::{ProbeRow, ReaderReport, Report, WireRow, judge, probe_table, table},
    types::{READERS, Reading, Version},
};
use crate::{
    outcome::{self, Misuse, Outcome},
    seconds::{self, Seconds},
    stop::{self, Stop},
    terminal::Terminal,
    topic::wire_without_endpoint,
    verb::{Action, Verb},
};

const TOPIC: &str = "demo/machine";

/// How often the processes report their progress.
const PROGRESS: Duration = Duration::from_millis(200);

/// How much longer than planned the demonstration may take before it fails.
const PATIENCE: Duration = Duration::from_secs(90);

pub const VERB: Verb = Verb::new::<Demo>("demo", "Publishes this machine's load to two subscribers, for ten seconds")
    .details(
        "One process samples processor, memory and network and publishes them, in one format after the other. Two \
         more processes read them: one has an older version of the type, one a newer. Each member that they share is \
         compared with what was published. A fourth process runs the probes of this machine as `polywire agent \
         --collect` does, goes through the same formats, and measures what a sample costs in each; in builds with the \
         dashboard, its page is there meanwhile. Exit code 1 if a subscriber or the collector missed or misread \
         anything.",
    )
    .example("polywire demo --seconds 2");

#[derive(Args)]
pub struct Demo {
    /// Format to publish in, for example json or cdr:be; may be given several times [default: all
    /// codecs]
    #[arg(short, long = "wire", value_name = "CODEC", value_parser = wire_without_endpoint)]
    wires: Vec<Wire>,
    /// Endpoint that the publisher opens
    #[arg(long, value_name = "ENGINE/ADDRESS", default_value = "tcp-listen/127.0.0.1:0")]
    at: String,
    /// How long it publishes, in all formats together
    #[arg(short, long, value_name = "SECONDS", default_value = "10")]
    seconds: Seconds,
    /// Messages per second
    #[arg(short, long, value_name = "HZ", default_value = "100", value_parser = seconds::rate)]
    rate: f64,
    /// Prints the three versions of the type and ends
    #[arg(long)]
    show_types: bool,
    /// Writes a picture of the summary to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Writes an HTML page with the summary to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl Action for Demo {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        if self.show_types {
            return show_types(terminal);
        }
        let wires = self.chosen()?;
        stop::hold()?;
        let stop = Stop::new()?;
        let mut run = Run::start(&self, &wires, terminal)?;
        if let Some(outcome) = run.follow(self.seconds.0, &stop)? {
            return Ok(outcome);
        }
        let report = run.report(self.rate)?;
        drop(run);
        self.show(&report, terminal)?;
        Ok(if report.ok { Outcome::Fine } else { Outcome::Missed })
    }
}

impl Demo {
    fn chosen(&self) -> anyhow::Result<Vec<String>> {
        if self.wires.is_empty() {
            return Ok(CODECS.iter().map(|codec| codec.name().to_owned()).collect());
        }
        let wires: Vec<String> = self.wires.iter().map(ToString::to_string).collect();
        match wires.iter().enumerate().find(|(i, wire)| wires[..*i].contains(wire)) {
            Some((_, twice)) => Err(Misuse(format!("--wire {twice} is given twice")).into()),
            None => Ok(wires),
        }
    }

    fn show(&self, report: &Report, terminal: &Terminal) -> anyhow::Result<()> {
        if let Some(path) = &self.svg {
            write(path, &picture::svg(report))?;
        }
        if let Some(path) = &self.html {
            write(path, &picture::html(report))?;
        }
        match terminal.json {
            true => terminal.value(report),
            false => Ok(terminal.text(&format!("{}\n{}", table(&report.wires), report.words()))?),
        }
    }
}

/// Prints the versions of the type: as IDL, or as a JSON object with the text of each file.
fn show_types(terminal: &Terminal) -> outcome::Result {
    if terminal.json {
        let files = [Version::Published, Version::Older, Version::Newer].map(Version::file);
        terminal.value(&BTreeMap::from(files))?;
        return Ok(Outcome::Fine);
    }
    for version in [Version::Published, Version::Older, Version::Newer] {
        let (name, text) = version.file();
        terminal.text(&format!("// {name}\n{text}\n"))?;
    }
    Ok(Outcome::Fine)
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// The processes, and what they have reported.
struct Run<'a> {
    children: Children,
    heard: Receiver<Heard>,
    terminal: &'a Terminal,
    endpoint: String,
    published: Side,
    older: Side,
    newer: Side,
    probes: Side,
    /// The table on the terminal.
    drawn: String,
}

/// One process.
#[derive(Default)]
struct Side {
    figures: Vec<Figures>,
    done: bool,
    last: String,
    problems: Vec<String>,
}

impl<'a> Run<'a> {
    fn start(demo: &Demo, wires: &[String], terminal: &'a Terminal) -> anyhow::Result<Run<'a>> {
        let (tell, heard) = mpsc::channel();
        let mut children = Children::default();
        let mut arguments = vec!["demo-publisher".to_owned(), format!("--at={}", demo.at)];
        arguments.extend(wires.iter().map(|wire| format!("--wire={wire}")));
        arguments.push(format!("--rate={}", demo.rate));
        arguments.push(format!("--seconds={}", demo.seconds));
        let publisher = children.start(Part::Of(Version::Published), &arguments, tell.clone())?;
        let endpoint = listening(&heard)?;
        let mut ids = vec![format!("publisher {publisher}")];
        for version in READERS {
            let at = format!("--at={}", to_connect(&endpoint));
            let arguments = ["demo-subscriber".to_owned(), at, format!("--version={}", version.name())];
            let id = children.start(Part::Of(version), &arguments, tell.clone())?;
            ids.push(format!("{} subscriber {id}", version.name()));
        }
        let mut arguments = vec!["demo-probes".to_owned(), format!("--seconds={}", demo.seconds)];
        arguments.extend(wires.iter().map(|wire| format!("--wire={wire}")));
        ids.push(format!("probes {}", children.start(Part::Probes, &arguments, tell)?));
        if !terminal.json {
            terminal.line(&format!("Topic {TOPIC} at {endpoint}; processes: {}\n", ids.join(", ")))?;
        }
        let (published, older, newer, probes) = Default::default();
        Ok(Run { children, heard, terminal, endpoint, published, older, newer, probes, drawn: String::new() })
    }

    /// Follows the processes until all have finished. Returns an outcome if a signal arrives before
    /// that.
    fn follow(&mut self, planned: Duration, stop: &Stop) -> anyhow::Result<Option<Outcome>> {
        let until = Instant::now() + planned + PATIENCE;
        while !(self.older.done && self.newer.done && self.probes.done) {
            if let Some(outcome) = stop.outcome() {
                return Ok(Some(outcome));
            }
            if Instant::now() > until {
                bail!("the demonstration takes far longer than the planned {} s", planned.as_secs());
            }
            match self.heard.recv_timeout(Duration::from_millis(50)) {
                Ok(heard) => self.take(heard)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => bail!("all processes have ended"),
            }
            self.draw()?;
        }
        self.erase()?;
        self.children.order(Part::Of(Version::Published), "end")?;
        self.children.order(Part::Probes, "end")?;
        self.children.finish()?;
        Ok(None)
    }

    fn take(&mut self, heard: Heard) -> anyhow::Result<()> {
        let from = heard.from;
        match heard.told {
            Some(Told::Progress { wires }) => self.side(from).figures = wires,
            Some(Told::Done { wires, lost, undecodable, last }) => {
                let count = wires.iter().map(|figures| figures.messages).sum::<u64>();
                let side = self.side(from);
                (side.figures, side.done, side.last) = (wires, true, last);
                if lost + undecodable > 0 {
                    side.problems.push(format!("{}: {lost} lost, {undecodable} not decoded", from.name()));
                }
                if from == Part::Of(Version::Published) {
                    let order = format!("finish {count}");
                    READERS.iter().try_for_each(|reader| self.children.order(Part::Of(*reader), &order))?;
                }
            }
            Some(Told::Trouble { text }) => self.side(from).problems.push(format!("{}: {text}", from.name())),
            // The publisher has reported this during the start, so this report is from the probes.
            Some(Told::Listening { endpoint }) => self.show_page(&endpoint)?,
            None if self.side(from).done => {}
            None => {
                let problems = [&self.published, &self.older, &self.newer, &self.probes]
                    .map(|side| side.problems.join("; "))
                    .join("");
                bail!("the {} process has ended too early: {problems}", from.name());
            }
        }
        Ok(())
    }

    fn report(&mut self, rate_hz: f64) -> anyhow::Result<Report> {
        let writer = Version::Published.schema()?;
        let mut problems = std::mem::take(&mut self.published.problems);
        problems.append(&mut self.probes.problems);
        let mut readers = Vec::new();
        for version in READERS {
            let reading = Reading::of(&writer, &version.schema()?)?;
            let published = std::mem::take(&mut self.published.figures);
            let side = self.side(Part::Of(version));
            problems.append(&mut side.problems);
            problems.extend(judge(version, &reading, &published, &side.figures));
            readers.push(ReaderReport { version: version.name(), reading, last: raw(&side.last) });
            self.published.figures = published;
        }
        Ok(Report {
            topic: TOPIC,
            endpoint: self.endpoint.clone(),
            rate_hz,
            wires: self.rows(),
            probes: self.probe_rows(),
            published: raw(&self.published.last),
            readers,
            ok: problems.is_empty(),
            problems,
        })
    }

    fn side(&mut self, part: Part) -> &mut Side {
        match part {
            Part::Of(Version::Published) => &mut self.published,
            Part::Of(Version::Older) => &mut self.older,
            Part::Of(Version::Newer) => &mut self.newer,
            Part::Probes => &mut self.probes,
        }
    }

    /// Prints the address of the page, or how to build a program that has one.
    fn show_page(&mut self, address: &str) -> anyhow::Result<()> {
        if self.terminal.json {
            return Ok(());
        }
        self.erase()?;
        let place = if address.is_empty() { "this build has none; build with --features foxglove" } else { address };
        Ok(self.terminal.line(&format!("Page of the probes: {place}\n"))?)
    }

    fn rows(&self) -> Vec<WireRow> {
        WireRow::all(&self.published.figures, &self.older.figures, &self.newer.figures)
    }

    fn probe_rows(&self) -> Vec<ProbeRow> {
        self.probes.figures.iter().map(ProbeRow::of).collect()
    }

    /// Draws the tables so far in place of the previous ones.
    fn draw(&mut self) -> anyhow::Result<()> {
        let text = format!("{}\n{}", table(&self.rows()), probe_table(&self.probe_rows()));
        if self.terminal.live && !self.terminal.json && text != self.drawn {
            self.erase()?;
            self.terminal.text(&text)?;
            self.drawn = text;
        }
        Ok(())
    }

    fn erase(&mut self) -> anyhow::Result<()> {
        match std::mem::take(&mut self.drawn).lines().count() {
            0 => Ok(()),
            lines => Ok(self.terminal.erase(lines)?),
        }
    }
}

fn listening(heard: &Receiver<Heard>) -> anyhow::Result<String> {
    match heard.recv_timeout(PATIENCE).map(|heard| heard.told) {
        Ok(Some(Told::Listening { endpoint })) => Ok(endpoint),
        _ => Err(anyhow!("the publisher cannot be started; its error is printed above")),
    }
}

/// Turns the publisher's endpoint into one that only connects. Subscribers must not listen, because
/// one could take the publisher's place.
fn to_connect(endpoint: &str) -> String {
    match endpoint.split_once('/') {
        Some((engine @ ("tcp" | "unix"), address)) => format!("{engine}-connect/{address}"),
        Some((engine, address)) => match engine.strip_suffix("-listen") {
            Some(family) => format!("{family}-connect/{address}"),
            None => endpoint.to_owned(),
        },
        None => endpoint.to_owned(),
    }
}

fn raw(json: &str) -> Option<Box<RawValue>> {
    RawValue::from_string(json.to_owned()).ok()
}
