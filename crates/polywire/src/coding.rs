//! Kinds of values that topics carry: Rust types ([`Typed`]), records of a type known at run time
//! ([`Dynamic`]), records of whatever type a writer has ([`Discovered`]), and encoded payloads
//! ([`Bytes`]). [`Node::publisher_of`](crate::Node::publisher_of) and
//! [`Node::subscribe_of`](crate::Node::subscribe_of) take them.
//!
//! ```
//! use polywire::{coding::{Bytes, Coding, Discovered, Dynamic, Typed}, Message as _, Node};
//! use polywire_core::{codec::{self, Options}, program::Payload};
//! # use std::time::Duration;
//!
//! #[derive(Clone, Debug, Default, PartialEq, polywire::Message)]
//! struct Pump { id: u32, pressure_bar: f64 }
//!
//! // The calls that a publisher and a subscriber of `Pump` make.
//! let (cdr, options) = (codec::find("cdr").unwrap(), Options::default());
//! let typed = Typed::<Pump>::default();
//! let encoder = typed.encoder(cdr, &options)?;
//! let mut bytes = Vec::new();
//! Typed::encode(&encoder, &Pump { id: 7, pressure_bar: 2.5 }, &mut bytes)?;
//! let decoder = typed.decoder(cdr, &options, typed.schema().unwrap())?;
//! let mut read = typed.default_value();
//! Typed::decode_measured(&decoder, Payload::Bytes(&bytes), &mut read)?;
//! assert_eq!(read, Pump { id: 7, pressure_bar: 2.5 });
//!
//! // Records, records of the writer's own type, and payloads that no codec touches.
//! let dynamic = Dynamic::of(Pump::shape().schema())?;
//! assert_eq!(dynamic.default_value().shape().schema(), dynamic.shape().schema());
//! let node = Node::new();
//! let any = node.subscribe_of("pumps", Some("cdr@inproc/coding-doc"), Discovered::new()?)?.open();
//! let raw = node.subscribe_of("pumps", Some("cdr@inproc/coding-doc"), Bytes::default())?.open();
//! let publisher = node.publisher_of("pumps", Some("cdr@inproc/coding-doc"), dynamic)?;
//! let mut record = publisher.default_value();
//! record.set("id", 7)?;
//! publisher.publish(&record)?;
//! let soon = Duration::from_secs(10);
//! assert_eq!(any.recv_timeout(soon).unwrap().value.u64("id"), Ok(7));
//! assert_eq!(raw.recv_timeout(soon).unwrap().value[..4], [7, 0, 0, 0]);
//! assert_eq!(Bytes::of(typed.schema().unwrap().clone()).schema(), typed.schema());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::{collections::BTreeMap, marker::PhantomData, sync::Arc};

use polywire_core::{
    codec::{
        BuildError, Codec, Decoder, Encoder, LowerError, Options,
        cdr::{Cdr, key::KeyHasher},
    },
    envelope::Id128,
    layout::{Message, Record, Shape, ShapeError},
    program::{Backend, CodecError, Payload, State},
    schema::{Def, DefId, DefKind, Literal, Member, Schema, SchemaBuilder, Type, array_len},
};

use crate::compile;

