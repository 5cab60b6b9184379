//! The thread that receives the messages of foreign applications, which do not use Polywire, and
//! delivers them to the node. While the node does not accept a message, it waits in libzmq, and its
//! publisher blocks or drops messages.

use std::{
    collections::BTreeSet,
    os::fd::AsFd as _,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use polywire_core::{
    envelope::{Envelope, Id128},
    topic,
};
use polywire_zeromq::{Context, Error, Message, Socket, Wait, wait};

use super::{
    super::{
        Aligned, Disconnect, Event, LinkInfo, LinkSink,
        foreign::{News, encoding},
    },
    card,
    finder::PublisherKind,
    interest::Interest,
    shared::Shared,
};
use crate::clock;

/// How long the thread waits for a publisher's card after its first message has arrived. A
/// publisher that has not answered by then is no node.
const PATIENCE: Duration = Duration::from_millis(500);
/// The maximum time between two checks of the sockets.
const TICK: Duration = Duration::from_secs(1);
/// The number of messages that are received from a socket before the others get their turn.
const TURN: usize = 64;
/// The maximum number of frames in a message: topic, payload and encoding.
const FRAMES: usize = 3;

/// A subscribing socket.
struct Source {
    /// The number of the endpoint that the socket connects to. `None` if the socket is bound.
    number: Option<usize>,
    /// `None` while the publisher at the endpoint is a node.
    socket: Option<Socket>,
    subscribed: BTreeSet<String>,
    /// The version of the interest to which the socket has subscribed. `None` before it subscribes.
    version: Option<u64>,
    /// When a message arrived before it was known whether the publisher is a node.
    held_since: Option<Instant>,
}

/// The link that represents all foreign publishers to the node, and the buffers for receiving.
struct ForeignReceiver {
    link: Option<(LinkInfo, Arc<dyn LinkSink>)>,
    frames: [Message; FRAMES],
    rest: Message,
    place: Aligned,
}

/// A parsed message: topic, payload, and encoding.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Read<'a> {
    pub(super) topic: &'a str,
    pub(super) payload: &'a [u8],
    pub(super) encoding: &'a str,
}

/// Parses a message of a foreign application. Fails with a reason.
pub(super) fn read<'a>(frames: &[&'a [u8]]) -> Result<Read<'a>, &'static str> {
    let (topic, payload, encoding) = match frames {
        [topic, payload] => (*topic, *payload, &[][..]),
        [topic, payload, encoding] => (*topic, *payload, *encoding),
        [_] | [] => return Err("a message has one frame, and needs two: the topic and the payload"),
        _ => return Err("a message has more than three frames: topic, payload, encoding"),
    };
    let topic = std::str::from_utf8(topic).ok().filter(|topic| topic::check(topic).is_ok());
    let topic = topic.filter(|topic| !topic.starts_with("polywire/"));
    Ok(Read {
        topic: topic.ok_or("the first frame is no name of a topic")?,
        payload,
        encoding: std::str::from_utf8(encoding).map_err(|_| "the encoding is not UTF-8")?,
    })
}

impl Shared {
    /// Receives until the port closes.
    pub(super) fn take_in(self: &Arc<Self>, context: &Context, bound: Option<Socket>) {
        let connected = (0..self.finder.endpoints.len()).map(Some).map(|number| (number, None));
        let all = connected.chain(bound.map(|socket| (None, Some(socket))));
        let source =
            |(number, socket)| Source { number, socket, subscribed: BTreeSet::new(), version: None, held_since: None };
        let mut sources: Vec<Source> = all.map(source).collect();
        let mut receiver =
            ForeignReceiver { link: None, frames: Default::default(), rest: Message::new(), place: Aligned::default() };
        while !self.is_closing.load(Ordering::Acquire) {
            if let Err(error) = self.turn(context, &mut sources, &mut receiver) {
                log::warn!("{}: {error}", self.endpoint);
                std::thread::sleep(PATIENCE);
            }
        }
        if let Some((link, sink)) = receiver.link {
            sink.down();
            self.sink.event(Event::Disconnected { link, reason: Disconnect::Closed });
        }
    }

