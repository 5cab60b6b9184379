//! The publishers of ROS 2 applications. To the node, each publisher is a writer, and the
//! publisher's GID is the writer's id. The publisher's messages have the GID and their numbers in
//! the attachment. Its liveliness token, from which rmw_zenoh computes the GID, announces the
//! writer before the first message.
//!
//! If a publisher keeps samples for late subscribers, a second channel is its history, like the
//! history channel of a node's publisher. The samples on that channel are those in the publisher's
//! cache, which is queried when the node accepts the channel.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use polywire_core::{
    envelope::{Announcement, ChannelId, Envelope, Id128},
    frame::Start,
    qos::{Durability, Qos},
};
use zenoh::bytes::ZBytes;

use super::{
    super::{
        LinkId,
        foreign::{News, Writers},
    },
    inbox::{Arrival, Inbox, Message, Origin, arrival_of},
    outgoing::{Outgoing, Put},
    policies,
    ros::{TheirEnd, Topic},
};
use crate::{
    clock,
    replayed::{Part, begin, bring},
};

/// The most publishers without a token that are distinguished. Messages of further ones count as
/// those of a writer without an id, one for each topic.
const UNNAMED: usize = 256;

/// The publishers of ROS 2 that are known.
#[derive(Default)]
pub(super) struct Publishers {
    by_gid: HashMap<Id128, Publisher>,
    /// The number of publishers without a token.
    unnamed: usize,
    /// The channels on which the publishers' messages arrive.
    channels: BTreeMap<ChannelId, Channel>,
    /// Publishers that are gone while the inbox holds their messages, by their channels.
    ending: BTreeMap<ChannelId, (Id128, Publisher)>,
    /// The GIDs of publishers, by the channels of their histories.
    histories: BTreeMap<ChannelId, Id128>,
    /// The queries of caches, by topic.
    queries: HashMap<Topic, CacheQuery>,
}

/// A query of the caches of a topic: the publishers for which they are queried.
#[derive(Default)]
struct CacheQuery {
    now: BTreeSet<Id128>,
    /// Publishers for the next query, which begins when this one has ended. The answers to this one
    /// may lack what was published since it began.
    next: BTreeSet<Id128>,
    /// Whether the query waits until the node listens to the topic.
    is_postponed: bool,
}

/// A sample that a publisher has kept.
pub(super) struct Kept {
    pub(super) gid: Id128,
    pub(super) at: Start,
    pub(super) payload: ZBytes,
}

struct Publisher {
    topic: Topic,
    link: LinkId,
    channel: ChannelId,
    qos: Qos,
    /// The node that the publisher's token names. `None` without a token.
    node: Option<String>,
    /// Whether a message with the publisher's GID has arrived.
    has_sent: bool,
    /// The history, if the publisher keeps samples for late subscribers.
    history: Option<History>,
}

/// The channel that replays the history of a publisher to the node, as nodes replay theirs.
struct History {
    channel: ChannelId,
    /// The channel's writer.
    id: Id128,
    /// The sequence number of the last message.
    sequence: u64,
}

impl Publisher {
    /// Returns a publisher whose channels are not open yet.
    fn new(topic: &Topic, qos: Qos) -> Publisher {
        let (topic, link, channel) = (topic.clone(), LinkId(0), ChannelId(0));
        Publisher { topic, link, channel, qos, node: None, has_sent: false, history: None }
    }

    /// Returns what the publisher announces, or what the channel of its history announces. The
    /// schema is not known.
    fn announcement(&self, gid: Id128, history: Option<Id128>) -> Announcement {
        let encoding = self.topic.sample_encoding();
        let offer = policies::offer(&self.qos, encoding.ros_type, history.map(|_| gid));
        Announcement { writer: history.unwrap_or(gid), offer, ..encoding.announcement(&self.topic.name) }
    }
}

struct Channel {
    topic: Topic,
    is_accepted: bool,
}

impl Publishers {
    /// The topic of ROS 2 whose messages arrive on a channel of foreign applications.
    pub(super) fn topic(&self, channel: ChannelId) -> Option<&Topic> {
        self.channels.get(&channel).map(|channel| &channel.topic)
    }

    /// Whether messages of ROS 2 arrive on a channel that the node has not accepted.
    pub(super) fn is_unread(&self, channel: ChannelId) -> bool {
        self.channels.get(&channel).is_some_and(|channel| !channel.is_accepted)
    }

