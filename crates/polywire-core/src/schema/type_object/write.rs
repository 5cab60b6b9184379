//! Makes the TypeObjects of a schema.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec,
    vec::Vec,
};

use md5::{Digest, Md5};

use super::{
    BOTH, COMPLETE_ID, Form, Hash, MAX_NAME_BYTES, MINIMAL_ID, TypeObjectError, TypeObjects, kind, member_flag,
    output::Output, type_flag,
};
use crate::schema::{
    Annotation, AutoId, BitField, Case, Def, DefId, DefKind, EnumLiteral, Extensibility, Flag, Literal, Member, Schema,
    TryConstruct, Type, builder::mentioned,
};

pub(super) fn write(schema: &Schema) -> Result<TypeObjects, TypeObjectError> {
    let Type::Def(root) = schema.root() else { return Err(TypeObjectError::Root) };
    let Order { first_mentioned, bases_first } = order(schema, *root)?;
    bases_first.iter().try_for_each(|id| check(schema.def(*id)))?;
    let mut writer = Writer { schema, hashes: BTreeMap::new() };
    let mut objects = BTreeMap::new();
    for id in bases_first {
        for form in [Form::Minimal, Form::Complete] {
            let object = writer.object(id, form);
            let mut hash = Hash::default();
            hash.copy_from_slice(&Md5::digest(&object)[..14]);
            writer.hashes.insert((id, form as u8), hash);
            objects.insert((id, form as u8), object);
        }
    }
    let object = |id: &DefId, form: Form| objects[&(*id, form as u8)].as_slice();
    let mut information = Output::default();
    information.delimited(|out| {
        for (id, form) in [(MINIMAL_ID, Form::Minimal), (COMPLETE_ID, Form::Complete)] {
            // Its length follows in a word of its own.
            out.u32(4 << 28 | id);
            out.delimited(|out| writer.dependencies(out, &first_mentioned, form, &object));
        }
    });
    let mut mapping = Output::default();
    for form in [Form::Minimal, Form::Complete] {
        mapping.sequence(&first_mentioned, |out, id| {
            writer.identifier_of(out, *id, form);
            out.align(4);
            out.0.extend(object(id, form));
        });
    }
    mapping.sequence(&first_mentioned, |out, id| {
        writer.identifier_of(out, *id, Form::Complete);
        writer.identifier_of(out, *id, Form::Minimal);
    });
    Ok(TypeObjects { information: information.0, mapping: mapping.0 })
}

/// The definitions that a type needs.
struct Order {
    /// In the order of first mention, the type itself first.
    first_mentioned: Vec<DefId>,
    /// Each behind those that it refers to.
    bases_first: Vec<DefId>,
}

/// Walks through the definitions with a list of those that are not finished.
fn order(schema: &Schema, root: DefId) -> Result<Order, TypeObjectError> {
    let (mut first_mentioned, mut bases_first) = (vec![root], Vec::new());
    let (mut seen, mut closed) = (BTreeSet::from([root]), BTreeSet::new());
    let mut open = vec![(root, mentioned(schema.def(root)).into_iter())];
    while let Some((id, rest)) = open.last_mut() {
        let Some(next) = rest.next() else {
            bases_first.push(*id);
            closed.insert(*id);
            open.pop();
            continue;
        };
        if seen.insert(next) {
            first_mentioned.push(next);
            open.push((next, mentioned(schema.def(next)).into_iter()));
        } else if !closed.contains(&next) {
            return Err(TypeObjectError::Recursive { name: schema.def(next).name.clone() });
        }
    }
    Ok(Order { first_mentioned, bases_first })
}

