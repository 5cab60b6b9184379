//! Generates the values of a case's messages: constant, random, walking, or replayed from a file.
//! The same seed gives the same values.

use std::{fs, path::Path, sync::Arc};

use polywire::{
    Record, Shape,
    codec::{Decoder, Options, json::JSON},
    extend::layout::{Value, ValueRef},
    schema::{DefKind, EnumLiteral, Member, Schema, Type, arbitrary::Random},
};

use crate::{Error, scenario::TypeSpec};

/// Default number of elements of sequences and maps.
const USUAL_LENGTH: usize = 4;

/// Beyond this depth, optional members are absent and collections are empty by default, so that
/// recursive types end.
const DEEPEST: usize = 6;

/// How the values of a topic are generated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueModel {
    /// The same value repeatedly: the best case for deltas and compressors.
    Constant,
    /// Each value is new and from its full range: the worst case.
    Random,
    /// Each member changes like real data of its kind: counters and times count, gauges drift,
    /// texts and states seldom change.
    Walking,
    /// JSON lines from a file; at the end of the file, it starts over.
    Replay(String),
}

impl ValueModel {
    /// Parses the name of a model.
    ///
    /// ```
    /// use polywire_measure::values::ValueModel;
    ///
    /// assert_eq!(ValueModel::parse("walking").unwrap(), ValueModel::Walking);
    /// assert_eq!(ValueModel::parse("replay:day.jsonl").unwrap(), ValueModel::Replay("day.jsonl".into()));
    /// assert!(ValueModel::parse("flying").is_err());
    /// ```
    ///
    /// # Errors
    /// [`Error::Scenario`] if no model has that name.
    pub fn parse(text: &str) -> Result<ValueModel, Error> {
        match (text, text.strip_prefix("replay:")) {
            ("constant", _) => Ok(ValueModel::Constant),
            ("random", _) => Ok(ValueModel::Random),
            ("walking", _) => Ok(ValueModel::Walking),
            (_, Some(file)) => Ok(ValueModel::Replay(file.into())),
            _ => Err(Error::Scenario(format!(
                "there is no value model '{text}'; there are constant, random, walking and replay:FILE"
            ))),
        }
    }

    /// Successive values of a type; equal seeds give equal values.
    ///
    /// # Errors
    /// [`Error::Values`] if recorded values cannot be read.
    pub fn records(
        &self,
        shape: &Arc<Shape>,
        count: usize,
        seed: u64,
        spec: &TypeSpec,
        folder: &Path,
    ) -> Result<Vec<Record>, Error> {
        let mut maker = Maker { schema: shape.schema(), random: Random::new(seed), spec };
        let first = |maker: &mut Maker<'_>| maker.fresh(maker.schema.root(), "", 0);
        match self {
            ValueModel::Replay(file) => replay(shape, &folder.join(file), count),
            ValueModel::Random => (0..count).map(|_| record(shape, &first(&mut maker))).collect(),
            ValueModel::Constant => {
                let one = record(shape, &first(&mut maker))?;
                Ok(vec![one; count])
            }
            ValueModel::Walking => {
                let mut value = maker.start(maker.schema.root(), "", 0);
                let step = |_| {
                    maker.walk(&mut value, maker.schema.root(), "", 0);
                    record(shape, &value)
                };
                (0..count).map(step).collect()
            }
        }
    }
}

fn record(shape: &Arc<Shape>, value: &Value) -> Result<Record, Error> {
    let mut record = Record::new(shape);
    let Value::Fields(fields) = value else { return Err(Error::Values("a topic's type is a structure".into())) };
    for (name, value) in fields {
        record.set(name, value.clone()).map_err(|error| Error::Values(format!("{name}: {error}")))?;
    }
    Ok(record)
}

fn replay(shape: &Arc<Shape>, file: &Path, count: usize) -> Result<Vec<Record>, Error> {
    let wrong = |line: usize, problem: String| Error::Values(format!("{}:{line}: {problem}", file.display()));
    let text = fs::read_to_string(file).map_err(|error| wrong(0, error.to_string()))?;
    let decoder = Decoder::for_shape(&JSON, &Options::default(), shape.schema(), shape)
        .map_err(|error| Error::Values(error.to_string()))?;
    let mut records = Vec::new();
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    for (number, line) in lines.take(count) {
        let mut record = Record::new(shape);
        decoder.decode(line.as_bytes(), &mut record).map_err(|error| wrong(number + 1, error.to_string()))?;
        records.push(record);
    }
    if records.is_empty() {
        return Err(wrong(0, "there is no message in it".into()));
    }
    Ok(records.iter().cycle().take(count).cloned().collect())
}

