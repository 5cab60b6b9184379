//! Request and reply: services, as ROS 2 and DDS-RPC have them. A client sends a request and waits
//! for the reply of one server, or for the replies of all.
//!
//! ```
//! use std::time::Duration;
//! use polywire::{Message, Node, coding::Typed};
//! use polywire::service::{CallError, Client, Request, Server, Service, ServiceBuilder};
//!
//! #[derive(Debug, Default, PartialEq, Message)]
//! struct Divide { dividend: i64, divisor: i64 }
//! #[derive(Debug, Default, PartialEq, Message)]
//! struct Quotient { quotient: i64 }
//!
//! let node = Node::new();
//! let service: ServiceBuilder<Typed<Divide>, Typed<Quotient>> =
//!     node.service("divide", Some("cdr@inproc/service-doc"))?;
//! let _server: Server = service.on_request(1, |request, _| {
//!     let quotient = request.dividend.checked_div(request.divisor);
//!     quotient.map(|quotient| Quotient { quotient }).ok_or("division by zero")
//! })?;
//!
//! let client: Client<Divide, Quotient> = node.client("divide", Some("cdr@inproc/service-doc"))?.open()?;
//! let (soon, divide) = (Duration::from_secs(10), |dividend, divisor| Divide { dividend, divisor });
//! assert_eq!(client.call(&divide(42, 6), soon)?, Quotient { quotient: 7 });
//! let Err(CallError::Remote(error)) = client.call(&divide(1, 0), soon) else { panic!("divided by zero") };
//! assert_eq!(error.text, "division by zero");
//!
//! // A server without a callback receives requests, and may answer later and elsewhere.
//! let service: Service<Divide, Quotient> = node.service("later", Some("cdr@inproc/service-doc"))?.open()?;
//! let client = node.client::<Divide, Quotient>("later", Some("cdr@inproc/service-doc"))?.open()?;
//! client.wait_for_server(soon)?;
//! let reply = client.request(&divide(9, 3), soon)?;
//! let request: Request<Divide, Quotient> = service.recv().unwrap();
//! assert_eq!(request.value(), &divide(9, 3));
//! request.reply(&Quotient { quotient: 3 })?;
//! assert_eq!(reply.wait()?.value.quotient, 3);
//! let reply = client.request(&divide(9, 3), soon)?;
//! service.recv().unwrap().fail("not today");
//! assert_eq!(reply.wait().unwrap_err().to_string(), "not today");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A service has a topic for requests and one for replies; `spec/services.md` has their names and
//! the bytes. Services support what topics support: formats, engines, evolution of types, quality
//! of service ([`Qos::services`](crate::qos::Qos::services)), and the rules of access.
//!
//! Nothing is retried: a request is served at most once.

mod calls;
mod client;
mod error;
mod server;
mod waiting;

use polywire_core::{
    layout::Message,
    qos::{History, Qos},
    topic,
};

pub use self::{
    client::{Client, ClientBuilder, ClientOf, Replies, Reply},
    error::CallError,
    server::{Request, RequestOf, Server, Service, ServiceBuilder, ServiceOf},
};
use crate::{
    coding::{Coding, Typed},
    error::NodeError,
    node::Node,
    wire::Wire,
};

/// The name of a service with its node, its wire, and the codings of its requests and replies.
struct Place<Q, R> {
    node: Node,
    service: String,
    wire: String,
    requests: Q,
    replies: R,
}

/// Services of a node. Unless a wire is given, a service has the wire that is configured for the
/// topic with the service's name.
impl Node {
    /// Serves requests of one Rust type with replies of another. Fails as
    /// [`Node::publisher_on`](crate::Node::publisher_on) does.
    pub fn service<Q: Message, R: Message>(
        &self,
        service: &str,
        wire: Option<&str>,
    ) -> Result<ServiceBuilder<Typed<Q>, Typed<R>>, NodeError> {
        self.service_of(service, wire, Typed::default(), Typed::default())
    }

