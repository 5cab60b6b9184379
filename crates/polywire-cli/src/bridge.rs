//! The command `polywire bridge`: forwards topics between two endpoints.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use polywire::{Bridge, Node, NodeError, NodeEvent, Pattern, Wire, bridge::WayStatus, engine::Event};
use sd_notify::NotifyState;
use serde::Serialize;

use crate::{
    outcome::{self, Misuse, Outcome},
    reload,
    seconds::Seconds,
    stop::{self, Stop},
    terminal::Terminal,
    topic::wire,
    types::TypeArgs,
    verb::{Action, Verb},
};

/// How often the loop checks for a signal.
const TICK: Duration = Duration::from_millis(100);

/// How long messages may take to be delivered when the process is told to end.
const DRAIN: Duration = Duration::from_secs(5);

pub const VERB: Verb = Verb::new::<BridgeArgs>("bridge", "Passes topics on between two endpoints")
    .details(
        "At an endpoint alone, payloads are passed on as they are; a wire with a format converts what goes to its \
         endpoint. Writers keep their ids and sequence numbers, so a subscriber gets each message once, also if \
         several bridges connect the same endpoints. Quality of service is carried over, apart from the history for \
         late joiners. Other applications than Polywire's may announce no type: with --idl, their messages are \
         converted, too, and are taken for messages in the format of the wire of their end. On SIGTERM or SIGINT, \
         messages leave first, and the exit code is 0. On SIGHUP it reads the file of --config again. Under systemd it reports readiness (Type=notify).",
    )
    .example("polywire bridge local/7 json@unix//tmp/polywire-bridge-example.sock 'plant/**' --for 1");

#[derive(Args)]
pub struct BridgeArgs {
    /// Wire of one end: [CODEC@]ENGINE/ADDRESS
    #[arg(value_parser = wire)]
    from: Wire,
    /// Wire of the other end
    #[arg(value_parser = wire)]
    to: Wire,
    /// Topics that are passed on: `*` is one level, `**` any number of levels [default: all]
    #[arg(value_name = "TOPIC-PATTERN")]
    topics: Vec<Pattern>,
    #[command(flatten)]
    of_type: TypeArgs,
    /// Passes on from FROM to TO alone
    #[arg(long)]
    one_way: bool,
    /// TOML file with the settings of the ports: queues, limits, identity, access
    #[arg(short, long, value_name = "FILE", env = "POLYWIRE_CONFIG", hide_env_values = true)]
    config: Option<std::path::PathBuf>,
    /// Time between two lines of figures; 0 for figures at the end alone
    #[arg(long, value_name = "SECONDS", default_value = "10")]
    every: Seconds,
    /// Ends after this time instead of running until it is told to end
    #[arg(long = "for", value_name = "SECONDS")]
    duration: Option<Seconds>,
}

/// The counters of both directions since the start.
#[derive(Serialize)]
struct Figures {
    there: Direction,
    back: Direction,
}

#[derive(Serialize)]
struct Direction {
    channels: usize,
    refused: u64,
    messages: u64,
    bytes: u64,
    unread: u64,
    lost: u64,
}

#[derive(Serialize)]
struct Told {
    event: String,
}

impl Action for BridgeArgs {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        let config = reload::given(self.config.as_ref())?;
        stop::hold()?;
        let stop = Stop::new()?;
        let node = Node::builder().config(config).build();
        reload::on_hang_up(&node, self.config.clone());
        let events = node.events();
        let builder = node.bridge(&self.from.to_string(), &self.to.to_string());
        let mut builder = builder.map_err(|error| match error {
            NodeError::SameEndpoint { .. } => Misuse(error.to_string()).into(),
            error => anyhow::Error::from(error),
        })?;
        if !self.topics.is_empty() {
            builder = builder.topics(self.topics.iter().map(Pattern::as_str))?;
        }
        if let Some(schema) = self.of_type.schema(terminal)? {
            builder = builder.assume(schema);
        }
        if self.one_way {
            builder = builder.one_way();
        }
        let bridge = builder.open();
        // Without systemd this has no effect.
        sd_notify::notify(&[NotifyState::Ready]).context("cannot tell systemd that the bridge is ready")?;
        let until = self.duration.map(|Seconds(duration)| Instant::now() + duration);
        let mut shown = Instant::now();
        while stop.outcome().is_none() && until.is_none_or(|until| Instant::now() < until) {
            if let Some(event) = events.recv_timeout(TICK) {
                tell(&event, terminal)?;
            }
            if !self.every.0.is_zero() && shown.elapsed() >= self.every.0 {
                shown = Instant::now();
                show(&bridge, terminal)?;
            }
        }
        let _ = sd_notify::notify(&[NotifyState::Stopping]);
        node.flush(DRAIN);
        show(&bridge, terminal)?;
        drop(bridge);
        node.close();
        Ok(Outcome::Fine)
    }
}

impl From<WayStatus> for Direction {
    fn from(way: WayStatus) -> Direction {
        let WayStatus { channels, refused, messages, bytes, unread, lost, .. } = way;
        Direction { channels, refused, messages, bytes, unread, lost }
    }
}

fn show(bridge: &Bridge, terminal: &Terminal) -> anyhow::Result<()> {
    let status = bridge.status();
    let figures = Figures { there: status.there.into(), back: status.back.into() };
    if terminal.json {
        return terminal.value(&figures);
    }
    let line = |name: &str, way: &Direction| {
        let Direction { channels, refused, messages, bytes, unread, lost } = way;
        let messages = format!("{messages} messages, {bytes} bytes, {unread} without a subscriber, {lost} lost");
        format!("{name}: {messages}; {channels} channels, {refused} refused")
    };
    terminal.line(&line("there", &figures.there))?;
    Ok(terminal.line(&line("back", &figures.back))?)
}

/// Prints an event of the two endpoints.
fn tell(event: &NodeEvent, terminal: &Terminal) -> anyhow::Result<()> {
    let text = match event {
        NodeEvent::Engine { event: Event::Listening { endpoint }, .. } => format!("bridges {endpoint}"),
        other => other.to_string(),
    };
    match terminal.json {
        true => terminal.value(&Told { event: text }),
        false => Ok(terminal.line(&text)?),
    }
}
