//! Which peers of a mesh are to be called, and when. A table that is given the time; it calls
//! nobody.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use polywire_core::frame::Hello;

use super::transport::Peer;
use crate::engine::EngineOptions;

/// The peers that the rendezvous names, by address.
#[derive(Default)]
pub(super) struct Calls(BTreeMap<String, Call>);

struct Call {
    /// Who answers there, as far as known.
    hello: Option<Hello>,
    /// The rendezvous still names it.
    is_named: bool,
    /// A thread calls it, or has a link to it.
    is_under_way: bool,
    next: Instant,
    pause: Duration,
    /// The last error that the node was told.
    told: String,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallEnd {
    /// It was a link.
    Linked,
    /// The peer introduced itself, and there is another link to it.
    Elsewhere(Hello),
    /// Nobody answered.
    Failed,
}

impl Calls {
    /// Takes over what the rendezvous names: at most `most` peers.
    pub(super) fn name(&mut self, peers: Vec<Peer>, now: Instant, options: &EngineOptions) {
        self.0.values_mut().for_each(|call| call.is_named = false);
        for peer in peers.into_iter().take(options.peers) {
            let call = self.0.entry(peer.address).or_insert_with(|| Call {
                hello: None,
                is_named: true,
                is_under_way: false,
                next: now,
                pause: options.reconnect_min,
                told: String::new(),
            });
            call.is_named = true;
            call.hello = peer.hello.or(call.hello);
        }
        self.0.retain(|_, call| call.is_named || call.is_under_way);
    }

    /// The addresses to call now, except those of nodes that `linked` knows. Each is under way
    /// until [`Calls::ended`].
    pub(super) fn due(&mut self, now: Instant, linked: impl Fn(&Hello) -> bool) -> Vec<String> {
        let waits = |call: &Call| call.is_named && !call.is_under_way && call.next <= now;
        let due = self.0.iter_mut().filter(|(_, call)| waits(call) && !call.hello.as_ref().is_some_and(&linked));
        due.map(|(address, call)| {
            call.is_under_way = true;
            address.clone()
        })
        .collect()
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

    /// Whether the node should hear of this error: it differs from the last one at the address.
    pub(super) fn is_news(&mut self, address: &str, reason: &str) -> bool {
        self.0.get_mut(address).is_some_and(|call| std::mem::replace(&mut call.told, reason.into()) != reason)
    }

    /// Time until the next call is due. `None` if none is waiting.
    pub(super) fn rest(&self, now: Instant, linked: impl Fn(&Hello) -> bool) -> Option<Duration> {
        let waiting = |call: &&Call| call.is_named && !call.is_under_way && !call.hello.as_ref().is_some_and(&linked);
        self.0.values().filter(waiting).map(|call| call.next.saturating_duration_since(now)).min()
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
        // Of one that is known by its address alone, the first call tells who it is.
        calls.name(peers(&["b"]), now, &options);
        assert_eq!(calls.due(now, nobody), ["b"]);
        calls.ended("b", CallEnd::Elsewhere(HELLO), now, &options);
        assert!(calls.due(now + options.reconnect_max, |hello| *hello == HELLO).is_empty());
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
