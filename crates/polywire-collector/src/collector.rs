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
    nodes::Nodes,
    source::Subscribed,
    worker::HandlerWorker,
};

/// How often a source checks whether it is to end, and what it can acknowledge.
const TICK: Duration = Duration::from_millis(50);

/// The interval for a source that does not keep its entries. Its thread is unparked when necessary.
const LONG_TICK: Duration = Duration::from_secs(1);

/// The time limit for a handler that a new configuration removes or changes to store its entries.
const PATIENCE: Duration = Duration::from_secs(5);

/// The state of a handler, and its counters since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandlerStatus {
    /// The name of the handler.
    pub name: String,
    /// The kind of the handler.
    pub kind: &'static str,
    /// The number of entries that were offered to the handler.
    pub received: u64,
    /// The number of entries that the handler has stored.
    pub stored: u64,
    /// The number of entries that were dropped because the queue was full.
    pub dropped: u64,
    /// The number of entries that the handler cannot handle.
    pub refused: u64,
    /// How often the handler failed. It is opened again each time.
    pub failures: u64,
    /// The number of entries in the queue.
    pub waiting: usize,
    /// The memory of the entries in the queue, in bytes.
    pub waiting_bytes: usize,
    /// Why the handler does not work now; empty if it works.
    pub problem: String,
}

/// The changes that a collector has made for a new configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Changes {
    /// Names of handlers that were opened.
    pub opened: Vec<String>,
    /// Names of handlers that were closed. A changed handler is in both lists.
    pub closed: Vec<String>,
}

/// Receives entries from sources and passes them to handlers, until it is dropped.
///
/// Dropping a collector is [`Collector::stop`] without patience: entries that are not stored yet
/// may be lost.
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
    workers: Arc<HandlerWorkers>,
    alerts: Arc<Alerts>,
    feeds: Vec<Feed>,
    bridges: Vec<Bridge>,
    /// The topics, endpoints and wires of the current subscriptions and bridges.
    places: String,
    sources: usize,
}

/// The handlers. The list is replaced as a whole, so a thread that offers an entry holds no lock.
pub(crate) type HandlerWorkers = RwLock<Arc<Vec<Arc<HandlerWorker>>>>;

/// A source and its thread.
struct Feed {
    control: Arc<SourceControl>,
    thread: JoinHandle<()>,
    /// Whether the configuration has added the source, and not the program.
    is_configured: bool,
}

impl Feed {
    /// Sets the phase of the source, and wakes its thread.
    fn set(&self, phase: u8) {
        self.control.phase.store(phase, Ordering::Release);
        self.thread.thread().unpark();
    }
}

/// The control of a source's thread.
#[derive(Default)]
struct SourceControl {
    phase: AtomicU8,
    /// Locked while an entry is on its way from the source to the queues.
    passing: Mutex<()>,
}

/// The phases: receive entries, receive only the remaining entries, only acknowledge, or end.
const TAKES: u8 = 0;
const DRAINS: u8 = 1;
const PAUSES: u8 = 2;
const ENDS: u8 = 3;

impl SourceControl {
    fn phase(&self) -> u8 {
        self.phase.load(Ordering::Acquire)
    }

    fn passing(&self) -> MutexGuard<'_, ()> {
        self.passing.lock()
    }
}

impl Collector {
    /// Makes a collector without sources and handlers.
    pub fn new(node: Node) -> Collector {
        Collector {
            node,
            workers: Arc::default(),
            alerts: Arc::default(),
            feeds: Vec::new(),
            bridges: Vec::new(),
            places: String::new(),
            sources: 0,
        }
    }

    /// Applies a configuration. Unchanged handlers continue; the others are closed after they have
    /// stored their entries, for which they have 5 s. Entries that are not stored by then are
    /// passed to the new handler of the same name. If a handler cannot be opened, everything else
    /// is still done before the error is returned. A handler that fails for reasons other than its
    /// settings is not an error: it is opened again later.
    pub fn reload(&mut self, config: &CollectorConfig) -> Result<Changes, CollectorError> {
        let mut changes = Changes::default();
        let workers = self.workers();
        let is_kept = |worker: &&Arc<HandlerWorker>| config.handlers.contains(&worker.plan);
        let old: Vec<_> = workers.iter().filter(|worker| !is_kept(worker)).cloned().collect();
        changes.closed = old.iter().map(|worker| worker.plan.name.clone()).collect();
        if !old.is_empty() {
            // No entry may be lost between the old and the new version of a handler.
            self.pause();
            close(&old, PATIENCE);
        }
        let result = self.open_missing(config, &old, &mut changes);
        // Before a new handler has the entries of a former one, the sources must not take them for
        // stored.
        self.set_workers(self.workers().iter().filter(is_kept).cloned().collect());
        self.alerts.set_plans(&config.alerts, Instant::now());
        self.feeds.iter().for_each(|feed| feed.set(TAKES));
        self.go_to(config)?;
        result.map(|()| changes)
    }

