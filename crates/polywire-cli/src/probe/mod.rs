//! `polywire probe`: lists the available probes and those that nodes run, and sends commands to
//! nodes.

mod call;
mod change;
mod run;
mod send;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use clap::Args;
use polywire::{
    Node, Subscriber,
    schema::{Schema, SchemaLimits},
    service::CallError,
    suggest,
};
use polywire_idl::emit;
use polywire_telemetry::{
    CommandDescription, NodeDescription, Parameter, ProbeDescription, ProbeType, Setting, Settings,
    description::{NODES, nodes_qos},
    fits,
    system::{self, Host, PROBES},
};
use serde_json::{Value, json};

use crate::{
    outcome::{self, Missed, Misuse, Outcome, chain},
    seconds::Seconds,
    terminal::{Terminal, columns},
    topic::{WireArgs, place},
    verb::{Action, Verb},
    view::MOST,
    watch::Watch,
};

/// Descriptions of nodes arrive together. If none arrives for this time, the list is complete.
const QUIET: Duration = Duration::from_millis(500);

pub const VERB: Verb = Verb::group(
    "probe",
    "Lists, describes, changes and commands the probes that nodes run",
    &[LIST, DESCRIBE, change::SET, change::START, change::STOP, call::VERB, send::VERB, run::VERB],
);

const LIST: Verb = Verb::new::<List>("list", "Lists the probes of the nodes at an endpoint, or of this machine")
    .details("The last column says why a probe has no samples. The commands of applications and probes follow.")
    .example("polywire probe list --here");

const DESCRIBE: Verb = Verb::new::<Describe>("describe", "Prints the type of a probe as PDL, and its parameters")
    .details(
        "PROBE is the name of a probe that `probe list --here` lists, NODE/INSTANCE for a probe of a node, or \
         NODE/COMMAND for a command that its application or a probe declares: then the types of request and reply as \
         IDL.",
    )
    .example("polywire probe describe processes");

#[derive(Args)]
pub struct Asking {
    #[command(flatten)]
    wire: WireArgs,
    /// How long to wait for nodes
    #[arg(short, long, value_name = "SECONDS", default_value = "2")]
    timeout: Seconds,
}

#[derive(Args)]
pub struct List {
    #[command(flatten)]
    asking: Asking,
    /// Lists the probes that an agent can run on this machine
    #[arg(long)]
    here: bool,
}

#[derive(Args)]
pub struct Describe {
    /// PROBE, NODE/INSTANCE or NODE/COMMAND
    probe: String,
    #[command(flatten)]
    asking: Asking,
}

impl Action for List {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        if self.here {
            return list_here(terminal);
        }
        let (_, nodes) = self.asking.nodes(|_| false)?;
        if terminal.json {
            terminal.value(&nodes.values().map(node_json).collect::<Vec<_>>())?;
            return Ok(Outcome::Fine);
        }
        let head = ["PROBE", "TYPE", "EVERY", "TOPIC", ""].map(String::from).to_vec();
        let mut rows = vec![head];
        for node in nodes.values() {
            rows.extend(node.probes.iter().map(|probe| row(node, probe)));
        }
        terminal.text(&columns(&rows))?;
        let head = ["COMMAND", "WHAT"].map(String::from).to_vec();
        let mut rows = vec![head];
        for node in nodes.values() {
            let row = |c: &CommandDescription| vec![format!("{}/{}", node.name, c.name), c.summary.clone()];
            rows.extend(node.commands.iter().map(row));
        }
        if rows.len() > 1 {
            terminal.text(&format!("\n{}", columns(&rows)))?;
        }
        Ok(Outcome::Fine)
    }
}

fn row(node: &NodeDescription, probe: &ProbeDescription) -> Vec<String> {
    let state = if probe.enabled { probe.problem.clone() } else { "stopped".to_owned() };
    let instance = format!("{}/{}", node.name, probe.instance);
    vec![instance, probe.probe.clone(), format!("{} s", probe.every_s), probe.topic.clone(), state]
}

