//! Numbers of a type that every lowering needs.

use alloc::vec::Vec;

use super::{DefId, DefKind, Schema, Type};

/// Smallest and largest value of an enum's literals: so many bits hold them, with or without a sign, and the integer that holds those
/// bits, which has one.
pub(crate) fn enum_range(bit_bound: u8) -> (i64, i64) {
    let bits = bit_bound.clamp(1, 32);
    let holder = 1i64 << (holder_bits(bits) - 1);
    (-1 << (bits - 1), ((1i64 << bits) - 1).min(holder - 1))
}

/// The bits of the integer that holds `bits` bits on the wire and in memory: 8, 16, 32 or 64 (XTypes 7.3.1.2.1.8).
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

/// The number of elements in an array of these dimensions; none if it is more than an address can count.
///
/// ```
/// use polywire_core::schema::array_len;
/// assert_eq!(array_len(&[2, 3]), Some(6));
/// assert_eq!(array_len(&[u32::MAX; 3]), None);
/// ```
pub fn array_len(dims: &[u32]) -> Option<usize> {
    dims.iter().try_fold(1usize, |n, dim| n.checked_mul(usize::try_from(*dim).ok()?))
}

/// What an array is an array of, and its dimensions, outermost first: an array of arrays, behind a typedef or not, is one array
/// of more dimensions. A type that is no array has no dimensions.
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
    /// Bytes of an enum, a bitmask or a bitset where it is stored as an integer: 1, 2, 4 or 8. None for other definitions.
    pub fn holder_size(&self, id: DefId) -> Option<u8> {
        let bits = match &self.def(id).kind {
            DefKind::Enum { bit_bound, .. } | DefKind::Bitmask { bit_bound, .. } => *bit_bound,
            DefKind::Bitset { .. } => self.bit_fields(id).last().map_or(0, |f| f.position.saturating_add(f.width)),
            _ => return None,
        };
        Some(holder_bits(bits) / 8)
    }
}
