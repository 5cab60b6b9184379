//! Counts the peers that a port rejected, and decides which rejections are reported to the node:
//! often enough to be noticed, and a bounded number however many strangers connect or are named.

use std::collections::BTreeMap;

use super::{Disconnect, Event};

/// The numbers of rejections by peer and reason.
pub(super) struct Rejections {
    counts: BTreeMap<(String, String), u64>,
    /// Rejections for which `counts` has no room.
    others: u64,
    most: usize,
}

impl Rejections {
    /// Creates a table of at most `most` pairs of a peer and a reason. Further pairs are counted
    /// together.
    pub(super) fn new(most: usize) -> Rejections {
        Rejections { counts: BTreeMap::new(), others: 0, most }
    }

    /// Counts a rejection of `who`, which is the peer's address without the parts that change from
    /// call to call. Returns the event to report for the peer's 1st, 2nd, 4th, 8th, ... rejection
    /// for the same reason.
    pub(super) fn count(&mut self, who: &str, address: String, reason: Disconnect) -> Option<Event> {
        let key = (who.to_owned(), reason.to_string());
        let has_room = self.counts.len() < self.most || self.counts.contains_key(&key);
        let total = if has_room { self.counts.entry(key).or_default() } else { &mut self.others };
        *total += 1;
        let total = *total;
        total.is_power_of_two().then_some(Event::Rejected { address, reason, total })
    }

    /// Forgets the rejections of `who`, to which there is a link now: its next rejection is
    /// reported.
    pub(super) fn forget(&mut self, who: &str) {
        self.counts.retain(|(counted, _), _| counted != who);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the totals that are reported.
    fn told(rejections: &mut Rejections, who: &str, reason: &Disconnect, times: usize) -> Vec<u64> {
        let total = |event| match event {
            Event::Rejected { total, .. } => total,
            other => panic!("{other:?}"),
        };
        (0..times).filter_map(|_| rejections.count(who, who.into(), reason.clone()).map(total)).collect()
    }

    #[test]
    fn each_reason_is_told_less_and_less_often() {
        let mut rejections = Rejections::new(9);
        let lost = Disconnect::Lost("refused".into());
        assert_eq!(told(&mut rejections, "a", &Disconnect::Silent, 1000), [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]);
        assert_eq!(told(&mut rejections, "a", &lost, 3), [1, 2]);
        assert_eq!(told(&mut rejections, "b", &lost, 3), [1, 2]);
        rejections.forget("a");
        assert_eq!(told(&mut rejections, "a", &Disconnect::Silent, 1), [1]);
        assert_eq!(told(&mut rejections, "b", &lost, 1), [4], "it had no link");
    }

    #[test]
    fn strangers_beyond_the_room_are_counted_together() {
        let mut rejections = Rejections::new(2);
        let all = (0..1000).map(|number| format!("10.0.0.1:{number}"));
        let told: Vec<u64> = all.flat_map(|who| told(&mut rejections, &who, &Disconnect::Silent, 1)).collect();
        assert_eq!(told, [1, 1, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512]);
        assert_eq!(rejections.counts.len(), 2);
    }
}
