//! Live measurements of libzmq: opens its sockets and carries frames over them, for `bus`.

use std::time::Duration;

use zmq::{Context, PUB, PULL, PUSH, SUB, Socket, SocketType};

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
pub const SETTINGS: &str = "libzmq over TCP: messages from PUB to SUB, echoes from PUSH to PULL; its queues are unbounded (`SNDHWM`, `RCVHWM` 0), so that nothing is dropped";

/// Binds here and starts the other end.
pub fn connect(mut setup: Setup, subject: &Subject, place: Place) -> Result<(Box<dyn Carrier>, Peer), String> {
    let context = Context::new();
    let ends = Zeromq { out: bound(&context, PUB)?, into: bound(&context, PULL)?, frame: zmq::Message::new() };
    let address = |socket: &Socket| {
        socket.get_last_endpoint().map_err(error_text)?.map_err(|_| "the address is not UTF-8".to_owned())
    };
    setup.address = format!("{} {}", address(&ends.out)?, address(&ends.into)?);
    bus::connect(setup, ends, subject, place, receive)
}

/// Connects all subscribers.
pub fn receive(setup: &Setup) -> Result<Receivers, String> {
    waiting::receive(setup, |setup| {
        let (there, back) = setup.address.split_once(' ').ok_or("two addresses are expected")?;
        let context = Context::new();
        let (into, out) = (socket(&context, SUB)?, socket(&context, PUSH)?);
        into.set_subscribe(b"").map_err(error_text)?;
        into.connect(there).map_err(error_text)?;
        out.connect(back).map_err(error_text)?;
        Ok(Zeromq { out, into, frame: zmq::Message::new() })
    })
}

fn error_text(error: zmq::Error) -> String {
    error.to_string()
}

fn socket(context: &Context, kind: SocketType) -> Result<Socket, String> {
    let socket = context.socket(kind).map_err(error_text)?;
    socket.set_linger(0).map_err(error_text)?;
    socket.set_sndhwm(0).map_err(error_text)?;
    socket.set_rcvhwm(0).map_err(error_text)?;
    Ok(socket)
}

fn bound(context: &Context, kind: SocketType) -> Result<Socket, String> {
    let socket = socket(context, kind)?;
    socket.bind("tcp://127.0.0.1:*").map_err(error_text)?;
    Ok(socket)
}

struct Zeromq {
    out: Socket,
    into: Socket,
    frame: zmq::Message,
}

impl Ends for Zeromq {
    fn send(&mut self, frame: &[u8]) -> Result<(), String> {
        self.out.send(frame, 0).map_err(error_text)
    }

    fn receive(&mut self, patience: Duration, take: &mut dyn FnMut(&[u8])) -> Result<bool, String> {
        self.into.set_rcvtimeo(patience.as_millis() as i32).map_err(error_text)?;
        match self.into.recv(&mut self.frame, 0) {
            Ok(()) => {
                take(&self.frame);
                Ok(true)
            }
            Err(zmq::Error::EAGAIN) => Ok(false),
            Err(error) => Err(error_text(error)),
        }
    }
}
