//! Discovery: which nodes exist, what they publish and subscribe to, and which subscribers read
//! which publishers.
//!
//! [`Node::directory`](crate::Node::directory) observes all ports of a node, also those that open
//! later, over every engine. [`polywire_core::directory`] has the types and the rules; this module
//! receives the messages.
//!
//! Nodes describe themselves on the topic [`NODE_TOPIC`], and publish their counts on
//! [`STATS_TOPIC`]. These are built-in topics, as in DDS. A node announces and encodes them only if
//! a peer asks for them, so a node that nobody observes pays nothing. With rules of
//! [`access`](crate::access), a peer sees the node if it may subscribe to these topics.
//!
//! ```
//! use std::time::{Duration, Instant};
//! use polywire::{Node, directory::{Directory, Event, Matching}};
//! # #[derive(Default, polywire::Message)]
//! # #[polywire(name = "Pump")]
//! # struct Pump { id: u32 }
//! # #[derive(Default, polywire::Message)]
//! # #[polywire(name = "Pump")]
//! # struct Other { id: String }
//!
//! let plant = Node::builder().name("plant").build();
//! let _pumps = plant.publisher_on::<Pump>("pumps", "cdr@inproc/directory-doc")?;
//! let hall = Node::builder().name("hall").build();
//! let _other = hall.subscriber_on::<Other>("pumps", "cdr@inproc/directory-doc")?;
//!
//! let tool = Node::builder().name("tool").build();
//! tool.open("inproc/directory-doc")?;
//! let directory: Directory = tool.directory();
//! let until = Instant::now() + Duration::from_secs(20);
//! loop {
//!     let event = directory.recv_timeout(until - Instant::now()).expect("the mismatch is reported");
//!     if let Event::Incompatible { reason, .. } = event {
//!         assert!(reason.contains("the writer has uint32, the reader string"), "{reason}");
//!         break;
//!     }
//! }
//! // The hall has described itself; the plant's description may arrive a moment later.
//! while directory.snapshot().node("plant").is_none() {
//!     assert!(Instant::now() < until);
//!     std::thread::yield_now();
//! }
//! let snapshot = directory.snapshot();
//! let pair = snapshot.pairs().next().expect("a publisher and a subscriber");
//! assert_eq!((pair.from.name.as_str(), pair.to.name.as_str()), ("plant", "hall"));
//! assert!(matches!(pair.matching, Matching::Incompatible(_)));
//! while let Some(event) = directory.try_recv() {
//!     println!("{event:?}");
//! }
//! assert_eq!(directory.refused(), 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::{
    collections::BTreeSet,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use parking_lot::{Condvar, Mutex, MutexGuard};
use polywire_core::{directory, envelope::Id128, qos::InstanceState};

use crate::{
    Node, builtin,
    coding::Typed,
    description::Description,
    node::{PortEntry, PortWatcher},
    subscriber::{Info, Subscription},
};

pub use polywire_core::directory::{
    EndpointData, Event, Limits, Matching, NodeData, NodeKey, Pair, PublisherData, RefusalData, Snapshot,
    SubscriberData,
};

/// The topic on which nodes describe themselves.
pub const NODE_TOPIC: &str = builtin::NODE;

/// The topic on which nodes publish their counts: [`NodeStats`](crate::stats::NodeStats).
pub const STATS_TOPIC: &str = builtin::STATS;

/// The nodes that are known at all ports of a node, itself included. The directory keeps the node's
/// ports open. It queues at most 16384 events. In `async` code, it is a stream of events.
///
/// [The module](self) has an example.
pub struct Directory(Arc<Watcher>);

/// Subscribes to the descriptions of nodes at each port.
struct Watcher {
    known: Arc<Known>,
    ports: Mutex<Ports>,
}

#[derive(Default)]
struct Ports {
    /// Addresses of the port entries with a subscription, which keeps the entry alive.
    seen: BTreeSet<usize>,
    subscriptions: Vec<Subscription>,
}

/// The descriptions received so far.
#[derive(Default)]
struct Known {
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Default)]
struct State {
    nodes: directory::Directory,
    waker: Option<Waker>,
}

impl Node {
    /// Observes which nodes exist, at all ports of this node. Their descriptions arrive within
    /// moments; [`directory`](crate::directory) has an example.
    pub fn directory(&self) -> Directory {
        let nodes = directory::Directory::new(Limits::default());
        let known = Arc::new(Known { state: Mutex::new(State { nodes, waker: None }), arrived: Condvar::new() });
        let watcher = Arc::new(Watcher { known, ports: Mutex::default() });
        self.watch(&watcher);
        Directory(watcher)
    }
}

impl Directory {
    /// Returns the nodes that are known now.
    pub fn snapshot(&self) -> Snapshot {
        self.0.known.lock().nodes.snapshot()
    }

    /// Waits for the next change. `None` if there is none within `timeout`.
    pub fn recv_timeout(&self, timeout: Duration) -> Option<Event> {
        let known = &self.0.known;
        let mut next = None;
        let nothing = |state: &mut State| {
            next = state.nodes.poll_event();
            next.is_none()
        };
        known.arrived.wait_while_for(&mut known.lock(), nothing, timeout);
        next
    }

    /// Returns the next change, if one waits.
    pub fn try_recv(&self) -> Option<Event> {
        self.0.known.lock().nodes.poll_event()
    }

    /// Returns how many descriptions were refused because they exceed the [`Limits`].
    pub fn refused(&self) -> u64 {
        self.0.known.lock().nodes.refused()
    }
}

impl futures_core::Stream for Directory {
    type Item = Event;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        let mut state = self.0.known.lock();
        match state.nodes.poll_event() {
            Some(event) => Poll::Ready(Some(event)),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl PortWatcher for Watcher {
    fn opened(&self, node: &Node, entry: &Arc<PortEntry>) {
        let mut ports = self.ports.lock();
        if !ports.seen.insert(Arc::as_ptr(entry).addr()) {
            return;
        }
        let known = self.known.clone();
        let Ok(topic) = NODE_TOPIC.parse() else { return };
        let subscribe = node.subscribe_at(entry, topic, Typed::<Description>::default()).instances();
        let subscription =
            subscribe.on_message_inline(move |description, info| known.on_description(description, info));
        ports.subscriptions.push(subscription);
    }
}

impl Known {
    fn on_description(&self, description: &Description, info: &Info) {
        let writer: Id128 = info.source.announcement.writer;
        let mut state = self.lock();
        match info.instance {
            Some(InstanceState::NoWriters) => state.nodes.handle_end(writer),
            _ => {
                let direct = info.source.link.peer.node.0 == description.id;
                // The directory counts refused descriptions.
                let _ = state.nodes.handle_report(writer, direct, description.into());
            }
        }
        let waker = state.waker.take();
        drop(state);
        self.arrived.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}
