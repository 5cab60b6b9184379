//! [`Encoder`] and [`Decoder`]: a codec's compiled program for one type.

use alloc::{sync::Arc, vec::Vec};

use super::{BuildError, Codec, Options};
use crate::{
    layout::{Codable, Growth, Message, Record, Shape, SharedBytes},
    program::{Backend, Decoded, Direction, Executable, Limits, Payload, Program, State, io::CodecError},
    schema::Schema,
};

/// Encodes values in one format: values of a Rust type with [`Encoder::new`], records with
/// [`Encoder::for_shape`].
///
/// Cheap to clone. Any number of threads may use one at once.
///
/// ```
/// use polywire_core::codec::{self, Decoder, Encoder, Options};
/// use polywire_core::layout::{Record, Shape};
/// use polywire_core::program::{Backend, Limits};
/// use polywire_core::schema::{Def, Member, SchemaBuilder, Type};
///
/// let mut types = SchemaBuilder::new();
/// let root = types.add(Def::structure("Pump", vec![Member::new("id", Type::Uint32)]));
/// let shape = Shape::of(&types.finish(Type::Def(root))?)?;
/// let (json, options) = (codec::find("json").unwrap(), Options::default());
/// let encoder = Encoder::for_shape_with_backend(json, &options, &shape, Backend::Interpreter)?;
/// let encoder = encoder.with_limits(Limits::default());
/// let mut record = Record::new(encoder.shape());
/// record.set("id", 7)?;
/// let mut bytes = Vec::new();
/// encoder.encode(&record, &mut bytes)?;
/// assert_eq!(bytes, br#"{"id":7}"#);
/// let decoder = Decoder::for_shape_with_backend(json, &options, encoder.schema(), &shape, Backend::Interpreter)?;
/// let mut read = Record::new(decoder.shape());
/// decoder.decode(&bytes, &mut read)?;
/// assert_eq!(read, record);
/// assert!(!decoder.executable().is_machine_code() && !encoder.executable().is_machine_code());
/// let decoder = Decoder::for_shape(json, &options, shape.schema(), &shape)?;
/// assert_eq!(decoder.decode(&bytes, &mut read)?, bytes.len());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Encoder<V: Codable> {
    executable: Executable,
    limits: Limits,
    ty: V::Type,
}

impl<V: Codable> Clone for Encoder<V> {
    fn clone(&self) -> Self {
        Encoder { executable: self.executable.clone(), limits: self.limits, ty: self.ty.clone() }
    }
}

impl<M: Message> Encoder<M> {
    /// Compiles an encoder for values of a Rust type.
    pub fn new(codec: &dyn Codec, options: &Options) -> Result<Encoder<M>, BuildError> {
        Encoder::with_backend(codec, options, Backend::Auto)
    }

    /// Compiles an encoder for values of a Rust type, with a given back end.
    pub fn with_backend(codec: &dyn Codec, options: &Options, backend: Backend) -> Result<Encoder<M>, BuildError> {
        Encoder::compile(codec, options, (), backend)
    }
}

impl Encoder<Record> {
    /// Compiles an encoder for records of `shape`.
    pub fn for_shape(codec: &dyn Codec, options: &Options, shape: &Arc<Shape>) -> Result<Encoder<Record>, BuildError> {
        Encoder::for_shape_with_backend(codec, options, shape, Backend::Auto)
    }

    /// Compiles an encoder for records of `shape`, with a given back end.
    pub fn for_shape_with_backend(
        codec: &dyn Codec,
        options: &Options,
        shape: &Arc<Shape>,
        backend: Backend,
    ) -> Result<Encoder<Record>, BuildError> {
        Encoder::compile(codec, options, shape.clone(), backend)
    }

    /// The shape of the records.
    pub fn shape(&self) -> &Arc<Shape> {
        &self.ty
    }
}

impl<V: Codable> Encoder<V> {
    fn compile(codec: &dyn Codec, options: &Options, ty: V::Type, backend: Backend) -> Result<Self, BuildError> {
        options.check(codec)?;
        let shape = V::shape(&ty);
        let program = codec.lower_encode(options, &shape.schema().with_flat_arrays(), shape.layout())?;
        admit(codec, &program, Direction::Encode, shape)?;
        Ok(Encoder { executable: Executable::new(program, backend)?, limits: Limits::default(), ty })
    }

