//! What a link knows of the channels of its peer, beside the session: where their messages go.

use std::{collections::BTreeMap, sync::Arc};

use polywire_core::envelope::{Announcement, ChannelId};

use super::route::{Route, Slot, Source};
use crate::{packing::Unpacking, qos::Offer, stats::ReceiverCounts};

/// Where messages go.
#[derive(Default)]
pub(super) struct Channels {
    pub(super) open: BTreeMap<ChannelId, Channel>,
    /// Channels that messages came on since the engine said that all was passed on.
    pub(super) touched: Vec<ChannelId>,
    /// Of channels that have closed.
    pub(super) received: ReceiverCounts,
}

pub(super) type Refused = Vec<(Arc<dyn Route>, String)>;
/// A subscriber that reads a channel, and where its messages go.
pub(super) type Reading = (Arc<dyn Route>, Arc<dyn Slot>);
pub(super) type Slots = Arc<Vec<Reading>>;

/// A channel that the application has begun to decide on.
pub(super) struct Channel {
    pub(super) source: Source,
    pub(super) slots: Slots,
    /// Made when the first subscriber comes. `None` if payloads are not packed.
    pub(super) unpacking: Option<Unpacking>,
    pub(super) touched: bool,
    /// Whether the peer's writer knows that the channel is read, where the medium matches them.
    pub(super) is_matched: bool,
    /// Whether the writer is alive, as far as the engine has told.
    pub(super) is_alive: bool,
    /// Whether messages may refer to earlier ones.
    pub(super) stream: bool,
    /// Whether a key frame was requested and is still missing.
    pub(super) key_requested: bool,
    /// Whether it goes with another channel.
    pub(super) auxiliary: bool,
    /// Whether messages wait for a history.
    pub(super) gated: bool,
    /// Whether callbacks take all messages during the call.
    pub(super) inline: bool,
    /// Subscribers that cannot read the channel, and why.
    pub(super) refused: Refused,
    pub(super) received: ReceiverCounts,
}

/// Where a message goes, and what is looked at behind it.
pub(super) struct Receiving {
    pub(super) slots: Slots,
    pub(super) unpacking: Option<Unpacking>,
    pub(super) stream: bool,
    pub(super) key_requested: bool,
    pub(super) gated: bool,
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
            gated: false,
            inline: true,
            refused: Refused::default(),
            received: ReceiverCounts::default(),
        }
    }

    /// Whether a key frame that some of these subscribers lack has to be requested: nobody has
    /// requested it, or there are new subscribers. A history is requested for each that waits.
    pub(super) fn is_request_due(&self, slots: &[Reading]) -> bool {
        let is_known = |slot: &Arc<dyn Slot>| self.slots.iter().any(|(_, known)| Arc::ptr_eq(known, slot));
        let are_known = slots.iter().all(|(_, slot)| is_known(slot));
        !self.key_requested || !are_known || is_history(&self.source.announcement)
    }
}

/// Why the subscriber cannot read the channel. `None` if it has not refused it.
pub(super) fn is_among<'a>(refused: &'a Refused, route: &Arc<dyn Route>) -> Option<&'a String> {
    refused.iter().find(|(other, _)| Arc::ptr_eq(other, route)).map(|(_, reason)| reason)
}

/// Whether a channel brings the history of another one's writer.
pub(super) fn is_history(announcement: &Announcement) -> bool {
    Offer::parse(&announcement.offer).is_ok_and(|offer| offer.history_of.is_some())
}
