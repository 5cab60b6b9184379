//! A type as ROS 2 describes it: `type_description_interfaces/msg/TypeDescription` in JSON, without
//! the default values, exactly as it is hashed.

use alloc::{
    collections::{BTreeMap, btree_map::Entry},
    format,
    string::{String, ToString as _},
    vec,
    vec::Vec,
};
use core::fmt::Write as _;

use super::names::{NameError, TypeName, is_word};
use crate::schema::{DefId, DefKind, Extensibility, Member, Schema, Type};

/// Why a type cannot be one of ROS 2.
///
/// ```
/// use polywire_core::ros::{TypeError, TypeHash};
/// use polywire_core::schema::{Def, Member, SchemaBuilder, Type};
/// let mut types = SchemaBuilder::new();
/// let map = Type::map(Type::string(), Type::Int32);
/// let id = types.add(Def::structure("p::msg::Counts", vec![Member::new("by_name", map)]));
/// let error = TypeHash::of(&types.finish(Type::Def(id))?).unwrap_err();
/// assert_eq!(error.to_string(), "p::msg::Counts.by_name: ROS 2 has no maps");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TypeError {
    /// A type's name cannot be one of ROS 2.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The type itself is no structure.
    #[error("only a structure can be a ROS 2 type")]
    Root,
    /// A definition is of a kind that ROS 2 does not have.
    #[error("{name}: ROS 2 has no {what}")]
    Kind {
        /// The definition.
        name: String,
        /// What it is, in the plural.
        what: &'static str,
    },
    /// A member is of a kind that ROS 2 does not have.
    #[error("{of}.{member}: ROS 2 has no {what}")]
    Member {
        /// The structure.
        of: String,
        /// Its member.
        member: String,
        /// What it is, in the plural.
        what: &'static str,
    },
    /// The types of requests and replies do not belong to one service.
    #[error(
        "'{request}' and '{reply}' are not the request and reply of one ROS 2 service, NAME_Request and NAME_Response"
    )]
    Service {
        /// The type of requests.
        request: String,
        /// The type of replies.
        reply: String,
    },
}

/// The description of a type whose SHA-256 is its hash.
///
/// ```
/// use polywire_core::ros::{TypeHash, description};
/// use polywire_core::schema::{Def, Member, SchemaBuilder, Type};
/// use sha2::{Digest, Sha256};
/// let mut types = SchemaBuilder::new();
/// let id = types.add(Def::structure("std_msgs::msg::String", vec![Member::new("data", Type::string())]));
/// let schema = types.finish(Type::Def(id))?;
/// let text = description(&schema)?;
/// assert!(text.starts_with(r#"{"type_description": {"type_name": "std_msgs/msg/String", "fields": [{"name": "data""#));
/// assert_eq!(TypeHash::of(&schema)?.to_bytes()[..], Sha256::digest(text)[..]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If the type cannot be one of ROS 2.
pub fn description(schema: &Schema) -> Result<String, TypeError> {
    let mut types = Types::default();
    let root = types.add(schema)?.to_string();
    Ok(types.text(&root))
}

