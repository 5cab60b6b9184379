//! The common part of `polywire hz` and `polywire bw`: subscribes to a topic, and records the
//! arrival time and the size of each message without decoding it.

use std::{
    collections::VecDeque,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use clap::Args;
use parking_lot::Mutex;
use polywire::{Subscription, coding::Bytes};

use crate::{
    echo::nothing_came,
    outcome::{self, Outcome},
    seconds::Seconds,
    terminal::Terminal,
    topic::{WireArgs, place},
    watch::Watch,
};

const TICK: Duration = Duration::from_millis(20);

/// What to measure, and for how long.
#[derive(Args)]
pub struct RateArgs {
    /// Topic to subscribe to
    topic: String,
    #[command(flatten)]
    wire: WireArgs,
    /// Number of most recent messages that the figures are computed from
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    window: u32,
    /// Time between two lines of figures
    #[arg(long, value_name = "SECONDS", default_value = "1")]
    every: Seconds,
    /// Ends after this many messages
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<u64>,
    /// Ends after this time
    #[arg(short, long, value_name = "SECONDS")]
    seconds: Option<Seconds>,
    /// Ends with exit code 1 if no message arrives for this long
    #[arg(short, long, value_name = "SECONDS")]
    timeout: Option<Seconds>,
}

/// The arrival of a message.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    pub at: Instant,
    pub bytes: usize,
}

#[derive(Default)]
struct Arrivals {
    total: u64,
    window: VecDeque<Arrival>,
}

impl RateArgs {
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// Calls `show` after each `--every` seconds and at the end, with the number of messages so far
    /// and the most recent arrivals.
    pub fn run(
        &self,
        terminal: &Terminal,
        mut show: impl FnMut(u64, &[Arrival]) -> anyhow::Result<()>,
    ) -> outcome::Result {
        let (node, wires) = self.wire.open(&self.topic)?;
        let mut watch = Watch::new(&node);
        let arrivals = Arc::<Mutex<Arrivals>>::default();
        let subscribe = wires.subscribe(&node, &self.topic, Bytes::default())?;
        let _subscription = self.count_on(subscribe, &arrivals);
        let start = Instant::now();
        let (mut shown_at, mut shown, mut last) = (start, 0, (0, start));
        loop {
            thread::sleep(TICK);
            watch.poll(terminal);
            let total = arrivals.lock().total;
            if total != last.0 {
                last = (total, Instant::now());
            }
            let silent = self.timeout.is_some_and(|timeout| last.1.elapsed() >= timeout.0);
            let done = self.count.is_some_and(|count| total >= count)
                || self.seconds.is_some_and(|seconds| start.elapsed() >= seconds.0);
            if total != shown && (done || silent || shown_at.elapsed() >= self.every.0) {
                (shown_at, shown) = (Instant::now(), total);
                let window: Vec<Arrival> = arrivals.lock().window.iter().copied().collect();
                show(total, &window)?;
            }
            if done || silent {
                break;
            }
        }
        if shown > 0 {
            return Ok(if self.count.is_some_and(|count| shown < count) { Outcome::Missed } else { Outcome::Fine });
        }
        let waited = self.timeout.or(self.seconds).map(|time| time.to_string()).unwrap_or_default();
        Err(nothing_came(&self.topic, &place(&wires), &waited, &node).into())
    }

    /// Records arrivals on the thread that reads the link, so that no queue delays them.
    fn count_on(&self, subscribe: polywire::Subscribe<Bytes>, arrivals: &Arc<Mutex<Arrivals>>) -> Subscription {
        let (arrivals, window) = (arrivals.clone(), self.window as usize);
        let most = self.count.unwrap_or(u64::MAX);
        subscribe.on_message_inline(move |bytes, _| {
            let mut arrivals = arrivals.lock();
            if arrivals.total >= most {
                return;
            }
            arrivals.total += 1;
            if arrivals.window.len() == window {
                arrivals.window.pop_front();
            }
            arrivals.window.push_back(Arrival { at: Instant::now(), bytes: bytes.len() });
        })
    }
}

/// Seconds between successive arrivals.
pub fn intervals(window: &[Arrival]) -> Vec<f64> {
    let between = |pair: &[Arrival]| match pair {
        [a, b] => b.at.saturating_duration_since(a.at).as_secs_f64(),
        _ => 0.0,
    };
    window.windows(2).map(between).collect()
}

/// Mean, smallest, largest and standard deviation.
pub struct Spread {
    pub mean: f64,
    pub min: f64,
    pub max: f64,
    pub deviation: f64,
}

impl Spread {
    pub fn of(values: &[f64]) -> Option<Spread> {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
        let (min, max) = values.iter().fold((f64::INFINITY, 0.0f64), |(min, max), v| (min.min(*v), max.max(*v)));
        (!values.is_empty()).then(|| Spread { mean, min, max, deviation: variance.sqrt() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_known_arrivals() {
        let start = Instant::now();
        let arrival = |ms: u64| Arrival { at: start + Duration::from_millis(ms), bytes: 1 };
        let window: Vec<Arrival> = [0, 100, 200, 500].into_iter().map(arrival).collect();
        let spread = Spread::of(&intervals(&window)).expect("intervals");
        let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(close(spread.mean, 0.5 / 3.0) && close(spread.min, 0.1) && close(spread.max, 0.3));
        assert!(close(spread.deviation, (0.08f64 / 9.0).sqrt()), "{}", spread.deviation);
        assert!(Spread::of(&[]).is_none());
    }
}
