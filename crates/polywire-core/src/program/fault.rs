//! How operations end, and what went wrong: faults, as the back ends record them, and the errors
//! that callers get.

use alloc::{format, string::String};
use core::fmt;

use super::{Input, PathId, Program, say, words};

/// How an operation or kernel ended. What went wrong is in the [`Input`](super::Input) or
/// [`Output`](super::Output).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[must_use]
pub enum Status {
    /// Go on.
    Ok = 0,
    /// Stop: the fault is set.
    Failed = 1,
}

impl Status {
    /// This as a result, for `?`.
    #[inline(always)]
    pub(crate) fn ok(self) -> Result<(), Status> {
        match self {
            Status::Ok => Ok(()),
            failed => Err(failed),
        }
    }

    /// The status of a result.
    #[inline(always)]
    pub(crate) fn of(done: Result<(), Status>) -> Status {
        done.err().unwrap_or(Status::Ok)
    }

    /// Goes on with `next`, if nothing failed.
    #[inline(always)]
    pub(crate) fn then(self, next: impl FnOnce() -> Status) -> Status {
        match self {
            Status::Ok => next(),
            failed => failed,
        }
    }

    /// Stores what was read, if something was.
    #[inline(always)]
    pub(crate) fn give<T>(read: Result<T, Status>, to: &mut T) -> Status {
        match read {
            Ok(value) => {
                *to = value;
                Status::Ok
            }
            Err(failed) => failed,
        }
    }
}

/// Why a message could not be encoded or decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[non_exhaustive]
pub enum FaultKind {
    /// The message ends too early: expected, got are bytes.
    Truncated,
    /// Bytes are left over: got is their number.
    Trailing,
    /// A boolean is neither 0 nor 1.
    BadBool,
    /// A number or name is no literal of the enum.
    UnknownLiteral,
    /// A discriminator selects no case.
    UnknownCase,
    /// A number does not fit the type: expected is the type's bits.
    OutOfRange,
    /// A string is not UTF-8 (or, for wide strings, UTF-16).
    BadText,
    /// A string lacks its terminator, or has one inside.
    BadTerminator,
    /// A string, sequence or map is longer than its bound: expected at most, got.
    Bound,
    /// An array has another number of elements: expected, got.
    Count,
    /// A declared length contradicts the actual one: expected, got.
    BadLength,
    /// A member that must be there is not.
    MissingMember,
    /// A member occurs twice.
    DuplicateMember,
    /// A member is unknown and must be understood.
    UnknownMember,
    /// The format's syntax is violated: expected is the code of what should be there, got what is.
    Syntax,
    /// The value on the wire is of another kind than the type.
    WrongKind,
    /// Protobuf: a field has another wire type than its type. Either the writer's schema is not the
    /// one that was given, or the message is damaged. Expected, got are wire types, which the
    /// message of the error names.
    WireType,
    /// Values inside each other, deeper than [`Limits::depth`](super::Limits::depth): expected at
    /// most.
    TooDeep,
    /// More memory, bytes or elements than the [`Limits`](super::Limits) allow: expected at most,
    /// got.
    Limit,
    /// Memory could not be allocated.
    OutOfMemory,
    /// The value cannot be represented in this format.
    Unrepresentable,
    /// The encapsulation header of CDR differs from the type's: expected (for the most significant
    /// byte first), got.
    Encapsulation,
    /// The message uses a feature of the format that decoders refuse, because it can do harm or is
    /// ambiguous: a document type, an alias.
    Forbidden,
    /// A message may refer to one that was lost: a message that stands alone must come first.
    BrokenChain,
    /// FAST D2: an integer is none of the field's type.
    IntegerRange,
    /// FAST D3: the field's operators cannot encode the value.
    NotEncodable,
    /// FAST D4: the previous value is of another type: expected, got are types.
    PreviousType,
    /// FAST D5: the mandatory value is not in the message, and there is no previous nor an initial
    /// one.
    NoPrevious,
    /// FAST D6: the value is not in the message, and the previous one is absent.
    EmptyPrevious,
    /// FAST D7: more is taken from the previous value than there is.
    Subtraction,
    /// FAST D9: no template has the id.
    UnknownTemplate,
    /// FAST D12: a block of no bytes.
    EmptyBlock,
    /// FAST R1: a decimal is out of range.
    DecimalRange,
    /// FAST R2: a string is not UTF-8, after its parts were put together.
    CombinedText,
    /// FAST R3: a string has characters beyond ASCII.
    NotAscii,
    /// FAST R4: a difference leads out of the field's type.
    DeltaRange,
    /// FAST R5: a decimal is no integer.
    NotInteger,
    /// FAST R6: an integer has more bytes than it needs.
    OverlongInteger,
    /// FAST R7: a presence map has more bytes than it needs.
    OverlongMap,
    /// FAST R8: a presence map has bits that no field uses.
    UnusedBits,
    /// FAST R9: a string has more bytes than it needs.
    OverlongText,
}

