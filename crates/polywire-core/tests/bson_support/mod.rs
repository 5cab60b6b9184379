//! What the tests of BSON share.

#![allow(dead_code, reason = "each test uses some of it")]

use polywire_core::{
    codec::{Decoder, Encoder, Options, bson::BSON},
    layout::Message,
    program::{Backend, CodecError, Limits},
    schema::Schema,
};

/// The back ends that there are.
pub const BACKENDS: &[Backend] =
    if cfg!(feature = "jit") { &[Backend::Interpreter, Backend::Jit] } else { &[Backend::Interpreter] };

pub fn options(text: &str) -> Options {
    text.parse().unwrap()
}

/// A value's document, with options; the same from every back end.
pub fn encode_with<T: Message>(value: &T, with: &str) -> Result<Vec<u8>, CodecError> {
    let mut results = BACKENDS.iter().map(|backend| {
        let encoder = Encoder::<T>::with_backend(&BSON, &options(with), *backend).unwrap();
        let mut bytes = Vec::new();
        encoder.encode(value, &mut bytes).map(|()| bytes)
    });
    let first = results.next().unwrap();
    results.for_each(|other| assert_eq!(other, first));
    first
}

pub fn encode<T: Message>(value: &T) -> Vec<u8> {
    encode_with(value, "").unwrap()
}

/// What a document of `writer` gives; the same from every back end.
pub fn decode_from<T: Message + PartialEq + std::fmt::Debug>(writer: &Schema, bytes: &[u8]) -> Result<T, CodecError> {
    decode_within(writer, bytes, Limits::default())
}

pub fn decode_within<T: Message + PartialEq + std::fmt::Debug>(
    writer: &Schema,
    bytes: &[u8],
    limits: Limits,
) -> Result<T, CodecError> {
    let mut results = BACKENDS.iter().map(|backend| {
        let decoder = Decoder::<T>::with_backend(&BSON, &Options::default(), writer, *backend).unwrap();
        let mut value = T::fresh();
        decoder.with_limits(limits).decode(bytes, &mut value).map(|_| value)
    });
    let first = results.next().unwrap();
    // By what they print: a NaN is not equal to itself.
    results.for_each(|other| assert_eq!(format!("{other:?}"), format!("{first:?}")));
    first
}

pub fn decode<T: Message + PartialEq + std::fmt::Debug>(bytes: &[u8]) -> Result<T, CodecError> {
    decode_from(T::shape().schema(), bytes)
}

/// Encodes, decodes, and compares.
pub fn round_trip<T: Message + PartialEq + std::fmt::Debug>(value: &T) -> Vec<u8> {
    let bytes = encode(value);
    assert_eq!(decode::<T>(&bytes).as_ref(), Ok(value));
    bytes
}
