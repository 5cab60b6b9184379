//! A collector: sources on one side, handlers on the other.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard, RwLock};
use polywire::{Bridge, Node, Wire};

use crate::{
    Alert, CollectorConfig, CollectorError, CollectorProbe, HandlerContext, HandlerError, HandlerPlan, Numbered,
    Source,
    alerts::{AlertSource, Alerts},
    lane::Lane,
    nodes::Nodes,
    source::Subscribed,
};

/// How often a source looks whether it is to end, and what it can acknowledge.
const TICK: Duration = Duration::from_millis(50);

/// The same for a source that keeps nothing. Its thread is unparked when it is to look.
const LONG_TICK: Duration = Duration::from_secs(1);

/// How long a handler that a new configuration does not have any more may take to store what it
/// has.
const PATIENCE: Duration = Duration::from_secs(5);

/// How a handler is doing, and what it has counted since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandlerStatus {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: &'static str,
    /// Entries that came for it.
    pub received: u64,
    /// Entries that it has stored.
    pub stored: u64,
    /// Entries that it did not get because its queue was full.
    pub dropped: u64,
    /// Entries that it cannot handle.
    pub refused: u64,
    /// How often it failed. It is opened again each time.
    pub failures: u64,
    /// Entries that wait in its queue.
    pub waiting: usize,
    /// The memory that they take, in bytes.
    pub waiting_bytes: usize,
    /// Why it does not work now; empty if it does.
    pub problem: String,
}

/// What a collector has done with a new configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Changes {
    /// Names of handlers that were opened.
    pub opened: Vec<String>,
    /// Names of handlers that were closed. One that has changed is in both lists.
    pub closed: Vec<String>,
}

/// Takes entries from sources and gives them to handlers, until it is dropped.
///
/// Dropping it is [`Collector::stop`] with no patience: what is not stored yet may be lost.
///
/// ```
/// use polywire::Node;
/// use polywire_collector::{Changes, Collector, CollectorConfig, CollectorError, HandlerPlan, HandlerStatus};
/// use std::time::Duration;
///
/// let mut collector = Collector::new(Node::new());
/// let head = "[collector]\nendpoints = ['inproc/collector-changes']\n";
/// let config = CollectorConfig::parse(&format!("{head}[handlers.a]\nkind = 'null'"))?;
/// let plan: &HandlerPlan = &config.handlers[0];
/// let Changes { opened, closed, .. } = collector.reload(&config)?;
/// assert_eq!((opened, closed.len()), (vec![plan.name.clone()], 0));
/// let status: Vec<HandlerStatus> = collector.status();
/// assert_eq!((status[0].kind, status[0].received), ("null", 0));
///
/// let config = CollectorConfig::parse(&format!("{head}[handlers.b]\nkind = 'csv'\npath = 'x'\nzstd = true"))?;
/// match collector.reload(&config) {
///     Ok(changes) => assert_eq!((changes.opened, changes.closed), (vec!["b".to_owned()], vec!["a".to_owned()])),
///     // Without the feature `zstd`.
///     Err(CollectorError::Handler { line, .. }) => assert_eq!(line, 3),
///     Err(other) => return Err(other.into()),
/// }
/// let (ended, _) = collector.stop(Duration::from_secs(60));
/// assert!(ended);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Collector {
    node: Node,
    lanes: Arc<Lanes>,
    alerts: Arc<Alerts>,
    feeds: Vec<Feed>,
    bridges: Vec<Bridge>,
    /// Topics, endpoints and wires that the subscriptions and bridges were made for.
    places: String,
    sources: usize,
}

/// The handlers, replaced as a whole: whoever offers an entry holds no lock meanwhile.
pub(crate) type Lanes = RwLock<Arc<Vec<Arc<Lane>>>>;

/// A source with its thread.
struct Feed {
    valve: Arc<Valve>,
    thread: JoinHandle<()>,
    /// The configuration made it, not the program.
    is_configured: bool,
}

impl Feed {
    /// Tells the thread what it is to do from now on.
    fn set(&self, phase: u8) {
        self.valve.phase.store(phase, Ordering::Release);
        self.thread.thread().unpark();
    }
}

/// What the thread of a source is to do.
#[derive(Default)]
struct Valve {
    phase: AtomicU8,
    /// Held while an entry is on its way from the source to the queues.
    passing: Mutex<()>,
}