/// Refuses what a TypeObject has no room for.
fn check(def: &Def) -> Result<(), TypeObjectError> {
    let mut names = vec![&def.name];
    match &def.kind {
        DefKind::Struct { members, .. } => names.extend(members.iter().map(|member| &member.name)),
        DefKind::Union { cases, .. } => {
            names.extend(cases.iter().map(|case| &case.member.name));
            let mut labels = cases.iter().flat_map(|case| &case.labels);
            if let Some(label) = labels.find(|label| i32::try_from(**label).is_err()) {
                return Err(TypeObjectError::Label { name: def.name.clone(), label: *label });
            }
        }
        DefKind::Enum { literals, .. } => names.extend(literals.iter().map(|literal| &literal.name)),
        DefKind::Bitmask { flags, .. } => names.extend(flags.iter().map(|flag| &flag.name)),
        DefKind::Bitset { fields, .. } => names.extend(fields.iter().filter_map(|field| field.name.as_ref())),
        DefKind::Alias { .. } => {}
    }
    match names.into_iter().find(|name| name.len() > MAX_NAME_BYTES) {
        Some(name) => Err(TypeObjectError::Name { name: name.clone(), bytes: name.len() }),
        None => Ok(()),
    }
}

struct Writer<'a> {
    schema: &'a Schema,
    /// Of the definitions that are written, by their form.
    hashes: BTreeMap<(DefId, u8), Hash>,
}

