//! Which channels foreign applications may read, and whether messages for them wait or are kept.

use polywire_core::envelope::{Announcement, Extensions};

/// The id of the durability policy in an offer, and its value for transient local
/// (`spec/frame.md`).
#[cfg(feature = "zenoh")]
const TRANSIENT_LOCAL: (u32, &[u8]) = (4, &[1]);
/// The id of the reliability policy in an offer, and its value for best effort.
const BEST_EFFORT: (u32, &[u8]) = (22, &[1]);
/// The prefix of topics that are only for Polywire nodes.
const BUILT_IN: &str = "polywire/";

/// Returns whether messages of the channel are only for Polywire nodes. A foreign application does
/// not understand offers, so a channel whose readers must understand its offer is not published to
/// foreign applications. The same holds for topics about Polywire itself.
pub(in crate::engine) fn is_private(announcement: &Announcement) -> bool {
    let must_know = |offer: Extensions<'_>| offer.not_understood(&[]).is_some();
    announcement.topic.starts_with(BUILT_IN) || Extensions::parse(&announcement.offer).map_or(true, must_know)
}

/// Returns whether messages of the channel may be dropped where messages of other channels would
/// wait for a slow reader.
pub(in crate::engine) fn is_best_effort(announcement: &Announcement) -> bool {
    offers(announcement, BEST_EFFORT)
}

/// Returns whether late joiners receive the history of the channel.
#[cfg(feature = "zenoh")]
pub(in crate::engine) fn is_durable(announcement: &Announcement) -> bool {
    offers(announcement, TRANSIENT_LOCAL)
}

fn offers(announcement: &Announcement, policy: (u32, &[u8])) -> bool {
    Extensions::parse(&announcement.offer).unwrap_or_default().iter().any(|offered| offered == policy)
}

#[cfg(test)]
mod tests {
    use polywire_core::envelope::ExtensionsBuf;

    use super::*;

    /// Returns an announcement with this policy in its offer. The ids are those of `spec/frame.md`.
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

    #[cfg(feature = "zenoh")]
    #[test]
    fn what_is_durable_has_a_history() {
        assert!(is_durable(&offering(4, &[1])) && !is_durable(&Announcement::default()));
    }

    #[test]
    fn best_effort_may_be_dropped_and_the_rest_waits() {
        assert!(is_best_effort(&offering(22, &[1])));
        assert!(!is_best_effort(&offering(22, &[2])));
        assert!(!is_best_effort(&Announcement::default()));
    }
}
