//! The publishing socket. It publishes for foreign applications, which do not use Polywire, and
//! answers nodes that ask for this node's card.

use std::{
    collections::HashSet,
    hash::{BuildHasher as _, RandomState},
    io,
    os::fd::OwnedFd,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use polywire_zeromq::{Context, Error, Kind, Message, Socket, Wait};

use super::{
    super::Overflow,
    card::{self, Card},
};

/// Longest subscription that a peer may send, in bytes.
const LONGEST: usize = 4096;
/// Topics whose subscriptions are known, at most.
const MAX_TOPICS: usize = 1 << 16;
/// How often a waiting publisher releases the socket, so that others publish and nodes get answers.
const TURN: Duration = Duration::from_millis(20);

pub(super) struct PublishSocket {
    out: Mutex<Out>,
    /// Becomes readable when subscriptions may have arrived.
    pub(super) changed: OwnedFd,
    /// There is a subscription that is no node's question.
    is_heard: AtomicBool,
}

struct Out {
    socket: Socket,
    /// The answer to nodes that ask. `None` before it is known.
    card: Option<Card>,
    /// A subscriber had no room for longer than the overflow policy's patience.
    is_stalled: bool,
    is_lossless: bool,
    topics: Topics,
}

/// The topics with subscriptions, as hashes. libzmq also reports the end of subscriptions that
/// never existed, so that a count of subscriptions would be wrong.
#[derive(Default)]
struct Topics {
    hasher: RandomState,
    hashes: HashSet<u64>,
    /// There were more than [`MAX_TOPICS`] topics: from then on, the socket always counts as
    /// subscribed.
    are_many: bool,
}

/// Converts an error of libzmq to the system's error, or to one with libzmq's text.
pub(super) fn system(error: Error) -> io::Error {
    /// The first of libzmq's own error numbers.
    const OWN: i32 = 156_384_712;
    if error.number() < OWN { io::Error::from_raw_os_error(error.number()) } else { io::Error::other(error) }
}

/// The outcome of publishing a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Published {
    /// All subscribers receive the message.
    All,
    /// At least one subscriber has no room for the message.
    Dropped,
}

impl PublishSocket {
    pub(super) fn new(context: &Context, high_water_mark: u32, linger: Duration) -> io::Result<PublishSocket> {
        let made = context.socket(Kind::XPub).and_then(|socket| {
            socket.set_high_water_mark(high_water_mark)?;
            socket.set_longest_frame(LONGEST)?;
            socket.set_linger(linger)?;
            socket.set_ipv6(true)?;
            Ok(socket)
        });
        let socket = made.map_err(system)?;
        let changed = socket.changes()?;
        let out = Out { socket, card: None, is_stalled: false, is_lossless: false, topics: Topics::default() };
        Ok(PublishSocket { out: Mutex::new(out), changed, is_heard: AtomicBool::new(false) })
    }

    /// Binds an endpoint. Returns it with the port that the system has chosen.
    pub(super) fn bind(&self, endpoint: &str) -> Result<String, Error> {
        let out = self.out.lock();
        out.socket.bind(endpoint)?;
        out.socket.last_endpoint()
    }

    pub(super) fn connect(&self, endpoint: &str) -> Result<(), Error> {
        self.out.lock().socket.connect(endpoint)
    }

    /// Answers nodes that ask with this card from now on.
    pub(super) fn introduce(&self, card: Card) {
        self.out.lock().card = Some(card);
    }

    /// Returns whether there is a subscription that is no node's question.
    pub(super) fn is_heard(&self) -> bool {
        self.is_heard.load(Ordering::Relaxed)
    }

    /// Publishes a message. While a subscriber's queue is full, waits as the overflow policy says.
    /// After that, only the subscribers with room receive the message.
    pub(super) fn publish(&self, frames: &[&[u8]], overflow: Overflow) -> Result<Published, Error> {
        let patience = match overflow {
            Overflow::Block { patience } => patience,
            Overflow::DropOldest | Overflow::DropNewest => Duration::ZERO,
        };
        let began = Instant::now();
        loop {
            let mut out = self.out.lock();
            let left = patience.saturating_sub(began.elapsed());
            let has_patience = !left.is_zero() && !out.is_stalled;
            out.set_lossless(true)?;
            let wait = if has_patience { Wait::Most(left.min(TURN)) } else { Wait::No };
            let is_sent = out.socket.send(frames, wait)?;
            if is_sent || !has_patience {
                out.is_stalled = !is_sent && !patience.is_zero();
                if !is_sent {
                    out.set_lossless(false)?;
                    out.socket.send(frames, Wait::No)?;
                }
                self.read_subscriptions(&mut out)?;
                return Ok(if is_sent { Published::All } else { Published::Dropped });
            }
            self.read_subscriptions(&mut out)?;
        }
    }

    /// Reads the subscriptions that have arrived, and answers nodes that ask.
    pub(super) fn look(&self) -> Result<(), Error> {
        self.read_subscriptions(&mut self.out.lock())
    }

    fn read_subscriptions(&self, out: &mut Out) -> Result<(), Error> {
        let (mut message, mut rest) = (Message::new(), Message::new());
        while out.socket.is_readable()? && out.socket.receive(&mut message, Wait::No)? {
            let is_alone = !message.has_more();
            while !is_alone && out.socket.receive(&mut rest, Wait::No)? && rest.has_more() {}
            match message.split_first() {
                Some((1, topic)) if card::is_question(topic) => out.answer(topic)?,
                Some((0, topic)) if card::is_question(topic) => {}
                Some((1, topic)) if is_alone => out.topics.begin(topic),
                Some((0, topic)) if is_alone => out.topics.end(topic),
                _ => log::debug!("a subscriber has sent {} bytes that are no subscription", message.len()),
            }
        }
        self.is_heard.store(out.topics.are_some(), Ordering::Relaxed);
        Ok(())
    }
}

impl Topics {
    fn begin(&mut self, topic: &[u8]) {
        self.are_many |= self.hashes.len() >= MAX_TOPICS;
        if !self.are_many {
            self.hashes.insert(self.hasher.hash_one(topic));
        }
    }

    fn end(&mut self, topic: &[u8]) {
        self.hashes.remove(&self.hasher.hash_one(topic));
    }

    fn are_some(&self) -> bool {
        self.are_many || !self.hashes.is_empty()
    }
}

impl Out {
    fn set_lossless(&mut self, is_on: bool) -> Result<(), Error> {
        if std::mem::replace(&mut self.is_lossless, is_on) != is_on {
            self.socket.set_no_drop(is_on)?;
        }
        Ok(())
    }

    /// Publishes the card on the topic of the question. Only the asking node subscribes to this
    /// topic, so that its connection has room for the card.
    fn answer(&self, question: &[u8]) -> Result<(), Error> {
        match &self.card {
            Some(card) => self.socket.send(&[question, &card.bytes()], Wait::No).map(drop),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_what_never_was_ends_nothing_else() {
        let mut topics = Topics::default();
        topics.end(b"never");
        assert!(!topics.are_some());
        topics.begin(b"a");
        topics.end(b"never");
        assert!(topics.are_some());
        topics.end(b"a");
        assert!(!topics.are_some());
        (0..=MAX_TOPICS).for_each(|number| topics.begin(&number.to_le_bytes()));
        (0..=MAX_TOPICS).for_each(|number| topics.end(&number.to_le_bytes()));
        assert!(topics.are_some() && topics.hashes.is_empty());
    }
}
