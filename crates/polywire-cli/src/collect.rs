//! The command `polywire collect`: hands the messages of topics to files, databases and services.

use std::{
    fs,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use clap::Args;
use polywire::{Node, Pattern, Wire};
use polywire_collector::{
    Alert, AlertState, Changes, Collector, CollectorConfig, HandlerPlan, HandlerSample, HandlerStatus,
};
use polywire_telemetry::{Agent, Clocks, Identity, Moment, Runner, system::Host};
use sd_notify::NotifyState;
use serde_json::json;

use crate::{
    outcome::{self, Misuse, Outcome, chain},
    seconds::Seconds,
    stop::{self, Stop},
    terminal::Terminal,
    topic::{WireArgs, wire},
    verb::{Action, Verb},
};

/// How often the loop looks for a signal.
const TICK: Duration = Duration::from_millis(50);

/// How long handlers may take to store what they have when the process is told to end.
const DRAIN: Duration = Duration::from_secs(30);

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
    /// Time between two prints of the handlers' figures
    #[arg(long, value_name = "SECONDS", default_value = "10")]
    every: Seconds,
    /// Ends after this time instead of running until it is told to end
    #[arg(long = "for", value_name = "SECONDS")]
    duration: Option<Seconds>,
}

impl Action for Collect {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        let mut config = self.config()?;
        stop::hold()?;
        let hangup = stop::hangup()?;
        let stop = Stop::new()?;
        let identity = match &config.state {
            Some(state) => Identity::keep(state, Some(&config.name))?,
            None => Identity::new(&config.name)?,
        };
        let (node, wires) = self.wire.build("", Node::builder().id(identity.uuid.into()).name(&identity.name))?;
        let given = wires.endpoints().map(|endpoint| endpoint.parse()).collect::<Result<Vec<Wire>, _>>()?;
        config.endpoints = self.endpoints(&config, &given);
        let mut collector = Collector::new(node.clone());
        collector.reload(&config)?;
        let runner = self.probe(&collector, identity, &node, &config)?;
        say(terminal, &config)?;
        // Without systemd this does nothing.
        sd_notify::notify(&[NotifyState::Ready]).context("cannot tell systemd that the collector is ready")?;
        let until = self.duration.map(|Seconds(duration)| Instant::now() + duration);
        let mut shown = Instant::now();
        while stop.outcome().is_none() && until.is_none_or(|until| Instant::now() < until) {
            thread::sleep(TICK);
            if hangup.came() {
                self.reload(&mut collector, &given, terminal)?;
            }
            collector.take_alerts().iter().try_for_each(|alert| show_alert(alert, terminal))?;
            if shown.elapsed() >= self.every.0 {
                shown = Instant::now();
                show(&collector.status(), terminal)?;
            }
        }
        let _ = sd_notify::notify(&[NotifyState::Stopping]);
        drop(runner);
        let (is_stored, status) = collector.stop(DRAIN);
        show(&status, terminal)?;
        node.close();
        Ok(if is_stored { Outcome::Fine } else { Outcome::Missed })
    }
}

