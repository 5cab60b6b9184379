//! Which writers of a subscriber are alive, by the leases that they offer.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use polywire_core::{
    envelope::{Envelope, Id128},
    qos::Leases,
};

use super::route::RouteOf;
use crate::{
    coding::Coding,
    engine::SharedPayload,
    node::{Slot, Source},
};

/// The writers with leases, and when they lapse.
#[derive(Default)]
pub(super) struct Alive {
    pub(super) leases: Leases,
    writers: BTreeMap<Id128, Leased>,
}

struct Leased {
    lease: Duration,
    /// The number of open channels.
    channels: usize,
    source: Arc<Source>,
}

impl Alive {
    /// Records that a channel of a writer opens, which is a sign of life. Returns true if the
    /// writer had channels already and was not alive.
    pub(super) fn opened(&mut self, source: &Arc<Source>, lease: Duration, now: Duration) -> bool {
        let writer = source.announcement.writer;
        let known = self.writers.entry(writer).or_insert(Leased { lease, channels: 0, source: source.clone() });
        (known.lease, known.channels) = (lease, known.channels + 1);
        let (first, began) = (known.channels == 1, self.leases.heard(writer, lease, now));
        began && !first
    }

    /// Records that a channel has ended. A writer without channels is neither alive nor not alive.
    /// Returns true if this was the last channel of a writer that was not alive.
    pub(super) fn closed(&mut self, writer: Id128) -> bool {
        let Some(known) = self.writers.get_mut(&writer) else { return false };
        known.channels -= 1;
        let gone = known.channels == 0;
        if gone {
            self.writers.remove(&writer);
        }
        gone && !self.leases.left(writer)
    }

    /// Records a sign of life. Returns true if the writer was not alive.
    pub(super) fn heard(&mut self, writer: Id128, now: Duration) -> bool {
        self.writers.get(&writer).is_some_and(|known| self.leases.heard(writer, known.lease, now))
    }

    /// Returns the writers whose leases have lapsed since the last call.
    pub(super) fn lapsed(&mut self, now: Duration) -> Vec<Arc<Source>> {
        let lapsed = self.leases.lapsed(now);
        lapsed.iter().filter_map(|writer| self.writers.get(writer)).map(|known| known.source.clone()).collect()
    }
}

/// A channel that carries a writer's liveliness assertions.
pub(super) struct LivelinessReader<C: Coding> {
    pub(super) route: Arc<RouteOf<C>>,
    pub(super) writer: Id128,
}

impl<C: Coding> Slot for LivelinessReader<C> {
    fn deliver(&self, _: &Envelope<'_>, _: &[u8], _: usize, _: Option<SharedPayload<'_>>) {
        self.route.heard(self.writer);
    }

    fn is_auxiliary(&self) -> bool {
        true
    }
}
