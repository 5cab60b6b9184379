//! Values as rows of a table: the columns of a type, and the cells of a value.
//!
//! Members of a structure, and of nested structures, are columns of their own, named by their path:
//! `total.busy_percent`. Members that are not scalars, or are scalars that databases lack, are one
//! column with JSON: lists, maps, unions, bitsets, decimals, optional structures, `long double`. A
//! type that has more than [`MAX_COLUMNS`] members, or is not a structure, has one column `value`
//! with JSON.

use std::{borrow::Cow, collections::BTreeMap};

use polywire::{
    extend::layout::ValueRef,
    schema::{DefId, DefKind, Member, Schema, Type},
};
use serde_json::value::RawValue;

use crate::{Entry, HandlerError, JsonText};

/// The maximum number of columns of a type.
pub const MAX_COLUMNS: usize = 1000;

/// The columns of every table before the columns of its type.
pub(crate) const METADATA: [(&str, Column); 6] = [
    ("_topic", Column::Text),
    ("_writer", Column::Text),
    ("_incarnation", Column::Uint),
    ("_sequence", Column::Uint),
    ("_timestamp_ns", Column::Int),
    ("_kind", Column::Text),
];

/// Returns the cells of an entry in the columns of [`METADATA`]. `writer` is the text of its
/// writer's id.
pub(crate) fn metadata<'a>(entry: &'a Entry, writer: &'a str) -> [CellValue<'a>; 6] {
    [
        CellValue::Text(entry.topic()),
        CellValue::Text(writer),
        CellValue::Uint(entry.origin.incarnation),
        CellValue::Uint(entry.sequence),
        CellValue::Int(entry.timestamp_ns),
        CellValue::Text(entry.kind.name()),
    ]
}

/// The maximum depth of structures whose members are columns of their own.
const DEEPEST: usize = 16;

/// The type of a column's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Column {
    /// `boolean`
    Bool,
    /// An integer that fits into a signed 64-bit integer.
    Int,
    /// `uint64`, or a bitmask.
    Uint,
    /// `float`
    Float32,
    /// `double`
    Float64,
    /// A text, a character, or the name of an enum's literal.
    Text,
    /// Octets.
    Bytes,
    /// JSON, in the form of `spec/json.md`.
    Json,
}

/// A cell: the value of a row in a column.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum CellValue<'a> {
    /// An optional member that is absent.
    Absent,
    /// `boolean`
    Bool(bool),
    /// A signed integer. Also the value of an enum literal without a name, or an unpaired
    /// surrogate.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// `float`
    Float32(f32),
    /// `double`
    Float64(f64),
    /// A text.
    Text(&'a str),
    /// A character.
    Char(char),
    /// Octets.
    Bytes(&'a [u8]),
    /// A JSON text.
    Json(String),
}

/// The columns of a type.
///
/// ```
/// use polywire::{Message, Record, Shape};
/// use polywire_collector::{CellValue, Column, Columns, Entry, JsonText};
/// # #[derive(Default, Message)]
/// # struct Total { busy: f32 }
/// # #[derive(Default, Message)]
/// # struct Load { total: Total, cores: Vec<f32>, count: u64 }
///
/// let shape = Shape::of(Load::shape().schema())?;
/// let columns = Columns::of(shape.schema());
/// let names: Vec<&str> = columns.iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["total.busy", "cores", "count"]);
/// let entry = Entry::new(Default::default(), 1, 0, Record::new(&shape));
/// let mut json = JsonText::default();
/// let row = columns.row(&entry, &mut json)?;
/// assert_eq!(row, [CellValue::Float32(0.0), CellValue::Json("[]".into()), CellValue::Uint(0)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Columns {
    columns: Vec<(String, Column)>,
    /// `None` if the whole value is one column.
    members: Option<Vec<Part>>,
}

/// How a member is split into columns.
#[derive(Clone, Debug)]
enum Part {
    One(Column),
    Members(Vec<Part>),
}

impl Columns {
    /// Returns the columns of a type.
    pub fn of(schema: &Schema) -> Columns {
        let mut columns = Vec::new();
        match part_of(schema, schema.root(), &mut columns, &mut Vec::new()) {
            Part::Members(members) if columns.len() <= MAX_COLUMNS => Columns { columns, members: Some(members) },
            _ => Columns { columns: vec![("value".to_owned(), Column::Json)], members: None },
        }
    }

    /// Returns paths and types of the columns, in the order of the type.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Column)> {
        self.columns.iter().map(|(name, column)| (name.as_str(), *column))
    }

    /// Returns the cells of an entry of this type.
    pub fn row<'a>(&self, entry: &'a Entry, json: &mut JsonText) -> Result<Vec<CellValue<'a>>, HandlerError> {
        let Some(members) = &self.members else {
            return Ok(vec![CellValue::Json(json.value(entry)?.to_owned())]);
        };
        let wrong = |error: serde_json::Error| HandlerError::Refused(format!("its JSON cannot be divided: {error}"));
        let whole: Option<&RawValue> = match self.columns.iter().any(|(_, column)| *column == Column::Json) {
            true => Some(serde_json::from_str(json.value(entry)?).map_err(wrong)?),
            false => None,
        };
        let mut row = Vec::with_capacity(self.columns.len());
        add_members(members, entry.value.view(), whole, &mut row).map_err(wrong)?;
        Ok(row)
    }
}

