//! QoS policies as they stand in tokens of ROS 2: numbers of `rmw`, and durations in seconds and
//! nanoseconds. rmw_zenoh leaves out the values that are its defaults.

use std::time::Duration;

use polywire_core::{
    envelope::Id128,
    qos::{Durability, History, Liveliness, Offer, Qos, Reliability},
    ros::TypeHash,
};

const RELIABLE: u64 = 1;
const BEST_EFFORT: u64 = 2;
const TRANSIENT_LOCAL: u64 = 1;
const VOLATILE: u64 = 2;
const KEEP_LAST: u64 = 1;
const KEEP_ALL: u64 = 2;
const MANUAL_BY_TOPIC: u64 = 3;
/// rmw_zenoh's default for the depth, which also replaces 0.
const DEPTH: u32 = 42;
/// A duration of at least this many nanoseconds means no limit, and so does 0.
const INFINITE: u64 = i64::MAX as u64;
const SECOND: u64 = 1_000_000_000;

/// Reads the policies of a publisher or subscriber. A missing or malformed value is the default of
/// rmw_zenoh: reliable, volatile, and the last 42 samples.
pub(super) fn read(text: &str) -> Qos {
    let mut parts = text.split(':').map(|part| {
        let mut numbers = part.split(',').map(|number| number.parse::<u64>().ok());
        [(); 3].map(|()| numbers.next().flatten())
    });
    let mut next = || parts.next().unwrap_or_default();
    let mut qos = Qos::default();
    qos.reliability = match next() {
        [Some(BEST_EFFORT), ..] => Reliability::BestEffort,
        _ => Reliability::Reliable,
    };
    qos.durability = match next() {
        [Some(TRANSIENT_LOCAL), ..] => Durability::TransientLocal,
        _ => Durability::Volatile,
    };
    qos.history = match next() {
        [Some(KEEP_ALL), ..] => History::KeepAll,
        [_, depth, _] => History::KeepLast(depth.and_then(|n| n.try_into().ok()).filter(|n| *n > 0).unwrap_or(DEPTH)),
    };
    let [seconds, rest, _] = next();
    qos.deadline = duration(seconds, rest);
    let [seconds, rest, _] = next();
    qos.lifespan = duration(seconds, rest);
    let [kind, seconds, rest] = next();
    qos.liveliness = match kind {
        Some(MANUAL_BY_TOPIC) => Liveliness::ManualByTopic,
        _ => Liveliness::Automatic,
    };
    qos.lease = duration(seconds, rest);
    qos
}

/// Returns a duration, or `None` if there is no limit.
fn duration(seconds: Option<u64>, rest: Option<u64>) -> Option<Duration> {
    let seconds = seconds.unwrap_or(INFINITE / SECOND);
    let nanoseconds = seconds.saturating_mul(SECOND).saturating_add(rest.unwrap_or(INFINITE % SECOND));
    (1..INFINITE).contains(&nanoseconds).then(|| Duration::from_nanos(nanoseconds))
}

/// Writes the policies of an end of this node. `best-available` is written as reliable.
pub(super) fn text(qos: &Qos) -> String {
    let reliability = if qos.reliability == Reliability::BestEffort { BEST_EFFORT } else { RELIABLE };
    let durability = if qos.durability == Durability::TransientLocal { TRANSIENT_LOCAL } else { VOLATILE };
    let history = match qos.history {
        History::KeepLast(depth) => format!("{KEEP_LAST},{depth}"),
        History::KeepAll => format!("{KEEP_ALL},"),
    };
    let limit = |limit: Option<Duration>| {
        limit.map_or(",".into(), |limit| format!("{},{}", limit.as_secs(), limit.subsec_nanos()))
    };
    let (deadline, lifespan, lease) = (limit(qos.deadline), limit(qos.lifespan), limit(qos.lease));
    let liveliness = if qos.liveliness == Liveliness::ManualByTopic { "3" } else { "" };
    format!("{reliability}:{durability}:{history}:{deadline}:{lifespan}:{liveliness},{lease}")
}

/// Returns the offer that the channel of a ROS 2 publisher announces, or the channel of the history
/// of the writer `history_of`. The lease is not offered: Zenoh notices the silence of a publisher
/// after the lease of its transport, whatever the publisher's own lease is.
pub(super) fn offer(qos: &Qos, ros_type: Option<TypeHash>, history_of: Option<Id128>) -> Vec<u8> {
    let mut qos = qos.clone();
    qos.lease = None;
    let offer = Offer { qos, ros_type, history_of, ..Offer::default() };
    let bytes = offer.to_bytes();
    // A token may have values that an offer cannot have.
    if Offer::parse(&bytes).is_ok() { bytes } else { Offer { qos: Qos::DEFAULT, ..offer }.to_bytes() }
}

