//! Emits proto3 messages. `protoc` accepts them, and their encoding is the one of the codec
//! `protobuf`.
//!
//! A proto file has one package, which is the module that contains all definitions. Inner modules
//! become parts of names. Constants are omitted, because proto3 has none.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use polywire_core::{
    codec::{
        lower::{bits_scalar, scalar_of},
        protobuf::{DISCRIMINATOR_NUMBER, field_numbers},
    },
    layout::Scalar,
    schema::{Case, DefId, DefKind, EnumLiteral, Schema, Type},
};

use super::{EmitError, Emitter, is_identifier};
use crate::document::Constant;

pub(super) const EMITTER: Emitter =
    Emitter { name: "proto", description: "proto3 messages for programs that read the format protobuf", emit };

fn emit(schema: &Schema, _: &[Constant]) -> Result<String, EmitError> {
    let schema = &schema.with_flat_arrays();
    let (package, names) = names(schema)?;
    let taken = names.values().cloned().collect();
    let mut writer = Writer { schema, names, taken, wrappers: BTreeMap::new(), def: String::new() };
    let mut out = String::from("// Written by Polywire from IDL; changes here will be lost.\nsyntax = \"proto3\";\n");
    if !package.is_empty() {
        let _ = write!(out, "\npackage {};\n", package.join("."));
    }
    for i in 0..schema.defs().len() {
        let lines = writer.definition(DefId(i as u32))?;
        lines.iter().for_each(|line| out += &format!("{line}\n"));
    }
    let mut wrappers: Vec<(String, String)> = writer.wrappers.into_iter().collect();
    wrappers.sort_by(|a, b| a.1.cmp(&b.1));
    for (field, name) in wrappers {
        let _ = write!(out, "\nmessage {name} {{\n  {field} values = 1;\n}}\n");
    }
    Ok(out)
}

/// Words that cannot be names of types.
const WORDS: &[&str] = &[
    "bool",
    "bytes",
    "double",
    "enum",
    "extend",
    "extensions",
    "fixed32",
    "fixed64",
    "float",
    "group",
    "import",
    "int32",
    "int64",
    "map",
    "message",
    "oneof",
    "option",
    "optional",
    "package",
    "repeated",
    "required",
    "reserved",
    "returns",
    "rpc",
    "service",
    "sfixed32",
    "sfixed64",
    "sint32",
    "sint64",
    "stream",
    "string",
    "syntax",
    "uint32",
    "uint64",
];

/// The package, and the name of each definition that has one.
fn names(schema: &Schema) -> Result<(Vec<String>, BTreeMap<DefId, String>), EmitError> {
    let split: Vec<(DefId, Vec<&str>)> = (0u32..)
        .zip(schema.defs())
        .filter(|(_, def)| {
            !matches!(def.kind, DefKind::Alias { .. } | DefKind::Bitmask { .. } | DefKind::Bitset { .. })
        })
        .map(|(i, def)| (DefId(i), def.name.split("::").collect()))
        .collect();
    for (id, parts) in &split {
        if let Some(bad) = parts.iter().find(|part| !is_identifier(part)) {
            return Err(EmitError::Name { def: schema.def(*id).name.clone(), name: (*bad).into() });
        }
    }
    let mut package: Option<Vec<&str>> = None;
    for (_, parts) in &split {
        let module = &parts[..parts.len() - 1];
        package = Some(match package {
            None => module.to_vec(),
            Some(known) => known.iter().zip(module).take_while(|(a, b)| a == b).map(|(a, _)| *a).collect(),
        });
    }
    let package: Vec<String> = package.unwrap_or_default().into_iter().map(not_a_word).collect();
    let (mut taken, mut names) = (BTreeSet::new(), BTreeMap::new());
    for (id, parts) in split {
        let name = not_a_word(&parts[package.len()..].join("_"));
        names.insert(id, unique(&mut taken, name, |name| name.to_owned()));
    }
    Ok((package, names))
}

fn not_a_word(name: &str) -> String {
    if WORDS.contains(&name) { format!("{name}_") } else { name.to_owned() }
}

/// The name, followed by a number if its key is already in use.
fn unique(taken: &mut BTreeSet<String>, name: String, key: impl Fn(&str) -> String) -> String {
    let mut given = name.clone();
    let mut n = 2;
    while !taken.insert(key(&given)) {
        given = format!("{name}_{n}");
        n += 1;
    }
    given
}

