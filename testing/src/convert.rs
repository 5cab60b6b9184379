//! A reference implementation of `spec/evolution.md`: converts a writer's value to the value that a
//! reader with another version of the type must get. It works on records and paths, without codecs
//! and programs, so tests can compare decoders with it.

use polywire_core::{
    layout::{Record, Shape, Value, ValueRef},
    schema::{
        DefId, DefKind, Literal, Member, Schema, TryConstruct, Type,
        evolve::{DefaultValue, pair_members, zero_of},
    },
};
use std::sync::Arc;

/// The error of [`convert`]: the reader must refuse the message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Refused;

type Done = Result<(), Refused>;

/// Converts the writer's value to the reader's type. The pair of types must not be refused as a
/// whole.
///
/// # Errors
/// [`Refused`] if the reader must refuse this value.
pub fn convert(writer: &Schema, value: &Record, reader: &Arc<Shape>) -> Result<Record, Refused> {
    let mut to = Record::new(reader);
    let conversion = Conversion { writer, reader: reader.schema() };
    let nothing = Around { policy: TryConstruct::Discard, own: None };
    conversion.value(writer.root(), reader.schema().root(), value.view(), nothing, "", &mut to)?;
    Ok(to)
}

/// The context of a value: the policy of the member that contains it, and that member if the value
/// is its whole value, not an element of it.
#[derive(Clone, Copy)]
struct Around<'a> {
    policy: TryConstruct,
    own: Option<&'a Member>,
}

impl<'a> Around<'a> {
    fn member(member: &'a Member) -> Around<'a> {
        Around { policy: member.try_construct, own: Some(member) }
    }

    fn element(self) -> Around<'a> {
        Around { own: None, ..self }
    }
}

struct Conversion<'a> {
    writer: &'a Schema,
    reader: &'a Schema,
}

