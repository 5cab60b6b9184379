//! Makes a schema of TypeObjects, which may come from anybody.
//!
//! A definition is reserved when it is first mentioned, and waits in a list until it is read, so
//! that no chain of references uses the stack. What collections have no name for is read in place,
//! to a depth, and counted.

use alloc::{
    boxed::Box,
    collections::{BTreeMap, VecDeque},
    string::{String, ToString},
    vec,
    vec::Vec,
};

use super::{COMPLETE_ID, Form, Hash, TypeObjectError, TypeObjects, input::Input, kind, member_flag, type_flag};
use crate::schema::{
    Annotation, AutoId, BitField, Case, Def, DefId, DefKind, EnumLiteral, Extensibility, Flag, Literal, Member, Schema,
    SchemaBuilder, SchemaLimits, TryConstruct, Type, builder::MAX_TYPE_DEPTH, hash_id,
};

type Result<T> = core::result::Result<T, TypeObjectError>;

/// Names of types are looked at no more often than this for each member.
const TYPES_OF_A_MEMBER: usize = 4;

pub(super) fn read(described: &TypeObjects, limits: &SchemaLimits) -> Result<Schema> {
    let bytes = (described.information.len() + described.mapping.len()) as u64;
    check("bytes", bytes, limits.bytes as u64)?;
    let root = root_of(&described.information)?;
    let mut reader = Reader {
        objects: objects_of(&described.mapping, limits)?,
        ids: BTreeMap::new(),
        waiting: VecDeque::new(),
        members: 0,
        types: 0,
        limits,
    };
    let root = reader.definition(root)?;
    let mut defs = Vec::new();
    while let Some(hash) = reader.waiting.pop_front() {
        // Definitions are read in the order of their ids.
        defs.push(reader.read(hash)?);
    }
    leave_out_counted_ids(&mut defs);
    let mut builder = SchemaBuilder::with_limits(*limits);
    defs.into_iter().for_each(|def| {
        builder.add(def);
    });
    Ok(builder.finish(root)?)
}

/// The complete type of a `TypeInformation`.
fn root_of(information: &[u8]) -> Result<Hash> {
    let mut members = Input::new(information).delimited()?;
    while !members.is_at_end() {
        let header = members.u32("a member's header")?;
        let (code, id) = (header >> 28 & 7, header & 0x0FFF_FFFF);
        let mut member = match code {
            0..=3 => members.within(1 << code)?,
            4 => members.delimited()?,
            // The length is also that of the member itself.
            5 => {
                let member = members;
                members.delimited()?;
                member
            }
            _ => return Err(members.value("length of a member", code.into())),
        };
        if id == COMPLETE_ID {
            let mut with_size = member.delimited()?.delimited()?;
            return match with_size.u8("a type")? {
                complete if complete == Form::Complete.kind() => with_size.octets("a hash"),
                got => Err(with_size.value("complete type", got.into())),
            };
        }
    }
    Err(members.value("type information: it names no complete type", 0))
}

/// The complete TypeObjects of a `TypeMapping`.
fn objects_of<'a>(mapping: &'a [u8], limits: &SchemaLimits) -> Result<BTreeMap<Hash, Input<'a>>> {
    let mut mapping = Input::new(mapping);
    mapping.delimited()?;
    let mut pairs = mapping.delimited()?;
    let count = pairs.count("types")?;
    check("definitions", count as u64, limits.defs as u64)?;
    let mut objects = BTreeMap::new();
    for _ in 0..count {
        let complete = pairs.u8("a type")?;
        if complete != Form::Complete.kind() {
            return Err(pairs.value("complete type", complete.into()));
        }
        let hash = pairs.octets("a hash")?;
        objects.insert(hash, pairs.delimited()?);
    }
    Ok(objects)
}

struct Reader<'a> {
    objects: BTreeMap<Hash, Input<'a>>,
    /// Of the definitions that were mentioned.
    ids: BTreeMap<Hash, DefId>,
    /// Definitions that are mentioned and not read.
    waiting: VecDeque<Hash>,
    members: usize,
    types: usize,
    limits: &'a SchemaLimits,
}

