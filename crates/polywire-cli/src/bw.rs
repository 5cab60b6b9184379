//! The command `polywire bw`: measures the bytes per second that arrive.

use clap::Args;
use serde::Serialize;

use crate::{
    outcome,
    rate::{RateArgs, Spread, intervals},
    terminal::Terminal,
    verb::{Action, Verb},
};

pub const VERB: Verb = Verb::new::<Bw>("bw", "Measures how many bytes arrive per second")
    .details("Counts payload bytes. On a stream, the envelope adds up to 12 bytes to each message.")
    .example("polywire bw weather --count 20 --timeout 60");

#[derive(Args)]
pub struct Bw {
    #[command(flatten)]
    rate: RateArgs,
}

#[derive(Serialize)]
struct Figures<'a> {
    topic: &'a str,
    messages: u64,
    window: usize,
    /// `None` until two messages have arrived.
    bytes_per_second: Option<f64>,
    message_bytes_mean: f64,
    message_bytes_min: f64,
    message_bytes_max: f64,
}

impl Action for Bw {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        self.rate.run(terminal, |messages, window| {
            let sizes: Vec<f64> = window.iter().map(|arrival| arrival.bytes as f64).collect();
            let Some(size) = Spread::of(&sizes) else { return Ok(()) };
            let time: f64 = intervals(window).iter().sum();
            // The measured time begins with the first message, whose bytes do not count.
            let bytes: f64 = sizes.iter().skip(1).sum();
            let bytes_per_second = (time > 0.0).then(|| bytes / time);
            if terminal.json {
                return terminal.value(&Figures {
                    topic: self.rate.topic(),
                    messages,
                    window: window.len(),
                    bytes_per_second,
                    message_bytes_mean: size.mean,
                    message_bytes_min: size.min,
                    message_bytes_max: size.max,
                });
            }
            let speed =
                bytes_per_second.map_or("one message so far".into(), |speed| format!("{}/s", bytes_text(speed)));
            let text = format!(
                "{speed}  mean {}  min {}  max {}  window {}",
                bytes_text(size.mean),
                bytes_text(size.min),
                bytes_text(size.max),
                window.len()
            );
            Ok(terminal.line(&text)?)
        })
    }
}

/// Formats a number of bytes in B, kB, MB or GB.
fn bytes_text(bytes: f64) -> String {
    match bytes {
        b if b >= 1e9 => format!("{:.2} GB", b / 1e9),
        b if b >= 1e6 => format!("{:.2} MB", b / 1e6),
        b if b >= 1e3 => format!("{:.2} kB", b / 1e3),
        b => format!("{b:.0} B"),
    }
}
