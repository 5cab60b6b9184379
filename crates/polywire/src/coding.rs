//! The seam to the codecs: what publishers and subscribers need of a kind of value, be it a Rust
//! type or bytes left as they are.
//!
//! ```
//! use polywire::{coding::{Bytes, Coding, Discovered, Dynamic, Typed}, Node};
//! use polywire_core::{codec::{self, Options}, layout::Message as _};
//! # use std::time::Duration;
//!
//! #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
//! struct Pump { id: u32, pressure_bar: f64 }
//!
//! // What a publisher of `Pump` and a subscriber to it do with their codec.
//! let (cdr, options) = (codec::find("cdr").unwrap(), Options::default());
//! let typed = Typed::<Pump>::default();
//! let encoder = typed.encoder(cdr, &options)?;
//! let mut bytes = Vec::new();
//! Typed::encode(&encoder, &Pump { id: 7, pressure_bar: 2.5 }, &mut bytes)?;
//! let decoder = typed.decoder(cdr, &options, typed.schema().unwrap())?;
//! let mut read = typed.fresh();
//! Typed::decode(&decoder, &bytes, &mut read)?;
//! assert_eq!(read, Pump { id: 7, pressure_bar: 2.5 });
//!
//! // The same for records; for records of whatever type a writer has; and for bytes, which no codec touches.
//! let dynamic = Dynamic::of(Pump::shape().schema())?;
//! assert_eq!(dynamic.fresh().shape().schema(), dynamic.shape().schema());
//! let node = Node::new();
//! let any = node.subscribe_of("pumps", Some("cdr@inproc/coding-doc"), Discovered::new()?)?.open();
//! let raw = node.subscribe_of("pumps", Some("cdr@inproc/coding-doc"), Bytes::default())?.open();
//! let publisher = node.publisher_of("pumps", Some("cdr@inproc/coding-doc"), dynamic)?;
//! let mut record = publisher.fresh();
//! record.set("id", 7)?;
//! publisher.publish(&record)?;
//! let soon = Duration::from_secs(10);
//! assert_eq!(any.recv_timeout(soon).unwrap().value.u64("id"), Ok(7));
//! assert_eq!(raw.recv_timeout(soon).unwrap().value[..4], [7, 0, 0, 0]);
//! assert_eq!(Bytes::of(typed.schema().unwrap().clone()).schema(), typed.schema());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::{marker::PhantomData, sync::Arc};

use crate::{compile, node::default_texts};

