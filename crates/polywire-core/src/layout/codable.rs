//! [`Codable`]: the types that can be encoded and decoded, which are every [`Message`] type and
//! [`Record`].
//!
//! [`codec`](crate::codec) builds its coders on this. From [`Place`] a coder gets the shape that
//! its program is made for, and the address of a value of that shape.

use alloc::sync::Arc;

use super::{Message, Record, Shape};

/// A type whose values an [`Encoder`](crate::codec::Encoder) writes and a
/// [`Decoder`](crate::codec::Decoder) reads: every [`Message`] type, and [`Record`] for types that
/// are known at run time only. Only this crate implements it.
///
/// ```
/// use polywire_core::{codec::{self, Encoder, Options}, layout::{Codable, Message, Record, Shape}};
///
/// #[derive(polywire_derive::Message)]
/// struct Pump { id: u32 }
///
/// fn length<V: Codable>(encoder: &Encoder<V>, value: &V) -> usize {
///     let mut bytes = Vec::new();
///     encoder.encode(value, &mut bytes).map_or(0, |()| bytes.len())
/// }
/// let (cdr, options) = (codec::find("cdr").unwrap(), Options::default());
/// let shape = Shape::of(Pump::shape().schema())?;
/// assert_eq!(length(&Encoder::new(cdr, &options)?, &Pump { id: 7 }), 4);
/// assert_eq!(length(&Encoder::for_shape(cdr, &options, &shape)?, &Record::new(&shape)), 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Codable: Place {}

impl<M: Message> Codable for M {}
impl Codable for Record {}

/// Where values lie. Public only because a public trait depends on it: it cannot be named outside
/// this crate.
///
/// # Safety
/// [`Place::address`] and [`Place::address_mut`] return the address of a live value of the layout
/// of [`Place::shape`], borrowed as `self` is.
pub unsafe trait Place {
    /// What a coder keeps to know the type of its values: nothing for a Rust type.
    type Type: Clone + Send + Sync + 'static;

    /// The shape of the values.
    fn shape(ty: &Self::Type) -> &Shape;

    /// The address of a value, to be read.
    ///
    /// # Panics
    /// If the value is of another type than `ty`.
    fn address(&self, ty: &Self::Type) -> *const u8;

    /// The address of a value, to be decoded into.
    ///
    /// # Panics
    /// If the value is of another type than `ty`.
    fn address_mut(&mut self, ty: &Self::Type) -> *mut u8;
}

// SAFETY: a message's shape is that of its Rust type.
unsafe impl<M: Message> Place for M {
    type Type = ();

    fn shape((): &()) -> &Shape {
        M::shape()
    }

    #[inline(always)]
    fn address(&self, (): &()) -> *const u8 {
        core::ptr::from_ref(self).cast()
    }

    #[inline(always)]
    fn address_mut(&mut self, (): &()) -> *mut u8 {
        core::ptr::from_mut(self).cast()
    }
}

// SAFETY: a record's memory is of its shape's layout, and its shape is compared.
unsafe impl Place for Record {
    type Type = Arc<Shape>;

    fn shape(ty: &Arc<Shape>) -> &Shape {
        ty
    }

    #[inline(always)]
    fn address(&self, ty: &Arc<Shape>) -> *const u8 {
        assert!(Arc::ptr_eq(ty, self.shape()), "the record is of another shape than the encoder");
        self.as_ptr()
    }

    #[inline(always)]
    fn address_mut(&mut self, ty: &Arc<Shape>) -> *mut u8 {
        assert!(Arc::ptr_eq(ty, self.shape()), "the record is of another shape than the decoder");
        self.as_mut_ptr()
    }
}