impl<'a> Reader<'a> {
    /// The object of a hash, behind its two kinds, of which the second is returned.
    fn object(&self, hash: Hash) -> Result<(u8, Input<'a>)> {
        let mut object = *self.objects.get(&hash).ok_or(TypeObjectError::Missing(hash))?;
        match object.u8("a form")? {
            complete if complete == Form::Complete.kind() => Ok((object.u8("a kind of type")?, object)),
            got => Err(object.value("complete TypeObject", got.into())),
        }
    }

    /// The type of a hash: a definition, which is read later, or a collection.
    fn definition(&mut self, hash: Hash) -> Result<Type> {
        self.referred(hash, 0)
    }

    fn referred(&mut self, hash: Hash, depth: usize) -> Result<Type> {
        if let Some(id) = self.ids.get(&hash) {
            return Ok(Type::Def(*id));
        }
        let (kind, mut object) = self.object(hash)?;
        match kind {
            kind::SEQUENCE => {
                object.u16("flags")?;
                let bound = object.delimited()?.u32("a bound")?;
                Ok(Type::Sequence { bound, element: self.element(&mut object, depth)? })
            }
            kind::ARRAY => {
                // Appendable, other than the two beside it.
                let mut object = object.delimited()?;
                object.u16("flags")?;
                let dims = self.bounds(&mut object.delimited()?, |input| input.u32("a dimension"))?;
                Ok(Type::Array { dims, element: self.element(&mut object, depth)? })
            }
            kind::MAP => {
                object.u16("flags")?;
                let bound = object.delimited()?.u32("a bound")?;
                let key = self.element(&mut object, depth)?;
                Ok(Type::Map { bound, key, value: self.element(&mut object, depth)? })
            }
            _ => {
                check("definitions", self.ids.len() as u64 + 1, self.limits.defs as u64)?;
                let id = DefId(self.ids.len() as u32);
                self.ids.insert(hash, id);
                self.waiting.push_back(hash);
                Ok(Type::Def(id))
            }
        }
    }

    /// `CompleteCollectionElement`.
    fn element(&mut self, object: &mut Input<'a>, depth: usize) -> Result<Box<Type>> {
        let mut element = object.delimited()?;
        element.u16("flags")?;
        self.ty(&mut element, depth + 1).map(Box::new)
    }