impl Writer<'_> {
    /// `TypeIdentifierWithDependencies`.
    fn dependencies<'o>(
        &self,
        out: &mut Output,
        ids: &[DefId],
        form: Form,
        object: &impl Fn(&DefId, Form) -> &'o [u8],
    ) {
        let with_size = |out: &mut Output, id: &DefId| {
            out.delimited(|out| {
                self.identifier_of(out, *id, form);
                out.u32(object(id, form).len() as u32);
            });
        };
        // Different types may have the same minimal form.
        let mut seen = BTreeSet::new();
        let mut others: Vec<DefId> = ids.to_vec();
        let root = others.remove(0);
        others.retain(|id| seen.insert(self.hashes[&(*id, form as u8)]));
        out.delimited(|out| {
            with_size(out, &root);
            out.u32(others.len() as u32);
            out.sequence(&others, with_size);
        });
    }

    /// `TypeObject`.
    fn object(&self, id: DefId, form: Form) -> Vec<u8> {
        let def = self.schema.def(id);
        let mut out = Output::default();
        out.delimited(|out| {
            out.u8(form.kind());
            match &def.kind {
                DefKind::Struct { base, members } => self.structure(out, def, form, *base, members),
                DefKind::Union { discriminator, key, cases } => {
                    self.union(out, def, form, (discriminator, *key), cases);
                }
                DefKind::Enum { bit_bound, literals } => enumeration(out, def, form, *bit_bound, literals),
                DefKind::Bitmask { bit_bound, flags } => bitmask(out, def, form, *bit_bound, flags),
                DefKind::Bitset { .. } => self.bitset(out, def, form, &self.schema.bit_fields(id)),
                DefKind::Alias { target } => self.alias(out, def, form, target),
            }
        });
        out.0
    }

    fn structure(&self, out: &mut Output, def: &Def, form: Form, base: Option<DefId>, members: &[Member]) {
        out.u8(kind::STRUCTURE);
        out.u16(type_flags(def));
        out.delimited(|out| {
            match base {
                Some(base) => self.identifier_of(out, base, form),
                None => out.u8(kind::NONE),
            }
            type_detail(out, def, form);
        });
        out.sequence(members, |out, member| {
            out.delimited(|out| {
                out.u32(member.id);
                out.u16(member_flags(member));
                self.identifier(out, &member.ty, form);
                self.member_detail(out, member, form);
            });
        });
    }

    fn union(&self, out: &mut Output, def: &Def, form: Form, (discriminator, key): (&Type, bool), cases: &[Case]) {
        out.u8(kind::UNION);
        out.u16(type_flags(def));
        out.delimited(|out| type_detail(out, def, form));
        out.delimited(|out| {
            let key = if key { member_flag::KEY } else { 0 };
            out.u16(member_flag::DISCARD | member_flag::MUST_UNDERSTAND | key);
            self.identifier(out, discriminator, form);
            no_annotations(out, form);
        });
        out.sequence(cases, |out, case| {
            out.delimited(|out| {
                out.u32(case.member.id);
                out.u16(member_flags(&case.member) | if case.is_default { member_flag::DEFAULT } else { 0 });
                self.identifier(out, &case.member.ty, form);
                out.u32(case.labels.len() as u32);
                // The labels fit, as `check` saw.
                case.labels.iter().for_each(|label| out.u32(*label as u32));
                self.member_detail(out, &case.member, form);
            });
        });
    }

    fn bitset(&self, out: &mut Output, def: &Def, form: Form, fields: &[&BitField]) {
        out.u8(kind::BITSET);
        out.delimited(|out| {
            out.u16(0);
            out.delimited(|out| type_detail(out, def, form));
            let named: Vec<(&BitField, &str)> =
                fields.iter().filter_map(|field| Some((*field, field.name.as_deref()?))).collect();
            out.sequence(&named, |out, (field, name)| {
                out.delimited(|out| {
                    out.u16(field.position.into());
                    out.u16(0);
                    out.u8(field.width);
                    out.u8(kind::of_primitive(self.schema.resolve(&field.ty)).unwrap_or(kind::NONE));
                    name_detail(out, name, form);
                });
            });
        });
    }

    fn alias(&self, out: &mut Output, def: &Def, form: Form, target: &Type) {
        out.u8(kind::ALIAS);
        out.u16(0);
        out.delimited(|out| type_detail(out, def, form));
        out.delimited(|out| {
            out.u16(0);
            self.identifier(out, target, form);
            no_annotations(out, form);
        });
    }

    /// `TypeIdentifier`.
    fn identifier(&self, out: &mut Output, ty: &Type, form: Form) {
        match ty {
            Type::String { bound } => string(out, [kind::STRING8_SMALL, kind::STRING8_LARGE], *bound),
            Type::WString { bound } => string(out, [kind::STRING16_SMALL, kind::STRING16_LARGE], *bound),
            Type::Sequence { element, bound } => {
                let is_small = self.collection(out, kind::SEQUENCE_SMALL, &[element], &[*bound], form);
                bound_of(out, *bound, is_small);
                self.identifier(out, element, form);
            }
            Type::Array { element, dims } => {
                let is_small = self.collection(out, kind::ARRAY_SMALL, &[element], dims, form);
                out.u32(dims.len() as u32);
                dims.iter().for_each(|dim| bound_of(out, *dim, is_small));
                self.identifier(out, element, form);
            }
            Type::Map { key, value, bound } => {
                let is_small = self.collection(out, kind::MAP_SMALL, &[key, value], &[*bound], form);
                bound_of(out, *bound, is_small);
                self.identifier(out, value, form);
                out.u16(member_flag::DISCARD);
                self.identifier(out, key, form);
            }
            Type::Def(id) => self.identifier_of(out, *id, form),
            primitive => out.u8(kind::of_primitive(primitive).unwrap_or(kind::NONE)),
        }
    }

    /// Writes the kind and header of a collection. Returns whether its bounds take one byte each:
    /// the kind for larger ones is the next.
    fn collection(&self, out: &mut Output, small: u8, parts: &[&Type], bounds: &[u32], form: Form) -> bool {
        let is_small = bounds.iter().all(|bound| u8::try_from(*bound).is_ok());
        out.u8(if is_small { small } else { small + 1 });
        out.u8(if parts.iter().all(|part| is_fully_descriptive(part)) { BOTH } else { form.kind() });
        out.u16(member_flag::DISCARD);
        is_small
    }

    fn identifier_of(&self, out: &mut Output, id: DefId, form: Form) {
        out.u8(form.kind());
        out.0.extend(self.hashes.get(&(id, form as u8)).copied().unwrap_or_default());
    }

    fn member_detail(&self, out: &mut Output, member: &Member, form: Form) {
        if form == Form::Minimal {
            return name_detail(out, &member.name, form);
        }
        out.text(&member.name);
        self.annotations(out, member);
        out.u8(0);
    }

    /// The optional `AppliedBuiltinMemberAnnotations`.
    fn annotations(&self, out: &mut Output, member: &Member) {
        let argument = |names: [(&str, &str); 2]| {
            let is_one = |annotation: &&Annotation, name: &str| annotation.name == name;
            names.iter().find_map(|(name, argument)| {
                let annotation = member.annotations.iter().find(|annotation| is_one(annotation, name))?;
                annotation.args.iter().find(|(name, _)| name == argument).map(|(_, value)| value)
            })
        };
        let unit = match argument([("unit", "value"); 2]) {
            Some(Literal::String(unit)) if unit.len() <= MAX_NAME_BYTES => Some(unit),
            _ => None,
        };
        let of = kind::of_primitive(self.schema.resolve(&member.ty));
        let limit = |name| {
            let value = argument([(name, "value"), ("range", name)])?;
            of.and_then(|kind| parameter(kind, value))
        };
        let (min, max) = (limit("min"), limit("max"));
        if unit.is_none() && min.is_none() && max.is_none() {
            return out.u8(0);
        }
        out.u8(1);
        out.delimited(|out| {
            out.u8(unit.is_some().into());
            unit.into_iter().for_each(|unit| out.text(unit));
            for limit in [min, max] {
                out.u8(limit.is_some().into());
                limit.into_iter().for_each(|limit| limit.write(out));
            }
            out.u8(0);
        });
    }
}

