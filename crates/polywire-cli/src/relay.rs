//! The command `polywire relay`: listens at an endpoint and relays, so that no other process has
//! to.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use polywire::{
    Node, NodeEvent,
    engine::{ENGINES, Event},
};
use sd_notify::NotifyState;
use serde::Serialize;

use crate::{
    outcome::{self, Misuse, Outcome},
    reload,
    seconds::Seconds,
    stop::{self, Stop},
    terminal::Terminal,
    verb::{Action, Verb},
};

/// How often the loop checks for a signal.
const TICK: Duration = Duration::from_millis(100);

/// How long relayed messages may take to be delivered when the process is told to end.
const DRAIN: Duration = Duration::from_secs(1);

pub const VERB: Verb = Verb::new::<Relay>("relay", "Holds an address and relays between the nodes there")
    .details(
        "A second relay at the same address stands by. When the first one ends, the process that is first to notice \
         takes over; applications with tcp-connect or unix-connect leave that to relays. Publishers with the policy \
         reliability=reliable lose nothing then. Messages of others that are on their way through a relay when it is \
         killed are lost, and counted by their subscribers. On SIGTERM or SIGINT, the relay lets them leave first and \
         ends with exit code 0. On SIGHUP it reads the file of --config again. Under systemd it reports readiness \
         (Type=notify).",
    )
    .example("polywire relay tcp/127.0.0.1:7465 --for 1");

#[derive(Args)]
pub struct Relay {
    /// ENGINE/ADDRESS, of the engines tcp, tls and unix
    #[arg(required = true, value_name = "ENDPOINT")]
    endpoints: Vec<String>,
    /// TOML file with the settings of the ports: queues, limits, identity, access
    #[arg(short, long, value_name = "FILE", env = "POLYWIRE_CONFIG", hide_env_values = true)]
    config: Option<std::path::PathBuf>,
    /// Ends after this time instead of running until it is told to end
    #[arg(long = "for", value_name = "SECONDS")]
    duration: Option<Seconds>,
}

#[derive(Serialize)]
struct Told {
    event: String,
}

impl Action for Relay {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        self.endpoints.iter().try_for_each(|endpoint| check(endpoint))?;
        let config = reload::given(self.config.as_ref())?;
        stop::hold()?;
        let stop = Stop::new()?;
        let node = Node::builder().config(config).build();
        reload::on_hang_up(&node, self.config.clone());
        let events = node.events();
        for endpoint in &self.endpoints {
            node.open(endpoint)?;
        }
        // Without systemd this has no effect.
        sd_notify::notify(&[NotifyState::Ready]).context("cannot tell systemd that the relay is ready")?;
        let until = self.duration.map(|Seconds(duration)| Instant::now() + duration);
        while stop.outcome().is_none() && until.is_none_or(|until| Instant::now() < until) {
            if let Some(event) = events.recv_timeout(TICK) {
                tell(&event, terminal)?;
            }
        }
        let _ = sd_notify::notify(&[NotifyState::Stopping]);
        node.flush(DRAIN);
        node.close();
        Ok(Outcome::Fine)
    }
}

/// Rejects an endpoint whose engine does not relay.
fn check(endpoint: &str) -> Result<(), Misuse> {
    let engine = endpoint.split('/').next().unwrap_or_default();
    if ENGINES.iter().any(|known| known.name() == engine && known.relays()) {
        return Ok(());
    }
    let relaying = ENGINES.iter().filter(|known| known.relays());
    let places: Vec<String> = relaying.map(|known| format!("{}/{}", known.name(), known.example())).collect();
    let reason = format!("a relay is for endpoints such as {}; other engines have no relay", places.join(", "));
    Err(Misuse(format!("'{endpoint}': {reason}")))
}

/// Prints connections and losses.
fn tell(event: &NodeEvent, terminal: &Terminal) -> anyhow::Result<()> {
    let text = match event {
        NodeEvent::Engine { event: Event::Listening { endpoint }, .. } => format!("relays at {endpoint}"),
        other => other.to_string(),
    };
    match terminal.json {
        true => terminal.value(&Told { event: text }),
        false => Ok(terminal.line(&text)?),
    }
}
