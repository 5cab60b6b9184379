//! Measures a case on a real engine, for `run`: starts both ends, sends messages and computes the
//! figures of each turn.

use std::collections::BTreeMap;

use polywire::Record;

use super::{
    carrier::Carrier,
    clock::{now_ns, process_time, wait_until},
    engines,
    peer::Peer,
    receivers::{Report, Vitals},
    setup::{Setup, subject_of},
};

use crate::{
    Case, Error, Scenario,
    emulated::histogram,
    scenario::{Mode, Place},
    stages::Turn,
};

/// Steps of the search for the highest rate, which find it to one percent.
const STEPS: usize = 7;

/// A rate is sustained if the last message is late by at most this part of the planned time.
const LATE: f64 = 0.1;

/// A case with both ends running.
pub struct Live {
    case: Case,
    mode: Mode,
    messages: usize,
    records: Vec<Record>,
    peer: Peer,
    /// Dropped after the peer, since it may remove the folder in which both ends meet. A node whose
    /// folder has gone creates it again.
    carrier: Box<dyn Carrier>,
    /// Number of messages sent before this turn.
    before: u64,
}

impl Live {
    /// Starts both ends and warms them up.
    pub fn new(scenario: &Scenario, case: &Case) -> Result<Live, Error> {
        let (subject, records) = subject_of(scenario, case)?;
        let wrong = |problem: String| Error::Engine { engine: case.engine.clone(), problem };
        let setup = Setup::of(scenario, case, &subject)?;
        let place = if case.engine == "inproc" { Place::Thread } else { scenario.effort.peer };
        let (carrier, peer) = engines::connect(setup, &subject, place).map_err(wrong)?;
        let mut live = Live {
            case: case.clone(),
            mode: scenario.mode,
            messages: scenario.effort.messages,
            records,
            peer,
            carrier,
            before: 0,
        };
        live.warm_up(scenario.effort.warm_up).map_err(wrong)?;
        Ok(live)
    }

    fn warm_up(&mut self, count: usize) -> Result<(), String> {
        self.carrier.wake()?;
        self.warm(count)?;
        self.carrier.rest()
    }

    fn warm(&mut self, count: usize) -> Result<(), String> {
        match self.mode {
            Mode::Closed => return self.carrier.rounds(&self.records, count.max(1)).map(drop),
            Mode::Loaded => return self.carrier.loaded(&self.records, count.max(1)).map(drop),
            _ => {}
        }
        for record in self.records.iter().cycle().take(count) {
            self.carrier.send(record)?;
        }
        self.collect(count).map(drop)
    }

    /// Measures one turn.
    pub fn turn(&mut self) -> Result<Turn, Error> {
        self.awake().map_err(|problem| Error::Engine { engine: self.case.engine.clone(), problem })
    }

    fn awake(&mut self) -> Result<Turn, String> {
        self.carrier.wake()?;
        let turn = match self.mode {
            Mode::Closed => self.closed(),
            Mode::Open => self.open(),
            Mode::Loaded => self.loaded(),
            _ => self.throughput(),
        }?;
        self.carrier.rest()?;
        Ok(turn)
    }

    fn closed(&mut self) -> Result<Turn, String> {
        let before = self.costs()?;
        let (times, lost) = self.carrier.rounds(&self.records, self.messages)?;
        let mut figures = self.figures(&before, self.messages)?;
        figures.extend([("sent", self.messages as f64), ("lost", lost as f64)]);
        // One way is half a round trip.
        let latency = times.iter().map(|time| time.as_nanos() as u64 / 2).collect();
        Ok(Turn { figures, latency })
    }

    fn open(&mut self) -> Result<Turn, String> {
        let before = self.costs()?;
        let (start, report) = self.send_at(self.case.rate_hz, self.messages)?;
        let counts = self.count(&report, self.messages, start, self.case.rate_hz);
        let mut figures = self.figures(&before, self.messages)?;
        figures.extend(counts.figures(self.messages, self.case.subscribers));
        Ok(Turn { figures, latency: counts.latency })
    }

    fn loaded(&mut self) -> Result<Turn, String> {
        let before = self.costs()?;
        let (times, took) = self.carrier.loaded(&self.records, self.messages)?;
        // Fewer messages than planned were sent if the time ran out.
        let sent = times.len() / self.case.subscribers;
        let mut figures = self.figures(&before, sent)?;
        let times: Vec<u64> = times.iter().map(|time| time.as_nanos() as u64).collect();
        let sent = sent as f64;
        let rate = sent / took.as_secs_f64().max(1e-9);
        figures.extend([("sent", sent), ("lost", 0.0), ("throughput_hz", rate)]);
        figures.extend(round_trips(&times));
        Ok(Turn { figures, latency: Vec::new() })
    }

    /// Sends as fast as possible; if that loses messages, searches the highest rate without loss.
    fn throughput(&mut self) -> Result<Turn, String> {
        let before = self.costs()?;
        let (start, report) = self.send_at(f64::INFINITY, self.messages)?;
        let mut figures = self.figures(&before, self.messages)?;
        let counts = self.count(&report, self.messages, start, f64::INFINITY);
        let mut best = self.messages as f64 * 1e9 / counts.last.saturating_sub(start).max(1) as f64;
        let flood = counts.figures(self.messages, self.case.subscribers);
        if counts.lost > 0 {
            best = self.search(best)?;
        }
        let bytes = figures.get("bytes").map(|bytes| ("throughput_bytes", best * bytes));
        figures.extend(bytes);
        figures.extend([("throughput_hz", best), ("lost_percent", flood["lost_percent"])]);
        Ok(Turn { figures, latency: Vec::new() })
    }