/// The phases: takes entries, takes only those that are there already, only acknowledges, or ends.
const TAKES: u8 = 0;
const DRAINS: u8 = 1;
const PAUSES: u8 = 2;
const ENDS: u8 = 3;

impl Valve {
    fn phase(&self) -> u8 {
        self.phase.load(Ordering::Acquire)
    }

    fn passing(&self) -> MutexGuard<'_, ()> {
        self.passing.lock()
    }
}

impl Collector {
    /// A collector without sources and handlers.
    pub fn new(node: Node) -> Collector {
        Collector {
            node,
            lanes: Arc::default(),
            alerts: Arc::default(),
            feeds: Vec::new(),
            bridges: Vec::new(),
            places: String::new(),
            sources: 0,
        }
    }

    /// Goes over to a configuration. Handlers that are the same in it run on; others are closed
    /// when they have stored what they have, for which they get 5 s. If a handler cannot be
    /// opened, the error is returned after everything else has been done. A handler that fails for
    /// reasons outside its settings is no error: it is opened again later.
    pub fn reload(&mut self, config: &CollectorConfig) -> Result<Changes, CollectorError> {
        let mut changes = Changes::default();
        let lanes = self.lanes();
        let is_kept = |lane: &Arc<Lane>| config.handlers.contains(&lane.plan);
        let (kept, old): (Vec<_>, Vec<_>) = lanes.iter().cloned().partition(is_kept);
        changes.closed = old.iter().map(|lane| lane.plan.name.clone()).collect();
        if !old.is_empty() {
            // Nothing may come between the old and the new form of a handler.
            self.pause();
            close(&old, PATIENCE);
            self.set_lanes(kept);
        }
        let result = self.open_missing(config, &mut changes);
        self.alerts.set_plans(&config.alerts, Instant::now());
        self.feeds.iter().for_each(|feed| feed.set(TAKES));
        self.go_to(config)?;
        result.map(|()| changes)
    }

    fn open_missing(&mut self, config: &CollectorConfig, changes: &mut Changes) -> Result<(), CollectorError> {
        let mut result = Ok(());
        for plan in &config.handlers {
            if self.lanes().iter().any(|lane| lane.plan == *plan) {
                continue;
            }
            match self.add_handler(plan.clone()) {
                Ok(()) => changes.opened.push(plan.name.clone()),
                Err(error) => result = Err(error),
            }
        }
        result
    }

    /// Stops taking entries, and waits until none is on its way to the queues.
    fn pause(&self) {
        self.feeds.iter().for_each(|feed| feed.set(PAUSES));
        self.feeds.iter().for_each(|feed| drop(feed.valve.passing()));
    }

    /// Opens a handler, which gets all entries from now on.
    pub fn add_handler(&mut self, plan: HandlerPlan) -> Result<(), CollectorError> {
        let (kind, settings) = (plan.kind, plan.settings.clone());
        // The handler's thread has the context, and the list of all handlers has that thread.
        let context = HandlerContext::of(self.node.clone(), Arc::downgrade(&self.lanes));
        let open = Box::new(move || (kind.open)(&settings, &context));
        let handler = match open() {
            Ok(handler) => Some(handler),
            Err(HandlerError::Setting(reason)) => {
                return Err(CollectorError::Handler { name: plan.name, line: plan.line, reason });
            }
            // The thread tries again, and reports it.
            Err(_) => None,
        };
        let mut lanes = Vec::clone(&self.lanes());
        lanes.push(Lane::start(plan, open, handler)?);
        lanes.sort_by(|a, b| a.plan.name.cmp(&b.plan.name));
        self.set_lanes(lanes);
        Ok(())
    }

    /// Takes entries from a source, too, on a thread of its own.
    pub fn add_source(&mut self, source: Box<dyn Source>) -> Result<(), CollectorError> {
        let alerts = Some(self.alerts.clone());
        self.feed(source, alerts, false)
    }

    /// Starts the thread of a source. `alerts` see what comes from it.
    fn feed(
        &mut self,
        source: Box<dyn Source>,
        alerts: Option<Arc<Alerts>>,
        is_configured: bool,
    ) -> Result<(), CollectorError> {
        self.sources += 1;
        let (number, valve) = (self.sources, Arc::new(Valve::default()));
        let way = Way { number, lanes: self.lanes.clone(), alerts, valve: valve.clone() };
        let thread = thread::Builder::new().name(format!("source {number}")).spawn(move || feed(source, &way))?;
        self.feeds.push(Feed { valve, thread, is_configured });
        Ok(())
    }

