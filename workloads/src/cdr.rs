//! The parts of the hand-written CDR codecs: a writer that does not check the room in its buffer,
//! and a reader that checks bounds, booleans and UTF-8.

/// A type with a hand-written codec.
pub trait Cdr {
    /// Writes the message. The writer's buffer must have room for [`bound`](Cdr::bound) plus
    /// [`SLACK`] bytes.
    fn encode(&self, writer: &mut Writer);

    /// Reads the message into `self`, and reuses the memory of its strings and sequences.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are not a message of the type.
    fn decode(&mut self, reader: &mut Reader) -> Result<(), Malformed>;

    /// An upper bound of the encoded size in bytes.
    fn bound(&self) -> usize;
}

/// The number of bytes that [`Writer`] may write beyond the bound: it clears eight bytes at once
/// when it aligns.
pub const SLACK: usize = 16;

/// The greatest size of a member of fixed size in bytes: padding and at most eight bytes of value.
pub(crate) const FIELD: usize = 16;

/// The greatest encoded size of a string in bytes.
pub(crate) fn string_bound(string: &str) -> usize {
    FIELD + string.len()
}

/// The error for bytes that are not a message of the type. Unlike the errors of `polywire-core`, it
/// has no position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the bytes are not a message of the type")
    }
}

impl std::error::Error for Malformed {}

/// Writes little-endian CDR without checks. It is `Copy` because the compiler keeps the position of
/// a local copy in a register.
#[derive(Clone, Copy, Debug)]
pub struct Writer {
    base: *mut u8,
    position: usize,
}

impl Writer {
    /// A writer at the start of the buffer at `base`.
    ///
    /// # Safety
    /// The buffer must have room for the sum of the [`bound`](Cdr::bound)s of all written messages,
    /// plus [`SLACK`] bytes.
    pub unsafe fn new(base: *mut u8) -> Self {
        Writer { base, position: 0 }
    }

    /// The number of bytes written.
    pub fn position(&self) -> usize {
        self.position
    }

    #[inline(always)]
    pub(crate) fn align(&mut self, size: usize) {
        // SAFETY: this writes at most `SLACK` bytes beyond the bound, and the caller of `new` has
        // reserved them.
        unsafe {
            (self.base.add(self.position) as *mut u64).write_unaligned(0);
        }
        self.position = (self.position + size - 1) & !(size - 1);
    }

    #[inline(always)]
    pub(crate) fn scalar<T: Copy>(&mut self, value: T) {
        // SAFETY: the bound includes every scalar, so the buffer has room.
        unsafe {
            (self.base.add(self.position) as *mut T).write_unaligned(value);
        }
        self.position += size_of::<T>();
    }

    #[inline(always)]
    pub(crate) fn string(&mut self, string: &str) {
        let length = string.len();
        self.scalar(length as u32 + 1);
        // SAFETY: the bound includes every string and its NUL, so the buffer has room.
        unsafe {
            let target = self.base.add(self.position);
            small_copy(string.as_ptr(), target, length);
            *target.add(length) = 0;
        }
        self.position += length + 1;
    }

    /// Writes the header of an optional member. The length is 0 if the member is absent.
    #[inline(always)]
    pub(crate) fn parameter(&mut self, id: u16, length: u16) {
        self.align(4);
        self.scalar(id);
        self.scalar(length);
    }

    #[inline(always)]
    pub(crate) fn octets(&mut self, values: &[u8]) {
        self.scalar(values.len() as u32);
        // SAFETY: the bound includes every element, so the buffer has room.
        unsafe {
            std::ptr::copy_nonoverlapping(values.as_ptr(), self.base.add(self.position), values.len());
        }
        self.position += values.len();
    }

    #[inline(always)]
    pub(crate) fn floats(&mut self, values: &[f32]) {
        self.scalar(values.len() as u32);
        // SAFETY: the bound includes every element, so the buffer has room.
        unsafe {
            std::ptr::copy_nonoverlapping(values.as_ptr() as *const u8, self.base.add(self.position), values.len() * 4);
        }
        self.position += values.len() * 4;
    }
}

/// Copies text. Up to 16 bytes are copied without a call of `memcpy`.
///
/// # Safety
/// `source` and `target` must each have `length` bytes, and must not overlap.
#[inline(always)]
pub(crate) unsafe fn small_copy(source: *const u8, target: *mut u8, length: usize) {
    // SAFETY: each access starts at 0 or ends at `length`, and is no wider than `length`.
    unsafe {
        if length > 16 {
            std::ptr::copy_nonoverlapping(source, target, length);
        } else if length >= 8 {
            let first = (source as *const u64).read_unaligned();
            let last = (source.add(length - 8) as *const u64).read_unaligned();
            (target as *mut u64).write_unaligned(first);
            (target.add(length - 8) as *mut u64).write_unaligned(last);
        } else if length >= 4 {
            let first = (source as *const u32).read_unaligned();
            let last = (source.add(length - 4) as *const u32).read_unaligned();
            (target as *mut u32).write_unaligned(first);
            (target.add(length - 4) as *mut u32).write_unaligned(last);
        } else if length > 0 {
            let first = *source;
            let middle = *source.add(length / 2);
            let last = *source.add(length - 1);
            *target = first;
            *target.add(length / 2) = middle;
            *target.add(length - 1) = last;
        }
    }
}

