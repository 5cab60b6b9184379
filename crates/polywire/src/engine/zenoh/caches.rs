//! What other applications published before this node listened, and which samples of theirs wait
//! for that. Their advanced publishers of zenoh-ext keep it in caches, which
//! [`listener`](super::listener) asks.
//!
//! While a cache is asked, live samples of its key wait, so that all samples of a session come in
//! order, and each of them once.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    mem,
    sync::{Arc, Mutex},
};

use zenoh::{
    key_expr::{OwnedKeyExpr, keyexpr},
    pubsub::Subscriber,
    sample::Sample,
    time::{NTP64, TimestampId},
};

use super::super::pipe::lock;

/// What is asked for, and the samples that wait for the answers.
pub(super) struct Caches<S = Sample> {
    /// Bytes that may wait for each key.
    most_bytes: usize,
    /// Sessions and keys that are remembered, and queries that may be under way for a key.
    most: usize,
    /// The keys that the node listens to.
    listened: HashSet<OwnedKeyExpr>,
    asked: HashMap<OwnedKeyExpr, Asked<S>>,
    /// By a topic's key and a session.
    seen: HashMap<(OwnedKeyExpr, TimestampId), Seen>,
}

/// What was passed on of a session under a key.
struct Seen {
    /// The latest time.
    until: NTP64,
    /// A cache was asked, so what is live may have come from there before.
    was_asked: bool,
}

/// A key whose caches are being asked.
struct Asked<S> {
    queries: usize,
    waiting: Vec<Came<S>>,
    bytes: usize,
}

/// A sample that came, or that a cache has kept.
pub(super) struct Came<S> {
    /// The topic's key, the session and the time, if the sample has one.
    at: Option<(OwnedKeyExpr, TimestampId, NTP64)>,
    bytes: usize,
    sample: S,
}

impl From<Sample> for Came<Sample> {
    fn from(sample: Sample) -> Came<Sample> {
        let at = sample.timestamp().map(|at| (sample.key_expr().clone().into(), *at.get_id(), *at.get_time()));
        Came { at, bytes: sample.payload().len() + size_of::<Sample>(), sample }
    }
}

impl<S> Caches<S> {
    pub(super) fn new(most_bytes: usize, most: usize) -> Caches<S> {
        let (listened, asked, seen) = (HashSet::new(), HashMap::new(), HashMap::new());
        Caches { most_bytes, most, listened, asked, seen }
    }

    /// The node listens to a key from now on.
    pub(super) fn listen(&mut self, key: &OwnedKeyExpr) {
        self.listened.insert(key.clone());
    }

    /// The node listens to a key no longer. Who listens again gets everything again.
    pub(super) fn unlisten(&mut self, key: &OwnedKeyExpr) {
        self.listened.remove(key);
        self.asked.remove(key);
        let Caches { listened, seen, .. } = self;
        seen.retain(|(topic, _), _| !key.includes(topic) || listened.iter().any(|other| other.includes(topic)));
    }

    /// The key that is listened to for a topic.
    pub(super) fn listened_for(&self, topic: &keyexpr) -> Option<OwnedKeyExpr> {
        self.listened.get(topic).or_else(|| self.listened.iter().find(|key| key.includes(topic))).cloned()
    }

    /// A query for what came before under a key begins. False if there are too many.
    pub(super) fn begin(&mut self, key: &OwnedKeyExpr) -> bool {
        let none = || Asked { queries: 0, waiting: Vec::new(), bytes: 0 };
        let asked = self.asked.entry(key.clone()).or_insert_with(none);
        let has_room = asked.queries < self.most;
        asked.queries += usize::from(has_room);
        has_room
    }

    /// A live sample came. It waits while a cache is asked, and is passed on otherwise.
    pub(super) fn live(&mut self, key: &OwnedKeyExpr, came: impl Into<Came<S>>, mut pass: impl FnMut(&S)) {
        let most = self.most_bytes;
        let passed = match self.asked.get_mut(key) {
            Some(asked) => asked.keep(came.into(), most),
            None => Some(came.into()),
        };
        if let Some(came) = passed {
            // If there is no room, what waits cannot wait any longer.
            self.release(key, &mut pass);
            if self.note(&came, false) {
                pass(&came.sample);
            }
        }
    }

    /// A cache has answered with a sample.
    pub(super) fn answered(&mut self, key: &OwnedKeyExpr, came: impl Into<Came<S>>) {
        let most = self.most_bytes;
        if self.asked.get_mut(key).is_some_and(|asked| asked.keep(came.into(), most).is_some()) {
            log::debug!("'{key}': more was published before than there is room for");
        }
    }

    /// A query has ended. After the last one of a key, what waited is passed on.
    pub(super) fn end(&mut self, key: &OwnedKeyExpr, pass: impl FnMut(&S)) {
        let Some(asked) = self.asked.get_mut(key) else { return };
        asked.queries -= 1;
        if asked.queries == 0 {
            self.release(key, pass);
            self.asked.remove(key);
        }
    }

    /// Passes on what waits under a key, in order.
    fn release(&mut self, key: &OwnedKeyExpr, mut pass: impl FnMut(&S)) {
        let Some(asked) = self.asked.get_mut(key) else { return };
        let mut waiting = mem::take(&mut asked.waiting);
        asked.bytes = 0;
        // Those without a time came just now.
        waiting.sort_by_key(|came| came.at.as_ref().map_or(NTP64(u64::MAX), |(_, _, time)| *time));
        waiting.iter().filter(|came| self.note(came, true)).for_each(|came| pass(&came.sample));
    }

