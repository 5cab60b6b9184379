//! Where entries come from: a small trait, and the source that subscribes to topics.

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

/// The most origins that a subscription remembers, so that their entries share one.
const MOST_ORIGINS: usize = 65_536;

/// An entry with its position in its source.
#[derive(Clone, Debug)]
pub struct Numbered {
    /// Rises from entry to entry, beginning above 0.
    pub position: u64,
    /// The entry.
    pub entry: Entry,
}

/// Where a collector gets entries. Each source has a thread of its own, which alone calls it.
///
/// ```
/// use polywire::{Node, Record, Shape};
/// use polywire_collector::{Collector, CollectorConfig, Entry, Numbered, Source};
/// use std::{sync::mpsc, thread, time::Duration};
/// # use polywire::Message;
/// # #[derive(Default, Message)]
/// # struct Pump { id: u32 }
///
/// /// Three entries, and then none. Tells what is stored.
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
    /// The next entry. Blocks for at most `patience`, which is at most a second; `None` if there
    /// was none. The collector unparks this thread when it has something else to do, so a source
    /// that parks it should return then.
    fn next(&mut self, patience: Duration) -> Option<Numbered>;

    /// All entries up to this position are stored by every handler that gets them, apart from those
    /// that a handler has dropped by its policy or refused, which its counters say. A source that
    /// keeps entries until then loses none if the collector is killed. Positions rise from call to
    /// call.
    fn acknowledge(&mut self, position: u64);

    /// Whether it keeps entries until they are acknowledged. One that does not is looked after less
    /// often, which takes less processor time.
    fn keeps(&self) -> bool {
        true
    }
}

/// Wakes a thread that is parked.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The topics of a pattern at some endpoints.
pub(crate) struct Subscribed {
    subscriber: Subscriber<Record>,
    /// Patterns of other subscriptions, whose topics this one leaves to them.
    others: Vec<Pattern>,
    origins: BTreeMap<(Arc<str>, u64), Arc<Origin>>,
    taken: u64,
}

impl Subscribed {
    /// `others` are the patterns that other subscriptions of the same collector have.
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

    /// The next message. Waits until there is one, the time is over, or this thread is unparked.
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
        if self.origins.len() >= MOST_ORIGINS {
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

    /// Writers of topics keep nothing for the collector.
    fn acknowledge(&mut self, _: u64) {}

    fn keeps(&self) -> bool {
        false
    }
}
