//! The types of ROS 2 topics that a node has learned, or asks for. The engines send the requests.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use polywire_core::envelope::Id128;

/// The first and the longest pause before a type that no peer has supplied is asked for again.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// The largest number of types that are remembered because no peer has supplied them so far.
const MAX_FAILED: usize = 1024;
/// The largest number of bytes of the documents that are kept.
const MAX_KEPT: usize = 4 << 20;

/// The types that this node has learned, and those that it asks for, by their hashes. `C`
/// identifies a channel.
pub(in crate::engine) struct Types<C> {
    known: BTreeMap<String, Vec<u8>>,
    asked: BTreeMap<String, BTreeSet<C>>,
    failed: BTreeMap<String, Failed<C>>,
}

/// A type that no peer has supplied so far.
struct Failed<C> {
    until: Instant,
    /// Zero if the type was not asked for yet, because too many others were.
    pause: Duration,
    /// The channels for which the node needs the type.
    channels: BTreeSet<C>,
}

impl<C> Default for Types<C> {
    fn default() -> Self {
        Types { known: BTreeMap::new(), asked: BTreeMap::new(), failed: BTreeMap::new() }
    }
}

impl<C: Copy + Ord> Types<C> {
    /// Returns the document of a type, if this node has learned it.
    pub(in crate::engine) fn document(&self, hash: &str) -> Option<&Vec<u8>> {
        self.known.get(hash)
    }

    /// Returns the id of the document of a type, or zero if this node has not learned the type.
    #[cfg(feature = "zenoh")]
    pub(in crate::engine) fn schema(&self, hash: &str) -> Id128 {
        self.document(hash).map_or(Id128::ZERO, |document| Id128::of_document(document))
    }

    /// Returns the document with this id, if there is one.
    #[cfg(feature = "zenoh")]
    pub(in crate::engine) fn with_id(&self, schema: Id128) -> Option<&Vec<u8>> {
        self.known.values().find(|document| Id128::of_document(document) == schema)
    }

    /// Notes that the node needs the type of a channel. At most `most` types are asked for at a
    /// time.
    pub(in crate::engine) fn need(&mut self, hash: &str, channel: C, most: usize, now: Instant) -> Need {
        if self.known.contains_key(hash) {
            return Need::Known;
        }
        if let Some(channels) = self.asked.get_mut(hash) {
            channels.insert(channel);
            return Need::Asked;
        }
        let has_room = self.asked.len() < most;
        match self.failed.get_mut(hash) {
            Some(failed) if now < failed.until || !has_room => {
                failed.channels.insert(channel);
                Need::Unknown
            }
            _ if has_room => {
                self.asked.insert(hash.into(), BTreeSet::from([channel]));
                Need::Ask
            }
            _ => {
                // The type is due as soon as there is room.
                self.fail(hash, Failed { until: now, pause: Duration::ZERO, channels: BTreeSet::from([channel]) });
                Need::Unknown
            }
        }
    }

    /// Remembers a type that no peer has supplied. If there is no room, forgets all others.
    fn fail(&mut self, hash: &str, failed: Failed<C>) {
        if self.failed.len() >= MAX_FAILED {
            self.failed.clear();
        }
        self.failed.insert(hash.into(), failed);
    }

    /// Notes the document of a type, or that no peer has supplied it. Returns the channels that
    /// waited for the type, and whether the request for it had not failed before.
    pub(in crate::engine) fn learn(
        &mut self,
        hash: &str,
        document: Option<Vec<u8>>,
        now: Instant,
    ) -> (BTreeSet<C>, bool) {
        let Some(mut channels) = self.asked.remove(hash) else { return (BTreeSet::new(), false) };
        let before = self.failed.remove(hash);
        let is_first = before.as_ref().is_none_or(|failed| failed.pause.is_zero());
        match document {
            Some(document) => {
                channels.extend(before.into_iter().flat_map(|failed| failed.channels));
                keep(&mut self.known, hash.into(), document);
            }
            None => {
                let (before, waiting) = before.map(|failed| (failed.pause, failed.channels)).unwrap_or_default();
                let pause = (2 * before).clamp(FIRST_PAUSE, LONGEST_PAUSE);
                self.fail(hash, Failed { until: now + pause, pause, channels: &waiting | &channels });
            }
        }
        (channels, is_first)
    }

    /// Returns the types to ask for again, by their hashes, each with a channel that needs it.
    pub(in crate::engine) fn due(&mut self, most: usize, now: Instant) -> Vec<(String, C)> {
        let Types { asked, failed, .. } = self;
        let due = failed.iter().filter(|(hash, failed)| failed.until <= now && !asked.contains_key(*hash));
        let due = due.filter_map(|(hash, failed)| Some((hash.clone(), *failed.channels.first()?)));
        let due: Vec<(String, C)> = due.take(most.saturating_sub(asked.len())).collect();
        // No channel waits for these types.
        asked.extend(due.iter().map(|(hash, _)| (hash.clone(), BTreeSet::new())));
        due
    }

