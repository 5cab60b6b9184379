//! Layouts computed from schemas, and the life of the values in them.
//!
//! A [`Plan`] knows what [`super::Layout`] knows, and what must happen to memory besides: how a value comes to be, goes back to its default,
//! is copied and dropped. The access functions of a record's layout share it.

use alloc::{
    alloc::{alloc, dealloc, realloc},
    collections::BTreeMap,
    string::String,
    sync::Arc,
    vec::Vec,
};
use core::{alloc::Layout as Block, mem, ptr};

use super::{
    BoxedNode, EnumNode, Field, FlagWords, Float128, Kind, Layout, MapNode, Node, NodeId, OptionalNode, OutOfMemory,
    Scalar, SequenceNode, Shape, ShapeError, UnionNode, Words,
    derived::string_words,
    describe::{free_discriminator, read_integer},
    dynamic_access::Access,
};
use crate::schema::{DefId, DefKind, Literal, Schema, Type};

/// Largest fixed part of a record. A schema's own limit lies below: it counts the same things smaller.
const MAX_BYTES: u64 = 1 << 26;

/// Fields of all structures together. Inheritance multiplies: many structures may share one large base.
const MAX_FIELDS: usize = 1 << 20;

impl Shape {
    /// The shape of records of a schema.
    ///
    /// ```
    /// use polywire_core::{layout::Shape, schema::{SchemaBuilder, Type}};
    ///
    /// let schema = SchemaBuilder::new().finish(Type::sequence(Type::Float64))?;
    /// let shape = Shape::of(&schema)?;
    /// assert_eq!(shape.schema(), &schema);
    /// # Ok::<(), Box<dyn core::error::Error>>(())
    /// ```
    pub fn of(schema: &Schema) -> Result<Arc<Shape>, ShapeError> {
        let plan = Arc::new(Plan::of(schema)?);
        let node = |(i, place): (usize, &Place)| plan.node(NodeId(i as u32), place);
        let nodes = plan.places.iter().enumerate().map(node).collect();
        // SAFETY: the plan lays records out and walks them; the nodes say the same as it does.
        let layout = unsafe { Layout::new(nodes, plan.root) };
        // SAFETY: the plan was made from this very schema.
        Ok(Arc::new(unsafe { Shape::of_records(schema.clone(), layout, plan.clone()) }))
    }
}

/// Everything about the values of a schema's records. Its places have the ids of the layout's nodes.
pub(super) struct Plan {
    places: Vec<Place>,
    pub(super) root: NodeId,
}

pub(super) struct Place {
    pub(super) size: usize,
    pub(super) align: usize,
    pub(super) what: What,
    /// Nothing but bytes: it can be copied as they are, and needs no drop.
    pub(super) plain: bool,
    /// Zero bytes are a fresh value.
    zero: bool,
}

pub(super) enum What {
    Scalar { scalar: Scalar, fresh: [u8; 16] },
    Enum { literals: Arc<[i32]>, fresh: i32 },
    String { fresh: String },
    Sequence { element: NodeId },
    Array { element: NodeId, len: usize },
    Struct { fields: Arc<[Field]> },
    Optional { inner: NodeId, payload: usize },
    Union { cases: Arc<[NodeId]>, payload: usize, fresh: (i64, Option<u32>) },
    Map { key: NodeId, value: NodeId, value_at: usize, stride: usize, align: usize },
    Boxed { inner: NodeId },
}

/// A record's sequence. Elements from `len` to `initialised` are out of use but keep what they have allocated.
#[repr(C)]
pub(super) struct RawSequence {
    pub(super) pointer: *mut u8,
    pub(super) capacity: usize,
    pub(super) len: usize,
    pub(super) initialised: usize,
}

/// A record's map: entries in order of insertion, and an index of them (see [`super::sorted_runs`]).
#[repr(C)]
pub(super) struct RawMap {
    pub(super) entries: RawSequence,
    pub(super) index: Vec<u32>,
}

/// The front of a record's union.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RawUnion {
    pub(super) discriminator: i64,
    /// [`NO_CASE`] where the discriminator chooses none.
    pub(super) case: u32,
}

