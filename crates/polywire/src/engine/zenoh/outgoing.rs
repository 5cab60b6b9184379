//! What leaves through the session, in order: samples under the keys of topics, mails, and queries.

use std::{
    collections::VecDeque,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use polywire_core::{
    envelope::{ChannelId, Id128},
    rpc::RemoteError,
};
use zenoh::{
    Session, Wait, bytes::Encoding, key_expr::OwnedKeyExpr, pubsub::Publisher, qos::CongestionControl, query::Query,
    sample::Locality,
};

use super::{
    end::ServiceEnd,
    key::Name,
    mail::{self, Content},
    outlet::Outlet,
    ros::Topic,
};

/// The beginning of the encoding of error replies. The number of the error's code follows.
pub(super) const ERROR: &str = "text/plain;";

/// The most bytes in the queue that count as little: some mails without a frame.
const LITTLE: usize = 512;
/// The most bytes to which a mail grows when contents are appended.
const ROW: usize = 8 << 10;
/// More bytes of mails to one node within [`WHILE`] are a flood. Most nodes announce all their
/// channels in fewer bytes.
const FLOOD: usize = 256 << 10;
const WHILE: Duration = Duration::from_secs(1);

/// Something to put into the session.
pub(super) enum Put {
    /// A message, for everybody who listens to its topic.
    Sample { outlet: Arc<Outlet>, instance: Option<Id128>, attachment: Vec<u8>, payload: Vec<u8> },
    /// An instance has ended. The topic's history discards its samples.
    End { outlet: Arc<Outlet>, instance: Option<Id128> },
    /// A mail for one node. More contents may be appended if `is_row`.
    Mail { to: Arc<Mailbox>, bytes: Vec<u8>, is_row: bool },
    /// A node is gone. Dropping its mailbox ends what was declared for it in Zenoh.
    Forget { _mailbox: Arc<Mailbox> },
    /// A query for a schema.
    Ask { schema: Id128 },
    /// A query for the type of a topic of ROS 2, to these nodes.
    AskType { topic: Box<Topic>, nodes: Vec<String> },
    /// A query for the samples of a topic that publishers of ROS 2 keep.
    AskKept { topic: Box<Topic> },
    /// The request of a client to a foreign server.
    Call { end: Arc<ServiceEnd>, channel: ChannelId, sequence: u64, attachment: Vec<u8>, payload: Vec<u8> },
    /// The end of a query to a server of this node.
    Reply(Box<Replying>),
}

/// A query of a foreign application, and how it ends.
pub(super) struct Replying {
    pub(super) query: Query,
    pub(super) answer: Answering,
}

/// How a query ends.
pub(super) enum Answering {
    /// A value, under the key of the service. There is no encoding in ROS 2.
    Value {
        key: OwnedKeyExpr,
        encoding: Option<Encoding>,
        attachment: Vec<u8>,
        payload: Vec<u8>,
    },
    Error(RemoteError),
    /// The query ends without a reply.
    Nothing,
}

impl Replying {
    /// Ends the query. Called without a lock, because the session may wait for the network.
    pub(super) fn send(self) -> zenoh::Result<()> {
        match self.answer {
            Answering::Value { key, encoding, attachment, payload } => {
                let reply = self.query.reply(key, payload).attachment(attachment);
                match encoding {
                    Some(encoding) => reply.encoding(encoding).wait(),
                    None => reply.wait(),
                }
            }
            Answering::Error(error) => {
                let encoding = Encoding::from(format!("{ERROR}{}", error.code as u8));
                self.query.reply_err(error.to_string()).encoding(encoding).wait()
            }
            Answering::Nothing => Ok(()),
        }
    }
}

impl Put {
    /// Returns the item that ends a query.
    pub(super) fn reply(query: Query, answer: Answering) -> Put {
        Put::Reply(Box::new(Replying { query, answer }))
    }

    fn size(&self) -> usize {
        match self {
            Put::Sample { attachment, payload, .. } | Put::Call { attachment, payload, .. } => {
                attachment.len() + payload.len()
            }
            Put::Mail { bytes, .. } => bytes.len(),
            Put::Reply(reply) => match &reply.answer {
                Answering::Value { attachment, payload, .. } => attachment.len() + payload.len(),
                Answering::Error(_) | Answering::Nothing => 0,
            },
            Put::Ask { .. } | Put::AskType { .. } | Put::AskKept { .. } | Put::End { .. } | Put::Forget { .. } => 0,
        }
    }
}

/// The items that wait for the session.
pub(super) struct Outgoing {
    queue: VecDeque<Put>,
    bytes: usize,
    limit: usize,
}

impl Outgoing {
    /// Creates an empty queue. Beyond `limit` bytes, messages wait in their links.
    pub(super) fn new(limit: usize) -> Outgoing {
        Outgoing { queue: VecDeque::new(), bytes: 0, limit }
    }

    pub(super) fn push(&mut self, put: Put) {
        self.bytes += put.size();
        self.queue.push_back(put);
    }

    /// Appends a content to the last mail in the queue, if nothing follows that mail, and it is for
    /// the same node and has room.
    fn append(&mut self, to: &Arc<Mailbox>, content: Content<'_>) -> bool {
        let Some(Put::Mail { to: last, bytes, is_row: true }) = self.queue.back_mut() else { return false };
        if !Arc::ptr_eq(last, to) || bytes.len() + content.size() > ROW {
            return false;
        }
        let before = bytes.len();
        content.put(bytes);
        self.bytes += bytes.len() - before;
        true
    }

    pub(super) fn pop(&mut self) -> Option<Put> {
        let put = self.queue.pop_front()?;
        self.bytes -= put.size();
        Some(put)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether so little is queued that a thread which adds to it and sends all is done soon.
    pub(super) fn is_little(&self) -> bool {
        self.bytes <= LITTLE
    }

    /// Whether messages must wait, because the session does not take what is queued.
    pub(super) fn is_jammed(&self) -> bool {
        self.bytes > self.limit
    }
}

/// The mailbox of another node, to which this node sends mails.
///
/// A publisher is declared only for a flood of mails. Routers go through the publishers of all
/// their sessions whenever a subscriber, a token or another publisher appears. With one publisher
/// for each pair of nodes, that work would grow with the cube of the number of nodes. Without a
/// publisher, this session goes through the keys that it knows with each put, and also sends the
/// put to a router that it knows beside the peer.
pub(super) struct Mailbox {
    key: OwnedKeyExpr,
    publisher: OnceLock<Publisher<'static>>,
    flow: Mutex<Flow>,
}

/// The bytes of mails that have left within the current [`WHILE`].
struct Flow {
    since: Instant,
    bytes: usize,
}

impl Mailbox {
    fn new(key: OwnedKeyExpr) -> Mailbox {
        let flow = Mutex::new(Flow { since: Instant::now(), bytes: 0 });
        Mailbox { key, publisher: OnceLock::new(), flow }
    }

    /// Puts a mail, without a lock: the session may wait for the network.
    pub(super) fn put(&self, session: &Session, bytes: Vec<u8>, is_last: bool) -> zenoh::Result<()> {
        if let Some(publisher) = self.publisher.get() {
            return publisher.put(bytes).wait();
        }
        if !self.flow.lock().is_flood(bytes.len(), Instant::now()) {
            let put = session.put(&self.key, bytes).congestion_control(CongestionControl::Block);
            return put.express(is_last).allowed_destination(Locality::Remote).wait();
        }
        let made = session.declare_publisher(self.key.clone()).congestion_control(CongestionControl::Block);
        let made = made.express(true).allowed_destination(Locality::Remote).wait()?;
        self.publisher.get_or_init(|| made).put(bytes).wait()
    }
}

impl Flow {
    /// Counts a mail. Returns whether the mails are a flood.
    fn is_flood(&mut self, bytes: usize, now: Instant) -> bool {
        if now.saturating_duration_since(self.since) > WHILE {
            *self = Flow { since: now, bytes: 0 };
        }
        self.bytes += bytes;
        self.bytes > FLOOD
    }
}

/// The line from this node to another one: the peer's mailbox, the epochs of both nodes, and the
/// number of mails in each direction.
pub(super) struct Line {
    mailbox: Arc<Mailbox>,
    /// This node.
    me: Name,
    pub(super) epoch: u64,
    pub(super) peer_epoch: u64,
    sent: u64,
    got: u64,
}

/// How the number of a mail that has arrived fits the mails of its link before it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SequenceCheck {
    /// The mail is the next one.
    Next,
    /// The mail has arrived before.
    Duplicate,
    /// Earlier mails of the peer have not arrived.
    Gap,
}

impl Line {
    pub(super) fn new(key: OwnedKeyExpr, me: Name, epoch: u64) -> Line {
        Line { mailbox: Arc::new(Mailbox::new(key)), me, epoch, peer_epoch: 0, sent: 0, got: 0 }
    }

    /// Ends the line to a node that is gone.
    pub(super) fn end(self, out: &mut Outgoing) {
        out.push(Put::Forget { _mailbox: self.mailbox });
    }

    /// Resets the line for another link, with another epoch.
    pub(super) fn renew(&mut self, epoch: u64) {
        (self.epoch, self.sent, self.got) = (epoch, 0, 0);
    }

    /// Sends a content, if possible in one mail with contents that have not left yet.
    pub(super) fn send(&mut self, content: Content<'_>, out: &mut Outgoing) {
        let is_row = !matches!(content, Content::Hello { .. });
        if is_row && out.append(&self.mailbox, content) {
            return;
        }
        self.sent += u64::from(is_row);
        let number = if is_row { self.sent } else { 0 };
        let bytes = mail::begin(self.me, [self.epoch, self.peer_epoch], number, content);
        out.push(Put::Mail { to: self.mailbox.clone(), bytes, is_row });
    }

    /// Counts a mail of the link that has arrived.
    pub(super) fn count(&mut self, number: u64) -> SequenceCheck {
        match number.checked_sub(self.got) {
            Some(1) => {
                self.got = number;
                SequenceCheck::Next
            }
            None | Some(0) => SequenceCheck::Duplicate,
            Some(_) => SequenceCheck::Gap,
        }
    }
}

#[cfg(test)]
mod tests {
    use polywire_core::frame::Hello;

    use super::{
        super::mail::{Mail, signed},
        *,
    };

    fn line() -> Line {
        let me = Name(Hello { node: Id128([7; 16]), incarnation: 1 });
        Line::new(OwnedKeyExpr::new("a").expect("a key"), me, 7)
    }

    #[test]
    fn what_leaves_together_is_one_mail_and_hellos_are_not_counted() {
        let (mut line, mut other, mut out) = (line(), line(), Outgoing::new(70));
        line.send(Content::Hello { asks: true }, &mut out);
        line.send(Content::Join, &mut out);
        line.send(Content::Leave, &mut out);
        other.send(Content::Join, &mut out);
        line.send(Content::Join, &mut out);
        line.send(Content::Frame(&[0; ROW]), &mut out);
        assert!(out.is_jammed());
        let mails: Vec<(u64, usize)> = std::iter::from_fn(|| out.pop())
            .map(|put| match put {
                Put::Mail { bytes, .. } => {
                    let mail = signed(&bytes).and_then(|(_, mail)| Mail::parse(mail)).expect("a mail");
                    (mail.number, mail.contents().count())
                }
                _ => panic!("only mails"),
            })
            .collect();
        assert_eq!(mails, [(0, 1), (1, 2), (1, 1), (2, 1), (3, 1)]);
        assert!(out.is_empty() && !out.is_jammed());
    }

    #[test]
    fn many_bytes_within_a_while_are_a_flood() {
        let (mut flow, now) = (Flow { since: Instant::now(), bytes: 0 }, Instant::now());
        assert!(!flow.is_flood(FLOOD, now) && !flow.is_flood(FLOOD, now + 2 * WHILE));
        assert!(flow.is_flood(1, now + 2 * WHILE));
    }

    #[test]
    fn a_missing_mail_is_noticed() {
        let mut line = line();
        assert_eq!(
            [1, 1, 2, 4, 3].map(|number| line.count(number)),
            [
                SequenceCheck::Next,
                SequenceCheck::Duplicate,
                SequenceCheck::Next,
                SequenceCheck::Gap,
                SequenceCheck::Next
            ]
        );
        line.renew(8);
        assert_eq!(line.count(1), SequenceCheck::Next);
    }
}
