//! Schemas as source text, one file a target.
use polywire_core::schema::Type;

/// The keyword of a primitive type.
pub(crate) fn primitive_name(ty: &Type) -> &'static str {
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
        Type::String { .. } => "string",
        Type::WString { .. } => "wstring",
        Type::Sequence { .. } => "sequence",
        Type::Array { .. } => "array",
        Type::Map { .. } => "map",
        Type::Def(_) => "definition",
    }
}
