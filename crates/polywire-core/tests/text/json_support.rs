//! Helpers of the JSON tests.

use polywire_core::{
    codec::{Codec, Decoder, Encoder, Options, json::JSON},
    layout::{Message, Record, Shape},
    program::{CodecError, Limits},
    schema::Schema,
};
use polywire_testing::Wire;
pub use polywire_testing::{backends, random_record};
use std::{fmt::Debug, sync::Arc};

pub fn json() -> &'static dyn Codec {
    &JSON
}

pub fn options(text: &str) -> Options {
    text.parse().unwrap()
}

/// The text of a value; the same from every back end.
pub fn text_of<T: Message>(value: &T, with: &str) -> String {
    let text = Wire { codec: json(), options: options(with) }.encode(value);
    String::from_utf8(text.unwrap()).unwrap()
}

/// Decodes a text into the value that `into` returns. The result is the same on every back end.
pub fn value_of<T: Message + Debug>(text: &[u8], into: impl Fn() -> T) -> Result<T, CodecError> {
    evolved(T::shape().schema(), text, into)
}

/// Decodes a text of another writer.
pub fn evolved<T: Message + Debug>(writer: &Schema, text: &[u8], into: impl Fn() -> T) -> Result<T, CodecError> {
    Wire { codec: json(), options: Options::default() }.decode_all(writer, text, Limits::default(), into)
}

/// Encoder and decoder for records of a shape, on each back end.
pub fn coders(shape: &Arc<Shape>, with: &str) -> Vec<(Encoder<Record>, Decoder<Record>)> {
    let coder = |backend| {
        let encoder = Encoder::for_shape_with_backend(json(), &options(with), shape, backend).unwrap();
        let decoder = Decoder::for_shape_with_backend(json(), &options(with), shape.schema(), shape, backend).unwrap();
        (encoder, decoder)
    };
    backends().into_iter().map(coder).collect()
}