    /// The topic of a channel, or of the channel of a history.
    pub(super) fn topic_of(&self, channel: ChannelId) -> Option<&Topic> {
        let of_history = || Some(&self.by_gid.get(self.histories.get(&channel)?)?.topic);
        self.topic(channel).or_else(of_history)
    }

    /// Returns what a channel announces, without a schema.
    pub(super) fn announcement(&self, channel: ChannelId) -> Option<Announcement> {
        if let Some(gid) = self.histories.get(&channel) {
            let publisher = self.by_gid.get(gid)?;
            return Some(publisher.announcement(*gid, Some(publisher.history.as_ref()?.id)));
        }
        let topic = self.topic(channel)?;
        let known = self.by_gid.iter().find(|(_, publisher)| publisher.channel == channel);
        let publisher = known.or_else(|| self.ending.get(&channel).map(|(gid, publisher)| (gid, publisher)));
        let unnamed = || topic.sample_encoding().announcement(&topic.name);
        Some(publisher.map_or_else(unnamed, |(gid, publisher)| publisher.announcement(*gid, None)))
    }

    /// The topics of publishers with tokens, and their nodes.
    pub(super) fn tokens(&self) -> impl Iterator<Item = (&Topic, &str)> {
        self.by_gid.values().filter_map(|publisher| Some((&publisher.topic, publisher.node.as_deref()?)))
    }

    /// The publishers that are known, with their topics.
    pub(super) fn writers(&self) -> impl Iterator<Item = (&Topic, Id128)> {
        self.by_gid.iter().map(|(gid, publisher)| (&publisher.topic, *gid))
    }

    /// Returns the first channel with this topic that the node has accepted. `None` if the node
    /// reads no publisher of the topic.
    pub(super) fn read(&self, topic: &Topic) -> Option<ChannelId> {
        let read = |(_, channel): &(&ChannelId, &Channel)| channel.is_accepted && channel.topic == *topic;
        self.channels.iter().find(read).map(|(id, _)| *id)
    }

    /// Handles the node's answer to a channel. If the node accepts a history, the publisher's cache
    /// is queried.
    pub(super) fn answered(&mut self, channel: ChannelId, accepts: bool, context: NotifyContext<'_>) {
        if let Some(channel) = self.channels.get_mut(&channel) {
            channel.is_accepted = accepts;
        }
        let gid = self.histories.get(&channel).filter(|_| accepts);
        let Some((gid, publisher)) = gid.and_then(|gid| Some((*gid, self.by_gid.get(gid)?))) else { return };
        let topic = publisher.topic.clone();
        match self.queries.get_mut(&topic) {
            Some(query) => _ = query.next.insert(gid),
            None => self.query(topic, BTreeSet::from([gid]), context),
        }
    }

    /// Begins the histories of these publishers, and queries the caches of their topic.
    fn query(&mut self, topic: Topic, now: BTreeSet<Id128>, context: NotifyContext<'_>) {
        for gid in &now {
            if let Some(publisher) = self.by_gid.get_mut(gid)
                && let (link, Some(history)) = (publisher.link, &mut publisher.history)
            {
                history.begin(link, context.inbox);
            }
        }
        context.out.push(Put::AskKept { topic: Box::new(topic.clone()) });
        self.queries.insert(topic, CacheQuery { now, ..CacheQuery::default() });
    }

    /// Notes that the query for a topic waits until the node listens.
    pub(super) fn postpone(&mut self, topic: &Topic) {
        if let Some(query) = self.queries.get_mut(topic) {
            query.is_postponed = true;
        }
    }

    /// Notes that the query for a topic no longer waits. Returns false if it did not wait.
    pub(super) fn resume(&mut self, topic: &Topic) -> bool {
        self.queries.get_mut(topic).is_some_and(|query| std::mem::take(&mut query.is_postponed))
    }

    /// Sends the queries that have waited, because the node has begun to listen to topics.
    pub(super) fn listened(&mut self, context: NotifyContext<'_>) {
        for (topic, query) in &mut self.queries {
            if std::mem::take(&mut query.is_postponed) {
                context.out.push(Put::AskKept { topic: Box::new(topic.clone()) });
            }
        }
    }

