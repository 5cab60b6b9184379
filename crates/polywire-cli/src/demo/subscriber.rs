//! The hidden command `demo-subscriber`: a subscriber of the demonstration, in its own process.
//! Reads the topic until the parent's order to finish, and reports figures and digests.

use std::{
    sync::{Arc, mpsc::RecvTimeoutError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use clap::Args;
use parking_lot::Mutex;
use polywire::extend::layout::Record;
use polywire::{Info, Node, NodeEvent, coding::Dynamic};

use super::{
    PROGRESS, TOPIC,
    digest::{self, Digest},
    protocol::{Figures, Told, orders, tell},
    types::Version,
};
use crate::{
    outcome::{self, Outcome},
    terminal::Terminal,
    text::JsonText,
    verb::{Action, Verb},
};

/// How long the last messages may take after the publisher has finished.
const LAST: Duration = Duration::from_secs(10);

pub const VERB: Verb =
    Verb::new::<DemoSubscriber>("demo-subscriber", "Reads this machine's figures for `polywire demo`").hidden();

#[derive(Args)]
pub struct DemoSubscriber {
    #[arg(long)]
    at: String,
    #[arg(long, value_enum)]
    version: Version,
}

/// Messages received in one format.
#[derive(Default)]
struct Received {
    wire: String,
    messages: u64,
    bytes: u64,
    latencies_ns: Vec<u64>,
    digest: Digest,
}

#[derive(Default)]
struct Seen {
    wires: Vec<Received>,
    last: Option<Record>,
}

impl Action for DemoSubscriber {
    fn run(self, _: &Terminal) -> outcome::Result {
        let orders = orders();
        let node = Node::new();
        let events = node.events();
        let state = Arc::<Mutex<Seen>>::default();
        let coding = Dynamic::of(&self.version.schema()?)?;
        let receiving = state.clone();
        let subscribe = node.subscribe_of(TOPIC, Some(&format!("cdr@{}", self.at)), coding)?;
        let subscription =
            subscribe.on_message_inline(move |record, info| receive(&mut receiving.lock(), record, info));

        // Set by an order of the parent when all messages have been published.
        let mut expected = None;
        let mut last = (0, Instant::now());
        loop {
            match orders.recv_timeout(PROGRESS) {
                Ok(order) => expected = order.strip_prefix("finish ").and_then(|count| count.parse().ok()),
                Err(RecvTimeoutError::Timeout) => tell(&Told::Progress { wires: state.lock().figures(false) })?,
                Err(RecvTimeoutError::Disconnected) => return Ok(Outcome::Interrupted),
            }
            while let Some(event) = events.try_recv() {
                if matches!(event, NodeEvent::Mismatch { .. } | NodeEvent::Undecodable { .. }) {
                    tell(&Told::Trouble { text: event.to_string() })?;
                }
            }
            let total: u64 = state.lock().wires.iter().map(|wire| wire.messages).sum();
            if total != last.0 {
                last = (total, Instant::now());
            }
            if expected.is_some_and(|expected| total >= expected || last.1.elapsed() > LAST) {
                break;
            }
        }
        let (lost, undecodable) = (subscription.lost(), subscription.undecodable());
        drop(subscription);
        let state = state.lock();
        let last = state.last.as_ref().map(|record| JsonText::default().of(record, None)).transpose()?;
        tell(&Told::Done { wires: state.figures(true), lost, undecodable, last: last.unwrap_or_default() })?;
        node.close();
        Ok(Outcome::Fine)
    }
}

fn receive(state: &mut Seen, record: &Record, info: &Info) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as i64);
    let announced = &info.source.announcement;
    let colon = if announced.options.is_empty() { "" } else { ":" };
    let is_wire = |wire: &str| {
        let rest = wire.strip_prefix(announced.codec.as_str()).and_then(|rest| rest.strip_prefix(colon));
        rest == Some(announced.options.as_str())
    };
    // The publisher does not return to an earlier format, so a known format is the last one.
    if !state.wires.last().is_some_and(|last| is_wire(&last.wire)) {
        let wire = format!("{}{colon}{}", announced.codec, announced.options);
        state.wires.push(Received { wire, ..Received::default() });
    }
    let Some(wire) = state.wires.last_mut() else { return };
    wire.messages += 1;
    wire.bytes += info.bytes as u64;
    wire.latencies_ns.push(u64::try_from(now - info.timestamp_ns).unwrap_or(0));
    digest::add(&mut wire.digest, "", record.view());
    let kept = state.last.as_mut().is_some_and(|last| last.try_clone_from(record) == Ok(true));
    if !kept {
        state.last = Some(record.clone());
    }
}

impl Seen {
    fn figures(&self, with_digests: bool) -> Vec<Figures> {
        let of = |wire: &Received| Figures {
            wire: wire.wire.clone(),
            messages: wire.messages,
            bytes: wire.bytes,
            latency_us_p50: percentile_us(&wire.latencies_ns, 0.5),
            latency_us_p99: percentile_us(&wire.latencies_ns, 0.99),
            cpu_ns: 0,
            digest: if with_digests { wire.digest.clone() } else { Digest::new() },
        };
        self.wires.iter().map(of).collect()
    }
}

/// Returns a percentile by the nearest-rank method.
fn percentile_us(latencies_ns: &[u64], share: f64) -> f64 {
    let mut sorted = latencies_ns.to_vec();
    let rank = ((sorted.len() as f64 * share).ceil() as usize).saturating_sub(1);
    match rank < sorted.len() {
        true => *sorted.select_nth_unstable(rank).1 as f64 / 1000.0,
        false => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let latencies: Vec<u64> = (1..=100).rev().map(|i| i * 1000).collect();
        assert_eq!(percentile_us(&latencies, 0.5), 50.0);
        assert_eq!(percentile_us(&latencies, 0.99), 99.0);
        assert_eq!(percentile_us(&[7000], 0.99), 7.0);
        assert_eq!(percentile_us(&[], 0.5), 0.0);
    }
}
