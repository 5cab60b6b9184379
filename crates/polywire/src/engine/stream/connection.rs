//! Runs on a connection's reading thread: exchanges hello frames, then handles frames until the
//! connection ends.

use std::{
    cmp::Ordering,
    io,
    net::Shutdown,
    sync::{Arc, atomic},
    thread,
    time::{Duration, Instant},
};

use polywire_core::{
    envelope::{Announcement, ChannelId, Envelope},
    frame::{Answer, Frame, FrameError, Hello, Start, Step, StreamDecoder, StreamEncoder},
};

use super::{
    accepted::{AcceptedId, Standing},
    channels::RelayedChannels,
    confirmations::Confirmations,
    inbox::{Aligned, Inbox},
    link::Link,
    link_slots::LinkSlot,
    outbox::{Outbox, Report},
    shared::{PeerSource, Shared},
    transport::{ByteStream, Connection},
};
use crate::engine::{Action, Disconnect, EngineError, Event, LinkInfo, LinkSink, Principal, Sent};

/// Size of the receive buffer while frames are small.
const READ_BYTES: usize = 128 << 10;
/// Small messages that arrive together are handed to the sink in one call: at most this many.
const TOGETHER: usize = 32;
/// The largest payload of a small message, in bytes.
const SMALL: usize = 1 << 10;
/// How long a peer may request answers and documents without reading those that were sent.
const REPLIES_PATIENCE: Duration = Duration::from_secs(10);

/// The result of a connection that has ended.
pub(super) struct Served {
    /// The peer's hello, if it arrived.
    pub(super) peer: Option<Hello>,
    /// The connection was a link.
    pub(super) was_link: bool,
}

impl Shared {
    /// Serves a connection until it ends. An accepted connection that the peer closes without
    /// having sent a byte causes no event: nodes probe a path that way before they take it over,
    /// and so do tools that monitor services. A second connection between two nodes of a mesh
    /// causes no event either.
    pub(super) fn serve(self: &Arc<Self>, connection: Connection, accepted_id: Option<AcceptedId>) -> Served {
        let Connection { stream, address, host } = connection;
        let caller = host.filter(|_| accepted_id.is_some());
        let (calling, accepted_id) = (accepted_id.is_none(), accepted_id.unwrap_or_default());
        let cut = stream.clone();
        let number = self.stop.watch(move || cut.shutdown(Shutdown::Both));
        let mut reader = Reader {
            stream,
            decoder: StreamDecoder::new(self.local.options.limits),
            inbox: Inbox::new(READ_BYTES),
            heard: false,
        };
        let met = self.greet(&mut reader, calling);
        let peer = met.as_ref().ok().copied();
        let met = met.and_then(|peer| Ok((peer, self.take_link_slot(&mut reader, &peer)?)));
        let met = met.and_then(|met| reader.upgrade(self.local.options.hello_timeout).map(|()| met));
        let mut was_link = false;
        match met {
            Ok((peer, _slot)) if self.stop.established(number) => {
                self.accepted_connections.rise(accepted_id, Standing::Idle);
                self.linked(caller, &address);
                self.live(reader, peer, address, accepted_id);
                was_link = true;
            }
            Ok(_) => {}
            Err(reason) => {
                // A peer that has shown a certificate has sent bytes, but the TLS stream has
                // consumed them.
                let has_sent = reader.heard || matches!(reader.stream.principal(), Principal::Certificate(_));
                let only_looked = !calling && !has_sent && matches!(reason, Disconnect::Lost(_));
                let reason =
                    if self.accepted_connections.is_displaced(accepted_id) { Disconnect::Displaced } else { reason };
                if !self.stop.is_set() && !only_looked && reason != Disconnect::Replaced {
                    self.reject(caller, address, reason);
                }
            }
        }
        self.stop.forget(number);
        self.accepted_connections.leave(accepted_id);
        if let PeerSource::Mesh(rendezvous) = &self.peer_source {
            // The mesh thread may have to call the peer again.
            rendezvous.wake();
        }
        Served { peer, was_link }
    }