    fn turn(&self, context: &Context, sources: &mut [Source], receiver: &mut ForeignReceiver) -> Result<(), Error> {
        let now = Instant::now();
        let mut most = TICK;
        for source in sources.iter_mut() {
            self.follow(context, source)?;
            source.subscribe(&self.interest)?;
            if let Some(since) = source.held_since {
                let held = now.saturating_duration_since(since);
                match (source.number, PATIENCE.checked_sub(held).filter(|left| !left.is_zero())) {
                    (Some(_), Some(left)) => most = most.min(left),
                    (number, _) => {
                        number.into_iter().for_each(|number| self.finder.unanswered(number));
                        source.held_since = None;
                    }
                }
            }
        }
        let open: Vec<usize> = (0..sources.len()).filter(|at| sources[*at].is_open()).collect();
        let sockets: Vec<&Socket> = open.iter().filter_map(|at| sources[*at].socket.as_ref()).collect();
        let waited = wait(&sockets, &[self.intake.as_fd()], most)?;
        self.intake.clear();
        for (_, at) in open.into_iter().enumerate().filter(|(number, _)| waited.is_readable(*number)) {
            let source = &mut sources[at];
            match source.number.map_or(PublisherKind::Foreign, |number| self.finder.publisher_kind(number)) {
                PublisherKind::Foreign => self.receive(source, receiver)?,
                PublisherKind::Unknown => source.held_since = Some(Instant::now()),
                PublisherKind::Node(_) => {}
            }
        }
        if let Some((_, sink)) = &receiver.link {
            sink.drained();
        }
        Ok(())
    }

    /// Opens or closes the socket to an endpoint, depending on whether a node publishes there.
    fn follow(&self, context: &Context, source: &mut Source) -> Result<(), Error> {
        let Some(number) = source.number else { return Ok(()) };
        match (self.finder.publisher_kind(number), &source.socket, self.finder.endpoints.get(number)) {
            // The node's messages arrive over its link.
            (PublisherKind::Node(_), Some(_), _) => {
                source.socket = None;
                source.held_since = None;
                source.subscribed.clear();
                source.version = None;
            }
            (PublisherKind::Unknown | PublisherKind::Foreign, None, Some(endpoint)) => {
                let socket = self.subscriber(context)?;
                socket.connect(&endpoint.to_string())?;
                source.socket = Some(socket);
            }
            _ => {}
        }
        Ok(())
    }

    /// Delivers the messages that have arrived at a socket, at most [`TURN`] of them.
    fn receive(&self, source: &Source, receiver: &mut ForeignReceiver) -> Result<(), Error> {
        let Some(socket) = &source.socket else { return Ok(()) };
        for _ in 0..TURN {
            if self.is_closing.load(Ordering::Acquire) {
                return Ok(());
            }
            let Some(count) = receiver.receive(socket)? else { return Ok(()) };
            // `hand_over` borrows both the frames and `receiver` while it calls the node.
            let frames = std::mem::take(&mut receiver.frames);
            let mut views: Vec<&[u8]> = frames.iter().take(count).map(|frame| &**frame).collect();
            if count > FRAMES {
                views.push(&[]);
            }
            self.hand_over(&views, receiver);
            drop(views);
            receiver.frames = frames;
        }
        Ok(())
    }

    fn hand_over(&self, frames: &[&[u8]], receiver: &mut ForeignReceiver) {
        let name = |name: &&[u8]| String::from_utf8_lossy(name).chars().take(60).collect::<String>();
        let mut news: Vec<News> = Vec::new();
        let message = read(frames);
        match &message {
            Ok(message) if !self.interest.lock().fits(message.topic) => return,
            // A node's answer to another node's question. A subscription to all topics includes it.
            Err(_) if frames.first().is_some_and(|topic| card::is_question(topic)) => return,
            Ok(Read { topic, payload, encoding }) => {
                let tell = |_, what| news.push(what);
                self.foreign.lock().take(
                    (*topic).into(),
                    encoding::read(encoding),
                    clock::wall_ns(),
                    payload.len(),
                    tell,
                );
            }
            Err(reason) => {
                let tell = |_, what| news.push(what);
                let name = frames.first().map(name).unwrap_or_default();
                self.foreign.lock().ignore(&name, (*reason).into(), tell);
            }
        }
        // Without the lock of `foreign`: the node answers announcements from its callbacks.
        for what in news {
            match what {
                News::Up(info) => {
                    receiver.link = Some(((*info).clone(), self.sink.link(&info)));
                    self.sink.event(Event::Connected(*info));
                }
                News::Tell(event) => self.sink.event(*event),
                News::Announced(channel, start, mut announcement) => {
                    announcement.schema = Id128::ZERO;
                    receiver.with(|sink, _| sink.announced(channel, start, &announcement));
                }
                News::Lost(channel, start, lost) => receiver.with(|sink, _| sink.position(channel, start, lost)),
                News::Message(channel, at) => {
                    let payload = message.as_ref().map_or(&[][..], |message| message.payload);
                    let envelope = Envelope::data(channel, at.sequence, at.timestamp_ns);
                    receiver.with(|sink, place| sink.message(&envelope, place.place(payload)));
                    self.foreign.lock().taken(payload.len());
                }
            }
        }
    }
}

