//! Where a channel's messages are put: a publisher on the key of its topic.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use polywire_core::envelope::{Announcement, Extensions};
use zenoh::{Session, Wait, bytes::Encoding, key_expr::OwnedKeyExpr, pubsub::Publisher, qos::CongestionControl};

use super::{
    format,
    key::Keys,
    pace::{Express, Pace},
};

/// The id of the reliability policy in an offer, and its value for best effort (`spec/frame.md`).
const BEST_EFFORT: (u32, &[u8]) = (22, &[1]);
/// Names of topics that concern nodes alone.
const BUILT_IN: &str = "polywire/";

/// Whether messages of the channel are for Polywire nodes alone. A foreign application understands
/// no offer; so a channel of which readers must understand something is not put where it listens.
/// The same holds for topics about Polywire itself.
pub(super) fn is_private(announcement: &Announcement) -> bool {
    let must_know = |offer: Extensions<'_>| offer.not_understood(&[]).is_some();
    announcement.topic.starts_with(BUILT_IN) || Extensions::parse(&announcement.offer).map_or(true, must_know)
}

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
        let (encoding, congestion) = (format::encoding(announcement), congestion_control(announcement));
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
    let offer = Extensions::parse(&announcement.offer).unwrap_or_default();
    match offer.iter().any(|policy| policy == BEST_EFFORT) {
        true => CongestionControl::Drop,
        false => CongestionControl::Block,
    }
}

#[cfg(test)]
mod tests {
    use polywire_core::envelope::ExtensionsBuf;

    use super::*;

    /// An announcement with this policy in its offer; the ids are those of `spec/frame.md`.
    fn offering(id: u32, value: &[u8]) -> Announcement {
        let mut offer = ExtensionsBuf::default();
        offer.push(id, value);
        let offer = offer.as_extensions().bytes().to_vec();
        Announcement { topic: "t".into(), offer, ..Announcement::default() }
    }

    #[test]
    fn what_readers_must_understand_is_private() {
        assert!(!is_private(&Announcement { topic: "t".into(), ..Announcement::default() }));
        assert!(!is_private(&offering(4, &[1])), "transient local");
        assert!(is_private(&offering(257, &[1; 16])), "a history");
        assert!(is_private(&offering(259, &[1; 16])), "signs of life");
        assert!(is_private(&offering(21, b"\x01a")), "a partition");
        assert!(is_private(&Announcement { topic: "polywire/nodes".into(), ..Announcement::default() }));
        assert!(is_private(&Announcement { topic: "t".into(), offer: vec![0xff], ..Announcement::default() }));
    }

    #[test]
    fn best_effort_may_be_dropped_and_the_rest_waits() {
        assert_eq!(congestion_control(&offering(22, &[1])), CongestionControl::Drop);
        assert_eq!(congestion_control(&offering(22, &[2])), CongestionControl::Block);
        assert_eq!(congestion_control(&Announcement::default()), CongestionControl::Block);
    }
}
