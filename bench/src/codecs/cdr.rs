//! Benchmark of CDR beside hand-written code and Fast CDR.

use std::{cell::RefCell, hint::black_box};

use polywire_core::program::Backend;
use polywire_workloads::cdr_decode;

use super::{FastCdr, Measured, Subject, fastcdr, for_each_workload};
use crate::{
    measure::{Bar, Candidate, Effort, compare},
    report::{Group, Row, mean_length},
};

pub fn group(effort: Effort) -> Group {
    let peer = fastcdr::build();
    let rows = for_each_workload!(rows(effort, peer.as_ref().ok())).into_iter().flatten().collect();
    Group {
        title: "CDR",
        note: "The columns after *hand* have the time as a multiple of that of hand-written code (for tiny messages, the difference to it) and in nanoseconds. Decoding includes all checks, and reuses the memory of strings and sequences.".into(),
        rows,
        left_out: peer.err().map(|why| format!("Fast CDR ({why})")).into_iter().collect(),
        ..Group::default()
    }
}

fn rows<T: Measured>(effort: Effort, peer: Option<&fastcdr::Program>) -> [Row; 2] {
    let subject = Subject::<T>::new();
    let mut hand = Vec::new();
    let write = |sample: polywire_workloads::Sample<'_, T>| {
        sample.encode(&mut hand);
        hand.clone()
    };
    let encoded: Vec<Vec<u8>> = subject.samples.iter().map(write).collect();
    subject.check("cdr", &encoded);
    // The program in C++ checks that it decodes these bytes and encodes the same.
    let peer = peer.map(|program| RefCell::new(FastCdr::start(program, T::NAME, &encoded)));
    let rows = [encode(&subject, effort, peer.as_ref()), decode(&subject, &encoded, effort, peer.as_ref())];
    rows.map(|row| Row { bytes: mean_length(&encoded), ..row })
}

fn encode<T: Measured>(subject: &Subject<T>, effort: Effort, peer: Option<&RefCell<FastCdr>>) -> Row {
    let mut out = Vec::new();
    let hand = || {
        for sample in subject.samples.iter() {
            black_box(sample.message());
            sample.encode(&mut out);
            black_box(&out);
        }
    };
    let bar = bar::<T>(1.3);
    let mut candidates = vec![
        Candidate::new("hand", hand),
        Candidate::new("derived", subject.encode("cdr", Backend::Jit)).with_bar(bar),
        Candidate::new("record", subject.encode_records("cdr")).with_bar(bar),
        Candidate::new("interpreter", subject.encode("cdr", Backend::Interpreter)),
    ];
    candidates.extend(peer.map(|peer| Candidate::elsewhere("Fast CDR", |least| peer.borrow_mut().encode(least))));
    row::<T>("encode", subject, candidates, effort)
}

fn decode<T: Measured>(
    subject: &Subject<T>,
    encoded: &[Vec<u8>],
    effort: Effort,
    peer: Option<&RefCell<FastCdr>>,
) -> Row {
    let mut back = T::default();
    let hand = || {
        for bytes in encoded {
            cdr_decode(black_box(bytes), &mut back).expect("decoding succeeds");
            black_box(&back);
        }
    };
    let bar = bar::<T>(1.1);
    let mut candidates = vec![
        Candidate::new("hand", hand),
        Candidate::new("derived", subject.decode("cdr", Backend::Jit, encoded)).with_bar(bar),
        Candidate::new("record", subject.decode_records("cdr", encoded)).with_bar(bar),
        Candidate::new("interpreter", subject.decode("cdr", Backend::Interpreter, encoded)),
    ];
    candidates.extend(peer.map(|peer| Candidate::elsewhere("Fast CDR", |least| peer.borrow_mut().decode(least))));
    row::<T>("decode", subject, candidates, effort)
}

fn row<T: Measured>(
    operation: &'static str,
    subject: &Subject<T>,
    candidates: Vec<Candidate<'_>>,
    effort: Effort,
) -> Row {
    Row::new(T::NAME, operation, None, compare(subject.messages().len(), candidates, effort))
}

/// The limit for a workload. A ratio means little for tiny messages, so their limit is a difference
/// of 4 ns. Floats are copied as a block, so their ratio has a lower limit.
fn bar<T: Measured>(usual: f64) -> Bar {
    match T::NAME {
        "ProcessorProbe" | "CodecsTest_10" => Bar::PlusNs(4.0),
        "100 KB of floats" => Bar::AtMost(1.05),
        _ => Bar::AtMost(usual),
    }
}
