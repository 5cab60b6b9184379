//! Servers of other programs that are not called yet. DDS says when a writer of ours has found a
//! reader, and not when that reader has found the writer. What is sent in between is lost to a
//! reader that wants no history, and so is a reply to a reader that the server has not found.

use std::time::{Duration, Instant};

use polywire_core::envelope::ChannelId;
use polywire_dds::Guid;

/// How long a server gets to find a client, after the client has found both of its ends.
const SETTLE: Duration = Duration::from_millis(100);

/// How long it is waited for the replies of who reads requests: it may be no server.
const PATIENCE: Duration = Duration::from_secs(3);

/// How often it is looked whether a server has settled.
pub(super) const LOOK: Duration = Duration::from_millis(10);

/// Participants that read the requests of a channel, and do not count yet.
#[derive(Default)]
pub(super) struct Settling(Vec<Entry>);

struct Entry {
    channel: ChannelId,
    participant: Guid,
    began: Instant,
    /// Since when its replies are heard.
    heard: Option<Instant>,
}

impl Settling {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn has(&self, channel: ChannelId, participant: Guid) -> bool {
        self.0.iter().any(|entry| (entry.channel, entry.participant) == (channel, participant))
    }

    pub(super) fn begin(&mut self, channel: ChannelId, participant: Guid, now: Instant) {
        self.end(channel, participant);
        self.0.push(Entry { channel, participant, began: now, heard: None });
    }

    /// The participant does not read the channel any more.
    pub(super) fn end(&mut self, channel: ChannelId, participant: Guid) {
        self.0.retain(|entry| (entry.channel, entry.participant) != (channel, participant));
    }

    /// Those that count from now on. `hears` says whether the replies of a participant are heard.
    pub(super) fn take(&mut self, now: Instant, hears: impl Fn(ChannelId, Guid) -> bool) -> Vec<(ChannelId, Guid)> {
        let mut done = Vec::new();
        self.0.retain_mut(|entry| {
            let Entry { channel, participant, began, heard } = entry;
            *heard = if hears(*channel, *participant) { heard.or(Some(now)) } else { None };
            let has_settled = heard.is_some_and(|heard| now.duration_since(heard) >= SETTLE);
            if has_settled || now.duration_since(*began) >= PATIENCE {
                done.push((*channel, *participant));
                return false;
            }
            true
        });
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_counts_some_time_after_both_ends_are_there() {
        let (channel, server, start) = (ChannelId(1), Guid([7; 16]), Instant::now());
        let mut settling = Settling::default();
        settling.begin(channel, server, start);
        assert_eq!(settling.take(start + SETTLE, |_, _| false), []);
        assert_eq!(settling.take(start + SETTLE, |_, _| true), []);
        assert_eq!(settling.take(start + 2 * SETTLE, |_, _| true), [(channel, server)]);
        assert!(settling.is_empty());
    }

    #[test]
    fn who_never_replies_counts_later_and_who_has_gone_does_not() {
        let (channel, start) = (ChannelId(1), Instant::now());
        let [listener, gone] = [7, 8].map(|byte| Guid([byte; 16]));
        let mut settling = Settling::default();
        settling.begin(channel, listener, start);
        settling.begin(channel, gone, start);
        assert!(settling.has(channel, gone));
        settling.end(channel, gone);
        assert_eq!(settling.take(start + PATIENCE, |_, _| false), [(channel, listener)]);
    }
}