pub(super) const NO_CASE: u32 = u32::MAX;

/// States of an optional's flag: as of [`FlagWords`].
pub(super) const ABSENT: u8 = 0;
pub(super) const PRESENT: u8 = 1;
pub(super) const SPARE: u8 = 2;

impl Plan {
    fn of(schema: &Schema) -> Result<Plan, ShapeError> {
        let mut planner =
            Planner { schema, places: Vec::new(), known: BTreeMap::new(), later: Vec::new(), fields: 0 };
        let root = planner.later(schema.root());
        while let Some((id, ty)) = planner.later.pop() {
            planner.fill(id, &ty, None)?;
        }
        // The queue held every place that was reserved.
        let places: Option<Vec<Place>> = planner.places.into_iter().collect();
        let places = places.ok_or(ShapeError::TooLarge { bytes: MAX_BYTES + 1, max: MAX_BYTES })?;
        Ok(Plan { places, root })
    }

    pub(super) fn place(&self, id: NodeId) -> &Place {
        &self.places[id.0 as usize]
    }

    fn node(self: &Arc<Plan>, id: NodeId, place: &Place) -> Node {
        const WORD: u32 = mem::size_of::<usize>() as u32;
        let access = || Arc::new(Access { plan: self.clone(), node: id });
        let kind = match &place.what {
            What::Scalar { scalar, .. } => Kind::Scalar(*scalar),
            What::Enum { literals, .. } => Kind::Enum(EnumNode { repr: Scalar::I32, literals: literals.clone() }),
            What::String { .. } => Kind::String { words: string_words() },
            What::Sequence { element } => {
                let words = Some(Words { pointer: 0, capacity: WORD, len: 2 * WORD });
                Kind::Sequence(SequenceNode { element: *element, words, access: access() })
            }
            What::Array { element, len } => Kind::Array { element: *element, len: *len as u32 },
            What::Struct { fields } => Kind::Struct { fields: fields.clone() },
            What::Optional { inner, payload } => {
                let flag = Some(FlagWords { flag: 0, payload: *payload as u32 });
                Kind::Optional(OptionalNode { inner: *inner, flag, access: access() })
            }
            What::Union { cases, .. } => Kind::Union(UnionNode { cases: cases.clone(), access: access() }),
            What::Map { key, value, .. } => Kind::Map(MapNode { key: *key, value: *value, access: access() }),
            What::Boxed { inner } => Kind::Boxed(BoxedNode { inner: *inner, access: access() }),
        };
        Node { size: place.size as u32, align: place.align as u32, kind }
    }
}

/// Sizes and offsets. What lies behind a pointer is filled in later, so that neither recursive types nor long chains go deep.
struct Planner<'a> {
    schema: &'a Schema,
    places: Vec<Option<Place>>,
    known: BTreeMap<DefId, NodeId>,
    later: Vec<(NodeId, Type)>,
    fields: usize,
}