    /// Handles the answers of a topic's caches: ends the histories for which they were queried.
    pub(super) fn kept(&mut self, topic: &Topic, mut samples: Vec<Kept>, mut context: NotifyContext<'_>) {
        // Publishers that have sent nothing since this node started become known by what they keep.
        samples.retain(|sample| self.channel_of(sample.gid, topic, sample.at, &mut context).is_some());
        samples.sort_by_key(|sample| (sample.gid, sample.at.sequence));
        samples.dedup_by_key(|sample| (sample.gid, sample.at.sequence));
        let Some(CacheQuery { now, next, .. }) = self.queries.remove(topic) else { return };
        for gid in now {
            let Some(publisher) = self.by_gid.get_mut(&gid) else { continue };
            let begin = samples.partition_point(|sample| sample.gid < gid);
            let end = samples.partition_point(|sample| sample.gid <= gid);
            if let (link, Some(history)) = (publisher.link, &mut publisher.history) {
                history.end(link, &samples[begin..end], context.inbox);
            }
        }
        if !next.is_empty() {
            self.query(topic.clone(), next, context);
        }
    }

    /// Handles a message of a foreign application. Its attachment has the writer and the position.
    pub(super) fn message(
        &mut self,
        topic: &Topic,
        attached: Option<(Id128, Start)>,
        payload: &ZBytes,
        mut context: NotifyContext<'_>,
    ) {
        if let Some((gid, at)) = attached
            && let Some(channel) = self.channel_of(gid, topic, at, &mut context)
        {
            let NotifyContext { foreign, inbox, .. } = context;
            return foreign.take_at(channel, counted(at), payload.len(), |link, news| {
                inbox.push(link, arrival_of(news, payload));
            });
        }
        let (name, timestamp_ns) =
            (topic.name.clone(), attached.map_or_else(clock::wall_ns, |(_, at)| at.timestamp_ns));
        let NotifyContext { foreign, inbox, .. } = context;
        foreign.take(name, topic.sample_encoding(), timestamp_ns, payload.len(), |link, news| {
            if let News::Announced(channel, ..) = &news {
                self.channels.insert(*channel, Channel { topic: topic.clone(), is_accepted: false });
            }
            inbox.push(link, arrival_of(news, payload));
        });
    }

    /// Returns the channel of the publisher with this GID, and opens it if the publisher is new.
    /// `None` if the publisher is not distinguished from others.
    fn channel_of(
        &mut self,
        gid: Id128,
        topic: &Topic,
        at: Start,
        context: &mut NotifyContext<'_>,
    ) -> Option<ChannelId> {
        // ROS 2 has signed sequence numbers.
        if gid.is_zero() || i64::try_from(at.sequence).is_err() {
            return None;
        }
        if let Some(known) = self.by_gid.get_mut(&gid) {
            known.has_sent |= known.topic == *topic;
            return (known.topic == *topic).then_some(known.channel);
        }
        if self.unnamed >= UNNAMED {
            return None;
        }
        // Not every library computes GIDs as rmw_zenoh does. The publisher has one of the tokens
        // with whose GIDs no message has arrived, so it offers no more than any of these.
        let silent =
            self.by_gid.values().filter(|other| other.topic == *topic && other.node.is_some() && !other.has_sent);
        let qos = silent.map(|other| other.qos.clone()).reduce(|a, b| policies::weaker(&a, &b));
        let qos = qos.unwrap_or_else(|| policies::read(""));
        let publisher = Publisher { has_sent: true, ..Publisher::new(topic, qos) };
        self.open(gid, publisher, context)
    }

    /// Adds the publisher with this GID, whose token has appeared, or updates it.
    pub(super) fn token_added(&mut self, gid: Id128, end: &TheirEnd, mut context: NotifyContext<'_>) {
        let TheirEnd { topic, qos, node, .. } = end;
        match self.by_gid.get_mut(&gid) {
            Some(known) if known.topic == *topic && known.qos == *qos => {
                self.unnamed -= usize::from(known.node.is_none());
                known.node = Some(node.clone());
                return;
            }
            Some(_) => self.close(gid, &mut context),
            None => {}
        }
        let publisher = Publisher { node: Some(node.clone()), ..Publisher::new(topic, qos.clone()) };
        self.open(gid, publisher, &mut context);
    }

    /// Removes the publisher with this GID, if there is one.
    pub(super) fn remove(&mut self, gid: Id128, mut context: NotifyContext<'_>) {
        self.close(gid, &mut context);
    }

