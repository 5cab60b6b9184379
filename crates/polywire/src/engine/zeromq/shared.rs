//! The state that the port and its two threads share.

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use polywire_zeromq::{Context, Error, Kind, Socket};

use super::{
    super::{EngineOptions, Local, Sink, foreign::Writers},
    drops::Drops,
    finder::Finder,
    interest::Interest,
    publish_socket::PublishSocket,
};
use crate::system::Wake;

pub(super) struct Shared {
    pub(super) endpoint: String,
    pub(super) local: Local,
    pub(super) sink: Arc<dyn Sink>,
    pub(super) high_water_mark: u32,
    pub(super) publish_socket: Option<Arc<PublishSocket>>,
    pub(super) finder: Arc<Finder>,
    pub(super) foreign: Mutex<Writers>,
    pub(super) interest: Mutex<Interest>,
    pub(super) drops: Mutex<Drops>,
    /// Wake the asking thread and the intake thread.
    pub(super) asking: Wake,
    pub(super) intake: Wake,
    pub(super) is_closing: AtomicBool,
}

impl Shared {
    /// Opens a subscribing socket.
    pub(super) fn subscriber(&self, context: &Context) -> Result<Socket, Error> {
        let socket = context.socket(Kind::Sub)?;
        connecting(&socket, &self.local.options)?;
        socket.set_high_water_mark(self.high_water_mark)?;
        socket.set_longest_frame(self.local.options.limits.frame_bytes)?;
        Ok(socket)
    }

    /// Reports dropped messages, if a report is due.
    pub(super) fn report_drops(&self) {
        let due = self.drops.lock().notice(Instant::now());
        due.into_iter().for_each(|event| self.sink.event(event));
    }
}

/// Sets the options of sockets that connect.
pub(super) fn connecting(socket: &Socket, options: &EngineOptions) -> Result<(), Error> {
    socket.set_linger(Duration::ZERO)?;
    socket.set_ipv6(true)?;
    socket.set_reconnect(options.reconnect_min, options.reconnect_max)?;
    match options.keepalive.is_zero() {
        true => Ok(()),
        false => socket.set_heartbeat(options.keepalive),
    }
}
