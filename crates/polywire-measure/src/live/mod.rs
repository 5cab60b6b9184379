//! Measurements of real engines: a sender in this process, receivers in another process or here.
//!
//! The files import in one direction: all share `clock`, `setup`, `carrier` and `receivers`; `peer`
//! starts the other end; a file for each kind of engine carries messages; `engines` is their table;
//! `case` and `serve` run the two ends.

#[cfg(any(feature = "peers", feature = "peers-dds", feature = "peers-iceoryx2", feature = "peers-zenoh"))]
mod bus;
#[cfg(any(feature = "peers-dds", feature = "peers-zenoh"))]
mod callbacks;
mod carrier;
mod case;
mod clock;
#[cfg(feature = "peers-dds")]
mod cyclone;
mod ddsperf;
pub mod engines;
mod frame;
#[cfg(feature = "peers-iceoryx2")]
mod iceoryx2;
mod loaded;
mod ours;
mod peer;
mod raw;
mod receivers;
mod serve;
mod setup;
#[cfg(any(feature = "peers", feature = "peers-iceoryx2"))]
mod waiting;
#[cfg(feature = "peers-zenoh")]
mod zenoh;
#[cfg(feature = "peers")]
mod zeromq;

pub use case::Live;
pub use ddsperf::Ddsperf;
pub use serve::serve;
