//! Benchmark of every format on every measured type: bytes, times, and comparisons with
//! hand-written CDR and with the fastest other library for the format. The program `formats` runs
//! it.
//!
//! Each format takes turns with the hand-written codec and with its own peers, so that ratios
//! compare turns that are next to each other.

use std::{cell::RefCell, hint::black_box};

use polywire_core::{
    codec::{
        Decoder, Encoder, Options,
        fast::{Fast, template::TemplateSet},
    },
    program::Backend,
};
use polywire_workloads::{
    CodecsTest10, CodecsTest50, CodecsTest100, CodecsTest250, CodecsTest500, FlightData, LinuxProcessorProbe,
    MarketData, Sample, cdr_decode,
};

use super::{
    FastCdr, Subject,
    fastcdr::{self, Program},
    prost_peer::{self, Mirrored},
    serde_peers::{self, Peer, bson_peers, cbor_peers, decode, encode, json_peers, msgpack_peers},
    text_peers::{written, xml_peers, yaml_peers},
};
use crate::{
    fast::{Values, for_fastlib},
    measure::{Candidate, Effort, compare},
    report::{Columns, Group, NEW_VALUE, Row, mean_length},
};

/// Each table with the name that selects it on the command line.
pub const MEASUREMENTS: &[crate::Measurement] = &[
    ("MarketData", table::<MarketData>),
    ("CodecsTest_10", table::<CodecsTest10>),
    ("CodecsTest_50", table::<CodecsTest50>),
    ("CodecsTest_100", table::<CodecsTest100>),
    ("CodecsTest_250", table::<CodecsTest250>),
    ("CodecsTest_500", table::<CodecsTest500>),
    ("LinuxProcessorProbe", table::<LinuxProcessorProbe>),
    ("FlightData", table::<FlightData>),
];

const FASTLIB: &str = "fastlib";

const NOTE: &str = "Times are those of a derived type, with machine code. *times hand-written* is the time as a multiple of that of hand-written CDR for the same values. *best peer takes* is the time of the fastest other library for \
                    the format as a multiple of Polywire's: above 1, Polywire is faster. *decode* reuses one value, as subscribers do. *to a new value* creates a value for each message, as do all \
                    peers that this column names; Fast CDR, fastlib and `prost clear and merge` do not. FAST messages are chained and use the derived template; fastlib only decodes, and passes the values to a visitor. \
                    `roxmltree alone` builds a tree and reads nothing from it.";

fn table<T: Mirrored>(effort: Effort) -> Group {
    let subject = Subject::<T>::new();
    let mut hand = Vec::new();
    let write = |sample: Sample<'_, T>| {
        sample.encode(&mut hand);
        hand.clone()
    };
    let table = Table { cdr: subject.samples.iter().map(write).collect(), subject, effort };
    let peer = match fastcdr::SPOKEN.contains(&T::NAME) {
        true => fastcdr::build(),
        false => Err("version 1 has no optional members".into()),
    };
    let fast = table.fast();
    let without_fastlib = !fast[1].figures.iter().any(|figure| figure.name == FASTLIB);
    let rows = [
        table.cdr(peer.as_ref().ok()),
        table.format("xcdr2", Vec::new()),
        fast,
        table.protobuf(),
        table.format("msgpack", msgpack_peers()),
        table.format("cbor", cbor_peers()),
        table.format("ubjson", Vec::new()),
        table.format("bson", bson_peers()),
        table.format("json", json_peers()),
        table.text("xml", xml_peers()),
        table.text("xml-dom", xml_peers()),
        table.text("yaml", yaml_peers()),
        table.text("yaml-flow", yaml_peers()),
    ];
    let mut left_out: Vec<String> = peer.err().map(|why| format!("Fast CDR ({why})")).into_iter().collect();
    if without_fastlib {
        left_out.push("fastlib (it does not read this template)".into());
    }
    if !cfg!(feature = "peers") {
        left_out.push("most peers (need the feature `peers`)".into());
    }
    Group {
        title: T::NAME,
        note: NOTE.into(),
        columns: Columns::Ratios,
        rows: rows.into_iter().flatten().collect(),
        left_out,
        ..Group::default()
    }
}

