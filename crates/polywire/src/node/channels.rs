//! What a link knows of the channels of its peer, beside the session: where their messages go.

use std::{collections::BTreeMap, sync::Arc};

use polywire_core::envelope::ChannelId;

use super::route::{Route, Slot, Source};
use crate::{packing::Unpacking, stats::ReceiverCounts};

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
pub(super) type Slots = Arc<Vec<(Arc<dyn Route>, Arc<dyn Slot>)>>;

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
}

/// Why the subscriber cannot read the channel. `None` if it has not refused it.
pub(super) fn is_among<'a>(refused: &'a Refused, route: &Arc<dyn Route>) -> Option<&'a String> {
    refused.iter().find(|(other, _)| Arc::ptr_eq(other, route)).map(|(_, reason)| reason)
}