/// `AnnotationParameterValue`.
struct Parameter {
    kind: u8,
    bits: u64,
    size: usize,
}

/// A number as a parameter of a primitive kind. `None` if it is no number of that kind.
fn parameter(kind: u8, value: &Literal) -> Option<Parameter> {
    let (bits, size) = match (kind::primitive(kind)?, value) {
        (Type::Octet | Type::Uint8, Literal::Int(value)) => (u8::try_from(*value).ok()?.into(), 1),
        (Type::Int8, Literal::Int(value)) => (i8::try_from(*value).ok()? as u64, 1),
        (Type::Int16, Literal::Int(value)) => (i16::try_from(*value).ok()? as u64, 2),
        (Type::Uint16, Literal::Int(value)) => (u16::try_from(*value).ok()?.into(), 2),
        (Type::Int32, Literal::Int(value)) => (i32::try_from(*value).ok()? as u64, 4),
        (Type::Uint32, Literal::Int(value)) => (u32::try_from(*value).ok()?.into(), 4),
        (Type::Int64, Literal::Int(value)) => (i64::try_from(*value).ok()? as u64, 8),
        (Type::Uint64, Literal::Int(value)) => (u64::try_from(*value).ok()?, 8),
        (Type::Float32, Literal::Float(value)) => ((*value as f32).to_bits().into(), 4),
        (Type::Float32, Literal::Int(value)) => ((*value as f32).to_bits().into(), 4),
        (Type::Float64, Literal::Float(value)) => (value.to_bits(), 8),
        (Type::Float64, Literal::Int(value)) => ((*value as f64).to_bits(), 8),
        _ => return None,
    };
    Some(Parameter { kind, bits, size })
}

impl Parameter {
    fn write(&self, out: &mut Output) {
        out.u8(self.kind);
        match self.size {
            1 => out.u8(self.bits as u8),
            2 => out.u16(self.bits as u16),
            4 => out.u32(self.bits as u32),
            _ => out.u64(self.bits),
        }
    }
}

fn enumeration(out: &mut Output, def: &Def, form: Form, bit_bound: u8, literals: &[EnumLiteral]) {
    out.u8(kind::ENUM);
    out.u16(final_or_appendable(def));
    out.delimited(|out| {
        out.u16(bit_bound.into());
        type_detail(out, def, form);
    });
    let mut literals: Vec<&EnumLiteral> = literals.iter().collect();
    literals.sort_by_key(|literal| literal.value);
    out.sequence(&literals, |out, literal| {
        out.delimited(|out| {
            out.delimited(|out| {
                out.u32(literal.value as u32);
                out.u16(if literal.is_default { member_flag::DEFAULT } else { 0 });
            });
            name_detail(out, &literal.name, form);
        });
    });
}

