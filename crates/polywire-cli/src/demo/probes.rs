//! The hidden command `demo-probes`: a node with the probes of this machine and a collector, in one
//! process as in `polywire agent --collect`. Changes the format of the probes while they run, by
//! the same commands as `polywire probe set`.

use std::{
    env, fs,
    os::unix::fs::DirBuilderExt as _,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use clap::Args;
use polywire::{
    Node,
    service::{Client, Reply},
    stats::NodeStats,
};
use polywire_collector::{Collector, CollectorConfig, HandlerStatus};
use polywire_telemetry::{
    Agent, Clocks, Identity, Moment, Plan, Runner, Setting, Uuid,
    command::{Action as Do, Command, CommandReply, service_of},
    system::{Host, PROBES},
};

use super::{
    PROGRESS,
    protocol::{Figures, Told, orders, tell},
};
use crate::{
    outcome::{self, Outcome},
    terminal::Terminal,
    verb::{Action, Verb},
};

/// The name of the node, and the endpoint of its topics. No other process uses this endpoint.
const NAME: &str = "demo";
const PLACE: &str = "inproc/demo-probes";

/// The probes that are sampled often. The others read more of the system, and keep their default
/// intervals.
const OFTEN: [&str; 4] = ["processor", "memory", "network", "load"];

/// The seconds between two samples of these probes.
const EVERY: &str = "0.01";

/// The time limit for the node to execute commands, and for the collector to receive the last
/// samples.
const READY: Duration = Duration::from_secs(30);

/// The time without new machine code after which a format is measured, because the first samples in
/// a format are slower.
const SETTLE: Duration = Duration::from_millis(100);

pub const VERB: Verb =
    Verb::new::<DemoProbes>("demo-probes", "Collects the probes of this machine for `polywire demo`").hidden();

#[derive(Args)]
pub struct DemoProbes {
    #[arg(long = "wire")]
    wires: Vec<String>,
    #[arg(long)]
    seconds: f64,
}

impl Action for DemoProbes {
    fn run(self, _: &Terminal) -> outcome::Result {
        let orders = orders();
        let identity = Identity::new(NAME)?;
        let node = Node::builder().id(identity.uuid.into()).name(NAME).build();
        let mut collector = Collector::new(node.clone());
        let page = open(&mut collector)?;
        let first = self.wires.first().map_or("cdr", String::as_str);
        let start = Moment { steady: Duration::ZERO, ..Clocks::new().now() };
        let mut agent = Agent::new(node.clone(), identity, Host::this(), &format!("{first}@{PLACE}"), start)?;
        for probe in PROBES {
            let mut plan = Plan::of(probe);
            if OFTEN.contains(&probe.name) {
                plan.set("every", EVERY)?;
            }
            if let Err(error) = agent.add(plan) {
                log::info!("probe '{}': {error}", probe.name);
            }
        }
        let mut run = Run::new(&node, &agent)?;
        let runner = Runner::start(agent).context("cannot start a thread")?;
        tell(&Told::Listening { endpoint: page })?;
        for wire in &self.wires {
            run.measure(wire, Duration::from_secs_f64(self.seconds / self.wires.len() as f64))?;
        }
        drop(runner);
        ensure!(node.flush(READY), "the collector has not taken everything in time");
        let sent = samples(&node.stats()).0;
        let lost = sent.saturating_sub(collected(&mut collector, sent));
        tell(&Told::Done { wires: run.wires, lost, undecodable: 0, last: String::new() })?;
        // The page remains available until the demonstration ends.
        let _ = orders.recv();
        drop(collector);
        node.close();
        Ok(Outcome::Fine)
    }
}

/// Returns the number of messages and bytes that the probes have published.
fn samples(stats: &NodeStats) -> (u64, u64) {
    let prefix = format!("probes/{NAME}/");
    let probes = stats.topics.iter().filter(|topic| topic.topic.starts_with(&prefix));
    probes.fold((0, 0), |(messages, bytes), topic| (messages + topic.sent, bytes + topic.sent_bytes))
}

/// Waits until the collector has stored `sent` samples, and returns how many it has stored.
fn collected(collector: &mut Collector, sent: u64) -> u64 {
    let until = Instant::now() + READY;
    let stored = |status: Vec<HandlerStatus>| status.iter().find(|one| one.kind == "null").map_or(0, |one| one.stored);
    while stored(collector.status()) < sent && Instant::now() < until {
        thread::sleep(Duration::from_millis(5));
    }
    stored(collector.status())
}

struct Run {
    node: Node,
    client: Client<Command, CommandReply>,
    uuid: String,
    probes: Vec<String>,
    wires: Vec<Figures>,
}

impl Run {
    fn new(node: &Node, agent: &Agent) -> anyhow::Result<Run> {
        let client = node.client(&service_of(NAME), Some(PLACE))?.open()?;
        let description = agent.description();
        let probes = description.probes.into_iter().map(|probe| probe.instance).collect();
        Ok(Run { node: node.clone(), client, uuid: description.uuid, probes, wires: Vec::new() })
    }

    /// Changes to a format, and measures the cost of the samples in it for some time.
    fn measure(&mut self, wire: &str, share: Duration) -> anyhow::Result<()> {
        let until = Instant::now() + share;
        self.set_wire(wire)?;
        self.settle(share / 2);
        let before = self.node.stats();
        let mut figures = Figures { wire: wire.to_owned(), ..Figures::default() };
        while Instant::now() < until || figures.messages == 0 {
            ensure!(Instant::now() < until + READY, "there is no sample in {wire}");
            thread::sleep(PROGRESS.min(until.saturating_duration_since(Instant::now())).max(SETTLE / 10));
            let now = self.node.stats();
            let ((messages, bytes), earlier) = (samples(&now), samples(&before));
            (figures.messages, figures.bytes) = (messages - earlier.0, bytes - earlier.1);
            figures.cpu_ns = now.cpu_ns.saturating_sub(before.cpu_ns);
            tell(&Told::Progress { wires: self.wires.iter().chain([&figures]).cloned().collect() })?;
        }
        self.wires.push(figures);
        Ok(())
    }

    /// Waits until the current format is compiled to machine code, but at most for `longest`.
    fn settle(&self, longest: Duration) {
        let until = Instant::now() + longest;
        let (mut before, mut now) = (None, Some(self.node.stats().compile_ns));
        while before != now && Instant::now() < until {
            thread::sleep(SETTLE.min(until.saturating_duration_since(Instant::now())));
            (before, now) = (now, Some(self.node.stats().compile_ns));
        }
    }

    fn set_wire(&self, wire: &str) -> anyhow::Result<()> {
        let command = |probe: &String| Command {
            action: Do::Set,
            instance: probe.clone(),
            settings: vec![Setting { name: "wire".to_owned(), value: wire.to_owned() }],
            ..Command::to(&self.uuid)
        };
        self.client.wait_for_server(READY)?;
        // All requests are sent before the first reply is waited for.
        let asked = self.probes.iter().map(|probe| self.client.request(&command(probe), READY));
        for reply in asked.collect::<Vec<_>>() {
            let reply = reply.and_then(Reply::wait)?.value;
            ensure!(reply.is_done(), "the probes cannot be sent as {wire}: {}", reply.problem());
        }
        Ok(())
    }
}

/// Opens the handlers: one for all samples, and the page of the dashboard in builds that include
/// it. Returns the address of the page; empty if there is none.
fn open(collector: &mut Collector) -> anyhow::Result<String> {
    let mut text = format!(
        "[collector]\nendpoints = ['{PLACE}']\n\
         [handlers.samples]\nkind = 'null'\nsync = 0.1\noverflow = 'block'\ntopics = ['probes/{NAME}/*']\n"
    );
    if !cfg!(feature = "foxglove") {
        collector.reload(&CollectorConfig::parse(&text)?)?;
        return Ok(String::new());
    }
    let folder = env::temp_dir().join(format!("polywire-demo-{}", Uuid::random()));
    let failed = || folder.display().to_string();
    // No other user can place a file in this folder.
    fs::DirBuilder::new().mode(0o700).create(&folder).with_context(failed)?;
    let file = folder.join("page.url");
    let control = serde_json::to_string(&file)?;
    text += &format!("[handlers.page]\nkind = 'dashboard'\nserve = '127.0.0.1:0'\ncontrol = {control}\n");
    collector.reload(&CollectorConfig::parse(&text)?)?;
    // Only this process needs the file, and only now.
    let address = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    fs::remove_dir_all(&folder).with_context(failed)?;
    Ok(address.trim().to_owned())
}
