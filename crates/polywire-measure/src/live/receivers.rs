//! The receivers of a case, in the process that runs them: they record when messages arrive, and
//! report this together with the CPU time, memory and traffic of the process. Each kind of engine
//! makes a [`Receivers`].

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::clock::{now_ns, process_time};
use crate::host::peak_memory;

/// Nothing more is expected after this time without a message.
const SILENCE: Duration = Duration::from_millis(300);

/// The messages of one subscriber in the order of arrival: sequence number and time.
pub type Arrivals = Arc<Mutex<Vec<(u64, u64)>>>;

/// The arrivals since the last report.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// One list per subscriber.
    pub arrivals: Vec<Vec<(u64, u64)>>,
}

/// Counts of all arrivals at the subscribers of a process.
#[derive(Debug, Default)]
pub struct Traffic {
    messages: AtomicU64,
    bytes: AtomicU64,
}

impl Traffic {
    /// Counts a message with this many bytes of payload.
    pub fn add(&self, bytes: usize) {
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// Costs and traffic of the receivers' process.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Vitals {
    /// CPU time so far, in nanoseconds; 0 if the receivers run in the sender's process.
    pub cpu_ns: u64,
    /// Peak memory so far; 0 if the receivers run in the sender's process.
    pub peak_memory_bytes: u64,
    /// Messages that arrived at subscribers.
    pub messages: u64,
    /// Bytes of their payloads on the wire.
    pub bytes: u64,
}

/// The running receivers of a case. They end when this is dropped.
pub struct Receivers {
    /// One list per subscriber.
    pub arrivals: Vec<Arrivals>,
    pub traffic: Arc<Traffic>,
    /// Keeps nodes and threads alive.
    pub _held: Vec<Box<dyn Send>>,
}

/// Sets its flag when it is dropped; receiving threads then end.
#[derive(Default)]
pub struct Ended(Arc<AtomicBool>);

impl Ended {
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.0.clone()
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Receivers {
    /// Costs and traffic so far. `other` is true if the receivers have a process of their own.
    pub fn vitals(&self, other: bool) -> Vitals {
        let (messages, bytes) = (&self.traffic.messages, &self.traffic.bytes);
        let (messages, bytes) = (messages.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed));
        let (cpu_ns, peak_memory_bytes) = if other { (process_time(), peak_memory()) } else { (0, 0) };
        Vitals { cpu_ns, peak_memory_bytes, messages, bytes }
    }

    /// Waits until this many messages have arrived, or none has arrived for [`SILENCE`]. Returns
    /// the arrivals since the last report.
    pub fn report(&self, expected: usize) -> Report {
        let (mut count, mut changed) = (0, Instant::now());
        loop {
            let now: usize = self.arrivals.iter().map(|list| list.lock().len()).sum();
            if now >= expected || changed.elapsed() > SILENCE {
                break;
            }
            if now != count {
                (count, changed) = (now, Instant::now());
            }
            thread::sleep(Duration::from_millis(1));
        }
        Report { arrivals: self.arrivals.iter().map(|list| std::mem::take(&mut *list.lock())).collect() }
    }
}

/// Records the arrival of a message.
pub fn note(arrivals: &Arrivals, sequence: u64) {
    let at = now_ns();
    arrivals.lock().push((sequence, at));
}