    fn search(&mut self, flood: f64) -> Result<f64, String> {
        let (mut low, mut high) = (0.0, flood * 2.0);
        for _ in 0..STEPS {
            let rate = (low + high) / 2.0;
            let (start, report) = self.send_at(rate, self.messages)?;
            let counts = self.count(&report, self.messages, start, rate);
            let planned = self.messages as f64 * 1e9 / rate;
            let in_time = counts.last.saturating_sub(start) as f64 <= planned * (1.0 + LATE);
            if counts.lost == 0 && in_time { low = rate } else { high = rate }
        }
        Ok(low)
    }

    /// Sends messages at a rate. Returns the start time and the arrivals.
    fn send_at(&mut self, rate_hz: f64, count: usize) -> Result<(u64, Report), String> {
        let start = now_ns() + 1_000_000;
        for (i, record) in self.records.iter().cycle().take(count).enumerate() {
            wait_until(start + due(i, rate_hz));
            self.carrier.send(record)?;
        }
        self.carrier.flush();
        Ok((start, self.collect(count)?))
    }

    fn collect(&mut self, count: usize) -> Result<Report, String> {
        let report = self.peer.report(count * self.case.subscribers)?;
        self.before += count as u64;
        Ok(report)
    }

    fn count(&self, report: &Report, count: usize, start: u64, rate_hz: f64) -> Counts {
        let first = self.before - count as u64;
        let mut counts = Counts::default();
        for arrivals in &report.arrivals {
            let (mut seen, mut newest) = (vec![false; count], 0);
            for (sequence, at) in arrivals {
                let Some(i) = sequence.checked_sub(first + 1).filter(|i| (*i as usize) < count) else { continue };
                counts.last = counts.last.max(*at);
                counts.reordered += u64::from(i < newest);
                newest = newest.max(i);
                if std::mem::replace(&mut seen[i as usize], true) {
                    counts.duplicated += 1;
                } else {
                    counts.latency.push(at.saturating_sub(start + due(i as usize, rate_hz)));
                }
            }
            counts.lost += seen.iter().filter(|seen| !**seen).count() as u64;
        }
        counts
    }

    fn costs(&mut self) -> Result<Costs, String> {
        Ok(Costs { own_cpu_ns: process_time(), peer: self.peer.vitals()? })
    }

    /// The costs per message of this turn.
    fn figures(&mut self, before: &Costs, messages: usize) -> Result<BTreeMap<&'static str, f64>, String> {
        let now = self.costs()?;
        let each = |ns: u64| ns as f64 / messages.max(1) as f64;
        let (own, peer) = (now.own_cpu_ns - before.own_cpu_ns, now.peer.cpu_ns.saturating_sub(before.peer.cpu_ns));
        let mut figures = BTreeMap::from([("cpu_ns", each(own + peer))]);
        if now.peer.cpu_ns > 0 {
            figures.extend([("send_cpu_ns", each(own)), ("receive_cpu_ns", each(peer))]);
        }
        let came = now.peer.messages - before.peer.messages;
        if came > 0 {
            // The receiver counts the bytes, because the size of a message depends on the messages
            // that it refers to.
            figures.insert("bytes", (now.peer.bytes - before.peer.bytes) as f64 / came as f64);
        }
        if now.peer.peak_memory_bytes > 0 {
            figures.insert("peak_memory_bytes", now.peer.peak_memory_bytes as f64);
        }
        Ok(figures)
    }
}

/// CPU time and traffic of both ends so far.
struct Costs {
    own_cpu_ns: u64,
    peer: Vitals,
}

fn round_trips(times: &[u64]) -> BTreeMap<&'static str, f64> {
    let Some(histogram) = histogram(times) else { return BTreeMap::new() };
    BTreeMap::from([
        ("rtt_mean_ns", histogram.mean()),
        ("rtt_p90_ns", histogram.value_at_quantile(0.9) as f64),
        ("rtt_p99_ns", histogram.value_at_quantile(0.99) as f64),
    ])
}

#[derive(Default)]
struct Counts {
    lost: u64,
    duplicated: u64,
    reordered: u64,
    last: u64,
    latency: Vec<u64>,
}

impl Counts {
    fn figures(&self, count: usize, subscribers: usize) -> BTreeMap<&'static str, f64> {
        let sent = (count * subscribers) as f64;
        BTreeMap::from([
            ("sent", sent),
            ("lost", self.lost as f64),
            ("lost_percent", 100.0 * self.lost as f64 / sent),
            ("duplicated", self.duplicated as f64),
            ("reordered", self.reordered as f64),
        ])
    }
}

/// Nanoseconds from the start until a message is due.
fn due(i: usize, rate_hz: f64) -> u64 {
    if rate_hz.is_infinite() { 0 } else { (i as f64 * 1e9 / rate_hz) as u64 }
}