/// Combines two offers: the result satisfies only those requests that both satisfy.
pub(super) fn weaker(a: &Qos, b: &Qos) -> Qos {
    let longer = |a: Option<Duration>, b: Option<Duration>| Some(a?.max(b?));
    let mut qos = a.clone().reliability(a.reliability.min(b.reliability)).durability(a.durability.min(b.durability));
    qos.liveliness = a.liveliness.min(b.liveliness);
    (qos.deadline, qos.lifespan) = (longer(a.deadline, b.deadline), longer(a.lifespan, b.lifespan));
    qos.lease = longer(a.lease, b.lease);
    qos
}

/// Combines two requests: an offer that satisfies the result satisfies both.
pub(super) fn stronger(a: &Qos, b: &Qos) -> Qos {
    let shorter = |a: Option<Duration>, b: Option<Duration>| a.into_iter().chain(b).min();
    let mut qos = a.clone().reliability(a.reliability.max(b.reliability)).durability(a.durability.max(b.durability));
    qos.history = match (a.history, b.history) {
        (History::KeepLast(a), History::KeepLast(b)) => History::KeepLast(a.max(b)),
        _ => History::KeepAll,
    };
    qos.liveliness = a.liveliness.max(b.liveliness);
    (qos.deadline, qos.lease) = (shorter(a.deadline, b.deadline), shorter(a.lease, b.lease));
    qos
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn default() -> Qos {
        Qos::default().reliability(Reliability::Reliable).keep_last(42)
    }

    #[test]
    fn what_a_token_leaves_out_is_the_default_of_rmw_zenoh() {
        for text in
            ["", "::,:,:,:,,", "0:0:0,0:0,0:0,0:0,0,0", "x:y:-1,z", "::,42:9223372036,854775807:,:1,,", "::::::::"]
        {
            assert_eq!(read(text), default(), "{text}");
        }
        // The talker in rmw_zenoh's design.
        assert_eq!(read("::,7:,:,:,,"), default().keep_last(7));
        let ms = Duration::from_millis;
        let mut all = Qos::default().reliability(Reliability::BestEffort).transient_local().deadline(ms(1500));
        (all.lifespan, all.lease, all.liveliness) = (Some(ms(2000)), Some(ms(1)), Liveliness::ManualByTopic);
        assert_eq!(read("2:1:2,:1,500000000:2,0:3,0,1000000"), all);
        // rmw_zenoh leaves a part of a duration out as well.
        assert_eq!(read("::,:1,:,:,,").deadline, Some(Duration::new(1, 854_775_807)));
        let huge = format!("::,{0}:{0},{0}:1,{0}:,{0},1", u64::MAX);
        assert_eq!(read(&huge).deadline, None);
    }

    #[test]
    fn policies_come_back_from_a_token() {
        assert_eq!(text(&Qos::default().keep_last(10)), "1:2:1,10:,:,:,,");
        let ms = Duration::from_millis;
        let mut qos = Qos::default().reliability(Reliability::BestEffort).transient_local().deadline(ms(20));
        (qos.lifespan, qos.lease, qos.liveliness) = (Some(ms(3000)), Some(ms(50)), Liveliness::ManualByTopic);
        assert_eq!(text(&qos), "2:1:2,:0,20000000:3,0:3,0,50000000");
        assert_eq!(read(&text(&qos)), qos);
    }

    #[test]
    fn an_offer_has_what_is_kept_for_a_foreign_writer() {
        let qos = |bytes: &[u8]| Offer::parse(bytes).expect("an offer").qos;
        let offered = qos(&offer(&read("2:1:1,9:0,5:7,0:3,1,0"), None, None));
        let mut expected =
            Qos::default().reliability(Reliability::BestEffort).transient_local().deadline(Duration::from_nanos(5));
        expected.history = History::KeepLast(9);
        (expected.lifespan, expected.liveliness) = (Some(Duration::from_secs(7)), Liveliness::ManualByTopic);
        assert_eq!(offered, expected);
    }

    #[test]
    fn of_several_the_weakest_is_offered_and_the_strongest_requested() {
        let (a, b) = (read("2:1:1,9:1,0:1,0:3,,"), read("1:2:2,:2,0:,:,2,0"));
        assert_eq!(weaker(&a, &b), read("2:2:1,9:2,0:,:,,"));
        assert_eq!(stronger(&a, &b), read("1:1:2,:1,0:1,0:3,2,0"));
    }

    proptest! {
        #[test]
        fn any_text_gives_policies_that_can_be_offered(text in "[0-9,:x]{0,60}") {
            prop_assert!(Offer::parse(&offer(&read(&text), None, None)).is_ok());
        }
    }
}
