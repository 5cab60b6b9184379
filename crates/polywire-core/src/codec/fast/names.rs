//! Which instructions a structure has, and what they are called in a schema.

use alloc::{
    collections::BTreeMap,
    format,
    string::{String, ToString},
    vec::Vec,
};

use super::{
    plan::Scope,
    template::{Field, FieldType, Instruction, Name, Template, TemplateSet},
};
use crate::{
    codec::lower::scalar_of,
    schema::{DefKind, Schema, Type},
};

/// An instruction that is no static reference.
#[derive(Clone, Debug)]
pub(super) struct Flat<'a> {
    pub instruction: &'a Instruction,
    /// The dictionaries where it stands.
    pub scope: Scope,
    /// The member that it is.
    pub name: String,
}

/// Templates that refer to each other, one inside another.
const MAX_REFERENCES: usize = 32;

/// Instructions that references may unfold to, those that are nothing but references among them,
/// for all of a type.
const MAX_INSTRUCTIONS: usize = 1 << 18;

/// Puts the instructions of templates in place of references to them.
pub(super) struct Unfolding<'a> {
    templates: BTreeMap<&'a Name, &'a Template>,
    instructions: usize,
}

impl<'a> Unfolding<'a> {
    pub fn new(set: &'a TemplateSet) -> Unfolding<'a> {
        // Of two with one name, which only sets have that no document made, the first is meant.
        let templates = set.templates.iter().rev().map(|template| (&template.name, template)).collect();
        Unfolding { templates, instructions: 0 }
    }

    /// The template with a name.
    pub fn named(&self, name: &Name) -> Result<&'a Template, String> {
        self.templates.get(name).copied().ok_or_else(|| format!("[D8] there is no template '{name}'"))
    }

    /// The instructions with those of static references in their place.
    pub fn flatten(&mut self, instructions: &'a [Instruction], scope: &Scope) -> Result<Vec<Flat<'a>>, String> {
        let (mut flat, mut taken) = (Vec::new(), BTreeMap::new());
        self.unfold(instructions, scope, 0, &mut flat)?;
        for field in &mut flat {
            // Escapes are never asked for by name, and keep theirs.
            field.name = unique(&mut taken, identifier(&field.name));
        }
        Ok(flat)
    }

    fn unfold(
        &mut self,
        instructions: &'a [Instruction],
        scope: &Scope,
        depth: usize,
        flat: &mut Vec<Flat<'a>>,
    ) -> Result<(), String> {
        if depth > MAX_REFERENCES {
            return Err("templates refer to each other without end".to_string());
        }
        for instruction in instructions {
            self.instructions += 1;
            if self.instructions > MAX_INSTRUCTIONS {
                return Err("references unfold to too many instructions".to_string());
            }
            let name = match instruction {
                Instruction::Static(name) => {
                    let template = self.named(name)?;
                    let scope = Scope { template: name.clone(), type_ref: None }.of_type(&template.type_ref);
                    self.unfold(&template.instructions, &scope, depth + 1, flat)?;
                    continue;
                }
                Instruction::Field(field) => &field.name.local,
                Instruction::Group(group) => &group.name.local,
                Instruction::Sequence(sequence) => &sequence.name.local,
                Instruction::Dynamic => "message",
            };
            flat.push(Flat { instruction, scope: scope.clone(), name: name.to_string() });
        }
        Ok(())
    }
}

/// A name that is nobody's yet: with a number where it is. `taken` says where numbers go on.
pub(super) fn unique(taken: &mut BTreeMap<String, usize>, wanted: String) -> String {
    let Some(count) = taken.get(&wanted) else {
        taken.insert(wanted.clone(), 1);
        return wanted;
    };
    let mut count = *count;
    let name = loop {
        count += 1;
        let name = format!("{wanted}_{count}");
        if !taken.contains_key(&name) {
            break name;
        }
    };
    taken.insert(name.clone(), 1);
    taken.insert(wanted, count);
    name
}

/// A name as schemas have them.
pub(super) fn identifier(name: &str) -> String {
    let mut text: String = name.chars().map(|c| if c.is_alphanumeric() || c == '_' { c } else { '_' }).collect();
    if text.chars().next().is_none_or(|c| c.is_numeric()) {
        text.insert(0, '_');
    }
    text
}

/// The template of a type's messages; none if the type is a union that templates' ids select.
pub(super) fn message<'a>(set: &'a TemplateSet, schema: &Schema) -> Option<&'a Template> {
    let mut numbered = set.templates.iter().filter(|template| template.id.is_some());
    let (first, several) = (numbered.next(), numbered.next().is_some());
    let union = schema.def_of(schema.root()).is_some_and(|def| match &def.kind {
        DefKind::Union { cases, .. } => cases.iter().all(|case| {
            let ids = case.labels.iter().map(|label| u32::try_from(*label).ok());
            ids.flatten().any(|id| set.with_id(id).is_some_and(|t| identifier(&t.name.local) == case.member.name))
        }),
        _ => false,
    });
    if union {
        return None;
    }
    let short = schema.name().rsplit("::").next().unwrap_or_default();
    let named = |template: &&Template| template.id.is_some() && identifier(&template.name.local) == identifier(short);
    // A set without an id at all is refused by whoever asks for the id.
    match several {
        true => set.templates.iter().find(named).or(first),
        false => first.or(set.templates.first()),
    }
}

/// The field behind a decimal that has a number's bits where no decimal is exact.
pub(super) fn escape_of<'a>(decimal: &Field, next: &Flat<'a>) -> Option<&'a Field> {
    match next.instruction {
        Instruction::Field(field) if decimal.optional && decimal.ty == FieldType::Decimal => {
            let unsigned = matches!(field.ty, FieldType::Int { signed: false, .. });
            (unsigned && field.optional && field.name.local == escape_name(&decimal.name.local)).then_some(field)
        }
        _ => None,
    }
}

/// What it is called.
pub(super) fn escape_name(decimal: &str) -> String {
    format!("{decimal}.bits")
}

/// True for the only field of an element whose type is a decimal's structure.
pub(super) fn is_decimal(schema: &Schema, ty: &Type, instructions: &[Instruction]) -> bool {
    matches!(instructions, [Instruction::Field(field)] if field.ty == FieldType::Decimal) && is_decimal_type(schema, ty)
}

/// True for a structure of the integers `exponent` and `mantissa`.
pub(super) fn is_decimal_type(schema: &Schema, ty: &Type) -> bool {
    let Type::Def(id) = schema.resolve(ty) else { return false };
    if !matches!(schema.def(*id).kind, DefKind::Struct { .. }) {
        return false;
    }
    let members = schema.members(*id);
    let named = |i: usize, name| {
        members.get(i).is_some_and(|member| {
            let integer = scalar_of(schema.resolve(&member.ty)).is_some_and(|scalar| scalar.is_integer());
            member.name == name && !member.optional && integer
        })
    };
    members.len() == 2 && named(0, "exponent") && named(1, "mantissa")
}