impl Planner<'_> {
    fn reserve(&mut self) -> NodeId {
        self.places.push(None);
        NodeId(self.places.len() as u32 - 1)
    }

    /// A place whose size is not needed now.
    fn later(&mut self, ty: &Type) -> NodeId {
        let ty = self.schema.resolve(ty);
        if let Type::Def(def) = ty {
            if let Some(id) = self.known.get(def) {
                return *id;
            }
            let id = self.reserve();
            self.known.insert(*def, id);
            self.later.push((id, ty.clone()));
            return id;
        }
        let id = self.reserve();
        self.later.push((id, ty.clone()));
        id
    }

    /// A place that is part of another.
    fn now(&mut self, ty: &Type, fresh: Option<&Literal>) -> Result<NodeId, ShapeError> {
        let ty = self.schema.resolve(ty);
        let id = match ty {
            Type::Def(def) if fresh.is_none() => match self.known.get(def) {
                Some(id) => *id,
                None => {
                    let id = self.reserve();
                    self.known.insert(*def, id);
                    id
                }
            },
            _ => self.reserve(),
        };
        self.fill(id, ty, fresh)?;
        Ok(id)
    }

    fn fill(&mut self, id: NodeId, ty: &Type, fresh: Option<&Literal>) -> Result<(), ShapeError> {
        if self.places[id.0 as usize].is_some() {
            return Ok(());
        }
        let place = match ty {
            Type::String { .. } | Type::WString { .. } => string_place(fresh),
            Type::Sequence { element, .. } => of_type::<RawSequence>(What::Sequence { element: self.later(element) }),
            Type::Array { element, dims } => {
                let element = self.now(element, None)?;
                self.array(element, dims)?
            }
            Type::Map { key, value, .. } => {
                let (key, value) = (self.now(key, None)?, self.now(value, None)?);
                self.map(key, value)
            }
            Type::Def(def) => self.definition(*def, fresh)?,
            primitive => scalar_place(scalar_of(primitive), fresh),
        };
        if place.size as u64 > MAX_BYTES {
            return Err(ShapeError::TooLarge { bytes: place.size as u64, max: MAX_BYTES });
        }
        self.places[id.0 as usize] = Some(place);
        Ok(())
    }

    fn definition(&mut self, id: DefId, fresh: Option<&Literal>) -> Result<Place, ShapeError> {
        let schema = self.schema;
        match &schema.def(id).kind {
            DefKind::Enum { literals, .. } => {
                let named = |name: &str| literals.iter().find(|l| l.name == name);
                let given = match fresh {
                    Some(Literal::Enum(name)) => named(name.rsplit("::").next().unwrap_or(name)),
                    Some(Literal::Int(value)) => literals.iter().find(|l| i128::from(l.value) == *value),
                    _ => None,
                };
                let default = given.or(literals.iter().find(|l| l.is_default)).or(literals.first());
                let mut values: Vec<i32> = literals.iter().map(|l| l.value).collect();
                values.sort_unstable();
                let what = What::Enum { literals: values.into(), fresh: default.map_or(0, |l| l.value) };
                Ok(of_type::<i32>(what))
            }
            DefKind::Bitmask { bit_bound, .. } => {
                let scalar = match bit_bound {
                    0..=8 => Scalar::U8,
                    9..=16 => Scalar::U16,
                    17..=32 => Scalar::U32,
                    _ => Scalar::U64,
                };
                Ok(scalar_place(scalar, fresh))
            }
            DefKind::Bitset { .. } => Ok(scalar_place(Scalar::U64, fresh)),
            DefKind::Struct { .. } => self.structure(id),
            DefKind::Union { .. } => self.union(id),
            // Aliases were followed.
            DefKind::Alias { .. } => Ok(scalar_place(Scalar::U8, None)),
        }
    }

    fn structure(&mut self, id: DefId) -> Result<Place, ShapeError> {
        let members = self.schema.members(id);
        self.fields += members.len();
        if self.fields > MAX_FIELDS {
            return Err(ShapeError::TooManyFields { max: MAX_FIELDS });
        }
        let (mut end, mut align, mut plain, mut zero) = (0usize, 1usize, true, true);
        let mut fields = Vec::with_capacity(members.len());
        for member in members {
            let node = match (member.external, member.optional) {
                (true, _) => {
                    let inner = self.later(&member.ty);
                    self.add(of_type::<*mut u8>(What::Boxed { inner }))
                }
                (false, true) => self.now(&member.ty, None)?,
                (false, false) => self.now(&member.ty, member.default.as_ref())?,
            };
            let node = if member.optional { self.optional(node) } else { node };
            let place = self.known_place(node);
            let offset = end.next_multiple_of(place.align);
            fields.push(Field { offset: offset as u32, node });
            end = offset.saturating_add(place.size);
            align = align.max(place.align);
            (plain, zero) = (plain && place.plain, zero && place.zero);
            if end as u64 > MAX_BYTES {
                return Err(ShapeError::TooLarge { bytes: end as u64, max: MAX_BYTES });
            }
        }
        // Nothing in a record has the size zero, so no pointer must be made up.
        let size = end.max(1).next_multiple_of(align);
        Ok(Place { size, align, plain, zero, what: What::Struct { fields: fields.into() } })
    }

    fn optional(&mut self, inner: NodeId) -> NodeId {
        let (size, align) = self.known_place(inner).block();
        let payload = align;
        let size = (payload + size).next_multiple_of(align);
        self.add(Place { size, align, plain: false, zero: false, what: What::Optional { inner, payload } })
    }

    fn union(&mut self, id: DefId) -> Result<Place, ShapeError> {
        let schema = self.schema;
        let DefKind::Union { discriminator, cases, .. } = &schema.def(id).kind else {
            return Ok(scalar_place(Scalar::U8, None));
        };
        let (mut size, mut align) = (0, mem::align_of::<RawUnion>());
        let mut nodes = Vec::with_capacity(cases.len());
        for case in cases {
            let node = match case.member.external {
                true => {
                    let inner = self.later(&case.member.ty);
                    self.add(of_type::<*mut u8>(What::Boxed { inner }))
                }
                false => self.now(&case.member.ty, None)?,
            };
            let (of_case, its_align) = self.known_place(node).block();
            (size, align) = (usize::max(size, of_case), usize::max(align, its_align));
            nodes.push(node);
        }
        let first = fresh_discriminator(schema, discriminator);
        let chosen = cases.iter().position(|c| c.labels.contains(&first));
        let chosen = chosen.or(cases.iter().position(|c| c.is_default)).map(|case| case as u32);
        let payload = mem::size_of::<RawUnion>().next_multiple_of(align);
        let size = (payload + size).next_multiple_of(align);
        let what = What::Union { cases: nodes.into(), payload, fresh: (first, chosen) };
        Ok(Place { size, align, plain: false, zero: false, what })
    }

    fn array(&mut self, element: NodeId, dims: &[u32]) -> Result<Place, ShapeError> {
        let place = self.known_place(element);
        let len = dims.iter().fold(1u64, |n, d| n.saturating_mul(u64::from(*d)));
        let bytes = len.saturating_mul(place.size as u64);
        if bytes > MAX_BYTES {
            return Err(ShapeError::TooLarge { bytes, max: MAX_BYTES });
        }
        let what = What::Array { element, len: len as usize };
        Ok(Place { size: bytes as usize, align: place.align, plain: place.plain, zero: place.zero, what })
    }

    fn map(&mut self, key: NodeId, value: NodeId) -> Place {
        let ((key_size, key_align), (value_size, value_align)) =
            (self.known_place(key).block(), self.known_place(value).block());
        let align = key_align.max(value_align);
        let value_at = key_size.next_multiple_of(value_align);
        let stride = (value_at + value_size).next_multiple_of(align);
        of_type::<RawMap>(What::Map { key, value, value_at, stride, align })
    }

    fn add(&mut self, place: Place) -> NodeId {
        self.places.push(Some(place));
        NodeId(self.places.len() as u32 - 1)
    }

    /// A place that was filled in. One that is not is part of itself, which no schema is.
    fn known_place(&self, id: NodeId) -> &Place {
        const NOTHING: &Place = &Place {
            size: 1,
            align: 1,
            plain: true,
            zero: true,
            what: What::Scalar { scalar: Scalar::U8, fresh: [0; 16] },
        };
        self.places[id.0 as usize].as_ref().unwrap_or(NOTHING)
    }
}

