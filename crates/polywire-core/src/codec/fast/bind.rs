//! Binds templates to a type: finds the field or group for each member and makes the [`Plans`].
//! `mod.rs` calls it before each lowering. It reads templates and schema only.

use alloc::{
    boxed::Box,
    collections::{BTreeMap, BTreeSet},
    format,
    rc::Rc,
    string::{String, ToString},
    sync::Arc,
    vec::Vec,
};

use super::{
    field::{Field, FieldKind, Operator},
    names::{self, Flat, Unfolding},
    plan::{Any, Group, Item, Map, Plan, Plans, Presence, Scope, Sequence, Slots, Union},
    template::{self, FieldType, Instruction, Name, Template, TemplateSet},
};
use crate::{
    codec::lower::{LowerError, scalar_of},
    layout::Scalar,
    program::Policy,
    schema::{Case, DefId, DefKind, Member, Schema, Type, recursive},
};

type Bound<T> = Result<T, LowerError>;

/// Binds a set of templates to a type. If several templates have ids, the type must be a union
/// whose cases the ids select. `first` is the template id that applies before the first message
/// that states one.
pub(super) fn bind(set: &TemplateSet, schema: &Schema, policy: Policy, first: Option<u32>) -> Bound<Plans> {
    if let Some(unknown) = first.filter(|id| set.with_id(*id).is_none()) {
        return Err(LowerError::Option(format!("no template has the id {unknown}")));
    }
    let mut slots = Slots::new(policy);
    let id = slots.template_id(first);
    let mut binder = Binder {
        set,
        schema,
        slots,
        id: id.clone(),
        recursive: recursive(schema.defs()),
        referred: Vec::new(),
        references: BTreeMap::new(),
        any: BTreeMap::new(),
        path: Vec::new(),
        unfolding: Unfolding::new(set),
        steps: 0,
        depth: 0,
    };
    let (root, id) = match names::message(set, schema) {
        Some(template) => {
            let missing = || format!("the template '{}' has no id, so messages cannot name it", template.name);
            let number = template.id.ok_or_else(|| LowerError::Option(missing()))?;
            (binder.message(template)?, Some((number, id)))
        }
        None => (binder.any(schema.root())?, None),
    };
    let referred = binder.referred.into_iter().flatten().collect();
    Ok(Plans { root, id, referred, bank: binder.slots.bank(), uses: binder.slots.uses(), policy })
}

/// Largest number of fields and values of a type, so that a small schema cannot make a large
/// program.
const MAX_STEPS: usize = 1 << 17;

/// Largest nesting depth of values. It bounds the stack, and program blocks have the same limit.
const MAX_DEPTH: usize = 128;

struct Binder<'a> {
    set: &'a TemplateSet,
    schema: &'a Schema,
    slots: Slots,
    id: Arc<Field>,
    recursive: BTreeSet<DefId>,
    referred: Vec<Option<Plan>>,
    references: BTreeMap<(Name, DefId), usize>,
    any: BTreeMap<DefId, usize>,
    path: Vec<String>,
    unfolding: Unfolding<'a>,
    steps: usize,
    depth: usize,
}

impl<'a> Binder<'a> {
    fn message(&mut self, template: &'a Template) -> Bound<Plan> {
        let scope = Scope { template: template.name.clone(), type_ref: template.type_ref.clone() };
        let root = self.schema.root();
        // A recursive type is one value of the message.
        let mut plan = match self.def(root) {
            Some((id, _)) if self.recursive.contains(&id) => self.single(root, &template.instructions, &scope)?,
            _ => self.element(root, &template.instructions, &scope)?,
        };
        if template.reset {
            match &mut plan {
                Plan::Group(group) => Rc::make_mut(group).reset = true,
                _ => return Err(self.wrong("only a structure's template can reset")),
            }
        }
        Ok(plan)
    }

