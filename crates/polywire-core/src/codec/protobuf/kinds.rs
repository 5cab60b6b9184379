//! Numbers of fields, and how types are written.

use alloc::{collections::BTreeSet, vec::Vec};

use crate::{
    codec::lower::{bits_scalar, scalar_of},
    layout::Scalar,
    schema::{DefId, DefKind, Member, Schema, Type},
};

/// Number of the field that says a union's discriminator.
pub const DISCRIMINATOR_NUMBER: u32 = 1;

const MAX_NUMBER: u32 = (1 << 29) - 1;
/// Numbers that Protobuf keeps for itself.
const RESERVED: core::ops::RangeInclusive<u32> = 19_000..=19_999;

/// The numbers of a structure's members, those of its bases first, or of a union's cases: the
/// member's `@id` where it has one of its own that Protobuf allows; the others get, in order, the
/// least numbers that are left. A union's numbers begin behind its discriminator's.
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
    // What two members claim, the first of them gets.
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

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Bool,
    /// An unsigned varint.
    Unsigned,
    /// A zigzag varint.
    Signed,
    /// A varint that is extended to 64 bits by its sign.
    Enum,
    Single,
    Double,
    /// Sixteen bytes.
    Quad,
    Text,
    /// Octets.
    Bytes,
    /// A message of its own.
    Message,
    /// A field that is there for each element.
    Sequence,
    /// The same, of a fixed number.
    Array,
    /// A field that is there for each entry.
    Map,
}

impl Form {
    /// Of a type.
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

    /// Of a number.
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

    /// The wire type that a tag says.
    pub(super) fn wire_type(self) -> u32 {
        match self {
            Form::Bool | Form::Unsigned | Form::Signed | Form::Enum => VARINT,
            Form::Single => FIXED32,
            Form::Double => FIXED64,
            _ => LENGTH,
        }
    }

    /// Many of them may share one tag and length.
    pub(super) fn is_packed(self) -> bool {
        self.wire_type() != LENGTH
    }

    /// It is as many fields as it has elements, which needs a message around it where another such
    /// thing is around it.
    pub(super) fn is_repeated(self) -> bool {
        matches!(self, Form::Sequence | Form::Array | Form::Map)
    }
}

/// True if a value of the type is a message by itself.
pub(super) fn is_message(schema: &Schema, ty: &Type) -> bool {
    Form::of(schema, ty) == Form::Message
}

/// A field's number and wire type in front of its value.
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