impl Place {
    fn block(&self) -> (usize, usize) {
        (self.size, self.align)
    }
}

/// A place that holds a `T`.
fn of_type<T>(what: What) -> Place {
    let plain = matches!(what, What::Enum { .. });
    let zero = matches!(what, What::Enum { fresh: 0, .. });
    Place { size: mem::size_of::<T>(), align: mem::align_of::<T>(), plain, zero, what }
}

fn string_place(fresh: Option<&Literal>) -> Place {
    let fresh = match fresh {
        Some(Literal::String(text)) => text.clone(),
        _ => String::new(),
    };
    of_type::<String>(What::String { fresh })
}

fn scalar_place(scalar: Scalar, fresh: Option<&Literal>) -> Place {
    let fresh = fresh.and_then(|literal| scalar_bytes(scalar, literal)).unwrap_or_default();
    let (size, zero) = (scalar.size(), fresh == [0; 16]);
    Place { size, align: size.min(8), plain: true, zero, what: What::Scalar { scalar, fresh } }
}

/// A constant as it lies in memory; none if the scalar cannot hold it, as a stranger's schema may have it.
fn scalar_bytes(scalar: Scalar, literal: &Literal) -> Option<[u8; 16]> {
    let number = match literal {
        Literal::Float(f) if !scalar.is_integer() => *f,
        Literal::Int(i) if !scalar.is_integer() => *i as f64,
        Literal::Int(i) => return integer_bytes(scalar, *i),
        Literal::Bool(b) => return integer_bytes(scalar, i128::from(*b)),
        Literal::Char(c) => return integer_bytes(scalar, i128::from(*c)),
        _ => return None,
    };
    let mut bytes = [0; 16];
    match scalar {
        Scalar::F32 => bytes[..4].copy_from_slice(&(number as f32).to_ne_bytes()),
        Scalar::F64 => bytes[..8].copy_from_slice(&number.to_ne_bytes()),
        Scalar::F128 => bytes = Float128::from(number).0,
        _ => return None,
    }
    Some(bytes)
}

