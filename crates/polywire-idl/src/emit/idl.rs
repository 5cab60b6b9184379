//! Emits IDL 4.2 that compiles to an equal type.

use std::collections::HashSet;
use std::fmt::Write as _;

use polywire_core::schema::{
    Annotation, AutoId, BitField, Case, Def, DefId, DefKind, EnumLiteral, Extensibility, Flag, Literal, Member, Schema,
    TryConstruct, Type,
};

use super::order::{Piece, steps};
use super::{EmitError, Emitter, argument_type, float_text, is_identifier};
use crate::document::Constant;
use crate::keywords;

pub(super) const EMITTER: Emitter =
    Emitter { name: "idl", description: "OMG IDL 4.2 that parses to an equal type", emit };

fn emit(schema: &Schema, constants: &[Constant]) -> Result<String, EmitError> {
    let names = schema.defs().iter().flat_map(|d| prefixes(&d.name)).collect();
    let mut writer = Writer { schema, out: String::new(), modules: Vec::new(), names, def: String::new(), typedefs: 0 };
    let (named, plain): (Vec<_>, Vec<_>) = constants.iter().partition(|c| matches!(c.ty, Type::Def(_)));
    plain.into_iter().try_for_each(|c| writer.constant(c))?;
    for step in steps(schema)? {
        match step {
            Piece::Declare(id) => writer.declaration(id)?,
            Piece::Define(id) => writer.definition(id)?,
        }
    }
    named.into_iter().try_for_each(|c| writer.constant(c))?;
    writer.enter(&[]);
    Ok(writer.out)
}

/// The scoped name and the names of all modules around it, in lower case: `a`, `a::b`, `a::b::c`.
fn prefixes(name: &str) -> Vec<String> {
    let ends = name.match_indices("::").map(|(at, _)| at).chain([name.len()]);
    ends.map(|end| name[..end].to_ascii_lowercase()).collect()
}

struct Writer<'a> {
    schema: &'a Schema,
    out: String,
    /// The modules that are open.
    modules: Vec<String>,
    /// The scoped names of all definitions and modules, in lower case.
    names: HashSet<String>,
    /// The name of the definition that is being written, for errors.
    def: String,
    typedefs: usize,
}

type Text = Result<String, EmitError>;