    fn open_missing(
        &mut self,
        config: &CollectorConfig,
        old: &[Arc<HandlerWorker>],
        changes: &mut Changes,
    ) -> Result<(), CollectorError> {
        let mut result = Ok(());
        for plan in &config.handlers {
            if self.workers().iter().any(|worker| worker.plan == *plan) {
                continue;
            }
            let former = old.iter().find(|worker| worker.plan.name == plan.name);
            match self.open_handler(plan.clone(), former.map(Arc::as_ref)) {
                Ok(()) => changes.opened.push(plan.name.clone()),
                Err(error) => result = Err(error),
            }
        }
        result
    }

    /// Stops receiving entries, and waits until none is on its way to the queues.
    fn pause(&self) {
        self.feeds.iter().for_each(|feed| feed.set(PAUSES));
        self.feeds.iter().for_each(|feed| drop(feed.control.passing()));
    }

    /// Opens a handler, which receives all entries from now on.
    pub fn add_handler(&mut self, plan: HandlerPlan) -> Result<(), CollectorError> {
        self.open_handler(plan, None)
    }

    /// Opens a handler. It receives first what the former handler of its name has not stored.
    fn open_handler(&mut self, plan: HandlerPlan, former: Option<&HandlerWorker>) -> Result<(), CollectorError> {
        let (kind, settings) = (plan.kind, plan.settings.clone());
        // A weak reference avoids a cycle: the list of handlers owns the thread, which owns the
        // context.
        let context = HandlerContext::of(self.node.clone(), Arc::downgrade(&self.workers));
        let open = Box::new(move || (kind.open)(&settings, &context));
        let handler = match open() {
            Ok(handler) => Some(handler),
            Err(HandlerError::Setting(reason)) => {
                return Err(CollectorError::Handler { name: plan.name, line: plan.line, reason });
            }
            // The handler's thread tries again, and reports the error.
            Err(_) => None,
        };
        let worker = HandlerWorker::start(plan, open, handler)?;
        if let Some(former) = former {
            worker.take_over(former);
        }
        let mut workers = Vec::clone(&self.workers());
        workers.push(worker);
        workers.sort_by(|a, b| a.plan.name.cmp(&b.plan.name));
        self.set_workers(workers);
        Ok(())
    }

    /// Adds a source. Its entries are received on a thread of its own.
    pub fn add_source(&mut self, source: Box<dyn Source>) -> Result<(), CollectorError> {
        let alerts = Some(self.alerts.clone());
        self.feed(source, alerts, false)
    }

    /// Starts the thread of a source. Its entries are passed to `alerts` first.
    fn feed(
        &mut self,
        source: Box<dyn Source>,
        alerts: Option<Arc<Alerts>>,
        is_configured: bool,
    ) -> Result<(), CollectorError> {
        self.sources += 1;
        let (number, control) = (self.sources, Arc::new(SourceControl::default()));
        let route = SourceRoute { number, workers: self.workers.clone(), alerts, control: control.clone() };
        let thread = thread::Builder::new().name(format!("source {number}")).spawn(move || feed(source, &route))?;
        self.feeds.push(Feed { control, thread, is_configured });
        Ok(())
    }

