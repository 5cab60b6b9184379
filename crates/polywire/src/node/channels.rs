//! The open channels of a link's peer, apart from the session's state: which subscribers get the
//! messages of each channel.

use std::{collections::BTreeMap, sync::Arc};

use polywire_core::envelope::{Announcement, ChannelId};

use super::route::{Route, Slot, Source};
use crate::{packing::Unpacking, qos::Offer, stats::ReceiverCounts};

/// The open channels of a peer, with their subscribers.
#[derive(Default)]
pub(super) struct Channels {
    pub(super) open: BTreeMap<ChannelId, Channel>,
    /// Channels that have received messages since the engine last called `LinkSink::drained`.
    pub(super) touched: Vec<ChannelId>,
    /// The counts of channels that have closed.
    pub(super) received: ReceiverCounts,
}

pub(super) type Refused = Vec<(Arc<dyn Route>, String)>;
/// A subscriber that reads a channel, and where its messages go.
pub(super) type Reading = (Arc<dyn Route>, Arc<dyn Slot>);
pub(super) type Slots = Arc<Vec<Reading>>;

/// A channel of the peer, from the first decision on who reads it until it closes.
pub(super) struct Channel {
    pub(super) source: Source,
    pub(super) slots: Slots,
    /// The decompressor, made for the first subscriber. `None` if payloads are not compressed.
    pub(super) unpacking: Option<Unpacking>,
    pub(super) touched: bool,
    /// Whether the engine has reported that the peer's writer and the reader here are matched. Used
    /// only if the medium itself matches writers and readers.
    pub(super) is_matched: bool,
    /// Whether the writer is alive, according to the engine's last report.
    pub(super) is_alive: bool,
    /// Whether messages may refer to earlier ones.
    pub(super) stream: bool,
    /// Whether a key frame was requested and is still missing.
    pub(super) key_requested: bool,
    /// Whether the channel carries the history or the assertions of another channel's writer.
    pub(super) auxiliary: bool,
    /// Whether messages wait for a history, on this channel or because of it.
    pub(super) has_barrier: bool,
    /// Whether all subscribers take each message during the call that delivers it, as callbacks do.
    pub(super) inline: bool,
    /// Subscribers that cannot read the channel, and why.
    pub(super) refused: Refused,
    pub(super) received: ReceiverCounts,
}

/// The parts of a [`Channel`] that the delivery of a message needs without the lock.
pub(super) struct Receiving {
    pub(super) slots: Slots,
    pub(super) unpacking: Option<Unpacking>,
    pub(super) stream: bool,
    pub(super) key_requested: bool,
    pub(super) has_barrier: bool,
}

impl Channel {
    pub(super) fn new(source: Source) -> Channel {
        Channel {
            source,
            slots: Slots::default(),
            unpacking: None,
            touched: false,
            is_matched: false,
            is_alive: true,
            stream: false,
            key_requested: false,
            auxiliary: false,
            has_barrier: false,
            inline: true,
            refused: Refused::default(),
            received: ReceiverCounts::default(),
        }
    }

    /// Whether to request a key frame that some of these subscribers lack: none was requested yet,
    /// or there are new subscribers. A history is requested for each subscriber that waits for it.
    pub(super) fn is_request_due(&self, slots: &[Reading]) -> bool {
        let is_known = |slot: &Arc<dyn Slot>| self.slots.iter().any(|(_, known)| Arc::ptr_eq(known, slot));
        let are_known = slots.iter().all(|(_, slot)| is_known(slot));
        !self.key_requested || !are_known || is_history(&self.source.announcement)
    }
}

/// Returns why the subscriber cannot read the channel, or `None` if it has not refused the channel.
pub(super) fn is_among<'a>(refused: &'a Refused, route: &Arc<dyn Route>) -> Option<&'a String> {
    refused.iter().find(|(other, _)| Arc::ptr_eq(other, route)).map(|(_, reason)| reason)
}

/// Returns the subscribers that neither read the channel nor have refused it: only these may need
/// a document.
pub(super) fn undecided(routes: &[Arc<dyn Route>], slots: &Slots, refused: &Refused) -> Vec<Arc<dyn Route>> {
    let reads = |route: &Arc<dyn Route>| slots.iter().any(|(other, _)| Arc::ptr_eq(other, route));
    routes.iter().filter(|route| !reads(route) && is_among(refused, route).is_none()).cloned().collect()
}

/// Whether a channel carries the history of another channel's writer.
pub(super) fn is_history(announcement: &Announcement) -> bool {
    Offer::parse(&announcement.offer).is_ok_and(|offer| offer.history_of.is_some())
}
