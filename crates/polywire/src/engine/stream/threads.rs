//! The threads of a port. The port knows all of them and joins them when it closes.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex, MutexGuard};

/// Interrupts the waits of a port's threads when the port closes, so that the threads end.
#[derive(Default)]
pub(super) struct Stop {
    set: AtomicBool,
    is_cut: AtomicBool,
    watched: Mutex<Vec<Watched>>,
    changed: Condvar,
    next: AtomicU64,
}

struct Watched {
    number: u64,
    /// Closes a connection or wakes a listener.
    cut: Box<dyn Fn() + Send>,
    /// Call `cut` as soon as the stop is set; else only [`Stop::cut`] calls it.
    at_once: bool,
}

impl Stop {
    pub(super) fn is_set(&self) -> bool {
        self.set.load(Ordering::Acquire)
    }

    /// Wakes sleeping threads and listeners, and closes connections that are not links yet. Returns
    /// true the first time.
    pub(super) fn set(&self) -> bool {
        let watched = self.lock();
        let first = !self.set.swap(true, Ordering::AcqRel);
        watched.iter().filter(|watched| watched.at_once).for_each(|watched| (watched.cut)());
        self.changed.notify_all();
        first
    }

    /// Closes every connection that is still in use.
    pub(super) fn cut(&self) {
        self.is_cut.store(true, Ordering::Release);
        self.lock().iter().for_each(|watched| (watched.cut)());
    }

    /// Returns whether connections were closed that were still in use.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Acquire)
    }

    /// Calls `cut` as soon as the stop is set, at once if it is set already. Pass the returned
    /// number to [`Stop::established`] and [`Stop::forget`].
    pub(super) fn watch(&self, cut: impl Fn() + Send + 'static) -> u64 {
        let mut watched = self.lock();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if self.is_set() {
            cut();
        }
        watched.push(Watched { number, cut: Box::new(cut), at_once: true });
        number
    }

    /// Exempts a connection from being closed when the stop is set: it is a link now and may
    /// linger. Returns false if the stop was set before.
    pub(super) fn established(&self, number: u64) -> bool {
        let mut watched = self.lock();
        for entry in watched.iter_mut().filter(|entry| entry.number == number) {
            entry.at_once = false;
        }
        !self.is_set()
    }

    pub(super) fn forget(&self, number: u64) {
        self.lock().retain(|entry| entry.number != number);
    }

    /// Sleeps until the stop, or for `time`.
    pub(super) fn wait(&self, time: Duration) {
        self.changed.wait_while_for(&mut self.lock(), |_| !self.is_set(), time);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Watched>> {
        self.watched.lock()
    }
}

/// The threads that a port has started.
#[derive(Default)]
pub(super) struct Threads {
    handles: Mutex<Vec<JoinHandle<()>>>,
    running: Arc<(Mutex<usize>, Condvar)>,
}

impl Threads {
    /// Starts a thread, and forgets those that have ended.
    pub(super) fn start(&self, name: String, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let running = Running::new(&self.running);
        let handle = thread::Builder::new().name(name).spawn(move || {
            let _running = running;
            work();
        })?;
        let mut handles = self.lock();
        handles.retain(|handle| !handle.is_finished());
        handles.push(handle);
        Ok(())
    }

    /// Returns the number of running threads.
    pub(super) fn count(&self) -> usize {
        *self.running.0.lock()
    }

    /// Waits until all but the calling thread have ended, at most until `deadline`. Returns whether
    /// they have.
    pub(super) fn wait(&self, deadline: Instant) -> bool {
        let own = usize::from(self.is_own());
        let (count, changed) = &*self.running;
        let mut count = count.lock();
        let left = deadline.saturating_duration_since(Instant::now());
        changed.wait_while_for(&mut count, |count| *count > own, left);
        *count <= own
    }

    /// Joins all but the calling thread, which may be one of them.
    pub(super) fn join(&self) {
        let me = thread::current().id();
        let handles = std::mem::take(&mut *self.lock());
        for handle in handles.into_iter().filter(|handle| handle.thread().id() != me) {
            // A thread that panicked has printed why.
            let _ = handle.join();
        }
    }

    /// Returns whether the calling thread is one of the port's threads.
    pub(super) fn is_own(&self) -> bool {
        let me = thread::current().id();
        self.lock().iter().any(|handle| handle.thread().id() == me)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.handles.lock()
    }
}

/// Counts a thread while it lives.
struct Running(Arc<(Mutex<usize>, Condvar)>);

impl Running {
    fn new(running: &Arc<(Mutex<usize>, Condvar)>) -> Self {
        *running.0.lock() += 1;
        Running(running.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        *self.0.0.lock() -= 1;
        self.0.1.notify_all();
    }
}
