//! Finds members of a JSON text that its type does not have, for `pub` and `transcode`. A decoder
//! skips such members, because a newer writer may have added them; in JSON that a person wrote,
//! they are mistakes.

use polywire::schema::{DefKind, Schema, Type};
use serde_json::Value;

/// Describes the first unknown member: its path, its name, and the members that exist. `None` for a
/// text that is not JSON, which the decoder reports.
pub fn unknown_member(schema: &Schema, json: &str) -> Option<String> {
    let value: Value = serde_json::from_str(json).ok()?;
    find(schema, schema.root(), &value, "")
}

fn find(schema: &Schema, ty: &Type, value: &Value, path: &str) -> Option<String> {
    match (schema.resolve(ty), value) {
        (Type::Sequence { element, .. } | Type::Array { element, .. }, Value::Array(values)) => {
            values.iter().enumerate().find_map(|(i, value)| elements(schema, element, value, &format!("{path}[{i}]")))
        }
        (Type::Map { value: ty, .. }, Value::Object(entries)) => {
            entries.iter().find_map(|(key, value)| find(schema, ty, value, &format!("{path}[{key:?}]")))
        }
        (Type::Def(id), Value::Object(entries)) => {
            let members: Vec<(&str, &Type)> = match &schema.def(*id).kind {
                DefKind::Struct { .. } => schema.members(*id).into_iter().map(|m| (m.name.as_str(), &m.ty)).collect(),
                _ => return None,
            };
            entries.iter().find_map(|(name, value)| match members.iter().find(|(known, _)| known == name) {
                Some((_, ty)) => find(schema, ty, value, &join(path, name)),
                None => {
                    let there: Vec<&str> = members.iter().map(|(name, _)| *name).collect();
                    let colon = if path.is_empty() { "" } else { ": " };
                    Some(format!("{path}{colon}there is no member '{name}'; there are {}", there.join(", ")))
                }
            })
        }
        _ => None,
    }
}

/// Checks an element. In JSON, an array of several dimensions is a nested array.
fn elements(schema: &Schema, element: &Type, value: &Value, path: &str) -> Option<String> {
    match (schema.resolve(element), value) {
        (Type::Sequence { .. } | Type::Array { .. }, _) => find(schema, element, value, path),
        (_, Value::Array(rows)) => {
            rows.iter().enumerate().find_map(|(i, row)| elements(schema, element, row, &format!("{path}[{i}]")))
        }
        _ => find(schema, element, value, path),
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

#[cfg(test)]
mod tests {
    use polywire_idl::Compiler;

    use super::*;

    #[test]
    fn slips_are_found_wherever_they_are() {
        let text = "struct B { long x; }; struct A { B b; sequence<B> s; B grid[2][1]; map<string, B> m; string t; };";
        let schema = Compiler::new().parse_str("a.idl", text).expect("valid").schema("A").expect("there");
        let at =
            |json: &str| unknown_member(&schema, json).map(|text| text.split("there is").next().map(str::to_owned));
        assert_eq!(at(r#"{"b":{"x":1},"s":[{"x":1}],"grid":[[{"x":1}],[{}]],"m":{"y":{"x":1}}}"#), None);
        for (json, path) in [
            (r#"{"y":1}"#, ""),
            (r#"{"b":{"y":1}}"#, "b: "),
            (r#"{"s":[{},{"y":1}]}"#, "s[1]: "),
            (r#"{"grid":[[{}],[{"y":1}]]}"#, "grid[1][0]: "),
            (r#"{"m":{"k":{"y":1}}}"#, "m[\"k\"]: "),
        ] {
            assert_eq!(at(json), Some(Some(path.to_owned())), "{json}");
        }
    }
}
