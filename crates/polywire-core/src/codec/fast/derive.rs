//! Derives templates from a type, as `spec/fast.md`, section 3, defines. `mod.rs` calls it. It
//! reads a schema and makes templates.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    format,
    string::{String, ToString},
    vec::Vec,
};

use super::{
    names::bits_field_name,
    template::{
        Dictionary, Field, FieldType, Group, Initial, Instruction, Name, Operator, OperatorKind, Sequence, Template,
        TemplateSet,
    },
};
use crate::{
    codec::lower::{LowerError, bits_scalar, enum_scalar, scalar_of},
    layout::Scalar,
    schema::{Case, DefId, DefKind, Schema, Type, array_len, recursive},
};

/// Derives the templates of a type. `choose` gets the path of each field and may change the field's
/// operator and initial value.
pub(super) fn templates(schema: &Schema, choose: &mut dyn FnMut(&str, &mut Field)) -> Result<TemplateSet, LowerError> {
    let schema = &schema.with_flat_arrays();
    let mut maker = Maker {
        schema,
        choose,
        recursive: recursive(schema.defs()),
        referred: BTreeMap::new(),
        templates: Vec::new(),
        path: String::new(),
        depth: 0,
        steps: 0,
    };
    let name = schema.name().rsplit("::").next().unwrap_or_default();
    let name = if name.is_empty() { "Value" } else { name };
    let root = schema.resolve(schema.root());
    let instructions = match root {
        Type::Def(id) if matches!(schema.def(*id).kind, DefKind::Struct { .. }) && !maker.recursive.contains(id) => {
            maker.members(*id)?
        }
        ty => maker.value("value", ty, false)?,
    };
    let message = Template { name: Name::local(name), id: Some(1), instructions, ..Template::default() };
    Ok(TemplateSet { templates: [message].into_iter().chain(maker.templates).collect() })
}

/// Largest number of instructions that a type may expand to.
const MAX_INSTRUCTIONS: usize = 1 << 16;

/// Largest nesting depth of types. Later walks over the templates go equally deep.
const MAX_DEPTH: usize = 64;

struct Maker<'a> {
    schema: &'a Schema,
    choose: &'a mut dyn FnMut(&str, &mut Field),
    recursive: BTreeSet<DefId>,
    referred: BTreeMap<DefId, String>,
    templates: Vec<Template>,
    path: String,
    depth: usize,
    steps: usize,
}

type Made<T> = Result<T, LowerError>;

