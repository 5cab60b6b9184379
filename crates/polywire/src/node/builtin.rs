//! Publishes the built-in topics of a node: its description on `polywire/node`, and its counts on
//! `polywire/stats`. `spec/directory.md` has the protocol.
//!
//! Each node has one thread for these topics. It starts when a peer, or the node itself, first asks
//! for them. The thread publishes the description when it has changed or a new subscriber has
//! joined, and statistics once per [`EVERY`], both only while there are subscribers. Listeners of
//! the node's events can get statistics as well.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::{Arc, Weak},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use polywire_core::{
    codec::{Codec as _, Encoder, Options, cdr::CDR},
    directory::{NodeData, PublisherData, SubscriberData},
    envelope::{Announcement, ChannelId, Envelope, Id128},
    frame::Start,
    layout::Message,
};

use super::{Ports, each_once, inner::Inner, port::PortEntry, random_id, signal::Signal};
use crate::{
    builtin::{NODE, STATS, is_builtin},
    clock, compile,
    description::Description,
    stats::{NodeStats, TopicStats, add_to},
    system::{Usage, host, user},
};

/// Changes within this time are published together.
const GATHER: Duration = Duration::from_millis(20);

/// Time between two messages of statistics.
const EVERY: Duration = Duration::from_secs(1);

/// Starts the thread.
pub(super) fn start(signal: Arc<Signal>, node: Weak<Inner>, ports: Weak<Ports>) -> Option<JoinHandle<()>> {
    let mut publisher =
        DirectoryPublisher { node, ports, published: None, revision: 0, open: Vec::new(), next_stats: None };
    let run = move || loop {
        let news = signal.wait(publisher.next_stats, GATHER);
        if news.stop || publisher.publish_due(news.asked).is_none() {
            return;
        }
    };
    thread::Builder::new().name("pw-directory".into()).spawn(run).ok()
}

struct DirectoryPublisher {
    node: Weak<Inner>,
    ports: Weak<Ports>,
    /// The description that was published last, with its revision set to 0.
    published: Option<NodeData>,
    revision: u64,
    /// The ports on which the built-in topics are announced.
    open: Vec<Asked>,
    next_stats: Option<Instant>,
}

/// The built-in topics at one port.
struct Asked {
    entry: Weak<PortEntry>,
    node: Channel<Description>,
    stats: Channel<NodeStats>,
}

/// A built-in topic at one port.
struct Channel<T: Message> {
    encoder: Encoder<T>,
    id: ChannelId,
    sequence: u64,
}

impl DirectoryPublisher {
    /// Publishes the messages that are due, or all if a peer or this node has `asked` or
    /// subscribed. Returns `None` if the node is gone.
    fn publish_due(&mut self, asked: bool) -> Option<()> {
        let (node, ports) = (self.node.upgrade()?, self.ports.upgrade()?);
        let entries = each_once(&ports.lock());
        self.open_asked(&node, &entries);
        self.publish_node(&node, &entries, asked);
        self.publish_stats(&node, &entries, asked);
        Some(())
    }

    /// Announces the built-in topics on the ports on which they were asked for.
    fn open_asked(&mut self, node: &Inner, entries: &[Arc<PortEntry>]) {
        self.open.retain(|asked| asked.entry.strong_count() > 0);
        for entry in entries.iter().filter(|entry| entry.is_asked()) {
            let weak = Arc::downgrade(entry);
            if self.open.iter().any(|asked| asked.entry.ptr_eq(&weak)) {
                continue;
            }
            let (Some(description), Some(stats)) =
                (Channel::open(NODE, node, entry), Channel::open(STATS, node, entry))
            else {
                continue;
            };
            self.open.push(Asked { entry: weak, node: description, stats });
        }
    }

    /// Publishes the node's description, if it has changed or was `asked` for.
    fn publish_node(&mut self, node: &Inner, entries: &[Arc<PortEntry>], asked: bool) {
        let wanted = |asked: &Asked| asked.node.is_wanted(&asked.entry);
        if !self.open.iter().any(wanted) {
            return;
        }
        let now = describe(node, entries);
        let is_new = self.published.as_ref() != Some(&now);
        if !is_new && !asked {
            return;
        }
        self.revision += u64::from(is_new);
        let description = Description { revision: self.revision, ..Description::from(&now) };
        self.open.iter_mut().for_each(|asked| asked.node.send(&asked.entry, &description));
        self.published = Some(now);
    }

    fn publish_stats(&mut self, node: &Inner, entries: &[Arc<PortEntry>], asked: bool) {
        let wanted = |asked: &Asked| asked.stats.is_wanted(&asked.entry);
        let is_listened = node.events.wants_counts();
        if !is_listened && !self.open.iter().any(wanted) {
            self.next_stats = None;
            return;
        }
        let now = Instant::now();
        let is_due = self.next_stats.is_none_or(|due| due <= now);
        if !is_due && !asked {
            return;
        }
        let stats = count(node, entries);
        if is_listened {
            node.events.tell_counts(stats.clone());
        }
        let stats = stats.bounded();
        self.open.iter_mut().for_each(|asked| asked.stats.send(&asked.entry, &stats));
        if is_due {
            self.next_stats = Some(now + EVERY);
        }
    }
}