    /// Binds a union whose cases are selected by template ids.
    fn any(&mut self, ty: &'a Type) -> Bound<Plan> {
        let Some((id, DefKind::Union { cases, .. })) = self.def(ty) else {
            return Err(self.wrong("several templates need a union, and this type is none"));
        };
        if let Some(index) = self.any.get(&id) {
            return Ok(Plan::Refer(*index));
        }
        let index = self.referred.len();
        self.any.insert(id, index);
        self.referred.push(None);
        let mut plans = Vec::new();
        for case in cases {
            let template = case.labels.first().and_then(|label| u32::try_from(*label).ok());
            let Some(template) = template.and_then(|id| self.set.with_id(id)) else {
                return Err(self.wrong(format!("no template has the id of the case '{}'", case.member.name)));
            };
            let scope = Scope { template: template.name.clone(), type_ref: template.type_ref.clone() };
            self.path.push(case.member.name.clone());
            let Some((id, DefKind::Struct { .. })) = self.def(&case.member.ty) else {
                return Err(self.wrong("[D1] a template needs a structure"));
            };
            let mut group = self.structure(id, &template.instructions, &scope, false)?;
            self.path.pop();
            group.reset = template.reset;
            plans.push((case.member.name.clone(), template.id.unwrap_or(0), Plan::Group(Rc::new(group))));
        }
        let bits = plans.iter().map(|(.., plan)| plan.bits()).max().unwrap_or(0) + self.id.bits();
        let by_name = plans.iter().enumerate().map(|(i, (name, ..))| (name.clone(), i)).collect();
        self.referred[index] = Some(Plan::Any(Rc::new(Any { id: self.id.clone(), cases: plans, by_name, bits })));
        Ok(Plan::Refer(index))
    }

    /// Binds the contents of a message or of a sequence's element: the members of a structure, or
    /// one value.
    fn element(&mut self, ty: &'a Type, instructions: &'a [Instruction], scope: &Scope) -> Bound<Plan> {
        match (self.def(ty), instructions) {
            (Some((id, _)), [Instruction::Static(name)]) if self.recursive.contains(&id) => self.reference(name, id),
            (Some((id, DefKind::Struct { .. })), _) if !names::is_decimal(self.schema, ty, instructions) => {
                Ok(Plan::Group(Rc::new(self.structure(id, instructions, scope, false)?)))
            }
            _ => self.single(ty, instructions, scope),
        }
    }

    /// Binds the only value of a group or element.
    fn single(&mut self, ty: &'a Type, instructions: &'a [Instruction], scope: &Scope) -> Bound<Plan> {
        let flat = self.unfolding.flatten(instructions, scope).map_err(|what| self.wrong(what))?;
        let mut flat = flat.iter();
        let Some(first) = flat.next() else { return Err(self.wrong("the template has no field for the value")) };
        let (plan, presence, took) = self.value((ty, false), first, flat.clone().next())?;
        match (presence, flat.nth(usize::from(took))) {
            (Presence::Always, None) => Ok(plan),
            (_, None) => Err(self.wrong("the field of a mandatory value is optional")),
            (_, Some(_)) => Err(self.wrong("there are several fields for one value")),
        }
    }

    fn structure(&mut self, id: DefId, instructions: &'a [Instruction], scope: &Scope, own: bool) -> Bound<Group> {
        let members = self.schema.members(id);
        let by_name: BTreeMap<&str, &Member> = members.iter().map(|member| (&*member.name, *member)).collect();
        let flat = self.unfolding.flatten(instructions, scope).map_err(|what| self.wrong(what))?;
        let (mut items, mut at, mut met) = (Vec::new(), 0, BTreeSet::new());
        while let Some(field) = flat.get(at) {
            self.step()?;
            let member = by_name.get(field.name.as_str()).copied();
            self.path.push(field.name.clone());
            match member {
                Some(member) => {
                    if !met.insert(member.name.as_str()) {
                        return Err(self.wrong("there are several fields for one member"));
                    }
                    let (plan, presence, took) = self.value((&member.ty, member.optional), field, flat.get(at + 1))?;
                    items.push(Item { member: Some(member.name.clone()), presence, plan });
                    at += usize::from(took);
                }
                None => items.push(self.unmapped(field)?),
            }
            self.path.pop();
            at += 1;
        }
        if let Some(member) = members.iter().find(|member| !met.contains(member.name.as_str())) {
            return Err(self.wrong(format!("the template has no field for the member '{}'", member.name)));
        }
        Ok(Group::new(items, own))
    }

