//! `polywire probe`: what probes there are, what nodes run, and changing it.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use clap::Args;
use polywire::{Node, Subscriber};
use polywire_telemetry::{
    Answer, NodeDescription, Parameter, ProbeDescription, ProbeType, Request, Setting, Settings, Uuid,
    description::{ANSWERS, NODES, REQUESTS, events_qos, nodes_qos},
    system::{self, Host, PROBES},
};
use serde_json::{Value, json};

use crate::{
    outcome::{self, Missed, Misuse, Outcome, chain},
    seconds::Seconds,
    terminal::{Terminal, columns},
    topic::{WireArgs, place},
    verb::{Action, Verb},
};

/// Descriptions of nodes arrive together. If none arrives for this long, these are all.
const QUIET: Duration = Duration::from_millis(500);

pub const VERB: Verb =
    Verb::group("probe", "Lists, describes and changes the probes that nodes run", &[LIST, DESCRIBE, SET]);

const LIST: Verb = Verb::new::<List>("list", "Lists the probes of the nodes at an endpoint, or of this machine")
    .details("The last column says why a probe has no samples.")
    .example("polywire probe list --here");

const DESCRIBE: Verb = Verb::new::<Describe>("describe", "Prints the type of a probe as PDL, and its parameters")
    .details("PROBE is the name of a probe that `probe list --here` lists, or NODE/INSTANCE for a probe of a node.")
    .example("polywire probe describe processes");

const SET: Verb = Verb::new::<Set>("set", "Changes a probe of a node while it runs")
    .details(
        "What can be set: every (seconds), enabled (true or false), thin (off, change, or MEMBER=BOUND,..), wire, for a \
         collector keep (all, a number, or none), batch (such as 5s,1000,64kB) and priority (0 to 9), and the probe's \
         parameters. All of it is changed or nothing.",
    )
    .example("polywire probe set pump-house/clock every=0.5");

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
    /// PROBE or NODE/INSTANCE
    probe: String,
    #[command(flatten)]
    asking: Asking,
}

#[derive(Args)]
pub struct Set {
    /// NODE/INSTANCE
    #[arg(value_name = "NODE/INSTANCE")]
    probe: String,
    /// What to set
    #[arg(required = true, value_name = "NAME=VALUE", value_parser = setting)]
    settings: Vec<(String, String)>,
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
        Ok(Outcome::Fine)
    }
}

fn row(node: &NodeDescription, probe: &ProbeDescription) -> Vec<String> {
    let state = if probe.enabled { probe.problem.clone() } else { "stopped".to_owned() };
    let instance = format!("{}/{}", node.name, probe.instance);
    vec![instance, probe.probe.clone(), format!("{} s", probe.every_s), probe.topic.clone(), state]
}

/// Tries to open each probe of this machine.
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
            let (_, node, probe) = self.asking.find(&self.probe)?;
            return describe_remote(terminal, &node, &probe);
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

fn print_parameters(terminal: &Terminal, rows: Vec<Vec<String>>) -> outcome::Result {
    if !rows.is_empty() {
        terminal.text(&format!("\nParameters:\n{}", columns(&rows)))?;
    }
    Ok(Outcome::Fine)
}

impl Action for Set {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        let (asked, node, probe) = self.asking.find(&self.probe)?;
        let settings = self.settings.into_iter().map(|(name, value)| Setting { name, value }).collect();
        let id = Uuid::random().to_string();
        let request = Request { id: id.clone(), node: node.uuid, instance: probe.instance, settings };
        let wire = asked.wire.as_str();
        let answers: Subscriber<Answer> = asked.node.subscribe(ANSWERS, Some(wire))?.qos(events_qos())?.open();
        let requests = asked.node.publish::<Request>(REQUESTS, Some(wire))?.qos(events_qos())?.open()?;
        let until = Instant::now() + self.asking.timeout.0.max(QUIET);
        let silent = || Missed(format!("no answer from '{}' within {} s", self.probe, self.asking.timeout));
        // The node must be reachable both ways before it is asked.
        let left = || until.saturating_duration_since(Instant::now());
        while answers.status().writers == 0 || requests.status().accepting == 0 {
            if left().is_zero() {
                return Err(silent().into());
            }
            requests.wait_for_subscribers(1, left().min(Duration::from_millis(20)));
        }
        requests.publish(&request)?;
        loop {
            let answer = answers.recv_timeout(left()).ok_or_else(silent)?.value;
            if answer.id == id {
                return answered(terminal, &answer.problem);
            }
        }
    }
}

