//! What waits for the port's thread: what DDS reports, and samples that have arrived.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex},
    time::Duration,
};

use polywire_core::envelope::{ChannelId, Id128};
use polywire_dds::{Discovery, Guid, Receive, Sample};

use super::super::{LinkId, pipe::lock};

/// Something to do.
#[derive(Debug)]
pub(super) enum Item {
    Discovered(Box<Discovery>),
    /// A letter of another node.
    Letter(Guid, Sample),
    /// A sample of a topic.
    Arrived(Guid, Sample),
    /// What a participant says of its nodes of ROS 2.
    Present(Guid, Sample),
    /// The readers of a channel of ours have changed.
    Matched(ChannelId),
    /// A reader does not match a channel of ours because of a policy.
    Incompatible(ChannelId, u32),
    /// The writers of a reader of ours have changed.
    Reads,
    /// The node wants a document of a participant that is not a node.
    Wanted(LinkId, Id128),
    /// There are letters to send.
    Ring,
}

/// A queue. Samples are bounded by their bytes; everything else is bounded by what there is in the
/// domain.
#[derive(Debug)]
pub(super) struct Inbox {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    limit: usize,
}

#[derive(Debug, Default)]
struct Waiting {
    items: VecDeque<Item>,
    bytes: usize,
    closed: bool,
}

/// What [`Inbox::pop`] finds.
#[derive(Debug)]
pub(super) enum Next {
    Item(Item),
    Nothing,
    Closed,
}

impl Inbox {
    pub(super) fn new(limit: usize) -> Arc<Inbox> {
        Arc::new(Inbox { waiting: Mutex::default(), changed: Condvar::new(), limit })
    }

    /// Adds something. False if it is a sample for which there is no room.
    pub(super) fn push(&self, item: Item) -> bool {
        let size = size(&item);
        let mut waiting = lock(&self.waiting);
        if waiting.closed {
            return true;
        }
        if size > 0 && waiting.bytes > 0 && waiting.bytes + size > self.limit {
            return false;
        }
        waiting.bytes += size;
        waiting.items.push_back(item);
        self.changed.notify_one();
        true
    }

    /// Adds what is no sample.
    pub(super) fn tell(&self, item: Item) {
        let _has_room = self.push(item);
    }

    /// Takes the next item, and waits for one at most so long.
    pub(super) fn pop(&self, at_most: Duration) -> Next {
        let idle = |waiting: &mut Waiting| waiting.items.is_empty() && !waiting.closed;
        let waited = self.changed.wait_timeout_while(lock(&self.waiting), at_most, idle);
        let (mut waiting, _) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
        if waiting.closed {
            return Next::Closed;
        }
        let Some(item) = waiting.items.pop_front() else { return Next::Nothing };
        waiting.bytes -= size(&item);
        Next::Item(item)
    }

    pub(super) fn close(&self) {
        let mut waiting = lock(&self.waiting);
        waiting.closed = true;
        waiting.items.clear();
        self.changed.notify_all();
    }
}

fn size(item: &Item) -> usize {
    match item {
        Item::Letter(_, sample) | Item::Arrived(_, sample) | Item::Present(_, sample) => sample.bytes.sample().len(),
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
        };
        assert!(inbox.push(Item::Arrived(Guid::default(), sample(200))), "one is always taken");
        assert!(!inbox.push(Item::Arrived(Guid::default(), sample(8))));
        assert!(inbox.push(Item::Reads));
        assert!(matches!(inbox.pop(Duration::ZERO), Next::Item(Item::Arrived(..))));
        assert!(inbox.push(Item::Letter(Guid::default(), sample(8))));
        assert!(matches!(inbox.pop(Duration::ZERO), Next::Item(Item::Reads)));
        assert!(matches!(inbox.pop(Duration::ZERO), Next::Item(Item::Letter(..))));
        assert!(matches!(inbox.pop(Duration::ZERO), Next::Nothing));
        inbox.close();
        assert!(matches!(inbox.pop(Duration::MAX), Next::Closed));
    }
}