    /// Subscribes and serves where the configuration says, if that has changed.
    fn go_to(&mut self, config: &CollectorConfig) -> Result<(), CollectorError> {
        let local: Vec<Wire> = "local".parse().into_iter().collect();
        let endpoints = if config.endpoints.is_empty() { &local } else { &config.endpoints };
        let has_alerts = self.alerts.is_used();
        let places = format!("{:?}", (&config.topics, endpoints, &config.nodes, &config.serve, has_alerts));
        if places == self.places {
            return Ok(());
        }
        let mut sources: Vec<Box<dyn Source>> = Vec::new();
        for (at, pattern) in config.topics.iter().enumerate() {
            let others = config.topics.get(..at).unwrap_or_default();
            sources.push(Box::new(Subscribed::open(&self.node, pattern, others, endpoints)?));
        }
        let bridges = self.bridges(config, endpoints)?;
        let (old, kept): (Vec<_>, Vec<_>) = self.feeds.drain(..).partition(|feed| feed.is_configured);
        // If something fails from here on, the next reload tries again.
        (self.feeds, self.bridges, self.places) = (kept, bridges, String::new());
        end(old);
        // After the end of the one that had the file before.
        if let Some(file) = &config.nodes {
            sources.push(Box::new(Nodes::open(&self.node, endpoints, file)?));
        }
        for source in sources {
            let alerts = Some(self.alerts.clone());
            self.feed(source, alerts, true)?;
        }
        if has_alerts {
            let source = AlertSource::open(&self.node, endpoints, self.alerts.clone())?;
            self.feed(Box::new(source), None, true)?;
        }
        self.places = places;
        Ok(())
    }

    fn bridges(&self, config: &CollectorConfig, endpoints: &[Wire]) -> Result<Vec<Bridge>, CollectorError> {
        let ways = endpoints.iter().flat_map(|from| config.serve.iter().map(move |to| (from, to)));
        ways.map(|(from, to)| {
            // Payloads are passed on as they are, unless the wire to serve at names a format.
            let builder = self.node.bridge(&from.to_string(), &to.to_string())?;
            Ok(builder.topics(config.topics.iter().map(|pattern| pattern.as_str()))?.one_way().open())
        })
        .collect()
    }

    /// How the handlers are doing, in the order of their names.
    pub fn status(&self) -> Vec<HandlerStatus> {
        self.lanes().iter().map(|lane| lane.status()).collect()
    }

