//! The channels of foreign publishers, on a link that stands for all of them: one channel for each
//! topic and format, and one for each publisher that has an id as a writer.

use std::collections::BTreeMap;

use polywire_core::{
    envelope::{Announcement, ChannelId},
    frame::{Answer, Hello, Start},
};

use super::{
    super::{Event, LinkId, LinkInfo, Principal},
    encoding::SampleEncoding,
};

/// Bytes that a message counts besides its payload while it waits.
const OVERHEAD: usize = 64;

/// A report to the node, on the link that stands for all foreign applications.
pub(in crate::engine) enum News {
    Up(Box<LinkInfo>),
    /// A new channel. The announcement's schema is the hash in the encoding. The engine sets it to
    /// zero if it cannot supply that schema.
    Announced(ChannelId, Start, Box<Announcement>),
    /// The message that was passed to [`Writers::take`], on this channel, at this position.
    Message(ChannelId, Start),
    /// This number of messages of the channel, up to this position, was dropped by this node.
    Lost(ChannelId, Start, u64),
    Tell(Box<Event>),
}

/// The channels of foreign applications.
pub(in crate::engine) struct Writers {
    /// The most channels, and the most bytes that wait for the node.
    most: usize,
    room: usize,
    /// `None` before the first report.
    link: Option<LinkId>,
    /// The channels of each topic and encoding.
    known: BTreeMap<(String, SampleEncoding), Channel>,
    /// The channels of publishers that have an id as a writer.
    opened: BTreeMap<ChannelId, Channel>,
    /// The number of the last channel.
    last: u32,
    waiting: usize,
    /// The number of messages and other items that were ignored.
    ignored: u64,
}

struct Channel {
    id: ChannelId,
    /// The node does not want the channel's messages.
    is_declined: bool,
    /// The position after the last message, and how many messages before it were dropped and not
    /// reported.
    last: Start,
    lost: u64,
}

impl Writers {
    pub(in crate::engine) fn new(most: usize, room: usize) -> Writers {
        let (known, opened) = (BTreeMap::new(), BTreeMap::new());
        Writers { most, room, link: None, known, opened, last: 0, waiting: 0, ignored: 0 }
    }

    /// Takes a message of this many bytes. Drops it if too many bytes wait for the node.
    pub(in crate::engine) fn take(
        &mut self,
        topic: String,
        encoding: SampleEncoding,
        timestamp_ns: i64,
        bytes: usize,
        mut tell: impl FnMut(LinkId, News),
    ) {
        let link = self.link(&mut tell);
        let key = (topic, encoding);
        if !self.know(link, &key, &mut tell) {
            return;
        }
        let Some(channel) = self.known.get_mut(&key) else { return };
        channel.last = Start { sequence: channel.last.sequence + 1, timestamp_ns };
        channel.pass(link, bytes, &mut self.waiting, self.room, tell);
    }

    /// Takes a message of a publisher that has an id as a writer, at the publisher's own position,
    /// on the channel that was opened for it.
    #[cfg(feature = "zenoh")]
    pub(in crate::engine) fn take_at(
        &mut self,
        channel: ChannelId,
        at: Start,
        bytes: usize,
        tell: impl FnMut(LinkId, News),
    ) {
        let (Some(link), Some(channel)) = (self.link, self.opened.get_mut(&channel)) else { return };
        channel.last = at;
        channel.pass(link, bytes, &mut self.waiting, self.room, tell);
    }

    /// Announces a channel for a topic and encoding if they are new. Returns false if there are too
    /// many channels.
    fn know(&mut self, link: LinkId, key: &(String, SampleEncoding), mut tell: impl FnMut(LinkId, News)) -> bool {
        if self.known.contains_key(key) {
            return true;
        }
        let Some(id) = self.next(&key.0, &mut tell) else { return false };
        self.known.insert(key.clone(), announce(link, id, key, &mut tell));
        true
    }

    /// Returns the id of a new channel, or `None` if there are too many.
    fn next(&mut self, topic: &str, tell: impl FnMut(LinkId, News)) -> Option<ChannelId> {
        if self.known.len() + self.opened.len() >= self.most {
            let reason = format!("foreign applications publish more than {} topics", self.most);
            self.ignore(topic, reason, tell);
            return None;
        }
        self.last += 1;
        Some(ChannelId(self.last))
    }

