//! The thread that sends an uplink's packets to the collector.

use std::{
    collections::VecDeque,
    fmt, io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex, MutexGuard};
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

/// The time limit for the collector to store a packet.
const ANSWER: Duration = Duration::from_secs(60);

/// The pauses after failures: the first one, and the longest one.
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
/// Samples that are not acknowledged by then stay in the spool.
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
/// // A collector that acknowledges packets without storing them.
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

/// The handle by which samples are offered to a [`Carrier`]. Threads may share it by cloning.
#[derive(Clone)]
pub struct UplinkHandle(Arc<Shared>);

struct Shared {
    uplink: Mutex<Uplink>,
    /// Notified when a sample was offered, when a packet was acknowledged, and when the thread is
    /// to end.
    changed: Condvar,
    /// Whether a call may have its reply.
    answered: AtomicBool,
    ends: AtomicBool,
    clocks: Clocks,
}

/// The next action of the thread.
enum Event {
    /// Sends a packet.
    Send(Arc<NodePacket>),
    /// Polls the calls.
    Answered,
    End,
}

/// A call that is under way.
type Call<'a> = Pin<Box<dyn Future<Output = (Arc<NodePacket>, Result<PacketReply, CallError>)> + 'a>>;

impl Carrier {
    /// Starts to send packets of `uplink`, to the service [`PACKETS`] on a wire. While the
    /// collector is away, the node keeps trying to connect to it. `clocks` must be those of the
    /// uplink.
    pub fn start(node: &Node, wire: &str, uplink: Uplink, clocks: Clocks) -> Result<Carrier, CarrierError> {
        let client = node.client::<NodePacket, PacketReply>(PACKETS, Some(wire))?.open()?;
        let [answered, ends] = [const { AtomicBool::new(false) }; 2];
        let shared = Shared { uplink: Mutex::new(uplink), changed: Condvar::new(), answered, ends, clocks };
        let handle = UplinkHandle(Arc::new(shared));
        let shared = handle.0.clone();
        let thread = thread::Builder::new().name("uplink".into()).spawn(move || run(&client, &shared));
        Ok(Carrier { handle, thread: Some(thread.map_err(CarrierError::Thread)?) })
    }

    /// Returns the handle by which samples are offered.
    pub fn handle(&self) -> UplinkHandle {
        self.handle.clone()
    }

    /// Sends all waiting samples regardless of batches, and blocks until the collector has stored
    /// them, for at most `timeout`. Returns whether everything is acknowledged.
    pub fn flush(&self, timeout: Duration) -> bool {
        let shared = &self.handle.0;
        let began = Instant::now();
        let mut uplink = shared.lock();
        uplink.flush();
        shared.changed.notify_all();
        loop {
            let rest = timeout.saturating_sub(began.elapsed());
            if uplink.is_empty() || rest.is_zero() {
                return uplink.is_empty();
            }
            shared.changed.wait_for(&mut uplink, rest);
        }
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.handle.0.ends.store(true, Ordering::Release);
        drop(self.handle.0.lock());
        self.handle.0.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // Fails if the thread has panicked; the panic has been reported already.
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
        self.uplink.lock()
    }

    fn ends(&self) -> bool {
        self.ends.load(Ordering::Acquire)
    }

    /// Blocks until there is something to do. Returns no packet before the time `rests`.
    fn next(&self, rests: Instant) -> Event {
        let mut uplink = self.lock();
        loop {
            if self.ends() {
                return Event::End;
            }
            if self.answered.swap(false, Ordering::AcqRel) {
                return Event::Answered;
            }
            let rest = rests.saturating_duration_since(Instant::now());
            let packet = if rest.is_zero() { uplink.poll(self.clocks.now()) } else { None };
            if let Some(packet) = packet {
                return Event::Send(packet);
            }
            let wait = if rest.is_zero() { uplink.wait(self.clocks.now()) } else { rest };
            self.changed.wait_for(&mut uplink, wait);
        }
    }
}

/// Wakes the thread when a call may have its reply.
impl Wake for Shared {
    fn wake(self: Arc<Self>) {
        self.answered.store(true, Ordering::Release);
        // Taking the lock ensures that the thread either waits, or has not checked `answered` yet.
        drop(self.lock());
        self.changed.notify_all();
    }
}

fn run(client: &Client<NodePacket, PacketReply>, shared: &Arc<Shared>) {
    let waker = Waker::from(shared.clone());
    let [first, longest] = PAUSES;
    let (mut pause, mut rests) = (first, Instant::now());
    let mut calls: VecDeque<Call<'_>> = VecDeque::new();
    loop {
        match shared.next(rests) {
            Event::End => break,
            Event::Answered => {}
            Event::Send(packet) => calls.push_back(Box::pin(call(client, packet))),
        }
        // In order, because a call is sent when it is polled for the first time.
        let mut at = 0;
        while let Some(call) = calls.get_mut(at) {
            let Poll::Ready((packet, reply)) = call.as_mut().poll(&mut Context::from_waker(&waker)) else {
                at += 1;
                continue;
            };
            drop(calls.remove(at));
            match handle(shared, &packet, reply) {
                Outcome::Stored => pause = first,
                outcome => {
                    // All packets under way are sent again.
                    calls.clear();
                    at = 0;
                    if outcome == Outcome::Failed {
                        (rests, pause) = (Instant::now() + pause, (2 * pause).min(longest));
                    }
                }
            }
        }
        shared.changed.notify_all();
    }
    // Only a spool on a disk has unsynchronized data.
    if let Err(error) = shared.lock().sync() {
        log::warn!("the spool cannot be written to the disk: {error}");
    }
}

async fn call(
    client: &Client<NodePacket, PacketReply>,
    packet: Arc<NodePacket>,
) -> (Arc<NodePacket>, Result<PacketReply, CallError>) {
    let reply = client.call_async(&packet, ANSWER).await;
    (packet, reply)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Stored,
    /// The packets under way are to be sent again at once.
    Again,
    /// The packets under way are to be sent again after a pause.
    Failed,
}

fn handle(shared: &Shared, packet: &NodePacket, reply: Result<PacketReply, CallError>) -> Outcome {
    let mut uplink = shared.lock();
    match reply {
        Ok(reply) => {
            uplink.handle_reply(packet.number, &reply);
            match reply.unknown {
                false => Outcome::Stored,
                // A collector that does not know the streams which this packet describes gets a
                // pause.
                true if packet.follows == 0 && !packet.streams.is_empty() => Outcome::Failed,
                true => Outcome::Again,
            }
        }
        // The packet can never be encoded.
        Err(CallError::Publish(error @ PublishError::Encode(_))) => {
            uplink.handle_reply(packet.number, &PacketReply { unknown: false, problem: error.to_string() });
            Outcome::Stored
        }
        Err(error) => {
            log::info!("the collector has no packet: {error}");
            uplink.handle_failure();
            Outcome::Failed
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Uuid,
        uplink::{Memory, UplinkOptions},
    };

    #[test]
    fn a_flush_may_have_a_time_out_of_any_length() {
        let (clocks, options) = (Clocks::new(), UplinkOptions::default());
        let uplink = Uplink::new(Uuid::random(), 7, Box::new(Memory::default()), options, clocks.now());
        let uplink = uplink.expect("an uplink");
        let carrier = Carrier::start(&Node::new(), "cdr@inproc/carrier-time-out", uplink, clocks).expect("it starts");
        assert!(carrier.flush(Duration::MAX), "nothing waits");
    }
}
