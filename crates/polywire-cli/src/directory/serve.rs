//! `polywire directory serve`: publishes the descriptions of nodes to clients at other endpoints.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use clap::Args;
use polywire::{Kind, Sample, Wire, engine, extend::envelope::Id128, wire::Endpoint};
use polywire_telemetry::{
    Identity, NodeDescription,
    description::{NODES, nodes_qos},
};
use sd_notify::NotifyState;
use serde_json::json;

use crate::{
    outcome::{self, Misuse, Outcome},
    seconds::Seconds,
    stop::{self, Stop},
    terminal::Terminal,
    topic::{WireArgs, wire},
    verb::{Action, Verb},
    watch::Watch,
};

/// How often the loop checks for a signal.
const TICK: Duration = Duration::from_millis(50);

/// The maximum number of nodes whose descriptions are forwarded.
const MAX_NODES: usize = 4096;

/// How long descriptions may take to be delivered when the process is told to end.
const DRAIN: Duration = Duration::from_secs(1);

pub const VERB: Verb = Verb::new::<Serve>("serve", "Tells clients at other addresses which nodes there are")
    .details(
        "Passes on what the nodes of this domain say about themselves, to whoever asks at an address, also later; and \
         that a node has gone, or is silent past its lease; at most 4096 nodes. Clients give the address to `probe list` and `directory` \
         by --wire. Prints the nodes that come and go. On SIGTERM or SIGINT it ends with exit code 0. Under systemd it \
         reports readiness (Type=notify).",
    )
    .example("polywire directory serve tcp-listen/127.0.0.1:7478 --for 1");

#[derive(Args)]
pub struct Serve {
    /// Wires at which clients ask: [CODEC@]ENGINE/ADDRESS
    #[arg(required = true, value_name = "WIRE", value_parser = wire)]
    to: Vec<Wire>,
    #[command(flatten)]
    wire: WireArgs,
    /// Ends after this time instead of running until it is told to end
    #[arg(long = "for", value_name = "SECONDS")]
    duration: Option<Seconds>,
}

impl Action for Serve {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        stop::hold()?;
        let stop = Stop::new()?;
        let (node, wires) = self.wire.node_of(&Identity::new("directory")?)?;
        let mut watch = Watch::new(&node);
        self.check(wires.only()?)?;
        let here = wires.only()?.to_string();
        let nodes = node.subscribe::<NodeDescription>(NODES, Some(&here))?.qos(nodes_qos())?.instances().open();
        let mut texts = self.to.iter().map(ToString::to_string);
        let publish = node.publish::<NodeDescription>(NODES, texts.next().as_deref())?.qos(nodes_qos())?;
        let clients = texts.try_fold(publish, |publish, wire| publish.also(&wire))?.open()?;
        // Without systemd this has no effect.
        sd_notify::notify(&[NotifyState::Ready]).context("cannot tell systemd that the directory is ready")?;
        let until = self.duration.map(|Seconds(duration)| Instant::now() + duration);
        let mut there: BTreeMap<Option<Id128>, NodeDescription> = BTreeMap::new();
        while stop.outcome().is_none() && until.is_none_or(|until| Instant::now() < until) {
            watch.poll(terminal);
            let Some(Sample { value, info }) = nodes.recv_timeout(TICK) else { continue };
            // The messages of this node come back if the two addresses lead to the same place.
            if info.source.announcement.writer == clients.writer() {
                continue;
            }
            let has_room = there.len() < MAX_NODES || there.contains_key(&info.key_hash);
            if info.kind == Kind::Data && has_room {
                clients.publish(&value)?;
                if there.insert(info.key_hash, value.clone()).is_none() {
                    tell(terminal, &value, true)?;
                }
            } else if let Some(gone) = there.remove(&info.key_hash) {
                // The sample that ends an instance may have only its key hash.
                clients.dispose(&gone)?;
                tell(terminal, &gone, false)?;
            }
        }
        let _ = sd_notify::notify(&[NotifyState::Stopping]);
        node.flush(DRAIN);
        node.close();
        Ok(Outcome::Fine)
    }
}

impl Serve {
    /// Checks that clients have other endpoints than the nodes. A directory that received its own
    /// messages would repeat them forever.
    fn check(&self, here: &Wire) -> Result<(), Misuse> {
        let place = |wire: &Wire| wire.endpoint.as_ref().map(completed);
        match self.to.iter().all(|to| to.endpoint.is_some() && place(to) != place(here)) {
            true => Ok(()),
            false => Err(Misuse(format!("clients need an address of their own, not that of the nodes: {here}"))),
        }
    }
}

/// The engine of an endpoint, and its address in the form in which a node opens it.
fn completed(endpoint: &Endpoint) -> (String, String) {
    let given = &endpoint.address;
    let address = engine::find(&endpoint.engine).map_or_else(|| given.clone(), |engine| engine.complete(given));
    (endpoint.engine.clone(), address)
}

fn tell(terminal: &Terminal, node: &NodeDescription, is_there: bool) -> anyhow::Result<()> {
    match terminal.json {
        true => terminal.value(&json!({ "uuid": node.uuid, "name": node.name, "there": is_there })),
        false if is_there => Ok(terminal.line(&format!("{} {}", node.uuid, node.name))?),
        false => Ok(terminal.line(&format!("{} {} has gone", node.uuid, node.name))?),
    }
}
