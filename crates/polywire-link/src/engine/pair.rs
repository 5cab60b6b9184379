//! The connection between two ports of the emulated engine: a link in each direction, reliable
//! notices that bypass the links, and the wake-ups of waiting threads.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use parking_lot::{Condvar, Mutex};
use polywire::extend::{
    envelope::{Announcement, ChannelId, Id128},
    frame::{Answer, Start},
};
use polywire_core::netsim::{Fate, Link};

use crate::shared::{Emulation, Shared};

/// Which of the two ports of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The port that opened later. Its packets take the way there.
    First,
    /// The port that opened first. Its packets take the way back.
    Second,
}

impl Side {
    pub fn other(self) -> Side {
        match self {
            Side::First => Side::Second,
            Side::Second => Side::First,
        }
    }
}

/// The links between two ports, and the notices, which are never lost.
pub struct Pair {
    network: Shared,
    /// The notices posted to each side.
    mailboxes: [Mailbox; 2],
}

struct Mailbox {
    wakeup: Arc<Wakeup>,
    inbox: Mutex<Inbox>,
}

#[derive(Default)]
struct Inbox {
    /// Notices, each with the earliest time of its delivery.
    notices: VecDeque<(u64, Notice)>,
    /// The port is delivering the last arrival.
    busy: bool,
}

/// A reliable notice. The number of waiting notices is not limited: both ports are in this process,
/// and post only as many as their nodes have channels, subscribers and documents.
pub enum Notice {
    Announce(ChannelId, Start, Box<Announcement>),
    Retire(ChannelId),
    Answer(ChannelId, Answer),
    Want(Id128),
    Supply(Id128, Option<Vec<u8>>),
    Down,
}

/// The next delivery to a port.
pub enum Due {
    Notice(Notice),
    Packet(Vec<u8>),
    /// Nothing arrives before this time.
    In(Option<Duration>),
}

impl Pair {
    /// Connects two ports that have these wake-ups.
    pub fn new(network: Shared, wakeups: [Arc<Wakeup>; 2]) -> Pair {
        Pair { network, mailboxes: wakeups.map(|wakeup| Mailbox { wakeup, inbox: Mutex::default() }) }
    }

    /// Sends a packet to this side. Returns `None` if the queue has no room for it.
    pub fn push(&self, to: Side, packet: Vec<u8>, limit: usize) -> Option<Fate> {
        let fate = {
            let mut state = self.network.state();
            // Read the clock while nobody else sends, because times must not go back.
            let now = self.network.now();
            let link = way(&mut state, to);
            let under_way = link.under_way_bytes();
            if under_way > 0 && under_way + packet.len() > limit {
                return None;
            }
            link.push(now, packet)
        };
        self.mailbox(to).wakeup.wake();
        Some(fate)
    }

    pub fn post(&self, to: Side, notice: Notice, at: u64) {
        let mailbox = self.mailbox(to);
        mailbox.inbox.lock().notices.push_back((at.max(self.network.now()), notice));
        mailbox.wakeup.wake();
    }

    /// The next arrival at this side.
    pub fn due(&self, side: Side) -> Due {
        let mut inbox = self.mailbox(side).inbox.lock();
        let mut state = self.network.state();
        let (now, link) = (self.network.now(), way(&mut state, side));
        let (arrives, posted) = (link.next(), inbox.notices.front().map(|(at, _)| *at));
        let notice = posted.filter(|posted| *posted <= now && arrives.is_none_or(|at| at > *posted));
        inbox.busy = true;
        if notice.is_some()
            && let Some((_, notice)) = inbox.notices.pop_front()
        {
            return Due::Notice(notice);
        }
        if let Some(arrival) = link.pop(now) {
            return Due::Packet(arrival.packet);
        }
        inbox.busy = false;
        let next = arrives.into_iter().chain(posted).min();
        Due::In(next.map(|at| Duration::from_nanos(at.saturating_sub(now))))
    }

    /// True if everything for this side has arrived and was delivered.
    pub fn is_idle(&self, side: Side) -> bool {
        let inbox = self.mailbox(side).inbox.lock();
        !inbox.busy && inbox.notices.is_empty() && way(&mut self.network.state(), side).under_way() == 0
    }

    pub fn under_way_bytes(&self, to: Side) -> usize {
        way(&mut self.network.state(), to).under_way_bytes()
    }

    /// Wakes the threads that wait at this side.
    pub fn wake(&self, side: Side) {
        self.mailbox(side).wakeup.wake();
    }

    fn mailbox(&self, side: Side) -> &Mailbox {
        let [first, second] = &self.mailboxes;
        if side == Side::First { first } else { second }
    }
}

/// The link that leads to this side.
fn way(state: &mut Emulation, to: Side) -> &mut Link {
    match to {
        Side::First => &mut state.links.back,
        Side::Second => &mut state.links.there,
    }
}

/// Wakes the threads that wait for an event at a port.
#[derive(Default)]
pub struct Wakeup {
    count: Mutex<u64>,
    changed: Condvar,
}

impl Wakeup {
    pub fn wake(&self) {
        *self.count.lock() += 1;
        self.changed.notify_all();
    }

    /// Number of wake-ups so far.
    pub fn count(&self) -> u64 {
        *self.count.lock()
    }

    /// Waits until there were more than `seen` wake-ups, or until the time is over.
    pub fn wait(&self, seen: u64, time: Option<Duration>) {
        let is_unchanged = |count: &mut u64| *count == seen;
        let mut count = self.count.lock();
        match time {
            Some(time) => {
                self.changed.wait_while_for(&mut count, is_unchanged, time);
            }
            None => self.changed.wait_while(&mut count, is_unchanged),
        }
    }
}
