//! Every size, pause and limit of a [`Member`](super::Member).

use core::{num::NonZeroU64, time::Duration};

/// Every size, pause and limit of a [`Member`](super::Member). The names are those of the survey
/// "High performance messaging" (2015), section VI.D, where it has one.
///
/// ```
/// use core::time::Duration;
/// use polywire_core::multicast::Config;
/// let config = Config { first_nak_delay: Duration::from_millis(10), ..Config::default() };
/// assert_eq!((config.window, config.largest_burst_lost), (4096, 4096));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Whether the group has only two members, which reach each other by unicast.
    pub is_pair: bool,
    /// Largest packet in bytes. What is longer is sent in parts.
    pub packet_bytes: usize,
    /// Batching size: bytes of records that leave at once together.
    pub batch_bytes: usize,
    /// Batching interval: the longest time that a record waits for others to fill a batch.
    pub batch_interval: Duration,
    /// Records that must follow each other within the batching interval before batching begins.
    pub batch_after: u32,
    /// Packets rate limit in bits a second. `None` for no limit.
    pub rate_limit: Option<NonZeroU64>,
    /// Packets rate interval: after a pause, packets of so much time may leave at once.
    pub rate_interval: Duration,
    /// Retransmission buffer: bytes of packets that the sender keeps for repairs, and that a
    /// receiver keeps of each member until those before have come.
    pub retransmission_buffer: usize,
    /// Window for retransmission: packets that the sender is ahead of its slowest follower at most.
    pub window: usize,
    /// Initial NAK delay: how long a receiver waits for a late packet before it asks for it. In a
    /// group the delay is drawn from its upper half, so that one asks first.
    pub first_nak_delay: Duration,
    /// Subsequent NAK delay: the pause before it asks again. It doubles while nothing comes.
    pub next_nak_delay: Duration,
    /// The longest pause between two requests.
    pub longest_nak_delay: Duration,
    /// Largest burst lost: a longer row of missing packets is not recovered; the peering begins
    /// anew.
    pub largest_burst_lost: usize,
    /// How soon a receiver confirms what it has taken.
    pub status_interval: Duration,
    /// The pause from a packet to the next status, which shows whether it was lost. It doubles.
    pub first_heartbeat: Duration,
    /// The longest pause between two statuses.
    pub heartbeat: Duration,
    /// How long a silent peer is kept: several heartbeats.
    pub lease: Duration,
    /// How long a follower may hold up the others before it is cut off.
    pub patience: Duration,
    /// Members that a member knows at most.
    pub peers: usize,
    /// Largest record in bytes.
    pub record_bytes: usize,
    /// Bytes of incomplete records of all peers together.
    pub reassembly_bytes: usize,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            is_pair: false,
            packet_bytes: 1400,
            batch_bytes: 1400,
            batch_interval: Duration::from_micros(50),
            batch_after: 16,
            rate_limit: NonZeroU64::new(1_000_000_000),
            rate_interval: Duration::from_millis(1),
            retransmission_buffer: 4 << 20,
            window: 4096,
            first_nak_delay: Duration::from_millis(2),
            next_nak_delay: Duration::from_millis(20),
            longest_nak_delay: Duration::from_millis(500),
            largest_burst_lost: 4096,
            status_interval: Duration::from_millis(10),
            first_heartbeat: Duration::from_millis(10),
            heartbeat: Duration::from_secs(1),
            lease: Duration::from_secs(10),
            patience: Duration::from_secs(1),
            peers: 1024,
            record_bytes: 65 << 20,
            reassembly_bytes: 256 << 20,
        }
    }
}
