//! Codecs as programs: a small tree of typed operations that moves one value between memory and
//! wire.
//!
//! A codec is a front end: it *lowers* a schema and a layout to a [`Program`]. Passes fuse what
//! belongs together ([`Program::prepared`]), a verifier holds the result to the rules that make it
//! safe ([`Program::verify`]), and one of two back ends runs it: the interpreter, which is the
//! reference, or, with the feature `jit`, machine code made by Cranelift. `spec/program.md` is the
//! normative text.
//!
//! For authors of codecs: these are the operations that a lowering emits, and the functions that it
//! may add ([`ScalarKernel`] and the other kernels). Passes, verifier and back ends are private.
//!
//! Operations share an *accumulator*, one typed scalar: `Get` and `Load` fill it, `Put` and `Store`
//! empty it, `Convert` and `Check` work on it, counts and discriminators are taken from it. Memory
//! is reached through [`Place`]s only, typed paths relative to the *frame*, the value
//! that the enclosing structured operation opened. There are no pointers, jumps or variables, so a
//! program that the verifier passes cannot read or write outside the value and the message,
//! whatever the bytes are.
//!
//! ```
//! use polywire_core::layout::{Kind, Message, Scalar};
//! use polywire_core::program::{
//!     VerifyError, Backend, Block, Check, CodecError, Direction, Executable, FaultKind, Limits, Op,
//!     OpKind, Order, Overflow, PathId, Payload, Place, Program, Routine, Segment, Source, TextForm, Wire,
//! };
//!
//! #[derive(Default, polywire_derive::Message)]
//! struct Pump { id: u32 }
//!
//! // Reads the one member from four bytes, the most significant first.
//! let layout = Pump::shape().layout().clone();
//! let Kind::Struct { fields } = &layout.node(layout.root()).kind else { panic!("it is a structure") };
//! let place = Place::At { offset: fields[0].offset, node: fields[0].node };
//! let op = |kind| Op { path: PathId(1), kind };
//! let get = OpKind::Get(Wire::Fixed { scalar: Scalar::U32, order: Order::Big });
//! let program = Program {
//!     direction: Direction::Decode,
//!     layout: layout.clone(),
//!     root: Block(vec![op(OpKind::Need(4)), op(get), op(OpKind::Store(place))]),
//!     routines: Vec::<Routine>::new(),
//!     adapter: None,
//!     paths: vec!["".into(), "id".into()],
//!     bank: None,
//! };
//! assert_eq!((program.verify(), program.op_count()), (Ok(()), 3));
//!
//! let executable = Executable::new(program.clone(), Backend::Interpreter)?;
//! let mut pump = Pump::default();
//! // SAFETY: the program is one for the layout of `Pump`.
//! let decode = |bytes: &[u8], pump: &mut Pump| unsafe {
//!     executable.decode(Payload::Bytes(bytes), std::ptr::from_mut(pump).cast(), &Limits::default())
//! };
//! assert_eq!((decode(&[0, 0, 1, 2], &mut pump), pump.id), (Ok(4), 0x102));
//! let error: CodecError = decode(&[0, 0], &mut pump).unwrap_err();
//! assert_eq!((error.kind, error.path.as_str(), error.expected, error.got), (FaultKind::Truncated, "id", 4, 2));
//!
//! // The same as one run, which is what the passes make of neighbours.
//! let segment =
//!     Segment { place, at: 0, wire: Scalar::U32, memory: Scalar::U32, count: 1, order: Order::Big, check: None };
//! assert_eq!(segment.size(), 4);
//! let run = op(OpKind::Run { segments: vec![segment], size: 4 });
//! let fused = Program { root: Block(vec![op(OpKind::Need(4)), run]), ..program.clone() };
//! assert_eq!((fused.verify(), fused.message_size()), (Ok(()), Some(4)));
//!
//! // A program that stores what it never read is refused, and so is one that checks nothing.
//! let mut wrong = program.clone();
//! wrong.root.0.remove(1);
//! let error: VerifyError = wrong.verify().unwrap_err();
//! assert!(error.rule.contains("accumulator"));
//! wrong.root = Block(vec![op(OpKind::Check(Check::OneOf([1, 4].into())))]);
//! assert!(wrong.verify().is_err());
//!
//! // What has no place in memory is read and let go: here elements as many as a count says, each a string.
//! let (form, overflow) = (TextForm::CountedNul { order: Order::Little }, Overflow::Refuse);
//! let text = op(OpKind::Text { place: Place::Sink, form, bound: 0, utf16_bound: false, overflow: overflow.clone(), after: 0 });
//! let count = op(OpKind::Get(Wire::Fixed { scalar: Scalar::U32, order: Order::Little }));
//! let (source, element) = (Source::Count, Block(vec![text]));
//! let sequence = op(OpKind::Sequence { place: Place::Sink, source, element, bound: 0, overflow, min_wire: 5 });
//! let skipping = Program { root: Block(vec![op(OpKind::Need(4)), count, sequence]), ..program };
//! let executable = Executable::prepared(skipping, Backend::Interpreter)?;
//! // SAFETY: it is still a program for the layout of `Pump`.
//! let decode = |bytes: &[u8], pump: &mut Pump| unsafe {
//!     executable.decode(Payload::Bytes(bytes), std::ptr::from_mut(pump).cast(), &Limits::default())
//! };
//! assert_eq!(decode(&[1, 0, 0, 0, 2, 0, 0, 0, b'a', 0], &mut pump), Ok(10));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![warn(unreachable_pub)]