pub(super) fn integer_bytes(scalar: Scalar, value: i128) -> Option<[u8; 16]> {
    let (least, most) = scalar.range()?;
    if !(least..=most).contains(&value) {
        return None;
    }
    let mut bytes = [0; 16];
    let size = scalar.size();
    let all = value.to_ne_bytes();
    let part = if cfg!(target_endian = "little") { &all[..size] } else { &all[16 - size..] };
    bytes[..size].copy_from_slice(part);
    Some(bytes)
}

/// How a primitive lies in memory.
fn scalar_of(ty: &Type) -> Scalar {
    match ty {
        Type::Bool => Scalar::Bool,
        Type::Int8 => Scalar::I8,
        Type::Int16 => Scalar::I16,
        Type::Int32 => Scalar::I32,
        Type::Int64 => Scalar::I64,
        Type::Uint16 | Type::Char16 => Scalar::U16,
        Type::Uint32 => Scalar::U32,
        Type::Uint64 => Scalar::U64,
        Type::Float32 => Scalar::F32,
        Type::Float64 => Scalar::F64,
        Type::Float128 => Scalar::F128,
        _ => Scalar::U8,
    }
}

fn fresh_discriminator(schema: &Schema, ty: &Type) -> i64 {
    match schema.def_of(ty).map(|d| &d.kind) {
        Some(DefKind::Enum { literals, .. }) => {
            let default = literals.iter().find(|l| l.is_default).or(literals.first());
            default.map_or(0, |l| l.value.into())
        }
        _ => 0,
    }
}

/// A discriminator that chooses `case`: its first label, or the smallest that is nobody's.
pub(super) fn discriminator_of(schema: &Schema, union: DefId, case: usize) -> Option<i64> {
    let DefKind::Union { discriminator, cases, .. } = &schema.def(union).kind else { return None };
    let first = cases.get(case)?.labels.first().copied();
    first.or_else(|| free_discriminator(schema.resolve(discriminator), schema.def_of(discriminator), cases))
}

/// The life of values. `at` always points to memory of the place's size and alignment.
impl Plan {
    /// Makes a fresh value in memory that holds none. When it fails, the memory holds none again.
    ///
    /// # Safety
    /// `at` can be written.
    pub(super) unsafe fn init(&self, id: NodeId, at: *mut u8) -> Result<(), OutOfMemory> {
        // SAFETY: as the caller promises; what is hollow can be reset and dropped.
        unsafe {
            if self.place(id).zero {
                at.write_bytes(0, self.place(id).size);
                return Ok(());
            }
            self.hollow(id, at);
            self.reset(id, at).inspect_err(|_| self.drop(id, at))
        }
    }

