//! Emits Rust types that derive `polywire::Message` and have the type hash of the schema.

use polywire_core::schema::{
    AutoId, Case, Def, DefId, DefKind, EnumLiteral, Extensibility, Literal, Member, Schema, TryConstruct, Type,
};

use super::{EmitError, Emitter, is_identifier};
use crate::document::Constant;

mod bits;
mod names;
mod types;

use names::{Names, Scope, camel, field, raw};

pub(super) const EMITTER: Emitter =
    Emitter { name: "rust", description: "Rust types that derive polywire::Message, with the same type hash", emit };

fn emit(schema: &Schema, constants: &[Constant]) -> Result<String, EmitError> {
    let mut names = Names::new(schema)?;
    let mut root = Module::default();
    let mut placed = Vec::new();
    for constant in constants {
        let (module, last) = names.split(&constant.name)?;
        placed.push((constant, names.constant(&module, &last), module));
    }
    let mut writer = Writer { schema, names, def: String::new() };
    for (constant, name, module) in placed {
        let lines = writer.constant(constant, &name, &module)?;
        root.inside(&module).items.push(lines);
    }
    for i in 0..schema.defs().len() {
        let id = DefId(i as u32);
        let lines = writer.definition(id)?;
        root.inside(writer.names.module_of(id)).items.push(lines);
    }
    let mut out = String::from("// Written by Polywire from IDL; changes here will be lost.\n");
    root.write(&writer.names, &mut Vec::new(), &mut out);
    Ok(out)
}

/// The content of a module. A module that IDL reopens is one module here.
#[derive(Default)]
struct Module {
    items: Vec<Vec<String>>,
    modules: Vec<(String, Module)>,
}

impl Module {
    fn inside(&mut self, path: &[String]) -> &mut Module {
        let Some((first, rest)) = path.split_first() else { return self };
        let place = self.modules.iter().position(|(name, _)| name == first).unwrap_or_else(|| {
            self.modules.push((first.clone(), Module::default()));
            self.modules.len() - 1
        });
        self.modules[place].1.inside(rest)
    }

    fn write(&self, names: &Names, path: &mut Vec<String>, out: &mut String) {
        let indent = "    ".repeat(path.len());
        let line = |out: &mut String, text: &str| match text {
            "" => out.push('\n'),
            _ => *out += &format!("{indent}{text}\n"),
        };
        let separate = |out: &mut String| {
            if !out.ends_with("{\n") {
                out.push('\n');
            }
        };
        for item in &self.items {
            separate(out);
            item.iter().for_each(|text| line(out, text));
        }
        for (name, module) in &self.modules {
            separate(out);
            path.push(name.clone());
            line(out, &format!("pub mod {} {{", raw(&names.module(path))));
            module.write(names, path, out);
            line(out, "}");
            path.pop();
        }
    }
}

struct Writer<'a> {
    schema: &'a Schema,
    names: Names,
    /// The name of the definition that is being written, for errors.
    def: String,
}

/// The argument of the first of these annotations that the member has, each given by its name and
/// that of the argument. A type object has the same one, if an annotation is repeated.
fn argument<'a>(member: &'a Member, names: [(&str, &str); 2]) -> Option<&'a Literal> {
    names.iter().find_map(|(name, argument)| {
        let annotation = member.annotations.iter().find(|annotation| annotation.name == *name)?;
        annotation.args.iter().find(|(name, _)| name == argument).map(|(_, value)| value)
    })
}

/// Unique names for variants.
fn variant_names<'a>(names: impl Iterator<Item = &'a str>, manner: fn(&str) -> String) -> Vec<String> {
    let mut scope = Scope::default();
    names.map(|name| scope.give(manner(name))).collect()
}