/// A type's values, and the bytes that hand-written CDR encodes them to.
struct Table<T: Mirrored> {
    subject: Subject<T>,
    cdr: Vec<Vec<u8>>,
    effort: Effort,
}

impl<T: Mirrored> Table<T> {
    fn cdr(&self, peer: Option<&Program>) -> [Row; 2] {
        self.subject.check("cdr", &self.cdr);
        let peer = peer.map(|program| RefCell::new(FastCdr::start(program, T::NAME, &self.cdr)));
        let encoder = peer.iter().map(|peer| Candidate::elsewhere("Fast CDR", |least| peer.borrow_mut().encode(least)));
        let decoder = peer.iter().map(|peer| Candidate::elsewhere("Fast CDR", |least| peer.borrow_mut().decode(least)));
        self.rows("cdr", &self.cdr, encoder.collect(), decoder.collect())
    }

    fn protobuf(&self) -> [Row; 2] {
        let ours = self.subject.encoded("protobuf");
        self.subject.check("protobuf", &ours);
        let (encoder, decoder) = prost_peer::peers::<T>(&ours);
        self.rows("protobuf", &ours, encoder, decoder)
    }

    /// The rows of a format in which Polywire and the peers can read each other's messages.
    fn format(&self, codec: &'static str, peers: Vec<Peer<T>>) -> [Row; 2] {
        let ours = self.subject.encoded(codec);
        self.subject.check(codec, &ours);
        let check = |peer| serde_peers::check(codec, &self.subject, &ours, peer);
        let theirs: Vec<Vec<Vec<u8>>> = peers.iter().map(check).collect();
        let encoders = peers.iter().map(|peer| encode(peer, self.subject.messages())).collect();
        let decoders = peers.iter().zip(&theirs).map(|(peer, encoded)| decode(peer, encoded)).collect();
        self.rows(codec, &ours, encoders, decoders)
    }

    /// The rows of a format whose peers represent types differently. Each library decodes its own
    /// messages.
    fn text(&self, codec: &'static str, peers: Vec<Peer<T>>) -> [Row; 2] {
        let ours = self.subject.encoded(codec);
        self.subject.check(codec, &ours);
        let theirs: Vec<Vec<Vec<u8>>> = peers.iter().map(|peer| written(&self.subject, peer)).collect();
        let encoders = peers.iter().map(|peer| encode(peer, self.subject.messages())).collect();
        let decoders = peers.iter().zip(&theirs).map(|(peer, encoded)| decode(peer, encoded));
        #[cfg(feature = "peers")]
        let decoders = decoders.chain((codec == "xml-dom").then(|| super::text_peers::tree_alone(&ours)));
        self.rows(codec, &ours, encoders, decoders.collect())
    }

