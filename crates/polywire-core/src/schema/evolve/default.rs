//! The value that stands where the writer has none.

use crate::schema::{DefId, DefKind, Literal, Member, Schema, TryConstruct, Type, literal};

/// A value that no writer sent.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum DefaultValue<'a> {
    /// An optional member without value.
    Absent,
    /// A boolean.
    Bool(bool),
    /// An integer, an octet, an enum's value, a bitmask's or a bitset's bits.
    Int(i128),
    /// A float of any size.
    Float(f64),
    /// A character's code.
    Char(u32),
    /// A string or wide string.
    Text(&'a str),
    /// A sequence or map without elements.
    Empty,
    /// An array, each element of which is [`zero_of`] the element's type.
    Elements,
    /// A structure, each member of which is [`default_of`] that member.
    Members(DefId),
    /// A union.
    Case {
        /// The value of its discriminator.
        discriminator: i64,
        /// The case this selects; its member is [`default_of`] that member.
        case: usize,
    },
}

/// What a member is when the writer has no value for it: absent if optional, else its `@default`,
/// else [`zero_of`] its type.
///
/// ```
/// use polywire_core::schema::{Def, Literal, Member, SchemaBuilder, Type};
/// use polywire_core::schema::evolve::{DefaultValue, default_of};
///
/// let mut types = SchemaBuilder::new();
/// let id = types.add(Def::structure("S", vec![
///     Member::new("rate_hz", Type::Float64).with_default(Literal::Int(10)),
///     Member::new("name", Type::string()),
/// ]));
/// let schema = types.finish(Type::Def(id)).unwrap();
/// let members = schema.members(id);
/// assert_eq!(default_of(&schema, members[0]), DefaultValue::Float(10.0));
/// assert_eq!(default_of(&schema, members[1]), DefaultValue::Text(""));
/// ```
pub fn default_of<'a>(schema: &'a Schema, member: &'a Member) -> DefaultValue<'a> {
    if member.optional { DefaultValue::Absent } else { value_default(schema, member) }
}

/// What takes the place of a member's own value that does not fit, under
/// `@try_construct(USE_DEFAULT)`: its `@default`, else [`zero_of`] its type.
///
/// For an optional member too: the writer has a value there, so one is present at the reader.
pub fn value_default<'a>(schema: &'a Schema, member: &'a Member) -> DefaultValue<'a> {
    // The builder has made the literal one of the member's type.
    match &member.default {
        Some(Literal::Bool(value)) => DefaultValue::Bool(*value),
        Some(Literal::Int(value)) => DefaultValue::Int(*value),
        Some(Literal::Float(value)) => DefaultValue::Float(*value),
        Some(Literal::Char(code)) => DefaultValue::Char(*code),
        Some(Literal::String(text)) => DefaultValue::Text(text),
        Some(Literal::Enum(name)) => match literal::enum_value(schema.defs(), &member.ty, name) {
            Some(value) => DefaultValue::Int(value.into()),
            None => zero_of(schema, &member.ty),
        },
        None => zero_of(schema, &member.ty),
    }
}

/// What a reader's member is in a message in which the writer's optional member is absent; none if
/// the message is refused.
///
/// That is not what it is where the writer has no such member at all: an absent value says that
/// there is none, and to take that for a zero needs a word of the reader's, `@default` or
/// `@try_construct(USE_DEFAULT)`.
pub fn absent_value<'a>(schema: &'a Schema, member: &'a Member) -> Option<DefaultValue<'a>> {
    let is_allowed = member.optional || member.default.is_some() || member.try_construct == TryConstruct::UseDefault;
    is_allowed.then(|| default_of(schema, member))
}

/// The value that takes the place of a literal that the reader's enum does not have; none if the
/// message is refused.
///
/// `try_construct` is that of the nearest member around the value, `own` that member if the value
/// is its own and no element inside it. A discriminator has no such value: there it is an unknown
/// case.
pub fn unknown_literal(
    schema: &Schema,
    enumeration: DefId,
    try_construct: TryConstruct,
    own: Option<&Member>,
) -> Option<i32> {
    let DefKind::Enum { literals, .. } = &schema.def(enumeration).kind else { return None };
    let marked = literals.iter().find(|l| l.is_default).map(|l| l.value);
    if try_construct != TryConstruct::UseDefault {
        return marked;
    }
    match own.map(|member| value_default(schema, member)) {
        Some(DefaultValue::Int(value)) => i32::try_from(value).ok(),
        // An element inside the member's value.
        _ => marked.or(literals.first().map(|l| l.value)),
    }
}

/// The default of a type: false, 0, no text, no elements; of an enum the `@default_literal` or else
/// the first; of a union the case that its discriminator's default selects, or else the first.
pub fn zero_of<'a>(schema: &'a Schema, ty: &Type) -> DefaultValue<'a> {
    match schema.resolve(ty) {
        Type::Bool => DefaultValue::Bool(false),
        Type::Float32 | Type::Float64 | Type::Float128 => DefaultValue::Float(0.0),
        Type::Char8 | Type::Char16 => DefaultValue::Char(0),
        Type::String { .. } | Type::WString { .. } => DefaultValue::Text(""),
        Type::Sequence { .. } | Type::Map { .. } => DefaultValue::Empty,
        Type::Array { .. } => DefaultValue::Elements,
        Type::Def(id) => zero_of_def(schema, *id),
        _ => DefaultValue::Int(0),
    }
}

fn zero_of_def(schema: &Schema, id: DefId) -> DefaultValue<'_> {
    match &schema.def(id).kind {
        DefKind::Struct { .. } => DefaultValue::Members(id),
        DefKind::Enum { literals, .. } => {
            let marked = literals.iter().find(|l| l.is_default).or(literals.first());
            DefaultValue::Int(marked.map_or(0, |l| l.value.into()))
        }
        DefKind::Union { discriminator, cases, .. } => {
            let zero = match zero_of(schema, discriminator) {
                DefaultValue::Int(value) => value as i64,
                _ => 0,
            };
            let selected = cases.iter().position(|c| c.labels.contains(&zero));
            match selected.or_else(|| cases.iter().position(|c| c.is_default)) {
                Some(case) => DefaultValue::Case { discriminator: zero, case },
                None => {
                    let first = cases.first().and_then(|c| c.labels.first());
                    DefaultValue::Case { discriminator: first.copied().unwrap_or_default(), case: 0 }
                }
            }
        }
        DefKind::Bitmask { .. } | DefKind::Bitset { .. } | DefKind::Alias { .. } => DefaultValue::Int(0),
    }
}
