//! What programs may do to memory that is not plain bytes.
//!
//! Implemented for Rust's own types by the derive's support, for [`Record`](super::Record)s, and by nobody else.
//!
//! Rules for all of them. Pointers handed in point to a live, initialised value of the type the implementation was made for; `*mut` ones are
//! not aliased while the function runs. Pointers handed out stay good until the next call that changes the same value. A function that
//! fails leaves a valid value behind. None of them unwinds: implementations catch what the user's `Default` or `Drop` may panic with and
//! answer [`OutOfMemory`].

use core::ops::Range;

use super::{OutOfMemory, SharedBytes};

/// Sequences.
///
/// # Safety
/// Implementations keep the rules of this module.
pub unsafe trait SequenceAccess: Send + Sync {
    /// First element and number of elements.
    ///
    /// # Safety
    /// `sequence` as the module's rules say.
    unsafe fn slice(&self, sequence: *const u8) -> (*const u8, usize);

    /// Makes it `len` elements long and gives the first. New elements are defaults; those that remain keep their values, so that what
    /// they have allocated is used again.
    ///
    /// # Safety
    /// `sequence` as the module's rules say.
    unsafe fn resize(&self, sequence: *mut u8, len: usize) -> Result<*mut u8, OutOfMemory>;

    /// Replaces all elements by `len` copied from `source`.
    ///
    /// # Safety
    /// `sequence` as the module's rules say; elements are plain bytes, and `len` valid ones lie at `source`, at any alignment, outside the sequence.
    unsafe fn assign(&self, sequence: *mut u8, source: *const u8, len: usize) -> Result<(), OutOfMemory>;

    /// As [`SequenceAccess::slice`], to be written over. What others hold, too, is let go: then there are no elements.
    ///
    /// # Safety
    /// `sequence` as the module's rules say.
    unsafe fn slice_mut(&self, sequence: *mut u8) -> (*mut u8, usize) {
        // SAFETY: as the caller promises.
        let (first, len) = unsafe { self.slice(sequence) };
        (first.cast_mut(), len)
    }

    /// Whether it can [hold](SequenceAccess::hold) a part of a message.
    fn shares(&self) -> bool {
        false
    }

    /// Replaces all elements by a part of a message, without a copy. Elements are octets.
    ///
    /// # Safety
    /// `sequence` as the module's rules say, and it shares.
    unsafe fn hold(&self, _sequence: *mut u8, _message: &SharedBytes, _range: Range<usize>) {}
}

/// Optional values.
///
/// # Safety
/// Implementations keep the rules of this module.
pub unsafe trait OptionalAccess: Send + Sync {
    /// The value, or null.
    ///
    /// # Safety
    /// `optional` as the module's rules say.
    unsafe fn get(&self, optional: *const u8) -> *const u8;

    /// Makes it present and gives the value: the one it had, or some valid one.
    ///
    /// # Safety
    /// `optional` as the module's rules say.
    unsafe fn set_some(&self, optional: *mut u8) -> Result<*mut u8, OutOfMemory>;

    /// Makes it absent.
    ///
    /// # Safety
    /// `optional` as the module's rules say.
    unsafe fn set_none(&self, optional: *mut u8);
}

/// What a union holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selected {
    /// The discriminator.
    pub discriminator: i64,
    /// Index of the case it chooses; none where no case has its label and there is no default.
    pub case: Option<u32>,
    /// The case's value; dangling when there is none.
    pub value: *const u8,
}

/// Unions.
///
/// # Safety
/// Implementations keep the rules of this module.
pub unsafe trait UnionAccess: Send + Sync {
    /// What it holds.
    ///
    /// # Safety
    /// `union` as the module's rules say.
    unsafe fn get(&self, union: *const u8) -> Selected;

    /// Selects `case` (an index the schema has, or none for a discriminator without a case) with a discriminator that chooses it, and gives
    /// the value: the one it had if the case is the same, or a default.
    ///
    /// A Rust `enum` keeps no discriminator of its own: it takes the case's first label, or the smallest value that is nobody's label.
    /// It cannot hold none, and answers `OutOfMemory` to it: lowering refuses such types beforehand.
    ///
    /// # Safety
    /// `union` as the module's rules say.
    unsafe fn select(&self, union: *mut u8, discriminator: i64, case: Option<u32>) -> Result<*mut u8, OutOfMemory>;
}

/// What became of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// It is in the map.
    Yes,
    /// The key was there; the value was replaced.
    Replaced,
    /// `fill` said no; the map is as before.
    Refused,
}

/// Maps.
///
/// # Safety
/// Implementations keep the rules of this module.
pub unsafe trait MapAccess: Send + Sync {
    /// Number of entries.
    ///
    /// # Safety
    /// `map` as the module's rules say.
    unsafe fn len(&self, map: *const u8) -> usize;

    /// Shows each entry (key, value) until `visit` says false.
    ///
    /// # Safety
    /// `map` as the module's rules say.
    unsafe fn visit(&self, map: *const u8, visit: &mut dyn FnMut(*const u8, *const u8) -> bool);

    /// Removes all entries.
    ///
    /// # Safety
    /// `map` as the module's rules say.
    unsafe fn clear(&self, map: *mut u8);

    /// Makes a default key and value, lets `fill` write them, and inserts them if it says true.
    ///
    /// # Safety
    /// `map` as the module's rules say; `fill` leaves both valid.
    unsafe fn insert(
        &self,
        map: *mut u8,
        fill: &mut dyn FnMut(*mut u8, *mut u8) -> bool,
    ) -> Result<Inserted, OutOfMemory>;
}

/// Values behind a pointer.
///
/// # Safety
/// Implementations keep the rules of this module.
pub unsafe trait BoxedAccess: Send + Sync {
    /// The value.
    ///
    /// # Safety
    /// `boxed` as the module's rules say.
    unsafe fn get(&self, boxed: *const u8) -> *const u8;

    /// The value, to be written.
    ///
    /// # Safety
    /// `boxed` as the module's rules say.
    unsafe fn get_mut(&self, boxed: *mut u8) -> *mut u8;
}