/// The description of the service with these requests and replies. ROS 2 gives each service a type
/// of events, which is part of it.
///
/// ```
/// use polywire_core::ros::{TypeHash, service_description};
/// use polywire_core::schema::{Def, Member, Schema, SchemaBuilder, SchemaError, Type};
/// let part = |name: &str, field: &str, ty: Type| -> Result<Schema, SchemaError> {
///     let mut types = SchemaBuilder::new();
///     let id = types.add(Def::structure(name, vec![Member::new(field, ty)]));
///     types.finish(Type::Def(id))
/// };
/// let request = part("std_srvs::srv::SetBool_Request", "data", Type::Bool)?;
/// let reply = part("std_srvs::srv::SetBool_Response", "message", Type::string())?;
/// let text = service_description(&request, &reply)?;
/// assert!(text.starts_with(r#"{"type_description": {"type_name": "std_srvs/srv/SetBool", "#));
/// assert!(text.contains(r#""nested_type_name": "std_srvs/srv/SetBool_Event""#));
/// assert_ne!(TypeHash::of_service(&request, &reply)?, TypeHash::of(&request)?);
/// // A reply of another service.
/// let other = part("std_srvs::srv::Trigger_Response", "success", Type::Bool)?;
/// assert!(service_description(&request, &other).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If the types cannot be those of one service of ROS 2.
pub fn service_description(request: &Schema, reply: &Schema) -> Result<String, TypeError> {
    let mut types = Types::default();
    let (request, reply) = (types.add(request)?, types.add(reply)?);
    let of =
        |name: &TypeName<'_>, ending| name.service().filter(|_| name.name.ends_with(ending)).map(|of| of.to_string());
    let Some(service) = of(&request, "_Request").filter(|service| of(&reply, "_Response").as_ref() == Some(service))
    else {
        return Err(TypeError::Service { request: request.to_schema(), reply: reply.to_schema() });
    };
    let (request, reply, event) = (request.to_string(), reply.to_string(), format!("{service}_Event"));
    types.add_events(&event, &request, &reply);
    let parts = [("request_message", request), ("response_message", reply), ("event_message", event)];
    let fields = parts.iter().map(|(name, of)| Field::nested(name, of, Many::One)).collect();
    types.0.insert(service.clone(), fields);
    Ok(types.text(&service))
}

/// Types with their fields, by name.
#[derive(Default)]
pub(super) struct Types(pub(super) BTreeMap<String, Vec<Field>>);

pub(super) struct Field {
    pub(super) name: String,
    pub(super) ty: FieldType,
}

/// A `type_description_interfaces/msg/FieldType`.
pub(super) struct FieldType {
    /// One of [`id`], plus what [`Many`] adds.
    pub(super) id: u8,
    pub(super) capacity: u32,
    pub(super) string_capacity: u32,
    pub(super) nested: String,
}

/// How many values a field has.
#[derive(Clone, Copy)]
enum Many {
    One,
    Array(u32),
    /// Zero is unbounded.
    Sequence(u32),
}

/// The numbers of the types of single values.
mod id {
    use crate::schema::Type;

    /// What arrays, sequences with a bound and those without add to the number of an element.
    pub(super) const ARRAY: u8 = 48;
    pub(super) const BOUNDED: u8 = 96;
    pub(super) const UNBOUNDED: u8 = 144;

    pub(super) const NESTED: u8 = 1;
    pub(super) const UINT8: u8 = 3;
    pub(super) const INT32: u8 = 6;
    pub(super) const UINT32: u8 = 7;
    pub(super) const INT64: u8 = 8;
    pub(super) const STRING: u8 = 17;
    pub(super) const WSTRING: u8 = 18;
    pub(super) const BOUNDED_STRING: u8 = 21;
    pub(super) const BOUNDED_WSTRING: u8 = 22;

    const PRIMITIVES: [(u8, Type); 15] = [
        (2, Type::Int8),
        (UINT8, Type::Uint8),
        (4, Type::Int16),
        (5, Type::Uint16),
        (INT32, Type::Int32),
        (UINT32, Type::Uint32),
        (INT64, Type::Int64),
        (9, Type::Uint64),
        (10, Type::Float32),
        (11, Type::Float64),
        (12, Type::Float128),
        (13, Type::Char8),
        (14, Type::Char16),
        (15, Type::Bool),
        (16, Type::Octet),
    ];

    pub(super) fn of_primitive(ty: &Type) -> Option<u8> {
        PRIMITIVES.iter().find(|(_, primitive)| primitive == ty).map(|(id, _)| *id)
    }

    pub(super) fn to_primitive(id: u8) -> Option<Type> {
        PRIMITIVES.iter().find(|(primitive, _)| *primitive == id).map(|(_, ty)| ty.clone())
    }
}

