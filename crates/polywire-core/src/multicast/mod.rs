//! Reliable multicast by negative acknowledgement, and best effort beside it, without I/O: members
//! of a group find each other, and each sends records to all others or to one.
//!
//! A [`Member`] reads no clock, takes no lock and opens no socket. Its driver calls
//!
//! - [`Member::handle_datagram`] for everything that comes from the group,
//! - [`Member::send`] for what is to be sent, while [`Member::has_room`],
//!
//! and after each call, and when the time of [`Member::next_timeout`] has come,
//! [`Member::poll_transmit`] until there is nothing to send to the group, and
//! [`Member::poll_event`] until nothing has happened. Times are durations since any one moment, the
//! same for all calls. `spec/udp.md` defines the packets and the rules.
//!
//! - *Reliable* records of a member reach every member that follows it, once and in order, or the
//!   peering ends with [`Event::Down`]. Packets are numbered. Whoever lacks one asks for it (NAK),
//!   after a pause in which it may come late or others may ask. One repair serves all. The sender
//!   keeps packets until all followers have taken them, and sends no further than
//!   [`Config::window`].
//! - *Best-effort* records are sent once. They arrive in order, each once or never.
//! - A follower that holds up others is cut off ([`Config::patience`]) and may come back.
//!
//! A group of two over unicast ([`Config::is_pair`]) is the same. A [`Gate`] keeps out those who
//! have not proved their address.
//!
//! ```
//! use std::time::Duration;
//! use polywire_core::{envelope::Id128, frame::Hello};
//! use polywire_core::multicast::{Config, Event, Member, MemberId, Reliability};
//!
//! let hello = |node| Hello { node: Id128([node; 16]), incarnation: 1 };
//! let mut members = [1, 2].map(|node| Member::new(Config::default(), hello(node), u64::from(node)));
//! let (mut now, mut packet, mut came) = (Duration::ZERO, Vec::new(), Vec::new());
//! while came.is_empty() {
//!     for at in 0..2 {
//!         while members[at].poll_transmit(now, &mut packet) {
//!             members[1 - at].handle_datagram(&packet, now)?;
//!         }
//!         while let Some(event) = members[at].poll_event(now) {
//!             match event {
//!                 Event::Up { peer, .. } if at == 0 => {
//!                     assert_eq!(peer, members[1].id());
//!                     members[0].send(Some(peer), Reliability::Reliable, b"hello", 1, now)?;
//!                 }
//!                 Event::Records { from: MemberId(1), batch } => came.extend(batch.records().map(<[u8]>::to_vec)),
//!                 _ => {}
//!             }
//!         }
//!     }
//!     let next = members.iter().filter_map(Member::next_timeout).min();
//!     now = now.max(next.expect("a member always has something to do later"));
//! }
//! assert_eq!((came, members[0].has_room(), members[0].is_sent()), (vec![b"hello".to_vec()], true, true));
//! assert!(now < Duration::from_secs(1));
//! members[0].close(now);
//! # Ok::<(), polywire_core::multicast::PacketError>(())
//! ```

mod config;
mod gate;
mod loose;
mod member;
mod packet;
mod peer;
mod rate;
mod receiver;
mod record;
mod sender;

pub use config::Config;
pub use gate::{Admission, Gate};
pub use member::{Event, Member, Reason, Reliability};
pub use packet::{PacketError, VERSION, other_version, sender_of};
pub use record::Batch;

use core::fmt;

/// Identifies a member: one port of one node, as long as the port is open. Random, never 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u64);

impl MemberId {
    /// Stands for all members.
    pub(crate) const ALL: MemberId = MemberId(0);
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "member {:016x}", self.0)
    }
}
