//! Benchmark of FAST streams beside hand-written CDR, hand-written FAST, Polywire's CDR and the
//! crate `fastlib`. The program `fast` runs it; it does no I/O.
//!
//! Each round encodes or decodes all messages of a stream in order and begins with a reset state.
//! Each message but the first refers to the message before it.

use std::{cell::RefCell, hint::black_box};

use fastlib::{MessageFactory, Value};
use polywire_core::{
    codec::{
        Decoder, Encoder, Options,
        fast::{Fast, LearnOptions, learn, template::TemplateSet},
    },
    layout::{Record, Shape},
    program::{Backend, CodecError, State},
};
use polywire_workloads::{
    CodecsTest10, CodecsTest500, MarketData, ProcessorProbe, Sample, Workload, cdr_decode, fast, fast_decode,
};

use crate::{
    codecs::{Measured, Subject},
    measure::{Bar, Candidate, Effort, compare},
    report::{Group, Row},
};

/// Each table with the name that selects it on the command line.
pub const MEASUREMENTS: &[crate::Measurement] = &[
    ("MarketData", table::<MarketData>),
    ("CodecsTest_10", table::<CodecsTest10>),
    ("CodecsTest_500", table::<CodecsTest500>),
    ("ProcessorProbe", table::<ProcessorProbe>),
    ("feed", feed),
];

/// Number of messages from which templates are learned.
const LEARNED_FROM: usize = 128;
/// Number of messages in a stream that a processor learns by heart: it predicts each branch.
const FEW: usize = 32;

fn table<T: Measured + fast::Fast>(effort: Effort) -> Group {
    let note = format!(
        "Times are multiples of hand-written CDR. Hand-written FAST uses the workload's template and checks less. The templates are the \
         workload's, the one derived from the type, and those learned from {LEARNED_FROM} messages. A stream of {FEW} messages \
         repeats so soon that the processor predicts its branches."
    );
    Group { title: T::NAME, note, rows: rows::<T>(effort), ..Group::default() }
}

fn rows<T: Measured + fast::Fast>(effort: Effort) -> Vec<Row> {
    let subject = Subject::<T>::new();
    let given = TemplateSet::parse(&T::template()).expect("the workload's template");
    let learned = |constants| {
        let options = LearnOptions { constants, ..LearnOptions::default() };
        let learned = learn(&subject.shape, &subject.records[..LEARNED_FROM], &options);
        Fast::new(learned.expect("FAST supports the type").templates)
    };
    let codecs = [
        ("", Fast::new(given)),
        (", derived", Fast::default()),
        (", learned", learned(false)),
        (", learned with constants", learned(true)),
    ];
    let few = Subject::with(FEW);
    let streams = codecs.iter().map(|(name, codec)| Streams::new(&subject, name, codec));
    streams.chain([Streams::new(&few, ", few messages", &codecs[0].1)]).flat_map(|stream| stream.rows(effort)).collect()
}

/// A workload's messages, encoded by one FAST codec and by hand-written code.
struct Streams<'s, T: Measured + fast::Fast> {
    subject: &'s Subject<T>,
    name: &'static str,
    codec: &'s Fast,
    /// Messages that Polywire encoded with `codec`.
    ours: Vec<Vec<u8>>,
    /// Messages of hand-written CDR.
    cdr: Vec<Vec<u8>>,
    /// Messages of hand-written FAST.
    hand: Vec<Vec<u8>>,
}

