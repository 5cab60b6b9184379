//! The publishers of ROS 2. Each is a writer with the id of its GID, which its messages carry
//! together with their numbers. Its liveliness token, of which rmw_zenoh makes the GID, announces
//! it before its first message.

use std::collections::{BTreeMap, HashMap};

use polywire_core::{
    envelope::{Announcement, ChannelId, Id128},
    frame::Start,
    qos::Qos,
};
use zenoh::bytes::ZBytes;

use super::{
    super::{
        LinkId,
        foreign::{News, Writers},
    },
    inbox::{Arrival, Inbox, arrival_of},
    policies,
    ros::Topic,
};
use crate::clock;

/// Publishers without a token that are told apart, at most. Messages of further ones are those of a
/// writer without an id, one for each topic.
const UNNAMED: usize = 256;

/// The publishers of ROS 2 that are known.
#[derive(Default)]
pub(super) struct Publishers {
    by_gid: HashMap<Id128, Publisher>,
    /// Those without a token.
    unnamed: usize,
    /// The channels on which their messages come.
    channels: BTreeMap<ChannelId, Channel>,
}

struct Publisher {
    topic: Topic,
    link: LinkId,
    channel: ChannelId,
    qos: Qos,
    has_token: bool,
    /// A message with its GID has come.
    has_sent: bool,
}

impl Publisher {
    /// Before it is opened.
    fn new(topic: &Topic, qos: Qos) -> Publisher {
        let (topic, link, channel) = (topic.clone(), LinkId(0), ChannelId(0));
        Publisher { topic, link, channel, qos, has_token: false, has_sent: false }
    }
}

struct Channel {
    topic: Topic,
    is_accepted: bool,
}

impl Publishers {
    /// The topic of ROS 2 whose messages come on a channel of foreign applications.
    pub(super) fn topic(&self, channel: ChannelId) -> Option<&Topic> {
        self.channels.get(&channel).map(|channel| &channel.topic)
    }

    /// Whether the node reads somebody who publishes a topic: the first channel that it has
    /// accepted.
    pub(super) fn read(&self, topic: &Topic) -> Option<ChannelId> {
        let read = |(_, channel): &(&ChannelId, &Channel)| channel.is_accepted && channel.topic == *topic;
        self.channels.iter().find(read).map(|(id, _)| *id)
    }

    /// The node's answer to a channel.
    pub(super) fn answered(&mut self, channel: ChannelId, accepts: bool) {
        if let Some(channel) = self.channels.get_mut(&channel) {
            channel.is_accepted = accepts;
        }
    }

    /// A message of somebody who is no Polywire node, with what its attachment says.
    pub(super) fn message(
        &mut self,
        topic: &Topic,
        attached: Option<(Id128, Start)>,
        payload: &ZBytes,
        mut hearing: Hearing<'_>,
    ) {
        if let Some((gid, at)) = attached
            && let Some(channel) = self.channel_of(gid, topic, at, &mut hearing)
        {
            let Hearing { foreign, inbox } = hearing;
            return foreign.take_at(channel, at, payload.len(), |link, news| {
                inbox.push(link, arrival_of(news, payload));
            });
        }
        let (name, timestamp_ns) =
            (topic.name.clone(), attached.map_or_else(clock::wall_ns, |(_, at)| at.timestamp_ns));
        let Hearing { foreign, inbox } = hearing;
        foreign.take(name, topic.said(), timestamp_ns, payload.len(), |link, news| {
            if let News::Announced(channel, ..) = &news {
                self.channels.insert(*channel, Channel { topic: topic.clone(), is_accepted: false });
            }
            inbox.push(link, arrival_of(news, payload));
        });
    }

    /// The channel of the publisher with this GID. `None` if it is not told apart from others.
    fn channel_of(&mut self, gid: Id128, topic: &Topic, at: Start, hearing: &mut Hearing<'_>) -> Option<ChannelId> {
        // ROS 2 has signed numbers.
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
        // Not every library makes GIDs as rmw_zenoh does. It is one of those with tokens.
        let silent = self.by_gid.values().filter(|other| other.topic == *topic && other.has_token && !other.has_sent);
        let qos = silent.map(|other| other.qos.clone()).reduce(|a, b| policies::weaker(&a, &b));
        let qos = qos.unwrap_or_else(|| policies::read(""));
        let publisher = Publisher { has_sent: true, ..Publisher::new(topic, qos) };
        self.open(gid, publisher, hearing)
    }

    /// The token of a publisher with this GID has come.
    pub(super) fn came(&mut self, gid: Id128, topic: &Topic, qos: Qos, mut hearing: Hearing<'_>) {
        match self.by_gid.get_mut(&gid) {
            Some(known) if known.topic == *topic && known.qos == qos => {
                self.unnamed -= usize::from(!known.has_token);
                known.has_token = true;
                return;
            }
            Some(_) => self.close(gid, &mut hearing),
            None => {}
        }
        self.open(gid, Publisher { has_token: true, ..Publisher::new(topic, qos) }, &mut hearing);
    }

    /// There is no publisher with this GID any more.
    pub(super) fn gone(&mut self, gid: Id128, mut hearing: Hearing<'_>) {
        self.close(gid, &mut hearing);
    }

    fn open(&mut self, gid: Id128, publisher: Publisher, hearing: &mut Hearing<'_>) -> Option<ChannelId> {
        let Publisher { topic, qos, has_token, .. } = &publisher;
        let said = topic.said();
        let offer = policies::offer(qos, said.ros_type);
        let announcement = Announcement { writer: gid, offer, ..said.announcement(&topic.name) };
        let (link, channel) = hearing.open(announcement)?;
        self.channels.insert(channel, Channel { topic: topic.clone(), is_accepted: false });
        self.unnamed += usize::from(!has_token);
        self.by_gid.insert(gid, Publisher { link, channel, ..publisher });
        Some(channel)
    }

    fn close(&mut self, gid: Id128, hearing: &mut Hearing<'_>) {
        let Some(gone) = self.by_gid.remove(&gid) else { return };
        self.unnamed -= usize::from(!gone.has_token);
        self.channels.remove(&gone.channel);
        hearing.close(gone.link, gone.channel);
    }
}

/// Where the node hears of publishers.
pub(super) struct Hearing<'a> {
    pub(super) foreign: &'a mut Writers,
    pub(super) inbox: &'a mut Inbox,
}

impl Hearing<'_> {
    fn open(&mut self, announcement: Announcement) -> Option<(LinkId, ChannelId)> {
        let Hearing { foreign, inbox } = self;
        foreign.open(announcement, |link, news| inbox.push(link, arrival_of(news, &ZBytes::new())))
    }

    fn close(&mut self, link: LinkId, channel: ChannelId) {
        self.foreign.close(channel);
        self.inbox.push(link, Arrival::Retired(channel, None));
    }
}
