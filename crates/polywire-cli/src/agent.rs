//! The command `polywire agent`: runs probes of this machine and publishes their samples.

use std::{
    env, fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use clap::Args;
use polywire::Wire;
use polywire_collector::CollectorConfig;
use polywire_telemetry::{
    Agent as Node, AgentConfig, Clocks, Identity, Moment, Plan, Runner, Uuid,
    command::AuditFile,
    socket::Socket,
    system::{self, Host, PROBES},
    uplink::{Carrier, Files, Uplink},
};
use sd_notify::NotifyState;
use serde_json::json;

use crate::{
    collecting::{self, Collecting},
    outcome::{self, Misuse, Outcome, chain},
    seconds::Seconds,
    stop::{self, Hangup, Stop},
    terminal::Terminal,
    topic::WireArgs,
    verb::{Action, Verb},
    watch::Watch,
};

/// How often the loop checks for alerts. Signals wake it.
const TICK: Duration = Duration::from_millis(200);

/// The interval without a collector, and so without alerts.
const LONG_TICK: Duration = Duration::from_secs(3600);

/// How long published samples may take to be delivered when the process is told to end.
const DRAIN: Duration = Duration::from_secs(5);

pub const VERB: Verb = Verb::new::<Agent>("agent", "Runs probes of this machine and publishes their samples")
    .details(
        "Each probe has a topic, probes/NODE/INSTANCE. A probe that nobody listens to is not sampled. Without a file, \
         all probes of `probe list --here` run that this machine has. The node keeps its UUID in a state file: the one \
         that --state or the configuration names, or agent.toml in STATE_DIRECTORY, XDG_STATE_HOME/polywire or \
         ~/.local/state/polywire. With a collector, every sample is kept until the collector has stored it: in the \
         folder of --spool, or next to the state file. A record of each command (`probe set`, `start`, `stop`, \
         `call`) goes to the file with the ending .audit next to it, and what is set with --keep to the one with \
         .kept. With --collect the same process is a collector: of its own samples and of those of the other nodes at \
         its endpoint. Its handlers are those of the file, read again on SIGHUP, or else an archive next to the state \
         file (.db and .mcap, or .jsonl in builds without SQLite and MCAP) and the page of the dashboard in builds \
         that have it. On SIGTERM or SIGINT, published samples leave first, handlers store what they have, and the \
         exit code is 0, or 1 if a handler could not. Under systemd it reports readiness (Type=notify).",
    )
    .example("polywire agent --probe load --state agent.state --collector cdr+zstd@tcp/127.0.0.1:7461 --for 1");

#[derive(Args)]
pub struct Agent {
    /// TOML file with the node's name and its probes
    file: Option<PathBuf>,
    #[command(flatten)]
    wire: WireArgs,
    /// Name of the node [default: the one in the file, or in the state file, or that of the host]
    #[arg(short, long)]
    name: Option<String>,
    /// File that keeps the node's UUID and name over restarts
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Wire of the collector that gets all samples [default: the one in the file, or none]
    #[arg(long, value_name = "WIRE")]
    collector: Option<Wire>,
    /// Unix socket to which programs send samples with their types [default: the one in the file,
    /// or none]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Folder of the samples that the collector does not have yet [default: the state file's name
    /// with .spool]
    #[arg(long, value_name = "FOLDER")]
    spool: Option<PathBuf>,
    /// Also collects; FILE is one of `polywire collect --file`, whose `name` and `state` do not
    /// count here
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    collect: Option<Option<PathBuf>>,
    /// Probe to run instead of those in the file; may be given several times
    #[arg(short, long = "probe", value_name = "PROBE")]
    probes: Vec<String>,
    /// Seconds between two samples of each probe [default: the probe's]
    #[arg(short, long, value_name = "SECONDS")]
    every: Option<Seconds>,
    /// Ends after this time instead of running until it is told to end
    #[arg(long = "for", value_name = "SECONDS")]
    duration: Option<Seconds>,
}

impl Action for Agent {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        let config = self.config()?;
        let state = self.state.clone().or_else(|| config.state.clone()).map_or_else(default_state, Ok)?;
        let identity = Identity::keep(&state, self.name.as_deref().or(config.name.as_deref()))?;
        let (plans, must) = self.plans(&config)?;
        // Errors in the collector's configuration are reported before anything is started.
        self.collector(&state, &Wire::default())?;
        stop::hold()?;
        let hangup = matches!(self.collect, Some(Some(_))).then(stop::hangup);
        let stop = Stop::new()?;
        let (node, wires) = self.wire.node_of(&identity)?;
        let wire = wires.only()?;
        let uplink = self.uplink_wire(&config).and_then(|uplink| uplink.endpoint.as_ref());
        let resends = uplink.filter(|uplink| Some(*uplink) != wire.endpoint.as_ref()).map(ToString::to_string);
        Watch::aside(&node, resends).context("cannot start a thread")?;
        let start = Moment { steady: Duration::ZERO, ..Clocks::new().now() };
        let mut agent = Node::new(node.clone(), identity.clone(), Host::this(), &wire.to_string(), start)?;
        let audit = state.with_extension("audit");
        let failed = || format!("cannot use the audit file {}", audit.display());
        agent.audit_to(AuditFile::open(&audit).with_context(failed)?);
        agent.keep_settings(&state.with_extension("kept"))?;
        let carrier = self.carrier(&config, &node, identity.uuid, &state)?;
        carrier.iter().try_for_each(|carrier| agent.send_to(carrier.handle()))?;
        let collector = self.collector(&state, wire)?;
        let mut collecting =
            collector.as_ref().map(|config| Collecting::start(&node, config, Duration::MAX)).transpose()?;
        collecting.iter().try_for_each(|collecting| agent.add_application("collector", &collecting.probe()))?;
        let mut running = Vec::new();
        for plan in plans {
            let instance = plan.instance.clone();
            match agent.add(plan) {
                Ok(()) => running.push(instance),
                Err(error) if must => return Err(anyhow::Error::from(error).context(format!("probe '{instance}'"))),
                Err(error) => log::info!("probe '{instance}': {}", chain(&error.into())),
            }
        }
        let socket = self
            .socket
            .as_ref()
            .or(config.socket.as_ref())
            .map(|path| Socket::open(path).with_context(|| format!("cannot use the socket {}", path.display())));
        let socket = socket.transpose()?;
        socket.iter().for_each(|socket| agent.serve(socket));
        say(terminal, &identity, &wire.to_string(), &running)?;
        collector.iter().try_for_each(|config| collecting::say(terminal, config))?;
        let runner = Runner::start(agent).context("cannot start a thread")?;
        // Without systemd this has no effect.
        sd_notify::notify(&[NotifyState::Ready]).context("cannot tell systemd that the agent is ready")?;
        let until = self.duration.map(|Seconds(duration)| Instant::now() + duration);
        while stop.outcome().is_none() && until.is_none_or(|until| Instant::now() < until) {
            stop.pause(if collecting.is_some() { TICK } else { LONG_TICK }, until);
            let Some(collecting) = &mut collecting else { continue };
            if hangup.as_ref().is_some_and(Hangup::came)
                && let Some(config) = self.collector(&state, wire).transpose()
            {
                collecting.reload(config, terminal)?;
            }
            collecting.tick(terminal)?;
        }
        let _ = sd_notify::notify(&[NotifyState::Stopping]);
        drop((runner, socket));
        if let Some(carrier) = &carrier
            && !carrier.flush(DRAIN)
        {
            log::info!("samples wait in the spool for the next start: {:?}", carrier.handle().status());
        }
        drop(carrier);
        node.flush(DRAIN);
        let outcome = collecting.map_or(Ok(Outcome::Fine), |collecting| collecting.finish(terminal))?;
        node.close();
        Ok(outcome)
    }
}

