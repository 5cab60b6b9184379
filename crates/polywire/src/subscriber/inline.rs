//! A callback that runs on the threads that read links.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
};

use parking_lot::{Mutex, MutexGuard};

use super::{Info, Sample};
use crate::queue::Weighed;

type Callback<V> = Box<dyn FnMut(&V, &Info) + Send>;

/// The callback, and the value that it is called with. `None` once the subscription has ended.
type Parts<V> = Option<(Callback<V>, Weighed<V>)>;

/// A callback, and the value that it is called with, which is reused.
pub(super) struct Inline<V> {
    parts: Mutex<Parts<V>>,
    /// Bytes of memory that the value may keep from one message to the next.
    limit: usize,
    /// The number ([`here`]) of the thread that decodes for the callback and runs it, or 0.
    running_on: AtomicUsize,
    closed: AtomicBool,
    /// Messages that arrive during a call on the thread of that call, because the callback
    /// publishes them. The callback gets them after the call.
    waiting: Mutex<Waiting<V>>,
    /// Whether `waiting` has messages. Used only with `parts` locked.
    any_waiting: AtomicBool,
}

struct Waiting<V> {
    queue: VecDeque<Weighed<Sample<V>>>,
    /// The bytes of the messages.
    bytes: usize,
}

/// Exclusive access to the callback, for one call or several.
pub(super) struct CallbackGuard<'a, V> {
    inline: &'a Inline<V>,
    /// Dropped before `parts`, so that it does not clear the number of the next thread.
    _running: Running<'a>,
    parts: MutexGuard<'a, Parts<V>>,
}

/// Clears the number of the thread, also if the callback panics.
struct Running<'a>(&'a AtomicUsize);

impl<V> Inline<V> {
    pub(super) fn new(callback: Callback<V>, value: V, limit: usize) -> Self {
        Inline {
            parts: Mutex::new(Some((callback, Weighed::new(value, 0)))),
            limit,
            running_on: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            waiting: Mutex::new(Waiting { queue: VecDeque::new(), bytes: 0 }),
            any_waiting: AtomicBool::new(false),
        }
    }

    /// Whether this thread has access to the callback: normally, this is within a call.
    #[inline]
    pub(super) fn is_running_here(&self) -> bool {
        // Only this thread can have stored its own number.
        self.running_on.load(Ordering::Relaxed) == here()
    }

    /// Waits for exclusive access to the callback, which ends when the result is dropped. Never
    /// returns if this thread has access already.
    #[inline]
    pub(super) fn lock(&self) -> CallbackGuard<'_, V> {
        let parts = self.parts.lock();
        self.running_on.store(here(), Ordering::Relaxed);
        CallbackGuard { inline: self, _running: Running(&self.running_on), parts }
    }

    /// Calls the callback with a value that is already decoded. Within a call on this thread, the
    /// value waits until the call has ended. Returns false if there is no room for it.
    pub(super) fn give(&self, info: Info, given: V, bytes: usize) -> bool {
        if self.is_running_here() {
            return self.keep(Weighed::new(Sample { value: given, info }, bytes));
        }
        let mut guard = self.lock();
        guard.call_waiting();
        let Some((callback, value)) = guard.parts.as_mut().filter(|_| self.is_open()) else { return true };
        *value = Weighed::new(given, bytes);
        callback(&value.item, &info);
        true
    }

    /// Adds a message to those that wait, if they are within the limit or nothing else waits.
    #[cold]
    fn keep(&self, message: Weighed<Sample<V>>) -> bool {
        let mut waiting = self.waiting.lock();
        let bytes = waiting.bytes.saturating_add(message.bytes);
        if !waiting.queue.is_empty() && bytes > self.limit {
            return false;
        }
        waiting.bytes = bytes;
        waiting.queue.push_back(message);
        self.any_waiting.store(true, Ordering::Relaxed);
        true
    }

    fn next_waiting(&self) -> Option<Sample<V>> {
        let mut waiting = self.waiting.lock();
        let Some(next) = waiting.queue.pop_front() else {
            self.any_waiting.store(false, Ordering::Relaxed);
            return None;
        };
        waiting.bytes = waiting.bytes.saturating_sub(next.bytes);
        Some(next.item)
    }

    /// Bytes of memory that the value may keep from one message to the next.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    fn is_open(&self) -> bool {
        !self.closed.load(Ordering::Acquire)
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        if !self.is_running_here() {
            // Taking the lock waits for a call that runs on another thread.
            drop(self.parts.lock().take());
        }
    }
}

impl<V> CallbackGuard<'_, V> {
    /// Returns the used value, to decode a message into. Calls the callback with the messages that
    /// wait. Returns `None` if the subscription has ended.
    #[inline]
    pub(super) fn value(&mut self) -> Option<&mut V> {
        self.call_waiting();
        let (_, value) = self.parts.as_mut().filter(|_| self.inline.is_open())?;
        Some(&mut value.item)
    }

    /// Calls the callback with the [value](Self::value) that a message was decoded into. `decoded`
    /// is the number of bytes by which the value grew. The next message gets a fresh value if this
    /// one has grown too large, if decoding failed, or if `again` is false.
    #[inline]
    pub(super) fn call<E>(
        &mut self,
        info: &Info,
        decoded: Result<usize, E>,
        fresh: impl FnOnce() -> V,
        again: bool,
    ) -> Result<(), E> {
        let Some((callback, value)) = self.parts.as_mut() else { return Ok(()) };
        if let Ok(grown) = decoded {
            value.bytes = value.bytes.saturating_add(grown);
            callback(&value.item, info);
        }
        // After an error, it is unknown how far decoding got and how large the value has grown.
        if !again || decoded.is_err() || value.bytes > self.inline.limit {
            *value = Weighed::new(fresh(), 0);
        }
        decoded.map(drop)
    }

    /// Calls the callback with the messages that arrived during the call before.
    #[inline]
    fn call_waiting(&mut self) {
        if self.inline.any_waiting.load(Ordering::Relaxed) {
            self.call_each_waiting();
        }
    }

    #[cold]
    fn call_each_waiting(&mut self) {
        let Some((callback, _)) = self.parts.as_mut() else { return };
        while let Some(Sample { value, info }) = self.inline.next_waiting() {
            if self.inline.is_open() {
                callback(&value, &info);
            }
        }
    }
}

impl<V> Drop for CallbackGuard<'_, V> {
    /// After a panic, messages wait until the next call.
    #[inline]
    fn drop(&mut self) {
        if self.inline.any_waiting.load(Ordering::Relaxed) && !thread::panicking() {
            self.call_each_waiting();
        }
    }
}

impl Drop for Running<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// A number of this thread, which no other thread has while this one runs; not 0. Cheaper than
/// [`std::thread::current`], which counts references.
#[inline]
fn here() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| std::ptr::from_ref(here).addr())
}
