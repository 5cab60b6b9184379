//! Benchmark of typed publish/subscribe between two processes, beside bare sockets and libzmq. The
//! program `transport` runs it. It opens sockets of this machine, and writes certificates for TLS
//! to a folder that it removes.
//!
//! The *other end* is a child process: the same program, started with [`CHILD`] as its first
//! argument.

mod child;
mod fanout;
mod hops;
mod idle;
mod latency;
mod pubsub;
mod raw;
mod throughput;
#[cfg(feature = "peers")]
mod zeromq;

#[allow(missing_docs, reason = "it belongs to the tests of another crate")]
#[path = "../../../crates/polywire/tests/common/fleet.rs"]
mod fleet;

pub use child::{CHILD, serve, set_program};

/// All measurements, in the order of their tables in the report.
pub const MEASUREMENTS: &[crate::Measurement] = &[
    ("latency", latency::group),
    ("throughput", throughput::group),
    ("fan-out", fanout::group),
    ("hops", hops::group),
    ("idle", idle::group),
];

/// The role of an end whose wire names none.
const EITHER: &str = "either";

/// An engine between two processes of one machine, and the bare sockets that it is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Tcp,
    Unix,
    Local,
    Tls,
    Udp,
    UdpReliable,
}

impl Family {
    const ALL: [Family; 6] = [Family::Tcp, Family::Unix, Family::Local, Family::Tls, Family::Udp, Family::UdpReliable];

    /// The engine's name.
    fn name(self) -> &'static str {
        match self {
            Family::Tcp => "tcp",
            Family::Unix => "unix",
            Family::Local => "local",
            Family::Tls => "tls",
            Family::Udp => "udp",
            Family::UdpReliable => "udp-reliable",
        }
    }

    fn find(name: &str) -> Family {
        let found = Family::ALL.into_iter().find(|family| family.name() == name);
        found.unwrap_or_else(|| panic!("'{name}' is no engine of this benchmark"))
    }

    /// The wire of an end, in CDR. The engines over TCP and Unix-domain sockets have a name for
    /// each role. With the role [`EITHER`], the end that opens first listens.
    fn wire(self, role: &str, address: &str) -> String {
        let role = match self {
            Family::Tcp | Family::Unix | Family::Tls if role != EITHER => format!("-{role}"),
            Family::Tcp | Family::Unix | Family::Tls | Family::Local | Family::Udp | Family::UdpReliable => {
                String::new()
            }
        };
        format!("cdr@{}{role}/{address}", self.name())
    }
}