    fn bounds(&self, input: &mut Input<'a>, read: impl Fn(&mut Input<'a>) -> Result<u32>) -> Result<Vec<u32>> {
        let count = input.count("dimensions")?;
        check("dimensions", count as u64, MAX_TYPE_DEPTH as u64)?;
        (0..count).map(|_| read(input)).collect()
    }

    /// `TypeIdentifier`.
    fn ty(&mut self, input: &mut Input<'a>, depth: usize) -> Result<Type> {
        check("types inside each other", depth as u64, MAX_TYPE_DEPTH as u64)?;
        self.types += 1;
        let most = TYPES_OF_A_MEMBER.saturating_mul(self.limits.members);
        check("types", self.types as u64, most as u64)?;
        let small = |input: &mut Input<'a>| input.u8("a bound").map(u32::from);
        let large = |input: &mut Input<'a>| input.u32("a bound");
        let tag = input.u8("a type")?;
        Ok(match tag {
            kind::STRING8 => Type::string(),
            kind::STRING16 => Type::WString { bound: 0 },
            kind::STRING8_SMALL => Type::String { bound: small(input)? },
            kind::STRING8_LARGE => Type::String { bound: large(input)? },
            kind::STRING16_SMALL => Type::WString { bound: small(input)? },
            kind::STRING16_LARGE => Type::WString { bound: large(input)? },
            kind::SEQUENCE_SMALL | kind::SEQUENCE_LARGE => {
                header(input)?;
                let bound = if tag == kind::SEQUENCE_SMALL { small(input) } else { large(input) }?;
                Type::Sequence { bound, element: Box::new(self.ty(input, depth + 1)?) }
            }
            kind::ARRAY_SMALL | kind::ARRAY_LARGE => {
                header(input)?;
                let dims = match tag {
                    kind::ARRAY_SMALL => self.bounds(input, small),
                    _ => self.bounds(input, large),
                }?;
                Type::Array { dims, element: Box::new(self.ty(input, depth + 1)?) }
            }
            kind::MAP_SMALL | kind::MAP_LARGE => {
                header(input)?;
                let bound = if tag == kind::MAP_SMALL { small(input) } else { large(input) }?;
                let value = Box::new(self.ty(input, depth + 1)?);
                input.u16("flags")?;
                Type::Map { bound, key: Box::new(self.ty(input, depth + 1)?), value }
            }
            complete if complete == Form::Complete.kind() => {
                let hash = input.octets("a hash")?;
                self.referred(hash, depth)?
            }
            _ => kind::primitive(tag).ok_or_else(|| input.value("type", tag.into()))?,
        })
    }

    fn read(&mut self, hash: Hash) -> Result<Def> {
        let (kind, mut object) = self.object(hash)?;
        let input = &mut object;
        match kind {
            kind::STRUCTURE => self.structure(input),
            kind::UNION => self.union(input),
            kind::ENUM => self.enumeration(input),
            kind::BITMASK => self.bitmask(&mut input.delimited()?),
            kind::BITSET => self.bitset(&mut input.delimited()?),
            kind::ALIAS => self.alias(input),
            got => Err(input.value("kind of type", got.into())),
        }
    }

    fn structure(&mut self, input: &mut Input<'a>) -> Result<Def> {
        let flags = input.u16("flags")?;
        let mut header = input.delimited()?;
        let base = match header.u8("a base")? {
            kind::NONE => None,
            complete if complete == Form::Complete.kind() => {
                let hash = header.octets("a hash")?;
                match self.definition(hash)? {
                    Type::Def(id) => Some(id),
                    _ => return Err(header.value("base: it is a collection", kind::SEQUENCE.into())),
                }
            }
            got => return Err(header.value("base", got.into())),
        };
        let name = type_detail(&mut header)?;
        let members = self.members(input, |reader, member| {
            let (id, flags) = (member.u32("a member id")?, member.u16("flags")?);
            let ty = reader.ty(member, 0)?;
            member_of(member, id, flags, ty)
        })?;
        Ok(def(name, flags, DefKind::Struct { base, members }))
    }

    fn union(&mut self, input: &mut Input<'a>) -> Result<Def> {
        let flags = input.u16("flags")?;
        let name = type_detail(&mut input.delimited()?)?;
        let mut head = input.delimited()?;
        let key = head.u16("flags")? & member_flag::KEY != 0;
        let discriminator = self.ty(&mut head, 0)?;
        let cases = self.members(input, |reader, case| {
            let (id, flags) = (case.u32("a member id")?, case.u16("flags")?);
            let ty = reader.ty(case, 0)?;
            let count = case.count("labels")?;
            let labels: Vec<i64> =
                (0..count).map(|_| case.u32("a label").map(|label| (label as i32).into())).collect::<Result<_>>()?;
            let member = member_of(case, id, flags & !member_flag::KEY & !member_flag::OPTIONAL, ty)?;
            Ok(Case { labels, is_default: flags & member_flag::DEFAULT != 0, member })
        })?;
        Ok(def(name, flags, DefKind::Union { discriminator, key, cases }))
    }

    fn enumeration(&mut self, input: &mut Input<'a>) -> Result<Def> {
        let flags = input.u16("flags")?;
        let mut header = input.delimited()?;
        let bit_bound = bits(&mut header)?;
        let name = type_detail(&mut header)?;
        let literals = self.members(input, |_, literal| {
            let mut common = literal.delimited()?;
            let (value, flags) = (common.u32("a value")? as i32, common.u16("flags")?);
            let is_default = flags & member_flag::DEFAULT != 0;
            Ok(EnumLiteral { name: literal.text()?, value, is_default, annotations: Vec::new() })
        })?;
        Ok(def(name, flags, DefKind::Enum { bit_bound, literals }))
    }

    fn bitmask(&mut self, input: &mut Input<'a>) -> Result<Def> {
        let type_flags = input.u16("flags")?;
        let mut header = input.delimited()?;
        let bit_bound = bits(&mut header)?;
        let name = type_detail(&mut header)?;
        let flags = self.members(input, |_, flag| {
            let position = flag.u16("a position")?;
            let position = u8::try_from(position).map_err(|_| flag.value("position", position.into()))?;
            flag.u16("flags")?;
            Ok(Flag { name: flag.text()?, position, annotations: Vec::new() })
        })?;
        Ok(def(name, type_flags, DefKind::Bitmask { bit_bound, flags }))
    }

    fn bitset(&mut self, input: &mut Input<'a>) -> Result<Def> {
        let flags = input.u16("flags")?;
        let name = type_detail(&mut input.delimited()?)?;
        let named = self.members(input, |_, field| {
            let position = field.u16("a position")?;
            field.u16("flags")?;
            let (width, holder) = (field.u8("a width")?, field.u8("a type")?);
            let ty = kind::primitive(holder).ok_or_else(|| field.value("type of a bit field", holder.into()))?;
            let name = Some(field.text()?);
            Ok((position, BitField { name, position: 0, width, ty, annotations: Vec::new() }))
        })?;
        // The builder counts positions, so gaps become padding.
        let (mut fields, mut next) = (Vec::new(), 0u16);
        for (position, field) in named {
            let gap = position.checked_sub(next).and_then(|gap| u8::try_from(gap).ok());
            let width = gap.ok_or_else(|| input.value("position of a bit field", position.into()))?;
            if width > 0 {
                fields.push(BitField { name: None, ..BitField::new(String::new(), width) });
            }
            next = position.saturating_add(field.width.into());
            fields.push(field);
        }
        Ok(def(name, flags, DefKind::Bitset { base: None, fields }))
    }

    fn alias(&mut self, input: &mut Input<'a>) -> Result<Def> {
        input.u16("flags")?;
        let name = type_detail(&mut input.delimited()?)?;
        let mut body = input.delimited()?;
        body.u16("flags")?;
        let target = self.ty(&mut body, 0)?;
        Ok(Def::alias(name, target))
    }

    /// Members, literals, flags or fields, each behind its length.
    fn members<T>(
        &mut self,
        input: &mut Input<'a>,
        mut read: impl FnMut(&mut Reader<'a>, &mut Input<'a>) -> Result<T>,
    ) -> Result<Vec<T>> {
        input.sequence(|input| {
            self.members += 1;
            check("members", self.members as u64, self.limits.members as u64)?;
            read(self, &mut input.delimited()?)
        })
    }
}

