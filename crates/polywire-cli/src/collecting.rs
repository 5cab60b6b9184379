//! A collector within a command: `collect` and `agent --collect`. Prints what it collects, its
//! counters and its alerts, and stores everything at the end.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use polywire::{Node, Pattern, Wire};
use polywire_collector::{
    Alert, AlertState, Changes, Collector, CollectorConfig, CollectorProbe, HandlerSample, HandlerStatus,
};
use serde::Serialize;
use serde_json::json;

use crate::{
    outcome::{Outcome, chain},
    terminal::Terminal,
};

/// The time limit for handlers to store their entries when the process is told to end.
const DRAIN: Duration = Duration::from_secs(30);

/// The rotation of the files of [`standard`]: 1 GB in total.
const ROTATION: &str = "rotate_bytes = 100_000_000\nkeep = 10\n";

/// A running collector.
pub struct Collecting {
    collector: Collector,
    every: Duration,
    shown: Instant,
}

impl Collecting {
    /// Opens the handlers and subscribes. Counters are printed at the interval `every`, or only at
    /// the end if it is zero.
    pub fn start(node: &Node, config: &CollectorConfig, every: Duration) -> anyhow::Result<Collecting> {
        let mut collector = Collector::new(node.clone());
        collector.reload(config)?;
        Ok(Collecting { collector, every, shown: Instant::now() })
    }

    /// Returns the collector's probe.
    pub fn probe(&self) -> Arc<CollectorProbe> {
        self.collector.probe()
    }

    /// Prints the alerts since the last call, and the counters if they are due.
    pub fn tick(&mut self, terminal: &Terminal) -> anyhow::Result<()> {
        self.collector.take_alerts().iter().try_for_each(|alert| show_alert(alert, terminal))?;
        if !self.every.is_zero() && self.shown.elapsed() >= self.every {
            self.shown = Instant::now();
            show(&self.collector.status(), terminal)?;
        }
        Ok(())
    }

    /// Applies a configuration that was read again. If it is invalid, nothing changes.
    pub fn reload(&mut self, config: anyhow::Result<CollectorConfig>, terminal: &Terminal) -> anyhow::Result<()> {
        let changes = config.and_then(|config| Ok(self.collector.reload(&config)?));
        match changes {
            Ok(changes) => tell(&changes, terminal),
            Err(error) => {
                terminal.error(&chain(&error));
                Ok(())
            }
        }
    }

    /// Stores all remaining entries, and prints the final counters. Returns [`Outcome::Missed`] if
    /// a handler could not store its entries.
    pub fn finish(mut self, terminal: &Terminal) -> anyhow::Result<Outcome> {
        let (is_stored, status) = self.collector.stop(DRAIN);
        show(&status, terminal)?;
        Ok(if is_stored { Outcome::Fine } else { Outcome::Missed })
    }
}

/// Reads the configuration of a collector from a file.
pub fn read(file: &Path) -> anyhow::Result<CollectorConfig> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    CollectorConfig::parse(&text).with_context(|| file.display().to_string())
}

/// Returns the configuration of a node that also collects, if no file is given: an archive next to
/// the node's state file, and the dashboard, if this build includes them.
pub fn standard(state: &Path) -> anyhow::Result<CollectorConfig> {
    let file = |ending: &str| serde_json::to_string(&state.with_extension(ending));
    let has_archive = cfg!(any(feature = "sqlite", feature = "mcap"));
    let mut text = String::new();
    if cfg!(feature = "sqlite") {
        text += &format!("[handlers.archive]\nkind = 'sqlite'\npath = {}\nkeep_bytes = 2_000_000_000\n", file("db")?);
    }
    for (kind, is_used) in [("mcap", cfg!(feature = "mcap")), ("jsonl", !has_archive)] {
        if is_used {
            let path = file(kind)?;
            text += &format!("[handlers.{kind}]\nkind = '{kind}'\npath = {path}\n{ROTATION}");
        }
    }
    if cfg!(feature = "foxglove") {
        let control = file("url")?;
        text += &format!("[handlers.page]\nkind = 'dashboard'\nserve = '127.0.0.1:0'\ncontrol = {control}\n");
    }
    Ok(CollectorConfig::parse(&text)?)
}

/// Prints what is collected, and by which handlers.
pub fn say(terminal: &Terminal, config: &CollectorConfig) -> anyhow::Result<()> {
    let texts = |wires: &[Wire]| wires.iter().map(ToString::to_string).collect::<Vec<_>>();
    let mut topics: Vec<&str> = config.topics.iter().map(Pattern::as_str).collect();
    let (endpoints, serve) = (texts(&config.endpoints), texts(&config.serve));
    let handlers: Vec<&str> = config.handlers.iter().map(|plan| plan.name.as_str()).collect();
    let alerts: Vec<&str> = config.alerts.iter().map(|plan| plan.name.as_str()).collect();
    let pages = pages(config);
    if terminal.json {
        let nodes = &config.nodes;
        return terminal.value(&json!({
            "topics": topics, "nodes": nodes, "endpoints": endpoints, "serve": serve, "handlers": handlers,
            "alerts": alerts, "pages": pages,
        }));
    }
    topics.extend(config.nodes.iter().map(|_| "samples of nodes"));
    let alerts = alerts.into_iter().map(|name| format!("alert {name}"));
    let all: Vec<String> = handlers.into_iter().map(str::to_owned).chain(serve).chain(alerts).collect();
    terminal.line(&format!("collects {} at {}: {}", topics.join(" "), endpoints.join(" "), all.join(", ")))?;
    for Page { address, file } in pages {
        terminal.line(&format!("page: {address} (to change wires, open the address in {})", file.display()))?;
    }
    Ok(())
}

/// A page that the collector serves, and the file that contains its address with the secret.
#[derive(Serialize)]
struct Page {
    address: String,
    file: PathBuf,
}

/// Returns the pages whose handlers work. The secret remains in the file, because output is kept in
/// logs.
fn pages(config: &CollectorConfig) -> Vec<Page> {
    let files = config.handlers.iter().filter(|plan| plan.kind.name == "dashboard");
    let files = files.filter_map(|plan| plan.settings.text("control"));
    let page = |file: &str| {
        let text = fs::read_to_string(file).ok()?;
        let (address, _) = text.split_once('#')?;
        Some(Page { address: address.to_owned(), file: file.into() })
    };
    files.filter_map(page).collect()
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

/// Prints the counters of the handlers.
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
