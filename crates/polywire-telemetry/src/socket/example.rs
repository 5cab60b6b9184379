//! Derives the type of a probe from an example of a sample.

use std::collections::{BTreeMap, BTreeSet};

use polywire::schema::{Annotation, Def, Literal, Member, Schema, SchemaBuilder, Type};
use serde_json::{Map, Value};

use super::line::{LineError, Mistake, cut};

/// The maximum depth of nested structures.
const DEEPEST: usize = 16;

/// The maximum number of members of all structures together.
const MAX_MEMBERS: usize = 1000;

/// The maximum number of characters of a member's name.
const MAX_NAME: usize = 64;

/// Returns the type of an object: `double` for numbers with a point or an exponent, `int64` for
/// other numbers, `boolean`, `string`, a structure for an object, and a list of the type that all
/// elements share. Members are in the order of their names.
pub(super) fn schema_of(name: &str, example: &Value, units: &BTreeMap<String, String>) -> Result<Schema, LineError> {
    let Value::Object(members) = example else {
        return Err(Mistake::Type.because("an example must be an object, whose members are those of the probe"));
    };
    let mut types = Types { builder: SchemaBuilder::new(), units, used: BTreeSet::new(), members: 0 };
    let root = types.structure(name, members, "", 0)?;
    if let Some(unknown) = units.keys().find(|path| !types.used.contains(*path)) {
        let hint = polywire::suggest::hint(unknown, types.used.iter().map(String::as_str));
        return Err(
            Mistake::Type.because(format!("a unit of '{}', which the example does not have{hint}", cut(unknown)))
        );
    }
    types.builder.finish(root).map_err(|error| Mistake::Type.because(error))
}

struct Types<'a> {
    builder: SchemaBuilder,
    units: &'a BTreeMap<String, String>,
    /// The paths of the members that exist.
    used: BTreeSet<String>,
    members: usize,
}

