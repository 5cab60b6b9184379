//! Settings of ports: queues, buffers, time-outs and limits.

use std::time::Duration;

use polywire_core::frame::Limits;

use super::identity::Identity;
use crate::clock::LONGEST;

/// Settings of a port. The defaults are for both low latency and high throughput.
///
/// ```
/// use polywire::engine::{EngineOptions, Overflow};
/// # use std::time::Duration;
/// let mut options = EngineOptions::default();
/// assert!(options.no_delay && options.queue_bytes == 4 << 20);
/// assert_eq!(options.overflow, Overflow::Block { patience: Duration::from_secs(1) });
/// options.overflow = Overflow::DropOldest;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineOptions {
    /// Bytes that may wait for each peer: 4 MiB by default.
    pub queue_bytes: usize,
    /// What happens to a message for a peer whose queue is full: [`Overflow::Block`] with one
    /// second by default.
    pub overflow: Overflow,
    /// Sends small segments at once (`TCP_NODELAY`): true by default.
    pub no_delay: bool,
    /// TCP connections are tuned for thin streams, with few messages under way at a time: false by
    /// default; the endpoint's option `thin` sets it for one port. On Linux,
    ///
    /// - lost segments are retransmitted after equal pauses instead of doubling ones
    ///   (`TCP_THIN_LINEAR_TIMEOUTS`),
    /// - at most 16 KiB of unsent data waits in the system, where the overflow policy has no effect
    ///   (`TCP_NOTSENT_LOWAT`),
    /// - a link ends if the peer acknowledges nothing for [`keepalive`](EngineOptions::keepalive),
    ///   or accepts no data for that time (`TCP_USER_TIMEOUT`).
    ///
    /// On all systems, small segments are sent at once, whatever
    /// [`no_delay`](EngineOptions::no_delay) says, and received messages are confirmed with the
    /// heartbeats of the [`lease`](EngineOptions::lease) and after every 256 messages, not after
    /// each pause of 10 ms. So [`Event::Unconfirmed`](crate::engine::Event::Unconfirmed) may count
    /// more messages that did arrive. `docs/thin.md` says when this option helps.
    pub thin: bool,
    /// Size of the socket's send buffer (`SO_SNDBUF`); `None`, the default, for the system's
    /// choice. Linux reserves twice as much, which includes its own bookkeeping.
    pub send_buffer: Option<usize>,
    /// Size of the socket's receive buffer (`SO_RCVBUF`); `None`, the default, for the system's
    /// choice, which on Linux grows as needed. It should not be smaller than the peers' send
    /// buffer. Over TCP on Linux, the port asks peers for segments of at most a quarter of this
    /// size, since data stalls if only one or two segments fit.
    pub receive_buffer: Option<usize>,
    /// After this many publications without a pause, 16 by default, the next messages are gathered
    /// and written together. Publications follow without a pause if each begins at most 2 µs after
    /// the last one was written to all peers, or at most a quarter of the time that this writing
    /// took. `publish_all` has 2 µs for each of its values, and counts as one publication.
    /// Gathering ends after four successive periods with fewer messages than this, each half as
    /// long as the time that [`gather`](EngineOptions::gather) gives them.
    pub burst: u32,
    /// Longest time that a gathered message waits for others, apart from the resolution of the
    /// system's timer: 50 µs by default. The time is multiplied by the number of the port's peers,
    /// up to 5 ms in all.
    pub gather: Duration,
    /// When this many bytes have been gathered, they are written at once: 64 KiB by default.
    pub write_bytes: usize,
    /// First pause between attempts to connect: 10 ms by default. It doubles at each attempt.
    pub reconnect_min: Duration,
    /// Longest pause between attempts to connect: 2 s by default.
    pub reconnect_max: Duration,
    /// Longest time of an attempt to connect: 5 s by default.
    pub connect_timeout: Duration,
    /// Longest time that a peer may take to introduce itself: 5 s by default.
    pub hello_timeout: Duration,
    /// Idle time after which the system probes a silent peer (TCP keep-alive): 15 s by default.
    pub keepalive: Duration,
    /// This node promises its peers that they receive some frame from it at least this often, 5 s
    /// by default. The node sends heartbeats when it has nothing else to send. A peer that receives
    /// nothing for this time reports [`Event::Silent`](crate::engine::Event::Silent). Until the
    /// peer receives something from this node again, its publishers do not wait for room in the
    /// queue to this node: with [`Overflow::Block`], messages for a full queue are then dropped at
    /// once. Zero promises nothing. Over `local`, between nodes of one machine, the node promises
    /// at most 1 s.
    pub lease: Duration,
    /// Longest time that closing waits for peers to receive the queued messages: 1 s by default.
    pub linger: Duration,
    /// Peers that a port accepts at a time: 1024 by default. A full port closes one connection for
    /// a newcomer: the oldest that has not said hello, or else the oldest that has neither
    /// announced nor accepted a channel, or else the newest of the host with the most connections.
    /// It rejects the newcomer if the newcomer's host would then have as many connections as that
    /// host.
    pub peers: usize,
    /// Permissions of a Unix-domain socket's file, whatever the process's umask is. They decide who
    /// may connect: `0o600`, the default, only this user; `0o660` also the file's group; `0o666`
    /// every user of the machine. Some systems other than Linux ignore them; there, restrict the
    /// folder.
    pub unix_mode: u32,
    /// The files by which the node proves its identity over TLS and with DDS Security.
    pub identity: Identity,
    /// Limits on what a peer may send.
    pub limits: Limits,
}

