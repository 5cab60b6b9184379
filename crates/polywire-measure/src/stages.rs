//! The mode `stages`: times each stage of a message separately, in CPU time of this thread. If the
//! case has a network, `emulated` then computes the delivery.

use std::{collections::BTreeMap, hint::black_box, time::Duration};

use polywire::Record;
use polywire_core::netsim::{Fragments, Model};
use rustix::time::{ClockId, clock_gettime};

use crate::{
    Case, Error, Scenario,
    coding::{Coding, Wire},
    emulated::{self, Costs},
    subject::Subject,
    templates,
    values::content_bytes,
};

/// Maximum number of rounds of a turn.
const MAX_ROUNDS: usize = 1 << 16;

/// A case that is ready to be timed.
pub struct Stages {
    case: Case,
    seed: u64,
    coding: Coding,
    model: Option<Model>,
    records: Vec<Record>,
    messages: Vec<Message>,
    back: Record,
    content: f64,
    /// Number of rounds in a turn, for each stage.
    rounds: [usize; 4],
    turns: u64,
    emulated: usize,
}

#[derive(Clone, Default)]
struct Message {
    anchor: Option<u64>,
    bytes: Vec<u8>,
    packed: Vec<u8>,
}

/// The result of one turn: figures by metric, and latencies.
pub struct Turn {
    pub figures: BTreeMap<&'static str, f64>,
    pub latency: Vec<u64>,
}

impl Stages {
    /// Makes values and programs, checks that values survive a round trip, and determines the
    /// number of rounds in a turn.
    pub fn new(scenario: &Scenario, case: &Case) -> Result<Stages, Error> {
        let subject = Subject::of(scenario, case)?;
        let model = match case.network.as_str() {
            "none" => None,
            text => Some(text.parse::<Model>().map_err(|error| Error::Scenario(error.to_string()))?),
        };
        let templates = templates::of(scenario, case, &subject)?;
        let wire = Wire::of(scenario, case, templates.as_deref());
        let coding = Coding::new(&wire, &subject.shape, &subject.reader)?;
        let records = subject.records(scenario, case, scenario.effort.messages)?;
        let schema = subject.shape.schema();
        let content = records.iter().map(|record| content_bytes(record.view(), schema, schema.root())).sum::<usize>();
        let mut stages = Stages {
            case: case.clone(),
            seed: scenario.seed,
            coding,
            model,
            content: content as f64 / records.len() as f64,
            messages: vec![Message::default(); records.len()],
            back: Record::new(&subject.reader),
            records,
            rounds: [1; 4],
            turns: 0,
            emulated: scenario.effort.emulated,
        };
        stages.write()?;
        stages.check(subject.reader.schema() == schema)?;
        stages.warm_up(scenario.effort.warm_up, Duration::from_secs_f64(scenario.effort.turn_ms.max(0.0) / 1000.0))?;
        Ok(stages)
    }

    fn write(&mut self) -> Result<(), Error> {
        self.serialise()?;
        self.compress();
        Ok(())
    }

    /// Checks that the value read equals the value written. If the reader has another version of
    /// the type, decoding only has to succeed.
    fn check(&mut self, same: bool) -> Result<(), Error> {
        let mut reading = self.coding.reading();
        for (i, record) in self.records.iter().enumerate() {
            let message = &self.messages[i];
            let bytes = self.coding.unpack(&message.packed)?.to_vec();
            if bytes != message.bytes {
                return Err(Error::Differs(self.case.to_string()));
            }
            self.coding.decode(&mut reading, i as u64 + 1, message.anchor, &bytes, &mut self.back)?;
            if same && self.back != *record {
                return Err(Error::Differs(self.case.to_string()));
            }
        }
        Ok(())
    }

    fn warm_up(&mut self, messages: usize, least: Duration) -> Result<(), Error> {
        for _ in 0..messages.div_ceil(self.messages.len()) {
            self.pass()?;
        }
        for stage in 0..self.rounds.len() {
            let mut rounds = 1;
            loop {
                let took = self.time(stage, rounds)?;
                if took >= least / 2 || rounds >= MAX_ROUNDS {
                    let times = least.as_secs_f64() / took.as_secs_f64().max(1e-9);
                    self.rounds[stage] = ((rounds as f64 * times).ceil() as usize).clamp(1, MAX_ROUNDS);
                    break;
                }
                rounds *= 2;
            }
        }
        Ok(())
    }

    /// Measures one turn.
    pub fn turn(&mut self) -> Result<Turn, Error> {
        let mut times = [0.0; 4];
        for (stage, time) in times.iter_mut().enumerate() {
            let rounds = self.rounds[stage];
            *time = self.time(stage, rounds)?.as_nanos() as f64 / (rounds * self.messages.len()) as f64;
        }
        let [serialise, compress, decompress, deserialise] = times;
        let mean = |bytes: &dyn Fn(&Message) -> usize| {
            self.messages.iter().map(bytes).sum::<usize>() as f64 / self.messages.len() as f64
        };
        let (plain, packed) = (mean(&|message| message.bytes.len()), mean(&|message| message.packed.len()));
        let mut figures = BTreeMap::from([
            ("bytes", packed),
            ("content_bytes", self.content),
            ("efficiency", self.content / packed),
            ("serialise_ns", serialise),
            ("deserialise_ns", deserialise),
            ("cpu_ns", times.iter().sum()),
        ]);
        if self.coding.compresses() {
            figures.extend([("ratio", packed / plain), ("compress_ns", compress), ("decompress_ns", decompress)]);
        }
        if self.turns == 0 {
            // Allocations are the same in every turn.
            self.count_allocations(&mut figures)?;
        }
        self.turns += 1;
        let latency = self.emulate(times, packed, &mut figures)?;
        Ok(Turn { figures, latency })
    }