    /// Opens a channel for a publisher that has an id as a writer, until [`Writers::close`].
    /// Returns `None` if there are too many channels.
    #[cfg(feature = "zenoh")]
    pub(in crate::engine) fn open(
        &mut self,
        announcement: Announcement,
        mut tell: impl FnMut(LinkId, News),
    ) -> Option<(LinkId, ChannelId)> {
        let link = self.link(&mut tell);
        let id = self.next(&announcement.topic, &mut tell)?;
        self.opened.insert(id, Channel::new(id));
        tell(link, News::Announced(id, Start::default(), Box::new(announcement)));
        Some((link, id))
    }

    /// Removes a channel that [`Writers::open`] opened.
    #[cfg(feature = "zenoh")]
    pub(in crate::engine) fn close(&mut self, channel: ChannelId) {
        self.opened.remove(&channel);
    }

    /// Notes that a message of this many bytes was passed to the node.
    pub(in crate::engine) fn taken(&mut self, bytes: usize) {
        self.waiting -= bytes + OVERHEAD;
    }

    /// Returns whether the link exists.
    #[cfg(feature = "zenoh")]
    pub(in crate::engine) fn has_link(&self) -> bool {
        self.link.is_some()
    }

    /// Returns whether this is the link that stands for foreign applications.
    #[cfg(feature = "zenoh")]
    pub(in crate::engine) fn is_link(&self, link: LinkId) -> bool {
        self.link == Some(link)
    }

    /// Notes that something was ignored, because it is no message or exceeds a limit. The 1st, 2nd,
    /// 4th, 8th, ... such case is reported.
    pub(in crate::engine) fn ignore(&mut self, name: &str, reason: String, mut tell: impl FnMut(LinkId, News)) {
        self.ignored += 1;
        if self.ignored.is_power_of_two() {
            let link = self.link(&mut tell);
            let event = Event::Ignored { name: name.into(), reason, total: self.ignored };
            tell(link, News::Tell(Box::new(event)));
        }
    }

    /// Returns the link, which is created for the first report.
    pub(in crate::engine) fn link(&mut self, tell: impl FnMut(LinkId, News)) -> LinkId {
        *self.link.get_or_insert_with(|| begin(tell))
    }

    /// Notes the node's answer to a channel. Returns false if `link` is another link.
    pub(in crate::engine) fn answered(&mut self, link: LinkId, id: ChannelId, answer: &Answer) -> bool {
        if self.link != Some(link) {
            return false;
        }
        let is_it = |channel: &&mut Channel| channel.id == id;
        if let Some(channel) = self.opened.get_mut(&id).or_else(|| self.known.values_mut().find(is_it)) {
            channel.is_declined = !answer.accepts();
        }
        true
    }
}

fn begin(mut tell: impl FnMut(LinkId, News)) -> LinkId {
    let id = LinkId::next();
    let info = LinkInfo { id, peer: Hello::default(), address: "foreign".into(), principal: Principal::Anonymous };
    tell(id, News::Up(Box::new(info)));
    id
}

fn announce(
    link: LinkId,
    id: ChannelId,
    key: &(String, SampleEncoding),
    mut tell: impl FnMut(LinkId, News),
) -> Channel {
    let (topic, encoding) = key;
    tell(link, News::Announced(id, Start::default(), Box::new(encoding.announcement(topic))));
    Channel::new(id)
}

impl Channel {
    fn new(id: ChannelId) -> Channel {
        Channel { id, is_declined: false, last: Start::default(), lost: 0 }
    }

    /// Passes the last message on, unless the node has declined the channel, or more than `room`
    /// bytes would wait.
    fn pass(
        &mut self,
        link: LinkId,
        bytes: usize,
        waiting: &mut usize,
        room: usize,
        mut tell: impl FnMut(LinkId, News),
    ) {
        if self.is_declined {
            return;
        }
        let size = bytes + OVERHEAD;
        if *waiting > 0 && *waiting + size > room {
            self.lost += 1;
            return;
        }
        *waiting += size;
        if self.lost > 0 {
            let before = Start { sequence: self.last.sequence.saturating_sub(1), ..self.last };
            tell(link, News::Lost(self.id, before, std::mem::take(&mut self.lost)));
        }
        tell(link, News::Message(self.id, self.last));
    }
}

#[cfg(test)]
mod tests {
    use super::{super::encoding::read, *};

    /// The reports as text.
    #[derive(Default)]
    struct Told(Vec<String>);

