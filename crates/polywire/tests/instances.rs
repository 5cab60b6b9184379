//! Instances of keyed types: their ends, and the hashes that tell them apart.

use std::time::Duration;

use polywire::{
    Info, Kind, Node, PublishError, Record, Sample,
    coding::{Discovered, Dynamic, Typed},
    schema::Schema,
};
use polywire_core::{
    codec::cdr::{CDR, XCDR2, key::KeyHasher},
    envelope::Id128,
    layout::Message as _,
};
use polywire_derive::Message;

const SOON: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Air::Track")]
struct Track {
    #[polywire(key)]
    sector: u8,
    #[polywire(key)]
    number: u64,
    speed: f64,
    label: String,
}

/// As an older subscriber has it.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Air::Track")]
struct OldTrack {
    #[polywire(key)]
    sector: u8,
    #[polywire(key)]
    number: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Message)]
struct Keyless {
    number: u16,
}

fn track() -> Track {
    Track { sector: 3, number: 0x0102_0304, speed: 250.0, label: "LH400".into() }
}

fn key() -> Track {
    Track { sector: 3, number: 0x0102_0304, ..Track::default() }
}

fn hash(codec: &polywire_core::codec::cdr::Cdr) -> Id128 {
    let mut hasher = KeyHasher::<Track>::new(codec).expect("a hasher").expect("a key");
    Id128(hasher.hash(&key()).expect("a hash"))
}

fn next<V>(subscriber: &polywire::Subscriber<V>) -> Sample<V> {
    subscriber.recv_timeout(SOON).expect("a message")
}

fn ends(info: &Info, kind: Kind, sequence: u64, hash: Id128) {
    assert_eq!((info.kind, info.sequence, info.key_hash), (kind, sequence, Some(hash)));
}

/// Publisher and subscriber on two nodes, and on one.
fn endpoints(test: &str) -> Vec<(Node, String, Node, String)> {
    let (a, b, c) = (Node::new(), Node::new(), Node::new());
    let bound = a.open("tcp-listen/127.0.0.1:0").expect("listens");
    let inproc = format!("inproc/instances-{test}");
    let connecting = bound.replacen("tcp-listen", "tcp-connect", 1).replacen("tcp/", "tcp-connect/", 1);
    vec![(a, bound, b, connecting), (c.clone(), inproc.clone(), c, inproc)]
}

#[test]
fn ends_of_instances_arrive_with_their_keys() {
    for codec in ["cdr", "cdr:be,header", "xcdr2", "json", "bson"] {
        for (a, at_a, b, at_b) in endpoints(&codec.replace([':', ','], "-")) {
            let publisher = a.publisher_on::<Track>("t", &format!("{codec}@{at_a}")).expect("publisher");
            let new = b.subscriber_on::<Track>("t", &format!("auto@{at_b}")).expect("subscriber");
            let old = b.subscriber_on::<OldTrack>("t", &format!("auto@{at_b}")).expect("subscriber");
            assert_eq!(publisher.wait_for_subscribers(2, SOON), 2, "{at_a}");
            publisher.publish(&track()).expect("published");
            publisher.dispose(&key()).expect("disposed");
            publisher.unregister(&key()).expect("unregistered");
            publisher.publish(&track()).expect("published");

            let hash = hash(if codec == "xcdr2" { &XCDR2 } else { &CDR });
            let data = next(&new);
            assert_eq!((data.value, data.info.kind, data.info.key_hash), (track(), Kind::Data, None), "{codec}");
            for (kind, sequence) in [(Kind::Dispose, 2), (Kind::Unregister, 3)] {
                let sample = next(&new);
                assert_eq!(sample.value, key(), "{codec}");
                ends(&sample.info, kind, sequence, hash);
            }
            assert_eq!(next(&new).info.kind, Kind::Data);
            next(&old);
            let sample = next(&old);
            assert_eq!(sample.value, OldTrack { sector: 3, number: 0x0102_0304 }, "{codec}");
            ends(&sample.info, Kind::Dispose, 2, hash);
        }
    }
}

#[test]
fn records_end_as_values_do() {
    let schema: &Schema = Track::shape().schema();
    let node = Node::new();
    let wire = "xcdr2@inproc/instances-dynamic";
    let publisher = node.publisher_of("t", Some(wire), Dynamic::of(schema).expect("records")).expect("publisher");
    let subscribe = node.subscribe_of("t", Some(wire), Discovered::new().expect("records")).expect("subscriber");
    let subscriber = subscribe.open();
    let mut record: Record = publisher.default_value();
    record.set("sector", 3u8).expect("a member");
    record.set("number", 0x0102_0304u64).expect("a member");
    publisher.dispose(&record).expect("disposed");
    publisher.hash_keys(true);
    publisher.publish(&record).expect("published");

    let sample = next(&subscriber);
    ends(&sample.info, Kind::Dispose, 1, hash(&XCDR2));
    assert_eq!(format!("{:?}", sample.value), format!("{record:?}"));
    ends(&next(&subscriber).info, Kind::Data, 2, hash(&XCDR2));
}

/// Alignment differs between the versions of CDR, and with it the hash: 1 + 7 + 8 bytes, or 1 + 3 +
/// 8.
#[test]
fn a_hash_is_that_of_the_format() {
    let node = Node::new();
    let publisher = node.publisher_on::<Track>("t", "cdr@inproc/instances-hash").expect("publisher");
    let subscriber = node.subscriber_on::<Track>("t", "cdr@inproc/instances-hash").expect("subscriber");
    publisher.dispose(&key()).expect("disposed");
    publisher.set_wire("xcdr2").expect("another format");
    publisher.dispose(&key()).expect("disposed");
    let one = Id128([3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]);
    let two = Id128([3, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0]);
    ends(&next(&subscriber).info, Kind::Dispose, 1, one);
    ends(&next(&subscriber).info, Kind::Dispose, 2, two);
}

#[test]
fn what_has_no_key_has_no_instances() {
    let node = Node::new();
    let publisher = node.publisher_on::<Keyless>("t", "cdr@inproc/instances-keyless").expect("publisher");
    let subscriber = node.subscribe_of("t", Some("cdr@inproc/instances-keyless"), Typed::<Keyless>::default());
    let subscriber = subscriber.expect("subscriber").open();
    let error = publisher.dispose(&Keyless { number: 1 }).expect_err("no key");
    assert!(matches!(&error, PublishError::NoKey(topic) if topic == "t"), "{error}");
    publisher.hash_keys(true);
    publisher.publish(&Keyless { number: 2 }).expect("published");
    let sample = next(&subscriber);
    assert_eq!((sample.value.number, sample.info.sequence, sample.info.key_hash), (2, 1, None));
}
