//! One link of a port after both ends have exchanged hello frames: its peer and its outbox.

use std::{net::Shutdown, sync::Arc, time::Instant};

use polywire_core::{
    envelope::{Announcement, ChannelId},
    frame::{Frame, FrameError, Start},
};

use super::{outbox::Outbox, transport::ByteStream};
use crate::engine::{Action, LinkInfo, LinkSink, LinkStats};

/// A link: its sending side, and the stream that [`connection`](super::connection) reads.
pub(super) struct Link {
    pub(super) info: LinkInfo,
    pub(super) outbox: Outbox,
    pub(super) stream: Arc<dyn ByteStream>,
    pub(super) sink: Arc<dyn LinkSink>,
    pub(super) began: Instant,
}

impl Link {
    /// Announces one of the port's channels. Returns false if the peer may not subscribe to it:
    /// then the announcement says so, and the peer gets no messages, whatever it answers.
    pub(super) fn announce(
        &self,
        channel: ChannelId,
        start: Start,
        announcement: &Announcement,
    ) -> Result<bool, FrameError> {
        let permitted = self.sink.permits(Action::Subscribe, &announcement.topic);
        match &permitted {
            Ok(()) => self.outbox.announce(channel, start, announcement)?,
            Err(reason) => self.outbox.deny(channel, start, &announcement.denied(reason))?,
        }
        Ok(permitted.is_ok())
    }

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
            silences: self.outbox.peer_liveliness.silences(),
        }
    }
}
