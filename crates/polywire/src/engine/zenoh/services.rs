//! Services: what others ask a server of this node, and servers that are not Polywire's, which
//! clients of this node can call. `spec/zenoh.md`, section 6, has the rules. `calls` keeps them,
//! and `queryables` has the calls of Zenoh.
//!
//! Nodes call each other by messages of topics, as over every engine. Everybody else queries. To
//! the node, whoever queries is a writer of requests, and whoever answers queries under the key of
//! a service is one server, on the link that stands for foreign applications.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Instant,
};

use polywire_core::{
    envelope::{Announcement, ChannelId, Id128},
    frame::Answer,
    rpc::{RemoteError, SampleIdentity},
};
use zenoh::{bytes::ZBytes, query::Query};

use super::super::{LinkId, foreign::Said};

/// Queries that wait for a reply from here, and calls of one client that do, at most.
pub(super) const MOST: usize = 1024;

/// A query of somebody else that a server of this node answers.
pub(super) struct Asked {
    pub(super) query: Query,
    /// What the reply's attachment repeats in ROS 2: the number and the writer of the request.
    pub(super) named: Option<SampleIdentity>,
}

/// What came of a query.
pub(super) type Outcome = Result<ZBytes, RemoteError>;

/// The services of a port.
#[derive(Default)]
pub(super) struct Services {
    /// Those who ask, by the topic of their requests and their format.
    pub(super) askers: BTreeMap<(String, Said), Asker>,
    pub(super) pending: BTreeMap<SampleIdentity, Asked>,
    /// From the oldest on.
    pub(super) order: VecDeque<SampleIdentity>,
    /// By the channels of their requests.
    pub(super) clients: BTreeMap<ChannelId, Client>,
    /// Ids drawn for writers.
    pub(super) drawn: u64,
    /// Something has changed that is to be looked at.
    pub(super) is_due: bool,
}

/// A writer of requests.
pub(super) struct Asker {
    pub(super) link: LinkId,
    pub(super) channel: ChannelId,
    pub(super) writer: Id128,
    pub(super) sequence: u64,
    /// Why the node does not take them.
    pub(super) refusal: Option<String>,
}

/// A client of this node.
pub(super) struct Client {
    pub(super) writer: Id128,
    /// What the node is told of replies.
    pub(super) replies: Announcement,
    /// Since when a queryable is there.
    pub(super) matched: Option<Instant>,
    pub(super) server: Option<Server>,
    /// The numbers of the requests that wait for a reply of the foreign server.
    pub(super) calls: BTreeSet<u64>,
    pub(super) sequence: u64,
}

/// A foreign server, as the node knows it.
pub(super) struct Server {
    pub(super) link: LinkId,
    pub(super) channel: ChannelId,
    pub(super) id: Id128,
    /// It gets no more calls, and ends when it has answered those under way.
    pub(super) is_leaving: bool,
}

impl Services {
    pub(super) fn draw(&mut self, node: Id128) -> Id128 {
        self.drawn += 1;
        let link = LinkId::next();
        Id128::of_document(format!("{node} asks {link} {}", self.drawn).as_bytes())
    }

    pub(super) fn note(&mut self, request: SampleIdentity, asked: Asked) -> Option<Asked> {
        self.pending.insert(request, asked);
        self.order.push_back(request);
        // Those that were answered.
        while self.order.front().is_some_and(|oldest| !self.pending.contains_key(oldest)) {
            self.order.pop_front();
        }
        if self.pending.len() <= MOST {
            None
        } else {
            self.order.pop_front().and_then(|oldest| self.pending.remove(&oldest))
        }
    }

    /// The node's answer to a channel of requests. Returns the queries that get none, and why.
    pub(super) fn answered(&mut self, channel: ChannelId, answer: &Answer) -> Option<(Vec<Asked>, String)> {
        let asker = self.askers.values_mut().find(|asker| asker.channel == channel)?;
        asker.refusal = match answer {
            Answer::Refuse(reason) => Some(reason.clone()),
            answer if answer.accepts() => None,
            _ => Some("nobody serves it".into()),
        };
        let (writer, reason) = (asker.writer, asker.refusal.clone()?);
        let of = |request: &SampleIdentity| request.writer == writer;
        let ended: Vec<SampleIdentity> = self.pending.keys().filter(|request| of(request)).copied().collect();
        Some((ended.iter().filter_map(|request| self.pending.remove(request)).collect(), reason))
    }
}
