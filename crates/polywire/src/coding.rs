//! The seam to the codecs: what publishers and subscribers need of a kind of value, be it a Rust type or bytes left as they are.

use std::marker::PhantomData;

use polywire_core::{
    codec::{BuildError, Codec, Decoder, Encoder, Options},
    layout::Message,
    program::io::CodecError,
    schema::Schema,
};

/// A kind of value.
pub trait Coding: Clone + Send + Sync + 'static {
    /// The values.
    type Value: Send + 'static;
    /// Writes them in one format.
    type Encoder: Send + Sync + 'static;
    /// Reads them from one writer's format.
    type Decoder: Send + Sync + 'static;

    /// The type; none for bytes.
    fn schema(&self) -> Option<&Schema>;
    /// A value to decode into.
    fn fresh(&self) -> Self::Value;
    /// Compiles an encoder.
    fn encoder(&self, codec: &dyn Codec, options: &Options) -> Result<Self::Encoder, BuildError>;
    /// Compiles a decoder of what a writer with this schema sends.
    fn decoder(&self, codec: &dyn Codec, options: &Options, writer: &Schema) -> Result<Self::Decoder, BuildError>;
    /// Appends a value.
    fn encode(encoder: &Self::Encoder, value: &Self::Value, out: &mut Vec<u8>) -> Result<(), CodecError>;
    /// Reads one message.
    fn decode(decoder: &Self::Decoder, bytes: &[u8], value: &mut Self::Value) -> Result<(), CodecError>;
    /// A decoder that takes every format as it is; for bytes alone.
    fn any_decoder(&self) -> Option<Self::Decoder> {
        None
    }
}

/// Values of a Rust type.
pub struct Typed<T>(PhantomData<fn() -> T>);

impl<T> Clone for Typed<T> {
    fn clone(&self) -> Self {
        Typed(PhantomData)
    }
}

impl<T> Default for Typed<T> {
    fn default() -> Self {
        Typed(PhantomData)
    }
}

impl<T: Message> Coding for Typed<T> {
    type Value = T;
    type Encoder = Encoder<T>;
    type Decoder = Decoder<T>;

    fn schema(&self) -> Option<&Schema> {
        Some(T::shape().schema())
    }

    fn fresh(&self) -> T {
        T::fresh()
    }

    fn encoder(&self, codec: &dyn Codec, options: &Options) -> Result<Encoder<T>, BuildError> {
        Encoder::new(codec, options)
    }

    fn decoder(&self, codec: &dyn Codec, options: &Options, writer: &Schema) -> Result<Decoder<T>, BuildError> {
        Decoder::new(codec, options, writer)
    }

    #[inline]
    fn encode(encoder: &Encoder<T>, value: &T, out: &mut Vec<u8>) -> Result<(), CodecError> {
        encoder.encode(value, out)
    }

    #[inline]
    fn decode(decoder: &Decoder<T>, bytes: &[u8], value: &mut T) -> Result<(), CodecError> {
        decoder.decode(bytes, value).map(|_| ())
    }
}

/// Payloads as they are: for tools that count, relay or record, and for codecs of one's own.
#[derive(Clone, Debug, Default)]
pub struct Bytes {
    schema: Option<Schema>,
}

impl Bytes {
    /// Payloads that are values of `schema`, encoded elsewhere.
    pub fn of(schema: Schema) -> Self {
        Bytes { schema: Some(schema) }
    }
}

impl Coding for Bytes {
    type Value = Vec<u8>;
    type Encoder = ();
    type Decoder = ();

    fn schema(&self) -> Option<&Schema> {
        self.schema.as_ref()
    }

    fn fresh(&self) -> Vec<u8> {
        Vec::new()
    }

    fn encoder(&self, _: &dyn Codec, _: &Options) -> Result<(), BuildError> {
        Ok(())
    }

    fn decoder(&self, _: &dyn Codec, _: &Options, _: &Schema) -> Result<(), BuildError> {
        Ok(())
    }

    fn encode((): &(), value: &Vec<u8>, out: &mut Vec<u8>) -> Result<(), CodecError> {
        out.extend_from_slice(value);
        Ok(())
    }

    fn decode((): &(), bytes: &[u8], value: &mut Vec<u8>) -> Result<(), CodecError> {
        value.clear();
        value.extend_from_slice(bytes);
        Ok(())
    }

    fn any_decoder(&self) -> Option<()> {
        Some(())
    }
}
