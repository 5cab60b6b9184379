//! What leaves through the session, in order: samples under the keys of topics, mails, and queries.

use std::{
    collections::VecDeque,
    sync::{Arc, OnceLock},
};

use polywire_core::{
    envelope::{ChannelId, Id128},
    rpc::RemoteError,
};
use zenoh::{
    Session, Wait, bytes::Encoding, key_expr::OwnedKeyExpr, pubsub::Publisher, qos::CongestionControl, query::Query,
};

use super::{
    end::ServiceEnd,
    mail::{Content, Mail},
    outlet::Outlet,
    ros::Topic,
};

/// The encoding of errors; the number of the kind of error follows.
pub(super) const ERROR: &str = "text/plain;";

/// Some mails without a frame, in bytes.
const LITTLE: usize = 512;

/// Something to put into the session.
pub(super) enum Put {
    /// A message, for everybody who listens to its topic.
    Open { outlet: Arc<Outlet>, instance: Option<Id128>, attachment: Vec<u8>, payload: Vec<u8> },
    /// An instance has ended, which concerns the topic's history.
    End { outlet: Arc<Outlet>, instance: Option<Id128> },
    /// For one node.
    Mail { to: Arc<Mailbox>, bytes: Vec<u8> },
    /// The node is gone. Zenoh forgets what was declared for it.
    Forget { _mailbox: Arc<Mailbox> },
    /// A query for a schema.
    Ask { schema: Id128 },
    /// A query for what publishers of ROS 2 keep of a topic.
    AskKept { topic: Box<Topic> },
    /// The request of a client to a foreign server.
    Call { end: Arc<ServiceEnd>, channel: ChannelId, sequence: u64, attachment: Vec<u8>, payload: Vec<u8> },
    /// What a server answers a query.
    Reply(Box<Replying>),
}

/// A query of somebody else that ends.
pub(super) struct Replying {
    pub(super) query: Query,
    pub(super) answer: Answering,
}

/// What becomes of a query.
pub(super) enum Answering {
    /// A value, with the key of the service. In ROS 2, it has no encoding.
    Value {
        key: OwnedKeyExpr,
        encoding: Option<Encoding>,
        attachment: Vec<u8>,
        payload: Vec<u8>,
    },
    Error(RemoteError),
    /// It ends without a reply.
    Nothing,
}

impl Replying {
    /// Ends the query, without a lock: the session may wait for the network.
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
    /// Ends a query.
    pub(super) fn reply(query: Query, answer: Answering) -> Put {
        Put::Reply(Box::new(Replying { query, answer }))
    }

    fn size(&self) -> usize {
        match self {
            Put::Open { attachment, payload, .. } | Put::Call { attachment, payload, .. } => {
                attachment.len() + payload.len()
            }
            Put::Mail { bytes, .. } => bytes.len(),
            Put::Reply(reply) => match &reply.answer {
                Answering::Value { attachment, payload, .. } => attachment.len() + payload.len(),
                Answering::Error(_) | Answering::Nothing => 0,
            },
            Put::Ask { .. } | Put::AskKept { .. } | Put::End { .. } | Put::Forget { .. } => 0,
        }
    }
}

/// The puts that wait for the session.
pub(super) struct Outgoing {
    queue: VecDeque<Put>,
    bytes: usize,
    limit: usize,
}

impl Outgoing {
    /// Beyond so many bytes, messages wait elsewhere.
    pub(super) fn new(limit: usize) -> Outgoing {
        Outgoing { queue: VecDeque::new(), bytes: 0, limit }
    }

    pub(super) fn push(&mut self, put: Put) {
        self.bytes += put.size();
        self.queue.push_back(put);
    }

