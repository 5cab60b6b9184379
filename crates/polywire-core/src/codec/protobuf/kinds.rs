//! Field numbers and wire forms of types.

use alloc::{collections::BTreeSet, vec::Vec};

use crate::{
    codec::lower::{bits_scalar, scalar_of},
    layout::Scalar,
    schema::{DefId, DefKind, Member, Schema, Type},
};

/// Number of the field with a union's discriminator.
pub const DISCRIMINATOR_NUMBER: u32 = 1;

const MAX_NUMBER: u32 = (1 << 29) - 1;
/// Field numbers that Protobuf reserves.
const RESERVED: core::ops::RangeInclusive<u32> = 19_000..=19_999;

/// The field numbers of a structure's members, inherited ones first, or of a union's cases. A
/// member with an explicit `@id` that Protobuf allows has that number. The others get the smallest
/// free numbers, in order. In a union, numbers begin after the discriminator's.
///
/// ```
/// use polywire_core::codec::protobuf::field_numbers;
/// use polywire_core::schema::{Def, Member, SchemaBuilder, Type};
/// # let mut types = SchemaBuilder::new();
/// let second = Member { explicit_id: Some(1), ..Member::new("second", Type::Int32) };
/// let pair = types.add(Def::structure("Pair", vec![Member::new("first", Type::Int32), second]));
/// let schema = types.finish(Type::Def(pair))?;
/// assert_eq!(field_numbers(&schema, pair), [2, 1]);
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
pub fn field_numbers(schema: &Schema, id: DefId) -> Vec<u32> {
    let (members, mut next): (Vec<&Member>, u32) = match &schema.def(id).kind {
        DefKind::Union { cases, .. } => (cases.iter().map(|case| &case.member).collect(), DISCRIMINATOR_NUMBER + 1),
        _ => (schema.members(id), 1),
    };
    let first = next;
    let allowed = |id: &u32| (first..=MAX_NUMBER).contains(id) && !RESERVED.contains(id);
    // If two members claim the same number, the first one gets it.
    let mut taken = BTreeSet::new();
    let claimed: Vec<Option<u32>> =
        members.iter().map(|member| member.explicit_id.filter(allowed).filter(|id| taken.insert(*id))).collect();
    let mut least = || {
        while taken.contains(&next) || RESERVED.contains(&next) {
            next += 1;
        }
        taken.insert(next);
        next
    };
    claimed.into_iter().map(|number| number.unwrap_or_else(&mut least)).collect()
}

pub(super) const VARINT: u32 = 0;
pub(super) const FIXED64: u32 = 1;
pub(super) const LENGTH: u32 = 2;
pub(super) const START_GROUP: u32 = 3;
pub(super) const END_GROUP: u32 = 4;
pub(super) const FIXED32: u32 = 5;

/// The wire form of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Bool,
    /// An unsigned varint.
    Unsigned,
    /// A zigzag varint.
    Signed,
    /// A varint of a number that is sign-extended to 64 bits.
    Enum,
    Single,
    Double,
    /// Sixteen bytes.
    Quad,
    Text,
    /// Octets.
    Bytes,
    /// An embedded message.
    Message,
    /// A repeated field.
    Sequence,
    /// A repeated field with a fixed number of elements.
    Array,
    /// A repeated field of entries.
    Map,
}

impl Form {
    /// The form of a type.
    pub(super) fn of(schema: &Schema, ty: &Type) -> Form {
        match schema.resolve(ty) {
            Type::String { .. } | Type::WString { .. } => Form::Text,
            Type::Sequence { element, .. } | Type::Array { element, .. } if *schema.resolve(element) == Type::Octet => {
                Form::Bytes
            }
            Type::Sequence { .. } => Form::Sequence,
            Type::Array { .. } => Form::Array,
            Type::Map { .. } => Form::Map,
            Type::Def(id) => match &schema.def(*id).kind {
                DefKind::Enum { .. } => Form::Enum,
                DefKind::Bitmask { .. } | DefKind::Bitset { .. } => Form::of_scalar(bits_scalar(schema, *id)),
                _ => Form::Message,
            },
            primitive => Form::of_scalar(scalar_of(primitive).unwrap_or(Scalar::U8)),
        }
    }

    /// The form of a scalar.
    pub(super) fn of_scalar(scalar: Scalar) -> Form {
        match scalar {
            Scalar::Bool => Form::Bool,
            Scalar::F32 => Form::Single,
            Scalar::F64 => Form::Double,
            Scalar::F128 => Form::Quad,
            scalar if scalar.is_signed() => Form::Signed,
            _ => Form::Unsigned,
        }
    }

    /// The wire type in the tag.
    pub(super) fn wire_type(self) -> u32 {
        match self {
            Form::Bool | Form::Unsigned | Form::Signed | Form::Enum => VARINT,
            Form::Single => FIXED32,
            Form::Double => FIXED64,
            _ => LENGTH,
        }
    }

    /// True if several values may be packed after one tag and length.
    pub(super) fn is_packed(self) -> bool {
        self.wire_type() != LENGTH
    }

    /// True for repeated fields. One inside another needs a message around it.
    pub(super) fn is_repeated(self) -> bool {
        matches!(self, Form::Sequence | Form::Array | Form::Map)
    }
}

/// True if a value of the type is a message itself.
pub(super) fn is_message(schema: &Schema, ty: &Type) -> bool {
    Form::of(schema, ty) == Form::Message
}

/// The tag in front of a value: field number and wire type.
pub(super) fn tag(number: u32, form: Form) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = number << 3 | form.wire_type();
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
    bytes
}
