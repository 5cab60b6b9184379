//! The collector's own probe: the counters of its handlers.

use std::time::Duration;

use polywire::Message;
use polywire_telemetry::{Application, MeasureError, Pdl, ProbeType, Uuid};

use crate::HandlerStatus;

/// The counters of a collector's handlers, as the cells of a probe.
///
/// ```
/// use polywire::Node;
/// use polywire_collector::{Collector, CollectorConfig, CollectorProbe, CollectorSample, HandlerSample};
/// use std::sync::Arc;
/// use polywire_telemetry::Application as _;
///
/// let mut collector = Collector::new(Node::new());
/// let probe: Arc<CollectorProbe> = collector.probe();
/// let config = CollectorConfig::parse("[handlers.none]\nkind = 'null'")?;
/// collector.add_handler(config.handlers[0].clone())?;
/// let mut sample = CollectorSample::default();
/// probe.read(&mut sample);
/// let handler: &HandlerSample = &sample.handlers[0];
/// assert_eq!((handler.name.as_str(), handler.received), ("none", 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CollectorProbe(Box<dyn Fn() -> Vec<HandlerStatus> + Send + Sync>);

/// A sample of [`CollectorProbe`].
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "telemetry::CollectorSample")]
pub struct CollectorSample {
    /// The handlers, in the order of their names.
    pub handlers: Vec<HandlerSample>,
}

/// The state and counters of a handler: [`HandlerStatus`] as a message.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "telemetry::HandlerSample", nested)]
pub struct HandlerSample {
    /// The name of the handler.
    pub name: String,
    /// The kind of the handler.
    pub kind: String,
    /// The number of entries that were offered to the handler.
    pub received: u64,
    /// The number of entries that the handler has stored.
    pub stored: u64,
    /// The number of entries that were dropped because the queue was full.
    pub dropped: u64,
    /// The number of entries that the handler cannot handle.
    pub refused: u64,
    /// How often the handler failed.
    pub failures: u64,
    /// The number of entries in the queue.
    pub waiting: u64,
    /// The memory of the entries in the queue.
    #[polywire(unit = "B")]
    pub waiting_bytes: u64,
    /// Why the handler does not work now; empty if it works.
    pub problem: String,
}

impl CollectorProbe {
    pub(crate) fn new(status: impl Fn() -> Vec<HandlerStatus> + Send + Sync + 'static) -> CollectorProbe {
        CollectorProbe(Box::new(status))
    }
}

impl Application for CollectorProbe {
    type Sample = CollectorSample;

    const TYPE: ProbeType = ProbeType {
        name: "collector",
        summary: "What the handlers of a collector count",
        uuid: Uuid::of(0x5f0f3c5e_8d0d_4f43_9a1e_6c2c58f0a7d1),
        version: "1.0",
        pdl: Pdl::File(include_str!("../pdl/collector.pdl")),
        every: Duration::from_secs(10),
        parameters: &[],
        shape: CollectorSample::shape,
        open: |_, _| Err(MeasureError::Unknown("a collector opens this probe".to_owned())),
    };

    const THIN: &'static str = "off";

    fn read(&self, sample: &mut CollectorSample) {
        sample.handlers = (self.0)().into_iter().map(HandlerSample::from).collect();
    }
}

impl From<HandlerStatus> for HandlerSample {
    fn from(status: HandlerStatus) -> HandlerSample {
        HandlerSample {
            name: status.name,
            kind: status.kind.to_owned(),
            received: status.received,
            stored: status.stored,
            dropped: status.dropped,
            refused: status.refused,
            failures: status.failures,
            waiting: status.waiting as u64,
            waiting_bytes: status.waiting_bytes as u64,
            problem: status.problem,
        }
    }
}
