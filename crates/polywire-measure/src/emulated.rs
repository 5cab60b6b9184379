//! Simulates delivery over an emulated network in virtual time. The times of the stages are
//! measured; the times of the network come from the model.
//!
//! The sender and each receiver have their own processor, which handles one message at a time. A
//! message leaves when it has been written and compressed. It travels as one packet; the link
//! fragments the packet and loses it if any fragment is lost. A receiver reads a message after it
//! has read the earlier ones. A checksum detects damaged packets, as in datagrams; they count as
//! lost. For the round trip, the receiver then sends the message back the same way.

use std::{
    collections::{BTreeMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
};

use hdrhistogram::Histogram;
use polywire::Record;
use polywire_core::netsim::{Arrival, Link, Model};

use crate::{Error, coding::Coding};

/// Processing time of one message, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// At the sender.
    pub send: u64,
    /// At a receiver.
    pub receive: u64,
}

/// The messages to send and the link to use.
pub struct Plan<'a> {
    pub model: &'a Model,
    pub seed: u64,
    pub messages: usize,
    pub rate_hz: f64,
    pub subscribers: usize,
    pub costs: Costs,
}

/// The outcome for all subscribers together.
#[derive(Default)]
pub struct Outcome {
    sent: u64,
    lost: u64,
    undecodable: u64,
    duplicated: u64,
    reordered: u64,
    deliver_ns: u128,
    delivered: u64,
    /// Time from when a message was due until it had been read.
    pub latency: Vec<u64>,
    /// Time from when a message was due until its echo had been read.
    round_trips: Vec<u64>,
}

impl Outcome {
    pub fn figures(&self) -> BTreeMap<&'static str, f64> {
        let mut figures = BTreeMap::from([
            ("sent", self.sent as f64),
            ("lost", self.lost as f64),
            ("lost_percent", 100.0 * self.lost as f64 / self.sent.max(1) as f64),
            ("undecodable", self.undecodable as f64),
            ("duplicated", self.duplicated as f64),
            ("reordered", self.reordered as f64),
        ]);
        if self.delivered > 0 {
            figures.insert("deliver_ns", self.deliver_ns as f64 / self.delivered as f64);
        }
        if let Some(round_trips) = histogram(&self.round_trips) {
            figures.insert("rtt_mean_ns", round_trips.mean());
            figures.insert("rtt_p90_ns", round_trips.value_at_quantile(0.9) as f64);
            figures.insert("rtt_p99_ns", round_trips.value_at_quantile(0.99) as f64);
        }
        figures
    }
}

/// The distribution of the values; `None` if there are no values.
pub fn histogram(values: &[u64]) -> Option<Histogram<u64>> {
    // Three significant digits; the histogram grows with the recorded values.
    let mut histogram = Histogram::<u64>::new(3).expect("a precision that the crate takes");
    values.iter().for_each(|value| histogram += *value);
    (!values.is_empty()).then_some(histogram)
}

/// Sends these payloads repeatedly. Each payload stands alone, so every one that arrives can be
/// read.
pub fn run(plan: &Plan<'_>, payloads: &[&[u8]]) -> Result<Outcome, Error> {
    let payload = |i: usize| Ok((payloads[i % payloads.len()].to_vec(), None));
    deliver(plan, payload, |_: &mut (), _, _, _| Ok(true), || ())
}

/// Sends these values as chained messages. A message can be read only if the messages it refers to
/// have arrived.
pub fn run_stream(
    plan: &Plan<'_>,
    coding: &mut Coding,
    records: &[Record],
    back: &mut Record,
) -> Result<Outcome, Error> {
    let mut writing = coding.writing();
    let mut sent = Vec::new();
    for record in records.iter().cycle().take(plan.messages) {
        let (mut bytes, mut packed) = (Vec::new(), Vec::new());
        let anchor = coding.encode(&mut writing, record, &mut bytes)?;
        coding.pack(&bytes, &mut packed);
        sent.push((packed, anchor));
    }
    let fresh = coding.reading();
    let read = |reading: &mut _, sequence: u64, anchor, packed: &[u8]| {
        let bytes = coding.unpack(packed)?.to_vec();
        Ok(coding.decode(reading, sequence, anchor, &bytes, back).is_ok())
    };
    deliver(plan, |i| Ok(sent[i].clone()), read, || fresh.clone())
}

/// What the sender records about a packet.
struct Sent {
    due: u64,
    left: u64,
    anchor: Option<u64>,
    checksum: u64,
}

fn deliver<R>(
    plan: &Plan<'_>,
    mut payload: impl FnMut(usize) -> Result<(Vec<u8>, Option<u64>), Error>,
    mut read: impl FnMut(&mut R, u64, Option<u64>, &[u8]) -> Result<bool, Error>,
    reader: impl Fn() -> R,
) -> Result<Outcome, Error> {
    let mut outcome = Outcome::default();
    for subscriber in 0..plan.subscribers as u64 {
        let seed = plan.seed ^ subscriber.wrapping_mul(0x9E37_79B9);
        let mut link = Link::new(plan.model, seed);
        let mut receiver = Receiver { reader: reader(), free: 0, seen: HashSet::new(), echoes: Vec::new() };
        let (mut sent, mut free): (Vec<Sent>, u64) = (Vec::new(), 0);
        for i in 0..plan.messages {
            let due = (i as f64 * 1e9 / plan.rate_hz) as u64;
            let left = due.max(free) + plan.costs.send;
            free = left;
            while let Some(arrival) = link.pop(left) {
                receiver.take(plan, &arrival, &sent, &mut outcome, &mut read)?;
            }
            let (bytes, anchor) = payload(i)?;
            sent.push(Sent { due, left, anchor, checksum: checksum(&bytes) });
            link.push(left, bytes);
        }
        while let Some(arrival) = link.next().and_then(|at| link.pop(at)) {
            receiver.take(plan, &arrival, &sent, &mut outcome, &mut read)?;
        }
        outcome.sent += plan.messages as u64;
        outcome.lost += plan.messages as u64 - receiver.seen.len() as u64;
        outcome.reordered += link.stats().reordered;
        echo(plan, seed, &receiver.echoes, &sent, &mut outcome);
    }
    Ok(outcome)
}

