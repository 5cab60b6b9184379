//! The JSON Schema of the JSON that the codec `json` writes for a type.

use polywire::schema::{DefId, DefKind, Literal, Member, Schema, Type, array_shape};
use serde_json::{Value, json};

use crate::columns::is_decimal;

/// The maximum number of types, members and elements that are described. The rest is described as
/// any value.
const MAX_PARTS: usize = 20_000;

/// The maximum number of definitions inside each other that are described; those deeper are any
/// object. Recursive types have long paths.
const DEEPEST: usize = 64;

/// Returns the JSON Schema of a type, as one text. Types are described in place, because some
/// readers do not follow references; a recursive type is described as any object. NaN and the
/// infinities, which are strings in JSON, are not described.
pub(crate) fn json_schema(schema: &Schema) -> String {
    let mut writer = Writer { schema, open: Vec::new(), left: MAX_PARTS };
    let mut described = writer.of(schema.root());
    if let Value::Object(object) = &mut described {
        object.insert("$schema".into(), "http://json-schema.org/draft-07/schema#".into());
        object.insert("title".into(), schema.name().into());
    }
    described.to_string()
}

struct Writer<'a> {
    schema: &'a Schema,
    /// The structures and unions that are being described.
    open: Vec<DefId>,
    left: usize,
}

impl Writer<'_> {
    fn of(&mut self, ty: &Type) -> Value {
        if self.left == 0 {
            return json!({});
        }
        self.left -= 1;
        let schema = self.schema;
        match schema.resolve(ty) {
            Type::Bool => json!({ "type": "boolean" }),
            Type::Octet | Type::Uint8 | Type::Uint16 | Type::Uint32 | Type::Uint64 => {
                json!({ "type": "integer", "minimum": 0 })
            }
            Type::Int8 | Type::Int16 | Type::Int32 | Type::Int64 => json!({ "type": "integer" }),
            Type::Float32 | Type::Float64 => json!({ "type": "number" }),
            Type::Sequence { element, .. } => match schema.resolve(element) {
                Type::Octet => octets(),
                _ => json!({ "type": "array", "items": self.of(element) }),
            },
            array @ Type::Array { .. } => self.array(array),
            Type::Map { value, .. } => json!({ "type": "object", "additionalProperties": self.of(value) }),
            Type::Def(id) => self.def(*id),
            // Texts, characters, and `long double`, which is written as hexadecimal digits.
            _ => json!({ "type": "string" }),
        }
    }

    fn array(&mut self, ty: &Type) -> Value {
        let (element, dims) = array_shape(self.schema, ty);
        if dims.len() == 1 && *self.schema.resolve(element) == Type::Octet {
            return octets();
        }
        let element = self.of(element);
        dims.iter()
            .rev()
            .fold(element, |items, len| json!({ "type": "array", "items": items, "minItems": len, "maxItems": len }))
    }

    fn def(&mut self, id: DefId) -> Value {
        if self.open.contains(&id) || self.open.len() >= DEEPEST {
            return json!({ "type": "object" });
        }
        let schema = self.schema;
        self.open.push(id);
        let described = match &schema.def(id).kind {
            DefKind::Struct { .. } => self.structure(id),
            DefKind::Union { discriminator, cases, .. } => {
                let mut properties: serde_json::Map<String, Value> =
                    cases.iter().map(|case| (case.member.name.clone(), self.of(&case.member.ty))).collect();
                properties.insert("$discriminator".into(), self.of(discriminator));
                json!({ "type": "object", "properties": properties })
            }
            DefKind::Enum { literals, .. } => {
                let names: Vec<&str> = literals.iter().map(|literal| literal.name.as_str()).collect();
                json!({ "type": "string", "enum": names })
            }
            DefKind::Bitset { .. } => json!({ "type": "object", "additionalProperties": { "type": "integer" } }),
            DefKind::Alias { target } => self.of(target),
            _ => json!({ "type": "integer", "minimum": 0 }),
        };
        self.open.pop();
        described
    }

    /// Describes a member's type, and its unit as `unit`, which is an extension of JSON Schema.
    fn member(&mut self, member: &Member) -> Value {
        let mut described = self.of(&member.ty);
        if let (Value::Object(object), Some(unit)) = (&mut described, unit_of(member)) {
            object.insert("unit".into(), unit.into());
        }
        described
    }

    fn structure(&mut self, id: DefId) -> Value {
        let members = self.schema.members(id);
        if is_decimal(self.schema, &members) {
            return json!({ "type": "number" });
        }
        let properties: serde_json::Map<String, Value> =
            members.iter().map(|member| (member.name.clone(), self.member(member))).collect();
        let required: Vec<&str> =
            members.iter().filter(|member| !member.optional).map(|member| member.name.as_str()).collect();
        match required.is_empty() {
            true => json!({ "type": "object", "properties": properties }),
            false => json!({ "type": "object", "properties": properties, "required": required }),
        }
    }
}