impl<'s, T: Measured + fast::Fast> Streams<'s, T> {
    fn new(subject: &'s Subject<T>, name: &'static str, codec: &'s Fast) -> Streams<'s, T> {
        let (mut out, mut buffer) = (Vec::new(), subject.samples.buffer());
        let mut plain = |sample: Sample<'_, T>| {
            sample.encode(&mut out);
            out.clone()
        };
        let cdr = subject.samples.iter().map(&mut plain).collect();
        let mut state = T::State::default();
        let mut by_hand = |sample: Sample<'_, T>| {
            let len = sample.encode_fast(&mut state, &mut buffer);
            buffer[..len].to_vec()
        };
        let hand = subject.samples.iter().map(&mut by_hand).collect();
        let mut streams = Streams { subject, name, codec, ours: Vec::new(), cdr, hand };
        streams.ours = streams.write(Backend::Jit);
        streams.check();
        streams
    }

    fn encoder(&self, backend: Backend) -> Encoder<T> {
        Encoder::with_backend(self.codec, &Options::default(), backend).expect("the codec supports the type")
    }

    fn decoder(&self) -> Decoder<T> {
        let writer = T::shape().schema();
        Decoder::with_backend(self.codec, &Options::default(), writer, Backend::Jit)
            .expect("the codec supports the type")
    }

    fn record_encoder(&self) -> Encoder<Record> {
        Encoder::for_shape_with_backend(self.codec, &Options::default(), &self.subject.shape, Backend::Jit)
            .expect("the codec supports the type")
    }

    fn record_decoder(&self) -> Decoder<Record> {
        let shape = &self.subject.shape;
        Decoder::for_shape_with_backend(self.codec, &Options::default(), shape.schema(), shape, Backend::Jit)
            .expect("the codec supports the type")
    }

    fn write(&self, backend: Backend) -> Vec<Vec<u8>> {
        let encoder = self.encoder(backend);
        let mut state = encoder.state().expect("FAST is stateful");
        let write = |message| {
            let mut out = Vec::new();
            encoder.encode_with(&mut state, true, message, &mut out).expect("encoding succeeds");
            out
        };
        self.subject.messages().iter().map(write).collect()
    }

    /// Panics unless both back ends write the same bytes, and decoding returns the original values,
    /// as the derived type and as records.
    fn check(&self) {
        assert!(
            self.ours == self.write(Backend::Interpreter),
            "{}{}: the back ends write different bytes",
            T::NAME,
            self.name
        );
        let (decoder, records) = (self.decoder(), self.record_decoder());
        let mut states = [decoder.state(), records.state()].map(|state| state.expect("FAST is stateful"));
        let (mut back, mut record) = (T::default(), Record::new(&self.subject.shape));
        let values = self.subject.messages().iter().zip(&self.subject.records);
        for (bytes, (message, expected)) in self.ours.iter().zip(values) {
            decoder.decode_with(&mut states[0], true, bytes, &mut back).expect("decoding succeeds");
            records.decode_with(&mut states[1], true, bytes, &mut record).expect("decoding succeeds");
            assert!(back == *message && record == *expected, "{}{} does not survive a round trip", T::NAME, self.name);
        }
    }

    fn rows(&self, effort: Effort) -> [Row; 3] {
        // The first message of a stream refers to no other and is longer, so it does not count.
        let behind = &self.ours[1..];
        let bytes = Some(behind.iter().map(Vec::len).sum::<usize>() as f64 / behind.len() as f64);
        let row = |operation: &str, does: Does| {
            let bar = if does.write && does.read { self.bar() } else { None };
            let ours = |name, way| match bar {
                Some(bar) => does.candidate(name, way).with_bar(bar),
                None => does.candidate(name, way),
            };
            let candidates = vec![
                does.candidate("hand CDR", self.hand_cdr()),
                does.candidate("hand FAST", self.hand_fast()),
                ours("derived", self.derived()),
                ours("record", self.records()),
                does.candidate("our CDR", self.our_cdr()),
            ];
            let figures = compare(self.ours.len(), candidates, effort);
            Row::new(format!("{}{}", T::NAME, self.name), operation, bytes, figures)
        };
        [
            row("encode", Does { write: true, read: false }),
            row("decode", Does { write: false, read: true }),
            row("both", Does { write: true, read: true }),
        ]
    }

    fn bar(&self) -> Option<Bar> {
        match (T::NAME, self.name) {
            ("MarketData", "" | ", learned" | ", learned with constants") => Some(Bar::AtMost(1.65)),
            ("CodecsTest_500", "" | ", learned" | ", learned with constants") => Some(Bar::AtMost(1.45)),
            _ => None,
        }
    }

    fn hand_cdr(&self) -> Way<'_> {
        let (mut out, mut back) = (Vec::new(), T::default());
        let write = move || {
            for sample in self.subject.samples.iter() {
                black_box(sample.message());
                sample.encode(&mut out);
                black_box(&out);
            }
        };
        let read = move || {
            for bytes in &self.cdr {
                cdr_decode(black_box(bytes), &mut back).expect("decoding succeeds");
                black_box(&back);
            }
        };
        (Box::new(write), Box::new(read))
    }

    fn hand_fast(&self) -> Way<'_> {
        let (mut buffer, mut back) = (self.subject.samples.buffer(), T::default());
        let write = move || {
            let mut state = T::State::default();
            for sample in self.subject.samples.iter() {
                black_box(sample.message());
                black_box(sample.encode_fast(&mut state, &mut buffer));
            }
        };
        let read = move || {
            let mut state = T::State::default();
            for bytes in &self.hand {
                fast_decode(black_box(bytes), &mut state, &mut back).expect("decoding succeeds");
                black_box(&back);
            }
        };
        (Box::new(write), Box::new(read))
    }

    fn derived(&self) -> Way<'_> {
        let (encoder, decoder) = (self.encoder(Backend::Jit), self.decoder());
        streamed(
            [encoder.state(), decoder.state()],
            (self.subject.messages(), &self.ours, T::default()),
            move |state, message, out| encoder.encode_with(state, true, message, out),
            move |state, bytes, back| decoder.decode_with(state, true, bytes, back),
        )
    }

    fn records(&self) -> Way<'_> {
        let (encoder, decoder) = (self.record_encoder(), self.record_decoder());
        streamed(
            [encoder.state(), decoder.state()],
            (&self.subject.records, &self.ours, Record::new(&self.subject.shape)),
            move |state, record, out| encoder.encode_with(state, true, record, out),
            move |state, bytes, back| decoder.decode_with(state, true, bytes, back),
        )
    }

    fn our_cdr(&self) -> Way<'_> {
        let write = self.subject.encode("cdr", Backend::Jit);
        (Box::new(write), Box::new(self.subject.decode("cdr", Backend::Jit, &self.cdr)))
    }
}

