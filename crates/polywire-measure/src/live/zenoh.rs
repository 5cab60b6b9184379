//! Live measurements of Zenoh: opens one session for each end and carries frames over them, for
//! `bus`.

use std::{
    net::TcpListener,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use zenoh::{
    Config, Session, Wait,
    handlers::FifoChannelHandler,
    pubsub::{Publisher, Subscriber},
    qos::CongestionControl,
    sample::Sample,
};

use super::{
    bus::{self, Ends},
    carrier::Carrier,
    peer::Peer,
    receivers::Receivers,
    setup::Setup,
};
use crate::{scenario::Place, subject::Subject};

/// How this crate configures the engine.
pub const SETTINGS: &str = "peers connected by TCP, without scouting; nothing is dropped (`CongestionControl::Block`); publishers are `express` if only one message is in flight, and otherwise batch messages; \
     subscribers answer in their callback, and the sender waits on a channel, as Zenoh's own ping and pong do";

const THERE: &str = "polywire/there";
const BACK: &str = "polywire/back";

/// Listens here and starts the other end.
pub fn connect(mut setup: Setup, subject: &Subject, place: Place) -> Result<(Box<dyn Carrier>, Peer), String> {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).map_err(error_text)?;
    setup.address = format!("tcp/{free}");
    let session = session(&setup, "listen/endpoints")?;
    let into = session.declare_subscriber(BACK).wait().map_err(error_text)?;
    let ends = Ways { out: publisher(&setup, &session, THERE)?, into, _session: session };
    bus::connect(setup, ends, subject, place, receive)
}

/// Connects all subscribers, each with its own session.
pub fn receive(setup: &Setup) -> Result<Receivers, String> {
    let (all, mut receivers) = bus::Subscriber::all(setup)?;
    for subscriber in all {
        let session = session(setup, "connect/endpoints")?;
        let out = publisher(setup, &session, BACK)?;
        let subscriber = Mutex::new(subscriber);
        let take = move |sample: Sample| {
            let mut subscriber = subscriber.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(answer) = subscriber.take(&sample.payload().to_bytes()) {
                // A failure to send shows as a missing echo.
                let _ = out.put(answer).wait();
            }
        };
        let held = session.declare_subscriber(THERE).callback(take).wait().map_err(error_text)?;
        receivers._held.push(Box::new((held, session)));
    }
    Ok(receivers)
}

fn error_text(error: impl ToString) -> String {
    error.to_string()
}

/// A session that knows only this address.
fn session(setup: &Setup, role: &str) -> Result<Session, String> {
    let mut config = Config::default();
    let address = format!("[\"{}\"]", setup.address);
    let only = [("listen/endpoints", "[]"), ("connect/endpoints", "[]"), (role, &*address)];
    let quiet = [("scouting/multicast/enabled", "false"), ("scouting/gossip/enabled", "false")];
    for (key, value) in [("mode", "\"peer\"")].into_iter().chain(quiet).chain(only) {
        config.insert_json5(key, value).map_err(error_text)?;
    }
    zenoh::open(config).wait().map_err(error_text)
}

fn publisher(setup: &Setup, session: &Session, topic: &'static str) -> Result<Publisher<'static>, String> {
    let publisher = session.declare_publisher(topic).congestion_control(CongestionControl::Block).express(setup.echo);
    publisher.wait().map_err(error_text)
}

struct Ways {
    out: Publisher<'static>,
    into: Subscriber<FifoChannelHandler<Sample>>,
    _session: Session,
}

impl Ends for Ways {
    fn send(&mut self, frame: &[u8]) -> Result<(), String> {
        self.out.put(frame).wait().map_err(error_text)
    }

    fn receive(&mut self, patience: Duration, take: &mut dyn FnMut(&[u8])) -> Result<bool, String> {
        let sample = self.into.recv_timeout(patience).map_err(error_text)?;
        Ok(sample.map(|sample| take(&sample.payload().to_bytes())).is_some())
    }
}
