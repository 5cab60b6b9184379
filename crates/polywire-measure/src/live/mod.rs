//! Real engines: a sender here, receivers in another process or in this one.

#[cfg(any(feature = "peers", feature = "peers-iceoryx2", feature = "peers-zenoh"))]
mod bus;
mod ddsperf;
pub mod engines;
mod frame;
#[cfg(feature = "peers-iceoryx2")]
mod iceoryx2;
mod loaded;
mod ours;
mod peer;
mod raw;
#[cfg(any(feature = "peers", feature = "peers-iceoryx2"))]
mod waiting;
#[cfg(feature = "peers-zenoh")]
mod zenoh;
#[cfg(feature = "peers")]
mod zeromq;

use std::{collections::BTreeMap, thread, time::Duration};

use polywire::Record;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

pub use ddsperf::Ddsperf;
pub use peer::serve;
use peer::{Peer, Report, Vitals};

use crate::{
    Case, Error, Scenario,
    emulated::histogram,
    scenario::{Mode, Place},
    stages::Turn,
    subject::Subject,
    templates,
    values::ValueModel,
};

/// Nothing on one machine takes longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Steps of the search for the highest rate: it is found to one part in a hundred.
const STEPS: usize = 7;

/// A rate is kept up if the last message comes no later than this part of the time after it was
/// due.
const LATE: f64 = 0.1;

/// How messages get to the other end.
trait Carrier {
    /// Sends one message to every subscriber.
    fn send(&mut self, record: &Record) -> Result<(), String>;

    /// Sends each when the one before has come back from every subscriber; gives how long each
    /// took, and how many did not come back.
    fn rounds(&mut self, records: &[Record], count: usize) -> Result<(Vec<Duration>, usize), String>;

    /// Sends as many as are taken, and waits until all have come back; gives how long each was
    /// away, and how long that took.
    fn loaded(&mut self, _records: &[Record], _count: usize) -> Result<(Vec<Duration>, Duration), String> {
        Err("the mode `loaded` is for tcp, unix and inproc".into())
    }

    /// Sees to it that nothing is kept back.
    fn flush(&mut self) {}

    /// A turn begins: receivers that poll do so from now on.
    fn wake(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// The turn is over: nobody takes time from the cases whose turn it is.
    fn rest(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// What the other end needs to know.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Setup {
    engine: String,
    codec: String,
    /// In XML, where the codec is given some.
    templates: Option<String>,
    compressor: String,
    /// Schemas of both versions, as bytes.
    writer: Vec<u8>,
    reader: Vec<u8>,
    /// Where the sender listens.
    address: String,
    subscribers: usize,
    topics: usize,
    buffers: String,
    /// Messages are sent back, not counted.
    echo: bool,
}

impl Setup {
    /// Where the sender listens is not known yet.
    fn of(scenario: &Scenario, case: &Case, subject: &Subject) -> Result<Setup, Error> {
        Ok(Setup {
            engine: case.engine.clone(),
            codec: case.codec.clone(),
            templates: templates::of(scenario, case, subject)?,
            compressor: case.compressor.clone(),
            writer: subject.shape.schema().to_bytes(),
            reader: subject.reader.schema().to_bytes(),
            address: String::new(),
            subscribers: case.subscribers,
            topics: case.topics,
            buffers: case.buffers.clone(),
            echo: matches!(scenario.mode, Mode::Closed | Mode::Loaded),
        })
    }
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
            carrier,
            peer,
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

    /// One turn.
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
        // One way is half of there and back.
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
        // Where there was not time for all, there are fewer.
        let sent = times.len() / self.case.subscribers;
        let mut figures = self.figures(&before, sent)?;
        let times: Vec<u64> = times.iter().map(|time| time.as_nanos() as u64).collect();
        let sent = sent as f64;
        let rate = sent / took.as_secs_f64().max(1e-9);
        figures.extend([("sent", sent), ("lost", 0.0), ("throughput_hz", rate)]);
        figures.extend(round_trips(&times));
        Ok(Turn { figures, latency: Vec::new() })
    }

    /// As fast as it goes; where that loses something, the highest rate that does not.
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

    fn costs(&mut self) -> Result<Costs, String> {
        Ok(Costs { own_cpu_ns: process_time(), peer: self.peer.vitals()? })
    }

    /// What a message of this turn cost.
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
            // What travels hangs on what went before, where messages refer to others: so it is
            // counted, and where it arrives.
            figures.insert("bytes", (now.peer.bytes - before.peer.bytes) as f64 / came as f64);
        }
        if now.peer.peak_memory_bytes > 0 {
            figures.insert("peak_memory_bytes", now.peer.peak_memory_bytes as f64);
        }
        Ok(figures)
    }
}

/// What both ends have used and got so far.
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

/// The type of a case and its values.
fn subject_of(scenario: &Scenario, case: &Case) -> Result<(Subject, Vec<Record>), Error> {
    let subject = Subject::of(scenario, case)?;
    let spec = &scenario.types[case.type_index];
    let count = scenario.effort.messages.min(256);
    let model = ValueModel::parse(&case.values)?;
    let records = model.records(&subject.shape, count, scenario.seed, spec, &scenario.folder)?;
    Ok((subject, records))
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