    /// Opens the subscriptions, bridges and sources of the configuration, if they have changed.
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
        // If opening a source fails, the next reload tries again.
        (self.feeds, self.bridges, self.places) = (kept, bridges, String::new());
        end(old);
        // Opened only after the previous source, which may have used the same file, has ended.
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
            // Payloads are forwarded unchanged, unless the target wire names a format.
            let builder = self.node.bridge(&from.to_string(), &to.to_string())?;
            Ok(builder.topics(config.topics.iter().map(|pattern| pattern.as_str()))?.one_way().open())
        })
        .collect()
    }

    /// Returns the states of the handlers, in the order of their names.
    pub fn status(&self) -> Vec<HandlerStatus> {
        self.workers().iter().map(|worker| worker.status()).collect()
    }

    /// Returns the changes of alerts since the last call, at most 4096. They are also published on
    /// [`ALERTS`](crate::ALERTS), and handlers receive them.
    ///
    /// ```
    /// use polywire::Node;
    /// use polywire_collector::{AlertPlan, AlertState, AlertValue, Collector, CollectorConfig, MAX_ALERTS, Severity};
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
    /// assert_eq!((plan.severity.name(), config.alerts.len() <= MAX_ALERTS), ("critical", true));
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

    /// Stops the collector: receives the waiting entries and those that arrive within a second,
    /// lets the handlers store their entries, and acknowledges these. Returns whether all handlers
    /// stored everything within `patience`, and their final states.
    pub fn stop(&mut self, patience: Duration) -> (bool, Vec<HandlerStatus>) {
        self.bridges.clear();
        let until = Instant::now() + patience.min(PATIENCE);
        self.feeds.iter().for_each(|feed| feed.set(DRAINS));
        while Instant::now() < until && self.feeds.iter().any(|feed| feed.control.phase() == DRAINS) {
            thread::sleep(TICK / 10);
        }
        self.pause();
        let workers = self.workers();
        let ended = close(&workers, patience);
        end(std::mem::take(&mut self.feeds));
        let status = self.status();
        self.set_workers(Vec::new());
        (ended && status.iter().all(|status| status.problem.is_empty()), status)
    }

    /// Returns the cells of this collector's probe, which reports the states of its handlers. A
    /// node publishes it ([`polywire_telemetry::Agent::add_application`]).
    pub fn probe(&self) -> Arc<CollectorProbe> {
        let workers = self.workers.clone();
        Arc::new(CollectorProbe::new(move || current(&workers).iter().map(|worker| worker.status()).collect()))
    }

    fn workers(&self) -> Arc<Vec<Arc<HandlerWorker>>> {
        current(&self.workers)
    }

    fn set_workers(&self, workers: Vec<Arc<HandlerWorker>>) {
        *self.workers.write() = Arc::new(workers);
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

pub(crate) fn current(workers: &HandlerWorkers) -> Arc<Vec<Arc<HandlerWorker>>> {
    workers.read().clone()
}

/// Closes handlers concurrently. Returns false if a handler hangs.
fn close(workers: &[Arc<HandlerWorker>], patience: Duration) -> bool {
    workers.iter().for_each(|worker| worker.close(patience));
    // A handler checks the time limit only between two attempts.
    let ended = |worker: &Arc<HandlerWorker>| worker.wait(patience.saturating_add(Duration::from_secs(1)));
    workers
        .iter()
        .filter(|worker| !ended(worker))
        .inspect(|worker| log::error!("handler '{}' hangs", worker.plan.name))
        .count()
        == 0
}

fn end(feeds: Vec<Feed>) {
    feeds.iter().for_each(|feed| feed.set(ENDS));
    for feed in feeds {
        // Fails if the source has panicked; the panic has been reported already.
        let _ = feed.thread.join();
    }
}

/// The path of entries from a source to the handlers.
struct SourceRoute {
    /// The number of the source.
    number: usize,
    workers: Arc<HandlerWorkers>,
    alerts: Option<Arc<Alerts>>,
    control: Arc<SourceControl>,
}

/// Runs the main loop of a source's thread.
fn feed(mut source: Box<dyn Source>, route: &SourceRoute) {
    let mut acknowledged = 0;
    let mut drained = None;
    loop {
        let phase = route.control.phase();
        let idle = if source.keeps() { TICK } else { LONG_TICK };
        let patience = match phase {
            // Draining has a time limit, because messages may arrive continuously.
            DRAINS => drained.get_or_insert_with(|| Instant::now() + idle).saturating_duration_since(Instant::now()),
            _ => {
                drained = None;
                idle
            }
        };
        let has_more = phase <= DRAINS && route.pass(&mut *source, patience);
        if phase == DRAINS && !has_more && drained.is_none_or(|until| until <= Instant::now()) {
            // There are no more entries. The phase may have been changed meanwhile.
            let _ = route.control.phase.compare_exchange(DRAINS, PAUSES, Ordering::AcqRel, Ordering::Acquire);
        }
        let handled = current(&route.workers).iter().filter_map(|worker| worker.handled(route.number)).min();
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

impl SourceRoute {
    /// Passes an entry to all queues. Returns false if there was none within `patience`.
    fn pass(&self, source: &mut dyn Source, patience: Duration) -> bool {
        let _passing = self.control.passing();
        let stops = || self.control.phase() >= PAUSES;
        // The phase may have changed while this thread waited for the lock.
        if stops() {
            return false;
        }
        let Some(Numbered { position, entry }) = source.next(patience) else { return false };
        let is_new = self.alerts.as_ref().is_none_or(|alerts| alerts.see(&entry, Instant::now()));
        if is_new {
            let entry = Arc::new(entry);
            current(&self.workers).iter().for_each(|worker| worker.offer(self.number, position, &entry, stops));
        }
        true
    }
}
