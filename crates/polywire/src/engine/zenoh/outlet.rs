//! The outlet of a channel: a Zenoh publisher on the key of the channel's topic.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};

use polywire_core::envelope::{Announcement, Envelope, Id128, Kind};
use zenoh::{
    Session, Wait,
    bytes::{Encoding, ZBytes},
    key_expr::OwnedKeyExpr,
    liveliness::LivelinessToken,
    pubsub::Publisher,
    qos::CongestionControl,
    sample::Locality,
};

use super::{
    super::{
        Loan,
        foreign::visibility::{is_best_effort, is_durable},
    },
    attachment,
    history::{History, Times},
    pace::Pace,
    ros,
};

pub(super) struct Outlet {
    session: Session,
    key: OwnedKeyExpr,
    encoding: Encoding,
    congestion: CongestionControl,
    pace: Arc<Pace>,
    /// For messages that leave at once.
    express: Publisher<'static>,
    /// For messages that leave in batches. Declared when it is first needed.
    batched: OnceLock<Publisher<'static>>,
    /// Whether there is a matching subscriber, Polywire's or not.
    is_heard: Arc<AtomicBool>,
    /// The history for applications that join late.
    history: Option<History>,
    ros: Option<Ros>,
}

/// The key under which the messages of a channel are put, and their form.
pub(super) struct Place {
    pub(super) key: OwnedKeyExpr,
    pub(super) encoding: Encoding,
    /// The number of samples of each instance that are kept for applications that join late, if the
    /// channel has a history.
    pub(super) kept: usize,
    pub(super) ros: Option<Ros>,
}

/// The additional properties of a topic of ROS 2.
pub(super) struct Ros {
    pub(super) topic: ros::Topic,
    /// The header that precedes each payload. `None` if the payloads contain it already.
    pub(super) header: Option<[u8; ros::HEADER]>,
    pub(super) _token: LivelinessToken,
}

impl Outlet {
    /// Declares a publisher for a channel. The channel's history has at most `most` bytes.
    pub(super) fn open(
        session: &Session,
        place: Place,
        announcement: &Announcement,
        pace: Arc<Pace>,
        (times, most): (&Arc<Times>, usize),
    ) -> zenoh::Result<Arc<Outlet>> {
        let (Place { key, encoding, kept, ros }, congestion) = (place, congestion_control(announcement));
        let publisher = publisher(session, &key, &encoding, congestion, true)?;
        let is_heard = Arc::new(AtomicBool::new(false));
        let heard = is_heard.clone();
        let listener = publisher.matching_listener();
        listener.callback(move |status| heard.store(status.matching(), Ordering::Release)).background().wait()?;
        is_heard.fetch_or(publisher.matching_status().wait()?.matching(), Ordering::AcqRel);
        let history = is_durable(announcement)
            .then(|| History::open(session, &key, &encoding, times.clone(), (kept, most)))
            .transpose()?;
        Ok(Arc::new(Outlet {
            session: session.clone(),
            key,
            encoding,
            congestion,
            pace,
            express: publisher,
            batched: OnceLock::new(),
            is_heard,
            history,
            ros,
        }))
    }

    /// The topic, if it is one of ROS 2.
    pub(super) fn ros_topic(&self) -> Option<&ros::Topic> {
        self.ros.as_ref().map(|ros| &ros.topic)
    }

    /// Whether a message may be put here. The end of an instance may not: an application that does
    /// not know kinds of messages would take it for a value.
    pub(super) fn takes(&self, envelope: &Envelope<'_>) -> bool {
        match self.ros {
            None => !matches!(envelope.kind, Kind::Dispose | Kind::Unregister),
            Some(_) => ros::is_plain(envelope),
        }
    }

    /// Whether a message ends an instance of which the history may have samples.
    pub(super) fn ends(&self, envelope: &Envelope<'_>) -> bool {
        self.has_history() && matches!(envelope.kind, Kind::Dispose | Kind::Unregister)
    }

    /// The attachment and the payload of a message.
    pub(super) fn sample(&self, writer: Id128, envelope: &Envelope<'_>, mut loan: Loan) -> (Vec<u8>, Vec<u8>) {
        let Some(Ros { header, .. }) = &self.ros else { return (attachment::put(writer, envelope), loan.into_inner()) };
        let payload = match header {
            Some(header) if loan.with_header(header).is_some() => loan.into_inner(),
            Some(header) => [&header[..], loan.payload()].concat(),
            None => loan.payload().to_vec(),
        };
        (ros::attachment(writer, envelope), payload)
    }

    /// Whether a subscriber receives what is put here, now or later.
    pub(super) fn is_heard(&self) -> bool {
        self.has_history() || self.is_heard_now()
    }

    /// Whether a subscriber receives what is put here now. It may be a Polywire node's.
    pub(super) fn is_heard_now(&self) -> bool {
        self.is_heard.load(Ordering::Acquire)
    }

    fn has_history(&self) -> bool {
        self.history.is_some()
    }

    pub(super) fn put(&self, instance: Option<Id128>, attachment: Vec<u8>, payload: Vec<u8>) -> zenoh::Result<()> {
        let publisher = match self.pace.is_express() {
            true => &self.express,
            false => self.batched()?,
        };
        let (attachment, payload) = (ZBytes::from(attachment), ZBytes::from(payload));
        let keep = |history: &History| history.keep(instance, attachment.clone(), payload.clone());
        let at = self.history.as_ref().map(keep);
        let put = publisher.put(payload).attachment(attachment).timestamp(at).wait();
        self.pace.ended();
        put
    }

    /// Notes that an instance has ended. Called after everything before its end was put.
    pub(super) fn forget(&self, instance: Option<Id128>) {
        self.history.iter().for_each(|history| history.forget(instance));
    }

    /// Notes that a message has waited for peers until now. That wait is no pause of the publisher.
    pub(super) fn waited(&self) {
        self.pace.waited();
    }

    fn batched(&self) -> zenoh::Result<&Publisher<'static>> {
        if let Some(publisher) = self.batched.get() {
            return Ok(publisher);
        }
        let made = publisher(&self.session, &self.key, &self.encoding, self.congestion, false)?;
        Ok(self.batched.get_or_init(|| made))
    }
}

fn publisher(
    session: &Session,
    key: &OwnedKeyExpr,
    encoding: &Encoding,
    congestion: CongestionControl,
    is_express: bool,
) -> zenoh::Result<Publisher<'static>> {
    // The session's own subscribers are the node's, which receives its own messages in another way.
    let publisher = session.declare_publisher(key.clone()).encoding(encoding.clone());
    publisher.allowed_destination(Locality::Remote).congestion_control(congestion).express(is_express).wait()
}

fn congestion_control(announcement: &Announcement) -> CongestionControl {
    match is_best_effort(announcement) {
        true => CongestionControl::Drop,
        false => CongestionControl::Block,
    }
}
