//! `polywire probe set`, `start` and `stop`: commands to nodes, several at once by pattern.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use clap::Args;
use polywire::service::{CallError, Client, Reply};
use polywire_telemetry::{
    Setting,
    command::{Action, Command, CommandReply, Reason, service_of},
    fits,
};
use serde_json::{Value, json};

use super::{Asked, Asking, is_missed};
use crate::{
    outcome::{self, Misuse, Outcome},
    terminal::Terminal,
    verb::{self, Verb},
};

pub const SET: Verb = Verb::new::<Set>("set", "Changes probes while they run, or a node itself")
    .details(
        "What can be set: every (seconds), enabled (true or false), thin (off, change, or MEMBER=BOUND,..), wire, for a \
         collector keep (all, a number, or none), batch (such as 5s,1000,64kB) and priority (0 to 9), and the probe's \
         parameters; of a node with a collector, budget (bytes a second, or off). For each probe, all of it is changed \
         or nothing. `*` in NODE and INSTANCE stands for any text. Exit code 1 means that a node did not answer; 2, \
         that one refused.",
    )
    .example("polywire probe set pump-house/clock every=0.5");

pub const START: Verb = Verb::new::<Start>("start", "Makes probes sample again")
    .details("`*` in NODE and INSTANCE stands for any text.")
    .example("polywire probe start pump-house/clock");

pub const STOP: Verb = Verb::new::<Stop>("stop", "Makes probes sample no more, until they are started")
    .details("`*` in NODE and INSTANCE stands for any text.")
    .example("polywire probe stop pump-house/clock");

#[derive(Args)]
struct Options {
    /// Also after a restart of the node
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    asking: Asking,
}

#[derive(Args)]
pub struct Set {
    /// NODE/INSTANCE, or NODE
    #[arg(value_name = "NODE/INSTANCE")]
    target: String,
    /// What to set
    #[arg(required = true, value_name = "NAME=VALUE", value_parser = setting)]
    settings: Vec<Setting>,
    #[command(flatten)]
    options: Options,
}

#[derive(Args)]
pub struct Start {
    /// NODE/INSTANCE
    #[arg(value_name = "NODE/INSTANCE", value_parser = probe)]
    target: String,
    #[command(flatten)]
    options: Options,
}

#[derive(Args)]
pub struct Stop {
    /// NODE/INSTANCE
    #[arg(value_name = "NODE/INSTANCE", value_parser = probe)]
    target: String,
    #[command(flatten)]
    options: Options,
}

impl verb::Action for Set {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        self.options.change(&self.target, Action::Set, &self.settings, terminal)
    }
}

impl verb::Action for Start {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        self.options.change(&self.target, Action::Start, &[], terminal)
    }
}

impl verb::Action for Stop {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        self.options.change(&self.target, Action::Stop, &[], terminal)
    }
}

fn setting(text: &str) -> Result<Setting, String> {
    let split = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let setting = split.map(|(name, value)| Setting { name: name.to_owned(), value: value.to_owned() });
    setting.ok_or_else(|| "NAME=VALUE is expected".to_owned())
}

pub fn probe(text: &str) -> Result<String, String> {
    let is_probe = text.split_once('/').is_some_and(|(node, instance)| !node.is_empty() && !instance.is_empty());
    is_probe.then(|| text.to_owned()).ok_or_else(|| "NODE/INSTANCE is expected; `probe list` lists them".to_owned())
}

/// The target of a command, a probe or a node itself, and the command.
struct Target {
    name: String,
    node: String,
    command: Command,
}

