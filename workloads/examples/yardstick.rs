//! Measures the yardsticks alone. Prints bytes per message, and nanoseconds to encode and to decode
//! a message (minimum and median of 15 rounds). Pin it to one core for steady figures: `taskset -c
//! 0 cargo run --release -p polywire-workloads --example yardstick`.

use std::hint::black_box;
use std::time::Instant;

use polywire_workloads::{
    CodecsTest10, CodecsTest500, Floats, MarketData, ProcessorProbe, Sample, Samples, Workload, cdr_decode,
};

fn main() {
    print::<MarketData>();
    print::<CodecsTest10>();
    print::<CodecsTest500>();
    print::<ProcessorProbe>();
    print::<Floats>();
}

fn print<T: Workload>() {
    let samples = Samples::<T>::generate(T::MESSAGES);
    let encoded = encode_all(&samples);
    let (encode, decode) = (measure_encode(&samples), measure_decode::<T>(&encoded));
    println!(
        "{:22} cdr  {:8.1} B   encode {:8.1} / {:8.1} ns   decode {:8.1} / {:8.1} ns",
        T::NAME,
        encoded.iter().map(Vec::len).sum::<usize>() as f64 / encoded.len() as f64,
        encode.0,
        encode.1,
        decode.0,
        decode.1
    );
}

/// Encodes each message to a buffer of exactly its size. Larger buffers would lie at distances of
/// whole pages and compete for the same cache lines.
fn encode_all<T: Workload>(samples: &Samples<T>) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    let encode = |sample: Sample<'_, T>| {
        sample.encode(&mut out);
        out.clone()
    };
    samples.iter().map(encode).collect()
}

fn measure_encode<T: Workload>(samples: &Samples<T>) -> (f64, f64) {
    let mut out = Vec::new();
    nanoseconds(samples.messages().len(), || {
        for sample in samples.iter() {
            black_box(sample.message());
            sample.encode(&mut out);
            black_box(&out);
        }
    })
}

fn measure_decode<T: Workload>(encoded: &[Vec<u8>]) -> (f64, f64) {
    let mut back = T::default();
    nanoseconds(encoded.len(), || {
        for bytes in encoded {
            let bytes: &Vec<u8> = black_box(bytes);
            cdr_decode(bytes, &mut back).expect("the yardstick's own bytes");
            black_box(&back);
        }
    })
}

/// Minimum and median of the nanoseconds per message.
fn nanoseconds(messages: usize, mut cycle: impl FnMut()) -> (f64, f64) {
    let mut round = || {
        let (start, mut cycles) = (Instant::now(), 0);
        while start.elapsed().as_millis() < 15 {
            cycle();
            cycles += 1;
        }
        start.elapsed().as_nanos() as f64 / (cycles * messages) as f64
    };
    let mut rounds: Vec<f64> = (0..15).map(|_| round()).collect();
    rounds.sort_by(f64::total_cmp);
    (rounds[0], rounds[rounds.len() / 2])
}
