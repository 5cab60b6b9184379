//! Moves a publisher to other formats and endpoints, and leaves the endpoints that it has moved
//! from.

use std::{
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use parking_lot::MutexGuard;
use polywire_core::envelope::ChannelId;

use super::{Core, Hasher, Sending, accepting, cdr_of};
use crate::{
    clock,
    coding::Coding,
    engine::EngineError,
    error::NodeError,
    events::NodeEvent,
    node::{Node, Place, PortEntry, Reload, Wake},
    publisher::channels::{Group, WriterChannel},
    wire::Wire,
};

/// How long peers may take to follow a publisher to another endpoint.
const MOVE_TIME: Duration = Duration::from_secs(10);

/// How often a publisher that moves checks whether all peers have followed.
const LOOK_EVERY: Duration = Duration::from_millis(10);

impl<C: Coding> Core<C> {
    /// Publishes at these places from now on. Also publishes at the former places until all peers
    /// there have followed. `given` are the wires given in code.
    pub(in crate::publisher) fn move_to(&self, places: Vec<Place>, given: Vec<Wire>) -> Result<(), NodeError> {
        self.move_in(self.lock(), places, given)
    }

    fn move_in(
        &self,
        mut guard: MutexGuard<'_, Sending<C>>,
        places: Vec<Place>,
        given: Vec<Wire>,
    ) -> Result<(), NodeError> {
        let state = &mut *guard;
        if state.closed {
            return Ok(());
        }
        if state.channels().any(|channel| channel.entry.is_closed()) {
            return Err(EngineError::Closed.into());
        }
        let endpoints: Vec<String> = places.iter().map(|place| place.entry.port().endpoint()).collect();
        let entries: Vec<Arc<PortEntry>> = places.iter().map(|place| place.entry.clone()).collect();
        let cdr = places.first().map(|place| cdr_of(&place.wire));
        let mut opened: Vec<Group<C::Encoder>> = Vec::new();
        for place in places {
            if state
                .channels()
                .any(|channel| Arc::ptr_eq(&channel.entry, &place.entry) && channel.wire.has_format_of(&place.wire))
            {
                continue;
            }
            // Opened in a separate list, so that nothing changes if one of them fails.
            let like =
                state.channels().find(|channel| Arc::ptr_eq(&channel.entry, &place.entry)).or(state.channels().next());
            let mut groups = Vec::new();
            if let Err(error) = self.announce().open(&mut groups, place, state.last, like) {
                let opened = opened.iter().flat_map(|group| &group.channels);
                opened.for_each(|channel| channel.close_without(state.channels()));
                return Err(error);
            }
            opened.extend(groups);
        }
        if let Some(cdr) = cdr {
            (state.cdr, state.hasher) = (cdr, Hasher::Unknown);
        }
        let mut ended = Vec::new();
        for channel in opened.iter_mut().flat_map(|group| &mut group.channels) {
            let unused = channel.begin_history();
            ended.extend(unused.into_iter().map(|unused| (channel.entry.clone(), unused)));
        }
        state.adopt(opened);
        state.given = given;
        ended.extend(self.leave_others(state, &entries, &endpoints));
        state.changed();
        // Channels are retired without the lock: that may deliver messages, whose callbacks may
        // publish.
        drop(guard);
        ended.into_iter().for_each(|(entry, channel)| entry.retire(channel));
        Ok(())
    }

    /// Removes the channels of former formats at the present endpoints, and begins to leave the
    /// other endpoints. Returns the channels to retire.
    fn leave_others(
        &self,
        state: &mut Sending<C>,
        present: &[Arc<PortEntry>],
        endpoints: &[String],
    ) -> Vec<(Arc<PortEntry>, ChannelId)> {
        let is_present = |entry: &Arc<PortEntry>| present.iter().any(|other| Arc::ptr_eq(entry, other));
        // At a present endpoint, the announcement that the publisher has moved away is no longer
        // true.
        let mut ended: Vec<_> = state.forwards.extract_if(.., |(entry, _)| is_present(entry)).collect();
        for channel in state.take_replaced() {
            ended.extend(channel.assertions.map(|assertions| (channel.entry.clone(), assertions)));
            ended.push((channel.entry, channel.id));
        }
        let mut left = Vec::new();
        for channel in state.groups.iter_mut().flat_map(|group| &mut group.channels) {
            let leaves = !is_present(&channel.entry);
            if leaves && !channel.leaving {
                left.push(channel.entry.clone());
            }
            channel.leaving = leaves;
        }
        for entry in left {
            if let Ok(channel) = self.announce().forward(&entry, endpoints.to_vec()) {
                state.forwards.push((entry, channel));
            }
        }
        if state.channels().any(|channel| channel.leaving) {
            state.moving = Some(Instant::now() + MOVE_TIME);
            self.look_soon();
        }
        ended
    }

    fn look_soon(&self) {
        let this: Weak<Core<C>> = self.this.clone();
        self.inner.timer.at(clock::now().saturating_add(LOOK_EVERY), this);
    }
}

impl<C: Coding> Reload for Core<C> {
    fn reload(&self, node: &Node) -> Result<(), NodeError> {
        loop {
            let given = {
                let state = self.lock();
                if state.closed {
                    return Ok(());
                }
                state.given.clone()
            };
            // Opens ports, which may take long, so without the lock.
            let places = node.places_for(&self.topic, &given)?;
            let state = self.lock();
            // `PublisherOf::set_wires` may have given other wires meanwhile.
            if state.given == given {
                return self.move_in(state, places, given);
            }
        }
    }
}

/// Checks whether the publisher can leave its former endpoints.
impl<C: Coding> Wake for Core<C> {
    fn wake(&self) {
        // Does not wait for the lock, which a blocked publication may hold.
        let Some(mut state) = self.state.try_lock() else { return self.look_soon() };
        let Some(until) = state.moving.filter(|_| !state.closed) else { return };
        let left = state.leave(Instant::now() >= until);
        if state.moving.is_some() {
            self.look_soon();
        }
        drop(state);
        for (channel, left_behind) in left {
            let from = channel.entry.port().endpoint();
            channel.close();
            self.inner.tell(&NodeEvent::Moved { topic: self.topic.clone(), from, left_behind });
        }
    }
}

impl<C: Coding> Sending<C> {
    /// Adds groups. Merges a group into a present one with the same format.
    fn adopt(&mut self, opened: Vec<Group<C::Encoder>>) {
        for mut group in opened {
            let same = |other: &&mut Group<C::Encoder>| {
                !other.writing.is_stream() && other.channels[0].wire.has_format_of(&group.channels[0].wire)
            };
            match self.groups.iter_mut().find(same) {
                Some(other) => other.channels.append(&mut group.channels),
                None => self.groups.push(group),
            }
        }
    }

    /// Removes and returns the channels that a later channel at the same endpoint replaces.
    fn take_replaced(&mut self) -> Vec<WriterChannel> {
        let ports: Vec<(Arc<PortEntry>, ChannelId)> = self.channel_ids();
        let is_replaced = |channel: &WriterChannel| {
            ports.iter().any(|(entry, id)| Arc::ptr_eq(entry, &channel.entry) && *id > channel.id)
        };
        let is_replaced = &is_replaced;
        let channels =
            self.groups.iter_mut().flat_map(|group| group.channels.extract_if(.., move |channel| is_replaced(channel)));
        channels.collect()
    }

    /// Removes the endpoints that are being left and whose peers have all followed, or if `all`,
    /// every endpoint that is being left. Returns each with the number of peers that have not
    /// followed.
    fn leave(&mut self, all: bool) -> Vec<(WriterChannel, usize)> {
        let staying: Vec<_> = self
            .channels()
            .filter(|channel| !channel.leaving)
            .map(|channel| (channel.entry.clone(), channel.id))
            .collect();
        let there = accepting(&staying);
        let mut left = Vec::new();
        for group in &mut self.groups {
            let gone = group.channels.extract_if(.., |channel| channel.leaving && (all || channel.behind(&there) == 0));
            left.extend(gone.map(|channel| {
                let behind = channel.behind(&there);
                (channel, behind)
            }));
        }
        self.changed();
        if !self.channels().any(|channel| channel.leaving) {
            self.moving = None;
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::{
        config::Config,
        node::PortWatcher,
        publisher::Publisher,
        stats::{Latencies, NodeStats},
    };

    fn config(wire: &str) -> Config {
        Config::parse(&format!("[node]\nwire = '{wire}'")).expect("a configuration")
    }

    #[test]
    fn a_publisher_that_has_closed_does_not_move() {
        let node = Node::builder().config(config("cdr@inproc/moving-closed")).build();
        let publisher = node.publisher::<Latencies>("moving").expect("a publisher");
        let core = publisher.core.clone();
        drop(publisher);
        core.reload(&node).expect("nothing to do");
        assert_eq!(core.lock().channels().count(), 0);
    }

    /// Moves a publisher when the port of an endpoint opens.
    struct Mover {
        publisher: Mutex<Option<Publisher<NodeStats>>>,
        at: &'static str,
        to: &'static str,
    }

    impl PortWatcher for Mover {
        fn opened(&self, _node: &Node, entry: &Arc<PortEntry>) {
            if entry.port().endpoint() == self.at
                && let Some(publisher) = &*self.publisher.lock()
            {
                publisher.set_wires(&[self.to]).expect("an open endpoint");
            }
        }
    }

    #[test]
    fn a_reload_does_not_undo_a_move_that_overtakes_it() {
        let node = Node::builder().config(config("cdr@inproc/moving-old")).build();
        node.open("inproc/moving-given").expect("it opens");
        let publisher = node.publisher("moving").expect("a publisher");
        let (at, to) = ("inproc/moving-configured", "json@inproc/moving-given");
        let mover = Arc::new(Mover { publisher: Mutex::new(Some(publisher)), at, to });
        node.watch(&mover);
        node.reload(config("cdr@inproc/moving-configured")).expect("it moves");
        let publisher = mover.publisher.lock().take().expect("the publisher");
        let wires: Vec<String> = publisher.core.wires().iter().map(Wire::to_string).collect();
        assert_eq!(wires, [to]);
    }

    #[test]
    fn a_change_of_format_retires_the_former_channel_of_assertions() {
        let node = Node::new();
        let publish = node.publish::<Latencies>("moving", Some("cdr@inproc/moving-lease")).expect("a wire");
        let policies = "liveliness=manual-by-topic,lease=10s".parse().expect("policies");
        let publisher = publish.qos(policies).expect("policies").open().expect("a publisher");
        let assertions = || {
            let state = publisher.core.lock();
            let channel = state.channels().next().expect("a channel");
            (channel.entry.clone(), channel.assertions.expect("a lease"))
        };
        let (entry, former) = assertions();
        publisher.set_wire("json").expect("another format");
        let (_, present) = assertions();
        assert!(entry.announced(former).is_none() && entry.announced(present).is_some());
    }
}
