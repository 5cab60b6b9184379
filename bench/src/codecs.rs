//! `cargo run --release -p polywire-bench --bin codecs`: CDR against the hand-written yardstick.

use std::hint::black_box;
use std::sync::Arc;

use polywire_bench::{Candidate, Effort, medians};
use polywire_core::{
    codec::{self, Decoder, Encoder, Options},
    layout::Message,
    program::Backend,
};
use polywire_workloads::{
    CodecsTest10, CodecsTest500, Floats, MarketData, ProcessorProbe, Samples, Workload, cdr_decode,
};

fn measure<T: Workload + Message>() {
    let samples = Samples::<T>::generate(T::MESSAGES);
    let n = samples.messages().len();
    let codec = codec::find("cdr").expect("it is in the table");
    let options = Options::default();
    let encoder = |backend| Encoder::<T>::with_backend(codec, &options, backend).expect("it lowers");
    let decoder =
        |backend| Decoder::<T>::with_backend(codec, &options, T::shape().schema(), backend).expect("it lowers");
    let (jit, interpreter) = (encoder(Backend::Jit), encoder(Backend::Interpreter));
    let (unjit, uninterpret) = (decoder(Backend::Jit), decoder(Backend::Interpreter));

    let (mut hand, mut ours) = (Vec::new(), Vec::new());
    let encoded: Vec<Vec<u8>> = samples
        .iter()
        .map(|sample| {
            sample.encode(&mut hand);
            ours.clear();
            jit.encode(sample.message(), &mut ours).expect("it encodes");
            assert_eq!(hand, ours, "{}", T::NAME);
            ours.clear();
            interpreter.encode(sample.message(), &mut ours).expect("it encodes");
            assert_eq!(hand, ours, "{}", T::NAME);
            hand.clone()
        })
        .collect();
    for (bytes, sample) in encoded.iter().zip(samples.messages()) {
        let mut back = T::default();
        unjit.decode(bytes, &mut back).expect("it decodes");
        assert_eq!(back, *sample);
        uninterpret.decode(bytes, &mut back).expect("it decodes");
        assert_eq!(back, *sample);
    }

    let ours = |encoder: Encoder<T>| {
        let (samples, mut out) = (&samples, Vec::new());
        move || {
            for message in samples.messages() {
                out.clear();
                encoder.encode(black_box(message), &mut out).expect("it encodes");
                let out: &Vec<u8> = &out;
                black_box(out);
            }
        }
    };
    let mut out = Vec::new();
    let mut candidates = [
        Candidate::new("hand", || {
            for sample in samples.iter() {
                black_box(sample).encode(&mut out);
                let out: &Vec<u8> = &out;
                black_box(out);
            }
        }),
        Candidate::new("jit", ours(jit.clone())),
        Candidate::new("interpreter", ours(interpreter.clone())),
    ];
    report::<T>(
        "encode",
        &candidates.iter().map(|c| c.name.clone()).collect::<Vec<_>>(),
        &medians(n, &mut candidates, Effort::default()),
    );

    let ours = |decoder: Decoder<T>| {
        let (encoded, mut back) = (&encoded, T::default());
        move || {
            for bytes in encoded {
                decoder.decode(black_box(bytes), &mut back).expect("it decodes");
                black_box(&back);
            }
        }
    };
    let mut back = T::default();
    let mut candidates = [
        Candidate::new("hand", || {
            for bytes in &encoded {
                cdr_decode(black_box(bytes), &mut back).expect("it decodes");
                black_box(&back);
            }
        }),
        Candidate::new("jit", ours(unjit.clone())),
        Candidate::new("interpreter", ours(uninterpret.clone())),
    ];
    report::<T>(
        "decode",
        &candidates.iter().map(|c| c.name.clone()).collect::<Vec<_>>(),
        &medians(n, &mut candidates, Effort::default()),
    );
    let start = std::time::Instant::now();
    let again = (encoder(Backend::Jit), decoder(Backend::Jit));
    println!("{:16} compile both {:?}", T::NAME, start.elapsed());
    drop(again);
    let _ = Arc::new(0);
}

fn report<T: Workload>(what: &str, names: &[String], medians: &[f64]) {
    print!("{:16} {what}", T::NAME);
    for (name, ns) in names.iter().zip(medians) {
        print!("   {name} {ns:8.1} ns ({:.2}x)", ns / medians[0]);
    }
    println!();
}

fn main() {
    measure::<MarketData>();
    measure::<CodecsTest10>();
    measure::<CodecsTest500>();
    measure::<ProcessorProbe>();
    measure::<Floats>();
}
