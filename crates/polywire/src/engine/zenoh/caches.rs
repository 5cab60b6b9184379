//! Samples that other applications published before this node listened. The advanced publishers of
//! zenoh-ext keep them in caches, which [`listener`](super::listener) queries.
//!
//! While a cache is queried, live samples of its topic wait here, so that all samples of a session
//! are passed on in order, and each of them once.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    sync::Arc,
};

use parking_lot::Mutex;
use zenoh::{
    key_expr::{OwnedKeyExpr, keyexpr},
    pubsub::Subscriber,
    sample::Sample,
    time::{NTP64, TimestampId},
};

/// The queries of caches that are under way, and the samples that wait until they end.
pub(super) struct Caches<S = Sample> {
    /// The most bytes of samples that may wait.
    most_bytes: usize,
    /// The most pairs of key and session in `seen`, and the most queries that may be under way.
    most: usize,
    /// The keys that the node listens to.
    listened: HashSet<OwnedKeyExpr>,
    /// The keys whose caches are queried, and the number of queries for each.
    asked: HashMap<OwnedKeyExpr, usize>,
    /// The samples that wait, by the topic's key.
    waiting: HashMap<OwnedKeyExpr, Vec<ReceivedSample<S>>>,
    bytes: usize,
    /// What was passed on, by the topic's key and the session.
    seen: HashMap<(OwnedKeyExpr, TimestampId), Seen>,
}

/// The samples of a session under a key that were passed on.
struct Seen {
    /// The latest timestamp among them.
    until: NTP64,
    /// Whether the last of them had waited for a query of caches. The next live sample may then
    /// have arrived from a cache already.
    was_asked: bool,
}

/// A sample that has arrived live, or from a cache.
pub(super) struct ReceivedSample<S> {
    topic: OwnedKeyExpr,
    /// The session and the time of the sample's timestamp, if it has one.
    at: Option<(TimestampId, NTP64)>,
    bytes: usize,
    sample: S,
}

impl From<Sample> for ReceivedSample<Sample> {
    fn from(sample: Sample) -> ReceivedSample<Sample> {
        let topic = sample.key_expr().clone().into();
        let at = sample.timestamp().map(|at| (*at.get_id(), *at.get_time()));
        ReceivedSample { topic, at, bytes: sample.payload().len() + size_of::<Sample>(), sample }
    }
}

impl<S> Caches<S> {
    pub(super) fn new(most_bytes: usize, most: usize) -> Caches<S> {
        let (listened, asked, waiting, seen) = (HashSet::new(), HashMap::new(), HashMap::new(), HashMap::new());
        Caches { most_bytes, most, listened, asked, waiting, bytes: 0, seen }
    }

    /// Notes that the node listens to a key from now on.
    pub(super) fn listen(&mut self, key: &OwnedKeyExpr) {
        self.listened.insert(key.clone());
    }

    /// Notes that the node no longer listens to a key. If it listens to the key again, it receives
    /// everything in the caches again.
    pub(super) fn unlisten(&mut self, key: &OwnedKeyExpr) {
        self.listened.remove(key);
        let Caches { listened, seen, .. } = self;
        seen.retain(|(topic, _), _| !key.includes(topic) || listened.iter().any(|other| other.includes(topic)));
    }

    /// Returns the key that the node listens to and that includes a topic.
    pub(super) fn listened_for(&self, topic: &keyexpr) -> Option<OwnedKeyExpr> {
        self.listened.get(topic).or_else(|| self.listened.iter().find(|key| key.includes(topic))).cloned()
    }

    /// Notes that a query of the caches under a key begins. Returns false if there are too many.
    pub(super) fn begin(&mut self, key: &OwnedKeyExpr) -> bool {
        let has_room = self.asked.values().sum::<usize>() < self.most;
        if has_room {
            *self.asked.entry(key.clone()).or_default() += 1;
        }
        has_room
    }

    /// Whether a query of the caches of a topic is under way.
    fn is_asked(&self, topic: &keyexpr) -> bool {
        self.asked.contains_key(topic) || self.asked.keys().any(|key| key.is_wild() && key.includes(topic))
    }

