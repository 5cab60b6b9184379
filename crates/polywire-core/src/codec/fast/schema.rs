//! Makes the type of a foreign feed: a schema from templates alone. `mod.rs` calls it. It reads
//! templates and builds a schema.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    format,
    string::String,
    vec::Vec,
};

use super::{
    names::{Flat, Unfolding, identifier, unique},
    plan::Scope,
    template::{FieldType, Instruction, Template, TemplateSet},
};
use crate::{
    codec::lower::LowerError,
    schema::{Case, Def, DefId, Extensibility, Member, Schema, SchemaBuilder, Type},
};

/// The type of messages with a set's templates.
pub(super) fn schema(set: &TemplateSet) -> Result<Schema, LowerError> {
    let numbered: Vec<&Template> = set.templates.iter().filter(|template| template.id.is_some()).collect();
    let unfolding = Unfolding::new(set);
    let mut maker =
        Maker { unfolding, types: SchemaBuilder::new(), names: BTreeMap::new(), decimal: None, any: None, depth: 0 };
    let root = match numbered[..] {
        [] => return Err(LowerError::Option("no template has an id, so there are no messages".into())),
        [template] if !refers_dynamically(&maker.unfolding, template) => maker.template(template)?,
        _ => maker.any(&numbered)?,
    };
    maker
        .types
        .finish(Type::Def(root))
        .map_err(|error| LowerError::Option(format!("the templates make no type: {error}")))
}

/// True if the template contains messages of any template. Then even a single template makes a
/// union.
fn refers_dynamically<'a>(unfolding: &Unfolding<'a>, template: &'a Template) -> bool {
    let (mut met, mut open) = (BTreeSet::from([&template.name]), Vec::from([&template.instructions]));
    while let Some(instructions) = open.pop() {
        for instruction in instructions {
            match instruction {
                Instruction::Dynamic => return true,
                Instruction::Field(_) => {}
                Instruction::Group(group) => open.push(&group.instructions),
                Instruction::Sequence(sequence) => open.push(&sequence.instructions),
                Instruction::Static(name) if met.insert(name) => {
                    open.extend(unfolding.named(name).map(|template| &template.instructions));
                }
                Instruction::Static(_) => {}
            }
        }
    }
    false
}

/// Largest nesting depth of groups and sequences. It bounds the stack; schemas have the same limit.
const MAX_DEPTH: usize = 64;

struct Maker<'a> {
    unfolding: Unfolding<'a>,
    types: SchemaBuilder,
    names: BTreeMap<String, usize>,
    decimal: Option<DefId>,
    any: Option<DefId>,
    depth: usize,
}

impl<'a> Maker<'a> {
    fn any(&mut self, templates: &[&'a Template]) -> Result<DefId, LowerError> {
        let id = self.types.add(Def::structure("", Vec::new()));
        self.any = Some(id);
        self.unique("Message");
        let (mut cases, mut taken) = (Vec::new(), BTreeSet::new());
        for template in templates {
            let name = identifier(&template.name.local);
            if !taken.insert(name.clone()) {
                let what = format!("two templates are called '{name}' in different namespaces");
                return Err(LowerError::Unsupported { path: name, what });
            }
            let ty = Type::Def(self.template(template)?);
            cases.push(Case::new([template.id.unwrap_or(0).into()], name, ty));
        }
        self.types.replace(id, Def::union("Message", Type::Uint32, cases));
        Ok(id)
    }

    fn template(&mut self, template: &'a Template) -> Result<DefId, LowerError> {
        let scope = Scope { template: template.name.clone(), type_ref: template.type_ref.clone() };
        let name = identifier(&template.name.local);
        self.structure(&name, &template.instructions, &scope)
    }

    fn structure(&mut self, name: &str, instructions: &'a [Instruction], scope: &Scope) -> Result<DefId, LowerError> {
        let name = self.unique(name);
        let wrong = |what| LowerError::Unsupported { path: name.clone(), what };
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            let what = "groups and sequences are nested too deeply, or a template refers to itself, for which there must be a type";
            return Err(wrong(format!("{what}: at most {MAX_DEPTH}")));
        }
        let flat = self.unfolding.flatten(instructions, scope).map_err(wrong)?;
        let id = self.types.add(Def::structure("", Vec::new()));
        let members =
            flat.iter().map(|field| self.member(&name, field)).collect::<Result<Vec<Member>, LowerError>>()?;
        self.types.replace(id, Def::structure(name, members));
        self.depth -= 1;
        Ok(id)
    }

    fn member(&mut self, parent: &str, flat: &Flat<'a>) -> Result<Member, LowerError> {
        let inside = format!("{parent}_{}", flat.name);
        let (ty, optional) = match flat.instruction {
            Instruction::Field(field) => (self.field(field.ty), field.optional),
            Instruction::Group(group) => {
                let scope = flat.scope.of_type(&group.type_ref);
                (Type::Def(self.structure(&inside, &group.instructions, &scope)?), group.optional)
            }
            Instruction::Sequence(sequence) => {
                let scope = flat.scope.of_type(&sequence.type_ref);
                let element = self.structure(&inside, &sequence.instructions, &scope)?;
                (Type::sequence(Type::Def(element)), sequence.optional)
            }
            Instruction::Dynamic => {
                let Some(any) = self.any else {
                    let what = "a message inside a message needs templates to choose from".into();
                    return Err(LowerError::Unsupported { path: inside, what });
                };
                // It is always present on the wire, but a recursive type needs an optional member
                // to end.
                let mut member = Member::new(flat.name.clone(), Type::Def(any)).as_optional();
                member.external = true;
                return Ok(member);
            }
            Instruction::Static(_) => unreachable!("references were unfolded"),
        };
        let member = Member::new(flat.name.clone(), ty);
        Ok(if optional { member.as_optional() } else { member })
    }

    fn field(&mut self, ty: FieldType) -> Type {
        match ty {
            FieldType::Int { signed: true, bits: 8 } => Type::Int8,
            FieldType::Int { signed: true, bits: 16 } => Type::Int16,
            FieldType::Int { signed: true, bits: 32 } => Type::Int32,
            FieldType::Int { signed: true, .. } => Type::Int64,
            FieldType::Int { signed: false, bits: 8 } => Type::Uint8,
            FieldType::Int { signed: false, bits: 16 } => Type::Uint16,
            FieldType::Int { signed: false, bits: 32 } => Type::Uint32,
            FieldType::Int { signed: false, .. } => Type::Uint64,
            FieldType::Decimal => Type::Def(self.decimal()),
            FieldType::Ascii | FieldType::Unicode => Type::string(),
            FieldType::Bytes => Type::sequence(Type::Octet),
        }
    }

    fn decimal(&mut self) -> DefId {
        if let Some(id) = self.decimal {
            return id;
        }
        let name = self.unique("Decimal");
        let members = [Member::new("exponent", Type::Int32), Member::new("mantissa", Type::Int64)];
        let def = Def::structure(name, members.into()).with_extensibility(Extensibility::Final);
        let id = self.types.add(def);
        self.decimal = Some(id);
        id
    }

    fn unique(&mut self, wanted: &str) -> String {
        unique(&mut self.names, wanted.into())
    }
}