/// Lists the probes of this machine, and tries to open each.
fn list_here(terminal: &Terminal) -> outcome::Result {
    let problem = |probe: &ProbeType| match (probe.open)(&Host::this(), &Settings::default()) {
        Ok(_) => String::new(),
        Err(error) => chain(&error.into()),
    };
    if terminal.json {
        let value = |probe: &ProbeType| {
            json!({
                "probe": probe.name,
                "uuid": probe.uuid.to_string(),
                "version": probe.version,
                "type": (probe.shape)().schema().name(),
                "every_s": probe.every.as_secs_f64(),
                "summary": probe.summary,
                "problem": problem(probe),
            })
        };
        terminal.value(&PROBES.iter().map(value).collect::<Vec<_>>())?;
        return Ok(Outcome::Fine);
    }
    let head = ["PROBE", "EVERY", "WHAT", ""].map(String::from).to_vec();
    let row = |probe: &ProbeType| {
        let every = format!("{} s", probe.every.as_secs_f64());
        vec![probe.name.to_owned(), every, probe.summary.to_owned(), problem(probe)]
    };
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(PROBES.iter().map(row)).collect();
    terminal.text(&columns(&rows))?;
    Ok(Outcome::Fine)
}

impl Action for Describe {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        if self.probe.contains('/') {
            let (_, node, name) = self.asking.find(&self.probe)?;
            if let Some(command) = node.commands.iter().find(|command| command.name == name) {
                return describe_command(terminal, &node, command);
            }
            let names = || node.probes.iter().map(|probe| probe.instance.as_str());
            let Some(probe) = node.probes.iter().find(|probe| probe.instance == name) else {
                let hint = suggest::hint(&name, names());
                return Err(Missed(format!("node '{}' has no probe '{name}'{hint}", node.name)).into());
            };
            return describe_remote(terminal, &node, probe);
        }
        let probe = system::find(&self.probe).map_err(|error| Misuse(error.to_string()))?;
        if terminal.json {
            let parameter = |p: &Parameter| json!({ "name": p.name, "default": p.default, "summary": p.summary });
            let parameters: Vec<Value> = probe.parameters.iter().map(parameter).collect();
            terminal.value(&json!({ "probe": probe.name, "pdl": probe.pdl.text(), "parameters": parameters }))?;
            return Ok(Outcome::Fine);
        }
        terminal.text(probe.pdl.text())?;
        let row = |p: &Parameter| vec![format!("{}={}", p.name, p.default), p.summary.to_owned()];
        print_parameters(terminal, probe.parameters.iter().map(row).collect())
    }
}

fn describe_remote(terminal: &Terminal, node: &NodeDescription, probe: &ProbeDescription) -> outcome::Result {
    if terminal.json {
        let mut value = probe_json(probe);
        value["node"] = json!(node.name);
        value["pdl"] = json!(probe.pdl);
        terminal.value(&value)?;
        return Ok(Outcome::Fine);
    }
    terminal.text(&probe.pdl)?;
    let (every, enabled, priority) = (probe.every_s.to_string(), probe.enabled.to_string(), probe.priority.to_string());
    let fixed = [
        ("every", &every),
        ("enabled", &enabled),
        ("thin", &probe.thin),
        ("wire", &probe.wire),
        ("keep", &probe.keep),
        ("batch", &probe.batch),
        ("priority", &priority),
    ];
    let fixed = fixed.map(|(name, value)| vec![format!("{name}={value}")]);
    let own = probe.parameters.iter().map(|p| vec![format!("{}={}", p.name, p.value)]);
    print_parameters(terminal, own.chain(fixed).collect())
}

fn describe_command(terminal: &Terminal, node: &NodeDescription, command: &CommandDescription) -> outcome::Result {
    let (request, reply) = (schema_of(&command.request)?, schema_of(&command.reply)?);
    let (request, reply) = (emit::idl(&request)?, emit::idl(&reply)?);
    match terminal.json {
        true => terminal.value(&json!({
            "node": node.name,
            "command": command.name,
            "summary": command.summary,
            "service": command.service,
            "request": request,
            "reply": reply,
        }))?,
        false => terminal.text(&format!("// {}.\n// Request:\n{request}\n// Reply:\n{reply}", command.summary))?,
    }
    Ok(Outcome::Fine)
}

/// Parses a type from a node's description.
fn schema_of(bytes: &[u8]) -> anyhow::Result<Schema> {
    Schema::from_bytes(bytes, &SchemaLimits::default()).context("the node describes a type that cannot be read")
}

fn print_parameters(terminal: &Terminal, rows: Vec<Vec<String>>) -> outcome::Result {
    if !rows.is_empty() {
        terminal.text(&format!("\nParameters:\n{}", columns(&rows)))?;
    }
    Ok(Outcome::Fine)
}

