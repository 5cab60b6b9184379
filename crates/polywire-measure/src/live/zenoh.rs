//! Live measurements of Zenoh: opens one session for each end and carries frames over them, for
//! `callbacks`.

use std::{net::TcpListener, sync::Arc};

use zenoh::{
    Config, Session, Wait,
    bytes::Encoding,
    pubsub::{Publisher, Subscriber},
    qos::CongestionControl,
};

use super::{
    callbacks::{self, End, Out},
    carrier::Carrier,
    frame::HEAD,
    peer::Peer,
    receivers::Receivers,
    setup::Setup,
};
use crate::{scenario::Place, subject::Subject};

/// How this crate configures the engine.
pub const SETTINGS: &str = "Zenoh, used directly: peers connected by TCP, without scouting; nothing is dropped (`CongestionControl::Block`); publishers are `express` if only one message is in flight, and otherwise batch messages; both ends answer in their callbacks";

/// The engine with samples as Polywire's engine `zenoh` puts them.
pub const ATTACHED: &str = "raw-zenoh-attached";

/// How this crate configures the engine with attachments.
pub const ATTACHED_SETTINGS: &str = "as `raw-zenoh`, and each sample has an encoding and an attachment as long as those of Polywire's engine `zenoh`; both ends answer in their callbacks";

const THERE: &str = "polywire/there";
const BACK: &str = "polywire/back";

/// An encoding that names a format, a type and a schema, as those of Polywire do.
const ENCODING: &str = "application/cdr;MarketData@00112233445566778899aabbccddeeff";

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
    let is_attached = setup.engine == ATTACHED;
    let publisher = match is_attached {
        true => publisher.encoding(Encoding::from(ENCODING)),
        false => publisher,
    };
    let out = Arc::new(Samples { publisher: publisher.wait().map_err(error_text)?, is_attached });
    Ok(Zenoh { out, into, subscriber: None, session })
}

/// Puts samples, with an attachment or without.
struct Samples {
    publisher: Publisher<'static>,
    is_attached: bool,
}

struct Zenoh {
    out: Arc<Samples>,
    into: &'static str,
    subscriber: Option<Subscriber<()>>,
    session: Session,
}

impl Out for Samples {
    fn send(&self, frame: &[u8]) -> Result<(), String> {
        let put = self.publisher.put(frame);
        match frame.get(..HEAD).filter(|_| self.is_attached) {
            Some(head) => put.attachment(head).wait(),
            None => put.wait(),
        }
        .map_err(error_text)
    }
}

impl End for Zenoh {
    fn out(&self) -> Arc<dyn Out> {
        self.out.clone()
    }

    fn hear(&mut self, take: impl Fn(&[u8]) + Send + Sync + 'static) -> Result<(), String> {
        let subscriber = self.session.declare_subscriber(self.into);
        let subscriber = subscriber.callback(move |sample| {
            // An end that sends attachments also reads them. Greetings have no attachment.
            let head = sample.attachment().map(|attachment| attachment.to_bytes());
            if head.is_none_or(|head| head.len() == HEAD) {
                take(&sample.payload().to_bytes());
            }
        });
        self.subscriber = Some(subscriber.wait().map_err(error_text)?);
        Ok(())
    }
}
