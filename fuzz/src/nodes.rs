//! Targets for whole nodes: a peer talks to one over a byte stream or in UDP packets. What it says
//! reaches every part of the node that faces peers: sessions, documents, decoders, histories, the
//! descriptions and statistics of nodes. The engines over byte streams differ only in where the
//! bytes come from; `shm` hands them over in samples of any size.

use crate::talk::{self, Pump};
use polywire::{
    Node, NodeEvent,
    coding::Discovered,
    directory::{NODE_TOPIC, STATS_TOPIC},
    engine::{
        Engine, EngineError, Event, Local, Port, Properties, Sink,
        stream::{self, ByteStream, Connection, Listener, Role, Transport},
    },
    qos::Qos,
    stats::NodeStats,
};
use polywire_core::{
    frame::{Frame, StreamEncoder, put_datagram_frame},
    multicast::{Config, Member, Reliability},
    schema::arbitrary::Random,
};
use polywire_testing::mutated;
use std::{
    collections::BTreeMap,
    io,
    net::{Shutdown, UdpSocket},
    panic,
    sync::{
        Arc, Mutex, Once,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// No input takes that long.
const LONGEST: Duration = Duration::from_secs(15);

/// A number for the sizes of pieces, and a stream with defects.
pub fn stream_bytes(random: &mut Random) -> Vec<u8> {
    let (mut encoder, mut bytes) = (StreamEncoder::default(), Vec::new());
    encoder.hello(&talk::HELLO, &mut bytes);
    let hello = bytes.len();
    talk::frames(random, &mut |frame| put(&mut encoder, frame, &mut bytes));
    if random.one_in(3) {
        let damaged = mutated(random, &bytes[hello..]);
        bytes.splice(hello.., damaged);
    }
    bytes.insert(0, random.bits() as u8);
    bytes
}

/// Writes a frame as the encoder's state wants it. What that refuses is left out.
fn put(encoder: &mut StreamEncoder, frame: &Frame<'_>, out: &mut Vec<u8>) {
    match frame {
        Frame::Announce { start, announcement, .. } => drop(encoder.announce(announcement, *start, out)),
        Frame::Retire { channel } => drop(encoder.retire(*channel, out)),
        Frame::Position { channel, start, lost } => drop(encoder.position(*channel, *start, *lost, out)),
        Frame::Data(envelope, payload) => {
            if encoder.data(envelope, payload.len(), out).is_ok() {
                out.extend_from_slice(payload);
            }
        }
        other => encoder.control(other, out),
    }
}

/// A node reads a stream to its end. It must break the link off or follow it, without a panic in
/// any of its threads, and close in time.
pub fn read_stream(input: &[u8]) {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let (piece, bytes) = input.split_first().unwrap_or((&0, &[]));
    let address = NUMBER.fetch_add(1, Ordering::Relaxed).to_string();
    let script =
        Script { bytes: bytes.into(), piece: 1 + usize::from(*piece) * 16, at: Mutex::new(0), ..Script::default() };
    scripts().insert(address.clone(), Arc::new(script));
    unharmed(|node| {
        let events = node.events();
        use_node(node, &format!("scripted/{address}"));
        let until = Instant::now() + LONGEST;
        loop {
            match events.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Some(NodeEvent::Engine { event: Event::Disconnected { .. } | Event::Rejected { .. }, .. }) => return,
                Some(event) => assert!(!event.to_string().is_empty()),
                None => panic!("the link has not ended"),
            }
        }
    });
}

/// Frames with defects, each with its length in front.
pub fn record_bytes(random: &mut Random) -> Vec<u8> {
    let (mut input, mut frames) = (Vec::new(), Vec::new());
    talk::frames(random, &mut |frame| {
        let mut bytes = Vec::new();
        put_datagram_frame(frame, &mut bytes);
        frames.push(bytes);
    });
    for frame in frames {
        let frame = if random.one_in(3) { mutated(random, &frame) } else { frame };
        input.extend((frame.len() as u16).to_le_bytes());
        input.extend(frame);
    }
    input
}

/// A peer whose packets are right sends a node these frames by UDP. The node must take or drop
/// them, without a panic in any of its threads, and close in time.
pub fn read_records(input: &[u8]) {
    unharmed(|node| {
        let endpoint = node.open("udp-reliable/127.0.0.1:0").expect("a port");
        use_node(node, &endpoint);
        let address = endpoint.rsplit_once('/').map(|(_, address)| address).expect("an address");
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.connect(address).expect("an address of this machine");
        socket.set_read_timeout(Some(Duration::from_millis(1))).expect("a time-out");
        let mut rest = input;
        let records = std::iter::from_fn(|| {
            let (length, after) = rest.split_first_chunk::<2>()?;
            let record = after.get(..usize::from(u16::from_le_bytes(*length))).unwrap_or(after);
            rest = after.get(record.len()..).unwrap_or_default();
            Some(record)
        });
        send_all(&socket, records);
    });
}

/// Sends records until the node has taken them, or does not listen to this peer any more.
fn send_all<'a>(socket: &UdpSocket, mut records: impl Iterator<Item = &'a [u8]>) {
    let mut peer = Member::new(Config { is_pair: true, ..Config::default() }, talk::HELLO, 7);
    let (start, mut all, mut packet) = (Instant::now(), false, [0; 2048]);
    while !(all && peer.is_taken()) && start.elapsed() < Duration::from_secs(2) {
        while !all && peer.has_room() {
            match records.next() {
                Some(record) => drop(peer.send(None, Reliability::Reliable, record, 0, start.elapsed())),
                None => all = true,
            }
        }
        let mut out = Vec::new();
        while peer.poll_transmit(start.elapsed(), &mut out) {
            // The node may have closed its socket.
            let _ = socket.send(&out);
        }
        if let Ok(length) = socket.recv(&mut packet) {
            let _ = peer.handle_datagram(packet.get(..length).unwrap_or_default(), start.elapsed());
        }
        while peer.poll_event(start.elapsed()).is_some() {}
    }
}