    /// Remembers a sample. False if it was passed on already. Live samples alone may have any
    /// times.
    fn note(&mut self, came: &Came<S>, was_asked: bool) -> bool {
        let Some((topic, session, time)) = &came.at else { return true };
        let has_room = self.seen.len() < self.most;
        match self.seen.entry((topic.clone(), *session)) {
            Entry::Occupied(mut seen) => {
                let seen = seen.get_mut();
                let is_new = *time > seen.until;
                if !is_new && (was_asked || seen.was_asked) {
                    return false;
                }
                *seen = Seen { until: seen.until.max(*time), was_asked };
            }
            Entry::Vacant(none) if has_room => drop(none.insert(Seen { until: *time, was_asked })),
            Entry::Vacant(_) => {}
        }
        true
    }
}

impl<S> Asked<S> {
    /// Keeps a sample, or gives it back if there is no room for it.
    fn keep(&mut self, came: Came<S>, most_bytes: usize) -> Option<Came<S>> {
        if self.bytes + came.bytes > most_bytes {
            return Some(came);
        }
        self.bytes += came.bytes;
        self.waiting.push(came);
        None
    }
}

/// What listens to a key, until it is dropped.
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
        lock(&self.caches).unlisten(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> OwnedKeyExpr {
        OwnedKeyExpr::new(text).expect("a key expression")
    }

    /// A sample of a session at a time.
    fn came(topic: &str, session: u8, time: u64) -> Came<u64> {
        let session = TimestampId::try_from([session; 16]).expect("not zero");
        Came { at: Some((key(topic), session, NTP64(time))), bytes: 100, sample: time }
    }

    /// Those without a time have numbers from 1000.
    fn without_time(number: u64) -> Came<u64> {
        Came { at: None, bytes: 100, sample: number }
    }

    fn live(caches: &mut Caches<u64>, listened: &str, came: Came<u64>) -> Vec<u64> {
        let mut passed = Vec::new();
        caches.live(&key(listened), came, |sample| passed.push(*sample));
        passed
    }

    fn end(caches: &mut Caches<u64>, listened: &str) -> Vec<u64> {
        let mut passed = Vec::new();
        caches.end(&key(listened), |sample| passed.push(*sample));
        passed
    }

    #[test]
    fn what_was_kept_comes_before_what_is_live_and_each_once() {
        let (mut caches, a) = (Caches::new(10_000, 10), key("a"));
        caches.listen(&a);
        assert!(caches.begin(&a) && caches.begin(&a));
        assert_eq!(live(&mut caches, "a", came("a", 1, 30)), [0; 0]);
        assert_eq!(live(&mut caches, "a", without_time(1000)), [0; 0]);
        assert_eq!(live(&mut caches, "b", came("b", 1, 5)), [5], "nobody asked for it");
        [20, 10, 30].into_iter().for_each(|time| caches.answered(&a, came("a", 1, time)));
        caches.answered(&a, came("a", 2, 15));
        assert_eq!(end(&mut caches, "a"), [0; 0], "another query is under way");
        assert_eq!(end(&mut caches, "a"), [10, 15, 20, 30, 1000]);
        assert_eq!(live(&mut caches, "a", came("a", 1, 30)), [0; 0], "the cache was faster");
        assert_eq!(live(&mut caches, "a", came("a", 1, 40)), [40]);
        assert_eq!(live(&mut caches, "a", came("a", 1, 39)), [39], "a second publisher of the session");
        // The cache of one that has come later, and of one that is known.
        assert!(caches.begin(&a));
        let kept = [(1, 40), (3, 7), (2, 15), (2, 16)];
        kept.into_iter().for_each(|(session, time)| caches.answered(&a, came("a", session, time)));
        assert_eq!(end(&mut caches, "a"), [7, 16]);
        assert_eq!(end(&mut caches, "a"), [0; 0], "nothing was asked");
    }

    #[test]
    fn live_samples_do_not_wait_without_room() {
        let (mut caches, a) = (Caches::new(250, 10), key("a"));
        assert!(caches.begin(&a));
        [10, 20, 30].into_iter().for_each(|time| caches.answered(&a, came("a", 1, time)));
        assert_eq!(live(&mut caches, "a", came("a", 1, 40)), [10, 20, 40]);
        caches.answered(&a, came("a", 1, 30));
        assert_eq!(end(&mut caches, "a"), [0; 0], "it is too late for that one");
    }

    #[test]
    fn who_listens_again_gets_everything_again_unless_another_key_includes_it() {
        let mut caches = Caches::new(1000, 10);
        let ask = |caches: &mut Caches<u64>, listened: &str| {
            caches.listen(&key(listened));
            assert!(caches.begin(&key(listened)));
            caches.answered(&key(listened), came("a/b", 1, 10));
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
        assert_eq!([1, 2, 3].map(|_| caches.begin(&key("b"))), [true, true, false]);
        (1..=5).for_each(|session| assert_eq!(live(&mut caches, "a", came("a", session, 1)), [1]));
        assert_eq!(caches.seen.len(), 2);
    }
}
