//! The rules of services: hands queries to servers of this node, sends their replies back, and
//! informs clients of this node of foreign servers.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use polywire_core::{
    envelope::{Announcement, ChannelId, Envelope, Id128, Kind},
    frame::Answer,
    rpc::{RemoteCode, RemoteError, ReplyHeader, RequestHeader, SampleIdentity},
};
use zenoh::bytes::ZBytes;

use super::{
    super::{LinkId, foreign::SampleEncoding},
    inbox::{Arrival, Message, Origin, arrival_of},
    outgoing::{Answering, Put},
    services::{Asker, Client, MAX_PENDING, Outcome, PendingQuery, Server},
    state::State,
};
use crate::clock;

/// The most pairs of topic and format in which foreign clients send requests.
const FORMATS: usize = 256;
/// The time after which a queryable counts as a foreign server. If it belongs to a Polywire node,
/// that node has announced its server by then.
const GRACE: Duration = Duration::from_millis(300);

/// For servers of this node.
impl State {
    /// Handles a query to a server of this node, in this format.
    pub(super) fn asked(&mut self, topic: &str, encoding: SampleEncoding, timestamp_ns: i64, query: PendingQuery) {
        if let Some((query, error)) = self.ask_server(topic, encoding, timestamp_ns, query) {
            self.out.push(Put::reply(query.query, Answering::Error(error)));
        }
    }

    /// Hands a request to the node. Returns a query that ends with an error, if there is one: this
    /// one, or the oldest one.
    fn ask_server(
        &mut self,
        topic: &str,
        encoding: SampleEncoding,
        timestamp_ns: i64,
        query: PendingQuery,
    ) -> Option<(PendingQuery, RemoteError)> {
        let payload = query.query.payload().cloned().unwrap_or_default();
        let most = self.terms.limits.frame_bytes;
        if payload.len() > most {
            let text = format!("the request has more than {most} bytes");
            return Some((query, RemoteError::new(RemoteCode::InvalidArgument, &text)));
        }
        let busy = |text: &str| RemoteError::new(RemoteCode::Busy, text);
        if self.inbox.bytes() > self.most_waiting {
            return Some((query, busy("too much waits for the server's node")));
        }
        let key = (topic.to_owned(), encoding);
        if !self.services.askers.contains_key(&key) && !self.open_asker(&key) {
            return Some((query, busy("there are too many formats of requests")));
        }
        let State { services, schemas, inbox, out, .. } = self;
        let asker = services.askers.get_mut(&key)?;
        if let Some(reason) = &asker.refusal {
            let error = RemoteError::new(RemoteCode::Unsupported, reason);
            return Some((query, error));
        }
        asker.sequence += 1;
        let (writer, sequence, link) = (asker.writer, asker.sequence, asker.link);
        let envelope = Envelope { kind: Kind::Request, ..Envelope::data(asker.channel, sequence, timestamp_ns) };
        let message = Message::new(&envelope, &payload, Origin::Node(None));
        schemas.pass(link, Arrival::Message(message), out, inbox);
        let oldest = services.note(SampleIdentity { writer, sequence }, query)?;
        Some((oldest, busy("the server has not answered, and others ask")))
    }

    fn open_asker(&mut self, key: &(String, SampleEncoding)) -> bool {
        if self.services.askers.len() >= FORMATS {
            return false;
        }
        let writer = self.services.draw(self.me.0.node);
        let announcement = Announcement { writer, ..key.1.announcement(&key.0) };
        let Some((link, channel)) = self.open_foreign(announcement) else { return false };
        let asker = Asker { link, channel, writer, sequence: 0, refusal: None };
        self.services.askers.insert(key.clone(), asker);
        true
    }

    fn open_foreign(&mut self, announcement: Announcement) -> Option<(LinkId, ChannelId)> {
        let State { foreign, schemas, inbox, out, .. } = self;
        foreign.open(announcement, |link, news| schemas.pass(link, arrival_of(news, &ZBytes::new()), out, inbox))
    }

