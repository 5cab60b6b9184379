//! Types as readable text, for messages to people.

use alloc::{format, string::String};

use super::{Def, DefKind, Schema, Type};

impl Schema {
    /// `ty` in a notation close to IDL: `int32`, `string<8>`, `sequence<Geo::Position>`,
    /// `double[3][3]`.
    pub fn type_name(&self, ty: &Type) -> String {
        match ty {
            Type::String { bound } => bounded("string", "", *bound),
            Type::WString { bound } => bounded("wstring", "", *bound),
            Type::Sequence { element, bound } => bounded("sequence", &self.type_name(element), *bound),
            Type::Map { key, value, bound } => {
                bounded("map", &format!("{}, {}", self.type_name(key), self.type_name(value)), *bound)
            }
            Type::Array { element, dims } => {
                dims.iter().fold(self.type_name(element), |name, dim| format!("{name}[{dim}]"))
            }
            Type::Def(id) => self.def(*id).name.clone(),
            _ => String::from(ty.keyword()),
        }
    }
}

impl Def {
    /// `struct`, `union`, `enum`, `bitmask`, `bitset` or `typedef`.
    pub fn kind_name(&self) -> &'static str {
        match self.kind {
            DefKind::Struct { .. } => "struct",
            DefKind::Union { .. } => "union",
            DefKind::Enum { .. } => "enum",
            DefKind::Bitmask { .. } => "bitmask",
            DefKind::Bitset { .. } => "bitset",
            DefKind::Alias { .. } => "typedef",
        }
    }
}

fn bounded(name: &str, of: &str, bound: u32) -> String {
    match (of, bound) {
        ("", 0) => String::from(name),
        ("", _) => format!("{name}<{bound}>"),
        (_, 0) => format!("{name}<{of}>"),
        _ => format!("{name}<{of}, {bound}>"),
    }
}
