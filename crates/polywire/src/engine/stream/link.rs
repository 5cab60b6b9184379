//! One connection: introductions, then reading until it ends.

use std::{
    io::{self, Read},
    net::Shutdown,
    sync::Arc,
    thread,
    time::Instant,
};

use polywire_core::{
    envelope::ChannelId,
    frame::{Frame, Hello, Step, StreamDecoder, StreamEncoder},
};
use socket2::Socket;

use super::{
    Aligned, Shared,
    inbox::Inbox,
    outbox::{Outbox, Payload},
    relay::Relayed,
};
use crate::engine::{Disconnect, Event, LinkInfo, LinkSink, LinkStats};

/// What is read at a time while frames are small.
const READ_BYTES: usize = 128 << 10;

/// A connection whose ends know each other.
pub(super) struct Link {
    pub(super) info: LinkInfo,
    pub(super) outbox: Outbox,
    socket: Arc<Socket>,
}

impl Link {
    /// Sends what waits and a goodbye, and nothing after that.
    pub(super) fn say_goodbye(&self, deadline: Instant) {
        self.outbox.flush(deadline);
        self.outbox.control(&Frame::Bye);
        self.outbox.flush(deadline);
        // Fails where the connection is gone, which is what is wanted.
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    pub(super) fn stats(&self) -> LinkStats {
        let tally = self.outbox.tally();
        LinkStats {
            link: self.info.clone(),
            sent: tally.sent,
            dropped: tally.dropped,
            queued_bytes: tally.queued_bytes,
        }
    }
}

impl Shared {
    /// Lives through a connection. True if the peer introduced itself. Of a caller that goes without having said a word nothing is told: it
    /// only looked whether someone listens, as nodes do before they take a path over, and tools that watch services.
    pub(super) fn serve(self: &Arc<Self>, socket: Socket, address: String, calling: bool) -> bool {
        let socket = Arc::new(socket);
        let number = self.stop.watch_stranger(&socket);
        let mut reader = Reader {
            socket: socket.clone(),
            decoder: StreamDecoder::new(self.local.options.limits),
            inbox: Inbox::new(READ_BYTES),
            heard: false,
        };
        let peer = self.greet(&mut reader, calling);
        let served = match peer {
            Ok(peer) if self.stop.established(number) => {
                self.live(reader, peer, address);
                true
            }
            Ok(_) => false,
            Err(reason) => {
                let only_looked = !calling && !reader.heard && matches!(reason, Disconnect::Lost(_));
                if !self.stop.is_set() && !only_looked {
                    self.sink.event(Event::Rejected { address, reason });
                }
                false
            }
        };
        self.stop.forget(number);
        served
    }

    fn greet(&self, reader: &mut Reader, calling: bool) -> Result<Hello, Disconnect> {
        let lost = |e: io::Error| Disconnect::Lost(e.to_string());
        let socket = reader.socket.clone();
        self.family.tune(&socket, &self.local.options).map_err(lost)?;
        if calling && is_own_end(&socket) {
            return Err(Disconnect::Itself);
        }
        let mut hello = Vec::new();
        StreamEncoder::default().hello(&self.local.hello, &mut hello);
        io::Write::write_all(&mut &*socket, &hello).map_err(lost)?;
        let deadline = Instant::now() + self.local.options.hello_timeout;
        loop {
            let step = match reader.decoder.step(reader.inbox.bytes())? {
                Step::Need(need) => Err(need),
                Step::Frame { frame: Frame::Hello(peer), used } => Ok((peer, used)),
                Step::Frame { .. } => return Err(Disconnect::Silent),
            };
            match step {
                Ok((peer, used)) => {
                    reader.inbox.consume(used);
                    socket.set_read_timeout(None).map_err(lost)?;
                    return Ok(peer);
                }
                Err(need) => reader.inbox.prepare(need, READ_BYTES),
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Disconnect::Silent);
            }
            socket.set_read_timeout(Some(left)).map_err(lost)?;
            reader.read().map_err(|e| match e {
                Disconnect::Lost(_) if Instant::now() >= deadline => Disconnect::Silent,
                e => e,
            })?;
        }
    }

    fn live(self: &Arc<Self>, mut reader: Reader, peer: Hello, address: String) {
        let info = self.link_info(peer, address);
        let outbox = Outbox::new(reader.socket.clone(), &self.local.options);
        let link = Arc::new(Link { info: info.clone(), outbox, socket: reader.socket.clone() });
        let Some(flusher) = self.start_flusher(&link) else {
            let reason = Disconnect::Lost("no thread to write with".into());
            return self.sink.event(Event::Disconnected { link: info, reason });
        };
        let sink = self.sink.link(&info);
        self.join_links(&link);
        self.sink.event(Event::Connected(info.clone()));
        let mut receiver = Receiver { shared: self, link: &link, sink: &*sink, relayed: Relayed::default() };
        let reason = receiver.run(&mut reader);
        self.leave_links(&link);
        link.outbox.break_off();
        // It may hold the last reference to what users gave; it has no more to say.
        let _ = reader.socket.shutdown(Shutdown::Both);
        let _ = flusher.join();
        sink.down();
        let reason = if self.stop.is_set() { Disconnect::Closed } else { reason };
        self.sink.event(Event::Disconnected { link: info, reason });
    }

