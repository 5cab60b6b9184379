//! The ports that a subscriber uses. It begins to use further ports when a writer announces that
//! its topic has moved.

use std::{
    sync::{Arc, OnceLock, Weak},
    thread,
};

use parking_lot::{Mutex, MutexGuard};
use polywire_core::topic::Pattern;

use crate::{
    error::NodeError,
    events::NodeEvent,
    node::{Matches, Node, PortEntry, Reload, Route, Source},
    wire::{Endpoint, Wire},
};

/// The most ports to which a subscriber follows its topics, in addition to those of its wires.
const MAX_FOLLOWED: usize = 16;

pub(super) struct Places {
    this: Weak<Places>,
    /// Keeps the node alive, and with it the ports.
    node: Node,
    topic: Pattern,
    /// The wires given in code; the configuration completes them.
    given: Vec<Wire>,
    route: OnceLock<Arc<dyn Route>>,
    state: Mutex<State>,
}

struct State {
    ports: Vec<Used>,
    followed: usize,
    closed: bool,
}

/// A port that the subscriber uses.
struct Used {
    entry: Arc<PortEntry>,
    /// Whether the port has the subscriber's route. Until then, [`Places::add`] removes the route
    /// if the subscriber closes.
    has_route: bool,
}

impl State {
    fn uses(&self, entry: &Arc<PortEntry>) -> bool {
        self.ports.iter().any(|used| Arc::ptr_eq(&used.entry, entry))
    }
}

impl Places {
    pub(super) fn new(node: Node, topic: Pattern, given: Vec<Wire>) -> Arc<Places> {
        let places = Arc::new_cyclic(|this| Places {
            this: this.clone(),
            node,
            topic,
            given,
            route: OnceLock::new(),
            state: Mutex::new(State { ports: Vec::new(), followed: 0, closed: false }),
        });
        let user: Weak<Places> = Arc::downgrade(&places);
        places.node.inner().add_user(user);
        places
    }

    /// Begins to receive at these ports. Called once.
    pub(super) fn open(&self, route: Arc<dyn Route>, entries: Vec<Arc<PortEntry>>) {
        let _ = self.route.set(route);
        entries.into_iter().for_each(|entry| self.add(entry));
    }

    /// Ends receiving.
    pub(super) fn close(&self) {
        let (ports, was_closed) = {
            let mut state = self.lock();
            let was_closed = std::mem::replace(&mut state.closed, true);
            (std::mem::take(&mut state.ports), was_closed)
        };
        let Some(route) = self.route.get().filter(|_| !was_closed) else { return };
        ports.iter().filter(|used| used.has_route).for_each(|used| used.entry.remove_route(route));
        route.stats().iter().for_each(|stats| self.node.inner().totals.end(stats));
    }

    /// Follows a writer whose topic has moved to these endpoints. Opens each endpoint on a new
    /// thread, if the node may follow the writer's peer to it.
    pub(super) fn follow(&self, topic: &Pattern, source: &Source, endpoints: &[String]) {
        let gate = self.node.inner().gate();
        for endpoint in endpoints {
            let parsed = endpoint.parse::<Endpoint>().map_err(|error| error.to_string());
            if parsed.as_ref().is_ok_and(|parsed| self.lock().ports.iter().any(|used| used.entry.is_at(parsed))) {
                // The subscriber already uses this endpoint, so it needs no permission.
                continue;
            }
            let refused = gate.refuses_to_follow(&source.link.principal, endpoint);
            let reason = refused.or_else(|| match parsed {
                Ok(parsed) => self.start_following(topic, parsed),
                Err(error) => Some(error),
            });
            if let Some(reason) = reason {
                self.tell(topic, endpoint, Some(reason));
            }
        }
    }

    /// Starts a thread that opens the endpoint. Returns the reason if the thread cannot start.
    fn start_following(&self, topic: &Pattern, parsed: Endpoint) -> Option<String> {
        let (this, topic) = (self.this.clone(), topic.clone());
        let open = move || {
            let Some(places) = this.upgrade() else { return };
            let reason = match places.node.port(&parsed) {
                Ok(entry) => places.add_followed(entry),
                Err(error) => Some(error.to_string()),
            };
            places.tell(&topic, &parsed.to_string(), reason);
        };
        thread::Builder::new().name("pw-follow".into()).spawn(open).err().map(|error| error.to_string())
    }

    fn add_followed(&self, entry: Arc<PortEntry>) -> Option<String> {
        {
            let mut state = self.lock();
            if state.uses(&entry) {
                return None;
            }
            if state.followed == MAX_FOLLOWED {
                return Some(format!("the subscriber has followed {MAX_FOLLOWED} times already"));
            }
            state.followed += 1;
        }
        self.add(entry);
        None
    }

    fn add(&self, entry: Arc<PortEntry>) {
        {
            let mut state = self.lock();
            if state.closed || state.uses(&entry) {
                return;
            }
            state.ports.push(Used { entry: entry.clone(), has_route: false });
        }
        let Some(route) = self.route.get() else { return };
        entry.add_route(route.clone());
        let mut state = self.lock();
        match state.ports.iter_mut().find(|used| Arc::ptr_eq(&used.entry, &entry)) {
            Some(used) => used.has_route = true,
            // The subscriber has closed meanwhile.
            None => {
                drop(state);
                entry.remove_route(route);
            }
        }
    }

    fn tell(&self, topic: &Pattern, endpoint: &str, refused: Option<String>) {
        let (topic, endpoint) = (topic.to_string(), endpoint.to_owned());
        self.node.inner().tell(&NodeEvent::Redirected { topic, endpoint, refused });
    }

    /// The writers that the subscriber reads, and those that it cannot read.
    pub(super) fn matches(&self) -> Matches {
        let mut matches = Matches::default();
        let entries: Vec<_> = self.lock().ports.iter().map(|used| used.entry.clone()).collect();
        for (entry, route) in entries.iter().zip(std::iter::repeat(self.route.get())) {
            route.iter().for_each(|route| entry.add_matches(route, &mut matches));
        }
        matches
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Reload for Places {
    /// Also keeps the former ports, since publishers may take some time to move.
    fn reload(&self, node: &Node) -> Result<(), NodeError> {
        let places = node.places_for(self.topic.as_str(), &self.given)?;
        places.into_iter().for_each(|place| self.add(place.entry));
        Ok(())
    }
}
