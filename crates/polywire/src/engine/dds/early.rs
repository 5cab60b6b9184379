//! Samples of writers that the node has not answered yet.
//!
//! The reader of a topic finds further writers by itself, and takes in what they send while the
//! node asks for their types and decides whether it wants them. These samples wait here.

use std::collections::{BTreeMap, VecDeque};

use polywire_dds::{Guid, Sample};

/// The samples that wait, by writer.
pub(super) struct Early {
    waiting: BTreeMap<Guid, Waiting>,
    bytes: usize,
    /// Bytes that may wait.
    most: usize,
}

/// What waits of a writer.
#[derive(Default)]
pub(super) struct Waiting {
    pub(super) samples: VecDeque<Sample>,
    /// Samples that came before them and were dropped.
    pub(super) lost: u64,
}

impl Early {
    pub(super) fn new(most: usize) -> Early {
        Early { waiting: BTreeMap::new(), bytes: 0, most }
    }

    /// Adds a sample. Without room, the oldest ones of its writer go.
    pub(super) fn push(&mut self, writer: Guid, sample: Sample) {
        let waiting = self.waiting.entry(writer).or_default();
        self.bytes += bytes(&sample);
        waiting.samples.push_back(sample);
        while self.bytes > self.most
            && let Some(oldest) = waiting.samples.pop_front()
        {
            self.bytes -= bytes(&oldest);
            waiting.lost += 1;
        }
    }

    /// Takes what waits of a writer.
    pub(super) fn take(&mut self, writer: Guid) -> Waiting {
        let taken = self.waiting.remove(&writer).unwrap_or_default();
        self.bytes -= taken.samples.iter().map(bytes).sum::<usize>();
        taken
    }

    /// Drops what waits of a participant.
    pub(super) fn forget(&mut self, participant: Guid) {
        let of = |writer: &&Guid| writer.participant() == participant;
        let gone: Vec<Guid> = self.waiting.keys().filter(of).copied().collect();
        gone.into_iter().for_each(|writer| drop(self.take(writer)));
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
        Sample { kind: Kind::Data, is_key: false, bytes, key_hash: None, timestamp_ns: 0 }
    }

    #[test]
    fn what_waits_is_bounded_and_what_is_dropped_is_counted() {
        let [one, two] = [1, 2].map(|byte| Guid([byte; 16]));
        let mut early = Early::new(bytes(&sample(8)) + bytes(&sample(600)));
        early.push(two, sample(8));
        (0..3).for_each(|_| early.push(one, sample(600)));
        let taken = early.take(one);
        assert_eq!((taken.samples.len(), taken.lost), (1, 2));
        assert_eq!((early.take(one).samples.len(), early.bytes), (0, bytes(&sample(8))));
        early.forget(two.participant());
        assert!(early.bytes == 0 && early.waiting.is_empty());
    }
}