use alloc::{boxed::Box, string::String, sync::Arc, vec::Vec};

use crate::layout::{Layout, NodeId, Scalar};

pub(crate) mod adapter;
mod bytes;
pub(crate) mod exec;
mod fault;
mod idle;
pub(crate) mod interp;
pub(crate) mod io;
#[cfg(feature = "jit")]
pub(crate) mod jit;
pub(crate) mod kernel;
pub(crate) mod kernels;
mod limits;
pub(crate) mod passes;
mod payload;
mod say;
pub(crate) mod slice;
mod slots;
pub(crate) mod state;
pub(crate) mod verify;
mod words;

pub use adapter::{Adapter, Events, PositionMap};
pub use bytes::{ByteSlot, Bytes, BytesForm, Coding};
pub use exec::{Backend, ExecError, Executable};
pub use io::{CodecError, Fault, FaultKind, Input, Limits, Output, Status};
pub use kernel::{
    ActionKernel, Cursor, Ending, InlineForm, InlineKernel, MemberDialect, MemberKey, MemberTable, NumberForm, Part,
    PartKernel, RegionDialect, RegionForm, Room, ScalarForm, ScalarKernel, SequenceDialect, ShortText, SliceKernel,
    SymbolKernel, SymbolTable, TestKernel, TextKernel, WideKernel,
};
pub(crate) use payload::Decoded;
pub use payload::Payload;
pub use slice::Elements;
pub use slots::{Arithmetic, NO_VALUE, Operand, SlotOp};
pub use state::{Bank, Policy, Report, State};
pub use verify::VerifyError;

/// Which way a program moves values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From memory to the wire.
    Encode,
    /// From the wire to memory.
    Decode,
}

/// A lowered codec for one type, in one direction: see the [module](self).
#[derive(Clone, Debug)]
pub struct Program {
    /// Its direction.
    pub direction: Direction,
    /// Memory it works on; the frame of [`Program::root`] is the layout's root.
    pub layout: Arc<Layout>,
    /// Its operations.
    pub root: Block,
    /// Blocks reached by [`OpKind::Call`]: the types that contain themselves.
    pub routines: Vec<Routine>,
    /// The conversion of a message before a decode program reads it.
    pub adapter: Option<&'static adapter::Adapter>,
    /// Field paths for errors, by [`PathId`]. `[]` stands for an index that is known only at run
    /// time.
    pub paths: Vec<String>,
    /// The slots that it keeps from one message to the next; none for a stateless codec.
    pub bank: Option<Arc<Bank>>,
}