    /// Sends this node's hello and returns the peer's.
    fn greet(&self, reader: &mut Reader, calling: bool) -> Result<Hello, Disconnect> {
        let lost = |e: io::Error| Disconnect::Lost(e.to_string());
        let stream = reader.stream.clone();
        if calling && stream.is_own_end() {
            return Err(Disconnect::Itself);
        }
        let mut hello = Vec::new();
        StreamEncoder::default().hello(&self.local.hello, &mut hello);
        // The send buffer of a new connection has room for these few bytes.
        let written = stream.write(&hello).map_err(lost)?;
        if written < hello.len() {
            return Err(Disconnect::Lost("the hello could not be sent at once".into()));
        }
        reader.first(Instant::now() + self.local.options.hello_timeout, |frame| match frame {
            Frame::Hello(peer) => Ok(peer),
            _ => Err(Disconnect::Silent),
        })
    }

    /// Agrees with the peer of a mesh whether this connection becomes the one link between the two
    /// nodes.
    fn take_link_slot(&self, reader: &mut Reader, peer: &Hello) -> Result<Option<LinkSlot<'_>>, Disconnect> {
        let PeerSource::Mesh(_) = &self.peer_source else { return Ok(None) };
        let rank = |hello: &Hello| (hello.node, hello.incarnation);
        let until = Instant::now() + self.local.options.hello_timeout;
        let slot = match rank(&self.local.hello).cmp(&rank(peer)) {
            Ordering::Equal => return Err(Disconnect::Itself),
            Ordering::Less => {
                let slot = self.link_slots.take(peer, &reader.stream, |_| self.is_silent(peer), until);
                let mut decision = Vec::new();
                let frame = if slot.is_some() { Frame::Heartbeat } else { Frame::Bye };
                StreamEncoder::default().control(&frame, &mut decision);
                // Only the hello was written before these two bytes, so there is room. If this
                // process was suspended and did not answer in time, the peer has closed the
                // connection by now.
                reader.stream.write(&decision).map_err(|e| Disconnect::Lost(e.to_string()))?;
                slot
            }
            Ordering::Greater => {
                reader.first(until, |frame| match frame {
                    Frame::Heartbeat => Ok(()),
                    Frame::Bye => Err(Disconnect::Replaced),
                    _ => Err(Disconnect::Silent),
                })?;
                self.link_slots.take(peer, &reader.stream, |is_same| is_same || self.is_silent(peer), until)
            }
        };
        slot.map(Some).ok_or(Disconnect::Replaced)
    }

    /// Returns whether the link to the peer's node is silent. The link may have another incarnation
    /// of the node: incarnations are times, and the clock may have been set back before the node
    /// restarted.
    fn is_silent(&self, peer: &Hello) -> bool {
        self.links().iter().any(|link| link.info.peer.node == peer.node && link.outbox.peer_liveliness.is_silent())
    }

    fn live(self: &Arc<Self>, mut reader: Reader, peer: Hello, address: String, accepted_id: AcceptedId) {
        let info = self.link_info(peer, address, reader.stream.principal());
        let outbox = Outbox::new(reader.stream.clone(), &self.local.options, self.pace.clone());
        let sink = self.sink.link(&info);
        let (stream, began) = (reader.stream.clone(), Instant::now());
        let link = Link { info: info.clone(), outbox, stream, sink: sink.clone(), began };
        let link = Arc::new(link);
        let Some(flusher) = self.start_flusher(&link) else {
            sink.down();
            let reason = Disconnect::Lost("cannot start the thread that writes".into());
            return self.sink.event(Event::Disconnected { link: info, reason });
        };
        link.outbox.promise();
        if self.relays() {
            link.outbox.control(&Frame::Relay);
        }
        self.join_links(&link);
        self.assured_linked();
        self.sink.event(Event::Connected(info.clone()));
        let others = self.others_to(&link);
        others.iter().filter(|other| other.outbox.peer_liveliness.is_silent()).for_each(|other| other.outbox.replace());
        let mut receiver = Receiver {
            shared: self,
            link: &link,
            sink: &*sink,
            relayed_channels: RelayedChannels::default(),
            accepted_id,
            is_active: false,
            confirmations: Confirmations::new(),
        };
        let reason = receiver.run(&mut reader);
        let reason = if self.accepted_connections.is_displaced(accepted_id) { Disconnect::Displaced } else { reason };
        // In this order, so that no message of an assured channel is lost: a publisher that still
        // sends on this link finds it broken and retains the message. Later messages wait.
        link.outbox.break_off();
        // A peer that ends the link itself after the goodbye has read everything sent before.
        let has_read = matches!(reason, Disconnect::Bye);
        // A port that closes sends nothing again.
        let to_resend = if self.stop.is_set() { 0 } else { self.relay_ended(&link, has_read) };
        self.leave_links(&link);
        // The flusher may hold the last reference to the sink, so it has to end before `down`.
        reader.stream.shutdown(Shutdown::Both);
        let _ = flusher.join();
        sink.down();
        let reason = if self.stop.is_set() { Disconnect::Closed } else { reason };
        let count = link.outbox.unconfirmed().saturating_sub(to_resend);
        let is_read = match reason {
            Disconnect::Closed => !self.stop.is_cut(),
            _ => has_read,
        };
        if count > 0 && !is_read {
            self.sink.event(Event::Unconfirmed { link: info.clone(), count });
        }
        self.sink.event(Event::Disconnected { link: info, reason });
    }

    /// Returns the other links to the node at the end of `link`. A node whose address has changed
    /// connects again. Its former link, which is silent, would last until TCP gives up.
    fn others_to(&self, link: &Link) -> Vec<Arc<Link>> {
        let LinkInfo { id, peer, .. } = &link.info;
        let is_other = |other: &&Arc<Link>| other.info.peer.node == peer.node && other.info.id != *id;
        self.links().iter().filter(is_other).cloned().collect()
    }

    fn start_flusher(self: &Arc<Self>, link: &Arc<Link>) -> Option<thread::JoinHandle<()>> {
        let (link, shared) = (link.clone(), self.clone());
        let run = move || {
            let info = || link.info.clone();
            link.outbox.run_flusher(|report| {
                shared.sink.event(match report {
                    Report::Dropped((topic, count)) => Event::Dropped { link: info(), topic: (*topic).into(), count },
                    Report::Silent(lease) => {
                        // Only a connection made after this link was last heard replaces it.
                        let is_new = |other: &Arc<Link>| {
                            other.began.elapsed() < lease && !other.outbox.peer_liveliness.is_silent()
                        };
                        if shared.others_to(&link).iter().any(is_new) {
                            link.outbox.replace();
                        }
                        Event::Silent { link: info(), lease }
                    }
                    Report::Heard => Event::Heard(info()),
                });
            });
        };
        thread::Builder::new().name(self.thread_name("write")).spawn(run).ok()
    }
}

