//! Types as message definitions of ROS 2, if ROS 2 supports them.

use std::collections::BTreeMap;

use polywire::schema::{DefId, DefKind, Extensibility, Schema, Type, array_shape};

/// The separator between the definitions of a type and of the types that it uses.
const LINE: &str = "================================================================================";

/// The maximum number of structures inside each other in a schema without recursive types.
const DEEPEST: usize = 64;

/// Returns the name of a type, `PACKAGE/msg/NAME`, and its definition with those of the types that
/// it uses. Returns `None` if ROS 2 cannot express the type: then readers need IDL.
pub(super) fn ros2msg(schema: &Schema) -> Option<(String, String)> {
    let Type::Def(root) = schema.resolve(schema.root()) else { return None };
    let mut writer = Writer { schema, names: BTreeMap::new(), open: Vec::new(), parts: Vec::new() };
    writer.definition(*root)?;
    // Each part comes after the parts that it uses, but the type itself must be the first.
    let mut parts = writer.parts.into_iter().rev();
    let (_, first) = parts.next()?;
    let others = parts.map(|(name, text)| format!("{LINE}\nMSG: {name}\n{text}"));
    let (package, name) = name_of(&schema.def(*root).name)?;
    Some((format!("{package}/msg/{name}"), [first].into_iter().chain(others).collect()))
}

struct Writer<'a> {
    schema: &'a Schema,
    /// The types that are written already or are being written, by their names in ROS 2.
    names: BTreeMap<String, DefId>,
    /// The types that are being written.
    open: Vec<DefId>,
    parts: Vec<(String, String)>,
}

impl Writer<'_> {
    /// Writes a structure and returns its name.
    fn definition(&mut self, id: DefId) -> Option<String> {
        let def = self.schema.def(id);
        let (package, name) = name_of(&def.name)?;
        let name = format!("{package}/{name}");
        // Only recursive types, which ROS 2 does not have, are inside each other more often.
        if self.open.len() >= DEEPEST {
            return None;
        }
        if let Some(known) = self.names.get(&name) {
            return (*known == id && !self.open.contains(&id)).then_some(name);
        }
        let members = self.schema.members(id);
        let is_structure = matches!(def.kind, DefKind::Struct { .. }) && def.extensibility != Extensibility::Mutable;
        if !is_structure || members.is_empty() {
            return None;
        }
        self.names.insert(name.clone(), id);
        self.open.push(id);
        let mut text = String::new();
        for member in members {
            if member.optional || !is_field(&member.name) {
                return None;
            }
            text += &format!("{} {}\n", self.field(&member.ty)?, member.name);
        }
        self.open.pop();
        self.parts.push((name.clone(), text));
        Some(name)
    }

    fn field(&mut self, ty: &Type) -> Option<String> {
        match self.schema.resolve(ty) {
            Type::Sequence { element, bound: 0 } => Some(format!("{}[]", self.element(element)?)),
            Type::Sequence { element, bound } => Some(format!("{}[<={bound}]", self.element(element)?)),
            array @ Type::Array { .. } => {
                let (element, dims) = array_shape(self.schema, array);
                let [len] = dims.as_slice() else { return None };
                Some(format!("{}[{len}]", self.element(element)?))
            }
            other => self.element(other),
        }
    }

    fn element(&mut self, ty: &Type) -> Option<String> {
        let name = match self.schema.resolve(ty) {
            Type::Bool => "bool",
            Type::Octet => "byte",
            Type::Int8 => "int8",
            Type::Uint8 => "uint8",
            Type::Int16 => "int16",
            Type::Uint16 => "uint16",
            Type::Int32 => "int32",
            Type::Uint32 => "uint32",
            Type::Int64 => "int64",
            Type::Uint64 => "uint64",
            Type::Float32 => "float32",
            Type::Float64 => "float64",
            Type::String { bound: 0 } => "string",
            Type::String { bound } => return Some(format!("string<={bound}")),
            Type::Def(id) => return self.definition(*id),
            // Readers disagree about characters, and some cannot read wide strings.
            _ => return None,
        };
        Some(name.to_owned())
    }
}

/// Returns package and name of a type: `a` and `B` for `a::msg::B` and for `a::B`.
fn name_of(scoped: &str) -> Option<(String, &str)> {
    let (scope, name) = scoped.rsplit_once("::").unwrap_or(("polywire", scoped));
    let package = scope.strip_suffix("::msg").unwrap_or(scope).replace("::", "_").to_ascii_lowercase();
    let is_name = name.starts_with(|first: char| first.is_ascii_uppercase())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (is_name && is_field(&package)).then_some((package, name))
}

/// Returns whether ROS 2 permits this name for a member.
fn is_field(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        && !name.contains("__")
        && !name.ends_with('_')
}

#[cfg(test)]
mod tests {
    use polywire_idl::Compiler;

    use super::*;

    fn of(idl: &str, name: &str) -> Option<(String, String)> {
        let document = Compiler::new().parse_str("a.idl", idl).expect("valid");
        ros2msg(&document.schema(name).expect("it is there"))
    }

    #[test]
    fn types_of_ros_have_definitions() {
        let idl = "module a { module msg {
            struct In { octet raw; string<8> name; };
            struct Out { In one; sequence<In> many; sequence<double, 3> few; int32 four[4]; boolean last; };
        }; };";
        let expected = "a/In one\na/In[] many\nfloat64[<=3] few\nint32[4] four\nbool last\n".to_owned()
            + LINE
            + "\nMSG: a/In\nbyte raw\nstring<=8 name\n";
        assert_eq!(of(idl, "a::msg::Out"), Some(("a/msg/Out".to_owned(), expected)));
        assert_eq!(of("struct P { long x; };", "P"), Some(("polywire/msg/P".to_owned(), "int32 x\n".to_owned())));
    }

    #[test]
    fn other_types_have_none() {
        for (idl, why) in [
            ("struct S { long Big; };", "capital letters"),
            ("struct S { @optional long a; };", "optional"),
            ("@mutable struct S { long a; };", "mutable"),
            ("struct S { long a[2][3]; };", "two dimensions"),
            ("struct S { sequence<sequence<long>> a; };", "a list of lists"),
            ("struct S { wstring a; };", "a wide text"),
            ("struct S { map<long, long> a; };", "a map"),
            ("enum E { A }; struct S { E a; };", "an enum"),
            ("struct S; struct S { sequence<S> a; };", "a type within itself"),
            ("struct S { };", "nothing"),
            (
                "module a { struct X { long a; }; }; module A_b { struct X { long b; }; };
              module a_b { struct X { long c; }; }; struct S { A_b::X a; a_b::X b; };",
                "one name for two",
            ),
        ] {
            let compiled = Compiler::new().parse_str("a.idl", idl);
            if let Ok(document) = compiled {
                assert_eq!(ros2msg(&document.schema("S").expect("it is there")), None, "{why}");
            }
        }
    }
}
