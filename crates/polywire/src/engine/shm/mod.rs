//! Shared memory between the nodes of one user on one machine: `shm`, by iceoryx2.
//!
//! Nodes discover each other as over `local`, through sockets in a folder of the user. Once two
//! nodes have connected, their frames go through shared memory: `memory` has the iceoryx2 services
//! that carry the frames, and `stream` reads and writes them. The socket between the two nodes
//! stays open. It wakes a sleeping reader, and its end shows that the other process has ended.
//!
//! Each direction of a link has shared memory of fixed size, and additional memory while there is
//! much to write. A frame that is longer than a sample takes several samples. Order, queues,
//! overflow policies, leases and acknowledgements are the same as over other byte streams.
//!
//! A frame is copied into the shared memory and out of it. A receiver validates the frame that it
//! decodes, and keeps parts of it without a copy ([`SharedPayload`](super::SharedPayload)). This is
//! sound only in memory that no other process can change at the same time.
//!
//! ```
//! use polywire::{Message, Node, engine::{Engine, shm::Shm}};
//! assert!(Shm.properties().reliable);
//!
//! #[derive(Clone, Debug, Default, PartialEq, Message)]
//! struct Pump { id: u32, bar: f64 }
//!
//! # let folder = std::env::temp_dir().join(format!("polywire-shm-doc-{}", std::process::id()));
//! # let wire = format!("shm/{}", folder.display());
//! # let (subscribed, published) = (format!("auto@{wire}"), format!("cdr@{wire}?wait=spin"));
//! // let (subscribed, published) = ("auto@shm", "cdr@shm?wait=spin");
//! let (here, there) = (Node::new(), Node::new());
//! let pumps = here.subscriber_on::<Pump>("pumps", &subscribed)?;
//! let publisher = there.publisher_on::<Pump>("pumps", &published)?;
//! publisher.wait_for_subscribers(1, std::time::Duration::from_secs(20));
//! publisher.publish(&Pump { id: 7, bar: 1.5 })?;
//! assert_eq!(pumps.recv().unwrap().value, Pump { id: 7, bar: 1.5 });
//!
//! let error = here.open("shm/0?wait=long").unwrap_err();
//! assert!(error.to_string().contains("'event' or 'spin'"), "{error}");
//! # (here.close(), there.close());
//! # std::fs::remove_dir_all(&folder).unwrap();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod memory;
mod stream;
mod wait;

use std::{fmt, str::FromStr, sync::Arc};

use socket2::Type;

use self::{memory::Memory, stream::ShmStream, wait::Wait};
use super::{
    Engine, EngineError, Local, Port, Properties, Sink,
    local::{self, Medium, Place},
    stream::PROPERTIES,
};

/// The folder with the nodes' sockets, inside the folder of the domain.
const FOLDER: &str = "shm";

/// `shm`, `shm/DOMAIN` or `shm//FOLDER`: finds all nodes of the user in a domain, and exchanges
/// messages with them through shared memory. `?wait=spin` makes the node's readers poll for
/// messages all the time, which occupies a processor. With `?wait=event`, the default, the readers
/// sleep.
pub struct Shm;

impl Engine for Shm {
    fn name(&self) -> &'static str {
        "shm"
    }

    fn summary(&self) -> &'static str {
        "Shared memory with all nodes of the user on this machine; DOMAIN is 0 to 232"
    }

    fn example(&self) -> &'static str {
        "0"
    }

    fn properties(&self) -> Properties {
        PROPERTIES
    }

    fn complete(&self, address: &str) -> String {
        // An invalid address stays unchanged, so that `open` reports the error.
        address.parse::<Address>().map_or_else(|_| address.into(), |address| address.to_string())
    }

    fn open(&self, address: &str, local: &Local, sink: Arc<dyn Sink>) -> Result<Arc<dyn Port>, EngineError> {
        let bad = |reason| EngineError::Address { engine: "shm", address: address.into(), reason, example: "0" };
        let Address { place, wait } = address.parse().map_err(bad)?;
        let endpoint = format!("shm/{place}");
        let failed = |cause| EngineError::System { endpoint: endpoint.clone(), action: "share memory", cause };
        let folder = place.folder(Some(FOLDER)).map_err(failed)?;
        let memory = Arc::new(Memory::open(&folder, &local.hello).map_err(failed)?);
        let stream = move |socket, principal| ShmStream::over(socket, principal, memory.clone(), wait);
        let medium = Medium { engine: "shm", below: Some(FOLDER), socket: Type::SEQPACKET, stream: Box::new(stream) };
        local::meet(endpoint.clone(), place, medium, local, sink)
    }
}

/// The place where nodes discover each other, and how this node waits for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Address {
    place: Place,
    wait: Wait,
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let (place, settings) = text.split_once('?').map_or((text, None), |(place, rest)| (place, Some(rest)));
        let mut address = Address { place: local::complete(place).parse()?, wait: Wait::default() };
        for setting in settings.into_iter().flat_map(|all| all.split(',')) {
            match setting.split_once('=').unwrap_or((setting, "")) {
                ("wait", value) => address.wait = value.parse()?,
                (key, _) => return Err(format!("'{key}' is no option; there is wait")),
            }
        }
        Ok(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.wait {
            Wait::Event => self.place.fmt(f),
            Wait::Spin => write!(f, "{}?wait=spin", self.place),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_place_and_a_way_to_wait() {
        for (given, completed) in [
            ("7", "7"),
            ("007?wait=event", "7"),
            ("7?wait=spin", "7?wait=spin"),
            ("/run/plant?wait=spin", "/run/plant?wait=spin"),
            ("233", "233"),
            ("7?wait=spin?", "7?wait=spin?"),
        ] {
            assert_eq!(Shm.complete(given), completed);
        }
        for (wrong, reason) in [
            ("233", "0 to 232"),
            ("0?", "'' is no option"),
            ("0?wait", "'event' or 'spin'"),
            ("0?wait=long", "'event' or 'spin'"),
            ("0?wait=spin,spin", "'spin' is no option"),
        ] {
            assert!(wrong.parse::<Address>().is_err_and(|told| told.contains(reason)), "{wrong}");
        }
    }
}
