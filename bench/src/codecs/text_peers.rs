//! Benchmark of XML and YAML beside libraries that use serde. They represent types differently from
//! Polywire, so each library decodes its own messages.

use polywire_workloads::{CodecsTest10, CodecsTest500, Floats, MarketData, ProcessorProbe};

#[cfg(feature = "peers")]
use super::serde_peers::text;
use super::{
    Measured, Subject,
    serde_peers::{Peer, decode, encode, group, our_decoders, our_encoders, rows_of},
};
use crate::{
    measure::{Candidate, Effort},
    report::{Group, Row},
};

pub fn xml(effort: Effort) -> Group {
    let rows = [
        rows::<MarketData>("xml", "xml-dom", effort, xml_peers()),
        rows::<CodecsTest10>("xml", "xml-dom", effort, xml_peers()),
        rows::<CodecsTest500>("xml", "xml-dom", effort, xml_peers()),
        rows::<ProcessorProbe>("xml", "xml-dom", effort, xml_peers()),
        rows::<Floats>("xml", "xml-dom", effort, xml_peers()),
    ];
    group("XML", rows, "quick-xml and roxmltree")
}

pub fn yaml(effort: Effort) -> Group {
    let rows = [
        rows::<MarketData>("yaml", "yaml-flow", effort, yaml_peers()),
        rows::<CodecsTest10>("yaml", "yaml-flow", effort, yaml_peers()),
        rows::<CodecsTest500>("yaml", "yaml-flow", effort, yaml_peers()),
        rows::<ProcessorProbe>("yaml", "yaml-flow", effort, yaml_peers()),
        rows::<Floats>("yaml", "yaml-flow", effort, yaml_peers()),
    ];
    group("YAML", rows, "serde-saphyr")
}

pub fn xml_peers<T: Measured>() -> Vec<Peer<T>> {
    vec![
        #[cfg(feature = "peers")]
        Peer {
            name: "quick-xml",
            write: write_by_quick_xml,
            read: |bytes| quick_xml::de::from_str(text(bytes)).expect("decoding succeeds"),
        },
        #[cfg(feature = "peers")]
        Peer {
            name: "quick-xml from_reader",
            write: write_by_quick_xml,
            read: |bytes| quick_xml::de::from_reader(bytes).expect("decoding succeeds"),
        },
    ]
}

#[cfg(feature = "peers")]
fn write_by_quick_xml<T: Measured>(message: &T, out: &mut Vec<u8>) {
    let mut text = String::from_utf8(std::mem::take(out)).expect("the buffer has text");
    quick_xml::se::to_writer(&mut text, message).expect("encoding succeeds");
    *out = text.into_bytes();
}

pub fn yaml_peers<T: Measured>() -> Vec<Peer<T>> {
    vec![
        #[cfg(feature = "peers")]
        Peer {
            name: "serde-saphyr",
            write: write_by_saphyr,
            read: |bytes| serde_saphyr::from_slice(bytes).expect("decoding succeeds"),
        },
        #[cfg(feature = "peers")]
        Peer {
            name: "serde-saphyr from_str",
            write: write_by_saphyr,
            read: |bytes| serde_saphyr::from_str(text(bytes)).expect("decoding succeeds"),
        },
    ]
}

#[cfg(feature = "peers")]
fn write_by_saphyr<T: Measured>(message: &T, out: &mut Vec<u8>) {
    let mut text = String::from_utf8(std::mem::take(out)).expect("the buffer has text");
    serde_saphyr::to_fmt_writer(&mut text, message).expect("encoding succeeds");
    *out = text.into_bytes();
}

/// The rows of two of Polywire's codecs and of peers.
fn rows<T: Measured>(codec: &'static str, other: &'static str, effort: Effort, peers: Vec<Peer<T>>) -> [Row; 2] {
    let subject = Subject::<T>::new();
    let (ours, others) = (subject.encoded(codec), subject.encoded(other));
    subject.check(codec, &ours);
    subject.check(other, &others);
    let theirs: Vec<Vec<Vec<u8>>> = peers.iter().map(|peer| written(&subject, peer)).collect();

    let jit = polywire_core::program::Backend::Jit;
    let mut encoders = our_encoders(&subject, codec);
    encoders.push(Candidate::new(other, subject.encode(other, jit)));
    encoders.extend(peers.iter().map(|peer| encode(peer, subject.messages())));
    let mut decoders = our_decoders(&subject, codec, &ours);
    decoders.push(Candidate::new(other, subject.decode(other, jit, &others)));
    decoders.extend(peers.iter().zip(&theirs).map(|(peer, encoded)| decode(peer, encoded)));
    #[cfg(feature = "peers")]
    if codec == "xml" {
        decoders.push(tree_alone(&ours));
    }
    rows_of(&subject, &ours, encoders, decoders, effort)
}

/// The peer's encoding of each message. Panics unless the peer decodes it to the same value.
pub fn written<T: Measured>(subject: &Subject<T>, peer: &Peer<T>) -> Vec<Vec<u8>> {
    let write = |message: &T| {
        let mut theirs = Vec::new();
        (peer.write)(message, &mut theirs);
        assert!((peer.read)(&theirs) == *message, "{} does not read its own {}", peer.name, T::NAME);
        theirs
    };
    subject.messages().iter().map(write).collect()
}

/// A candidate that parses Polywire's documents to trees with `roxmltree`, and reads no values from
/// the trees.
#[cfg(feature = "peers")]
pub fn tree_alone(ours: &[Vec<u8>]) -> Candidate<'_> {
    let round = move || {
        for bytes in ours {
            let text = std::str::from_utf8(bytes).expect("XML is text");
            std::hint::black_box(roxmltree::Document::parse(text).expect("the document is well-formed"));
        }
    };
    Candidate::new("roxmltree alone", round)
}
