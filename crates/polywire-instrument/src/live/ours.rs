//! Nodes with publishers and subscribers.

use std::{
    env,
    net::TcpListener,
    process,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use polywire::{DynPublisher, Node, Record, Subscription, coding::Dynamic};

use super::{
    Carrier, PATIENCE, Setup,
    peer::{Arrivals, Peer, Receivers, note, shapes},
};
use crate::{scenario::Place, subject::Subject};

const THERE: &str = "there";
const BACK: &str = "back";

/// Listens here, starts the other end and waits for it.
pub fn connect(mut setup: Setup, subject: &Subject, place: Place) -> Result<(Box<dyn Carrier>, Peer), String> {
    if setup.codec.contains('@') {
        return Err("streams of messages that refer to others are measured with the raw sockets".into());
    }
    setup.address = free_address(&setup.engine)?;
    let node = Node::new();
    let wire = wire(&setup, "listen");
    let publisher = node.publisher_of(THERE, Some(&wire), subject.coding.clone()).map_err(|error| error.to_string())?;
    let publisher = Arc::new(publisher);
    let (finished, done) = mpsc::channel();
    let turn = Arc::new(Mutex::new(Turn::new()));
    let subscription = match setup.echo {
        false => None,
        true => {
            let back = Back {
                subscribers: setup.subscribers,
                // Within one process a message comes back before `publish` returns: a chain would be a recursion.
                chains: setup.engine != "inproc",
                publisher: publisher.clone(),
                turn: turn.clone(),
                finished,
            };
            let subscribe =
                node.subscribe_of(BACK, Some(&wire), subject.coding.clone()).map_err(|error| error.to_string())?;
            Some(subscribe.on_message_inline(move |_, _| back.came()))
        }
    };
    let peer = Peer::start(&setup, place)?;
    let there = publisher.wait_for_subscribers(setup.subscribers, PATIENCE);
    if there != setup.subscribers {
        return Err(format!("{there} of {} subscribers came", setup.subscribers));
    }
    let carrier = Ours {
        subscribers: setup.subscribers,
        publisher,
        turn,
        done,
        is_chain: setup.engine != "inproc",
        _held: (node, subscription),
    };
    if setup.echo {
        carrier.wait_for_the_way_back(subject)?;
    }
    Ok((Box::new(carrier), peer))
}

struct Ours {
    subscribers: usize,
    publisher: Arc<DynPublisher>,
    turn: Arc<Mutex<Turn>>,
    done: Receiver<()>,
    is_chain: bool,
    _held: (Node, Option<Subscription>),
}

/// Rounds that are under way.
struct Turn {
    records: Arc<[Record]>,
    at: usize,
    left: usize,
    /// Echoes of this round that have not come.
    awaited: usize,
    start: Option<Instant>,
    times: Vec<Duration>,
}

/// What happens when an echo comes.
struct Back {
    subscribers: usize,
    chains: bool,
    publisher: Arc<DynPublisher>,
    turn: Arc<Mutex<Turn>>,
    finished: mpsc::Sender<()>,
}

impl Back {
    fn came(&self) {
        let mut turn = self.turn.lock().expect("nobody panicked");
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
            // Nobody waits any more when the case is over.
            let _ = self.finished.send(());
            return;
        }
        let (records, at) = turn.next(self.subscribers);
        turn.start = Some(Instant::now());
        drop(turn);
        // A failure shows as an echo that does not come.
        let _ = self.publisher.publish(&records[at]);
    }
}

impl Turn {
    fn new() -> Turn {
        Turn { records: Arc::new([]), at: 0, left: 0, awaited: 0, start: None, times: Vec::new() }
    }

    /// All values, and which is next.
    fn next(&mut self, subscribers: usize) -> (Arc<[Record]>, usize) {
        self.awaited = subscribers;
        self.at = (self.at + 1) % self.records.len();
        (self.records.clone(), self.at)
    }
}