fn check(what: &'static str, got: u64, max: u64) -> Result<()> {
    match got <= max {
        true => Ok(()),
        false => Err(TypeObjectError::Limit { what, got, max }),
    }
}

/// `PlainCollectionHeader`.
fn header(input: &mut Input<'_>) -> Result<()> {
    input.u8("an equivalence")?;
    input.u16("flags").map(drop)
}

fn bits(header: &mut Input<'_>) -> Result<u8> {
    let bound = header.u16("a bit bound")?;
    u8::try_from(bound).map_err(|_| header.value("bit bound", bound.into()))
}

/// The name in a `CompleteTypeDetail`.
fn type_detail(input: &mut Input<'_>) -> Result<String> {
    if input.is_present()? {
        // `AppliedBuiltinTypeAnnotations`: a text for source code.
        input.delimited()?;
    }
    if input.is_present()? {
        // `AppliedAnnotationSeq`
        input.delimited()?;
    }
    input.text()
}

/// Reads `CompleteMemberDetail`.
fn member_of(input: &mut Input<'_>, id: u32, flags: u16, ty: Type) -> Result<Member> {
    let name = input.text()?;
    let annotations = if input.is_present()? { annotations(&mut input.delimited()?)? } else { Vec::new() };
    let has = |flag| flags & flag != 0;
    let key = has(member_flag::KEY);
    Ok(Member {
        explicit_id: Some(id),
        key,
        optional: has(member_flag::OPTIONAL),
        // A key always is.
        must_understand: has(member_flag::MUST_UNDERSTAND) && !key,
        external: has(member_flag::EXTERNAL),
        try_construct: match flags & member_flag::TRIM {
            member_flag::TRIM => TryConstruct::Trim,
            member_flag::USE_DEFAULT => TryConstruct::UseDefault,
            _ => TryConstruct::Discard,
        },
        annotations,
        ..Member::new(name, ty)
    })
}

