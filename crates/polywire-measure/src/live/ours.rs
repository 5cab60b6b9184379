//! Live measurements of Polywire's own engines. The sender is a node with a publisher for each
//! topic; each subscriber is a node of its own. `engines` calls [`connect`] and [`receive`].

use std::{
    env, fs,
    net::{TcpListener, UdpSocket},
    path::PathBuf,
    process,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use polywire::{DynPublisher, Info, Node, Record, Subscription, coding::Dynamic, extend::envelope::Id128};

use super::{
    carrier::Carrier,
    clock::PATIENCE,
    loaded::{self, Load},
    peer::Peer,
    receivers::{Arrivals, Receivers, Traffic, note},
    setup::{Setup, free_domain, shapes},
};
use crate::{
    buffers::{Buffers, Side},
    scenario::Place,
    subject::Subject,
};

/// Prefix of topic names; a number follows.
const THERE: &str = "there";

/// The engine `shm` with readers that do not sleep.
pub const SPINNING: &str = "shm-spin";

/// The engine `tcp`, tuned for thin streams.
pub const THIN: &str = "tcp-thin";

/// The topic of the echoes.
const BACK: &str = "back";

/// Opens the sender's node, starts the other end and waits for all subscribers.
pub fn connect(mut setup: Setup, subject: &Subject, place: Place) -> Result<(Box<dyn Carrier>, Peer), String> {
    if setup.templates.is_some() {
        return Err("templates are not supported on Polywire's engines; use the mode `stages` or a raw socket".into());
    }
    if setup.codec.contains('@') {
        return Err(
            "codecs with `@` are not supported on Polywire's engines; use the mode `stages` or a raw socket".into()
        );
    }
    setup.address = free_address(&setup.engine)?;
    let folder = is_mesh(&setup.engine).then(|| Folder(setup.address.clone().into()));
    let node = node(&setup, |buffers| buffers.sender)?;
    let wire = wire(&setup, "listen");
    let publisher = |topic: String| node.publisher_of(&topic, Some(&wire), subject.coding.clone()).map_err(error_text);
    let publishers: Arc<[DynPublisher]> = topics(&setup).map(publisher).collect::<Result<_, _>>()?;
    let load = Arc::new(Mutex::new(None));
    let (finished, done) = mpsc::channel();
    let turn = Arc::new(Mutex::new(Turn::new()));
    let subscription = match setup.echo {
        false => None,
        true => {
            let back = Back {
                subscribers: setup.subscribers,
                // Within one process, an echo arrives before `publish` returns, so rounds that are
                // started by echoes would be a recursion.
                chains: setup.engine != "inproc",
                publishers: publishers.clone(),
                turn: turn.clone(),
                load: load.clone(),
                finished,
            };
            let subscribe = node.subscribe_of(BACK, Some(&wire), subject.coding.clone()).map_err(error_text)?;
            Some(subscribe.on_message_inline(move |_, info| back.came(info)))
        }
    };
    let peer = Peer::start(&setup, place, receive)?;
    for publisher in &*publishers {
        let there = publisher.wait_for_subscribers(setup.subscribers, PATIENCE);
        if there != setup.subscribers {
            return Err(format!("{there} of {} subscribers connected", setup.subscribers));
        }
    }
    let carrier = Ours {
        subscribers: setup.subscribers,
        publishers,
        next: 0,
        turn,
        load,
        done,
        is_chain: setup.engine != "inproc",
        _held: (node, subscription, folder),
    };
    if setup.echo {
        carrier.wait_for_the_way_back(subject)?;
    }
    Ok((Box::new(carrier), peer))
}

/// The folder in which nodes discover each other. Dropping this removes it.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Ours {
    subscribers: usize,
    publishers: Arc<[DynPublisher]>,
    /// Index of the topic that gets the next message.
    next: usize,
    turn: Arc<Mutex<Turn>>,
    load: Arc<Mutex<Option<Arc<Load>>>>,
    done: Receiver<()>,
    /// The last echo of a round starts the next round.
    is_chain: bool,
    _held: (Node, Option<Subscription>, Option<Folder>),
}

/// The rounds of the mode `closed`. A round is one message and its echoes.
struct Turn {
    records: Arc<[Record]>,
    /// Index of the current value.
    at: usize,
    /// Rounds that have not ended.
    left: usize,
    /// Echoes of this round that have not arrived.
    awaited: usize,
    start: Option<Instant>,
    times: Vec<Duration>,
    /// Sequence number of the last echo of each subscriber.
    numbers: Vec<(Id128, u64)>,
    /// Number of echoes whose sequence number did not follow the last one of their subscriber.
    astray: usize,
}