    impl Told {
        fn note(&mut self, news: News) {
            self.0.push(match news {
                News::Up(info) => format!("up {}", info.address),
                News::Announced(id, _, a) => format!("{id} is {} {} {}", a.topic, a.codec, a.type_name),
                News::Message(channel, at) => format!("{channel}: {}", at.sequence),
                News::Lost(channel, at, lost) => format!("{channel}: {lost} lost up to {}", at.sequence),
                News::Tell(event) => format!("{event:?}"),
            });
        }

        fn take(&mut self) -> Vec<String> {
            std::mem::take(&mut self.0)
        }
    }

    const SIZE: usize = 100;

    #[test]
    fn each_topic_and_format_is_a_channel() {
        let (mut writers, mut told) = (Writers::new(2, 1000), Told::default());
        for (topic, encoding) in [("a", "application/json"), ("b", "zenoh/bytes"), ("a", "application/json;T@07")] {
            writers.take(topic.into(), read(encoding), 0, SIZE, |_, news| told.note(news));
        }
        writers.take("a".into(), read("application/json"), 0, SIZE, |_, news| told.note(news));
        let told = told.take();
        assert_eq!(told[..5], ["up foreign", "1 is a json ", "1: 1", "2 is b  ", "2: 1"]);
        assert!(told[5].contains("more than 2 topics"), "{told:?}");
        assert_eq!(told[6..], ["1: 2"]);
    }

    #[test]
    fn what_is_no_message_is_told_less_and_less_often() {
        let (mut writers, mut told) = (Writers::new(2, 1000), Told::default());
        (0..9).for_each(|_| writers.ignore("x", "it is garbage".into(), |_, news| told.note(news)));
        let told = told.take();
        assert_eq!((told.len(), &*told[0]), (5, "up foreign"));
        assert!(told[4].contains("it is garbage") && told[4].contains("total: 8"), "{told:?}");
    }

    #[test]
    fn what_the_node_does_not_take_is_lost_and_told() {
        let (mut writers, mut told) = (Writers::new(9, 400), Told::default());
        let take = |writers: &mut Writers, told: &mut Told| {
            writers.take("a".into(), read(""), 0, SIZE, |_, news| told.note(news));
            told.take()
        };
        let all: Vec<String> = (0..5).flat_map(|_| take(&mut writers, &mut told)).collect();
        assert_eq!(all, ["up foreign", "1 is a  ", "1: 1", "1: 2"]);
        writers.taken(SIZE);
        assert_eq!(take(&mut writers, &mut told), ["1: 3 lost up to 5", "1: 6"]);
        let link = writers.link.expect("a link");
        assert!(writers.answered(link, ChannelId(1), &Answer::Decline));
        assert!(!writers.answered(LinkId(0), ChannelId(1), &Answer::Decline));
        writers.taken(SIZE);
        assert_eq!(take(&mut writers, &mut told), [""; 0]);
        writers.answered(link, ChannelId(1), &Answer::Accept(1));
        assert_eq!(take(&mut writers, &mut told), ["1: 8"], "what was not wanted is not lost");
    }

    #[cfg(feature = "zenoh")]
    #[test]
    fn a_writer_with_an_id_keeps_its_numbers_until_it_is_closed() {
        let (mut writers, mut told) = (Writers::new(1, 400), Told::default());
        let open = |writers: &mut Writers, told: &mut Told| {
            let announcement = Announcement { topic: "a".into(), ..Announcement::default() };
            writers.open(announcement, |_, news| told.note(news))
        };
        let (link, channel) = open(&mut writers, &mut told).expect("it has room");
        assert!(open(&mut writers, &mut told).is_none(), "too many");
        let take = |writers: &mut Writers, told: &mut Told, sequence| {
            let at = Start { sequence, timestamp_ns: 0 };
            writers.take_at(channel, at, SIZE, |_, news| told.note(news));
            told.take()
        };
        told.take();
        assert_eq!(
            (take(&mut writers, &mut told, 7), take(&mut writers, &mut told, 3)),
            (vec!["1: 7".into()], vec!["1: 3".into()])
        );
        assert_eq!(take(&mut writers, &mut told, 8), [""; 0], "no room");
        writers.taken(SIZE);
        assert_eq!(take(&mut writers, &mut told, 0), ["1: 1 lost up to 0", "1: 0"]);
        assert!(writers.answered(link, channel, &Answer::Decline));
        writers.taken(SIZE);
        assert_eq!(take(&mut writers, &mut told, 9), [""; 0], "it is not wanted");
        writers.close(channel);
        assert_eq!(take(&mut writers, &mut told, 10), [""; 0]);
        assert!(open(&mut writers, &mut told).is_some());
    }
}