impl Types {
    /// Adds the root of a schema and what it needs. Returns its name.
    pub(super) fn add<'a>(&mut self, schema: &'a Schema) -> Result<TypeName<'a>, TypeError> {
        let Type::Def(root) = schema.resolve(schema.root()) else { return Err(TypeError::Root) };
        let mut waiting = vec![*root];
        while let Some(id) = waiting.pop() {
            let name = TypeName::of_schema(&schema.def(id).name)?.to_string();
            if let Entry::Vacant(vacant) = self.0.entry(name) {
                vacant.insert(fields(schema, id, &mut waiting)?);
            }
        }
        Ok(TypeName::of_schema(&schema.def(*root).name)?)
    }

    /// Adds the type of a service's events and what it needs.
    fn add_events(&mut self, name: &str, request: &str, reply: &str) {
        const INFO: &str = "service_msgs/msg/ServiceEventInfo";
        const TIME: &str = "builtin_interfaces/msg/Time";
        let time = vec![Field::single("sec", id::INT32), Field::single("nanosec", id::UINT32)];
        let info = vec![
            Field::single("event_type", id::UINT8),
            Field::nested("stamp", TIME, Many::One),
            Field { name: "client_gid".into(), ty: FieldType::new(id::UINT8, Many::Array(16)) },
            Field::single("sequence_number", id::INT64),
        ];
        let event = vec![
            Field::nested("info", INFO, Many::One),
            Field::nested("request", request, Many::Sequence(1)),
            Field::nested("response", reply, Many::Sequence(1)),
        ];
        self.0.extend([(TIME.into(), time), (INFO.into(), info), (name.into(), event)]);
    }

    /// The JSON, with the type `root` first and the others in the order of their names.
    fn text(&self, root: &str) -> String {
        let mut out = String::from("{\"type_description\": ");
        self.type_text(root, &mut out);
        out.push_str(", \"referenced_type_descriptions\": [");
        for (number, name) in self.0.keys().filter(|name| *name != root).enumerate() {
            out.push_str(if number > 0 { ", " } else { "" });
            self.type_text(name, &mut out);
        }
        out.push_str("]}");
        out
    }

    fn type_text(&self, name: &str, out: &mut String) {
        // Writing to a string does not fail. Names need no escapes.
        let _ = write!(out, "{{\"type_name\": \"{name}\", \"fields\": [");
        for (number, Field { name, ty }) in self.0.get(name).into_iter().flatten().enumerate() {
            let FieldType { id, capacity, string_capacity, nested } = ty;
            out.push_str(if number > 0 { ", " } else { "" });
            let _ = write!(
                out,
                "{{\"name\": \"{name}\", \"type\": {{\"type_id\": {id}, \"capacity\": {capacity}, \"string_capacity\": \
                 {string_capacity}, \"nested_type_name\": \"{nested}\"}}}}"
            );
        }
        out.push_str("]}");
    }
}

impl Field {
    fn single(name: &str, id: u8) -> Field {
        Field { name: name.into(), ty: FieldType::new(id, Many::One) }
    }

    fn nested(name: &str, of: &str, many: Many) -> Field {
        Field { name: name.into(), ty: FieldType { nested: of.into(), ..FieldType::new(id::NESTED, many) } }
    }
}

impl FieldType {
    fn new(id: u8, many: Many) -> FieldType {
        let (plus, capacity) = match many {
            Many::One => (0, 0),
            Many::Array(length) => (id::ARRAY, length),
            Many::Sequence(0) => (id::UNBOUNDED, 0),
            Many::Sequence(bound) => (id::BOUNDED, bound),
        };
        FieldType { id: id + plus, capacity, string_capacity: 0, nested: String::new() }
    }

