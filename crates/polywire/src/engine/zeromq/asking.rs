//! The thread that asks publishers whether they are nodes, and answers nodes that ask. It never
//! waits for this node.

use std::{
    os::fd::AsFd as _,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use polywire_zeromq::{ConnectionEvent, Context, Error, Kind, Message, Monitor, Socket, Wait, wait};

use super::{
    super::{EngineOptions, Event},
    address::SocketEndpoint,
    card::Card,
    shared::{Shared, connecting},
};

/// The maximum time between two checks of the sockets.
const TICK: Duration = Duration::from_millis(250);
/// The maximum length of an answer in bytes. Answers of later versions may be longer than a card.
const LONGEST: usize = 4096;

/// A socket by which this node asks at one endpoint.
pub(super) struct Asking {
    number: usize,
    socket: Socket,
    monitor: Monitor,
    is_connected: bool,
    /// When the port reports that nobody publishes there. `None` if it does not have to.
    missed_at: Option<Instant>,
}

impl Asking {
    pub(super) fn new(
        context: &Context,
        number: usize,
        endpoint: &SocketEndpoint,
        question: &str,
        options: &EngineOptions,
    ) -> Result<Asking, Error> {
        let socket = context.socket(Kind::Sub)?;
        connecting(&socket, options)?;
        socket.set_longest_frame(LONGEST)?;
        socket.subscribe(question.as_bytes())?;
        let monitor = socket.monitor()?;
        socket.connect(&endpoint.to_string())?;
        // libzmq reports no events of `inproc` connections.
        let is_connected = matches!(endpoint, SocketEndpoint::Inproc(_));
        let missed_at = (!is_connected).then(|| Instant::now() + options.connect_timeout);
        Ok(Asking { number, socket, monitor, is_connected, missed_at })
    }

    /// Receives the publisher's card, if one has arrived.
    fn read(&self) -> Result<Option<Card>, Error> {
        let (mut topic, mut card, mut rest) = (Message::new(), Message::new(), Message::new());
        let mut found = None;
        while self.socket.receive(&mut topic, Wait::No)? {
            let mut has_more = topic.has_more() && self.socket.receive(&mut card, Wait::No)? && {
                found = Card::parse(&card).or(found);
                card.has_more()
            };
            while has_more {
                has_more = self.socket.receive(&mut rest, Wait::No)? && rest.has_more();
            }
        }
        Ok(found)
    }
}

impl Shared {
    /// Asks and answers until the port closes.
    pub(super) fn ask(self: &Arc<Self>, mut asking: Vec<Asking>) {
        while !self.is_closing.load(Ordering::Acquire) {
            let sockets: Vec<&Socket> = asking.iter().flat_map(|one| [&one.socket, one.monitor.socket()]).collect();
            let changed = self.publish_socket.as_ref().map(|socket| socket.changed.as_fd());
            let descriptors: Vec<_> = [self.asking.as_fd()].into_iter().chain(changed).collect();
            let done = wait(&sockets, &descriptors, TICK).and_then(|_| {
                self.asking.clear();
                self.publish_socket.as_ref().map_or(Ok(()), |socket| socket.look())?;
                asking.iter_mut().try_for_each(|one| self.look_at(one))
            });
            if let Err(error) = done {
                log::warn!("{}: {error}", self.endpoint);
                std::thread::sleep(TICK);
            }
            // The last drops are reported although no later one follows.
            self.report_drops();
        }
    }

    fn look_at(&self, one: &mut Asking) -> Result<(), Error> {
        while let Some(event) = one.monitor.next()? {
            one.is_connected = event == ConnectionEvent::Connected;
            if !one.is_connected && self.finder.disconnected(one.number) {
                self.intake.wake();
            }
        }
        if let Some(card) = one.read()?
            && self.finder.answered(one.number, card)
        {
            self.intake.wake();
        }
        if one.is_connected {
            one.missed_at = None;
        } else if one.missed_at.is_some_and(|at| Instant::now() >= at) {
            one.missed_at = None;
            let endpoint = self.finder.endpoints.get(one.number).map(ToString::to_string).unwrap_or_default();
            let reason = format!("nobody publishes at {endpoint}");
            self.sink.event(Event::Unreachable { endpoint: self.endpoint.clone(), reason });
        }
        Ok(())
    }
}
