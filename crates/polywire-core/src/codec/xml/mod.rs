//! XML 1.0, read and written directly from and to values, without a tree. `spec/xml.md` defines the
//! mapping.

use alloc::{format, string::String, sync::Arc, vec::Vec};

use super::{
    BuiltIn, Evolution, LowerError, OptionSpec, Options, Properties,
    lower::{self, symbols},
};
use crate::{
    layout::Layout,
    program::{Block, Limits, Op, OpKind, PathId, Program, Wire, io::CodecError},
    schema::{DefKind, Schema, Type},
};

mod decode;
mod delimiters;
mod dom;
mod encode;
mod scalars;
mod tokens;

pub use dom::XML_DOM;

/// The codec `xml`.
pub static XML: BuiltIn = BuiltIn {
    name: "xml",
    properties: &Properties {
        summary: "XML with the names of members, read without a tree",
        text: true,
        self_describing: true,
        stateful: false,
        typical_use: "peers and archives that want XML with a schema (XSD)",
        specification: "XML 1.0, fifth edition; spec/xml.md",
    },
    options: OPTIONS,
    evolution: Evolution::Names,
    encode: encode_program,
    decode: |_, writer, reader, layout| decode_program(writer, reader, layout),
};

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::new(
        "members",
        &["elements", "attributes"],
        "members as elements (default), or members with a single value as attributes",
    ),
    OptionSpec::new("enum", &["name", "number"], "enums by name (default) or as numbers"),
    OptionSpec::new("bitmask", &["number", "names"], "bitmasks as a number (default) or a list of names"),
    OptionSpec::new("declaration", &[], "begin with <?xml version=\"1.0\" encoding=\"UTF-8\"?>"),
    OptionSpec::new("pretty", &[], "several indented lines instead of one"),
];

/// Options of the format. They matter for writing only, because reading accepts every form.
#[derive(Clone, Copy, Debug)]
struct Style {
    attributes: bool,
    enum_numbers: bool,
    flag_names: bool,
}

fn encode_program(options: &Options, schema: &Schema, layout: &Arc<Layout>) -> Result<Program, LowerError> {
    let is = |name, value| options.value(name) == Some(value);
    let style = Style {
        attributes: is("members", "attributes"),
        enum_numbers: is("enum", "number"),
        flag_names: is("bitmask", "names"),
    };
    let mut program = lower::encode::lower(&encode::Dialect::new(style), schema, layout)?;
    let op = |kind| Op { path: PathId(0), kind };
    let literal = |text: String| op(OpKind::Literal(text.into_bytes().into()));
    let name = root_name(schema);
    let declaration = if options.has("declaration") { "<?xml version=\"1.0\" encoding=\"UTF-8\"?>" } else { "" };
    let bracket = if writes_its_bracket(schema, schema.root()) { "" } else { ">" };
    let mut ops: Vec<Op> = [literal(format!("{declaration}<{name}{bracket}"))].into();
    ops.append(&mut program.root.0);
    ops.push(literal(format!("</{name}>")));
    if options.has("pretty") {
        ops = [op(OpKind::Region { dialect: &delimiters::PRETTY, argument: 0, body: Block(ops) })].into();
    }
    program.root = Block(ops);
    Ok(program)
}

fn decode_program(writer: &Schema, reader: &Schema, layout: &Arc<Layout>) -> Result<Program, LowerError> {
    let mut program = lower::decode::lower(&decode::Dialect, writer, reader, layout)?;
    let op = |kind| Op { path: PathId(0), kind };
    let root = Wire::Symbol(&delimiters::ROOT, symbols::only(&root_name(writer)));
    program.root.0.insert(0, op(OpKind::Get(root)));
    program.root.0.push(op(OpKind::Action(&delimiters::END, 0)));
    Ok(program)
}

/// Checks that `bytes` are a well-formed XML document without a document type declaration, nested
/// no deeper than the default [`Limits`] allow.
///
/// ```
/// use polywire_core::codec::xml;
///
/// assert!(xml::validate(b"<a b='1'>text<c/></a>").is_ok());
/// let error = xml::validate(b"<a><b></a>").unwrap_err();
/// assert_eq!(error.offset, 8);
/// ```
pub fn validate(bytes: &[u8]) -> Result<(), CodecError> {
    validate_within(bytes, &Limits::default())
}

/// Like [`validate`], with other limits.
///
/// ```
/// use polywire_core::{codec::xml::validate_within, program::Limits};
/// let flat = Limits { depth: 2, ..Limits::default() };
/// assert!(validate_within(b"<a><b/></a>", &flat).is_ok());
/// assert!(validate_within(b"<a><b><c/></b></a>", &flat).is_err());
/// ```
pub fn validate_within(bytes: &[u8], limits: &Limits) -> Result<(), CodecError> {
    tokens::validate(bytes, limits)
}

/// The name of the root element: the type's name, or `value` for a type without a name.
fn root_name(schema: &Schema) -> String {
    match schema.resolve(schema.root()) {
        Type::Def(id) => type_name(&schema.def(*id).name),
        _ => "value".into(),
    }
}

/// The name of a root element for a type's scoped name: its parts are separated by dots.
///
/// ```
/// use polywire_core::codec::xml::{element_name, type_name};
///
/// assert_eq!(type_name("Geo::Report"), "Geo.Report");
/// assert_eq!(element_name("2nd"), "_x0032_nd");
/// ```
pub fn type_name(name: &str) -> String {
    element_name(&name.replace("::", "."))
}

/// A member's name as an XML name. `_xHHHH_` replaces a UTF-16 unit that is not allowed at its
/// place, and an underscore that would begin such an escape.
pub fn element_name(name: &str) -> String {
    let mut written = String::new();
    let plain = |at: usize, c: char| match c {
        '_' | 'a'..='z' | 'A'..='Z' => true,
        '0'..='9' | '-' | '.' => at > 0,
        _ => false,
    };
    for (at, c) in name.char_indices() {
        // The escape is ambiguous only if the digits are followed by an underscore, or by a
        // character whose escape begins with one.
        let behind = name.get(at + 6..).and_then(|rest| rest.chars().next());
        let joins = behind.is_some_and(|c| c == '_' || !plain(at + 6, c));
        let begins_escape =
            c == '_' && joins && tokens::escape_code(&[&name.as_bytes()[at..at + 6], b"_"].concat()).is_some();
        match plain(at, c) && !begins_escape {
            true => written.push(c),
            false => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| written.push_str(&format!("_x{unit:04X}_"))),
        }
    }
    written
}

/// True if values of the type write the end of their start tag themselves, because they may have
/// attributes.
fn writes_its_bracket(schema: &Schema, ty: &Type) -> bool {
    match schema.resolve(ty) {
        Type::Def(id) => {
            matches!(schema.def(*id).kind, DefKind::Struct { .. } | DefKind::Union { .. } | DefKind::Bitset { .. })
        }
        _ => false,
    }
}

/// True if sequences and arrays of the type are written as a list of values in one text.
fn is_listed(ty: &Type) -> bool {
    matches!(
        ty,
        Type::Octet
            | Type::Uint8
            | Type::Int8
            | Type::Int16
            | Type::Uint16
            | Type::Int32
            | Type::Uint32
            | Type::Int64
            | Type::Uint64
            | Type::Float32
            | Type::Float64
    )
}