/// A kind of value that can be published and received.
///
/// Publishers and subscribers call it. To count or filter messages, write a `Coding` that wraps
/// [`Typed`], [`Dynamic`] or [`Bytes`]. [`Coding::Encoder`] is used under the publisher's lock,
/// [`Coding::Decoder`] by all links that bring messages of the same writer's schema.
pub trait Coding: Clone + Send + Sync + 'static {
    /// The type of the values.
    type Value: Send + 'static;
    /// Writes values in one format.
    type Encoder: Send + Sync + 'static;
    /// Reads values from one writer's format.
    type Decoder: Send + Sync + 'static;

    /// The type of the values; `None` if payloads are not typed, as with [`Bytes`].
    fn schema(&self) -> Option<&Schema>;

    /// Makes a value to decode into.
    fn default_value(&self) -> Self::Value;

    /// Compiles an encoder. Fails if the codec cannot carry the type.
    fn encoder(&self, codec: &dyn Codec, options: &Options) -> Result<Self::Encoder, BuildError>;

    /// Compiles a decoder for messages that a writer with this schema encodes. Fails if the two
    /// types are incompatible.
    fn decoder(&self, codec: &dyn Codec, options: &Options, writer: &Schema) -> Result<Self::Decoder, BuildError>;

    /// Appends an encoded value to `out`.
    fn encode(encoder: &Self::Encoder, value: &Self::Value, out: &mut Vec<u8>) -> Result<(), CodecError>;

    /// Appends a value in a stateful format to `out`. If `keep` is true, later messages may refer
    /// to this one.
    fn encode_with(
        encoder: &Self::Encoder,
        _state: &mut State,
        _keep: bool,
        value: &Self::Value,
        out: &mut Vec<u8>,
    ) -> Result<(), CodecError> {
        Self::encode(encoder, value, out)
    }

    /// Reads one message and returns the bytes of memory by which the value grew, which count
    /// against [`Subscribe::queue_bytes`](crate::Subscribe::queue_bytes).
    fn decode_measured(
        decoder: &Self::Decoder,
        payload: Payload<'_>,
        value: &mut Self::Value,
    ) -> Result<usize, CodecError>;

    /// A writer's state before its first message; `None` if the format is not stateful.
    fn writer_state(_: &Self::Encoder) -> Option<State> {
        None
    }

    /// A reader's state before the first message; `None` if the format is not stateful.
    fn reader_state(_: &Self::Decoder) -> Option<State> {
        None
    }

    /// Bytes of memory that a fresh value takes before anything is decoded into it.
    fn value_bytes(_: &Self::Decoder) -> usize {
        size_of::<Self::Value>()
    }

    /// A number that codings with interchangeable decoders share: the node makes one decoder for
    /// all subscribers that return the same number. With `None`, each subscriber has its own
    /// decoder. No other coding may return the number while a clone of this one lives.
    fn reader(&self) -> Option<usize> {
        None
    }

    /// Whether values can keep parts of the received buffer instead of copies
    /// ([`SharedBytes`](crate::SharedBytes)).
    fn shares(&self) -> bool {
        false
    }

    /// Compiles the function that hashes keys as this version of CDR writes them; `None` if the
    /// type has no key.
    fn key_hasher(&self, _codec: &Cdr) -> Result<Option<KeyHash<Self::Value>>, BuildError> {
        Ok(None)
    }

    /// A decoder for messages of every format and schema. Only [`Bytes`] has one.
    fn any_decoder(&self) -> Option<Self::Decoder> {
        None
    }
}

/// Computes the key hash of a value.
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

    fn default_value(&self) -> T {
        T::default_value()
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

    #[inline]
    fn encode(encoder: &Encoder<T>, value: &T, out: &mut Vec<u8>) -> Result<(), CodecError> {
        encoder.encode(value, out)
    }

    #[inline(always)]
    fn decode_measured(decoder: &Decoder<T>, payload: Payload<'_>, value: &mut T) -> Result<usize, CodecError> {
        decoder.decode_measured(payload, value)
    }

    fn value_bytes(_: &Decoder<T>) -> usize {
        T::shape().layout().default_bytes()
    }

    /// All codings of one Rust type are interchangeable.
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
}

/// Records of one type that is known at run time only.
#[derive(Clone)]
pub struct Dynamic(Arc<Shape>);

impl Dynamic {
    /// Records of this type.
    pub fn of(schema: &Schema) -> Result<Dynamic, ShapeError> {
        Shape::of(schema).map(Dynamic)
    }

