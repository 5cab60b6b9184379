//! Which writers have shown no sign of life for longer than their leases allow.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};
use core::time::Duration;

use crate::envelope::Id128;

/// Watches the leases of the writers that a subscriber reads, or of one publisher. Times are
/// durations since any one moment.
///
/// ```
/// use core::time::Duration;
/// use polywire_core::{envelope::Id128, qos::Leases};
///
/// let ms = Duration::from_millis;
/// let writer = Id128([1; 16]);
/// let mut leases = Leases::default();
/// assert!(leases.heard(writer, ms(100), ms(0)), "it has come to life");
/// assert!(!leases.heard(writer, ms(100), ms(50)), "it was alive");
/// assert_eq!((leases.lapsed(ms(149)), leases.next()), (vec![], Some(ms(150))));
/// assert_eq!((leases.lapsed(ms(150)), leases.next()), (vec![writer], None));
/// assert_eq!((leases.alive(), leases.not_alive()), (0, 1));
/// assert!(leases.heard(writer, ms(100), ms(200)), "it is back");
/// assert!(leases.lapse(writer) && !leases.lapse(writer), "somebody else has found that it is not alive");
/// leases.heard(writer, Duration::MAX, ms(300));
/// assert_eq!((leases.next(), leases.alive()), (None, 1), "a lease without end");
/// leases.left(writer);
/// assert_eq!((leases.alive(), leases.not_alive()), (0, 0));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Leases {
    /// When each lease lapses; `None` if it has.
    writers: BTreeMap<Id128, Option<Duration>>,
    order: BTreeSet<(Duration, Id128)>,
}

impl Leases {
    /// The writer has shown that it is alive. True if it was not alive before, or unknown.
    pub fn heard(&mut self, writer: Id128, lease: Duration, now: Duration) -> bool {
        let due = now.saturating_add(lease);
        let before = self.writers.insert(writer, Some(due)).flatten();
        if let Some(before) = before {
            self.order.remove(&(before, writer));
        }
        self.order.insert((due, writer));
        before.is_none()
    }

    /// The writer has gone in good order, or with its link. True if it was alive.
    pub fn left(&mut self, writer: Id128) -> bool {
        let due = self.writers.remove(&writer).flatten();
        due.is_some_and(|due| self.order.remove(&(due, writer)))
    }

    /// The writers whose leases have lapsed since the last call. They count as not alive until they
    /// are heard again.
    pub fn lapsed(&mut self, now: Duration) -> Vec<Id128> {
        let mut lapsed = Vec::new();
        while let Some((due, writer)) = self.order.first().copied().filter(|(due, _)| *due <= now) {
            self.order.remove(&(due, writer));
            self.writers.insert(writer, None);
            lapsed.push(writer);
        }
        lapsed
    }

    /// The writer is not alive, as was found elsewhere. True if it was alive.
    pub fn lapse(&mut self, writer: Id128) -> bool {
        let due = self.writers.get_mut(&writer).and_then(Option::take);
        due.is_some_and(|due| self.order.remove(&(due, writer)))
    }

    /// When the next lease lapses, if nothing is heard. `None` if no lease has an end.
    pub fn next(&self) -> Option<Duration> {
        self.order.first().map(|(due, _)| *due).filter(|due| *due < Duration::MAX)
    }

    /// The number of writers that are alive.
    pub fn alive(&self) -> usize {
        self.order.len()
    }

    /// The number of writers that are there, and not alive.
    pub fn not_alive(&self) -> usize {
        self.writers.len() - self.order.len()
    }
}
