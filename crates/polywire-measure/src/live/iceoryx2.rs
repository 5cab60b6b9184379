//! Live measurements of iceoryx2: opens its services in shared memory and carries frames over them,
//! for `bus`.

use std::{
    hint, process,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use iceoryx2::{
    port::{backpressure_strategy::BackpressureStrategy, publisher::Publisher, subscriber::Subscriber},
    prelude::{AllocationStrategy, Node, NodeBuilder, SignalHandlingMode, ipc},
};

use super::{
    bus::{self, Ends},
    carrier::Carrier,
    peer::Peer,
    receivers::Receivers,
    setup::Setup,
    waiting,
};
use crate::{scenario::Place, subject::Subject};

/// How this crate configures the engine.
pub const SETTINGS: &str = "shared memory (`ipc::Service`), each frame copied into a loaned sample; receivers poll during their turn, as iceoryx2's own benchmark does; after 2000 polls without a message they yield, or, if there are more ends than cores, sleep briefly after 100; a \
     sender waits while a subscriber's queue of 256 messages is full, so that nothing is dropped";

/// Number of messages that wait for a subscriber.
const WAITING: usize = 256;

/// Unsuccessful polls before a receiver yields its core: with enough cores for all ends, and
/// without.
const LOOKS: [u32; 2] = [2000, 100];

/// Requested length of a sleep; the system's timer makes it longer.
const MOMENT: Duration = Duration::from_micros(1);

/// Largest frame, in bytes, for which the publisher allocates memory at first. Larger frames make
/// it allocate more.
const FIRST: usize = 4096;

/// Opens both services and starts the other end.
pub fn connect(mut setup: Setup, subject: &Subject, place: Place) -> Result<(Box<dyn Carrier>, Peer), String> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    setup.address = format!("polywire-{}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let ends = open(&setup, "there", "back")?;
    bus::connect(setup, ends, subject, place, receive)
}

/// Opens both services for all subscribers.
pub fn receive(setup: &Setup) -> Result<Receivers, String> {
    waiting::receive(setup, |setup| open(setup, "back", "there"))
}

fn error_text(error: impl std::fmt::Debug) -> String {
    format!("{error:?}")
}

struct Ways {
    publisher: Publisher<ipc::Service, [u8], ()>,
    subscriber: Subscriber<ipc::Service, [u8], ()>,
    /// There are more ends than cores: other threads must run before anything arrives.
    crowded: bool,
    _node: Node<ipc::Service>,
}

fn open(setup: &Setup, out: &str, into: &str) -> Result<Ways, String> {
    // Signals are left to this program.
    let node = NodeBuilder::new().signal_handling_mode(SignalHandlingMode::Disabled).create::<ipc::Service>();
    let node = node.map_err(error_text)?;
    let service = |way: &str| {
        let name = format!("{}/{way}", setup.address);
        let builder = node.service_builder(&name.as_str().try_into().map_err(error_text)?).publish_subscribe::<[u8]>();
        let builder = builder.enable_safe_overflow(false).subscriber_max_buffer_size(WAITING);
        let ends = setup.subscribers + 1;
        builder.max_publishers(ends).max_subscribers(ends).max_nodes(ends).open_or_create().map_err(error_text)
    };
    let (out, into) = (service(out)?, service(into)?);
    let publisher = out.publisher_builder().initial_max_slice_len(FIRST);
    let publisher = publisher.allocation_strategy(AllocationStrategy::PowerOfTwo);
    let publisher =
        publisher.backpressure_strategy(BackpressureStrategy::RetryUntilDelivered).create().map_err(error_text)?;
    let subscriber = into.subscriber_builder().create().map_err(error_text)?;
    let cores = thread::available_parallelism().map_or(1, usize::from);
    Ok(Ways { publisher, subscriber, crowded: setup.subscribers + 1 > cores, _node: node })
}

impl Ends for Ways {
    const POLLS: bool = true;

    fn send(&mut self, frame: &[u8]) -> Result<(), String> {
        let sample = self.publisher.loan_slice_uninit(frame.len()).map_err(error_text)?;
        sample.write_from_slice(frame).send().map(drop).map_err(error_text)
    }

    fn receive(&mut self, patience: Duration, take: &mut dyn FnMut(&[u8])) -> Result<bool, String> {
        let (mut looks, mut until) = (0, None);
        loop {
            if let Some(sample) = self.subscriber.receive().map_err(error_text)? {
                take(sample.payload());
                return Ok(true);
            }
            looks += 1;
            if patience.is_zero() {
                return Ok(false);
            }
            if looks < LOOKS[usize::from(self.crowded)] {
                hint::spin_loop();
                continue;
            }
            if self.crowded {
                thread::sleep(MOMENT)
            } else {
                thread::yield_now()
            }
            if Instant::now() > *until.get_or_insert_with(|| Instant::now() + patience) {
                return Ok(false);
            }
        }
    }
}
