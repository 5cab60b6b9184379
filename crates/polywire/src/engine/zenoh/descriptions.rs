//! The types of ROS 2 topics. A node of ROS 2 describes its types by a service
//! (`polywire_core::ros::type_query`). This node queries that service when a subscriber has another
//! type than a publisher, or none, and describes its own types in the same way.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use polywire_core::{
    envelope::{ChannelId, Envelope, Id128},
    frame::{Answer, Start},
    qos::Qos,
    ros::{
        TypeHash, TypeName, check_topic,
        type_query::{self, TypeQuery},
    },
    schema::Schema,
};
use zenoh::{
    Wait,
    bytes::ZBytes,
    key_expr::OwnedKeyExpr,
    liveliness::LivelinessToken,
    query::{ConsolidationMode, Query, QueryTarget, Queryable, Reply},
    sample::Locality,
};

use super::{
    super::{LinkId, foreign::Need},
    inbox::{Arrival, arrival_of},
    outgoing::Put,
    port::Shared,
    publishers::Publishers,
    ros::{self, End, Graph, Topic},
    state::State,
};
use crate::clock;

/// The time-out of a query for a type.
const PATIENCE: Duration = Duration::from_secs(2);
/// The most nodes that are asked for a type.
const NODES: usize = 4;

impl State {
    /// Looks for the type of a ROS 2 publisher, which the node needs. Returns false if nobody
    /// describes it. Otherwise the channel is announced again later. Its messages wait for that,
    /// unless the node has accepted the channel.
    pub(super) fn need_type(&mut self, link: LinkId, channel: ChannelId, now: Instant) -> bool {
        let topic = self.publishers.topic_of(channel).filter(|_| self.foreign.is_link(link)).cloned();
        let Some(topic) = topic else { return false };
        let need = self.types.need(&topic.hash, channel, self.terms.limits.pending_documents, now);
        if need != Need::Unknown && self.publishers.is_unread(channel) {
            self.inbox.hold(link, channel);
            // The node may have declined the channel before. Its messages would then be skipped.
            self.foreign.answered(link, channel, &Answer::Accept(0));
        }
        match need {
            Need::Known => self.announce_again(&topic, BTreeSet::from([channel])),
            Need::Ask => self.ask_for_type(topic),
            Need::Asked | Need::Unknown => {}
        }
        need != Need::Unknown
    }

    fn ask_for_type(&mut self, topic: Topic) {
        let nodes = self.publishers.nodes(&topic, NODES);
        self.out.push(Put::AskType { topic: Box::new(topic), nodes });
    }

    /// Handles the answers of nodes: a type, or the reason why an answer is not valid, or nothing.
    fn learn_type(&mut self, topic: &Topic, answer: Result<Vec<u8>, Option<String>>, now: Instant) {
        let wrong = answer.as_ref().err().cloned().flatten();
        let (waiting, is_first) = self.types.learn(&topic.hash, answer.ok(), now);
        if let Some(reason) = wrong.filter(|_| is_first) {
            let State { foreign, inbox, .. } = self;
            let reason = format!("a description of the ROS 2 type {}: {reason}", topic.sample_encoding().type_name);
            foreign.ignore(&topic.name, reason, |link, news| inbox.push(link, arrival_of(news, &ZBytes::new())));
        }
        self.announce_again(topic, waiting);
    }

    /// Announces channels again: with the schema, or without it if nobody describes the type.
    fn announce_again(&mut self, topic: &Topic, channels: BTreeSet<ChannelId>) {
        let State { foreign, inbox, publishers, types, .. } = self;
        let link = foreign.link(|link, news| inbox.push(link, arrival_of(news, &ZBytes::new())));
        for channel in &channels {
            let Some(mut announcement) = publishers.announcement(*channel) else { continue };
            announcement.schema = types.schema(&topic.hash);
            inbox.push(link, Arrival::Announced(*channel, Start::default(), Box::new(announcement)));
        }
        // All channels are announced first: a publisher's history must be announced before the
        // messages of the publisher that follow.
        for channel in channels {
            inbox.settle(link, channel);
            publishers.settled(channel, foreign);
        }
    }

    /// Asks again for types that nobody has described so far, if it is time.
    pub(super) fn review_types(&mut self, now: Instant) {
        for (hash, channel) in self.types.due(self.terms.limits.pending_documents, now) {
            match self.publishers.topic_of(channel).cloned() {
                Some(topic) => self.ask_for_type(topic),
                None => drop(self.types.learn(&hash, None, now)),
            }
        }
    }
}

impl Shared {
    /// Answers queries for the types of this node from now on.
    pub(super) fn serve_types(&self, graph: &Graph) -> zenoh::Result<(Queryable<()>, LivelinessToken)> {
        let topic = service_of(graph.node());
        let key = self.keys.of_ros_topic(&topic).ok_or("the service of types is no key")?;
        let shared = self.this.clone();
        let queryable = self.session.declare_queryable(key).complete(true).callback(move |query| {
            if let Some(shared) = shared.upgrade() {
                shared.schema_asked(query);
            }
        });
        let token = graph.token_of(End::Server, 0, &topic, &Qos::default().keep_last(ros::DEPTH));
        Ok((queryable.wait()?, self.session.liveliness().declare_token(token).wait()?))
    }

