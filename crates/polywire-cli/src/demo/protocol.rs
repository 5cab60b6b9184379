//! The protocol between the processes of the demonstration. Child processes report to their parent
//! on standard output, one JSON text per line, and read its orders from standard input, one per
//! line.

use std::io::{self, BufRead as _, Write as _};

use serde::{Deserialize, Serialize};

use super::digest::Digest;

/// A report.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Told {
    /// The publisher can be connected to at this endpoint, or the probes run and this is the
    /// address of their page, if there is one.
    Listening { endpoint: String },
    /// Figures so far.
    Progress { wires: Vec<Figures> },
    /// Final figures.
    Done { wires: Vec<Figures>, lost: u64, undecodable: u64, last: String },
    /// A problem, such as incompatible types or missing subscribers.
    Trouble { text: String },
}

/// Figures of one wire.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Figures {
    pub wire: String,
    pub messages: u64,
    pub bytes: u64,
    /// From the source time stamp to the callback; zero for the publisher.
    pub latency_us_p50: f64,
    pub latency_us_p99: f64,
    /// Processor time, for the probes alone.
    #[serde(default)]
    pub cpu_ns: u64,
    /// Only in the final report.
    #[serde(default, skip_serializing_if = "Digest::is_empty")]
    pub digest: Digest,
}

impl Figures {
    pub fn bytes_per_message(&self) -> f64 {
        if self.messages == 0 { 0.0 } else { self.bytes as f64 / self.messages as f64 }
    }
}

/// Writes a report to standard output.
pub fn tell(told: &Told) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(told)?)?;
    Ok(out.flush()?)
}

/// Orders from the parent process. When the parent has ended, this process exits at once.
pub fn orders() -> std::sync::mpsc::Receiver<String> {
    let (send, orders) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            // Fails if this process no longer needs orders.
            let _ = send.send(line);
        }
        std::process::exit(crate::outcome::Outcome::Interrupted as i32);
    });
    orders
}