/// Handles the echoes, in the engine's thread.
struct Back {
    subscribers: usize,
    /// See [`Ours::is_chain`].
    chains: bool,
    publishers: Arc<[DynPublisher]>,
    turn: Arc<Mutex<Turn>>,
    load: Arc<Mutex<Option<Arc<Load>>>>,
    finished: mpsc::Sender<()>,
}

impl Back {
    fn came(&self, info: &Info) {
        let load = self.load.lock().clone();
        if let Some(load) = load {
            return load.came(info.source.announcement.writer);
        }
        let mut turn = self.turn.lock();
        turn.count(info);
        turn.awaited = turn.awaited.saturating_sub(1);
        if turn.awaited > 0 {
            return;
        }
        if let Some(start) = turn.start.take() {
            let took = start.elapsed();
            turn.times.push(took);
        }
        turn.left = turn.left.saturating_sub(1);
        if turn.left == 0 || !self.chains {
            drop(turn);
            // An error means that the case is over and nobody waits.
            let _ = self.finished.send(());
            return;
        }
        let (records, at) = turn.next(self.subscribers);
        turn.start = Some(Instant::now());
        drop(turn);
        // A failure shows as a missing echo.
        let _ = self.publishers[at % self.publishers.len()].publish(&records[at]);
    }
}

impl Turn {
    fn new() -> Turn {
        Turn {
            records: Arc::new([]),
            at: 0,
            left: 0,
            awaited: 0,
            start: None,
            times: Vec::new(),
            numbers: Vec::new(),
            astray: 0,
        }
    }

    /// Checks the sequence number of an echo. Only one message is in flight, so the echoes of a
    /// subscriber have consecutive numbers.
    fn count(&mut self, info: &Info) {
        let writer = info.source.announcement.writer;
        match self.numbers.iter_mut().find(|(own, _)| *own == writer) {
            Some((_, last)) => self.astray += usize::from(info.sequence != std::mem::replace(last, info.sequence) + 1),
            None => self.numbers.push((writer, info.sequence)),
        }
    }

    /// Begins a round. Returns all values and the index of the value to send.
    fn next(&mut self, subscribers: usize) -> (Arc<[Record]>, usize) {
        self.awaited = subscribers;
        self.at = (self.at + 1) % self.records.len();
        (self.records.clone(), self.at)
    }
}

impl Ours {
    /// Publishes a value and waits until `count` rounds have ended.
    fn round(&self, count: usize) -> Result<(), String> {
        let (records, at) = {
            let mut turn = self.turn.lock();
            turn.left = count;
            let next = turn.next(self.subscribers);
            turn.start = Some(Instant::now());
            next
        };
        self.publishers[at % self.publishers.len()].publish(&records[at]).map_err(error_text)?;
        match self.done.recv_timeout(PATIENCE) {
            Ok(()) => Ok(()),
            Err(RecvTimeoutError::Timeout) => Err("an echo did not arrive".into()),
            Err(RecvTimeoutError::Disconnected) => Err("the engine has ended".into()),
        }
    }

    /// Publishes until all echoes of a message arrive. As long as a publisher of the other end does
    /// not know our subscriber, its echoes are lost.
    fn wait_for_the_way_back(&self, subject: &Subject) -> Result<(), String> {
        let record = Record::new(&subject.shape);
        let until = Instant::now() + PATIENCE;
        self.turn.lock().records = vec![record.clone()].into();
        while Instant::now() < until {
            {
                let mut turn = self.turn.lock();
                (turn.awaited, turn.left) = (self.subscribers, 1);
            }
            self.publishers[0].publish(&record).map_err(error_text)?;
            if self.done.recv_timeout(Duration::from_millis(300)).is_ok() {
                // Late echoes of earlier attempts may still arrive.
                std::thread::sleep(Duration::from_millis(50));
                while self.done.try_recv().is_ok() {}
                self.turn.lock().records = Arc::new([]);
                return Ok(());
            }
        }
        Err("no echoes arrive".into())
    }
}

impl Carrier for Ours {
    fn send(&mut self, record: &Record) -> Result<(), String> {
        let publisher = &self.publishers[self.next];
        self.next = (self.next + 1) % self.publishers.len();
        publisher.publish(record).map(drop).map_err(error_text)
    }

    fn rounds(&mut self, records: &[Record], count: usize) -> Result<(Vec<Duration>, usize), String> {
        {
            let mut turn = self.turn.lock();
            // The values are the same in each turn.
            if turn.records.is_empty() {
                turn.records = records.into();
            }
            turn.at = 0;
            turn.times = Vec::with_capacity(count);
        }
        match self.is_chain {
            true => self.round(count)?,
            false => (0..count).try_for_each(|_| self.round(1))?,
        }
        let mut turn = self.turn.lock();
        match turn.astray {
            0 => Ok((std::mem::take(&mut turn.times), 0)),
            count => Err(format!("{count} echoes did not belong to the last message")),
        }
    }