    pub(super) fn pop(&mut self) -> Option<Put> {
        let put = self.queue.pop_front()?;
        self.bytes -= put.size();
        Some(put)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether so little is to leave that who adds to it and sends it is soon done.
    pub(super) fn is_little(&self) -> bool {
        self.bytes <= LITTLE
    }

    /// Whether messages have to wait, since the session takes nothing.
    pub(super) fn is_jammed(&self) -> bool {
        self.bytes > self.limit
    }
}

/// Where another node receives mails of this one. The publisher is declared with the first of them:
/// for a key that was not declared, Zenoh goes through all keys that it knows, with each put.
pub(super) struct Mailbox {
    key: OwnedKeyExpr,
    publisher: OnceLock<Publisher<'static>>,
}

impl Mailbox {
    /// Puts a mail, without a lock: the session may wait for the network.
    pub(super) fn put(&self, session: &Session, bytes: Vec<u8>) -> zenoh::Result<()> {
        let publisher = match self.publisher.get() {
            Some(publisher) => publisher,
            None => {
                let made = session.declare_publisher(self.key.clone()).congestion_control(CongestionControl::Block);
                let made = made.express(true).wait()?;
                self.publisher.get_or_init(|| made)
            }
        };
        publisher.put(bytes).wait()
    }
}

/// The way from this node to another one: its mailbox, the epochs of both, and the number of mails
/// in each direction.
pub(super) struct Line {
    mailbox: Arc<Mailbox>,
    pub(super) epoch: u64,
    pub(super) peer_epoch: u64,
    sent: u64,
    got: u64,
}

/// What has become of a mail that came.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// It is the next one.
    Next,
    /// It came before.
    Again,
    /// Others before it are missing.
    Gap,
}

impl Line {
    pub(super) fn new(key: OwnedKeyExpr, epoch: u64) -> Line {
        let mailbox = Arc::new(Mailbox { key, publisher: OnceLock::new() });
        Line { mailbox, epoch, peer_epoch: 0, sent: 0, got: 0 }
    }

    /// The node is gone.
    pub(super) fn end(self, out: &mut Outgoing) {
        out.push(Put::Forget { _mailbox: self.mailbox });
    }

    /// Begins anew, with another epoch.
    pub(super) fn renew(&mut self, epoch: u64) {
        (self.epoch, self.sent, self.got) = (epoch, 0, 0);
    }

    /// Sends a mail.
    pub(super) fn send(&mut self, content: Content<'_>, out: &mut Outgoing) {
        let is_hello = matches!(content, Content::Hello { .. });
        self.sent += u64::from(!is_hello);
        let number = if is_hello { 0 } else { self.sent };
        let mail = Mail { epoch: self.epoch, peer_epoch: self.peer_epoch, number, content };
        out.push(Put::Mail { to: self.mailbox.clone(), bytes: mail.bytes() });
    }

    /// Counts a mail of the link that came.
    pub(super) fn count(&mut self, number: u64) -> Came {
        match number.checked_sub(self.got) {
            Some(1) => {
                self.got = number;
                Came::Next
            }
            None | Some(0) => Came::Again,
            Some(_) => Came::Gap,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> Line {
        Line::new(OwnedKeyExpr::new("a").expect("a key"), 7)
    }

    #[test]
    fn mails_are_counted_and_hellos_are_not() {
        let (mut line, mut out) = (line(), Outgoing::new(70));
        line.send(Content::Hello { asks: true }, &mut out);
        line.send(Content::Join, &mut out);
        line.send(Content::Leave, &mut out);
        assert!(out.is_jammed());
        let numbers: Vec<u64> = std::iter::from_fn(|| out.pop())
            .map(|put| match put {
                Put::Mail { bytes, .. } => Mail::parse(&bytes).expect("a mail").number,
                _ => panic!("only mails"),
            })
            .collect();
        assert_eq!(numbers, [0, 1, 2]);
        assert!(out.is_empty() && !out.is_jammed());
    }

    #[test]
    fn a_missing_mail_is_noticed() {
        let mut line = line();
        assert_eq!(
            [1, 1, 2, 4, 3].map(|number| line.count(number)),
            [Came::Next, Came::Again, Came::Next, Came::Gap, Came::Next]
        );
        line.renew(8);
        assert_eq!(line.count(1), Came::Next);
    }
}