/// Generates values of a schema.
struct Maker<'a> {
    schema: &'a Schema,
    random: Random,
    spec: &'a TypeSpec,
}

impl Maker<'_> {
    /// Any value of a type, from its full range.
    fn fresh(&mut self, ty: &Type, name: &str, depth: usize) -> Value {
        self.make(ty, name, depth, true)
    }

    /// A start value for a walk: numbers are small, as in gauges and counters.
    fn start(&mut self, ty: &Type, name: &str, depth: usize) -> Value {
        self.make(ty, name, depth, false)
    }

    fn make(&mut self, ty: &Type, name: &str, depth: usize, wild: bool) -> Value {
        let ty = self.schema.resolve(ty).clone();
        match &ty {
            Type::Bool => Value::Bool(self.random.one_in(2)),
            Type::Float32 | Type::Float64 | Type::Float128 if wild => Value::Float(self.wild_float(&ty)),
            Type::Float32 | Type::Float64 | Type::Float128 => Value::Float(self.random.below(20_000) as f64 / 64.0),
            Type::Char8 | Type::Char16 => Value::Int(i128::from(b'A') + self.random.below(26) as i128),
            Type::String { bound } | Type::WString { bound } => Value::Text(self.text(*bound as usize, name)),
            Type::Sequence { element, bound } => {
                self.list(element, self.length(name, *bound, depth), name, depth, wild)
            }
            Type::Array { element, dims } => self.array(element, dims, name, depth, wild),
            Type::Map { key, value, bound } => {
                let entries = (0..self.length(name, *bound, depth)).map(|i| {
                    let key = self.key(key, i, depth);
                    (key, self.make(value, name, depth + 1, wild))
                });
                Value::Entries(entries.collect())
            }
            Type::Def(id) => match &self.schema.def(*id).kind {
                DefKind::Struct { .. } => {
                    let members: Vec<Member> = self.schema.members(*id).into_iter().cloned().collect();
                    let field = |member: &Member| (member.name.clone(), self.member(member, depth, wild));
                    Value::Fields(members.iter().map(field).collect())
                }
                DefKind::Union { cases, .. } => {
                    let case = cases[self.random.below(cases.len())].member.clone();
                    let value = self.make(&case.ty, &case.name, depth + 1, wild);
                    Value::Fields(vec![(case.name, value)])
                }
                DefKind::Enum { literals, .. } => literal(&mut self.random, literals),
                DefKind::Bitmask { flags, .. } => {
                    let set = flags.iter().filter(|_| self.random.one_in(2));
                    Value::Int(set.fold(0, |bits, flag| bits | 1 << flag.position))
                }
                _ => Value::Int(0),
            },
            integer => Value::Int(match wild {
                true => self.wild_integer(integer),
                false => self.random.below(100) as i128,
            }),
        }
    }

    fn member(&mut self, member: &Member, depth: usize, wild: bool) -> Value {
        match member.optional && (self.random.one_in(2) || depth > DEEPEST) {
            true => Value::Absent,
            false => self.make(&member.ty, &member.name, depth + 1, wild),
        }
    }

    fn list(&mut self, element: &Type, len: usize, name: &str, depth: usize, wild: bool) -> Value {
        if matches!(self.schema.resolve(element), Type::Octet | Type::Uint8) {
            // Pictures and blobs contain runs, not noise.
            let byte = |i: usize| (i / 16) as u8 ^ if wild { self.random.bits() as u8 } else { 0 };
            return Value::Bytes((0..len).map(byte).collect());
        }
        Value::List((0..len).map(|_| self.make(element, name, depth + 1, wild)).collect())
    }

    fn array(&mut self, element: &Type, dims: &[u32], name: &str, depth: usize, wild: bool) -> Value {
        match dims {
            [last] => self.list(element, *last as usize, name, depth, wild),
            [first, rest @ ..] => {
                Value::List((0..*first).map(|_| self.array(element, rest, name, depth, wild)).collect())
            }
            [] => self.make(element, name, depth, wild),
        }
    }

    fn length(&self, name: &str, bound: u32, depth: usize) -> usize {
        let usual = if depth > DEEPEST { 0 } else { USUAL_LENGTH };
        let wanted = self.spec.lengths.get(name).copied().unwrap_or(usual);
        if bound == 0 { wanted } else { wanted.min(bound as usize) }
    }

    fn key(&mut self, ty: &Type, index: usize, depth: usize) -> Value {
        match self.schema.resolve(ty) {
            Type::String { .. } | Type::WString { .. } => Value::Text(format!("key{index}")),
            Type::Bool => Value::Bool(index % 2 == 1),
            other if other.is_primitive() => Value::Int(index as i128 % 128),
            other => {
                let other = other.clone();
                self.make(&other, "", depth, false)
            }
        }
    }

    fn text(&mut self, bound: usize, name: &str) -> String {
        if let Some(text) = self.still(name) {
            return text.to_owned();
        }
        const SYLLABLES: [&str; 8] = ["RI", "VER", "LO", "MA", "TEN", "KA", "SU", "NOR"];
        let most = self.spec.lengths.get(name).copied().unwrap_or(if bound == 0 { 12 } else { bound.min(12) });
        let len = most.min(if bound == 0 { most } else { bound });
        let len = len - self.random.below(len / 3 + 1);
        let mut text = String::new();
        while text.len() < len {
            text.push_str(SYLLABLES[self.random.below(SYLLABLES.len())]);
        }
        text.truncate(len);
        text
    }

    /// The constant text of a member, if it has one.
    fn still(&self, name: &str) -> Option<&str> {
        let is_meant = |pattern: &str| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == pattern,
        };
        self.spec.texts.iter().find(|(pattern, _)| is_meant(pattern)).map(|(_, text)| text.as_str())
    }

    fn wild_float(&mut self, ty: &Type) -> f64 {
        // Any finite number of the width: random bits are sometimes not a number.
        loop {
            let value = match ty {
                Type::Float32 => f64::from(f32::from_bits(self.random.bits() as u32)),
                _ => f64::from_bits(self.random.bits()),
            };
            if value.is_finite() {
                return value;
            }
        }
    }

    fn wild_integer(&mut self, ty: &Type) -> i128 {
        let bits = self.random.bits();
        match ty {
            Type::Int8 => i128::from(bits as i8),
            Type::Int16 => i128::from(bits as i16),
            Type::Int32 => i128::from(bits as i32),
            Type::Int64 => i128::from(bits as i64),
            Type::Octet | Type::Uint8 => i128::from(bits as u8),
            Type::Uint16 => i128::from(bits as u16),
            Type::Uint32 => i128::from(bits as u32),
            _ => i128::from(bits),
        }
    }

    /// Advances a value to the topic's next value.
    fn walk(&mut self, value: &mut Value, ty: &Type, name: &str, depth: usize) {
        let ty = self.schema.resolve(ty).clone();
        match (value, &ty) {
            (Value::Fields(fields), Type::Def(id)) => match &self.schema.def(*id).kind {
                DefKind::Struct { .. } => {
                    let members: Vec<Member> = self.schema.members(*id).into_iter().cloned().collect();
                    for (member, (_, value)) in members.iter().zip(fields) {
                        match value {
                            // Whether an optional member is present stays the same for a while.
                            value if member.optional && self.random.one_in(200) => {
                                *value = self.member(member, depth, false);
                            }
                            Value::Absent => {}
                            value => self.walk(value, &member.ty, &member.name, depth + 1),
                        }
                    }
                }
                DefKind::Union { cases, .. } => {
                    let parts = fields.iter_mut().filter_map(|(name, value)| {
                        cases.iter().find(|case| case.member.name == *name).map(|case| (case.member.clone(), value))
                    });
                    parts.for_each(|(member, value)| self.walk(value, &member.ty, &member.name, depth + 1));
                }
                _ => {}
            },
            (Value::List(values), Type::Sequence { element, .. } | Type::Array { element, .. }) => {
                self.walk_list(values, element, name, depth);
            }
            (Value::Entries(entries), Type::Map { value: ty, .. }) => {
                entries.iter_mut().for_each(|(_, value)| self.walk(value, ty, name, depth + 1));
            }
            (Value::Bytes(bytes), _) if !bytes.is_empty() => {
                for _ in 0..bytes.len().div_ceil(64) {
                    let at = self.random.below(bytes.len());
                    bytes[at] = self.random.bits() as u8;
                }
            }
            (value, ty) => self.walk_leaf(value, ty, name),
        }
    }

    fn walk_list(&mut self, values: &mut [Value], element: &Type, name: &str, depth: usize) {
        for value in values {
            match value {
                Value::List(row) => self.walk_list(row, element, name, depth),
                value => self.walk(value, element, name, depth + 1),
            }
        }
    }

    fn walk_leaf(&mut self, value: &mut Value, ty: &Type, name: &str) {
        let (is_counter, is_identity) = (counts(name), identifies(name));
        match value {
            _ if is_identity => {}
            Value::Bool(value) => *value ^= self.random.one_in(20),
            Value::Text(_) | Value::Int(_) if !ty.is_primitive() && !self.random.one_in(20) => {}
            Value::Text(text) => {
                let bound = if let Type::String { bound } = ty { *bound as usize } else { text.len() };
                *text = self.text(bound, name);
            }
            Value::Int(_) if matches!(ty, Type::Def(_)) => *value = self.make(ty, name, 0, false),
            Value::Int(number) => {
                let (least, most) = range(ty);
                let step = if is_counter { 1 + self.random.below(3) as i128 } else { self.random.below(7) as i128 - 3 };
                let next = *number + step;
                *number = if (least..=most).contains(&next) { next } else { *number - step.signum() };
            }
            // Steps as large as those of sensors, not changes of the last of 52 bits.
            Value::Float(number) => *number += (self.random.below(17) as f64 - 8.0) / 64.0,
            _ => {}
        }
    }
}

