//! The emulated link as an engine: nodes of one process exchange messages over a network that
//! loses, duplicates, reorders and damages packets, in real time.
//!
//! The engine sends messages as datagrams, over one link in each direction between any two ports of
//! an address. Requests for key frames are datagrams in the opposite direction and can be lost,
//! too. Announcements, answers and documents are not sent through the emulated network: they arrive
//! at once and are never lost, as the contract of [`Port`] requires. A retirement or a goodbye
//! arrives after everything sent before it.
//!
//! Each port has a thread that delivers arrived packets. At most
//! [`EngineOptions::queue_bytes`](polywire::engine::EngineOptions::queue_bytes) may be under way to
//! a port; further messages are dropped, whatever the overflow policy is. They count in [`Sent`]
//! and [`LinkStats`] only: the engine reports no [`Event::Dropped`] and no position, and since it
//! is unordered, subscribers count no gaps. So [`Subscriber::lost`](polywire::Subscriber::lost)
//! does not include what is lost on the network or dropped here.
//!
//! ```
//! use std::time::Duration;
//! use polywire::Node;
//! use polywire_link::Emulated;
//! # #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
//! # struct Pump { id: u32 }
//!
//! static NETWORK: Emulated = Emulated::new(7);
//! let node = || Node::builder().engine(&NETWORK).build();
//! let (here, there) = (node(), node());
//! let pumps = there.subscriber_on::<Pump>("pumps", "auto@emulated/plant delay=5ms,loss=pattern:01")?;
//! let publisher = here.publisher_on::<Pump>("pumps", "cdr@emulated/plant delay=5ms,loss=pattern:01")?;
//! assert_eq!(publisher.wait_for_subscribers(1, Duration::from_secs(10)), 1);
//! for id in 1..=4 {
//!     publisher.publish(&Pump { id })?;
//! }
//! assert!(here.flush(Duration::from_secs(10)));
//! let received: Vec<u32> = std::iter::from_fn(|| pumps.try_recv()).map(|sample| sample.value.id).collect();
//! assert_eq!(received, [1, 3], "every other packet is lost");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod pair;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Weak},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use polywire::{
    engine::{
        Aligned, Disconnect, Engine, EngineError, Event, LinkId, LinkInfo, LinkSink, LinkStats, Loan, Local, Port,
        Principal, Properties, Sent, Sink,
    },
    extend::{
        envelope::{Announcement, ChannelId, Envelope, Id128},
        frame::{Answer, DatagramDecoder, DatagramEncoder, Frame, FrameError, Start},
    },
};
use polywire_core::netsim::{BadModel, Fate, Model};

use self::pair::{Due, Notice, Pair, Side, Wakeup};
use crate::{plan::Plan, shared::Shared};

const EXAMPLE: &str = "test delay=5ms,loss=30%";

/// Packets read from one link before other links have their turn.
const TURN: usize = 64;

/// `emulated/NAME MODEL`: ports of the same address share a network. Each pair of ports has its own
/// links, which follow the [`Model`].
///
/// With the same seed, model and order of ports, the n-th packet of a direction has the same fate
/// in every run. The queue and blackouts also depend on when packets arrive. Register the engine
/// with [`Node::builder().engine(..)`](polywire::node::NodeBuilder::engine). Networks of different
/// seeds are separate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Emulated {
    seed: u64,
}

impl Emulated {
    /// Creates an engine. The seed decides all random choices.
    pub const fn new(seed: u64) -> Emulated {
        Emulated { seed }
    }

    fn model(address: &str) -> Result<Model, EngineError> {
        let wrong = |reason: String| EngineError::Address {
            engine: "emulated",
            address: address.into(),
            reason,
            example: EXAMPLE,
        };
        let (name, model) = address.split_once(' ').ok_or_else(|| wrong("a name and a model are expected".into()))?;
        if name.is_empty() {
            return Err(wrong("the network has no name".into()));
        }
        model.trim().parse().map_err(|error: BadModel| wrong(error.to_string()))
    }
}

impl Engine for Emulated {
    fn name(&self) -> &'static str {
        "emulated"
    }

    fn summary(&self) -> &'static str {
        "Within the process, over links that lose, delay, duplicate and damage messages"
    }

    fn example(&self) -> &'static str {
        EXAMPLE
    }

    fn properties(&self) -> Properties {
        Properties { reliable: false, ordered: false, multicast: false, largest_payload: None, matches: false }
    }

    fn open(&self, address: &str, local: &Local, sink: Arc<dyn Sink>) -> Result<Arc<dyn Port>, EngineError> {
        let model = Emulated::model(address)?;
        let member = Arc::new(Member {
            network: (self.seed, address.into()),
            local: local.clone(),
            sink,
            wakeup: Arc::default(),
            state: Mutex::default(),
        });
        let running = member.clone();
        let failed = |action| move |cause| EngineError::System { endpoint: endpoint(address), action, cause };
        let thread = thread::Builder::new().name("emulated".into()).spawn(move || running.run());
        let thread = Mutex::new(Some(thread.map_err(failed("start a thread"))?));
        let port = Arc::new(EmulatedPort { member, thread });
        let (others, met) = enter(&port.member);
        for (seed, other) in (met..).zip(&others) {
            let plan =
                Plan { there: model.clone(), back: model.clone(), seed: self.seed ^ (seed << 32), ..Plan::default() };
            meet(&port.member, other, Shared::new(plan).map_err(failed("emulate a link"))?);
        }
        Ok(port)
    }
}