impl Agent {
    fn config(&self) -> anyhow::Result<AgentConfig> {
        let Some(path) = &self.file else { return Ok(AgentConfig::default()) };
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        AgentConfig::parse(&text).with_context(|| path.display().to_string())
    }

    /// Returns the wire on which samples go to the collector, if there is one.
    fn uplink_wire<'a>(&'a self, config: &'a AgentConfig) -> Option<&'a Wire> {
        self.collector.as_ref().or(config.collector.as_ref())
    }

    /// Starts to send samples to the collector, if there is one.
    fn carrier(
        &self,
        config: &AgentConfig,
        node: &polywire::Node,
        uuid: Uuid,
        state: &Path,
    ) -> anyhow::Result<Option<Carrier>> {
        let Some(wire) = self.uplink_wire(config) else { return Ok(None) };
        let folder =
            self.spool.clone().or_else(|| config.spool.clone()).unwrap_or_else(|| state.with_extension("spool"));
        let failed = || format!("cannot use the spool {}", folder.display());
        let files = Files::open(&folder).with_context(failed)?;
        let clocks = Clocks::new();
        let uplink =
            Uplink::new(uuid, start_id(), Box::new(files), config.uplink, clocks.now()).with_context(failed)?;
        Ok(Some(Carrier::start(node, &wire.to_string(), uplink, clocks)?))
    }

