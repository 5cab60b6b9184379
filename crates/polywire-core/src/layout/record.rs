//! [`Record`]: a value whose type is known only at run time.

use alloc::{string::String, sync::Arc};
use core::{fmt, ptr::NonNull};

use super::{
    OutOfMemory, PathError, Shape, Value, ValueRef,
    assign::Assign,
    dynamic::Plan,
    path::{Target, parse, text, walk},
    view::TypedPlace,
};
use crate::schema::Member;

/// A value of a schema, without a Rust type.
///
/// A new record has default values: zero, empty, absent, an enum's first or default literal, and
/// the values of `@default`. Two records are equal if their values are equal; see [`ValueRef`] for
/// how values are compared.
///
/// ```
/// use polywire_core::layout::{Record, Shape};
/// use polywire_core::schema::{Def, Member, SchemaBuilder, Type};
///
/// let mut types = SchemaBuilder::new();
/// let entry = types.add(Def::structure("Entry", vec![Member::new("price", Type::Float64)]));
/// let book = types.add(Def::structure("Book", vec![
///     Member::new("counter", Type::Uint32),
///     Member::new("entries", Type::sequence(Type::Def(entry))),
/// ]));
/// let schema = types.finish(Type::Def(book))?;
///
/// let mut record = Record::new(&Shape::of(&schema)?);
/// record.set("counter", 7)?;
/// record.resize("entries", 2)?;
/// record.set("entries[1].price", 1.25)?;
/// assert_eq!(record.f64("entries[1].price")?, 1.25);
/// assert_eq!(format!("{record:?}"), "Book { counter: 7, entries: [Entry { price: 0.0 }, Entry { price: 1.25 }] }");
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
pub struct Record {
    shape: Arc<Shape>,
    plan: Arc<Plan>,
    memory: NonNull<u8>,
}

// SAFETY: a record owns all its memory, and nothing changes it through a shared reference.
unsafe impl Send for Record {}
// SAFETY: a record owns all its memory, and nothing changes it through a shared reference.
unsafe impl Sync for Record {}

/// Why a record cannot be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The shape belongs to a Rust type.
    #[error("the shape belongs to a Rust type; make a record's shape with Shape::of")]
    NotOfRecords,
    /// See [`OutOfMemory`].
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

impl Record {
    /// Creates a record with default values.
    ///
    /// # Panics
    /// If the shape belongs to a Rust type or an allocation fails. [`Record::try_new`] returns an
    /// error instead.
    pub fn new(shape: &Arc<Shape>) -> Record {
        match Record::try_new(shape) {
            Ok(record) => record,
            Err(error) => panic!("{error}"),
        }
    }

    /// Creates a record with default values. Fails if the shape belongs to a Rust type or an
    /// allocation fails.
    pub fn try_new(shape: &Arc<Shape>) -> Result<Record, RecordError> {
        let plan = shape.plan().ok_or(RecordError::NotOfRecords)?.clone();
        let memory = NonNull::new(plan.new_root()?).ok_or(OutOfMemory)?;
        Ok(Record { shape: shape.clone(), plan, memory })
    }

    /// Stores a value at a path. Along the path, absent values become present, unions select the
    /// named case, and maps get the key; these changes remain even if the value does not fit.
    /// Sequences do not grow: see [`Record::resize`].
    pub fn set(&mut self, path: &str, value: impl Into<Value>) -> Result<(), PathError> {
        let steps = parse(path)?;
        let assign = self.assign();
        let target = walk(Target::TypedPlace(assign.root()), &steps, &mut |spot, step| assign.prepare(spot, step))?;
        assign.put(target, &value.into()).map_err(|failure| failure.at(text(&steps)))
    }

    /// Sets the length of the sequence at a path. New elements have default values.
    pub fn resize(&mut self, path: &str, len: usize) -> Result<(), PathError> {
        let steps = parse(path)?;
        let assign = self.assign();
        let target = walk(Target::TypedPlace(assign.root()), &steps, &mut |spot, step| assign.prepare(spot, step))?;
        assign.resize(target, len).map_err(|failure| failure.at(text(&steps)))
    }

    /// Resets all members to their defaults and keeps the allocated memory.
    pub fn clear(&mut self) -> Result<(), OutOfMemory> {
        // SAFETY: the memory holds a value of the root, and the borrow is exclusive.
        unsafe { self.plan.reset(self.plan.root, self.memory.as_ptr()) }
    }