struct Receiver<R> {
    reader: R,
    /// When the receiver's processor is free.
    free: u64,
    seen: HashSet<u64>,
    /// For each echo: when it leaves, the number of its message, and its length in bytes.
    echoes: Vec<(u64, u64, usize)>,
}

impl<R> Receiver<R> {
    fn take(
        &mut self,
        plan: &Plan<'_>,
        arrival: &Arrival,
        sent: &[Sent],
        outcome: &mut Outcome,
        read: &mut impl FnMut(&mut R, u64, Option<u64>, &[u8]) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let Some(message) = sent.get(arrival.number as usize) else { return Ok(()) };
        if checksum(&arrival.packet) != message.checksum {
            return Ok(());
        }
        if !self.seen.insert(arrival.number) {
            outcome.duplicated += 1;
            return Ok(());
        }
        outcome.delivered += 1;
        outcome.deliver_ns += u128::from(arrival.at - message.left);
        let done = arrival.at.max(self.free) + plan.costs.receive;
        self.free = done;
        if !read(&mut self.reader, arrival.number + 1, message.anchor, &arrival.packet)? {
            outcome.undecodable += 1;
            return Ok(());
        }
        outcome.latency.push(done - message.due);
        self.free += plan.costs.send;
        self.echoes.push((self.free, arrival.number, arrival.packet.len()));
        Ok(())
    }
}

/// Simulates the return path. A message that is lost here has no round trip.
fn echo(plan: &Plan<'_>, seed: u64, echoes: &[(u64, u64, usize)], sent: &[Sent], outcome: &mut Outcome) {
    let mut link = Link::new(plan.model, !seed);
    let (mut free, mut seen) = (0, HashSet::new());
    let mut take = |arrival: Arrival| {
        let (_, number, _) = echoes[arrival.number as usize];
        let done = arrival.at.max(free) + plan.costs.receive;
        free = done;
        if seen.insert(number) {
            outcome.round_trips.push(done - sent[number as usize].due);
        }
    };
    for (left, _, bytes) in echoes {
        while let Some(arrival) = link.pop(*left) {
            take(arrival);
        }
        link.push(*left, vec![0; *bytes]);
    }
    while let Some(arrival) = link.next().and_then(|at| link.pop(at)) {
        take(arrival);
    }
}

fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan<'a>(model: &'a Model, messages: usize) -> Plan<'a> {
        Plan { model, seed: 1, messages, rate_hz: 100.0, subscribers: 1, costs: Costs { send: 2_000, receive: 3_000 } }
    }

    #[test]
    fn times_add_up() {
        let model: Model = "rate=8mbit,delay=1ms".parse().expect("a model");
        let outcome = run(&plan(&model, 50), &[&[0; 1000]]).expect("delivered");
        // A thousand bytes take one millisecond to transmit and another one to propagate.
        assert_eq!(outcome.latency, vec![2_000 + 2_000_000 + 3_000; 50]);
        assert_eq!(outcome.round_trips, vec![2 * 2_005_000; 50]);
        assert_eq!(outcome.figures()["deliver_ns"], 2_000_000.0);
        assert_eq!((outcome.sent, outcome.lost), (50, 0));
    }

    #[test]
    fn a_sender_that_is_too_slow_is_late_from_when_messages_were_due() {
        let model = Model::default();
        let slow = Plan { costs: Costs { send: 20_000_000, receive: 0 }, ..plan(&model, 10) };
        let outcome = run(&slow, &[&[0; 10]]).expect("delivered");
        let due: Vec<u64> = (1..=10).map(|i| i * 20_000_000 - (i - 1) * 10_000_000).collect();
        assert_eq!(outcome.latency, due, "no omission is coordinated");
    }

    #[test]
    fn loss_copies_and_disorder_are_counted() {
        let model: Model =
            "loss=20%,duplicate=10%,corrupt=10%,delay=50ms,jitter=uniform:20ms".parse().expect("a model");
        let many = Plan { subscribers: 2, ..plan(&model, 5000) };
        let outcome = run(&many, &[&[7; 100], &[8; 50]]).expect("delivered");
        assert_eq!(outcome.sent, 10_000);
        assert_eq!(outcome.latency.len() as u64 + outcome.lost, 10_000);
        // A damaged packet is lost too, unless its copy is intact: 0.8 * 0.1 * 0.9 more.
        assert!((2600..2850).contains(&outcome.lost), "{}", outcome.lost);
        assert!((650..950).contains(&outcome.duplicated), "{}", outcome.duplicated);
        assert!(outcome.reordered > 1000);
    }
}
