//! The value that a reader uses if the writer has none.

use crate::schema::{DefId, DefKind, Literal, Member, Schema, TryConstruct, Type};

/// A value that was not sent.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum DefaultValue<'a> {
    /// An absent optional member.
    Absent,
    /// A boolean.
    Bool(bool),
    /// An integer, an octet, the value of an enum, or the bits of a bitmask or bitset.
    Int(i128),
    /// A floating-point number of any size.
    Float(f64),
    /// A character's code point.
    Char(u32),
    /// A string or wide string.
    Text(&'a str),
    /// An empty sequence or map.
    Empty,
    /// An array. Each element is [`zero_of`] the element's type.
    Elements,
    /// A structure. Each member is [`default_of`] that member.
    Members(DefId),
    /// A union.
    Case {
        /// The value of its discriminator.
        discriminator: i64,
        /// Index of the case that the discriminator selects. Its member is [`default_of`] that
        /// member.
        case: usize,
    },
}

/// The value of a member for which the writer has no value: absent if it is optional, otherwise its
/// `@default`, otherwise [`zero_of`] its type.
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

/// The value that replaces a member's own value that does not fit, under
/// `@try_construct(USE_DEFAULT)`: its `@default`, otherwise [`zero_of`] its type.
///
/// For an optional member this value is present, because the writer's value was.
pub fn value_default<'a>(schema: &'a Schema, member: &'a Member) -> DefaultValue<'a> {
    // The builder converted the literal to the member's type.
    match &member.default {
        Some(Literal::Bool(value)) => DefaultValue::Bool(*value),
        Some(Literal::Int(value)) => DefaultValue::Int(*value),
        Some(Literal::Float(value)) => DefaultValue::Float(*value),
        Some(Literal::Char(code)) => DefaultValue::Char(*code),
        Some(Literal::String(text)) => DefaultValue::Text(text),
        Some(Literal::Enum(name)) => match schema.resolve(&member.ty) {
            Type::Def(id) => match schema.literal_named(*id, name) {
                Some(literal) => DefaultValue::Int(literal.value.into()),
                None => zero_of(schema, &member.ty),
            },
            ty => zero_of(schema, ty),
        },
        None => zero_of(schema, &member.ty),
    }
}

/// The value of a reader's member if the writer's optional member is absent in a message. `None` if
/// the message is refused.
///
/// This differs from [`default_of`], which is for members that the writer's type lacks. An absent
/// value states that there is none; only `@optional`, `@default` or `@try_construct(USE_DEFAULT)`
/// at the reader permits a substitute.
pub fn absent_value<'a>(schema: &'a Schema, member: &'a Member) -> Option<DefaultValue<'a>> {
    has_absent_value(member).then(|| default_of(schema, member))
}

/// True if [`absent_value`] returns a value.
pub(crate) fn has_absent_value(member: &Member) -> bool {
    member.optional || member.default.is_some() || member.try_construct == TryConstruct::UseDefault
}

/// The value that replaces a literal that the reader's enum does not have. `None` if the message is
/// refused.
///
/// `try_construct` belongs to the nearest surrounding member; `own` is that member if the value is
/// its own and not an element inside it. Discriminators have no substitute: an unknown literal
/// there is an unknown case.
pub fn unknown_literal(
    schema: &Schema,
    enumeration: DefId,
    try_construct: TryConstruct,
    own: Option<&Member>,
) -> Option<i32> {
    let DefKind::Enum { .. } = &schema.def(enumeration).kind else { return None };
    let marked = schema.marked_literal(enumeration).map(|l| l.value);
    if try_construct != TryConstruct::UseDefault {
        return marked;
    }
    match own.map(|member| value_default(schema, member)) {
        Some(DefaultValue::Int(value)) => i32::try_from(value).ok(),
        // An element inside the member's value.
        _ => schema.default_literal(enumeration).map(|l| l.value),
    }
}

/// The default value of a type: false, 0, empty text, no elements; for an enum its
/// `@default_literal` or the first literal; for a union the case that its discriminator's default
/// selects, or the first case.
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
        DefKind::Enum { .. } => DefaultValue::Int(schema.default_literal(id).map_or(0, |l| l.value.into())),
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
