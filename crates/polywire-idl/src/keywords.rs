//! Reserved words of IDL and PDL.

/// Keywords of the supported building blocks of IDL 4.2: core data types, extended data types, bit
/// sets.
pub(crate) const IDL: &[&str] = &[
    "FALSE", "TRUE", "bitfield", "bitmask", "bitset", "boolean", "case", "char", "const", "default", "double", "enum",
    "float", "int16", "int32", "int64", "int8", "long", "map", "module", "octet", "sequence", "short", "string",
    "struct", "switch", "typedef", "uint16", "uint32", "uint64", "uint8", "union", "unsigned", "void", "wchar",
    "wstring",
];

/// Keywords of the other building blocks. Existing IDL files use them as names of members, and most
/// compilers accept that.
pub(crate) const OTHER_IDL: &[&str] = &[
    "Object",
    "ValueBase",
    "abstract",
    "alias",
    "any",
    "attribute",
    "component",
    "connector",
    "consumes",
    "context",
    "custom",
    "emits",
    "eventtype",
    "exception",
    "factory",
    "finder",
    "fixed",
    "getraises",
    "home",
    "import",
    "in",
    "inout",
    "interface",
    "local",
    "manages",
    "mirrorport",
    "multiple",
    "native",
    "oneway",
    "out",
    "port",
    "porttype",
    "primarykey",
    "private",
    "provides",
    "public",
    "publishes",
    "raises",
    "readonly",
    "setraises",
    "supports",
    "truncatable",
    "typeid",
    "typename",
    "typeprefix",
    "uses",
    "valuetype",
];

/// Words with a meaning in PDL.
pub(crate) const PDL: &[&str] = &[
    "abstract", "boolean", "const", "enum", "import", "int16", "int32", "int64", "int8", "module", "probe", "real32",
    "real64", "string", "struct", "typedef", "uint16", "uint32", "uint64", "uint8", "vector",
];

/// The IDL keyword that equals `name`, ignoring case (IDL 4.2, 7.2.3.1), and whether it belongs to
/// a supported building block.
pub(crate) fn collision(name: &str) -> Option<(&'static str, bool)> {
    let find = |list: &[&'static str]| list.iter().find(|k| k.eq_ignore_ascii_case(name)).copied();
    find(IDL).map(|k| (k, true)).or_else(|| find(OTHER_IDL).map(|k| (k, false)))
}

/// The IDL type for the name of a type in another language, for the help of an error.
pub(crate) fn foreign_type(name: &str) -> Option<&'static str> {
    Some(match name {
        "int" | "int32_t" | "i32" | "INT32" => "int32",
        "uint" | "uint32_t" | "u32" => "uint32",
        "int8_t" | "i8" => "int8",
        "uint8_t" | "u8" => "uint8",
        "int16_t" | "i16" => "int16",
        "uint16_t" | "u16" => "uint16",
        "int64_t" | "i64" => "int64",
        "uint64_t" | "u64" | "size_t" => "uint64",
        "float32" | "f32" | "real32" | "real" => "float",
        "float64" | "f64" | "real64" => "double",
        "bool" => "boolean",
        "byte" => "octet",
        "str" | "String" => "string",
        "vector" | "list" => "sequence",
        _ => return None,
    })
}
