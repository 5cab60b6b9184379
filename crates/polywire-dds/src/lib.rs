#![cfg_attr(feature = "cyclone", doc = include_str!("../README.md"))]
#![cfg_attr(not(feature = "cyclone"), doc = "Empty without the feature `cyclone`.")]
#![cfg(feature = "cyclone")]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("Cyclone's structures are declared for 64-bit machines");

mod cache;
mod discovery;
mod entity;
mod error;
mod expiry;
mod guid;
mod logs;
mod qos;
mod sample;
#[cfg(feature = "security")]
mod security;
mod types;

pub use cache::Receive;
pub use discovery::{Discovery, Endpoint, Watch};
pub use entity::{Change, Participant, Reader, Topic, Writer, opening};
pub use error::Error;
pub use guid::Guid;
pub use qos::{Durability, Liveliness, Qos, Representation};
pub use sample::{Bytes, Kind, MAX_SAMPLE_BYTES, Sample};
#[cfg(feature = "security")]
pub use security::Security;
pub use types::{TypeInformation, TypeObjects};

/// A configuration of Cyclone that uses the loopback interface alone.
///
/// ```
/// assert!(polywire_dds::LOOPBACK.contains("127.0.0.1"));
/// ```
pub const LOOPBACK: &str = "<CycloneDDS><Domain><General><Interfaces>\
<NetworkInterface address=\"127.0.0.1\"/></Interfaces></General></Domain></CycloneDDS>";