impl<T: Message> Channel<T> {
    /// Announces a built-in topic on a port. Returns `None` if the port is closed.
    fn open(topic: &str, node: &Inner, entry: &PortEntry) -> Option<Channel<T>> {
        let encoder = Encoder::<T>::new(&CDR, &Options::default()).ok()?;
        let schema = encoder.schema();
        let announcement = Announcement {
            topic: topic.into(),
            writer: random_id(),
            incarnation: node.hello.incarnation,
            type_name: schema.name().into(),
            type_hash: Id128(schema.type_hash().to_bytes()),
            schema: node.documents.publish(schema),
            codec: CDR.name().into(),
            ..Announcement::default()
        };
        let id = entry.announce(&announcement, Start::default()).ok()?;
        Some(Channel { encoder, id, sequence: 0 })
    }

    fn is_wanted(&self, entry: &Weak<PortEntry>) -> bool {
        entry.upgrade().is_some_and(|entry| entry.subscribers(self.id) > 0)
    }

    /// Sends a message, if the channel has subscribers.
    fn send(&mut self, entry: &Weak<PortEntry>, message: &T) {
        let Some(entry) = entry.upgrade().filter(|entry| entry.subscribers(self.id) > 0) else { return };
        let mut payload = Vec::new();
        if self.encoder.encode(message, &mut payload).is_ok() {
            self.sequence += 1;
            // The error is ignored: a closed port has no subscribers.
            let _ = entry.send(&Envelope::data(self.id, self.sequence, clock::wall_ns()), &payload);
            entry.settle();
        }
    }
}

/// Describes a node, with its endpoints, publishers and subscribers.
pub(super) fn describe(node: &Inner, entries: &[Arc<PortEntry>]) -> NodeData {
    NodeData {
        id: node.hello.node,
        incarnation: node.hello.incarnation,
        revision: 0,
        name: node.name.clone(),
        host: host(),
        process: std::process::id(),
        user: user(),
        version: env!("CARGO_PKG_VERSION").into(),
        endpoints: entries.iter().map(|entry| entry.describe()).collect(),
        publishers: publishers(entries),
        subscribers: subscribers(entries),
        omitted: 0,
    }
}

/// The publishers of all ports. A publisher on several ports has several wires.
fn publishers(entries: &[Arc<PortEntry>]) -> Vec<PublisherData> {
    let mut by_id: BTreeMap<Id128, PublisherData> = BTreeMap::new();
    for here in entries.iter().flat_map(|entry| entry.publishers()) {
        match by_id.entry(here.id) {
            Entry::Vacant(vacant) => _ = vacant.insert(here),
            Entry::Occupied(mut all) => {
                let all = all.get_mut();
                all.wire = format!("{} {}", all.wire, here.wire);
                all.accepting = all.accepting.saturating_add(here.accepting);
                all.refusing = all.refusing.saturating_add(here.refusing);
            }
        }
    }
    by_id.into_values().collect()
}

/// The subscribers of all ports. A subscriber on several ports has several endpoints.
fn subscribers(entries: &[Arc<PortEntry>]) -> Vec<SubscriberData> {
    let mut by_id: BTreeMap<Id128, SubscriberData> = BTreeMap::new();
    for here in entries.iter().flat_map(|entry| entry.subscribers_described()) {
        match by_id.entry(here.id) {
            Entry::Vacant(vacant) => _ = vacant.insert(here),
            Entry::Occupied(mut all) => {
                let all = all.get_mut();
                all.endpoint = format!("{} {}", all.endpoint, here.endpoint);
                all.refuses.extend(here.refuses);
                all.reads.extend(here.reads);
                all.reads.sort_unstable();
                all.reads.dedup();
            }
        }
    }
    by_id.into_values().collect()
}

/// Collects the counts of a node.
pub(super) fn count(node: &Inner, entries: &[Arc<PortEntry>]) -> NodeStats {
    let (usage, (compiled, compile_ns)) = (Usage::now(), compile::counts());
    let mut topics: BTreeMap<String, TopicStats> = node.totals.read();
    entries.iter().flat_map(|entry| entry.received()).for_each(|stats| add_to(&mut topics, &stats));
    let routes: BTreeMap<*const (), _> =
        entries.iter().flat_map(|entry| entry.routes_here()).map(|route| (Arc::as_ptr(&route).cast(), route)).collect();
    routes.values().filter_map(|route| route.stats()).for_each(|stats| add_to(&mut topics, &stats));
    topics.retain(|name, _| !is_builtin(name));
    let total = |of: fn(&PortEntry) -> usize| entries.iter().map(|entry| of(entry)).sum::<usize>();
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    NodeStats {
        node: node.hello.node.0,
        name: node.name.clone(),
        time_ns: clock::wall_ns(),
        uptime_ns: u64::try_from(node.started.elapsed().as_nanos()).unwrap_or(u64::MAX),
        cpu_ns: usage.cpu_ns,
        memory_bytes: usage.memory_bytes,
        compiled,
        compile_ns,
        announced: number(total(PortEntry::channels)),
        discovered: number(total(|entry| entry.sources().len())),
        retransmitted: entries.iter().map(|entry| entry.port().retransmitted()).sum(),
        denied: node.gate.denied(),
        omitted: 0,
        topics: topics.into_values().collect(),
        links: entries.iter().flat_map(|entry| entry.link_counts()).collect(),
    }
}