fn literal(random: &mut Random, literals: &[EnumLiteral]) -> Value {
    Value::Int(literals[random.below(literals.len())].value.into())
}

/// Recognises members that count up, by common words in their names.
fn counts(name: &str) -> bool {
    let name = name.to_lowercase();
    ["seq", "count", "time", "number", "_ns", "sample", "total"].iter().any(|word| name.contains(word))
}

/// Recognises identifying members, which stay constant.
fn identifies(name: &str) -> bool {
    let name = name.to_lowercase();
    name.ends_with("id")
        || ["sign", "sender", "designator", "departure", "destination"].iter().any(|word| name.contains(word))
}

/// Range of an integer type. Enums and bitmasks need none, since they do not change in steps.
fn range(ty: &Type) -> (i128, i128) {
    match ty {
        Type::Int8 => (i8::MIN.into(), i8::MAX.into()),
        Type::Octet | Type::Uint8 => (0, u8::MAX.into()),
        Type::Char8 | Type::Char16 => (b'A'.into(), b'Z'.into()),
        Type::Int16 => (i16::MIN.into(), i16::MAX.into()),
        Type::Uint16 => (0, u16::MAX.into()),
        Type::Int32 => (i32::MIN.into(), i32::MAX.into()),
        Type::Uint32 => (0, u32::MAX.into()),
        Type::Int64 => (i64::MIN.into(), i64::MAX.into()),
        _ => (0, u64::MAX.into()),
    }
}

