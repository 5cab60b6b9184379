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
    address::{Nodes, Place},
    card::Card,
    doors::{self, Doors},
    outlet::Outlet,
};

/// The kind of publisher at an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Met {
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
    bound: Vec<Place>,
    nodes: Nodes,
    options: EngineOptions,
    /// The endpoints that this port connects to, and the publisher at each of them.
    pub(super) places: Vec<Place>,
    met: Mutex<Vec<Met>>,
    outlet: Option<Arc<Outlet>>,
    doors: OnceLock<Doors>,
    is_woken: Mutex<bool>,
    woken: Condvar,
}

impl Finder {
    pub(super) fn new(
        me: Hello,
        endpoint: String,
        (bound, places): (Vec<Place>, Vec<Place>),
        nodes: Nodes,
        options: &EngineOptions,
        outlet: Option<Arc<Outlet>>,
    ) -> Finder {
        // With `nodes=off`, all publishers are foreign applications, which do not use Polywire.
        let met = if nodes == Nodes::Off { Met::Foreign } else { Met::Unknown };
        let met = Mutex::new(vec![met; places.len()]);
        let (doors, is_woken, woken) = (OnceLock::new(), Mutex::new(false), Condvar::new());
        Finder { me, endpoint, bound, nodes, options: options.clone(), places, met, outlet, doors, is_woken, woken }
    }

    pub(super) fn is_on(&self) -> bool {
        self.nodes != Nodes::Off
    }

    /// Returns the kind of publisher at the endpoint with this number.
    pub(super) fn met(&self, number: usize) -> Met {
        self.met.lock().get(number).copied().unwrap_or(Met::Foreign)
    }

    /// Records the card of a node that has answered. Returns whether the card is new.
    pub(super) fn answered(&self, number: usize, card: Card) -> bool {
        let is_news = self.note(number, |met| std::mem::replace(met, Met::Node(card)) != Met::Node(card));
        if is_news {
            self.look_again();
        }
        is_news
    }

    /// Records that the publisher has not answered in time.
    pub(super) fn unanswered(&self, number: usize) {
        self.note(number, |met| {
            if *met == Met::Unknown {
                *met = Met::Foreign;
            }
            true
        });
    }

    /// Records that the connection has ended. The next publisher may be another one. Returns
    /// whether the publisher was a node.
    pub(super) fn disconnected(&self, number: usize) -> bool {
        self.note(number, |met| {
            let was_node = matches!(met, Met::Node(_));
            if was_node {
                *met = Met::Unknown;
            }
            was_node
        })
    }

    fn note(&self, number: usize, change: impl FnOnce(&mut Met) -> bool) -> bool {
        self.met.lock().get_mut(number).is_some_and(change)
    }

    /// Makes the mesh call `peers` again.
    fn look_again(&self) {
        *self.is_woken.lock() = true;
        self.woken.notify_all();
    }

    fn doors(&self) -> io::Result<&Doors> {
        self.doors.get().ok_or_else(|| io::ErrorKind::NotConnected.into())
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
        let (places, port) = match self.nodes {
            Nodes::On(port) => (&self.bound[..], port),
            Nodes::Off => (&[][..], 0),
        };
        let doors = Doors::open(places, port, &self.options)?;
        if let Some(outlet) = self.outlet.as_ref().filter(|_| self.is_on()) {
            outlet.introduce(Card { hello: self.me, port: doors.port });
        }
        // `listen` is called once.
        let _ = self.doors.set(doors);
        Ok(self.clone() as Arc<dyn Listener>)
    }

    fn peers(&self) -> io::Result<Vec<Peer>> {
        let met = self.met.lock();
        let nodes = self.places.iter().zip(&*met).filter_map(|(place, met)| match met {
            Met::Node(card) if card.hello != self.me => {
                Some(Peer { address: place.to_string(), hello: Some(card.hello) })
            }
            _ => None,
        });
        Ok(nodes.collect())
    }

    fn connect(&self, address: &str) -> io::Result<Connection> {
        let number = self.places.iter().position(|place| place.to_string() == address);
        let (number, place) = number.and_then(|at| Some((at, self.places.get(at)?))).ok_or(io::ErrorKind::NotFound)?;
        match self.met(number) {
            Met::Node(card) => doors::call(place, card.port, &self.options),
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
        self.doors()?.accept()
    }

    fn wake(&self) {
        if let Ok(doors) = self.doors() {
            doors.wake();
        }
    }

    fn close(&self) {
        if let Ok(doors) = self.doors() {
            doors.close();
        }
    }

    fn is_exposed(&self) -> bool {
        self.bound.iter().any(Place::is_exposed)
    }
}
