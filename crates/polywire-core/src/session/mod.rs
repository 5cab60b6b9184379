//! The protocol of a node with one peer, without I/O: it announces channels, answers announcements,
//! fetches documents, and requests key frames.
//!
//! A [`Session`] reads no clock, takes no lock and sends nothing. Its driver calls
//!
//! - `handle_*` for everything that comes from the peer,
//! - [`Session::handle_timeout`] when the time of [`Session::next_timeout`] has come,
//! - the other methods for what the application does,
//!
//! and after each call [`Session::poll_output`] until there is nothing to send, and
//! [`Session::poll_event`] until there is nothing to do. Times are durations since an origin that
//! the caller chooses. Messages do not pass through the session: it only knows which channels the
//! peer accepts.
//!
//! With [`Carrier::Reliable`] nothing is sent twice. The nodes of the crate `polywire` use it on
//! every engine, so their ports must deliver these frames reliably. [`Carrier::Lossy`] is for
//! carriers that lose frames: announcements, retirements and requests are repeated, with growing
//! pauses. Only tests use it so far. [`Limits`] and [`Repeat`] have every limit and pause.
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//! use polywire_core::{
//!     envelope::{Announcement, ChannelId, Id128},
//!     frame::{Answer, Start},
//!     session::{Budget, Carrier, Decision, Event, Fetch, Limits, Output, Session},
//! };
//!
//! let now = Duration::ZERO;
//! let session = || Session::new(Limits::default(), Carrier::Reliable, Budget::new(1 << 20));
//! let (mut writer, mut reader) = (session(), session());
//!
//! // The writer's node announces a channel.
//! let schema = b"a schema document";
//! let pumps = Announcement { topic: "pumps".into(), schema: Id128::of_document(schema), ..Announcement::default() };
//! writer.announce(ChannelId(1), Start::default(), &Arc::new(pumps), now);
//! let Some(Output::Announce { channel, start, announcement }) = writer.poll_output() else { panic!() };
//! assert_eq!(writer.poll_output(), None);
//!
//! // The reader's node has a subscriber, but not the writer's schema.
//! reader.handle_announce(channel, start, &announcement, now)?;
//! assert_eq!(reader.poll_event(), Some(Event::Decide { channel, anew: false }));
//! let topic = &reader.announcement(channel).unwrap().topic;
//! assert_eq!((topic.as_str(), reader.start(channel), reader.channels().count()), ("pumps", Some(start), 1));
//! assert_eq!(reader.fetch(channel, announcement.schema, now), Fetch::Pending);
//! assert_eq!(reader.poll_output(), Some(Output::Want { document: announcement.schema }));
//! assert_eq!(reader.next_timeout(), Some(Limits::default().fetch_timeout));
//!
//! writer.handle_want(announcement.schema);
//! assert_eq!(writer.poll_output(), Some(Output::Supply { document: announcement.schema }));
//! let document = reader.handle_document(announcement.schema, Some(schema), now).expect("the hash is right");
//! reader.document_arrived(document.id());
//! assert_eq!(reader.poll_event(), Some(Event::Decide { channel, anew: false }));
//! assert!(reader.settle(channel, Decision { readers: 1, ..Decision::default() }, now));
//! let Some(Output::Answer { answer, .. }) = reader.poll_output() else { panic!() };
//!
//! writer.handle_answer(channel, &answer);
//! assert_eq!(writer.answer(channel), Some(&Answer::Accept(1)));
//! let matched = Event::Matched { channel, answer: Some(answer), key_requested: true, incompatible: None };
//! assert_eq!(writer.poll_event(), Some(matched));
//!
//! // The subscriber misses a key frame; later it leaves, and then the writer.
//! reader.request_key(channel, now);
//! assert_eq!(reader.poll_output(), Some(Output::Answer { channel, answer: Answer::Renew(1) }));
//! reader.key_arrived(channel);
//! reader.reconsider(|announcement| announcement.topic == "pumps");
//! assert_eq!(reader.poll_event(), Some(Event::Decide { channel, anew: false }));
//! reader.settle(channel, Decision::default(), now);
//! assert_eq!(reader.poll_output(), Some(Output::Answer { channel, answer: Answer::Decline }));
//! writer.retire(channel, now);
//! assert_eq!(writer.poll_output(), Some(Output::Retire { channel }));
//! reader.handle_retire(channel);
//! assert_eq!(reader.poll_event(), Some(Event::Closed { channel }));
//! # Ok::<(), polywire_core::session::Exceeded>(())
//! ```