/// Splits a type into columns, and appends them. `path` has the names of the enclosing members.
fn part_of<'a>(schema: &'a Schema, ty: &'a Type, columns: &mut Vec<(String, Column)>, path: &mut Vec<&'a str>) -> Part {
    if let Some(members) = own_columns(schema, ty).filter(|_| path.len() <= DEEPEST) {
        let mut parts = Vec::new();
        for member in members {
            path.push(&member.name);
            parts.push(match member.optional && column_of(schema, &member.ty) == Column::Json {
                true => one(Column::Json, columns, path),
                false => part_of(schema, &member.ty, columns, path),
            });
            path.pop();
            if columns.len() > MAX_COLUMNS {
                break;
            }
        }
        return Part::Members(parts);
    }
    one(column_of(schema, ty), columns, path)
}

fn one(column: Column, columns: &mut Vec<(String, Column)>, path: &[&str]) -> Part {
    columns.push((path.join("."), column));
    Part::One(column)
}

/// Returns the members of a structure, unless it is a decimal, which JSON represents as one number.
fn own_columns<'a>(schema: &'a Schema, ty: &'a Type) -> Option<Vec<&'a Member>> {
    let Type::Def(id) = schema.resolve(ty) else { return None };
    let DefKind::Struct { .. } = &schema.def(*id).kind else { return None };
    let members = schema.members(*id);
    Some(members).filter(|members| !is_decimal(schema, members))
}

pub(crate) fn is_decimal(schema: &Schema, members: &[&Member]) -> bool {
    let [exponent, mantissa] = members else { return false };
    let is = |member: &Member, name: &str, ty: Type| member.name == name && *schema.resolve(&member.ty) == ty;
    is(exponent, "exponent", Type::Int32) && is(mantissa, "mantissa", Type::Int64)
}

/// Returns the column of a type that has a single one.
fn column_of(schema: &Schema, ty: &Type) -> Column {
    match schema.resolve(ty) {
        Type::Bool => Column::Bool,
        Type::Int8 | Type::Int16 | Type::Int32 | Type::Int64 => Column::Int,
        Type::Octet | Type::Uint8 | Type::Uint16 | Type::Uint32 => Column::Int,
        Type::Uint64 => Column::Uint,
        Type::Float32 => Column::Float32,
        Type::Float64 => Column::Float64,
        Type::Char8 | Type::Char16 | Type::String { .. } | Type::WString { .. } => Column::Text,
        Type::Sequence { element, .. } => bytes_or_json(schema, element),
        Type::Array { element, dims } if dims.len() == 1 => bytes_or_json(schema, element),
        Type::Def(id) => column_of_def(schema, *id),
        _ => Column::Json,
    }
}

fn column_of_def(schema: &Schema, id: DefId) -> Column {
    match &schema.def(id).kind {
        DefKind::Enum { .. } => Column::Text,
        DefKind::Bitmask { .. } => Column::Uint,
        _ => Column::Json,
    }
}

fn bytes_or_json(schema: &Schema, element: &Type) -> Column {
    match schema.resolve(element) {
        Type::Octet => Column::Bytes,
        _ => Column::Json,
    }
}

/// Appends the cells of a structure's members. `raw` is its JSON, if any column needs it.
fn add_members<'a>(
    parts: &[Part],
    value: ValueRef<'a>,
    raw: Option<&RawValue>,
    row: &mut Vec<CellValue<'a>>,
) -> Result<(), serde_json::Error> {
    let ValueRef::Struct(structure) = value else { return Ok(()) };
    let texts: Option<BTreeMap<Cow<'_, str>, &RawValue>> =
        raw.map(|raw| serde_json::from_str(raw.get())).transpose()?;
    for (part, (member, value)) in parts.iter().zip(structure.fields()) {
        let raw = texts.as_ref().and_then(|texts| texts.get(member.name.as_str()).copied());
        match part {
            Part::Members(parts) => add_members(parts, value, raw, row)?,
            Part::One(Column::Json) => {
                row.push(raw.map_or(CellValue::Absent, |raw| CellValue::Json(raw.get().to_owned())));
            }
            Part::One(_) => row.push(cell(value)),
        }
    }
    Ok(())
}

