//! The state of services: queries of foreign clients to servers of this node, and foreign servers
//! that clients of this node can call. `spec/zenoh.md`, section 6, has the rules. The module
//! `calls` implements them, and `queryables` calls Zenoh.
//!
//! Nodes call each other by messages of topics, as over every engine. Foreign applications use
//! queries. To the node, the foreign clients of each format are one writer of requests, and all
//! queryables under the key of a service are one server. Both are on the link that stands for
//! foreign applications.

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

use super::super::{LinkId, foreign::SampleEncoding};

/// The most queries that wait for a reply of this node, and the most calls of one client that wait
/// for a reply.
pub(super) const MAX_PENDING: usize = 1024;

/// A query of a foreign client that a server of this node answers.
pub(super) struct PendingQuery {
    pub(super) query: Query,
    /// The request's writer and sequence number, which the reply's attachment repeats in ROS 2.
    pub(super) named: Option<SampleIdentity>,
}

/// The outcome of a query: the payload of the reply, or an error.
pub(super) type Outcome = Result<ZBytes, RemoteError>;

/// The services of a port.
#[derive(Default)]
pub(super) struct Services {
    /// The writers that stand for foreign clients, by the topic and the format of their requests.
    pub(super) askers: BTreeMap<(String, SampleEncoding), Asker>,
    pub(super) pending: BTreeMap<SampleIdentity, PendingQuery>,
    /// The requests that have waited, from the oldest on. Some may be answered already: at most
    /// 2 × [`MAX_PENDING`] are kept.
    pub(super) order: VecDeque<SampleIdentity>,
    /// The clients of this node, by the channels of their requests.
    pub(super) clients: BTreeMap<ChannelId, Client>,
    /// The number of ids that were drawn for writers.
    pub(super) drawn: u64,
    /// Whether something has changed, so that `State::review_services` must run.
    pub(super) is_due: bool,
}

/// A writer of requests that stands for the foreign clients of one format.
pub(super) struct Asker {
    pub(super) link: LinkId,
    pub(super) channel: ChannelId,
    pub(super) writer: Id128,
    pub(super) sequence: u64,
    /// Why the node does not accept the requests, if it does not.
    pub(super) refusal: Option<String>,
}

/// A client of this node.
pub(super) struct Client {
    pub(super) writer: Id128,
    /// What the foreign server's channel of replies announces to the node.
    pub(super) replies: Announcement,
    /// The time since which there is a matching queryable.
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
    /// Whether the server gets no more calls. It ends when it has answered those under way.
    pub(super) is_leaving: bool,
}

impl Services {
    pub(super) fn draw(&mut self, node: Id128) -> Id128 {
        self.drawn += 1;
        let link = LinkId::next();
        Id128::of_document(format!("{node} asks {link} {}", self.drawn).as_bytes())
    }

    pub(super) fn note(&mut self, request: SampleIdentity, query: PendingQuery) -> Option<PendingQuery> {
        self.pending.insert(request, query);
        self.order.push_back(request);
        // Removes requests that were answered: those in front, and all once there are many.
        while self.order.front().is_some_and(|oldest| !self.pending.contains_key(oldest)) {
            self.order.pop_front();
        }
        if self.order.len() > 2 * MAX_PENDING {
            self.order.retain(|request| self.pending.contains_key(request));
        }
        if self.pending.len() <= MAX_PENDING {
            None
        } else {
            self.order.pop_front().and_then(|oldest| self.pending.remove(&oldest))
        }
    }

    /// Handles the node's answer to a channel of requests. If the node does not accept it, returns
    /// the queries that get no reply, and the reason.
    pub(super) fn answered(&mut self, channel: ChannelId, answer: &Answer) -> Option<(Vec<PendingQuery>, String)> {
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

#[cfg(test)]
mod tests {
    use zenoh::{Config, Session, Wait};

    use super::*;

    fn session() -> Session {
        let mut config = Config::default();
        for (key, value) in [("scouting/multicast/enabled", "false"), ("listen/endpoints", "[]")] {
            config.insert_json5(key, value).expect("valid");
        }
        zenoh::open(config).wait().expect("a session")
    }

    #[test]
    fn answered_requests_are_forgotten_while_an_older_one_waits() {
        let session = session();
        let queryable = session.declare_queryable("add").wait().expect("a queryable");
        let _replies = session.get("add").wait().expect("it is sent");
        let query: Query = queryable.recv().expect("a query");
        let mut services = Services::default();
        let request = |sequence| SampleIdentity { writer: Id128([1; 16]), sequence };
        let pending = || PendingQuery { query: query.clone(), named: None };
        let (most, forgotten) = (MAX_PENDING as u64, 10 * MAX_PENDING as u64);
        assert!(services.note(request(0), pending()).is_none());
        for sequence in 1..=forgotten {
            assert!(services.note(request(sequence), pending()).is_none());
            services.pending.remove(&request(sequence));
        }
        assert_eq!(services.pending.len(), 1);
        assert!(services.order.len() <= 2 * MAX_PENDING, "{} are kept", services.order.len());
        // The one that waits is still the oldest.
        assert!((1..most).all(|more| services.note(request(forgotten + more), pending()).is_none()));
        assert!(services.note(request(forgotten + most), pending()).is_some());
        assert!(!services.pending.contains_key(&request(0)) && services.pending.len() == MAX_PENDING);
    }
}