mod documents;
mod key;
mod limits;
mod local;
mod pending;
mod remote;
#[cfg(test)]
mod tests;

use alloc::{
    boxed::Box,
    collections::{BTreeMap, BTreeSet},
    string::String,
    sync::Arc,
};
use core::time::Duration;

pub use documents::{Document, Fetch, WrongHash};
pub use key::KeyRequests;
pub use limits::{Budget, Carrier, Exceeded, Limits, Repeat};
pub use remote::Decision;

use self::{
    documents::{Asked, DocumentChannels},
    local::{Local, Retiring},
    pending::{Pending, Timers},
    remote::Remote,
};
use crate::{
    compress::announced_dictionary,
    envelope::{Announcement, ChannelId, Id128},
    frame::{Answer, Frame, Hello, Start},
    schema::DocumentHash,
};

/// The protocol with one peer; [the module](self) says how to drive it.
#[derive(Debug)]
pub struct Session {
    limits: Limits,
    carrier: Carrier,
    budget: Budget,
    peer: Option<Hello>,
    /// The peer's channels.
    remote: BTreeMap<ChannelId, Remote>,
    /// The same channels with their topics in front.
    topics: BTreeSet<(String, ChannelId)>,
    /// Our channels.
    local: BTreeMap<ChannelId, Local>,
    /// Channels in `local` that are answered and not announced.
    unannounced: BTreeSet<ChannelId>,
    /// The newest channel of ours that the application has announced. A lossy peer that answers an
    /// unknown channel up to this one has missed its retirement.
    newest: ChannelId,
    /// Channels of ours whose retirement is repeated.
    retiring: BTreeMap<ChannelId, Retiring>,
    /// Refusals of channels that are not held, until they are sent.
    rejected: BTreeMap<ChannelId, String>,
    asked: BTreeMap<Id128, Asked>,
    /// Documents in `asked` that make room for others: no open channel names them, or the peer has
    /// not sent them in time.
    spare: BTreeSet<Id128>,
    /// The documents that the channels in `remote` name.
    named: DocumentChannels,
    /// The documents that the channels in `remote` wait for.
    awaited: DocumentChannels,
    timers: Timers<Timer>,
    outputs: Pending<Due>,
    events: Pending<News>,
    /// Closing events that were not polled.
    closed: usize,
}

/// Something to send to the peer.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// A channel of ours, for the first time or again.
    Announce {
        /// The channel.
        channel: ChannelId,
        /// The writer's position when the channel was announced first.
        start: Start,
        /// What it carries.
        announcement: Arc<Announcement>,
    },
    /// A channel of ours has ended.
    Retire {
        /// The channel.
        channel: ChannelId,
    },
    /// The answer to a channel of the peer.
    Answer {
        /// The peer's channel.
        channel: ChannelId,
        /// The answer.
        answer: Answer,
    },
    /// A request for a document.
    Want {
        /// Its hash.
        document: Id128,
    },
    /// A document that the peer asked for. The application adds the bytes, or that it has none.
    Supply {
        /// Its hash.
        document: Id128,
    },
}

