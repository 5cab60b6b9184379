//! Live measurements of Zenoh: opens one session for each end and carries frames over them, for
//! `callbacks`.

use std::{net::TcpListener, sync::Arc};

use zenoh::{
    Config, Session, Wait,
    pubsub::{Publisher, Subscriber},
    qos::CongestionControl,
};

use super::{
    callbacks::{self, End, Out},
    carrier::Carrier,
    peer::Peer,
    receivers::Receivers,
    setup::Setup,
};
use crate::{scenario::Place, subject::Subject};

/// How this crate configures the engine.
pub const SETTINGS: &str = "Zenoh, used directly: peers connected by TCP, without scouting; nothing is dropped (`CongestionControl::Block`); publishers are `express` if only one message is in flight, and otherwise batch messages; both ends answer in their callbacks";

const THERE: &str = "polywire/there";
const BACK: &str = "polywire/back";

/// Listens here and starts the other end.
pub fn connect(mut setup: Setup, subject: &Subject, place: Place) -> Result<(Box<dyn Carrier>, Peer), String> {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).map_err(error_text)?;
    setup.address = format!("tcp/{free}");
    let end = open(&setup, "listen/endpoints", THERE, BACK)?;
    callbacks::connect(setup, end, subject, place, receive)
}

/// Connects all subscribers, each with its own session.
pub fn receive(setup: &Setup) -> Result<Receivers, String> {
    callbacks::receive(setup, |setup| open(setup, "connect/endpoints", BACK, THERE))
}

fn error_text(error: impl ToString) -> String {
    error.to_string()
}

/// An end with a session of its own, which knows only this address.
fn open(setup: &Setup, role: &str, out: &'static str, into: &'static str) -> Result<Zenoh, String> {
    let mut config = Config::default();
    let address = format!("[\"{}\"]", setup.address);
    let only = [("listen/endpoints", "[]"), ("connect/endpoints", "[]"), (role, &*address)];
    let quiet = [("scouting/multicast/enabled", "false"), ("scouting/gossip/enabled", "false")];
    for (key, value) in [("mode", "\"peer\"")].into_iter().chain(quiet).chain(only) {
        config.insert_json5(key, value).map_err(error_text)?;
    }
    let session = zenoh::open(config).wait().map_err(error_text)?;
    let publisher = session.declare_publisher(out).congestion_control(CongestionControl::Block).express(setup.echo);
    let out = Arc::new(publisher.wait().map_err(error_text)?);
    Ok(Zenoh { out, into, subscriber: None, session })
}

struct Zenoh {
    out: Arc<Publisher<'static>>,
    into: &'static str,
    subscriber: Option<Subscriber<()>>,
    session: Session,
}

impl Out for Publisher<'static> {
    fn send(&self, frame: &[u8]) -> Result<(), String> {
        self.put(frame).wait().map_err(error_text)
    }
}

impl End for Zenoh {
    fn out(&self) -> Arc<dyn Out> {
        self.out.clone()
    }

    fn hear(&mut self, take: impl Fn(&[u8]) + Send + Sync + 'static) -> Result<(), String> {
        let subscriber = self.session.declare_subscriber(self.into);
        let subscriber = subscriber.callback(move |sample| take(&sample.payload().to_bytes()));
        self.subscriber = Some(subscriber.wait().map_err(error_text)?);
        Ok(())
    }
}