impl Ours {
    fn round(&self, count: usize) -> Result<(), String> {
        let (records, at) = {
            let mut turn = self.turn.lock().expect("nobody panicked");
            turn.left = count;
            let next = turn.next(self.subscribers);
            turn.start = Some(Instant::now());
            next
        };
        self.publisher.publish(&records[at]).map_err(|error| error.to_string())?;
        match self.done.recv_timeout(PATIENCE) {
            Ok(()) => Ok(()),
            Err(RecvTimeoutError::Timeout) => Err("an echo does not come".into()),
            Err(RecvTimeoutError::Disconnected) => Err("the engine has ended".into()),
        }
    }

    /// The other end's publishers may not know of our subscriber yet: what they publish before that does not come back.
    fn wait_for_the_way_back(&self, subject: &Subject) -> Result<(), String> {
        let record = Record::new(&subject.shape);
        let until = Instant::now() + PATIENCE;
        self.turn.lock().expect("nobody panicked").records = vec![record.clone()].into();
        while Instant::now() < until {
            {
                let mut turn = self.turn.lock().expect("nobody panicked");
                (turn.awaited, turn.left) = (self.subscribers, 1);
            }
            self.publisher.publish(&record).map_err(|error| error.to_string())?;
            if self.done.recv_timeout(Duration::from_millis(300)).is_ok() {
                // Late echoes of earlier attempts are on their way.
                std::thread::sleep(Duration::from_millis(50));
                while self.done.try_recv().is_ok() {}
                return Ok(());
            }
        }
        Err("nothing comes back".into())
    }
}

impl Carrier for Ours {
    fn send(&mut self, record: &Record) -> Result<(), String> {
        self.publisher.publish(record).map(drop).map_err(|error| error.to_string())
    }

    fn rounds(&mut self, records: &[Record], count: usize) -> Result<(Vec<Duration>, usize), String> {
        {
            let mut turn = self.turn.lock().expect("nobody panicked");
            if turn.records.len() != records.len() {
                turn.records = records.into();
            }
            turn.at = 0;
            turn.times = Vec::with_capacity(count);
        }
        match self.is_chain {
            true => self.round(count)?,
            false => (0..count).try_for_each(|_| self.round(1))?,
        }
        Ok((std::mem::take(&mut self.turn.lock().expect("nobody panicked").times), 0))
    }

    fn flush(&mut self) {
        self.publisher.flush(PATIENCE);
    }
}

/// A node for each subscriber.
pub fn receive(setup: &Setup) -> Result<Receivers, String> {
    let (_, reader) = shapes(setup)?;
    let wire = wire(setup, "connect");
    let (mut arrivals, mut held): (Vec<Arrivals>, Vec<Box<dyn Send>>) = (Vec::new(), Vec::new());
    for _ in 0..setup.subscribers {
        let node = Node::new();
        let coding = Dynamic::of(reader.schema()).map_err(|error| error.to_string())?;
        let list = Arrivals::default();
        let subscribe = node.subscribe_of(THERE, Some(&wire), coding.clone()).map_err(|error| error.to_string())?;
        let subscription = match setup.echo {
            true => {
                let back = node.publisher_of(BACK, Some(&wire), coding).map_err(|error| error.to_string())?;
                // A failure shows as an echo that does not come.
                subscribe.on_message_inline(move |value, _| drop(back.publish(value)))
            }
            false => {
                let list = list.clone();
                subscribe.on_message_inline(move |_, info| note(&list, info.sequence))
            }
        };
        arrivals.push(list);
        held.push(Box::new((subscription, node)));
    }
    Ok(Receivers { arrivals, _held: held })
}

fn wire(setup: &Setup, side: &str) -> String {
    let Setup { engine, codec, compressor, address, .. } = setup;
    let compressor = if compressor == "none" { String::new() } else { format!("+{compressor}") };
    let side = if engine == "inproc" { String::new() } else { format!("-{side}") };
    format!("{codec}{compressor}@{engine}{side}/{address}")
}

fn free_address(engine: &str) -> Result<String, String> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = format!("polywire-instrument-{}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    match engine {
        "unix" => Ok(env::temp_dir().join(name + ".sock").display().to_string()),
        "inproc" => Ok(name),
        _ => TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .map(|address| address.to_string())
            .map_err(|error| error.to_string()),
    }
}
