//! Whether the peer of a link is alive, by the lease that it promised. `spec/frame.md`, section 13,
//! has the rules.
//!
//! The reading thread only counts its turns, and does not read the clock. The link's writing thread
//! checks the count periodically, and sends this end's heartbeats.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// The shortest lease. A shorter lease of a peer counts as this one, so that a peer cannot keep
/// this end busy.
const SHORTEST: Duration = Duration::from_millis(100);
/// The number of heartbeats in a short lease, and of checks in each lease whether the peer was
/// heard.
const BEATS: u32 = 4;
/// Heartbeats of a longer lease are up to half of it apart, as long as this time is left for
/// delays.
const ROOM: Duration = Duration::from_secs(2);

/// The liveliness of one link's peer, which the link's threads and publishers share.
#[derive(Default)]
pub(super) struct PeerLiveliness {
    /// Odd while the reading thread handles received bytes, even while it reads.
    turns: AtomicU64,
    /// The peer's lease in milliseconds; 0 if it promised none.
    lease_ms: AtomicU64,
    silent: AtomicBool,
    silences: AtomicU64,
}

/// The result of a check of a [`PeerLiveliness`], unless the peer is heard as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// Nothing arrived for the lease.
    Silent(Duration),
    /// The peer was silent before, and nothing has arrived since.
    StillSilent,
    /// The peer is heard again.
    Heard,
}

impl PeerLiveliness {
    /// Notes that the reading thread has received something, and will handle it.
    #[inline]
    pub(super) fn received(&self) {
        self.turns.store(self.turns.load(Ordering::Relaxed) | 1, Ordering::Relaxed);
    }

    /// Notes that the reading thread has handled what it received, and will read.
    #[inline]
    pub(super) fn reads(&self) {
        let turns = self.turns.load(Ordering::Relaxed);
        self.turns.store(turns + (turns & 1), Ordering::Relaxed);
    }

    /// Notes the lease that the peer has promised; 0 revokes it.
    pub(super) fn promised(&self, milliseconds: u64) {
        self.lease_ms.store(milliseconds, Ordering::Relaxed);
    }

    /// Returns whether the peer is past its lease.
    #[inline]
    pub(super) fn is_silent(&self) -> bool {
        self.silent.load(Ordering::Relaxed)
    }

    /// Returns how often the peer has been silent.
    pub(super) fn silences(&self) -> u64 {
        self.silences.load(Ordering::Relaxed)
    }

    fn lease(&self) -> Option<Duration> {
        match self.lease_ms.load(Ordering::Relaxed) {
            0 => None,
            milliseconds => Some(Duration::from_millis(milliseconds).max(SHORTEST)),
        }
    }
}

/// What the writing thread remembers between two checks of a [`PeerLiveliness`].
pub(super) struct LeaseMonitor {
    /// The time from the last frame sent to this end's heartbeat; `None` without a lease.
    beat: Option<Duration>,
    turns: u64,
    looked: Instant,
    /// The time for which nothing has arrived from the peer.
    quiet: Duration,
}

impl LeaseMonitor {
    /// Creates the monitor of an end that promised `lease`; zero promises nothing.
    pub(super) fn new(lease: Duration, now: Instant) -> LeaseMonitor {
        let seldom = (lease / 2).min(lease.saturating_sub(ROOM));
        let beat = (!lease.is_zero()).then(|| seldom.max(lease / BEATS));
        LeaseMonitor { beat, turns: 0, looked: now, quiet: Duration::ZERO }
    }

    /// Returns whether a heartbeat is due, if the last frame left at `written`.
    pub(super) fn is_due(&self, now: Instant, written: Instant) -> bool {
        self.beat.is_some_and(|beat| now.saturating_duration_since(written) >= beat)
    }

    /// Returns how long the writing thread may sleep until the next heartbeat or check; `None` for
    /// any time.
    pub(super) fn rest(&self, liveliness: &PeerLiveliness, now: Instant, written: Instant) -> Option<Duration> {
        let beat = self.beat.map(|beat| beat.saturating_sub(now.saturating_duration_since(written)));
        let look = liveliness.lease().map(|lease| self.next_look(lease).saturating_sub(self.since_look(now)));
        let rest = beat.into_iter().chain(look).min()?;
        Some(rest.max(Duration::from_millis(1)))
    }