/// Bytes of a value's content: numbers at their width, strings by their bytes, nothing for
/// structure.
pub fn content_bytes(value: ValueRef<'_>, schema: &Schema, ty: &Type) -> usize {
    let ty = schema.resolve(ty);
    match (value, ty) {
        (ValueRef::Str(text), _) => text.len(),
        (ValueRef::Absent, _) => 0,
        (ValueRef::List(list), Type::Sequence { element, .. } | Type::Array { element, .. }) => match list.as_bytes() {
            Some(bytes) => bytes.len(),
            None => list.iter().map(|item| content_bytes(item, schema, of_row(&item, ty, element))).sum(),
        },
        (ValueRef::Struct(part), _) => {
            part.fields().into_iter().map(|(member, value)| content_bytes(value, schema, &member.ty)).sum()
        }
        (ValueRef::Union(part), _) => {
            1 + part.case().map_or(0, |(case, value)| content_bytes(value, schema, &case.member.ty))
        }
        (ValueRef::Map(part), Type::Map { key, value: ty, .. }) => {
            let entry = |(k, v)| content_bytes(k, schema, key) + content_bytes(v, schema, ty);
            part.entries().into_iter().map(entry).sum()
        }
        (_, ty) => width(schema, ty),
    }
}

/// The type of an item of an array. A row of a multidimensional array has the type of the whole
/// array.
fn of_row<'a>(item: &ValueRef<'_>, whole: &'a Type, element: &'a Type) -> &'a Type {
    match (item, whole) {
        (ValueRef::List(_), Type::Array { dims, .. }) if dims.len() > 1 => whole,
        _ => element,
    }
}

