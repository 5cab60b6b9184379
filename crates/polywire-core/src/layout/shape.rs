//! [`Shape`]: a schema together with its layout, and the traits by which Rust types have one.

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

/// A type as data, together with the memory layout of its values.
///
/// Each derived type has one ([`Message::shape`]), and the records of a schema have another
/// ([`Shape::of`]). A shape cannot be assembled from parts, so schema and layout always match.
///
/// ```
/// use polywire_core::layout::{Describe, Described, Message, MessageElement, MessageField, Record, RecordError, Shape, ShapeError};
/// use std::sync::Arc;
///
/// #[derive(polywire_derive::Message)]
/// struct Pump { id: u32 }
///
/// // The shape of a Rust type, cached or computed again; and that of the schema's records.
/// let derived: &Shape = Pump::shape();
/// assert_eq!(Shape::of_type::<Pump>()?.schema(), derived.schema());
/// let records: Arc<Shape> = Shape::of(derived.schema())?;
/// assert!(Record::try_new(&records).is_ok());
/// assert_eq!(Record::try_new(&Arc::new(Shape::of_type::<Pump>()?)).err(), Some(RecordError::NotOfRecords));
///
/// // A wrapper that has the wire form of its contents.
/// #[repr(transparent)]
/// struct Metres(f64);
/// // SAFETY: it has the memory layout of an `f64`, and every `f64` is valid.
/// unsafe impl MessageField for Metres {
///     fn default_value() -> Self { Metres(0.0) }
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
    /// How to manage values. `Some` for a shape of records.
    plan: Option<Arc<Plan>>,
}

impl Shape {
    /// Computes the shape of a Rust type. [`Message::shape`] returns a cached one.
    pub fn of_type<T: MessageField>() -> Result<Shape, ShapeError> {
        let mut describe = Describe::new();
        let root = describe.of::<T>();
        describe.finish(root)
    }

    /// # Safety
    /// The layout's nodes are parallel to the schema as [`Layout`] requires.
    pub(super) unsafe fn new(schema: Schema, layout: Layout) -> Shape {
        Shape { schema, layout: Arc::new(layout), plan: None }
    }

    /// # Safety
    /// Schema, layout and plan are parallel.
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
    /// The definitions do not form a valid schema.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// An attribute contradicts the Rust type.
    #[error("{at}: {what}")]
    Attribute {
        /// `Type.member` or `Type`.
        at: String,
        /// What does not fit.
        what: String,
    },
    /// Structures have too many fields, counted with inherited ones.
    #[error("the structures have more than {max} fields, inherited ones included")]
    TooManyFields {
        /// Largest number of fields.
        max: usize,
    },
    /// The fixed part of a value is too large.
    #[error("a value takes {bytes} bytes, at most {max} are allowed")]
    TooLarge {
        /// The size in bytes, or a lower bound of it.
        bytes: u64,
        /// Largest size in bytes.
        max: u64,
    },
}

/// A type that a member of a message can have: any type that derives [`Message`], and these Rust
/// types:
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
/// `describe` must describe the type's memory correctly: programs read and write through it without
/// further checks. Derive the trait instead of implementing it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a member of a message",
    label = "no IDL type stands for this",
    note = "derive `Message` for your own types; strings are `String`, sequences `Vec`, characters `Char8` or `Char16`, and integers have a size in their name"
)]
pub unsafe trait MessageField: Send + Sized + 'static {
    /// A default value to decode into: zero, empty, absent, an enum's first or default literal, and
    /// the value of `#[polywire(default = ..)]` for members that have it. It does not use
    /// [`Default`].
    fn default_value() -> Self;

    /// Adds the type to the schema and the layout under construction.
    fn describe(describe: &mut Describe) -> Described;

    /// The value of an attribute's constant, if it fits the type.
    #[doc(hidden)]
    fn from_lit(_: Lit) -> Option<Self> {
        None
    }

    /// The default value of a member with a default in its attribute. An optional member ignores it
    /// and is absent.
    #[doc(hidden)]
    fn default_value_or(default: Lit) -> Self {
        Self::from_lit(default).unwrap_or_else(Self::default_value)
    }
}

/// A field type that may also be an element of a sequence, array, map or box: all except `Option`
/// and `Box`, because in IDL only a member can be optional or external.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an element of a sequence, array, map or box",
    note = "in IDL only a member can be optional or external: put the `Option` or `Box` into a structure of its own"
)]
pub trait MessageElement: MessageField {}

/// A type that can be published and received. Derive it.
///
/// A message needs no [`Default`]: decoders start from [`MessageField::default_value`].
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
/// assert_eq!(Reading::default_value().temperature, -273.15);
/// ```
///
/// # Safety
/// `shape` returns the shape of this very type, as [`Shape::of_type`] computes it.
#[diagnostic::on_unimplemented(message = "`{Self}` is not a message", note = "put `#[derive(Message)]` in front of it")]
pub unsafe trait Message: MessageElement {
    /// The type's schema and layout, computed by the first call.
    ///
    /// # Panics
    /// The first call panics if attributes contradict the Rust type or each other in a way that the
    /// compiler cannot see, such as two members with the same id or an unsuitable `idl` text.
    /// [`Shape::of_type`] returns that error instead.
    fn shape() -> &'static Shape;
}

/// Caches the result of [`Message::shape`]. If two threads compute it at the same time, one of the
/// results is kept.
#[doc(hidden)]
pub struct ShapeCell(AtomicPtr<Shape>);

impl ShapeCell {
    #[expect(clippy::new_without_default, reason = "only statics use it")]
    pub const fn new() -> ShapeCell {
        ShapeCell(AtomicPtr::new(ptr::null_mut()))
    }

    pub fn shape_of<T: MessageField>(&'static self) -> &'static Shape {
        let known = self.0.load(Ordering::Acquire);
        if !known.is_null() {
            // SAFETY: only `compute` stores here, and what it stores is never freed.
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
            // SAFETY: `made` is a leaked box that nothing frees.
            Ok(_) => unsafe { &*made },
            Err(other) => {
                // SAFETY: `made` was not published, so this is the only pointer to it.
                drop(unsafe { Box::from_raw(made) });
                // SAFETY: only `compute` stores here, and what it stores is never freed.
                unsafe { &*other }
            }
        }
    }
}
