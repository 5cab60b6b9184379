//! The path of entries to one handler: a queue, and a thread that passes the entries to the
//! handler. A handler that fails or panics is opened again after a while, and receives again the
//! entries that it had not stored.

use std::{
    any::Any,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};

use crate::{
    Entry, Handler, HandlerError, HandlerPlan, HandlerStatus,
    queue::{Item, Queue, QueueLimits},
};

/// The maximum number of entries that were passed to a handler and are not stored.
const BATCH: usize = 4096;

/// How often the handler's `sync` is called while no entries arrive.
const IDLE: Duration = Duration::from_secs(1);

/// The pauses between two attempts of a handler that fails: the first one, and the longest one.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

/// The number of panics at the same entry after which the entry is refused.
const PANICS: u32 = 3;

/// Opens a handler.
pub(crate) type Opener = Box<dyn Fn() -> Result<Box<dyn Handler>, HandlerError> + Send>;

/// A handler with its queue and thread.
pub(crate) struct HandlerWorker {
    pub plan: HandlerPlan,
    queue: Queue,
    stored: AtomicU64,
    refused: AtomicU64,
    failures: AtomicU64,
    /// Why the handler is not working now; empty if it works.
    problem: Mutex<String>,
    ending: Mutex<Ending>,
    ended: Condvar,
}

#[derive(Default)]
struct Ending {
    /// The time at which a failing handler must stop trying to store the remaining entries.
    give_up: Option<Instant>,
    has_ended: bool,
}

impl HandlerWorker {
    /// Starts the thread. `handler` is `None` if it could not be opened yet.
    pub fn start(plan: HandlerPlan, open: Opener, handler: Option<Box<dyn Handler>>) -> io::Result<Arc<HandlerWorker>> {
        let limits = QueueLimits { entries: plan.queue, bytes: plan.queue_bytes, overflow: plan.overflow };
        let worker = Arc::new(HandlerWorker {
            plan,
            queue: Queue::new(limits),
            stored: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            problem: Mutex::default(),
            ending: Mutex::default(),
            ended: Condvar::new(),
        });
        let state = WorkerThread {
            worker: worker.clone(),
            open,
            handler,
            batch: Vec::new(),
            bytes: 0,
            written: 0,
            since: Instant::now(),
            more_may_come: true,
            failed: 0,
            panics: (0, 0),
        };
        thread::Builder::new().name(format!("to {}", worker.plan.name)).spawn(move || state.run())?;
        Ok(worker)
    }

    /// Takes the entries that the former handler of this name has not stored.
    pub fn take_over(&self, former: &HandlerWorker) {
        for item in former.queue.take_unfinished() {
            match self.wants(item.entry.topic()) {
                true => self.queue.restore(item),
                false => self.queue.skip(item.source, item.position),
            }
        }
    }

    /// Offers an entry to the handler, if the handler wants entries of this topic. Blocks only if
    /// that is the handler's overflow policy, until there is room or `ends` returns true.
    pub fn offer(&self, source: usize, position: u64, entry: &Arc<Entry>, ends: impl Fn() -> bool) {
        match self.wants(entry.topic()) {
            true => self.queue.push(Item { source, position, entry: entry.clone() }, ends),
            false => self.queue.skip(source, position),
        }
    }

    fn wants(&self, topic: &str) -> bool {
        let topics = &self.plan.topics;
        topics.is_empty() || topics.iter().any(|pattern| pattern.fits(topic))
    }

    /// Returns the position up to which the handler has finished a source's entries; `None` if it
    /// was offered none.
    pub fn handled(&self, source: usize) -> Option<u64> {
        self.queue.handled(source)
    }

    pub fn status(&self) -> HandlerStatus {
        let counts = self.queue.counts();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        HandlerStatus {
            name: self.plan.name.clone(),
            kind: self.plan.kind.name,
            received: counts.received,
            stored: count(&self.stored),
            dropped: counts.dropped,
            refused: count(&self.refused),
            failures: count(&self.failures),
            waiting: counts.waiting,
            waiting_bytes: counts.waiting_bytes,
            problem: self.problem.lock().clone(),
        }
    }

    /// Requests that the handler stores its entries and ends within `patience`.
    pub fn close(&self, patience: Duration) {
        self.ending.lock().give_up = Instant::now().checked_add(patience);
        self.queue.close();
    }

    /// Waits until the handler has ended. Returns false if it has not ended after this time: it
    /// hangs.
    pub fn wait(&self, patience: Duration) -> bool {
        !self.ended.wait_while_for(&mut self.ending.lock(), |ending| !ending.has_ended, patience).timed_out()
    }

    fn must_give_up(&self) -> bool {
        self.ending.lock().give_up.is_some_and(|give_up| Instant::now() >= give_up)
    }
}

/// An entry taken from the queue, and whether the handler has refused it.
struct BatchEntry {
    item: Item,
    refused: bool,
}

/// The state of the thread of a [`HandlerWorker`].
struct WorkerThread {
    worker: Arc<HandlerWorker>,
    open: Opener,
    handler: Option<Box<dyn Handler>>,
    /// Entries that were taken from the queue and are not stored.
    batch: Vec<BatchEntry>,
    /// The memory of these entries in bytes.
    bytes: usize,
    /// The number of these entries that were written to the handler since it was opened.
    written: usize,
    /// When the first entry of the batch was taken.
    since: Instant,
    more_may_come: bool,
    /// The number of consecutive failed attempts.
    failed: u32,
    /// The index in the batch of the entry at which the handler panicked, and the number of panics.
    panics: (usize, u32),
}