impl Output {
    /// The frame, for carriers that send frames. `document` is the document of an
    /// [`Output::Supply`], or `None` if the application does not have it.
    ///
    /// ```
    /// use polywire_core::{envelope::Id128, frame::Frame, session::Output};
    /// let document = Id128::of_document(b"abc");
    /// let frame = Output::Supply { document }.frame(Some(b"abc"));
    /// assert_eq!(frame, Frame::Document { document, bytes: Some(b"abc") });
    /// ```
    pub fn frame<'a>(&self, document: Option<&'a [u8]>) -> Frame<'a> {
        match self {
            Output::Announce { channel, start, announcement } => Frame::Announce {
                channel: *channel,
                start: *start,
                announcement: Box::new(Announcement::clone(announcement)),
            },
            Output::Retire { channel } => Frame::Retire { channel: *channel },
            Output::Answer { channel, answer } => Frame::Answer { channel: *channel, answer: answer.clone() },
            Output::Want { document } => Frame::Want { document: *document },
            Output::Supply { document: id } => Frame::Document { document: *id, bytes: document },
        }
    }
}

/// Something for the application to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Decide who reads a channel of the peer: [`Session::fetch`] what is missing, or
    /// [`Session::settle`].
    Decide {
        /// The peer's channel.
        channel: ChannelId,
        /// True if subscribers that could not read the channel should be tried again.
        anew: bool,
    },
    /// A channel of the peer is closed.
    Closed {
        /// The peer's channel.
        channel: ChannelId,
    },
    /// The peer's answer to a channel of ours.
    Matched {
        /// Our channel.
        channel: ChannelId,
        /// The answer that holds now. `None` if the peer has restarted and not answered yet.
        answer: Option<Answer>,
        /// Whether the next message should be a key frame, for readers that have joined or lost
        /// one.
        key_requested: bool,
        /// The reason why a reader there cannot read the channel, if this answer had one.
        incompatible: Option<String>,
    },
}

/// Current sizes of a session's tables. Tests compare them with [`Limits`].
///
/// ```
/// use polywire_core::session::{Budget, Carrier, Limits, Load, Session};
/// let session = Session::new(Limits::default(), Carrier::default(), Budget::new(0));
/// assert_eq!(session.load(), Load::default());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Open channels of the peer.
    pub remote: usize,
    /// Our channels.
    pub local: usize,
    /// Documents asked for.
    pub asked: usize,
    /// Outputs not taken.
    pub outputs: usize,
    /// Events not taken.
    pub events: usize,
}

/// An output, by its key. Its value is read when it is sent, so it is the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Announce(ChannelId),
    Retire(ChannelId),
    Answer(ChannelId),
    Renew(ChannelId),
    Reject(ChannelId),
    Want(Id128),
    Supply(Id128),
}

/// An event, by its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum News {
    Decide(ChannelId),
    Closed(ChannelId),
    Matched(ChannelId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// A channel of the peer has waited long enough for a document.
    Fetch(ChannelId),
    /// A document is asked for again.
    Ask(Id128),
    /// A channel of ours is announced again.
    Announce(ChannelId),
    /// A channel of ours is retired again.
    Retire(ChannelId),
    /// The peer has not repeated an announcement for too long.
    Lease(ChannelId),
}

impl Session {
    /// A session with a peer that is not known yet. All sessions of a node share one budget.
    pub fn new(limits: Limits, carrier: Carrier, budget: Budget) -> Session {
        Session {
            limits,
            carrier,
            budget,
            peer: None,
            remote: BTreeMap::new(),
            topics: BTreeSet::new(),
            local: BTreeMap::new(),
            unannounced: BTreeSet::new(),
            newest: ChannelId(0),
            retiring: BTreeMap::new(),
            rejected: BTreeMap::new(),
            asked: BTreeMap::new(),
            spare: BTreeSet::new(),
            named: BTreeSet::new(),
            awaited: BTreeSet::new(),
            timers: Timers::default(),
            outputs: Pending::default(),
            events: Pending::default(),
            closed: 0,
        }
    }