fn answered(terminal: &Terminal, problem: &str) -> outcome::Result {
    if !problem.is_empty() {
        return Err(anyhow::anyhow!("{problem}"));
    }
    if terminal.json {
        terminal.value(&json!({ "changed": true }))?;
    }
    Ok(Outcome::Fine)
}

/// A node of this process, and the wire by which it reaches the others.
struct Asked {
    node: Node,
    wire: String,
}

impl Asking {
    /// Collects descriptions by UUID until no more arrive, or until one is what is looked for.
    fn nodes(
        &self,
        enough: impl Fn(&NodeDescription) -> bool,
    ) -> anyhow::Result<(Asked, BTreeMap<String, NodeDescription>)> {
        let (node, wires) = self.wire.open(NODES)?;
        let wire = wires.only()?;
        let text = wire.to_string();
        let found: Subscriber<NodeDescription> = node.subscribe(NODES, Some(&text))?.qos(nodes_qos())?.open();
        let (mut nodes, mut until) = (BTreeMap::new(), Instant::now() + self.timeout.0);
        while let Some(sample) = found.recv_timeout(until.saturating_duration_since(Instant::now())) {
            let is_enough = enough(&sample.value);
            nodes.insert(sample.value.uuid.clone(), sample.value);
            if is_enough {
                break;
            }
            until = Instant::now() + QUIET;
        }
        if nodes.is_empty() {
            let why = if node.links() == 0 { "nobody is there" } else { "no agent is there" };
            return Err(Missed(format!("no node at {} within {} s: {why}", place(&wires), self.timeout)).into());
        }
        Ok((Asked { node, wire: text }, nodes))
    }

    /// The probe `NODE/INSTANCE`.
    fn find(&self, path: &str) -> anyhow::Result<(Asked, NodeDescription, ProbeDescription)> {
        let Some((name, instance)) = path.split_once('/') else {
            return Err(Misuse(format!("'{path}': NODE/INSTANCE is expected; `probe list` lists them")).into());
        };
        let (asked, nodes) = self.nodes(|node| node.name == name)?;
        let Some(node) = nodes.into_values().find(|node| node.name == name) else {
            return Err(Missed(format!("there is no node '{name}'")).into());
        };
        let names = || node.probes.iter().map(|probe| probe.instance.as_str());
        let probe = node.probes.iter().find(|probe| probe.instance == instance).cloned();
        let missing =
            || Missed(format!("node '{name}' has no probe '{instance}'{}", polywire::suggest::hint(instance, names())));
        let probe = probe.ok_or_else(missing)?;
        Ok((asked, node, probe))
    }
}

fn node_json(node: &NodeDescription) -> Value {
    json!({
        "name": node.name,
        "uuid": node.uuid,
        "host": node.host,
        "process": node.process,
        "started_ns": node.started_ns,
        "probes": node.probes.iter().map(probe_json).collect::<Vec<_>>(),
    })
}

fn probe_json(probe: &ProbeDescription) -> Value {
    let parameters: BTreeMap<&str, &str> = probe.parameters.iter().map(|p| (&*p.name, &*p.value)).collect();
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
        "parameters": parameters,
    })
}

fn setting(text: &str) -> Result<(String, String), String> {
    let split = text.split_once('=').filter(|(name, _)| !name.is_empty());
    split.map(|(name, value)| (name.to_owned(), value.to_owned())).ok_or_else(|| "NAME=VALUE is expected".to_owned())
}