    /// The type of a member. `nested` finds structures by their names. `None` if there is no such
    /// type.
    pub(super) fn to_type(&self, nested: impl FnOnce(&str) -> Option<DefId>) -> Option<Type> {
        let many = [id::UNBOUNDED, id::BOUNDED, id::ARRAY, 0].into_iter().find(|plus| self.id > *plus)?;
        let element = match self.id - many {
            id::NESTED => Type::Def(nested(&self.nested)?),
            id::STRING => Type::String { bound: 0 },
            id::WSTRING => Type::WString { bound: 0 },
            id::BOUNDED_STRING => Type::String { bound: self.string_capacity },
            id::BOUNDED_WSTRING => Type::WString { bound: self.string_capacity },
            primitive => id::to_primitive(primitive)?,
        };
        Some(match many {
            id::ARRAY => Type::array(element, [self.capacity]),
            id::BOUNDED => Type::Sequence { element: element.into(), bound: self.capacity },
            id::UNBOUNDED => Type::sequence(element),
            _ => element,
        })
    }
}

/// The fields of a structure. Adds the structures that they need to `waiting`.
fn fields(schema: &Schema, id: DefId, waiting: &mut Vec<DefId>) -> Result<Vec<Field>, TypeError> {
    let def = schema.def(id);
    let kind = |what| Err(TypeError::Kind { name: def.name.clone(), what });
    match &def.kind {
        _ if def.extensibility == Extensibility::Mutable => kind("mutable types"),
        DefKind::Struct { base: None, members } => members
            .iter()
            .map(|member| {
                field(schema, member, waiting).map_err(|what| TypeError::Member {
                    of: def.name.clone(),
                    member: member.name.clone(),
                    what,
                })
            })
            .collect(),
        DefKind::Struct { base: Some(_), .. } => kind("structures with a base"),
        DefKind::Union { .. } => kind("unions"),
        DefKind::Enum { .. } => kind("enums"),
        DefKind::Bitmask { .. } => kind("bitmasks"),
        DefKind::Bitset { .. } => kind("bitsets"),
        DefKind::Alias { .. } => kind("aliases"),
    }
}

