//! Generates records with random values, for any schema whose root is a structure.

use polywire_core::{
    layout::{Record, Shape, Value},
    schema::{DefKind, Schema, Type, arbitrary::Random},
};
use std::sync::Arc;

/// A record of random values. The root of its type must be a structure.
pub fn random_record(random: &mut Random, shape: &Arc<Shape>) -> Record {
    let mut record = Record::new(shape);
    let value = random_value(random, shape.schema(), shape.schema().root(), 4);
    match value {
        Value::Fields(fields) => {
            for (name, value) in fields {
                record.set(&name, value).unwrap_or_else(|error| panic!("{error}"));
            }
        }
        _ => unreachable!("random schemas have a structure at the root"),
    }
    record
}

fn random_value(random: &mut Random, schema: &Schema, ty: &Type, depth: usize) -> Value {
    match schema.resolve(ty) {
        Type::Bool => Value::Bool(random.one_in(2)),
        Type::Octet | Type::Uint8 | Type::Char8 => Value::Int((random.bits() & 0xFF).into()),
        Type::Int8 => Value::Int((random.bits() as i8).into()),
        Type::Int16 => Value::Int((random.bits() as i16).into()),
        Type::Uint16 | Type::Char16 => Value::Int((random.bits() as u16).into()),
        Type::Int32 => Value::Int((random.bits() as i32 >> random.below(31)).into()),
        Type::Uint32 => Value::Int((random.bits() as u32 >> random.below(31)).into()),
        Type::Int64 => Value::Int((random.bits() as i64 >> random.below(63)).into()),
        Type::Uint64 => Value::Int((random.bits() >> random.below(63)).into()),
        Type::Float32 => Value::Float(f64::from(f32::from_bits(random.bits() as u32)).into_plain_nan()),
        Type::Float64 | Type::Float128 => Value::Float(random_double(random)),
        Type::String { bound } | Type::WString { bound } => Value::Text(random_text(random, *bound as usize)),
        Type::Sequence { element, bound } => {
            let len = random.below(if *bound == 0 { 5 } else { 1 + *bound as usize }.min(20));
            let len = if depth == 0 { 0 } else { len };
            Value::List((0..len).map(|_| random_value(random, schema, element, depth - 1)).collect())
        }
        Type::Array { element, dims } => random_rows(random, schema, element, dims, depth),
        Type::Map { key, value, bound } => {
            let len = random.below(if *bound == 0 { 5 } else { 1 + *bound as usize }.min(5));
            let len = if depth == 0 { 0 } else { len };
            let entry = |random: &mut Random| {
                let key = random_value(random, schema, key, depth);
                (key, random_value(random, schema, value, depth - 1))
            };
            Value::Entries((0..len).map(|_| entry(random)).collect())
        }
        Type::Def(id) => match &schema.def(*id).kind {
            DefKind::Struct { .. } => {
                let mut fields = Vec::new();
                for member in schema.members(*id) {
                    let absent = member.optional && (depth == 0 || random.one_in(2));
                    let value = match absent {
                        true => Value::Absent,
                        false => random_value(random, schema, &member.ty, depth.saturating_sub(1)),
                    };
                    fields.push((member.name.clone(), value));
                }
                Value::Fields(fields)
            }
            DefKind::Union { cases, discriminator, .. } => {
                // If all values of the discriminator are labels, no value selects the default case.
                let roomy = matches!(schema.resolve(discriminator), Type::Int16 | Type::Int32 | Type::Int64);
                let chosen = random.choose(cases);
                let labelled = cases.iter().find(|c| !c.labels.is_empty());
                let case = if roomy { chosen } else { labelled.filter(|_| chosen.labels.is_empty()).unwrap_or(chosen) };
                match (depth == 0 || random.one_in(3), case.labels.as_slice()) {
                    (true, labels @ [_, ..]) => Value::Int((*random.choose(labels)).into()),
                    _ => {
                        let value = random_value(random, schema, &case.member.ty, depth.saturating_sub(1));
                        Value::fields([(case.member.name.clone(), value)])
                    }
                }
            }
            DefKind::Enum { literals, .. } => Value::Int(random.choose(literals).value.into()),
            DefKind::Bitmask { flags, .. } => {
                let bits = flags.iter().filter(|_| random.one_in(2)).map(|f| 1i128 << f.position);
                Value::Int(bits.sum())
            }
            DefKind::Bitset { .. } => {
                let named = schema.bit_fields(*id).into_iter().filter(|f| f.name.is_some());
                let bits = named.map(|f| (random.bits() & (u64::MAX >> (64 - f.width))) << f.position);
                Value::Int(bits.fold(0, |all, bits| all | bits).into())
            }
            DefKind::Alias { .. } => unreachable!("aliases are resolved"),
        },
    }
}

fn random_rows(random: &mut Random, schema: &Schema, element: &Type, dims: &[u32], depth: usize) -> Value {
    match dims.split_first() {
        None => random_value(random, schema, element, depth),
        Some((len, inner)) => {
            Value::List((0..*len).map(|_| random_rows(random, schema, element, inner, depth)).collect())
        }
    }
}

fn random_double(random: &mut Random) -> f64 {
    match random.below(4) {
        0 => f64::from_bits(random.bits()).into_plain_nan(),
        1 => random.below(100_000) as f64 / 4.0 - 1000.0,
        2 => *random.choose(&[0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 5e-324, f64::MAX]),
        _ => random.below(1_000_000) as f64 * 1e-6,
    }
}

trait PlainNan {
    /// Replaces a NaN by the standard one, because formats need not preserve its payload.
    fn into_plain_nan(self) -> f64;
}

impl PlainNan for f64 {
    fn into_plain_nan(self) -> f64 {
        if self.is_nan() { f64::NAN } else { self }
    }
}

fn random_text(random: &mut Random, bound: usize) -> String {
    const LETTERS: [&str; 14] =
        ["a", "Z", " ", "\"", "\\", "\n", "\u{1}", "\u{7f}", "ü", "€", "\u{2028}", "😀", "/", "{"];
    let longest = if random.one_in(8) { 60 } else { 8 };
    let len = random.below(longest);
    let mut text = String::new();
    for _ in 0..len {
        let letter = if random.one_in(3) { *random.choose(&LETTERS) } else { "x" };
        if bound > 0 && text.len() + letter.len() > bound {
            break;
        }
        text.push_str(letter);
    }
    text
}
