//! In a mesh, the one link that this node has to each other node. `spec/frame.md`, section 14, has
//! the rules. A table with a lock; it sends nothing.

use std::{cmp::Ordering, collections::BTreeMap, net::Shutdown, sync::Arc, time::Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use polywire_core::{envelope::Id128, frame::Hello};

use super::transport::ByteStream;

/// For each node, the connection that is, or is about to be, the link to it.
#[derive(Default)]
pub(super) struct LinkSlots {
    state: Mutex<Holders>,
    freed: Condvar,
}

#[derive(Default)]
struct Holders {
    by_node: BTreeMap<Id128, SlotHolder>,
    last: u64,
}

struct SlotHolder {
    number: u64,
    incarnation: u64,
    stream: Arc<dyn ByteStream>,
}

/// The slot of a connection as the link to a node. Dropping it frees the slot.
pub(super) struct LinkSlot<'a> {
    slots: &'a LinkSlots,
    node: Id128,
    number: u64,
}

impl LinkSlots {
    /// Makes a connection the link to `peer`. First ends a link to an earlier incarnation, and
    /// waits for its end; also a link to the same or a later incarnation, if `yields` returns true.
    /// The argument of `yields` says whether the incarnation is the same. Returns `None` if there
    /// is a link that stays, or one that does not end before `deadline`.
    pub(super) fn take(
        &self,
        peer: &Hello,
        stream: &Arc<dyn ByteStream>,
        yields: impl Fn(bool) -> bool,
        deadline: Instant,
    ) -> Option<LinkSlot<'_>> {
        let mut state = self.lock();
        while let Some(holder) = state.by_node.get(&peer.node) {
            let ends = match holder.incarnation.cmp(&peer.incarnation) {
                Ordering::Less => true,
                order => yields(order.is_eq()),
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if !ends || left.is_zero() {
                return None;
            }
            holder.stream.shutdown(Shutdown::Both);
            self.freed.wait_for(&mut state, left);
        }
        state.last += 1;
        let (number, incarnation) = (state.last, peer.incarnation);
        state.by_node.insert(peer.node, SlotHolder { number, incarnation, stream: stream.clone() });
        Some(LinkSlot { slots: self, node: peer.node, number })
    }

    /// Returns whether this node has a link to the peer in this incarnation or a later one.
    pub(super) fn has(&self, peer: &Hello) -> bool {
        self.lock().by_node.get(&peer.node).is_some_and(|holder| holder.incarnation >= peer.incarnation)
    }

    fn lock(&self) -> MutexGuard<'_, Holders> {
        self.state.lock()
    }
}

impl Drop for LinkSlot<'_> {
    fn drop(&mut self) {
        let mut state = self.slots.lock();
        if state.by_node.get(&self.node).is_some_and(|holder| holder.number == self.number) {
            state.by_node.remove(&self.node);
        }
        self.slots.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::atomic::{AtomicBool, Ordering},
        thread,
        time::Duration,
    };

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    /// A stream that notes that it was shut down.
    #[derive(Default)]
    struct Stream(AtomicBool);

    impl ByteStream for Stream {
        fn read(&self, _: &mut [u8]) -> io::Result<usize> {
            Ok(0)
        }

        fn set_read_timeout(&self, _: Option<Duration>) -> io::Result<()> {
            Ok(())
        }

        fn write(&self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn wait_writable(&self, _: Duration) {}

        fn shutdown(&self, _: Shutdown) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    fn peer(incarnation: u64) -> Hello {
        Hello { node: Id128([7; 16]), incarnation }
    }

    fn take(slots: &LinkSlots, incarnation: u64, yields: bool) -> (Arc<Stream>, Option<LinkSlot<'_>>) {
        let stream = Arc::new(Stream::default());
        let held: Arc<dyn ByteStream> = stream.clone();
        (stream, slots.take(&peer(incarnation), &held, |_| yields, Instant::now() + SOON))
    }

    #[test]
    fn a_second_connection_to_the_same_node_is_refused_until_the_first_has_ended() {
        let slots = LinkSlots::default();
        let (stream, slot) = take(&slots, 5, false);
        assert!(slot.is_some() && slots.has(&peer(5)) && slots.has(&peer(4)) && !slots.has(&peer(6)));
        assert!(take(&slots, 5, false).1.is_none() && take(&slots, 4, false).1.is_none());
        let other: Arc<dyn ByteStream> = Arc::new(Stream::default());
        let yields_to_the_same = |is_same| is_same;
        assert!(slots.take(&peer(4), &other, yields_to_the_same, Instant::now() + SOON).is_none());
        assert!(!stream.0.load(Ordering::SeqCst), "the link is left alone");
        drop(slot);
        assert!(!slots.has(&peer(5)) && take(&slots, 5, false).1.is_some());
    }

    #[test]
    fn a_restarted_node_takes_the_slot_of_its_earlier_self_once_that_has_ended() {
        for (incarnation, yields) in [(6, false), (5, true), (4, true)] {
            let slots = LinkSlots::default();
            let (stream, before) = take(&slots, 5, false);
            thread::scope(|scope| {
                let later = scope.spawn(|| take(&slots, incarnation, yields).1.is_some());
                let until = Instant::now() + SOON;
                while !stream.0.load(Ordering::SeqCst) {
                    assert!(Instant::now() < until, "the link is not ended");
                    thread::sleep(Duration::from_millis(1));
                }
                assert!(!later.is_finished(), "it waits for the end");
                drop(before);
                assert!(later.join().expect("no panic"));
            });
        }
    }

    #[test]
    fn a_link_that_does_not_end_in_time_keeps_its_slot() {
        let slots = LinkSlots::default();
        let (_, before) = take(&slots, 5, false);
        let stream: Arc<dyn ByteStream> = Arc::new(Stream::default());
        let none = slots.take(&peer(6), &stream, |_| true, Instant::now() + Duration::from_millis(20));
        assert!(none.is_none() && slots.has(&peer(5)));
        drop(before);
    }
}