    /// Handles the node's answer to a channel of foreign requests. If the node does not accept it,
    /// the queries that wait end with an error.
    pub(super) fn requests_answered(&mut self, channel: ChannelId, answer: &Answer) {
        let Some((ended, reason)) = self.services.answered(channel, answer) else { return };
        let error = RemoteError::new(RemoteCode::Unsupported, &reason);
        let put = |query: PendingQuery| Put::reply(query.query, Answering::Error(error.clone()));
        ended.into_iter().map(put).for_each(|put| self.out.push(put));
    }

    /// Returns the query that a reply of this node is for, and the error if the reply has no value.
    /// `None` if the request is that of a Polywire node.
    pub(super) fn replied(&mut self, envelope: &Envelope<'_>) -> Option<(PendingQuery, Option<RemoteError>)> {
        let request = ReplyHeader::request_of(envelope.extensions).filter(|_| envelope.kind == Kind::Reply)?;
        let query = self.services.pending.remove(&request)?;
        Some((query, ReplyHeader::parse(envelope.extensions).and_then(|header| header.error)))
    }

    /// Ends the queries to a server that has ended, without a reply.
    pub(super) fn server_ended(&mut self, topic: &str) {
        let of = self.services.askers.iter().filter(|((requests, _), _)| requests == topic);
        let writers: BTreeSet<Id128> = of.map(|(_, asker)| asker.writer).collect();
        let pending = &mut self.services.pending;
        let ended: Vec<SampleIdentity> =
            pending.keys().filter(|request| writers.contains(&request.writer)).copied().collect();
        let put = |query: PendingQuery| Put::reply(query.query, Answering::Nothing);
        ended.iter().filter_map(|request| pending.remove(request)).map(put).for_each(|put| self.out.push(put));
    }

    /// Removes and returns all queries, because the port closes.
    pub(super) fn all_queries(&mut self) -> Vec<PendingQuery> {
        std::mem::take(&mut self.services.pending).into_values().collect()
    }
}

/// For clients of this node.
impl State {
    /// Adds a client: the requests of its channel may go to foreign servers. `replies` is what the
    /// channel of their replies announces.
    pub(super) fn add_client(&mut self, channel: ChannelId, writer: Id128, replies: Announcement) {
        let (calls, sequence) = (BTreeSet::new(), 0);
        let client = Client { writer, replies, matched: None, server: None, calls, sequence };
        self.services.clients.insert(channel, client);
    }

    /// Notes that queryables match the key of a client's service, or that none does any more.
    pub(super) fn matched(&mut self, channel: ChannelId, is_there: bool, now: Instant) {
        let Some(client) = self.services.clients.get_mut(&channel) else { return };
        client.matched = match is_there {
            true => client.matched.or(Some(now)),
            false => None,
        };
        self.services.is_due = true;
    }

    /// Informs the node of foreign servers that have appeared or disappeared. Returns whether
    /// something will change as time passes.
    pub(super) fn review_services(&mut self, now: Instant) -> bool {
        self.services.is_due = false;
        let (mut clients, mut is_busy) = (std::mem::take(&mut self.services.clients), false);
        for (channel, client) in &mut clients {
            let has_nodes = self.links().any(|link| link.serves(&client.replies.topic));
            let is_there = |since: Instant| now.saturating_duration_since(since) >= GRACE;
            let is_wanted = client.matched.is_some_and(is_there) && !has_nodes;
            is_busy |= client.matched.is_some() && !is_wanted && !has_nodes;
            match &mut client.server {
                None if is_wanted => self.open_server(*channel, client),
                Some(server) if server.is_leaving == is_wanted => {
                    server.is_leaving = !is_wanted;
                    let answer = if is_wanted { Answer::Accept(1) } else { Answer::Decline };
                    self.inbox.push(server.link, Arrival::Answered(*channel, answer));
                }
                _ => {}
            }
            self.end_server(client);
        }
        self.services.clients = clients;
        is_busy
    }

