//! The receiving half for one followed member: puts reliable packets in order, finds out which are
//! missing, says when to ask for them, and joins the parts of long records.

use alloc::{collections::BTreeMap, vec::Vec};
use core::time::Duration;

use super::{
    Config,
    packet::{Content, MAX_RANGES},
};

#[derive(Debug)]
pub(super) struct Receiver {
    /// Where it began.
    pub(super) start: u64,
    /// The first packet that the application has not taken.
    next: u64,
    /// The packet behind the newest that is known to exist.
    end: u64,
    /// Packets from `next` on that are here.
    here: BTreeMap<u64, Content<'static>>,
    here_bytes: usize,
    /// Packets before `end` that are not here.
    missing: BTreeMap<u64, Missing>,
    /// No missing packet is due before this.
    due: Duration,
    /// A packet came since the last request: the sender hears us, or soon will.
    has_progress: bool,
    /// The parts so far of a record, and the index and count of the part that follows.
    partial: Vec<u8>,
    expected: Option<(u64, u64)>,
    /// No record has begun since the start: parts may belong to one that began before.
    is_fresh: bool,
}

#[derive(Clone, Copy, Debug)]
struct Missing {
    /// When to ask for it, unless it comes or somebody else asks.
    due: Duration,
    /// The pause after that.
    pause: Duration,
}

/// Packets are lost for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// More in a row than [`Config::largest_burst_lost`], or the sender no longer has them.
    Lost,
    /// Parts that do not fit together.
    Parts,
    /// A record that is too long.
    TooLong,
}

impl Receiver {
    pub(super) fn new(start: u64) -> Receiver {
        Receiver {
            start,
            next: start,
            end: start,
            here: BTreeMap::new(),
            here_bytes: 0,
            missing: BTreeMap::new(),
            due: Duration::MAX,
            has_progress: false,
            partial: Vec::new(),
            expected: None,
            is_fresh: true,
        }
    }

    /// The first packet that the application has not taken.
    pub(super) fn taken(&self) -> u64 {
        self.next
    }

    /// Bytes of the record that is being joined.
    pub(super) fn partial_bytes(&self) -> usize {
        self.partial.len()
    }