/// A way to encode and decode a stream: one function encodes all messages, the other decodes all.
type Way<'a> = (Box<dyn FnMut() + 'a>, Box<dyn FnMut() + 'a>);

/// Encodes and decodes with Polywire. Each call resets the state; decoding reuses one value.
fn streamed<'a, V: 'a>(
    states: [Option<State>; 2],
    (values, bytes, mut back): (&'a [V], &'a [Vec<u8>], V),
    encode: impl Fn(&mut State, &V, &mut Vec<u8>) -> Result<(), CodecError> + 'a,
    decode: impl Fn(&mut State, &[u8], &mut V) -> Result<usize, CodecError> + 'a,
) -> Way<'a> {
    let [mut writer, mut reader] = states.map(|state| state.expect("FAST is stateful"));
    let mut out = Vec::new();
    let write = move || {
        writer.reset();
        for value in values {
            out.clear();
            encode(&mut writer, black_box(value), &mut out).expect("encoding succeeds");
            black_box(&out);
        }
    };
    let read = move || {
        reader.reset();
        for bytes in bytes {
            decode(&mut reader, black_box(bytes), &mut back).expect("decoding succeeds");
            black_box(&back);
        }
    };
    (Box::new(write), Box::new(read))
}

/// Which functions of a [`Way`] are measured.
#[derive(Clone, Copy)]
struct Does {
    write: bool,
    read: bool,
}

impl Does {
    fn candidate<'a>(self, name: &'static str, (mut write, mut read): Way<'a>) -> Candidate<'a> {
        Candidate::new(name, move || {
            if self.write {
                write();
            }
            if self.read {
                read();
            }
        })
    }
}

