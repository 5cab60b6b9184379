//! Servers of other programs that must not be called yet. DDS reports when a writer or reader of
//! this node has matched the other end, but not when the other end has matched it. A request or a
//! reply that is written before that is lost. Nodes report themselves when their writers have
//! matched a reader.

use std::time::{Duration, Instant};

use polywire_core::envelope::ChannelId;
use polywire_dds::Guid;

/// How long a server gets to match a client that has matched both of its ends.
const SETTLE: Duration = Duration::from_millis(100);

/// How long to wait until the server's reader of requests is matched: there may be no client here.
const PATIENCE: Duration = Duration::from_secs(3);

/// The interval between checks whether a server has settled.
pub(super) const LOOK: Duration = Duration::from_millis(10);

/// Channels of replies that are read, and whose servers may not have matched this node yet.
#[derive(Default)]
pub(super) struct Settling(Vec<Entry>);

struct Entry {
    participant: Guid,
    channel: ChannelId,
    began: Instant,
    /// Since when both ends of the server are matched.
    found: Option<Instant>,
}

impl Settling {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn begin(&mut self, participant: Guid, channel: ChannelId, now: Instant) {
        self.0.retain(|entry| (entry.participant, entry.channel) != (participant, channel));
        self.0.push(Entry { participant, channel, began: now, found: None });
    }

    /// Takes the channels whose servers have had time to match this node. `finds` returns whether
    /// both ends of a server are matched; `None` if the channel is no longer read.
    pub(super) fn take(
        &mut self,
        now: Instant,
        finds: impl Fn(Guid, ChannelId) -> Option<bool>,
    ) -> Vec<(Guid, ChannelId)> {
        let mut settled = Vec::new();
        self.0.retain_mut(|Entry { participant, channel, began, found }| {
            let Some(finds) = finds(*participant, *channel) else { return false };
            *found = if finds { found.or(Some(now)) } else { None };
            let has_settled = found.is_some_and(|found| now.duration_since(found) >= SETTLE)
                || now.duration_since(*began) >= PATIENCE;
            if has_settled {
                settled.push((*participant, *channel));
            }
            !has_settled
        });
        settled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANNEL: ChannelId = ChannelId(1);

    #[test]
    fn a_server_counts_some_time_after_both_ends_are_found() {
        let (server, start) = (Guid([7; 16]), Instant::now());
        let mut settling = Settling::default();
        settling.begin(server, CHANNEL, start);
        assert_eq!(settling.take(start, |_, _| Some(true)), []);
        assert_eq!(settling.take(start + SETTLE, |_, _| Some(false)), [], "one has gone");
        assert_eq!(settling.take(start + SETTLE, |_, _| Some(true)), []);
        assert_eq!(settling.take(start + 2 * SETTLE, |_, _| Some(true)), [(server, CHANNEL)]);
        assert!(settling.is_empty());
    }

    #[test]
    fn who_takes_no_requests_counts_later_and_what_is_not_read_any_more_does_not() {
        let start = Instant::now();
        let [server, gone] = [7, 8].map(|byte| Guid([byte; 16]));
        let mut settling = Settling::default();
        settling.begin(server, CHANNEL, start);
        settling.begin(gone, CHANNEL, start);
        let finds = |guid, _| (guid == server).then_some(false);
        assert_eq!(settling.take(start, finds), []);
        assert_eq!(settling.take(start + PATIENCE, finds), [(server, CHANNEL)]);
        assert!(settling.is_empty());
    }
}