    fn start_flusher(&self, link: &Arc<Link>) -> Option<thread::JoinHandle<()>> {
        let (link, sink) = (link.clone(), self.sink.clone());
        let run = move || {
            link.outbox.run_flusher(|(topic, count)| {
                sink.event(Event::Dropped { link: link.info.clone(), topic: (*topic).into(), count });
            });
        };
        thread::Builder::new().name(self.thread_name("write")).spawn(run).ok()
    }
}

/// A connection to one's own end happens when a system lends the port that is called to the caller.
fn is_own_end(socket: &Socket) -> bool {
    let ends = (socket.local_addr().ok(), socket.peer_addr().ok());
    matches!(ends, (Some(local), Some(peer)) if local.as_socket().is_some() && local.as_socket() == peer.as_socket())
}

struct Reader {
    socket: Arc<Socket>,
    decoder: StreamDecoder,
    inbox: Inbox,
    /// A byte came.
    heard: bool,
}

impl Reader {
    fn read(&mut self) -> Result<(), Disconnect> {
        loop {
            match (&*self.socket).read(self.inbox.room()) {
                Ok(0) => return Err(Disconnect::Lost("the peer closed without goodbye".into())),
                Ok(count) => {
                    self.inbox.filled(count);
                    self.heard = true;
                    return Ok(());
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Disconnect::Lost(e.to_string())),
            }
        }
    }
}

/// What a link's frames lead to.
struct Receiver<'a> {
    shared: &'a Arc<Shared>,
    link: &'a Link,
    sink: &'a dyn LinkSink,
    relayed: Relayed,
}

impl Receiver<'_> {
    fn run(&mut self, reader: &mut Reader) -> Disconnect {
        let mut aligned = Aligned::default();
        loop {
            match self.take_frames(reader, &mut aligned) {
                Ok(need) => reader.inbox.prepare(need, READ_BYTES),
                Err(reason) => return reason,
            }
            self.sink.drained();
            if reader.inbox.bytes().is_empty() {
                reader.inbox.shrink(READ_BYTES);
            }
            if let Err(reason) = reader.read() {
                return reason;
            }
        }
    }

    /// Handles every whole frame; gives the bytes that the next one needs.
    #[inline]
    fn take_frames(&mut self, reader: &mut Reader, aligned: &mut Aligned) -> Result<usize, Disconnect> {
        loop {
            match reader.decoder.step(reader.inbox.bytes())? {
                Step::Need(need) => return Ok(need),
                Step::Frame { frame: Frame::Data(envelope, payload), used } => {
                    let header = used - payload.len();
                    if !self.shared.stop.is_set() {
                        self.relay(&envelope, payload);
                        let place = aligned.place(payload);
                        match reader.inbox.held(header, payload.len()) {
                            Some(held) => self.sink.message_held(&envelope, place, held),
                            None => self.sink.message(&envelope, place),
                        }
                    }
                    reader.inbox.learn(header);
                    reader.inbox.consume(used);
                }
                Step::Frame { frame, used } => {
                    self.handle(frame)?;
                    reader.inbox.consume(used);
                }
            }
        }
    }

    #[inline]
    fn relay(&self, envelope: &polywire_core::envelope::Envelope<'_>, payload: &[u8]) {
        if let Some(channel) = self.relayed.get(envelope.channel) {
            let envelope = polywire_core::envelope::Envelope { channel, ..*envelope };
            // A message that came over this link fits the others, which have the same limits.
            let _ = self.shared.distribute(&envelope, &mut Payload::Bytes(payload), Some(self.link.info.id));
        }
    }

    fn handle(&mut self, frame: Frame<'_>) -> Result<(), Disconnect> {
        let id = self.link.info.id;
        match frame {
            Frame::Announce { channel, start, announcement } => {
                self.announced(channel, start, &announcement);
                self.sink.announced(channel, start, &announcement);
            }
            Frame::Answer { channel, answer } => {
                if let Some(channel) = self.link.outbox.answered(channel, &answer)
                    && !self.shared.answered_there(id, channel, &answer)
                {
                    self.sink.answered(channel, &answer);
                }
            }
            Frame::Retire { channel } => {
                if let Some(ours) = self.relayed.remove(channel) {
                    self.shared.retire_channel(ours);
                }
                self.sink.retired(channel);
            }
            Frame::Position { channel, start, lost } => {
                if let Some(ours) = self.relayed.get(channel) {
                    self.shared.relay_loss(ours, start, lost, id);
                }
                self.sink.position(channel, start, lost);
            }
            Frame::Want { document } => self.sink.wanted(document),
            Frame::Document { document, bytes } => {
                self.shared.supply_elsewhere(document, bytes);
                self.sink.supplied(document, bytes);
            }
            Frame::Bye => return Err(Disconnect::Bye),
            _ => {}
        }
        Ok(())
    }

    fn announced(
        &mut self,
        channel: ChannelId,
        start: polywire_core::frame::Start,
        announcement: &polywire_core::envelope::Announcement,
    ) {
        let origin = Some((self.link.info.id, channel));
        if self.shared.relays()
            && let Ok(ours) = self.shared.open_channel(origin, announcement, start)
        {
            self.relayed.insert(channel, ours);
        }
    }
}