    fn loaded(&mut self, records: &[Record], count: usize) -> Result<(Vec<Duration>, Duration), String> {
        loaded::run(&self.publishers, &self.load, records, count, self.subscribers)
    }

    fn flush(&mut self) {
        for publisher in &*self.publishers {
            publisher.flush(PATIENCE);
        }
    }
}

/// Opens a node for each subscriber.
pub fn receive(setup: &Setup) -> Result<Receivers, String> {
    let (_, reader) = shapes(setup)?;
    let traffic = Arc::<Traffic>::default();
    let wire = wire(setup, "connect");
    let (mut arrivals, mut held): (Vec<Arrivals>, Vec<Box<dyn Send>>) = (Vec::new(), Vec::new());
    for _ in 0..setup.subscribers {
        let node = node(setup, |buffers| buffers.receiver)?;
        let coding = Dynamic::of(reader.schema()).map_err(error_text)?;
        let list = Arrivals::default();
        let back = setup.echo.then(|| node.publisher_of(BACK, Some(&wire), coding.clone())).transpose();
        let back = back.map_err(error_text)?.map(Arc::new);
        let mut subscriptions = Vec::new();
        for (number, topic) in topics(setup).enumerate() {
            let subscribe = node.subscribe_of(&topic, Some(&wire), coding.clone()).map_err(error_text)?;
            let (list, traffic, back) = (list.clone(), traffic.clone(), back.clone());
            let (number, topics) = (number as u64, setup.topics as u64);
            subscriptions.push(subscribe.on_message_inline(move |value, info| {
                traffic.add(info.bytes);
                match &back {
                    // A failure shows as a missing echo.
                    Some(back) => drop(back.publish(value)),
                    // Each topic numbers its own messages; topics take turns.
                    None => note(&list, (info.sequence - 1) * topics + number + 1),
                }
            }));
        }
        arrivals.push(list);
        held.push(Box::new((subscriptions, node)));
    }
    Ok(Receivers { arrivals, traffic, _held: held })
}

fn node(setup: &Setup, side: impl Fn(&Buffers) -> Side) -> Result<Node, String> {
    let config = side(&setup.buffers.parse()?).config();
    Ok(Node::builder().config(config).build())
}

fn topics(setup: &Setup) -> impl Iterator<Item = String> {
    (0..setup.topics).map(|number| format!("{THERE}{number}"))
}

fn error_text(error: impl ToString) -> String {
    error.to_string()
}

fn wire(setup: &Setup, side: &str) -> String {
    let Setup { engine, codec, compressor, address, .. } = setup;
    let compressor = if compressor == "none" { String::new() } else { format!("+{compressor}") };
    let listens = side == "listen";
    let endpoint = match engine.as_str() {
        SPINNING => format!("shm/{address}?wait=spin"),
        THIN => format!("tcp-{side}/{address}?thin"),
        "dds" => format!("dds/{address}?interface=127.0.0.1"),
        "zenoh" if listens => format!("zenoh/peer?scouting=off,gossip=off,listen=tcp/{address}"),
        "zenoh" => format!("zenoh/peer?scouting=off,gossip=off,listen=tcp/127.0.0.1:0,connect=tcp/{address}"),
        "zeromq" if listens => format!("zeromq/bind/tcp://{address}"),
        "zeromq" => format!("zeromq/connect/tcp://{address}"),
        engine => {
            // Some engines have a name for each role.
            let role = format!("{engine}-{side}");
            let engine = polywire::engine::find(&role).map_or(engine, |engine| engine.name());
            format!("{engine}/{address}")
        }
    };
    format!("{codec}{compressor}@{endpoint}")
}

/// An address that no other case uses.
fn free_address(engine: &str) -> Result<String, String> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = format!("polywire-measure-{}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    match engine {
        engine if is_mesh(engine) => Ok(env::temp_dir().join(name).display().to_string()),
        "unix" => Ok(env::temp_dir().join(name + ".sock").display().to_string()),
        "inproc" => Ok(name),
        "dds" => Ok(free_domain()),
        _ => {
            let bound = match engine.starts_with("udp") {
                true => UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()),
                false => TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()),
            };
            bound.map(|address| address.to_string()).map_err(error_text)
        }
    }
}

/// Whether the address of an engine is a folder in which nodes discover each other.
fn is_mesh(engine: &str) -> bool {
    matches!(engine, "local" | "shm" | SPINNING)
}
