//! A callback that runs on the threads that read links.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::Info;
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
}

/// Exclusive access to the callback, for one call or several.
pub(super) struct CallbackGuard<'a, V> {
    inline: &'a Inline<V>,
    parts: MutexGuard<'a, Parts<V>>,
}

impl<V> Inline<V> {
    pub(super) fn new(callback: Callback<V>, value: V, limit: usize) -> Self {
        Inline {
            parts: Mutex::new(Some((callback, Weighed::new(value, 0)))),
            limit,
            running_on: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
        }
    }

    /// Waits for exclusive access to the callback, which ends when the result is dropped.
    #[inline]
    pub(super) fn lock(&self) -> CallbackGuard<'_, V> {
        let parts = self.parts.lock();
        self.running_on.store(here(), Ordering::Relaxed);
        CallbackGuard { inline: self, parts }
    }

    /// Calls the callback with a value that is already decoded.
    pub(super) fn give(&self, info: &Info, given: V, bytes: usize) {
        let mut guard = self.lock();
        let Some((callback, value)) = guard.parts.as_mut().filter(|_| self.is_open()) else { return };
        *value = Weighed::new(given, bytes);
        callback(&value.item, info);
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
        // Only this thread can have stored its own number.
        let here = self.running_on.load(Ordering::Relaxed) == here();
        if !here {
            // Taking the lock waits for a call that runs on another thread.
            drop(self.parts.lock().take());
        }
    }
}

impl<V> CallbackGuard<'_, V> {
    /// Decodes into the used value and calls the callback. `decode` returns the bytes by which the
    /// value grew. The next message gets a fresh value if this one has grown too large, if decoding
    /// fails, or if `again` is false.
    #[inline]
    pub(super) fn call<E>(
        &mut self,
        info: &Info,
        decode: impl FnOnce(&mut V) -> Result<usize, E>,
        fresh: impl FnOnce() -> V,
        again: bool,
    ) -> Result<(), E> {
        let Some((callback, value)) = self.parts.as_mut().filter(|_| self.inline.is_open()) else { return Ok(()) };
        let decoded = decode(&mut value.item).map(|grown| value.bytes = value.bytes.saturating_add(grown));
        if decoded.is_ok() {
            callback(&value.item, info);
        }
        // After an error, it is unknown how far decoding got and how large the value has grown.
        if !again || decoded.is_err() || value.bytes > self.inline.limit {
            *value = Weighed::new(fresh(), 0);
        }
        decoded
    }
}

impl<V> Drop for CallbackGuard<'_, V> {
    fn drop(&mut self) {
        self.inline.running_on.store(0, Ordering::Relaxed);
    }
}

/// A number of this thread, which no other thread has while this one runs; not 0. Cheaper than
/// [`std::thread::current`], which counts references.
#[inline]
fn here() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| std::ptr::from_ref(here).addr())
}