    /// Binds a field for which the type has no member. Writers omit it.
    fn unmapped(&mut self, field: &Flat<'a>) -> Bound<Item> {
        let Instruction::Field(field_of) = field.instruction else {
            return Err(self.wrong("[D1] the type has no member for it"));
        };
        let wire = self.slots.field(field_of, &field.scope);
        let constant = wire.operator == Operator::Constant && !matches!(wire.kind, FieldKind::Split(_));
        if !wire.optional && !constant {
            return Err(self.wrong("[D1] the type has no member for it, and it is neither optional nor constant"));
        }
        let wire = Arc::new(wire);
        let plan = match &wire.kind {
            kind if kind.is_text() => Plan::Text(wire.clone()),
            kind if !kind.is_text() && !matches!(kind, FieldKind::Decimal | FieldKind::Split(_)) => {
                Plan::Scalar(wire.clone())
            }
            _ => Plan::Decimal(wire.clone()),
        };
        Ok(Item { member: None, presence: Presence::Field(wire), plan })
    }

    /// Binds a value. Returns its plan, how its absence is encoded, and whether the next
    /// instruction belongs to it too.
    fn value(
        &mut self,
        ty: (&'a Type, bool),
        flat: &Flat<'a>,
        next: Option<&Flat<'a>>,
    ) -> Bound<(Plan, Presence, bool)> {
        self.step()?;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            let what = format!("more than {MAX_DEPTH} nested values: a template may refer to itself");
            return Err(self.wrong(what));
        }
        let value = self.value_within(ty, flat, next)?;
        self.depth -= 1;
        Ok(value)
    }