    /// Makes a value that has allocated nothing. Boxes are null, and nobody but `reset` and `drop` may see them so.
    ///
    /// # Safety
    /// `at` can be written.
    unsafe fn hollow(&self, id: NodeId, at: *mut u8) {
        let place = self.place(id);
        // SAFETY: as the caller promises; parts lie inside the place, at their alignment.
        unsafe {
            match &place.what {
                What::Scalar { scalar, fresh } => ptr::copy_nonoverlapping(fresh.as_ptr(), at, scalar.size()),
                What::Enum { fresh, .. } => at.cast::<i32>().write(*fresh),
                What::String { .. } => at.cast::<String>().write(String::new()),
                What::Sequence { element } => at.cast::<RawSequence>().write(RawSequence::empty(self.place(*element).align)),
                What::Array { element, len } => {
                    let stride = self.place(*element).size;
                    (0..*len).for_each(|i| self.hollow(*element, at.add(i * stride)));
                }
                What::Struct { fields } => fields.iter().for_each(|f| self.hollow(f.node, at.add(f.offset as usize))),
                What::Optional { .. } => at.write(ABSENT),
                What::Union { cases, payload, fresh: (discriminator, case) } => {
                    let front = RawUnion { discriminator: *discriminator, case: case.unwrap_or(NO_CASE) };
                    at.cast::<RawUnion>().write(front);
                    if let Some(case) = case {
                        self.hollow(cases[*case as usize], at.add(*payload));
                    }
                }
                What::Map { align, .. } => {
                    let entries = RawSequence::empty(*align);
                    at.cast::<RawMap>().write(RawMap { entries, index: Vec::new() });
                }
                What::Boxed { .. } => at.cast::<*mut u8>().write(ptr::null_mut()),
            }
        }
    }

    /// Gives a value its default, keeping what it has allocated where it can be used again. When it fails, the value is valid
    /// but for the boxes that [`Plan::hollow`] left.
    ///
    /// # Safety
    /// `at` holds a value.
    pub(super) unsafe fn reset(&self, id: NodeId, at: *mut u8) -> Result<(), OutOfMemory> {
        let place = self.place(id);
        // SAFETY: as the caller promises.
        unsafe {
            match &place.what {
                _ if place.zero => at.write_bytes(0, place.size),
                What::Scalar { .. } | What::Enum { .. } => self.hollow(id, at),
                What::String { fresh } => assign_text(&mut *at.cast::<String>(), fresh)?,
                What::Sequence { .. } => (*at.cast::<RawSequence>()).len = 0,
                What::Array { element, len } => {
                    let stride = self.place(*element).size;
                    (0..*len).try_for_each(|i| self.reset(*element, at.add(i * stride)))?;
                }
                What::Struct { fields } => {
                    fields.iter().try_for_each(|f| self.reset(f.node, at.add(f.offset as usize)))?;
                }
                What::Optional { .. } => self.make_absent(at),
                What::Union { cases, fresh: (discriminator, case), .. } => {
                    let payload = self.select(id, at, *discriminator, *case)?;
                    if let Some(case) = case {
                        self.reset(cases[*case as usize], payload)?;
                    }
                }
                What::Map { .. } => self.clear_map(at),
                What::Boxed { inner } => {
                    let boxed = &mut *at.cast::<*mut u8>();
                    match boxed.is_null() {
                        true => *boxed = self.new_boxed(*inner)?,
                        false => self.reset(*inner, *boxed)?,
                    }
                }
            }
        }
        Ok(())
    }

