//! Polls the events of a command's node: counts those that affect the exit code, and prints those
//! that the user must see.

use std::{collections::BTreeSet, io, thread, time::Duration};

use polywire::{
    Events, Node, NodeEvent,
    engine::{Disconnect, Event},
};

use crate::terminal::{self, Terminal};

/// How many printed texts are remembered, so that none is printed twice. There is a limit because
/// peers can cause any number of texts.
const SAID: usize = 1024;

/// How often a thread that waits for events wakes up without an event.
const LONG: Duration = Duration::from_secs(3600);

/// The events of a node.
pub struct Watch {
    events: Events,
    /// Texts that have been printed, at most [`SAID`].
    said: BTreeSet<String>,
    /// The number of mismatches: writers that cannot be read here.
    pub mismatches: u64,
    /// The number of refusals: remote subscribers that cannot read what is published here.
    pub refusals: u64,
    /// The number of messages that could not be decoded.
    pub undecodable: u64,
    /// The number of messages that were lost.
    pub lost: u64,
    /// The number of links that broke.
    pub broken: u64,
    /// The number of messages, sent over broken links, that the other end had not confirmed.
    pub unconfirmed: u64,
    /// The endpoint at which unconfirmed messages are sent again.
    resends: Option<String>,
}

impl Watch {
    /// Makes the watch. Must be called before any other use of the node, so that no event is
    /// missed.
    pub fn new(node: &Node) -> Watch {
        Watch {
            events: node.events(),
            said: BTreeSet::new(),
            mismatches: 0,
            refusals: 0,
            undecodable: 0,
            lost: 0,
            broken: 0,
            unconfirmed: 0,
            resends: None,
        }
    }

    /// Handles the events since the last call.
    pub fn poll(&mut self, terminal: &Terminal) {
        while let Some(event) = self.events.try_recv() {
            self.take(&event, terminal);
        }
    }

    /// Handles events on a thread of its own, for a command that sleeps while nothing happens.
    /// Unconfirmed messages at the endpoint `resends` are not reported, because the command sends
    /// them again.
    pub fn aside(node: &Node, resends: Option<String>) -> io::Result<()> {
        let mut watch = Watch { resends, ..Watch::new(node) };
        let run = move || {
            let terminal = Terminal::new(false);
            loop {
                if let Some(event) = watch.events.recv_timeout(LONG) {
                    watch.take(&event, &terminal);
                }
            }
        };
        thread::Builder::new().name("watch".into()).spawn(run).map(drop)
    }

    fn take(&mut self, event: &NodeEvent, terminal: &Terminal) {
        match event {
            NodeEvent::Mismatch { .. } => self.mismatches += 1,
            NodeEvent::Refused { .. } => self.refusals += 1,
            NodeEvent::Undecodable { total, .. } => self.undecodable = *total,
            NodeEvent::Lost { total, .. } => self.lost = *total,
            // The connection was lost before it became a link. The connecting side tries again.
            NodeEvent::Engine { event: Event::Rejected { reason: Disconnect::Lost(_), .. }, .. } => return,
            NodeEvent::Engine { endpoint, event: Event::Unconfirmed { .. } }
                if self.resends.as_ref() == Some(endpoint) =>
            {
                return;
            }
            NodeEvent::Engine { event: Event::Unconfirmed { count, .. }, .. } => self.unconfirmed += count,
            NodeEvent::Engine { event: Event::Disconnected { reason, .. }, .. } => {
                self.broken += u64::from(!matches!(reason, Disconnect::Bye | Disconnect::Closed));
                return;
            }
            NodeEvent::Denied { .. } => {}
            NodeEvent::Engine {
                event:
                    Event::Exposed { .. }
                    | Event::Renewed { .. }
                    | Event::Ignored { .. }
                    | Event::Withheld { .. }
                    | Event::Silent { .. },
                ..
            } => {}
            NodeEvent::Engine { event: Event::Unreachable { .. } | Event::Rejected { .. }, .. } => {}
            _ => return,
        }
        self.say(event, terminal);
    }

    /// Returns the last reason since the previous call why a peer could not be reached or was
    /// rejected. The text is appended to the message that no peer was found.
    pub fn trouble(&mut self) -> String {
        let mut last = String::new();
        while let Some(event) = self.events.try_recv() {
            if let NodeEvent::Engine { event: Event::Unreachable { .. } | Event::Rejected { .. }, .. } = event {
                last = format!(" ({event})");
            }
        }
        last
    }

    /// Prints each text once. Prints nothing if the log is enabled, because the log shows the
    /// events.
    fn say(&mut self, event: &NodeEvent, terminal: &Terminal) {
        let text = event.to_string();
        if terminal::is_verbose() || !self.said.insert(text.clone()) {
            return;
        }
        if self.said.len() > SAID {
            self.said.clear();
        }
        match event {
            NodeEvent::Mismatch { .. } | NodeEvent::Refused { .. } | NodeEvent::Undecodable { .. } => {
                terminal.error(&text);
            }
            _ => terminal.warning(&text),
        }
    }
}