    /// The same encoder with other limits.
    pub fn with_limits(mut self, limits: Limits) -> Encoder<V> {
        self.limits = limits;
        self
    }

    /// Appends the encoded value to `out`. After an error `out` is unchanged.
    ///
    /// # Panics
    /// If the value is a record whose shape is not the same `Arc` as the encoder's, even if it is
    /// equal.
    #[inline]
    pub fn encode(&self, value: &V, out: &mut Vec<u8>) -> Result<(), CodecError> {
        // SAFETY: the program was made for the value's layout, and the value is borrowed.
        unsafe { self.executable.encode(value.address(&self.ty), out, &self.limits) }
    }

    /// The state before the first message of a sequence; `None` if the codec is not stateful.
    pub fn state(&self) -> Option<State> {
        self.executable.state()
    }

    /// Appends the value as the next message of a sequence. If `keep` is true, later messages refer
    /// to this one. Otherwise, and after an error, the state stays as it was.
    ///
    /// # Panics
    /// If the state belongs to another encoder, if the codec is not stateful, or in the case of
    /// [`Encoder::encode`].
    pub fn encode_with(&self, state: &mut State, keep: bool, value: &V, out: &mut Vec<u8>) -> Result<(), CodecError> {
        // SAFETY: the program was made for the value's layout, and the value is borrowed.
        unsafe { self.executable.encode_with(state, keep, value.address(&self.ty), out, &self.limits) }
    }

    /// The schema of the values: the writer's schema, which a decoder needs.
    pub fn schema(&self) -> &Schema {
        V::shape(&self.ty).schema()
    }

    /// The compiled program.
    pub fn executable(&self) -> &Executable {
        &self.executable
    }
}

/// Decodes messages of one format, as a given writer's schema describes them: into values of a Rust
/// type with [`Decoder::new`], into records with [`Decoder::for_shape`].
///
/// Cheap to clone. Any number of threads may use one at once.
pub struct Decoder<V: Codable> {
    executable: Executable,
    limits: Limits,
    growth: Growth,
    ty: V::Type,
}

impl<V: Codable> Clone for Decoder<V> {
    fn clone(&self) -> Self {
        let growth = self.growth.clone();
        Decoder { executable: self.executable.clone(), limits: self.limits, growth, ty: self.ty.clone() }
    }
}

impl<M: Message> Decoder<M> {
    /// Compiles a decoder for a writer's messages into values of a Rust type.
    pub fn new(codec: &dyn Codec, options: &Options, writer: &Schema) -> Result<Decoder<M>, BuildError> {
        Decoder::with_backend(codec, options, writer, Backend::Auto)
    }

    /// Compiles a decoder into values of a Rust type, with a given back end.
    pub fn with_backend(
        codec: &dyn Codec,
        options: &Options,
        writer: &Schema,
        backend: Backend,
    ) -> Result<Decoder<M>, BuildError> {
        Decoder::compile(codec, options, writer, (), backend)
    }
}

impl Decoder<Record> {
    /// Compiles a decoder for a writer's messages into records of `shape`.
    pub fn for_shape(
        codec: &dyn Codec,
        options: &Options,
        writer: &Schema,
        shape: &Arc<Shape>,
    ) -> Result<Decoder<Record>, BuildError> {
        Decoder::for_shape_with_backend(codec, options, writer, shape, Backend::Auto)
    }

    /// Compiles a decoder into records of `shape`, with a given back end.
    pub fn for_shape_with_backend(
        codec: &dyn Codec,
        options: &Options,
        writer: &Schema,
        shape: &Arc<Shape>,
        backend: Backend,
    ) -> Result<Decoder<Record>, BuildError> {
        Decoder::compile(codec, options, writer, shape.clone(), backend)
    }

    /// The shape of the records.
    pub fn shape(&self) -> &Arc<Shape> {
        &self.ty
    }
}

