//! Keeps the port of a mesh connected: calls every peer that the rendezvous names and that this
//! node has no link to.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    calls::CallEnd,
    shared::{PeerSource, Shared},
};
use crate::engine::Event;

/// Longest time between two queries of the rendezvous, in case it has missed a change.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// Pause after the rendezvous has failed to name the peers.
const AFTER_ERROR: Duration = Duration::from_secs(1);

impl Shared {
    /// Calls peers until the port closes.
    pub(super) fn call_peers(self: &Arc<Self>) {
        let PeerSource::Mesh(rendezvous) = &self.peer_source else { return };
        let waking = self.clone();
        let number = self.stop.watch(move || {
            if let PeerSource::Mesh(rendezvous) = &waking.peer_source {
                rendezvous.wake();
            }
        });
        let mut told = String::new();
        while !self.stop.is_set() {
            match rendezvous.peers() {
                Ok(peers) => {
                    told.clear();
                    self.calls.lock().name(peers, Instant::now(), &self.local.options);
                }
                Err(error) => self.tell_peer_source(&error, &mut told),
            }
            let is_linked = |hello: &_| *hello == self.local.hello || self.link_slots.has(hello);
            let due = self.calls.lock().due(Instant::now(), is_linked);
            due.into_iter().for_each(|address| self.start_call(address));
            let rest = self.calls.lock().rest(Instant::now(), is_linked);
            let most = if told.is_empty() { LOOK_AGAIN } else { AFTER_ERROR };
            rendezvous.wait(rest.unwrap_or(most).min(most));
        }
        self.stop.forget(number);
    }

    fn start_call(self: &Arc<Self>, address: String) {
        let (thread, to) = (self.clone(), address.clone());
        let started = self.threads.start(self.thread_name("read"), move || thread.call(&to));
        if started.is_err() {
            self.end_call(&address, CallEnd::Failed);
        }
    }

    /// Calls one peer, and serves the link for as long as it lasts.
    fn call(self: &Arc<Self>, address: &str) {
        let PeerSource::Mesh(rendezvous) = &self.peer_source else { return };
        let end = match rendezvous.connect(address) {
            Ok(connection) => {
                self.calls.lock().answered(address);
                let served = self.serve(connection, None);
                match served.peer {
                    Some(_) if served.was_link => CallEnd::Linked,
                    Some(peer) => CallEnd::Elsewhere(peer),
                    None => CallEnd::Failed,
                }
            }
            Err(error) => {
                self.tell_call(address, &error);
                CallEnd::Failed
            }
        };
        self.end_call(address, end);
        rendezvous.wake();
    }

    fn end_call(&self, address: &str, end: CallEnd) {
        self.calls.lock().ended(address, end, Instant::now(), &self.local.options);
    }

    fn tell_call(&self, address: &str, error: &io::Error) {
        let has_gone = matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused);
        let reason = format!("{address}: {error}");
        if !has_gone && self.calls.lock().is_news(address, &reason) {
            self.sink.event(Event::Unreachable { endpoint: self.peer_source.endpoint(), reason });
        }
    }

    fn tell_peer_source(&self, error: &io::Error, told: &mut String) {
        let reason = error.to_string();
        if *told != reason {
            self.sink.event(Event::Unreachable { endpoint: self.peer_source.endpoint(), reason: reason.clone() });
            *told = reason;
        }
    }
}