fn endpoint(address: &str) -> String {
    format!("emulated/{address}")
}

/// The open ports, by seed and address.
static NETWORKS: Mutex<BTreeMap<(u64, String), Network>> = Mutex::new(BTreeMap::new());

#[derive(Default)]
struct Network {
    members: Vec<Weak<Member>>,
    /// Pairs of ports that have met so far.
    met: u64,
}

/// Adds a port to its network. Returns the ports already there and the previous count of pairs.
fn enter(member: &Arc<Member>) -> (Vec<Arc<Member>>, u64) {
    let mut networks = NETWORKS.lock();
    let network = networks.entry(member.network.clone()).or_default();
    let others: Vec<_> = network.members.iter().filter_map(Weak::upgrade).collect();
    network.members.push(Arc::downgrade(member));
    let met = network.met;
    network.met += others.len() as u64;
    (others, met)
}

fn leave(member: &Arc<Member>) {
    let mut networks = NETWORKS.lock();
    let Some(network) = networks.get_mut(&member.network) else { return };
    network.members.retain(|other| other.as_ptr() != Arc::as_ptr(member));
    if network.members.is_empty() {
        networks.remove(&member.network);
    }
}

fn meet(a: &Arc<Member>, b: &Arc<Member>, network: Shared) {
    let pair = Arc::new(Pair::new(network, [a, b].map(|member| member.wakeup.clone())));
    let at_a = Arc::new(End::new(a, b, &pair, Side::First));
    let at_b = Arc::new(End::new(b, a, &pair, Side::Second));
    // If a port has closed in the meantime, post its end to the other one.
    if !a.add(at_a.clone()) {
        at_a.post(Notice::Down);
    }
    if !b.add(at_b.clone()) {
        at_b.post(Notice::Down);
    }
}

struct EmulatedPort {
    member: Arc<Member>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A port on a network.
struct Member {
    network: (u64, String),
    local: Local,
    sink: Arc<dyn Sink>,
    wakeup: Arc<Wakeup>,
    state: Mutex<Members>,
}

#[derive(Default)]
struct Members {
    ends: Vec<Arc<End>>,
    channels: BTreeMap<ChannelId, (Start, Announcement)>,
    last: u32,
    closed: bool,
}

impl Port for EmulatedPort {
    fn endpoint(&self) -> String {
        endpoint(&self.member.network.1)
    }

    fn announce(&self, announcement: &Announcement, start: Start) -> Result<ChannelId, EngineError> {
        let mut state = self.member.state.lock();
        if state.closed {
            return Err(EngineError::Closed);
        }
        state.last += 1;
        let channel = ChannelId(state.last);
        state.channels.insert(channel, (start, announcement.clone()));
        // Posted while the state is locked, so that a port that joins now gets it exactly once.
        state.ends.iter().for_each(|end| end.post(Notice::Announce(channel, start, Box::new(announcement.clone()))));
        Ok(channel)
    }

    fn reserve(&self, size: usize) -> Loan {
        Loan::new(Vec::with_capacity(size), 0)
    }

    fn commit(&self, envelope: &Envelope<'_>, loan: Loan) -> Result<Sent, EngineError> {
        if !self.member.state.lock().channels.contains_key(&envelope.channel) {
            return Err(EngineError::Channel(envelope.channel));
        }
        let mut sent = Sent::default();
        for end in self.member.ends().iter() {
            let Some(subscribers) = end.wanted(envelope.channel) else { continue };
            match end.send_message(envelope, loan.payload())? {
                true => {
                    sent.peers += 1;
                    sent.subscribers += subscribers as usize;
                }
                false => sent.dropped += 1,
            }
        }
        Ok(sent)
    }

    fn retire(&self, channel: ChannelId) {
        self.member.state.lock().channels.remove(&channel);
        self.member.ends().iter().for_each(|end| end.retire(channel));
    }

    fn answer(&self, link: LinkId, channel: ChannelId, answer: Answer) {
        if let Some(end) = self.member.end(link) {
            end.answer(channel, answer);
        }
    }

    fn want(&self, link: LinkId, document: Id128) {
        if let Some(end) = self.member.end(link) {
            end.post(Notice::Want(document));
        }
    }

