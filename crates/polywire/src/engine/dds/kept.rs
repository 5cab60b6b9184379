//! What the writers of programs that are not nodes keep for late subscribers of this node.
//!
//! The first subscriber gets it when the reader of its topic finds the writer. Later subscribers
//! share that reader, to which DDS gives nothing again. For them, each such writer has a history
//! channel, as publishers of nodes have: who accepts it gets the samples of a reader made for that.
//! DDS tells the sequence numbers of neither reader; the times of the samples say which one is
//! which.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use polywire_core::{
    envelope::{Announcement, ChannelId, Id128},
    qos::{Durability, Offer},
    rpc::service_of,
};
use polywire_dds::{Guid, Receive, Sample};

use super::{super::pipe::lock, peer::ReadEnd};

/// Samples of a writer whose times are remembered. Late subscribers may get earlier ones with
/// numbers that others had.
const REMEMBERED: usize = 4096;

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

/// The latest samples of a writer: their times and sequence numbers, in order.
#[derive(Debug, Default)]
pub(super) struct Times(VecDeque<(i64, u64)>);

impl Times {
    /// A sample has this time and number.
    pub(super) fn note(&mut self, time: i64, number: u64) {
        // One that was not taken comes again.
        while self.0.pop_back_if(|(_, before)| *before >= number).is_some() {}
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back((time, number));
    }

    fn newest(&self) -> Option<i64> {
        self.0.iter().map(|(time, _)| *time).max()
    }

    /// Kept samples with the numbers that they had, if the number of the latest sample is `last`.
    /// Leaves out those that have not come yet.
    fn number(&self, last: u64, kept: Vec<Sample>) -> Vec<(u64, Sample)> {
        let (newest, mut next) = (self.newest(), last.saturating_add(1));
        let mut known = self.0.iter().rev().peekable();
        let mut numbered = Vec::with_capacity(kept.len());
        for sample in kept.into_iter().rev() {
            let time = sample.timestamp_ns;
            if newest.is_some_and(|newest| time > newest) {
                continue;
            }
            while known.next_if(|(later, _)| *later > time).is_some() {}
            let same = known.next_if(|(same, number)| *same == time && *number < next);
            let number = same.map_or(next - 1, |(_, number)| *number);
            if number == 0 {
                break;
            }
            next = number;
            numbered.push((number, sample));
        }
        numbered.reverse();
        numbered
    }
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
            let mut taken = lock(&self.taken);
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
    /// The time of the latest sample that others had when it began.
    until: Option<i64>,
    pub(super) reader: Option<Arc<ReadEnd>>,
}

impl Replay {
    /// Begins. The reader is to be opened with the taker.
    pub(super) fn new(writer: Guid, history: ChannelId, times: Option<&Times>, most_bytes: usize) -> Replay {
        let taker = Arc::new(Taker::new(writer, most_bytes));
        Replay { writer, history, again: false, taker, until: times.and_then(Times::newest), reader: None }
    }

    pub(super) fn taker(&self) -> Arc<Taker> {
        self.taker.clone()
    }

    /// Whether everything has come.
    pub(super) fn is_complete(&self, now: Instant) -> bool {
        let taken = lock(&self.taker.taken);
        let has_latest =
            taken.samples.back().is_some_and(|last| self.until.is_some_and(|until| last.timestamp_ns >= until));
        let quiet = if taken.samples.is_empty() { PATIENCE } else { QUIET };
        has_latest || now.saturating_duration_since(taken.latest) >= quiet
    }

    /// The samples, with their numbers.
    pub(super) fn samples(&self, times: Option<&Times>, last: u64) -> Vec<(u64, Sample)> {
        let samples = Vec::from(std::mem::take(&mut lock(&self.taker.taken).samples));
        times.unwrap_or(&Times::default()).number(last, samples)
    }
}

#[cfg(test)]
mod tests {
    use polywire_dds::{Bytes, Kind};

    use super::*;

    fn sample(timestamp_ns: i64) -> Sample {
        let bytes = Bytes::new([0; 4], &[1; 8]).expect("bytes");
        Sample { kind: Kind::Data, is_key: false, bytes, key_hash: None, timestamp_ns }
    }

    fn numbers(times: &Times, last: u64, kept: &[i64]) -> Vec<(u64, i64)> {
        let numbered = times.number(last, kept.iter().map(|time| sample(*time)).collect());
        numbered.into_iter().map(|(number, sample)| (number, sample.timestamp_ns)).collect()
    }

    #[test]
    fn kept_samples_have_the_numbers_that_they_had() {
        let mut times = Times::default();
        (11..=15).for_each(|number| times.note(number as i64 * 10, number));
        assert_eq!(numbers(&times, 15, &[110, 130, 150]), [(11, 110), (13, 130), (15, 150)]);
        assert_eq!(numbers(&times, 15, &[70, 90, 140]), [(12, 70), (13, 90), (14, 140)], "earlier than all known");
        assert_eq!(numbers(&times, 15, &[150, 160]), [(15, 150)], "the last one has not come yet");
        assert_eq!(numbers(&Times::default(), 2, &[1, 2, 3]), [(1, 2), (2, 3)], "there are no numbers below 1");
        times.note(155, 15);
        assert_eq!(numbers(&times, 15, &[155]), [(15, 155)], "150 was not taken, and came again");
        (16..=17).for_each(|number| times.note(155, number));
        assert_eq!(numbers(&times, 17, &[155, 155, 155]), [(15, 155), (16, 155), (17, 155)], "at one time");
        (18..=5000).for_each(|number| times.note(number as i64 * 10, number));
        assert_eq!(times.0.len(), REMEMBERED);
    }

    #[test]
    fn a_replay_is_complete_with_the_latest_sample_or_after_some_quiet() {
        let (writer, channel) = (Guid([7; 16]), ChannelId(9));
        let mut times = Times::default();
        times.note(20, 2);
        let replay = Replay::new(writer, channel, Some(&times), 30);
        let soon = Instant::now() + Duration::from_millis(1);
        assert!(!replay.is_complete(soon) && replay.is_complete(soon + PATIENCE));
        assert!(replay.taker.receive(writer, sample(10)) && replay.taker.receive(Guid([8; 16]), sample(20)));
        assert!(!replay.is_complete(soon) && replay.is_complete(soon + QUIET));
        assert!([20, 30].map(|time| replay.taker.receive(writer, sample(time))) == [true; 2]);
        assert!(replay.is_complete(soon));
        let numbered = replay.samples(Some(&times), 2);
        assert_eq!(numbered.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [2], "30 bytes are two samples");
    }
}
