//! The queue of the port's thread: what DDS reports, and samples that have arrived.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::{Condvar, Mutex};
use polywire_core::{
    envelope::{ChannelId, Id128},
    frame::Answer,
    ros::TypeHash,
};
use polywire_dds::{Discovery, Guid, Receive, Sample};

use super::{super::LinkId, peer::EndId};

/// A task for the port's thread.
#[derive(Debug)]
pub(super) enum Item {
    Discovered(Box<Discovery>),
    /// A control message of another node.
    ControlMessage(Guid, Sample),
    /// A sample of a writer has arrived at this reader.
    Arrived(EndId, Guid, Sample),
    /// A participant's message about its ROS 2 nodes.
    Present(Guid, Sample),
    /// The node needs the type of a channel of ROS 2.
    TypeNeeded(Guid, ChannelId, TypeHash),
    /// A node of ROS 2 has answered a question for a type.
    TypeReceived(Sample),
    /// A node of ROS 2 asks for a type.
    TypeRequested(Sample),
    /// The readers that match a channel of this node have changed.
    Matched(ChannelId),
    /// A reader does not match a channel of this node because of a policy.
    Incompatible(ChannelId, u32),
    /// The writers that match a reader of this node have changed.
    Reads,
    /// A writer, by its handle, is alive or not, or (`None`) no longer matches this reader.
    Lives(EndId, u64, Option<bool>),
    /// The node wants a document of a participant that is not a node.
    Wanted(LinkId, Id128),
    /// The node answers a channel of a peer.
    Answered(LinkId, ChannelId, Answer),
    /// There are control messages to send.
    Wake,
}

/// A queue. Samples are limited by their bytes; other items are limited by what exists in the
/// domain.
#[derive(Debug)]
pub(super) struct Inbox {
    waiting: Mutex<Waiting>,
    /// Whether there were no items when the lock was last held.
    is_empty: AtomicBool,
    changed: Condvar,
    limit: usize,
}

#[derive(Debug, Default)]
struct Waiting {
    items: VecDeque<Item>,
    bytes: usize,
    /// A thread that receives waits for room. Reset once half of the room is free.
    is_full: bool,
    closed: bool,
}

impl Inbox {
    pub(super) fn new(limit: usize) -> Arc<Inbox> {
        Arc::new(Inbox { waiting: Mutex::default(), is_empty: AtomicBool::new(true), changed: Condvar::new(), limit })
    }

    /// Adds an item. Returns false if it is a sample for which there is no room.
    pub(super) fn push(&self, item: Item) -> bool {
        let size = size(&item);
        let mut waiting = self.waiting.lock();
        if waiting.closed {
            return true;
        }
        if size > 0 && waiting.bytes > 0 && waiting.bytes + size > self.limit {
            waiting.is_full = true;
            return false;
        }
        waiting.bytes += size;
        waiting.items.push_back(item);
        self.is_empty.store(false, Ordering::Release);
        self.changed.notify_one();
        true
    }

    /// Adds an item that is not a sample.
    pub(super) fn tell(&self, item: Item) {
        let _has_room = self.push(item);
    }

    /// Waits at most this long until there is an item. Returns false once the inbox is closed.
    pub(super) fn wait(&self, at_most: Duration) -> bool {
        let idle = |waiting: &mut Waiting| waiting.items.is_empty() && !waiting.closed;
        let mut waiting = self.waiting.lock();
        self.changed.wait_while_for(&mut waiting, idle, at_most);
        !waiting.closed
    }

    /// Takes the next item.
    pub(super) fn pop(&self) -> Option<Item> {
        let mut waiting = self.waiting.lock();
        let item = waiting.items.pop_front()?;
        self.is_empty.store(waiting.items.is_empty(), Ordering::Release);
        waiting.bytes -= size(&item);
        waiting.is_full &= waiting.bytes > self.limit / 2;
        Some(item)
    }

    /// Checks whether a thread that receives waits for room: then it processes no acknowledgements.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.lock().is_full
    }

    pub(super) fn is_empty(&self) -> bool {
        self.is_empty.load(Ordering::Acquire)
    }

    pub(super) fn close(&self) {
        let mut waiting = self.waiting.lock();
        waiting.closed = true;
        let items = std::mem::take(&mut waiting.items);
        self.is_empty.store(true, Ordering::Release);
        self.changed.notify_all();
        drop(waiting);
        drop(items);
    }
}

fn size(item: &Item) -> usize {
    match item {
        Item::ControlMessage(_, sample)
        | Item::Arrived(_, _, sample)
        | Item::Present(_, sample)
        | Item::TypeReceived(sample)
        | Item::TypeRequested(sample) => sample.bytes.sample().len(),
        _ => 0,
    }
}

/// Puts what a reader receives into an inbox.
pub(super) struct Receiver {
    pub(super) inbox: Arc<Inbox>,
    pub(super) item: fn(Guid, Sample) -> Item,
}

impl Receive for Receiver {
    fn receive(&self, writer: Guid, sample: Sample) -> bool {
        self.inbox.push((self.item)(writer, sample))
    }
}

#[cfg(test)]
mod tests {
    use polywire_dds::{Bytes, Kind};

    use super::*;

    #[test]
    fn samples_are_bounded_and_the_rest_is_not() {
        let inbox = Inbox::new(100);
        let sample = |len| Sample {
            kind: Kind::Data,
            is_key: false,
            bytes: Bytes::new([0; 4], &vec![1; len]).expect("bytes"),
            key_hash: None,
            timestamp_ns: 0,
            sequence: None,
        };
        let arrived = |len| Item::Arrived(EndId::next(), Guid::default(), sample(len));
        assert!(inbox.push(arrived(200)), "one is always taken");
        assert!(!inbox.is_full() && !inbox.push(arrived(8)) && inbox.is_full());
        assert!(inbox.push(Item::Reads));
        assert!(inbox.wait(Duration::MAX) && matches!(inbox.pop(), Some(Item::Arrived(..))) && !inbox.is_full());
        assert!(inbox.push(Item::ControlMessage(Guid::default(), sample(8))));
        assert!(matches!(inbox.pop(), Some(Item::Reads)) && !inbox.is_empty());
        assert!(matches!(inbox.pop(), Some(Item::ControlMessage(..))) && inbox.is_empty());
        assert!(inbox.wait(Duration::ZERO) && inbox.pop().is_none());
        inbox.close();
        assert!(!inbox.wait(Duration::MAX));
    }
}
