//! Publishing without blocking the thread: for asynchronous runtimes of any kind.

use std::{
    collections::VecDeque,
    mem,
    ops::Deref,
    pin::Pin,
    slice,
    sync::Arc,
    task::{Context, Poll, Waker},
    thread::{self, JoinHandle},
};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::{
    coding::{Coding, Typed},
    engine::{EngineError, Sent},
    error::NodeError,
    publisher::{PublishAllError, PublishError, PublisherOf},
};

/// Publishes values of a Rust type without blocking.
pub type AsyncPublisher<T> = AsyncPublisherOf<Typed<T>>;

/// A publisher whose [`publish`](AsyncPublisherOf::publish) is a future: while a queue with
/// [`Overflow::Block`](crate::Overflow::Block) is full, the future waits and not the thread. Works
/// in every runtime. [`PublisherOf::into_async`] makes it.
///
/// A thread of its own publishes the values, in the order in which their futures were first polled.
/// Each future costs two changes between threads, so in a flood of small values
/// [`publish_all`](AsyncPublisherOf::publish_all) is much faster. The thread's queue holds only
/// values of pending futures. The other methods are those of [`PublisherOf`].
///
/// If a publication panics, the thread ends: pending and later futures fail with
/// [`EngineError::Closed`]. Dropping the publisher waits for the thread, for at most
/// [`EngineOptions::linger`](crate::engine::EngineOptions::linger).
///
/// ```
/// use polywire::{AsyncPublisher, AsyncPublisherOf, Node, Publishing, PublishingAll, coding::Typed};
/// # use std::{pin::pin, sync::Arc, task::{Context, Poll, Wake, Waker}, thread};
/// # struct Unpark(thread::Thread);
/// # impl Wake for Unpark {
/// #     fn wake(self: Arc<Self>) { self.0.unpark() }
/// # }
/// # fn block_on<F: Future>(future: F) -> F::Output {
/// #     let (mut future, waker) = (pin!(future), Waker::from(Arc::new(Unpark(thread::current()))));
/// #     loop {
/// #         match future.as_mut().poll(&mut Context::from_waker(&waker)) {
/// #             Poll::Ready(output) => return output,
/// #             Poll::Pending => thread::park(),
/// #         }
/// #     }
/// # }
/// # #[derive(Debug, Default, PartialEq, polywire::Message)]
/// # struct Pump { id: u32 }
/// let node = Node::new();
/// let pumps = node.subscriber_on::<Pump>("pumps", "cdr@inproc/async-doc")?;
/// let publisher: AsyncPublisher<Pump> = node.publisher_on("pumps", "cdr@inproc/async-doc")?.into_async()?;
/// block_on(async {
///     assert_eq!(publisher.publish(Pump { id: 1 }).await.map(|sent| sent.peers)?, 1);
///     let both: PublishingAll<'_, Typed<Pump>> = publisher.publish_all(vec![Pump { id: 2 }, Pump { id: 3 }]);
///     assert_eq!(both.await.map(|sent| sent.peers)?, 2);
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// assert_eq!([(); 3].map(|()| pumps.recv().unwrap().value.id), [1, 2, 3]);
/// let publisher: &AsyncPublisherOf<Typed<Pump>> = &publisher;
/// assert_eq!(publisher.topic(), "pumps");
/// let never_polled: Publishing<'_, Typed<Pump>> = publisher.publish(Pump { id: 4 });
/// drop(never_polled);
/// assert!(pumps.try_recv().is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct AsyncPublisherOf<C: Coding> {
    shared: Arc<Shared<C>>,
    /// `None` once the publisher is being dropped.
    thread: Option<JoinHandle<()>>,
}

struct Shared<C: Coding> {
    publisher: PublisherOf<C>,
    state: Mutex<State<C::Value>>,
    arrived: Condvar,
    /// Notified when the thread ends.
    ended: Condvar,
}

