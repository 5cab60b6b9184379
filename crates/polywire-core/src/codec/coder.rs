//! [`Encoder`] and [`Decoder`]: one codec's programs for one type, ready to run.

use alloc::{sync::Arc, vec::Vec};

use super::{BuildError, Codec, Options};
use crate::{
    layout::{Codable, Growth, Message, Record, Shape, SharedBytes},
    program::{Backend, Decoded, Direction, Executable, Limits, Payload, Program, State, io::CodecError},
    schema::Schema,
};

/// Writes values in one format: of a Rust type with [`Encoder::new`], records with
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
    /// Compiles an encoder of values of a Rust type.
    pub fn new(codec: &dyn Codec, options: &Options) -> Result<Encoder<M>, BuildError> {
        Encoder::with_backend(codec, options, Backend::Auto)
    }

    /// Compiles an encoder of values of a Rust type for a back end of your choice.
    pub fn with_backend(codec: &dyn Codec, options: &Options, backend: Backend) -> Result<Encoder<M>, BuildError> {
        Encoder::compile(codec, options, (), backend)
    }
}

impl Encoder<Record> {
    /// Compiles an encoder of records of `shape`.
    pub fn for_shape(codec: &dyn Codec, options: &Options, shape: &Arc<Shape>) -> Result<Encoder<Record>, BuildError> {
        Encoder::for_shape_with_backend(codec, options, shape, Backend::Auto)
    }

    /// Compiles an encoder of records of `shape` for a back end of your choice.
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

    /// Appends a value to `out`. After an error `out` is as before.
    ///
    /// # Panics
    /// If the value is a record of another shape than the encoder: an equal one is not enough, it
    /// must be the same `Arc`.
    #[inline]
    pub fn encode(&self, value: &V, out: &mut Vec<u8>) -> Result<(), CodecError> {
        // SAFETY: the program was made for the value's layout, and the value is borrowed.
        unsafe { self.executable.encode(value.address(&self.ty), out, &self.limits) }
    }

    /// The state before the first message of a sequence; `None` if the codec is not stateful.
    pub fn state(&self) -> Option<State> {
        self.executable.state()
    }

    /// Appends a value as the next message of a sequence. If `keep`, later messages refer to this
    /// one; else the state stays as it was, as it does after an error.
    ///
    /// # Panics
    /// If the state is of another encoder or the codec is not stateful, and as
    /// [`Encoder::encode`].
    pub fn encode_with(&self, state: &mut State, keep: bool, value: &V, out: &mut Vec<u8>) -> Result<(), CodecError> {
        // SAFETY: the program was made for the value's layout, and the value is borrowed.
        unsafe { self.executable.encode_with(state, keep, value.address(&self.ty), out, &self.limits) }
    }

    /// The schema of the values: the writer's schema that a decoder asks for.
    pub fn schema(&self) -> &Schema {
        V::shape(&self.ty).schema()
    }

    /// The program that runs.
    pub fn executable(&self) -> &Executable {
        &self.executable
    }
}

/// Reads values from one format, as a given writer's schema has them: of a Rust type with
/// [`Decoder::new`], records with [`Decoder::for_shape`].
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
    /// Compiles a decoder of a writer's messages into values of a Rust type.
    pub fn new(codec: &dyn Codec, options: &Options, writer: &Schema) -> Result<Decoder<M>, BuildError> {
        Decoder::with_backend(codec, options, writer, Backend::Auto)
    }

    /// Compiles a decoder into values of a Rust type for a back end of your choice.
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
    /// Compiles a decoder of a writer's messages into records of `shape`.
    pub fn for_shape(
        codec: &dyn Codec,
        options: &Options,
        writer: &Schema,
        shape: &Arc<Shape>,
    ) -> Result<Decoder<Record>, BuildError> {
        Decoder::for_shape_with_backend(codec, options, writer, shape, Backend::Auto)
    }

    /// Compiles a decoder into records of `shape` for a back end of your choice.
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

    /// Reads one message into `value`, whose memory is used again, and gives how many bytes it
    /// took. After an error the value is valid, but its content is unspecified. Once messages have
    /// asked this decoder for more than [`Limits::memory_bytes`] in all, the value gives its memory
    /// back first.
    ///
    /// # Panics
    /// If the value is a record of another shape than the decoder: an equal one is not enough, it
    /// must be the same `Arc`.
    #[inline]
    pub fn decode(&self, bytes: &[u8], value: &mut V) -> Result<usize, CodecError> {
        self.run(Payload::Bytes(bytes), value).map(|decoded| decoded.bytes)
    }

    /// The state before the first message of a sequence; `None` if the codec is not stateful.
    pub fn state(&self) -> Option<State> {
        self.executable.state()
    }

    /// Reads the next message of a sequence. If `keep`, later messages refer to this one, and after
    /// an error the state is [broken](State::is_broken); else the state stays as it was.
    ///
    /// # Panics
    /// If the state is of another decoder or the codec is not stateful, and as
    /// [`Decoder::decode`].
    pub fn decode_with(&self, state: &mut State, keep: bool, bytes: &[u8], value: &mut V) -> Result<usize, CodecError> {
        self.run(Payload::Chained { state, keep, bytes }, value).map(|decoded| decoded.bytes)
    }

    /// Reads one message that `value` may hold parts of: where the format has them as they are in
    /// memory, [`SharedStr`](crate::layout::SharedStr) and [`SharedBytes`] are not copied.
    ///
    /// # Panics
    /// As [`Decoder::decode`].
    pub fn decode_shared(&self, message: &SharedBytes, value: &mut V) -> Result<usize, CodecError> {
        self.run(Payload::Shared(message), value).map(|decoded| decoded.bytes)
    }

    /// Reads one message in any of these ways, and gives the bytes of memory by which `value` grew,
    /// or more, as the budget for [`Limits::memory_bytes`] counts them.
    ///
    /// # Panics
    /// As [`Decoder::decode_with`].
    #[inline]
    pub fn decode_measured(&self, payload: Payload<'_>, value: &mut V) -> Result<usize, CodecError> {
        self.run(payload, value).map(|decoded| decoded.grown)
    }

    #[inline(always)]
    fn run(&self, payload: Payload<'_>, value: &mut V) -> Result<Decoded, CodecError> {
        let value = value.address_mut(&self.ty);
        // SAFETY: the program was made for the value's layout, and the value is borrowed mutably.
        unsafe { self.executable.decode_into(payload, value, &self.limits, &self.growth) }
    }

    /// The program that runs.
    pub fn executable(&self) -> &Executable {
        &self.executable
    }
}

/// Refuses a program for another layout or of the other direction. Codecs are anybody's safe code,
/// and the verifier checks a program against the layout that the program names, so that has to be
/// the type's own.
fn admit(codec: &dyn Codec, program: &Program, direction: Direction, shape: &Shape) -> Result<(), BuildError> {
    match program.direction == direction && Arc::ptr_eq(&program.layout, shape.layout()) {
        true => Ok(()),
        false => Err(BuildError::Foreign(codec.name())),
    }
}
