//! Samples of writers whose channels the node has not answered yet.
//!
//! The reader of a topic matches further writers by itself, and receives their samples while the
//! node requests their types and decides whether it wants them. These samples wait here.

use std::collections::{BTreeMap, VecDeque};

use polywire_dds::{Guid, Sample};

use super::peer::EndId;

/// The samples that wait, by writer and reader: each reader of the topic that matches a writer
/// receives the writer's samples.
pub(super) struct Early {
    waiting: BTreeMap<(Guid, EndId), VecDeque<Sample>>,
    bytes: usize,
    /// The maximum of `bytes`.
    most: usize,
}

impl Early {
    pub(super) fn new(most: usize) -> Early {
        Early { waiting: BTreeMap::new(), bytes: 0, most }
    }

    /// Adds a sample. Without room, the oldest ones of its writer and reader are dropped.
    pub(super) fn push(&mut self, writer: Guid, end: EndId, sample: Sample) {
        let waiting = self.waiting.entry((writer, end)).or_default();
        self.bytes += bytes(&sample);
        waiting.push_back(sample);
        while self.bytes > self.most
            && let Some(oldest) = waiting.pop_front()
        {
            self.bytes -= bytes(&oldest);
        }
    }

    /// Checks whether samples of a writer wait.
    pub(super) fn has(&self, writer: Guid) -> bool {
        self.waiting.keys().any(|(of, _)| *of == writer)
    }

    /// Takes the waiting samples of a writer.
    pub(super) fn take(&mut self, writer: Guid) -> BTreeMap<EndId, VecDeque<Sample>> {
        self.take_all(|of| of == writer)
    }

    /// Drops the waiting samples of a participant.
    pub(super) fn forget(&mut self, participant: Guid) {
        self.take_all(|of| of.participant() == participant);
    }

    fn take_all(&mut self, which: impl Fn(Guid) -> bool) -> BTreeMap<EndId, VecDeque<Sample>> {
        let taken = self.waiting.extract_if(.., |(writer, _), _| which(*writer));
        let taken: BTreeMap<EndId, VecDeque<Sample>> = taken.map(|((_, end), waiting)| (end, waiting)).collect();
        self.bytes = self.waiting.values().flatten().map(bytes).sum();
        taken
    }
}

fn bytes(sample: &Sample) -> usize {
    size_of::<Sample>() + sample.bytes.sample().len()
}

#[cfg(test)]
mod tests {
    use polywire_dds::{Bytes, Kind};

    use super::*;

    fn sample(len: usize) -> Sample {
        let bytes = Bytes::new([0; 4], &vec![1; len]).expect("bytes");
        Sample { kind: Kind::Data, is_key: false, bytes, key_hash: None, timestamp_ns: 0, sequence: None }
    }

    #[test]
    fn what_waits_is_bounded() {
        let ([one, two], [a, b]) = ([1, 2].map(|byte| Guid([byte; 16])), [EndId::next(), EndId::next()]);
        let mut early = Early::new(bytes(&sample(8)) + bytes(&sample(600)));
        early.push(two, a, sample(8));
        (0..3).for_each(|_| early.push(one, a, sample(600)));
        let taken = early.take(one);
        assert_eq!(taken.values().map(VecDeque::len).collect::<Vec<_>>(), [1]);
        assert_eq!((early.take(one).len(), early.bytes), (0, bytes(&sample(8))));
        early.push(one, a, sample(8));
        early.push(one, b, sample(8));
        assert_eq!(early.take(one).into_keys().collect::<Vec<_>>(), [a, b]);
        early.forget(two.participant());
        assert!(early.bytes == 0 && early.waiting.is_empty());
    }
}
