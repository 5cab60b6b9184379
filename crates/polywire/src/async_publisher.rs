//! Publishing without blocking the thread: for asynchronous runtimes of any kind.

use std::{
    collections::VecDeque,
    ops::Deref,
    pin::Pin,
    slice,
    sync::Arc,
    task::{Context, Poll, Waker},
    thread,
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
pub struct AsyncPublisherOf<C: Coding>(Arc<Shared<C>>);

struct Shared<C: Coding> {
    publisher: PublisherOf<C>,
    state: Mutex<State<C::Value>>,
    arrived: Condvar,
}

struct State<V> {
    /// Values that wait to be published, each with the number of its future.
    waiting: VecDeque<(u64, Values<V>)>,
    /// Futures of values that wait, or are being published.
    futures: Vec<(u64, Progress)>,
    /// The number of the last future.
    last: u64,
    closed: bool,
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
        let state = State { waiting: VecDeque::new(), futures: Vec::new(), last: 0, closed: false };
        let shared = Arc::new(Shared { publisher: self, state: Mutex::new(state), arrived: Condvar::new() });
        let working = shared.clone();
        let work = move || working.run();
        thread::Builder::new().name("pw-publish".into()).spawn(work).map_err(NodeError::Thread)?;
        Ok(AsyncPublisherOf(shared))
    }
}

impl<C: Coding> AsyncPublisherOf<C> {
    /// Publishes a value. The future completes when all queues have room for the value, with the
    /// result of [`PublisherOf::publish`]. Dropping the future earlier withdraws the value, unless
    /// the thread is publishing it already.
    pub fn publish(&self, value: C::Value) -> Publishing<'_, C> {
        Publishing(Job::new(&self.0, Values::One(value)))
    }

    /// Publishes values one after the other. The future completes when all queues have room for all
    /// values, with the result of [`PublisherOf::publish_all`]. Dropping the future earlier
    /// withdraws all values, unless the thread is publishing them already: then it publishes all of
    /// them.
    pub fn publish_all(&self, values: Vec<C::Value>) -> PublishingAll<'_, C> {
        PublishingAll(Job::new(&self.0, Values::All(values)))
    }
}

impl<C: Coding> Deref for AsyncPublisherOf<C> {
    type Target = PublisherOf<C>;

    fn deref(&self) -> &PublisherOf<C> {
        &self.0.publisher
    }
}

impl<C: Coding> Drop for AsyncPublisherOf<C> {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.arrived.notify_all();
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
        if let Some(values) = self.values.take() {
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
    /// Publishes the values that wait, until the publisher is dropped.
    fn run(&self) {
        while let Some((number, values)) = self.next() {
            let result = self.publisher.publish_all(values.as_slice());
            let waker = {
                let mut state = self.lock();
                let future = state.futures.iter_mut().find(|(other, _)| *other == number);
                future.map(|(_, progress)| std::mem::replace(progress, Progress::Done(result)))
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