    fn rows<'a>(
        &'a self,
        codec: &'static str,
        ours: &'a [Vec<u8>],
        encoders: Vec<Candidate<'a>>,
        decoders: Vec<Candidate<'a>>,
    ) -> [Row; 2] {
        let encode = Candidate::new(codec, self.subject.encode(codec, Backend::Jit));
        let decode = Candidate::new(codec, self.subject.decode(codec, Backend::Jit, ours));
        let decode_new = Candidate::new(NEW_VALUE, self.subject.decode_new(codec, ours));
        self.compare(
            mean_length(ours),
            (encode, decode),
            (encoders, [vec![decode_new], decoders].into_iter().flatten().collect()),
        )
    }

    fn compare<'a>(
        &'a self,
        bytes: Option<f64>,
        ours: (Candidate<'a>, Candidate<'a>),
        peers: (Vec<Candidate<'a>>, Vec<Candidate<'a>>),
    ) -> [Row; 2] {
        let (hand_encode, hand_decode) = self.by_hand();
        let row = |operation: &str, ours, hand, peers: Vec<Candidate<'a>>| {
            let peers = peers.into_iter().map(Candidate::without_bar);
            let candidates = [ours, hand].into_iter().chain(peers).collect();
            let figures = compare(self.cdr.len(), candidates, self.effort);
            Row::new(T::NAME, operation, bytes, figures)
        };
        [row("encode", ours.0, hand_encode, peers.0), row("decode", ours.1, hand_decode, peers.1)]
    }

    fn by_hand(&self) -> (Candidate<'_>, Candidate<'_>) {
        let (mut out, mut back) = (Vec::new(), T::default());
        let encode = move || {
            for sample in self.subject.samples.iter() {
                black_box(sample.message());
                sample.encode(&mut out);
                black_box(&out);
            }
        };
        let decode = move || {
            for bytes in &self.cdr {
                cdr_decode(black_box(bytes), &mut back).expect("decoding succeeds");
                black_box(&back);
            }
        };
        (Candidate::new("hand-written CDR", encode), Candidate::new("hand-written CDR", decode))
    }

    /// The rows of FAST with the derived template. Each round is a stream and begins with a reset
    /// state. `fastlib` only decodes, and is left out if it does not support the template.
    fn fast(&self) -> [Row; 2] {
        let (codec, options, messages) = (Fast::default(), Options::default(), self.subject.messages());
        let encoder = Encoder::<T>::with_backend(&codec, &options, Backend::Jit).expect("the codec supports the type");
        let decoder = Decoder::<T>::with_backend(&codec, &options, T::shape().schema(), Backend::Jit)
            .expect("the codec supports the type");
        let state = || (encoder.state().expect("FAST is stateful"), decoder.state().expect("FAST is stateful"));
        let (mut writer, mut reader) = state();
        let (mut out, mut back, mut ours) = (Vec::new(), T::default(), Vec::new());
        for message in messages {
            out.clear();
            encoder.encode_with(&mut writer, true, message, &mut out).expect("encoding succeeds");
            decoder.decode_with(&mut reader, true, &out, &mut back).expect("decoding succeeds");
            assert!(back == *message, "{} does not survive a round trip", T::NAME);
            ours.push(out.clone());
        }
        let encode = || {
            writer.reset();
            for message in messages {
                out.clear();
                encoder.encode_with(&mut writer, true, black_box(message), &mut out).expect("encoding succeeds");
                black_box(&out);
            }
        };
        let decode = || {
            reader.reset();
            for bytes in &ours {
                decoder.decode_with(&mut reader, true, black_box(bytes), &mut back).expect("decoding succeeds");
                black_box(&back);
            }
        };
        let mut reader_of_new = decoder.state().expect("FAST is stateful");
        let decode_new = || {
            reader_of_new.reset();
            for bytes in &ours {
                let mut back = T::default();
                decoder.decode_with(&mut reader_of_new, true, black_box(bytes), &mut back).expect("decoding succeeds");
                black_box(back);
            }
        };
        // The first message of a stream refers to no other and is longer, so it does not count.
        let bytes = mean_length(&ours[1..]);
        let template = TemplateSet::for_schema(T::shape().schema()).expect("the type has a template").to_xml();
        let new_value = Candidate::new(NEW_VALUE, decode_new);
        let peers = (Vec::new(), [new_value].into_iter().chain(fastlib(&template, &ours)).collect());
        self.compare(bytes, (Candidate::new("fast", encode), Candidate::new("fast", decode)), peers)
    }
}

/// A candidate that decodes with `fastlib`, or `None` if it does not support the template.
fn fastlib<'a>(template: &str, ours: &'a [Vec<u8>]) -> Option<Candidate<'a>> {
    let template = for_fastlib(template);
    let mut decoder = fastlib::Decoder::new_from_xml(&template).ok()?;
    let mut read = move || {
        decoder.reset();
        let mut values = Values::default();
        let read = ours.iter().try_for_each(|bytes| decoder.decode_slice(black_box(bytes), &mut values));
        black_box(values.0);
        read
    };
    read().ok()?;
    Some(Candidate::new(FASTLIB, move || read().expect("fastlib decoded these messages before")))
}