impl Options {
    fn change(self, path: &str, action: Action, settings: &[Setting], terminal: &Terminal) -> outcome::Result {
        let (asked, targets) = self.targets(path, action, settings)?;
        let mut clients = BTreeMap::new();
        for Target { node, .. } in &targets {
            if !clients.contains_key(node) {
                let client: Client<Command, CommandReply> =
                    asked.node.client(&service_of(node), Some(&asked.wire))?.open()?;
                clients.insert(node.clone(), client);
            }
        }
        let timeout = self.asking.timeout.0;
        let until = Instant::now() + timeout;
        // All requests are sent before the first reply is waited for.
        let ask = |target: &Target| {
            let client = &clients[&target.node];
            client.wait_for_server(until.saturating_duration_since(Instant::now()))?;
            client.request(&target.command, timeout.max(Duration::from_secs(1)))
        };
        let asked: Vec<Result<Reply<CommandReply>, CallError>> = targets.iter().map(ask).collect();
        let replies = asked.into_iter().map(|reply| reply.and_then(Reply::wait).map(|sample| sample.value));
        print(terminal, targets.iter().zip(replies))
    }

    fn targets(&self, path: &str, action: Action, settings: &[Setting]) -> anyhow::Result<(Asked, Vec<Target>)> {
        let (node, instance) = path.split_once('/').unwrap_or((path, ""));
        let (asked, nodes) = self.asking.like(node)?;
        let mut targets = Vec::new();
        for node in &nodes {
            let named = node.probes.iter().map(|probe| &*probe.instance).filter(|name| fits(instance, name));
            // The node itself reports an error for an unknown name.
            let instances = if path.contains('*') && !instance.is_empty() { named.collect() } else { vec![instance] };
            targets.extend(instances.into_iter().map(|instance| {
                let slash = if instance.is_empty() { "" } else { "/" };
                let (settings, keep) = (settings.to_vec(), self.keep);
                let command =
                    Command { action, instance: instance.to_owned(), settings, keep, ..Command::to(&node.uuid) };
                Target { name: format!("{}{slash}{instance}", node.name), node: node.name.clone(), command }
            }));
        }
        match targets.is_empty() {
            true => Err(Misuse(format!("no probe fits '{path}'; `probe list` lists them")).into()),
            false => Ok((asked, targets)),
        }
    }
}

/// Prints the result of each command. The worst result decides the exit code.
fn print<'a>(
    terminal: &Terminal,
    replies: impl Iterator<Item = (&'a Target, Result<CommandReply, CallError>)>,
) -> outcome::Result {
    let (mut all, mut missed, mut failed) = (Vec::new(), false, false);
    for (target, reply) in replies {
        let problem = match &reply {
            Ok(reply) => reply.problem(),
            Err(error) => error.to_string(),
        };
        match (terminal.json, problem.is_empty()) {
            (true, _) => all.push(json_of(&target.name, &reply)),
            (false, true) => terminal.line(&format!("{}: done", target.name))?,
            (false, false) => terminal.error(&format!("{}: {problem}", target.name)),
        }
        missed |= reply.as_ref().is_err_and(is_missed);
        failed |= !problem.is_empty() && !reply.as_ref().is_err_and(is_missed);
    }
    if terminal.json {
        terminal.value(&all)?;
    }
    Ok(if failed {
        Outcome::Failed
    } else if missed {
        Outcome::Missed
    } else {
        Outcome::Fine
    })
}

fn json_of(target: &str, reply: &Result<CommandReply, CallError>) -> Value {
    let reply = match reply {
        Ok(reply) => reply,
        Err(error) => return json!({ "target": target, "done": false, "refused": [], "error": error.to_string() }),
    };
    let refused: Vec<Value> = reply
        .refused
        .iter()
        .map(|refusal| json!({ "setting": refusal.setting, "reason": word(refusal.reason), "text": refusal.text }))
        .collect();
    json!({ "target": target, "done": reply.is_done(), "refused": refused })
}

/// Returns the machine-readable form of a reason.
fn word(reason: Reason) -> &'static str {
    match reason {
        Reason::Impossible => "impossible",
        Reason::WrongNode => "wrong node",
        Reason::UnknownProbe => "unknown probe",
        Reason::UnknownSetting => "unknown setting",
        Reason::BadValue => "bad value",
        Reason::NotKept => "not kept",
    }
}