    /// The shape of the records. Records to publish must have been made from this `Arc<Shape>`: an
    /// equal shape is not enough.
    pub fn shape(&self) -> &Arc<Shape> {
        &self.0
    }
}

/// Makes a coding of an existing shape, so that existing records can be published.
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

    fn default_value(&self) -> Record {
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

    /// The address of the shape. It stays unique, since each clone keeps the shape alive.
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

/// Records of the type that each writer has, for tools that know no type in advance. Only
/// subscribers can use it.
#[derive(Clone)]
pub struct Discovered(Arc<Shape>);

impl Discovered {
    /// Accepts every type within the schema limits.
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

    /// A record without members. Decoding replaces it by a record of the writer's type.
    fn default_value(&self) -> Record {
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

    /// All codings of this type are interchangeable: a decoder depends only on its writer's type.
    fn reader(&self) -> Option<usize> {
        Some(0)
    }

    fn reader_state(decoder: &Decoder<Record>) -> Option<State> {
        decoder.state()
    }
}

fn record_bytes(decoder: &Decoder<Record>) -> usize {
    let shape = decoder.shape();
    let fresh = size_of::<Record>().saturating_add(shape.layout().default_bytes());
    fresh.saturating_add(default_texts(shape.schema()))
}

/// Bytes of the strings that a fresh record of the type has by `@default`; the layout does not
/// count them.
fn default_texts(schema: &Schema) -> usize {
    texts_of(schema, schema.root(), &mut BTreeMap::new())
}

fn texts_of(schema: &Schema, ty: &Type, known: &mut BTreeMap<DefId, usize>) -> usize {
    match schema.resolve(ty) {
        Type::Array { element, dims } => {
            array_len(dims).unwrap_or(usize::MAX).saturating_mul(texts_of(schema, element, known))
        }
        Type::Def(id) => match known.get(id) {
            Some(bytes) => *bytes,
            None => {
                known.insert(*id, 0);
                let DefKind::Struct { .. } = &schema.def(*id).kind else { return 0 };
                let fresh = |bytes: usize, member: &Member| {
                    let text = member.default.as_ref().map_or(0, |default| match default {
                        Literal::String(text) => text.len(),
                        _ => 0,
                    });
                    bytes.saturating_add(text).saturating_add(texts_of(schema, &member.ty, known))
                };
                let members = schema.members(*id);
                let bytes = members.into_iter().filter(|member| !member.optional).fold(0, fresh);
                known.insert(*id, bytes);
                bytes
            }
        },
        _ => 0,
    }
}

/// Replaces a record of another type by one of the decoder's type.
fn fit(value: &mut Record, decoder: &Decoder<Record>) {
    if !Arc::ptr_eq(value.shape(), decoder.shape()) {
        *value = Record::new(decoder.shape());
    }
}

/// Encoded payloads, for tools that count, relay or record messages, and for programs that have
/// their own encoders. In a stateful format, payloads to be published must not refer to earlier
/// messages; [`Info::anchor`](crate::Info::anchor) says whether a received one does.
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

    fn default_value(&self) -> Vec<u8> {
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

    fn decode_measured((): &(), payload: Payload<'_>, value: &mut Vec<u8>) -> Result<usize, CodecError> {
        value.clear();
        value.extend_from_slice(payload.bytes());
        Ok(value.len())
    }

    fn any_decoder(&self) -> Option<()> {
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_texts_are_counted_as_often_as_they_occur() {
        let mut types = SchemaBuilder::new();
        let text = Member::new("text", Type::string()).with_default(Literal::String("abc".into()));
        let row = types.add(Def::structure("Row", vec![text.clone()]));
        let rows = Member::new("rows", Type::array(Type::Def(row), [10, 10]));
        let none = Member::new("none", Type::sequence(Type::Def(row)));
        let root = types.add(Def::structure("Table", vec![rows, text.as_optional(), none]));
        assert_eq!(default_texts(&types.finish(Type::Def(root)).expect("a schema")), 300);
    }
}
