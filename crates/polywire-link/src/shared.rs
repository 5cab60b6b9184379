//! The state of a running link, which its threads share: the simulated links, changes of their
//! models that are still to come, the capture, and whether the link has ended. Reads the clock.

use std::{
    cmp::Reverse,
    io,
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use parking_lot::{Mutex, MutexGuard};
use polywire_core::netsim::{Duplex, Model};

use crate::{
    capture::Capture,
    plan::{Change, Plan, Way},
};

/// The shared state of a link.
pub struct Shared {
    start: Instant,
    pub state: Mutex<Emulation>,
    ended: AtomicBool,
}

pub struct Emulation {
    pub links: Duplex,
    changes: Vec<Change>,
    pub capture: Option<Capture>,
}

impl Shared {
    pub fn new(plan: Plan) -> io::Result<Shared> {
        let mut changes = plan.changes;
        // The next change is the last element.
        changes.sort_by_key(|change| Reverse(change.at));
        let links = Duplex::asymmetric(&plan.there, &plan.back, plan.seed);
        let capture = plan.capture.map(Capture::new).transpose()?;
        Ok(Shared {
            start: Instant::now(),
            state: Mutex::new(Emulation { links, changes, capture }),
            ended: AtomicBool::new(false),
        })
    }

    /// Nanoseconds since the link began.
    pub fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    pub fn state(&self) -> MutexGuard<'_, Emulation> {
        self.state.lock()
    }

    /// The state after the changes that are due at `now`.
    pub fn at(&self, now: u64) -> MutexGuard<'_, Emulation> {
        let mut state = self.state();
        while state.changes.last().is_some_and(|next| next.at.as_nanos() as u64 <= now) {
            if let Some(Change { way, model, .. }) = state.changes.pop() {
                state.set(way, &model);
            }
        }
        state
    }

    /// Makes all threads of the link end.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// True once [`Shared::end`] was called.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}

impl Emulation {
    pub fn set(&mut self, way: Way, model: &Model) {
        if way != Way::Back {
            self.links.there.set_model(model);
        }
        if way != Way::There {
            self.links.back.set_model(model);
        }
    }
}
