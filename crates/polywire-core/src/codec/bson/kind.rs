//! Element kinds of BSON, and the kind for each type. All files of this folder use it. It reads
//! schemas only.

use alloc::collections::BTreeMap;
use core::cell::RefCell;

use crate::{
    codec::lower::{bits_scalar, scalar_of},
    layout::Scalar,
    schema::{Def, DefId, DefKind, Schema, Type},
};

pub(super) const DOUBLE: u8 = 0x01;
pub(super) const STRING: u8 = 0x02;
pub(super) const DOCUMENT: u8 = 0x03;
pub(super) const ARRAY: u8 = 0x04;
pub(super) const BINARY: u8 = 0x05;
pub(super) const UNDEFINED: u8 = 0x06;
pub(super) const OBJECT_ID: u8 = 0x07;
pub(super) const BOOLEAN: u8 = 0x08;
pub(super) const DATETIME: u8 = 0x09;
pub(super) const NULL: u8 = 0x0A;
pub(super) const REGEX: u8 = 0x0B;
pub(super) const DB_POINTER: u8 = 0x0C;
pub(super) const CODE: u8 = 0x0D;
pub(super) const SYMBOL: u8 = 0x0E;
pub(super) const CODE_WITH_SCOPE: u8 = 0x0F;
pub(super) const INT32: u8 = 0x10;
pub(super) const TIMESTAMP: u8 = 0x11;
pub(super) const INT64: u8 = 0x12;
pub(super) const DECIMAL128: u8 = 0x13;
pub(super) const MAX_KEY: u8 = 0x7F;
pub(super) const MIN_KEY: u8 = 0xFF;

/// Subtype of a binary with plain octets.
pub(super) const GENERIC: u8 = 0x00;
/// Subtype of a binary that repeats its length inside.
pub(super) const OLD_BINARY: u8 = 0x02;
/// Subtype of a binary with a number for which BSON has no kind.
pub(super) const NUMBER: u8 = 0x80;

/// Length of the shortest document: a length and a terminator.
pub(super) const MIN_DOCUMENT: usize = 5;

/// Name of the element that selects a union's case if the name of its member does not.
pub(super) const DISCRIMINATOR: &str = "$discriminator";

/// The form of a boolean, number, character, bitmask or bitset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Boolean,
    Int32,
    Int64,
    /// An int64, or a binary of eight octets for larger numbers.
    Unsigned64,
    Double,
    /// A binary of sixteen octets.
    Quad,
    /// A string of one character.
    Char8,
    /// A string of one character, or an int32 for half of a surrogate pair.
    Char16,
}

impl Form {
    /// The form of a resolved type. `wire` is its scalar in formats with fixed-size integers.
    pub fn of(ty: &Type, wire: Scalar) -> Form {
        match (ty, wire) {
            (Type::Char8, _) => Form::Char8,
            (Type::Char16, _) => Form::Char16,
            (_, Scalar::Bool) => Form::Boolean,
            (_, Scalar::I8 | Scalar::U8 | Scalar::I16 | Scalar::U16 | Scalar::I32) => Form::Int32,
            (_, Scalar::U32 | Scalar::I64) => Form::Int64,
            (_, Scalar::U64) => Form::Unsigned64,
            (_, Scalar::F32 | Scalar::F64) => Form::Double,
            (_, Scalar::F128) => Form::Quad,
        }
    }

    /// The kind of nearly all values. For [`Form::Unsigned64`] and [`Form::Char16`], some values
    /// have another.
    pub fn kind(self) -> u8 {
        match self {
            Form::Boolean => BOOLEAN,
            Form::Int32 => INT32,
            Form::Int64 | Form::Unsigned64 => INT64,
            Form::Double => DOUBLE,
            Form::Quad => BINARY,
            Form::Char8 | Form::Char16 => STRING,
        }
    }

    /// True if the kind depends on the value.
    pub(super) fn kind_varies(self) -> bool {
        matches!(self, Form::Unsigned64 | Form::Char16)
    }

    /// Size of a value in bytes, if it is the same for all values.
    fn size(self) -> Option<u32> {
        match self {
            Form::Boolean => Some(1),
            Form::Int32 => Some(4),
            Form::Int64 | Form::Double => Some(8),
            Form::Quad => Some(4 + 1 + 16),
            Form::Unsigned64 | Form::Char8 | Form::Char16 => None,
        }
    }
}

/// The schema and options of a program.
#[derive(Debug)]
pub(super) struct Forms<'a> {
    pub schema: &'a Schema,
    pub enum_names: bool,
    /// The size of each structure that was asked for. A type may mention a structure exponentially
    /// often.
    sizes: RefCell<BTreeMap<DefId, Option<u32>>>,
}

