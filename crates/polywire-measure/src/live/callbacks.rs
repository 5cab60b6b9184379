//! Carries frames over a library that calls back when a frame arrives (Zenoh, Cyclone DDS), with
//! one channel in each direction. The last echo of a round starts the next round in the library's
//! thread, as with Polywire's own engines. Greetings are those of `bus`.

use std::{
    sync::{
        Arc,
        mpsc::{self, Receiver},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use polywire::Record;

use super::{
    bus::{self, Ends, greet},
    carrier::Carrier,
    clock::PATIENCE,
    frame::Sender,
    peer::{Peer, Receive},
    receivers::Receivers,
    setup::Setup,
};
use crate::{scenario::Place, subject::Subject};

/// Sends frames on a channel.
pub trait Out: Send + Sync {
    fn send(&self, frame: &[u8]) -> Result<(), String>;

    /// Waits a moment until the sent frames have arrived, if the library reports this.
    fn flush(&self) {}
}

/// One end of the two channels.
pub trait End: Send + 'static {
    /// The outgoing channel.
    fn out(&self) -> Arc<dyn Out>;

    /// Passes the frames of the incoming channel to `take` from now on, one after the other.
    fn hear(&mut self, take: impl Fn(&[u8]) + Send + Sync + 'static) -> Result<(), String>;
}

/// Starts the other end and waits until every subscriber receives. `end` is the sender's; `setup`
/// has its address.
pub fn connect(
    setup: Setup,
    mut end: impl End,
    subject: &Subject,
    place: Place,
    receive: Receive,
) -> Result<(Box<dyn Carrier>, Peer), String> {
    let (finished, done) = mpsc::channel();
    let (other, others) = mpsc::channel();
    if place == Place::Thread {
        // Within one process, an echo may arrive before `send` returns, so rounds that are started
        // by echoes would be a recursion.
        end.hear(move |frame| drop(other.send(frame.to_vec())))?;
        let ends = Here { out: end.out(), others, _end: Some(Box::new(end)) };
        return bus::connect(setup, ends, subject, place, receive);
    }
    let rounds = Rounds { sender: Sender::new(&setup, subject)?, turn: None, out: end.out(), finished };
    let rounds = Arc::new(Mutex::new(rounds));
    let back = rounds.clone();
    end.hear(move |frame| {
        let mut rounds = back.lock();
        match rounds.turn.is_some() {
            true => rounds.came(frame),
            // An error means that the case is over.
            false => drop(other.send(frame.to_vec())),
        }
    })?;
    let peer = Peer::start(&setup, place, receive)?;
    let mut ends = Here { out: end.out(), others, _end: None };
    greet(&mut ends, setup.subscribers)?;
    let carrier = Callbacks { out: ends.out, rounds, done, subscribers: setup.subscribers, _end: end };
    Ok((Box::new(carrier), peer))
}

/// Opens all subscribers, each with an end of its own that answers in the library's thread.
pub fn receive<E: End>(setup: &Setup, open: impl Fn(&Setup) -> Result<E, String>) -> Result<Receivers, String> {
    let (all, mut receivers) = bus::Subscriber::all(setup)?;
    for subscriber in all {
        let mut end = open(setup)?;
        let (out, subscriber) = (end.out(), Mutex::new(subscriber));
        end.hear(move |frame| {
            if let Some(answer) = subscriber.lock().take(frame) {
                // A failure to send shows as a missing echo.
                let _ = out.send(answer);
            }
        })?;
        receivers._held.push(Box::new(end));
    }
    Ok(receivers)
}

/// The sender's end while the subscribers are greeted, or if they are in this process.
struct Here {
    out: Arc<dyn Out>,
    others: Receiver<Vec<u8>>,
    _end: Option<Box<dyn Send>>,
}

impl Ends for Here {
    fn send(&mut self, frame: &[u8]) -> Result<(), String> {
        self.out.send(frame)
    }

    fn receive(&mut self, patience: Duration, take: &mut dyn FnMut(&[u8])) -> Result<bool, String> {
        let frame = self.others.recv_timeout(patience);
        Ok(frame.map(|frame| take(&frame)).is_ok())
    }
}

struct Callbacks<E> {
    out: Arc<dyn Out>,
    rounds: Arc<Mutex<Rounds>>,
    done: Receiver<Result<Vec<Duration>, String>>,
    subscribers: usize,
    _end: E,
}

/// The sender, and the rounds that the library's thread makes.
struct Rounds {
    sender: Sender,
    turn: Option<Turn>,
    out: Arc<dyn Out>,
    finished: mpsc::Sender<Result<Vec<Duration>, String>>,
}

struct Turn {
    records: Arc<[Record]>,
    count: usize,
    subscribers: usize,
    /// Echoes of this round that have not arrived.
    awaited: usize,
    start: Instant,
    times: Vec<Duration>,
}

impl Rounds {
    fn begin(&mut self, turn: Turn) {
        self.turn = Some(turn);
        self.next();
    }

    /// Sends the message of the next round.
    fn next(&mut self) {
        let Rounds { sender, turn, out, .. } = self;
        let Some(turn) = turn else { return };
        turn.awaited = turn.subscribers;
        turn.start = Instant::now();
        let record = &turn.records[turn.times.len() % turn.records.len()];
        let sent = sender.write(record).and_then(|frame| out.send(frame));
        if let Err(error) = sent {
            self.end(Err(error));
        }
    }

    fn came(&mut self, frame: &[u8]) {
        let is_echo = self.sender.is_echo(frame);
        let Some(turn) = &mut self.turn else { return };
        match is_echo {
            Err(error) => return self.end(Err(error)),
            Ok(is_echo) => turn.awaited -= usize::from(is_echo),
        }
        if turn.awaited > 0 {
            return;
        }
        turn.times.push(turn.start.elapsed());
        match turn.times.len() == turn.count {
            false => self.next(),
            true => {
                let times = std::mem::take(&mut turn.times);
                self.end(Ok(times));
            }
        }
    }

    fn end(&mut self, result: Result<Vec<Duration>, String>) {
        self.turn = None;
        // An error means that the case is over and nobody waits.
        let _ = self.finished.send(result);
    }
}

impl<E: End> Carrier for Callbacks<E> {
    fn send(&mut self, record: &Record) -> Result<(), String> {
        self.out.send(self.rounds.lock().sender.write(record)?)
    }

    fn rounds(&mut self, records: &[Record], count: usize) -> Result<(Vec<Duration>, usize), String> {
        let (subscribers, times) = (self.subscribers, Vec::with_capacity(count));
        let turn = Turn { records: records.into(), count, subscribers, awaited: 0, start: Instant::now(), times };
        self.rounds.lock().begin(turn);
        let times = self.done.recv_timeout(PATIENCE).map_err(|_| "an echo did not arrive".to_owned())??;
        Ok((times, 0))
    }

    fn flush(&mut self) {
        self.out.flush();
    }
}
