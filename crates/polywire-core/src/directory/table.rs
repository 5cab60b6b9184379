//! The descriptions of all nodes put together, and the changes between them.

use alloc::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    vec::Vec,
};

use super::{Event, NodeData, NodeKey, PublisherData, Snapshot, SubscriberData};
use crate::envelope::Id128;

/// Bounds of a directory. Nodes may describe themselves as they like; beyond these bounds their
/// descriptions are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Descriptions. A node that is seen over several ports counts once for each.
    pub reports: usize,
    /// Bytes of one description ([`NodeData::size`]).
    pub report_bytes: usize,
    /// Bytes of all descriptions, and bytes of the descriptions in the events that wait.
    pub bytes: usize,
    /// Events that wait. The oldest are dropped to make room.
    pub events: usize,
}

impl Default for Limits {
    /// 4096 descriptions, 4 MiB each, 64 MiB in all, and 16384 events.
    fn default() -> Self {
        Limits { reports: 4096, report_bytes: 4 << 20, bytes: 64 << 20, events: 1 << 14 }
    }
}

/// A description is refused.
///
/// ```
/// use polywire_core::{directory::{Directory, Exceeded, Limits, NodeData}, envelope::Id128};
/// let mut directory = Directory::new(Limits { report_bytes: 10_000, ..Limits::default() });
/// let liar = NodeData { name: "x".repeat(10_000), ..NodeData::default() };
/// let Err(Exceeded::Report { bytes, limit }) = directory.handle_report(Id128([1; 16]), true, liar) else { panic!() };
/// assert!(bytes > limit && directory.refused() == 1);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Exceeded {
    /// There are as many descriptions as there may be.
    #[error("there are {limit} descriptions of nodes already")]
    Reports {
        /// [`Limits::reports`].
        limit: usize,
    },
    /// The description is too large.
    #[error("the description of a node takes {bytes} bytes, more than {limit}")]
    Report {
        /// Its size.
        bytes: usize,
        /// [`Limits::report_bytes`].
        limit: usize,
    },
    /// All descriptions together are too large.
    #[error("with {bytes} bytes more, the descriptions of nodes would take more than {limit} bytes")]
    Bytes {
        /// The size of the new one.
        bytes: usize,
        /// [`Limits::bytes`].
        limit: usize,
    },
}

/// Which nodes are there; [the module](super) has an example.
#[derive(Debug, Default)]
pub struct Directory {
    limits: Limits,
    /// By the writer that brought them.
    reports: BTreeMap<Id128, Report>,
    bytes: usize,
    nodes: Arc<BTreeMap<NodeKey, Arc<NodeData>>>,
    /// The events that wait, and the bytes of each.
    events: VecDeque<(Event, usize)>,
    event_bytes: usize,
    missed: u64,
    refused: u64,
}

#[derive(Debug)]
struct Report {
    /// The link that brought it leads to the node itself.
    direct: bool,
    bytes: usize,
    node: Arc<NodeData>,
}

impl Directory {
    /// An empty directory.
    pub fn new(limits: Limits) -> Directory {
        Directory { limits, ..Directory::default() }
    }

    /// Takes a description, in place of the last one of the same writer. `direct` says that it came
    /// over a link whose peer has the node's id: such a description ranks above one that somebody
    /// else passed on, so that no other node can replace it. Fails if it exceeds a limit; the
    /// writer's last description stays then.
    pub fn handle_report(&mut self, writer: Id128, direct: bool, node: NodeData) -> Result<(), Exceeded> {
        let bytes = node.size();
        self.admit(writer, bytes).inspect_err(|_| self.refused += 1)?;
        let key = node.key();
        let before = self.reports.insert(writer, Report { direct, bytes, node: Arc::new(node) });
        self.bytes = self.bytes + bytes - before.as_ref().map_or(0, |before| before.bytes);
        if let Some(before) = before.filter(|before| before.node.key() != key) {
            self.refresh(before.node.key());
        }
        self.refresh(key);
        Ok(())
    }

    /// The writer has ended, and its description with it.
    pub fn handle_end(&mut self, writer: Id128) {
        if let Some(gone) = self.reports.remove(&writer) {
            self.bytes -= gone.bytes;
            self.refresh(gone.node.key());
        }
    }

    /// The next change.
    pub fn poll_event(&mut self) -> Option<Event> {
        match core::mem::take(&mut self.missed) {
            0 => self.take_oldest(),
            count => Some(Event::Missed { count }),
        }
    }