struct State<V> {
    /// Values that wait to be published, each with the number of its future.
    waiting: VecDeque<(u64, Values<V>)>,
    /// Futures of values that wait, or are being published.
    futures: Vec<(u64, Progress)>,
    /// The number of the last future.
    last: u64,
    closed: bool,
    /// The thread publishes nothing more.
    has_ended: bool,
}

/// The values of one future.
enum Values<V> {
    One(V),
    All(Vec<V>),
}

enum Progress {
    Waits(Waker),
    Done(Result<Sent, PublishAllError>),
}

impl<C: Coding> PublisherOf<C> {
    /// Makes a publisher for asynchronous code. Fails if a thread cannot be started.
    pub fn into_async(self) -> Result<AsyncPublisherOf<C>, NodeError> {
        let state = State { waiting: VecDeque::new(), futures: Vec::new(), last: 0, closed: false, has_ended: false };
        let (arrived, ended) = (Condvar::new(), Condvar::new());
        let shared = Arc::new(Shared { publisher: self, state: Mutex::new(state), arrived, ended });
        let working = shared.clone();
        let work = move || working.run();
        let thread = thread::Builder::new().name("pw-publish".into()).spawn(work).map_err(NodeError::Thread)?;
        Ok(AsyncPublisherOf { shared, thread: Some(thread) })
    }
}

impl<C: Coding> AsyncPublisherOf<C> {
    /// Publishes a value. The future completes when all queues have room for the value, with the
    /// result of [`PublisherOf::publish`]. Dropping the future earlier withdraws the value, unless
    /// the thread is publishing it already.
    pub fn publish(&self, value: C::Value) -> Publishing<'_, C> {
        Publishing(Job::new(&self.shared, Values::One(value)))
    }

    /// Publishes values one after the other. The future completes when all queues have room for all
    /// values, with the result of [`PublisherOf::publish_all`]. Dropping the future earlier
    /// withdraws all values, unless the thread is publishing them already: then it publishes all of
    /// them.
    pub fn publish_all(&self, values: Vec<C::Value>) -> PublishingAll<'_, C> {
        PublishingAll(Job::new(&self.shared, Values::All(values)))
    }
}

impl<C: Coding> Deref for AsyncPublisherOf<C> {
    type Target = PublisherOf<C>;

    fn deref(&self) -> &PublisherOf<C> {
        &self.shared.publisher
    }
}

impl<C: Coding> Drop for AsyncPublisherOf<C> {
    /// Waits for the thread, which holds the node too: if this is the node's last handle, its ports
    /// close on the calling thread, before a program can end. Only a publication whose future was
    /// dropped can keep the thread.
    fn drop(&mut self) {
        let shared = &*self.shared;
        shared.lock().closed = true;
        shared.arrived.notify_all();
        let is_other = |thread: &JoinHandle<()>| thread.thread().id() != thread::current().id();
        let Some(thread) = self.thread.take().filter(is_other) else { return };
        let linger = shared.publisher.node().linger();
        let is_working = |state: &mut State<C::Value>| !state.has_ended;
        if !shared.ended.wait_while_for(&mut shared.lock(), is_working, linger).timed_out() {
            // A publication that panicked has printed why.
            let _ = thread.join();
        }
    }
}

/// A value that is being published: see [`AsyncPublisherOf::publish`].
#[must_use = "nothing is published before it is polled"]
pub struct Publishing<'a, C: Coding>(Job<'a, C>);

/// Values that are being published: see [`AsyncPublisherOf::publish_all`].
#[must_use = "nothing is published before it is polled"]
pub struct PublishingAll<'a, C: Coding>(Job<'a, C>);

/// No field is pinned.
impl<C: Coding> Unpin for Publishing<'_, C> {}

/// No field is pinned.
impl<C: Coding> Unpin for PublishingAll<'_, C> {}

impl<C: Coding> Future for Publishing<'_, C> {
    type Output = Result<Sent, PublishError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(context).map_err(|error| error.cause)
    }
}

impl<C: Coding> Future for PublishingAll<'_, C> {
    type Output = Result<Sent, PublishAllError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(context)
    }
}

