//! Probes that programs have declared at the socket, and the samples that wait for the node.

use std::{collections::VecDeque, fmt, sync::Arc, time::Duration};

use parking_lot::{Mutex, MutexGuard};
use polywire::{Message, Record, Shape, coding::Dynamic};

use super::{calls::Programs, operation::Operation};
use crate::{
    Instrument, Measure, MeasureError, Moment, Pdl, Plan, Probe, ProbeType, Uuid, application::not_by_name,
    input::problem,
};

/// The maximum number of samples of a probe that wait for the node. Beyond it, the oldest are
/// dropped.
pub const MAX_WAITING: usize = 1024;

/// The maximum size of the messages of waiting samples in bytes.
const MAX_WAITING_BYTES: usize = 8 << 20;

/// The type of all declared probes. What differs between them is in [`DeclaredProbe`].
pub(crate) static PROBE: ProbeType = ProbeType {
    name: "socket",
    summary: "What a program sends to the node's socket",
    uuid: Uuid::of(0x7d2f6f0b_6d1e_4c39_9c0a_5a0f3f1f7a44),
    version: "1.0",
    pdl: Pdl::File(""),
    every: Duration::from_secs(1),
    parameters: &[],
    shape: Unknown::shape,
    open: not_by_name,
};

/// The placeholder for the sample type, which is not known statically.
#[derive(Default, Message)]
#[polywire(name = "telemetry::Unknown")]
struct Unknown {}

/// A probe that a program has declared.
pub struct DeclaredProbe {
    dynamic: Dynamic,
    pub(crate) uuid: Uuid,
    pub(crate) version: String,
    pub(crate) pdl: String,
    operations: Vec<Arc<Operation>>,
    programs: Arc<Programs>,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    /// Samples, each with the length of its message in bytes.
    samples: VecDeque<(Record, usize)>,
    bytes: usize,
    dropped: u64,
    /// A record that is reused for the next sample to decode.
    spare: Option<Record>,
}

impl DeclaredProbe {
    pub(super) fn new(dynamic: Dynamic, uuid: Uuid, version: String, pdl: String) -> DeclaredProbe {
        let (operations, programs, waiting) = (Vec::new(), Arc::default(), Mutex::default());
        DeclaredProbe { dynamic, uuid, version, pdl, operations, programs, waiting }
    }

    pub(super) fn with_operations(self, operations: Vec<Operation>) -> DeclaredProbe {
        DeclaredProbe { operations: operations.into_iter().map(Arc::new).collect(), ..self }
    }

    /// Returns the operations of the probe, which programs execute for clients.
    pub(crate) fn operations(&self) -> &[Arc<Operation>] {
        &self.operations
    }

    /// Returns the programs that have declared the probe.
    pub(crate) fn programs(&self) -> &Arc<Programs> {
        &self.programs
    }

    pub(crate) fn shape(&self) -> &Arc<Shape> {
        self.dynamic.shape()
    }

    /// Returns whether another declaration declares the same type.
    pub(crate) fn is_like(&self, other: &DeclaredProbe) -> bool {
        (self.uuid, &self.version, &self.pdl) == (other.uuid, &other.version, &other.pdl)
            && self.shape().schema().to_bytes() == other.shape().schema().to_bytes()
    }

    /// Makes the plan of this probe.
    pub(crate) fn plan(self: &Arc<DeclaredProbe>, instance: &str) -> Plan {
        Plan { instance: instance.to_owned(), declared: Some(self.clone()), ..Plan::of(&PROBE) }
    }

    /// Makes a probe whose samples are the waiting ones.
    pub(crate) fn probe(self: &Arc<DeclaredProbe>) -> Box<dyn Probe> {
        Box::new(Instrument::new(self.dynamic.clone(), WaitingSamples(self.clone())))
    }

    /// Takes a record to decode a sample into.
    pub(super) fn spare(&self) -> Record {
        self.lock().spare.take().unwrap_or_else(|| Record::new(self.shape()))
    }

    /// Passes a sample to the node. `bytes` is the length of its message. Returns how many samples
    /// have been dropped since the last call, because the node had not processed them.
    pub(super) fn push(&self, sample: Record, bytes: usize) -> u64 {
        let mut waiting = self.lock();
        waiting.samples.push_back((sample, bytes));
        waiting.bytes += bytes;
        let is_too_much = |waiting: &Waiting| waiting.bytes > MAX_WAITING_BYTES && waiting.samples.len() > 1;
        while waiting.samples.len() > MAX_WAITING || is_too_much(&waiting) {
            let Some((oldest, bytes)) = waiting.samples.pop_front() else { break };
            waiting.bytes -= bytes;
            waiting.spare = Some(oldest);
            waiting.dropped += 1;
        }
        std::mem::take(&mut waiting.dropped)
    }

    /// Returns the number of waiting samples.
    pub(crate) fn len(&self) -> usize {
        self.lock().samples.len()
    }

    /// Discards the waiting samples, because the probe has neither a subscriber nor a collector.
    pub(crate) fn clear(&self) {
        let mut waiting = self.lock();
        waiting.spare = waiting.samples.pop_back().map(|(sample, _)| sample).or(waiting.spare.take());
        waiting.samples.clear();
        waiting.bytes = 0;
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock()
    }
}

impl fmt::Debug for DeclaredProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} version {}", self.shape().schema().name(), self.uuid, self.version)
    }
}

/// Measures by taking the waiting samples in order.
struct WaitingSamples(Arc<DeclaredProbe>);

impl Measure<Record> for WaitingSamples {
    fn measure(&mut self, _: Moment, sample: &mut Record) -> Result<(), MeasureError> {
        let mut waiting = self.0.lock();
        let Some((next, bytes)) = waiting.samples.pop_front() else {
            return Err(problem("the socket", "nothing has come yet"));
        };
        waiting.bytes -= bytes;
        waiting.spare = Some(std::mem::replace(sample, next));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_samples_are_dropped() {
        let dynamic = Dynamic::of(Unknown::shape().schema()).expect("a coding");
        let declared = DeclaredProbe::new(dynamic, Uuid::of(1), "1.0".into(), String::new());
        let push = |bytes| declared.push(declared.spare(), bytes);
        assert!((0..MAX_WAITING).all(|_| push(4) == 0));
        assert_eq!((push(4), push(4), declared.len()), (1, 1, MAX_WAITING));
        assert_eq!(push(MAX_WAITING_BYTES + 1), MAX_WAITING as u64, "a large one passes alone");
        assert_eq!((declared.len(), push(1), declared.len()), (1, 1, 1));
        declared.clear();
        assert_eq!((declared.len(), declared.lock().bytes), (0, 0));
    }
}