/// A number that [`Reader::scalar`] can read from arbitrary bytes.
///
/// # Safety
/// Every bit pattern must be a valid value.
pub(crate) unsafe trait Scalar: Copy {}

macro_rules! scalars {
    ($($scalar:ty)*) => {$(
        // SAFETY: every bit pattern of a number is valid.
        unsafe impl Scalar for $scalar {}
    )*};
}
scalars!(i8 u8 i16 u16 i32 u32 i64 u64 f32 f64);

/// Reads little-endian CDR, and checks bounds, booleans and UTF-8.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    /// A reader at the start of the bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, position: 0 }
    }

    /// Moves the position to a multiple of `size`. If that is beyond the end, the next read fails.
    #[inline(always)]
    pub(crate) fn align(&mut self, size: usize) {
        self.position = (self.position + size - 1) & !(size - 1);
    }

    #[inline(always)]
    pub(crate) fn scalar<T: Scalar>(&mut self) -> Result<T, Malformed> {
        let end = self.position + size_of::<T>();
        if end > self.bytes.len() {
            return Err(Malformed);
        }
        // SAFETY: the check above leaves `size_of::<T>()` bytes, and any bytes are a valid `T`.
        let value = unsafe { (self.bytes.as_ptr().add(self.position) as *const T).read_unaligned() };
        self.position = end;
        Ok(value)
    }

    #[inline(always)]
    pub(crate) fn boolean(&mut self) -> Result<bool, Malformed> {
        let value: u8 = self.scalar()?;
        if value > 1 {
            return Err(Malformed);
        }
        Ok(value != 0)
    }

    /// Reads the length of a sequence whose elements take at least one byte each.
    #[inline(always)]
    pub(crate) fn length(&mut self) -> Result<usize, Malformed> {
        let length = self.scalar::<u32>()? as usize;
        if length > self.bytes.len() {
            return Err(Malformed);
        }
        Ok(length)
    }

    #[inline(always)]
    pub(crate) fn string(&mut self, into: &mut String) -> Result<(), Malformed> {
        let length = self.scalar::<u32>()? as usize;
        if length == 0 || length > self.bytes.len() - self.position {
            return Err(Malformed);
        }
        let length = length - 1;
        // SAFETY: the check above shows that the position is within the bytes.
        let source = unsafe { self.bytes.as_ptr().add(self.position) };
        // SAFETY: `length` bytes are left at `source`, and they are initialised.
        let text = unsafe { std::slice::from_raw_parts(source, length) };
        if !text.is_ascii() && std::str::from_utf8(text).is_err() {
            return Err(Malformed);
        }
        // SAFETY: the text is UTF-8, the string has room for it, and the length is set after the
        // copy.
        unsafe {
            let target = into.as_mut_vec();
            target.clear();
            if target.capacity() < length {
                target.reserve(length);
            }
            small_copy(source, target.as_mut_ptr(), length);
            target.set_len(length);
        }
        self.position += length + 1;
        Ok(())
    }

    /// Reads a string of at most `most` bytes.
    #[inline(always)]
    pub(crate) fn bounded_string(&mut self, into: &mut String, most: usize) -> Result<(), Malformed> {
        self.string(into)?;
        if into.len() > most { Err(Malformed) } else { Ok(()) }
    }

    /// Reads the header of an optional member, and returns its length: 0 if the member is absent.
    #[inline(always)]
    pub(crate) fn parameter(&mut self, id: u16) -> Result<u16, Malformed> {
        self.align(4);
        let found = self.scalar::<u16>()?;
        let length = self.scalar::<u16>()?;
        if found != id || usize::from(length) > self.bytes.len() - self.position {
            return Err(Malformed);
        }
        Ok(length)
    }

    #[inline(always)]
    pub(crate) fn octets(&mut self, into: &mut Vec<u8>) -> Result<(), Malformed> {
        let length = self.scalar::<u32>()? as usize;
        if length > self.bytes.len() - self.position {
            return Err(Malformed);
        }
        into.clear();
        into.extend_from_slice(&self.bytes[self.position..][..length]);
        self.position += length;
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn floats(&mut self, into: &mut Vec<f32>) -> Result<(), Malformed> {
        let length = self.scalar::<u32>()? as usize;
        if length.checked_mul(4).is_none_or(|size| size > self.bytes.len() - self.position) {
            return Err(Malformed);
        }
        into.clear();
        into.reserve(length);
        // SAFETY: the bytes and the room for them have been checked, and any bytes are valid
        // floats.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.bytes.as_ptr().add(self.position),
                into.as_mut_ptr() as *mut u8,
                length * 4,
            );
            into.set_len(length);
        }
        self.position += length * 4;
        Ok(())
    }
}
