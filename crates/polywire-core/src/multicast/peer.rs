//! One other member of the group, as a member knows it.

use alloc::{collections::VecDeque, vec::Vec};
use core::time::Duration;

use super::{loose::Loose, receiver::Receiver};
use crate::frame::Hello;

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) hello: Hello,
    /// The number at which it begins to follow us.
    pub(super) start: u64,
    /// It has confirmed that it follows us from there.
    pub(super) is_confirmed: bool,
    /// The first packet of ours that it has not taken.
    pub(super) taken: u64,
    /// Our following it. `None` before its welcome.
    pub(super) follow: Option<Receiver>,
    pub(super) loose: Loose,
    /// Best-effort records that the application has not taken.
    pub(super) passed: VecDeque<Vec<u8>>,
    pub(super) passed_bytes: usize,
    /// Both follow each other.
    pub(super) is_up: bool,
    /// It is in the list of those that may have something to take.
    pub(super) is_ready: bool,
    /// It has said goodbye; its packets end before this number.
    pub(super) leaves_at: Option<u64>,
    pub(super) heard: Duration,
    /// When to welcome it again, and the pause after that.
    pub(super) welcome_at: Duration,
    pub(super) welcome_pause: Duration,
    /// What we last confirmed to it.
    pub(super) told: u64,
}

impl Peer {
    pub(super) fn new(hello: Hello, start: u64, welcome_at: Duration, now: Duration) -> Peer {
        Peer {
            hello,
            start,
            is_confirmed: false,
            taken: start,
            follow: None,
            loose: Loose::default(),
            passed: VecDeque::new(),
            passed_bytes: 0,
            is_up: false,
            is_ready: false,
            leaves_at: None,
            heard: now,
            welcome_at,
            welcome_pause: Duration::from_millis(20),
            told: 0,
        }
    }

    /// Bytes of its incomplete records.
    pub(super) fn partial_bytes(&self) -> usize {
        self.loose.partial_bytes() + self.follow.as_ref().map_or(0, Receiver::partial_bytes)
    }

    /// Bytes that are held of it.
    pub(super) fn held_bytes(&self) -> usize {
        self.partial_bytes() + self.passed_bytes + self.follow.as_ref().map_or(0, Receiver::waiting_bytes)
    }

    /// Whether we have taken something of it and not confirmed.
    pub(super) fn is_untold(&self) -> bool {
        self.follow.as_ref().is_some_and(|follow| follow.taken() != self.told)
    }
}