/// The JSON names of fields, which have no underscores, must differ as well.
fn field_key(name: &str) -> String {
    name.chars().filter(|c| *c != '_').map(|c| c.to_ascii_lowercase()).collect()
}

struct Writer<'a> {
    schema: &'a Schema,
    names: BTreeMap<DefId, String>,
    /// All names of messages, enums and enum values.
    taken: BTreeSet<String>,
    /// Wrapper messages for types that proto3 cannot nest: the name of the message by the field
    /// that it contains.
    wrappers: BTreeMap<String, String>,
    /// The name of the definition that is being written, for errors.
    def: String,
}

type Text = Result<String, EmitError>;

impl Writer<'_> {
    fn definition(&mut self, id: DefId) -> Result<Vec<String>, EmitError> {
        let def = self.schema.def(id);
        let Some(name) = self.names.get(&id).cloned() else { return Ok(Vec::new()) };
        self.def = def.name.clone();
        let mut lines = vec![String::new()];
        lines.extend(comment("", &def.doc));
        match &def.kind {
            DefKind::Enum { literals, .. } => self.enumeration(&name, literals, &mut lines)?,
            DefKind::Union { cases, .. } => self.union(id, &name, cases, &mut lines)?,
            _ => self.structure(id, &name, &mut lines)?,
        }
        lines.push("}".into());
        Ok(lines)
    }

    /// proto3 requires a value of zero, in first place.
    fn enumeration(&mut self, name: &str, literals: &[EnumLiteral], lines: &mut Vec<String>) -> Result<(), EmitError> {
        lines.push(format!("enum {name} {{"));
        let (zero, others): (Vec<_>, Vec<_>) = literals.iter().partition(|literal| literal.value == 0);
        if zero.is_empty() {
            let value = unique(&mut self.taken, format!("{name}_UNSPECIFIED"), |name| name.to_owned());
            lines.push(format!("  {value} = 0;"));
        }
        let mut own = BTreeSet::new();
        for literal in zero.into_iter().chain(others) {
            // Enum values share the scope of their enum. Some languages also prefix them with its
            // name and change their case.
            let value = unique(&mut own, self.identifier(&literal.name)?, field_key);
            let value = format!("{name}_{value}");
            let value = unique(&mut self.taken, value, |name| name.to_owned());
            lines.push(format!("  {value} = {};", literal.value));
        }
        Ok(())
    }

    fn structure(&mut self, id: DefId, name: &str, lines: &mut Vec<String>) -> Result<(), EmitError> {
        lines.push(format!("message {name} {{"));
        let mut taken = BTreeSet::new();
        for (member, number) in self.schema.members(id).into_iter().zip(field_numbers(self.schema, id)) {
            let field = unique(&mut taken, self.identifier(&member.name)?, field_key);
            let ty = match (member.optional, self.is_message(&member.ty)) {
                (true, false) if self.repeated(&member.ty)?.is_none() => {
                    format!("optional {}", self.single(&member.ty)?)
                }
                (true, _) => self.single(&member.ty)?,
                (false, _) => match self.repeated(&member.ty)? {
                    Some(repeated) => repeated,
                    None => self.single(&member.ty)?,
                },
            };
            lines.extend(comment("  ", &member.doc));
            lines.push(format!("  {ty} {field} = {number};"));
        }
        Ok(())
    }

    fn union(&mut self, id: DefId, name: &str, cases: &[Case], lines: &mut Vec<String>) -> Result<(), EmitError> {
        let mut taken = BTreeSet::new();
        let numbers = field_numbers(self.schema, id);
        let fields: Vec<String> = cases
            .iter()
            .map(|case| Ok(unique(&mut taken, self.identifier(&case.member.name)?, field_key)))
            .collect::<Result<_, EmitError>>()?;
        let own = |name: &str, taken: &mut BTreeSet<String>| unique(taken, name.into(), field_key);
        let (discriminator, oneof) = (own("discriminator", &mut taken), own("value", &mut taken));
        lines.push(format!("message {name} {{"));
        lines.push(
            "  // Absent if the field that is set implies it: it is then the first label of the field's case.".into(),
        );
        lines.push(format!("  optional sint64 {discriminator} = {DISCRIMINATOR_NUMBER};"));
        lines.push(format!("  oneof {oneof} {{"));
        for ((case, field), number) in cases.iter().zip(fields).zip(numbers) {
            lines.extend(comment("    ", &case.member.doc));
            lines.push(format!("    {} {field} = {number};", self.single(&case.member.ty)?));
        }
        lines.push("  }".into());
        Ok(())
    }

    /// The type of a repeated field, of which each element has one.
    fn repeated(&mut self, ty: &Type) -> Result<Option<String>, EmitError> {
        Ok(match self.schema.resolve(ty) {
            Type::Sequence { element, .. } | Type::Array { element, .. } if !self.is_octet(element) => {
                Some(format!("repeated {}", self.single(element)?))
            }
            Type::Map { key, value, .. } => Some(format!("map<{}, {}>", self.key(key)?, self.single(value)?)),
            _ => None,
        })
    }

    /// The type of a singular field. Repeated types are wrapped in a message.
    fn single(&mut self, ty: &Type) -> Text {
        let schema = self.schema;
        if let Some(field) = self.repeated(ty)? {
            return Ok(self.wrapper(field));
        }
        Ok(match schema.resolve(ty) {
            Type::String { .. } | Type::WString { .. } => "string".into(),
            Type::Sequence { .. } | Type::Array { .. } | Type::Float128 => "bytes".into(),
            Type::Def(id) => match (&schema.def(*id).kind, self.names.get(id)) {
                (_, Some(name)) => name.clone(),
                _ => number(bits_scalar(schema, *id)).into(),
            },
            primitive => number(scalar_of(primitive).unwrap_or(Scalar::U8)).into(),
        })
    }

    fn wrapper(&mut self, field: String) -> String {
        if let Some(name) = self.wrappers.get(&field) {
            return name.clone();
        }
        let words = field.replace("repeated ", "Repeated_").replace("map<", "Map_").replace(", ", "_").replace('>', "");
        let name = unique(&mut self.taken, words, |name| name.to_owned());
        self.wrappers.insert(field, name.clone());
        name
    }

    fn key(&mut self, ty: &Type) -> Text {
        let schema = self.schema;
        match schema.resolve(ty) {
            Type::Def(id) if matches!(schema.def(*id).kind, DefKind::Enum { .. }) => Ok("int32".into()),
            Type::Sequence { .. } | Type::Array { .. } | Type::Map { .. } => Err(self.no_key()),
            Type::Float32 | Type::Float64 | Type::Float128 => Err(self.no_key()),
            _ if self.is_message(ty) => Err(self.no_key()),
            _ => self.single(ty),
        }
    }

    fn no_key(&self) -> EmitError {
        let what = "in proto3, the key of a map must be a string, integer, boolean, character or enum".into();
        EmitError::Value { def: self.def.clone(), what }
    }

    fn is_octet(&self, element: &Type) -> bool {
        *self.schema.resolve(element) == Type::Octet
    }

    fn is_message(&self, ty: &Type) -> bool {
        let def = self.schema.def_of(self.schema.resolve(ty));
        def.is_some_and(|def| matches!(def.kind, DefKind::Struct { .. } | DefKind::Union { .. }))
    }

    fn identifier(&self, name: &str) -> Text {
        match is_identifier(name) {
            true => Ok(name.into()),
            false => Err(EmitError::Name { def: self.def.clone(), name: name.into() }),
        }
    }
}

/// The type of a number. Signed numbers use the zigzag encoding, so that small negative ones are
/// short.
fn number(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::Bool => "bool",
        Scalar::U8 | Scalar::U16 | Scalar::U32 => "uint32",
        Scalar::U64 => "uint64",
        Scalar::I8 | Scalar::I16 | Scalar::I32 => "sint32",
        Scalar::I64 => "sint64",
        Scalar::F32 => "float",
        Scalar::F64 => "double",
        Scalar::F128 => "bytes",
    }
}

fn comment<'a>(indent: &'a str, doc: &'a str) -> impl Iterator<Item = String> + 'a {
    doc.lines().map(move |line| format!("{indent}// {line}").trim_end().to_owned())
}
