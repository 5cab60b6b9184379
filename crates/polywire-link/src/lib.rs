//! The emulated link between real processes: a UDP forwarder that does everything a [`Model`] says,
//! and a TCP proxy that does what a stream can meet: rate, delay, jitter and blackouts. Between
//! nodes of one process it is an engine ([`Emulated`]).
//!
//! Packets of one direction meet the same fate in every run with the same seed and model, counted
//! packet by packet; what hangs on time (the queue, blackouts) hangs on when they come.
//!
//! ```
//! use std::{net::UdpSocket, time::Duration};
//! use polywire_link::{Emulator, Plan};
//!
//! let target = UdpSocket::bind("127.0.0.1:0")?;
//! let plan = Plan { there: "loss=pattern:01".parse().unwrap(), ..Plan::default() };
//! let link = Emulator::udp("127.0.0.1:0".parse().unwrap(), target.local_addr()?, plan)?;
//! let sender = UdpSocket::bind("127.0.0.1:0")?;
//! for number in 0..4u8 {
//!     sender.send_to(&[number], link.address())?;
//! }
//! target.set_read_timeout(Some(Duration::from_secs(10)))?;
//! let mut bytes = [0; 8];
//! let mut received = || target.recv(&mut bytes).map(|_| bytes[0]);
//! assert_eq!((received()?, received()?), (0, 2), "every other packet is lost");
//! assert_eq!(link.stats().0.lost, 2);
//! # Ok::<(), std::io::Error>(())
//! ```

mod capture;
#[cfg(all(feature = "hosts", target_os = "linux"))]
mod devices;
mod engine;
#[cfg(all(feature = "hosts", target_os = "linux"))]
pub mod hosts;
mod tcp;
mod udp;

use std::{
    fmt,
    io::{self, Write},
    net::SocketAddr,
    str::FromStr,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

pub use polywire_core::netsim;
use polywire_core::netsim::{Duplex, Model, Stats};

use capture::Capture;
#[cfg(all(feature = "hosts", target_os = "linux"))]
pub use devices::Device;
pub use engine::Emulated;

/// What a link does.
#[derive(Default)]
pub struct Plan {
    /// From who connects to the target.
    pub there: Model,
    /// And back.
    pub back: Model,
    /// Decides every chance.
    pub seed: u64,
    /// What changes, and when.
    pub changes: Vec<Change>,
    /// Where both sides are captured, as pcapng.
    pub capture: Option<Box<dyn Write + Send>>,
}

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the target.
    There,
    /// From the target.
    Back,
    /// Both.
    Both,
}

/// A model from some time on.
///
/// ```
/// use std::time::Duration;
/// use polywire_link::{Change, Way};
///
/// let change: Change = "2.5 back wan-high,rate=2mbit".parse().unwrap();
/// assert_eq!((change.at, change.way), (Duration::from_millis(2500), Way::Back));
/// assert!("soon both lan".parse::<Change>().is_err() && "1 both slow".parse::<Change>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Since the link began.
    pub at: Duration,
    /// Which way.
    pub way: Way,
    /// What it does from then on.
    pub model: Model,
}

impl FromStr for Change {
    type Err = String;

    /// `SECONDS there|back|both MODEL`
    fn from_str(text: &str) -> Result<Change, String> {
        let (at, rest) = text.trim().split_once(' ').ok_or("SECONDS there|back|both MODEL is expected")?;
        let at = at.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let (way, model) = change(rest)?;
        Ok(Change { at: at.ok_or("a number of seconds is expected first")?, way, model })
    }
}

/// Reads `there|back|both MODEL`.
///
/// # Errors
/// A text that says what is wrong.
pub fn change(text: &str) -> Result<(Way, Model), String> {
    let (way, model) = text.trim().split_once(' ').ok_or("there|back|both MODEL is expected")?;
    let way = match way {
        "there" => Way::There,
        "back" => Way::Back,
        "both" => Way::Both,
        _ => return Err(format!("'{way}' is none of there, back and both")),
    };
    Ok((way, model.trim().parse::<Model>().map_err(|error| error.to_string())?))
}