/// Returns the unit of a member, from its annotation.
fn unit_of(member: &Member) -> Option<&str> {
    let unit = member.annotations.iter().find(|annotation| annotation.name == "unit")?;
    unit.args.iter().find_map(|(_, value)| match value {
        Literal::String(unit) => Some(unit.as_str()),
        _ => None,
    })
}

fn octets() -> Value {
    json!({ "type": "string", "contentEncoding": "base64" })
}

#[cfg(test)]
mod tests {
    use polywire::schema::{Case, Def, Member, SchemaBuilder};

    use super::*;

    #[test]
    fn every_type_is_described() {
        let mut types = SchemaBuilder::new();
        let colour = types.add(Def::enumeration("Colour", ["RED", "BLUE"]));
        let flags = types.add(Def::bitmask("Flags", 8, ["A"]));
        let decimal = types.add(Def::structure(
            "Decimal",
            vec![Member::new("exponent", Type::Int32), Member::new("mantissa", Type::Int64)],
        ));
        let case =
            |label: i64, name: &str, ty| Case { labels: vec![label], is_default: false, member: Member::new(name, ty) };
        let either =
            types.add(Def::union("Either", Type::Int32, vec![case(1, "a", Type::Bool), case(2, "b", Type::string())]));
        let root = types.add(Def::structure(
            "Root",
            vec![
                Member::new("level", Type::Float64).as_optional(),
                Member::new("blob", Type::array(Type::Octet, [4])),
                Member::new("grid", Type::array(Type::Octet, [2, 3])),
                Member::new("colour", Type::Def(colour)),
                Member::new("flags", Type::Def(flags)),
                Member::new("price", Type::Def(decimal)),
                Member::new("either", Type::Def(either)),
                Member::new("map", Type::map(Type::Int32, Type::sequence(Type::Uint64))),
            ],
        ));
        let schema = types.finish(Type::Def(root)).expect("a schema");
        let described: Value = serde_json::from_str(&json_schema(&schema)).expect("JSON");
        let expected = json!({
            "$schema": "http://json-schema.org/draft-07/schema#",
            "title": "Root",
            "type": "object",
            "properties": {
                "level": { "type": "number" },
                "blob": { "type": "string", "contentEncoding": "base64" },
                "grid": {
                    "type": "array", "minItems": 2, "maxItems": 2,
                    "items": {
                        "type": "array", "minItems": 3, "maxItems": 3, "items": { "type": "integer", "minimum": 0 }
                    }
                },
                "colour": { "type": "string", "enum": ["RED", "BLUE"] },
                "flags": { "type": "integer", "minimum": 0 },
                "price": { "type": "number" },
                "either": {
                    "type": "object",
                    "properties": {
                        "$discriminator": { "type": "integer" },
                        "a": { "type": "boolean" },
                        "b": { "type": "string" }
                    }
                },
                "map": {
                    "type": "object",
                    "additionalProperties": { "type": "array", "items": { "type": "integer", "minimum": 0 } }
                }
            },
            "required": ["blob", "grid", "colour", "flags", "price", "either", "map"]
        });
        assert_eq!(described, expected);
    }

    #[test]
    fn a_large_type_has_an_end() {
        let mut types = SchemaBuilder::new();
        let mut inner = types.add(Def::structure("S0", vec![Member::new("x", Type::Int32)]));
        for depth in 1..18 {
            let members = ["a", "b"].map(|name| Member::new(name, Type::Def(inner)));
            inner = types.add(Def::structure(format!("S{depth}"), members.into()));
        }
        let schema = types.finish(Type::Def(inner)).expect("a schema");
        assert!(json_schema(&schema).len() < MAX_PARTS * 100);
    }
}