    /// The present state.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { nodes: self.nodes.clone() }
    }

    /// Descriptions that were refused.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    fn admit(&self, writer: Id128, bytes: usize) -> Result<(), Exceeded> {
        let limits = &self.limits;
        let before = self.reports.get(&writer).map(|report| report.bytes);
        if before.is_none() && self.reports.len() >= limits.reports {
            return Err(Exceeded::Reports { limit: limits.reports });
        }
        if bytes > limits.report_bytes {
            return Err(Exceeded::Report { bytes, limit: limits.report_bytes });
        }
        if self.bytes - before.unwrap_or(0) + bytes > limits.bytes {
            return Err(Exceeded::Bytes { bytes, limit: limits.bytes });
        }
        Ok(())
    }

    /// Chooses among the descriptions of one node, and tells what has changed.
    fn refresh(&mut self, key: NodeKey) {
        let of_node = self.reports.values().filter(|report| report.node.key() == key);
        let best = of_node.max_by_key(|report| (report.direct, report.node.revision)).map(|best| best.node.clone());
        let before = self.nodes.get(&key).cloned();
        if before == best {
            return;
        }
        let nodes = Arc::make_mut(&mut self.nodes);
        match &best {
            Some(node) => nodes.insert(key, node.clone()),
            None => nodes.remove(&key),
        };
        if let (None, Some(node)) = (&before, &best) {
            self.tell(Event::NodeFound(node.clone()));
        }
        let nothing = NodeData::default();
        let (old, new) = (before.as_deref().unwrap_or(&nothing), best.as_deref().unwrap_or(&nothing));
        self.tell_publishers(key, &old.publishers, &new.publishers);
        self.tell_subscribers(key, &old.subscribers, &new.subscribers);
        if let (Some(node), None) = (&before, &best) {
            self.tell(Event::NodeLost(node.clone()));
        }
    }

    fn tell_publishers(&mut self, node: NodeKey, old: &[PublisherData], new: &[PublisherData]) {
        let ids = |all: &[PublisherData]| all.iter().map(|publisher| publisher.id).collect::<BTreeSet<Id128>>();
        let (before, now) = (ids(old), ids(new));
        for publisher in old.iter().filter(|publisher| !now.contains(&publisher.id)).cloned() {
            self.tell(Event::PublisherLost { node, publisher });
        }
        for publisher in new.iter().filter(|publisher| !before.contains(&publisher.id)).cloned() {
            self.tell(Event::PublisherFound { node, publisher });
        }
    }

    fn tell_subscribers(&mut self, node: NodeKey, old: &[SubscriberData], new: &[SubscriberData]) {
        let by_id = |all: &[SubscriberData]| -> BTreeMap<Id128, SubscriberData> {
            all.iter().map(|subscriber| (subscriber.id, subscriber.clone())).collect()
        };
        let (before, now) = (by_id(old), by_id(new));
        let nothing = SubscriberData::default();
        for (id, subscriber) in &before {
            self.tell_matches(*id, subscriber, now.get(id).unwrap_or(&nothing), false);
            if !now.contains_key(id) {
                self.tell(Event::SubscriberLost { node, subscriber: subscriber.clone() });
            }
        }
        for (id, subscriber) in &now {
            if !before.contains_key(id) {
                self.tell(Event::SubscriberFound { node, subscriber: subscriber.clone() });
            }
            self.tell_matches(*id, before.get(id).unwrap_or(&nothing), subscriber, true);
        }
    }

    /// Tells the matches of one subscriber that have begun, or those that have ended.
    fn tell_matches(&mut self, reader: Id128, old: &SubscriberData, new: &SubscriberData, begun: bool) {
        let set = |ids: &[Id128]| ids.iter().copied().collect::<BTreeSet<Id128>>();
        let (before, now) = (set(&old.reads), set(&new.reads));
        if !begun {
            before.difference(&now).for_each(|writer| self.tell(Event::Unmatched { writer: *writer, reader }));
            return;
        }
        now.difference(&before).for_each(|writer| self.tell(Event::Matched { writer: *writer, reader }));
        let known: BTreeSet<(Id128, &str)> = old.refuses.iter().map(|one| (one.writer, one.reason.as_str())).collect();
        let fresh: Vec<_> = new.refuses.iter().filter(|one| !known.contains(&(one.writer, &*one.reason))).collect();
        for refusal in fresh {
            self.tell(Event::Incompatible { writer: refusal.writer, reader, reason: refusal.reason.clone() });
        }
    }

    fn tell(&mut self, event: Event) {
        let bytes = event.size();
        let Limits { events, bytes: limit, .. } = self.limits;
        while self.events.len() >= events || self.event_bytes.saturating_add(bytes) > limit {
            if self.take_oldest().is_none() {
                break;
            }
            self.missed += 1;
        }
        self.event_bytes += bytes;
        self.events.push_back((event, bytes));
    }

    fn take_oldest(&mut self) -> Option<Event> {
        let (event, bytes) = self.events.pop_front()?;
        self.event_bytes -= bytes;
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use alloc::{string::ToString, vec};

    use super::{super::RefusalData, *};

    fn id(number: u8) -> Id128 {
        Id128([number; 16])
    }

    fn node(number: u8, revision: u64) -> NodeData {
        NodeData { id: id(number), revision, name: number.to_string(), ..NodeData::default() }
    }

    fn publisher(number: u8) -> PublisherData {
        PublisherData { id: id(number), topic: "t".into(), ..PublisherData::default() }
    }

    fn events(directory: &mut Directory) -> Vec<Event> {
        core::iter::from_fn(|| directory.poll_event()).collect()
    }

    #[test]
    fn what_changes_is_told_once() {
        let mut directory = Directory::new(Limits::default());
        let subscriber = SubscriberData { id: id(5), topic: "t".into(), ..SubscriberData::default() };
        let first = NodeData { publishers: vec![publisher(3)], subscribers: vec![subscriber.clone()], ..node(1, 1) };
        directory.handle_report(id(9), true, first.clone()).expect("admitted");
        let told = events(&mut directory);
        assert!(matches!(told[..], [Event::NodeFound(_), Event::PublisherFound { .. }, Event::SubscriberFound { .. }]));
        directory.handle_report(id(9), true, first.clone()).expect("admitted");
        assert_eq!(events(&mut directory), [], "nothing has changed");

        let refuses = vec![RefusalData { writer: id(4), reason: "no".into() }];
        let reading = SubscriberData { reads: vec![id(3)], refuses, ..subscriber };
        let second = NodeData { subscribers: vec![reading], revision: 2, ..first.clone() };
        directory.handle_report(id(9), true, second).expect("admitted");
        let expected = [
            Event::Matched { writer: id(3), reader: id(5) },
            Event::Incompatible { writer: id(4), reader: id(5), reason: "no".into() },
        ];
        assert_eq!(events(&mut directory), expected);

        directory.handle_end(id(9));
        let told = events(&mut directory);
        assert!(matches!(
            told[..],
            [Event::PublisherLost { .. }, Event::Unmatched { .. }, Event::SubscriberLost { .. }, Event::NodeLost(_)]
        ));
        directory.handle_end(id(9));
        assert_eq!(events(&mut directory), []);
    }

    #[test]
    fn a_node_that_is_seen_twice_is_one_until_both_are_gone() {
        let mut directory = Directory::new(Limits::default());
        directory.handle_report(id(8), false, node(1, 2)).expect("admitted");
        directory.handle_report(id(9), false, node(1, 1)).expect("admitted");
        assert_eq!(directory.snapshot().nodes().map(|node| node.revision).collect::<Vec<_>>(), [2]);
        directory.handle_end(id(8));
        assert_eq!(directory.snapshot().nodes().map(|node| node.revision).collect::<Vec<_>>(), [1]);
        directory.handle_end(id(9));
        assert_eq!(directory.snapshot().nodes().count(), 0);
    }

    #[test]
    fn nobody_speaks_for_a_node_that_speaks_itself() {
        let mut directory = Directory::new(Limits::default());
        directory.handle_report(id(8), true, node(1, 1)).expect("admitted");
        let lie = NodeData { name: "liar".into(), ..node(1, u64::MAX) };
        directory.handle_report(id(9), false, lie.clone()).expect("admitted");
        assert!(directory.snapshot().node("liar").is_none());
        directory.handle_end(id(8));
        assert!(directory.snapshot().node("liar").is_some(), "passed on by a relay, as far as anybody knows");
        directory.handle_report(id(9), false, NodeData { incarnation: 7, ..lie }).expect("admitted");
        assert_eq!(directory.snapshot().nodes().count(), 1, "a writer describes one node");
    }

    #[test]
    fn limits_hold_and_what_is_there_stays() {
        let limits = Limits { reports: 2, report_bytes: 2000, bytes: 1500, events: 3 };
        let mut directory = Directory::new(limits);
        directory.handle_report(id(1), true, node(1, 1)).expect("admitted");
        directory.handle_report(id(2), true, node(2, 1)).expect("admitted");
        assert_eq!(directory.handle_report(id(3), true, node(3, 1)), Err(Exceeded::Reports { limit: 2 }));
        let large = |bytes: usize| NodeData { name: "x".repeat(bytes), ..node(1, 2) };
        assert!(matches!(directory.handle_report(id(1), true, large(2000)), Err(Exceeded::Report { .. })));
        assert!(matches!(directory.handle_report(id(1), true, large(1400)), Err(Exceeded::Bytes { .. })));
        assert_eq!((directory.refused(), directory.snapshot().nodes().count()), (3, 2));
        assert!(directory.snapshot().node("1").is_some());
        directory.handle_end(id(1));
        directory.handle_end(id(2));
        assert_eq!(directory.bytes, 0);
        assert_eq!(directory.poll_event(), Some(Event::Missed { count: 1 }));
        assert_eq!(events(&mut directory).len(), 3);
    }

    #[test]
    fn events_that_nobody_takes_hold_few_bytes() {
        let mut directory = Directory::new(Limits { bytes: 100_000, ..Limits::default() });
        for number in 0..50 {
            let large = PublisherData { wire: "x".repeat(10_000), ..publisher(number) };
            let report = NodeData { publishers: vec![large], ..node(1, number.into()) };
            directory.handle_report(id(9), true, report).expect("admitted");
            assert!(directory.event_bytes <= 100_000);
        }
        let Some(Event::Missed { count }) = directory.poll_event() else { panic!("none is missed") };
        assert_eq!(count + events(&mut directory).len() as u64, 100, "a node, its publishers, and their ends");
        assert_eq!(directory.event_bytes, 0);
    }
}