impl Source {
    /// Returns whether the thread waits for messages of this socket.
    fn is_open(&self) -> bool {
        self.socket.is_some() && self.held_since.is_none()
    }

    /// Subscribes to the prefixes that are wanted, and ends all other subscriptions.
    fn subscribe(&mut self, interest: &Mutex<Interest>) -> Result<(), Error> {
        let Some(socket) = &self.socket else { return Ok(()) };
        let (version, wanted) = {
            let interest = interest.lock();
            if self.version == Some(interest.version) {
                return Ok(());
            }
            (interest.version, interest.prefixes())
        };
        wanted.difference(&self.subscribed).try_for_each(|prefix| socket.subscribe(prefix.as_bytes()))?;
        self.subscribed.difference(&wanted).try_for_each(|prefix| socket.unsubscribe(prefix.as_bytes()))?;
        (self.subscribed, self.version) = (wanted, Some(version));
        Ok(())
    }
}

impl ForeignReceiver {
    fn with(&mut self, call: impl FnOnce(&dyn LinkSink, &mut Aligned)) {
        if let Some((_, sink)) = &self.link {
            call(&**sink, &mut self.place);
        }
    }

    /// Receives a message. Returns the number of its frames, at most `FRAMES + 1`. Discards all
    /// frames after the first `FRAMES`.
    fn receive(&mut self, socket: &Socket) -> Result<Option<usize>, Error> {
        let mut count = 0;
        loop {
            let frame = self.frames.get_mut(count).unwrap_or(&mut self.rest);
            if !socket.receive(frame, Wait::No)? {
                return Ok(None);
            }
            let has_more = frame.has_more();
            count = (count + 1).min(FRAMES + 1);
            if !has_more {
                return Ok(Some(count));
            }
        }
    }
}

/// The subscriptions of this node.
impl Shared {
    pub(super) fn want(&self, pattern: &str, change: impl FnOnce(&mut Interest, &str)) {
        change(&mut self.interest.lock(), pattern);
        self.intake.wake();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn messages_have_a_topic_a_payload_and_perhaps_an_encoding() {
        let plain = Read { topic: "plant/pumps", payload: b"{}", encoding: "" };
        assert_eq!(read(&[b"plant/pumps", b"{}"]), Ok(plain));
        let said = Read { topic: "a", payload: b"", encoding: "application/json" };
        assert_eq!(read(&[b"a", b"", b"application/json"]), Ok(said));
        for (frames, part) in [
            (&[&b"a"[..]][..], "has one frame"),
            (&[], "has one frame"),
            (&[b"a", b"", b"", b""], "more than three"),
            (&[b"", b""], "no name of a topic"),
            (&[b"\xff", b""], "no name of a topic"),
            (&[b"a/*", b""], "no name of a topic"),
            (&[b"polywire/nodes", b""], "no name of a topic"),
            (&[b"a", b"", b"\xff"], "not UTF-8"),
        ] {
            let error = read(frames).expect_err(part);
            assert!(error.contains(part), "{frames:?}: {error}");
        }
    }

    proptest! {
        #[test]
        fn hostile_frames_are_refused_or_read(
            frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..12), 0..5)
        ) {
            let views: Vec<&[u8]> = frames.iter().map(|frame| &**frame).collect();
            if let Ok(Read { topic, .. }) = read(&views) {
                prop_assert!((2..=3).contains(&views.len()) && topic::check(topic).is_ok());
            }
        }
    }
}
