//! The thread that sends an uplink's packets to the collector.

use std::{
    fmt, io,
    pin::pin,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, JoinHandle, Thread},
    time::{Duration, Instant},
};

use polywire::{
    Node, NodeError, PublishError,
    service::{CallError, Client},
};

use super::{StreamError, Uplink, UplinkStatus};
use crate::{
    Clocks, Moment,
    packet::{NodePacket, PACKETS, PacketReply, StreamDescription},
    uplink::Rule,
};

/// How long the collector may take to store a packet.
const ANSWER: Duration = Duration::from_secs(60);

/// How long to wait after a failure: the first one, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(5)];

/// Why a carrier cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CarrierError {
    /// The wire of the collector is wrong, or cannot be opened.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// The system has no more threads.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

/// Sends the packets of an [`Uplink`] to a collector, on a thread of its own, until it is dropped.
/// What has not been acknowledged by then stays in the spool.
///
/// ```
/// use polywire::{Message, Node, codec::Encoder, service::Service};
/// use polywire_telemetry::{
///     Clocks, Uuid,
///     packet::{NodePacket, PACKETS, PacketReply, StreamDescription},
///     uplink::{Carrier, CarrierError, Format, Memory, Rule, StreamError, Uplink, UplinkHandle, UplinkOptions},
/// };
/// use std::time::Duration;
/// # #[derive(Default, polywire::Message)]
/// # struct Pump { pressure: f64 }
///
/// // A collector that stores nothing.
/// let (node, wire) = (Node::new(), "cdr@inproc/carrier-doc");
/// let service = node.service::<NodePacket, PacketReply>(PACKETS, Some(wire))?;
/// let _collector = service.on_request(1, |_, _| Ok::<_, &str>(PacketReply::default()))?;
///
/// let clocks = Clocks::new();
/// let uplink = Uplink::new(Uuid::random(), 7, Box::new(Memory::default()), UplinkOptions::default(), clocks.now())?;
/// let carrier: Result<Carrier, CarrierError> = Carrier::start(&Node::new(), wire, uplink, clocks);
/// let carrier = carrier?;
/// let handle: UplinkHandle = carrier.handle();
///
/// let format = Format::of(&"json".parse()?)?;
/// let schema = Pump::shape().schema().to_bytes();
/// let mut pump = StreamDescription { instance: "pump-1".into(), schema, ..Default::default() };
/// format.describe(&mut pump);
/// let stream: Result<u32, StreamError> = handle.open(pump, Rule::default());
/// let (stream, mut payload) = (stream?, Vec::new());
/// Encoder::new(format.codec(), format.options())?.encode(&Pump { pressure: 2.5 }, &mut payload)?;
/// handle.offer(stream, &payload, clocks.now().wall_ns);
/// assert!(carrier.flush(Duration::from_secs(60)));
/// assert_eq!(handle.status().acknowledged, 1);
/// handle.set_budget(Some(20_000));
/// assert_eq!(handle.budget(), Some(20_000));
/// handle.close(stream);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Carrier {
    handle: UplinkHandle,
    thread: Option<JoinHandle<()>>,
}

/// Where samples are offered to a [`Carrier`]. Threads may share it by cloning.
#[derive(Clone)]
pub struct UplinkHandle(Arc<Shared>);

struct Shared {
    uplink: Mutex<Uplink>,
    /// Something was offered, acknowledged, or is to end.
    changed: Condvar,
    ends: AtomicBool,
    clocks: Clocks,
}

impl Carrier {
    /// Starts to send packets of `uplink`, to the service [`PACKETS`] at a wire. The node keeps
    /// looking for the collector while it is away. `clocks` must be those of the uplink.
    pub fn start(node: &Node, wire: &str, uplink: Uplink, clocks: Clocks) -> Result<Carrier, CarrierError> {
        let client = node.client::<NodePacket, PacketReply>(PACKETS, Some(wire))?.open()?;
        let shared =
            Shared { uplink: Mutex::new(uplink), changed: Condvar::new(), ends: AtomicBool::new(false), clocks };
        let handle = UplinkHandle(Arc::new(shared));
        let shared = handle.0.clone();
        let thread = thread::Builder::new().name("uplink".into()).spawn(move || run(&client, &shared));
        Ok(Carrier { handle, thread: Some(thread.map_err(CarrierError::Thread)?) })
    }

    /// Where samples are offered.
    pub fn handle(&self) -> UplinkHandle {
        self.handle.clone()
    }

