//! A node's events: connections, lost messages, incompatible types. Every event is also a line in
//! the log.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::{Condvar, Mutex};
use polywire_core::envelope::Id128;

use crate::{
    engine::{self, Action, Principal},
    stats::NodeStats,
};

/// The most events that wait for a listener. The oldest are dropped to make room.
const WAITING: usize = 1024;

/// Something that happened on a node.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum NodeEvent {
    /// Something happened on a port.
    Engine {
        /// The port's endpoint.
        endpoint: String,
        /// What happened.
        event: engine::Event,
    },
    /// A subscriber of this node cannot read what a writer publishes.
    Mismatch {
        /// The topic.
        topic: String,
        /// The writer.
        writer: Id128,
        /// The writer's type.
        type_name: String,
        /// Why. If the types are incompatible: the path of the member, and the smallest change that
        /// helps.
        reason: String,
    },
    /// A subscriber of a peer cannot read what a publisher of this node publishes.
    Refused {
        /// The topic.
        topic: String,
        /// The subscriber's address.
        peer: String,
        /// Why the subscriber cannot read the messages.
        reason: String,
    },
    /// The rules of [`Access`](crate::access::Access) denied a peer something. Reported for the
    /// 1st, 2nd, 4th, 8th, ... time on each link.
    Denied {
        /// The peer's identity.
        who: Principal,
        /// The peer's address.
        peer: String,
        /// The action that the rules denied.
        action: Action,
        /// The topic of the action.
        topic: String,
        /// How often the rules have denied something on the link so far.
        total: u64,
    },
    /// Messages for a subscriber of this node were lost: a sender, a relay or the subscriber's
    /// queue dropped them, or a link broke. Reported when the total reaches or passes a power of
    /// two.
    Lost {
        /// The topic.
        topic: String,
        /// The number of messages so far.
        total: u64,
    },
    /// An instance has had no sample for longer than the deadline allows. Reported when the total
    /// is a power of two.
    DeadlineMissed {
        /// The topic.
        topic: String,
        /// Hash of the instance's key; zero if the type has none.
        instance: Id128,
        /// True if a publisher of this node offered the deadline, false if a subscriber requested
        /// it.
        offered: bool,
        /// How often a deadline was missed so far, over all instances.
        total: u64,
    },
    /// A writer that a subscriber of this node reads has shown no sign of life for the lease that
    /// it offers, or shows one again.
    LivelinessChanged {
        /// The topic.
        topic: String,
        /// The writer.
        writer: Id128,
        /// Whether the writer is alive now.
        alive: bool,
        /// The number of the subscriber's writers that are not alive now.
        not_alive: usize,
    },
    /// The lease of a publisher of this node lapsed. Reported when the total is a power of two.
    LivelinessLost {
        /// The topic.
        topic: String,
        /// How often the lease has lapsed so far.
        total: u64,
    },
    /// The history of a writer did not arrive in time. The subscriber continues without it, and
    /// misses the samples that it would have brought.
    HistoryMissed {
        /// The topic.
        topic: String,
        /// The writer.
        writer: Id128,
    },
    /// A publisher of this node has moved to other endpoints ([`PublisherOf::set_wires`]) and has
    /// left a former one.
    ///
    /// [`PublisherOf::set_wires`]: crate::PublisherOf::set_wires
    Moved {
        /// The topic.
        topic: String,
        /// The endpoint that the publisher left.
        from: String,
        /// The number of peers that read the topic there and have not followed within the time
        /// allowed. They receive no more messages.
        left_behind: usize,
    },
    /// A writer announces that its topic has moved. A subscriber of this node follows, or refuses
    /// to.
    Redirected {
        /// The topic, or the subscriber's pattern.
        topic: String,
        /// The new endpoint.
        endpoint: String,
        /// Why the subscriber does not follow to the endpoint. `None` if it follows.
        refused: Option<String>,
    },
    /// Messages could not be decoded. Reported when the total is a power of two.
    Undecodable {
        /// The topic.
        topic: String,
        /// The number of messages so far.
        total: u64,
        /// What was wrong with the latest one.
        reason: String,
    },
    /// What the node has counted so far, once a second. Only listeners of
    /// [`Node::events_with_counts`](crate::Node::events_with_counts) receive it, and it is not
    /// logged.
    Counted(Box<NodeStats>),
}

