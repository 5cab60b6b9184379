//! Emulated network links in real time, for tests of engines and of applications.
//!
//! - [`Emulator::udp`] forwards datagrams between processes and applies the whole [`Model`].
//! - [`Emulator::tcp`] forwards connections and applies rate, delay, jitter and blackouts.
//! - [`Emulated`] is an engine: nodes of one process exchange messages over emulated links.
//! - `hosts` (Linux, with the feature of that name) makes two hosts of network namespaces, joined
//!   by a link that carries whole IP packets.
//!
//! With the same seed and model, the n-th packet of a direction has the same fate in every run. The
//! queue and blackouts also depend on when packets arrive.
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
mod plan;
mod shared;
mod tcp;
mod udp;

use std::{
    fmt, io,
    net::SocketAddr,
    sync::Arc,
    thread::{self, JoinHandle},
};

pub use polywire_core::netsim;
use polywire_core::netsim::{Model, Stats};

#[cfg(all(feature = "hosts", target_os = "linux"))]
pub use devices::Device;
pub use engine::Emulated;
pub use plan::{Change, Plan, Way, change};
use shared::Shared;

/// A running link. Dropping it ends the link.
pub struct Emulator {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Emulator {
    /// Forwards datagrams that arrive at `listen` to `to`, and answers back. `to` sees each sender
    /// at an address of its own.
    ///
    /// # Errors
    /// Fails if no socket can be bound, or the capture cannot be written.
    pub fn udp(listen: SocketAddr, to: SocketAddr, plan: Plan) -> io::Result<Emulator> {
        let socket = udp::Forwarder::bind(listen, to)?;
        let (address, shared) = (socket.address()?, Shared::new(plan)?);
        Emulator::start(address, shared, move |shared| socket.run(shared))
    }

    /// Accepts connections at `listen` and forwards them to `to`. A stream loses and reorders
    /// nothing, so only rate, delay, jitter and blackouts of the models have an effect.
    ///
    /// # Errors
    /// Fails if no socket can be bound, or the capture cannot be written.
    pub fn tcp(listen: SocketAddr, to: SocketAddr, mut plan: Plan) -> io::Result<Emulator> {
        (plan.there, plan.back) = (tcp::of_stream(&plan.there), tcp::of_stream(&plan.back));
        plan.changes.iter_mut().for_each(|change| change.model = tcp::of_stream(&change.model));
        let proxy = tcp::Proxy::bind(listen, to)?;
        let (address, shared) = (proxy.address()?, Shared::new(plan)?);
        Emulator::start(address, shared, move |shared| proxy.run(shared))
    }

    /// Carries whole packets between two devices, such as TUN interfaces. Packets from `here` go
    /// the way there, to `there`. The address of this link is unspecified.
    ///
    /// # Errors
    /// Fails if no thread can be started, or the capture cannot be written.
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

    /// The address that the link listens at.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Counts of packets so far, there and back. A TCP link counts pieces: the bytes of one read.
    pub fn stats(&self) -> (Stats, Stats) {
        let state = self.shared.state();
        (state.links.there.stats(), state.links.back.stats())
    }

    /// Changes the model of a direction. A TCP link applies only rate, delay, jitter and blackouts.
    pub fn set(&self, way: Way, model: &Model) {
        self.shared.state().set(way, model);
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.shared.end();
        if let Some(thread) = self.thread.take() {
            // A panic of the link's thread has been printed.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Emulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Emulator").field("address", &self.address).finish_non_exhaustive()
    }
}
