//! Finds out which of the endpoints that this port connects to are publishing sockets of nodes.
//! These endpoints are the rendezvous of the nodes' links.

use std::{
    io,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};
use polywire_core::frame::Hello;

use super::{
    super::{
        EngineOptions,
        stream::{Connection, Listener, Peer, Rendezvous},
    },
    address::{Nodes, SocketEndpoint},
    card::Card,
    node_listeners::{self, NodeListeners},
    publish_socket::PublishSocket,
};

/// The kind of publisher at an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PublisherKind {
    /// The publisher has not answered yet.
    Unknown,
    /// The publisher did not answer that it is a node.
    Foreign,
    Node(Card),
}

pub(super) struct Finder {
    me: Hello,
    /// The endpoint that other nodes use, and the endpoints that are bound, with their ports.
    endpoint: String,
    bound: Vec<SocketEndpoint>,
    nodes: Nodes,
    options: EngineOptions,
    /// The endpoints that this port connects to, and the publisher at each of them.
    pub(super) endpoints: Vec<SocketEndpoint>,
    kinds: Mutex<Vec<PublisherKind>>,
    publish_socket: Option<Arc<PublishSocket>>,
    listeners: OnceLock<NodeListeners>,
    is_woken: Mutex<bool>,
    woken: Condvar,
}

impl Finder {
    pub(super) fn new(
        me: Hello,
        endpoint: String,
        (bound, endpoints): (Vec<SocketEndpoint>, Vec<SocketEndpoint>),
        nodes: Nodes,
        options: &EngineOptions,
        publish_socket: Option<Arc<PublishSocket>>,
    ) -> Finder {
        // With `nodes=off`, all publishers are foreign applications, which do not use Polywire.
        let kind = if nodes == Nodes::Off { PublisherKind::Foreign } else { PublisherKind::Unknown };
        let kinds = Mutex::new(vec![kind; endpoints.len()]);
        let (listeners, is_woken, woken) = (OnceLock::new(), Mutex::new(false), Condvar::new());
        Finder {
            me,
            endpoint,
            bound,
            nodes,
            options: options.clone(),
            endpoints,
            kinds,
            publish_socket,
            listeners,
            is_woken,
            woken,
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.nodes != Nodes::Off
    }

    /// Returns the kind of publisher at the endpoint with this number.
    pub(super) fn publisher_kind(&self, number: usize) -> PublisherKind {
        self.kinds.lock().get(number).copied().unwrap_or(PublisherKind::Foreign)
    }

    /// Records the card of a node that has answered. Returns whether the card is new.
    pub(super) fn answered(&self, number: usize, card: Card) -> bool {
        let is_news =
            self.note(number, |kind| std::mem::replace(kind, PublisherKind::Node(card)) != PublisherKind::Node(card));
        if is_news {
            self.look_again();
        }
        is_news
    }

    /// Records that the publisher has not answered in time.
    pub(super) fn unanswered(&self, number: usize) {
        self.note(number, |kind| {
            if *kind == PublisherKind::Unknown {
                *kind = PublisherKind::Foreign;
            }
            true
        });
    }

    /// Records that the connection has ended. The next publisher may be another one. Returns
    /// whether the publisher was a node.
    pub(super) fn disconnected(&self, number: usize) -> bool {
        self.note(number, |kind| {
            let was_node = matches!(kind, PublisherKind::Node(_));
            if was_node {
                *kind = PublisherKind::Unknown;
            }
            was_node
        })
    }

    fn note(&self, number: usize, change: impl FnOnce(&mut PublisherKind) -> bool) -> bool {
        self.kinds.lock().get_mut(number).is_some_and(change)
    }

    /// Makes the mesh call `peers` again.
    fn look_again(&self) {
        *self.is_woken.lock() = true;
        self.woken.notify_all();
    }

    fn listeners(&self) -> io::Result<&NodeListeners> {
        self.listeners.get().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Rendezvous for Arc<Finder> {
    fn name(&self) -> &'static str {
        super::NAME
    }

    fn endpoint(&self) -> String {
        self.endpoint.clone()
    }

    fn listen(&self) -> io::Result<Arc<dyn Listener>> {
        let (endpoints, port) = match self.nodes {
            Nodes::On(port) => (&self.bound[..], port),
            Nodes::Off => (&[][..], 0),
        };
        let listeners = NodeListeners::open(endpoints, port, &self.options)?;
        if let Some(socket) = self.publish_socket.as_ref().filter(|_| self.is_on()) {
            socket.introduce(Card { hello: self.me, port: listeners.port });
        }
        // `listen` is called once.
        let _ = self.listeners.set(listeners);
        Ok(self.clone() as Arc<dyn Listener>)
    }

    fn peers(&self) -> io::Result<Vec<Peer>> {
        let kinds = self.kinds.lock();
        let nodes = self.endpoints.iter().zip(&*kinds).filter_map(|(endpoint, kind)| match kind {
            PublisherKind::Node(card) if card.hello != self.me => {
                Some(Peer { address: endpoint.to_string(), hello: Some(card.hello) })
            }
            _ => None,
        });
        Ok(nodes.collect())
    }

    fn connect(&self, address: &str) -> io::Result<Connection> {
        let number = self.endpoints.iter().position(|endpoint| endpoint.to_string() == address);
        let (number, endpoint) =
            number.and_then(|at| Some((at, self.endpoints.get(at)?))).ok_or(io::ErrorKind::NotFound)?;
        match self.publisher_kind(number) {
            PublisherKind::Node(card) => node_listeners::call(endpoint, card.port, &self.options),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn wait(&self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        let mut is_woken = self.is_woken.lock();
        while !std::mem::take(&mut *is_woken) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            self.woken.wait_for(&mut is_woken, left);
        }
    }

    fn wake(&self) {
        self.look_again();
    }
}

impl Listener for Finder {
    fn endpoint(&self) -> String {
        self.endpoint.clone()
    }

    fn accept(&self) -> io::Result<Option<Connection>> {
        self.listeners()?.accept()
    }

    fn wake(&self) {
        if let Ok(listeners) = self.listeners() {
            listeners.wake();
        }
    }

    fn close(&self) {
        if let Ok(listeners) = self.listeners() {
            listeners.close();
        }
    }

    fn is_exposed(&self) -> bool {
        self.bound.iter().any(SocketEndpoint::is_exposed)
    }
}
