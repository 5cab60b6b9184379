//! ZeroMQ: the first frame of a message is its topic, the second its payload in the topic's format.
//! `spec/zeromq.md` defines the mapping.
//!
//! Any ZeroMQ application can subscribe to a node's messages at the endpoint of the node's
//! publishing socket, and nodes receive the messages that the application publishes. Two nodes also
//! discover each other at this endpoint. A link over a byte stream then connects them, as in other
//! engines. It carries everything that ZeroMQ has no place for, such as announcements, envelopes,
//! acknowledgements and documents.
//!
//! ```
//! use polywire::{engine::{zeromq::Zeromq, Engine}, Node};
//! use polywire_zeromq::{Context, Kind, Message, Wait};
//! # #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
//! # struct Pump { id: u32 }
//!
//! assert_eq!(Zeromq.example(), "bind/tcp://127.0.0.1:5556");
//! let node = Node::new();
//! let endpoint = node.open("zeromq/bind/tcp://127.0.0.1:0")?;
//! let publisher = node.publisher_on::<Pump>("pumps", &format!("json@{endpoint}"))?;
//!
//! // An application that does not use Polywire.
//! let subscriber = Context::new()?.socket(Kind::Sub)?;
//! subscriber.subscribe(b"pumps")?;
//! subscriber.connect(endpoint.strip_prefix("zeromq/connect/").unwrap())?;
//! let mut frame = Message::new();
//! let until_heard = std::time::Duration::from_millis(20);
//! while !subscriber.receive(&mut frame, Wait::Most(until_heard))? {
//!     publisher.publish(&Pump { id: 7 })?;
//! }
//! assert!(&*frame == b"pumps" && frame.has_more());
//! assert!(subscriber.receive(&mut frame, Wait::Forever)?);
//! assert_eq!(&*frame, br#"{"id":7}"#);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod address;
mod asking;
mod card;
mod drops;
mod finder;
mod intake;
mod interest;
mod node_listeners;
mod port;
mod publish_socket;
mod shared;

use std::sync::Arc;

use self::{address::Address, port::ZeromqPort};
use super::{Engine, EngineError, Local, Port, Properties, Sink};

const NAME: &str = "zeromq";
const EXAMPLE: &str = "bind/tcp://127.0.0.1:5556";

/// `zeromq/bind/ENDPOINT[?OPTIONS]` or `zeromq/connect/ENDPOINT[?OPTIONS]`: sockets of ZeroMQ.
pub struct Zeromq;

impl Engine for Zeromq {
    fn name(&self) -> &'static str {
        NAME
    }

    fn summary(&self) -> &'static str {
        "ZeroMQ publish/subscribe, together with other ZeroMQ applications"
    }

    fn example(&self) -> &'static str {
        EXAMPLE
    }

    fn properties(&self) -> Properties {
        Properties { reliable: true, ordered: true, multicast: true, largest_payload: None, matches: false }
    }

    fn open(&self, address: &str, local: &Local, sink: Arc<dyn Sink>) -> Result<Arc<dyn Port>, EngineError> {
        let bad = |reason| EngineError::Address { engine: NAME, address: address.into(), reason, example: EXAMPLE };
        let parsed = Address::parse(address).map_err(bad)?;
        Ok(Arc::new(ZeromqPort::open(address, parsed, local, sink)?))
    }
}