/// Returns the cell of a scalar.
fn cell(value: ValueRef<'_>) -> CellValue<'_> {
    match value {
        ValueRef::Bool(truth) => CellValue::Bool(truth),
        ValueRef::Int(number) => CellValue::Int(number),
        ValueRef::Uint(number) => CellValue::Uint(number),
        ValueRef::Float32(number) => CellValue::Float32(number),
        ValueRef::Float64(number) => CellValue::Float64(number),
        ValueRef::Str(text) => CellValue::Text(text),
        ValueRef::Char8(character) => CellValue::Char(character.0.into()),
        ValueRef::Char16(unit) => unit.to_char().map_or(CellValue::Int(unit.0.into()), CellValue::Char),
        ValueRef::Enum(literal) if literal.name().is_empty() => CellValue::Int(literal.value().into()),
        ValueRef::Enum(literal) => CellValue::Text(literal.name()),
        ValueRef::Bitmask(mask) => CellValue::Uint(mask.bits()),
        ValueRef::List(list) => list.as_bytes().map_or(CellValue::Absent, CellValue::Bytes),
        _ => CellValue::Absent,
    }
}

/// Returns a number as in JSON, with words for infinities and NaN.
pub(crate) fn float_text(number: f64, shortest: String) -> String {
    match number {
        _ if number.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "Infinity".to_owned(),
        f64::NEG_INFINITY => "-Infinity".to_owned(),
        _ => shortest,
    }
}

#[cfg(test)]
mod tests {
    use polywire::{
        Record, Shape,
        schema::{Def, SchemaBuilder},
    };

    use super::*;

    fn structure(members: Vec<Member>) -> Schema {
        let mut types = SchemaBuilder::new();
        let root = types.add(Def::structure("S", members));
        types.finish(Type::Def(root)).expect("a schema")
    }

    #[test]
    fn everything_has_a_column() {
        let mut types = SchemaBuilder::new();
        let inner = types.add(Def::structure(
            "Inner",
            vec![Member::new("x", Type::Float64), Member::new("list", Type::sequence(Type::Int32))],
        ));
        let colour = types.add(Def::enumeration("Colour", ["RED", "BLUE"]));
        let flags = types.add(Def::bitmask("Flags", 8, ["A", "B"]));
        let decimal = types.add(Def::structure(
            "Decimal",
            vec![Member::new("exponent", Type::Int32), Member::new("mantissa", Type::Int64)],
        ));
        let root = types.add(Def::structure(
            "Root",
            vec![
                Member::new("inner", Type::Def(inner)),
                Member::new("maybe", Type::Def(inner)).as_optional(),
                Member::new("colour", Type::Def(colour)),
                Member::new("flags", Type::Def(flags)),
                Member::new("blob", Type::sequence(Type::Octet)),
                Member::new("level", Type::Int32).as_optional(),
                Member::new("big", Type::Uint64),
                Member::new("price", Type::Def(decimal)),
                Member::new("map", Type::map(Type::string(), Type::Int32)),
                Member::new("letter", Type::Char8),
                Member::new("a.b\"c", Type::Bool),
                Member::new("none", Type::sequence(Type::Int32)).as_optional(),
            ],
        ));
        let schema = types.finish(Type::Def(root)).expect("a schema");
        let columns = Columns::of(&schema);
        let names: Vec<&str> = columns.iter().map(|(name, _)| name).collect();
        let expected = [
            "inner.x",
            "inner.list",
            "maybe",
            "colour",
            "flags",
            "blob",
            "level",
            "big",
            "price",
            "map",
            "letter",
            "a.b\"c",
            "none",
        ];
        assert_eq!(names, expected);
        let mut record = Record::new(&Shape::of(&schema).expect("a shape"));
        record.set("inner.x", f64::NAN).expect("set");
        record.set("colour", "BLUE").expect("set");
        record.set("flags", 3u64).expect("set");
        record.set("blob", &[1u8, 2][..]).expect("set");
        record.set("big", u64::MAX).expect("set");
        record.set("price.mantissa", 9950).expect("set");
        record.set("price.exponent", -2).expect("set");
        record.set("map[\"k\"]", 7).expect("set");
        let entry = Entry::new(Default::default(), 1, 0, record);
        let mut json = JsonText::default();
        let row = columns.row(&entry, &mut json).expect("a row");
        assert!(matches!(row[0], CellValue::Float64(number) if number.is_nan()));
        let text = |text: &str| CellValue::Json(text.to_owned());
        assert_eq!(row[1..4], [text("[]"), CellValue::Absent, CellValue::Text("BLUE")]);
        assert_eq!(row[4..7], [CellValue::Uint(3), CellValue::Bytes(&[1, 2]), CellValue::Absent]);
        assert_eq!(row[7..10], [CellValue::Uint(u64::MAX), text("99.50"), text("{\"k\":7}")]);
        assert_eq!(row[10..], [CellValue::Char('\0'), CellValue::Bool(false), CellValue::Absent]);
    }

    #[test]
    fn a_type_with_too_many_members_is_one_column() {
        let members = (0..=MAX_COLUMNS).map(|number| Member::new(format!("m{number}"), Type::Int32));
        let schema = structure(members.collect());
        assert_eq!(Columns::of(&schema).iter().collect::<Vec<_>>(), [("value", Column::Json)]);
        let record = Record::new(&Shape::of(&schema).expect("a shape"));
        let (entry, mut json) = (Entry::new(Default::default(), 1, 0, record), JsonText::default());
        let row = Columns::of(&schema).row(&entry, &mut json).expect("a row");
        assert!(matches!(&row[..], [CellValue::Json(text)] if text.starts_with("{\"m0\":0,")));
    }
}