    /// Bytes of packets that wait.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.here_bytes
    }

    /// Whether [`Receiver::take`] may give something.
    pub(super) fn is_ready(&self) -> bool {
        self.here.contains_key(&self.next)
    }

    /// A packet came. `jitter` spreads requests of several receivers.
    pub(super) fn insert(
        &mut self,
        number: u64,
        content: Content<'_>,
        now: Duration,
        jitter: impl FnMut(Duration) -> Duration,
        config: &Config,
    ) -> Result<(), Broken> {
        if number < self.next || self.here.contains_key(&number) {
            return Ok(());
        }
        self.extend(number, now, jitter, config)?;
        let beyond = number - self.next >= config.window as u64;
        let is_full = number != self.next && self.here_bytes + content.len() > config.retransmission_buffer;
        if beyond || is_full {
            return Ok(());
        }
        self.end = self.end.max(number.saturating_add(1));
        self.missing.remove(&number);
        self.has_progress = true;
        self.here_bytes += content.len();
        self.here.insert(number, content.into_owned());
        Ok(())
    }

    /// The sender says which packets it has: from `oldest` up to `next`.
    pub(super) fn advertised(
        &mut self,
        oldest: u64,
        next: u64,
        now: Duration,
        jitter: impl FnMut(Duration) -> Duration,
        config: &Config,
    ) -> Result<(), Broken> {
        let first_missing = self.missing.keys().next().copied().unwrap_or(self.end);
        if first_missing < oldest {
            return Err(Broken::Lost);
        }
        self.extend(next, now, jitter, config)
    }

    /// Packets up to `end` exist: those not known before are missing.
    fn extend(
        &mut self,
        end: u64,
        now: Duration,
        mut jitter: impl FnMut(Duration) -> Duration,
        config: &Config,
    ) -> Result<(), Broken> {
        if end.saturating_sub(self.end) > config.largest_burst_lost as u64 {
            return Err(Broken::Lost);
        }
        let end = end.min(self.next.saturating_add(config.window as u64));
        if end <= self.end {
            return Ok(());
        }
        let due = now.saturating_add(jitter(config.first_nak_delay));
        let missing = Missing { due, pause: config.next_nak_delay };
        self.missing.extend((self.end..end).map(|number| (number, missing)));
        self.end = end;
        self.due = self.due.min(due);
        Ok(())
    }

    /// The packets to ask for now, as ranges.
    pub(super) fn requests(&mut self, now: Duration, config: &Config) -> Vec<(u64, u64)> {
        if now < self.due {
            return Vec::new();
        }
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        self.due = Duration::MAX;
        let has_progress = core::mem::take(&mut self.has_progress);
        for (number, missing) in &mut self.missing {
            let extends = ranges.last().is_some_and(|(first, count)| first + count == *number);
            if missing.due <= now && (extends || ranges.len() < MAX_RANGES) {
                match ranges.last_mut().filter(|_| extends) {
                    Some((_, count)) => *count += 1,
                    None => ranges.push((*number, 1)),
                }
                if has_progress {
                    missing.pause = config.next_nak_delay;
                }
                missing.due = now.saturating_add(missing.pause);
                missing.pause = missing.pause.saturating_mul(2).min(config.longest_nak_delay);
            }
            self.due = self.due.min(missing.due);
        }
        ranges
    }

    /// Another receiver has asked for these packets: asking again would be in vain for a while.
    pub(super) fn requested(&mut self, ranges: &[(u64, u64)], now: Duration, config: &Config) {
        for (first, count) in ranges {
            for (_, missing) in self.missing.range_mut(*first..first.saturating_add(*count)) {
                missing.due = missing.due.max(now.saturating_add(config.next_nak_delay));
            }
        }
    }

    /// When [`Receiver::requests`] may give something.
    pub(super) fn next_timeout(&self) -> Option<Duration> {
        (!self.missing.is_empty()).then_some(self.due)
    }

    /// The records that come next. `None` if a packet is missing. `room` bounds the record that is
    /// being joined.
    pub(super) fn take(&mut self, room: usize) -> Result<Option<Vec<u8>>, Broken> {
        while let Some(content) = self.here.remove(&self.next) {
            self.here_bytes -= content.len();
            self.next += 1;
            match content {
                Content::Records(bytes) if self.expected.is_none() => {
                    self.is_fresh = false;
                    if !bytes.is_empty() {
                        return Ok(Some(bytes.into_owned()));
                    }
                }
                Content::Part { index, count, bytes } => {
                    if let Some(record) = self.join(index, count, &bytes, room)? {
                        return Ok(Some(record));
                    }
                }
                Content::Records(_) => return Err(Broken::Parts),
            }
        }
        Ok(None)
    }

    fn join(&mut self, index: u64, count: u64, bytes: &[u8], room: usize) -> Result<Option<Vec<u8>>, Broken> {
        match self.expected {
            None if index > 0 && self.is_fresh => return Ok(None),
            None if index == 0 => {}
            Some(expected) if expected == (index, count) => {}
            _ => return Err(Broken::Parts),
        }
        self.is_fresh = false;
        if self.partial.len().saturating_add(bytes.len()) > room {
            return Err(Broken::TooLong);
        }
        self.partial.extend_from_slice(bytes);
        self.expected = (index + 1 < count).then_some((index + 1, count));
        Ok(self.expected.is_none().then(|| core::mem::take(&mut self.partial)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn config() -> Config {
        Config { window: 100, largest_burst_lost: 50, ..Config::default() }
    }

    fn insert(receiver: &mut Receiver, number: u64, now: Duration) -> Result<(), Broken> {
        receiver.insert(number, Content::Records(vec![number as u8].into()), now, |delay| delay, &config())
    }

    fn taken(receiver: &mut Receiver) -> Vec<u8> {
        core::iter::from_fn(|| receiver.take(1000).expect("whole")).flatten().collect()
    }

    #[test]
    fn packets_come_in_order_once_and_gaps_are_asked_for() {
        let (mut receiver, config) = (Receiver::new(5), config());
        for number in [4, 5, 8, 8, 6, 10] {
            insert(&mut receiver, number, MS(0)).expect("fine");
        }
        assert_eq!((taken(&mut receiver), receiver.taken()), (vec![5, 6], 7));
        assert_eq!(receiver.requests(MS(1), &config), [], "they may only be late");
        let due = receiver.next_timeout().expect("two are missing");
        assert_eq!((due, receiver.requests(due, &config)), (config.first_nak_delay, vec![(7, 1), (9, 1)]));
        let again = receiver.next_timeout().expect("they are still missing");
        assert_eq!(again, due + config.next_nak_delay);
        receiver.requested(&[(9, 1)], again, &config);
        assert_eq!(receiver.requests(again, &config), [(7, 1)], "somebody else asked for the other");
        insert(&mut receiver, 7, again).expect("fine");
        insert(&mut receiver, 9, again).expect("fine");
        assert_eq!((taken(&mut receiver), receiver.next_timeout()), (vec![7, 8, 9, 10], None));
    }

    #[test]
    fn what_the_sender_says_shows_losses_at_the_end() {
        let (mut receiver, config) = (Receiver::new(1), config());
        receiver.advertised(1, 4, MS(0), |delay| delay, &config).expect("fine");
        assert_eq!(receiver.requests(MS(100), &config), [(1, 3)]);
        assert_eq!(receiver.advertised(2, 4, MS(0), |delay| delay, &config), Err(Broken::Lost));
    }

    #[test]
    fn a_packet_that_declares_a_huge_gap_breaks_and_costs_nothing() {
        let mut receiver = Receiver::new(1);
        assert_eq!(insert(&mut receiver, 52, MS(0)), Err(Broken::Lost));
        assert_eq!(insert(&mut receiver, u64::MAX, MS(0)), Err(Broken::Lost));
        assert!(receiver.missing.is_empty());
        // In small steps the window is the limit.
        for number in (1..50).map(|step| step * 40) {
            insert(&mut receiver, number, MS(0)).ok();
        }
        assert!(receiver.missing.len() <= 100 && receiver.here.len() <= 100);
    }

    #[test]
    fn parts_are_joined_and_a_newcomer_skips_those_of_a_record_that_began_before() {
        let mut receiver = Receiver::new(1);
        let mut part = |number, index, count| {
            let content = Content::Part { index, count, bytes: vec![index as u8; 2].into() };
            receiver.insert(number, content, MS(0), |delay| delay, &config()).expect("fine");
            receiver.take(5)
        };
        assert_eq!([part(1, 1, 3), part(2, 2, 3)], [Ok(None), Ok(None)]);
        assert_eq!([part(3, 0, 2), part(4, 1, 2)], [Ok(None), Ok(Some(vec![0, 0, 1, 1]))]);
        assert_eq!([part(5, 0, 3), part(6, 1, 3), part(7, 2, 3)], [Ok(None), Ok(None), Err(Broken::TooLong)]);
        let mut receiver = Receiver::new(1);
        insert(&mut receiver, 1, MS(0)).expect("fine");
        let content = Content::Part { index: 1, count: 3, bytes: vec![0].into() };
        receiver.insert(2, content, MS(0), |delay| delay, &config()).expect("fine");
        assert_eq!((receiver.take(9), receiver.take(9)), (Ok(Some(vec![1])), Err(Broken::Parts)));
    }
}
