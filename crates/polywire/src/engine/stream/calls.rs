//! Decides which peers of a mesh to call, and when. A table that is given the time; it makes no
//! calls.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use polywire_core::frame::Hello;

use super::transport::Peer;
use crate::engine::EngineOptions;

/// The most calls that wait for an answer at a time: a rendezvous may name many peers that never
/// answer.
const AT_A_TIME: usize = 32;

/// The peers that the rendezvous names, by address.
#[derive(Default)]
pub(super) struct Calls(BTreeMap<String, Call>);

struct Call {
    /// The hello of the node at the address, if it is known.
    hello: Option<Hello>,
    /// The rendezvous still names the address.
    is_named: bool,
    /// A thread is calling the address, or serves the link to it.
    is_under_way: bool,
    /// The call has led to a connection.
    is_answered: bool,
    next: Instant,
    pause: Duration,
    /// The last error that was reported to the node.
    told: String,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallEnd {
    /// The connection was a link.
    Linked,
    /// The peer sent its hello, but the connection did not become the link to it.
    Elsewhere(Hello),
    /// There was no connection, or no hello.
    Failed,
}

impl Calls {
    /// Updates the table with the peers that the rendezvous names, at most `options.peers`.
    pub(super) fn name(&mut self, peers: Vec<Peer>, now: Instant, options: &EngineOptions) {
        self.0.values_mut().for_each(|call| call.is_named = false);
        for peer in peers.into_iter().take(options.peers) {
            let call = self.0.entry(peer.address).or_insert_with(|| Call {
                hello: None,
                is_named: true,
                is_under_way: false,
                is_answered: false,
                next: now,
                pause: options.reconnect_min,
                told: String::new(),
            });
            call.is_named = true;
            call.hello = peer.hello.or(call.hello);
        }
        self.0.retain(|_, call| call.is_named || call.is_under_way);
    }

    /// Returns the addresses to call now, first those that have failed least often. Leaves out
    /// nodes for which `linked` is true. Each call is under way until [`Calls::ended`].
    pub(super) fn due(&mut self, now: Instant, linked: impl Fn(&Hello) -> bool) -> Vec<String> {
        let room = AT_A_TIME.saturating_sub(self.0.values().filter(|call| call.is_unanswered()).count());
        let waits = |call: &Call| call.is_waiting(&linked) && call.next <= now;
        let mut due: Vec<_> = self.0.iter_mut().filter(|(_, call)| waits(call)).collect();
        due.sort_by_key(|(_, call)| call.pause);
        let due = due.into_iter().take(room).map(|(address, call)| {
            (call.is_under_way, call.is_answered) = (true, false);
            address.clone()
        });
        due.collect()
    }

    /// Notes that a call has led to a connection.
    pub(super) fn answered(&mut self, address: &str) {
        self.0.get_mut(address).into_iter().for_each(|call| call.is_answered = true);
    }

    /// Notes the end of a call. The next one follows after a pause, which grows while calls fail.
    pub(super) fn ended(&mut self, address: &str, end: CallEnd, now: Instant, options: &EngineOptions) {
        let Some(call) = self.0.get_mut(address) else { return };
        call.is_under_way = false;
        match end {
            CallEnd::Linked => {
                call.pause = options.reconnect_min;
                call.told.clear();
            }
            CallEnd::Elsewhere(hello) => call.hello = Some(hello),
            CallEnd::Failed => {}
        }
        call.next = now + call.pause;
        if end != CallEnd::Linked {
            call.pause = (call.pause * 2).min(options.reconnect_max);
        }
        if !call.is_named {
            self.0.remove(address);
        }
    }

    /// Remembers an error, and returns whether to report it: it differs from the last one at the
    /// address.
    pub(super) fn is_news(&mut self, address: &str, reason: &str) -> bool {
        self.0.get_mut(address).is_some_and(|call| std::mem::replace(&mut call.told, reason.into()) != reason)
    }

    /// Returns the time until the next call is due. `None` if no call is waiting, or if too many
    /// are under way: the end of a call wakes the rendezvous.
    pub(super) fn rest(&self, now: Instant, linked: impl Fn(&Hello) -> bool) -> Option<Duration> {
        if self.0.values().filter(|call| call.is_unanswered()).count() >= AT_A_TIME {
            return None;
        }
        let waiting = self.0.values().filter(|call| call.is_waiting(&linked));
        waiting.map(|call| call.next.saturating_duration_since(now)).min()
    }
}

impl Call {
    fn is_waiting(&self, linked: impl Fn(&Hello) -> bool) -> bool {
        self.is_named && !self.is_under_way && !self.hello.as_ref().is_some_and(linked)
    }

