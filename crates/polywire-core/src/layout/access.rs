//! What programs may do to memory that is not plain bytes.
//!
//! Implemented for Rust's own types by the derive's support, for [`Record`](super::Record)s, and by
//! nobody else.
//!
//! Rules for all of them. Pointers handed in point to a live, initialised value of the type the
//! implementation was made for; `*mut` ones are not aliased while the function runs. Pointers
//! handed out stay good until the next call that changes the same value. A function that
//! fails leaves a valid value behind. None of them unwinds: implementations catch what the user's
//! `Default` or `Drop` may panic with and answer [`OutOfMemory`].
//!
//! ```
//! use polywire_core::layout::{BoxedAccess, Inserted, MapAccess, OptionalAccess, Selected, SequenceAccess, UnionAccess};
//! use polywire_core::layout::{Kind, Message, MessageField, OutOfMemory};
//! use std::collections::BTreeMap;
//!
//! #[derive(polywire_derive::Message)]
//! struct Pump { readings: Vec<u8>, limits: BTreeMap<u8, u8>, level: Option<u8>, drive: Drive, next: Option<Box<u8>> }
//! #[derive(polywire_derive::Message)]
//! #[polywire(switch = "int32")]
//! enum Drive {
//!     #[polywire(case(0))]
//!     Fixed(u8),
//!     #[polywire(case(1))]
//!     Geared(u16),
//! }
//!
//! let (layout, mut pump) = (Pump::shape().layout().clone(), Pump::fresh());
//! let Kind::Struct { fields } = &layout.node(layout.root()).kind else { panic!("it is a structure") };
//! let at = |field: usize, pump: *mut Pump| (&layout.node(fields[field].node).kind, unsafe { pump.cast::<u8>().add(fields[field].offset as usize) });
//! // SAFETY: every place is of the node whose functions are called, inside a value that lives and is borrowed.
//! unsafe {
//!     let pump: *mut Pump = &mut pump;
//!     let (Kind::Sequence(sequence), place) = at(0, pump) else { panic!("it is a sequence") };
//!     let access: &dyn SequenceAccess = &*sequence.access;
//!     access.assign(place, [1, 2, 3].as_ptr(), 3)?;
//!     access.release(place);
//!     access.assign(place, [1, 2, 3].as_ptr(), 3)?;
//!     access.resize(place, 2)?;
//!     assert_eq!(access.slice(place).1, 2);
//!     let (Kind::Map(map), place) = at(1, pump) else { panic!("it is a map") };
//!     let access: &dyn MapAccess = &*map.access;
//!     let inserted = access.insert(place, &mut |key, value| { *key = 7; *value = 9; true })?;
//!     assert_eq!((inserted, access.len(place)), (Inserted::Yes, 1));
//!     access.visit(place, &mut |key, value| { assert_eq!((*key, *value), (7, 9)); true });
//!     let (Kind::Optional(optional), place) = at(2, pump) else { panic!("it is an `Option`") };
//!     let access: &dyn OptionalAccess = &*optional.access;
//!     *access.set_some(place)? = 5;
//!     let (Kind::Union(union), place) = at(3, pump) else { panic!("it is a union") };
//!     let access: &dyn UnionAccess = &*union.access;
//!     access.select(place, 1, Some(1))?.cast::<u16>().write(400);
//!     assert!(matches!(access.get(place), Selected { discriminator: 1, case: Some(1), .. }));
//!     let (Kind::Optional(next), place) = at(4, pump) else { panic!("it is an `Option`") };
//!     let value = next.access.set_some(place)?;
//!     let Kind::Boxed(boxed) = &layout.node(next.inner).kind else { panic!("it is a `Box`") };
//!     let access: &dyn BoxedAccess = &*boxed.access;
//!     *access.get_mut(value) = 8;
//! }
//! assert_eq!((&pump.readings[..], pump.limits[&7], pump.level, pump.next.as_deref()), (&[1, 2][..], 9, Some(5), Some(&8)));
//! assert!(matches!(pump.drive, Drive::Geared(400)));
//! # Ok::<(), OutOfMemory>(())
//! ```

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

    /// Makes it `len` elements long and gives the first. Those that remain keep their values, so
    /// that what they have allocated is used again; new ones are valid, defaults or what was
    /// there once: whoever makes a sequence longer writes all of them.
    ///
    /// # Safety
    /// `sequence` as the module's rules say.
    unsafe fn resize(&self, sequence: *mut u8, len: usize) -> Result<*mut u8, OutOfMemory>;

    /// Replaces all elements by `len` copied from `source`.
    ///
    /// # Safety
    /// `sequence` as the module's rules say; elements are plain bytes, and `len` valid ones lie at
    /// `source`, at any alignment, outside the sequence.
    unsafe fn assign(&self, sequence: *mut u8, source: *const u8, len: usize) -> Result<(), OutOfMemory>;

    /// As [`SequenceAccess::slice`], to be written over. What others hold, too, is let go: then
    /// there are no elements.
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

    /// Removes all elements, and gives back the memory that is kept for others.
    ///
    /// # Safety
    /// `sequence` as the module's rules say.
    unsafe fn release(&self, sequence: *mut u8);
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

    /// Makes it absent, and gives back the memory of a value that is kept for the next.
    ///
    /// # Safety
    /// `optional` as the module's rules say.
    unsafe fn release(&self, optional: *mut u8) {
        // SAFETY: as the caller promises.
        unsafe { self.set_none(optional) }
    }
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

    /// Selects `case` (an index the schema has, or none for a discriminator without a case) with a
    /// discriminator that chooses it, and gives the value: the one it had if the case is the
    /// same, or a default, or one that it once had.
    ///
    /// A Rust `enum` keeps no discriminator of its own: it takes the case's first label, or the
    /// smallest value that is nobody's label. It cannot hold none, and answers `OutOfMemory` to
    /// it: lowering refuses such types beforehand.
    ///
    /// # Safety
    /// `union` as the module's rules say.
    unsafe fn select(&self, union: *mut u8, discriminator: i64, case: Option<u32>) -> Result<*mut u8, OutOfMemory>;

    /// Gives back the memory of a value that is kept and not chosen.
    ///
    /// # Safety
    /// `union` as the module's rules say.
    unsafe fn release(&self, _union: *mut u8) {}
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

    /// Removes all entries, and gives back the memory that is kept for others.
    ///
    /// # Safety
    /// `map` as the module's rules say.
    unsafe fn release(&self, map: *mut u8);

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
