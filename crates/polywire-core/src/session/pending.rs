//! Two containers of a session: a queue without duplicates, and a set of keys with deadlines.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use core::time::Duration;

/// Keys in the order in which they were pushed, each at most once.
#[derive(Debug)]
pub(super) struct Pending<K> {
    order: VecDeque<K>,
    present: BTreeSet<K>,
}

impl<K: Ord + Copy> Pending<K> {
    pub(super) fn push(&mut self, key: K) {
        if self.present.insert(key) {
            self.order.push_back(key);
        }
    }

    pub(super) fn pop(&mut self) -> Option<K> {
        let key = self.order.pop_front()?;
        self.present.remove(&key);
        Some(key)
    }

    /// True if the key waited.
    pub(super) fn remove(&mut self, key: K) -> bool {
        let waited = self.present.remove(&key);
        if waited {
            self.order.retain(|other| *other != key);
        }
        waited
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&K) -> bool) {
        self.order.retain(&keep);
        self.present.retain(keep);
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
    }
}

impl<K> Default for Pending<K> {
    fn default() -> Self {
        Pending { order: VecDeque::new(), present: BTreeSet::new() }
    }
}

/// At most one time a key.
#[derive(Debug)]
pub(super) struct Timers<K> {
    by_key: BTreeMap<K, Duration>,
    by_time: BTreeSet<(Duration, K)>,
}

impl<K: Ord + Copy> Timers<K> {
    /// Replaces the key's time.
    pub(super) fn set(&mut self, key: K, at: Duration) {
        self.clear(key);
        self.by_key.insert(key, at);
        self.by_time.insert((at, key));
    }

    pub(super) fn clear(&mut self, key: K) {
        if let Some(at) = self.by_key.remove(&key) {
            self.by_time.remove(&(at, key));
        }
    }

    pub(super) fn next(&self) -> Option<Duration> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Takes the earliest key whose time has come.
    pub(super) fn pop(&mut self, now: Duration) -> Option<K> {
        let (_, key) = self.by_time.first().copied().filter(|(at, _)| *at <= now)?;
        self.clear(key);
        Some(key)
    }
}

impl<K> Default for Timers<K> {
    fn default() -> Self {
        Timers { by_key: BTreeMap::new(), by_time: BTreeSet::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_waits_once_and_in_its_first_place() {
        let mut pending = Pending::default();
        [3, 1, 3, 2].into_iter().for_each(|key| pending.push(key));
        assert!(pending.remove(1) && !pending.remove(1));
        assert_eq!((pending.len(), pending.pop(), pending.pop(), pending.pop()), (2, Some(3), Some(2), None));
        [1, 2, 3].into_iter().for_each(|key| pending.push(key));
        pending.retain(|key| *key != 2);
        pending.push(1);
        assert_eq!((pending.pop(), pending.pop(), pending.pop()), (Some(1), Some(3), None));
    }

    #[test]
    fn times_are_replaced_and_come_in_order() {
        let ms = Duration::from_millis;
        let mut timers = Timers::default();
        timers.set('a', ms(5));
        timers.set('b', ms(3));
        timers.set('a', ms(1));
        timers.set('c', ms(2));
        timers.clear('c');
        assert_eq!((timers.next(), timers.pop(ms(0))), (Some(ms(1)), None));
        assert_eq!((timers.pop(ms(9)), timers.pop(ms(9)), timers.pop(ms(9))), (Some('a'), Some('b'), None));
    }
}
