//! Live measurements of libzmq: opens its sockets and carries frames over them, for `bus`.

use std::time::Duration;

use polywire_zeromq::{Context, Error, Kind, Message, Socket, Wait};

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
pub const SETTINGS: &str = "libzmq over TCP, used directly: messages from PUB to SUB, echoes from PUSH to PULL; its queues are unbounded (`SNDHWM`, `RCVHWM` 0), so that nothing is dropped";

/// Binds here and starts the other end.
pub fn connect(mut setup: Setup, subject: &Subject, place: Place) -> Result<(Box<dyn Carrier>, Peer), String> {
    let context = Context::new().map_err(error_text)?;
    let ends = Zeromq { out: bound(&context, Kind::Pub)?, into: bound(&context, Kind::Pull)?, frame: Message::new() };
    let address = |socket: &Socket| socket.last_endpoint().map_err(error_text);
    setup.address = format!("{} {}", address(&ends.out)?, address(&ends.into)?);
    bus::connect(setup, ends, subject, place, receive)
}

/// Connects all subscribers.
pub fn receive(setup: &Setup) -> Result<Receivers, String> {
    waiting::receive(setup, |setup| {
        let (there, back) = setup.address.split_once(' ').ok_or("two addresses are expected")?;
        let context = Context::new().map_err(error_text)?;
        let (into, out) = (socket(&context, Kind::Sub)?, socket(&context, Kind::Push)?);
        into.subscribe(b"").map_err(error_text)?;
        into.connect(there).map_err(error_text)?;
        out.connect(back).map_err(error_text)?;
        Ok(Zeromq { out, into, frame: Message::new() })
    })
}

fn error_text(error: Error) -> String {
    error.to_string()
}

fn socket(context: &Context, kind: Kind) -> Result<Socket, String> {
    let socket = context.socket(kind).map_err(error_text)?;
    socket.set_linger(Duration::ZERO).map_err(error_text)?;
    socket.set_high_water_mark(0).map_err(error_text)?;
    Ok(socket)
}

fn bound(context: &Context, kind: Kind) -> Result<Socket, String> {
    let socket = socket(context, kind)?;
    socket.bind("tcp://127.0.0.1:*").map_err(error_text)?;
    Ok(socket)
}

struct Zeromq {
    out: Socket,
    into: Socket,
    frame: Message,
}

impl Ends for Zeromq {
    fn send(&mut self, frame: &[u8]) -> Result<(), String> {
        self.out.send(&[frame], Wait::Forever).map(drop).map_err(error_text)
    }

    fn receive(&mut self, patience: Duration, take: &mut dyn FnMut(&[u8])) -> Result<bool, String> {
        let has_come = self.into.receive(&mut self.frame, Wait::Most(patience)).map_err(error_text)?;
        if has_come {
            take(&self.frame);
        }
        Ok(has_come)
    }
}
