//! Samples that writers of programs that are not nodes keep for late subscribers of this node.
//!
//! The first subscriber gets these samples when the reader of its topic matches the writer. Later
//! subscribers share that reader, and DDS does not deliver the samples to it again. For them, each
//! such writer has a history channel, as publishers of nodes have. When the node accepts it, the
//! channel carries the samples of a separate reader, which is opened for this purpose. Samples have
//! the sequence numbers of their writer, so no subscriber gets one twice. Samples of writers in
//! this process have no numbers, and are not replayed.

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

/// A replay is complete if no further sample has arrived for this time.
const QUIET: Duration = Duration::from_millis(500);

/// A replay is complete if no sample at all has arrived for this time. Subscribers wait for 5 s.
const PATIENCE: Duration = Duration::from_secs(2);

/// The interval between checks whether a replay is complete.
pub(super) const LOOK: Duration = Duration::from_millis(5);

/// Returns the announcement of a writer's history channel. `None` if the writer keeps no samples,
/// or belongs to a service.
pub(super) fn history_of(writer: Guid, announced: &Announcement) -> Option<Announcement> {
    let offer = Offer::parse(&announced.offer).ok()?;
    let keeps = offer.qos.durability == Durability::TransientLocal && service_of(&announced.topic).is_none();
    let offer = Offer { history_of: Some(announced.writer), ..offer };
    // No entity of DDS has such an id.
    let mut id = writer.0;
    id[15] ^= 0x80;
    keeps.then(|| Announcement { writer: Id128(id), offer: offer.to_bytes(), ..announced.clone() })
}

/// Collects the samples of one writer.
pub(super) struct Taker {
    writer: Guid,
    most_bytes: usize,
    taken: Mutex<Taken>,
}

struct Taken {
    samples: VecDeque<Sample>,
    bytes: usize,
    /// When the last sample arrived, or when the taker was made.
    latest: Instant,
}

impl Taker {
    fn new(writer: Guid, most_bytes: usize) -> Taker {
        let taken = Taken { samples: VecDeque::new(), bytes: 0, latest: Instant::now() };
        Taker { writer, most_bytes, taken: Mutex::new(taken) }
    }
}

impl Receive for Taker {
    /// Takes a sample. Without room, drops the oldest ones, as if the writer's history were less
    /// deep.
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

/// Reads the samples that a writer keeps, for subscribers that have accepted its history channel.
pub(super) struct Replay {
    pub(super) writer: Guid,
    pub(super) history: ChannelId,
    /// The history channel was accepted once more meanwhile, so the replay is to be repeated.
    pub(super) again: bool,
    taker: Arc<Taker>,
    /// The number of the latest sample that the channel had passed on when the replay began; 0 if
    /// none.
    until: u64,
    pub(super) reader: Option<Arc<ReadEnd>>,
}

impl Replay {
    /// Begins a replay. The caller opens the reader with [`Replay::taker`].
    pub(super) fn new(writer: Guid, history: ChannelId, until: u64, most_bytes: usize) -> Replay {
        let taker = Arc::new(Taker::new(writer, most_bytes));
        Replay { writer, history, again: false, taker, until, reader: None }
    }

    pub(super) fn taker(&self) -> Arc<Taker> {
        self.taker.clone()
    }

    /// Checks whether all samples have arrived, or no more are expected.
    pub(super) fn is_complete(&self, now: Instant) -> bool {
        let taken = self.taker.taken.lock();
        let last = taken.samples.back().and_then(|last| last.sequence);
        let has_latest = self.until > 0 && last.is_some_and(|last| last >= self.until);
        let quiet = if taken.samples.is_empty() { PATIENCE } else { QUIET };
        has_latest || now.saturating_duration_since(taken.latest) >= quiet
    }

    /// Takes the samples up to this number, with their numbers. The channel itself delivers later
    /// ones.
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
