//! Kernels and dialects: the functions that a codec adds to the operations. They have names and
//! safe signatures. Lowerings put them into programs, and both back ends call them. They touch the
//! input or output and the arguments that they are given, never other memory.
//!
//! They are `extern "C"` where machine code calls them directly. A kernel that returns
//! [`Status::Failed`] must have called [`Input::fail`] or [`Output::fail`]. None may panic.
//!
//! Kernels are safe code, and codecs outside this crate may bring their own. So memory safety never
//! depends on the promises of a kernel or its form: the verifier checks forms, and the back ends
//! check or clamp the results of kernels. A false promise produces wrong bytes or values, but no
//! unsoundness.
//!
//! ```
//! use polywire_core::layout::Scalar;
//! use polywire_core::program::{SymbolTable, Arm, Block, Input, Limits, MemberKey, MemberTable, Output, ScalarKernel, Status};
//!
//! /// An octet as the format `inverted` has it.
//! static INVERTED: ScalarKernel = ScalarKernel { name: "inverted", scalar: Scalar::U8, get, put, wide: None, form: None };
//!
//! extern "C" fn get(input: &mut Input<'_>, value: &mut u64) -> Status {
//!     match input.take(1) {
//!         Ok(bytes) => {
//!             *value = u64::from(!bytes[0]);
//!             Status::Ok
//!         }
//!         Err(failed) => failed,
//!     }
//! }
//!
//! extern "C" fn put(output: &mut Output<'_>, value: u64) -> Status {
//!     output.put(&[!(value as u8)])
//! }
//!
//! let (limits, mut bytes, mut value) = (Limits::default(), Vec::new(), 0);
//! let status = Output::lend(&mut bytes, &limits, |output| (INVERTED.put)(output, 0xF0));
//! assert_eq!((status, &bytes[..]), (Status::Ok, &[0x0F][..]));
//! let status = Input::lend(&bytes, &limits, |input| (INVERTED.get)(input, &mut value));
//! assert_eq!((status, value), (Status::Ok, 0xF0));
//! assert_eq!(format!("{INVERTED:?}"), "inverted");
//!
//! // What a kernel of names or ids is given.
//! let symbols = SymbolTable::new([(0, "OFF".into()), (4, "ON".into())], None);
//! assert_eq!((symbols.name(4), symbols.value(b"ON"), symbols.iter().count()), (Some("ON"), Some(4), 2));
//! assert_eq!(SymbolTable::new([(1, "#ON".into())], None).value_behind(b'#', b"ON"), Some(1));
//! let key = |id, name: &str| MemberKey { id, name: name.as_bytes().into() };
//! let members = MemberTable::new(vec![key(7, "id"), key(3, "bar")]);
//! assert_eq!((members.by_name(b"bar", 0), members.by_id(7, 0), members.keys().len()), (1, 0, 2));
//! assert_eq!(members.by_id(9, 0), MemberTable::UNKNOWN);
//! let arm = Arm { key: key(7, "id"), prefix: None, body: Block::default(), absent: Block::default() };
//! assert_eq!(arm.key, members.keys()[0]);
//! ```

use alloc::{boxed::Box, string::String, vec::Vec};
use core::{fmt, mem::MaybeUninit, ops::Range};

use super::{Elements, Input, Order, Output, Status};
use crate::layout::Scalar;

/// Three words that a dialect keeps from the beginning of a region or sequence to its end:
/// positions, counts, flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Cursor(pub [u64; 3]);

/// A scalar as a format writes it.
pub struct ScalarKernel {
    /// For dumps and documentation.
    pub name: &'static str,
    /// Type of the accumulator. Integers and booleans are sign- or zero-extended to 64 bits, floats
    /// are their bits.
    pub scalar: Scalar,
    /// Reads one.
    pub get: extern "C" fn(&mut Input<'_>, &mut u64) -> Status,
    /// Writes one.
    pub put: extern "C" fn(&mut Output<'_>, u64) -> Status,
    /// Reads and writes a [`Scalar::F128`], which does not fit 64 bits; `get` and `put` are not
    /// called for it.
    pub wide: Option<WideKernel>,
    /// Describes `get`, if machine code may do the same in line.
    pub form: Option<ScalarForm>,
}

/// Describes [`ScalarKernel::get`], where it is simple, so that a back end need not call it. It
/// promises that `get`, where it succeeds, reads exactly this form and does nothing else. In all
/// cases of error the back end calls the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScalarForm {
    /// How the value is read.
    pub number: NumberForm,
    /// The value that the lowest three bits of [`Input::tag`] must have.
    pub tag: u32,
}

/// How a number is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberForm {
    /// Groups of seven bits, the lowest first. The highest bit of a byte means that more follow. A
    /// boolean is false if all bits are zero.
    Varint,
    /// A varint of a signed number n, sent as 2n if it is not negative, else as -2n - 1.
    Zigzag,
    /// As in memory, the least significant byte first.
    Fixed,
}