/// The node of this process, and the wire by which it reaches the other nodes.
struct Asked {
    node: Node,
    wire: String,
}

impl Asking {
    /// Collects descriptions by UUID until no more arrive, or until `enough` returns true for one.
    fn nodes(
        &self,
        enough: impl Fn(&NodeDescription) -> bool,
    ) -> anyhow::Result<(Asked, BTreeMap<String, NodeDescription>)> {
        let (node, wires) = self.wire.open(NODES)?;
        let mut watch = Watch::new(&node);
        let wire = wires.only()?;
        let text = wire.to_string();
        let found: Subscriber<NodeDescription> = node.subscribe(NODES, Some(&text))?.qos(nodes_qos())?.open();
        let (mut nodes, mut until) = (BTreeMap::new(), Instant::now() + self.timeout.0);
        let mut end = None;
        while let Some(sample) = found.recv_timeout(until.saturating_duration_since(Instant::now())) {
            let is_enough = enough(&sample.value);
            nodes.insert(sample.value.uuid.clone(), sample.value);
            let now = Instant::now();
            // Nodes may come and go all the time.
            let end = *end.get_or_insert_with(|| now + self.timeout.0.max(MOST));
            if is_enough || now >= end {
                break;
            }
            until = (now + QUIET).min(end);
        }
        if nodes.is_empty() {
            let why = if node.links() == 0 { "nobody is there" } else { "no agent is there" };
            let (place, timeout) = (place(&wires), self.timeout);
            return Err(Missed(format!("no node at {place} within {timeout} s: {why}{}", watch.trouble())).into());
        }
        Ok((Asked { node, wire: text }, nodes))
    }

    /// Finds the node of `NODE/NAME`. Returns it and the name.
    fn find(&self, path: &str) -> anyhow::Result<(Asked, NodeDescription, String)> {
        let Some((node, name)) = path.split_once('/') else {
            return Err(Misuse(format!("'{path}': NODE/INSTANCE is expected; `probe list` lists them")).into());
        };
        let (asked, mut nodes) = self.like(node)?;
        Ok((asked, nodes.swap_remove(0), name.to_owned()))
    }

    /// Finds the nodes whose names match a pattern; there is at least one. For a name without `*`,
    /// the search ends when the node is found.
    fn like(&self, pattern: &str) -> anyhow::Result<(Asked, Vec<NodeDescription>)> {
        let (asked, nodes) = self.nodes(|node| node.name == pattern)?;
        let names: Vec<String> = nodes.values().map(|node| node.name.clone()).collect();
        let found: Vec<NodeDescription> = nodes.into_values().filter(|node| fits(pattern, &node.name)).collect();
        match found.is_empty() {
            true => {
                let hint = suggest::hint(pattern, names.iter().map(String::as_str));
                Err(Missed(format!("there is no node '{pattern}'{hint}")).into())
            }
            false => Ok((asked, found)),
        }
    }
}

/// Returns whether a call received no reply in time, so that the exit code is 1.
fn is_missed(error: &CallError) -> bool {
    matches!(error, CallError::NoServer | CallError::TimedOut | CallError::ServerGone { .. })
}

pub fn node_json(node: &NodeDescription) -> Value {
    json!({
        "name": node.name,
        "uuid": node.uuid,
        "host": node.host,
        "process": node.process,
        "started_ns": node.started_ns,
        "settings": settings_json(&node.settings),
        "commands": node.commands.iter().map(command_json).collect::<Vec<_>>(),
        "probes": node.probes.iter().map(probe_json).collect::<Vec<_>>(),
    })
}

fn settings_json(settings: &[Setting]) -> Value {
    let all: BTreeMap<&str, &str> = settings.iter().map(|setting| (&*setting.name, &*setting.value)).collect();
    json!(all)
}

fn command_json(command: &CommandDescription) -> Value {
    json!({ "command": command.name, "summary": command.summary, "service": command.service })
}

fn probe_json(probe: &ProbeDescription) -> Value {
    json!({
        "instance": probe.instance,
        "probe": probe.probe,
        "uuid": probe.uuid,
        "version": probe.version,
        "topic": probe.topic,
        "wire": probe.wire,
        "every_s": probe.every_s,
        "enabled": probe.enabled,
        "thin": probe.thin,
        "keep": probe.keep,
        "batch": probe.batch,
        "priority": probe.priority,
        "problem": probe.problem,
        "parameters": settings_json(&probe.parameters),
    })
}
