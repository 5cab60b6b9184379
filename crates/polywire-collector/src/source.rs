//! The origin of entries: the trait of sources, and the source that subscribes to topics.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::Duration,
};

use futures_core::Stream as _;
use polywire::{Node, Pattern, Record, Sample, Subscriber, Wire, coding::Discovered};

use crate::{CollectorError, Entry, Origin};

/// The maximum number of cached origins of a subscription. Entries of one writer share an origin.
const MAX_ORIGINS: usize = 65_536;

/// An entry with its position in its source.
#[derive(Clone, Debug)]
pub struct Numbered {
    /// A number that increases from entry to entry, beginning above 0.
    pub position: u64,
    /// The entry.
    pub entry: Entry,
}

/// A source of a collector's entries. Each source has a thread of its own, which alone calls it.
///
/// ```
/// use polywire::{Node, Record, Shape};
/// use polywire_collector::{Collector, CollectorConfig, Entry, Numbered, Source};
/// use std::{sync::mpsc, thread, time::Duration};
/// # use polywire::Message;
/// # #[derive(Default, Message)]
/// # struct Pump { id: u32 }
///
/// /// Returns three entries, and then none. Reports what is stored.
/// struct Three(u64, mpsc::Sender<u64>);
///
/// impl Source for Three {
///     fn next(&mut self, patience: Duration) -> Option<Numbered> {
///         if self.0 == 3 {
///             thread::sleep(patience);
///             return None;
///         }
///         self.0 += 1;
///         let record = Record::new(&Shape::of(Pump::shape().schema()).ok()?);
///         Some(Numbered { position: self.0, entry: Entry::new(Default::default(), self.0, 0, record) })
///     }
///
///     fn acknowledge(&mut self, position: u64) {
///         self.1.send(position).unwrap();
///     }
/// }
///
/// let (tell, told) = mpsc::channel();
/// let mut collector = Collector::new(Node::new());
/// let config = CollectorConfig::parse("[handlers.none]\nkind = 'null'\nsync = 0")?;
/// collector.add_handler(config.handlers[0].clone())?;
/// collector.add_source(Box::new(Three(0, tell)))?;
/// while told.recv_timeout(Duration::from_secs(60))? < 3 {}
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Source: Send {
    /// Returns the next entry. Blocks for at most `patience`, which is at most a second; `None` if
    /// there was none. The collector unparks this thread when it has another task for it, so a
    /// source that parks the thread should return then.
    fn next(&mut self, patience: Duration) -> Option<Numbered>;

    /// Reports that all entries up to this position are stored by every handler that receives them,
    /// except for entries that a handler has dropped by its policy or refused, which its counters
    /// include. A source that keeps entries until then loses none if the collector is killed.
    /// Positions increase from call to call.
    fn acknowledge(&mut self, position: u64);

    /// Returns whether the source keeps entries until they are acknowledged. If not, the collector
    /// checks less often for acknowledgements, which takes less processor time.
    fn keeps(&self) -> bool {
        true
    }
}

/// Unparks a thread when it is woken.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A subscription to the topics of a pattern at some endpoints.
pub(crate) struct Subscribed {
    subscriber: Subscriber<Record>,
    /// Patterns of other subscriptions; entries of their topics are ignored here.
    others: Vec<Pattern>,
    origins: BTreeMap<(Arc<str>, u64), Arc<Origin>>,
    taken: u64,
}

impl Subscribed {
    /// Subscribes. `others` are the patterns of other subscriptions of the same collector.
    pub fn open(
        node: &Node,
        pattern: &Pattern,
        others: &[Pattern],
        endpoints: &[Wire],
    ) -> Result<Subscribed, CollectorError> {
        let coding = Discovered::new().map_err(|error| CollectorError::Coding(error.to_string()))?;
        let mut wires = endpoints.iter().map(ToString::to_string);
        let subscribe = node.subscribe_of(pattern.as_str(), wires.next().as_deref(), coding)?;
        let subscribe = wires.try_fold(subscribe, |subscribe, wire| subscribe.also(&wire))?;
        Ok(Subscribed { subscriber: subscribe.open(), others: others.to_vec(), origins: BTreeMap::new(), taken: 0 })
    }

    /// Returns the next message. Waits until there is one, the time has passed, or this thread is
    /// unparked.
    fn wait(&mut self, patience: Duration) -> Option<Sample<Record>> {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let subscriber = Pin::new(&mut self.subscriber);
        match subscriber.poll_next(&mut Context::from_waker(&waker)) {
            Poll::Ready(sample) => sample,
            Poll::Pending => {
                thread::park_timeout(patience);
                self.subscriber.try_recv()
            }
        }
    }

    fn origin(&mut self, topic: &str, writer: polywire::extend::envelope::Id128, incarnation: u64) -> Arc<Origin> {
        let key: (Arc<str>, u64) = (format!("{writer}/{topic}").into(), incarnation);
        if self.origins.len() >= MAX_ORIGINS {
            self.origins.clear();
        }
        let fresh = || Arc::new(Origin { topic: topic.to_owned(), writer, incarnation });
        self.origins.entry(key).or_insert_with(fresh).clone()
    }
}

impl Source for Subscribed {
    fn next(&mut self, patience: Duration) -> Option<Numbered> {
        let sample = self.wait(patience)?;
        if self.others.iter().any(|other| other.fits(sample.info.topic())) {
            return None;
        }
        let announced = sample.info.source.announcement.clone();
        let origin = self.origin(&announced.topic, announced.writer, announced.incarnation);
        self.taken += 1;
        Some(Numbered { position: self.taken, entry: Entry::of(sample, origin) })
    }

    /// Writers of topics do not keep messages for the collector.
    fn acknowledge(&mut self, _: u64) {}

    fn keeps(&self) -> bool {
        false
    }
}