    /// Call this with the peer's hello, or with the sender of every datagram. A new incarnation has
    /// forgotten everything: its old channels close, and ours are announced to it again. Returns
    /// false if the frames that came with this belong to an older incarnation; the caller drops
    /// them.
    ///
    /// ```
    /// use std::time::Duration;
    /// use polywire_core::{envelope::ChannelId, frame::{Hello, Start}};
    /// use polywire_core::session::{Budget, Carrier, Event, Limits, Session};
    /// let mut session = Session::new(Limits::default(), Carrier::default(), Budget::new(1 << 20));
    /// let peer = |incarnation| Hello { node: Default::default(), incarnation };
    /// let now = Duration::ZERO;
    /// assert!(session.handle_peer(peer(1), now));
    /// session.handle_announce(ChannelId(1), Start::default(), &Default::default(), now).unwrap();
    /// assert!(session.handle_peer(peer(2), now) && !session.handle_peer(peer(1), now));
    /// assert_eq!(session.poll_event(), Some(Event::Closed { channel: ChannelId(1) }));
    /// ```
    pub fn handle_peer(&mut self, peer: Hello, now: Duration) -> bool {
        match self.peer.replace(peer) {
            None => true,
            Some(known) if known == peer => true,
            Some(known) if known.node == peer.node && known.incarnation > peer.incarnation => {
                self.peer = Some(known);
                false
            }
            Some(_) => {
                self.peer_restarted(now);
                true
            }
        }
    }

    /// The peer is gone for good: all its state is dropped, and its channels close.
    ///
    /// ```
    /// use std::time::Duration;
    /// use polywire_core::{envelope::ChannelId, frame::Start};
    /// use polywire_core::session::{Budget, Carrier, Event, Limits, Session};
    /// let mut session = Session::new(Limits::default(), Carrier::default(), Budget::new(1 << 20));
    /// session.handle_announce(ChannelId(1), Start::default(), &Default::default(), Duration::ZERO).unwrap();
    /// session.handle_down();
    /// assert_eq!(session.poll_event(), Some(Event::Closed { channel: ChannelId(1) }));
    /// assert_eq!((session.poll_event(), session.poll_output(), session.next_timeout()), (None, None, None));
    /// ```
    pub fn handle_down(&mut self) {
        self.forget_peer();
        self.local.clear();
        self.unannounced.clear();
        self.outputs = Pending::default();
        self.events.retain(|event| matches!(event, News::Closed(_)));
        self.timers = Timers::default();
    }

    fn peer_restarted(&mut self, now: Duration) {
        self.forget_peer();
        self.announce_all(now);
    }

    fn forget_peer(&mut self) {
        self.events.retain(|event| !matches!(event, News::Decide(_)));
        while let Some((id, _)) = self.remote.first_key_value() {
            self.close_remote(*id);
        }
        while let Some((id, _)) = self.asked.pop_first() {
            self.timers.clear(Timer::Ask(id));
        }
        self.spare.clear();
        while let Some((id, _)) = self.retiring.pop_first() {
            self.timers.clear(Timer::Retire(id));
        }
        self.rejected.clear();
        self.outputs.retain(|due| matches!(due, Due::Announce(_)));
    }

    /// Handles everything that is due by `now`.
    ///
    /// ```
    /// use std::{sync::Arc, time::Duration};
    /// use polywire_core::{envelope::ChannelId, frame::Start};
    /// use polywire_core::session::{Budget, Carrier, Limits, Output, Repeat, Session};
    /// let mut session = Session::new(Limits::default(), Carrier::Lossy(Repeat::default()), Budget::new(0));
    /// session.announce(ChannelId(1), Start::default(), &Arc::default(), Duration::ZERO);
    /// for _ in 0..3 {
    ///     assert!(matches!(session.poll_output(), Some(Output::Announce { .. })));
    ///     let next = session.next_timeout().expect("nobody has answered, so it is announced again");
    ///     session.handle_timeout(next);
    /// }
    /// ```
    pub fn handle_timeout(&mut self, now: Duration) {
        while let Some(timer) = self.timers.pop(now) {
            match timer {
                Timer::Fetch(channel) => self.fetch_timed_out(channel),
                Timer::Ask(document) => self.ask_again(document, now),
                Timer::Announce(channel) => self.announce_again(channel, now),
                Timer::Retire(channel) => self.retire_again(channel, now),
                Timer::Lease(channel) => self.close_remote(channel),
            }
        }
    }

