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
            _ => String::from(primitive_name(ty)),
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

fn primitive_name(ty: &Type) -> &'static str {
    match ty {
        Type::Bool => "boolean",
        Type::Octet => "octet",
        Type::Int8 => "int8",
        Type::Uint8 => "uint8",
        Type::Int16 => "int16",
        Type::Uint16 => "uint16",
        Type::Int32 => "int32",
        Type::Uint32 => "uint32",
        Type::Int64 => "int64",
        Type::Uint64 => "uint64",
        Type::Float32 => "float",
        Type::Float64 => "double",
        Type::Float128 => "long double",
        Type::Char8 => "char",
        Type::Char16 => "wchar",
        _ => "",
    }
}