    /// Sends what waits, whatever batches say, and blocks until the collector has it; for at most
    /// `timeout`. Returns whether the collector has everything.
    pub fn flush(&self, timeout: Duration) -> bool {
        let shared = &self.handle.0;
        let until = Instant::now() + timeout;
        let mut uplink = shared.lock();
        uplink.flush();
        shared.changed.notify_all();
        loop {
            let rest = until.saturating_duration_since(Instant::now());
            if uplink.is_empty() || rest.is_zero() {
                return uplink.is_empty();
            }
            uplink = shared.wait(uplink, rest);
        }
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.handle.0.ends.store(true, Ordering::Release);
        drop(self.handle.0.lock());
        self.handle.0.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // Fails if the thread has panicked, which has been reported then.
            let _ = thread.join();
        }
    }
}

impl UplinkHandle {
    /// See [`Uplink::open`].
    pub fn open(&self, description: StreamDescription, rule: Rule) -> Result<u32, StreamError> {
        self.0.lock().open(description, rule)
    }

    /// See [`Uplink::close`].
    pub fn close(&self, stream: u32) {
        self.0.lock().close(stream);
    }

    /// See [`Uplink::offer`]. `wall_ns` is when the sample was measured: nanoseconds since 1970.
    pub fn offer(&self, stream: u32, payload: &[u8], wall_ns: i64) {
        let now = Moment { wall_ns, ..self.0.clocks.now() };
        self.0.lock().offer(stream, payload, now);
        self.0.changed.notify_all();
    }

    /// See [`Uplink::set_budget`].
    pub fn set_budget(&self, bytes_per_s: Option<u64>) {
        self.0.lock().set_budget(bytes_per_s, self.0.clocks.now());
        self.0.changed.notify_all();
    }

    /// See [`Uplink::budget`].
    pub fn budget(&self) -> Option<u64> {
        self.0.lock().budget()
    }

    /// See [`Uplink::status`].
    pub fn status(&self) -> UplinkStatus {
        self.0.lock().status()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Uplink> {
        // A panic while it was locked leaves numbers that may be too small, and no broken memory.
        self.uplink.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, uplink: MutexGuard<'a, Uplink>, timeout: Duration) -> MutexGuard<'a, Uplink> {
        self.changed.wait_timeout(uplink, timeout).unwrap_or_else(PoisonError::into_inner).0
    }

    fn ends(&self) -> bool {
        self.ends.load(Ordering::Acquire)
    }

    /// The next packet, as soon as there is one; `None` at the end.
    fn next(&self) -> Option<Arc<NodePacket>> {
        let mut uplink = self.lock();
        while !self.ends() {
            let packet = uplink.poll(self.clocks.now());
            if packet.is_some() {
                return packet;
            }
            let wait = uplink.wait(self.clocks.now());
            uplink = self.wait(uplink, wait);
        }
        None
    }
}

fn run(client: &Client<NodePacket, PacketReply>, shared: &Shared) {
    let [first, longest] = PAUSES;
    let mut pause = first;
    while let Some(packet) = shared.next() {
        let Some(reply) = until(shared, client.call_async(&packet, ANSWER)) else { break };
        let failed = match reply {
            Ok(reply) => {
                shared.lock().handle_reply(&reply);
                // A collector that does not know what it has just been told gets some rest.
                reply.unknown && !packet.streams.is_empty()
            }
            Err(error) => {
                handle_error(shared, &error);
                true
            }
        };
        shared.changed.notify_all();
        if failed {
            rest(shared, pause);
        }
        pause = if failed { (2 * pause).min(longest) } else { first };
    }
    // Only a spool on a disk has something to write.
    if let Err(error) = shared.lock().sync() {
        log::warn!("the spool cannot be written to the disk: {error}");
    }
}

fn handle_error(shared: &Shared, error: &CallError) {
    log::info!("the collector has no packet: {error}");
    let mut uplink = shared.lock();
    match error {
        // It can never be encoded.
        CallError::Publish(error @ PublishError::Encode(_)) => {
            uplink.handle_reply(&PacketReply { unknown: false, problem: error.to_string() })
        }
        _ => uplink.handle_failure(),
    }
}

/// Wakes a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future, but not past the end of the carrier.
fn until<T>(shared: &Shared, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    while !shared.ends() {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return Some(value),
            Poll::Pending => thread::park(),
        }
    }
    None
}

/// Waits for a time, but not past the end of the carrier.
fn rest(shared: &Shared, time: Duration) {
    let until = Instant::now() + time;
    while !shared.ends() {
        let Some(rest) = until.checked_duration_since(Instant::now()).filter(|rest| !rest.is_zero()) else { return };
        thread::park_timeout(rest);
    }
}

impl fmt::Debug for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "carrier of {:?}", self.handle.0.lock())
    }
}

impl fmt::Debug for UplinkHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0.lock())
    }
}
