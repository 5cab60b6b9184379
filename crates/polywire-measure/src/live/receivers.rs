//! The subscribers of a case, in the process that runs them: what has arrived, and what it cost.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::clock::{now_ns, process_time};
use crate::host::peak_memory;

/// When nothing has come for so long, nothing will.
const SILENCE: Duration = Duration::from_millis(300);

/// Sequence numbers in the order in which they came to one subscriber, and when.
pub type Arrivals = Arc<Mutex<Vec<(u64, u64)>>>;

/// What came since the last report.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// One list a subscriber.
    pub arrivals: Vec<Vec<(u64, u64)>>,
}

/// What has come to all subscribers of a process.
#[derive(Debug, Default)]
pub struct Traffic {
    messages: AtomicU64,
    bytes: AtomicU64,
}

impl Traffic {
    /// A message with so many bytes of payload has come.
    pub fn add(&self, bytes: usize) {
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// How a process fares.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Vitals {
    /// CPU time so far.
    pub cpu_ns: u64,
    /// The most memory so far; 0 for the sender's own process.
    pub peak_memory_bytes: u64,
    /// Messages that came to subscribers.
    pub messages: u64,
    /// Their payloads, as they travelled.
    pub bytes: u64,
}

/// What receives; it ends with this.
pub struct Receivers {
    pub arrivals: Vec<Arrivals>,
    pub traffic: Arc<Traffic>,
    /// Whatever keeps them going.
    pub _held: Vec<Box<dyn Send>>,
}

/// Tells receiving threads by its flag, which is raised when it goes, that the case is over.
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
    /// `other`: this process has nothing to do with the sender's.
    pub fn vitals(&self, other: bool) -> Vitals {
        let (messages, bytes) = (&self.traffic.messages, &self.traffic.bytes);
        let (messages, bytes) = (messages.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed));
        let (cpu_ns, peak_memory_bytes) = if other { (process_time(), peak_memory()) } else { (0, 0) };
        Vitals { cpu_ns, peak_memory_bytes, messages, bytes }
    }

    /// Waits until so many have come, or nothing more comes.
    pub fn report(&self, expected: usize) -> Report {
        let (mut count, mut changed) = (0, Instant::now());
        loop {
            let now: usize = self.arrivals.iter().map(|list| lock(list).len()).sum();
            if now >= expected || changed.elapsed() > SILENCE {
                break;
            }
            if now != count {
                (count, changed) = (now, Instant::now());
            }
            thread::sleep(Duration::from_millis(1));
        }
        Report { arrivals: self.arrivals.iter().map(|list| std::mem::take(&mut *lock(list))).collect() }
    }
}

/// Notes that a message has come.
pub fn note(arrivals: &Arrivals, sequence: u64) {
    let at = now_ns();
    lock(arrivals).push((sequence, at));
}

fn lock(arrivals: &Arrivals) -> std::sync::MutexGuard<'_, Vec<(u64, u64)>> {
    arrivals.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
