//! What the writers of programs that are not nodes keep for late subscribers of this node.
//!
//! The first subscriber gets it when the reader of its topic finds the writer. Later subscribers
//! share that reader, to which DDS gives nothing again. For them, each such writer has a history
//! channel, as publishers of nodes have: who accepts it gets the samples of a reader made for that.
//! Samples have numbers of their writer, so that none comes twice. Those of writers of this process
//! have none, and are not brought again.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use polywire_core::{
    envelope::{Announcement, ChannelId, Id128},
    qos::{Durability, Offer},
    rpc::service_of,
};
use polywire_dds::{Guid, Receive, Sample};

use super::peer::ReadEnd;

/// A writer has nothing more if nothing came for so long.
const QUIET: Duration = Duration::from_millis(500);

/// A writer keeps nothing if nothing came for so long. Subscribers wait for 5 s.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often it is looked whether everything has come.
pub(super) const LOOK: Duration = Duration::from_millis(5);

/// The channel for what a writer keeps. `None` if it keeps nothing.
pub(super) fn history_of(writer: Guid, announced: &Announcement) -> Option<Announcement> {
    let offer = Offer::parse(&announced.offer).ok()?;
    let keeps = offer.qos.durability == Durability::TransientLocal && service_of(&announced.topic).is_none();
    let offer = Offer { history_of: Some(announced.writer), ..offer };
    // No entity of DDS has such an id.
    let mut id = writer.0;
    id[15] ^= 0x80;
    keeps.then(|| Announcement { writer: Id128(id), offer: offer.to_bytes(), ..announced.clone() })
}

/// Takes the samples of one writer.
pub(super) struct Taker {
    writer: Guid,
    most_bytes: usize,
    taken: Mutex<Taken>,
}

struct Taken {
    samples: VecDeque<Sample>,
    bytes: usize,
    /// When the last one came, or the taker was made.
    latest: Instant,
}

impl Taker {
    fn new(writer: Guid, most_bytes: usize) -> Taker {
        let taken = Taken { samples: VecDeque::new(), bytes: 0, latest: Instant::now() };
        Taker { writer, most_bytes, taken: Mutex::new(taken) }
    }
}

impl Receive for Taker {
    /// Without room, the oldest ones go, as in a history that is not as deep.
    fn receive(&self, writer: Guid, sample: Sample) -> bool {
        if writer == self.writer {
            let mut taken = self.taken.lock();
            taken.bytes += sample.bytes.sample().len();
            taken.samples.push_back(sample);
            while taken.bytes > self.most_bytes
                && let Some(oldest) = taken.samples.pop_front()
            {
                taken.bytes -= oldest.bytes.sample().len();
            }
            taken.latest = Instant::now();
        }
        true
    }
}

/// What a writer keeps is read for those who have accepted its history channel.
pub(super) struct Replay {
    pub(super) writer: Guid,
    pub(super) history: ChannelId,
    /// It was accepted once more meanwhile.
    pub(super) again: bool,
    taker: Arc<Taker>,
    /// The number of the latest sample that others had when it began; 0 if they had none.
    until: u64,
    pub(super) reader: Option<Arc<ReadEnd>>,
}

impl Replay {
    /// Begins. The reader is to be opened with the taker.
    pub(super) fn new(writer: Guid, history: ChannelId, until: u64, most_bytes: usize) -> Replay {
        let taker = Arc::new(Taker::new(writer, most_bytes));
        Replay { writer, history, again: false, taker, until, reader: None }
    }

    pub(super) fn taker(&self) -> Arc<Taker> {
        self.taker.clone()
    }

    /// Whether everything has come.
    pub(super) fn is_complete(&self, now: Instant) -> bool {
        let taken = self.taker.taken.lock();
        let last = taken.samples.back().and_then(|last| last.sequence);
        let has_latest = self.until > 0 && last.is_some_and(|last| last >= self.until);
        let quiet = if taken.samples.is_empty() { PATIENCE } else { QUIET };
        has_latest || now.saturating_duration_since(taken.latest) >= quiet
    }

    /// The samples up to this number, with their numbers. Later ones have not come to others yet.
    pub(super) fn samples(&self, last: u64) -> Vec<(u64, Sample)> {
        let samples = std::mem::take(&mut self.taker.taken.lock().samples);
        let numbered = samples.into_iter().filter_map(|sample| Some((sample.sequence?, sample)));
        numbered.filter(|(number, _)| *number <= last).collect()
    }
}

#[cfg(test)]
mod tests {
    use polywire_dds::{Bytes, Kind};

    use super::*;

    fn sample(number: u64) -> Sample {
        let bytes = Bytes::new([0; 4], &[1; 8]).expect("bytes");
        let sequence = Some(number).filter(|number| *number > 0);
        Sample { kind: Kind::Data, is_key: false, bytes, key_hash: None, timestamp_ns: 7, sequence }
    }

    #[test]
    fn a_replay_is_complete_with_the_latest_sample_or_after_some_quiet() {
        let (writer, channel) = (Guid([7; 16]), ChannelId(9));
        let replay = Replay::new(writer, channel, 4, 50);
        let soon = Instant::now() + Duration::from_millis(1);
        assert!(!replay.is_complete(soon) && replay.is_complete(soon + PATIENCE));
        assert!(replay.taker.receive(writer, sample(1)) && replay.taker.receive(Guid([8; 16]), sample(4)));
        let heard = Instant::now();
        assert!(!replay.is_complete(soon) && replay.is_complete(heard + QUIET));
        assert!([0, 2, 4, 5].map(|number| replay.taker.receive(writer, sample(number))) == [true; 4]);
        assert!(replay.is_complete(soon));
        let numbers: Vec<u64> = replay.samples(4).into_iter().map(|(number, _)| number).collect();
        assert_eq!(numbers, [2, 4], "50 bytes are four samples, one has no number, and the last one is too late");
        let begun = Replay::new(writer, channel, 0, 50);
        assert!(begun.taker.receive(writer, sample(1)) && !begun.is_complete(soon));
    }
}
