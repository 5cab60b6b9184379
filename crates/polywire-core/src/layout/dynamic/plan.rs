//! Computes sizes and offsets: turns a schema into a [`Plan`].

use alloc::{collections::BTreeMap, string::String, sync::Arc, vec::Vec};
use core::mem;

use super::{MAX_BYTES, MAX_FIELDS, Place, Plan, RawMap, RawSequence, RawUnion, What};
use crate::{
    layout::{Field, Float128, NodeId, Scalar, ShapeError},
    schema::{DefId, DefKind, Literal, Schema, Type, array_shape},
};

impl Plan {
    pub(super) fn of(schema: &Schema) -> Result<Plan, ShapeError> {
        let mut planner = Planner {
            schema,
            places: Vec::new(),
            known: BTreeMap::new(),
            literals: BTreeMap::new(),
            later: Vec::new(),
            fields: 0,
        };
        let root = planner.later(schema.root());
        while let Some((id, ty)) = planner.later.pop() {
            planner.fill(id, &ty, None)?;
        }
        planner.entries();
        // The queue contained every place that was reserved.
        let places: Option<Vec<Place>> = planner.places.into_iter().collect();
        let places = places.ok_or(ShapeError::TooLarge { bytes: MAX_BYTES + 1, max: MAX_BYTES })?;
        Ok(Plan { places, root })
    }
}

/// Computes sizes and offsets. Places behind pointers are queued and filled in later, so that
/// neither recursive types nor long chains of types cause deep recursion.
struct Planner<'a> {
    schema: &'a Schema,
    places: Vec<Option<Place>>,
    known: BTreeMap<DefId, NodeId>,
    /// The literals of each enum, which its places share: each default of a member needs a place.
    literals: BTreeMap<DefId, Arc<[i32]>>,
    later: Vec<(NodeId, Type)>,
    fields: usize,
}

impl Planner<'_> {
    fn reserve(&mut self) -> NodeId {
        self.places.push(None);
        NodeId(self.places.len() as u32 - 1)
    }

    /// Reserves a place whose size is not needed yet: it lies behind a pointer.
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

    /// Adds a place that is part of another, so its size is needed at once.
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

    /// Adds a place for a pointer. A target with a default of its own cannot contain the pointer's
    /// owner, so it is filled in at once.
    fn boxed(&mut self, ty: &Type, fresh: Option<&Literal>) -> Result<NodeId, ShapeError> {
        let inner = match fresh {
            Some(_) => self.now(ty, fresh)?,
            None => self.later(ty),
        };
        Ok(self.add(of_type::<*mut u8>(What::Boxed { inner })))
    }

    fn fill(&mut self, id: NodeId, ty: &Type, fresh: Option<&Literal>) -> Result<(), ShapeError> {
        if self.places[id.0 as usize].is_some() {
            return Ok(());
        }
        let place = match ty {
            Type::String { .. } | Type::WString { .. } => string_place(fresh),
            Type::Sequence { element, .. } => of_type::<RawSequence>(What::Sequence { element: self.later(element) }),
            // Arrays of arrays become one array, because their elements lie side by side.
            Type::Array { .. } => {
                let (element, dims) = array_shape(self.schema, ty);
                let element = self.now(element, None)?;
                self.array(element, &dims)?
            }
            Type::Map { key, value, .. } => {
                let (key, value) = (self.later(key), self.later(value));
                // The offset of an entry's value is filled in once both sizes are known; see
                // `entries`.
                of_type::<RawMap>(What::Map { key, value, value_at: 0, stride: 0, align: 1 })
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
                // The builder made every default of an enum the name of a literal.
                let given = match fresh {
                    Some(Literal::Enum(name)) => schema.literal_named(id, name),
                    _ => None,
                };
                let default = given.or_else(|| schema.default_literal(id));
                let values = self.literals.entry(id).or_insert_with(|| {
                    let mut values: Vec<i32> = literals.iter().map(|l| l.value).collect();
                    values.sort_unstable();
                    values.into()
                });
                let what = What::Enum { literals: values.clone(), fresh: default.map_or(0, |l| l.value) };
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
            // Aliases were resolved before.
            DefKind::Alias { .. } => Ok(scalar_place(Scalar::U8, None)),
        }
    }

    fn structure(&mut self, id: DefId) -> Result<Place, ShapeError> {
        let members = self.schema.members(id);
        self.fields += members.len();
        if self.fields > MAX_FIELDS {
            return Err(ShapeError::TooManyFields { max: MAX_FIELDS });
        }
        // Without members nothing is written, because a union may keep another value in that
        // memory.
        let (mut end, mut align, mut plain, mut zero) = (0usize, 1usize, !members.is_empty(), !members.is_empty());
        let mut fields = Vec::with_capacity(members.len());
        for member in members {
            let node = match (member.external, member.optional) {
                (true, optional) => self.boxed(&member.ty, member.default.as_ref().filter(|_| !optional))?,
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
        // No place of a record has size zero, so that each has an address.
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
                true => self.boxed(&case.member.ty, case.member.default.as_ref())?,
                false => self.now(&case.member.ty, case.member.default.as_ref())?,
            };
            let (of_case, its_align) = self.known_place(node).block();
            (size, align) = (usize::max(size, of_case), usize::max(align, its_align));
            nodes.push(node);
        }
        let first = default_discriminator(schema, discriminator);
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

    /// Lays out the entries of every map.
    fn entries(&mut self) {
        for i in 0..self.places.len() {
            let Some(Place { what: What::Map { key, value, .. }, .. }) = self.places[i] else { continue };
            let (key_place, value_place) = (self.known_place(key), self.known_place(value));
            let align = key_place.align.max(value_place.align);
            let value_at = key_place.size.next_multiple_of(value_place.align);
            let stride = (value_at + value_place.size).next_multiple_of(align);
            let what = What::Map { key, value, value_at, stride, align };
            self.places[i] = Some(of_type::<RawMap>(what));
        }
    }

    fn add(&mut self, place: Place) -> NodeId {
        self.places.push(Some(place));
        NodeId(self.places.len() as u32 - 1)
    }

    /// A place that was filled in. An unfilled one would be part of itself; no schema allows that.
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

/// A constant as bytes in memory. `None` if the scalar cannot hold it, which a peer's schema may
/// contain.
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

pub(in crate::layout) fn integer_bytes(scalar: Scalar, value: i128) -> Option<[u8; 16]> {
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

/// The scalar of a primitive type.
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

fn default_discriminator(schema: &Schema, ty: &Type) -> i64 {
    match schema.resolve(ty) {
        Type::Def(id) => schema.default_literal(*id).map_or(0, |l| l.value.into()),
        _ => 0,
    }
}