struct Reader {
    stream: Arc<dyn ByteStream>,
    decoder: StreamDecoder,
    inbox: Inbox,
    /// A byte has arrived.
    heard: bool,
}

impl Reader {
    /// Waits for the next frame of a connection that is being set up, and returns what `wanted`
    /// makes of it. Fails if the frame does not arrive before `deadline`.
    fn first<T>(
        &mut self,
        deadline: Instant,
        wanted: impl Fn(Frame<'_>) -> Result<T, Disconnect>,
    ) -> Result<T, Disconnect> {
        let lost = |e: io::Error| Disconnect::Lost(e.to_string());
        loop {
            let step = self.decoder.step(self.inbox.bytes());
            if step.is_err() && is_tls(self.inbox.bytes()) {
                return Err(Disconnect::Untrusted(NO_TLS_HERE.into()));
            }
            let need = match step? {
                Step::Need(need) => need,
                Step::Frame { frame, used } => {
                    let wanted = wanted(frame)?;
                    self.inbox.consume(used);
                    self.stream.set_read_timeout(None).map_err(lost)?;
                    return Ok(wanted);
                }
            };
            self.inbox.prepare(need);
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Disconnect::Silent);
            }
            self.stream.set_read_timeout(Some(left)).map_err(lost)?;
            if !self.read()? {
                return Err(Disconnect::Silent);
            }
        }
    }

    fn upgrade(&self, patience: Duration) -> Result<(), Disconnect> {
        self.stream.upgrade(patience).map_err(|error| Disconnect::Lost(error.to_string()))
    }

    /// Reads bytes into the inbox. Returns false if nothing arrives within the stream's time-out.
    fn read(&mut self) -> Result<bool, Disconnect> {
        loop {
            match self.stream.read(self.inbox.room()) {
                Ok(0) => return Err(Disconnect::Lost("the peer closed without goodbye".into())),
                Ok(count) => {
                    self.inbox.filled(count);
                    self.heard = true;
                    return Ok(true);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // Not `TimedOut`: the system reports it if the peer no longer answers keep-alive
                // probes.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                    return Err(Disconnect::Untrusted(e.to_string()));
                }
                Err(e) => return Err(Disconnect::Lost(e.to_string())),
            }
        }
    }
}

const NO_TLS_HERE: &str = "the peer speaks TLS, and this node does not: use tls/ instead of tcp/, or give it an \
     identity for lan/";

