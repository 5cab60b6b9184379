//! Real engines: a sender here, receivers in another process or in this one.

mod ours;
mod peer;
mod raw;
#[cfg(feature = "peers")]
mod zeromq;

use std::{collections::BTreeMap, thread, time::Duration};

use polywire::Record;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

pub use peer::serve;
use peer::{Peer, Report};

use crate::{
    Case, Error, Scenario,
    coding::Coding,
    scenario::{Mode, Place},
    stages::Turn,
    subject::Subject,
    values::ValueModel,
};

/// Nothing on one machine takes longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Steps of the search for the highest rate: it is found to one part in a hundred.
const STEPS: usize = 7;

/// A rate is kept up if the last message comes no later than this part of the time after it was due.
const LATE: f64 = 0.1;

/// How messages get to the other end.
trait Carrier {
    /// Sends one message to every subscriber.
    fn send(&mut self, record: &Record) -> Result<(), String>;

    /// Sends each when the one before has come back from every subscriber; gives how long each took, and how many did not come back.
    fn rounds(&mut self, records: &[Record], count: usize) -> Result<(Vec<Duration>, usize), String>;

    /// Sees to it that nothing is kept back.
    fn flush(&mut self) {}
}

/// What the other end needs to know.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Setup {
    engine: String,
    codec: String,
    compressor: String,
    /// Schemas of both versions, as bytes.
    writer: Vec<u8>,
    reader: Vec<u8>,
    /// Where the sender listens.
    address: String,
    subscribers: usize,
    /// Messages are sent back, not counted.
    echo: bool,
}

/// A case with both its ends.
pub struct Live {
    case: Case,
    mode: Mode,
    messages: usize,
    records: Vec<Record>,
    carrier: Box<dyn Carrier>,
    peer: Peer,
    /// Messages before this turn.
    before: u64,
    bytes: f64,
}

impl Live {
    /// Starts both ends and warms them up.
    pub fn new(scenario: &Scenario, case: &Case) -> Result<Live, Error> {
        let subject = Subject::of(scenario, case)?;
        let spec = &scenario.types[case.type_index];
        let records = ValueModel::parse(&case.values)?.records(
            &subject.shape,
            scenario.effort.messages.min(256),
            scenario.seed,
            &spec.lengths,
            &scenario.folder,
        )?;
        let coding = Coding::new(&case.codec, &case.compressor, &subject.shape, &subject.reader, &scenario.folder)?;
        let bytes = mean_bytes(coding, &records)?;
        let wrong = |problem: String| Error::Engine { engine: case.engine.clone(), problem };
        let setup = Setup {
            engine: case.engine.clone(),
            codec: case.codec.clone(),
            compressor: case.compressor.clone(),
            writer: subject.shape.schema().to_bytes(),
            reader: subject.reader.schema().to_bytes(),
            address: String::new(),
            subscribers: case.subscribers,
            echo: scenario.mode == Mode::Closed,
        };
        let place = if case.engine == "inproc" { Place::Thread } else { scenario.effort.peer };
        let (carrier, peer) = connect(setup, &subject, place).map_err(wrong)?;
        let mut live = Live {
            case: case.clone(),
            mode: scenario.mode,
            messages: scenario.effort.messages,
            records,
            carrier,
            peer,
            before: 0,
            bytes,
        };
        live.warm_up(scenario.effort.warm_up).map_err(wrong)?;
        Ok(live)
    }

    fn warm_up(&mut self, count: usize) -> Result<(), String> {
        if self.mode == Mode::Closed {
            self.carrier.rounds(&self.records, count.max(1))?;
            return Ok(());
        }
        for record in self.records.iter().cycle().take(count) {
            self.carrier.send(record)?;
        }
        self.collect(count).map(drop)
    }

    /// One turn.
    pub fn turn(&mut self) -> Result<Turn, Error> {
        let turn = match self.mode {
            Mode::Closed => self.closed(),
            Mode::Open => self.open(),
            _ => self.throughput(),
        };
        turn.map_err(|problem| Error::Engine { engine: self.case.engine.clone(), problem })
    }

