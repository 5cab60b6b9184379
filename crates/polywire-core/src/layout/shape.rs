//! A schema and its layout, tied together, and the traits that give Rust types one.

use alloc::{boxed::Box, string::String, sync::Arc};
use core::{
    fmt, ptr,
    sync::atomic::{AtomicPtr, Ordering},
};

use super::{
    Layout,
    describe::{Describe, Described, Lit},
    dynamic::Plan,
};
use crate::schema::{Schema, SchemaError};

/// A type as data and where its values lie in memory.
///
/// There is one for each derived type ([`Message::shape`]) and one for records of a schema. Both
/// halves always come from the same source, which is why a shape cannot be put together from parts.
///
/// ```
/// use polywire_core::layout::{Describe, Described, Message, MessageElement, MessageField, Record, RecordError, Shape, ShapeError};
/// use std::sync::Arc;
///
/// #[derive(polywire_derive::Message)]
/// struct Pump { id: u32 }
///
/// // Of a Rust type, kept by it or computed anew; and of records of the same schema.
/// let derived: &Shape = Pump::shape();
/// assert_eq!(Shape::of_type::<Pump>()?.schema(), derived.schema());
/// let records: Arc<Shape> = Shape::of(derived.schema())?;
/// assert!(Record::try_new(&records).is_ok());
/// assert_eq!(Record::try_new(&Arc::new(Shape::of_type::<Pump>()?)).err(), Some(RecordError::NotOfRecords));
///
/// // A wrapper that is on the wire what it wraps.
/// #[repr(transparent)]
/// struct Metres(f64);
/// // SAFETY: it has the memory of an `f64`, and every `f64` is valid.
/// unsafe impl MessageField for Metres {
///     fn fresh() -> Self { Metres(0.0) }
///     fn describe(describe: &mut Describe) -> Described { f64::describe(describe) }
/// }
/// impl MessageElement for Metres {}
/// #[derive(polywire_derive::Message)]
/// struct Tank { levels: Vec<Metres> }
/// assert_eq!(Tank::shape().schema().type_name(&Tank::shape().schema().members(Tank::shape().schema().find("Tank").unwrap())[0].ty), "sequence<double>");
/// # Ok::<(), ShapeError>(())
/// ```
pub struct Shape {
    schema: Schema,
    layout: Arc<Layout>,
    /// How values live, where this is the shape of records.
    plan: Option<Arc<Plan>>,
}

impl Shape {
    /// The shape of a Rust type. [`Message::shape`] keeps it, this computes it anew.
    pub fn of_type<T: MessageField>() -> Result<Shape, ShapeError> {
        let mut describe = Describe::new();
        let root = describe.of::<T>();
        describe.finish(root)
    }

    /// # Safety
    /// The layout's nodes run parallel to the schema as [`Layout`] says.
    pub(super) unsafe fn new(schema: Schema, layout: Layout) -> Shape {
        Shape { schema, layout: Arc::new(layout), plan: None }
    }

    /// # Safety
    /// Schema, layout and plan run parallel.
    pub(super) unsafe fn of_records(schema: Schema, layout: Layout, plan: Arc<Plan>) -> Shape {
        Shape { schema, layout: Arc::new(layout), plan: Some(plan) }
    }

    pub(super) fn plan(&self) -> Option<&Arc<Plan>> {
        self.plan.as_ref()
    }

    /// The type as data.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Where a value lies in memory.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shape({}, {:?})", self.schema.name(), self.layout.node(self.layout.root()))
    }
}

/// Why a type or schema has no shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// Together the definitions make no schema.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// An attribute says what the Rust type cannot hold.
    #[error("{at}: {what}")]
    Attribute {
        /// `Type.member` or `Type`.
        at: String,
        /// What does not fit.
        what: String,
    },
    /// Inheritance makes more fields than anybody means.
    #[error("the structures have more than {max} fields, with those they inherit")]
    TooManyFields {
        /// Most there may be.
        max: usize,
    },
    /// A value's fixed part is too large.
    #[error("a value takes {bytes} bytes, allowed are {max}")]
    TooLarge {
        /// Its size, or the least it would be.
        bytes: u64,
        /// Largest size.
        max: u64,
    },
}