    fn supply(&self, link: LinkId, document: Id128, bytes: Option<&[u8]>) {
        if let Some(end) = self.member.end(link) {
            end.post(Notice::Supply(document, bytes.map(<[u8]>::to_vec)));
        }
    }

    fn flush(&self, deadline: Instant) -> bool {
        self.member.flush(deadline)
    }

    fn links(&self) -> Vec<LinkStats> {
        self.member.ends().iter().map(|end| end.stats()).collect()
    }

    fn close(&self) {
        self.member.close();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != thread::current().id()) {
            // An error means that a callback panicked, which was printed.
            let _ = thread.join();
        }
    }
}

impl Drop for EmulatedPort {
    fn drop(&mut self) {
        self.close();
    }
}

impl Member {
    /// Delivers arrived packets until the port is closed.
    fn run(&self) {
        let mut aligned = Aligned::default();
        loop {
            // Read before `closed`: this thread is woken after `closed` was set.
            let count = self.wakeup.count();
            if self.state.lock().closed {
                break;
            }
            let next = self.ends().iter().filter_map(|end| self.deliver(end, &mut aligned)).min();
            self.wakeup.wait(count, next);
        }
        let ends = std::mem::take(&mut self.state.lock().ends);
        ends.iter().for_each(|end| self.lose(end, Disconnect::Closed));
    }

    /// Delivers everything that has arrived over a link. Returns the time until the next arrival.
    fn deliver(&self, end: &End, aligned: &mut Aligned) -> Option<Duration> {
        for taken in 0..TURN {
            match end.pair.due(end.side) {
                Due::Notice(Notice::Down) => {
                    self.state.lock().ends.retain(|known| known.info.id != end.info.id);
                    self.lose(end, Disconnect::Bye);
                    return None;
                }
                Due::Notice(notice) => end.read(notice),
                Due::Packet(packet) => end.open(&packet, aligned),
                Due::In(next) => {
                    if taken > 0 {
                        end.drained();
                    }
                    return next;
                }
            }
        }
        end.drained();
        Some(Duration::ZERO)
    }

    /// Reports the end of a link.
    fn lose(&self, end: &End, reason: Disconnect) {
        end.sink.down();
        self.sink.event(Event::Disconnected { link: end.info.clone(), reason });
        self.wakeup.wake();
    }

    /// Returns false if the port has closed.
    fn add(&self, end: Arc<End>) -> bool {
        let mut state = self.state.lock();
        if state.closed {
            return false;
        }
        for (channel, (start, announcement)) in &state.channels {
            end.post(Notice::Announce(*channel, *start, Box::new(announcement.clone())));
        }
        state.ends.push(end);
        drop(state);
        self.wakeup.wake();
        true
    }

    fn flush(&self, deadline: Instant) -> bool {
        loop {
            let count = self.wakeup.count();
            if self.ends().iter().all(|end| end.pair.is_idle(end.side.other())) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            self.wakeup.wait(count, Some(left));
        }
    }

    fn close(self: &Arc<Self>) {
        if self.state.lock().closed {
            return;
        }
        self.flush(Instant::now() + self.local.options.linger);
        let ends = {
            let mut state = self.state.lock();
            if std::mem::replace(&mut state.closed, true) {
                return;
            }
            state.ends.clone()
        };
        leave(self);
        ends.iter().for_each(|end| end.post(Notice::Down));
        self.wakeup.wake();
    }

    fn ends(&self) -> Vec<Arc<End>> {
        self.state.lock().ends.clone()
    }

    fn end(&self, link: LinkId) -> Option<Arc<End>> {
        self.state.lock().ends.iter().find(|end| end.info.id == link).cloned()
    }
}

/// One port's end of its link to another port.
struct End {
    info: LinkInfo,
    /// Receives what arrives from the other port.
    sink: Arc<dyn LinkSink>,
    pair: Arc<Pair>,
    side: Side,
    encoder: DatagramEncoder,
    decoder: Mutex<DatagramDecoder>,
    /// Maximum number of bytes under way.
    limit: usize,
    state: Mutex<EndState>,
}

#[derive(Default)]
struct EndState {
    /// The other port's answers to our channels: the number of its subscribers to each channel that
    /// it accepts.
    wanted: BTreeMap<ChannelId, u32>,
    /// The other port's channels that we have accepted.
    accepted: BTreeSet<ChannelId>,
    sent: u64,
    dropped: u64,
    /// Arrival time of the last packet sent so far.
    latest: u64,
}

