//! Converts the JSON of the vectors to values, to store them and to compare with them.

use polywire_core::{
    layout::{Float128, Value, ValueRef},
    schema::{DefKind, Schema, Type},
};
use serde_json::Value as Json;

/// Where a value is another than its JSON says; none if it is the same.
pub fn differs(value: &ValueRef<'_>, json: &Json) -> Option<String> {
    match value {
        ValueRef::List(list) => {
            let Json::Array(elements) = json else { return other(value, json) };
            if elements.len() != list.len() {
                return Some(format!("{} elements instead of {}", list.len(), elements.len()));
            }
            list.iter().zip(elements).find_map(|(element, json)| differs(&element, json))
        }
        ValueRef::Struct(structure) => {
            let fields = structure.fields();
            let there = fields.iter().filter(|(_, value)| !value.is_absent());
            if there.clone().count() != json.as_object().map_or(0, |members| members.len()) {
                return other(value, json);
            }
            let difference = |name: &str, field: &ValueRef<'_>| match json.get(name) {
                Some(json) => differs(field, json).map(|why| format!("{name}: {why}")),
                None => Some(format!("{name} should not be there")),
            };
            there.clone().find_map(|(member, field)| difference(&member.name, field))
        }
        ValueRef::Union(union) => {
            let case = union.case();
            let named = json.as_object()?.keys().find(|name| *name != "$discriminator");
            match (&case, named) {
                (None, None) => (json["$discriminator"] != union.discriminator()).then(|| "discriminator".into()),
                (Some((case, value)), Some(name)) if case.member.name == *name => {
                    let chosen = match &json["$discriminator"] {
                        Json::Number(number) => number.as_i64() == Some(union.discriminator()),
                        // The name of a literal of the one case that is the default.
                        Json::String(_) => case.is_default,
                        _ => case.labels.first() == Some(&union.discriminator()),
                    };
                    if chosen { differs(value, &json[name]) } else { Some("discriminator".into()) }
                }
                _ => other(value, json),
            }
        }
        ValueRef::Map(map) => {
            let entries = map.entries();
            if entries.len() != json.as_object()?.len() {
                return other(value, json);
            }
            let text = |key: &ValueRef<'_>| match key.as_str() {
                Some(text) => text.to_string(),
                None => key.as_i64().map_or_else(|| format!("{key:?}"), |number| number.to_string()),
            };
            entries.iter().find_map(|(key, value)| differs(value, &json[text(key)]))
        }
        ValueRef::Bitset(bitset) => bitset.fields().into_iter().find_map(|(field, number)| {
            let name = field.name.as_deref()?;
            let same = json[name].as_i64().map(i128::from) == Some(number) || json[name].as_bool() == Some(number != 0);
            (!same).then(|| format!("{name}: {number} instead of {}", json[name]))
        }),
        scalar => {
            if same_scalar(scalar, json) {
                None
            } else {
                other(value, json)
            }
        }
    }
}

fn other(value: &ValueRef<'_>, json: &Json) -> Option<String> {
    Some(format!("{value:?} instead of {json}"))
}

fn same_scalar(value: &ValueRef<'_>, json: &Json) -> bool {
    let letter = |code: u32| json.as_str().is_some_and(|s| s.chars().map(u32::from).eq([code]));
    match value {
        ValueRef::Bool(b) => json.as_bool() == Some(*b),
        ValueRef::Int(i) => json.as_i64() == Some(*i),
        ValueRef::Uint(u) => json.as_u64() == Some(*u),
        ValueRef::Float32(f) => {
            number(json).is_some_and(|n| (n as f32).to_bits() == f.to_bits() || n.is_nan() && f.is_nan())
        }
        ValueRef::Float64(f) => number(json).is_some_and(|n| n.to_bits() == f.to_bits() || n.is_nan() && f.is_nan()),
        ValueRef::Float128(f) => json.as_str() == Some(&long_double(f)),
        ValueRef::Char8(c) => letter(c.0.into()),
        ValueRef::Char16(c) => letter(c.0.into()),
        ValueRef::Str(s) => json.as_str() == Some(s),
        ValueRef::Enum(e) => json.as_str() == Some(e.name()),
        ValueRef::Bitmask(b) => json.as_u64() == Some(b.bits()),
        _ => false,
    }
}

fn long_double(value: &Float128) -> String {
    format!("0x{:032x}", value.to_bits())
}

fn number(json: &Json) -> Option<f64> {
    match json.as_str() {
        Some("NaN") => Some(f64::NAN),
        Some("Infinity") => Some(f64::INFINITY),
        Some("-Infinity") => Some(f64::NEG_INFINITY),
        _ => json.as_f64(),
    }
}

/// The value, to be stored in a record. None for what [`Value`] cannot say: the bits of a long
/// double or of a NaN, and a union's discriminator beside its case.
pub fn value_of(schema: &Schema, ty: &Type, json: &Json) -> Option<Value> {
    let each = |ty: &Type| -> Option<Vec<Value>> { json.as_array()?.iter().map(|v| value_of(schema, ty, v)).collect() };
    Some(match schema.resolve(ty) {
        Type::Float128 => return None,
        Type::Float32 | Type::Float64 => Value::Float(number(json).filter(|n| !n.is_nan())?),
        Type::Sequence { element, .. } => Value::List(each(element)?),
        Type::Array { element, dims } => rows(schema, element, dims, json)?,
        Type::Map { key, value, .. } => {
            let entry = |(name, json): (&String, &Json)| {
                let key = match schema.resolve(key) {
                    Type::String { .. } | Type::WString { .. } => Value::from(name.as_str()),
                    Type::Def(_) => Value::from(name.as_str()),
                    _ => Value::Int(name.parse().ok()?),
                };
                Some((key, value_of(schema, value, json)?))
            };
            Value::Entries(json.as_object()?.iter().map(entry).collect::<Option<_>>()?)
        }
        Type::Def(id) => match &schema.def(*id).kind {
            DefKind::Struct { .. } => {
                let members = schema.members(*id);
                let field = |(name, json): (&String, &Json)| {
                    let member = members.iter().find(|member| member.name == *name)?;
                    Some((name.clone(), value_of(schema, &member.ty, json)?))
                };
                Value::Fields(json.as_object()?.iter().map(field).collect::<Option<_>>()?)
            }
            DefKind::Union { cases, .. } => {
                if json.get("$discriminator").is_some() {
                    return None;
                }
                let (name, value) = json.as_object()?.iter().next()?;
                let case = cases.iter().find(|case| case.member.name == *name)?;
                Value::Fields(vec![(name.clone(), value_of(schema, &case.member.ty, value)?)])
            }
            DefKind::Bitset { .. } => {
                let field = |(name, json): (&String, &Json)| (name.clone(), plain(json));
                Value::Fields(json.as_object()?.iter().map(field).collect())
            }
            _ => plain(json),
        },
        _ => plain(json),
    })
}

fn rows(schema: &Schema, element: &Type, dims: &[u32], json: &Json) -> Option<Value> {
    let row = |json: &Json| match dims {
        [] | [_] => value_of(schema, element, json),
        [_, rest @ ..] => rows(schema, element, rest, json),
    };
    Some(Value::List(json.as_array()?.iter().map(row).collect::<Option<_>>()?))
}

fn plain(json: &Json) -> Value {
    match json {
        Json::Bool(b) => Value::Bool(*b),
        Json::String(s) => Value::from(s.as_str()),
        json => Value::Int(json.as_i64().map(i128::from).or(json.as_u64().map(i128::from)).unwrap_or_default()),
    }
}
