//! Programs that know only DDS write what their types do not allow, have types that Cyclone DDS
//! cannot read, or are too many.

use std::{thread, time::Duration};

use polywire::{
    Config, Node, NodeEvent, Record, Shape,
    coding::Discovered,
    engine::{Disconnect, Event},
};
use polywire_core::{
    codec::{Encoder, cdr::CDR},
    schema::TypeObjects,
};
use polywire_dds::{Bytes, Kind, LOOPBACK, Participant, Qos, Sample};
use polywire_idl::Compiler;

use crate::{
    Note,
    program::{SOON, domain},
    wire,
};

#[test]
fn malformed_samples_are_counted_and_the_rest_is_read() {
    let domain = domain();
    let node = Node::new();
    let notes = node.subscriber_on::<Note>("plant/notes", &wire("cdr", domain)).expect("a subscriber");
    let qos = Qos { reliable: Some(Duration::from_secs(1)), ..Qos::default() };
    let participant = Participant::new(domain, Some(LOOPBACK), &Qos::default()).expect("a participant");
    let writer = participant.topic("plant/notes", "plant::Note", false).expect("a topic");
    let writer = writer.writer(&qos, |_| {}).expect("a writer");
    while writer.readers().is_empty() {
        thread::sleep(Duration::from_millis(5));
    }
    let write = |header: [u8; 4], stream: &[u8]| {
        let bytes = Bytes::new(header, stream).expect("bytes");
        let sample = Sample { kind: Kind::Data, is_key: false, bytes, key_hash: None, timestamp_ns: 0, sequence: None };
        writer.write(&sample).expect("written");
    };
    // The reader may find the writer later than the writer finds it.
    let valid = [3, 0, 0, 0, b'a', b'b', 0, 0, 1, 0, 0, 0, 7, 0, 0, 0];
    while notes.try_recv().is_none() {
        write([0, 1, 0, 0], &valid);
        thread::sleep(Duration::from_millis(20));
    }
    for len in [0, 3, 6, 9, 12, 15] {
        write([0, 1, 0, 0], &valid[..len]);
    }
    let long = [&valid[..8], &[0xff; 4], &valid[12..]].concat();
    write([0, 1, 0, 0], &long);
    let not_text = [&valid[..4], &[0xff, 0xfe], &valid[6..]].concat();
    write([0, 1, 0, 0], &not_text);
    // A representation that nobody knows.
    write([0x12, 0x34, 0, 0], &valid);
    let last = [&valid[..12], &[9, 0, 0, 0]].concat();
    write([0, 1, 0, 0], &last);
    loop {
        let note = notes.recv_timeout(SOON).expect("a note").value;
        assert_eq!(note.text, "ab");
        if note.marks == [9] {
            break;
        }
    }
    assert_eq!(notes.undecodable(), 9);
}

/// Cyclone cannot make a serializer for them.
#[test]
fn types_with_mutable_unions_are_learned() {
    let idl = "module plant {
        @mutable union Drive switch (long) { case 1: @id(1) long speed; case 2: @id(2) string reason; };
        @final struct Fan { long id; Drive drive; };
    };";
    let document = Compiler::new().parse_str("fan.idl", idl).expect("valid IDL");
    let shape = Shape::of(&document.schema("plant::Fan").expect("a type")).expect("a shape");
    let TypeObjects { information, mapping } = TypeObjects::of(shape.schema()).expect("type objects");
    let domain = domain();
    let node = Node::new();
    let any = Discovered::new().expect("records");
    let fans = node.subscribe_of("plant/fans", Some(&wire("auto", domain)), any).expect("a subscription").open();
    let participant = Participant::new(domain, Some(LOOPBACK), &Qos::default()).expect("a participant");
    let types = polywire_dds::TypeObjects { information, mapping };
    let topic = participant.described_topic("plant/fans", "plant::Fan", false, &types).expect("a topic");
    let writer = topic.writer(&Qos { reliable: Some(SOON), ..Qos::default() }, |_| {}).expect("a writer");
    while writer.readers().is_empty() {
        thread::sleep(Duration::from_millis(5));
    }
    let fan = r#"{"id":7,"drive":{"reason":"stuck"}}"#;
    let record = Record::from_json(&shape, fan).expect("a value");
    let encoder = Encoder::for_shape(&CDR, &"header".parse().expect("an option"), &shape).expect("an encoder");
    let mut sample = Vec::new();
    encoder.encode(&record, &mut sample).expect("encoded");
    let bytes = Bytes::of_sample(&sample).expect("bytes");
    let sample = Sample { kind: Kind::Data, is_key: false, bytes, key_hash: None, timestamp_ns: 0, sequence: None };
    // The reader may find the writer later than the writer finds it.
    let read = loop {
        writer.write(&sample).expect("written");
        if let Some(read) = fans.recv_timeout(Duration::from_millis(20)) {
            break read.value;
        }
    };
    assert_eq!(read.to_json().expect("JSON"), fan);
}

#[test]
fn participants_without_room_are_reported_less_and_less_often() {
    let domain = domain();
    let config = Config::parse("[engine]\npeers = 1").expect("a configuration");
    let node = Node::builder().config(config).build();
    let events = node.events();
    node.open(&format!("dds/{domain}?interface=127.0.0.1")).expect("a port");
    let join = |_| Participant::new(domain, Some(LOOPBACK), &Qos::default()).expect("a participant");
    let _participants: Vec<Participant> = (0..5).map(join).collect();
    let mut totals = Vec::new();
    while totals.len() < 3 {
        let event = events.recv_timeout(SOON).expect("an event");
        if let NodeEvent::Engine { event: Event::Rejected { reason, total, .. }, .. } = event {
            assert_eq!(reason, Disconnect::TooMany(1));
            totals.push(total);
        }
    }
    assert_eq!(totals, [1, 2, 4]);
}
