//! The options and the statistics of an emulated network, for `polywire link` and
//! `polywire link hosts`.

use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    path::PathBuf,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::Context as _;
use clap::Args;
use polywire_link::{
    Change, Plan,
    netsim::{Model, PROFILES, Stats},
};
use polywire_measure::table::figure;
use serde_json::{Value, json};

use crate::{
    outcome::Misuse,
    seconds::Seconds,
    terminal::{Terminal, columns},
};

/// The options of an emulated network.
#[derive(Args)]
pub struct Network {
    /// Model of the network
    #[arg(short, long, value_name = "MODEL", default_value = "")]
    model: Model,
    /// Model of the way back [default: --model]
    #[arg(long, value_name = "MODEL")]
    back: Option<Model>,
    /// Seed of all random choices [default: a random seed, which is printed]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// File with changes, one per line: SECONDS there|back|both MODEL
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// Writes the packets of both ends of the link to this file, as pcapng for Wireshark
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
    /// Seconds between two lines of statistics
    #[arg(long, value_name = "SECONDS", default_value = "1")]
    pub every: Seconds,
}

/// Returns names and keys of models, for `--help`.
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

impl Network {
    /// Returns the seed that was given, or a random one.
    pub fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(fresh_seed)
    }

    /// Returns the options as the emulator takes them. Reads the script and creates the capture.
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
    /// Returns the first given option that only the emulator of Polywire supports.
    pub fn only_for_our_model(&self) -> Option<&'static str> {
        let given = [(self.seed.is_some(), "--seed"), (self.script.is_some(), "--script")];
        let given = given.into_iter().chain([(self.capture.is_some(), "--capture")]);
        given.into_iter().find_map(|(given, word)| given.then_some(word))
    }

    /// Returns true if no option of the network was given.
    pub fn is_plain(&self) -> bool {
        self.only_for_our_model().is_none() && self.model == Model::default() && self.back.is_none()
    }
}

/// Reads a script with one change per line. Ignores empty lines, and comments after `#`.
fn changes(text: &str) -> Result<Vec<Change>, String> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()).enumerate();
    let parse = |(number, line): (usize, &str)| line.parse().map_err(|wrong| format!("{}: {wrong}", number + 1));
    lines.filter(|(_, line)| !line.is_empty()).map(parse).collect()
}

fn fresh_seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::from(since.map_or(1, |since| since.subsec_nanos()))
}

/// Prints the statistics of both ways.
pub fn show(at: Duration, (there, back): &(Stats, Stats), terminal: &Terminal) -> anyhow::Result<()> {
    if terminal.json {
        return terminal.value(&json!({ "seconds": at.as_secs_f64(), "there": value(there), "back": value(back) }));
    }
    let line = |way: &str, stats: &Stats| {
        let delay = if stats.delivered == 0 { 0.0 } else { stats.delay_ns as f64 / stats.delivered as f64 };
        format!(
            "{:8.1} s  {way:5}  in {}  out {}  lost {}  dropped {}  blackout {}  duplicated {}  damaged {}  reordered {}  delay {}",
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
