//! The threads of a port: all known, all ended before the port is gone.

use std::{
    io,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use socket2::Socket;

/// Tells threads to end, whatever they wait for.
#[derive(Default)]
pub(super) struct Stop {
    set: AtomicBool,
    sockets: Mutex<Vec<(u64, Arc<Socket>, bool)>>,
    changed: Condvar,
    next: std::sync::atomic::AtomicU64,
}

impl Stop {
    pub(super) fn is_set(&self) -> bool {
        self.set.load(Ordering::Acquire)
    }

    /// Wakes sleepers and closes listeners. True the first time.
    pub(super) fn set(&self) -> bool {
        let sockets = self.lock();
        let first = !self.set.swap(true, Ordering::AcqRel);
        for (_, socket, _) in sockets.iter().filter(|(_, _, at_once)| *at_once) {
            // Wakes who waits for callers; systems on which it does not are served by the time-out
            // of that wait.
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
        self.changed.notify_all();
        first
    }

    /// Shuts down every socket that is still in use.
    pub(super) fn cut(&self) {
        for (_, socket, _) in self.lock().iter() {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }

    /// A listener, shut down as soon as the stop is set.
    pub(super) fn watch(&self, socket: &Arc<Socket>) {
        self.add(socket, true);
    }

    /// A connection that has not become a link yet, shut down as soon as the stop is set; give the
    /// number to [`Stop::established`] and [`Stop::forget`].
    pub(super) fn watch_stranger(&self, socket: &Arc<Socket>) -> u64 {
        self.add(socket, true)
    }

    /// The connection may linger from now on. False if the stop was set before.
    pub(super) fn established(&self, number: u64) -> bool {
        let mut sockets = self.lock();
        for entry in sockets.iter_mut().filter(|entry| entry.0 == number) {
            entry.2 = false;
        }
        !self.is_set()
    }

    pub(super) fn forget(&self, number: u64) {
        self.lock().retain(|entry| entry.0 != number);
    }

    /// Sleeps, but not past the stop.
    pub(super) fn wait(&self, time: Duration) {
        let sockets = self.lock();
        let _ = self.changed.wait_timeout_while(sockets, time, |_| !self.is_set());
    }

    fn add(&self, socket: &Arc<Socket>, at_once: bool) -> u64 {
        let mut sockets = self.lock();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        sockets.push((number, socket.clone(), at_once));
        if self.is_set() {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
        number
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(u64, Arc<Socket>, bool)>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Threads that are joined before their owner goes.
#[derive(Default)]
pub(super) struct Threads {
    handles: Mutex<Vec<JoinHandle<()>>>,
    running: Arc<(Mutex<usize>, Condvar)>,
}

impl Threads {
    /// Starts one, and lets go of those that have ended.
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

    /// Those that run.
    pub(super) fn count(&self) -> usize {
        *self.running.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all have ended, this one not counted, or `deadline`.
    pub(super) fn wait(&self, deadline: Instant) -> bool {
        let own = usize::from(self.is_own());
        let (count, changed) = &*self.running;
        let count = count.lock().unwrap_or_else(PoisonError::into_inner);
        let left = deadline.saturating_duration_since(Instant::now());
        let (count, _) =
            changed.wait_timeout_while(count, left, |count| *count > own).unwrap_or_else(PoisonError::into_inner);
        *count <= own
    }

    /// Joins all but this one, which ends when it returns from the call that it is in.
    pub(super) fn join(&self) {
        let me = thread::current().id();
        let handles = std::mem::take(&mut *self.lock());
        for handle in handles.into_iter().filter(|handle| handle.thread().id() != me) {
            // A thread that panicked has said so.
            let _ = handle.join();
        }
    }

    fn is_own(&self) -> bool {
        let me = thread::current().id();
        self.lock().iter().any(|handle| handle.thread().id() == me)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a thread for as long as it lives.
struct Running(Arc<(Mutex<usize>, Condvar)>);

impl Running {
    fn new(running: &Arc<(Mutex<usize>, Condvar)>) -> Self {
        *running.0.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Running(running.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.1.notify_all();
    }
}