    /// Returns the configuration of the collector in this process, if there is one. It collects at
    /// the endpoint where the node publishes, and at the endpoints in its file.
    fn collector(&self, state: &Path, wire: &Wire) -> anyhow::Result<Option<CollectorConfig>> {
        let mut config = match &self.collect {
            None => return Ok(None),
            Some(Some(file)) => collecting::read(file)?,
            Some(None) => collecting::standard(state)?,
        };
        let own = Wire { endpoint: wire.endpoint.clone(), ..Wire::default() };
        config.endpoints.retain(|wire| wire.endpoint != own.endpoint);
        config.endpoints.insert(0, own);
        Ok(Some(config))
    }

    /// Returns the plans of the probes to run, and whether all of them must be opened.
    fn plans(&self, config: &AgentConfig) -> anyhow::Result<(Vec<Plan>, bool)> {
        let named = |name: &String| system::find(name).map(Plan::of).map_err(|error| Misuse(error.to_string()));
        let (mut plans, must) = match (&self.probes[..], &config.probes) {
            ([], Some(plans)) => (plans.clone(), true),
            ([], None) => (PROBES.iter().map(Plan::of).collect(), false),
            (names, _) => (names.iter().map(named).collect::<Result<_, _>>()?, true),
        };
        if let Some(every) = self.every {
            let set = |plan: &mut Plan| plan.set("every", &every.to_string());
            plans.iter_mut().try_for_each(set).map_err(|error| Misuse(format!("--every: {error}")))?;
        }
        Ok((plans, must))
    }
}

/// Prints the identity of the node and the probes that it runs.
fn say(terminal: &Terminal, identity: &Identity, wire: &str, probes: &[String]) -> anyhow::Result<()> {
    let (name, uuid) = (&identity.name, identity.uuid.to_string());
    match terminal.json {
        true => terminal.value(&json!({ "name": name, "uuid": uuid, "wire": wire, "probes": probes })),
        false => Ok(terminal.line(&format!("node {name} ({uuid}) at {wire}: {}", probes.join(", ")))?),
    }
}

/// Returns a random number that identifies this start of the node.
fn start_id() -> u64 {
    let [_, _, _, _, _, _, _, _, half @ ..] = Uuid::random().0;
    u64::from_be_bytes(half)
}

/// Returns the default path of the state file.
fn default_state() -> anyhow::Result<PathBuf> {
    let folder = |variable: &str| env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = folder("STATE_DIRECTORY")
        .or_else(|| folder("XDG_STATE_HOME").map(|folder| folder.join("polywire")))
        .or_else(|| folder("HOME").map(|home| home.join(".local/state/polywire")));
    let folder =
        folder.ok_or_else(|| Misuse("where to keep the node's UUID? give --state FILE, or set HOME".into()))?;
    Ok(folder.join("agent.toml"))
}