    /// Handles a live sample: it waits while a cache of its topic is queried, or else is passed on.
    pub(super) fn live(&mut self, received: impl Into<ReceivedSample<S>>, mut pass: impl FnMut(&S)) {
        let received = received.into();
        if self.is_asked(&received.topic) && self.has_room(&received) {
            return self.keep(received);
        }
        // If there is no room, the samples that wait are passed on now.
        self.release(&received.topic, &mut pass);
        if self.note(&received, false) {
            pass(&received.sample);
        }
    }

    /// Handles a sample with which a cache has answered. It waits until the query ends.
    pub(super) fn answered(&mut self, received: impl Into<ReceivedSample<S>>) {
        let received = received.into();
        match self.has_room(&received) {
            true => self.keep(received),
            false => log::debug!("'{}': more was published before than there is room for", received.topic),
        }
    }

    /// Notes that a query for a key has ended. Passes on the samples that wait for no other query.
    pub(super) fn end(&mut self, key: &OwnedKeyExpr, mut pass: impl FnMut(&S)) {
        let Some(queries) = self.asked.get_mut(key) else { return };
        *queries -= 1;
        if *queries > 0 {
            return;
        }
        self.asked.remove(key);
        let topics = self.waiting.keys().filter(|topic| key.includes(topic) && !self.is_asked(topic));
        let topics: Vec<OwnedKeyExpr> = topics.cloned().collect();
        topics.iter().for_each(|topic| self.release(topic, &mut pass));
    }

    fn has_room(&self, received: &ReceivedSample<S>) -> bool {
        self.bytes + received.bytes <= self.most_bytes
    }

    fn keep(&mut self, received: ReceivedSample<S>) {
        self.bytes += received.bytes;
        self.waiting.entry(received.topic.clone()).or_default().push(received);
    }

    /// Passes on the samples that wait on a topic, in order.
    fn release(&mut self, topic: &OwnedKeyExpr, mut pass: impl FnMut(&S)) {
        let Some(mut waiting) = self.waiting.remove(topic) else { return };
        self.bytes -= waiting.iter().map(|received| received.bytes).sum::<usize>();
        // Samples without a timestamp are live, so they come last.
        waiting.sort_by_key(|received| received.at.map_or(NTP64(u64::MAX), |(_, time)| time));
        waiting.iter().filter(|received| self.note(received, true)).for_each(|received| pass(&received.sample));
    }

    /// Remembers a sample. Returns false if it was passed on already. If caches are not queried,
    /// live samples may have timestamps in any order.
    fn note(&mut self, received: &ReceivedSample<S>, was_asked: bool) -> bool {
        let Some((session, time)) = received.at else { return true };
        let has_room = self.seen.len() < self.most;
        match self.seen.entry((received.topic.clone(), session)) {
            Entry::Occupied(mut seen) => {
                let seen = seen.get_mut();
                let is_new = time > seen.until;
                if !is_new && (was_asked || seen.was_asked) {
                    return false;
                }
                *seen = Seen { until: seen.until.max(time), was_asked };
            }
            Entry::Vacant(none) if has_room => drop(none.insert(Seen { until: time, was_asked })),
            Entry::Vacant(_) => {}
        }
        true
    }
}

/// The subscriber of a key. Dropping it ends listening.
pub(super) struct Listener {
    caches: Arc<Mutex<Caches>>,
    key: OwnedKeyExpr,
    _subscriber: Subscriber<()>,
}

