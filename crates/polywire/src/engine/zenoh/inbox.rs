//! What came and was not handed to the node yet, in order.

use std::collections::VecDeque;

use polywire_core::{
    envelope::{Announcement, ChannelId, Id128},
    frame::{Answer, Start},
};
use zenoh::{bytes::ZBytes, key_expr::OwnedKeyExpr};

use super::{
    super::{Disconnect, Event, LinkId, LinkInfo},
    ros::HEADER,
};

/// Something for the node, of one link.
pub(super) struct Arrived {
    pub(super) link: LinkId,
    pub(super) what: Arrival,
}

pub(super) enum Arrival {
    Up(Box<LinkInfo>),
    Announced(ChannelId, Start, Box<Announcement>),
    Answered(ChannelId, Answer),
    /// A frame that changes nothing in the port.
    Frame(Vec<u8>),
    /// A message under the key of its topic.
    Sample {
        attachment: Vec<u8>,
        payload: ZBytes,
    },
    /// A message of a foreign application.
    Foreign {
        channel: ChannelId,
        at: Start,
        payload: ZBytes,
    },
    /// A message of a Polywire node on a topic of ROS 2. It begins with the header if there is one.
    Plain {
        channel: ChannelId,
        at: Start,
        payload: ZBytes,
        header: Option<[u8; HEADER]>,
    },
    /// Messages up to there were dropped here.
    Lost(ChannelId, Start, u64),
    /// Nobody listens to the key any more, if there is one.
    Retired(ChannelId, Option<OwnedKeyExpr>),
    /// The peer is told when all before it has been taken.
    Mark(u64),
    /// Nobody listens to the keys any more.
    Down(Box<LinkInfo>, Disconnect, Vec<OwnedKeyExpr>),
    Tell(Box<Event>),
    /// A document of a foreign application, or that there is none.
    Document(Id128, Option<Vec<u8>>),
}

impl Arrival {
    /// Bytes that it takes.
    fn size(&self) -> usize {
        let more = match self {
            Arrival::Frame(bytes) | Arrival::Document(_, Some(bytes)) => bytes.len(),
            Arrival::Sample { payload, .. } | Arrival::Foreign { payload, .. } | Arrival::Plain { payload, .. } => {
                payload.len()
            }
            _ => 0,
        };
        size_of::<Arrived>() + more
    }
}

#[derive(Default)]
pub(super) struct Inbox {
    queue: VecDeque<Arrived>,
    bytes: usize,
}

impl Inbox {
    pub(super) fn push(&mut self, link: LinkId, what: Arrival) {
        self.bytes += what.size();
        self.queue.push_back(Arrived { link, what });
    }

    /// Puts something in front of what came before.
    pub(super) fn push_first(&mut self, link: LinkId, what: Arrival) {
        self.bytes += what.size();
        self.queue.push_front(Arrived { link, what });
    }

    pub(super) fn pop(&mut self) -> Option<Arrived> {
        let arrived = self.queue.pop_front()?;
        self.bytes -= arrived.what.size();
        Some(arrived)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}
