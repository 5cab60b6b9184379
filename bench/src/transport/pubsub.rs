//! Polywire's publishers and subscribers at both ends of the latency and throughput measurements.

use std::{
    env,
    net::{TcpListener, UdpSocket},
    process,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use polywire::{Config, Node, Publisher, Subscription, engine};
use polywire_core::layout::Message;
use polywire_workloads::MarketData;

use super::{Family, child::Identity};

/// Longest wait for the other end, after which the measurement panics.
const PATIENCE: Duration = Duration::from_secs(30);

/// Values in a call of [`Flood::turn_together`]. Divides the messages of a turn.
const TOGETHER: usize = 100;

/// The child's end of the latency measurement: publishes every message back.
pub(super) struct Echo<T> {
    _node: Node,
    _subscription: Subscription,
    _type: std::marker::PhantomData<T>,
}

impl<T: Message + Sync> Echo<T> {
    pub(super) fn open(wire: &str) -> Echo<T> {
        let node = Node::new();
        let back: Publisher<T> = node.publisher_on("back", wire).expect("a publisher");
        let subscriber = node.subscribe::<T>("there", Some(wire)).expect("a subscriber");
        let subscription = subscriber.on_message_inline(move |value, _| {
            back.publish(value).expect("published");
        });
        Echo { _node: node, _subscription: subscription, _type: std::marker::PhantomData }
    }
}

/// The parent's end of [`Echo`].
pub(super) struct Ping {
    publisher: Arc<Publisher<MarketData>>,
    message: MarketData,
    state: Arc<Mutex<Turn>>,
    done: mpsc::Receiver<Vec<Duration>>,
    _node: Node,
    _subscription: Subscription,
}

/// The round trips of the current turn. The subscriber's callback starts each one but the first.
struct Turn {
    left: usize,
    start: Instant,
    times: Vec<Duration>,
}

impl Ping {
    pub(super) fn connect(wire: &str, identity: &Identity, message: MarketData) -> Ping {
        let node = node(identity);
        let publisher: Arc<Publisher<MarketData>> = Arc::new(node.publisher_on("there", wire).expect("a publisher"));
        let state = Arc::new(Mutex::new(Turn { left: 0, start: Instant::now(), times: Vec::new() }));
        let (finished, done) = mpsc::channel();
        let (again, turn, expected) = (publisher.clone(), state.clone(), message.clone());
        let subscriber = node.subscribe::<MarketData>("back", Some(wire)).expect("a subscriber");
        let subscription = subscriber.on_message_inline(move |value, _| {
            let mut turn = turn.lock().expect("no thread panicked");
            let took = turn.start.elapsed();
            assert!(*value == expected, "the returned value differs from the sent one");
            turn.times.push(took);
            turn.left -= 1;
            if turn.left == 0 {
                return finished.send(std::mem::take(&mut turn.times)).expect("`turn` waits for the times");
            }
            turn.start = Instant::now();
            again.publish(value).expect("published");
        });
        assert_eq!(publisher.wait_for_subscribers(1, PATIENCE), 1, "the other end does not subscribe");
        let ping = Ping { publisher, message, state, done, _node: node, _subscription: subscription };
        ping.wait_for_the_way_back();
        ping
    }

    /// Makes `rounds` round trips one after the other, and returns their times.
    pub(super) fn turn(&self, rounds: usize) -> Vec<Duration> {
        self.publish(rounds);
        self.done.recv_timeout(PATIENCE).expect("no message is lost")
    }

    fn publish(&self, rounds: usize) {
        let mut turn = self.state.lock().expect("no thread panicked");
        turn.left = rounds;
        turn.times.reserve(rounds);
        turn.start = Instant::now();
        drop(turn);
        self.publisher.publish(&self.message).expect("published");
    }

    /// Publishes until a message comes back. Until the other end's publisher knows this end's
    /// subscriber, its messages do not arrive here.
    fn wait_for_the_way_back(&self) {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            self.publish(1);
            if self.done.recv_timeout(Duration::from_millis(200)).is_ok() {
                return;
            }
        }
        panic!("no message comes back from the other end");
    }
}

/// The child's end of the throughput and fan-out measurements: counts messages, and publishes an
/// answer after each `turn` messages.
pub(super) struct Counter {
    _node: Node,
    _subscription: Subscription,
}