    fn closed(&mut self) -> Result<Turn, String> {
        let cpu = self.cpu()?;
        let (times, lost) = self.carrier.rounds(&self.records, self.messages)?;
        let mut figures = BTreeMap::from([
            ("cpu_ns", (self.cpu()? - cpu) as f64 / self.messages as f64),
            ("bytes", self.bytes),
            ("sent", self.messages as f64),
            ("lost", lost as f64),
        ]);
        figures.extend(self.memory()?);
        // One way is half of there and back.
        let latency = times.iter().map(|time| time.as_nanos() as u64 / 2).collect();
        Ok(Turn { figures, latency })
    }

    fn open(&mut self) -> Result<Turn, String> {
        let (start, report) = self.send_at(self.case.rate_hz, self.messages)?;
        let counts = self.count(&report, self.messages, start, self.case.rate_hz);
        let mut figures = counts.figures(self.messages, self.case.subscribers);
        figures.insert("bytes", self.bytes);
        figures.extend(self.memory()?);
        Ok(Turn { figures, latency: counts.latency })
    }

    /// As fast as it goes; where that loses something, the highest rate that does not.
    fn throughput(&mut self) -> Result<Turn, String> {
        let cpu = self.cpu()?;
        let (start, report) = self.send_at(f64::INFINITY, self.messages)?;
        let cpu = (self.cpu()? - cpu) as f64 / self.messages as f64;
        let counts = self.count(&report, self.messages, start, f64::INFINITY);
        let mut best = self.messages as f64 * 1e9 / counts.last.saturating_sub(start).max(1) as f64;
        let flood = counts.figures(self.messages, self.case.subscribers);
        if counts.lost > 0 {
            best = self.search(best)?;
        }
        let mut figures = BTreeMap::from([
            ("throughput_hz", best),
            ("throughput_bytes", best * self.bytes),
            ("bytes", self.bytes),
            ("cpu_ns", cpu),
            ("lost_percent", flood["lost_percent"]),
        ]);
        figures.extend(self.memory()?);
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

    /// Sends messages at a rate; gives when it began and what came.
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

    /// CPU time of both ends so far.
    fn cpu(&mut self) -> Result<u64, String> {
        Ok(process_time() + self.peer.vitals()?.cpu_ns)
    }

    fn memory(&mut self) -> Result<Option<(&'static str, f64)>, String> {
        let bytes = self.peer.vitals()?.peak_memory_bytes;
        Ok((bytes > 0).then_some(("peak_memory_bytes", bytes as f64)))
    }
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

fn connect(setup: Setup, subject: &Subject, place: Place) -> Result<(Box<dyn Carrier>, Peer), String> {
    match setup.engine.as_str() {
        "raw-tcp" | "raw-unix" | "raw-udp" => raw::connect(setup, subject, place),
        #[cfg(feature = "peers")]
        "zeromq" => zeromq::connect(setup, subject, place),
        #[cfg(not(feature = "peers"))]
        "zeromq" => Err("this program was built without the feature `peers`".into()),
        _ => ours::connect(setup, subject, place),
    }
}

/// Bytes of payload on the wire.
fn mean_bytes(mut coding: Coding, records: &[Record]) -> Result<f64, Error> {
    let (mut writing, mut total, mut message, mut packed) = (coding.writing(), 0, Vec::new(), Vec::new());
    for record in records {
        message.clear();
        packed.clear();
        coding.encode(&mut writing, record, &mut message)?;
        coding.pack(&message, &mut packed);
        total += packed.len();
    }
    Ok(total as f64 / records.len() as f64)
}

/// When a message is due, after the beginning.
fn due(i: usize, rate_hz: f64) -> u64 {
    if rate_hz.is_infinite() { 0 } else { (i as f64 * 1e9 / rate_hz) as u64 }
}

/// A sleeping thread wakes late by about so much.
const WAKES_LATE: u64 = 80_000;

fn wait_until(at: u64) {
    loop {
        match at.saturating_sub(now_ns()) {
            0 => return,
            left if left > WAKES_LATE => thread::sleep(Duration::from_nanos(left - WAKES_LATE)),
            _ => thread::yield_now(),
        }
    }
}

/// Of a clock that all processes of this machine share.
fn now_ns() -> u64 {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default().as_nanos() as u64
}

fn process_time() -> u64 {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default().as_nanos() as u64
}
