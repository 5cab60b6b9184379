//! The mode `loaded` for Polywire's own engines: publishes as fast as the engine accepts messages,
//! so that the buffers are full, and measures the round trip of each message. `ours` calls [`run`]
//! and passes on the echoes.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    time::Duration,
};

use parking_lot::Mutex;
use polywire::{DynPublisher, Record, extend::envelope::Id128};

use super::clock::{PATIENCE, now_ns};

/// Maximum sending time of a turn, in nanoseconds. With very small buffers TCP stalls, and sending
/// all messages would take minutes.
const LONGEST: u64 = 2_000_000_000;

/// When each message of a turn left, and the round trips so far. The echoes of one subscriber
/// arrive in the order of the messages.
pub struct Load {
    left_at: Vec<AtomicU64>,
    came: Mutex<Came>,
    done: Sender<()>,
}

#[derive(Default)]
struct Came {
    /// Number of echoes of each subscriber.
    count: BTreeMap<Id128, usize>,
    /// Round trips.
    times: Vec<Duration>,
    /// Number of echoes of all messages; `None` until the last message was sent.
    expected: Option<usize>,
    /// Arrival time of the last echo.
    last: u64,
}

impl Load {
    fn new(messages: usize, subscribers: usize) -> (Arc<Load>, Receiver<()>) {
        let (done, finished) = mpsc::channel();
        let came = Came { times: Vec::with_capacity(messages * subscribers), ..Came::default() };
        let left_at = (0..messages).map(|_| AtomicU64::new(0)).collect();
        (Arc::new(Load { left_at, came: Mutex::new(came), done }), finished)
    }

    /// Records an echo.
    pub fn came(&self, subscriber: Id128) {
        let now = now_ns();
        let mut came = self.came.lock();
        let number = came.count.entry(subscriber).or_default();
        let left_at = self.left_at.get(*number).map(|at| at.load(Ordering::Acquire));
        *number += 1;
        came.times.extend(left_at.map(|left| Duration::from_nanos(now.saturating_sub(left))));
        came.last = now;
        self.look(&came);
    }

    /// Sets the total number of echoes, once all messages were sent.
    fn expect(&self, echoes: usize) {
        let mut came = self.came.lock();
        came.expected = Some(echoes);
        self.look(&came);
    }

    /// Wakes [`run`] if all echoes have arrived.
    fn look(&self, came: &Came) {
        if came.expected == Some(came.times.len()) {
            // An error means that the turn is over and `run` no longer waits.
            let _ = self.done.send(());
        }
    }
}

/// Publishes `count` messages as fast as the engine accepts them, but not longer than [`LONGEST`],
/// and waits for all echoes. While it runs, `load` has the [`Load`] to which the caller's callback
/// passes the echoes. Returns the round trips and the time until the last echo.
pub fn run(
    publishers: &[DynPublisher],
    load: &Mutex<Option<Arc<Load>>>,
    records: &[Record],
    count: usize,
    subscribers: usize,
) -> Result<(Vec<Duration>, Duration), String> {
    let (own, finished) = Load::new(count, subscribers);
    *load.lock() = Some(own.clone());
    let start = now_ns();
    let topics = publishers.iter().cycle();
    let mut sent = 0;
    for ((record, left_at), publisher) in records.iter().cycle().zip(&own.left_at).zip(topics) {
        left_at.store(now_ns(), Ordering::Release);
        publisher.publish(record).map_err(|error| error.to_string())?;
        sent += 1;
        if left_at.load(Ordering::Relaxed) - start > LONGEST {
            break;
        }
    }
    for publisher in publishers {
        publisher.flush(PATIENCE);
    }
    own.expect(sent * subscribers);
    let waited = finished.recv_timeout(PATIENCE);
    *load.lock() = None;
    let came = std::mem::take(&mut *own.came.lock());
    match waited {
        Ok(()) => Ok((came.times, Duration::from_nanos(came.last.saturating_sub(start)))),
        Err(RecvTimeoutError::Timeout) => Err(format!("{} of {} echoes arrived", came.times.len(), sent * subscribers)),
        Err(RecvTimeoutError::Disconnected) => Err("the engine has ended".into()),
    }
}
