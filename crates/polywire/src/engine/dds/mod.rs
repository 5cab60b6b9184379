//! The engine `dds`: a domain of OMG DDS, implemented with Eclipse Cyclone DDS.
//!
//! A channel in CDR or XCDR2 is an ordinary DDS topic: programs that know only DDS can read it, and
//! this engine reads their topics. Channels in other formats carry octets. Nodes recognize each
//! other by the user data of their participants. What DDS cannot express (announcements, answers,
//! documents), nodes send each other on the topic `polywire_letters`. `docs/dds.md` has the
//! details. With `ros=true`, names are those of ROS 2 (`spec/ros.md`). With `rpc=true`, services
//! are those of DDS-RPC (`spec/dds-rpc.md`).
//!
//! Cyclone's threads put what they report and receive into the port's inbox. One thread of the port
//! handles these items, calls the node, and sends control messages. A message that goes only to
//! callbacks is dispatched to the node by the thread of Cyclone that receives it. Another thread of
//! the port does the work that may take long.
//!
//! ```
//! use polywire::engine::{dds::Dds, Engine};
//! let properties = Dds.properties();
//! assert!(Dds.name() == "dds" && properties.reliable && properties.ordered && properties.multicast);
//! assert_eq!((Dds.complete(""), Dds.complete("7")), ("0".into(), "7".into()));
//! ```

mod address;
mod deferred;
mod describe;
mod dispatch;
mod early;
mod foreign_readers;
mod form;
mod inbox;
mod kept;
mod keys;
mod name;
mod peer;
mod policies;
mod port;
mod presence;
mod questions;
mod rpc;
mod security;
mod service;
mod settling;
mod state;
mod types;
mod worker;

use std::sync::Arc;

use parking_lot::Mutex;

pub use self::name::Naming;
use self::{address::Address, port::DdsPort};
pub(crate) use self::{name::escape, peer::CONTROL_TOPIC, rpc::dds_topic as rpc_topic};
use super::{
    Engine, EngineError, Local, Port, Properties, Sink,
    renewing::{self, Opener, Place, Renewable},
};

/// The engine for `dds/DOMAIN`, with the options `interface=NAME` or `config=FILE`, `types=off`,
/// `security=on`, and `ros=true` or `rpc=true`.
pub struct Dds;

impl Engine for Dds {
    fn name(&self) -> &'static str {
        "dds"
    }

    fn summary(&self) -> &'static str {
        "A domain of DDS, by Cyclone DDS"
    }

    fn example(&self) -> &'static str {
        "0"
    }

    fn properties(&self) -> Properties {
        // Leaves room for the header of a datagram.
        let largest_payload = Some(polywire_dds::MAX_SAMPLE_BYTES - (64 << 10));
        Properties { reliable: true, ordered: true, multicast: true, largest_payload, matches: true }
    }

    fn complete(&self, address: &str) -> String {
        if address.is_empty() { "0".into() } else { address.into() }
    }

    fn open(&self, address: &str, local: &Local, sink: Arc<dyn Sink>) -> Result<Arc<dyn Port>, EngineError> {
        let bad = |reason| EngineError::Address { engine: "dds", address: address.into(), reason, example: "0" };
        let parsed = Address::parse(address).map_err(bad)?;
        let endpoint = format!("dds/{address}");
        let opener = ParticipantOpener {
            endpoint: endpoint.clone(),
            address: parsed,
            local: local.clone(),
            opening: Mutex::default(),
        };
        renewing::open(&endpoint, local.options.linger, sink, opener)
    }
}

/// Opens the participants of a port, one after the other. Cyclone chooses the interface when the
/// process opens the domain, and keeps it until the last participant of the process in that domain
/// is gone.
struct ParticipantOpener {
    endpoint: String,
    address: Address,
    local: Local,
    /// The number of the domain's opening to which the port belongs or belonged.
    opening: Mutex<Option<u64>>,
}

impl Opener for ParticipantOpener {
    fn open(&self, sink: &Arc<dyn Sink>, _: Option<&[Place]>) -> Result<Arc<dyn Renewable>, EngineError> {
        let port = DdsPort::open(self.endpoint.clone(), &self.address, &self.local, sink.clone())?;
        *self.opening.lock() = polywire_dds::opening(self.address.domain);
        Ok(Arc::new(port))
    }

    fn chosen(&self, usable: Vec<Place>) -> Vec<Place> {
        self.address.chosen(usable)
    }

    fn is_free(&self) -> bool {
        let now = polywire_dds::opening(self.address.domain);
        now.is_none() || now != *self.opening.lock()
    }
}