impl<'a> Forms<'a> {
    /// The forms of a schema's types. `enum_names` means that enum literals are written as names.
    pub fn new(schema: &'a Schema, enum_names: bool) -> Forms<'a> {
        Forms { schema, enum_names, sizes: RefCell::default() }
    }

    /// The form of a scalar type. `None` for enums and other types.
    pub fn form(&self, ty: &Type) -> Option<Form> {
        let ty = self.schema.resolve(ty);
        let wire = match ty {
            Type::Def(id) => match &self.schema.def(*id).kind {
                DefKind::Bitmask { .. } | DefKind::Bitset { .. } => bits_scalar(self.schema, *id),
                _ => return None,
            },
            primitive => scalar_of(primitive)?,
        };
        Some(Form::of(ty, wire))
    }

    /// The kind of elements with a value of the type.
    pub fn kind(&self, ty: &Type) -> u8 {
        if let Some(form) = self.form(ty) {
            return form.kind();
        }
        match self.schema.resolve(ty) {
            Type::String { .. } | Type::WString { .. } => STRING,
            Type::Sequence { element, .. } | Type::Array { element, .. } => match self.is_octet(element) {
                true => BINARY,
                false => ARRAY,
            },
            ty => match self.schema.def_of(ty) {
                Some(Def { kind: DefKind::Enum { .. }, .. }) if self.enum_names => STRING,
                Some(Def { kind: DefKind::Enum { .. }, .. }) => INT32,
                _ => DOCUMENT,
            },
        }
    }

    /// True if a sequence or array of the type is a binary.
    pub fn is_octet(&self, element: &Type) -> bool {
        *self.schema.resolve(element) == Type::Octet
    }

    /// Size of a value in bytes, if it is the same for all values.
    pub fn static_size(&self, ty: &Type) -> Option<u32> {
        if let Some(form) = self.form(ty) {
            return form.size();
        }
        match self.schema.resolve(ty) {
            Type::Array { element, dims } => {
                let len = dims.iter().try_fold(1u32, |n, d| n.checked_mul(*d))?;
                match self.is_octet(element) {
                    true => len.checked_add(4 + 1),
                    false => self.static_array(element, len),
                }
            }
            Type::Def(id) => match &self.schema.def(*id).kind {
                DefKind::Enum { .. } if !self.enum_names => Some(4),
                DefKind::Struct { .. } => self.static_document(*id),
                _ => None,
            },
            _ => None,
        }
    }

    fn static_array(&self, element: &Type, len: u32) -> Option<u32> {
        let each = self.static_size(element)?.checked_add(2)?;
        let names = name_bytes(len);
        u32::try_from(u64::from(each) * u64::from(len) + names + MIN_DOCUMENT as u64).ok()
    }

    /// This ends, because a recursive type contains itself only through a type without a static
    /// size.
    fn static_document(&self, id: DefId) -> Option<u32> {
        if let Some(known) = self.sizes.borrow().get(&id) {
            return *known;
        }
        let size = self.schema.members(id).iter().try_fold(MIN_DOCUMENT as u32, |total, member| {
            let value = if member.optional { None } else { self.static_size(&member.ty) };
            let name = u32::try_from(member.name.len()).ok()?;
            total.checked_add(value?)?.checked_add(name)?.checked_add(2)
        });
        self.sizes.borrow_mut().insert(id, size);
        size
    }
}

/// Total length of the names `"0"` to `len - 1` of an array's elements, in bytes.
fn name_bytes(len: u32) -> u64 {
    let (mut bytes, mut digits, mut from) = (0, 1, 0u64);
    let len = u64::from(len);
    while from < len {
        let to = 10u64.pow(digits).min(len);
        bytes += (to - from) * u64::from(digits);
        (from, digits) = (to, digits + 1);
    }
    bytes
}

/// An element's kind and name.
pub(super) fn header(kind: u8, name: &str) -> alloc::boxed::Box<[u8]> {
    let mut bytes = alloc::vec::Vec::with_capacity(name.len() + 2);
    bytes.push(kind);
    bytes.extend_from_slice(name.as_bytes());
    bytes.push(0);
    bytes.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Member, SchemaBuilder};

    #[test]
    fn the_size_of_each_structure_is_computed_once() {
        let mut types = SchemaBuilder::new();
        let mut last = types.add(Def::structure("S0", [Member::new("a", Type::Int32)].into()));
        let mut size = 5 + (1 + 1 + 1 + 4);
        for level in 1..=20 {
            let members = ["a", "b"].map(|name| Member::new(name, Type::Def(last)));
            last = types.add(Def::structure(alloc::format!("S{level}"), members.into()));
            size = 5 + 2 * (1 + 1 + 1 + size);
        }
        let schema = types.finish(Type::Def(last)).unwrap();
        let forms = Forms::new(&schema, false);
        assert_eq!(forms.static_size(schema.root()), Some(size));
        assert_eq!(forms.sizes.borrow().len(), 21);
    }

    #[test]
    fn names_of_elements_are_counted() {
        for len in [0u32, 1, 9, 10, 11, 99, 100, 101, 1000, 12_345] {
            let written: usize = (0..len).map(|i| alloc::format!("{i}").len()).sum();
            assert_eq!(name_bytes(len), written as u64, "{len}");
        }
    }
}