use polywire_core::{
    codec::{
        BuildError, Codec, Decoder, Encoder, LowerError, Options,
        cdr::{Cdr, key::KeyHasher},
    },
    envelope::Id128,
    layout::{Message, Record, Shape, ShapeError, SharedBytes},
    program::{Backend, Payload, State, io::CodecError},
    schema::{Def, Schema, SchemaBuilder, Type},
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
    /// A writer's state before the first message of a stream; none where every message stands
    /// alone.
    fn writer_state(_: &Self::Encoder) -> Option<State> {
        None
    }
    /// A reader's state before the first message of a stream; none where every message stands
    /// alone.
    fn reader_state(_: &Self::Decoder) -> Option<State> {
        None
    }
    /// Appends a value as a message of a stream, which goes on from it if it is to be kept.
    fn encode_with(
        encoder: &Self::Encoder,
        _: &mut State,
        _keep: bool,
        value: &Self::Value,
        out: &mut Vec<u8>,
    ) -> Result<(), CodecError> {
        Self::encode(encoder, value, out)
    }
    /// Reads one message of a stream, which goes on from it if it is to be kept.
    fn decode_with(
        decoder: &Self::Decoder,
        _: &mut State,
        _keep: bool,
        bytes: &[u8],
        value: &mut Self::Value,
    ) -> Result<(), CodecError> {
        Self::decode(decoder, bytes, value)
    }
    /// Reads one message in any of these ways, and gives the bytes of memory by which the value
    /// grew: what a subscriber's queue of so many bytes goes by. Unless the coding knows
    /// better, as many as the message has.
    fn decode_measured(
        decoder: &Self::Decoder,
        payload: Payload<'_>,
        value: &mut Self::Value,
    ) -> Result<usize, CodecError> {
        let bytes = payload.bytes().len();
        match payload {
            Payload::Bytes(bytes) => Self::decode(decoder, bytes, value),
            Payload::Shared(message) => Self::decode_shared(decoder, message, value),
            Payload::Chained { state, keep, bytes } => Self::decode_with(decoder, state, keep, bytes, value),
        }?;
        Ok(bytes)
    }
    /// Bytes that a fresh value takes, before anything is read into it.
    fn value_bytes(_: &Self::Decoder) -> usize {
        size_of::<Self::Value>()
    }
    /// Codings that give the same number read a writer's messages with the same decoder, which is
    /// then made once for all subscribers of the node. None where each subscriber has its own.
    /// The number has to be of this coding alone for as long as a clone of it lives.
    fn reader(&self) -> Option<usize> {
        None
    }
    /// Whether values can hold parts of a message, so that it pays to give them one to hold.
    fn shares(&self) -> bool {
        false
    }
    /// Reads one message, of which the value may hold parts.
    fn decode_shared(
        decoder: &Self::Decoder,
        message: &SharedBytes,
        value: &mut Self::Value,
    ) -> Result<(), CodecError> {
        Self::decode(decoder, message, value)
    }
    /// Makes key hashes of values as they travel in this version of CDR; none for what has no key.
    fn key_hasher(&self, _codec: &Cdr) -> Result<Option<KeyHash<Self::Value>>, BuildError> {
        Ok(None)
    }
    /// A decoder that takes every format as it is; for bytes alone.
    fn any_decoder(&self) -> Option<Self::Decoder> {
        None
    }
}

/// Gives the key hash of a value.
pub type KeyHash<V> = Box<dyn FnMut(&V) -> Result<Id128, CodecError> + Send>;

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
        let decoder = Decoder::with_backend(codec, options, writer, Backend::Interpreter)?;
        compile::soon(decoder.executable());
        Ok(decoder)
    }

    fn key_hasher(&self, codec: &Cdr) -> Result<Option<KeyHash<T>>, BuildError> {
        let hasher = KeyHasher::<T>::new(codec)?;
        Ok(hasher.map(|mut hasher| -> KeyHash<T> { Box::new(move |value| hasher.hash(value).map(Id128)) }))
    }

    fn shares(&self) -> bool {
        T::shape().layout().shares()
    }

    fn decode_shared(decoder: &Decoder<T>, message: &SharedBytes, value: &mut T) -> Result<(), CodecError> {
        decoder.decode_shared(message, value).map(|_| ())
    }

    #[inline]
    fn encode(encoder: &Encoder<T>, value: &T, out: &mut Vec<u8>) -> Result<(), CodecError> {
        encoder.encode(value, out)
    }

    #[inline]
    fn decode(decoder: &Decoder<T>, bytes: &[u8], value: &mut T) -> Result<(), CodecError> {
        decoder.decode(bytes, value).map(|_| ())
    }

    #[inline]
    fn decode_measured(decoder: &Decoder<T>, payload: Payload<'_>, value: &mut T) -> Result<usize, CodecError> {
        decoder.decode_measured(payload, value)
    }

    fn value_bytes(_: &Decoder<T>) -> usize {
        T::shape().layout().fresh_bytes()
    }

    /// Those of one Rust type are all the same.
    fn reader(&self) -> Option<usize> {
        Some(0)
    }

    fn writer_state(encoder: &Encoder<T>) -> Option<State> {
        encoder.state()
    }

    fn reader_state(decoder: &Decoder<T>) -> Option<State> {
        decoder.state()
    }

    fn encode_with(
        encoder: &Encoder<T>,
        state: &mut State,
        keep: bool,
        value: &T,
        out: &mut Vec<u8>,
    ) -> Result<(), CodecError> {
        encoder.encode_with(state, keep, value, out)
    }

    fn decode_with(
        decoder: &Decoder<T>,
        state: &mut State,
        keep: bool,
        bytes: &[u8],
        value: &mut T,
    ) -> Result<(), CodecError> {
        decoder.decode_with(state, keep, bytes, value).map(|_| ())
    }
}

