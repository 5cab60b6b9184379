//! How ports behave: queues, buffers, time-outs and limits, in one place.

use std::time::Duration;

use polywire_core::frame::Limits;

/// Settings of a port. [`Default`] suits latency and throughput alike.
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
    /// Bytes that may wait for each peer: the transmit buffer.
    pub queue_bytes: usize,
    /// What happens to a message when they are used up.
    pub overflow: Overflow,
    /// Sends small segments at once (`TCP_NODELAY`).
    pub no_delay: bool,
    /// The socket's send buffer (SSB, `SO_SNDBUF`); the system's choice where none. Linux books
    /// twice as much, its own records included.
    pub send_buffer: Option<usize>,
    /// The socket's receive buffer (RSB, `SO_RCVBUF`); the system's choice where none, which on
    /// Linux grows as needed. Not less than the send buffer of the peers. Over TCP on Linux
    /// peers are asked for segments of at most a quarter of it: it would hold too few larger ones
    /// to flow.
    pub receive_buffer: Option<usize>,
    /// After this many publications right behind each other, the next ones are gathered and written
    /// together.
    pub burst: u32,
    /// How long a gathered message waits at most for company, before the system's timer adds its
    /// own; to many peers, for two rounds of writes to all of them where those take longer, and
    /// for 5 ms at most.
    pub gather: Duration,
    /// Gathered bytes that are written without waiting for more: the batch.
    pub write_bytes: usize,
    /// First pause between attempts to connect; doubles each time.
    pub reconnect_min: Duration,
    /// Longest pause between attempts to connect.
    pub reconnect_max: Duration,
    /// How long an attempt to connect may take.
    pub connect_timeout: Duration,
    /// How long a peer may take to introduce itself.
    pub hello_timeout: Duration,
    /// Idle time after which the system checks whether a silent peer is still there (TCP
    /// keep-alive).
    pub keepalive: Duration,
    /// How long closing waits for peers to take what was sent.
    pub linger: Duration,
    /// Peers that a port takes at a time. When they are there, a peer that has neither announced
    /// nor accepted a channel makes room for another, and one of an address that has more of
    /// them than others.
    pub peers: usize,
    /// Who may connect to a Unix-domain socket: the permissions of its file, whatever the process's
    /// mask is. `0o600`, this user alone, to begin with; `0o660` lets the file's group in,
    /// `0o666` everybody on the machine. Systems other than Linux may not look at them: there the
    /// folder has to be closed to others.
    pub unix_mode: u32,
    /// What a peer may ask of us.
    pub limits: Limits,
}

/// What happens to a message for a peer whose queue is full. Other peers are not concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overflow {
    /// The writer waits. A peer that has taken nothing for `patience` is stalled: messages for it
    /// are dropped at once until half its queue is free.
    Block {
        /// How long it waits at most.
        patience: Duration,
    },
    /// The oldest messages waiting make room.
    DropOldest,
    /// The new message is dropped.
    DropNewest,
}

impl Default for EngineOptions {
    fn default() -> Self {
        EngineOptions {
            queue_bytes: 4 << 20,
            overflow: Overflow::default(),
            no_delay: true,
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
            linger: Duration::from_secs(1),
            peers: 1024,
            unix_mode: 0o600,
            limits: Limits::default(),
        }
    }
}

impl Default for Overflow {
    fn default() -> Self {
        Overflow::Block { patience: Duration::from_secs(1) }
    }
}
