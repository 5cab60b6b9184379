//! What applications publish that are not Polywire's: one channel for each topic and format, on a
//! link that stands for all of them.

use std::collections::BTreeMap;

use polywire_core::{
    envelope::{Announcement, ChannelId, Id128},
    frame::{Answer, Hello, Start},
};
use zenoh::bytes::ZBytes;

use super::{
    super::{Event, LinkId, LinkInfo, Principal},
    format,
    inbox::{Arrival, Inbox},
};

/// Bytes that a message counts besides its payload while it waits.
const OVERHEAD: usize = 64;

/// The channels of foreign applications.
pub(super) struct Foreign {
    /// Most channels, and most bytes that wait for the node.
    most: usize,
    room: usize,
    /// `None` before the first message.
    link: Option<LinkId>,
    /// By topic, codec and name of the type.
    known: BTreeMap<(String, String, String), Channel>,
    waiting: usize,
    /// Messages that were ignored because of `most`.
    ignored: u64,
}

struct Channel {
    id: ChannelId,
    /// The node does not want its messages.
    is_declined: bool,
    /// Position after the last message, and how many messages before it were dropped and not told.
    last: Start,
    lost: u64,
}

impl Foreign {
    pub(super) fn new(most: usize, room: usize) -> Foreign {
        Foreign { most, room, link: None, known: BTreeMap::new(), waiting: 0, ignored: 0 }
    }

    /// A message came. It is dropped if too much waits for the node.
    pub(super) fn take(
        &mut self,
        topic: String,
        encoding: &str,
        timestamp_ns: i64,
        payload: ZBytes,
        inbox: &mut Inbox,
    ) {
        let link = *self.link.get_or_insert_with(|| begin(inbox));
        let (codec, type_name) = format::foreign(encoding);
        let (next, key) = (self.known.len(), (topic, codec, type_name));
        if next >= self.most && !self.known.contains_key(&key) {
            return self.ignore(link, &key.0, inbox);
        }
        let channel = self.known.entry(key).or_insert_with_key(|key| announce(link, next, key, inbox));
        channel.last = Start { sequence: channel.last.sequence + 1, timestamp_ns };
        if channel.is_declined {
            return;
        }
        let size = payload.len() + OVERHEAD;
        if self.waiting > 0 && self.waiting + size > self.room {
            channel.lost += 1;
            return;
        }
        self.waiting += size;
        if channel.lost > 0 {
            let before = Start { sequence: channel.last.sequence - 1, timestamp_ns };
            inbox.push(link, Arrival::Lost(channel.id, before, std::mem::take(&mut channel.lost)));
        }
        inbox.push(link, Arrival::Foreign { channel: channel.id, at: channel.last, payload });
    }

    /// A message was handed to the node.
    pub(super) fn taken(&mut self, payload: &ZBytes) {
        self.waiting -= payload.len() + OVERHEAD;
    }

    /// The node's answer to a channel. False if the link is another one.
    pub(super) fn answered(&mut self, link: LinkId, id: ChannelId, answer: &Answer) -> bool {
        if self.link != Some(link) {
            return false;
        }
        if let Some(channel) = self.known.values_mut().find(|channel| channel.id == id) {
            channel.is_declined = !answer.accepts();
        }
        true
    }

    fn ignore(&mut self, link: LinkId, topic: &str, inbox: &mut Inbox) {
        self.ignored += 1;
        if self.ignored.is_power_of_two() {
            let reason = format!("foreign applications publish more than {} topics", self.most);
            let event = Event::Ignored { name: topic.into(), reason, total: self.ignored };
            inbox.push(link, Arrival::Tell(Box::new(event)));
        }
    }
}

fn begin(inbox: &mut Inbox) -> LinkId {
    let id = LinkId::next();
    let info = LinkInfo { id, peer: Hello::default(), address: "foreign".into(), principal: Principal::Anonymous };
    inbox.push(id, Arrival::Up(Box::new(info)));
    id
}

fn announce(link: LinkId, known: usize, key: &(String, String, String), inbox: &mut Inbox) -> Channel {
    let (topic, codec, type_name) = key.clone();
    let announcement = Announcement { topic, codec, type_name, writer: Id128::ZERO, ..Announcement::default() };
    let id = ChannelId(u32::try_from(known + 1).unwrap_or(u32::MAX));
    inbox.push(link, Arrival::Announced(id, Start::default(), Box::new(announcement)));
    Channel { id, is_declined: false, last: Start::default(), lost: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is in the inbox, in words.
    fn told(inbox: &mut Inbox) -> Vec<String> {
        let word = |what| match what {
            Arrival::Up(info) => format!("up {}", info.address),
            Arrival::Announced(id, _, a) => format!("{id} is {} {} {}", a.topic, a.codec, a.type_name),
            Arrival::Foreign { channel, at, .. } => format!("{channel}: {}", at.sequence),
            Arrival::Lost(channel, at, lost) => format!("{channel}: {lost} lost up to {}", at.sequence),
            Arrival::Tell(event) => format!("{event:?}"),
            _ => "?".into(),
        };
        std::iter::from_fn(|| inbox.pop()).map(|arrived| word(arrived.what)).collect()
    }

    fn payload() -> ZBytes {
        ZBytes::from(vec![0; 100])
    }

    #[test]
    fn each_topic_and_format_is_a_channel() {
        let (mut foreign, mut inbox) = (Foreign::new(2, 1000), Inbox::default());
        for (topic, encoding) in [("a", "application/json"), ("b", "zenoh/bytes"), ("a", "application/json;T@07")] {
            foreign.take(topic.into(), encoding, 0, payload(), &mut inbox);
        }
        foreign.take("a".into(), "application/json", 0, payload(), &mut inbox);
        let told = told(&mut inbox);
        assert_eq!(told[..5], ["up foreign", "1 is a json ", "1: 1", "2 is b  ", "2: 1"]);
        assert!(told[5].contains("more than 2 topics"), "{told:?}");
        assert_eq!(told[6..], ["1: 2"]);
    }

    #[test]
    fn what_the_node_does_not_take_is_lost_and_told() {
        let (mut foreign, mut inbox) = (Foreign::new(9, 400), Inbox::default());
        let take = |foreign: &mut Foreign, inbox: &mut Inbox| foreign.take("a".into(), "", 0, payload(), inbox);
        (0..5).for_each(|_| take(&mut foreign, &mut inbox));
        assert_eq!(told(&mut inbox), ["up foreign", "1 is a  ", "1: 1", "1: 2"]);
        foreign.taken(&payload());
        take(&mut foreign, &mut inbox);
        assert_eq!(told(&mut inbox), ["1: 3 lost up to 5", "1: 6"]);
        let link = foreign.link.expect("a link");
        assert!(foreign.answered(link, ChannelId(1), &Answer::Decline));
        assert!(!foreign.answered(LinkId(0), ChannelId(1), &Answer::Decline));
        foreign.taken(&payload());
        take(&mut foreign, &mut inbox);
        assert_eq!(told(&mut inbox), [""; 0]);
        foreign.answered(link, ChannelId(1), &Answer::Accept(1));
        take(&mut foreign, &mut inbox);
        assert_eq!(told(&mut inbox), ["1: 8"], "what was not wanted is not lost");
    }
}