impl Listener {
    pub(super) fn new(caches: &Arc<Mutex<Caches>>, key: &OwnedKeyExpr, subscriber: Subscriber<()>) -> Listener {
        Listener { caches: caches.clone(), key: key.clone(), _subscriber: subscriber }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.caches.lock().unlisten(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> OwnedKeyExpr {
        OwnedKeyExpr::new(text).expect("a key expression")
    }

    /// A sample of a session at a time.
    fn received(topic: &str, session: u8, time: u64) -> ReceivedSample<u64> {
        let session = TimestampId::try_from([session; 16]).expect("not zero");
        ReceivedSample { topic: key(topic), at: Some((session, NTP64(time))), bytes: 100, sample: time }
    }

    fn live(caches: &mut Caches<u64>, received: ReceivedSample<u64>) -> Vec<u64> {
        let mut passed = Vec::new();
        caches.live(received, |sample| passed.push(*sample));
        passed
    }

    fn end(caches: &mut Caches<u64>, asked: &str) -> Vec<u64> {
        let mut passed = Vec::new();
        caches.end(&key(asked), |sample| passed.push(*sample));
        passed
    }

    #[test]
    fn what_was_kept_comes_before_what_is_live_and_each_once() {
        let (mut caches, a) = (Caches::new(10_000, 10), key("a"));
        assert!(caches.begin(&a) && caches.begin(&a));
        assert_eq!(live(&mut caches, received("a", 1, 30)), [0; 0]);
        assert_eq!(live(&mut caches, ReceivedSample { at: None, ..received("a", 1, 1000) }), [0; 0], "without a time");
        assert_eq!(live(&mut caches, received("b", 1, 5)), [5], "nobody asked for it");
        [20, 10, 30].into_iter().for_each(|time| caches.answered(received("a", 1, time)));
        caches.answered(received("a", 2, 15));
        assert_eq!(end(&mut caches, "a"), [0; 0], "another query is under way");
        assert_eq!(end(&mut caches, "a"), [10, 15, 20, 30, 1000]);
        assert_eq!(live(&mut caches, received("a", 1, 30)), [0; 0], "the cache was faster");
        assert_eq!(live(&mut caches, received("a", 1, 40)), [40]);
        assert_eq!(live(&mut caches, received("a", 1, 39)), [39], "a second publisher of the session");
        // The caches of a session that has appeared later, and of sessions that are known.
        assert!(caches.begin(&a));
        let kept = [(1, 40), (3, 7), (2, 15), (2, 16)];
        kept.into_iter().for_each(|(session, time)| caches.answered(received("a", session, time)));
        assert_eq!(end(&mut caches, "a"), [7, 16]);
        assert_eq!((end(&mut caches, "a"), caches.bytes), (vec![], 0), "nothing was asked");
    }

    #[test]
    fn samples_wait_for_all_queries_that_include_their_topic() {
        let mut caches = Caches::new(10_000, 10);
        assert!(caches.begin(&key("a/b")) && caches.begin(&key("a/*")));
        assert_eq!(live(&mut caches, received("a/b", 1, 20)), [0; 0]);
        assert_eq!(live(&mut caches, received("a/c", 1, 30)), [0; 0]);
        assert_eq!(end(&mut caches, "a/b"), [0; 0], "the pattern is asked for");
        caches.answered(received("a/b", 1, 10));
        let mut passed = end(&mut caches, "a/*");
        passed.sort_unstable();
        assert_eq!((passed, caches.bytes), (vec![10, 20, 30], 0));
    }

    #[test]
    fn live_samples_do_not_wait_without_room() {
        let (mut caches, a) = (Caches::new(250, 10), key("a"));
        assert!(caches.begin(&a));
        [10, 20, 30].into_iter().for_each(|time| caches.answered(received("a", 1, time)));
        assert_eq!(live(&mut caches, received("a", 1, 40)), [10, 20, 40]);
        caches.answered(received("a", 1, 30));
        assert_eq!(end(&mut caches, "a"), [0; 0], "it is too late for that one");
    }

    #[test]
    fn who_listens_again_gets_everything_again_unless_another_key_includes_it() {
        let mut caches = Caches::new(1000, 10);
        let ask = |caches: &mut Caches<u64>, listened: &str| {
            caches.listen(&key(listened));
            assert!(caches.begin(&key(listened)));
            caches.answered(received("a/b", 1, 10));
            end(caches, listened)
        };
        assert_eq!(ask(&mut caches, "a/b"), [10]);
        assert_eq!(ask(&mut caches, "a/**"), [0; 0]);
        caches.unlisten(&key("a/b"));
        assert_eq!(caches.listened_for(&key("a/b")), Some(key("a/**")));
        assert_eq!(ask(&mut caches, "a/**"), [0; 0]);
        caches.unlisten(&key("a/**"));
        assert_eq!(caches.listened_for(&key("a/b")), None);
        assert_eq!(ask(&mut caches, "a/b"), [10]);
    }

    #[test]
    fn sessions_and_queries_are_bounded() {
        let mut caches = Caches::new(1000, 2);
        assert_eq!(["b", "b", "c"].map(|asked| caches.begin(&key(asked))), [true, true, false]);
        (1..=5).for_each(|session| assert_eq!(live(&mut caches, received("a", session, 1)), [1]));
        assert_eq!(caches.seen.len(), 2);
    }
}
