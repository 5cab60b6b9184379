//! Benchmark of JSON, BSON, MessagePack and CBOR beside libraries that use serde, and of UBJSON
//! without a peer. Also has the functions that other benchmarks of codecs share.

use std::hint::black_box;

use polywire_core::program::Backend;
use polywire_workloads::{CodecsTest10, CodecsTest500, Floats, MarketData, ProcessorProbe};

use super::{Measured, Subject, subject};
use crate::{
    measure::{Bar, Candidate, Effort, compare},
    report::{Group, NEW_VALUE, Row, mean_length},
};

/// A library to compare with: a function that encodes into a reused buffer, and one that decodes. A
/// library with several ways to decode has one `Peer` for each.
pub struct Peer<T> {
    pub name: &'static str,
    pub write: fn(&T, &mut Vec<u8>),
    pub read: fn(&[u8]) -> T,
}

pub fn json(effort: Effort) -> Group {
    let rows = [
        rows::<MarketData>("json", effort, json_peers()),
        rows::<CodecsTest10>("json", effort, json_peers()),
        rows::<CodecsTest500>("json", effort, json_peers()),
        rows::<ProcessorProbe>("json", effort, json_peers()),
        rows::<Floats>("json", effort, json_peers()),
    ];
    group("JSON", rows, "sonic-rs")
}

pub fn bson(effort: Effort) -> Group {
    let rows = [
        rows::<MarketData>("bson", effort, bson_peers()),
        rows::<CodecsTest10>("bson", effort, bson_peers()),
        rows::<CodecsTest500>("bson", effort, bson_peers()),
        rows::<ProcessorProbe>("bson", effort, bson_peers()),
        rows::<Floats>("bson", effort, bson_peers()),
    ];
    group("BSON", rows, "the crate bson")
}

pub fn msgpack(effort: Effort) -> Group {
    let rows = [
        rows::<MarketData>("msgpack", effort, msgpack_peers()),
        rows::<CodecsTest10>("msgpack", effort, msgpack_peers()),
        rows::<CodecsTest500>("msgpack", effort, msgpack_peers()),
        rows::<ProcessorProbe>("msgpack", effort, msgpack_peers()),
        rows::<Floats>("msgpack", effort, msgpack_peers()),
    ];
    group("MessagePack", rows, "rmp-serde")
}

pub fn cbor(effort: Effort) -> Group {
    let rows = [
        rows::<MarketData>("cbor", effort, cbor_peers()),
        rows::<CodecsTest10>("cbor", effort, cbor_peers()),
        rows::<CodecsTest500>("cbor", effort, cbor_peers()),
        rows::<ProcessorProbe>("cbor", effort, cbor_peers()),
        rows::<Floats>("cbor", effort, cbor_peers()),
    ];
    group("CBOR", rows, "ciborium and minicbor")
}

/// UBJSON, for which there is no peer.
pub fn ubjson(effort: Effort) -> Group {
    let rows = [
        own_rows::<MarketData>("ubjson", effort),
        own_rows::<CodecsTest10>("ubjson", effort),
        own_rows::<CodecsTest500>("ubjson", effort),
        own_rows::<ProcessorProbe>("ubjson", effort),
        own_rows::<Floats>("ubjson", effort),
    ];
    Group { left_out: Vec::new(), ..group("UBJSON", rows, "") }
}

/// The rows of Polywire alone.
pub fn own_rows<T: Measured>(codec: &'static str, effort: Effort) -> [Row; 2] {
    rows::<T>(codec, effort, Vec::new())
}

pub fn group(title: &'static str, rows: [[Row; 2]; 5], peers: &str) -> Group {
    let note =
        "Times are multiples of Polywire's with a derived type, which decodes into one value and reuses it. Peers decode into new values, and so does \
                *derived, new value*. Each library reads what it wrote itself."
            .into();
    let mut left_out = Vec::new();
    if !cfg!(feature = "peers") {
        left_out.push(format!("{peers} (needs the feature `peers`)"));
    }
    Group { title, note, rows: rows.into_iter().flatten().collect(), left_out, ..Group::default() }
}

pub fn json_peers<T: Measured>() -> Vec<Peer<T>> {
    vec![
        Peer {
            name: "serde_json",
            write: |message, out| serde_json::to_writer(out, message).expect("encoding succeeds"),
            read: |bytes| serde_json::from_slice(bytes).expect("decoding succeeds"),
        },
        Peer {
            name: "serde_json from_str",
            write: |message, out| serde_json::to_writer(out, message).expect("encoding succeeds"),
            read: |bytes| serde_json::from_str(text(bytes)).expect("decoding succeeds"),
        },
        #[cfg(feature = "peers")]
        Peer {
            name: "sonic-rs",
            write: |message, out| sonic_rs::to_writer(out, message).expect("encoding succeeds"),
            read: |bytes| sonic_rs::from_slice(bytes).expect("decoding succeeds"),
        },
        #[cfg(feature = "peers")]
        Peer {
            name: "sonic-rs from_str",
            write: |message, out| sonic_rs::to_writer(out, message).expect("encoding succeeds"),
            read: |bytes| sonic_rs::from_str(text(bytes)).expect("decoding succeeds"),
        },
    ]
}

/// Bytes as text, for peers that decode `&str` faster than bytes. Validating UTF-8 is part of the
/// measured time.
pub fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the bytes are UTF-8")
}