    /// Serves requests and replies of any [`Coding`].
    pub fn service_of<Q: Coding, R: Coding>(
        &self,
        service: &str,
        wire: Option<&str>,
        requests: Q,
        replies: R,
    ) -> Result<ServiceBuilder<Q, R>, NodeError> {
        Ok(ServiceBuilder::new(self.place(service, wire, requests, replies)?))
    }

    /// Calls a service with requests of one Rust type and replies of another.
    pub fn client<Q: Message, R: Message>(
        &self,
        service: &str,
        wire: Option<&str>,
    ) -> Result<ClientBuilder<Typed<Q>, Typed<R>>, NodeError> {
        self.client_of(service, wire, Typed::default(), Typed::default())
    }

    /// Calls a service with requests and replies of any [`Coding`].
    ///
    /// ```
    /// use polywire::{Node, coding::Dynamic, schema::Schema, service::{ClientBuilder, ClientOf, RequestOf, ServiceOf}};
    /// # use polywire::Message as _;
    /// # use std::time::Duration;
    /// # #[derive(Default, polywire::Message)]
    /// # struct Number { value: i64 }
    /// let schema: Schema = Number::shape().schema().clone();
    /// let (node, number) = (Node::new(), Dynamic::of(&schema)?);
    /// let negate = |_: &_, request: &RequestOf<Dynamic, Dynamic>| {
    ///     let mut reply = request.default_reply();
    ///     reply.set("value", -request.value().i64("value").unwrap()).map(|()| reply)
    /// };
    /// let idle = node.service_of("idle", Some("json@inproc/dynamic-service-doc"), number.clone(), number.clone())?;
    /// let idle: ServiceOf<Dynamic, Dynamic> = idle.open()?;
    /// assert!(idle.recv_timeout(Duration::ZERO).is_none());
    /// let service = node.service_of("negate", Some("json@inproc/dynamic-service-doc"), number.clone(), number.clone())?;
    /// let _server = service.concurrent(16).on_request(2, negate)?;
    /// let client: ClientBuilder<Dynamic, Dynamic> =
    ///     node.client_of("negate", Some("json@inproc/dynamic-service-doc"), number.clone(), number)?;
    /// let client: ClientOf<Dynamic, Dynamic> = client.pending(16).open()?;
    /// let mut request = client.default_request();
    /// request.set("value", 7)?;
    /// assert_eq!(client.call(&request, Duration::from_secs(10))?.i64("value"), Ok(-7));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn client_of<Q: Coding, R: Coding>(
        &self,
        service: &str,
        wire: Option<&str>,
        requests: Q,
        replies: R,
    ) -> Result<ClientBuilder<Q, R>, NodeError> {
        Ok(ClientBuilder::new(self.place(service, wire, requests, replies)?))
    }

    fn place<Q, R>(
        &self,
        service: &str,
        wire: Option<&str>,
        requests: Q,
        replies: R,
    ) -> Result<Place<Q, R>, NodeError> {
        topic::check(service)?;
        let given: Vec<Wire> = wire.map(str::parse).transpose()?.into_iter().collect();
        let wires = self.config().wires_for(service, &given);
        let wire = wires.first().ok_or_else(|| NodeError::NoWire(service.into()))?.to_string();
        Ok(Place { node: self.clone(), service: service.into(), wire, requests, replies })
    }
}

/// Returns [`Qos::services`] without the history, which the limits of clients and servers replace.
fn services() -> Qos {
    Qos::services().history(History::KeepAll)
}

/// Checks the policies of a service or a client, and leaves out the history.
fn check(qos: Qos) -> Result<Qos, NodeError> {
    let meaningful = Qos::default()
        .reliability(qos.reliability)
        .partition(qos.partition.clone())
        .latency_budget(qos.latency_budget)
        .transport_priority(qos.transport_priority);
    if meaningful.clone().history(qos.history) == qos {
        return Ok(meaningful);
    }
    let reason = "a service has only reliability, partition, latency-budget and transport-priority".into();
    Err(NodeError::Unsupported { policy: qos.to_string(), reason })
}