impl Program {
    /// The same program in the form that back ends run fast: neighbouring operations are fused, and
    /// one bounds check covers as many operations as possible. [`Executable::new`] calls this.
    ///
    /// ```
    /// use polywire_core::codec::{self, Codec, Options};
    /// use polywire_core::layout::Message;
    ///
    /// #[derive(polywire_derive::Message)]
    /// struct Pump { id: u32, station: u16, bar: f32 }
    /// let (cdr, shape) = (codec::find("cdr").unwrap(), Pump::shape());
    /// let lowered = cdr.lower_encode(&Options::default(), shape.schema(), shape.layout())?;
    /// let prepared = lowered.clone().prepared();
    /// assert!(prepared.op_count() < lowered.op_count());
    /// assert_eq!(prepared.message_size(), Some(12));
    /// # Ok::<(), codec::LowerError>(())
    /// ```
    pub fn prepared(self) -> Program {
        passes::prepare(self)
    }

    /// Checks the rules of `spec/program.md` that make the program safe to run.
    /// [`Executable::prepared`] calls this.
    pub fn verify(&self) -> Result<(), VerifyError> {
        verify::verify(self)
    }

    /// The number of operations, those of all blocks together.
    pub fn op_count(&self) -> usize {
        passes::op_count(self)
    }

    /// The bytes that every message has on the wire; `None` if messages differ in size.
    pub fn message_size(&self) -> Option<usize> {
        passes::message_size(self)
    }
}

/// A block with its own frame, so that it can call itself.
#[derive(Clone, Debug)]
pub struct Routine {
    /// The node of the frame; none for a routine that only skips.
    pub frame: Option<NodeId>,
    /// Its operations.
    pub block: Block,
    /// Levels of [`Limits::depth`] that a call costs: more than one where blocks are deeply nested,
    /// so that the limit also bounds the stack. The passes set it.
    pub levels: u32,
}

/// Operations in order.
#[derive(Clone, Debug, Default)]
pub struct Block(pub Vec<Op>);

/// Index into [`Program::paths`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathId(pub u32);

/// One operation, and the field that an error of it names.
#[derive(Clone, Debug)]
pub struct Op {
    /// The field.
    pub path: PathId,
    /// What to do.
    pub kind: OpKind,
}

/// A typed place in the frame, or the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// No place: a decoder reads and checks the value and discards it.
    Sink,
    /// `node`, `offset` bytes into the frame.
    At {
        /// Bytes from the start of the frame.
        offset: u32,
        /// What lies there.
        node: NodeId,
    },
}

/// Order of the bytes of a scalar on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Least significant first.
    Little,
    /// Most significant first.
    Big,
}

