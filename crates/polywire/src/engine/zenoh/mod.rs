//! The engine `zenoh`: a topic is a key, a format is an encoding, and the writer and the envelope
//! of a message are in the sample's attachment. `spec/zenoh.md` defines the mapping.
//!
//! Each port has its own Zenoh session. Nodes discover each other by liveliness tokens. Control
//! frames (announcements, answers, documents) go to the mailbox of the receiving node. A message is
//! put once, under the key of its topic, and reaches Polywire's subscribers and those of every
//! other Zenoh application.
//!
//! ```
//! use polywire::{engine::{zenoh::Zenoh, Engine}, Node};
//! let properties = Zenoh.properties();
//! assert!(properties.reliable && properties.ordered && properties.multicast);
//! // A peer that no other node discovers: it listens on this machine alone, and scouting is off.
//! let endpoint = Node::new().open("zenoh/peer?listen=tcp/127.0.0.1:0,scouting=off")?;
//! assert!(endpoint.starts_with("zenoh/peer?listen=tcp/127.0.0.1:") && !endpoint.contains(":0,"));
//! # Ok::<(), polywire::NodeError>(())
//! ```

mod address;
mod attachment;
mod caches;
mod calls;
mod descriptions;
mod end;
mod errors;
mod history;
mod inbox;
mod interest;
mod key;
mod link;
mod listener;
mod mail;
mod outgoing;
mod outlet;
mod pace;
mod policies;
mod port;
mod publishers;
mod queries;
mod queryables;
mod readers;
mod receive;
mod ros;
mod schemas;
mod services;
mod state;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use polywire_core::frame::Hello;

use self::{address::Address, port::ZenohPort};
use super::{
    Engine, EngineError, Local, Port, Properties, Sink,
    identity::Files,
    renewing::{self, Opener, Place, Renewable},
    tls,
};
use crate::clock;

const NAME: &str = "zenoh";
const EXAMPLE: &str = "peer?connect=tcp/10.0.0.7:7447";
/// The address that is used if a wire names none.
const USUAL: &str = "peer";

/// `zenoh/MODE[/LOCATOR][?OPTIONS]`: a session of Zenoh.
pub struct Zenoh;

impl Engine for Zenoh {
    fn name(&self) -> &'static str {
        NAME
    }

    fn summary(&self) -> &'static str {
        "Zenoh, as a peer, a client or a router, together with other Zenoh applications"
    }

    fn example(&self) -> &'static str {
        EXAMPLE
    }

    fn properties(&self) -> Properties {
        Properties { reliable: true, ordered: true, multicast: true, largest_payload: None, matches: false }
    }

    fn complete(&self, address: &str) -> String {
        if address.is_empty() { USUAL.into() } else { address.into() }
    }

    fn open(&self, address: &str, local: &Local, sink: Arc<dyn Sink>) -> Result<Arc<dyn Port>, EngineError> {
        let bad = |reason| EngineError::Address { engine: NAME, address: address.into(), reason, example: EXAMPLE };
        let mut parsed = Address::parse(address).map_err(bad)?;
        let told = parsed.choose_ports(address);
        let endpoint = format!("{NAME}/{told}");
        let identity = parsed.needs_identity().then(|| tls::checked_files(&local.options.identity)).transpose();
        let identity = identity.map_err(|cause| EngineError::Identity { endpoint: endpoint.clone(), cause })?;
        let opener = SessionOpener {
            endpoint: endpoint.clone(),
            text: address.into(),
            address: parsed,
            identity,
            local: local.clone(),
            incarnation: AtomicU64::new(local.hello.incarnation),
        };
        renewing::open(&endpoint, local.options.linger, sink, opener)
    }
}

/// Opens the sessions of a port, one after the other.
struct SessionOpener {
    endpoint: String,
    /// The address as given, and as parsed.
    text: String,
    address: Address,
    identity: Option<Files>,
    local: Local,
    /// The incarnation of the last session.
    incarnation: AtomicU64,
}

impl SessionOpener {
    /// Returns the incarnation of a further session. Peers may still know the former one by its
    /// name.
    fn next_incarnation(&self) -> u64 {
        let next = clock::wall_ns().unsigned_abs().max(self.incarnation.load(Ordering::Relaxed).saturating_add(1));
        self.incarnation.store(next, Ordering::Relaxed);
        next
    }
}

impl Opener for SessionOpener {
    fn open(&self, sink: &Arc<dyn Sink>, addresses: Option<&[Place]>) -> Result<Arc<dyn Renewable>, EngineError> {
        let SessionOpener { endpoint, text, address, identity, local, .. } = self;
        let bad = |reason| EngineError::Address { engine: NAME, address: text.clone(), reason, example: EXAMPLE };
        let config = address.config(&local.options, identity.as_ref(), addresses).map_err(bad)?;
        let incarnation = addresses.map_or(local.hello.incarnation, |_| self.next_incarnation());
        let local = Local { hello: Hello { incarnation, ..local.hello }, ..local.clone() };
        let failed = |cause: String| EngineError::System {
            endpoint: endpoint.clone(),
            action: "open a Zenoh session",
            cause: io::Error::other(format!("{cause}; {}", address.advice())),
        };
        Ok(Arc::new(ZenohPort::open(endpoint.clone(), address, config, &local, sink.clone()).map_err(failed)?))
    }

    fn chosen(&self, usable: Vec<Place>) -> Vec<Place> {
        if self.address.scouts_alone() { usable } else { Vec::new() }
    }
}