    /// Checks whether the peer was heard, if the last check is long enough ago.
    pub(super) fn look(&mut self, liveliness: &PeerLiveliness, now: Instant) -> Option<Finding> {
        let lease = liveliness.lease();
        let step = self.next_look(lease.unwrap_or(SHORTEST));
        let passed = self.since_look(now);
        if passed < step {
            return None;
        }
        self.looked = now;
        let turns = liveliness.turns.load(Ordering::Relaxed);
        let is_reading = turns.is_multiple_of(2);
        let was_heard = std::mem::replace(&mut self.turns, turns) != turns || !is_reading;
        if was_heard || lease.is_none() {
            self.quiet = Duration::ZERO;
            return liveliness.silent.swap(false, Ordering::Relaxed).then_some(Finding::Heard);
        }
        if liveliness.is_silent() {
            return Some(Finding::StillSilent);
        }
        // If this process did not run, most of that time says nothing about the peer.
        self.quiet += passed.min(step * 2);
        let lease = lease.filter(|lease| self.quiet >= *lease)?;
        liveliness.silent.store(true, Ordering::Relaxed);
        liveliness.silences.fetch_add(1, Ordering::Relaxed);
        Some(Finding::Silent(lease))
    }

    fn next_look(&self, lease: Duration) -> Duration {
        lease / BEATS
    }

    fn since_look(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.looked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_millis(1000);

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// Returns the findings of checks every quarter of the lease. The peer is heard before the
    /// checks of these numbers.
    fn findings(liveliness: &PeerLiveliness, looks: u64, heard: impl Fn(u64) -> bool) -> Vec<(u64, Finding)> {
        let start = Instant::now();
        let mut monitor = LeaseMonitor::new(LEASE, start);
        let look = |number| {
            if heard(number) {
                liveliness.received();
                liveliness.reads();
            }
            Some((number, monitor.look(liveliness, start + ms(250 * number))?))
        };
        (1..=looks).filter_map(look).collect()
    }

    #[test]
    fn a_peer_is_silent_after_its_lease_and_heard_again_at_once() {
        let liveliness = PeerLiveliness::default();
        liveliness.promised(1000);
        let still = |number| (number, Finding::StillSilent);
        let expected = [(6, Finding::Silent(LEASE)), still(7), still(8), (9, Finding::Heard)];
        assert_eq!(findings(&liveliness, 12, |number| !(3..=8).contains(&number)), expected);
        assert!(!liveliness.is_silent());
        assert_eq!(liveliness.silences(), 1);
    }

    #[test]
    fn a_peer_without_a_lease_is_never_silent() {
        let liveliness = PeerLiveliness::default();
        assert_eq!(findings(&liveliness, 100, |_| false), []);
        // Nor is a peer that revokes its lease.
        liveliness.promised(1000);
        assert_eq!(findings(&liveliness, 4, |_| false), [(4, Finding::Silent(LEASE))]);
        liveliness.promised(0);
        assert_eq!(findings(&liveliness, 4, |_| false), [(1, Finding::Heard)]);
    }

    #[test]
    fn time_in_which_this_end_did_not_read_or_run_does_not_count() {
        let (liveliness, start) = (PeerLiveliness::default(), Instant::now());
        liveliness.promised(1000);
        let mut monitor = LeaseMonitor::new(LEASE, start);
        // The reading thread hands a message to a subscriber that is slow.
        liveliness.received();
        (1..20).for_each(|number| assert_eq!(monitor.look(&liveliness, start + ms(250 * number)), None));
        liveliness.reads();
        assert_eq!(monitor.look(&liveliness, start + ms(5000)), None);
        // The process was suspended for an hour.
        assert_eq!(monitor.look(&liveliness, start + ms(3_600_000)), None);
        assert_eq!(monitor.look(&liveliness, start + ms(3_600_250)), None);
        assert_eq!(monitor.look(&liveliness, start + ms(3_600_500)), Some(Finding::Silent(LEASE)));
    }

    #[test]
    fn heartbeats_are_due_when_nothing_else_was_sent() {
        let (liveliness, start) = (PeerLiveliness::default(), Instant::now());
        let monitor = LeaseMonitor::new(LEASE, start);
        assert!(!monitor.is_due(start + ms(249), start) && monitor.is_due(start + ms(250), start));
        assert!(!monitor.is_due(start + ms(400), start + ms(200)));
        assert_eq!(monitor.rest(&liveliness, start + ms(300), start + ms(200)), Some(ms(150)));
        // A long lease has fewer heartbeats.
        let beats = [2_000, 3_000, 5_000, 60_000].map(|lease| LeaseMonitor::new(ms(lease), start).beat);
        assert_eq!(beats, [500, 1_000, 2_500, 30_000].map(|beat| Some(ms(beat))));
        let none = LeaseMonitor::new(Duration::ZERO, start);
        assert!(!none.is_due(start + LEASE * 100, start));
        assert_eq!(none.rest(&liveliness, start, start), None);
        // The peer's lease alone makes the thread check, and a tiny one does not keep it busy.
        liveliness.promised(1);
        assert_eq!(none.rest(&liveliness, start, start), Some(SHORTEST / BEATS));
    }
}
