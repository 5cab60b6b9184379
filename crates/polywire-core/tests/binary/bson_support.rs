//! Helpers of the BSON tests.

use polywire_core::{
    codec::{Options, bson::BSON},
    layout::Message,
    program::{CodecError, Limits},
    schema::Schema,
};
use polywire_testing::Wire;
use std::fmt::Debug;

pub fn options(text: &str) -> Options {
    text.parse().unwrap()
}

/// The document of a value under some options; the same from every back end.
pub fn encode_with<T: Message>(value: &T, with: &str) -> Result<Vec<u8>, CodecError> {
    Wire { codec: &BSON, options: options(with) }.encode(value)
}

pub fn encode<T: Message>(value: &T) -> Vec<u8> {
    encode_with(value, "").unwrap()
}

/// Decodes a document of `writer`. The result is the same on every back end.
pub fn decode_from<T: Message + Debug>(writer: &Schema, bytes: &[u8]) -> Result<T, CodecError> {
    decode_within(writer, bytes, Limits::default())
}

pub fn decode_within<T: Message + Debug>(writer: &Schema, bytes: &[u8], limits: Limits) -> Result<T, CodecError> {
    let decoded = Wire { codec: &BSON, options: Options::default() }.decode(writer, bytes, limits, T::default_value);
    decoded.map(|(value, _)| value)
}

pub fn decode<T: Message + Debug>(bytes: &[u8]) -> Result<T, CodecError> {
    decode_from(T::shape().schema(), bytes)
}

/// Encodes, decodes, and compares.
pub fn round_trip<T: Message + PartialEq + Debug>(value: &T) -> Vec<u8> {
    let bytes = encode(value);
    assert_eq!(decode::<T>(&bytes).as_ref(), Ok(value));
    bytes
}