    fn emulate(
        &mut self,
        times: [f64; 4],
        packed: f64,
        figures: &mut BTreeMap<&'static str, f64>,
    ) -> Result<Vec<u64>, Error> {
        let [serialise, compress, decompress, deserialise] = times.map(|time| time.round() as u64);
        let costs = Costs { send: serialise + compress, receive: decompress + deserialise };
        let line =
            self.model.as_ref().and_then(|model| model.rate).map_or(0.0, |rate| packed * 8e9 / rate.get() as f64);
        let slowest = (costs.send as f64).max(costs.receive as f64).max(line).max(1.0);
        figures.insert("bottleneck_hz", 1e9 / slowest);
        let Some(model) = &self.model else { return Ok(Vec::new()) };
        if let Some(Fragments::Split(size)) = model.fragments {
            let packets: usize =
                self.messages.iter().map(|message| message.packed.len().max(1).div_ceil(size.get())).sum();
            figures.insert("packets", packets as f64 / self.messages.len() as f64);
        }
        let payloads: Vec<&[u8]> = self.messages.iter().map(|message| &message.packed[..]).collect();
        let plan = emulated::Plan {
            model,
            seed: self.seed.wrapping_add(self.turns << 32),
            messages: self.emulated.max(1),
            rate_hz: self.case.rate_hz,
            subscribers: self.case.subscribers,
            costs,
        };
        let outcome = match self.coding.is_stream() {
            false => emulated::run(&plan, &payloads)?,
            true => emulated::run_stream(&plan, &mut self.coding, &self.records, &mut self.back)?,
        };
        figures.extend(outcome.figures());
        Ok(outcome.latency)
    }

    /// Passes each message through all stages.
    fn pass(&mut self) -> Result<(), Error> {
        (0..4).try_for_each(|stage| self.run(stage))
    }

    fn time(&mut self, stage: usize, rounds: usize) -> Result<Duration, Error> {
        let start = thread_time();
        for _ in 0..rounds {
            self.run(stage)?;
        }
        Ok(thread_time() - start)
    }

    fn run(&mut self, stage: usize) -> Result<(), Error> {
        match stage {
            0 => self.serialise(),
            1 if self.coding.compresses() => {
                self.compress();
                Ok(())
            }
            2 if self.coding.compresses() => self.decompress(),
            3 => self.deserialise(),
            // Without a compressor nothing is done or copied.
            _ => Ok(()),
        }
    }

    fn serialise(&mut self) -> Result<(), Error> {
        let mut writing = self.coding.writing();
        for (record, message) in self.records.iter().zip(&mut self.messages) {
            message.bytes.clear();
            message.anchor = self.coding.encode(&mut writing, black_box(record), &mut message.bytes)?;
        }
        Ok(())
    }

    fn compress(&mut self) {
        for message in &mut self.messages {
            message.packed.clear();
            self.coding.pack(black_box(&message.bytes), &mut message.packed);
        }
    }

    fn decompress(&mut self) -> Result<(), Error> {
        for message in &self.messages {
            black_box(self.coding.unpack(black_box(&message.packed))?);
        }
        Ok(())
    }

    fn deserialise(&mut self) -> Result<(), Error> {
        let mut reading = self.coding.reading();
        for (i, message) in self.messages.iter().enumerate() {
            let bytes = black_box(&message.bytes);
            self.coding.decode(&mut reading, i as u64 + 1, message.anchor, bytes, &mut self.back)?;
        }
        Ok(())
    }

    #[cfg(feature = "allocations")]
    fn count_allocations(&mut self, figures: &mut BTreeMap<&'static str, f64>) -> Result<(), Error> {
        let mut outcome = Ok(());
        // The first pass allocates buffers; the second counts the allocations of further messages.
        self.pass()?;
        let counted = allocation_counter::measure(|| outcome = self.pass());
        figures.insert("allocations", counted.count_total as f64 / self.messages.len() as f64);
        outcome?;
        let mut outcome = Ok(());
        let cold = allocation_counter::measure(|| outcome = self.cold());
        figures.insert("peak_memory_bytes", cold.bytes_max as f64);
        outcome
    }

    #[cfg(not(feature = "allocations"))]
    fn count_allocations(&mut self, _: &mut BTreeMap<&'static str, f64>) -> Result<(), Error> {
        Ok(())
    }

    /// Passes the first message through all stages, with empty buffers.
    #[cfg(feature = "allocations")]
    fn cold(&mut self) -> Result<(), Error> {
        let (mut bytes, mut packed) = (Vec::new(), Vec::new());
        let mut back = Record::new(self.back.shape());
        let anchor = self.coding.encode(&mut self.coding.writing(), &self.records[0], &mut bytes)?;
        self.coding.pack(&bytes, &mut packed);
        let unpacked = self.coding.unpack(&packed)?.to_vec();
        self.coding.decode(&mut self.coding.reading(), 1, anchor, &unpacked, &mut back)
    }
}

/// CPU time of this thread, which other load on the machine affects little.
fn thread_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}
