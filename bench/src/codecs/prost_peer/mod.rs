//! Benchmark of Protobuf beside `prost`, which needs Rust types of its own (`mirrors`).

use super::{
    Measured, Subject, for_each_workload,
    serde_peers::{group, our_decoders, our_encoders, rows_of},
};
use crate::{
    measure::{Candidate, Effort},
    report::{Group, Row},
};

#[cfg(feature = "peers")]
mod mirrors;

pub fn protobuf(effort: Effort) -> Group {
    group("Protobuf", for_each_workload!(rows(effort)), "prost")
}

fn rows<T: Mirrored>(effort: Effort) -> [Row; 2] {
    let subject = Subject::<T>::new();
    let ours = subject.encoded("protobuf");
    subject.check("protobuf", &ours);
    let [mut encoders, mut decoders] = [our_encoders(&subject, "protobuf"), our_decoders(&subject, "protobuf", &ours)];
    let (encode, decode) = peers::<T>(&ours);
    encoders.extend(encode);
    decoders.extend(decode);
    rows_of(&subject, &ours, encoders, decoders, effort)
}

/// A measured type for which `prost` has a type of its own.
#[cfg(feature = "peers")]
pub trait Mirrored: Measured {
    /// The type with the same members for `prost`.
    type Mirror: prost::Message + Default;
}

/// A measured type. Without the feature `peers`, there are no types for `prost`.
#[cfg(not(feature = "peers"))]
pub trait Mirrored: Measured {}
#[cfg(not(feature = "peers"))]
impl<T: Measured> Mirrored for T {}

/// Candidates of `prost`: one that encodes, one that decodes into new values, and one that decodes
/// into a reused value.
///
/// # Panics
/// Unless `prost` decodes `ours` and encodes the same bytes.
#[cfg(feature = "peers")]
pub fn peers<'a, T: Mirrored>(ours: &'a [Vec<u8>]) -> (Vec<Candidate<'a>>, Vec<Candidate<'a>>) {
    use std::hint::black_box;

    use prost::Message;

    use crate::measure::Bar;

    let theirs: Vec<T::Mirror> =
        ours.iter().map(|bytes| T::Mirror::decode(&bytes[..]).expect("decoding succeeds")).collect();
    for (message, bytes) in theirs.iter().zip(ours) {
        assert!(message.encode_to_vec() == *bytes, "prost writes other bytes for {}", T::NAME);
    }
    let mut out = Vec::new();
    let encode = move || {
        for message in &theirs {
            out.clear();
            black_box(message).encode(&mut out).expect("encoding succeeds");
            black_box(&out);
        }
    };
    let decode = move || {
        for bytes in ours {
            black_box(T::Mirror::decode(black_box(&bytes[..])).expect("decoding succeeds"));
        }
    };
    let mut used = T::Mirror::default();
    let merge = move || {
        for bytes in ours {
            used.clear();
            used.merge(black_box(&bytes[..])).expect("decoding succeeds");
            black_box(&used);
        }
    };
    let candidate = |name, round: Box<dyn FnMut() + 'a>| Candidate::new(name, round).with_bar(Bar::AtLeast(1.0));
    let decoders = vec![candidate("prost", Box::new(decode)), candidate("prost clear and merge", Box::new(merge))];
    (vec![candidate("prost", Box::new(encode))], decoders)
}

/// No candidates: `prost` needs the feature `peers`.
#[cfg(not(feature = "peers"))]
pub fn peers<T: Mirrored>(_: &[Vec<u8>]) -> (Vec<Candidate<'_>>, Vec<Candidate<'_>>) {
    (Vec::new(), Vec::new())
}