    fn open(&mut self, gid: Id128, publisher: Publisher, context: &mut NotifyContext<'_>) -> Option<ChannelId> {
        let is_durable = publisher.qos.durability == Durability::TransientLocal;
        let (link, channel) = context.open(publisher.announcement(gid, None))?;
        let mut history = None;
        if is_durable {
            let id = Id128::of_document(format!("the history of {gid}").as_bytes());
            let Some((_, opened)) = context.open(publisher.announcement(gid, Some(id))) else {
                context.close(link, channel);
                return None;
            };
            self.histories.insert(opened, gid);
            history = Some(History { channel: opened, id, sequence: 0 });
        }
        self.channels.insert(channel, Channel { topic: publisher.topic.clone(), is_accepted: false });
        self.unnamed += usize::from(publisher.node.is_none());
        self.by_gid.insert(gid, Publisher { link, channel, history, ..publisher });
        Some(channel)
    }

    fn close(&mut self, gid: Id128, context: &mut NotifyContext<'_>) {
        let Some(mut removed) = self.by_gid.remove(&gid) else { return };
        let (link, channel) = (removed.link, removed.channel);
        self.unnamed -= usize::from(removed.node.is_none());
        if let Some(history) = removed.history.take() {
            self.histories.remove(&history.channel);
            context.close(link, history.channel);
        }
        context.inbox.push(link, Arrival::Retired(channel, None));
        if context.inbox.holds(link, channel) {
            self.ending.insert(channel, (gid, removed));
        } else {
            self.channels.remove(&channel);
            context.foreign.close(channel);
        }
    }

    /// Notes that the inbox no longer holds the messages of a channel. If the publisher is gone,
    /// the channel ends.
    pub(super) fn settled(&mut self, channel: ChannelId, foreign: &mut Writers) {
        if self.ending.remove(&channel).is_some() {
            self.channels.remove(&channel);
            foreign.close(channel);
        }
    }
}

impl History {
    /// Begins a replay, as the history of a node's publisher does.
    fn begin(&mut self, link: LinkId, inbox: &mut Inbox) {
        let channel = self.channel;
        begin(&mut self.sequence, self.id, |sequence, part| push(channel, sequence, part, None, link, inbox));
    }

    /// Replays these samples, and ends the replay.
    fn end(&mut self, link: LinkId, samples: &[Kept], inbox: &mut Inbox) {
        let channel = self.channel;
        let samples = samples.iter().map(|kept| (counted(kept.at).sequence, kept));
        bring(&mut self.sequence, samples, |sequence, part, kept| push(channel, sequence, part, kept, link, inbox));
    }
}

/// Adds a message of a history to the inbox.
fn push(channel: ChannelId, sequence: u64, part: Part<'_>, kept: Option<&Kept>, link: LinkId, inbox: &mut Inbox) {
    let timestamp_ns = kept.map_or_else(clock::wall_ns, |kept| kept.at.timestamp_ns);
    let payload = kept.map(|kept| kept.payload.clone()).unwrap_or_default();
    let (extensions, plain) = (part.extension(), Envelope::data(channel, sequence, timestamp_ns));
    let envelope = Envelope { extensions: extensions.as_extensions(), ..plain };
    inbox.push(link, Arrival::Message(Message::new(&envelope, &payload, Origin::Node(None))));
}

/// Converts a position of ROS 2 to the count of nodes, from 1: some libraries of ROS 2 count from
/// 0.
fn counted(at: Start) -> Start {
    Start { sequence: at.sequence.saturating_add(1), ..at }
}

/// The parts of the state through which the node is informed of publishers.
pub(super) struct NotifyContext<'a> {
    pub(super) foreign: &'a mut Writers,
    pub(super) inbox: &'a mut Inbox,
    pub(super) out: &'a mut Outgoing,
}

impl NotifyContext<'_> {
    fn open(&mut self, announcement: Announcement) -> Option<(LinkId, ChannelId)> {
        let NotifyContext { foreign, inbox, .. } = self;
        foreign.open(announcement, |link, news| inbox.push(link, arrival_of(news, &ZBytes::new())))
    }

    fn close(&mut self, link: LinkId, channel: ChannelId) {
        self.foreign.close(channel);
        self.inbox.push(link, Arrival::Retired(channel, None));
    }
}

