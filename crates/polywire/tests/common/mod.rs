//! Shared by several test files: waiting, addresses for each engine, and a test node that records
//! what its port delivers.
#![allow(dead_code, reason = "each test file uses a part")]

use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use polywire::engine::{self, Engine, EngineOptions, Event, LinkId, LinkInfo, LinkSink, Local, Port, Sent, Sink};
use polywire_core::{
    envelope::{Announcement, ChannelId, Envelope, Id128},
    frame::{Answer, Hello, Start},
};

#[path = "../../examples/fifo/engine.rs"]
pub mod fifo;
#[cfg(feature = "tls")]
pub mod fleet;

/// Longer than anything takes that a test waits for.
pub const SOON: Duration = Duration::from_secs(20);

/// Waits until `done`, and fails with `what` if that does not come.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + SOON;
    while !done() {
        assert!(Instant::now() < until, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Waits for an event of a kind.
pub fn find<T>(events: &mpsc::Receiver<Event>, wanted: impl Fn(Event) -> Option<T>) -> T {
    let until = Instant::now() + SOON;
    loop {
        let event = events.recv_timeout(until.saturating_duration_since(Instant::now())).expect("the event");
        if let Some(found) = wanted(event) {
            return found;
        }
    }
}

/// Options with which every engine opens: those over TLS need an identity.
pub fn options() -> EngineOptions {
    #[allow(unused_mut, reason = "without TLS")]
    let mut options = EngineOptions::default();
    #[cfg(feature = "tls")]
    {
        static MEMBER: OnceLock<(fleet::Fleet, fleet::Member)> = OnceLock::new();
        let (_, member) = MEMBER.get_or_init(|| {
            let fleet = fleet::Fleet::new();
            let member = fleet.member(&["member", "127.0.0.1"]);
            (fleet, member)
        });
        options.identity = engine::Identity::new(&member.certificate, &member.key, &member.authority);
    }
    options
}

/// How many callers this process can hold: 5000, or what the limit of open files allows.
pub fn connections() -> usize {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    // A caller that was sent away has one file; the port's own peers and other tests have some.
    usize::try_from(files / 2).unwrap_or(usize::MAX).min(5000)
}

/// The document that every [`Tap`] supplies.
pub const DOCUMENT: &[u8] = &[9; 1 << 20];

/// A node without types: opens a port and records everything that comes.
#[derive(Default)]
pub struct Tap {
    port: OnceLock<Arc<dyn Port>>,
    /// Accepts every channel at once, for one subscriber.
    accepts: bool,
    /// While set, calls from the port block, which holds up the link.
    pub is_stuck: AtomicBool,
    heard: Mutex<Heard>,
    pub count: AtomicU64,
    pub lost: AtomicU64,
    pub accepted: AtomicU64,
    pub announced: AtomicU64,
    events: Mutex<Option<mpsc::Sender<Event>>>,
}

/// Everything that came, in order.
#[derive(Clone, Default)]
pub struct Heard {
    pub announced: Vec<(LinkId, ChannelId)>,
    pub answered: usize,
    pub messages: Vec<Message>,
    /// Positions that report losses: up to which sequence number, and how many.
    pub lost: Vec<(u64, u64)>,
    pub retired: usize,
    pub supplied: Vec<(Id128, Option<Vec<u8>>)>,
    pub down: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    pub channel: ChannelId,
    pub sequence: u64,
    pub payload: Vec<u8>,
}

struct TapSink(Weak<Tap>);
struct TapLink(Weak<Tap>, LinkId);

impl Tap {
    /// A node that accepts every channel, on an engine built in.
    pub fn open(engine: &str, address: &str, options: EngineOptions) -> (Arc<Tap>, mpsc::Receiver<Event>) {
        Tap::on(engine::find(engine).expect("an engine"), address, options, true)
    }

    /// A node on any engine, which accepts every channel or leaves that to [`Tap::answer`].
    pub fn on(
        engine: &dyn Engine,
        address: &str,
        options: EngineOptions,
        accepts: bool,
    ) -> (Arc<Tap>, mpsc::Receiver<Event>) {
        // Peers of a mesh tell nodes apart by their ids.
        static NODES: AtomicU64 = AtomicU64::new(1);
        let mut node = [7; 16];
        node[..8].copy_from_slice(&NODES.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        Tap::as_node(engine, address, Hello { node: Id128(node), incarnation: 1 }, options, accepts)
    }

    /// A node that introduces itself so.
    pub fn as_node(
        engine: &dyn Engine,
        address: &str,
        hello: Hello,
        options: EngineOptions,
        accepts: bool,
    ) -> (Arc<Tap>, mpsc::Receiver<Event>) {
        let (sender, events) = mpsc::channel();
        let tap = Arc::new(Tap { accepts, events: Mutex::new(Some(sender)), ..Tap::default() });
        let local = Local { hello, name: "tap".into(), options };
        let port = engine.open(address, &local, Arc::new(TapSink(Arc::downgrade(&tap)))).expect("a port");
        // An engine may announce channels before `open` returns: those are answered here.
        let early = {
            let heard = tap.heard();
            assert!(tap.port.set(port).is_ok());
            heard.announced.clone()
        };
        early
            .iter()
            .filter(|_| accepts)
            .for_each(|(link, channel)| tap.port().answer(*link, *channel, Answer::Accept(1)));
        (tap, events)
    }

    /// A sink without a node, which ignores all calls.
    pub fn nobody() -> Arc<dyn Sink> {
        Arc::new(TapSink(Weak::new()))
    }

    pub fn port(&self) -> &Arc<dyn Port> {
        self.port.wait()
    }

    pub fn address(&self) -> String {
        self.port().endpoint().split_once('/').expect("an address").1.into()
    }

    pub fn announce(&self, topic: &str, writer: u8) -> ChannelId {
        let announcement = Announcement { topic: topic.into(), writer: Id128([writer; 16]), ..Announcement::default() };
        let channel = self.port().announce(&announcement, Start::default()).expect("a channel");
        self.port().settle();
        channel
    }

    pub fn publish(&self, channel: ChannelId, sequence: u64, payload: &[u8]) -> Sent {
        let sent = self.port().send(&Envelope::data(channel, sequence, 0), payload).expect("sent");
        self.port().settle();
        sent
    }

    /// Answers the channel that was announced as the `number`-th, from 1.
    pub fn answer(&self, number: usize, answer: Answer) {
        let (link, channel) = self.until("announcements", |heard| heard.announced.get(number - 1).copied());
        self.port().answer(link, channel, answer);
        self.port().settle();
    }

    pub fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().expect("heard")
    }

    /// Waits until `found` finds something in the record.
    pub fn until<T>(&self, what: &str, found: impl Fn(&Heard) -> Option<T>) -> T {
        let until = Instant::now() + SOON;
        loop {
            if let Some(found) = found(&self.heard()) {
                return found;
            }
            assert!(Instant::now() < until, "no {what}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until a count has reached `least`, or some time has passed; returns the count.
    pub fn wait(&self, what: &AtomicU64, least: u64) -> u64 {
        let until = Instant::now() + SOON;
        while what.load(Ordering::SeqCst) < least && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        what.load(Ordering::SeqCst)
    }
}

impl Sink for TapSink {
    fn link(&self, link: &LinkInfo) -> Arc<dyn LinkSink> {
        Arc::new(TapLink(self.0.clone(), link.id))
    }

    fn event(&self, event: Event) {
        if let Some(tap) = self.0.upgrade() {
            let _ = tap.events.lock().expect("events").as_ref().expect("set").send(event);
        }
    }
}

impl TapLink {
    fn note(&self, note: impl FnOnce(&Tap, &mut Heard)) {
        let Some(tap) = self.0.upgrade() else { return };
        while tap.is_stuck.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
        note(&tap, &mut tap.heard());
    }
}

impl LinkSink for TapLink {
    fn announced(&self, channel: ChannelId, _: Start, _: &Announcement) {
        let mut port = None;
        self.note(|tap, heard| {
            heard.announced.push((self.1, channel));
            tap.announced.fetch_add(1, Ordering::SeqCst);
            port = tap.port.get().filter(|_| tap.accepts).cloned();
        });
        if let Some(port) = port {
            port.answer(self.1, channel, Answer::Accept(1));
        }
    }

    fn message(&self, envelope: &Envelope<'_>, payload: &[u8]) {
        assert_eq!(payload.as_ptr().addr() % 8, 0);
        let (channel, sequence, payload) = (envelope.channel, envelope.sequence, payload.to_vec());
        self.note(|tap, heard| {
            heard.messages.push(Message { channel, sequence, payload });
            tap.count.fetch_add(1, Ordering::SeqCst);
        });
    }

    fn position(&self, _: ChannelId, start: Start, lost: u64) {
        self.note(|tap, heard| {
            heard.lost.extend((lost > 0).then_some((start.sequence, lost)));
            tap.lost.fetch_add(lost, Ordering::SeqCst);
        });
    }

    fn retired(&self, _: ChannelId) {
        self.note(|_, heard| heard.retired += 1);
    }

    fn answered(&self, _: ChannelId, answer: &Answer) {
        self.note(|tap, heard| {
            heard.answered += 1;
            tap.accepted.fetch_add(u64::from(answer.accepts()), Ordering::SeqCst);
        });
    }

    fn wanted(&self, document: Id128) {
        let Some(tap) = self.0.upgrade() else { return };
        tap.port().supply(self.1, document, Some(DOCUMENT));
    }

    fn supplied(&self, document: Id128, bytes: Option<&[u8]>) {
        self.note(|_, heard| heard.supplied.push((document, bytes.map(<[u8]>::to_vec))));
    }

    fn drained(&self) {}

    fn down(&self) {
        self.note(|_, heard| heard.down += 1);
    }
}