impl Collect {
    fn config(&self) -> anyhow::Result<CollectorConfig> {
        let mut text = String::new();
        if let Some(path) = &self.file {
            text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        }
        let place = self.file.as_ref().map_or("--to".into(), |path| path.display().to_string());
        let mut config = CollectorConfig::parse(&text).with_context(|| place)?;
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

    /// The handler of one `--to`, as a file would have it.
    fn handler(&self, to: &str) -> anyhow::Result<HandlerPlan> {
        let (kind, path) = to.split_once('=').unwrap_or((to, ""));
        let quoted = |text: &str| serde_json::to_string(text).unwrap_or_default();
        let path = if path.is_empty() { String::new() } else { format!("path = {}", quoted(path)) };
        let table = format!("[handlers.{}]\nkind = {}\n{path}", quoted(to), quoted(kind));
        let parsed = CollectorConfig::parse(&table).map_err(|error| Misuse(format!("--to {to}: {}", error.reason)))?;
        parsed.handlers.into_iter().next().context("a table is a handler")
    }

    /// `--wire` ranks above the file, which ranks above the environment.
    fn endpoints(&self, config: &CollectorConfig, given: &[Wire]) -> Vec<Wire> {
        match self.wire.wires.is_empty() && !config.endpoints.is_empty() {
            true => config.endpoints.clone(),
            false => given.to_vec(),
        }
    }

    /// Publishes what the handlers count, at the first endpoint.
    fn probe(
        &self,
        collector: &Collector,
        identity: Identity,
        node: &Node,
        config: &CollectorConfig,
    ) -> anyhow::Result<Runner> {
        let start = Moment { steady: Duration::ZERO, ..Clocks::new().now() };
        let wire = config.endpoints.first().context("there is an endpoint")?.to_string();
        let mut agent = Agent::new(node.clone(), identity, Host::this(), &wire, start)?;
        agent.add_application("collector", &collector.probe())?;
        Runner::start(agent).context("cannot start a thread")
    }

    /// Reads the file again. If it is wrong, everything stays as it is.
    fn reload(&self, collector: &mut Collector, given: &[Wire], terminal: &Terminal) -> anyhow::Result<()> {
        let mut config = match self.config() {
            Ok(config) => config,
            Err(error) => {
                terminal.error(&chain(&error));
                return Ok(());
            }
        };
        config.endpoints = self.endpoints(&config, given);
        match collector.reload(&config) {
            Ok(changes) => tell(&changes, terminal),
            Err(error) => {
                terminal.error(&chain(&error.into()));
                Ok(())
            }
        }
    }
}

/// Says what is collected, and who gets it.
fn say(terminal: &Terminal, config: &CollectorConfig) -> anyhow::Result<()> {
    let texts = |wires: &[Wire]| wires.iter().map(ToString::to_string).collect::<Vec<_>>();
    let mut topics: Vec<&str> = config.topics.iter().map(Pattern::as_str).collect();
    let (endpoints, serve) = (texts(&config.endpoints), texts(&config.serve));
    let handlers: Vec<&str> = config.handlers.iter().map(|plan| plan.name.as_str()).collect();
    let alerts: Vec<&str> = config.alerts.iter().map(|plan| plan.name.as_str()).collect();
    if terminal.json {
        let nodes = &config.nodes;
        return terminal.value(&json!({
            "topics": topics, "nodes": nodes, "endpoints": endpoints, "serve": serve, "handlers": handlers,
            "alerts": alerts,
        }));
    }
    topics.extend(config.nodes.iter().map(|_| "samples of nodes"));
    let alerts = alerts.into_iter().map(|name| format!("alert {name}"));
    let all: Vec<String> = handlers.into_iter().map(str::to_owned).chain(serve).chain(alerts).collect();
    Ok(terminal.line(&format!("collects {} at {}: {}", topics.join(" "), endpoints.join(" "), all.join(", ")))?)
}

fn tell(changes: &Changes, terminal: &Terminal) -> anyhow::Result<()> {
    let Changes { opened, closed, .. } = changes;
    match terminal.json {
        true => terminal.value(&json!({ "opened": opened, "closed": closed })),
        false => Ok(terminal.line(&format!("opened {}; closed {}", names(opened), names(closed)))?),
    }
}

fn names(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Prints an alert that was raised or cleared.
fn show_alert(alert: &Alert, terminal: &Terminal) -> anyhow::Result<()> {
    let Alert { name, prefix, instance, state, severity, condition, values, summary } = alert;
    let word = if *state == AlertState::Raised { "raised" } else { "cleared" };
    if terminal.json {
        let values: serde_json::Map<_, _> =
            values.iter().map(|value| (value.field.clone(), json!(value.value))).collect();
        return terminal.value(&json!({
            "alert": name, "state": word, "severity": severity.name(), "prefix": prefix, "instance": instance,
            "condition": condition, "values": values, "summary": summary,
        }));
    }
    let places: Vec<&str> =
        [prefix, instance].into_iter().map(String::as_str).filter(|text| !text.is_empty()).collect();
    let at = if places.is_empty() { String::new() } else { format!(" at {}", places.join(" ")) };
    let values: Vec<String> = values.iter().map(|value| format!("{} = {}", value.field, value.value)).collect();
    let summary = if summary.is_empty() { String::new() } else { format!("; {summary}") };
    Ok(terminal.line(&format!("{word} {name}{at} ({}): {}{summary}", severity.name(), values.join(", ")))?)
}

/// Prints the figures of the handlers.
fn show(status: &[HandlerStatus], terminal: &Terminal) -> anyhow::Result<()> {
    if terminal.json {
        let of = |status: &HandlerStatus| {
            let HandlerSample {
                name,
                kind,
                received,
                stored,
                dropped,
                refused,
                failures,
                waiting,
                waiting_bytes,
                problem,
            } = status.clone().into();
            json!({
                "name": name, "kind": kind, "received": received, "stored": stored, "dropped": dropped,
                "refused": refused, "failures": failures, "waiting": waiting, "waiting_bytes": waiting_bytes,
                "problem": problem,
            })
        };
        return terminal.value(&json!({ "handlers": status.iter().map(of).collect::<Vec<_>>() }));
    }
    for HandlerStatus { name, received, stored, dropped, refused, waiting, problem, .. } in status {
        let problem = if problem.is_empty() { String::new() } else { format!("; {problem}") };
        terminal.line(&format!(
            "{name}: {received} received, {stored} stored, {dropped} dropped, {refused} refused, {waiting} waiting{problem}"
        ))?;
    }
    Ok(())
}
