//! Sizes and shapes of types that every lowering needs: enum ranges, integer sizes, array
//! dimensions.

use alloc::{boxed::Box, vec::Vec};

use super::{Case, Def, DefId, DefKind, Member, Schema, Type};

/// Smallest and largest value of an enum literal. `bit_bound` bits must hold the value, signed or
/// unsigned, and so must the signed integer that stores it.
pub(crate) fn enum_range(bit_bound: u8) -> (i64, i64) {
    let bits = bit_bound.clamp(1, 32);
    let holder = 1i64 << (holder_bits(bits) - 1);
    (-1 << (bits - 1), ((1i64 << bits) - 1).min(holder - 1))
}

/// The size in bits of the integer that stores `bits` bits on the wire and in memory: 8, 16, 32 or
/// 64 (XTypes 1.3, 7.3.1.2.1.8).
///
/// ```
/// assert_eq!(polywire_core::schema::holder_bits(12), 16);
/// ```
pub fn holder_bits(bits: u8) -> u8 {
    match bits {
        0..=8 => 8,
        9..=16 => 16,
        17..=32 => 32,
        _ => 64,
    }
}

/// The number of elements in an array with these dimensions. `None` if it exceeds `usize`.
///
/// ```
/// use polywire_core::schema::array_len;
/// assert_eq!(array_len(&[2, 3]), Some(6));
/// assert_eq!(array_len(&[u32::MAX; 3]), None);
/// ```
pub fn array_len(dims: &[u32]) -> Option<usize> {
    dims.iter().try_fold(1usize, |n, dim| n.checked_mul(usize::try_from(*dim).ok()?))
}

/// The innermost element type of an array, and its dimensions, outermost first. An array of arrays,
/// with or without a typedef between, counts as one array with more dimensions. Other types have no
/// dimensions.
///
/// ```
/// use polywire_core::schema::{array_shape, Def, Member, SchemaBuilder, Type};
/// let mut types = SchemaBuilder::new();
/// let row = types.add(Def::alias("Row", Type::array(Type::Bool, [3])));
/// let root = types.add(Def::structure("S", vec![Member::new("grid", Type::array(Type::Def(row), [2]))]));
/// let schema = types.finish(Type::Def(root)).unwrap();
/// assert_eq!(array_shape(&schema, &schema.members(schema.find("S").unwrap())[0].ty), (&Type::Bool, vec![2, 3]));
/// ```
pub fn array_shape<'a>(schema: &'a Schema, ty: &'a Type) -> (&'a Type, Vec<u32>) {
    let mut shape = Vec::new();
    let mut ty = schema.resolve(ty);
    while let Type::Array { element, dims } = ty {
        shape.extend(dims);
        ty = schema.resolve(element);
    }
    (ty, shape)
}

impl Schema {
    /// The same type with each array of arrays turned into one array with more dimensions. Codecs
    /// receive schemas of this form, so that types with the same [hash](super::TypeHash) have the
    /// same bytes.
    ///
    /// ```
    /// use polywire_core::schema::{Def, DefKind, Member, SchemaBuilder, Type};
    /// let mut types = SchemaBuilder::new();
    /// let row = types.add(Def::alias("Row", Type::array(Type::Bool, [3])));
    /// let root = types.add(Def::structure("S", vec![Member::new("grid", Type::array(Type::Def(row), [2]))]));
    /// let schema = types.finish(Type::Def(root)).unwrap();
    /// let flat = schema.with_flat_arrays();
    /// assert_eq!(flat.members(root)[0].ty, Type::array(Type::Bool, [2, 3]));
    /// assert_eq!((flat.type_hash(), flat.with_flat_arrays()), (schema.type_hash(), flat));
    /// ```
    pub fn with_flat_arrays(&self) -> Schema {
        let mut defs: Vec<Def> = Vec::new();
        for (id, def) in self.defs().iter().enumerate() {
            for (at, ty) in types_of(def).enumerate().filter(|(_, ty)| has_nested_array(self, ty)) {
                if defs.is_empty() {
                    defs = self.defs().to_vec();
                }
                if let Some(flat) = types_of_mut(&mut defs[id]).nth(at) {
                    *flat = flat_type(self, ty);
                }
            }
        }
        match (defs.is_empty(), has_nested_array(self, self.root())) {
            (true, false) => self.clone(),
            (true, true) => Schema::from_checked(self.0.defs.clone(), flat_type(self, self.root())),
            (false, _) => Schema::from_checked(defs, flat_type(self, self.root())),
        }
    }

    /// Size in bytes of the integer that stores an enum, bitmask or bitset: 1, 2, 4 or 8. `None`
    /// for other definitions.
    pub fn holder_size(&self, id: DefId) -> Option<u8> {
        let bits = match &self.def(id).kind {
            DefKind::Enum { bit_bound, .. } | DefKind::Bitmask { bit_bound, .. } => *bit_bound,
            DefKind::Bitset { .. } => self.bit_fields(id).last().map_or(0, |f| f.position.saturating_add(f.width)),
            _ => return None,
        };
        Some(holder_bits(bits) / 8)
    }
}

/// The types that a definition mentions, except a union's discriminator and the types of bit
/// fields.
fn types_of(def: &Def) -> impl Iterator<Item = &Type> {
    let (members, cases, target) = match &def.kind {
        DefKind::Struct { members, .. } => (&members[..], &[][..], None),
        DefKind::Union { cases, .. } => (&[][..], &cases[..], None),
        DefKind::Alias { target } => (&[][..], &[][..], Some(target)),
        _ => (&[][..], &[][..], None),
    };
    members.iter().chain(cases.iter().map(|case: &Case| &case.member)).map(|m: &Member| &m.ty).chain(target)
}

/// The same types as [`types_of`], in the same order, for writing.
fn types_of_mut(def: &mut Def) -> impl Iterator<Item = &mut Type> {
    let (members, cases, target) = match &mut def.kind {
        DefKind::Struct { members, .. } => (&mut members[..], &mut [][..], None),
        DefKind::Union { cases, .. } => (&mut [][..], &mut cases[..], None),
        DefKind::Alias { target } => (&mut [][..], &mut [][..], Some(target)),
        _ => (&mut [][..], &mut [][..], None),
    };
    members.iter_mut().chain(cases.iter_mut().map(|case: &mut Case| &mut case.member)).map(|m| &mut m.ty).chain(target)
}

/// Returns whether the type contains an array of arrays, with element typedefs resolved.
fn has_nested_array(schema: &Schema, ty: &Type) -> bool {
    match ty {
        Type::Array { element, .. } => {
            matches!(schema.resolve(element), Type::Array { .. }) || has_nested_array(schema, element)
        }
        Type::Sequence { element, .. } => has_nested_array(schema, element),
        Type::Map { key, value, .. } => has_nested_array(schema, key) || has_nested_array(schema, value),
        _ => false,
    }
}

fn flat_type(schema: &Schema, ty: &Type) -> Type {
    match ty {
        Type::Array { element, dims } => match schema.resolve(element) {
            inner @ Type::Array { .. } => {
                let (element, inner) = array_shape(schema, inner);
                Type::array(flat_type(schema, element), [&dims[..], &inner].concat())
            }
            _ => Type::array(flat_type(schema, element), dims.clone()),
        },
        Type::Sequence { element, bound } => {
            Type::Sequence { element: Box::new(flat_type(schema, element)), bound: *bound }
        }
        Type::Map { key, value, bound } => {
            let (key, value) = (Box::new(flat_type(schema, key)), Box::new(flat_type(schema, value)));
            Type::Map { key, value, bound: *bound }
        }
        other => other.clone(),
    }
}
