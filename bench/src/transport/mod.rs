//! Benchmark of typed publish/subscribe between two processes, beside bare sockets and libzmq. The
//! program `transport` runs it. It opens TCP and Unix-domain sockets of this machine.
//!
//! The *other end* is a child process: the same program, started with [`CHILD`] as its first
//! argument.

mod child;
mod latency;
mod pubsub;
mod raw;
mod throughput;
#[cfg(feature = "peers")]
mod zeromq;

pub use child::{CHILD, serve, set_program};

/// All measurements, in the order of their tables in the report.
pub const MEASUREMENTS: &[crate::Measurement] = &[("latency", latency::group), ("throughput", throughput::group)];

/// A kind of stream socket.
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
