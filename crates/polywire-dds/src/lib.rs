//! A safe interface to [Eclipse Cyclone DDS](https://cyclonedds.io) for programs that have samples
//! as bytes, and their types at run time.
//!
//! A [`Participant`] joins a domain. Its [`Topic`]s have names, and names of types; what the bytes
//! mean is the caller's affair. A [`Writer`] sends [`Sample`]s: an encapsulation header and a
//! payload that DDS's other programs understand, or the key of an instance that ends. A [`Receive`]
//! gets each sample that arrives at a [`Reader`], in the order of arrival. [`Participant::watch`]
//! reports who is in the domain.
//!
//! ```
//! use polywire_dds::{Bytes, Change, Guid, Kind, LOOPBACK, Participant, Qos, Receive, Sample};
//! use std::{sync::{Arc, mpsc}, time::Duration};
//!
//! struct Inbox(mpsc::Sender<Sample>);
//! impl Receive for Inbox {
//!     fn receive(&self, _writer: Guid, sample: Sample) -> bool {
//!         self.0.send(sample).is_ok()
//!     }
//! }
//!
//! let reliable = Qos { reliable: Some(Duration::from_secs(1)), ..Qos::default() };
//! let join = || Participant::new(100, Some(LOOPBACK), &Qos::default());
//! let (here, there) = (join()?, join()?);
//! let (sender, samples) = mpsc::channel();
//! let _reader = there.topic("greetings", "Text", false)?.reader(&reliable, Arc::new(Inbox(sender)), |_| {})?;
//! let (sender, matched) = mpsc::channel();
//! let writer = here.topic("greetings", "Text", false)?.writer(&reliable, move |change| sender.send(change).unwrap())?;
//! assert_eq!(matched.recv_timeout(Duration::from_secs(20)), Ok(Change::Matched { count: 1 }));
//!
//! let bytes = Bytes::new([0, 1, 0, 0], b"\x03\0\0\0hi\0")?;
//! let sample = Sample { kind: Kind::Data, is_key: false, bytes, key_hash: None, timestamp_ns: 1_700_000_000_000_000_000 };
//! writer.write(&sample)?;
//! assert_eq!(samples.recv_timeout(Duration::from_secs(20)), Ok(sample));
//! # Ok::<(), polywire_dds::Error>(())
//! ```
//!
//! What Cyclone logs goes to the crate `log`, with the target `cyclonedds`.
//!
//! # Safety
//!
//! All unsafe code of the engine `dds` is here. Three things hold it together: Cyclone's version is
//! pinned, because two structures are declared here that the bindings leave out; each object is
//! deleted before what its callbacks use; and bytes from the network are only copied.

#![cfg(feature = "cyclone")]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("Cyclone's structures are declared for 64-bit machines");

mod cache;
mod discovery;
mod entity;
mod error;
mod guid;
mod logs;
mod qos;
mod sample;

pub use cache::Receive;
pub use discovery::{Discovery, Endpoint, Watch};
pub use entity::{Change, Participant, Reader, Topic, Writer};
pub use error::Error;
pub use guid::Guid;
pub use qos::{Durability, Liveliness, Qos, Representation};
pub use sample::{Bytes, Kind, MOST_SAMPLE_BYTES, Sample};

/// A configuration of Cyclone that uses the loopback interface alone.
///
/// ```
/// assert!(polywire_dds::LOOPBACK.contains("127.0.0.1"));
/// ```
pub const LOOPBACK: &str = "<CycloneDDS><Domain><General><Interfaces>\
<NetworkInterface address=\"127.0.0.1\"/></Interfaces></General></Domain></CycloneDDS>";
