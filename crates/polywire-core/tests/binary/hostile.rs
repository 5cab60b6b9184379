//! Hostile messages in the self-describing binary formats and Protobuf: truncated, with flipped
//! bits, unlimited nesting, wrong counts.

use super::wire_support::*;
use polywire_core::{
    codec::{cbor, msgpack, ubjson},
    layout::Message,
    program::{FaultKind, Limits},
};
use polywire_derive::Message;
use polywire_testing::Decoders;

const WIRES: [&str; 9] = [
    "msgpack",
    "msgpack:struct=array",
    "msgpack:null=write",
    "cbor",
    "cbor:deterministic",
    "cbor:struct=array",
    "ubjson",
    "ubjson:null=write",
    "protobuf",
];

/// Far less than a count that lies would ask for.
const LIMITS: Limits = Limits {
    message_bytes: 1 << 20,
    memory_bytes: 1 << 14,
    expansion: 1024,
    free_bytes: 1 << 14,
    elements: 1000,
    depth: 12,
};

/// One decoder for each back end, whose outcomes are the same.
struct Reader(Decoders<Mixed>);

impl Reader {
    fn new(with: &str) -> Reader {
        Reader(Wire::parse(with).decoders(Mixed::shape().schema(), LIMITS))
    }

    fn read(&self, bytes: &[u8]) -> Result<Mixed, FaultKind> {
        self.0.decode(bytes, Mixed::default).map(|(value, _)| value).map_err(|error| error.kind)
    }
}

#[test]
fn every_cut_is_refused_and_flipped_bits_do_no_harm() {
    let value = Mixed { text: "Gr\u{fc}\u{df}e".into(), ..mixed(5) };
    for wire in WIRES {
        let (reader, bytes) = (Reader::new(wire), encode(wire, &value));
        assert_eq!(reader.read(&bytes), Ok(value.clone()), "{wire}");
        for len in 0..bytes.len() {
            // A Protobuf message may end after any field.
            let outcome = reader.read(&bytes[..len]);
            assert!(wire == "protobuf" || outcome.is_err(), "{wire}: {len}");
        }
        for at in 0..bytes.len() {
            for bit in [0, 3, 7] {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                let _ = reader.read(&flipped);
            }
        }
    }
}

#[derive(Message, Debug, Default, PartialEq, Clone)]
struct Node {
    value: u32,
    children: Vec<Node>,
}

fn chain(depth: usize) -> Node {
    (0..depth).fold(Node::default(), |node, _| Node { value: 1, children: vec![node] })
}

#[test]
fn recursive_types_are_bounded() {
    for wire in WIRES {
        let read = |depth| {
            let bytes = encode(wire, &chain(depth));
            decode_within::<Node>(wire, Node::shape().schema(), &bytes, LIMITS).map_err(|error| error.kind)
        };
        assert_eq!(read(4), Ok(chain(4)), "{wire}");
        assert_eq!(read(30), Err(FaultKind::TooDeep), "{wire}");
    }
}

#[derive(Message, Debug, Default, PartialEq, Clone)]
struct Small {
    a: u8,
}

#[test]
fn skipped_content_is_bounded() {
    let deep = |head: &[u8], open: &[u8], tail: &[u8]| [head, &open.repeat(100_000), tail].concat();
    let cases: [(&str, Vec<u8>); 6] = [
        ("msgpack", deep(b"\x82\xA1x", b"\x91", b"\xC0\xA1a\x01")),
        ("msgpack", deep(b"\x82\xA1x", b"\x81\xC0", b"\xC0\xA1a\x01")),
        ("cbor", deep(b"\xA2\x61x", b"\x81", b"\xF6\x61a\x01")),
        ("cbor", deep(b"\xA2\x61x", b"\x9F", b"\xF6\x61a\x01")),
        ("ubjson", deep(b"{i\x01x", b"[", b"Zi\x01ai\x01}")),
        ("ubjson", deep(b"{i\x01x", b"[$[#i\x01", b"Zi\x01ai\x01}")),
    ];
    for (wire, bytes) in cases {
        let outcome = decode_within::<Small>(wire, Small::shape().schema(), &bytes, LIMITS);
        assert_eq!(outcome.map_err(|error| error.kind), Err(FaultKind::TooDeep), "{wire}");
        let valid = match wire {
            "msgpack" => msgpack::validate(&bytes, &LIMITS),
            "cbor" => cbor::validate(&bytes, &LIMITS),
            _ => ubjson::validate(&bytes, &LIMITS),
        };
        assert!(valid.is_err(), "{wire}");
    }
    // Tags are no nesting: they cost a byte each, and nothing else.
    let tags = [b"\xA2\x61x", &b"\xC1".repeat(100_000)[..], b"\x01\x61a\x07"].concat();
    assert_eq!(decode_within("cbor", Small::shape().schema(), &tags, LIMITS), Ok(Small { a: 7 }));
}

#[test]
fn counts_that_lie_are_refused() {
    let lies: [(&str, &[u8]); 14] = [
        ("msgpack", b"\x81\xA7numbers\xDD\xFF\xFF\xFF\xFF"),
        ("msgpack", b"\x81\xA5parts\xDD\x7F\xFF\xFF\xFF"),
        ("msgpack", b"\x81\xA4text\xDB\xFF\xFF\xFF\xFF"),
        ("msgpack", b"\x81\xA3map\xDF\xFF\xFF\xFF\xFF"),
        ("msgpack", b"\xDF\xFF\xFF\xFF\xFF"),
        ("cbor", b"\xA1\x67numbers\x9B\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"),
        ("cbor", b"\xA1\x65parts\x9A\xFF\xFF\xFF\xFF"),
        ("cbor", b"\xA1\x64text\x7B\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"),
        ("cbor", b"\xBB\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"),
        ("ubjson", b"{i\x07numbers[#L\x7F\xFF\xFF\xFF\xFF\xFF\xFF\xFF"),
        ("ubjson", b"{i\x05flags[$T#L\x7F\xFF\xFF\xFF\xFF\xFF\xFF\xFF}"),
        ("ubjson", b"{i\x04textSL\x7F\xFF\xFF\xFF\xFF\xFF\xFF\xFF"),
        ("protobuf", b"\x7A\xFF\xFF\xFF\xFF\x0F"),
        ("protobuf", b"\x62\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01"),
    ];
    for (wire, bytes) in lies {
        let outcome = Reader::new(wire).read(bytes);
        assert!(
            matches!(outcome, Err(FaultKind::BadLength | FaultKind::Truncated | FaultKind::Limit)),
            "{wire}: {outcome:?}"
        );
    }
}
