//! What formats share whose values say their own kind: MessagePack, CBOR, UBJSON.
//!
//! Such a format supplies a [`Format`]: how the heads of values are read and written. The dialects
//! for both walks, and the kernels that take a value from every kind that holds it, are made from
//! that.

use alloc::vec::Vec;

use crate::{
    codec::Options,
    layout::Scalar,
    program::{
        FaultKind, Input, Limits, Output, Status,
        io::CodecError,
        kernel::{Room, ShortText},
    },
};

mod decode;
mod encode;
mod get;
mod marks;
mod put;
mod slices;

pub use decode::Decode;
pub use encode::Encode;
pub use get::{fixed, skip_items};
pub use put::with_decimal;

/// A format whose values begin with what they are.
///
/// Those who read have called [`Input::fail`] before they give [`Status::Failed`], and leave the
/// position behind what they have read.
pub trait Format: Sized + 'static {
    /// Keys of maps may be of any kind; else they are names.
    const NATIVE_KEYS: bool;
    /// Arrays and maps always say how many elements they have.
    const COUNTED: bool;
    /// A structure ends with a mark, and does not say how many members it has.
    const CLOSED: bool;
    /// Arrays may say the kind of all their elements, which then lack it: [`Input::tag`] is that
    /// kind where one is read.
    const TYPED: bool;
    /// Null is how writers of the format say NaN.
    const NULL_IS_NAN: bool;
    /// How [`Format::put_text`] writes short ones, if that is simple.
    const SHORT_TEXT: Option<ShortText>;

    /// Reads a value up to where its content begins; of numbers and names of constants, all of it.
    fn head(input: &mut Input<'_>) -> Result<Head, Status>;

    /// Passes over a value.
    fn skip(input: &mut Input<'_>) -> Result<(), Status>;

    /// Reads the name of a map's entry; none if the key is something else, which was passed over
    /// then.
    fn name<'a>(input: &mut Input<'a>) -> Result<Option<&'a [u8]>, Status>;

    /// True, and behind it, if a map (or else an array) of no known length ends here.
    fn ends(input: &mut Input<'_>, map: bool) -> Result<bool, Status>;

    /// True, and behind it, if null comes next.
    fn null(input: &mut Input<'_>) -> bool;

    /// The next piece of a text (or else of bytes) of no known length.
    fn piece<'a>(input: &mut Input<'a>, text: bool) -> Result<Option<&'a [u8]>, Status>;

    /// Fills `room` with a typed array's elements, as the host has them, if they are just such.
    fn plain(_input: &mut Input<'_>, _kind: u32, _scalar: Scalar, _room: &mut [u8]) -> Result<bool, Status> {
        Ok(false)
    }

    /// Writes an integer, and gives how many bytes it has.
    fn unsigned(room: &mut Room, value: u64) -> usize;

    /// Writes an integer, and gives how many bytes it has.
    fn signed(room: &mut Room, value: i64) -> usize;

    /// Writes an integer.
    #[inline]
    fn put_unsigned(output: &mut Output<'_>, value: u64) -> Status {
        output.put_brief(|room| Self::unsigned(room, value))
    }

    /// Writes an integer.
    #[inline]
    fn put_signed(output: &mut Output<'_>, value: i64) -> Status {
        output.put_brief(|room| Self::signed(room, value))
    }

    /// Writes a text.
    fn put_text(output: &mut Output<'_>, text: &str) -> Status;

    /// What stands before a name of so many bytes: at most eight bytes of a word, the first in its
    /// low byte.
    fn name_head(len: usize) -> (u64, usize);

    /// Writes the name of a member, or of a map's entry.
    fn put_name(output: &mut Output<'_>, name: &str) -> Status {
        let (head, len) = Self::name_head(name.len());
        match output.put_word(head, len) {
            Status::Ok => output.put(name.as_bytes()),
            failed => failed,
        }
    }

    /// Writes what stands before so many octets.
    fn put_bytes(output: &mut Output<'_>, len: u64) -> Status;

    /// Writes what stands before so many elements.
    fn put_array(output: &mut Output<'_>, len: u64) -> Status;

    /// Writes what stands before so many entries.
    fn put_map(output: &mut Output<'_>, len: u64) -> Status;

    /// Writes the elements of an array, as the host has them, if the format has a form for many of
    /// them.
    fn put_plain(_output: &mut Output<'_>, _scalar: Scalar, _elements: &[u8]) -> Option<Status> {
        None
    }

    /// Writes a float in as few bytes as hold it.
    fn put_shortest(output: &mut Output<'_>, value: f64) -> Status;

    /// Sorts the entries of the map that was written from `start` on. Only for [`Style::sorted`].
    fn sort(_output: &mut Output<'_>, _start: usize) -> Status {
        Status::Ok
    }

    /// The marks of constants, and of floats whose bytes follow, the most significant first.
    const MARKS: Marks;
}

/// See [`Format::MARKS`].
pub struct Marks {
    /// Nothing.
    pub null: u8,
    /// A boolean.
    pub no: u8,
    /// A boolean.
    pub yes: u8,
    /// Before four bytes.
    pub single: u8,
    /// Before eight bytes.
    pub double: u8,
    /// What a [closed](Format::CLOSED) structure ends with.
    pub end: u8,
}

/// Writes a byte and so many of the word's bytes, the highest of those first; together they are at
/// most nine.
#[inline(always)]
pub fn marked(room: &mut Room, mark: u8, word: u64, bytes: u32) -> usize {
    let word = word.swap_bytes() >> (64 - 8 * bytes);
    room.set((u128::from(mark) | u128::from(word) << 8).to_le_bytes());
    1 + bytes as usize
}

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Head {
    /// A number.
    Unsigned(u64),
    /// -1 - n.
    Negative(u64),
    /// A number.
    Single(f32),
    /// A number.
    Double(f64),
    /// A boolean.
    Bool(bool),
    /// Nothing.
    Null,
    /// So many bytes of UTF-8, or [`OPEN`].
    Text(u64),
    /// So many octets, or [`OPEN`].
    Bytes(u64),
    /// Elements.
    Array(Extent),
    /// Entries.
    Map(Extent),
    /// What is no type's value.
    Other,
}

/// As many as come until a mark says that there are no more.
pub const OPEN: u64 = u64::MAX;

/// How many there are, and what they all are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// How many, or [`OPEN`].
    pub count: u64,
    /// The kind that all of them lack; 0 if each has its own.
    pub kind: u32,
}

impl Extent {
    /// So many, each with its kind.
    pub fn of(count: u64) -> Extent {
        Extent { count, kind: 0 }
    }
}

/// What options ask for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Style {
    /// Enum literals are written as their names.
    pub enum_names: bool,
    /// Absent members are written as null.
    pub write_null: bool,
    /// Structures are arrays of their members' values.
    pub rows: bool,
    /// Members and map entries are sorted by the bytes of their keys, and floats are as short as
    /// may be.
    pub sorted: bool,
}

impl Style {
    /// Of the options that all such formats have.
    pub fn of(options: &Options) -> Style {
        Style {
            enum_names: options.value("enum") == Some("name"),
            write_null: options.value("null") == Some("write"),
            rows: options.value("struct") == Some("array"),
            sorted: false,
        }
    }
}

/// Name of the entry that says which case a union holds where its member's name does not.
const DISCRIMINATOR: &str = "$discriminator";

/// What a function writes, as a constant.
fn bytes_of(put: impl FnOnce(&mut Output<'_>) -> Status) -> Vec<u8> {
    let (mut bytes, limits) = (Vec::new(), Limits::default());
    let mut output = Output::new(&mut bytes, &limits);
    let status = put(&mut output);
    assert!(output.finish(status) == Status::Ok, "names and heads are shorter than any limit");
    bytes
}

/// Shows that `bytes` are one value and nothing else.
pub fn validate<F: Format>(bytes: &[u8], limits: &Limits) -> Result<(), CodecError> {
    let mut input = Input::new(bytes, limits);
    if bytes.len() > limits.message_bytes {
        let _ = input.fail(FaultKind::Limit, limits.message_bytes as u64, bytes.len() as u64);
    } else if F::skip(&mut input).is_ok() {
        if input.remaining() == 0 {
            return Ok(());
        }
        let left = input.remaining() as u64;
        let _ = input.fail(FaultKind::Trailing, 0, left);
    }
    Err(CodecError::without_path(input.fault()))
}