    fn is_unanswered(&self) -> bool {
        self.is_under_way && !self.is_answered
    }
}

#[cfg(test)]
mod tests {
    use polywire_core::envelope::Id128;

    use super::*;

    fn peers(addresses: &[&str]) -> Vec<Peer> {
        addresses.iter().map(|address| Peer { address: (*address).into(), hello: None }).collect()
    }

    fn nobody(_: &Hello) -> bool {
        false
    }

    const HELLO: Hello = Hello { node: Id128([7; 16]), incarnation: 1 };

    #[test]
    fn peers_come_and_go() {
        let (mut calls, options, now) = (Calls::default(), EngineOptions::default(), Instant::now());
        calls.name(peers(&["a", "b"]), now, &options);
        assert_eq!(calls.due(now, nobody), ["a", "b"]);
        assert!(calls.due(now, nobody).is_empty(), "they are under way");
        calls.name(peers(&["b", "c"]), now, &options);
        assert_eq!(calls.due(now, nobody), ["c"]);
        for address in ["a", "b"] {
            calls.ended(address, CallEnd::Linked, now, &options);
        }
        let later = now + options.reconnect_min;
        assert_eq!(calls.due(later, nobody), ["b"], "nobody names the other any more");
        assert_eq!(calls.0.len(), 2);
    }

    #[test]
    fn a_peer_that_has_a_link_is_not_called() {
        let (mut calls, options, now) = (Calls::default(), EngineOptions::default(), Instant::now());
        calls.name(vec![Peer { address: "a".into(), hello: Some(HELLO) }], now, &options);
        assert!(calls.due(now, |hello| *hello == HELLO).is_empty());
        assert_eq!(calls.rest(now, |_| true), None);
        assert_eq!(calls.due(now, nobody), ["a"]);
        // If only the address of a peer is known, the first call shows which node it is.
        calls.name(peers(&["b"]), now, &options);
        assert_eq!(calls.due(now, nobody), ["b"]);
        calls.ended("b", CallEnd::Elsewhere(HELLO), now, &options);
        assert!(calls.due(now + options.reconnect_max, |hello| *hello == HELLO).is_empty());
    }

    #[test]
    fn few_calls_wait_for_an_answer_at_a_time() {
        let (mut calls, options, now) = (Calls::default(), EngineOptions::default(), Instant::now());
        let names: Vec<String> = (0..100).map(|number| format!("{number:02}")).collect();
        calls.name(peers(&names.iter().map(String::as_str).collect::<Vec<_>>()), now, &options);
        assert_eq!(calls.due(now, nobody), names[..AT_A_TIME]);
        assert!(calls.due(now, nobody).is_empty() && calls.rest(now, nobody).is_none());
        // One is a link now, which makes room, and one fails.
        calls.answered("00");
        assert_eq!(calls.rest(now, nobody), Some(Duration::ZERO));
        calls.ended("01", CallEnd::Failed, now, &options);
        assert_eq!(calls.due(now, nobody), names[AT_A_TIME..AT_A_TIME + 2]);
        // Peers that failed follow those that were never called.
        calls.ended("02", CallEnd::Failed, now, &options);
        let later = now + options.reconnect_max;
        assert_eq!(calls.due(later, nobody), names[AT_A_TIME + 2..AT_A_TIME + 3]);
    }

    #[test]
    fn pauses_grow_while_nobody_answers() {
        let (mut calls, options, mut now) = (Calls::default(), EngineOptions::default(), Instant::now());
        calls.name(peers(&["a"]), now, &options);
        let mut pauses = Vec::new();
        for _ in 0..12 {
            assert_eq!(calls.due(now, nobody).len(), 1);
            calls.ended("a", CallEnd::Failed, now, &options);
            let rest = calls.rest(now, nobody).expect("it is called again");
            assert!(calls.due(now, nobody).is_empty());
            pauses.push(rest);
            now += rest;
        }
        assert_eq!((pauses[0], pauses[1]), (options.reconnect_min, options.reconnect_min * 2));
        assert_eq!(pauses[11], options.reconnect_max);
        assert!(calls.is_news("a", "no") && !calls.is_news("a", "no") && calls.is_news("a", "other"));
        assert_eq!(calls.due(now, nobody).len(), 1);
        calls.ended("a", CallEnd::Linked, now, &options);
        assert_eq!(calls.rest(now, nobody), Some(options.reconnect_min));
    }
}