/// A scalar's form on the wire.
#[derive(Clone, Debug)]
pub enum Wire {
    /// As many bytes as in memory.
    Fixed {
        /// How to read them.
        scalar: Scalar,
        /// In which order they come.
        order: Order,
    },
    /// A codec's own function reads and writes it.
    Kernel(&'static ScalarKernel),
    /// Encoding: a function of the codec that writes it in one step. The word is the function's
    /// argument.
    Inline(&'static InlineKernel, u64),
    /// One of a set of named numbers, mostly enum literals. A codec's own function reads and writes
    /// it.
    Symbol(&'static SymbolKernel, Arc<SymbolTable>),
    /// An integer in groups of seven bits, the most significant first. The last byte has its
    /// highest bit set.
    StopBit(StopBit),
    /// Decoding: the next of the bytes in hand, a `U8`: for elements that are wider than octets.
    Octet,
}

impl Wire {
    /// Type of the accumulator after `Get` and before `Put`.
    pub fn scalar(&self) -> Scalar {
        match self {
            Wire::Fixed { scalar, .. } => *scalar,
            Wire::Kernel(kernel) => kernel.scalar,
            Wire::Inline(kernel, _) => kernel.scalar,
            Wire::Symbol(kernel, _) => kernel.scalar,
            Wire::StopBit(form) => form.scalar,
            Wire::Octet => Scalar::U8,
        }
    }
}

/// The form of a [`Wire::StopBit`].
///
/// ```
/// use polywire_core::layout::Scalar;
/// use polywire_core::program::{FaultKind, Policy, StopBit, Wire};
/// // An octet, sent as the difference from the first local.
/// let form = StopBit { base: Some(0), ..StopBit::new(Scalar::U8) };
/// assert_eq!((form.range, form.policy), (FaultKind::IntegerRange, Policy::Reject));
/// assert_eq!(Wire::StopBit(form).scalar(), Scalar::U8);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopBit {
    /// The accumulator: an integer. What it cannot hold is refused.
    pub scalar: Scalar,
    /// The integer is nullable: zero on the wire means absent, and numbers from zero on are one
    /// more on the wire. When decoding, this local becomes 1 if the integer is present and 0 if it
    /// is absent; the accumulator of an absent one is zero. When encoding, the integer is always
    /// present.
    pub there: Option<u8>,
    /// The wire has the difference from this local.
    pub base: Option<u8>,
    /// The fault for a number that the scalar cannot hold.
    pub range: FaultKind,
    /// The policy for numbers with more bytes than they need, and, if `range` is
    /// [`FaultKind::IntegerRange`], for sums beyond the scalar. A sum that passes is taken modulo
    /// the scalar's size.
    pub policy: Policy,
}

impl StopBit {
    /// An integer that is always present, without a base; deviations are refused.
    pub fn new(scalar: Scalar) -> StopBit {
        StopBit { scalar, there: None, base: None, range: FaultKind::IntegerRange, policy: Policy::Reject }
    }
}

/// A string's form on the wire.
#[derive(Clone, Debug)]
pub enum TextForm {
    /// A count of 32 bits, UTF-8, and a NUL that is counted: CDR and BSON.
    CountedNul {
        /// Order of the count's bytes.
        order: Order,
    },
    /// A codec's own function reads and writes it.
    Kernel(&'static TextKernel),
    /// No form on the wire: moves between the string and the bytes in hand, for [`OpKind::Bytes`].
    Held,
}

/// What to do with a value that the reader's type has no room for.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Overflow {
    /// Refuse the message.
    #[default]
    Refuse,
    /// Cut it to the bound.
    Trim,
    /// Take the default instead: this text, or no elements.
    UseDefault(Arc<str>),
}

/// Where a sequence's elements end.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    /// After as many as the accumulator says.
    Count,
    /// After this many: an array.
    Fixed(u32),
    /// Where the format's delimiters end them.
    Dialect(&'static SequenceDialect),
    /// The same, and the elements are appended to those already present: for a sequence or map that
    /// a format may send in pieces.
    Append(&'static SequenceDialect),
}

/// A condition on the accumulator.
#[derive(Clone, Debug)]
pub enum Check {
    /// It is 0 or 1; makes a boolean of an octet.
    Bool,
    /// It is a literal of the enum at `node`. If it is not and there is an `otherwise`, that
    /// replaces it.
    Enum {
        /// The enum.
        node: NodeId,
        /// `@default_literal` of the reader.
        otherwise: Option<i32>,
    },
    /// It lies between these, both included.
    Range {
        /// Smallest allowed.
        min: i128,
        /// Largest allowed.
        max: i128,
    },
    /// It is one of these, in ascending order: the literals of a writer's enum that has no place in
    /// memory.
    OneOf(Arc<[i64]>),
    /// No condition: clears all bits but these. It drops the flags of a bitmask that the reader
    /// lacks.
    Keep(u64),
    /// It lies between these, both included; else there is a fault of the given kind.
    Within {
        /// Smallest allowed.
        min: i64,
        /// Largest allowed.
        max: i64,
        /// The fault for another number.
        fault: FaultKind,
        /// Decoding: the policy for another number.
        policy: Policy,
    },
}

/// A part of a [`OpKind::Run`]: scalars side by side in memory and on the wire.
#[derive(Clone, Debug)]
pub struct Segment {
    /// Where they are in memory; [`Place::Sink`] for wire bytes that are zero (encode) or passed
    /// over (decode). The node is that of *one* scalar.
    pub place: Place,
    /// Bytes from where the run starts on the wire.
    pub at: u32,
    /// The scalar on the wire. In memory it may be wider, never narrower, and of the same family.
    pub wire: Scalar,
    /// The scalar in memory.
    pub memory: Scalar,
    /// The number of scalars; more than one only if `wire` and `memory` are the same.
    pub count: u32,
    /// Order on the wire.
    pub order: Order,
    /// Decoding: the check before the scalar is stored: [`Check::Bool`] or [`Check::Enum`], where
    /// memory demands it.
    pub check: Option<Check>,
}

impl Segment {
    /// Bytes on the wire.
    pub fn size(&self) -> u32 {
        self.count * self.wire.size() as u32
    }
}

/// A member that a [`OpKind::Members`] can meet.
#[derive(Clone, Debug)]
pub struct Arm {
    /// How the format names it.
    pub key: MemberKey,
    /// The bytes that usually precede its value.
    pub prefix: Option<ExpectedPrefix>,
    /// Decodes its value.
    pub body: Block,
    /// Runs at the end if the member did not occur: stores the default, or [`OpKind::Fail`]s.
    pub absent: Block,
}

/// The expected prefix of a member: all bytes that a writer which keeps to the order puts in front
/// of the member's value. They follow the value of the previous arm or, if that is optional, of an
/// earlier one; for the first arm, the beginning of the members.
///
/// A back end that finds these bytes may skip them without a call of the dialect. So the prefix
/// promises that the dialect, called at this position, would have exactly the effects given here.
///
/// ```
/// use polywire_core::program::{ExpectedPrefix, PrefixTag};
/// // The second member of the JSON object {"id":1,"name":"x"}.
/// let prefix = ExpectedPrefix::new(b",\"name\":");
/// assert_eq!(prefix, ExpectedPrefix { bytes: (*b",\"name\":").into(), tag: PrefixTag::Keep, note: None, counted: false, optional: false });
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedPrefix {
    /// The bytes.
    pub bytes: Box<[u8]>,
    /// Whether writers leave members of this arm out. If so, the next arm may come instead.
    pub optional: bool,
    /// The effect on [`Input::tag`].
    pub tag: PrefixTag,
    /// The index of a bit of the cursor, counted through words of 64 bits, that becomes set. The
    /// prefix does not apply if it is set already.
    pub note: Option<u8>,
    /// The cursor's first word is decremented, unless it is [`u64::MAX`]. The prefix does not apply
    /// if it is 0.
    pub counted: bool,
}

/// See [`ExpectedPrefix::tag`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefixTag {
    /// It stays as it is.
    Keep,
    /// It becomes the byte in front of the prefix, which is not 0.
    Byte,
    /// It becomes this.
    Is(u32),
}

impl ExpectedPrefix {
    /// A prefix of these bytes, without effects on tag or cursor.
    pub fn new(bytes: &[u8]) -> ExpectedPrefix {
        ExpectedPrefix { bytes: bytes.into(), optional: false, tag: PrefixTag::Keep, note: None, counted: false }
    }
}

/// The exponent of a number that is no decimal.
pub const NO_DECIMAL: i64 = i64::MIN;

/// What [`OpKind::Decimal`] does. A decimal is a mantissa, in the accumulator, and an exponent of
/// ten, in a local.
///
/// ```
/// use polywire_core::layout::Scalar;
/// use polywire_core::program::{Decimal, NO_DECIMAL, Policy};
/// // 12.5 becomes 125 and -1, or 1250 and -2 if the local had -2; what has no decimal has this exponent:
/// let (there, back) = (Decimal::Split { exponent: 0 }, Decimal::Join { exponent: 0, to: Scalar::F64, policy: Policy::Reject });
/// assert!(there != back && NO_DECIMAL < -400);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decimal {
    /// E: splits the accumulator, an `F32`, `F64` or `I64`, into mantissa and exponent. A
    /// floating-point number gets the exponent that the local had before if it is exactly such a
    /// decimal, else the largest exponent with which it is one, or [`NO_DECIMAL`] if there is none.
    /// The mantissa of an integer ends in no zero.
    Split {
        /// The local of the exponent.
        exponent: u8,
    },
    /// E: the same decimal with another exponent, or a fault.
    Shift {
        /// The local of the exponent.
        exponent: u8,
        /// The exponent that it becomes.
        to: i64,
    },
    /// D: accumulator from mantissa and exponent. The exponent lies between -63 and 63.
    Join {
        /// The local of the exponent.
        exponent: u8,
        /// The type of the result: an `F32` or `F64` (the nearest), or an `I64`.
        to: Scalar,
        /// The policy for an exponent out of range, and for a decimal that is no `I64`: if it
        /// passes, its fraction is cut off. An exponent of more than 32 bits never passes.
        policy: Policy,
    },
}

/// The operations. E: in encode programs, D: in decode programs.
#[derive(Clone, Debug)]
pub enum OpKind {
    /// E D: reserves `n` bytes: makes room for them (E), or checks that the message has them (D).
    /// The bytes that operations of fixed size move count against the reservation.
    Need(u32),
    /// E D: moves to the next multiple of `n` (1, 2, 4, 8) from the origin; E writes zeros.
    Align(u8),
    /// E D: moves fixed-size scalars at known distances. The wire bytes between segments are zero
    /// (E) or passed over (D).
    Run {
        /// In ascending order of `at`, without overlap.
        segments: Vec<Segment>,
        /// Bytes on the wire, all together.
        size: u32,
    },
    /// E: writes bytes.
    Literal(Box<[u8]>),
    /// E D: accumulator from a scalar or enum in memory. D: only one that was stored before.
    Load(Place),
    /// D: scalar or enum in memory from the accumulator.
    Store(Place),
    /// D: accumulator from the wire.
    Get(Wire),
    /// E: accumulator to the wire.
    Put(Wire),
    /// E D: accumulator from a constant: the bits of the scalar in the low bytes.
    Const(Scalar, u128),
    /// E: accumulator (`U64`) from the number of elements of a sequence or map, or bytes of a
    /// string.
    Length(Place),
    /// E: accumulator (`U64`) from the index of the current element of the innermost sequence or
    /// map.
    Index,
    /// E D: converts the accumulator to another type: an integer to an integer must be in range, an
    /// integer to a float becomes the nearest one, a float changes its width.
    Convert(Scalar),
    /// E D: refuses or replaces an accumulator that does not meet the condition.
    Check(Check),
    /// E D: a string.
    Text {
        /// The string.
        place: Place,
        /// Its form.
        form: TextForm,
        /// Largest number of bytes (of UTF-16 units, if `utf16_bound`); 0 is unbounded.
        bound: u32,
        /// The bound counts UTF-16 code units.
        utf16_bound: bool,
        /// What to do past the bound.
        overflow: Overflow,
        /// E: the reservation behind the string, in bytes; the passes set it.
        after: u32,
    },
    /// D: a string from a constant.
    SetText(Place, Box<str>),
    /// E D: the elements of a sequence of plain scalars as one piece. D takes their number from the
    /// accumulator.
    Bulk {
        /// The sequence.
        place: Place,
        /// An element, in memory and on the wire.
        scalar: Scalar,
        /// Order on the wire.
        order: Order,
        /// Largest number of elements; 0 is unbounded.
        bound: u32,
        /// What to do past the bound.
        overflow: Overflow,
    },
    /// E D: all elements of a sequence or array of plain scalars, by one function of the codec.
    Slice {
        /// The sequence or array.
        place: Place,
        /// The function.
        kernel: &'static SliceKernel,
        /// Largest number of elements; 0 is unbounded.
        bound: u32,
        /// What to do past the bound.
        overflow: Overflow,
    },
    /// E D: the elements of a sequence or array one by one. The element's frame is the element.
    Sequence {
        /// The sequence or array.
        place: Place,
        /// D: where they end. E ignores it.
        source: Source,
        /// What to do with each.
        element: Block,
        /// Largest number of elements; 0 is unbounded.
        bound: u32,
        /// What to do past the bound.
        overflow: Overflow,
        /// D: an element takes at least this many bytes, so a count can be refused before anything
        /// is allocated.
        min_wire: u32,
    },
    /// E D: the entries of a map one by one. The frames are key and value.
    Map {
        /// The map.
        place: Place,
        /// D: where they end. E ignores it.
        source: Source,
        /// What to do with a key.
        key: Block,
        /// What to do with a value, after its key.
        value: Block,
        /// Largest number of entries; 0 is unbounded.
        bound: u32,
        /// What to do past the bound.
        overflow: Overflow,
        /// D: an entry takes at least this many bytes.
        min_wire: u32,
    },
    /// E: `then` with the value as frame if the optional is present, else `otherwise`.
    IfPresent {
        /// The optional.
        place: Place,
        /// Present.
        then: Block,
        /// Absent; same frame as outside.
        otherwise: Block,
    },
    /// D: makes the optional present and runs `body` with the value as frame.
    Present {
        /// The optional.
        place: Place,
        /// Decodes the value.
        body: Block,
    },
    /// D: empties an optional, sequence, map or string.
    Clear(Place),
    /// E D: runs `body` with the value behind the pointer as frame.
    Unbox {
        /// The pointer.
        place: Place,
        /// What to do with the value.
        body: Block,
    },
    /// E: runs the arm of the case that the union holds with the case's value as frame; the
    /// accumulator (`I64`) is the discriminator.
    Union {
        /// The union.
        place: Place,
        /// One for each case.
        arms: Vec<Block>,
        /// Runs for a discriminator without a case; same frame as outside.
        none: Block,
    },
    /// D: selects a case, with the accumulator (`I64`) as discriminator, and runs `body` with its
    /// value as frame.
    Select {
        /// The union.
        place: Place,
        /// The case; none for a discriminator without a case, and then `body` is empty.
        case: Option<u32>,
        /// Decodes the value.
        body: Block,
    },
    /// E D: runs the arm that has the accumulator (an integer or boolean) among its labels.
    Switch {
        /// Labels in ascending order, no label twice, with the index of the arm that each chooses.
        labels: Vec<(i64, u32)>,
        /// What the labels choose.
        arms: Vec<Block>,
        /// For all other values.
        otherwise: Block,
    },
    /// E D: runs `then` if the accumulator (a boolean) is true, else `otherwise`.
    If {
        /// True.
        then: Block,
        /// False.
        otherwise: Block,
    },
    /// D: accumulator (a boolean) from a test of the next bytes.
    Test(&'static TestKernel),
    /// E D: something with the bytes in hand, a second accumulator.
    Bytes(Bytes),
    /// E D: reads or writes a presence map in front of `body`, and runs `body`, in which
    /// [`OpKind::TakeBit`] and [`OpKind::KnownBits`] read or write the presence bits. The map is
    /// bytes of seven bits, the last of which has its highest bit set. Zeros at the end are elided.
    PresenceMap {
        /// E: the largest number of bits that are written.
        bits: u32,
        /// D: the policy for a map that is too long, or has set bits that no operation took.
        policy: Policy,
        /// What is inside.
        body: Block,
    },
    /// D: accumulator (a boolean) from the next bit of the presence map. Bits behind its end are
    /// zero.
    TakeBit,
    /// E D: presence bits with known values: E writes them, D checks them.
    KnownBits {
        /// The number of zeros.
        zeros: u32,
        /// Whether a one follows them.
        one: bool,
    },
    /// E D: something with a slot or a local.
    Slot(SlotOp),
    /// E D: a number as a decimal, or the other way.
    Decimal(Decimal),
    /// E D: a function of the codec, with an argument.
    Action(&'static ActionKernel, u64),
    /// E D: runs `body` between a beginning and an end that the codec supplies: back-patched
    /// lengths, a bounded sub-input, another origin.
    Region {
        /// Beginning and end.
        dialect: &'static RegionDialect,
        /// For the dialect: an id, flags, ...
        argument: u64,
        /// What is inside.
        body: Block,
    },
    /// D: members in any order, by name, id or tag.
    Members {
        /// How the format writes them.
        dialect: &'static MemberDialect,
        /// The known members.
        arms: Vec<Arm>,
        /// Their keys, made for looking up.
        table: Arc<MemberTable>,
    },
    /// E D: runs a routine with the place as frame. Depth is limited.
    Call {
        /// Index into [`Program::routines`].
        routine: u32,
        /// The frame; [`Place::Sink`] for a routine without one.
        place: Place,
    },
    /// E D: stops with an error.
    Fail(FaultKind),
}

impl OpKind {
    /// The operation [`OpKind::Switch`] with these arms, each with the labels that choose it. If a
    /// label occurs twice, the first arm has it.
    ///
    /// ```
    /// use polywire_core::program::{Block, OpKind};
    ///
    /// let arms = vec![(vec![7, 2], Block::default()), (vec![5], Block::default())];
    /// let OpKind::Switch { labels, .. } = OpKind::switch(arms, Block::default()) else { panic!("it is a switch") };
    /// assert_eq!(labels, [(2, 0), (5, 1), (7, 0)]);
    /// ```
    pub fn switch(arms: Vec<(Vec<i64>, Block)>, otherwise: Block) -> OpKind {
        let (mut labels, mut blocks) = (Vec::new(), Vec::with_capacity(arms.len()));
        for (at, (of_arm, block)) in arms.into_iter().enumerate() {
            labels.extend(of_arm.into_iter().map(|label| (label, at as u32)));
            blocks.push(block);
        }
        labels.sort_unstable();
        labels.dedup_by_key(|(label, _)| *label);
        OpKind::Switch { labels, arms: blocks, otherwise }
    }

    /// The operation [`OpKind::Members`] with a table of these arms.
    pub(crate) fn members(dialect: &'static MemberDialect, arms: Vec<Arm>) -> OpKind {
        let table = Arc::new(MemberTable::new(arms.iter().map(|arm| arm.key.clone()).collect()));
        OpKind::Members { dialect, arms, table }
    }
}

/// The arm of an [`OpKind::Switch`] with these labels that a value chooses; none for a value that
/// is no label. A binary search: a schema from outside may have many thousand labels.
pub(crate) fn arm_of(labels: &[(i64, u32)], value: i128) -> Option<usize> {
    let value = i64::try_from(value).ok()?;
    let found = labels.binary_search_by_key(&value, |(label, _)| *label).ok()?;
    labels.get(found).map(|(_, arm)| *arm as usize)
}

impl Place {
    /// The node at the place; none for a sink.
    pub fn node(&self) -> Option<NodeId> {
        match self {
            Place::Sink => None,
            Place::At { node, .. } => Some(*node),
        }
    }
}
