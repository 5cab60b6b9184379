//! Random values of all types.

use std::sync::Arc;

use polywire_core::{
    layout::{Record, Shape, Value},
    schema::{BitField, Case, DefId, DefKind, Member, Schema, Type, arbitrary::Random},
};

/// How deep values of types that contain themselves go, or any others.
const MAX_DEPTH: u32 = 7;

/// A record with a random value.
pub fn random_record(random: &mut Random, shape: &Arc<Shape>) -> Record {
    let mut record = Record::new(shape);
    let schema = shape.schema();
    let value = Maker { random, schema }.value(schema.root(), 0);
    record.set("", value).unwrap_or_else(|error| panic!("{error}: {}", schema.name()));
    record
}

struct Maker<'m> {
    random: &'m mut Random,
    schema: &'m Schema,
}

impl Maker<'_> {
    fn value(&mut self, ty: &Type, depth: u32) -> Value {
        match self.schema.resolve(ty) {
            Type::Bool => Value::Bool(self.random.one_in(2)),
            Type::Int8 => Value::from(self.random.bits() as i8),
            Type::Octet | Type::Uint8 | Type::Char8 => Value::from(self.random.bits() as u8),
            Type::Int16 => Value::from(self.random.bits() as i16),
            Type::Uint16 | Type::Char16 => Value::from(self.random.bits() as u16),
            Type::Int32 => Value::from(self.random.bits() as i32),
            Type::Uint32 => Value::from(self.random.bits() as u32),
            Type::Int64 => Value::from(self.random.bits() as i64),
            Type::Uint64 => Value::from(self.random.bits()),
            Type::Float32 => Value::from(self.random.bits() as i32 as f32 / 8.0),
            Type::Float64 | Type::Float128 => Value::from(self.random.bits() as i64 as f64 / 8.0),
            Type::String { bound } => Value::from(self.text(*bound, char::len_utf8)),
            Type::WString { bound } => Value::from(self.text(*bound, char::len_utf16)),
            Type::Sequence { element, bound } => {
                let len = self.len(*bound, depth);
                Value::List((0..len).map(|_| self.value(element, depth + 1)).collect())
            }
            Type::Array { element, dims } => self.rows(element, dims, depth),
            Type::Map { key, value, bound } => {
                let len = self.len(*bound, depth);
                let entries = (0..len).map(|_| (self.value(key, depth + 1), self.value(value, depth + 1)));
                Value::Entries(entries.collect())
            }
            Type::Def(id) => self.def(*id, depth),
        }
    }

    fn def(&mut self, id: DefId, depth: u32) -> Value {
        let schema = self.schema;
        match &schema.def(id).kind {
            DefKind::Struct { .. } => {
                let field = |member: &Member| {
                    let absent = member.optional && (depth >= MAX_DEPTH || self.random.one_in(2));
                    let value = if absent { Value::Absent } else { self.value(&member.ty, depth + 1) };
                    (member.name.clone(), value)
                };
                Value::Fields(schema.members(id).into_iter().map(field).collect())
            }
            DefKind::Union { cases, .. } => {
                // Behind labels for every value, no discriminator is left for a default.
                let labelled: Vec<_> = cases.iter().filter(|case| !case.labels.is_empty()).collect();
                let cases = if labelled.is_empty() { cases.iter().collect() } else { labelled };
                let case = match depth >= MAX_DEPTH {
                    // The shallowest case ends the recursion.
                    true => {
                        let depth =
                            |case: &&&Case| least_depth(schema, &case.member.ty, &mut vec![id]).unwrap_or(u32::MAX);
                        cases.iter().min_by_key(depth).expect("a union has cases")
                    }
                    false => self.random.choose(&cases),
                };
                let value = self.value(&case.member.ty, depth + 1);
                Value::fields([(case.member.name.clone(), value)])
            }
            DefKind::Enum { literals, .. } => Value::from(self.random.choose(literals).value),
            DefKind::Bitmask { flags, .. } => {
                let set = flags.iter().filter(|_| self.random.one_in(2));
                Value::List(set.map(|flag| Value::from(flag.name.as_str())).collect())
            }
            DefKind::Bitset { .. } => {
                let field = |field: &BitField| {
                    let bits = self.random.bits() & u64::MAX >> (64 - u32::from(field.width));
                    field.name.clone().map(|name| (name, Value::from(bits)))
                };
                Value::Fields(schema.bit_fields(id).into_iter().filter_map(field).collect())
            }
            DefKind::Alias { target } => self.value(target, depth),
        }
    }

    fn rows(&mut self, element: &Type, dims: &[u32], depth: u32) -> Value {
        let (here, rest) = dims.split_first().expect("an array has dimensions");
        let row = (0..*here).map(|_| match rest {
            [] => self.value(element, depth + 1),
            rest => self.rows(element, rest, depth),
        });
        Value::List(row.collect())
    }

    fn len(&mut self, bound: u32, depth: u32) -> usize {
        match depth {
            MAX_DEPTH.. => 0,
            _ => self.random.below(4).min(if bound == 0 { 4 } else { bound as usize }),
        }
    }

    fn text(&mut self, bound: u32, units: fn(char) -> usize) -> String {
        let mut left = if bound == 0 { 12 } else { bound as usize };
        let mut text = String::new();
        for _ in 0..self.random.below(12) {
            let c = *self.random.choose(&['a', 'Z', '0', ' ', 'é', '€', '𝄞', '\n']);
            match left.checked_sub(units(c)) {
                Some(rest) => left = rest,
                None => break,
            }
            text.push(c);
        }
        text
    }
}

/// How deep the shallowest value of a type is; none for one that contains itself on this way.
fn least_depth(schema: &Schema, ty: &Type, open: &mut Vec<DefId>) -> Option<u32> {
    match schema.resolve(ty) {
        Type::Array { element, .. } => least_depth(schema, element, open),
        Type::Def(id) if open.contains(id) => None,
        Type::Def(id) => {
            open.push(*id);
            let depth = match &schema.def(*id).kind {
                DefKind::Struct { .. } => {
                    let mandatory = schema.members(*id).into_iter().filter(|member| !member.optional);
                    let depths = mandatory.map(|member| least_depth(schema, &member.ty, open));
                    depths.collect::<Option<Vec<u32>>>().map(|depths| depths.into_iter().max().unwrap_or(0))
                }
                DefKind::Union { cases, .. } => {
                    cases.iter().filter_map(|case| least_depth(schema, &case.member.ty, open)).min()
                }
                _ => Some(0),
            };
            open.pop();
            depth.map(|depth| depth + 1)
        }
        _ => Some(0),
    }
}
