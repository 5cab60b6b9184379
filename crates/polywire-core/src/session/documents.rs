//! The documents that a session requests from its peer (each once, even if several channels wait
//! for it), and those that the peer requests.

use alloc::{collections::BTreeSet, format, string::String};
use core::{ops::RangeInclusive, time::Duration};

use super::{Carrier, Due, News, Session, Timer};
use crate::envelope::{ChannelId, Id128};

/// A document whose bytes have the hash that names it.
///
/// ```
/// use polywire_core::{envelope::Id128, session::Document};
/// let id = Id128::of_document(b"abc");
/// let document = Document::verify(id, b"abc")?;
/// assert_eq!((document.id(), document.bytes()), (id, &b"abc"[..]));
/// let error = Document::verify(id, b"abd").unwrap_err();
/// assert!(error.to_string().contains("has the hash"));
/// assert_eq!(error.got, Id128::of_document(b"abd"));
/// # Ok::<(), polywire_core::session::WrongHash>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Document<'a> {
    id: Id128,
    bytes: &'a [u8],
}

/// A peer sent other bytes than those of the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the document sent has the hash {got}, not {expected}")]
pub struct WrongHash {
    /// The document.
    pub expected: Id128,
    /// The hash of the bytes sent.
    pub got: Id128,
}

impl<'a> Document<'a> {
    /// Checks the hash.
    pub fn verify(id: Id128, bytes: &'a [u8]) -> Result<Self, WrongHash> {
        let got = Id128::of_document(bytes);
        match got == id {
            true => Ok(Document { id, bytes }),
            false => Err(WrongHash { expected: id, got }),
        }
    }

    /// The hash.
    pub fn id(&self) -> Id128 {
        self.id
    }

    /// The document.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

/// The result of [`Session::fetch`].
///
/// ```
/// use polywire_core::session::Fetch;
/// assert_ne!(Fetch::Pending, Fetch::Failed("the document did not come in time".into()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fetch {
    /// The peer was asked. [`Event::Decide`](super::Event::Decide) comes when the document is here
    /// or will not come.
    Pending,
    /// No document will come, for this reason: decide without it.
    Failed(String),
}

/// A document that the peer was asked for.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// Requests that are not answered. An answer names the document and not the request, so it may
    /// belong to an earlier request: the writer that the first one was about has left, and another
    /// one of the same type has come and was asked for.
    open: u32,
    /// Answers that the peer does not have it.
    denied: u32,
    /// The last pause before the request was repeated.
    pause: Option<Duration>,
    /// The time until which a document that no channel waits for is requested.
    until: Duration,
    /// A channel has waited for it in vain, so the next channel that needs it asks again.
    is_late: bool,
}

/// Pairs of a document and a channel of the peer.
pub(super) type DocumentChannels = BTreeSet<(Id128, ChannelId)>;

/// All pairs of one document.
fn all_of(document: Id128) -> RangeInclusive<(Id128, ChannelId)> {
    (document, ChannelId(0))..=(document, ChannelId(u32::MAX))
}

impl Session {
    /// The application needs a document to decide on a channel. Asks the peer for it, unless that
    /// was done for another channel.
    pub fn fetch(&mut self, channel: ChannelId, document: Id128, now: Duration) -> Fetch {
        let Some(known) = self.remote.get_mut(&channel) else { return Fetch::Pending };
        if known.fetching == Some(document) {
            return Fetch::Pending;
        }
        if let Some(reason) = &known.unfetched
            && !known.asks_again
        {
            return Fetch::Failed(reason.clone());
        }
        (known.is_late, known.asks_again) = (false, false);
        if let Some(other) = known.fetching.replace(document) {
            self.awaited.remove(&(other, channel));
        }
        self.awaited.insert((document, channel));
        self.timers.set(Timer::Fetch(channel), now.saturating_add(self.limits.fetch_timeout));
        self.ask(document, now);
        Fetch::Pending
    }

    /// Asks for a document that no channel here waits for, but that other peers may ask this node
    /// for: a relay keeps the documents of what it passes on.
    ///
    /// ```
    /// use polywire_core::{envelope::Id128, session::{Budget, Carrier, Limits, Output, Session}};
    /// let mut session = Session::new(Limits::default(), Carrier::default(), Budget::new(0));
    /// let document = Id128::of_document(b"abc");
    /// session.prefetch(document, Default::default());
    /// assert_eq!(session.poll_output(), Some(Output::Want { document }));
    /// ```
    pub fn prefetch(&mut self, document: Id128, now: Duration) {
        self.ask(document, now);
    }

    /// The peer wants a document. [`Output::Supply`](super::Output::Supply) is due.
    pub fn handle_want(&mut self, document: Id128) {
        if self.outputs.len() < self.limits.stray_outputs.saturating_add(self.own_outputs()) {
            self.outputs.push(Due::Supply(document));
        }
    }

