//! The command `polywire link`: emulates a network between two processes.

use std::{
    collections::BTreeSet,
    io::{self, BufRead},
    net::{SocketAddr, ToSocketAddrs},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use clap::Args;
use polywire_link::{
    Emulator,
    netsim::{Loss, Model},
};
use serde_json::json;

#[cfg(all(feature = "hosts", target_os = "linux"))]
use crate::hosts;
use crate::{
    network::{Network, models, show},
    outcome::{self, Misuse, Outcome},
    seconds::Seconds,
    stop::{self, Stop},
    terminal::Terminal,
    verb::{Action, Verb},
};

#[cfg(all(feature = "hosts", target_os = "linux"))]
const BELOW: &[Verb] = &[hosts::VERB];
#[cfg(not(all(feature = "hosts", target_os = "linux")))]
const BELOW: &[Verb] = &[];

pub const VERB: Verb = Verb::new::<Link>("link", "Emulates a network between two processes")
    .details(
        "Programs connect to FROM instead of TO, and everything between them passes through the emulated link. The \
         model can lose, repeat, delay, damage and reorder datagrams (udp/ADDRESS). For streams (tcp/ADDRESS) it \
         applies rate, delay, jitter and blackouts. The same seed loses the same packets again.",
    )
    .example("polywire link udp/127.0.0.1:0 udp/127.0.0.1:9 --model wan-low --seed 7 --script storm.txt --capture both.pcapng --for 1")
    .with(BELOW);

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, after_help = models())]
pub struct Link {
    /// Address to listen at: udp/ADDRESS or tcp/ADDRESS
    from: Endpoint,
    /// Address to forward to
    to: Endpoint,
    #[command(flatten)]
    network: Network,
    /// Reads changes from standard input, one per line: there|back|both MODEL
    #[arg(long)]
    control: bool,
    /// Ends after this many seconds
    #[arg(long = "for", value_name = "SECONDS")]
    duration: Option<Seconds>,
}

/// `udp/ADDRESS` or `tcp/ADDRESS`.
#[derive(Clone, Debug)]
struct Endpoint {
    is_stream: bool,
    address: SocketAddr,
}

impl std::str::FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Endpoint, String> {
        let is_stream = match text.split_once('/') {
            Some(("tcp", _)) => true,
            Some(("udp", _)) => false,
            _ => return Err("udp/ADDRESS or tcp/ADDRESS is expected, as udp/127.0.0.1:9000".into()),
        };
        let mut found = text[4..].to_socket_addrs().map_err(|error| error.to_string())?;
        let address = found.next().ok_or("the name has no address")?;
        Ok(Endpoint { is_stream, address })
    }
}

impl Action for Link {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        let (from, to) = (&self.from, &self.to);
        if from.is_stream != to.is_stream {
            return Err(Misuse("FROM and TO must both be udp or both be tcp".into()).into());
        }
        stop::hold()?;
        let seed = self.network.seed();
        let start = if from.is_stream { Emulator::tcp } else { Emulator::udp };
        let plan = self.network.plan(seed)?;
        if from.is_stream {
            let models = [&plan.there, &plan.back].into_iter().chain(plan.changes.iter().map(|change| &change.model));
            let without_effect: BTreeSet<String> = models.filter_map(without_effect).collect();
            without_effect.iter().for_each(|text| terminal.warning(text));
        }
        let emulator =
            start(from.address, to.address, plan).with_context(|| format!("cannot listen at {}", from.address))?;
        let emulator = Arc::new(emulator);
        let kind = if from.is_stream { "tcp" } else { "udp" };
        let (address, to) = (emulator.address(), to.address);
        match terminal.json {
            true => terminal.value(&json!({ "listening": format!("{kind}/{address}"), "seed": seed }))?,
            false => terminal.line(&format!("{kind}/{address} -> {kind}/{to}, seed {seed}"))?,
        }
        if self.control {
            take_changes(&emulator, from.is_stream, terminal.colour);
        }
        self.watch(&emulator, terminal)
    }
}

impl Link {
    /// Prints statistics until the link ends.
    fn watch(&self, emulator: &Emulator, terminal: &Terminal) -> outcome::Result {
        let (start, stop) = (Instant::now(), Stop::new()?);
        let every = self.network.every.0;
        let mut next = start + every;
        let mut before = emulator.stats();
        loop {
            let over = self.duration.is_some_and(|duration| start.elapsed() >= duration.0);
            let ended = if over { Some(Outcome::Fine) } else { stop.outcome() };
            let due = Instant::now() >= next && !every.is_zero();
            if ended.is_some() || due {
                let now = emulator.stats();
                if now != before || ended.is_some() {
                    show(start.elapsed(), &now, terminal)?;
                }
                (before, next) = (now, Instant::now() + every);
            }
            if let Some(outcome) = ended {
                return Ok(outcome);
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Returns a warning that names the parts of the model that have no effect on a stream.
fn without_effect(model: &Model) -> Option<String> {
    let parts = [
        (model.loss != Loss::None, "loss"),
        (model.duplicate > 0.0, "duplicate"),
        (model.corrupt > 0.0, "corrupt"),
        (model.reorder > 0.0, "reorder"),
    ];
    let names: Vec<&str> = parts.into_iter().filter_map(|(is_there, name)| is_there.then_some(name)).collect();
    (!names.is_empty()).then(|| {
        format!(
            "a stream loses nothing: {} of the model have no effect between tcp addresses; \
             for TCP over lossy packets use `polywire link hosts`",
            names.join(", ")
        )
    })
}

/// Starts a thread that applies the changes of standard input. The thread does not keep the program
/// running.
fn take_changes(emulator: &Arc<Emulator>, is_stream: bool, colour: bool) {
    let (emulator, terminal) = (emulator.clone(), Terminal { json: false, colour, live: false });
    thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok).filter(|line| !line.trim().is_empty()) {
            match polywire_link::change(&line) {
                Ok((way, model)) => {
                    let text = without_effect(&model).filter(|_| is_stream);
                    text.iter().for_each(|text| terminal.warning(text));
                    emulator.set(way, &model);
                }
                Err(wrong) => terminal.warning(&format!("'{line}': {wrong}")),
            }
        }
    });
}
