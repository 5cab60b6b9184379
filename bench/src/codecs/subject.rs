//! A workload's values as a derived type and as records, and functions that encode and decode them
//! with Polywire. All benchmarks of codecs use it.

use std::{hint::black_box, sync::Arc};

use polywire_core::{
    codec::{self, Codec, Decoder, Encoder, Options},
    layout::{Message, Record, Shape, ValueRef},
    program::Backend,
};
use polywire_workloads::{Samples, Workload};
use serde::{Serialize, de::DeserializeOwned};

/// A type that all candidates can encode and decode.
pub trait Measured: Workload + Message + Serialize + DeserializeOwned {}
impl<T: Workload + Message + Serialize + DeserializeOwned> Measured for T {}

/// A workload's values.
pub struct Subject<T> {
    /// The values as the derived type, which hand-written code uses too.
    pub samples: Samples<T>,
    /// The same values as records.
    pub records: Vec<Record>,
    /// Shape of the records.
    pub shape: Arc<Shape>,
}

impl<T: Measured> Subject<T> {
    /// Generates the values.
    pub fn new() -> Subject<T> {
        Subject::with(T::MESSAGES)
    }

    /// Generates the first values, as many as given.
    pub fn with(count: usize) -> Subject<T> {
        let samples = Samples::<T>::generate(count);
        let shape = Shape::of(T::shape().schema()).expect("a derived type has a shape");
        let mut subject = Subject { samples, records: Vec::new(), shape };
        let bytes = subject.encoded("cdr");
        let decoder = subject.record_decoder("cdr");
        let record = |bytes: &Vec<u8>| {
            let mut record = Record::new(&subject.shape);
            decoder.decode(bytes, &mut record).expect("Polywire's own bytes");
            record
        };
        let records: Vec<Record> = bytes.iter().map(record).collect();
        for (record, message) in records.iter().zip(subject.messages()) {
            assert!(record.view() == ValueRef::of(message), "{} changes as a record", T::NAME);
        }
        subject.records = records;
        subject
    }

    /// The values.
    pub fn messages(&self) -> &[T] {
        self.samples.messages()
    }

    /// Encodes each value with one of Polywire's codecs.
    pub fn encoded(&self, codec: &str) -> Vec<Vec<u8>> {
        let encoder = encoder::<T>(codec, Backend::Jit);
        let encode = |message| {
            let mut out = Vec::new();
            encoder.encode(message, &mut out).expect("encoding succeeds");
            out
        };
        self.messages().iter().map(encode).collect()
    }

    /// A function that encodes all values of the derived type. They go into one buffer, which is
    /// reused.
    pub fn encode(&self, codec: &str, backend: Backend) -> impl FnMut() {
        let (encoder, mut out) = (encoder::<T>(codec, backend), Vec::new());
        move || {
            for message in self.messages() {
                out.clear();
                encoder.encode(black_box(message), &mut out).expect("encoding succeeds");
                black_box(&out);
            }
        }
    }

    /// A function that encodes all records with machine code, into one buffer.
    pub fn encode_records(&self, codec: &str) -> impl FnMut() {
        let (encoder, mut out) = (self.record_encoder(codec), Vec::new());
        move || {
            for record in &self.records {
                out.clear();
                encoder.encode(black_box(record), &mut out).expect("encoding succeeds");
                black_box(&out);
            }
        }
    }

    /// A function that decodes all messages into one value of the derived type.
    pub fn decode<'a>(&self, codec: &str, backend: Backend, encoded: &'a [Vec<u8>]) -> impl FnMut() + use<'a, T> {
        let (decoder, mut back) = (decoder::<T>(codec, backend), T::default());
        move || {
            for bytes in encoded {
                decoder.decode(black_box(bytes), &mut back).expect("decoding succeeds");
                black_box(&back);
            }
        }
    }

    /// A function that decodes each message into a new value of the derived type.
    pub fn decode_new<'a>(&self, codec: &str, encoded: &'a [Vec<u8>]) -> impl FnMut() + use<'a, T> {
        let decoder = decoder::<T>(codec, Backend::Jit);
        move || {
            for bytes in encoded {
                let mut back = T::default();
                decoder.decode(black_box(bytes), &mut back).expect("decoding succeeds");
                black_box(back);
            }
        }
    }

    /// A function that decodes all messages into one record, with machine code.
    pub fn decode_records<'a>(&self, codec: &str, encoded: &'a [Vec<u8>]) -> impl FnMut() + use<'a, T> {
        let (decoder, mut back) = (self.record_decoder(codec), Record::new(&self.shape));
        move || {
            for bytes in encoded {
                decoder.decode(black_box(bytes), &mut back).expect("decoding succeeds");
                black_box(&back);
            }
        }
    }

    /// Checks Polywire's codec with machine code, with the interpreter and with records.
    /// # Panics
    /// Unless each of them encodes the values to `encoded` and decodes `encoded` to the values.
    pub fn check(&self, codec: &str, encoded: &[Vec<u8>]) {
        let mut out = Vec::new();
        for backend in [Backend::Jit, Backend::Interpreter] {
            let (encoder, decoder) = (encoder::<T>(codec, backend), decoder::<T>(codec, backend));
            let mut back = T::default();
            for (message, bytes) in self.messages().iter().zip(encoded) {
                out.clear();
                encoder.encode(message, &mut out).expect("encoding succeeds");
                assert!(out == *bytes, "{}: {backend:?} writes other bytes of {codec}", T::NAME);
                decoder.decode(bytes, &mut back).expect("decoding succeeds");
                assert!(back == *message, "{}: {backend:?} reads another value from {codec}", T::NAME);
            }
        }
        let (encoder, decoder) = (self.record_encoder(codec), self.record_decoder(codec));
        let mut back = Record::new(&self.shape);
        for (record, bytes) in self.records.iter().zip(encoded) {
            out.clear();
            encoder.encode(record, &mut out).expect("encoding succeeds");
            assert!(out == *bytes, "{}: records are written to other bytes of {codec}", T::NAME);
            decoder.decode(bytes, &mut back).expect("decoding succeeds");
            assert!(back == *record, "{}: another record is read from {codec}", T::NAME);
        }
    }

    fn record_encoder(&self, codec: &str) -> Encoder<Record> {
        Encoder::for_shape_with_backend(find(codec), &Options::default(), &self.shape, Backend::Jit)
            .expect("the codec supports the type")
    }

    fn record_decoder(&self, codec: &str) -> Decoder<Record> {
        let writer = T::shape().schema();
        Decoder::for_shape_with_backend(find(codec), &Options::default(), writer, &self.shape, Backend::Jit)
            .expect("the codec supports the type")
    }
}

impl<T: Measured> Default for Subject<T> {
    fn default() -> Self {
        Subject::new()
    }
}

/// The codec of this name.
pub fn find(codec: &str) -> &'static dyn Codec {
    codec::find(codec).expect("the codec is in the table")
}

/// An encoder of the derived type.
pub fn encoder<T: Message>(codec: &str, backend: Backend) -> Encoder<T> {
    Encoder::with_backend(find(codec), &Options::default(), backend).expect("the codec supports the type")
}

/// A decoder of messages that a writer of the same type encoded.
pub fn decoder<T: Message>(codec: &str, backend: Backend) -> Decoder<T> {
    Decoder::with_backend(find(codec), &Options::default(), T::shape().schema(), backend)
        .expect("the codec supports the type")
}