impl End {
    fn new(here: &Member, there: &Member, pair: &Arc<Pair>, side: Side) -> End {
        let (hello, limits) = (here.local.hello, here.local.options.limits);
        let address = endpoint(&there.network.1);
        let info = LinkInfo { id: LinkId::next(), peer: there.local.hello, address, principal: Principal::Process };
        here.sink.event(Event::Connected(info.clone()));
        End {
            sink: here.sink.link(&info),
            info,
            pair: pair.clone(),
            side,
            encoder: DatagramEncoder::new(hello.node, hello.incarnation, limits),
            decoder: Mutex::new(DatagramDecoder::new(limits)),
            limit: here.local.options.queue_bytes,
            state: Mutex::default(),
        }
    }

    /// Sends a message to the other port. Returns false if the message is dropped.
    fn send_message(&self, envelope: &Envelope<'_>, payload: &[u8]) -> Result<bool, FrameError> {
        let taken = self.send(|encoder, out| encoder.data(envelope, payload, out))?;
        let mut state = self.state.lock();
        state.sent += u64::from(taken);
        state.dropped += u64::from(!taken);
        Ok(taken)
    }

    fn send(
        &self,
        write: impl FnOnce(&DatagramEncoder, &mut Vec<u8>) -> Result<(), FrameError>,
    ) -> Result<bool, FrameError> {
        let mut datagram = Vec::new();
        self.encoder.begin(&mut datagram);
        write(&self.encoder, &mut datagram)?;
        self.encoder.finish(&mut datagram);
        let fate = self.pair.push(self.side.other(), datagram, self.limit);
        if let Some(Fate::Arrives(at)) = fate {
            let mut state = self.state.lock();
            state.latest = state.latest.max(at);
        }
        Ok(!matches!(fate, None | Some(Fate::Dropped)))
    }

    /// Sends the other port our answer to its channel. If we have already accepted the channel, a
    /// request for a key frame is a packet that may be lost.
    fn answer(&self, channel: ChannelId, answer: Answer) {
        let is_known = {
            let mut state = self.state.lock();
            match answer.accepts() {
                true => !state.accepted.insert(channel),
                false => state.accepted.remove(&channel),
            }
        };
        if is_known && matches!(answer, Answer::Renew(_)) {
            let request = Frame::Answer { channel, answer };
            // A request that finds no room in the queue is lost, too.
            let _ = self.send(|encoder, out| {
                encoder.control(&request, out);
                Ok(())
            });
        } else {
            self.post(Notice::Answer(channel, answer));
        }
    }

    fn retire(&self, channel: ChannelId) {
        self.state.lock().wanted.remove(&channel);
        self.post(Notice::Retire(channel));
    }

    /// Posts a notice, which always arrives. The end of a channel or port arrives after everything
    /// sent before it.
    fn post(&self, notice: Notice) {
        let waits = matches!(notice, Notice::Retire(_) | Notice::Down);
        let at = if waits { self.state.lock().latest } else { 0 };
        self.pair.post(self.side.other(), notice, at);
    }

    /// Handles what the other port has posted.
    fn read(&self, notice: Notice) {
        match notice {
            Notice::Announce(channel, start, announcement) => self.sink.announced(channel, start, &announcement),
            Notice::Retire(channel) => {
                self.state.lock().accepted.remove(&channel);
                self.sink.retired(channel);
            }
            Notice::Answer(channel, answer) => self.answered(channel, &answer),
            Notice::Want(document) => self.sink.wanted(document),
            Notice::Supply(document, bytes) => self.sink.supplied(document, bytes.as_deref()),
            // `Member::deliver` handles it.
            Notice::Down => {}
        }
    }

    /// Handles packets from the other port. Discards damaged packets, which their checksum reveals.
    fn open(&self, packet: &[u8], aligned: &mut Aligned) {
        let Ok(datagram) = self.decoder.lock().open(packet) else { return };
        for frame in datagram {
            match frame {
                Ok(Frame::Data(envelope, payload)) => self.sink.message(&envelope, aligned.place(payload)),
                Ok(Frame::Answer { channel, answer }) => self.answered(channel, &answer),
                // Ports send nothing else.
                _ => return,
            }
        }
    }

    /// Reports that everything was delivered. A flush at the other port waits for this.
    fn drained(&self) {
        self.sink.drained();
        self.pair.wake(self.side.other());
    }

    fn answered(&self, channel: ChannelId, answer: &Answer) {
        match answer.subscribers() {
            0 => self.state.lock().wanted.remove(&channel),
            subscribers => self.state.lock().wanted.insert(channel, subscribers),
        };
        self.sink.answered(channel, answer);
    }

    fn wanted(&self, channel: ChannelId) -> Option<u32> {
        self.state.lock().wanted.get(&channel).copied()
    }

    fn stats(&self) -> LinkStats {
        let EndState { sent, dropped, .. } = *self.state.lock();
        let queued_bytes = self.pair.under_way_bytes(self.side.other());
        LinkStats { link: self.info.clone(), sent, dropped, queued_bytes, silences: 0 }
    }
}