/// `AppliedBuiltinMemberAnnotations`.
fn annotations(input: &mut Input<'_>) -> Result<Vec<Annotation>> {
    let one = |name: &str, value| Annotation { name: name.into(), args: vec![("value".to_string(), value)] };
    let mut all = Vec::new();
    if input.is_present()? {
        all.push(one("unit", Literal::String(input.text()?)));
    }
    for name in ["min", "max"] {
        if input.is_present()? {
            match parameter(input)? {
                Some(value) => all.push(one(name, value)),
                // What follows a value of an unknown kind cannot be found.
                None => break,
            }
        }
    }
    Ok(all)
}

/// `AnnotationParameterValue`. `None` if it is no number.
fn parameter(input: &mut Input<'_>) -> Result<Option<Literal>> {
    let tag = input.u8("a kind of value")?;
    let what = "a value";
    Ok(Some(match kind::primitive(tag) {
        Some(Type::Octet | Type::Uint8) => Literal::Int(input.u8(what)?.into()),
        Some(Type::Int8) => Literal::Int((input.u8(what)? as i8).into()),
        Some(Type::Int16) => Literal::Int((input.u16(what)? as i16).into()),
        Some(Type::Uint16) => Literal::Int(input.u16(what)?.into()),
        Some(Type::Int32) => Literal::Int((input.u32(what)? as i32).into()),
        Some(Type::Uint32) => Literal::Int(input.u32(what)?.into()),
        Some(Type::Int64) => Literal::Int((input.u64(what)? as i64).into()),
        Some(Type::Uint64) => Literal::Int(input.u64(what)?.into()),
        Some(Type::Float32) => Literal::Float(f32::from_bits(input.u32(what)?).into()),
        Some(Type::Float64) => Literal::Float(f64::from_bits(input.u64(what)?)),
        _ => return Ok(None),
    }))
}

fn def(name: String, flags: u16, kind: DefKind) -> Def {
    let has = |flag| flags & flag != 0;
    Def {
        name,
        kind,
        extensibility: match () {
            () if has(type_flag::FINAL) => Extensibility::Final,
            () if has(type_flag::MUTABLE) => Extensibility::Mutable,
            () => Extensibility::Appendable,
        },
        nested: has(type_flag::NESTED),
        auto_id: if has(type_flag::AUTO_ID_HASH) { AutoId::Hash } else { AutoId::Sequential },
        annotations: Vec::new(),
        doc: String::new(),
    }
}

/// Leaves out the ids that members get without being told.
fn leave_out_counted_ids(defs: &mut [Def]) {
    for at in 0..defs.len() {
        let mut next = first_id(defs, at);
        let is_hashed = defs[at].auto_id == AutoId::Hash;
        let members: Vec<&mut Member> = match &mut defs[at].kind {
            DefKind::Struct { members, .. } => members.iter_mut().collect(),
            DefKind::Union { cases, .. } => cases.iter_mut().map(|case| &mut case.member).collect(),
            _ => continue,
        };
        for member in members {
            let id = member.explicit_id.unwrap_or_default();
            let counted = if is_hashed { hash_id(&member.name) } else { next };
            (member.id, next) = (id, id.saturating_add(1));
            member.explicit_id = Some(id).filter(|id| *id != counted);
        }
    }
}

/// The id of a definition's first member, if it is counted.
fn first_id(defs: &[Def], at: usize) -> u32 {
    let mut def = &defs[at];
    if matches!(def.kind, DefKind::Union { .. }) {
        return 1;
    }
    // A base may be the structure itself, which the builder refuses.
    for _ in 0..defs.len() {
        let DefKind::Struct { base: Some(base), .. } = &def.kind else { return 0 };
        let Some(next) = defs.get(base.0 as usize) else { return 0 };
        def = next;
        if let DefKind::Struct { members, .. } = &def.kind
            && let Some(last) = members.last()
        {
            // Members that were looked at before have lost the explicit id.
            return last.explicit_id.unwrap_or(last.id).saturating_add(1);
        }
    }
    0
}