/// A member as a field, or what it is that ROS 2 does not have.
fn field(schema: &Schema, member: &Member, waiting: &mut Vec<DefId>) -> Result<Field, &'static str> {
    if member.optional {
        return Err("optional members");
    }
    if !is_word(&member.name) {
        return Err("names with other characters than letters, digits and '_'");
    }
    let (element, many) = match schema.resolve(&member.ty) {
        Type::Sequence { element, bound } => (&**element, Many::Sequence(*bound)),
        array @ Type::Array { .. } => match crate::schema::array_shape(schema, array) {
            (element, dims) if dims.len() == 1 => (element, Many::Array(dims[0])),
            _ => return Err("arrays of several dimensions"),
        },
        single => (single, Many::One),
    };
    let string = |id, bounded, bound| match bound {
        0 => FieldType::new(id, many),
        bound => FieldType { string_capacity: bound, ..FieldType::new(bounded, many) },
    };
    let ty = match schema.resolve(element) {
        Type::String { bound } => string(id::STRING, id::BOUNDED_STRING, *bound),
        Type::WString { bound } => string(id::WSTRING, id::BOUNDED_WSTRING, *bound),
        Type::Map { .. } => return Err("maps"),
        Type::Sequence { .. } | Type::Array { .. } => return Err("collections of collections"),
        Type::Def(id) => {
            waiting.push(*id);
            let nested =
                TypeName::of_schema(&schema.def(*id).name).map_or_else(|_| String::new(), |name| name.to_string());
            FieldType { nested, ..FieldType::new(id::NESTED, many) }
        }
        primitive => FieldType::new(id::of_primitive(primitive).ok_or("such types")?, many),
    };
    Ok(Field { name: member.name.clone(), ty })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Def, SchemaBuilder};

    fn schema(name: &str, members: Vec<Member>) -> Schema {
        let mut types = SchemaBuilder::new();
        let id = types.add(Def::structure(name, members));
        types.finish(Type::Def(id)).expect("a schema")
    }

    #[test]
    fn the_text_is_that_of_python() {
        let mut types = SchemaBuilder::new();
        let time = [Member::new("sec", Type::Int32), Member::new("nanosec", Type::Uint32)];
        let time = types.add(Def::structure("b::msg::Time", time.into()));
        let at = types.add(Def::alias("At", Type::Def(time)));
        let labels = Type::Sequence { element: Type::String { bound: 9 }.into(), bound: 2 };
        let members = [Member::new("at", Type::array(Type::Def(at), [3])), Member::new("labels", labels)];
        let root = types.add(Def::structure("a::msg::A", members.into()));
        let schema = types.finish(Type::Def(root)).expect("a schema");
        let expected = "{\"type_description\": {\"type_name\": \"a/msg/A\", \"fields\": [\
            {\"name\": \"at\", \"type\": {\"type_id\": 49, \"capacity\": 3, \"string_capacity\": 0, \
            \"nested_type_name\": \"b/msg/Time\"}}, \
            {\"name\": \"labels\", \"type\": {\"type_id\": 117, \"capacity\": 2, \"string_capacity\": 9, \
            \"nested_type_name\": \"\"}}]}, \
            \"referenced_type_descriptions\": [{\"type_name\": \"b/msg/Time\", \"fields\": [\
            {\"name\": \"sec\", \"type\": {\"type_id\": 6, \"capacity\": 0, \"string_capacity\": 0, \
            \"nested_type_name\": \"\"}}, \
            {\"name\": \"nanosec\", \"type\": {\"type_id\": 7, \"capacity\": 0, \"string_capacity\": 0, \
            \"nested_type_name\": \"\"}}]}]}";
        assert_eq!(description(&schema).as_deref(), Ok(expected));
    }

    #[test]
    fn what_ros_does_not_have_is_refused() {
        let of = |ty| schema("p::msg::M", vec![Member::new("m", ty)]);
        for (ty, reason) in [
            (Type::map(Type::Int8, Type::Int8), "ROS 2 has no maps"),
            (Type::sequence(Type::sequence(Type::Int8)), "ROS 2 has no collections of collections"),
            (Type::array(Type::Int8, [2, 3]), "ROS 2 has no arrays of several dimensions"),
        ] {
            let error = description(&of(ty)).expect_err(reason).to_string();
            assert_eq!(error, format!("p::msg::M.m: {reason}"));
        }
        let optional = schema("p::msg::M", vec![Member::new("m", Type::Int8).as_optional()]);
        assert!(description(&optional).is_err());
        assert!(matches!(description(&schema("plant::Pump", Vec::new())), Err(TypeError::Name(_))));
        let mut types = SchemaBuilder::new();
        let id = types.add(Def::enumeration("p::msg::E", ["A"]));
        let error = description(&types.finish(Type::Def(id)).expect("a schema")).expect_err("an enum");
        assert_eq!(error, TypeError::Kind { name: "p::msg::E".into(), what: "enums" });
        assert_eq!(description(&SchemaBuilder::new().finish(Type::Bool).expect("a schema")), Err(TypeError::Root));
    }

    #[test]
    fn a_recursive_type_has_a_description() {
        let mut types = SchemaBuilder::new();
        let id = DefId(0);
        types.add(Def::structure("p::msg::Tree", vec![Member::new("children", Type::sequence(Type::Def(id)))]));
        let schema = types.finish(Type::Def(id)).expect("a schema");
        assert!(description(&schema).is_ok_and(|text| text.contains("\"type_id\": 145")));
    }

    #[test]
    fn requests_and_replies_of_different_services_are_refused() {
        let of = |name| schema(name, vec![Member::new("a", Type::Int64)]);
        assert!(service_description(&of("p::srv::A_Request"), &of("p::srv::A_Response")).is_ok());
        for (request, reply) in [
            ("p::srv::A_Request", "p::srv::B_Response"),
            ("p::srv::A_Response", "p::srv::A_Request"),
            ("p::msg::A_Request", "p::msg::A_Response"),
        ] {
            let error = service_description(&of(request), &of(reply)).expect_err(request);
            assert_eq!(error, TypeError::Service { request: request.into(), reply: reply.into() });
        }
    }
}
