//! Servers of other programs that are not called yet. DDS says when a writer and a reader of ours
//! have found the other end, and not when the other end has found them. A request or a reply that
//! is written before is lost. A node says when its writer has found a reader.

use std::time::{Duration, Instant};

use polywire_core::envelope::ChannelId;
use polywire_dds::Guid;

/// How long a server gets to find a client that has found both of its ends.
const SETTLE: Duration = Duration::from_millis(100);

/// How long it is waited for a reader of requests: there may be no client here.
const PATIENCE: Duration = Duration::from_secs(3);

/// How often it is looked whether a server has settled.
pub(super) const LOOK: Duration = Duration::from_millis(10);

/// Channels of replies that are read, and whose servers may not have found this node yet.
#[derive(Default)]
pub(super) struct Settling(Vec<Entry>);

struct Entry {
    participant: Guid,
    channel: ChannelId,
    began: Instant,
    /// Since when both ends of the server are found.
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

    /// The channels whose servers have had time to find this node. `finds` says whether both ends
    /// of a server are found; `None` if the channel is not read any more.
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
