//! `polywire probe run`: a node with one probe, which runs a command.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use clap::Args;
use polywire_telemetry::{
    Agent, Clocks, Identity, Moment, Plan, Runner,
    system::{self, Host},
};
use serde_json::json;

use crate::{
    outcome::{self, Misuse, Outcome},
    seconds::Seconds,
    stop::{self, Stop},
    terminal::Terminal,
    topic::WireArgs,
    verb::{Action, Verb},
    watch::Watch,
};

/// How often the loop checks for a signal.
const TICK: Duration = Duration::from_millis(50);

/// How long published samples may take to be delivered when the process is told to end.
const DRAIN: Duration = Duration::from_secs(5);

pub const VERB: Verb = Verb::new::<Run>("run", "Publishes what a command prints, again and again, as a probe")
    .details(
        "COMMAND is for the shell. It prints a JSON object or words NAME=VALUE, and is run only while somebody listens. \
         An agent runs the same probe if its file has it: probe = \"command\". On SIGTERM or SIGINT, published samples \
         leave first, and the exit code is 0.",
    )
    .example("polywire probe run press-hall/queue 'echo jobs=3' --every 0.1 --for 1");

#[derive(Args)]
pub struct Run {
    /// NODE/INSTANCE: the names of the node and of the probe
    #[arg(value_name = "NODE/INSTANCE", value_parser = super::change::probe)]
    name: String,
    /// Shell command that prints the figures
    command: String,
    /// Seconds between two runs
    #[arg(short, long, value_name = "SECONDS", default_value = "10")]
    every: Seconds,
    #[command(flatten)]
    wire: WireArgs,
    /// Ends after this time instead of running until it is told to end
    #[arg(long = "for", value_name = "SECONDS")]
    duration: Option<Seconds>,
}

impl Action for Run {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        let (node, instance) = self.name.split_once('/').unwrap_or((&self.name, ""));
        let (identity, plan) = (Identity::new(node), self.plan(instance));
        let misuse = |error: &dyn std::error::Error| Misuse(error.to_string());
        let (identity, plan) = (identity.map_err(|error| misuse(&error))?, plan.map_err(|error| misuse(&error))?);
        // Like the name of a node, an instance is part of a topic.
        Identity::new(instance).map_err(|error| misuse(&error))?;
        stop::hold()?;
        let stop = Stop::new()?;
        let (node, wires) = self.wire.node_of(&identity)?;
        let mut watch = Watch::new(&node);
        let wire = wires.only()?.to_string();
        let start = Moment { steady: Duration::ZERO, ..Clocks::new().now() };
        let mut agent = Agent::new(node.clone(), identity, Host::this(), &wire, start)?;
        agent.add(plan)?;
        match terminal.json {
            true => terminal.value(&json!({ "topic": format!("probes/{}", self.name), "wire": wire }))?,
            false => terminal.line(&format!("probes/{} at {wire}", self.name))?,
        }
        let runner = Runner::start(agent).context("cannot start a thread")?;
        let until = self.duration.map(|Seconds(duration)| Instant::now() + duration);
        while stop.outcome().is_none() && until.is_none_or(|until| Instant::now() < until) {
            thread::sleep(TICK);
            watch.poll(terminal);
        }
        drop(runner);
        node.flush(DRAIN);
        node.close();
        Ok(Outcome::Fine)
    }
}

impl Run {
    fn plan(&self, instance: &str) -> Result<Plan, polywire_telemetry::MeasureError> {
        let mut plan = Plan { instance: instance.to_owned(), ..Plan::of(system::find("command")?) };
        plan.set("command", &self.command)?;
        plan.set("every", &self.every.to_string())?;
        Ok(plan)
    }
}