impl FaultKind {
    /// A description for people.
    pub fn describe(self) -> &'static str {
        match self {
            FaultKind::Truncated => "the message ends too early",
            FaultKind::Trailing => "bytes are left over",
            FaultKind::BadBool => "a boolean is neither 0 nor 1",
            FaultKind::UnknownLiteral => "the enum has no such literal",
            FaultKind::UnknownCase => "the discriminator selects no case",
            FaultKind::OutOfRange => "the number does not fit the type",
            FaultKind::BadText => "the text is not valid Unicode",
            FaultKind::BadTerminator => "the terminator of the text is missing or misplaced",
            FaultKind::Bound => "it is longer than its bound",
            FaultKind::Count => "the array has another number of elements",
            FaultKind::BadLength => "a declared length contradicts what is there",
            FaultKind::MissingMember => "the member is missing and has no default",
            FaultKind::DuplicateMember => "the member is there twice",
            FaultKind::UnknownMember => "a member that must be understood is unknown",
            FaultKind::Syntax => "the syntax of the format is violated",
            FaultKind::WrongKind => "the value is not of the type",
            FaultKind::WireType => "the field has another wire type than its type",
            FaultKind::TooDeep => "values are nested too deeply",
            FaultKind::Limit => "it takes more than the limits allow",
            FaultKind::OutOfMemory => "memory could not be allocated",
            FaultKind::Unrepresentable => "the value cannot be said in this format",
            FaultKind::Encapsulation => "the encapsulation header is of another kind than the type",
            FaultKind::Forbidden => "the message uses a part of the format that is not read",
            FaultKind::BrokenChain => "an earlier message that it may refer to is missing",
            FaultKind::IntegerRange => "[D2] the integer is out of the field's range",
            FaultKind::NotEncodable => "[D3] the field's operators cannot say the value",
            FaultKind::PreviousType => "[D4] the previous value is of another type",
            FaultKind::NoPrevious => "[D5] the field has neither a value, nor a previous value, nor an initial one",
            FaultKind::EmptyPrevious => "[D6] the value is not there, and the previous one is absent",
            FaultKind::Subtraction => "[D7] more is taken from the previous value than there is",
            FaultKind::UnknownTemplate => "[D9] no template has the id",
            FaultKind::EmptyBlock => "[D12] a block has no bytes",
            FaultKind::DecimalRange => "[R1] the decimal is out of range",
            FaultKind::CombinedText => "[R2] the text is not valid UTF-8",
            FaultKind::NotAscii => "[R3] the text has characters beyond ASCII",
            FaultKind::DeltaRange => "[R4] the difference leads out of the field's range",
            FaultKind::NotInteger => "[R5] the decimal is no integer",
            FaultKind::OverlongInteger => "[R6] the integer has more bytes than it needs",
            FaultKind::OverlongMap => "[R7] the presence map has more bytes than it needs",
            FaultKind::UnusedBits => "[R8] the presence map has bits that nobody asks for",
            FaultKind::OverlongText => "[R9] the text has more bytes than it needs",
        }
    }
}

/// The number of indices that an error records; deeper ones are left out.
const MAX_INDICES: usize = 8;

/// Where and why a program stopped, as the back ends record it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Fault {
    /// Why.
    pub kind: FaultKind,
    /// The field.
    pub path: PathId,
    /// Byte of the message.
    pub offset: usize,
    /// Its meaning depends on the kind.
    pub expected: u64,
    /// Its meaning depends on the kind.
    pub got: u64,
    named: bool,
    indices: [u32; MAX_INDICES],
    index_count: u32,
}

