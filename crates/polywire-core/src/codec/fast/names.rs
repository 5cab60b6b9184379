//! Expands static references in templates, and gives instructions their names in a schema. `bind`,
//! `derive` and `schema` call it. It reads templates only.

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

/// An instruction that is not a static reference.
#[derive(Clone, Debug)]
pub(super) struct Flat<'a> {
    pub instruction: &'a Instruction,
    /// The dictionaries that apply to the instruction.
    pub scope: Scope,
    /// The name of the corresponding member.
    pub name: String,
}

/// Largest depth of templates that refer to each other.
const MAX_REFERENCES: usize = 32;

/// Largest number of instructions that references may expand to for one type, counting the
/// references themselves.
const MAX_INSTRUCTIONS: usize = 1 << 18;

/// Replaces references by the instructions of the referenced templates.
pub(super) struct Unfolding<'a> {
    templates: BTreeMap<&'a Name, &'a Template>,
    instructions: usize,
}

impl<'a> Unfolding<'a> {
    pub fn new(set: &'a TemplateSet) -> Unfolding<'a> {
        // If a set made in code has several templates with the same name, the first one counts.
        let templates = set.templates.iter().rev().map(|template| (&template.name, template)).collect();
        Unfolding { templates, instructions: 0 }
    }

    /// The template with this name.
    pub fn named(&self, name: &Name) -> Result<&'a Template, String> {
        self.templates.get(name).copied().ok_or_else(|| format!("[D8] there is no template '{name}'"))
    }

    /// The instructions with static references expanded.
    pub fn flatten(&mut self, instructions: &'a [Instruction], scope: &Scope) -> Result<Vec<Flat<'a>>, String> {
        let (mut flat, mut taken) = (Vec::new(), BTreeMap::new());
        self.unfold(instructions, scope, 0, &mut flat)?;
        let is_bits = |pair: &[Flat<'a>]| match pair {
            [Flat { instruction: Instruction::Field(decimal), .. }, next] => bits_field_of(decimal, next).is_some(),
            _ => false,
        };
        let are_bits: Vec<bool> = core::iter::once(false).chain(flat.windows(2).map(is_bits)).collect();
        // Bits fields are matched by their names in the template, which do not change here. Since
        // they usually have no member, all other fields get their names first.
        for round in [false, true] {
            for (field, _) in flat.iter_mut().zip(&are_bits).filter(|(_, is_bits)| **is_bits == round) {
                field.name = unique(&mut taken, identifier(&field.name));
            }
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
            return Err("templates refer to each other endlessly".to_string());
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

/// Makes a name unique by appending a number if necessary. `taken` has the next number for each
/// name.
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

/// Converts a name to an identifier of a schema.
pub(super) fn identifier(name: &str) -> String {
    let mut text: String = name.chars().map(|c| if c.is_alphanumeric() || c == '_' { c } else { '_' }).collect();
    if text.chars().next().is_none_or(|c| c.is_numeric()) {
        text.insert(0, '_');
    }
    text
}

/// The template of a type's messages. `None` if the type is a union that template ids select.
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
    // A set without any id is refused later, when the id is needed.
    match several {
        true => set.templates.iter().find(named).or(first),
        false => first.or(set.templates.first()),
    }
}

/// The field after a decimal that carries a number's bits if no decimal is exact.
pub(super) fn bits_field_of<'a>(decimal: &Field, next: &Flat<'a>) -> Option<&'a Field> {
    match next.instruction {
        Instruction::Field(field) if decimal.optional && decimal.ty == FieldType::Decimal => {
            let unsigned = matches!(field.ty, FieldType::Int { signed: false, .. });
            (unsigned && field.optional && field.name.local == bits_field_name(&decimal.name.local)).then_some(field)
        }
        _ => None,
    }
}

/// The name of a decimal's bits field.
pub(super) fn bits_field_name(decimal: &str) -> String {
    format!("{decimal}.bits")
}

/// True if the only field of an element is a decimal and the element's type is a decimal structure.
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
