//! UDP: unicast, broadcast and multicast, as best effort or reliable by NAK. `spec/udp.md` defines
//! the packets; [`polywire_core::multicast`] has the protocol, without sockets.
//!
//! Control frames (announcements, answers, documents) are always reliable. The two engines differ
//! in how they send messages.
//!
//! ```
//! use polywire::{engine::{udp::{Udp, UdpReliable}, Engine}, Node};
//! let properties = [Udp.properties(), UdpReliable.properties()];
//! assert!(!properties[0].reliable && properties[1].reliable && properties.iter().all(|p| p.ordered));
//! // In a pair, the node that opens first is the host, and the system may choose its port.
//! let endpoint = Node::new().open("udp-reliable/127.0.0.1:0")?;
//! assert!(endpoint.starts_with("udp-reliable/127.0.0.1:") && !endpoint.ends_with(":0"));
//! # Ok::<(), polywire::NodeError>(())
//! ```

mod address;
mod deliver;
mod name;
mod port;
mod socket;
mod state;

use std::sync::Arc;

use polywire_core::multicast::Reliability;

use self::{
    address::Address,
    port::UdpPort,
    socket::{Role, Sockets},
};
use super::{Engine, EngineError, Local, Port, Properties, Sink};

/// `udp/ADDR`: messages are sent once. They arrive in order, and some may be lost.
pub struct Udp;
/// `udp-reliable/ADDR`: lost messages are retransmitted.
pub struct UdpReliable;

impl Engine for Udp {
    fn name(&self) -> &'static str {
        "udp"
    }

    fn summary(&self) -> &'static str {
        "UDP, unicast, broadcast or multicast: best effort"
    }

    fn example(&self) -> &'static str {
        "239.1.2.3:7400"
    }

    fn properties(&self) -> Properties {
        Properties { reliable: false, ordered: true, multicast: true, largest_payload: None, matches: false }
    }

    fn open(&self, address: &str, local: &Local, sink: Arc<dyn Sink>) -> Result<Arc<dyn Port>, EngineError> {
        open(self, Reliability::BestEffort, address, local, sink)
    }
}

impl Engine for UdpReliable {
    fn name(&self) -> &'static str {
        "udp-reliable"
    }

    fn summary(&self) -> &'static str {
        "UDP, unicast, broadcast or multicast: reliable by NAK"
    }

    fn example(&self) -> &'static str {
        "239.1.2.3:7400"
    }

    fn properties(&self) -> Properties {
        Properties { reliable: true, ordered: true, multicast: true, largest_payload: None, matches: false }
    }

    fn open(&self, address: &str, local: &Local, sink: Arc<dyn Sink>) -> Result<Arc<dyn Port>, EngineError> {
        open(self, Reliability::Reliable, address, local, sink)
    }
}

fn open(
    engine: &dyn Engine,
    messages: Reliability,
    text: &str,
    local: &Local,
    sink: Arc<dyn Sink>,
) -> Result<Arc<dyn Port>, EngineError> {
    let (name, example) = (engine.name(), engine.example());
    let bad = |reason| EngineError::Address { engine: name, address: text.into(), reason, example };
    let address = Address::parse(text, &local.options).map_err(bad)?;
    let failed = |cause| EngineError::System { endpoint: format!("{name}/{text}"), action: "open a socket", cause };
    let sockets = Sockets::open(&address, &local.options).map_err(failed)?;
    // A host's endpoint contains the port number that the system chose.
    let options = text.split_once('?').map_or(String::new(), |(_, options)| format!("?{options}"));
    let endpoint = match sockets.role {
        Role::Host(bound) => format!("{name}/{bound}{options}"),
        Role::Member(_) | Role::Caller(_) => format!("{name}/{text}"),
    };
    Ok(Arc::new(UdpPort::open(endpoint, local, sink, (address.config, messages), sockets)?))
}