impl fmt::Display for NodeEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeEvent::Engine { endpoint, event } => write!(f, "{endpoint}: {event}"),
            NodeEvent::Mismatch { topic, writer, type_name, reason } => {
                write!(f, "topic '{topic}': cannot read {type_name} of writer {writer}: {reason}")
            }
            NodeEvent::Refused { topic, peer, reason } => {
                write!(f, "topic '{topic}': the subscriber at {peer} cannot read it: {reason}")
            }
            NodeEvent::Denied { who, peer, action, topic, total } => {
                write!(f, "topic '{topic}': no rule allows '{who}' at {peer} to {action} it ({total} refused so far)")
            }
            NodeEvent::Lost { topic, total } => write!(f, "topic '{topic}': {total} messages lost so far"),
            NodeEvent::DeadlineMissed { topic, instance, offered, total } => {
                let side = if *offered { "offered" } else { "requested" };
                write!(
                    f,
                    "topic '{topic}': no sample of instance {instance} within the deadline {side}, {total} times so far"
                )
            }
            NodeEvent::LivelinessChanged { topic, writer, alive, not_alive } => {
                let state = if *alive { "alive again" } else { "not alive" };
                write!(f, "topic '{topic}': writer {writer} is {state} ({not_alive} not alive now)")
            }
            NodeEvent::LivelinessLost { topic, total } => {
                write!(f, "topic '{topic}': the lease of the publisher has lapsed, {total} times so far")
            }
            NodeEvent::HistoryMissed { topic, writer } => {
                write!(f, "topic '{topic}': the history of writer {writer} did not come in time")
            }
            NodeEvent::Moved { topic, from, left_behind: 0 } => write!(f, "topic '{topic}': has left {from}"),
            NodeEvent::Moved { topic, from, left_behind } => {
                write!(f, "topic '{topic}': has left {from}, and {left_behind} peers that did not follow in time")
            }
            NodeEvent::Redirected { topic, endpoint, refused: None } => {
                write!(f, "topic '{topic}': follows it to {endpoint}")
            }
            NodeEvent::Redirected { topic, endpoint, refused: Some(reason) } => {
                write!(f, "topic '{topic}': does not follow it to {endpoint}: {reason}")
            }
            NodeEvent::Undecodable { topic, total, reason } => {
                write!(f, "topic '{topic}': {total} messages not decoded so far: {reason}")
            }
            NodeEvent::Counted(stats) => {
                write!(f, "counted: {} topics, {} links", stats.topics.len(), stats.links.len())
            }
        }
    }
}

impl fmt::Display for engine::Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            engine::Event::Listening { endpoint } => write!(f, "listening on {endpoint}"),
            engine::Event::Exposed { endpoint } => write!(
                f,
                "{endpoint} IS OPEN TO OTHER MACHINES, without encryption and without proof of who calls: whoever \
                 reaches it can read and publish. Use tls/, \
                 an identity with lan/, or an address of this machine such as 127.0.0.1"
            ),
            engine::Event::Renewed { addresses, .. } => {
                let addresses: Vec<String> = addresses.iter().map(|address| address.to_string()).collect();
                write!(f, "opened anew at {}: the addresses of this machine have changed", addresses.join(", "))
            }
            engine::Event::Connected(link) => write!(f, "{} to {} is up", link.id, link.address),
            engine::Event::Disconnected { link, reason } => {
                write!(f, "{} to {} is down: {reason}", link.id, link.address)
            }
            engine::Event::Unreachable { reason, .. } => write!(f, "cannot connect: {reason}"),
            engine::Event::Rejected { address, reason, total: 1 } => write!(f, "turned away {address}: {reason}"),
            engine::Event::Rejected { address, reason, total } => {
                write!(f, "turned away {address}, {total} times so far: {reason}")
            }
            engine::Event::Dropped { link, topic, count } => {
                let what = messages(*count);
                write!(f, "{what} for {} dropped, the last of topic '{topic}'", link.address)
            }
            engine::Event::Unconfirmed { link, count } => {
                let (what, which) = (messages(*count), if *count == 1 { "it" } else { "them" });
                write!(
                    f,
                    "{} to {} ended: {what} may be lost, the peer has not confirmed {which}",
                    link.id, link.address
                )
            }
            engine::Event::Silent { link, lease } => {
                write!(
                    f,
                    "{} to {}: nothing was heard of the peer for {} s",
                    link.id,
                    link.address,
                    lease.as_secs_f64()
                )
            }
            engine::Event::Heard(link) => write!(f, "{} to {}: the peer is heard again", link.id, link.address),
            engine::Event::Ignored { name, reason, total } => write!(f, "ignored '{name}': {reason} ({total} so far)"),
            engine::Event::Withheld { link, topic, reason, total } => {
                write!(f, "topic '{topic}' is not passed on from or to {}: {reason} ({total} so far)", link.address)
            }
        }
    }
}

/// Returns a number of messages as text.
fn messages(count: u64) -> String {
    format!("{count} message{}", if count == 1 { "" } else { "s" })
}