    /// Ends a value.
    ///
    /// # Safety
    /// `at` holds a value, which nobody uses afterwards.
    pub(super) unsafe fn drop(&self, id: NodeId, at: *mut u8) {
        let place = self.place(id);
        if place.plain {
            return;
        }
        // SAFETY: as the caller promises.
        unsafe {
            match &place.what {
                What::Scalar { .. } | What::Enum { .. } => {}
                What::String { .. } => at.cast::<String>().drop_in_place(),
                What::Sequence { element } => {
                    let of = self.place(*element);
                    (*at.cast::<RawSequence>()).free(of.size, of.align, |one| self.drop(*element, one));
                }
                What::Array { element, len } => {
                    let stride = self.place(*element).size;
                    (0..*len).for_each(|i| self.drop(*element, at.add(i * stride)));
                }
                What::Struct { fields } => fields.iter().for_each(|f| self.drop(f.node, at.add(f.offset as usize))),
                What::Optional { inner, payload } => {
                    if at.read() != ABSENT {
                        self.drop(*inner, at.add(*payload));
                    }
                }
                What::Union { cases, payload, .. } => {
                    let case = (*at.cast::<RawUnion>()).case;
                    if case != NO_CASE {
                        self.drop(cases[case as usize], at.add(*payload));
                    }
                }
                What::Map { key, value, value_at, stride, align } => {
                    let map = &mut *at.cast::<RawMap>();
                    map.entries.free(*stride, *align, |entry| {
                        self.drop(*key, entry);
                        self.drop(*value, entry.add(*value_at));
                    });
                    ptr::drop_in_place(&raw mut map.index);
                }
                What::Boxed { inner } => {
                    let boxed = at.cast::<*mut u8>().read();
                    if !boxed.is_null() {
                        self.drop(*inner, boxed);
                        self.free_block(*inner, boxed);
                    }
                }
            }
        }
    }

    /// Gives the value at `to` the value at `from`. When it fails, both are valid.
    ///
    /// # Safety
    /// Both hold values of the place, and do not overlap.
    pub(super) unsafe fn copy(&self, id: NodeId, from: *const u8, to: *mut u8) -> Result<(), OutOfMemory> {
        let place = self.place(id);
        // SAFETY: as the caller promises.
        unsafe {
            if place.plain {
                ptr::copy_nonoverlapping(from, to, place.size);
                return Ok(());
            }
            match &place.what {
                What::Scalar { .. } | What::Enum { .. } => {}
                What::String { .. } => assign_text(&mut *to.cast::<String>(), &*from.cast::<String>())?,
                What::Sequence { element } => {
                    let source = &*from.cast::<RawSequence>();
                    self.copy_elements(id, *element, source, to)?;
                }
                What::Array { element, len } => {
                    let stride = self.place(*element).size;
                    (0..*len).try_for_each(|i| self.copy(*element, from.add(i * stride), to.add(i * stride)))?;
                }
                What::Struct { fields } => fields.iter().try_for_each(|f| {
                    self.copy(f.node, from.add(f.offset as usize), to.add(f.offset as usize))
                })?,
                What::Optional { inner, payload } => match from.read() {
                    PRESENT => {
                        let value = self.make_present(id, to)?;
                        self.copy(*inner, from.add(*payload), value)?;
                    }
                    _ => self.make_absent(to),
                },
                What::Union { cases, payload, .. } => {
                    let front = from.cast::<RawUnion>().read();
                    let case = Some(front.case).filter(|c| *c != NO_CASE);
                    let value = self.select(id, to, front.discriminator, case)?;
                    if let Some(case) = case {
                        self.copy(cases[case as usize], from.add(*payload), value)?;
                    }
                }
                What::Map { key, value, value_at, .. } => {
                    self.clear_map(to);
                    let source = &*from.cast::<RawMap>();
                    for i in 0..source.entries.len {
                        let entry = self.entry(id, source, i);
                        let spare = self.spare_entry(id, to)?;
                        self.copy(*key, entry, spare)?;
                        self.copy(*value, entry.add(*value_at), spare.add(*value_at))?;
                        self.insert_spare(id, to)?;
                    }
                }
                What::Boxed { inner } => self.copy(*inner, from.cast::<*const u8>().read(), to.cast::<*mut u8>().read())?,
            }
        }
        Ok(())
    }

    /// # Safety
    /// As of [`Plan::copy`].
    unsafe fn copy_elements(
        &self,
        id: NodeId,
        element: NodeId,
        source: &RawSequence,
        to: *mut u8,
    ) -> Result<(), OutOfMemory> {
        let of = self.place(element);
        // SAFETY: as the caller promises.
        unsafe {
            if of.plain {
                return self.assign(id, to, source.pointer, source.len);
            }
            let first = self.resize(id, to, source.len)?;
            (0..source.len).try_for_each(|i| self.copy(element, source.pointer.add(i * of.size), first.add(i * of.size)))
        }
    }

