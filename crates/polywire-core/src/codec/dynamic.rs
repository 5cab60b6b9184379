//! Encoders and decoders for records.

use alloc::{sync::Arc, vec::Vec};

use super::{BuildError, Codec, Options, compile_decode, compile_encode};
use crate::{
    layout::{Growth, Record, Shape},
    program::{Backend, Executable, Limits, Payload, State, io::CodecError},
    schema::Schema,
};

/// Writes records of one shape in one format.
///
/// ```
/// use polywire_core::codec::{self, DynDecoder, DynEncoder, Options};
/// use polywire_core::layout::{Record, Shape};
/// use polywire_core::program::{Backend, Limits};
/// use polywire_core::schema::{Def, Member, SchemaBuilder, Type};
///
/// let mut types = SchemaBuilder::new();
/// let root = types.add(Def::structure("Pump", vec![Member::new("id", Type::Uint32)]));
/// let shape = Shape::of(&types.finish(Type::Def(root))?)?;
/// let (json, options) = (codec::find("json").unwrap(), Options::default());
/// let encoder = DynEncoder::with_backend(json, &options, &shape, Backend::Interpreter)?.with_limits(Limits::default());
/// let mut record = Record::new(encoder.shape());
/// record.set("id", 7)?;
/// let mut bytes = Vec::new();
/// encoder.encode(&record, &mut bytes)?;
/// assert_eq!(bytes, br#"{"id":7}"#);
/// let decoder = DynDecoder::with_backend(json, &options, shape.schema(), &shape, Backend::Interpreter)?;
/// let mut read = Record::new(decoder.shape());
/// decoder.decode(&bytes, &mut read)?;
/// assert_eq!(read, record);
/// assert!(!decoder.executable().is_machine_code() && !encoder.executable().is_machine_code());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct DynEncoder {
    executable: Executable,
    shape: Arc<Shape>,
    limits: Limits,
}

impl DynEncoder {
    /// Compiles it for records of `shape`.
    pub fn new(codec: &dyn Codec, options: &Options, shape: &Arc<Shape>) -> Result<DynEncoder, BuildError> {
        DynEncoder::with_backend(codec, options, shape, Backend::Auto)
    }

    /// Compiles it for a back end of your choice.
    pub fn with_backend(
        codec: &dyn Codec,
        options: &Options,
        shape: &Arc<Shape>,
        backend: Backend,
    ) -> Result<DynEncoder, BuildError> {
        let executable = compile_encode(codec, options, shape, backend)?;
        Ok(DynEncoder { executable, shape: shape.clone(), limits: Limits::default() })
    }

    /// The same encoder with other limits.
    pub fn with_limits(mut self, limits: Limits) -> DynEncoder {
        self.limits = limits;
        self
    }

    /// Appends a record to `out`; after an error `out` is as before.
    ///
    /// # Panics
    /// If the record is of another shape than the encoder: not just of an equal one, but not of the
    /// same `Arc`.
    #[inline]
    pub fn encode(&self, record: &Record, out: &mut Vec<u8>) -> Result<(), CodecError> {
        assert!(Arc::ptr_eq(&self.shape, record.shape()), "the record is of another shape than the encoder");
        // SAFETY: the program was made for the record's layout, and the record is borrowed.
        unsafe { self.executable.encode(record.as_ptr(), out, &self.limits) }
    }

    /// The state of a stream before its first message; none for a codec that is not stateful.
    pub fn state(&self) -> Option<State> {
        self.executable.state()
    }

    /// Appends a record as a message of a stream, as
    /// [`Encoder::encode_with`](super::Encoder::encode_with).
    ///
    /// # Panics
    /// As [`DynEncoder::encode`], and if the state is of another encoder, or the codec is not
    /// stateful.
    pub fn encode_with(
        &self,
        state: &mut State,
        keep: bool,
        record: &Record,
        out: &mut Vec<u8>,
    ) -> Result<(), CodecError> {
        assert!(Arc::ptr_eq(&self.shape, record.shape()), "the record is of another shape than the encoder");
        // SAFETY: the program was made for the record's layout, and the record is borrowed.
        unsafe { self.executable.encode_with(state, keep, record.as_ptr(), out, &self.limits) }
    }

