//! A queue of items in order of arrival, which also finds the oldest item of each writer. All
//! operations take logarithmic time, however many writers there are.

use std::collections::BTreeMap;

use polywire_core::envelope::Id128;

/// Items of several writers.
#[derive(Debug)]
pub(super) struct Waiting<T> {
    /// The items by writer and number. Numbers increase in order of arrival.
    items: BTreeMap<(Id128, u64), T>,
    /// The writer of each item, by its number.
    writers: BTreeMap<u64, Id128>,
    last: u64,
}

impl<T> Waiting<T> {
    pub(super) fn push(&mut self, writer: Id128, item: T) {
        self.last += 1;
        self.items.insert((writer, self.last), item);
        self.writers.insert(self.last, writer);
    }

    /// Removes and returns the oldest item.
    pub(super) fn pop(&mut self) -> Option<T> {
        let (number, writer) = self.writers.pop_first()?;
        self.items.remove(&(writer, number))
    }

    /// Removes and returns the oldest item of a writer, if `leaves` is true for it.
    pub(super) fn pop_of(&mut self, writer: Id128, leaves: impl FnOnce(&T) -> bool) -> Option<T> {
        let (key, item) = self.items.range((writer, 0)..=(writer, u64::MAX)).next()?;
        let key = *key;
        if !leaves(item) {
            return None;
        }
        self.writers.remove(&key.1);
        self.items.remove(&key)
    }

    /// Removes the items of a writer for which `go` is true, and returns them in order.
    pub(super) fn take_of(&mut self, writer: Id128, go: impl Fn(&T) -> bool) -> Vec<T> {
        let of_writer = (writer, 0)..=(writer, u64::MAX);
        let gone: Vec<_> = self.items.extract_if(of_writer, |_, item| go(item)).collect();
        let gone = gone.into_iter().map(|((_, number), item)| {
            self.writers.remove(&number);
            item
        });
        gone.collect()
    }

    pub(super) fn has_of(&self, writer: Id128) -> bool {
        self.items.range((writer, 0)..=(writer, u64::MAX)).next().is_some()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Waiting { items: BTreeMap::new(), writers: BTreeMap::new(), last: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Id128 = Id128([1; 16]);
    const B: Id128 = Id128([2; 16]);

    #[test]
    fn items_leave_in_order_overall_and_by_writer() {
        let mut waiting = Waiting::default();
        for (writer, item) in [(B, 1), (A, 2), (B, 3), (A, 4), (B, 5), (B, 6)] {
            waiting.push(writer, item);
        }
        assert_eq!((waiting.pop(), waiting.pop_of(A, |item| *item == 4)), (Some(1), None));
        assert_eq!((waiting.pop_of(A, |_| true), waiting.has_of(A)), (Some(2), true));
        assert_eq!(waiting.take_of(B, |item| item % 2 == 1), [3, 5]);
        assert_eq!((waiting.pop(), waiting.has_of(A), waiting.is_empty()), (Some(4), false, false));
        assert_eq!((waiting.pop(), waiting.pop(), waiting.is_empty()), (Some(6), None, true));
        assert_eq!(waiting.pop_of(B, |_| true), None);
    }
}