    /// A new block with a fresh value of `inner`.
    fn new_boxed(&self, inner: NodeId) -> Result<*mut u8, OutOfMemory> {
        let place = self.place(inner);
        let block = block(place.size, place.align)?;
        // SAFETY: no place has the size zero.
        let boxed = unsafe { alloc(block) };
        if boxed.is_null() {
            return Err(OutOfMemory);
        }
        // SAFETY: the block is as large as the place asks for, and is given back if no value came to be.
        unsafe { self.init(inner, boxed).inspect_err(|_| dealloc(boxed, block))? };
        Ok(boxed)
    }

    /// A block for a root, with a fresh value in it.
    pub(super) fn new_root(&self) -> Result<*mut u8, OutOfMemory> {
        self.new_boxed(self.root)
    }

    /// # Safety
    /// `boxed` came from [`Plan::new_boxed`] for `inner`, and its value is dropped.
    pub(super) unsafe fn free_block(&self, inner: NodeId, boxed: *mut u8) {
        let place = self.place(inner);
        if let Ok(block) = block(place.size, place.align) {
            // SAFETY: it was allocated so.
            unsafe { dealloc(boxed, block) }
        }
    }
}

impl RawSequence {
    fn empty(align: usize) -> RawSequence {
        // Not null, so that an empty slice can be made of it.
        RawSequence { pointer: ptr::without_provenance_mut(align), capacity: 0, len: 0, initialised: 0 }
    }

    /// Makes room for `len` elements.
    pub(super) fn reserve(&mut self, len: usize, size: usize, align: usize) -> Result<(), OutOfMemory> {
        if len <= self.capacity {
            return Ok(());
        }
        let capacity = len.max(self.capacity.saturating_mul(2));
        let block_of = |capacity: usize| block(size.checked_mul(capacity).ok_or(OutOfMemory)?, align);
        let new = block_of(capacity)?;
        let pointer = match self.capacity {
            // SAFETY: `len` is not zero, nor is the size of anything in a record.
            0 => unsafe { alloc(new) },
            // SAFETY: the block was allocated for this capacity.
            old => unsafe { realloc(self.pointer, block_of(old)?, new.size()) },
        };
        if pointer.is_null() {
            return Err(OutOfMemory);
        }
        (self.pointer, self.capacity) = (pointer, capacity);
        Ok(())
    }

    /// # Safety
    /// `drop` ends an element; the sequence is not used afterwards.
    unsafe fn free(&mut self, size: usize, align: usize, mut drop: impl FnMut(*mut u8)) {
        for i in 0..self.initialised {
            // SAFETY: so many elements are initialised.
            drop(unsafe { self.pointer.add(i * size) });
        }
        if let (1.., Ok(block)) = (self.capacity, block(size * self.capacity, align)) {
            // SAFETY: it was allocated so.
            unsafe { dealloc(self.pointer, block) }
        }
    }
}

fn block(size: usize, align: usize) -> Result<Block, OutOfMemory> {
    Block::from_size_align(size, align).map_err(|_| OutOfMemory)
}

pub(super) fn assign_text(string: &mut String, text: &str) -> Result<(), OutOfMemory> {
    string.clear();
    string.try_reserve(text.len()).map_err(|_| OutOfMemory)?;
    string.push_str(text);
    Ok(())
}

/// Orders two keys of the same place: all that can be keys are integers, booleans, enums and strings.
///
/// # Safety
/// Both hold values of it.
pub(super) unsafe fn compare_keys(place: &Place, a: *const u8, b: *const u8) -> core::cmp::Ordering {
    // SAFETY: as the caller promises.
    unsafe {
        match &place.what {
            What::String { .. } => (*a.cast::<String>()).cmp(&*b.cast::<String>()),
            What::Enum { .. } => a.cast::<i32>().read().cmp(&b.cast::<i32>().read()),
            What::Scalar { scalar, .. } => read_integer(a, *scalar).cmp(&read_integer(b, *scalar)),
            _ => core::cmp::Ordering::Equal,
        }
    }
}