    fn value_within(
        &mut self,
        (ty, absent): (&'a Type, bool),
        flat: &Flat<'a>,
        next: Option<&Flat<'a>>,
    ) -> Bound<(Plan, Presence, bool)> {
        let schema = self.schema;
        let ty = schema.resolve(ty);
        match flat.instruction {
            Instruction::Field(field) => {
                let escape = next.and_then(|next| names::bits_field_of(field, next)).filter(|_| is_float(ty));
                let (plan, wire) = self.field((ty, absent), field, escape, flat)?;
                let presence = if wire.optional { Presence::Field(wire) } else { Presence::Always };
                Ok((plan, presence, escape.is_some()))
            }
            Instruction::Group(group) => {
                let presence = if group.optional { Presence::Bit } else { Presence::Always };
                let scope = flat.scope.of_type(&group.type_ref);
                Ok((self.group(ty, &group.instructions, &scope)?, presence, false))
            }
            Instruction::Sequence(sequence) => {
                let (plan, length) = self.sequence(ty, sequence, &flat.scope)?;
                let presence = if length.optional { Presence::Field(length) } else { Presence::Always };
                Ok((plan, presence, false))
            }
            Instruction::Dynamic => Ok((self.any(ty)?, Presence::Always, false)),
            Instruction::Static(name) => Err(self.wrong(format!("[D8] there is no template '{name}'"))),
        }
    }

    fn group(&mut self, ty: &'a Type, instructions: &'a [Instruction], scope: &Scope) -> Bound<Plan> {
        match (self.def(ty), instructions) {
            (Some((id, _)), [Instruction::Static(name)]) if self.recursive.contains(&id) => self.reference(name, id),
            (Some((id, DefKind::Struct { .. })), _) => {
                Ok(Plan::Group(Rc::new(self.structure(id, instructions, scope, true)?)))
            }
            (Some((_, DefKind::Union { cases, .. })), _) => self.union(cases, instructions, scope),
            _ => {
                // A value of another kind, in a presence map of its own.
                let plan = self.single(ty, instructions, scope)?;
                self.wrapped(plan)
            }
        }
    }

    fn wrapped(&self, plan: Plan) -> Bound<Plan> {
        let item = Item { member: None, presence: Presence::Always, plan };
        Ok(Plan::Group(Rc::new(Group::new([item].into(), true))))
    }

    /// The plan of a recursive template, which references name by its index.
    fn reference(&mut self, name: &Name, id: DefId) -> Bound<Plan> {
        if let Some(index) = self.references.get(&(name.clone(), id)) {
            return Ok(Plan::Refer(*index));
        }
        let template = self.unfolding.named(name).map_err(|what| self.wrong(what))?;
        let index = self.referred.len();
        self.references.insert((name.clone(), id), index);
        self.referred.push(None);
        let scope = Scope { template: name.clone(), type_ref: template.type_ref.clone() };
        let schema = self.schema;
        let plan = match &schema.def(id).kind {
            DefKind::Union { cases, .. } => self.union(cases, &template.instructions, &scope)?,
            _ => Plan::Group(Rc::new(self.structure(id, &template.instructions, &scope, true)?)),
        };
        self.referred[index] = Some(plan);
        Ok(Plan::Refer(index))
    }

    fn union(&mut self, cases: &'a [Case], instructions: &'a [Instruction], scope: &Scope) -> Bound<Plan> {
        let [Instruction::Field(discriminator), groups @ ..] = instructions else {
            return Err(self.wrong("a union must begin with its discriminator"));
        };
        let discriminator = Arc::new(self.slots.field(discriminator, scope));
        let is_int = matches!(discriminator.kind, FieldKind::Int(scalar) if scalar.is_signed());
        if !is_int || discriminator.optional {
            return Err(self.wrong("[D1] a discriminator must be a mandatory signed integer"));
        }
        let known: BTreeMap<&str, &Case> = cases.iter().map(|case| (&*case.member.name, case)).collect();
        let (mut plans, mut by_name) = (Vec::new(), BTreeMap::new());
        for instruction in groups {
            let Instruction::Group(group) = instruction else { return Err(self.wrong("a case must be a group")) };
            let case = known.get(group.name.local.as_str()).filter(|_| group.optional);
            let Some(case) = case else {
                return Err(self.wrong(format!("the optional group '{}' is not a case", group.name)));
            };
            self.path.push(case.member.name.clone());
            let scope = scope.of_type(&group.type_ref);
            let plan = self.single(&case.member.ty, &group.instructions, &scope)?;
            let plan = self.wrapped(plan)?;
            self.path.pop();
            by_name.insert(case.member.name.clone(), plans.len());
            plans.push((case.member.name.clone(), plan));
        }
        if let Some(case) = cases.iter().find(|case| !by_name.contains_key(&case.member.name)) {
            return Err(self.wrong(format!("the template has no group for the case '{}'", case.member.name)));
        }
        let bits = discriminator.bits() + plans.len() as u32;
        Ok(Plan::Union(Rc::new(Union { discriminator, cases: plans, by_name, bits })))
    }

    fn sequence(&mut self, ty: &'a Type, sequence: &'a template::Sequence, scope: &Scope) -> Bound<(Plan, Arc<Field>)> {
        let scope = scope.of_type(&sequence.type_ref);
        let length = Arc::new(self.slots.field(&sequence.length, &scope));
        self.path.push("[]".into());
        let plan = match ty {
            Type::Sequence { element, .. } | Type::Array { element, .. } => {
                let element = self.element(element, &sequence.instructions, &scope)?;
                let bits = element.bits();
                Plan::Sequence(Rc::new(Sequence { length: length.clone(), element, bits }))
            }
            Type::Map { key, value, .. } => {
                let [Instruction::Group(k), Instruction::Group(v)] = &sequence.instructions[..] else {
                    return Err(self.wrong("a map must be a sequence of two groups, key and value"));
                };
                let key = self.single(key, &k.instructions, &scope)?;
                let value = self.single(value, &v.instructions, &scope)?;
                let (key_bits, value_bits) = (key.bits(), value.bits());
                Plan::Map(Rc::new(Map { length: length.clone(), key, key_bits, value, value_bits }))
            }
            _ => return Err(self.wrong("[D1] a sequence of the template needs a sequence, array or map")),
        };
        self.path.pop();
        Ok((plan, length))
    }

    /// Binds a field. Returns the value's plan and the field on the wire.
    fn field(
        &mut self,
        (ty, absent): (&'a Type, bool),
        field: &template::Field,
        escape: Option<&template::Field>,
        flat: &Flat<'a>,
    ) -> Bound<(Plan, Arc<Field>)> {
        let wire = self.slots.field(field, &flat.scope);
        let scalar = self.scalar(ty);
        let schema = self.schema;
        let octets = |ty: &Type| match ty {
            Type::Sequence { element, .. } | Type::Array { element, .. } => {
                scalar_of(schema.resolve(element)) == Some(Scalar::U8)
            }
            _ => false,
        };
        let float = matches!(scalar, Some(Scalar::F32 | Scalar::F64));
        let single = scalar == Some(Scalar::F32);
        let made = |kind: FieldKind, optional: bool| Field { kind, optional, ..plain(&wire) };
        let (plan, wire): (fn(Arc<Field>) -> Plan, Field) = match field.ty {
            FieldType::Int { signed: false, .. } if float => {
                let bits = if single { Scalar::U32 } else { Scalar::U64 };
                if wire.kind != FieldKind::Int(bits) {
                    return Err(self.wrong("[D1] the bits of a number must be an unsigned integer of the same size"));
                }
                let optional = wire.optional;
                (Plan::Scalar, made(FieldKind::Bits { single, bits: Box::new(wire.clone()) }, optional))
            }
            FieldType::Int { .. } if scalar.is_some_and(|s| s.range().is_some()) => (Plan::Scalar, wire),
            FieldType::Decimal if float => {
                let bits = escape.map(|escape| Box::new(self.slots.field(escape, &flat.scope)));
                // If bits can replace the decimal, an absent decimal means that the bits follow.
                let optional = wire.optional && (bits.is_none() || absent);
                let kind = FieldKind::Float { single, decimal: Box::new(wire.clone()), bits };
                (Plan::Scalar, made(kind, optional))
            }
            FieldType::Decimal if scalar.is_some_and(Scalar::is_integer) => {
                let optional = wire.optional;
                (Plan::Scalar, made(FieldKind::Whole(Box::new(wire.clone())), optional))
            }
            FieldType::Decimal if names::is_decimal_type(schema, ty) => (Plan::Decimal, wire),
            FieldType::Ascii | FieldType::Unicode | FieldType::Bytes
                if matches!(ty, Type::String { .. } | Type::WString { .. }) =>
            {
                (Plan::Text, wire)
            }
            FieldType::Ascii | FieldType::Unicode | FieldType::Bytes if octets(ty) => (Plan::Octets, wire),
            FieldType::Bytes if scalar == Some(Scalar::F128) && wire.operator == Operator::None && !wire.optional => {
                (|_| Plan::Wide, wire)
            }
            FieldType::Bytes => return Err(self.wrong("[D10] a byte vector needs a string or octets")),
            _ => return Err(self.wrong(format!("[D1] a '{}' cannot be a value of the type", field.ty.element()))),
        };
        let wire = Arc::new(wire);
        Ok((plan(wire.clone()), wire))
    }

    /// The scalar of a type's values in memory. `None` for texts, collections, structures and
    /// unions.
    fn scalar(&self, ty: &Type) -> Option<Scalar> {
        match self.def(ty) {
            Some((_, DefKind::Enum { bit_bound, .. })) => Some(crate::codec::lower::enum_scalar(*bit_bound)),
            Some((id, DefKind::Bitmask { .. } | DefKind::Bitset { .. })) => {
                Some(crate::codec::lower::bits_scalar(self.schema, id))
            }
            Some(_) => None,
            None => scalar_of(self.schema.resolve(ty)),
        }
    }

    fn def(&self, ty: &Type) -> Option<(DefId, &'a DefKind)> {
        match self.schema.resolve(ty) {
            Type::Def(id) => Some((*id, &self.schema.def(*id).kind)),
            _ => None,
        }
    }

    fn step(&mut self) -> Bound<()> {
        self.steps += 1;
        match self.steps > MAX_STEPS {
            true => Err(self.wrong("the type has too many parts: put some of them into sequences")),
            false => Ok(()),
        }
    }

    fn wrong(&self, what: impl ToString) -> LowerError {
        LowerError::Unsupported { path: self.path.join("."), what: what.to_string() }
    }
}

fn is_float(ty: &Type) -> bool {
    matches!(ty, Type::Float32 | Type::Float64)
}

/// A copy of `inner` without operator, as the outside of a field that consists of others.
fn plain(inner: &Field) -> Field {
    Field { operator: Operator::None, initial: None, ..inner.clone() }
}