#[cfg(test)]
mod tests {
    use polywire_core::qos::Offer;
    use proptest::prelude::*;

    use super::*;

    struct Node {
        publishers: Publishers,
        foreign: Writers,
        inbox: Inbox,
        out: Outgoing,
    }

    fn node(channels: usize) -> Node {
        let (foreign, out) = (Writers::new(channels, 100_000), Outgoing::new(1000));
        Node { publishers: Publishers::default(), foreign, inbox: Inbox::default(), out }
    }

    impl Node {
        fn with<T>(&mut self, with: impl FnOnce(&mut Publishers, NotifyContext<'_>) -> T) -> T {
            let Node { publishers, foreign, inbox, out } = self;
            with(publishers, NotifyContext { foreign, inbox, out })
        }

        /// Adds a publisher with a token. Returns the channel of its history, or else its own.
        fn token_added(&mut self, gid: u8, qos: &str) -> ChannelId {
            self.with(|publishers, context| publishers.token_added(id(gid), &end(qos), context));
            let publisher = &self.publishers.by_gid[&id(gid)];
            publisher.history.as_ref().map_or(publisher.channel, |history| history.channel)
        }

        fn answered(&mut self, channel: ChannelId, accepts: bool) {
            self.with(|publishers, context| publishers.answered(channel, accepts, context));
        }

        /// The caches answer with samples of these GIDs and numbers.
        fn kept(&mut self, samples: &[(u8, u64)]) {
            let payload = ZBytes::new();
            let sample =
                |(gid, sequence): &(u8, u64)| Kept { gid: id(*gid), at: at(*sequence), payload: payload.clone() };
            let samples = samples.iter().map(sample).collect();
            self.with(|publishers, context| publishers.kept(&topic(), samples, context));
        }

        /// Empties the inbox, and describes in words what was in it.
        fn told(&mut self) -> Vec<String> {
            let word = |what| match what {
                Arrival::Announced(channel, _, announced) => {
                    let history = Offer::parse(&announced.offer).expect("an offer").history_of;
                    format!("{channel} is {}", if history.is_some() { "a history" } else { "a writer" })
                }
                Arrival::Message(message) => match Part::of(&message.envelope()) {
                    Some(Part::Begin(replay, _)) => format!("{} begins {replay}", message.channel()),
                    Some(Part::Sample(number)) => format!("{} has {number}", message.channel()),
                    Some(Part::End) => format!("{} ends", message.channel()),
                    None => format!("{}: {}", message.channel(), message.envelope().sequence),
                },
                Arrival::Retired(channel, _) => format!("{channel} is gone"),
                Arrival::Up(_) => "up".into(),
                _ => "?".into(),
            };
            std::iter::from_fn(|| self.inbox.pop()).map(|arrived| word(arrived.what)).collect()
        }

        /// Returns the number of queries that leave.
        fn queries(&mut self) -> usize {
            std::iter::from_fn(|| self.out.pop()).count()
        }
    }

    fn id(gid: u8) -> Id128 {
        Id128([gid; 16])
    }

    fn at(sequence: u64) -> Start {
        Start { sequence, timestamp_ns: 0 }
    }

    fn topic() -> Topic {
        let hash = format!("RIHS01_{}", "7".repeat(64));
        Topic { name: "map".into(), type_name: "nav::msg::dds_::Map_".into(), hash }
    }

    fn end(qos: &str) -> TheirEnd {
        TheirEnd { topic: topic(), qos: policies::read(qos), node: "/n".into(), node_token: "t".into() }
    }

    const LATCHED: &str = ":1:";