/// What a member of a message can be: everything [`Message`] can be derived for, and Rust's own
/// types below.
///
/// | Rust | IDL |
/// |---|---|
/// | `bool`, `i8` to `i64`, `u8` to `u64`, `f32`, `f64` | `boolean`, `int8` to `int64`, `uint8` to `uint64`, `float`, `double` |
/// | [`Float128`](super::Float128), [`Char8`](super::Char8), [`Char16`](super::Char16) | `long double`, `char`, `wchar` |
/// | `String` | `string` |
/// | [`SharedStr`](super::SharedStr), [`SharedBytes`](super::SharedBytes) | `string`, `sequence<octet>`, not copied out of a message where that can be had |
/// | `Vec<T>`, `[T; N]` | `sequence<T>`, `T name[N]` |
/// | `BTreeMap<K, V>`, `HashMap<K, V>` | `map<K, V>` |
/// | `Option<T>`, `Box<T>` | `@optional T`, `@external T` |
///
/// # Safety
/// `describe` must give the truth about the type's memory: programs read and write through it
/// without further checks. Use the derive.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a member of a message",
    label = "no IDL type stands for this",
    note = "derive `Message` for your own types; strings are `String`, sequences `Vec`, characters `Char8` or `Char16`, and integers have a size in their name"
)]
pub unsafe trait MessageField: Send + Sized + 'static {
    /// A valid value to decode into: zero, empty, absent, an enum's first or default literal, and
    /// for members with `#[polywire(default = ..)]` that. It does not use [`Default`].
    fn fresh() -> Self;

    /// Adds what is needed of the schema and of the layout.
    fn describe(describe: &mut Describe) -> Described;

    /// The value that a constant of an attribute stands for, if it fits.
    #[doc(hidden)]
    fn from_lit(_: Lit) -> Option<Self> {
        None
    }

    /// A fresh value where an attribute gives a default, which is none of an optional member: it is
    /// absent.
    #[doc(hidden)]
    fn fresh_or(default: Lit) -> Self {
        Self::from_lit(default).unwrap_or_else(Self::fresh)
    }
}

/// Fields that may also stand inside sequences, arrays, maps and boxes: all but `Option` and `Box`,
/// since in IDL only a member is optional or external.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an element of a sequence, array, map or box",
    note = "in IDL only a member can be optional or external: put the `Option` or `Box` into a structure of its own"
)]
pub trait MessageElement: MessageField {}

/// A type that can be sent: derive it.
///
/// A message needs no [`Default`]: decoders start from [`MessageField::fresh`].
///
/// ```
/// use polywire_core::layout::{Message, MessageField};
/// use polywire_derive::Message;
///
/// #[derive(Message)]
/// #[polywire(name = "Sensors::Reading")]
/// struct Reading {
///     #[polywire(key)]
///     sensor: u32,
///     #[polywire(default = -273.15, unit = "C")]
///     temperature: f64,
///     samples: Vec<i16>,
/// }
///
/// assert_eq!(Reading::shape().schema().name(), "Sensors::Reading");
/// assert_eq!(Reading::fresh().temperature, -273.15);
/// ```
///
/// # Safety
/// `shape` is that of [`Shape::of_type`] for this very type.
#[diagnostic::on_unimplemented(message = "`{Self}` is not a message", note = "put `#[derive(Message)]` in front of it")]
pub unsafe trait Message: MessageElement {
    /// Its schema and layout, computed at the first call.
    ///
    /// # Panics
    /// At the first call, if attributes contradict the Rust type or each other in a way the
    /// compiler could not see: two members with the same id, an `idl` text that does not fit.
    /// [`Shape::of_type`] gives the error instead.
    fn shape() -> &'static Shape;
}

/// Where [`Message::shape`] keeps what it computed. Two threads may compute it at once; one of the
/// results is kept.
#[doc(hidden)]
pub struct ShapeCell(AtomicPtr<Shape>);

impl ShapeCell {
    #[expect(clippy::new_without_default, reason = "it stands in statics only")]
    pub const fn new() -> ShapeCell {
        ShapeCell(AtomicPtr::new(ptr::null_mut()))
    }

    pub fn shape_of<T: MessageField>(&'static self) -> &'static Shape {
        let known = self.0.load(Ordering::Acquire);
        if !known.is_null() {
            // SAFETY: only `compute` stores here, and what it stores lives for ever.
            return unsafe { &*known };
        }
        self.compute(|| match Shape::of_type::<T>() {
            Ok(shape) => shape,
            Err(error) => panic!("the attributes of {} contradict themselves: {error}", core::any::type_name::<T>()),
        })
    }

    #[cold]
    fn compute(&'static self, make: impl FnOnce() -> Shape) -> &'static Shape {
        let made = Box::into_raw(Box::new(make()));
        match self.0.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: `made` is a leaked box that nobody frees from here on.
            Ok(_) => unsafe { &*made },
            Err(other) => {
                // SAFETY: `made` was not published, so this is the only pointer to it.
                drop(unsafe { Box::from_raw(made) });
                // SAFETY: as above; what is stored lives for ever.
                unsafe { &*other }
            }
        }
    }
}