impl Counter {
    /// At the end of a wire that has this role.
    pub(super) fn open(family: Family, role: &str, address: &str, turn: u64) -> Counter {
        let (node, wire) = (Node::new(), family.wire(role, address));
        let back: Publisher<Blob> = node.publisher_on("back", &wire).expect("a publisher");
        let mut received = 0;
        let subscriber = node.subscribe::<Blob>("there", Some(&wire)).expect("a subscriber");
        let subscription = subscriber.on_message_inline(move |value, _| {
            // A message out of order, or after a gap, panics here, so the answer never comes. The
            // number 0 restarts the count, and has an answer too.
            assert!(value.number == 0 || value.number == received + 1, "{} after {received}", value.number);
            received = value.number;
            if received % turn == 0 {
                back.publish(value).expect("published");
            }
        });
        Counter { _node: node, _subscription: subscription }
    }
}

/// A message of any size from 12 bytes on. In CDR it has 8 bytes of number, 4 of length, and
/// `bytes`.
#[derive(Clone, Debug, Default, polywire_derive::Message)]
#[polywire(name = "Bench::Blob", crate = "polywire_core")]
pub(super) struct Blob {
    number: u64,
    bytes: Vec<u8>,
}

impl Blob {
    pub(super) fn of_size(size: usize) -> Blob {
        Blob { number: 0, bytes: vec![7; size - 12] }
    }
}

/// The parent's end of some [`Counter`]s.
pub(super) struct Flood {
    publisher: Publisher<Blob>,
    message: Blob,
    receivers: usize,
    done: mpsc::Receiver<u64>,
    _node: Node,
    _subscription: Subscription,
}

impl Flood {
    pub(super) fn open(family: Family, role: &str, address: &str, identity: &Identity, size: usize) -> Flood {
        let (node, wire) = (node(identity), family.wire(role, address));
        let publisher: Publisher<Blob> = node.publisher_on("there", &wire).expect("a publisher");
        let (finished, done) = mpsc::channel();
        let subscriber = node.subscribe::<Blob>("back", Some(&wire)).expect("a subscriber");
        let subscription = subscriber
            .on_message_inline(move |value, _| finished.send(value.number).expect("`Flood` receives the answers"));
        Flood { publisher, message: Blob::of_size(size), receivers: 0, done, _node: node, _subscription: subscription }
    }

    /// Waits until so many receivers count and answer. Until their publishers know this end's
    /// subscriber, their answers do not arrive here.
    pub(super) fn meet(&mut self, receivers: usize) {
        self.receivers = receivers;
        assert_eq!(self.publisher.wait_for_subscribers(receivers, PATIENCE), receivers, "not all receivers subscribe");
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.publisher.publish(&self.message).expect("published");
            let answers = (0..receivers).map_while(|_| self.done.recv_timeout(Duration::from_millis(500)).ok());
            if answers.count() == receivers {
                break;
            }
            assert!(Instant::now() < deadline, "no answer comes back from the other end");
        }
        // Late answers to earlier messages may still arrive.
        while self.done.recv_timeout(Duration::from_millis(100)).is_ok() {}
    }

    /// Publishes `messages` messages, and returns the time until the last receiver's answer.
    pub(super) fn turn(&mut self, messages: u64) -> Duration {
        let start = Instant::now();
        let first = self.message.number;
        for number in first + 1..=first + messages {
            self.message.number = number;
            self.publisher.publish(&self.message).expect("published");
        }
        self.wait(start)
    }

    /// The same with [`TOGETHER`] messages in each call.
    pub(super) fn turn_together(&mut self, messages: u64) -> Duration {
        let mut some = vec![self.message.clone(); TOGETHER];
        let start = Instant::now();
        for _ in 0..messages / TOGETHER as u64 {
            for message in &mut some {
                self.message.number += 1;
                message.number = self.message.number;
            }
            self.publisher.publish_all(&some).expect("published");
        }
        self.wait(start)
    }

    /// Waits for the last receiver's answer, and returns the time since `start`.
    fn wait(&self, start: Instant) -> Duration {
        for _ in 0..self.receivers {
            assert_eq!(self.done.recv_timeout(PATIENCE), Ok(self.message.number), "no message is lost");
        }
        start.elapsed()
    }
}

fn node(identity: &Identity) -> Node {
    let mut config = Config::default();
    config.engine.identity = engine::Identity::new(&identity.certificate, &identity.key, &identity.authority);
    Node::builder().config(config).build()
}

/// A port that was free a moment ago, or a path in the folder of temporary files. Only children
/// have an address for [`Family::Local`].
pub(super) fn free_address(family: Family) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let local = match family {
        Family::Tcp | Family::Tls => TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()),
        Family::Udp | Family::UdpReliable => UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()),
        // In the folder that the parent removes.
        Family::Local => return Identity::given().authority.with_file_name("local").display().to_string(),
        Family::Unix => {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("polywire-bench-{}-{number}.sock", process::id());
            return env::temp_dir().join(name).display().to_string();
        }
    };
    local.expect("a free port").to_string()
}
