//! Every limit and pause of a [`Session`](super::Session), and the budget that the sessions of one
//! node share.

use alloc::sync::Arc;
use core::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

/// Limits on the memory that a peer can make a session use, and its time-outs. A driver that takes
/// all outputs and events after each call never has more of them than these limits say.
///
/// ```
/// use core::time::Duration;
/// use polywire_core::session::Limits;
/// let limits = Limits { fetch_timeout: Duration::from_secs(1), ..Limits::default() };
/// assert_eq!((limits.denials, limits.asked_documents), (5, 16_384));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Channels of the peer that are open, or whose [`Event::Closed`](super::Event::Closed) was not
    /// polled yet.
    pub channels: usize,
    /// Documents that the peer was asked for and has not sent.
    pub asked_documents: usize,
    /// Outputs waiting that belong to no open channel: documents to send, refusals of channels that
    /// are not held, retirements of channels that the peer should have forgotten.
    pub stray_outputs: usize,
    /// Bytes of a refusal's text. A longer text is cut.
    pub refusal_bytes: usize,
    /// How long a channel waits for one document before it is decided without it.
    pub fetch_timeout: Duration,
    /// Number of times that a document is requested again after the peer answered that it does not
    /// have it. A relay answers so when the writer that it asked has left, and may know another one
    /// by now.
    pub denials: u32,
    /// The pause before a peer is asked again that does not have a document. It doubles each time.
    pub denial_pause: Duration,
    /// The pause before a key frame is requested again. It doubles each time.
    pub key_pause: Duration,
    /// The longest pause between two requests for a key frame.
    pub longest_key_pause: Duration,
    /// Key frames that requests may cause in a row.
    pub key_burst: u32,
    /// The time from one requested key frame to the next, in the long run.
    pub key_period: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            channels: 1 << 18,
            asked_documents: 16_384,
            stray_outputs: 16_384,
            refusal_bytes: 1000,
            fetch_timeout: Duration::from_secs(5),
            denials: 5,
            denial_pause: Duration::from_millis(20),
            key_pause: Duration::from_millis(20),
            longest_key_pause: Duration::from_secs(1),
            key_burst: 8,
            key_period: Duration::from_millis(50),
        }
    }
}

/// The medium that carries a session's frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carrier {
    /// Every frame arrives once and in order, or the link ends. Nothing is sent twice.
    #[default]
    Reliable,
    /// Frames may be lost, repeated and reordered. The session repeats announcements, retirements
    /// and requests. Nodes do not use it: see [the module](super).
    Lossy(Repeat),
}

/// How often a session over a lossy carrier repeats itself.
///
/// An open channel is announced again at intervals, and the peer answers each time. This repairs
/// lost announcements, answers and changes of answers.
///
/// ```
/// use core::time::Duration;
/// use polywire_core::session::{Carrier, Repeat};
/// let repeat = Repeat { lease: Duration::from_secs(30), ..Repeat::default() };
/// assert_eq!(repeat.retirements, 3);
/// assert_ne!(Carrier::Lossy(repeat), Carrier::Reliable);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeat {
    /// The pause before an announcement, a retirement or a request for a document is first
    /// repeated. It doubles each time.
    pub first_pause: Duration,
    /// The longest pause, and so the period of announcements.
    pub longest_pause: Duration,
    /// How often a retirement is sent.
    pub retirements: u32,
    /// How long a channel of the peer stays open after its last announcement: several times
    /// [`Repeat::longest_pause`].
    pub lease: Duration,
}

impl Default for Repeat {
    fn default() -> Self {
        Repeat {
            first_pause: Duration::from_millis(50),
            longest_pause: Duration::from_secs(1),
            retirements: 3,
            lease: Duration::from_secs(15),
        }
    }
}

/// Bytes of announcements that all sessions of one node may hold together. A clone counts with the
/// original.
///
/// ```
/// use polywire_core::{frame::Start, session::{Budget, Carrier, Exceeded, Limits, Session}};
/// let budget = Budget::new(2000);
/// let session = || Session::new(Limits::default(), Carrier::Reliable, budget.clone());
/// let (mut one, mut other) = (session(), session());
/// let long = polywire_core::envelope::Announcement { topic: "t".repeat(500), ..Default::default() };
/// assert_eq!(one.handle_announce(polywire_core::envelope::ChannelId(1), Start::default(), &long, Default::default()), Ok(()));
/// let refused = other.handle_announce(polywire_core::envelope::ChannelId(1), Start::default(), &long, Default::default());
/// assert!(matches!(refused, Err(Exceeded::Bytes { limit: 2000, .. })));
/// assert!(budget.used() > 500);
/// ```
#[derive(Clone, Debug)]
pub struct Budget {
    used: Arc<AtomicUsize>,
    limit: usize,
}

/// A limit that an announcement exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Exceeded {
    /// The [`Budget`].
    #[error("announcements of {used} bytes are held, and {bytes} more would exceed the {limit} of all links")]
    Bytes {
        /// Bytes held by all sessions.
        used: usize,
        /// Bytes of the announcement.
        bytes: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// [`Limits::channels`].
    #[error("the link has {limit} channels, as many as it may")]
    Channels {
        /// Channels allowed.
        limit: usize,
    },
}

impl Budget {
    /// A budget of this many bytes.
    pub fn new(limit: usize) -> Budget {
        Budget { used: Arc::default(), limit }
    }

    /// Bytes held now.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes a share, which is given back when it is dropped.
    pub(super) fn reserve(&self, bytes: usize) -> Result<Share, Exceeded> {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed);
        let share = Share { used: self.used.clone(), bytes };
        match used.saturating_add(bytes) > self.limit {
            true => Err(Exceeded::Bytes { used, bytes, limit: self.limit }),
            false => Ok(share),
        }
    }
}

/// A part of a [`Budget`].
#[derive(Debug)]
pub(super) struct Share {
    used: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_given_back_also_when_it_is_refused() {
        let budget = Budget::new(10);
        let share = budget.reserve(10).expect("there is room");
        assert_eq!(budget.reserve(1).err(), Some(Exceeded::Bytes { used: 10, bytes: 1, limit: 10 }));
        assert_eq!(budget.used(), 10);
        drop(share);
        assert_eq!(budget.used(), 0);
    }
}