/// Publishers and subscribers of all kinds at an endpoint. They stay until the node closes.
pub fn use_node(node: &Node, endpoint: &str) {
    let at = Some(endpoint);
    let records = Discovered::new().expect("a coding");
    for topic in ["plant/**", NODE_TOPIC] {
        let all = node.subscribe_of(topic, at, records.clone()).expect("a subscriber");
        std::mem::forget(all.on_message_inline(|record, info| drop(format!("{record:?} {info:?}"))));
    }
    let late = Qos::default().transient_local().keep_last(2);
    let pumps = node.subscribe::<Pump>("plant/pump", at).expect("a subscriber").qos(late.clone()).expect("offered");
    std::mem::forget(pumps.instances().on_message_inline(|_, _| {}));
    let stats = node.subscribe::<NodeStats>(STATS_TOPIC, at).expect("a subscriber");
    std::mem::forget(stats.on_message_inline(|stats, _| drop(stats.prometheus())));
    let publish = node.publish::<Pump>("plant/valve", at).expect("a publisher").qos(late).expect("offered");
    let publisher = publish.open().expect("a publisher");
    publisher.publish(&Pump::default()).expect("published");
    std::mem::forget(publisher);
}

/// Runs `work` with a node, and closes it. Panics if a thread has panicked meanwhile.
pub fn unharmed(work: impl FnOnce(&Node)) {
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    static COUNTING: Once = Once::new();
    COUNTING.call_once(|| {
        let tell = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICS.fetch_add(1, Ordering::SeqCst);
            tell(info);
        }));
    });
    let before = PANICS.load(Ordering::SeqCst);
    let node = Node::builder().engine(&Scripted).fetch_timeout(Duration::from_millis(20)).build();
    let directory = node.directory();
    work(&node);
    assert!(directory.snapshot().pairs().count() <= 1000, "few publishers meet few subscribers");
    while let Some(event) = directory.try_recv() {
        assert!(!format!("{event:?}").is_empty());
    }
    drop(directory);
    node.close();
    assert_eq!(PANICS.load(Ordering::SeqCst), before, "a thread panicked");
}

/// An engine whose peers say what a script has.
struct Scripted;

/// What a peer says, once.
#[derive(Default)]
struct Script {
    bytes: Vec<u8>,
    piece: usize,
    at: Mutex<usize>,
    is_closed: AtomicBool,
}

static SCRIPTS: Mutex<BTreeMap<String, Arc<Script>>> = Mutex::new(BTreeMap::new());

fn scripts() -> std::sync::MutexGuard<'static, BTreeMap<String, Arc<Script>>> {
    SCRIPTS.lock().expect("nobody panics with it")
}

impl Engine for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn summary(&self) -> &'static str {
        "A peer with a script"
    }

    fn example(&self) -> &'static str {
        "1"
    }

    fn properties(&self) -> Properties {
        stream::PROPERTIES
    }

    fn open(&self, address: &str, local: &Local, sink: Arc<dyn Sink>) -> Result<Arc<dyn Port>, EngineError> {
        stream::open(Place(address.into()), Role::Connect, local, sink)
    }
}

struct Place(String);

impl Transport for Place {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn endpoint(&self) -> String {
        format!("scripted/{}", self.0)
    }

    fn listen(&self) -> io::Result<Arc<dyn Listener>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn connect(&self) -> io::Result<Connection> {
        let script = scripts().remove(&self.0).ok_or(io::ErrorKind::NotFound)?;
        Ok(Connection { stream: script, address: self.0.clone(), host: None })
    }
}

impl ByteStream for Script {
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut at = self.at.lock().expect("nobody panics with it");
        let left = self.bytes.get(*at..).filter(|_| !self.is_closed.load(Ordering::Acquire)).unwrap_or_default();
        let count = left.len().min(self.piece).min(buffer.len());
        buffer[..count].copy_from_slice(&left[..count]);
        *at += count;
        Ok(count)
    }

    fn set_read_timeout(&self, _: Option<Duration>) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self.is_closed.load(Ordering::Acquire) {
            true => Err(io::ErrorKind::BrokenPipe.into()),
            false => Ok(bytes.len()),
        }
    }

    fn wait_writable(&self, timeout: Duration) {
        thread::sleep(timeout.min(Duration::from_millis(1)));
    }

    fn shutdown(&self, _: Shutdown) {
        self.is_closed.store(true, Ordering::Release);
    }
}
