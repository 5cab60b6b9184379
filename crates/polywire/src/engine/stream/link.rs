//! One link of a port after both ends have exchanged hello frames: its peer and its outbox.

use std::{net::Shutdown, sync::Arc, time::Instant};

use polywire_core::frame::Frame;

use super::{outbox::Outbox, transport::ByteStream};
use crate::engine::{LinkInfo, LinkStats};

/// A link: its sending side, and the stream that [`connection`](super::connection) reads.
pub(super) struct Link {
    pub(super) info: LinkInfo,
    pub(super) outbox: Outbox,
    pub(super) stream: Arc<dyn ByteStream>,
}

impl Link {
    /// Sends everything queued and a goodbye, until `deadline`, and closes the sending direction.
    pub(super) fn say_goodbye(&self, deadline: Instant) {
        self.outbox.flush(deadline);
        self.outbox.control(&Frame::Bye);
        self.outbox.flush(deadline);
        self.stream.shutdown(Shutdown::Write);
    }

    pub(super) fn stats(&self) -> LinkStats {
        let tally = self.outbox.tally();
        LinkStats {
            link: self.info.clone(),
            sent: tally.sent,
            dropped: tally.dropped,
            queued_bytes: tally.queued_bytes,
        }
    }
}