    /// Answers a query for a type. Called without a lock.
    pub(super) fn answer_type_query(&self, query: &Query) {
        let attached = query.attachment().and_then(|bytes| ros::parse_attachment(&bytes.to_bytes()));
        let key = self.graph.as_ref().and_then(|graph| self.keys.of_ros_topic(&service_of(graph.node())));
        let (Some(key), Some((writer, at))) = (key, attached) else { return };
        let request = query.payload().map(|bytes| bytes.to_bytes()).unwrap_or_default();
        let answer = type_query::answer(&request, |asked| {
            self.type_here(asked.type_hash).ok_or("this node does not use the type")
        });
        let envelope = Envelope::data(ChannelId(0), at.sequence, clock::wall_ns());
        if let Err(error) = query.reply(key, answer).attachment(ros::attachment(writer, &envelope)).wait() {
            log::debug!("{}: an answer to a query: {error}", self.endpoint);
        }
    }

    /// Returns a type that this node publishes, reads, or has learned.
    fn type_here(&self, hash: TypeHash) -> Option<Schema> {
        let text = hash.to_string();
        let read: Vec<String> = self.topics_read(|topic| topic.hash == text);
        let (published, learned) = {
            let state = self.lock();
            let mut channels = state.channels.values();
            let published = channels.find(|channel| channel.ros_topic().is_some_and(|topic| topic.hash == text));
            (published.map(|channel| channel.announcement.schema), state.types.document(&text).cloned())
        };
        let published = published.and_then(|schema| self.sink.document(schema));
        let documents = published.into_iter().chain(learned.map(Into::into));
        hash.find(documents.chain(read.iter().filter_map(|topic| self.sink.subscribed(topic))))
    }

    /// Asks nodes for the type of a topic. Called without a lock.
    pub(super) fn ask_type(&self, topic: Topic, nodes: &[String]) {
        let Some(question) = Question::new(self.this.clone(), topic, self.local.options.limits.document_bytes) else {
            return;
        };
        let hash = question.query.type_hash;
        if let Some(schema) = self.type_here(hash).or_else(|| hash.find(self.sink.subscribed(&question.topic.name))) {
            return question.end(Ok(&schema));
        }
        let (question, gid) = (Arc::new(question), Id128::of_document(self.session.zid().to_string().as_bytes()));
        for (node, number) in nodes.iter().zip(1..) {
            let Some(key) = self.keys.of_ros_topic(&service_of(node)) else { continue };
            if let Err(error) = self.ask_node(key, &question, ros::attachment(gid, &envelope(number))) {
                log::debug!("{}: cannot ask {node} for a type: {error}", self.endpoint);
            }
        }
    }

    fn ask_node(&self, key: OwnedKeyExpr, question: &Arc<Question>, attachment: Vec<u8>) -> zenoh::Result<()> {
        let query = self.session.get(key).target(QueryTarget::AllComplete).timeout(PATIENCE);
        let query = query.allowed_destination(Locality::Remote).consolidation(ConsolidationMode::None);
        let (request, question) = (question.query.to_cdr(), question.clone());
        query.payload(request).attachment(attachment).callback(move |reply| question.replied(&reply)).wait()
    }
}

fn envelope(sequence: u64) -> Envelope<'static> {
    Envelope::data(ChannelId(0), sequence, clock::wall_ns())
}

/// Returns the service by which a node describes its types. The node's name may be that of any
/// application, and is not checked.
fn service_of(node: &str) -> Topic {
    let name = format!("{}/{}", node.trim_start_matches('/'), type_query::NAME);
    Topic { name, type_name: type_query::TYPE_NAME.into(), hash: type_query::TYPE_HASH.into() }
}

/// A question to several nodes that is under way. The first valid answer counts. If all queries end
/// without one, nobody describes the type.
struct Question {
    shared: Weak<Shared>,
    topic: Topic,
    query: TypeQuery,
    most: usize,
    is_answered: AtomicBool,
    /// Why the last answer was not valid.
    reason: Mutex<Option<String>>,
}

impl Question {
    fn new(shared: Weak<Shared>, topic: Topic, most: usize) -> Option<Question> {
        let type_name = TypeName::of_dds(&topic.type_name)?.to_string();
        let query = TypeQuery { type_name, type_hash: topic.hash.parse().ok()? };
        Some(Question { shared, topic, query, most, is_answered: AtomicBool::new(false), reason: Mutex::default() })
    }

    fn replied(&self, reply: &Reply) {
        let Ok(sample) = reply.result() else { return };
        let answer = match sample.payload().len() {
            size if size > self.most => Err(format!("an answer has more than {} bytes", self.most)),
            _ => self.query.schema(&sample.payload().to_bytes()).map_err(|error| error.to_string()),
        };
        match answer {
            Ok(schema) => self.end(Ok(&schema)),
            Err(reason) => *self.reason.lock() = Some(reason),
        }
    }

    fn end(&self, answer: Result<&Schema, Option<String>>) {
        if !self.is_answered.swap(true, Ordering::AcqRel)
            && let Some(shared) = self.shared.upgrade()
        {
            let mut state = shared.lock();
            state.learn_type(&self.topic, answer.map(Schema::to_bytes), Instant::now());
            shared.wake(state);
        }
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        let reason = self.reason.lock().take();
        self.end(Err(reason));
    }
}

impl Publishers {
    /// Returns at most `most` nodes that publish the type and hash of a topic.
    fn nodes(&self, topic: &Topic, most: usize) -> Vec<String> {
        let of_type = |of: &&Topic| (&of.type_name, &of.hash) == (&topic.type_name, &topic.hash);
        let nodes = self.tokens().filter(|(of, _)| of_type(of)).map(|(_, node)| node);
        let valid = nodes.filter(|node| check_topic(&service_of(node).name).is_ok());
        valid.collect::<BTreeSet<_>>().into_iter().take(most).map(String::from).collect()
    }
}