/// Receives the events that a node reports after this listener was made.
///
/// ```
/// use polywire::{Events, Node, NodeEvent};
/// # use std::time::Duration;
///
/// #[derive(Default, polywire::Message)]
/// #[polywire(name = "Pump")]
/// struct Pump { id: u32 }
/// #[derive(Default, polywire::Message)]
/// #[polywire(name = "Pump")]
/// struct Other { id: String }
///
/// let node = Node::new();
/// let events: Events = node.events();
/// let _subscriber = node.subscriber_on::<Other>("pumps", "cdr@inproc/events-doc")?;
/// let _publisher = node.publisher_on::<Pump>("pumps", "cdr@inproc/events-doc")?;
/// loop {
///     let event = events.recv_timeout(Duration::from_secs(10)).expect("the mismatch is reported");
///     if let NodeEvent::Mismatch { topic, reason, .. } = &event {
///         assert_eq!(topic, "pumps");
///         assert!(reason.contains("the writer has uint32, the reader string"), "{reason}");
///         break;
///     }
/// }
/// // `try_recv` returns the events that are already queued.
/// while let Some(event) = events.try_recv() {
///     println!("{event}");
/// }
/// // `recv` and `iter` wait until the node is closed.
/// node.close();
/// events.iter().for_each(|event| println!("{event}"));
/// assert!(events.recv().is_none());
/// # Ok::<(), polywire::NodeError>(())
/// ```
#[derive(Debug)]
pub struct Events(Arc<Listener>);

#[derive(Debug, Default)]
struct Listener {
    wants_counts: bool,
    pending: Mutex<PendingEvents>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct PendingEvents {
    waiting: VecDeque<NodeEvent>,
    /// The node has been closed.
    is_over: bool,
}

impl Listener {
    fn tell(&self, event: &NodeEvent) {
        let waiting = &mut self.pending.lock().waiting;
        if waiting.len() == WAITING {
            waiting.pop_front();
        }
        waiting.push_back(event.clone());
        self.arrived.notify_one();
    }

    fn end(&self) {
        self.pending.lock().is_over = true;
        self.arrived.notify_all();
    }
}

impl PendingEvents {
    fn must_wait(&mut self) -> bool {
        self.waiting.is_empty() && !self.is_over
    }
}

impl Events {
    /// Waits for the next event. Returns `None` if no event waits and the node is closed
    /// ([`Node::close`](crate::Node::close)) or dropped.
    pub fn recv(&self) -> Option<NodeEvent> {
        let mut pending = self.0.pending.lock();
        self.0.arrived.wait_while(&mut pending, PendingEvents::must_wait);
        pending.waiting.pop_front()
    }

    /// Waits for the next event, for at most `timeout`.
    pub fn recv_timeout(&self, timeout: Duration) -> Option<NodeEvent> {
        let mut pending = self.0.pending.lock();
        self.0.arrived.wait_while_for(&mut pending, PendingEvents::must_wait, timeout);
        pending.waiting.pop_front()
    }

    /// Returns the next event, if one waits.
    pub fn try_recv(&self) -> Option<NodeEvent> {
        self.0.pending.lock().waiting.pop_front()
    }

    /// The events, as [`Events::recv`] returns them.
    pub fn iter(&self) -> impl Iterator<Item = NodeEvent> + '_ {
        std::iter::from_fn(|| self.recv())
    }
}

/// Hands events to all listeners.
#[derive(Debug, Default)]
pub(crate) struct Hub(Mutex<Vec<Weak<Listener>>>);

impl Hub {
    pub(crate) fn listen(&self, wants_counts: bool) -> Events {
        let listener = Arc::new(Listener { wants_counts, ..Listener::default() });
        self.0.lock().push(Arc::downgrade(&listener));
        Events(listener)
    }

    pub(crate) fn tell(&self, event: &NodeEvent) {
        log::log!(level(event), "{event}");
        self.0.lock().retain(|listener| {
            let Some(listener) = listener.upgrade() else { return false };
            listener.tell(event);
            true
        });
    }

    /// Ends all listeners, because the node closes. They still receive the events that wait.
    pub(crate) fn end(&self) {
        self.0.lock().iter().filter_map(Weak::upgrade).for_each(|listener| listener.end());
    }

    /// Checks whether a listener wants the node's counts.
    pub(crate) fn wants_counts(&self) -> bool {
        self.0.lock().iter().any(|listener| listener.upgrade().is_some_and(|listener| listener.wants_counts))
    }

    /// Hands counts to the listeners that want them.
    pub(crate) fn tell_counts(&self, stats: NodeStats) {
        let event = NodeEvent::Counted(Box::new(stats));
        let listeners = self.0.lock();
        let listeners = listeners.iter().filter_map(Weak::upgrade);
        listeners.filter(|listener| listener.wants_counts).for_each(|listener| listener.tell(&event));
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.end();
    }
}

fn level(event: &NodeEvent) -> log::Level {
    use engine::Event as E;
    match event {
        NodeEvent::Engine {
            event: E::Listening { .. } | E::Connected(_) | E::Disconnected { .. } | E::Heard(_),
            ..
        } => log::Level::Info,
        NodeEvent::Mismatch { .. } | NodeEvent::Refused { .. } => log::Level::Error,
        _ => log::Level::Warn,
    }
}