impl Writer<'_> {
    fn constant(&mut self, constant: &Constant, name: &str, module: &[String]) -> Result<Vec<String>, EmitError> {
        self.def = constant.name.clone();
        let (ty, value) = self.constant_text(constant, module)?;
        let mut lines = doc_lines(&constant.doc);
        lines.push(format!("pub const {}: {ty} = {value};", raw(name)));
        Ok(lines)
    }

    fn definition(&mut self, id: DefId) -> Result<Vec<String>, EmitError> {
        let def = self.schema.def(id);
        self.def = def.name.clone();
        let mut lines = doc_lines(&def.doc);
        lines.extend(match &def.kind {
            DefKind::Struct { base, members } => self.structure(id, *base, members)?,
            DefKind::Union { discriminator, key, cases } => self.union(id, discriminator, *key, cases)?,
            DefKind::Enum { bit_bound, literals } => self.enumeration(id, *bit_bound, literals)?,
            DefKind::Bitmask { bit_bound, flags } => self.bitmask(id, *bit_bound, flags)?,
            DefKind::Bitset { .. } => self.bitset(id, def)?,
            DefKind::Alias { target } => {
                let ty = self.rust_type(target, self.names.module_of(id));
                vec![format!("pub type {} = {ty};", raw(self.names.type_name(id)))]
            }
        });
        Ok(lines)
    }

    /// The attribute of a type, with the entries that its kind adds.
    fn container(&self, def: &Def, more: &[String]) -> Vec<String> {
        let mut parts = vec![format!("name = \"{}\"", def.name)];
        match def.extensibility {
            Extensibility::Final => parts.push("final".into()),
            Extensibility::Mutable => parts.push("mutable".into()),
            Extensibility::Appendable => {}
        }
        if def.nested {
            parts.push("nested".into());
        }
        let numbered = matches!(def.kind, DefKind::Struct { .. } | DefKind::Union { .. });
        if def.auto_id == AutoId::Hash && numbered {
            parts.push("autoid = \"hash\"".into());
        }
        parts.extend(more.iter().cloned());
        vec![format!("#[polywire({})]", parts.join(", "))]
    }

    // Structures.

    fn structure(&self, id: DefId, base: Option<DefId>, members: &[Member]) -> Result<Vec<String>, EmitError> {
        let from = self.names.module_of(id);
        let name = raw(self.names.type_name(id));
        let own_default = members.iter().any(|m| !m.optional && (m.default.is_some() || self.needs_own_default(&m.ty)));
        let default = if own_default { "" } else { "Default, " };
        let mut lines = vec![format!("#[derive(Clone, Debug, {default}PartialEq, polywire::Message)]")];
        lines.extend(self.container(self.schema.def(id), &[]));
        let mut fields = Vec::new();
        let mut scope = Scope::default();
        if let Some(base) = base {
            fields.push("    #[polywire(base)]".into());
            fields.push(format!("    pub {}: {},", scope.give("base".into()), self.names.path(from, base)));
        }
        for member in members {
            self.check_name(&member.name)?;
            let field = scope.give(field(&member.name));
            fields.extend(doc_lines(&member.doc).into_iter().map(|line| format!("    {line}")));
            let parts = self.member_parts(member, &field)?;
            if !parts.is_empty() {
                fields.push(format!("    #[polywire({})]", parts.join(", ")));
            }
            fields.push(format!("    pub {}: {},", raw(&field), self.member_type(member, from)));
        }
        if fields.is_empty() {
            lines.push(format!("pub struct {name} {{}}"));
            return Ok(lines);
        }
        lines.push(format!("pub struct {name} {{"));
        lines.extend(fields);
        lines.push("}".into());
        if own_default {
            lines.extend(self.default_impl(&name));
        }
        Ok(lines)
    }

    /// An implementation of `Default` that returns the value a reader uses for an absent member
    /// (spec/evolution.md, 4), if `derive(Default)` would return another one or is impossible.
    fn default_impl(&self, name: &str) -> Vec<String> {
        vec![
            String::new(),
            format!("impl {} for {name} {{", self.std("Default", "default")),
            "    fn default() -> Self {".into(),
            "        polywire::extend::layout::MessageField::default_value()".into(),
            "    }".into(),
            "}".into(),
        ]
    }

    fn member_type(&self, member: &Member, from: &[String]) -> String {
        let mut ty = self.rust_type(&member.ty, from);
        if member.external {
            ty = format!("{}<{ty}>", self.std("Box", "boxed"));
        }
        if member.optional {
            ty = format!("{}<{ty}>", self.std("Option", "option"));
        }
        ty
    }

    /// The entries of a member's attribute. `name` is its Rust name.
    fn member_parts(&self, member: &Member, name: &str) -> Result<Vec<String>, EmitError> {
        let mut parts = Vec::new();
        if name != member.name {
            parts.push(format!("name = \"{}\"", member.name));
        }
        parts.extend(member.explicit_id.map(|id| format!("id = {id}")));
        parts.extend(member.key.then(|| "key".into()));
        parts.extend(member.must_understand.then(|| "must_understand".into()));
        if let Some(value) = &member.default {
            parts.push(format!("default = {}", self.attribute_value(value, &member.ty)?));
        }
        match member.try_construct {
            TryConstruct::Discard => {}
            TryConstruct::UseDefault => parts.push("try_construct = \"use_default\"".into()),
            TryConstruct::Trim => parts.push("try_construct = \"trim\"".into()),
        }
        parts.extend(self.idl_text(&member.ty).map(|text| format!("idl = \"{text}\"")));
        let unit = argument(member, [("unit", "value"); 2]).filter(|unit| matches!(unit, Literal::String(_)));
        let limit = |name| argument(member, [(name, "value"), ("range", name)]);
        for (key, value) in [("unit", unit), ("min", limit("min")), ("max", limit("max"))] {
            if let Some(value) = value {
                parts.push(format!("{key} = {}", self.attribute_value(value, &member.ty)?));
            }
        }
        Ok(parts)
    }

    // Unions.

    fn union(&self, id: DefId, discriminator: &Type, key: bool, cases: &[Case]) -> Result<Vec<String>, EmitError> {
        let from = self.names.module_of(id);
        let switch = match self.schema.resolve(discriminator) {
            Type::Def(id) => format!("switch_type = \"{}\"", self.names.path(from, *id)),
            other => format!("switch = \"{}\"", self.full_text(other)),
        };
        let mut more = vec![switch];
        more.extend(key.then(|| "key".into()));
        let name = raw(self.names.type_name(id));
        let mut lines = vec!["#[derive(Clone, Debug, PartialEq, polywire::Message)]".to_string()];
        lines.extend(self.container(self.schema.def(id), &more));
        lines.push(format!("pub enum {name} {{"));
        let variants = variant_names(cases.iter().map(|c| c.member.name.as_str()), camel);
        for (case, variant) in cases.iter().zip(&variants) {
            self.check_name(&case.member.name)?;
            lines.extend(doc_lines(&case.member.doc).into_iter().map(|line| format!("    {line}")));
            let mut parts = Vec::new();
            if !case.labels.is_empty() {
                let labels: Vec<String> = case.labels.iter().map(i64::to_string).collect();
                parts.push(format!("case({})", labels.join(", ")));
            }
            parts.extend(case.is_default.then(|| "default".into()));
            parts.extend(self.member_parts(&case.member, variant)?);
            lines.push(format!("    #[polywire({})]", parts.join(", ")));
            lines.push(format!("    {}({}),", raw(variant), self.member_type(&case.member, from)));
        }
        lines.push("}".into());
        lines.extend(self.default_impl(&name));
        Ok(lines)
    }

    // Enums.

    fn enumeration(&self, id: DefId, bit_bound: u8, literals: &[EnumLiteral]) -> Result<Vec<String>, EmitError> {
        let more: Vec<String> = (bit_bound != 32).then(|| format!("bit_bound = {bit_bound}")).into_iter().collect();
        // It derives `Ord`, so that it can be the key of a map.
        let derives = "Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd, polywire::Message";
        let mut lines = vec![format!("#[derive({derives})]")];
        lines.extend(self.container(self.schema.def(id), &more));
        lines.push("#[repr(i32)]".into());
        lines.push(format!("pub enum {} {{", raw(self.names.type_name(id))));
        let first = literals.iter().position(|l| l.is_default).unwrap_or(0);
        let variants = variant_names(literals.iter().map(|l| l.name.as_str()), camel);
        for (i, (literal, variant)) in literals.iter().zip(&variants).enumerate() {
            self.check_name(&literal.name)?;
            let mut parts = Vec::new();
            if *variant != literal.name {
                parts.push(format!("name = \"{}\"", literal.name));
            }
            parts.extend(literal.is_default.then(|| "default_literal".into()));
            if !parts.is_empty() {
                lines.push(format!("    #[polywire({})]", parts.join(", ")));
            }
            if i == first {
                lines.push("    #[default]".into());
            }
            lines.push(format!("    {} = {},", raw(variant), literal.value));
        }
        lines.push("}".into());
        Ok(lines)
    }

    /// Checks names, because they are written into attributes and comments without escapes.
    fn check_name(&self, name: &str) -> Result<(), EmitError> {
        match is_identifier(name) {
            true => Ok(()),
            false => Err(EmitError::Name { def: self.def.clone(), name: name.into() }),
        }
    }
}

fn doc_lines(doc: &str) -> Vec<String> {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let line = |line: &str| format!("/// {}", line.chars().map(plain).collect::<String>()).trim_end().to_string();
    doc.lines().map(line).collect()
}
