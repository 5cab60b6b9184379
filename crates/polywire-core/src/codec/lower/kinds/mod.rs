//! Shared lowering of self-describing binary formats: MessagePack, CBOR and UBJSON.
//!
//! Each of these codecs implements [`Format`], which reads and writes the heads of values, and uses
//! the dialects that this module makes of it for both walks. The dialects contain kernels that read
//! a value from any kind of item that can hold it.

use alloc::vec::Vec;

use crate::{
    codec::{OptionSpec, Options},
    layout::Scalar,
    program::{
        FaultKind, Input, Limits, Output, Status,
        io::CodecError,
        kernel::{Room, ShortText},
    },
};

mod decode;
mod delimiters;
mod encode;
mod get;
mod put;
mod slices;

pub use decode::Decode;
pub use encode::Encode;
pub use get::{exact, fixed, skip_items, whole, whole_unsigned};

/// A format in which each value begins with its kind.
///
/// A function that reads calls [`Input::fail`] before it returns [`Status::Failed`], and otherwise
/// leaves the position after the bytes that it read.
pub trait Format: Sized + 'static {
    /// True if map keys may have any kind; false if they are always names.
    const NATIVE_KEYS: bool;
    /// True if arrays and maps always state the number of their elements.
    const COUNTED: bool;
    /// True if a structure ends with an end mark and does not state the number of its members.
    const CLOSED: bool;
    /// True if an array may state a common kind for elements, which then do not state it. While
    /// such an element is read, [`Input::tag`] is that kind.
    const TYPED: bool;
    /// True if writers of the format use null for NaN.
    const NULL_IS_NAN: bool;
    /// The form in which [`Format::put_text`] writes short texts, for machine code. `None` if it is
    /// not simple enough.
    const SHORT_TEXT: Option<ShortText>;

    /// Reads a value up to its content. Numbers and constants are read completely.
    fn head(input: &mut Input<'_>) -> Result<Head, Status>;

    /// Skips a value.
    fn skip(input: &mut Input<'_>) -> Result<(), Status>;

    /// Reads the name of a map entry. Returns `None`, after skipping the key, if the key is not a
    /// name.
    fn name<'a>(input: &mut Input<'a>) -> Result<Option<&'a [u8]>, Status>;

    /// Tests for the end of a map (or array, if `map` is false) of unknown length, and skips its
    /// end mark.
    fn ends(input: &mut Input<'_>, map: bool) -> Result<bool, Status>;

    /// Tests for null and skips it.
    fn null(input: &mut Input<'_>) -> bool;

    /// Reads the next piece of a text (or of bytes, if `text` is false) of unknown length. `None`
    /// at its end.
    fn piece<'a>(input: &mut Input<'a>, text: bool) -> Result<Option<&'a [u8]>, Status>;

    /// Copies a typed array's elements to `room`, if they have the host's representation of
    /// `scalar`. Returns false, having read nothing, if they do not.
    fn plain(_input: &mut Input<'_>, _kind: u32, _scalar: Scalar, _room: &mut [u8]) -> Result<bool, Status> {
        Ok(false)
    }

    /// Writes an integer. Returns its length in bytes.
    fn unsigned(room: &mut Room, value: u64) -> usize;

    /// Writes an integer. Returns its length in bytes.
    fn signed(room: &mut Room, value: i64) -> usize;

    /// Writes an integer.
    #[inline]
    fn put_unsigned(output: &mut Output<'_>, value: u64) -> Status {
        output.put_inline(|room| Self::unsigned(room, value))
    }

    /// Writes an integer.
    #[inline]
    fn put_signed(output: &mut Output<'_>, value: i64) -> Status {
        output.put_inline(|room| Self::signed(room, value))
    }

    /// Writes a text.
    fn put_text(output: &mut Output<'_>, text: &str) -> Status;

    /// The head of a name of `len` bytes: a word, first byte in its low byte, and the number of its
    /// bytes, at most eight.
    fn name_head(len: usize) -> (u64, usize);

    /// Writes the name of a member or of a map entry.
    fn put_name(output: &mut Output<'_>, name: &str) -> Status {
        let (head, len) = Self::name_head(name.len());
        output.put_word(head, len).then(|| output.put(name.as_bytes()))
    }

    /// Writes the head of `len` octets.
    fn put_bytes(output: &mut Output<'_>, len: u64) -> Status;

    /// Writes the head of an array with `len` elements.
    fn put_array(output: &mut Output<'_>, len: u64) -> Status;

    /// Writes the head of a map with `len` entries.
    fn put_map(output: &mut Output<'_>, len: u64) -> Status;

    /// Writes an array whose elements have the host's representation. `None` if the format has no
    /// compact form for them.
    fn put_plain(_output: &mut Output<'_>, _scalar: Scalar, _elements: &[u8]) -> Option<Status> {
        None
    }

    /// Writes a floating-point number in as few bytes as represent it exactly.
    fn put_shortest(output: &mut Output<'_>, value: f64) -> Status;

    /// Sorts the entries of the map written since `start`. Used only with [`Style::sorted`].
    fn sort(_output: &mut Output<'_>, _start: usize) -> Status {
        Status::Ok
    }

    /// The type bytes of constants, and of floating-point numbers whose bytes follow, most
    /// significant first.
    const TYPE_BYTES: TypeBytes;
}

/// Type bytes of a format: see [`Format::TYPE_BYTES`].
pub struct TypeBytes {
    /// Type byte of null.
    pub null: u8,
    /// Type byte of false.
    pub no: u8,
    /// Type byte of true.
    pub yes: u8,
    /// Type byte of a floating-point number of four bytes.
    pub single: u8,
    /// Type byte of a floating-point number of eight bytes.
    pub double: u8,
    /// The end mark of a [closed](Format::CLOSED) structure.
    pub end: u8,
}

/// Writes a type byte and the low `bytes` bytes of a word, most significant first: at most nine
/// bytes. Returns their number.
#[inline(always)]
pub fn type_byte_and_word(room: &mut Room, mark: u8, word: u64, bytes: u32) -> usize {
    let word = word.swap_bytes() >> (64 - 8 * bytes);
    room.set((u128::from(mark) | u128::from(word) << 8).to_le_bytes());
    1 + bytes as usize
}

/// The head of a value: its kind and, for short values, the value itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Head {
    /// An integer.
    Unsigned(u64),
    /// The integer -1 - n.
    Negative(u64),
    /// A floating-point number of 32 bits.
    Single(f32),
    /// A floating-point number of 64 bits.
    Double(f64),
    /// A number in decimal digits: the nearest finite `f64`, and the integer that it is.
    Decimal(f64, Whole),
    /// A boolean.
    Bool(bool),
    /// Null.
    Null,
    /// Text of this many bytes, or [`OPEN`].
    Text(u64),
    /// This many octets, or [`OPEN`].
    Bytes(u64),
    /// An array.
    Array(Extent),
    /// A map.
    Map(Extent),
    /// A kind that represents no value of any type.
    Other,
}

/// The integer that a number in decimal digits is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whole {
    /// This integer.
    Unsigned(u64),
    /// The integer -1 - n.
    Negative(u64),
    /// None, or one that does not fit 64 bits and a sign.
    Other,
}

/// The length of items that continue until an end mark.
pub const OPEN: u64 = u64::MAX;

/// The number of elements or entries, and their common kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The number, or [`OPEN`].
    pub count: u64,
    /// The kind that elements do not state themselves. 0 if each states its own.
    pub kind: u32,
}

impl Extent {
    /// `count` items, each with its own kind.
    pub fn of(count: u64) -> Extent {
        Extent { count, kind: 0 }
    }
}

/// Options of these formats.
#[derive(Clone, Copy, Debug, Default)]
pub struct Style {
    /// Write enum literals as names.
    pub enum_names: bool,
    /// Write absent members as null.
    pub write_null: bool,
    /// Write structures as arrays of their members' values.
    pub rows: bool,
    /// Sort members and map entries by the bytes of their keys, and write floating-point numbers as
    /// short as possible.
    pub sorted: bool,
}

impl Style {
    pub const STRUCT: OptionSpec = OptionSpec::new(
        "struct",
        &["map", "array"],
        "structures as maps by member name, or as arrays of the members' values in order",
    );
    pub const ENUM: OptionSpec =
        OptionSpec::new("enum", &["number", "name"], "enum literals as numbers, or as their names; both are accepted");

    /// Reads the options that all of these formats have.
    pub fn of(options: &Options) -> Style {
        Style {
            enum_names: options.value("enum") == Some("name"),
            write_null: options.value("null") == Some("write"),
            rows: options.value("struct") == Some("array"),
            sorted: false,
        }
    }
}

/// Name of the entry that selects a union's case if the name of its member does not.
const DISCRIMINATOR: &str = "$discriminator";

/// The bytes that `put` writes, for use as a constant in a program.
fn bytes_of(put: impl FnOnce(&mut Output<'_>) -> Status) -> Vec<u8> {
    let (mut bytes, limits) = (Vec::new(), Limits::default());
    let mut output = Output::new(&mut bytes, &limits);
    let status = put(&mut output);
    assert!(output.finish(status) == Status::Ok, "names and heads are shorter than any limit");
    bytes
}

/// Checks that `bytes` are exactly one well-formed value.
pub fn validate<F: Format>(bytes: &[u8], limits: &Limits) -> Result<(), CodecError> {
    Input::inspect(bytes, limits, |input| {
        Status::of(F::skip(input)).then(|| match input.remaining() {
            0 => Status::Ok,
            left => input.fail(FaultKind::Trailing, 0, left as u64),
        })
    })
}
