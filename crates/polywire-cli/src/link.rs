//! `polywire link`

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, BufRead, BufWriter, Write},
    net::{SocketAddr, ToSocketAddrs},
    path::PathBuf,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use clap::Args;
use polywire_link::{
    Change, Emulator, Plan,
    netsim::{Loss, Model, PROFILES, Stats},
};
use polywire_measure::table::figure;
use serde_json::{Value, json};

#[cfg(all(feature = "hosts", target_os = "linux"))]
use crate::hosts;
use crate::{
    outcome::{self, Misuse, Outcome},
    seconds::Seconds,
    stop::{self, Stop},
    terminal::{Terminal, columns},
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
    /// Where it listens: udp/ADDRESS or tcp/ADDRESS
    from: Endpoint,
    /// Where it forwards to
    to: Endpoint,
    #[command(flatten)]
    network: Network,
    /// Takes changes from standard input, too, one a line: there|back|both MODEL
    #[arg(long)]
    control: bool,
    /// Ends after so many seconds
    #[arg(long = "for", value_name = "SECONDS")]
    duration: Option<Seconds>,
}

/// What a link does, and what is told of it.
#[derive(Args)]
pub struct Network {
    /// What the network does
    #[arg(short, long, value_name = "MODEL", default_value = "")]
    model: Model,
    /// What it does on the way back, where that is something else
    #[arg(long, value_name = "MODEL")]
    back: Option<Model>,
    /// Decides every chance; a random one without, which is told
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// File with changes, one a line: SECONDS there|back|both MODEL
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// Writes what went in and what came out at both ends: pcapng, for Wireshark
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
    /// Seconds from one line of statistics to the next
    #[arg(long, value_name = "SECONDS", default_value = "1")]
    pub every: Seconds,
}

pub fn models() -> String {
    let rows: Vec<Vec<String>> = PROFILES
        .iter()
        .map(|profile| vec![format!("  {}", profile.name), profile.summary.into(), profile.text.into()])
        .collect();
    format!(
        "A model is one of these names, a list of key=value, or a name and changes to it: wan-high,rate=2mbit\n{}\n\
         Keys: rate, burst, queue, delay, jitter, order, loss, duplicate, corrupt, reorder, mtu, largest, down",
        columns(&rows)
    )
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

impl Network {
    pub fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(fresh_seed)
    }

    pub fn plan(&self, seed: u64) -> anyhow::Result<Plan> {
        let changes = self.script.as_ref().map_or(Ok(Vec::new()), |path| -> anyhow::Result<_> {
            let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
            changes(&text).map_err(|wrong| Misuse(format!("{}:{wrong}", path.display())).into())
        })?;
        let file = |path: &PathBuf| -> anyhow::Result<Box<dyn Write + Send>> {
            let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
            Ok(Box::new(BufWriter::new(file)))
        };
        Ok(Plan {
            there: self.model.clone(),
            back: self.back.clone().unwrap_or_else(|| self.model.clone()),
            seed,
            changes,
            capture: self.capture.as_ref().map(file).transpose()?,
        })
    }
}

#[cfg(all(feature = "hosts", target_os = "linux"))]
impl Network {
    /// An option that was given and that only our own model has.
    pub fn only_for_our_model(&self) -> Option<&'static str> {
        let given = [(self.seed.is_some(), "--seed"), (self.script.is_some(), "--script")];
        let given = given.into_iter().chain([(self.capture.is_some(), "--capture")]);
        given.into_iter().find_map(|(given, word)| given.then_some(word))
    }

    /// Nothing is asked of it.
    pub fn is_plain(&self) -> bool {
        self.only_for_our_model().is_none() && self.model == Model::default() && self.back.is_none()
    }
}

impl Action for Link {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        let (from, to) = (&self.from, &self.to);
        if from.is_stream != to.is_stream {
            return Err(Misuse("both ends are of one kind: udp or tcp".into()).into());
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
    /// Shows what happens until it is to end.
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

/// What of a model a stream does not meet, in words for people.
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

/// Lines of a script; empty ones and what is behind `#` are for people.
fn changes(text: &str) -> Result<Vec<Change>, String> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()).enumerate();
    let parse = |(number, line): (usize, &str)| line.parse().map_err(|wrong| format!("{}: {wrong}", number + 1));
    lines.filter(|(_, line)| !line.is_empty()).map(parse).collect()
}

/// A thread that waits for what somebody types; it does not keep the program.
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

fn fresh_seed() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::from(since.map_or(1, |since| since.subsec_nanos()))
}

/// The statistics of both ways.
pub fn show(at: Duration, (there, back): &(Stats, Stats), terminal: &Terminal) -> anyhow::Result<()> {
    if terminal.json {
        return terminal.value(&json!({ "seconds": at.as_secs_f64(), "there": value(there), "back": value(back) }));
    }
    let line = |way: &str, stats: &Stats| {
        let delay = if stats.delivered == 0 { 0.0 } else { stats.delay_ns as f64 / stats.delivered as f64 };
        format!(
            "{:8.1} s  {way:5}  in {}  out {}  lost {}  dropped {}  down {}  twice {}  damaged {}  reordered {}  delay {}",
            at.as_secs_f64(),
            stats.sent,
            stats.delivered,
            stats.lost + stats.too_long,
            stats.dropped,
            stats.blacked_out,
            stats.duplicated,
            stats.corrupted,
            stats.reordered,
            figure("delay_ns", delay)
        )
    };
    Ok(terminal.text(&format!("{}\n{}\n", line("there", there), line("back", back)))?)
}

fn value(stats: &Stats) -> Value {
    json!({
        "sent": stats.sent,
        "sent_bytes": stats.sent_bytes,
        "delivered": stats.delivered,
        "delivered_bytes": stats.delivered_bytes,
        "lost": stats.lost,
        "dropped": stats.dropped,
        "blacked_out": stats.blacked_out,
        "too_long": stats.too_long,
        "duplicated": stats.duplicated,
        "corrupted": stats.corrupted,
        "reordered": stats.reordered,
        "delay_ns_mean": if stats.delivered == 0 { 0.0 } else { stats.delay_ns as f64 / stats.delivered as f64 },
    })
}