fn width(schema: &Schema, ty: &Type) -> usize {
    match ty {
        Type::Bool | Type::Octet | Type::Int8 | Type::Uint8 | Type::Char8 => 1,
        Type::Int16 | Type::Uint16 | Type::Char16 => 2,
        Type::Int32 | Type::Uint32 | Type::Float32 => 4,
        Type::Float128 => 16,
        Type::Def(id) => match &schema.def(*id).kind {
            DefKind::Enum { bit_bound, .. } | DefKind::Bitmask { bit_bound, .. } => {
                usize::from(*bit_bound).div_ceil(8).next_power_of_two()
            }
            _ => 8,
        },
        _ => 8,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use polywire_idl::Compiler;

    use super::*;

    const TEXT: &str = "enum Sky { CLEAR, RAIN }; bitmask Kit { A, B };
        union U switch (boolean) { case TRUE: float gust; case FALSE: long mean; };
        struct Part { short level; @optional string<5> remark; };
        struct Whole { string station_id; unsigned long seq; double gauge; Sky sky; Kit kit; U wind; sequence<Part> parts;
                       map<string, long> limits; octet blob[8]; long grid[2][3]; char grade; boolean up; };";

    fn shape() -> Arc<Shape> {
        let document = Compiler::new().parse_str("a.idl", TEXT).expect("valid");
        Shape::of(&document.schema("Whole").expect("there")).expect("a shape")
    }

    fn made(model: &ValueModel, seed: u64) -> Vec<Record> {
        let spec = TypeSpec {
            lengths: BTreeMap::from([("parts".to_owned(), 9)]),
            texts: BTreeMap::from([("rem*".to_owned(), "still".to_owned())]),
            ..TypeSpec::default()
        };
        model.records(&shape(), 40, seed, &spec, Path::new("")).expect("values")
    }

    #[test]
    fn models_do_what_their_names_say() {
        let constant = made(&ValueModel::Constant, 1);
        assert!(constant.iter().all(|record| *record == constant[0]));
        let walking = made(&ValueModel::Walking, 1);
        let seqs: Vec<u64> = walking.iter().map(|record| record.u64("seq").expect("a number")).collect();
        assert!(seqs.windows(2).all(|pair| pair[0] < pair[1] && pair[1] <= pair[0] + 3), "{seqs:?}");
        let stays = |record: &Record| record.str("station_id") == walking[0].str("station_id");
        assert!(walking.iter().all(stays));
        let gauge = |record: &Record| record.f64("gauge").expect("a number");
        assert!(walking.windows(2).all(|pair| (gauge(&pair[0]) - gauge(&pair[1])).abs() <= 0.125));
        let random = made(&ValueModel::Random, 1);
        assert!(random.windows(2).all(|pair| pair[0] != pair[1]));
        let remarks =
            random.iter().flat_map(|record| (0..9).filter_map(|i| record.str(&format!("parts[{i}].remark")).ok()));
        assert!(remarks.clone().count() > 100 && remarks.clone().all(|remark| remark == "still"));
        assert_eq!(
            random[0].get("parts").map(|parts| matches!(parts, ValueRef::List(list) if list.len() == 9)),
            Ok(true)
        );
    }

    #[test]
    fn a_seed_makes_the_values() {
        for model in [ValueModel::Constant, ValueModel::Random, ValueModel::Walking] {
            assert_eq!(made(&model, 7), made(&model, 7), "{model:?}");
            assert_ne!(made(&model, 7), made(&model, 8), "{model:?}");
        }
    }

    #[test]
    fn content_is_counted_without_structure() {
        let text = "struct A { boolean b; long l; string s; sequence<short> q; long grid[2][3]; @optional long o; };";
        let schema = Compiler::new().parse_str("a.idl", text).expect("valid").schema("A").expect("there");
        let mut record = Record::new(&Shape::of(&schema).expect("a shape"));
        record.set("s", "four").expect("set");
        record.resize("q", 3).expect("resized");
        assert_eq!(content_bytes(record.view(), &schema, schema.root()), 1 + 4 + 4 + 6 + 24);
    }
}