    /// Copies the value of another record and keeps the memory allocated here. Returns false,
    /// without a change, if the two were not made from the same shape.
    ///
    /// ```
    /// use polywire_core::layout::{PathError, Record, Shape};
    /// use polywire_core::schema::{Def, Member, SchemaBuilder, Type};
    /// let mut types = SchemaBuilder::new();
    /// let root = types.add(Def::structure("S", vec![Member::new("a", Type::Uint8), Member::new("on", Type::Bool), Member::new("t", Type::string())]));
    /// let shape = Shape::of(&types.finish(Type::Def(root))?)?;
    /// let (mut one, mut other) = (Record::new(&shape), Record::new(&shape));
    /// one.set("a", 7)?;
    /// one.set("on", true)?;
    /// one.set("t", "text")?;
    /// assert!(matches!(one.set("a", 256), Err(PathError::DoesNotFit { .. })));
    /// assert!(other.try_clone_from(&one)?);
    /// assert_eq!((other.u64("a")?, other.i64("a")?, other.bool("on")?, other.str("t")?), (7, 7, true, "text"));
    /// let names: Vec<&str> = other.fields().iter().map(|(member, _)| &*member.name).collect();
    /// assert_eq!(names, ["a", "on", "t"]);
    /// other.clear()?;
    /// assert_eq!(other, Record::new(&shape));
    /// // Codec programs access the record's bytes.
    /// // SAFETY: the root is a structure whose first field is one byte at its start.
    /// assert_eq!(unsafe { (*one.as_ptr(), *one.as_mut_ptr()) }, (7, 7));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_clone_from(&mut self, source: &Record) -> Result<bool, OutOfMemory> {
        if !Arc::ptr_eq(&self.plan, &source.plan) {
            return Ok(false);
        }
        // SAFETY: both hold a value of the root of the same plan.
        unsafe { self.plan.copy(self.plan.root, source.memory.as_ptr(), self.memory.as_ptr())? };
        Ok(true)
    }

    /// The value's memory, laid out as the shape says, for codec programs. Writes must leave a
    /// valid value.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.memory.as_ptr()
    }

    /// The value's memory, laid out as the shape says, for codec programs.
    pub fn as_ptr(&self) -> *const u8 {
        self.memory.as_ptr()
    }

    /// The record's schema and layout.
    pub fn shape(&self) -> &Arc<Shape> {
        &self.shape
    }

    /// A view of the whole value.
    pub fn view(&self) -> ValueRef<'_> {
        // SAFETY: the memory holds a value of the shape for as long as the record lives.
        unsafe { ValueRef::from_raw(&self.shape, self.as_ptr()) }
    }

    /// A view of the value at a path.
    pub fn get(&self, path: &str) -> Result<ValueRef<'_>, PathError> {
        // SAFETY: the memory holds a value of the shape for as long as the record lives.
        let root = unsafe { TypedPlace::root(&self.shape, self.as_ptr()) };
        walk(Target::TypedPlace(root), &parse(path)?, &mut |_, _| Ok(())).map(Target::view)
    }

    /// The members of a structure with their values. Empty for other types.
    pub fn fields(&self) -> alloc::vec::Vec<(&Member, ValueRef<'_>)> {
        match self.view() {
            ValueRef::Struct(structure) => structure.fields(),
            _ => alloc::vec::Vec::new(),
        }
    }

    /// The boolean at a path.
    pub fn bool(&self, path: &str) -> Result<bool, PathError> {
        self.read(path, "boolean", |v| v.as_bool())
    }

    /// The integer at a path. Fails if it is less than `i64::MIN` or greater than `i64::MAX`.
    pub fn i64(&self, path: &str) -> Result<i64, PathError> {
        self.read(path, "integer of 64 bits", |v| v.as_i64())
    }

    /// The integer at a path. Fails if it is negative.
    pub fn u64(&self, path: &str) -> Result<u64, PathError> {
        self.read(path, "unsigned integer of 64 bits", |v| v.as_u64())
    }

    /// The number at a path, rounded to `f64`.
    pub fn f64(&self, path: &str) -> Result<f64, PathError> {
        self.read(path, "number", |v| v.as_f64())
    }

    /// The text at a path, or the name of an enum literal.
    pub fn str(&self, path: &str) -> Result<&str, PathError> {
        self.read(path, "text", |v| v.as_str())
    }

    fn read<'a, R>(
        &'a self,
        path: &str,
        what: &'static str,
        read: impl FnOnce(ValueRef<'a>) -> Option<R>,
    ) -> Result<R, PathError> {
        let value = self.get(path)?;
        read(value).ok_or_else(|| {
            let why = alloc::format!("{value:?} is not a valid {what}");
            PathError::DoesNotFit { path: path.into(), why }
        })
    }

    fn assign(&mut self) -> Assign<'_> {
        // SAFETY: the memory holds a value of the shape, and the borrow is exclusive.
        let root = unsafe { TypedPlace::root(&self.shape, self.memory.as_ptr()) };
        Assign::new(&self.plan, root)
    }
}

impl Clone for Record {
    /// # Panics
    /// If an allocation fails.
    fn clone(&self) -> Record {
        let mut copy = Record::new(&self.shape);
        match copy.try_clone_from(self) {
            Ok(_) => copy,
            Err(error) => panic!("{error}"),
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        // SAFETY: the memory came from `new_root` and holds a value, which nothing uses any more.
        unsafe {
            self.plan.end(self.plan.root, self.memory.as_ptr());
            self.plan.free_block(self.plan.root, self.memory.as_ptr());
        }
    }
}

impl PartialEq for Record {
    fn eq(&self, other: &Record) -> bool {
        self.view() == other.view()
    }
}

// Floating-point numbers are compared by their bits, so equality is reflexive.
impl Eq for Record {}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view().fmt(f)
    }
}

/// Why a value was not stored. [`Failure::at`] adds the path.
#[derive(Debug)]
pub(super) enum Failure {
    DoesNotFit(String),
    NoMember(String, String),
    OutOfMemory,
}

impl Failure {
    pub(super) fn at(self, path: String) -> PathError {
        match self {
            Failure::DoesNotFit(why) => PathError::DoesNotFit { path, why },
            Failure::NoMember(name, there) => PathError::NoMember { path, name, there },
            Failure::OutOfMemory => PathError::OutOfMemory { path },
        }
    }
}

impl From<OutOfMemory> for Failure {
    fn from(_: OutOfMemory) -> Failure {
        Failure::OutOfMemory
    }
}