/// One future: its values, or its place in the thread's queue.
struct Job<'a, C: Coding> {
    shared: &'a Shared<C>,
    /// The values, until the first poll.
    values: Option<Values<C::Value>>,
    /// The future's number, from the first poll on.
    number: Option<u64>,
}

impl<'a, C: Coding> Job<'a, C> {
    fn new(shared: &'a Shared<C>, values: Values<C::Value>) -> Self {
        Job { shared, values: Some(values), number: None }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Sent, PublishAllError>> {
        let mut state = self.shared.lock();
        if !state.has_ended
            && let Some(values) = self.values.take()
        {
            state.last += 1;
            let number = state.last;
            state.waiting.push_back((number, values));
            state.futures.push((number, Progress::Waits(context.waker().clone())));
            drop(state);
            self.number = Some(number);
            self.shared.arrived.notify_one();
            return Poll::Pending;
        }
        let at = self.number.and_then(|number| state.futures.iter().position(|(other, _)| *other == number));
        let Some(at) = at else {
            let cause = PublishError::Engine(EngineError::Closed);
            return Poll::Ready(Err(PublishAllError { published: 0, cause }));
        };
        if let Progress::Waits(waker) = &mut state.futures[at].1 {
            waker.clone_from(context.waker());
            return Poll::Pending;
        }
        match state.futures.swap_remove(at).1 {
            Progress::Done(result) => Poll::Ready(result),
            Progress::Waits(_) => Poll::Pending,
        }
    }
}

impl<C: Coding> Drop for Job<'_, C> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let taken_back: Vec<_> = {
            let mut state = self.shared.lock();
            state.futures.retain(|(other, _)| *other != number);
            let at = state.waiting.iter().position(|(other, _)| *other == number);
            at.and_then(|at| state.waiting.remove(at)).into_iter().collect()
        };
        // Dropping a value may run code of the application, so the lock is not held.
        drop(taken_back);
    }
}

impl<V> Values<V> {
    fn as_slice(&self) -> &[V] {
        match self {
            Values::One(value) => slice::from_ref(value),
            Values::All(values) => values,
        }
    }
}

impl<C: Coding> Shared<C> {
    /// Publishes the values that wait, until the publisher is dropped or a publication panics.
    fn run(&self) {
        let _ending = Ending(self);
        while let Some((number, values)) = self.next() {
            let result = self.publisher.publish_all(values.as_slice());
            let waker = {
                let mut state = self.lock();
                let future = state.futures.iter_mut().find(|(other, _)| *other == number);
                future.map(|(_, progress)| mem::replace(progress, Progress::Done(result)))
            };
            if let Some(Progress::Waits(waker)) = waker {
                waker.wake();
            }
        }
    }

    fn next(&self) -> Option<(u64, Values<C::Value>)> {
        let mut state = self.lock();
        self.arrived.wait_while(&mut state, |state| state.waiting.is_empty() && !state.closed);
        state.waiting.pop_front()
    }

    fn lock(&self) -> MutexGuard<'_, State<C::Value>> {
        self.state.lock()
    }
}

/// Ends the futures that still wait when the thread ends, also by a panic.
struct Ending<'a, C: Coding>(&'a Shared<C>);

impl<C: Coding> Drop for Ending<'_, C> {
    fn drop(&mut self) {
        let (waiting, futures) = {
            let mut state = self.0.lock();
            state.has_ended = true;
            let all = mem::take(&mut state.futures).into_iter();
            let (futures, done): (Vec<_>, Vec<_>) =
                all.partition(|(_, progress)| matches!(progress, Progress::Waits(_)));
            state.futures = done;
            (mem::take(&mut state.waiting), futures)
        };
        self.0.ended.notify_all();
        for (_, progress) in futures {
            if let Progress::Waits(waker) = progress {
                waker.wake();
            }
        }
        // Dropping a value may run code of the application, so the lock is not held.
        drop(waiting);
    }
}