    /// When [`Session::handle_timeout`] must be called next, if nothing else happens before.
    pub fn next_timeout(&self) -> Option<Duration> {
        self.timers.next()
    }

    /// The next thing to send.
    pub fn poll_output(&mut self) -> Option<Output> {
        while let Some(due) = self.outputs.pop() {
            let answer = |channel, answer: Option<Answer>| answer.map(|answer| Output::Answer { channel, answer });
            let output = match due {
                Due::Announce(channel) => self.offer(channel),
                Due::Retire(channel) => Some(Output::Retire { channel }),
                Due::Answer(channel) => answer(channel, self.answer_of(channel)),
                Due::Renew(channel) => answer(channel, self.renewal_of(channel)),
                Due::Reject(channel) => answer(channel, self.rejected.remove(&channel).map(Answer::Refuse)),
                Due::Want(document) => self.asked.contains_key(&document).then_some(Output::Want { document }),
                Due::Supply(document) => Some(Output::Supply { document }),
            };
            if output.is_some() {
                return output;
            }
        }
        None
    }

    /// The next thing to do.
    pub fn poll_event(&mut self) -> Option<Event> {
        while let Some(news) = self.events.pop() {
            let event = match news {
                News::Decide(channel) => self.remote.get_mut(&channel).map(|known| {
                    let anew = core::mem::take(&mut known.anew);
                    Event::Decide { channel, anew }
                }),
                News::Closed(channel) => {
                    self.closed -= 1;
                    Some(Event::Closed { channel })
                }
                News::Matched(channel) => self.take_match(channel),
            };
            if event.is_some() {
                return event;
            }
        }
        None
    }

    /// The current sizes of the session's tables.
    pub fn load(&self) -> Load {
        Load {
            remote: self.remote.len(),
            local: self.local.len(),
            asked: self.asked.len(),
            outputs: self.outputs.len(),
            events: self.events.len(),
        }
    }

    fn is_lossy(&self) -> bool {
        matches!(self.carrier, Carrier::Lossy(_))
    }

    fn offer(&self, channel: ChannelId) -> Option<Output> {
        let (start, announcement) = self.local.get(&channel)?.offered.as_ref()?;
        Some(Output::Announce { channel, start: *start, announcement: announcement.clone() })
    }

    /// Outputs that open channels and requests can have at most.
    fn own_outputs(&self) -> usize {
        2 * (self.remote.len() + self.local.len() + self.retiring.len()) + self.asked.len()
    }
}

impl Repeat {
    /// The pause after this one.
    fn after(&self, pause: Option<Duration>) -> Duration {
        pause.map_or(self.first_pause, |pause| pause.saturating_mul(2)).min(self.longest_pause)
    }
}

/// The documents that an announcement names: the writer's schema, the compressor's dictionary, and
/// what configures the codec.
///
/// ```
/// use polywire_core::{envelope::{Announcement, Id128}, session};
/// let schema = Id128([7; 16]);
/// let announcement = Announcement { schema, ..Announcement::default() };
/// assert_eq!(session::documents(&announcement), [Some(schema), None, None]);
/// ```
pub fn documents(announcement: &Announcement) -> [Option<Id128>; 3] {
    let schema = Some(announcement.schema).filter(|schema| !schema.is_zero());
    let dictionary = announced_dictionary(&announcement.compressor).and_then(|text| text.parse().ok());
    let dictionary = dictionary.map(|hash: DocumentHash| Id128(hash.to_bytes()));
    [schema, dictionary, announcement.configuration]
}