    fn open_server(&mut self, channel: ChannelId, client: &mut Client) {
        let id = self.services.draw(self.me.0.node);
        let announcement = Announcement { writer: id, ..client.replies.clone() };
        let Some((link, replies)) = self.open_foreign(announcement) else { return };
        self.inbox.push(link, Arrival::Answered(channel, Answer::Accept(1)));
        client.sequence = 0;
        client.server = Some(Server { link, channel: replies, id, is_leaving: false });
    }

    /// Ends a foreign server that is leaving, if it has answered everything, or if no queryable
    /// matches any more.
    fn end_server(&mut self, client: &mut Client) {
        let is_over = client.calls.is_empty() || client.matched.is_none();
        let Some(server) = client.server.take_if(|server| server.is_leaving && is_over) else { return };
        client.calls.clear();
        self.foreign.close(server.channel);
        self.inbox.push(server.link, Arrival::Retired(server.channel, None));
    }

    /// Decides whether a message of a client becomes a query.
    pub(super) fn calls(&mut self, envelope: &Envelope<'_>) -> bool {
        let Some(client) = self.services.clients.get_mut(&envelope.channel) else { return false };
        let header = RequestHeader::parse(envelope.extensions).filter(|_| envelope.kind == Kind::Request);
        let Some(RequestHeader { to, cancels }) = header else { return false };
        if let Some(sequence) = cancels {
            client.calls.remove(&sequence);
            self.services.is_due = true;
            return false;
        }
        let is_meant = |server: &Server| to.map_or(!server.is_leaving, |id| id == server.id);
        if !client.server.as_ref().is_some_and(is_meant) {
            return false;
        }
        client.calls.insert(envelope.sequence);
        if client.calls.len() > MAX_PENDING {
            let error = RemoteError::new(RemoteCode::Busy, &format!("{MAX_PENDING} queries wait for their replies"));
            self.called(envelope.channel, envelope.sequence, Err(error));
            return false;
        }
        true
    }

    /// Handles the outcome of a client's query: its first reply, or its end without one.
    pub(super) fn called(&mut self, channel: ChannelId, sequence: u64, outcome: Outcome) {
        let Some(client) = self.services.clients.get_mut(&channel) else { return };
        if !client.calls.remove(&sequence) {
            return;
        }
        let Some(server) = &client.server else { return };
        client.sequence += 1;
        let (payload, error) = match outcome {
            Ok(payload) => (payload, None),
            Err(error) => (ZBytes::new(), Some(error)),
        };
        let header = ReplyHeader { request: SampleIdentity { writer: client.writer, sequence }, error };
        let (extensions, plain) =
            (header.to_extensions(), Envelope::data(server.channel, client.sequence, clock::wall_ns()));
        let envelope = Envelope { kind: Kind::Reply, extensions: extensions.as_extensions(), ..plain };
        self.inbox.push(server.link, Arrival::Message(Message::new(&envelope, &payload, Origin::Node(None))));
        self.services.is_due |= server.is_leaving;
    }

    /// Removes the client of a channel that has ended, if there is one, and its foreign server.
    pub(super) fn client_ended(&mut self, channel: ChannelId) {
        let Some(client) = self.services.clients.remove(&channel) else { return };
        if let Some(server) = client.server {
            self.foreign.close(server.channel);
            self.inbox.push(server.link, Arrival::Retired(server.channel, None));
        }
    }
}

#[cfg(test)]
mod tests {
    use polywire_core::{
        frame::{Hello, Limits},
        rpc,
    };

    use super::{
        super::{
            super::Overflow,
            key::{Keys, Name},
            link::Terms,
        },
        *,
    };

    const CLIENT: Id128 = Id128([7; 16]);
    const CHANNEL: ChannelId = ChannelId(3);

    fn node() -> State {
        let me = Name(Hello { node: Id128([1; 16]), incarnation: 1 });
        let terms = Terms { overflow: Overflow::DropNewest, queue: 4000, window: 4000, limits: Limits::default() };
        let mut state = State::new(me, Keys::new("").expect("no prefix"), terms, 3);
        let topic = rpc::reply_topic("add");
        state.add_client(CHANNEL, CLIENT, Announcement { topic, ..Announcement::default() });
        state
    }