impl Types<'_> {
    fn structure(
        &mut self,
        name: &str,
        members: &Map<String, Value>,
        path: &str,
        depth: usize,
    ) -> Result<Type, LineError> {
        if depth > DEEPEST || members.is_empty() {
            let reason = if members.is_empty() { "has no members" } else { "is too deep" };
            return Err(Mistake::Type.because(format!("the object '{}' {reason}", cut(path))));
        }
        let mut found = Vec::new();
        // Whether the parser keeps the order in the text depends on its features, so members are
        // sorted.
        let sorted: BTreeMap<&String, &Value> = members.iter().collect();
        for (member, value) in sorted {
            self.members += 1;
            if self.members > MAX_MEMBERS {
                return Err(Mistake::Type.because(format!("the example has more than {MAX_MEMBERS} members")));
            }
            let is_identifier = member.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                && member.starts_with(|c: char| c.is_ascii_alphabetic())
                && member.len() <= MAX_NAME;
            if !is_identifier {
                let text = format!(
                    "a member cannot have the name '{}': a letter, and then letters, digits and '_'",
                    cut(member)
                );
                return Err(Mistake::Type.because(text));
            }
            let path = if path.is_empty() { member.clone() } else { format!("{path}.{member}") };
            let ty = self.of(&format!("{name}_{member}"), value, &path, depth)?;
            let mut of = Member::new(member.as_str(), ty);
            if let Some(unit) = self.units.get(&path) {
                let args = vec![("value".to_owned(), Literal::String(unit.clone()))];
                of.annotations.push(Annotation { name: "unit".to_owned(), args });
            }
            self.used.insert(path);
            found.push(of);
        }
        let mut structure = Def::structure(name, found);
        structure.nested = depth > 0;
        Ok(Type::Def(self.builder.add(structure)))
    }

    fn of(&mut self, name: &str, value: &Value, path: &str, depth: usize) -> Result<Type, LineError> {
        Ok(match value {
            Value::Bool(_) => Type::Bool,
            Value::Number(number) if number.is_f64() => Type::Float64,
            Value::Number(number) if number.is_i64() => Type::Int64,
            Value::Number(_) => Type::Uint64,
            Value::String(_) => Type::string(),
            Value::Object(members) => self.structure(name, members, path, depth + 1)?,
            Value::Array(elements) => {
                let text = |what: &str| Mistake::Type.because(format!("the list '{}' {what}", cut(path)));
                let kind = elements.iter().try_fold(None, |before, element| match (before, kind_of(element)) {
                    (None, kind) => Ok(Some((kind, element))),
                    (Some((before, first)), kind) if before == kind => Ok(Some((before, first))),
                    // A list with integers and other numbers is a list of other numbers.
                    (Some(("integer", _)), "number") => Ok(Some(("number", element))),
                    (Some(("number", first)), "integer") => Ok(Some(("number", first))),
                    _ => Err(text("has elements of several types")),
                })?;
                let (_, element) = kind.ok_or_else(|| text("needs an element"))?;
                if depth >= DEEPEST {
                    return Err(text("is too deep"));
                }
                Type::sequence(self.of(name, element, path, depth + 1)?)
            }
            Value::Null => return Err(Mistake::Type.because(format!("'{}' is null, which has no type", cut(path)))),
        })
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "text",
        Value::Object(_) => "object",
        Value::Array(_) => "list",
        Value::Null => "null",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn idl(example: &Value, units: &[(&str, &str)]) -> Result<String, String> {
        let units = units.iter().map(|(path, unit)| ((*path).to_owned(), (*unit).to_owned())).collect();
        let schema = schema_of("plant::Pump", example, &units).map_err(|error| error.text)?;
        polywire_idl::emit::idl(&schema).map_err(|error| error.to_string())
    }

    #[test]
    fn an_example_has_a_type() {
        let example = json!({
            "bar": 2.5, "strokes": 7, "serial": u64::MAX, "on": true, "state": "up", "levels": [1, 2.5, 3],
            "motor": { "speed": 1e3, "phases": [{ "volt": 1 }] }, "grid": [[1], [2]]
        });
        let idl =
            idl(&example, &[("bar", "bar"), ("motor.speed", "1/min"), ("motor.phases.volt", "V")]).expect("a type");
        for line in [
            "@unit(\"bar\")",
            "double bar;",
            "int64 strokes;",
            "uint64 serial;",
            "boolean on;",
            "string state;",
            "sequence<double> levels;",
            "@unit(\"1/min\")",
            "double speed;",
            "@unit(\"V\")",
            "sequence<sequence<int64>> grid;",
        ] {
            assert!(idl.contains(line), "{line} in\n{idl}");
        }
    }

    #[test]
    fn examples_that_have_no_type_are_told() {
        for (example, units, expected) in [
            (json!(1), &[][..], "an example must be an object"),
            (json!({}), &[], "the object '' has no members"),
            (json!({ "a": {} }), &[], "the object 'a' has no members"),
            (json!({ "a": null }), &[], "'a' is null"),
            (json!({ "a": [] }), &[], "the list 'a' needs an element"),
            (json!({ "a": [1, "x"] }), &[], "the list 'a' has elements of several types"),
            (json!({ "a b": 1 }), &[], "a member cannot have the name 'a b'"),
            (json!({ "1": 1 }), &[], "a member cannot have the name '1'"),
            (
                json!({ "bar": 1 }),
                &[("baar", "bar")],
                "a unit of 'baar', which the example does not have, did you mean 'bar'?",
            ),
        ] {
            let told = idl(&example, units).expect_err(expected);
            assert!(told.starts_with(expected), "{told}");
        }
        let deep = (0..100).fold(json!(1), |inner, _| json!({ "a": inner }));
        assert!(idl(&deep, &[]).is_err_and(|told| told.ends_with("is too deep")));
        let deep = (0..100).fold(json!(1), |inner, _| json!([inner]));
        assert!(idl(&json!({ "a": deep }), &[]).is_err_and(|told| told.ends_with("is too deep")));
        let wide: Map<String, Value> = (0..=MAX_MEMBERS).map(|number| (format!("a{number}"), json!(1))).collect();
        assert!(idl(&Value::Object(wide), &[]).is_err_and(|told| told.contains("more than 1000 members")));
    }
}