    /// The shape of the records.
    pub fn shape(&self) -> &Arc<Shape> {
        &self.shape
    }

    /// The program that runs.
    pub fn executable(&self) -> &Executable {
        &self.executable
    }
}

/// Reads records of one shape from one format, as a given writer's schema has them.
#[derive(Clone)]
pub struct DynDecoder {
    executable: Executable,
    shape: Arc<Shape>,
    limits: Limits,
    growth: Growth,
}

impl DynDecoder {
    /// Compiles it for messages of a writer's schema and records of `shape`.
    pub fn new(
        codec: &dyn Codec,
        options: &Options,
        writer: &Schema,
        shape: &Arc<Shape>,
    ) -> Result<DynDecoder, BuildError> {
        DynDecoder::with_backend(codec, options, writer, shape, Backend::Auto)
    }

    /// Compiles it for a back end of your choice.
    pub fn with_backend(
        codec: &dyn Codec,
        options: &Options,
        writer: &Schema,
        shape: &Arc<Shape>,
        backend: Backend,
    ) -> Result<DynDecoder, BuildError> {
        let executable = compile_decode(codec, options, writer, shape, backend)?;
        Ok(DynDecoder { executable, shape: shape.clone(), limits: Limits::default(), growth: Growth::default() })
    }

    /// The same decoder with other limits.
    pub fn with_limits(mut self, limits: Limits) -> DynDecoder {
        self.limits = limits;
        self
    }

    /// Reads one message into `record`, whose memory is used again, as
    /// [`Decoder::decode`](super::Decoder::decode) does, and gives how many bytes it took. After an
    /// error the record is valid, but of no use.
    ///
    /// # Panics
    /// As [`DynEncoder::encode`].
    #[inline]
    pub fn decode(&self, bytes: &[u8], record: &mut Record) -> Result<usize, CodecError> {
        assert!(Arc::ptr_eq(&self.shape, record.shape()), "the record is of another shape than the decoder");
        // SAFETY: the program was made for the record's layout, and the record is borrowed mutably.
        unsafe { self.executable.decode_again(bytes, record.as_mut_ptr(), &self.limits, &self.growth) }
    }

    /// The state of a stream before its first message; none for a codec that is not stateful.
    pub fn state(&self) -> Option<State> {
        self.executable.state()
    }

    /// Reads one message of a stream, as [`Decoder::decode_with`](super::Decoder::decode_with).
    ///
    /// # Panics
    /// As [`DynDecoder::decode`], and if the state is of another decoder, or the codec is not
    /// stateful.
    pub fn decode_with(
        &self,
        state: &mut State,
        keep: bool,
        bytes: &[u8],
        record: &mut Record,
    ) -> Result<usize, CodecError> {
        assert!(Arc::ptr_eq(&self.shape, record.shape()), "the record is of another shape than the decoder");
        let value = record.as_mut_ptr();
        // SAFETY: the program was made for the record's layout, and the record is borrowed mutably.
        unsafe { self.executable.decode_again_with((state, keep), bytes, value, &self.limits, &self.growth) }
    }

    /// Reads one message and gives the bytes by which the record grew, as
    /// [`Decoder::decode_measured`](super::Decoder::decode_measured).
    ///
    /// # Panics
    /// As [`DynDecoder::decode`], and as [`DynDecoder::decode_with`].
    #[inline]
    pub fn decode_measured(&self, payload: Payload<'_>, record: &mut Record) -> Result<usize, CodecError> {
        assert!(Arc::ptr_eq(&self.shape, record.shape()), "the record is of another shape than the decoder");
        // SAFETY: the program was made for the record's layout, and the record is borrowed mutably.
        unsafe { self.executable.decode_measured(payload, record.as_mut_ptr(), &self.limits, &self.growth) }
    }

    /// The shape of the records.
    pub fn shape(&self) -> &Arc<Shape> {
        &self.shape
    }

    /// The program that runs.
    pub fn executable(&self) -> &Executable {
        &self.executable
    }
}
