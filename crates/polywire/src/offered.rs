//! The publisher's side of the quality of service that it offers: watches the offered deadline and
//! limits the number of instances. A publisher with default policies needs none of this.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use polywire_core::{
    envelope::{Id128, Kind},
    qos::{Deadlines, Durability, Qos},
};

use crate::{
    clock,
    events::NodeEvent,
    history::HistoryCache,
    node::{Inner, Wake},
};

/// The state that a publisher's policies require.
pub(crate) struct Offered {
    pub(crate) deadline: Option<Arc<Watch>>,
    /// Limits the instances of a publisher that keeps no history. With a history, [`HistoryCache`]
    /// does so.
    instances: Option<Instances>,
}

/// The instances that a publisher has published, and neither disposed of nor unregistered.
struct Instances {
    most: usize,
    known: std::collections::BTreeSet<Id128>,
}

impl Offered {
    /// Returns `None` if the policies require no deadline, no history and no limit on instances.
    pub(crate) fn new(node: &Arc<Inner>, topic: &str, qos: &Qos) -> Option<Box<Offered>> {
        let deadline = qos.deadline.map(|period| Watch::new(node, topic, period));
        let keeps_history = qos.durability == Durability::TransientLocal;
        let most = qos.resource_limits.max_instances.filter(|_| !keeps_history);
        let instances = most.map(|most| Instances { most: most as usize, known: Default::default() });
        let asks = deadline.is_some() || keeps_history || instances.is_some();
        asks.then(|| Box::new(Offered { deadline, instances }))
    }

    /// Checks whether a message may be published. The error names the limit that it would exceed.
    pub(crate) fn admit(
        &self,
        kind: Kind,
        instance: Id128,
        history: Option<&HistoryCache>,
    ) -> Result<(), &'static str> {
        if kind != Kind::Data {
            return Ok(());
        }
        let full = |all: &Instances| all.known.len() >= all.most && !all.known.contains(&instance);
        match &self.instances {
            Some(all) if full(all) => Err("max-instances"),
            _ => history.map_or(Ok(()), |history| history.has_room(instance)),
        }
    }

    /// Records that a message was published.
    pub(crate) fn published(&mut self, kind: Kind, instance: Id128) {
        let is_end = matches!(kind, Kind::Dispose | Kind::Unregister);
        if let Some(all) = &mut self.instances {
            if is_end {
                all.known.remove(&instance)
            } else {
                all.known.insert(instance)
            };
        }
        if let Some(deadline) = &self.deadline {
            deadline.published(instance, is_end);
        }
    }
}

/// Watches the deadline that a publisher offers.
pub(crate) struct Watch {
    this: Weak<Watch>,
    node: Weak<Inner>,
    topic: String,
    missed: AtomicU64,
    state: Mutex<Watched>,
}

struct Watched {
    deadlines: Deadlines,
    /// The time for which the timer is set. `None` if it is not set.
    wakes: Option<Duration>,
}

impl Watch {
    fn new(node: &Arc<Inner>, topic: &str, period: Duration) -> Arc<Watch> {
        Arc::new_cyclic(|this| Watch {
            this: this.clone(),
            node: Arc::downgrade(node),
            topic: topic.into(),
            missed: AtomicU64::new(0),
            state: Mutex::new(Watched { deadlines: Deadlines::new(period), wakes: None }),
        })
    }

    /// How often the deadline was missed, over all instances.
    pub(crate) fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }

    fn published(&self, instance: Id128, is_end: bool) {
        let mut state = self.lock();
        match is_end {
            true => state.deadlines.ended(instance),
            false => state.deadlines.came(instance, clock::now()),
        }
        self.arm(state);
    }

    fn arm(&self, mut state: MutexGuard<'_, Watched>) {
        let Some(next) = state.deadlines.next() else { return };
        if state.wakes.is_some_and(|wakes| wakes <= next) {
            return;
        }
        state.wakes = Some(next);
        drop(state);
        if let Some(node) = self.node.upgrade() {
            let this: Weak<Watch> = self.this.clone();
            node.timer.at(next, this);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.state.lock()
    }
}

impl Wake for Watch {
    fn wake(&self) {
        let missed = {
            let mut state = self.lock();
            state.wakes = None;
            state.deadlines.missed(clock::now())
        };
        for instance in missed {
            let total = self.missed.fetch_add(1, Ordering::Relaxed) + 1;
            if total.is_power_of_two()
                && let Some(node) = self.node.upgrade()
            {
                node.tell(&NodeEvent::DeadlineMissed { topic: self.topic.clone(), instance, offered: true, total });
            }
        }
        self.arm(self.lock());
    }
}
