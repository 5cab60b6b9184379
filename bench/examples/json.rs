//! JSON beside serde_json and sonic-rs. Run it pinned to one core: `taskset -c 0 cargo run --release --example json -p polywire-bench`.

use std::{fmt::Debug, hint::black_box};

use polywire_bench::{CodecsTest500, Floats, MarketData, ProcessorProbe, measure};
use polywire_core::{
    codec::{self, Decoder, DynDecoder, DynEncoder, Encoder, Options},
    layout::{Message, Record, Shape},
    program::Backend,
};
use polywire_workloads::{self as workloads, Workload};
use serde::{Serialize, de::DeserializeOwned};

fn main() {
    println!("{:<18}{:<14}{:>12}{:>12}{:>10}{:>10}", "", "", "encode ns", "decode ns", "encode x", "decode x");
    run::<MarketData, workloads::MarketData>();
    run::<CodecsTest500, workloads::CodecsTest500>();
    run::<ProcessorProbe, workloads::ProcessorProbe>();
    run::<Floats, workloads::Floats>();
}

fn run<T, W: Workload>()
where
    T: Message + Serialize + DeserializeOwned + Debug + PartialEq + Default + for<'a> From<&'a W>,
{
    let values: Vec<T> = W::generate(W::MESSAGES.min(64)).iter().map(T::from).collect();
    let texts: Vec<Vec<u8>> = values.iter().map(|value| serde_json::to_vec(value).unwrap()).collect();
    let peers = [serde(&values, &texts), sonic(&values, &texts)];
    let best = (peers[0].0.min(peers[1].0), peers[0].1.min(peers[1].1));
    let mut row = |name: &str, (encode, decode): (f64, f64)| {
        let (x, y) = (encode / best.0, decode / best.1);
        println!("{:<18}{name:<14}{encode:>12.1}{decode:>12.1}{x:>10.2}{y:>10.2}", W::NAME);
    };
    row("serde_json", peers[0]);
    row("sonic-rs", peers[1]);
    for (name, backend) in [("interpreter", Backend::Interpreter), ("jit", Backend::Jit)] {
        row(name, ours(&values, &texts, backend));
    }
    row("jit, record", records::<T>(&texts));
}

fn ours<T: Message + Debug + PartialEq + Default>(values: &[T], texts: &[Vec<u8>], backend: Backend) -> (f64, f64) {
    let json = codec::find("json").unwrap();
    let options = Options::default();
    let encoder = Encoder::<T>::with_backend(json, &options, backend).unwrap();
    let decoder = Decoder::<T>::with_backend(json, &options, T::shape().schema(), backend).unwrap();
    let (mut out, mut back) = (Vec::new(), T::default());
    for (value, text) in values.iter().zip(texts) {
        out.clear();
        encoder.encode(value, &mut out).unwrap();
        assert_eq!(String::from_utf8_lossy(&out), String::from_utf8_lossy(text));
        decoder.decode(text, &mut back).unwrap();
        assert_eq!(back, *value);
    }
    let encode = measure(values, |value| {
        out.clear();
        encoder.encode(value, &mut out).unwrap();
        black_box(&out);
    });
    let decode = measure(texts, |text| {
        decoder.decode(text, &mut back).unwrap();
        black_box(&back);
    });
    (encode, decode)
}

fn records<T: Message>(texts: &[Vec<u8>]) -> (f64, f64) {
    let json = codec::find("json").unwrap();
    let shape = Shape::of(T::shape().schema()).unwrap();
    let encoder = DynEncoder::new(json, &Options::default(), &shape).unwrap();
    let decoder = DynDecoder::new(json, &Options::default(), shape.schema(), &shape).unwrap();
    let (mut out, mut back) = (Vec::new(), Record::new(&shape));
    let mut encode = 0.0;
    for text in &texts[..texts.len().min(4)] {
        decoder.decode(text, &mut back).unwrap();
        encode += measure(&[()], |()| {
            out.clear();
            encoder.encode(&back, &mut out).unwrap();
            black_box(&out);
        }) / texts.len().min(4) as f64;
        assert_eq!(out, *text);
    }
    let decode = measure(texts, |text| {
        decoder.decode(text, &mut back).unwrap();
        black_box(&back);
    });
    (encode, decode)
}

fn serde<T: Serialize + DeserializeOwned>(values: &[T], texts: &[Vec<u8>]) -> (f64, f64) {
    let mut out = Vec::new();
    let encode = measure(values, |value| {
        out.clear();
        serde_json::to_writer(&mut out, value).unwrap();
        black_box(&out);
    });
    let decode = measure(texts, |text| {
        black_box(serde_json::from_slice::<T>(text).unwrap());
    });
    (encode, decode)
}

fn sonic<T: Serialize + DeserializeOwned>(values: &[T], texts: &[Vec<u8>]) -> (f64, f64) {
    let mut out = Vec::new();
    let encode = measure(values, |value| {
        out.clear();
        sonic_rs::to_writer(&mut out, value).unwrap();
        black_box(&out);
    });
    let decode = measure(texts, |text| {
        black_box(sonic_rs::from_slice::<T>(text).unwrap());
    });
    (encode, decode)
}