impl Fault {
    pub(super) fn new(kind: FaultKind, offset: usize, expected: u64, got: u64) -> Fault {
        let (path, indices) = (PathId(0), [0; MAX_INDICES]);
        Fault { kind, path, offset, expected, got, named: false, indices, index_count: 0 }
    }

    /// Sets the field, unless a deeper operation has set it already.
    pub(super) fn name(&mut self, path: PathId) {
        if !self.named {
            self.named = true;
            self.path = path;
        }
    }

    /// Adds the index of an element on the way out: innermost first.
    pub(super) fn index(&mut self, index: u32) {
        if let Some(slot) = self.indices.get_mut(self.index_count as usize) {
            *slot = index;
        }
        self.index_count += 1;
    }

    /// The path of the field with its indices filled in.
    pub fn path(&self, program: &Program) -> String {
        let text = program.paths.get(self.path.0 as usize).map_or("", String::as_str);
        let known = &self.indices[..(self.index_count as usize).min(MAX_INDICES)];
        // Indices were recorded from the innermost outwards; the outermost may be missing.
        let mut indices = known.iter().rev();
        let missing = text.matches("[]").count().saturating_sub(known.len());
        let mut path = String::new();
        for (i, part) in text.split("[]").enumerate() {
            if i > 0 {
                match indices.next().filter(|_| i > missing) {
                    Some(index) => path.push_str(&format!("[{index}]")),
                    None => path.push_str("[]"),
                }
            }
            path.push_str(part);
        }
        path
    }
}

/// A message that could not be encoded or decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodecError {
    /// Why.
    pub kind: FaultKind,
    /// The field, as in `mdEntries[2].mdEntryPx`; empty for the message itself.
    pub path: String,
    /// Byte of the message, counted from the start of the payload.
    pub offset: usize,
    /// Its meaning depends on the kind.
    pub expected: u64,
    /// Its meaning depends on the kind.
    pub got: u64,
    /// What was expected, in words, such as a range or the names of literals; empty where the
    /// numbers suffice.
    pub expected_words: String,
    /// What came instead, in a message that is text: the word or number at the offset.
    pub got_words: String,
}

impl CodecError {
    /// An error with a kind and two numbers, without words.
    pub(crate) fn plain(kind: FaultKind, offset: usize, expected: u64, got: u64) -> CodecError {
        let (path, expected_words, got_words) = (String::new(), String::new(), String::new());
        CodecError { kind, path, offset, expected, got, expected_words, got_words }
    }

    /// An error for a fault in data without a type.
    pub(crate) fn without_path(fault: Option<&Fault>) -> CodecError {
        let unknown = Fault::new(FaultKind::Syntax, 0, 0, 0);
        let Fault { kind, offset, expected, got, .. } = *fault.unwrap_or(&unknown);
        CodecError::plain(kind, offset, expected, got)
    }

    #[cold]
    pub(crate) fn new(fault: Option<&Fault>, program: &Program) -> CodecError {
        // A program that fails has set its fault; a codec's kernel may have forgotten to.
        let unknown = Fault::new(FaultKind::Syntax, 0, 0, 0);
        let fault = fault.unwrap_or(&unknown);
        let plain = CodecError::plain(fault.kind, fault.offset, fault.expected, fault.got);
        CodecError { path: fault.path(program), ..plain }
    }

    /// An error with words for what was expected and what came, taken from the message.
    #[cold]
    pub(crate) fn of_message(input: &Input<'_>, program: &Program) -> CodecError {
        let error = CodecError::new(input.fault(), program);
        let expected_words = match input.fault() {
            Some(Fault { named: true, path, kind, .. }) => words::expected(program, *path, *kind),
            _ => String::new(),
        };
        // Where the fault has a number, that is shown: the offset may be behind it.
        let is_mark = matches!(error.kind, FaultKind::WrongKind | FaultKind::Forbidden);
        let got_words = match error.got == 0 || is_mark {
            true => words::got(input.message(), error.offset, error.kind),
            false => String::new(),
        };
        CodecError { expected_words, got_words, ..error }
    }
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        write!(f, "{} (byte {}", self.kind.describe(), self.offset)?;
        say::numbers(f, self)?;
        write!(f, ")")?;
        match words::nearest(&self.expected_words, &self.got_words) {
            Some(name) => write!(f, "; did you mean '{name}'?"),
            None => Ok(()),
        }
    }
}

impl core::error::Error for CodecError {}