impl Conversion<'_> {
    fn value(&self, w: &Type, r: &Type, from: ValueRef<'_>, around: Around<'_>, at: &str, to: &mut Record) -> Done {
        let (w, r) = (self.writer.resolve(w), self.reader.resolve(r));
        let put = |to: &mut Record, value: Value| to.set(at, value).unwrap_or_else(|error| panic!("{error}"));
        match (from, w, r) {
            (ValueRef::Str(text), _, Type::String { bound } | Type::WString { bound }) => {
                let text = text_within(text, *bound as usize, matches!(r, Type::WString { .. }), around)?;
                put(to, Value::Text(text));
            }
            (ValueRef::Enum(literal), _, Type::Def(id)) => {
                let number = self.literal(*id, literal.value(), around)?;
                put(to, Value::Int(number.into()));
            }
            (ValueRef::Bitmask(bits), _, Type::Def(id)) => put(to, Value::Int((bits.bits() & self.named(*id)).into())),
            (ValueRef::Bitset(bits), _, Type::Def(id)) => put(to, Value::Int((bits.bits() & self.named(*id)).into())),
            (ValueRef::List(list), Type::Sequence { element: w, .. }, Type::Sequence { element: r, bound }) => {
                let kept = kept(list.len(), *bound as usize, around)?;
                // Elements that are cut off are converted too, because they may be refused.
                to.resize(at, 0).unwrap();
                let mut past = Record::new(to.shape());
                for (i, from) in list.iter().enumerate() {
                    if i < kept {
                        to.resize(at, i + 1).unwrap();
                        self.value(w, r, from, around.element(), &format!("{at}[{i}]"), to)?;
                    } else {
                        past.resize(at, 1).unwrap();
                        self.value(w, r, from, around.element(), &format!("{at}[0]"), &mut past)?;
                    }
                }
            }
            (ValueRef::List(list), Type::Array { element: w, dims }, Type::Array { element: r, .. }) => {
                self.rows(w, r, dims.len(), ValueRef::List(list), around.element(), at, to)?;
            }
            (ValueRef::Map(map), Type::Map { key: wk, value: w, .. }, Type::Map { value: r, bound, key: rk }) => {
                let entries = map.entries();
                let kept = kept(entries.len(), *bound as usize, around)?;
                put(to, Value::Entries(vec![]));
                let mut past = Record::new(to.shape());
                for (i, (key, from)) in entries.into_iter().enumerate() {
                    let step = self.key(wk, rk, key)?;
                    let target = if i < kept { &mut *to } else { &mut past };
                    if i >= kept {
                        put(target, Value::Entries(vec![]));
                    }
                    self.value(w, r, from, around.element(), &format!("{at}[{step}]"), target)?;
                }
            }
            (ValueRef::Struct(from), Type::Def(w), Type::Def(r)) => {
                if !at.is_empty() {
                    put(to, Value::Fields(vec![]));
                }
                self.members(*w, *r, &from.fields(), at, to)?;
            }
            (ValueRef::Union(from), Type::Def(w), Type::Def(r)) => {
                let case = from.case().map(|(_, value)| value);
                self.union((*w, *r), from.discriminator(), case, around, at, to)?;
            }
            (ValueRef::Bool(v), ..) => put(to, Value::Bool(v)),
            (ValueRef::Int(v), ..) => put(to, Value::Int(v.into())),
            (ValueRef::Uint(v), ..) => put(to, Value::Int(v.into())),
            (ValueRef::Char8(_) | ValueRef::Char16(_), ..) => put(to, Value::Int(from.as_u64().unwrap().into())),
            (ValueRef::Float32(v), ..) => put(to, Value::Float(v.into())),
            (ValueRef::Float64(v), ..) => put(to, Value::Float(v)),
            (ValueRef::Float128(_), ..) => put(to, Value::Float(from.as_f64().unwrap())),
            (from, ..) => panic!("{at}: {from:?} of {w:?} cannot become {r:?}"),
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "both sides of a pair of types, and their places")]
    fn rows(
        &self,
        w: &Type,
        r: &Type,
        dims: usize,
        from: ValueRef<'_>,
        around: Around<'_>,
        at: &str,
        to: &mut Record,
    ) -> Done {
        let ValueRef::List(list) = from else { panic!("{from:?} is not a row of an array") };
        for (i, from) in list.iter().enumerate() {
            let at = format!("{at}[{i}]");
            match dims {
                1 => self.value(w, r, from, around, &at, to)?,
                _ => self.rows(w, r, dims - 1, from, around, &at, to)?,
            }
        }
        Ok(())
    }

    fn members(&self, w: DefId, r: DefId, from: &[(&Member, ValueRef<'_>)], at: &str, to: &mut Record) -> Done {
        for pair in pair_members(self.writer, w, self.reader, r).unwrap() {
            let from = pair.writer.map(|(i, member)| (member, from[i].1));
            let path = |name: &str| if at.is_empty() { name.into() } else { format!("{at}.{name}") };
            match (from, pair.reader) {
                (Some((writer, from)), None) => {
                    if writer.must_understand && !from.is_absent() {
                        return Err(Refused);
                    }
                }
                (Some((_, ValueRef::Absent)), Some((_, reader))) if reader.optional => {
                    to.set(&path(&reader.name), Value::Absent).unwrap();
                }
                (Some((_, ValueRef::Absent)), Some((_, reader))) => {
                    // The new record has the default value already.
                    if reader.default.is_none() && reader.try_construct != TryConstruct::UseDefault {
                        return Err(Refused);
                    }
                }
                (Some((writer, from)), Some((_, reader))) => {
                    self.value(&writer.ty, &reader.ty, from, Around::member(reader), &path(&reader.name), to)?;
                }
                (None, _) => {}
            }
        }
        Ok(())
    }

    fn union(
        &self,
        (w, r): (DefId, DefId),
        discriminator: i64,
        from: Option<ValueRef<'_>>,
        around: Around<'_>,
        at: &str,
        to: &mut Record,
    ) -> Done {
        let writer = selected(self.writer, w, discriminator);
        let reader = selected(self.reader, r, discriminator);
        let known = is_discriminator(self.reader, r, discriminator);
        let same = match (writer, reader) {
            _ if !known => false,
            (Some((wl, wm)), Some((rl, rm))) => wl == rl || wm.name == rm.name,
            (Some(_), None) => false,
            (None, _) => true,
        };
        if !same {
            if around.policy != TryConstruct::UseDefault {
                return Err(Refused);
            }
            let DefaultValue::Case { discriminator, .. } = zero_of(self.reader, &Type::Def(r)) else { panic!() };
            to.set(at, Value::Int(discriminator.into())).unwrap_or_else(|error| panic!("{error}"));
            return Ok(());
        }
        to.set(at, Value::Int(discriminator.into())).unwrap_or_else(|error| panic!("{error}"));
        match (writer, reader, from) {
            (Some((_, writer)), Some((_, reader)), Some(from)) => {
                let path = format!("{at}.{}", reader.name);
                self.value(&writer.ty, &reader.ty, from, Around::member(reader), &path, to)
            }
            _ => Ok(()),
        }
    }

    /// The number of the reader's literal for the writer's literal `number`.
    fn literal(&self, id: DefId, number: i32, around: Around<'_>) -> Result<i32, Refused> {
        let DefKind::Enum { literals, .. } = &self.reader.def(id).kind else { panic!() };
        if literals.iter().any(|l| l.value == number) {
            return Ok(number);
        }
        let marked = literals.iter().find(|l| l.is_default).map(|l| l.value);
        let named = match around.own.and_then(|member| member.default.as_ref()) {
            Some(Literal::Enum(name)) => {
                // The name may be scoped.
                let last = name.rsplit("::").next().unwrap_or(name);
                literals.iter().find(|l| l.name == last).map(|l| l.value)
            }
            _ => None,
        };
        match around.policy {
            TryConstruct::UseDefault => Ok(named.or(marked).unwrap_or(literals[0].value)),
            _ => marked.ok_or(Refused),
        }
    }

    /// A mask of the bits that have a name in the reader's type.
    fn named(&self, id: DefId) -> u64 {
        let ones = |width: u8| if width == 0 { 0 } else { u64::MAX >> (64 - width) };
        match &self.reader.def(id).kind {
            DefKind::Bitmask { flags, .. } => flags.iter().map(|f| 1 << f.position).sum(),
            _ => {
                let fields = self.reader.bit_fields(id);
                fields.iter().filter(|f| f.name.is_some()).map(|f| ones(f.width) << f.position).sum()
            }
        }
    }

    /// A map key as a path contains it. Unlike other values, a key is never replaced or truncated.
    fn key(&self, _: &Type, r: &Type, key: ValueRef<'_>) -> Result<String, Refused> {
        let quoted = |text: &str| {
            let escaped: String =
                text.chars().flat_map(|c| matches!(c, '"' | '\\').then_some('\\').into_iter().chain([c])).collect();
            format!("\"{escaped}\"")
        };
        match (key, self.reader.resolve(r)) {
            (ValueRef::Str(text), Type::String { bound } | Type::WString { bound }) => {
                let fits = *bound == 0 || text.len() <= *bound as usize;
                if fits { Ok(quoted(text)) } else { Err(Refused) }
            }
            (ValueRef::Enum(literal), Type::Def(id)) => {
                let DefKind::Enum { literals, .. } = &self.reader.def(*id).kind else { panic!() };
                let known = literals.iter().find(|l| l.value == literal.value());
                known.map(|l| quoted(&l.name)).ok_or(Refused)
            }
            (key, _) => Ok(key.as_i64().map(|n| n.to_string()).or(key.as_u64().map(|n| n.to_string())).unwrap()),
        }
    }
}

/// The case that a discriminator selects, and whether a label selects it (or the default).
fn selected(schema: &Schema, id: DefId, discriminator: i64) -> Option<(bool, &Member)> {
    let DefKind::Union { cases, .. } = &schema.def(id).kind else { panic!() };
    let labelled = cases.iter().find(|c| c.labels.contains(&discriminator)).map(|c| (true, &c.member));
    labelled.or_else(|| cases.iter().find(|c| c.is_default).map(|c| (false, &c.member)))
}

/// Whether `number` is a value of the discriminator's type. For an enum, it must be a literal.
fn is_discriminator(schema: &Schema, id: DefId, number: i64) -> bool {
    let DefKind::Union { discriminator, .. } = &schema.def(id).kind else { panic!() };
    match schema.def_of(discriminator).map(|def| &def.kind) {
        Some(DefKind::Enum { literals, .. }) => literals.iter().any(|l| i64::from(l.value) == number),
        _ => true,
    }
}

fn kept(len: usize, bound: usize, around: Around<'_>) -> Result<usize, Refused> {
    match around.policy {
        _ if bound == 0 || len <= bound => Ok(len),
        TryConstruct::Discard => Err(Refused),
        TryConstruct::UseDefault => Ok(0),
        TryConstruct::Trim => Ok(bound),
    }
}

fn text_within(text: &str, bound: usize, wide: bool, around: Around<'_>) -> Result<String, Refused> {
    let units = |text: &str| if wide { text.encode_utf16().count() } else { text.len() };
    if bound == 0 || units(text) <= bound {
        return Ok(text.into());
    }
    match around.policy {
        TryConstruct::Discard => Err(Refused),
        TryConstruct::UseDefault => match around.own.and_then(|member| member.default.as_ref()) {
            Some(Literal::String(text)) => Ok(text.clone()),
            _ => Ok(String::new()),
        },
        TryConstruct::Trim => {
            let mut cut = text.to_string();
            while units(&cut) > bound {
                cut.pop();
            }
            Ok(cut)
        }
    }
}