/// A running link; it ends when this is dropped.
pub struct Emulator {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What all threads of a link use.
struct Shared {
    start: Instant,
    state: Mutex<State>,
    ended: AtomicBool,
}

struct State {
    links: Duplex,
    changes: Vec<Change>,
    capture: Option<Capture>,
}

impl Emulator {
    /// Forwards datagrams between whoever sends to `listen` and `to`, which sees each sender at an
    /// address of its own.
    ///
    /// # Errors
    /// Of the socket.
    pub fn udp(listen: SocketAddr, to: SocketAddr, plan: Plan) -> io::Result<Emulator> {
        let socket = udp::Forwarder::bind(listen, to)?;
        let (address, shared) = (socket.address()?, Shared::new(plan)?);
        Emulator::start(address, shared, move |shared| socket.run(shared))
    }

    /// Forwards connections to `listen` on to `to`. Nothing is lost of a stream, and nothing
    /// overtakes: of the models, rate, delay, jitter and blackouts count.
    ///
    /// # Errors
    /// Of the socket.
    pub fn tcp(listen: SocketAddr, to: SocketAddr, mut plan: Plan) -> io::Result<Emulator> {
        (plan.there, plan.back) = (tcp::of_stream(&plan.there), tcp::of_stream(&plan.back));
        plan.changes.iter_mut().for_each(|change| change.model = tcp::of_stream(&change.model));
        let proxy = tcp::Proxy::bind(listen, to)?;
        let (address, shared) = (proxy.address()?, Shared::new(plan)?);
        Emulator::start(address, shared, move |shared| proxy.run(shared))
    }

    /// Carries whole packets between two devices, such as TUN interfaces: what is read from `here`
    /// goes there, to `there`. Its address is unspecified.
    ///
    /// # Errors
    /// If there is no thread to be had, or no capture.
    #[cfg(all(feature = "hosts", target_os = "linux"))]
    pub fn devices(here: impl devices::Device, there: impl devices::Device, plan: Plan) -> io::Result<Emulator> {
        let shared = Shared::new(plan)?;
        Emulator::start(([0; 4], 0).into(), shared, move |shared| devices::run(&here, &there, shared))
    }

    fn start(
        address: SocketAddr,
        shared: Shared,
        run: impl FnOnce(&Arc<Shared>) + Send + 'static,
    ) -> io::Result<Emulator> {
        let shared = Arc::new(shared);
        let own = shared.clone();
        let thread = thread::Builder::new().name("link".into()).spawn(move || run(&own))?;
        Ok(Emulator { address, shared, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What became of the packets so far, there and back; of a TCP link, of the pieces that were
    /// read at once.
    pub fn stats(&self) -> (Stats, Stats) {
        let state = self.shared.state();
        (state.links.there.stats(), state.links.back.stats())
    }

    /// Uses another model from now on. A TCP link takes of it what counts for streams.
    pub fn set(&self, way: Way, model: &Model) {
        self.shared.state().set(way, model);
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A link that panicked has nothing more to tell.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Emulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Emulator").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Shared {
    fn new(plan: Plan) -> io::Result<Shared> {
        let mut changes = plan.changes;
        // The next one is the last.
        changes.sort_by_key(|change| std::cmp::Reverse(change.at));
        let links = Duplex::asymmetric(&plan.there, &plan.back, plan.seed);
        let capture = plan.capture.map(Capture::new).transpose()?;
        Ok(Shared {
            start: Instant::now(),
            state: Mutex::new(State { links, changes, capture }),
            ended: AtomicBool::new(false),
        })
    }

    /// Nanoseconds since it began.
    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The state, with the changes made that are due.
    fn at(&self, now: u64) -> MutexGuard<'_, State> {
        let mut state = self.state();
        while state.changes.last().is_some_and(|next| next.at.as_nanos() as u64 <= now) {
            if let Some(Change { way, model, .. }) = state.changes.pop() {
                state.set(way, &model);
            }
        }
        state
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}

impl State {
    fn set(&mut self, way: Way, model: &Model) {
        if way != Way::Back {
            self.links.there.set_model(model);
        }
        if way != Way::There {
            self.links.back.set_model(model);
        }
    }
}