fn bitmask(out: &mut Output, def: &Def, form: Form, bit_bound: u8, flags: &[Flag]) {
    out.u8(kind::BITMASK);
    out.delimited(|out| {
        out.u16(final_or_appendable(def));
        out.delimited(|out| {
            out.u16(bit_bound.into());
            type_detail(out, def, form);
        });
        let mut flags: Vec<&Flag> = flags.iter().collect();
        flags.sort_by_key(|flag| flag.position);
        out.sequence(&flags, |out, flag| {
            out.delimited(|out| {
                out.u16(flag.position.into());
                out.u16(0);
                name_detail(out, &flag.name, form);
            });
        });
    });
}

/// `CompleteTypeDetail`. The minimal one is empty.
fn type_detail(out: &mut Output, def: &Def, form: Form) {
    no_annotations(out, form);
    if form == Form::Complete {
        out.text(&def.name);
    }
}

/// What complete objects say of a part without annotations.
fn no_annotations(out: &mut Output, form: Form) {
    if form == Form::Complete {
        out.u8(0);
        out.u8(0);
    }
}

/// `CompleteMemberDetail` without annotations, or `MinimalMemberDetail`.
fn name_detail(out: &mut Output, name: &str, form: Form) {
    match form {
        Form::Complete => {
            out.text(name);
            no_annotations(out, form);
        }
        Form::Minimal => out.0.extend(&Md5::digest(name.as_bytes())[..4]),
    }
}

fn string(out: &mut Output, [small, large]: [u8; 2], bound: u32) {
    let is_small = u8::try_from(bound).is_ok();
    out.u8(if is_small { small } else { large });
    bound_of(out, bound, is_small);
}

fn bound_of(out: &mut Output, bound: u32, is_small: bool) {
    if is_small { out.u8(bound as u8) } else { out.u32(bound) }
}

/// Whether an identifier says everything of a type, in both forms.
fn is_fully_descriptive(ty: &Type) -> bool {
    match ty {
        Type::Def(_) => false,
        Type::Sequence { element, .. } | Type::Array { element, .. } => is_fully_descriptive(element),
        Type::Map { key, value, .. } => is_fully_descriptive(key) && is_fully_descriptive(value),
        _ => true,
    }
}

fn extensibility(def: &Def) -> u16 {
    match def.extensibility {
        Extensibility::Final => type_flag::FINAL,
        Extensibility::Appendable => type_flag::APPENDABLE,
        Extensibility::Mutable => type_flag::MUTABLE,
    }
}

/// The flags of enums and bitmasks, which cannot be mutable.
fn final_or_appendable(def: &Def) -> u16 {
    if def.extensibility == Extensibility::Final { type_flag::FINAL } else { type_flag::APPENDABLE }
}

fn type_flags(def: &Def) -> u16 {
    let nested = if def.nested { type_flag::NESTED } else { 0 };
    let auto_id = if def.auto_id == AutoId::Hash { type_flag::AUTO_ID_HASH } else { 0 };
    extensibility(def) | nested | auto_id
}

fn member_flags(member: &Member) -> u16 {
    let try_construct = match member.try_construct {
        TryConstruct::Discard => member_flag::DISCARD,
        TryConstruct::UseDefault => member_flag::USE_DEFAULT,
        TryConstruct::Trim => member_flag::TRIM,
    };
    let flags = [
        (member.external, member_flag::EXTERNAL),
        (member.optional, member_flag::OPTIONAL),
        (member.must_understand || member.key, member_flag::MUST_UNDERSTAND),
        (member.key, member_flag::KEY),
    ];
    flags.iter().filter(|(is_set, _)| *is_set).fold(try_construct, |all, (_, flag)| all | flag)
}