    /// What alerts were raised and cleared since the last call, at most 4096 changes. They are also
    /// published on [`ALERTS`](crate::ALERTS), and handlers get them.
    ///
    /// ```
    /// use polywire::Node;
    /// use polywire_collector::{AlertPlan, AlertState, AlertValue, Collector, CollectorConfig, MOST_ALERTS, Severity};
    ///
    /// let config = CollectorConfig::parse("
    ///     [collector]
    ///     endpoints = ['inproc/collector-alerts']
    ///
    ///     [alerts.silent]
    ///     prefix = 'probes/pump-house'
    ///     when = 'processor/ missing for 0.1s'
    ///     severity = 'critical'
    /// ")?;
    /// let plan: &AlertPlan = &config.alerts[0];
    /// assert_eq!((plan.severity.name(), config.alerts.len() <= MOST_ALERTS), ("critical", true));
    /// let mut collector = Collector::new(Node::new());
    /// collector.reload(&config)?;
    /// let alert = loop {
    ///     if let Some(alert) = collector.take_alerts().pop() {
    ///         break alert;
    ///     }
    ///     std::thread::yield_now();
    /// };
    /// assert_eq!((alert.name.as_str(), alert.prefix.as_str()), ("silent", "probes/pump-house"));
    /// assert_eq!((alert.state, alert.severity), (AlertState::Raised, Severity::Critical));
    /// assert_eq!(alert.values, [AlertValue { field: "processor/".into(), value: "missing".into() }]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn take_alerts(&self) -> Vec<Alert> {
        self.alerts.take_untold()
    }

    /// Takes the entries that are there already, and those on their way that come within a second,
    /// but no more, lets the handlers store what they have, and acknowledges that.
    /// Returns whether all could within `patience`, and what they have counted in the end.
    pub fn stop(&mut self, patience: Duration) -> (bool, Vec<HandlerStatus>) {
        self.bridges.clear();
        let until = Instant::now() + patience.min(PATIENCE);
        self.feeds.iter().for_each(|feed| feed.set(DRAINS));
        while Instant::now() < until && self.feeds.iter().any(|feed| feed.valve.phase() == DRAINS) {
            thread::sleep(TICK / 10);
        }
        self.pause();
        let lanes = self.lanes();
        let ended = close(&lanes, patience);
        end(std::mem::take(&mut self.feeds));
        let status = self.status();
        self.set_lanes(Vec::new());
        (ended && status.iter().all(|status| status.problem.is_empty()), status)
    }

    /// The probe of this collector: what its handlers count. A node publishes it
    /// ([`polywire_telemetry::Agent::add_application`]).
    pub fn probe(&self) -> Arc<CollectorProbe> {
        let lanes = self.lanes.clone();
        Arc::new(CollectorProbe::new(move || current(&lanes).iter().map(|lane| lane.status()).collect()))
    }

    fn lanes(&self) -> Arc<Vec<Arc<Lane>>> {
        current(&self.lanes)
    }

    fn set_lanes(&self, lanes: Vec<Arc<Lane>>) {
        *self.lanes.write() = Arc::new(lanes);
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

pub(crate) fn current(lanes: &Lanes) -> Arc<Vec<Arc<Lane>>> {
    lanes.read().clone()
}

/// Closes handlers, all at the same time. Returns false if one has not ended: it hangs.
fn close(lanes: &[Arc<Lane>], patience: Duration) -> bool {
    lanes.iter().for_each(|lane| lane.close(patience));
    // A handler looks at the clock only between two attempts.
    let ended = |lane: &Arc<Lane>| lane.wait(patience + Duration::from_secs(1));
    lanes.iter().filter(|lane| !ended(lane)).inspect(|lane| log::error!("handler '{}' hangs", lane.plan.name)).count()
        == 0
}

fn end(feeds: Vec<Feed>) {
    feeds.iter().for_each(|feed| feed.set(ENDS));
    for feed in feeds {
        // Fails if the source has panicked, which has been reported then.
        let _ = feed.thread.join();
    }
}

/// The way from a source to the handlers.
struct Way {
    /// The number of the source.
    number: usize,
    lanes: Arc<Lanes>,
    alerts: Option<Arc<Alerts>>,
    valve: Arc<Valve>,
}

/// The thread of a source.
fn feed(mut source: Box<dyn Source>, way: &Way) {
    let mut acknowledged = 0;
    let mut drained = None;
    loop {
        let phase = way.valve.phase();
        let idle = if source.keeps() { TICK } else { LONG_TICK };
        let patience = match phase {
            // A topic on which messages never cease to come has no pause either.
            DRAINS => drained.get_or_insert_with(|| Instant::now() + idle).saturating_duration_since(Instant::now()),
            _ => {
                drained = None;
                idle
            }
        };
        let has_more = phase <= DRAINS && way.pass(&mut *source, patience);
        if phase == DRAINS && !has_more && drained.is_none_or(|until| until <= Instant::now()) {
            // There is no more. Unless it was told something else meanwhile:
            let _ = way.valve.phase.compare_exchange(DRAINS, PAUSES, Ordering::AcqRel, Ordering::Acquire);
        }
        let handled = current(&way.lanes).iter().filter_map(|lane| lane.handled(way.number)).min();
        if let Some(position) = handled.filter(|position| *position > acknowledged) {
            acknowledged = position;
            source.acknowledge(position);
        }
        match phase {
            TAKES | DRAINS => {}
            PAUSES => thread::park_timeout(TICK),
            _ => return,
        }
    }
}

impl Way {
    /// Passes an entry on to all queues. Returns false if there was none within `patience`.
    fn pass(&self, source: &mut dyn Source, patience: Duration) -> bool {
        let _passing = self.valve.passing();
        let stops = || self.valve.phase() >= PAUSES;
        // It may have been told to pause while it waited for the lock.
        if stops() {
            return false;
        }
        let Some(Numbered { position, entry }) = source.next(patience) else { return false };
        let is_new = self.alerts.as_ref().is_none_or(|alerts| alerts.see(&entry, Instant::now()));
        if is_new {
            let entry = Arc::new(entry);
            current(&self.lanes).iter().for_each(|lane| lane.offer(self.number, position, &entry, stops));
        }
        true
    }
}
