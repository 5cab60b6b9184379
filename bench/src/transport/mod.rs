//! Typed publish/subscribe between two processes, against bare sockets and against libzmq.
//!
//! The other end is this program again, started with [`CHILD`] as its first word.

mod child;
mod latency;
mod pubsub;
mod raw;
mod throughput;
#[cfg(feature = "peers")]
mod zeromq;

use crate::{measure::Effort, report::Group};

pub use child::{CHILD, serve, set_program};

/// A measurement by the name that chooses it.
pub type Measurement = (&'static str, fn(Effort) -> Group);

/// All measurements, in the order of their tables.
pub const MEASUREMENTS: &[Measurement] = &[("latency", latency::group), ("throughput", throughput::group)];

/// A kind of socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Tcp,
    Unix,
}

impl Family {
    fn name(self) -> &'static str {
        match self {
            Family::Tcp => "tcp",
            Family::Unix => "unix",
        }
    }
}