impl Maker<'_> {
    fn members(&mut self, id: DefId) -> Made<Vec<Instruction>> {
        let mut instructions = Vec::new();
        for member in self.schema.members(id) {
            instructions
                .extend(self.inside(&member.name, |maker| maker.value(&member.name, &member.ty, member.optional))?);
        }
        Ok(instructions)
    }

    fn inside<T>(&mut self, step: &str, make: impl FnOnce(&mut Self) -> Made<T>) -> Made<T> {
        let len = self.path.len();
        if !self.path.is_empty() && step != "[]" {
            self.path.push('.');
        }
        self.path.push_str(step);
        self.depth += 1;
        let made = match self.depth > MAX_DEPTH {
            true => {
                let what = format!("more than {MAX_DEPTH} nested types");
                Err(LowerError::Unsupported { path: self.path.clone(), what })
            }
            false => make(self),
        };
        self.depth -= 1;
        self.path.truncate(len);
        made
    }

    /// The instructions of a value: two for a floating-point number, otherwise one.
    fn value(&mut self, name: &str, ty: &Type, optional: bool) -> Made<Vec<Instruction>> {
        self.steps += 1;
        if self.steps > MAX_INSTRUCTIONS {
            let what = "the type has too many parts: put some of them into sequences".to_string();
            return Err(LowerError::Unsupported { path: self.path.clone(), what });
        }
        let one = |instruction| Ok(Vec::from([instruction]));
        match self.schema.resolve(ty) {
            Type::Def(id) => self.def(name, *id, optional).map(|instruction| [instruction].into()),
            Type::String { .. } | Type::WString { .. } => {
                one(self.field(name, FieldType::Unicode, optional, OperatorKind::Copy))
            }
            Type::Sequence { element, .. } if self.is_octet(element) => {
                one(self.field(name, FieldType::Bytes, optional, OperatorKind::Copy))
            }
            Type::Array { element, .. } if self.is_octet(element) => {
                one(self.field(name, FieldType::Bytes, optional, OperatorKind::Copy))
            }
            Type::Sequence { element, .. } => {
                let length = self.length(OperatorKind::Copy, None);
                one(self.sequence(name, element, optional, length)?)
            }
            Type::Array { element, dims } => {
                let len = array_len(dims).unwrap_or(0);
                let length = self.length(OperatorKind::Constant, Some(Initial::Int(len as i128)));
                one(self.sequence(name, element, optional, length)?)
            }
            Type::Map { key, value, .. } => one(self.map(name, key, value, optional)?),
            primitive => match scalar_of(primitive) {
                Some(Scalar::F128) => one(self.wide(name, optional)),
                Some(Scalar::F64) => Ok(self.number(name, 64, optional)),
                Some(Scalar::F32) => Ok(self.number(name, 32, optional)),
                Some(scalar) => one(self.scalar(name, scalar, optional)),
                None => {
                    Err(LowerError::Unsupported { path: self.path.clone(), what: "the type is not a scalar".into() })
                }
            },
        }
    }

    fn is_octet(&self, ty: &Type) -> bool {
        scalar_of(self.schema.resolve(ty)) == Some(Scalar::U8)
    }

    fn def(&mut self, name: &str, id: DefId, optional: bool) -> Made<Instruction> {
        let schema = self.schema;
        match &schema.def(id).kind {
            DefKind::Enum { bit_bound, .. } => {
                Ok(self.int(name, enum_scalar(*bit_bound), optional, OperatorKind::Copy))
            }
            DefKind::Bitmask { .. } | DefKind::Bitset { .. } => {
                Ok(self.int(name, bits_scalar(schema, id), optional, OperatorKind::Copy))
            }
            _ => {
                let instructions = match self.recursive.contains(&id) {
                    true => [Instruction::Static(Name::local(self.reference(id)?))].into(),
                    false => self.aggregate(id)?,
                };
                Ok(Instruction::Group(Group { name: Name::local(name), optional, type_ref: None, instructions }))
            }
        }
    }

    fn aggregate(&mut self, id: DefId) -> Made<Vec<Instruction>> {
        let schema = self.schema;
        match &schema.def(id).kind {
            DefKind::Union { cases, .. } => self.union(cases),
            _ => self.members(id),
        }
    }

    fn union(&mut self, cases: &[Case]) -> Made<Vec<Instruction>> {
        let discriminator = self
            .inside("discriminator", |maker| Ok(maker.int("discriminator", Scalar::I64, false, OperatorKind::Copy)))?;
        let mut instructions = Vec::from([discriminator]);
        for case in cases {
            let name = &case.member.name;
            let inside = self.inside(name, |maker| maker.value("value", &case.member.ty, false))?;
            let name = Name::local(name.as_str());
            instructions.push(Instruction::Group(Group { name, optional: true, type_ref: None, instructions: inside }));
        }
        Ok(instructions)
    }

    /// The template of a recursive type.
    fn reference(&mut self, id: DefId) -> Made<String> {
        if let Some(name) = self.referred.get(&id) {
            return Ok(name.clone());
        }
        let name = format!("{}.{}", self.schema.def(id).name, id.0);
        self.referred.insert(id, name.clone());
        let outer = core::mem::replace(&mut self.path, format!("{name}:"));
        let instructions = self.aggregate(id);
        self.path = outer;
        let template =
            Template { name: Name::local(name.as_str()), instructions: instructions?, ..Template::default() };
        self.templates.push(template);
        Ok(name)
    }

    fn sequence(&mut self, name: &str, element: &Type, optional: bool, length: Field) -> Made<Instruction> {
        let schema = self.schema;
        let instructions = self.inside("[]", |maker| match schema.resolve(element) {
            Type::Def(id) if maker.recursive.contains(id) => {
                Ok([Instruction::Static(Name::local(maker.reference(*id)?))].into())
            }
            Type::Def(id) if matches!(schema.def(*id).kind, DefKind::Struct { .. }) => maker.members(*id),
            ty => maker.value("value", ty, false),
        })?;
        let (name, length) = (Name::local(name), Field { optional, ..length });
        Ok(Instruction::Sequence(Sequence { name, optional, type_ref: None, length, instructions }))
    }

    fn map(&mut self, name: &str, key: &Type, value: &Type, optional: bool) -> Made<Instruction> {
        let length = self.length(OperatorKind::Copy, None);
        let part = |maker: &mut Self, name: &str, ty: &Type| {
            let instructions = maker.inside(name, |maker| maker.value("value", ty, false))?;
            let name = Name::local(name);
            Ok(Instruction::Group(Group { name, optional: false, type_ref: None, instructions }))
        };
        let instructions =
            self.inside("[]", |maker| Ok([part(maker, "key", key)?, part(maker, "value", value)?].into()))?;
        let (name, length) = (Name::local(name), Field { optional, ..length });
        Ok(Instruction::Sequence(Sequence { name, optional, type_ref: None, length, instructions }))
    }

    fn length(&mut self, kind: OperatorKind, initial: Option<Initial>) -> Field {
        let mut field = Field::new("length", FieldType::U32).with(kind);
        field.operator.initial = initial;
        let fixed = kind == OperatorKind::Constant;
        self.keyed(field, "length", !fixed)
    }

    /// Numbers usually change by small amounts; bytes, booleans and enums usually stay the same.
    fn scalar(&mut self, name: &str, scalar: Scalar, optional: bool) -> Instruction {
        let operator = if scalar.size() > 1 { OperatorKind::Delta } else { OperatorKind::Copy };
        self.int(name, scalar, optional, operator)
    }

    fn int(&mut self, name: &str, scalar: Scalar, optional: bool, operator: OperatorKind) -> Instruction {
        let ty = FieldType::Int { signed: scalar.is_signed(), bits: 8 * scalar.size() as u8 };
        self.field(name, ty, optional, operator)
    }

    fn field(&mut self, name: &str, ty: FieldType, optional: bool, operator: OperatorKind) -> Instruction {
        let field = Field { optional, ..Field::new(name, ty).with(operator) };
        Instruction::Field(self.keyed(field, "", true))
    }

    /// A floating-point number: an exact decimal, or the number's bits if no decimal is exact.
    fn number(&mut self, name: &str, bits: u8, optional: bool) -> Vec<Instruction> {
        let mut decimal = Field { optional: true, ..Field::new(name, FieldType::Decimal).with(OperatorKind::Copy) };
        decimal.mantissa = Some(Operator { kind: OperatorKind::Delta, ..Operator::default() });
        let decimal = self.keyed(decimal, "", true);
        if decimal.ty != FieldType::Decimal {
            // `choose` selected bits only.
            return [Instruction::Field(Field { optional, ..decimal })].into();
        }
        let escape = Field::new(bits_field_name(name), FieldType::Int { signed: false, bits });
        let escape = Field { optional: true, ..escape.with(OperatorKind::Default) };
        [Instruction::Field(decimal), Instruction::Field(escape)].into()
    }

    fn wide(&mut self, name: &str, optional: bool) -> Instruction {
        let bytes = Field::new(if optional { "value" } else { name }, FieldType::Bytes);
        match optional {
            false => Instruction::Field(bytes),
            true => Instruction::Group(Group {
                name: Name::local(name),
                optional,
                type_ref: None,
                instructions: [Instruction::Field(bytes)].into(),
            }),
        }
    }

    /// Uses the field's own path as the key of its previous value, and lets the caller choose.
    fn keyed(&mut self, mut field: Field, suffix: &str, free: bool) -> Field {
        let dot = if suffix.is_empty() || self.path.is_empty() { "" } else { "." };
        let path = format!("{}{dot}{suffix}", self.path);
        if free {
            (self.choose)(&path, &mut field);
        }
        key(&mut field.operator, &path, "");
        if let Some(mantissa) = &mut field.mantissa {
            key(&mut field.operator, &path, " exponent");
            key(mantissa, &path, " mantissa");
        }
        field
    }
}

fn key(operator: &mut Operator, path: &str, part: &str) {
    if operator.kind.has_dictionary() {
        operator.key = Some(Name::local(format!("{path}{part}")));
        operator.dictionary = Dictionary::Global;
    }
}

/// A `choose` function that changes nothing.
pub(super) fn keep_all(_: &str, _: &mut Field) {}
