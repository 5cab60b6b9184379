//! The command `polywire hz`: measures the rate at which messages arrive.

use clap::Args;
use serde::Serialize;

use crate::{
    outcome,
    rate::{RateArgs, Spread, intervals},
    terminal::Terminal,
    verb::{Action, Verb},
};

pub const VERB: Verb = Verb::new::<Hz>("hz", "Measures how many messages arrive per second")
    .example("polywire hz weather --count 20 --timeout 60");

#[derive(Args)]
pub struct Hz {
    #[command(flatten)]
    rate: RateArgs,
}

#[derive(Serialize)]
struct Figures<'a> {
    topic: &'a str,
    messages: u64,
    window: usize,
    /// `None` until two messages have arrived.
    rate_hz: Option<f64>,
    interval_min_s: Option<f64>,
    interval_max_s: Option<f64>,
    interval_stddev_s: Option<f64>,
}

impl Action for Hz {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        self.rate.run(terminal, |messages, window| {
            let spread = Spread::of(&intervals(window));
            if terminal.json {
                return terminal.value(&Figures {
                    topic: self.rate.topic(),
                    messages,
                    window: window.len(),
                    rate_hz: spread.as_ref().filter(|s| s.mean > 0.0).map(|s| 1.0 / s.mean),
                    interval_min_s: spread.as_ref().map(|s| s.min),
                    interval_max_s: spread.as_ref().map(|s| s.max),
                    interval_stddev_s: spread.as_ref().map(|s| s.deviation),
                });
            }
            let text = match spread {
                Some(Spread { mean, min, max, deviation }) => format!(
                    "{:.3} Hz  min {:.6} s  max {:.6} s  stddev {:.6} s  window {}",
                    1.0 / mean,
                    min,
                    max,
                    deviation,
                    window.len()
                ),
                None => "one message so far".into(),
            };
            Ok(terminal.line(&text)?)
        })
    }
}
