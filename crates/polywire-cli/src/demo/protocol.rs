//! What the demonstration's processes tell the one that started them: one JSON text a line on
//! standard output.

use std::io::{self, BufRead as _, Write as _};

use serde::{Deserialize, Serialize};

use super::digest::Digest;

/// A line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Told {
    /// The publisher can be connected to.
    Listening { endpoint: String },
    /// So far.
    Progress { wires: Vec<Figures> },
    /// All of it.
    Done { wires: Vec<Figures>, lost: u64, undecodable: u64, last: String },
    /// Types do not agree, or nobody came.
    Trouble { text: String },
}

/// What is known of one wire.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Figures {
    pub wire: String,
    pub messages: u64,
    pub bytes: u64,
    /// From the source time stamp to the callback; zero for the publisher.
    pub latency_us_p50: f64,
    pub latency_us_p99: f64,
    /// With the last line alone.
    #[serde(default, skip_serializing_if = "Digest::is_empty")]
    pub digest: Digest,
}

impl Figures {
    pub fn bytes_per_message(&self) -> f64 {
        if self.messages == 0 { 0.0 } else { self.bytes as f64 / self.messages as f64 }
    }
}

/// Tells.
pub fn tell(told: &Told) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(told)?)?;
    Ok(out.flush()?)
}

/// Lines from the process that started this one. When it is gone, so is this one, whatever it is
/// doing.
pub fn orders() -> std::sync::mpsc::Receiver<String> {
    let (send, orders) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            // Nobody waits for an order at the moment; it is kept.
            let _ = send.send(line);
        }
        std::process::exit(crate::outcome::Outcome::Interrupted as i32);
    });
    orders
}