    /// Empties the inbox, and describes in words what was in it. Also returns the ids of servers.
    fn told(state: &mut State) -> (Vec<String>, Vec<Id128>) {
        let mut ids = Vec::new();
        let mut word = |what: Arrival| match what {
            Arrival::Up(_) => "up".into(),
            Arrival::Announced(_, _, announcement) => {
                ids.push(announcement.writer);
                announcement.topic
            }
            Arrival::Answered(channel, answer) => format!("{channel} {}", answer.accepts()),
            Arrival::Message(message) => {
                let header = ReplyHeader::parse(message.envelope().extensions).expect("a reply");
                format!("reply to {}: {:?}", header.request.sequence, header.error.map(|error| error.text))
            }
            Arrival::Retired(..) => "retired".into(),
            _ => "?".into(),
        };
        let words = std::iter::from_fn(|| state.inbox.pop()).map(|arrived| word(arrived.what)).collect();
        (words, ids)
    }

    fn sends(state: &mut State, sequence: u64, header: &RequestHeader) -> bool {
        let extensions = header.to_extensions();
        let envelope = Envelope { kind: Kind::Request, ..Envelope::data(CHANNEL, sequence, 0) };
        state.calls(&Envelope { extensions: extensions.as_extensions(), ..envelope })
    }

    #[test]
    fn a_queryable_that_stays_is_a_server_until_it_goes() {
        let (mut state, now) = (node(), Instant::now());
        state.matched(CHANNEL, true, now);
        assert!(state.services.is_due && state.review_services(now), "something is due");
        assert_eq!(told(&mut state).0, [""; 0]);
        assert!(!sends(&mut state, 1, &RequestHeader::default()));
        assert!(!state.review_services(now + GRACE));
        let (words, ids) = told(&mut state);
        assert_eq!((words, ids.len()), (vec!["up".into(), "rr/addReply".into(), "3 true".into()], 1));
        let to = |id| RequestHeader { to: Some(id), cancels: None };
        assert!(sends(&mut state, 2, &to(ids[0])) && sends(&mut state, 3, &RequestHeader::default()));
        assert!(!sends(&mut state, 4, &to(CLIENT)), "it is for another server");
        assert!(!sends(&mut state, 5, &RequestHeader { to: Some(ids[0]), cancels: Some(3) }));
        state.called(CHANNEL, 3, Ok(ZBytes::from("it was cancelled")));
        state.called(CHANNEL, 2, Ok(ZBytes::from("five")));
        state.called(CHANNEL, 2, Ok(ZBytes::from("again")));
        assert_eq!(told(&mut state).0, ["reply to 2: None"]);
        assert!(sends(&mut state, 6, &to(ids[0])));
        state.called(CHANNEL, 6, Err(RemoteError::new(RemoteCode::Failed, "no")));
        assert_eq!(told(&mut state).0, [r#"reply to 6: Some("no")"#]);
        assert!(sends(&mut state, 7, &to(ids[0])));
        state.matched(CHANNEL, false, now);
        state.review_services(now + GRACE);
        assert_eq!(told(&mut state).0, ["3 false", "retired"], "whether or not it has answered");
        // Another queryable appears, and then the client ends.
        state.matched(CHANNEL, true, now);
        state.review_services(now + GRACE);
        let (words, others) = told(&mut state);
        assert!(words == ["rr/addReply", "3 true"] && others != ids, "{words:?}");
        state.client_ended(CHANNEL);
        assert_eq!(told(&mut state).0, ["retired"]);
    }

    #[test]
    fn a_client_has_a_limit_of_queries() {
        let (mut state, now) = (node(), Instant::now());
        state.matched(CHANNEL, true, now);
        state.review_services(now + GRACE);
        told(&mut state);
        let most = MAX_PENDING as u64;
        assert!((1..=most).all(|sequence| sends(&mut state, sequence, &RequestHeader::default())));
        assert!(!sends(&mut state, most + 1, &RequestHeader::default()));
        assert_eq!(
            told(&mut state).0,
            [format!("reply to {}: Some(\"{MAX_PENDING} queries wait for their replies\")", most + 1)]
        );
    }
}
