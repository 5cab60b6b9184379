//! Functions by which codec programs change memory that is not plain bytes.
//!
//! Only three groups of types implement these traits: Rust's own types (`derived`),
//! shared strings and octets (`shared`), and [`Record`](super::Record)s. Back ends find the
//! implementation in the layout's node and call it while they encode or decode.
//!
//! The rules of this module, for every implementation:
//!
//! - A pointer passed in points to a live, initialised value of the type that the implementation
//!   was made for. Nothing else uses a `*mut` value while the function runs.
//! - A pointer returned stays valid until the next call that changes the same value.
//! - A function that fails leaves a valid value behind.
//! - No function unwinds. Implementations catch a panic of the user's `Default` or `Drop` and
//!   return [`OutOfMemory`].
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
//! let (layout, mut pump) = (Pump::shape().layout().clone(), Pump::default_value());
//! let Kind::Struct { fields } = &layout.node(layout.root()).kind else { panic!("it is a structure") };
//! let at = |field: usize, pump: *mut Pump| (&layout.node(fields[field].node).kind, unsafe { pump.cast::<u8>().add(fields[field].offset as usize) });
//! // SAFETY: each place belongs to the node whose functions are called, and lies inside a live, borrowed value.
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

/// Access to a sequence.
///
/// # Safety
/// Implementations keep the rules of this module.
pub unsafe trait SequenceAccess: Send + Sync {
    /// Returns the first element and the number of elements.
    ///
    /// # Safety
    /// `sequence` meets the pointer rules of this module.
    unsafe fn slice(&self, sequence: *const u8) -> (*const u8, usize);

    /// Sets the length to `len` and returns the first element. Elements that remain keep their
    /// values, so that their allocations are reused. New elements are valid but unspecified:
    /// defaults, or values from an earlier use. The caller overwrites all of them.
    ///
    /// # Safety
    /// `sequence` meets the pointer rules of this module.
    unsafe fn resize(&self, sequence: *mut u8, len: usize) -> Result<*mut u8, OutOfMemory>;

    /// Replaces all elements by `len` copied from `source`.
    ///
    /// # Safety
    /// `sequence` meets the pointer rules of this module; elements are plain bytes, and `len` valid
    /// ones lie at `source`, at any alignment, outside the sequence.
    unsafe fn assign(&self, sequence: *mut u8, source: *const u8, len: usize) -> Result<(), OutOfMemory>;

    /// Like [`SequenceAccess::slice`], for elements that the caller overwrites. A sequence that
    /// shares its elements with others lets go of them and is then empty.
    ///
    /// # Safety
    /// `sequence` meets the pointer rules of this module.
    unsafe fn slice_mut(&self, sequence: *mut u8) -> (*mut u8, usize) {
        // SAFETY: the caller upholds the contract of `slice_mut`, which is that of `slice`.
        let (first, len) = unsafe { self.slice(sequence) };
        (first.cast_mut(), len)
    }

    /// Returns whether the sequence can [hold](SequenceAccess::hold) a part of a message.
    fn shares(&self) -> bool {
        false
    }

    /// Replaces all elements by a part of a message, without a copy. The elements are octets. The
    /// default does nothing: a back end calls it only if [`SequenceAccess::shares`] returns true.
    ///
    /// # Safety
    /// `sequence` meets the pointer rules of this module, and it shares.
    unsafe fn hold(&self, _sequence: *mut u8, _message: &SharedBytes, _range: Range<usize>) {}

    /// Removes all elements and frees the memory kept for later ones.
    ///
    /// # Safety
    /// `sequence` meets the pointer rules of this module.
    unsafe fn release(&self, sequence: *mut u8);
}

/// Access to an optional value.
///
/// # Safety
/// Implementations keep the rules of this module.
pub unsafe trait OptionalAccess: Send + Sync {
    /// Returns the value, or null if it is absent.
    ///
    /// # Safety
    /// `optional` meets the pointer rules of this module.
    unsafe fn get(&self, optional: *const u8) -> *const u8;

    /// Makes the value present and returns it. If it was absent, the value is valid but
    /// unspecified.
    ///
    /// # Safety
    /// `optional` meets the pointer rules of this module.
    unsafe fn set_some(&self, optional: *mut u8) -> Result<*mut u8, OutOfMemory>;