/// Records of one type, which is known at run time only.
#[derive(Clone)]
pub struct Dynamic(Arc<Shape>);

impl Dynamic {
    /// Records of this type.
    pub fn of(schema: &Schema) -> Result<Dynamic, ShapeError> {
        Shape::of(schema).map(Dynamic)
    }

    /// The shape that records to be published must have.
    pub fn shape(&self) -> &Arc<Shape> {
        &self.0
    }
}

/// Records of a shape that is there already, which records to be published may have.
///
/// ```
/// use polywire::{coding::Dynamic, Message, Shape};
/// # #[derive(Default, polywire::Message)]
/// # struct Pump { id: u32 }
/// let shape = Shape::of(Pump::shape().schema())?;
/// assert!(std::sync::Arc::ptr_eq(Dynamic::from(shape.clone()).shape(), &shape));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl From<Arc<Shape>> for Dynamic {
    fn from(shape: Arc<Shape>) -> Dynamic {
        Dynamic(shape)
    }
}

impl Coding for Dynamic {
    type Value = Record;
    type Encoder = Encoder<Record>;
    type Decoder = Decoder<Record>;

    fn schema(&self) -> Option<&Schema> {
        Some(self.0.schema())
    }

    fn fresh(&self) -> Record {
        Record::new(&self.0)
    }

    fn encoder(&self, codec: &dyn Codec, options: &Options) -> Result<Encoder<Record>, BuildError> {
        Encoder::for_shape(codec, options, &self.0)
    }

    fn decoder(&self, codec: &dyn Codec, options: &Options, writer: &Schema) -> Result<Decoder<Record>, BuildError> {
        dynamic(codec, options, writer, &self.0)
    }

    fn key_hasher(&self, codec: &Cdr) -> Result<Option<KeyHash<Record>>, BuildError> {
        let hasher = KeyHasher::for_shape(codec, &self.0)?;
        Ok(hasher.map(|mut hasher| -> KeyHash<Record> { Box::new(move |record| hasher.hash(record).map(Id128)) }))
    }

    #[inline]
    fn encode(encoder: &Encoder<Record>, value: &Record, out: &mut Vec<u8>) -> Result<(), CodecError> {
        encoder.encode(value, out)
    }

    #[inline]
    fn decode(decoder: &Decoder<Record>, bytes: &[u8], value: &mut Record) -> Result<(), CodecError> {
        decoder.decode(bytes, value).map(|_| ())
    }

    #[inline]
    fn decode_measured(
        decoder: &Decoder<Record>,
        payload: Payload<'_>,
        value: &mut Record,
    ) -> Result<usize, CodecError> {
        decoder.decode_measured(payload, value)
    }

    fn value_bytes(decoder: &Decoder<Record>) -> usize {
        record_bytes(decoder)
    }

    /// Those of one shape are the same: the clones that are kept keep its address from being used
    /// again.
    fn reader(&self) -> Option<usize> {
        Some(Arc::as_ptr(&self.0).addr())
    }

    fn writer_state(encoder: &Encoder<Record>) -> Option<State> {
        encoder.state()
    }

    fn reader_state(decoder: &Decoder<Record>) -> Option<State> {
        decoder.state()
    }

    fn encode_with(
        encoder: &Encoder<Record>,
        state: &mut State,
        keep: bool,
        value: &Record,
        out: &mut Vec<u8>,
    ) -> Result<(), CodecError> {
        encoder.encode_with(state, keep, value, out)
    }

