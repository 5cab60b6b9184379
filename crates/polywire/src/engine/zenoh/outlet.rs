//! Where a channel's messages are put: a publisher on the key of its topic.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use polywire_core::envelope::Announcement;
use zenoh::{Session, Wait, bytes::Encoding, key_expr::OwnedKeyExpr, pubsub::Publisher, qos::CongestionControl};

use super::{
    super::foreign::{
        encoding,
        openness::{is_best_effort, is_private},
    },
    key::Keys,
    pace::{Express, Pace},
};

pub(super) struct Outlet {
    session: Session,
    key: OwnedKeyExpr,
    encoding: Encoding,
    congestion: CongestionControl,
    pace: Pace,
    /// For messages that leave at once.
    express: Publisher<'static>,
    /// For messages in batches, made when it is needed.
    batched: OnceLock<Publisher<'static>>,
    /// Somebody listens, Polywire or not.
    is_heard: Arc<AtomicBool>,
}

impl Outlet {
    /// A publisher for the channel. `None` if its messages go by mail.
    pub(super) fn open(
        session: &Session,
        keys: &Keys,
        announcement: &Announcement,
        express: Express,
    ) -> zenoh::Result<Option<Arc<Outlet>>> {
        let Some(key) = keys.of(&announcement.topic).filter(|_| !is_private(announcement)) else { return Ok(None) };
        let (encoding, congestion) = (Encoding::from(encoding::of(announcement)), congestion_control(announcement));
        let publisher = publisher(session, &key, &encoding, congestion, true)?;
        let is_heard = Arc::new(AtomicBool::new(false));
        let heard = is_heard.clone();
        let listener = publisher.matching_listener();
        listener.callback(move |status| heard.store(status.matching(), Ordering::Release)).background().wait()?;
        is_heard.fetch_or(publisher.matching_status().wait()?.matching(), Ordering::AcqRel);
        Ok(Some(Arc::new(Outlet {
            session: session.clone(),
            key,
            encoding,
            congestion,
            pace: Pace::new(express),
            express: publisher,
            batched: OnceLock::new(),
            is_heard,
        })))
    }

    pub(super) fn is_heard(&self) -> bool {
        self.is_heard.load(Ordering::Acquire)
    }

    pub(super) fn put(&self, attachment: Vec<u8>, payload: Vec<u8>) -> zenoh::Result<()> {
        let publisher = match self.pace.is_express(Instant::now()) {
            true => &self.express,
            false => self.batched()?,
        };
        publisher.put(payload).attachment(attachment).wait()
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
    let publisher = session.declare_publisher(key.clone()).encoding(encoding.clone());
    publisher.congestion_control(congestion).express(is_express).wait()
}

fn congestion_control(announcement: &Announcement) -> CongestionControl {
    match is_best_effort(announcement) {
        true => CongestionControl::Drop,
        false => CongestionControl::Block,
    }
}
