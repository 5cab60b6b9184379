//! FAST streams of the measured types: bytes a message and time as a multiple of hand-written CDR, with derived and with learned templates.
//!
//! ```text
//! cargo run --release -p polywire-bench --bin fast
//! ```

use std::{hint::black_box, time::Duration};

use polywire_core::{
    codec::{Codec, Decoder, DynDecoder, Encoder, Options, cdr::CDR, fast::FAST, fast::Fast, fast::learn},
    layout::{Message, Record, Shape},
};
use polywire_workloads::{CodecsTest10, CodecsTest500, MarketData, ProcessorProbe, Samples, Workload, cdr_decode};
use rustix::time::{ClockId, clock_gettime};

fn main() {
    println!(
        "{:<16} {:<8} {:>7} {:>9} {:>9} {:>9} {:>9}",
        "type", "template", "bytes", "enc ns", "x hand", "dec ns", "x hand"
    );
    subject::<MarketData>();
    subject::<CodecsTest10>();
    subject::<CodecsTest500>();
    subject::<ProcessorProbe>();
}

fn subject<T: Workload + Message>() {
    let samples = Samples::<T>::generate(T::MESSAGES.min(256));
    let learned = Fast::new(
        learn(&Shape::of(T::shape().schema()).expect("it has a shape"), &records(&samples), 0)
            .expect("the type can be carried")
            .templates,
    );
    for (name, codec) in [("derived", &FAST as &dyn Codec), ("learned", &learned)] {
        row(name, codec, &samples);
    }
}

/// The messages as records, which is what learning takes.
fn records<T: Workload + Message>(samples: &Samples<T>) -> Vec<Record> {
    let shape = Shape::of(T::shape().schema()).expect("it has a shape");
    let options = Options::default();
    let encoder = Encoder::<T>::new(&CDR, &options).expect("CDR carries it");
    let decoder = DynDecoder::new(&CDR, &options, shape.schema(), &shape).expect("CDR carries it");
    let record = |message: &T| {
        let (mut bytes, mut record) = (Vec::new(), Record::new(&shape));
        encoder.encode(message, &mut bytes).expect("it is a value");
        decoder.decode(&bytes, &mut record).expect("it is a message");
        record
    };
    samples.messages().iter().map(record).collect()
}

fn row<T: Workload + Message>(name: &str, codec: &dyn Codec, samples: &Samples<T>) {
    let options = Options::default();
    let encoder = Encoder::<T>::new(codec, &options).expect("the type can be carried");
    let decoder = Decoder::<T>::new(codec, &options, encoder.schema()).expect("the type can be carried");
    let mut state = encoder.state().expect("FAST keeps a state");
    let mut written: Vec<Vec<u8>> = Vec::new();
    for message in samples.messages() {
        let mut bytes = Vec::new();
        encoder.encode_with(&mut state, true, message, &mut bytes).expect("it is a value");
        written.push(bytes);
    }
    let plain: Vec<Vec<u8>> = samples
        .iter()
        .map(|sample| {
            let mut bytes = Vec::new();
            sample.encode(&mut bytes);
            bytes
        })
        .collect();
    // The first message stands alone and is larger; what comes behind it is the stream.
    let bytes = written[1..].iter().map(Vec::len).sum::<usize>() as f64 / (written.len() - 1) as f64;
    let mut out = Vec::with_capacity(1 << 17);
    let (mut value, mut reader) = (T::default(), decoder.state().expect("FAST keeps a state"));
    let mut hand_value = T::default();
    let (mut best, count) = ([f64::MAX; 4], samples.messages().len());
    for _ in 0..40 {
        let times = [
            time(count, || {
                state.reset();
                for message in samples.messages() {
                    out.clear();
                    encoder.encode_with(&mut state, true, black_box(message), &mut out).expect("it is a value");
                }
            }),
            time(count, || samples.iter().for_each(|sample| black_box(&sample).encode(&mut out))),
            time(count, || {
                reader.reset();
                for bytes in &written {
                    decoder.decode_with(&mut reader, true, black_box(bytes), &mut value).expect("it is a message");
                }
            }),
            time(count, || {
                plain.iter().for_each(|bytes| cdr_decode(black_box(bytes), &mut hand_value).expect("it is one"))
            }),
        ];
        best.iter_mut().zip(times).for_each(|(best, time)| *best = best.min(time));
    }
    assert_eq!(value, hand_value, "both read the last message");
    let [encode, hand_encode, decode, hand_decode] = best;
    println!(
        "{:<16} {name:<8} {bytes:>7.1} {encode:>9.1} {:>9.2} {decode:>9.1} {:>9.2}",
        T::NAME,
        encode / hand_encode,
        decode / hand_decode
    );
}

/// Nanoseconds a message that this thread had a core: the least of a few rounds, since others are on the machine.
fn time(messages: usize, mut round: impl FnMut()) -> f64 {
    let now = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default();
    let before = now();
    round();
    (now() - before).as_nanos() as f64 / messages as f64
}