    #[test]
    fn a_history_is_what_the_cache_has_when_the_node_accepts_it() {
        let mut node = node(100);
        let [one, two] = [1, 2].map(|gid| node.token_added(gid, LATCHED));
        let opened = ["up", "1 is a writer", "2 is a history", "3 is a writer", "4 is a history"];
        assert_eq!((node.told(), node.queries()), (opened.map(String::from).into(), 0));
        node.answered(one, true);
        node.answered(two, true);
        assert_eq!((node.told(), node.queries()), (vec!["2 begins 1".into()], 1), "one at a time");
        // Samples arrive in order, each once, and for the publishers whose histories were accepted
        // before the query. A history begins before its query: what is published from then on
        // arrives live.
        node.kept(&[(1, 9), (2, 4), (1, 8), (1, 9)]);
        assert_eq!(node.told(), ["2 has 9", "2 has 10", "2 ends", "4 begins 1"]);
        assert_eq!(node.queries(), 1, "for the other one");
        node.answered(one, false);
        // A publisher whose GID is not that of its token becomes known by what it keeps.
        node.token_added(7, LATCHED);
        node.told();
        node.kept(&[(2, 5), (3, 1)]);
        assert_eq!(node.told(), ["7 is a writer", "8 is a history", "4 has 6", "4 ends"]);
        node.kept(&[(1, 9)]);
        assert_eq!((node.told(), node.queries()), (vec![], 0), "nobody has asked");
        node.with(|publishers, context| publishers.remove(id(1), context));
        assert_eq!(node.told(), ["2 is gone", "1 is gone"]);
        node.answered(one, true);
        assert_eq!(node.queries(), 0, "it is gone");
    }

    #[test]
    fn a_query_waits_until_the_node_listens() {
        let mut node = node(100);
        let history = node.token_added(1, LATCHED);
        node.answered(history, true);
        node.publishers.postpone(&topic());
        assert_eq!(node.queries(), 1);
        node.with(|publishers, context| publishers.listened(context));
        assert_eq!((node.queries(), node.publishers.resume(&topic())), (1, false));
        node.publishers.postpone(&topic());
        assert!(node.publishers.resume(&topic()));
        node.with(|publishers, context| publishers.listened(context));
        assert_eq!(node.queries(), 0, "it is under way");
    }

    #[test]
    fn a_publisher_without_room_for_its_history_is_none() {
        let mut node = node(3);
        node.token_added(1, LATCHED);
        node.with(|publishers, context| publishers.token_added(id(2), &end(LATCHED), context));
        assert!(!node.publishers.by_gid.contains_key(&id(2)));
        node.token_added(3, "");
    }

    #[test]
    fn what_is_held_of_a_publisher_that_is_gone_keeps_its_channel() {
        let mut node = node(1);
        let channel = node.token_added(1, "");
        let link = node.publishers.by_gid[&id(1)].link;
        node.told();
        node.inbox.hold(link, channel);
        node.with(|publishers, context| {
            publishers.message(&topic(), Some((id(1), at(4))), &ZBytes::new(), context);
        });
        node.with(|publishers, context| publishers.remove(id(1), context));
        assert_eq!(node.told(), [""; 0]);
        let announced = node.publishers.announcement(channel).expect("it is known");
        assert_eq!((announced.writer, node.publishers.topic_of(channel)), (id(1), Some(&topic())));
        node.with(|publishers, context| publishers.token_added(id(2), &end(""), context));
        assert!(!node.publishers.by_gid.contains_key(&id(2)), "there is no room");
        node.told();
        node.inbox.settle(link, channel);
        node.with(|publishers, context| publishers.settled(channel, context.foreign));
        assert_eq!(node.told(), ["1: 5", "1 is gone"]);
        assert!(node.publishers.announcement(channel).is_none());
        node.token_added(3, "");
    }

    proptest! {
        #[test]
        fn hostile_attachments_and_tokens_leave_a_consistent_state(
            events in proptest::collection::vec((0..5_u8, 0..9_u8, any::<u64>()), 0..200)
        ) {
            let mut node = node(12);
            for (kind, gid, sequence) in events {
                match kind {
                    0 => node.with(|p, c| p.token_added(id(gid), &end(if gid < 4 { LATCHED } else { "" }), c)),
                    1 => node.with(|p, c| p.remove(id(gid), c)),
                    2 => node.with(|p, c| p.message(&topic(), Some((id(gid), at(sequence))), &ZBytes::new(), c)),
                    3 => node.answered(ChannelId(u32::from(gid)), sequence % 2 == 0),
                    _ => node.kept(&[(gid, sequence), (gid, sequence / 2)]),
                }
            }
            let Publishers { by_gid, unnamed, channels, histories, .. } = &node.publishers;
            prop_assert_eq!(by_gid.values().filter(|publisher| publisher.node.is_none()).count(), *unnamed);
            prop_assert_eq!(by_gid.values().filter(|publisher| publisher.history.is_some()).count(), histories.len());
            prop_assert!(by_gid.values().all(|publisher| channels.contains_key(&publisher.channel)));
            prop_assert!(by_gid.len() + histories.len() <= 12);
        }
    }
}