/// See the field `wide` of [`ScalarKernel`].
pub struct WideKernel {
    /// Reads one.
    pub get: fn(&mut Input<'_>) -> Result<u128, Status>,
    /// Writes one.
    pub put: fn(&mut Output<'_>, u128) -> Status,
}

/// The room that an [`InlineKernel`] writes into.
///
/// ```
/// use polywire_core::program::Room;
/// let mut room = Room::new();
/// room.set([1; 16]);
/// room.set_all([2; 32]);
/// assert_eq!(size_of::<Room>(), 32);
/// ```
#[repr(transparent)]
pub struct Room([MaybeUninit<[u8; 16]>; 2]);

impl Room {
    /// A room full of zeros.
    #[expect(clippy::new_without_default, reason = "it is lent, and made only to try a kernel")]
    pub const fn new() -> Room {
        Room([MaybeUninit::new([0; 16]); 2])
    }

    /// Writes the first sixteen bytes.
    #[inline(always)]
    pub fn set(&mut self, bytes: [u8; 16]) {
        self.0[0].write(bytes);
    }

    /// Writes all bytes.
    #[inline(always)]
    pub fn set_all(&mut self, bytes: [u8; 32]) {
        self.0.iter_mut().zip(bytes.as_chunks().0).for_each(|(half, bytes)| _ = half.write(*bytes));
    }
}

/// A kernel that writes a scalar in one step: it never fails, does not depend on earlier output,
/// and writes no more than a [`Room`] holds.
///
/// ```
/// use polywire_core::{layout::Scalar, program::{InlineKernel, Room}};
///
/// /// An octet behind a mark.
/// static MARKED: InlineKernel = InlineKernel::new("marked", Scalar::U8, put, None);
///
/// extern "C" fn put(room: &mut Room, mark: u64, value: u64) -> usize {
///     room.set(u128::from(mark | value << 8).to_le_bytes());
///     2
/// }
///
/// assert_eq!((MARKED.put)(&mut Room::new(), 0xCC, 200), 2);
/// ```
pub struct InlineKernel {
    /// For dumps and documentation.
    pub name: &'static str,
    /// The same as [`ScalarKernel::scalar`].
    pub scalar: Scalar,
    /// Writes one. Takes the argument in the program and the value, and returns the number of
    /// bytes, all of which it must have written.
    pub put: extern "C" fn(&mut Room, u64, u64) -> usize,
    /// Describes `put`, if machine code may do the same in line.
    pub form: Option<InlineForm>,
    /// `put` keeps its promise: it returns at most the size of the room and has written all these
    /// bytes. This is set for kernels of this crate only, which a test checks. For all others the
    /// room is cleared before the call, and the returned number is clamped after it.
    #[cfg_attr(not(feature = "jit"), allow(dead_code, reason = "machine code alone asks"))]
    pub(crate) exact: bool,
}

impl InlineKernel {
    /// A kernel from its parts.
    pub const fn new(
        name: &'static str,
        scalar: Scalar,
        put: extern "C" fn(&mut Room, u64, u64) -> usize,
        form: Option<InlineForm>,
    ) -> InlineKernel {
        InlineKernel { name, scalar, put, form, exact: false }
    }
}

/// Describes [`InlineKernel::put`], where it is simple. It first writes bytes of its argument, from
/// the lowest on; the argument's highest byte is their number, at most seven. Then it writes the
/// value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InlineForm {
    /// How the value is written.
    pub number: NumberForm,
    /// For a value whose bits are all zero nothing is written, not even the bytes of the argument.
    pub unless_zero: bool,
}

/// The elements of a sequence or array of plain scalars as a format writes them.
pub struct SliceKernel {
    /// For dumps and documentation.
    pub name: &'static str,
    /// The element in memory; any scalar but a boolean.
    pub scalar: Scalar,
    /// Reads all, with their delimiters if there are any.
    pub get: fn(&mut Input<'_>, &mut Elements<'_>) -> Status,
    /// Writes all: their bytes in the host's order.
    pub put: fn(&mut Output<'_>, &[u8]) -> Status,
}

/// A named number as a format writes it.
pub struct SymbolKernel {
    /// For dumps and documentation.
    pub name: &'static str,
    /// Type of the accumulator: `I64`, or `U64` for sets of flags.
    pub scalar: Scalar,
    /// Reads one. A name or number that the table lacks gives [`SymbolTable::otherwise`], or a
    /// fault.
    pub get: extern "C" fn(&mut Input<'_>, &SymbolTable, &mut u64) -> Status,
    /// Writes one.
    pub put: extern "C" fn(&mut Output<'_>, &SymbolTable, u64) -> Status,
}

/// A table of names and numbers, for both lookups.
#[derive(Clone, Debug)]
pub struct SymbolTable {
    by_value: Vec<(i64, Box<str>)>,
    by_name: Vec<u32>,
    /// The number for a name that is not in the table.
    pub otherwise: Option<i64>,
}

impl SymbolTable {
    /// A table of these pairs; names are unique. If several names have one value,
    /// [`SymbolTable::name`] returns any of them.
    pub fn new(symbols: impl IntoIterator<Item = (i64, Box<str>)>, otherwise: Option<i64>) -> SymbolTable {
        let mut by_value: Vec<_> = symbols.into_iter().collect();
        by_value.sort();
        let mut by_name: Vec<u32> = (0..by_value.len() as u32).collect();
        by_name.sort_by(|a, b| by_value[*a as usize].1.cmp(&by_value[*b as usize].1));
        SymbolTable { by_value, by_name, otherwise }
    }

    /// The name of a number.
    #[inline]
    pub fn name(&self, value: i64) -> Option<&str> {
        // Most enums number their literals consecutively.
        let distance = self.by_value.first().map(|(first, _)| value.wrapping_sub(*first));
        let near = distance.and_then(|d| self.by_value.get(usize::try_from(d).ok()?));
        if let Some((_, name)) = near.filter(|(v, _)| *v == value) {
            return Some(name);
        }
        self.by_value.binary_search_by_key(&value, |(v, _)| *v).ok().map(|at| &*self.by_value[at].1)
    }

    /// Numbers and names, in ascending order of the numbers.
    pub fn iter(&self) -> impl Iterator<Item = (i64, &str)> {
        self.by_value.iter().map(|(value, name)| (*value, &**name))
    }

    /// The number of a name.
    pub fn value(&self, name: &[u8]) -> Option<i64> {
        let at = self.by_name.binary_search_by(|i| self.by_value[*i as usize].1.as_bytes().cmp(name)).ok()?;
        Some(self.by_value[self.by_name[at] as usize].0)
    }

    /// The number of the name that is in the table with the byte `mark` in front, for tables with
    /// names of two kinds.
    pub fn value_behind(&self, mark: u8, name: &[u8]) -> Option<i64> {
        let order =
            |i: &u32| self.by_value[*i as usize].1.bytes().cmp(core::iter::once(mark).chain(name.iter().copied()));
        let at = self.by_name.binary_search_by(order).ok()?;
        Some(self.by_value[self.by_name[at] as usize].0)
    }
}

/// A string as a format writes it.
pub struct TextKernel {
    /// For dumps and documentation.
    pub name: &'static str,
    /// Reads one into the string, reusing its memory, or skips it if there is none. Charges the
    /// input for the growth of the string.
    pub get: fn(&mut Input<'_>, Option<&mut String>) -> Status,
    /// Writes one.
    pub put: fn(&mut Output<'_>, &str) -> Status,
    /// Describes how `put` writes short ones, if machine code may do the same in line.
    pub short: Option<ShortText>,
}

/// The form of short texts: a head whose last byte contains the length, then the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortText {
    /// The head of an empty text, its first byte lowest. A longer text adds its length to the last
    /// byte of the head.
    pub head: u32,
    /// Bytes of the head, one to four.
    pub head_len: u8,
    /// Texts of fewer bytes than this have this form.
    pub below: u8,
}

/// The number and the part of a value that are sent; see [`PartKernel::split`].
pub type Part = (i64, Range<usize>);

/// Sends only a part of a value where both ends know base bytes, such as those of the last message.
/// The back ends move the bytes; the kernel decides which.
pub struct PartKernel {
    /// For dumps and documentation.
    pub name: &'static str,
    /// Encoding: given the known bytes and those of the value, returns the part of the value that
    /// is sent, and a number that is sent with it. `None` means that the value cannot be sent this
    /// way, which is [`FaultKind::NotEncodable`](super::FaultKind).
    pub split: fn(known: &[u8], value: &[u8]) -> Option<Part>,
    /// Decoding: given the lengths of the known bytes and of the part, and the number, returns how
    /// many of the first known bytes precede the part, and how many of the last known bytes follow
    /// it. `None`, or more than there are, is [`FaultKind::Subtraction`](super::FaultKind).
    pub join: fn(known: usize, part: usize, number: i64) -> Option<(usize, usize)>,
}

/// Tests the bytes that come next.
pub struct TestKernel {
    /// For dumps and documentation.
    pub name: &'static str,
    /// Stores true or false in the word.
    pub test: extern "C" fn(&mut Input<'_>, &mut u64) -> Status,
}

/// Any other operation: a separator, a tag, a value to skip.
pub struct ActionKernel {
    /// For dumps and documentation.
    pub name: &'static str,
    /// When decoding.
    pub get: extern "C" fn(&mut Input<'_>, u64) -> Status,
    /// When encoding.
    pub put: extern "C" fn(&mut Output<'_>, u64) -> Status,
}

/// A sequence, array or map with delimiters.
pub struct SequenceDialect {
    /// For dumps and documentation.
    pub name: &'static str,
    /// Its beginning.
    pub begin: extern "C" fn(&mut Input<'_>, &mut Cursor) -> Status,
    /// Sets the word to 1 before each element, and to 0 behind the last one, after skipping the
    /// closing delimiter.
    pub next: extern "C" fn(&mut Input<'_>, &mut Cursor, &mut u64) -> Status,
}

/// A region: a sequence of bytes with a beginning and an end of its own.
pub struct RegionDialect {
    /// For dumps and documentation.
    pub name: &'static str,
    /// The origin of alignment inside is the region's first byte.
    pub restarts_origin: bool,
    /// Decoding: reads the beginning and narrows the input.
    pub get_begin: extern "C" fn(&mut Input<'_>, u64, &mut Cursor) -> Status,
    /// Decoding: skips or refuses what is left, and widens the input again.
    pub get_end: extern "C" fn(&mut Input<'_>, u64, &mut Cursor) -> Status,
    /// Encoding: writes the beginning.
    pub put_begin: extern "C" fn(&mut Output<'_>, u64, &mut Cursor) -> Status,
    /// Encoding: writes the end and patches the beginning.
    pub put_end: extern "C" fn(&mut Output<'_>, u64, &mut Cursor) -> Status,
    /// Describes the functions, if machine code may do the same in line.
    pub form: Option<RegionForm>,
}

/// Describes the functions of a [`RegionDialect`], where they are simple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionForm {
    /// The region is the rest of the enclosing region, without delimiters. Unread bytes at its end
    /// are skipped.
    Rest,
    /// Its length in bytes stands in front of it, as a [`NumberForm::Varint`]. When decoding,
    /// unread bytes at its end are skipped.
    Length {
        /// Decoding: the value that the lowest three bits of [`Input::tag`] must have.
        tag: u32,
    },
    /// Its length in bytes stands in front of it as a word of 32 bits, aligned to four with zeros
    /// in front. The origin of alignment inside is the region's first byte. When decoding, unread
    /// bytes at its end are skipped. This holds if the argument is 0.
    Word {
        /// Order of the length's bytes.
        order: Order,
    },
}

/// Members in any order, as a format writes them.
pub struct MemberDialect {
    /// For dumps and documentation.
    pub name: &'static str,
    /// Their beginning.
    pub begin: extern "C" fn(&mut Input<'_>, &mut Cursor) -> Status,
    /// Reads the next member's header. On entry the word is the index of the arm that is next in
    /// the usual order. On return it is the arm that was found: an index, [`MemberTable::END`] or
    /// [`MemberTable::UNKNOWN`].
    pub next: extern "C" fn(&mut Input<'_>, &mut Cursor, &MemberTable, &mut u64) -> Status,
    /// Called behind each known member's value.
    pub after: extern "C" fn(&mut Input<'_>, &mut Cursor) -> Status,
    /// Skips an unknown member's value and its end.
    pub skip: extern "C" fn(&mut Input<'_>, &mut Cursor) -> Status,
    /// If set, a member that occurs twice is refused; else the later value is kept.
    pub refuse_duplicates: bool,
    /// The usual ending of the members. A back end that finds it behind the last arm's value may
    /// end them without a call: `ending` promises that `next`, called at this position, would have
    /// exactly this effect.
    pub ending: Option<Ending>,
    /// The [`ExpectedPrefix`](super::ExpectedPrefix) of an arm is valid behind any member, or at
    /// the beginning; `begin` and `after` do nothing.
    pub prefixes_suffice: bool,
}

/// See [`MemberDialect::ending`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The end of the input's region.
    Exhausted,
    /// The cursor's first word is 0.
    Counted,
    /// This byte, which is skipped.
    Byte(u8),
}

/// How a format names a member. Each format uses one of the two fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberKey {
    /// Id or tag.
    pub id: u32,
    /// Name, as the bytes of the format (escaped, quoted, ...).
    pub name: Box<[u8]>,
}

/// The members' keys, with indices for lookups.
#[derive(Clone, Debug)]
pub struct MemberTable {
    keys: Vec<MemberKey>,
    by_name: Vec<u32>,
    by_id: Vec<u32>,
}

impl MemberTable {
    /// There is no further member.
    pub const END: u64 = u64::MAX;
    /// A member without an arm: its header was read, its value comes next.
    pub const UNKNOWN: u64 = u64::MAX - 1;

    /// A table of these keys, in the order of the arms.
    pub fn new(keys: Vec<MemberKey>) -> MemberTable {
        let mut by_name: Vec<u32> = (0..keys.len() as u32).collect();
        let mut by_id = by_name.clone();
        by_name.sort_by(|a, b| keys[*a as usize].name.cmp(&keys[*b as usize].name));
        by_id.sort_by_key(|a| keys[*a as usize].id);
        MemberTable { keys, by_name, by_id }
    }

    /// The keys, in the order of the arms.
    pub fn keys(&self) -> &[MemberKey] {
        &self.keys
    }

    /// The arm with this name; the arm `guess` is tried first.
    #[inline]
    pub fn by_name(&self, name: &[u8], guess: u64) -> u64 {
        match self.keys.get(guess as usize) {
            Some(key) if *key.name == *name => guess,
            _ => self.search_name(name),
        }
    }

    /// The arm with this id; the arm `guess` is tried first.
    #[inline]
    pub fn by_id(&self, id: u32, guess: u64) -> u64 {
        match self.keys.get(guess as usize) {
            Some(key) if key.id == id => guess,
            _ => match self.by_id.binary_search_by_key(&id, |i| self.keys[*i as usize].id) {
                Ok(at) => u64::from(self.by_id[at]),
                Err(_) => MemberTable::UNKNOWN,
            },
        }
    }

    fn search_name(&self, name: &[u8]) -> u64 {
        match self.by_name.binary_search_by(|i| (*self.keys[*i as usize].name).cmp(name)) {
            Ok(at) => u64::from(self.by_name[at]),
            Err(_) => MemberTable::UNKNOWN,
        }
    }
}

macro_rules! debug_by_name {
    ($($kernel:ty)*) => {$(
        impl fmt::Debug for $kernel {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name)
            }
        }
    )*};
}

debug_by_name! { ScalarKernel InlineKernel SliceKernel PartKernel SymbolKernel TextKernel TestKernel ActionKernel SequenceDialect RegionDialect MemberDialect }
