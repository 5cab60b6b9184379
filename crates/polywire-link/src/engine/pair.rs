//! The connection between two ports of the emulated engine: a link in each direction, reliable
//! notices that bypass the links, and the bells that wake waiting threads.

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
    bell: Arc<Bell>,
    mail: Mutex<Mail>,
}

#[derive(Default)]
struct Mail {
    /// Notices, each with the earliest time of its delivery.
    letters: VecDeque<(u64, Letter)>,
    /// The port is delivering the last arrival.
    busy: bool,
}

/// A reliable notice. The number of waiting notices is not limited: both ports are in this process,
/// and post only as many as their nodes have channels, subscribers and documents.
pub enum Letter {
    Announce(ChannelId, Start, Box<Announcement>),
    Retire(ChannelId),
    Answer(ChannelId, Answer),
    Want(Id128),
    Supply(Id128, Option<Vec<u8>>),
    Down,
}

/// The next delivery to a port.
pub enum Due {
    Letter(Letter),
    Packet(Vec<u8>),
    /// Nothing arrives before this time.
    In(Option<Duration>),
}

impl Pair {
    /// Connects two ports that have these bells.
    pub fn new(network: Shared, bells: [Arc<Bell>; 2]) -> Pair {
        Pair { network, mailboxes: bells.map(|bell| Mailbox { bell, mail: Mutex::default() }) }
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
        self.mailbox(to).bell.ring();
        Some(fate)
    }

    pub fn post(&self, to: Side, letter: Letter, at: u64) {
        let mailbox = self.mailbox(to);
        mailbox.mail.lock().letters.push_back((at.max(self.network.now()), letter));
        mailbox.bell.ring();
    }

    /// The next arrival at this side.
    pub fn due(&self, side: Side) -> Due {
        let mut mail = self.mailbox(side).mail.lock();
        let mut state = self.network.state();
        let (now, link) = (self.network.now(), way(&mut state, side));
        let (arrives, posted) = (link.next(), mail.letters.front().map(|(at, _)| *at));
        let letter = posted.filter(|posted| *posted <= now && arrives.is_none_or(|at| at > *posted));
        mail.busy = true;
        if letter.is_some()
            && let Some((_, letter)) = mail.letters.pop_front()
        {
            return Due::Letter(letter);
        }
        if let Some(arrival) = link.pop(now) {
            return Due::Packet(arrival.packet);
        }
        mail.busy = false;
        let next = arrives.into_iter().chain(posted).min();
        Due::In(next.map(|at| Duration::from_nanos(at.saturating_sub(now))))
    }

    /// True if everything for this side has arrived and was delivered.
    pub fn is_idle(&self, side: Side) -> bool {
        let mail = self.mailbox(side).mail.lock();
        !mail.busy && mail.letters.is_empty() && way(&mut self.network.state(), side).under_way() == 0
    }

    pub fn under_way_bytes(&self, to: Side) -> usize {
        way(&mut self.network.state(), to).under_way_bytes()
    }

    /// Wakes the threads that wait at this side.
    pub fn ring(&self, side: Side) {
        self.mailbox(side).bell.ring();
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
pub struct Bell {
    rings: Mutex<u64>,
    rung: Condvar,
}

impl Bell {
    pub fn ring(&self) {
        *self.rings.lock() += 1;
        self.rung.notify_all();
    }

    /// Number of rings so far.
    pub fn rings(&self) -> u64 {
        *self.rings.lock()
    }

    /// Waits until the bell has rung more often than `seen` times, or until the time is over.
    pub fn wait(&self, seen: u64, time: Option<Duration>) {
        let quiet = |rings: &mut u64| *rings == seen;
        let mut rings = self.rings.lock();
        match time {
            Some(time) => {
                self.rung.wait_while_for(&mut rings, quiet, time);
            }
            None => self.rung.wait_while(&mut rings, quiet),
        }
    }
}
