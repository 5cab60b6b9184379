//! The command `polywire collect`: passes the messages of topics to files, databases and services.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use clap::Args;
use polywire::{Node, Pattern, Wire};
use polywire_collector::{CollectorConfig, HandlerPlan};
use polywire_telemetry::{Agent, Clocks, Identity, Moment, Runner, system::Host};
use sd_notify::NotifyState;

use crate::{
    collecting::{self, Collecting},
    outcome::{self, Misuse},
    seconds::Seconds,
    stop::{self, Stop},
    terminal::Terminal,
    topic::{WireArgs, wire},
    verb::{Action, Verb},
    watch::Watch,
};

/// How often the loop checks for alerts. Signals wake it.
const TICK: Duration = Duration::from_millis(200);

pub const VERB: Verb = Verb::new::<Collect>("collect", "Hands the messages of topics to files, databases and services")
    .details(
        "A TOML file says which topics and what becomes of them, docs/collect.md what can be in it. Without a file, \
         --to names the handlers: jsonl=FILE, csv=FOLDER and others that need only a path. On SIGHUP the file is read \
         again: handlers that are the same in it run on, others are closed or opened. On SIGTERM or SIGINT, handlers \
         store what they have first, and the exit code is 0, or 1 if one could not. Under systemd it reports \
         readiness (Type=notify).",
    )
    .example("polywire collect --to jsonl=samples.jsonl 'plant/**' --for 1");

#[derive(Args)]
pub struct Collect {
    /// Topics to collect: `*` is one level, `**` any number of levels [default: those of the file,
    /// or probes/**]
    #[arg(value_name = "TOPIC-PATTERN")]
    topics: Vec<Pattern>,
    /// TOML file with topics, endpoints and handlers
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Handler, and where it stores; may be given several times
    #[arg(long, value_name = "KIND=PATH")]
    to: Vec<String>,
    /// Wire at which the topics are published again; may be given several times
    #[arg(long, value_name = "WIRE", value_parser = wire)]
    serve: Vec<Wire>,
    #[command(flatten)]
    wire: WireArgs,
    /// Time between two prints of the handlers' figures; 0 for those at the end alone
    #[arg(long, value_name = "SECONDS", default_value = "10")]
    every: Seconds,
    /// Ends after this time instead of running until it is told to end
    #[arg(long = "for", value_name = "SECONDS")]
    duration: Option<Seconds>,
}

impl Action for Collect {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        let config = self.config()?;
        stop::hold()?;
        let hangup = stop::hangup();
        let stop = Stop::new()?;
        let identity = match &config.state {
            Some(state) => Identity::keep(state, Some(&config.name))?,
            None => Identity::new(&config.name)?,
        };
        let (node, wires) = self.wire.node_of(&identity)?;
        let mut watch = Watch::new(&node);
        let given = wires.endpoints().map(|endpoint| endpoint.parse()).collect::<Result<Vec<Wire>, _>>()?;
        let config = self.at(config, &given);
        let mut collecting = Collecting::start(&node, &config, self.every.0)?;
        let runner = self.probe(&collecting, identity, &node, &config)?;
        collecting::say(terminal, &config)?;
        // Without systemd this has no effect.
        sd_notify::notify(&[NotifyState::Ready]).context("cannot tell systemd that the collector is ready")?;
        let until = self.duration.map(|Seconds(duration)| Instant::now() + duration);
        while stop.outcome().is_none() && until.is_none_or(|until| Instant::now() < until) {
            stop.pause(TICK, until);
            if hangup.came() {
                collecting.reload(self.config().map(|config| self.at(config, &given)), terminal)?;
            }
            collecting.tick(terminal)?;
            watch.poll(terminal);
        }
        let _ = sd_notify::notify(&[NotifyState::Stopping]);
        drop(runner);
        let outcome = collecting.finish(terminal)?;
        node.close();
        Ok(outcome)
    }
}

impl Collect {
    fn config(&self) -> anyhow::Result<CollectorConfig> {
        let mut config = self.file.as_deref().map_or_else(|| Ok(CollectorConfig::default()), collecting::read)?;
        for to in &self.to {
            config.handlers.push(self.handler(to)?);
        }
        config.handlers.sort_by(|a, b| a.name.cmp(&b.name));
        if !self.topics.is_empty() {
            config.topics = self.topics.clone();
        }
        config.serve.extend(self.serve.iter().cloned());
        match config.handlers.is_empty() && config.serve.is_empty() && config.alerts.is_empty() {
            true => Err(Misuse("where to? give --to jsonl=FILE, or a --file with handlers or alerts".into()).into()),
            false => Ok(config),
        }
    }

    /// Returns the handler of one `--to`, as if it were in a file.
    fn handler(&self, to: &str) -> anyhow::Result<HandlerPlan> {
        let (kind, path) = to.split_once('=').unwrap_or((to, ""));
        let quoted = |text: &str| serde_json::to_string(text).unwrap_or_default();
        let path = if path.is_empty() { String::new() } else { format!("path = {}", quoted(path)) };
        let table = format!("[handlers.{}]\nkind = {}\n{path}", quoted(to), quoted(kind));
        let parsed = CollectorConfig::parse(&table).map_err(|error| Misuse(format!("--to {to}: {}", error.reason)))?;
        parsed.handlers.into_iter().next().context("a table is a handler")
    }

    /// Returns the configuration with its endpoints. `--wire` has priority over the file, and the
    /// file has priority over the environment.
    fn at(&self, mut config: CollectorConfig, given: &[Wire]) -> CollectorConfig {
        if !self.wire.wires.is_empty() || config.endpoints.is_empty() {
            config.endpoints = given.to_vec();
        }
        config
    }

    /// Publishes the collector's probe, at the first endpoint.
    fn probe(
        &self,
        collecting: &Collecting,
        identity: Identity,
        node: &Node,
        config: &CollectorConfig,
    ) -> anyhow::Result<Runner> {
        let start = Moment { steady: Duration::ZERO, ..Clocks::new().now() };
        let wire = config.endpoints.first().context("there is an endpoint")?.to_string();
        let mut agent = Agent::new(node.clone(), identity, Host::this(), &wire, start)?;
        agent.add_application("collector", &collecting.probe())?;
        Runner::start(agent).context("cannot start a thread")
    }
}
