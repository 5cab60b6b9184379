//! Values of types that are known at run time only.

use alloc::{string::String, sync::Arc};
use core::{fmt, ptr::NonNull};

use super::{
    OutOfMemory, PathError, Shape, Value, ValueRef,
    assign::Assign,
    dynamic::Plan,
    path::{Target, parse, text, walk},
    view::Spot,
};
use crate::schema::Member;

/// A value of a schema that no Rust type stands for.
///
/// Fresh ones hold what an absent value means: zero, empty, absent, an enum's first or default
/// literal, and what `@default` says. Records are equal when their values are, as [`ValueRef`]
/// compares them.
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

// SAFETY: a record owns all its memory, and nothing changes it behind a shared reference.
unsafe impl Send for Record {}
// SAFETY: as above.
unsafe impl Sync for Record {}

/// Why there is no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The shape is that of a Rust type.
    #[error("the shape is that of a Rust type; records need that of Shape::of")]
    NotOfRecords,
    /// See [`OutOfMemory`].
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

impl Record {
    /// A fresh value of a schema.
    ///
    /// # Panics
    /// If the shape is that of a Rust type, or there is no memory; [`Record::try_new`] says so
    /// instead.
    pub fn new(shape: &Arc<Shape>) -> Record {
        match Record::try_new(shape) {
            Ok(record) => record,
            Err(error) => panic!("{error}"),
        }
    }

    /// A fresh value of a schema.
    pub fn try_new(shape: &Arc<Shape>) -> Result<Record, RecordError> {
        let plan = shape.plan().ok_or(RecordError::NotOfRecords)?.clone();
        let memory = NonNull::new(plan.new_root()?).ok_or(OutOfMemory)?;
        Ok(Record { shape: shape.clone(), plan, memory })
    }

    /// Stores a value where a path leads. On the way, what is absent becomes present, unions select
    /// the case, and maps get the key; that stays so even if the value does not fit. Sequences
    /// do not grow: see [`Record::resize`].
    pub fn set(&mut self, path: &str, value: impl Into<Value>) -> Result<(), PathError> {
        let steps = parse(path)?;
        let assign = self.assign();
        let target = walk(Target::Spot(assign.root()), &steps, &mut |spot, step| assign.prepare(spot, step))?;
        assign.put(target, &value.into()).map_err(|failure| failure.at(text(&steps)))
    }

    /// Makes the sequence that a path leads to `len` elements long. New ones are fresh.
    pub fn resize(&mut self, path: &str, len: usize) -> Result<(), PathError> {
        let steps = parse(path)?;
        let assign = self.assign();
        let target = walk(Target::Spot(assign.root()), &steps, &mut |spot, step| assign.prepare(spot, step))?;
        assign.resize(target, len).map_err(|failure| failure.at(text(&steps)))
    }

    /// Goes back to a fresh value, keeping what is allocated.
    pub fn clear(&mut self) -> Result<(), OutOfMemory> {
        // SAFETY: the memory holds a value of the root, and the borrow is exclusive.
        unsafe { self.plan.reset(self.plan.root, self.memory.as_ptr()) }
    }

    /// Takes over the value of a record of the same shape, keeping what is allocated here. False if
    /// the shapes differ.
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
    /// // Codec programs get at the bytes.
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

    /// For codec programs: the value, as the shape's layout says. What is written there must keep
    /// to it.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.memory.as_ptr()
    }

    /// For codec programs: the value, as the shape's layout says.
    pub fn as_ptr(&self) -> *const u8 {
        self.memory.as_ptr()
    }

    /// Its schema and layout.
    pub fn shape(&self) -> &Arc<Shape> {
        &self.shape
    }

    /// A view of the whole.
    pub fn view(&self) -> ValueRef<'_> {
        // SAFETY: the memory holds a value of the shape for as long as the record lives.
        unsafe { ValueRef::from_raw(&self.shape, self.as_ptr()) }
    }

    /// A view of what a path leads to.
    pub fn get(&self, path: &str) -> Result<ValueRef<'_>, PathError> {
        // SAFETY: as of `view`.
        let root = unsafe { Spot::root(&self.shape, self.as_ptr()) };
        walk(Target::Spot(root), &parse(path)?, &mut |_, _| Ok(())).map(Target::view)
    }

    /// The members of a structure with their values; empty for other types.
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

    /// The integer at a path.
    pub fn i64(&self, path: &str) -> Result<i64, PathError> {
        self.read(path, "integer of 64 bits", |v| v.as_i64())
    }

    /// The integer at a path.
    pub fn u64(&self, path: &str) -> Result<u64, PathError> {
        self.read(path, "unsigned integer of 64 bits", |v| v.as_u64())
    }

    /// The number at a path.
    pub fn f64(&self, path: &str) -> Result<f64, PathError> {
        self.read(path, "number", |v| v.as_f64())
    }

    /// The text at a path, or the name of an enum's literal.
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
            let why = alloc::format!("{value:?} is no {what}");
            PathError::DoesNotFit { path: path.into(), why }
        })
    }

    fn assign(&mut self) -> Assign<'_> {
        // SAFETY: the memory holds a value of the shape, and the borrow is exclusive.
        let root = unsafe { Spot::root(&self.shape, self.memory.as_ptr()) };
        Assign::new(&self.plan, root)
    }
}

impl Clone for Record {
    /// # Panics
    /// If there is no memory.
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
        // SAFETY: the memory came from `new_root` and holds a value, which nobody uses any more.
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

// Floating-point numbers are compared by their bits, so everything equals itself.
impl Eq for Record {}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view().fmt(f)
    }
}

/// What went wrong with a value; the path comes later.
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