    /// Removes a channel that has ended.
    pub(in crate::engine) fn ended(&mut self, channel: C) {
        let waiting = self.asked.values_mut().chain(self.failed.values_mut().map(|failed| &mut failed.channels));
        waiting.for_each(|channels| _ = channels.remove(&channel));
    }
}

/// Whether a type that the node needs is known, has to be asked for, is asked for already, or
/// cannot be asked for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Need {
    Known,
    Ask,
    Asked,
    Unknown,
}

/// Keeps a document that a peer supplied. If there is no room, discards all earlier documents.
pub(in crate::engine) fn keep<K: Ord>(kept: &mut BTreeMap<K, Vec<u8>>, key: K, document: Vec<u8>) {
    if kept.values().map(Vec::len).sum::<usize>() + document.len() > MAX_KEPT {
        kept.clear();
    }
    kept.insert(key, document);
}

#[cfg(all(test, feature = "zenoh"))]
mod tests {
    use polywire_core::envelope::ChannelId;

    use super::*;

    const A: ChannelId = ChannelId(1);
    const B: ChannelId = ChannelId(2);
    const C: ChannelId = ChannelId(3);

    #[test]
    fn a_type_is_asked_for_once_and_again_after_a_pause() {
        let (mut types, now) = (Types::default(), Instant::now());
        assert_eq!(types.need("a", A, 1, now), Need::Ask);
        assert_eq!(types.need("a", B, 1, now), Need::Asked);
        assert_eq!(types.learn("a", None, now), (BTreeSet::from([A, B]), true));
        assert_eq!((types.need("a", C, 1, now), types.due(1, now)), (Need::Unknown, vec![]));
        // No channel waits when the type is asked for again.
        let later = now + FIRST_PAUSE;
        types.ended(A);
        let b = || vec![("a".to_string(), B)];
        assert_eq!((types.due(0, later), types.due(1, later), types.due(1, later)), (vec![], b(), vec![]));
        assert_eq!(types.learn("a", None, later), (BTreeSet::new(), false));
        assert_eq!((types.due(1, later + FIRST_PAUSE), types.due(1, later + 2 * FIRST_PAUSE)), (vec![], b()));
        assert_eq!(types.learn("a", Some(vec![7]), later), (BTreeSet::from([B, C]), false));
        assert_eq!(types.learn("a", None, later), (BTreeSet::new(), false), "nobody has asked");
        assert_eq!(types.need("a", A, 0, later), Need::Known);
        let schema = Id128::of_document(&[7]);
        assert_eq!(
            (types.schema("a"), types.with_id(schema), types.schema("b")),
            (schema, Some(&vec![7]), Id128::ZERO)
        );
    }

    #[test]
    fn a_type_that_found_no_room_is_asked_for_once_there_is_room() {
        let (mut types, now) = (Types::default(), Instant::now());
        assert_eq!((types.need("a", A, 1, now), types.need("b", B, 1, now)), (Need::Ask, Need::Unknown));
        assert_eq!(types.due(1, now), []);
        types.learn("a", None, now);
        assert_eq!(types.due(1, now), [("b".to_string(), B)]);
        // The pause for the first type is over, but another one is being asked for.
        let later = now + FIRST_PAUSE;
        assert_eq!(types.need("a", C, 1, later), Need::Unknown);
        assert_eq!(types.learn("b", None, later), (BTreeSet::new(), true), "it had not failed before");
        assert_eq!(types.due(2, later), [("a".to_string(), A)], "the other one has just failed");
        assert_eq!(types.learn("a", Some(vec![7]), later), (BTreeSet::from([A, C]), false));
        assert_eq!(types.due(1, later + FIRST_PAUSE), [("b".to_string(), B)]);
        assert_eq!(types.learn("b", Some(vec![8]), later), (BTreeSet::from([B]), false));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mut types, now) = (Types::default(), Instant::now());
        for number in 0..3 * MAX_FAILED {
            let hash = number.to_string();
            assert_eq!(types.need(&hash, A, 1, now), Need::Ask);
            types.learn(&hash, None, now);
            assert_eq!(types.need(&format!("other {number}"), A, 0, now), Need::Unknown);
            assert!(types.failed.len() <= MAX_FAILED);
        }
        for number in 0..9 {
            let hash = format!("known {number}");
            types.need(&hash, A, 1, now);
            types.learn(&hash, Some(vec![number; MAX_KEPT / 4]), now);
            assert!(types.known.len() <= 4);
        }
    }
}