impl<V: Codable> Decoder<V> {
    fn compile(
        codec: &dyn Codec,
        options: &Options,
        writer: &Schema,
        ty: V::Type,
        backend: Backend,
    ) -> Result<Self, BuildError> {
        options.check(codec)?;
        let shape = V::shape(&ty);
        let (writer, reader) = (writer.with_flat_arrays(), shape.schema().with_flat_arrays());
        let program = codec.lower_decode(options, &writer, &reader, shape.layout())?;
        admit(codec, &program, Direction::Decode, shape)?;
        let executable = Executable::new(program, backend)?;
        Ok(Decoder { executable, limits: Limits::default(), growth: Growth::default(), ty })
    }

    /// The same decoder with other limits.
    pub fn with_limits(mut self, limits: Limits) -> Decoder<V> {
        self.limits = limits;
        self
    }

    /// Decodes one message into `value` and returns the number of bytes that it took. The memory of
    /// the old value is reused. After an error the value is valid, but its contents are
    /// unspecified.
    ///
    /// The decoder adds up the memory that its messages request. When the sum exceeds
    /// [`Limits::memory_bytes`], the value first frees its memory.
    ///
    /// # Panics
    /// If the value is a record whose shape is not the same `Arc` as the decoder's, even if it is
    /// equal.
    #[inline]
    pub fn decode(&self, bytes: &[u8], value: &mut V) -> Result<usize, CodecError> {
        self.run(Payload::Bytes(bytes), value).map(|decoded| decoded.bytes)
    }

    /// The state before the first message of a sequence; `None` if the codec is not stateful.
    pub fn state(&self) -> Option<State> {
        self.executable.state()
    }

    /// Decodes the next message of a sequence. If `keep` is true, later messages refer to this one,
    /// and after an error the state is [broken](State::is_broken). Otherwise the state stays as it
    /// was.
    ///
    /// # Panics
    /// If the state belongs to another decoder, if the codec is not stateful, or in the case of
    /// [`Decoder::decode`].
    pub fn decode_with(&self, state: &mut State, keep: bool, bytes: &[u8], value: &mut V) -> Result<usize, CodecError> {
        self.run(Payload::Chained { state, keep, bytes }, value).map(|decoded| decoded.bytes)
    }

    /// Decodes one message. `value` may refer to parts of it instead of copying them:
    /// [`SharedStr`](crate::layout::SharedStr) and [`SharedBytes`] are not copied if the format has
    /// them in the form that memory has.
    ///
    /// # Panics
    /// In the case of [`Decoder::decode`].
    pub fn decode_shared(&self, message: &SharedBytes, value: &mut V) -> Result<usize, CodecError> {
        self.run(Payload::Shared(message), value).map(|decoded| decoded.bytes)
    }

    /// Decodes one message in any of these ways. Returns an upper bound of the bytes by which
    /// `value` grew, as counted for [`Limits::memory_bytes`].
    ///
    /// # Panics
    /// In the cases of [`Decoder::decode_with`].
    #[inline(always)]
    pub fn decode_measured(&self, payload: Payload<'_>, value: &mut V) -> Result<usize, CodecError> {
        self.run(payload, value).map(|decoded| decoded.grown)
    }

    #[inline(always)]
    fn run(&self, payload: Payload<'_>, value: &mut V) -> Result<Decoded, CodecError> {
        let value = value.address_mut(&self.ty);
        // SAFETY: the program was made for the value's layout, and the value is borrowed mutably.
        unsafe { self.executable.decode_into(payload, value, &self.limits, &self.growth) }
    }

    /// The compiled program.
    pub fn executable(&self) -> &Executable {
        &self.executable
    }
}

/// Refuses a program for another layout or direction. Codecs are safe code that anybody may write,
/// and the verifier checks a program against the layout that the program names. So this layout must
/// be the type's own.
fn admit(codec: &dyn Codec, program: &Program, direction: Direction, shape: &Shape) -> Result<(), BuildError> {
    match program.direction == direction && Arc::ptr_eq(&program.layout, shape.layout()) {
        true => Ok(()),
        false => Err(BuildError::Foreign(codec.name())),
    }
}