    /// Makes the value absent.
    ///
    /// # Safety
    /// `optional` meets the pointer rules of this module.
    unsafe fn set_none(&self, optional: *mut u8);

    /// Makes the value absent, and frees the memory kept for the next value.
    ///
    /// # Safety
    /// `optional` meets the pointer rules of this module.
    unsafe fn release(&self, optional: *mut u8) {
        // SAFETY: the caller upholds the contract of `release`, which is that of `set_none`.
        unsafe { self.set_none(optional) }
    }
}

/// The discriminator, case and value of a union.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selected {
    /// The discriminator.
    pub discriminator: i64,
    /// Index of the selected case. `None` if no case has this label and there is no default case.
    pub case: Option<u32>,
    /// The case's value; dangling if `case` is `None`.
    pub value: *const u8,
}

/// Access to a union.
///
/// # Safety
/// Implementations keep the rules of this module.
pub unsafe trait UnionAccess: Send + Sync {
    /// Returns what the union holds.
    ///
    /// # Safety
    /// `union` meets the pointer rules of this module.
    unsafe fn get(&self, union: *const u8) -> Selected;

    /// Selects `case` and stores the discriminator, which must choose that case. `case` is an index
    /// that the schema has, or `None` for a discriminator that chooses no case. Returns the value:
    /// unchanged if the case was already selected, otherwise a default or a value from an earlier
    /// use.
    ///
    /// A Rust `enum` stores no discriminator: it stands for the first label of its case or, without
    /// labels, for the smallest value that is no label. It cannot represent `None`, and returns
    /// `OutOfMemory`; lowering refuses such types beforehand.
    ///
    /// # Safety
    /// `union` meets the pointer rules of this module.
    unsafe fn select(&self, union: *mut u8, discriminator: i64, case: Option<u32>) -> Result<*mut u8, OutOfMemory>;

    /// Frees the memory of a value that is kept for later and not selected.
    ///
    /// # Safety
    /// `union` meets the pointer rules of this module.
    unsafe fn release(&self, _union: *mut u8) {}
}

/// Result of an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// It is in the map.
    Yes,
    /// The key existed; its value was replaced.
    Replaced,
    /// `fill` returned false; the map is unchanged.
    Refused,
}

/// Access to a map.
///
/// # Safety
/// Implementations keep the rules of this module.
pub unsafe trait MapAccess: Send + Sync {
    /// Returns the number of entries.
    ///
    /// # Safety
    /// `map` meets the pointer rules of this module.
    unsafe fn len(&self, map: *const u8) -> usize;

    /// Calls `visit` with each key and value until it returns false.
    ///
    /// # Safety
    /// `map` meets the pointer rules of this module.
    unsafe fn visit(&self, map: *const u8, visit: &mut dyn FnMut(*const u8, *const u8) -> bool);

    /// Removes all entries.
    ///
    /// # Safety
    /// `map` meets the pointer rules of this module.
    unsafe fn clear(&self, map: *mut u8);

    /// Removes all entries and frees the memory kept for later ones.
    ///
    /// # Safety
    /// `map` meets the pointer rules of this module.
    unsafe fn release(&self, map: *mut u8);

    /// Makes a default key and value, lets `fill` write both, and inserts them if `fill` returns
    /// true.
    ///
    /// # Safety
    /// `map` meets the pointer rules of this module; `fill` leaves both valid.
    unsafe fn insert(
        &self,
        map: *mut u8,
        fill: &mut dyn FnMut(*mut u8, *mut u8) -> bool,
    ) -> Result<Inserted, OutOfMemory>;
}

/// Access to a value behind a pointer.
///
/// # Safety
/// Implementations keep the rules of this module.
pub unsafe trait BoxedAccess: Send + Sync {
    /// Returns the value.
    ///
    /// # Safety
    /// `boxed` meets the pointer rules of this module.
    unsafe fn get(&self, boxed: *const u8) -> *const u8;

    /// Returns the value for writing.
    ///
    /// # Safety
    /// `boxed` meets the pointer rules of this module.
    unsafe fn get_mut(&self, boxed: *mut u8) -> *mut u8;
}
