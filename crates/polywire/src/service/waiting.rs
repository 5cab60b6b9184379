//! Blocks threads on futures, and collects the wakers of threads and tasks that wait.

use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::Instant,
};

/// Wakes a thread that is parked.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

thread_local! {
    /// The waker of this thread. It is always the same, so [`Wakers`] holds it only once, however
    /// often the thread waits.
    static HERE: Waker = Waker::from(Arc::new(Unpark(thread::current())));
}

/// Polls a future on this thread until it is ready.
pub(super) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = HERE.with(Waker::clone);
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// Polls on this thread until `poll` is ready. `None` if that takes until `deadline`.
pub(super) fn block_until<T>(deadline: Instant, mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Option<T> {
    let waker = HERE.with(Waker::clone);
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = poll(&mut context) {
            return Some(output);
        }
        let left = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
        thread::park_timeout(left);
    }
}

/// The wakers of those that wait for one event. Each is held once, however often it is added.
#[derive(Debug, Default)]
pub(super) struct Wakers(Vec<Waker>);

impl Wakers {
    pub(super) fn add(&mut self, waker: &Waker) {
        if !self.0.iter().any(|other| other.will_wake(waker)) {
            self.0.push(waker.clone());
        }
    }

    /// Takes all wakers, so that the caller can wake them without a lock.
    pub(super) fn take(&mut self) -> Wakers {
        std::mem::take(self)
    }

    pub(super) fn wake(self) {
        self.0.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_thread_that_waits_again_and_again_is_there_once() {
        let mut wakers = Wakers::default();
        for _ in 0..100 {
            let waited = block_until(Instant::now(), |context| {
                wakers.add(context.waker());
                Poll::<()>::Pending
            });
            assert_eq!(waited, None);
        }
        assert_eq!(wakers.0.len(), 1);
        // The thread is unparked even if it has stopped waiting.
        wakers.take().wake();
        let start = Instant::now();
        thread::park_timeout(Duration::from_secs(60));
        assert!(start.elapsed() < Duration::from_secs(60));
    }
}