pub fn bson_peers<T: Measured>() -> Vec<Peer<T>> {
    vec![
        #[cfg(feature = "peers")]
        Peer {
            name: "bson",
            write: |message, out| bson::serialize_to_buffer(message, out).expect("encoding succeeds"),
            read: |bytes| bson::deserialize_from_slice(bytes).expect("decoding succeeds"),
        },
    ]
}

pub fn msgpack_peers<T: Measured>() -> Vec<Peer<T>> {
    vec![
        #[cfg(feature = "peers")]
        Peer {
            name: "rmp-serde",
            write: |message, out| rmp_serde::encode::write_named(out, message).expect("encoding succeeds"),
            read: |bytes| rmp_serde::from_slice(bytes).expect("decoding succeeds"),
        },
    ]
}

pub fn cbor_peers<T: Measured>() -> Vec<Peer<T>> {
    vec![
        #[cfg(feature = "peers")]
        Peer {
            name: "ciborium",
            write: |message, out| ciborium::into_writer(message, out).expect("encoding succeeds"),
            read: |bytes| ciborium::from_reader(bytes).expect("decoding succeeds"),
        },
        #[cfg(feature = "peers")]
        Peer {
            name: "minicbor",
            write: |message, out| {
                message.serialize(&mut minicbor_serde::Serializer::new(out)).expect("encoding succeeds");
            },
            read: |bytes| minicbor_serde::from_slice(bytes).expect("decoding succeeds"),
        },
    ]
}

fn rows<T: Measured>(codec: &'static str, effort: Effort, peers: Vec<Peer<T>>) -> [Row; 2] {
    let subject = Subject::<T>::new();
    let ours = subject.encoded(codec);
    subject.check(codec, &ours);
    let theirs: Vec<Vec<Vec<u8>>> = peers.iter().map(|peer| check(codec, &subject, &ours, peer)).collect();

    let mut encoders = our_encoders(&subject, codec);
    encoders.extend(peers.iter().map(|peer| encode(peer, subject.messages())));
    let mut decoders = our_decoders(&subject, codec, &ours);
    decoders.extend(peers.iter().zip(&theirs).map(|(peer, encoded)| decode(peer, encoded)));
    rows_of(&subject, &ours, encoders, decoders, effort)
}

pub fn our_encoders<'a, T: Measured>(subject: &'a Subject<T>, codec: &'a str) -> Vec<Candidate<'a>> {
    vec![
        Candidate::new("derived", subject.encode(codec, Backend::Jit)),
        Candidate::new("record", subject.encode_records(codec)),
        Candidate::new("interpreter", subject.encode(codec, Backend::Interpreter)),
    ]
}

pub fn our_decoders<'a, T: Measured>(subject: &Subject<T>, codec: &str, ours: &'a [Vec<u8>]) -> Vec<Candidate<'a>> {
    vec![
        Candidate::new("derived", subject.decode(codec, Backend::Jit, ours)),
        Candidate::new(NEW_VALUE, subject.decode_new(codec, ours)),
        Candidate::new("record", subject.decode_records(codec, ours)),
        Candidate::new("interpreter", subject.decode(codec, Backend::Interpreter, ours)),
    ]
}

pub fn rows_of<T: Measured>(
    subject: &Subject<T>,
    ours: &[Vec<u8>],
    encoders: Vec<Candidate<'_>>,
    decoders: Vec<Candidate<'_>>,
    effort: Effort,
) -> [Row; 2] {
    [("encode", encoders), ("decode", decoders)].map(|(operation, candidates)| {
        let figures = compare(subject.messages().len(), candidates, effort);
        Row::new(T::NAME, operation, mean_length(ours), figures)
    })
}

/// Returns the peer's encoding of each message.
/// # Panics
/// Unless the peer decodes `ours`, and Polywire decodes the peer's messages, to the original
/// values.
pub fn check<T: Measured>(codec: &str, subject: &Subject<T>, ours: &[Vec<u8>], peer: &Peer<T>) -> Vec<Vec<u8>> {
    let (decoder, mut back) = (subject::decoder::<T>(codec, Backend::Jit), T::default());
    let both = |(message, ours): (&T, &Vec<u8>)| {
        assert!((peer.read)(ours) == *message, "{} does not read Polywire's {}", peer.name, T::NAME);
        let mut theirs = Vec::new();
        (peer.write)(message, &mut theirs);
        decoder.decode(&theirs, &mut back).expect("decoding succeeds");
        assert!(back == *message, "Polywire does not read the {} of {}", T::NAME, peer.name);
        theirs
    };
    subject.messages().iter().zip(ours).map(both).collect()
}

pub fn encode<'a, T: Measured>(peer: &Peer<T>, messages: &'a [T]) -> Candidate<'a> {
    let (write, mut out) = (peer.write, Vec::new());
    let round = move || {
        for message in messages {
            out.clear();
            write(black_box(message), &mut out);
            black_box(&out);
        }
    };
    Candidate::new(peer.name, round).with_bar(Bar::AtLeast(1.0))
}

pub fn decode<'a, T: Measured>(peer: &Peer<T>, encoded: &'a [Vec<u8>]) -> Candidate<'a> {
    let read = peer.read;
    let round = move || {
        for bytes in encoded {
            black_box(read(black_box(bytes)));
        }
    };
    Candidate::new(peer.name, round).with_bar(Bar::AtLeast(1.0))
}