/// The table of decoding by a reader that knows only a template, beside `fastlib`.
fn feed(effort: Effort) -> Group {
    let note = "Polywire decodes records of the type that the template defines. fastlib passes each value to a visitor, which drops it.";
    Group { title: "foreign feed", note: note.into(), rows: vec![feed_row(effort)], ..Group::default() }
}

fn feed_row(effort: Effort) -> Row {
    let subject = Subject::<MarketData>::new();
    let xml = for_fastlib(&<MarketData as fast::Fast>::template());
    let set = TemplateSet::parse(&xml).expect("the workload's template");
    let streams = Streams::new(&subject, "", &Fast::new(set.clone())).ours;
    let (codec, schema) = Fast::feed(set).expect("a template makes a type");
    let shape = Shape::of(&schema).expect("a valid shape");
    let decoder = Decoder::for_shape_with_backend(&codec, &Options::default(), &schema, &shape, Backend::Jit)
        .expect("the codec supports the type");
    let (mut state, mut back) = (decoder.state().expect("FAST is stateful"), Record::new(&shape));
    let ours = || {
        state.reset();
        for bytes in &streams {
            decoder.decode_with(&mut state, true, black_box(bytes), &mut back).expect("decoding succeeds");
            black_box(&back);
        }
    };
    let theirs = RefCell::new(fastlib::Decoder::new_from_xml(&xml).expect("fastlib reads the template"));
    let peer = || {
        let (mut theirs, mut values) = (theirs.borrow_mut(), Values::default());
        theirs.reset();
        for bytes in &streams {
            theirs.decode_slice(black_box(bytes), &mut values).expect("decoding succeeds");
        }
        // Nine members and four entries of nineteen.
        assert_eq!(black_box(values.0), streams.len() * (9 + 4 * 19));
    };
    let peer = Candidate::new("fastlib", peer).with_bar(Bar::AtLeast(8.0));
    let figures = compare(streams.len(), vec![Candidate::new("ours", ours), peer], effort);
    Row::new(MarketData::NAME, "decode", crate::report::mean_length(&streams), figures)
}

/// Rewrites a template for `fastlib`, which supports neither a header in front of `<templates>` nor
/// integers of 8 and 16 bits, and requires an `id` for each field.
pub(crate) fn for_fastlib(xml: &str) -> String {
    let xml = xml.find("<templates").map_or("", |at| &xml[at..]);
    let narrow = [("uInt8", "uInt32"), ("uInt16", "uInt32"), ("int8", "int32"), ("int16", "int32")];
    let xml = narrow.iter().fold(xml.to_string(), |xml, (from, to)| {
        xml.replace(&format!("<{from} "), &format!("<{to} ")).replace(&format!("</{from}>"), &format!("</{to}>"))
    });
    let mut parts = xml.split(" name=").enumerate();
    let first = parts.next().map_or("", |(_, part)| part).to_string();
    // Part 1 follows the template's own name; the template has an id already.
    parts.fold(first, |text, (i, part)| match i {
        1 => format!("{text} name={part}"),
        _ => format!("{text} id=\"{i}\" name={part}"),
    })
}

/// A visitor for `fastlib` that counts the values that are present.
#[derive(Default)]
pub(crate) struct Values(pub(crate) usize);

impl MessageFactory for Values {
    fn start_template(&mut self, _: u32, _: &str) {}
    fn stop_template(&mut self) {}
    fn set_value(&mut self, _: u32, _: &str, value: Option<Value>) {
        self.0 += usize::from(black_box(value).is_some());
    }
    fn start_sequence(&mut self, _: u32, _: &str, _: u32) {}
    fn start_sequence_item(&mut self, _: u32) {}
    fn stop_sequence_item(&mut self) {}
    fn stop_sequence(&mut self) {}
    fn start_group(&mut self, _: &str) {}
    fn stop_group(&mut self) {}
    fn start_template_ref(&mut self, _: &str, _: bool) {}
    fn stop_template_ref(&mut self) {}
}