/// Returns whether these are the first bytes of TLS: a handshake or an alert, of version 3.
fn is_tls(bytes: &[u8]) -> bool {
    matches!(bytes, [0x15 | 0x16, 3, ..])
}

/// Handles the frames of one link.
struct Receiver<'a> {
    shared: &'a Arc<Shared>,
    link: &'a Link,
    sink: &'a dyn LinkSink,
    relayed_channels: RelayedChannels,
    accepted_id: AcceptedId,
    /// The peer has announced or accepted a channel.
    is_active: bool,
    confirmations: Confirmations,
}

impl Receiver<'_> {
    fn run(&mut self, reader: &mut Reader) -> Disconnect {
        let mut aligned = Aligned::default();
        self.link.outbox.peer_liveliness.received();
        loop {
            match self.take_frames(reader, &mut aligned) {
                Ok(need) => reader.inbox.prepare(need),
                Err(reason) => return reason,
            }
            self.sink.drained();
            if reader.inbox.bytes().is_empty() {
                reader.inbox.shrink();
            }
            if let Err(reason) = self.read(reader) {
                return self.link.outbox.reason().unwrap_or(reason);
            }
        }
    }

    #[inline]
    fn read(&mut self, reader: &mut Reader) -> Result<(), Disconnect> {
        self.confirmations.confirm(self.shared, self.link);
        self.link.outbox.peer_liveliness.reads();
        while !reader.read()? {
            self.confirmations.idle(self.shared, self.link);
        }
        self.link.outbox.peer_liveliness.received();
        Ok(())
    }

    /// Handles every complete frame. Returns how many bytes the next one needs.
    #[inline]
    fn take_frames(&mut self, reader: &mut Reader, aligned: &mut Aligned) -> Result<usize, Disconnect> {
        loop {
            let Reader { decoder, inbox, .. } = reader;
            let (mut used, step) = self.take_small(decoder, inbox);
            match step? {
                Step::Need(need) => {
                    inbox.consume(used);
                    return Ok(need);
                }
                Step::Frame { frame: Frame::Data(envelope, payload), used: more } => {
                    let header = more - payload.len();
                    self.confirmations.messages += 1;
                    let mut relayed = Vec::new();
                    let stops = self.shared.stop.is_set();
                    if !stops && (!self.has_others() || self.is_taken(&envelope, payload, &mut relayed)) {
                        self.relay(&relayed);
                        let place = aligned.place(payload);
                        match inbox.held(used + header, payload.len()) {
                            Some(held) => self.sink.message_held(&envelope, place, held),
                            None => self.sink.message(&envelope, place),
                        }
                    }
                    used += more;
                    inbox.learn(header);
                    inbox.consume(used);
                }
                Step::Frame { frame, used: more } => {
                    self.handle(frame)?;
                    used += more;
                    inbox.consume(used);
                    // Checked before the next frame: a peer that does not read its answers must not
                    // request many more.
                    if !self.link.outbox.replies_leave(REPLIES_PATIENCE) {
                        return Err(Disconnect::Unread);
                    }
                }
            }
        }
    }

    /// Hands the small messages at the front of the inbox to the sink. Returns the size of their
    /// frames in bytes, and the decoder's next step after them.
    #[inline]
    fn take_small<'b>(
        &mut self,
        decoder: &mut StreamDecoder,
        inbox: &'b Inbox,
    ) -> (usize, Result<Step<'b>, FrameError>) {
        let (bytes, mut used, has_others) = (inbox.bytes(), 0, self.has_others());
        let (mut small, mut relayed): (Vec<(Envelope<'_>, &[u8])>, Vec<_>) = (Vec::new(), Vec::new());
        loop {
            let other = loop {
                let rest = bytes.get(used..).unwrap_or_default();
                used += decoder.messages(rest, TOGETHER - small.len(), SMALL, &mut small);
                if small.len() == TOGETHER {
                    break None;
                }
                match decoder.step(bytes.get(used..).unwrap_or_default()) {
                    Ok(Step::Frame { frame: Frame::Data(envelope, payload), used: more }) if payload.len() <= SMALL => {
                        small.push((envelope, payload));
                        used += more;
                    }
                    other => break Some(other),
                }
            };
            self.confirmations.messages += small.len() as u64;
            if self.shared.stop.is_set() {
                small.clear();
            }
            if has_others {
                small.retain(|(envelope, payload)| self.is_taken(envelope, payload, &mut relayed));
                self.relay(&relayed);
                relayed.clear();
            }
            if !small.is_empty() {
                self.sink.messages(&small);
                small.clear();
            }
            if let Some(other) = other {
                return (used, other);
            }
        }
    }

    /// Returns whether the port has links to which this link's messages may be relayed. Asked once
    /// for messages that have arrived together, since loading the list of links takes about a tenth
    /// of the time of a small message. A link that joins meanwhile gets the messages that arrive
    /// later.
    #[inline]
    fn has_others(&self) -> bool {
        !self.relayed_channels.is_empty() && self.shared.links().len() > 1
    }

    /// Returns whether the sink gets a message of a port with other links: the peer may send it.
    /// Adds the message to `relayed` if the port relays the channel.
    fn is_taken<'m>(
        &self,
        envelope: &Envelope<'m>,
        payload: &'m [u8],
        relayed: &mut Vec<(Envelope<'m>, &'m [u8])>,
    ) -> bool {
        let Some(channel) = self.relayed_channels.get(envelope.channel) else { return true };
        let is_admitted = self.sink.admits(payload.len());
        if is_admitted {
            relayed.push((Envelope { channel, ..*envelope }, payload));
        }
        is_admitted
    }

    /// Relays messages to the other links.
    #[inline]
    fn relay(&self, messages: &[(Envelope<'_>, &[u8])]) {
        if !messages.is_empty() {
            // Fails only for messages that are too large. All links have the limits of this one.
            let _ = self.shared.distribute_all_now(messages, Some(self.link.info.id), &mut Sent::default());
        }
    }

    fn handle(&mut self, frame: Frame<'_>) -> Result<(), Disconnect> {
        let id = self.link.info.id;
        match frame {
            Frame::Announce { channel, start, announcement } => {
                self.is_useful();
                self.announced(channel, start, &announcement);
                self.sink.announced(channel, start, &announcement);
            }
            Frame::Answer { channel, answer } => {
                if answer != Answer::Decline
                    && let Some(topic) = self.link.outbox.denied_topic(channel)
                {
                    self.sink.denied(Action::Subscribe, &topic);
                }
                if answer.accepts() {
                    self.is_useful();
                }
                if let Some(channel) = self.link.outbox.answered(channel, &answer)
                    && !self.shared.answered_there(id, channel, &answer)
                {
                    self.sink.answered(channel, &answer);
                }
                self.shared.assured.news();
            }
            Frame::Retire { channel } => {
                if let Some(ours) = self.relayed_channels.remove(channel) {
                    self.shared.retire_channel(ours);
                }
                self.sink.retired(channel);
            }
            Frame::Position { channel, start, lost } => {
                if let Some(ours) = self.relayed_channels.get(channel) {
                    self.shared.relay_loss(ours, start, lost, id);
                }
                self.sink.position(channel, start, lost);
            }
            Frame::Want { document } => self.sink.wanted(document),
            Frame::Document { document, bytes } => {
                self.shared.supply_elsewhere(id, document, bytes);
                self.sink.supplied(document, bytes);
            }
            Frame::Taken { messages } => {
                self.link.outbox.confirmed(messages);
                self.shared.assured_confirmed(self.link);
            }
            // A port that listens ignores this frame, since it has other peers.
            Frame::Relay if !self.shared.listens.load(atomic::Ordering::Acquire) => {
                self.link.outbox.relayed();
                self.shared.assured.relayed();
            }
            Frame::Lease { milliseconds } => self.link.outbox.promised(milliseconds),
            Frame::Bye => return Err(Disconnect::Bye),
            _ => {}
        }
        Ok(())
    }

    /// Notes that the peer publishes or subscribes, so that a full port displaces idle peers first.
    fn is_useful(&mut self) {
        if !std::mem::replace(&mut self.is_active, true) {
            self.shared.accepted_connections.rise(self.accepted_id, Standing::Active);
        }
    }

    fn announced(&mut self, channel: ChannelId, start: Start, announcement: &Announcement) {
        if !self.shared.relays() || self.sink.permits(Action::Publish, &announcement.topic).is_err() {
            return;
        }
        match self.shared.open_channel(Some((self.link.info.id, channel)), announcement, start) {
            Ok(ours) => self.relayed_channels.insert(channel, ours),
            Err(EngineError::Closed) => {}
            Err(reason) => self.shared.withhold(&self.link.info, &announcement.topic, &reason.to_string()),
        }
    }
}
