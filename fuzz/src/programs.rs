//! Target for the local socket of a node of telemetry: what programs write to it.

use polywire_core::schema::arbitrary::Random;
use polywire_telemetry::socket::{DeclaredProbe, Session};
use polywire_testing::mutated;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

/// Lines that declare probes and send samples; messages follow some of them.
const LINES: [&str; 17] = [
    r#"{"probe":"a","example":{"x":1.5,"on":true,"s":"t","l":[1,2],"o":{"y":[{"z":1}]}},"units":{"x":"bar"}}"#,
    r#"{"probe":"a","value":{"x":2,"on":false,"s":"","l":[],"o":{"y":[]}}}"#,
    r#"{"probe":"a","value":{"x":"NaN","l":[9223372036854775807]}}"#,
    r#"{"probe":"b","pdl":"[uuid(152a9bd8-6a03-4d4c-85ef-e720829573c4); version(1.0)] probe P { real64 x; };"}"#,
    r#"{"probe":"b","format":"cdr","bytes":8}"#,
    r#"{"probe":"b","format":"fast","bytes":9}"#,
    r#"{"probe":"b","format":"protobuf","bytes":9}"#,
    r#"{"probe":"b","format":"msgpack","bytes":3}"#,
    r#"{"probe":"b","bytes":0}"#,
    r#"{"probe":"c","schema":"0100","format":"bson"}"#,
    r#"{"probe":"c","type":"m::T","example":{"a":18446744073709551615,"b":[[[]]]}}"#,
    r#"{"probe":"a","bytes":1048577}"#,
    r#"{"probe":"\u0000","value":1}"#,
    r#"{"probe":"b","pdl":"probe P { real64 x; void reset(); real64 drain(in real64 to, inout string who); };"}"#,
    r#"{"reply":1,"value":{"return_":1.5}}"#,
    r#"{"reply":18446744073709551615,"error":"stuck"}"#,
    "",
];

/// Lines in a random order, with defects.
pub fn conversation(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..1 + random.below(12) {
        bytes.extend_from_slice(random.choose(&LINES).as_bytes());
        bytes.push(b'\n');
        if random.below(3) == 0 {
            bytes.extend((0..random.below(12)).map(|_| random.below(256) as u8));
        }
    }
    if random.below(2) == 0 { bytes } else { mutated(random, &bytes) }
}

/// Takes the bytes at once and in small parts; both receive the same lines.
pub fn take(bytes: &[u8]) {
    let sent = |chunk: usize| {
        let probes = Arc::new(Mutex::new(BTreeMap::new()));
        let known = probes.clone();
        let declare = move |name: &str, declared: DeclaredProbe| {
            let declared = Arc::new(declared);
            known.lock().expect("no panic").insert(name.to_owned(), declared.clone());
            Ok(declared)
        };
        let mut session = Session::new(Box::new(declare), Box::new(|| {}));
        let mut sent = Vec::new();
        for part in bytes.chunks(chunk) {
            session.take(part);
            sent.extend(session.outgoing().drain(..));
        }
        sent
    };
    assert_eq!(sent(bytes.len().max(1)), sent(7));
}