/// What happens to a message for a receiver whose queue is full.
///
/// The policies that drop do not affect other receivers. With `Block`, which is the default, other
/// receivers wait for the slow one, too: a port sends to one peer after another, and while a
/// subscriber's queue is full, its node reads nothing more from the publisher's link. If the
/// publisher is on the same node, `publish` blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overflow {
    /// The writer waits as long as the receiver keeps taking messages. A receiver that has taken
    /// nothing for `patience` is stalled: messages for it are dropped at once until half of its
    /// queue is free.
    Block {
        /// Longest wait while the receiver takes nothing. The wait begins again each time that the
        /// receiver takes something.
        patience: Duration,
    },
    /// The oldest waiting messages are dropped.
    DropOldest,
    /// The new message is dropped.
    DropNewest,
}

impl EngineOptions {
    /// Shortens times to [`LONGEST`]: ports add them to the present time.
    pub(crate) fn with_short_times(mut self) -> EngineOptions {
        let patience = match &mut self.overflow {
            Overflow::Block { patience } => Some(patience),
            Overflow::DropOldest | Overflow::DropNewest => None,
        };
        let times = [
            &mut self.gather,
            &mut self.reconnect_min,
            &mut self.reconnect_max,
            &mut self.connect_timeout,
            &mut self.hello_timeout,
            &mut self.keepalive,
            &mut self.lease,
            &mut self.linger,
        ];
        times.into_iter().chain(patience).for_each(|time| *time = LONGEST.min(*time));
        self
    }
}

impl Default for EngineOptions {
    fn default() -> Self {
        EngineOptions {
            queue_bytes: 4 << 20,
            overflow: Overflow::default(),
            no_delay: true,
            thin: false,
            send_buffer: None,
            receive_buffer: None,
            burst: 16,
            gather: Duration::from_micros(50),
            write_bytes: 64 << 10,
            reconnect_min: Duration::from_millis(10),
            reconnect_max: Duration::from_secs(2),
            connect_timeout: Duration::from_secs(5),
            hello_timeout: Duration::from_secs(5),
            keepalive: Duration::from_secs(15),
            lease: Duration::from_secs(5),
            linger: Duration::from_secs(1),
            peers: 1024,
            unix_mode: 0o600,
            identity: Identity::default(),
            limits: Limits::default(),
        }
    }
}

impl Default for Overflow {
    fn default() -> Self {
        Overflow::Block { patience: Duration::from_secs(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_any_length_are_shortened_and_the_defaults_are_kept() {
        let defaults = EngineOptions::default();
        assert_eq!(defaults.clone().with_short_times(), defaults);
        let overflow = Overflow::Block { patience: Duration::MAX };
        let options = EngineOptions { linger: Duration::MAX, overflow, ..defaults }.with_short_times();
        assert_eq!((options.linger, options.overflow), (LONGEST, Overflow::Block { patience: LONGEST }));
    }
}