    fn decode_with(
        decoder: &Decoder<Record>,
        state: &mut State,
        keep: bool,
        bytes: &[u8],
        value: &mut Record,
    ) -> Result<(), CodecError> {
        decoder.decode_with(state, keep, bytes, value).map(|_| ())
    }
}

fn dynamic(
    codec: &dyn Codec,
    options: &Options,
    writer: &Schema,
    shape: &Arc<Shape>,
) -> Result<Decoder<Record>, BuildError> {
    let decoder = Decoder::for_shape_with_backend(codec, options, writer, shape, Backend::Interpreter)?;
    compile::soon(decoder.executable());
    Ok(decoder)
}

/// Records of whatever type each writer has: for tools that know none beforehand. For subscribers
/// alone.
#[derive(Clone)]
pub struct Discovered(Arc<Shape>);

impl Discovered {
    /// Takes every type that the schema limits allow.
    pub fn new() -> Result<Discovered, ShapeError> {
        let mut types = SchemaBuilder::new();
        let empty = types.add(Def::structure("Empty", Vec::new()));
        let schema = types.finish(Type::Def(empty))?;
        Shape::of(&schema).map(Discovered)
    }
}

impl Coding for Discovered {
    type Value = Record;
    type Encoder = Encoder<Record>;
    type Decoder = Decoder<Record>;

    fn schema(&self) -> Option<&Schema> {
        None
    }

    /// A record without members: the decoder puts one of the writer's type in its place.
    fn fresh(&self) -> Record {
        Record::new(&self.0)
    }

    fn encoder(&self, codec: &dyn Codec, options: &Options) -> Result<Encoder<Record>, BuildError> {
        Encoder::for_shape(codec, options, &self.0)
    }

    fn decoder(&self, codec: &dyn Codec, options: &Options, writer: &Schema) -> Result<Decoder<Record>, BuildError> {
        let shape = Shape::of(writer).map_err(|e| LowerError::Option(e.to_string()))?;
        dynamic(codec, options, writer, &shape)
    }

    fn encode(encoder: &Encoder<Record>, value: &Record, out: &mut Vec<u8>) -> Result<(), CodecError> {
        encoder.encode(value, out)
    }

    fn decode(decoder: &Decoder<Record>, bytes: &[u8], value: &mut Record) -> Result<(), CodecError> {
        fit(value, decoder);
        decoder.decode(bytes, value).map(|_| ())
    }

    fn decode_measured(
        decoder: &Decoder<Record>,
        payload: Payload<'_>,
        value: &mut Record,
    ) -> Result<usize, CodecError> {
        fit(value, decoder);
        decoder.decode_measured(payload, value)
    }

    fn value_bytes(decoder: &Decoder<Record>) -> usize {
        record_bytes(decoder)
    }

    /// They take each writer's type as it is.
    fn reader(&self) -> Option<usize> {
        Some(0)
    }

    fn reader_state(decoder: &Decoder<Record>) -> Option<State> {
        decoder.state()
    }

    fn decode_with(
        decoder: &Decoder<Record>,
        state: &mut State,
        keep: bool,
        bytes: &[u8],
        value: &mut Record,
    ) -> Result<(), CodecError> {
        fit(value, decoder);
        decoder.decode_with(state, keep, bytes, value).map(|_| ())
    }
}

fn record_bytes(decoder: &Decoder<Record>) -> usize {
    let shape = decoder.shape();
    let fresh = size_of::<Record>().saturating_add(shape.layout().fresh_bytes());
    fresh.saturating_add(default_texts(shape.schema()))
}

/// Puts a record of the writer's type in the place of one of another.
fn fit(value: &mut Record, decoder: &Decoder<Record>) {
    if !Arc::ptr_eq(value.shape(), decoder.shape()) {
        *value = Record::new(decoder.shape());
    }
}

/// Payloads as they are: for tools that count, relay or record, and for codecs of one's own. In a
/// format whose messages refer to others, those published have to stand alone; of one received,
/// [`Info::anchor`](crate::Info::anchor) says whether it does.
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