    /// The peer sent a document, or says that it has none. Returns the document if it was asked for
    /// and has the right hash: the application keeps it, and then calls
    /// [`Session::document_arrived`] on each of its sessions.
    pub fn handle_document<'a>(
        &mut self,
        document: Id128,
        bytes: Option<&'a [u8]>,
        now: Duration,
    ) -> Option<Document<'a>> {
        if !self.asked.contains_key(&document) {
            return None;
        }
        match bytes.map(|bytes| Document::verify(document, bytes)) {
            Some(Ok(verified)) => return Some(verified),
            // A peer that sends other bytes is not asked again.
            Some(Err(error)) => self.denied(document, format!("{error}"), 0, now),
            None => self.denied(document, lacking(document), self.limits.denials, now),
        }
        None
    }

    /// The application has a document now, wherever it came from. Every channel that names it gets
    /// an [`Event::Decide`](super::Event::Decide), even if it was settled without the document.
    pub fn document_arrived(&mut self, document: Id128) {
        self.forget_asked(document);
        let Session { named, awaited, remote, timers, events, .. } = self;
        for (_, id) in named.range(all_of(document)) {
            let Some(channel) = remote.get_mut(id) else { continue };
            if channel.fetching.take_if(|waits| *waits == document).is_some() {
                awaited.remove(&(document, *id));
                timers.clear(Timer::Fetch(*id));
            }
            channel.anew |= channel.unfetched.take().is_some();
            events.push(News::Decide(*id));
        }
    }

    /// A channel's time to wait for a document is over. Over a reliable carrier, a request that is
    /// not answered stays: its answer may still come.
    pub(super) fn fetch_timed_out(&mut self, channel: ChannelId) {
        let Some(known) = self.remote.get_mut(&channel) else { return };
        let Some(document) = known.fetching.take() else { return };
        known.unfetched = Some(match self.asked.get(&document) {
            Some(asked) if asked.denied > 0 => lacking(document),
            _ => format!("the document {document} of the writer did not come in time"),
        });
        known.is_late = true;
        self.awaited.remove(&(document, channel));
        self.events.push(News::Decide(channel));
        if self.is_awaited(document) {
            return;
        }
        let is_lossy = self.is_lossy();
        match self.asked.get_mut(&document).filter(|asked| !is_lossy && asked.open > 0) {
            Some(asked) => {
                asked.is_late = true;
                self.spare.insert(document);
            }
            None => self.forget_asked(document),
        }
    }

    /// The pause before the next request is over.
    pub(super) fn ask_again(&mut self, document: Id128, now: Duration) {
        let awaited = self.is_awaited(document);
        let Some(asked) = self.asked.get_mut(&document) else { return };
        if !awaited && asked.until <= now {
            return self.forget_asked(document);
        }
        asked.open = 1;
        self.outputs.push(Due::Want(document));
        self.repeat_later(document, now);
    }

    fn ask(&mut self, document: Id128, now: Duration) {
        if self.asked.len() >= self.limits.asked_documents && !self.asked.contains_key(&document) {
            self.forget_spare();
            if self.asked.len() >= self.limits.asked_documents {
                return;
            }
        }
        if self.is_named(document) {
            self.spare.remove(&document);
        } else {
            self.spare.insert(document);
        }
        let asked = self.asked.entry(document).or_default();
        asked.until = asked.until.max(now.saturating_add(self.limits.fetch_timeout));
        if asked.open == 0 || core::mem::take(&mut asked.is_late) {
            asked.open = 1;
            self.outputs.push(Due::Want(document));
            self.repeat_later(document, now);
        }
    }

    fn repeat_later(&mut self, document: Id128, now: Duration) {
        let (Carrier::Lossy(repeat), Some(asked)) = (&self.carrier, self.asked.get_mut(&document)) else { return };
        let pause = repeat.after(asked.pause);
        asked.pause = Some(pause);
        self.timers.set(Timer::Ask(document), now.saturating_add(pause));
    }

    /// The peer does not have a document that it announced. It is asked again: the writer may have
    /// left, and a relay may know another writer by now.
    fn denied(&mut self, document: Id128, reason: String, ask_again: u32, now: Duration) {
        let Some(asked) = self.asked.get_mut(&document) else { return };
        asked.open = asked.open.saturating_sub(1);
        if asked.open > 0 {
            return;
        }
        asked.denied = asked.denied.saturating_add(1);
        let denied = asked.denied;
        if denied > ask_again {
            let Session { awaited, remote, timers, events, .. } = self;
            for (_, id) in awaited.extract_if(all_of(document), |_| true) {
                let Some(channel) = remote.get_mut(&id) else { continue };
                channel.fetching = None;
                (channel.unfetched, channel.is_late) = (Some(reason.clone()), false);
                timers.clear(Timer::Fetch(id));
                events.push(News::Decide(id));
            }
        }
        match self.is_awaited(document) {
            true => {
                let times = 1u32.checked_shl(denied - 1).unwrap_or(u32::MAX);
                let pause = self.limits.denial_pause.saturating_mul(times);
                self.timers.set(Timer::Ask(document), now.saturating_add(pause));
            }
            false => self.forget_asked(document),
        }
    }

    fn is_awaited(&self, document: Id128) -> bool {
        self.awaited.range(all_of(document)).next().is_some()
    }

    fn is_named(&self, document: Id128) -> bool {
        self.named.range(all_of(document)).next().is_some()
    }

    /// A channel that names these documents has opened.
    pub(super) fn name(&mut self, channel: ChannelId, documents: [Option<Id128>; 3]) {
        for document in documents.into_iter().flatten() {
            self.named.insert((document, channel));
            self.spare.remove(&document);
        }
    }

    /// A channel that names these documents, and waits for one, has closed.
    pub(super) fn unname(&mut self, channel: ChannelId, documents: [Option<Id128>; 3], awaited: Option<Id128>) {
        if let Some(document) = awaited {
            self.awaited.remove(&(document, channel));
        }
        for document in documents.into_iter().flatten() {
            self.named.remove(&(document, channel));
            if self.asked.contains_key(&document) && !self.is_named(document) {
                self.spare.insert(document);
            }
        }
    }

    fn forget_asked(&mut self, document: Id128) {
        self.asked.remove(&document);
        self.spare.remove(&document);
        self.timers.clear(Timer::Ask(document));
    }

    /// Makes room: forgets requests that nobody needs, and those that are answered too late.
    fn forget_spare(&mut self) {
        while let Some(document) = self.spare.pop_first() {
            self.forget_asked(document);
        }
    }
}

fn lacking(document: Id128) -> String {
    format!("whoever was asked does not have the writer's document {document}: the writer may have left")
}