impl WorkerThread {
    fn run(mut self) {
        while self.more_may_come || !self.batch.is_empty() {
            self.fill();
            match self.attempt() {
                Ok(()) => self.recover(),
                Err((problem, stays_open)) => {
                    self.fail(problem, stays_open);
                    if self.worker.must_give_up() {
                        self.give_up();
                        break;
                    }
                }
            }
        }
        // Closes files before `has_ended` is reported.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(self.handler.take())));
        self.worker.ending.lock().has_ended = true;
        self.worker.ended.notify_all();
    }

    /// Takes waiting entries. Blocks until there is something to do.
    fn fill(&mut self) {
        let room = if self.is_full() { 0 } else { BATCH - self.batch.len() };
        let left = match self.batch.is_empty() {
            true => IDLE,
            false => self.worker.plan.sync.saturating_sub(self.since.elapsed()),
        };
        // After a failure, the next attempt is due in any case.
        let left = if self.failed > 0 { Duration::ZERO } else { left };
        if room == 0 || !self.more_may_come {
            return;
        }
        let was_empty = self.batch.is_empty();
        let most_bytes = self.worker.plan.queue_bytes.saturating_sub(self.bytes);
        let (items, more_may_come) = self.worker.queue.take(room, most_bytes, left);
        self.more_may_come = more_may_come;
        self.bytes += items.iter().map(|item| item.entry.bytes).sum::<usize>();
        self.batch.extend(items.into_iter().map(|item| BatchEntry { item, refused: false }));
        if was_empty {
            self.since = Instant::now();
        }
    }

    /// Returns whether the entries that the handler has must be stored before there are more.
    fn is_full(&self) -> bool {
        self.batch.len() >= BATCH || (!self.batch.is_empty() && self.bytes >= self.worker.plan.queue_bytes)
    }

    /// Writes new entries to the handler, and lets it store them if that is due. A panic is a
    /// failure. The error is the problem, and whether the handler stays open.
    fn attempt(&mut self) -> Result<(), (String, bool)> {
        match catch_unwind(AssertUnwindSafe(|| self.work())) {
            Ok(result) => result.map_err(|error| (error.to_string(), matches!(error, HandlerError::Delayed(_)))),
            Err(panic) => {
                self.after_panic();
                Err((format!("it panicked: {}", words(&*panic)), false))
            }
        }
    }

    fn work(&mut self) -> Result<(), HandlerError> {
        let is_full = self.is_full();
        let handler = match &mut self.handler {
            Some(handler) => handler,
            None => self.handler.insert((self.open)()?),
        };
        while let Some(entry) = self.batch.get_mut(self.written) {
            if !entry.refused {
                match handler.write(&entry.item.entry) {
                    Err(HandlerError::Refused(reason)) => refuse(&self.worker, entry, &reason),
                    result => result?,
                }
            }
            self.written += 1;
        }
        // Without new entries, the handler may have maintenance to do.
        let is_now = self.batch.is_empty() || is_full;
        if is_now || !self.more_may_come || self.since.elapsed() >= self.worker.plan.sync {
            handler.sync()?;
            self.worker.queue.stored(self.batch.iter().map(|entry| &entry.item));
            let stored = self.batch.iter().filter(|entry| !entry.refused).count();
            self.worker.stored.fetch_add(stored as u64, Ordering::Relaxed);
            self.batch.clear();
            (self.bytes, self.written, self.panics) = (0, 0, (0, 0));
        }
        Ok(())
    }

    /// Refuses an entry at which the handler panics repeatedly.
    fn after_panic(&mut self) {
        let (at, times) = self.panics;
        self.panics = if at == self.written { (at, times + 1) } else { (self.written, 1) };
        if self.panics.1 >= PANICS
            && let Some(entry) = self.batch.get_mut(self.written)
        {
            refuse(&self.worker, entry, "the handler panics at it");
        }
    }

    fn recover(&mut self) {
        if self.failed > 0 {
            log::info!("handler '{}' works again", self.worker.plan.name);
            self.worker.problem.lock().clear();
            self.failed = 0;
        }
    }

    /// Closes the handler, unless it stays open, and waits before the next attempt.
    fn fail(&mut self, problem: String, stays_open: bool) {
        if *self.worker.problem.lock() != problem {
            log::warn!("handler '{}': {problem}", self.worker.plan.name);
        }
        self.worker.failures.fetch_add(1, Ordering::Relaxed);
        *self.worker.problem.lock() = problem;
        if !stays_open {
            let handler = self.handler.take();
            let _ = catch_unwind(AssertUnwindSafe(|| drop(handler)));
            self.written = 0;
        }
        self.failed = self.failed.saturating_add(1);
        let (first, longest) = BACK_OFF;
        let pause = match stays_open {
            // The handler has waited itself.
            true => first,
            false => first.saturating_mul(1 << (self.failed - 1).min(16)).min(longest),
        };
        match self.more_may_come {
            true => self.worker.queue.pause(pause),
            // The queue is closed, so waiting for its closing would return at once.
            false => thread::sleep(first),
        }
    }

    fn give_up(&mut self) {
        self.worker.queue.abandon();
        let lost = self.worker.queue.counts().received.saturating_sub(self.worker.stored.load(Ordering::Relaxed));
        log::error!("handler '{}' ends with entries that it could not store, {lost} at most", self.worker.plan.name);
    }
}

fn refuse(worker: &HandlerWorker, refused: &mut BatchEntry, reason: &str) {
    refused.refused = true;
    if worker.refused.fetch_add(1, Ordering::Relaxed) == 0 {
        let entry = &refused.item.entry;
        log::warn!(
            "handler '{}' leaves out message {} of '{}' (others alike are only counted): {reason}",
            worker.plan.name,
            entry.sequence,
            entry.topic()
        );
    }
}

/// Returns the text of a panic.
fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a text")
}