impl Writer<'_> {
    fn constant(&mut self, constant: &Constant) -> Result<(), EmitError> {
        let name = self.open(&constant.name)?;
        let (ty, dims) = self.type_text(&constant.ty)?;
        let value = self.literal(&constant.value, Some(&constant.ty))?;
        self.doc(&constant.doc);
        self.line(&format!("const {ty} {name}{dims} = {value};"));
        Ok(())
    }

    fn declaration(&mut self, id: DefId) -> Result<(), EmitError> {
        let def = self.schema.def(id);
        let name = self.open(&def.name)?;
        let word = if matches!(def.kind, DefKind::Union { .. }) { "union" } else { "struct" };
        self.line(&format!("{word} {name};"));
        Ok(())
    }

    fn definition(&mut self, id: DefId) -> Result<(), EmitError> {
        let def = self.schema.def(id);
        let name = self.open(&def.name)?;
        let annotations = self.type_annotations(def)?;
        match &def.kind {
            DefKind::Struct { base, members } => {
                let members = members.iter().map(|m| self.member(m)).collect::<Result<Vec<_>, _>>()?;
                let head = format!("struct {name}{}", self.base(*base)?);
                self.block(def, &annotations, &head, &members);
            }
            DefKind::Union { discriminator, key, cases } => {
                let cases = cases.iter().map(|c| self.case(c, discriminator)).collect::<Result<Vec<_>, _>>()?;
                let (ty, _) = self.type_text(discriminator)?;
                let key = if *key { "@key " } else { "" };
                self.block(def, &annotations, &format!("union {name} switch ({key}{ty})"), &cases);
            }
            DefKind::Enum { literals, .. } => {
                let literals = separated(self.literals(literals)?);
                self.block(def, &annotations, &format!("enum {name}"), &literals);
            }
            DefKind::Bitmask { flags, .. } => {
                let flags = separated(self.flags(flags)?);
                self.block(def, &annotations, &format!("bitmask {name}"), &flags);
            }
            DefKind::Bitset { base, fields } => {
                let fields = fields.iter().map(|f| self.bit_field(f)).collect::<Result<Vec<_>, _>>()?;
                let head = format!("bitset {name}{}", self.base(*base)?);
                self.block(def, &annotations, &head, &fields);
            }
            DefKind::Alias { target } => {
                let (ty, dims) = self.type_text(target)?;
                self.doc(&def.doc);
                let annotations = annotations.iter().map(|a| format!("{a} ")).collect::<String>();
                self.line(&format!("{annotations}typedef {ty} {name}{dims};"));
            }
        }
        Ok(())
    }

    /// Writes members, literals or cases in braces. Each part has one or more lines.
    fn block(&mut self, def: &Def, annotations: &[String], head: &str, parts: &[Vec<String>]) {
        self.doc(&def.doc);
        if !annotations.is_empty() {
            self.line(&annotations.join(" "));
        }
        self.line(&format!("{head} {{"));
        for line in parts.iter().flatten() {
            self.line(&format!("    {line}"));
        }
        self.line("};");
    }

    fn type_annotations(&mut self, def: &Def) -> Result<Vec<String>, EmitError> {
        let mut list = Vec::new();
        let shown = matches!(def.kind, DefKind::Struct { .. } | DefKind::Union { .. });
        match def.extensibility {
            Extensibility::Final => list.push("@final".into()),
            Extensibility::Mutable => list.push("@mutable".into()),
            // This is the default in IDL 4.2, but not in every compiler.
            Extensibility::Appendable if shown => list.push("@appendable".into()),
            Extensibility::Appendable => {}
        }
        if let DefKind::Enum { bit_bound, .. } | DefKind::Bitmask { bit_bound, .. } = def.kind
            && bit_bound != 32
        {
            list.push(format!("@bit_bound({bit_bound})"));
        }
        if def.nested {
            list.push("@nested".into());
        }
        if def.auto_id == AutoId::Hash {
            list.push("@autoid(HASH)".into());
        }
        for annotation in &def.annotations {
            list.push(self.annotation(annotation, None)?);
        }
        Ok(list)
    }

    fn base(&mut self, base: Option<DefId>) -> Text {
        base.map_or(Ok(String::new()), |id| Ok(format!(" : {}", self.reference(id)?)))
    }

    fn member(&mut self, member: &Member) -> Result<Vec<String>, EmitError> {
        let name = self.identifier(&member.name)?;
        let mut text = String::new();
        for (set, mark) in [
            (member.key, "@key"),
            (member.optional, "@optional"),
            (member.must_understand, "@must_understand"),
            (member.external, "@external"),
        ] {
            if set {
                text += mark;
                text.push(' ');
            }
        }
        if let Some(id) = member.explicit_id {
            text += &format!("@id({id}) ");
        }
        if let Some(value) = &member.default {
            let ty = self.schema.resolve(&member.ty);
            text += &format!("@default({}) ", self.literal(value, Some(ty))?);
        }
        text += match member.try_construct {
            TryConstruct::Discard => "",
            TryConstruct::UseDefault => "@try_construct(USE_DEFAULT) ",
            TryConstruct::Trim => "@try_construct(TRIM) ",
        };
        for annotation in &member.annotations {
            text += &self.annotation(annotation, Some(&member.ty))?;
            text.push(' ');
        }
        let (ty, dims) = self.type_text(&member.ty)?;
        let mut lines = doc_lines(&member.doc);
        lines.push(format!("{text}{ty} {name}{dims};"));
        Ok(lines)
    }

    fn case(&mut self, case: &Case, discriminator: &Type) -> Result<Vec<String>, EmitError> {
        let mut lines = Vec::new();
        for label in &case.labels {
            lines.push(format!("case {}:", self.label(*label, discriminator)?));
        }
        if case.is_default {
            lines.push("default:".into());
        }
        if lines.is_empty() {
            return Err(self.no_value(format!("case '{}' has no label", case.member.name)));
        }
        lines.extend(self.member(&case.member)?.into_iter().map(|line| format!("    {line}")));
        Ok(lines)
    }

    fn label(&self, label: i64, discriminator: &Type) -> Text {
        match self.schema.resolve(discriminator) {
            Type::Bool => Ok(if label == 0 { "FALSE" } else { "TRUE" }.into()),
            Type::Char8 | Type::Char16 => self.literal(&Literal::Char(label as u32), None),
            Type::Def(id) => match &self.schema.def(*id).kind {
                DefKind::Enum { literals, .. } => match literals.iter().find(|l| i64::from(l.value) == label) {
                    Some(literal) => self.identifier(&literal.name),
                    None => Err(self.no_value(format!("no literal has the value of the label {label}"))),
                },
                _ => Ok(label.to_string()),
            },
            _ => Ok(label.to_string()),
        }
    }

    fn literals(&mut self, literals: &[EnumLiteral]) -> Result<Vec<String>, EmitError> {
        let mut next = 0;
        let mut parts = Vec::new();
        for literal in literals {
            let mut text = String::new();
            if i64::from(literal.value) != next {
                text += &format!("@value({}) ", literal.value);
            }
            if literal.is_default {
                text += "@default_literal ";
            }
            next = i64::from(literal.value) + 1;
            parts.push(self.listed(text, &literal.annotations, &literal.name)?);
        }
        Ok(parts)
    }

    fn flags(&mut self, flags: &[Flag]) -> Result<Vec<String>, EmitError> {
        let mut next = 0;
        let mut parts = Vec::new();
        for flag in flags {
            let text = if flag.position == next { String::new() } else { format!("@position({}) ", flag.position) };
            next = flag.position + 1;
            parts.push(self.listed(text, &flag.annotations, &flag.name)?);
        }
        Ok(parts)
    }

    fn listed(&self, mut text: String, annotations: &[Annotation], name: &str) -> Text {
        for annotation in annotations {
            text += &self.annotation(annotation, None)?;
            text.push(' ');
        }
        Ok(text + &self.identifier(name)?)
    }

    fn bit_field(&mut self, field: &BitField) -> Result<Vec<String>, EmitError> {
        let mut text = String::new();
        for annotation in &field.annotations {
            text += &self.annotation(annotation, Some(&field.ty))?;
            text.push(' ');
        }
        text += &match BitField::new("", field.width).ty == field.ty {
            true => format!("bitfield<{}>", field.width),
            false => format!("bitfield<{}, {}>", field.width, self.type_text(&field.ty)?.0),
        };
        if let Some(name) = &field.name {
            text += &format!(" {}", self.identifier(name)?);
        }
        Ok(vec![text + ";"])
    }

    fn annotation(&self, annotation: &Annotation, member: Option<&Type>) -> Text {
        let good = annotation.name.split("::").all(is_identifier);
        if !good {
            return Err(EmitError::Name { def: self.def.clone(), name: annotation.name.clone() });
        }
        let ty = member.and_then(|ty| argument_type(&annotation.name, ty)).map(|ty| self.schema.resolve(ty));
        let mut args = Vec::new();
        for (name, value) in &annotation.args {
            let value = self.literal(value, ty)?;
            args.push(match (name.as_str(), annotation.args.len()) {
                ("value", 1) => value,
                _ => format!("{} = {value}", self.identifier(name)?),
            });
        }
        let args = if args.is_empty() { String::new() } else { format!("({})", args.join(", ")) };
        Ok(format!("@{}{args}", annotation.name))
    }

    // Types.

    /// A type, and the array dimensions that follow the declared name.
    fn type_text(&mut self, ty: &Type) -> Result<(String, String), EmitError> {
        let Type::Array { element, dims } = ty else { return Ok((self.element_text(ty)?, String::new())) };
        let dims = dims.iter().fold(String::new(), |text, n| text + &format!("[{n}]"));
        Ok((self.element_text(element)?, dims))
    }

    /// A type in a place where dimensions cannot follow. An array needs a typedef there.
    fn element_text(&mut self, ty: &Type) -> Text {
        let bounded = |word: &str, bound: u32| if bound == 0 { word.into() } else { format!("{word}<{bound}>") };
        let tail = |bound: u32| if bound == 0 { ">".to_string() } else { format!(", {bound}>") };
        Ok(match ty {
            Type::String { bound } => bounded("string", *bound),
            Type::WString { bound } => bounded("wstring", *bound),
            Type::Sequence { element, bound } => format!("sequence<{}{}", self.element_text(element)?, tail(*bound)),
            Type::Map { key, value, bound } => {
                format!("map<{}, {}{}", self.element_text(key)?, self.element_text(value)?, tail(*bound))
            }
            Type::Def(id) => self.reference(*id)?,
            Type::Array { .. } => self.own_typedef(ty)?,
            primitive => primitive.keyword().into(),
        })
    }

    /// An additional typedef does not change the type.
    fn own_typedef(&mut self, ty: &Type) -> Text {
        let (element, dims) = self.type_text(ty)?;
        let name = loop {
            self.typedefs += 1;
            let name = format!("Array{}", self.typedefs);
            let full = self.modules.iter().fold(String::new(), |text, m| text + m + "::") + &name;
            if self.names.insert(full.to_ascii_lowercase()) {
                break name;
            }
        };
        self.line(&format!("typedef {element} {name}{dims};"));
        Ok(name)
    }

    /// The name of a definition as seen from the open module.
    fn reference(&self, id: DefId) -> Text {
        let Some(def) = self.schema.defs().get(id.0 as usize) else {
            return Err(self.no_value("the type of a constant belongs to another schema".into()));
        };
        let parts: Vec<&str> = def.name.split("::").collect();
        let (last, modules) = parts.split_last().unwrap_or((&"", &[]));
        if modules == self.modules.as_slice() {
            return self.identifier(last);
        }
        let parts: Result<Vec<String>, _> = parts.iter().map(|part| self.identifier(part)).collect();
        let global = if self.is_hidden(&def.name) { "::" } else { "" };
        Ok(format!("{global}{}", parts?.join("::")))
    }

    /// Whether the first part of `name` denotes something else in one of the open modules.
    fn is_hidden(&self, name: &str) -> bool {
        let first = name.split("::").next().unwrap_or("");
        let mut scope = String::new();
        self.modules.iter().any(|module| {
            scope += &format!("{module}::");
            let inner = format!("{scope}{first}").to_ascii_lowercase();
            self.names.contains(&inner)
        })
    }

    // Constants.

    fn literal(&self, literal: &Literal, ty: Option<&Type>) -> Text {
        let ty = ty.map(|ty| self.schema.resolve(ty));
        Ok(match literal {
            Literal::Bool(value) => if *value { "TRUE" } else { "FALSE" }.into(),
            Literal::Int(value) if value.unsigned_abs() <= u128::from(u64::MAX) => value.to_string(),
            Literal::Int(value) => return Err(self.no_value(format!("{value} needs more than 64 bits"))),
            Literal::Float(value) if value.is_nan() => "0.0 / 0.0".into(),
            Literal::Float(value) if value.is_infinite() => format!("{:?} / 0.0", value.signum()),
            Literal::Float(value) => float_text(*value, ty),
            Literal::Char(code) => character(*code),
            Literal::String(text) => {
                let wide = if matches!(ty, Some(Type::WString { .. })) { "L" } else { "" };
                format!("{wide}\"{}\"", text.chars().map(escaped).collect::<String>())
            }
            Literal::Enum(names) => {
                let names = names.split(" | ").map(|name| self.scoped(name)).collect::<Result<Vec<_>, _>>()?;
                names.join(" | ")
            }
        })
    }

    /// A scoped name, or a number that is used together with names.
    fn scoped(&self, name: &str) -> Text {
        if name.bytes().all(|byte| byte.is_ascii_digit()) && !name.is_empty() {
            return Ok(name.into());
        }
        let parts: Result<Vec<String>, _> = name.split("::").map(|part| self.identifier(part)).collect();
        Ok(parts?.join("::"))
    }

    fn no_value(&self, what: String) -> EmitError {
        EmitError::Value { def: self.def.clone(), what }
    }

    // Names and lines.

    /// The name, with a leading underscore if it is a keyword.
    fn identifier(&self, name: &str) -> Text {
        if !is_identifier(name) {
            return Err(EmitError::Name { def: self.def.clone(), name: name.into() });
        }
        let escape = name.starts_with('_') || keywords::collision(name).is_some();
        Ok(if escape { format!("_{name}") } else { name.into() })
    }

    /// Opens the modules of a scoped name and returns its last part.
    fn open(&mut self, full: &str) -> Text {
        self.def = full.into();
        let parts: Vec<&str> = full.split("::").collect();
        let (last, modules) = parts.split_last().unwrap_or((&"", &[]));
        modules.iter().try_for_each(|m| self.identifier(m).map(drop))?;
        let separate = !self.out.is_empty() && !self.out.ends_with("{\n") && modules == self.modules.as_slice();
        if separate {
            self.out.push('\n');
        }
        self.enter(modules);
        self.identifier(last)
    }

    /// Closes and opens modules until `modules` are open.
    fn enter(&mut self, modules: &[&str]) {
        let common = self.modules.iter().zip(modules).take_while(|(a, b)| a == b).count();
        let moved = self.modules.len() > common && !modules.is_empty();
        while self.modules.len() > common {
            self.modules.pop();
            self.line("};");
        }
        if moved || (modules.len() > common && !self.out.is_empty() && !self.out.ends_with("{\n")) {
            self.out.push('\n');
        }
        for module in &modules[common..] {
            let name = self.identifier(module).unwrap_or_default();
            self.line(&format!("module {name} {{"));
            self.modules.push(module.to_string());
        }
    }

    fn doc(&mut self, doc: &str) {
        doc_lines(doc).iter().for_each(|line| self.line(line));
    }

    fn line(&mut self, text: &str) {
        let indent = "    ".repeat(self.modules.len());
        // Writing into a string cannot fail.
        let _ = writeln!(self.out, "{indent}{text}");
    }
}

/// Writes one item per line with commas between them. Other compilers refuse a comma after the
/// last.
fn separated(parts: Vec<String>) -> Vec<Vec<String>> {
    let last = parts.len().saturating_sub(1);
    let comma = |i: usize| if i < last { "," } else { "" };
    parts.into_iter().enumerate().map(|(i, part)| vec![part + comma(i)]).collect()
}

fn doc_lines(doc: &str) -> Vec<String> {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let line = |line: &str| format!("/// {}", line.chars().map(plain).collect::<String>()).trim_end().to_string();
    doc.lines().map(line).collect()
}

fn character(code: u32) -> String {
    match char::from_u32(code) {
        Some(c) if c.is_ascii() && !c.is_ascii_control() && !matches!(c, '\'' | '\\') => format!("'{c}'"),
        _ if code <= 0xFF => format!("'\\x{code:02x}'"),
        _ => format!("L'\\u{code:04x}'"),
    }
}

fn escaped(c: char) -> String {
    match c {
        '"' | '\\' => format!("\\{c}"),
        '\n' => "\\n".into(),
        '\t' => "\\t".into(),
        '\r' => "\\r".into(),
        c if c.is_ascii_control() => format!("\\x{:02x}", c as u32),
        c => c.to_string(),
    }
}
