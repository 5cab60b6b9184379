//! How nodes of ROS 2 tell the structure of their types: by a service, of the type
//! `type_description_interfaces/srv/GetTypeDescription`, which has the name of the node in front of
//! [`NAME`]. ROS 2 has it since Jazzy.

use alloc::{
    collections::BTreeMap,
    string::{String, ToString as _},
    vec,
    vec::Vec,
};

use super::{
    TypeError, TypeHash, TypeName,
    cdr::{Input, Output},
    description::{Field, FieldType, Types},
    names::is_word,
};
use crate::schema::{Def, DefId, Member, Schema, SchemaBuilder, SchemaError, Type};

/// The last level of the service's name.
pub const NAME: &str = "get_type_description";

/// The name of the service's type in DDS and Zenoh.
pub const TYPE_NAME: &str = "type_description_interfaces::srv::dds_::GetTypeDescription_";

/// The hash of the service's type.
pub const TYPE_HASH: &str = "RIHS01_69b9c19c1021405984cc60dbbb1edceb147a6538b411d812ba6afabeed962cd5";

/// Most types that an answer may describe, and most fields of all of them together.
const MAX_TYPES: usize = 1024;
const MAX_FIELDS: usize = 16_384;

/// Longest name of a type or field, in bytes.
const MAX_NAME_BYTES: usize = 255;

/// A question for the structure of a type.
///
/// ```
/// use polywire_core::ros::{TypeHash, type_query::{AnswerError, TypeQuery, answer}};
/// use polywire_core::schema::{Def, Member, SchemaBuilder, Type};
/// let mut types = SchemaBuilder::new();
/// let id = types.add(Def::structure("std_msgs::msg::String", vec![Member::new("data", Type::string())]));
/// let schema = types.finish(Type::Def(id))?;
///
/// let query = TypeQuery { type_name: "std_msgs/msg/String".into(), type_hash: TypeHash::of(&schema)? };
/// assert_eq!(TypeQuery::parse(&query.to_cdr()), Some(query.clone()));
/// let told = answer(&query.to_cdr(), |_| Ok(schema.clone()));
/// assert_eq!(query.schema(&told), Ok(schema.clone()));
/// assert_eq!(query.schema(&answer(&query.to_cdr(), |_| Err("no"))), Err(AnswerError::Refused("no".into())));
///
/// // Nobody has to be believed.
/// assert_eq!(query.schema(b"?"), Err(AnswerError::Malformed));
/// let other = TypeQuery { type_hash: TypeHash::from_bytes([7; 32]), ..query };
/// assert_eq!(other.schema(&told), Err(AnswerError::Hash { got: TypeHash::of(&schema)? }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeQuery {
    /// The type's name as in ROS 2, `std_msgs/msg/String`.
    pub type_name: String,
    /// The type's hash.
    pub type_hash: TypeHash,
}

/// Why an answer does not tell the type that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// The node does not tell it.
    #[error("the node says: {0}")]
    Refused(String),
    /// The bytes are no answer.
    #[error("the answer is malformed")]
    Malformed,
    /// The answer describes too many types or fields.
    #[error("the answer describes more than {MAX_TYPES} types or {MAX_FIELDS} fields")]
    Long,
    /// A field has a type that does not exist, or that the answer does not describe.
    #[error("{of}.{field} has a type that does not exist")]
    Field {
        /// The structure.
        of: String,
        /// Its field.
        field: String,
    },
    /// The types do not fit together.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// The type cannot be one of ROS 2.
    #[error(transparent)]
    Type(#[from] TypeError),
    /// It is another type.
    #[error("the type that the answer describes has the hash {got}")]
    Hash {
        /// The hash of what the answer describes.
        got: TypeHash,
    },
}

impl TypeQuery {
    /// The request in CDR, little endian, behind its encapsulation header. It does not ask for the
    /// files that the type was defined in.
    pub fn to_cdr(&self) -> Vec<u8> {
        let mut out = Output::new();
        out.text(&self.type_name);
        out.text(&self.type_hash.to_string());
        out.put(&[0]);
        out.finish()
    }

    /// Reads a request in CDR behind its encapsulation header. `None` if it is malformed, or names
    /// no hash. The bytes may come from anybody.
    pub fn parse(request: &[u8]) -> Option<TypeQuery> {
        let mut input = Input::new(request)?;
        let (type_name, hash) = (name(&mut input)?, name(&mut input)?);
        Some(TypeQuery { type_name, type_hash: hash.parse().ok()? })
    }

    /// Reads an answer to this question, in CDR behind its encapsulation header. The bytes may come
    /// from anybody: what they describe must have the hash that was asked for.
    ///
    /// # Errors
    /// If the answer does not describe the type.
    pub fn schema(&self, answer: &[u8]) -> Result<Schema, AnswerError> {
        let mut input = Input::new(answer).ok_or(AnswerError::Malformed)?;
        let is_successful = input.byte().ok_or(AnswerError::Malformed)?;
        let reason = input.text().ok_or(AnswerError::Malformed)?;
        if is_successful != 1 {
            // A reason is for people, who need no more of it.
            return Err(AnswerError::Refused(reason.chars().take(MAX_NAME_BYTES).collect()));
        }
        let schema = built(&described(&mut input)?)?;
        let got = TypeHash::of(&schema)?;
        match got == self.type_hash {
            true => Ok(schema),
            false => Err(AnswerError::Hash { got }),
        }
    }
}

/// The answer to a request: both in CDR behind their encapsulation headers, the answer in little
/// endian. The request may come from anybody. `find` gives the type, or why it is not told.
pub fn answer(request: &[u8], find: impl FnOnce(&TypeQuery) -> Result<Schema, &'static str>) -> Vec<u8> {
    let found = match TypeQuery::parse(request) {
        Some(query) => find(&query).map_err(String::from),
        None => Err("the request is malformed, or names no hash".into()),
    };
    let answer = found.and_then(|schema| description_of(&schema).map_err(|error| error.to_string()));
    answer.unwrap_or_else(|reason| refusal(&reason))
}

/// The answer that describes a type.
///
/// # Errors
/// If the type cannot be one of ROS 2.
fn description_of(schema: &Schema) -> Result<Vec<u8>, TypeError> {
    let mut types = Types::default();
    let root = types.add(schema)?.to_string();
    let mut out = Output::new();
    out.put(&[1]);
    out.text("");
    put_individual(&mut out, &root, types.0.get(&root).map(Vec::as_slice).unwrap_or_default());
    out.count(types.0.len() - 1);
    types.0.iter().filter(|(name, _)| **name != root).for_each(|(name, fields)| put_individual(&mut out, name, fields));
    // Neither sources nor extra information.
    out.count(0);
    out.count(0);
    Ok(out.finish())
}

/// The answer that a type is not told, for this reason.
fn refusal(reason: &str) -> Vec<u8> {
    let mut out = Output::new();
    out.put(&[0]);
    out.text(reason);
    out.text("");
    // No fields, referenced types, sources and extra information.
    (0..4).for_each(|_| out.count(0));
    out.finish()
}

/// Types with their names, the root in front.
type Described = Vec<(String, Vec<Field>)>;

/// The schema of described types.
fn built(types: &Described) -> Result<Schema, AnswerError> {
    // What is there twice is refused by the builder.
    let ids: BTreeMap<&str, DefId> = types.iter().zip(0..).map(|((name, _), id)| (&**name, DefId(id))).collect();
    let mut builder = SchemaBuilder::new();
    for (name, fields) in types {
        let member = |field: &Field| {
            let ty = field.ty.to_type(|nested| ids.get(nested).copied());
            let ty = ty.ok_or_else(|| AnswerError::Field { of: name.clone(), field: field.name.clone() })?;
            Ok(Member::new(&*field.name, ty))
        };
        let members = fields.iter().map(member).collect::<Result<Vec<_>, AnswerError>>()?;
        builder.add(Def::structure(name.replace('/', "::"), members));
    }
    Ok(builder.finish(Type::Def(DefId(0)))?)
}

/// Writes a type with its fields.
fn put_individual(out: &mut Output, name: &str, fields: &[Field]) {
    out.text(name);
    out.count(fields.len());
    for Field { name, ty: FieldType { id, capacity, string_capacity, nested } } in fields {
        out.text(name);
        out.put(&[*id]);
        out.align(8);
        for capacity in [*capacity, *string_capacity] {
            out.put(&u64::from(capacity).to_le_bytes());
        }
        out.text(nested);
        // The default value.
        out.text("");
    }
}

/// A `TypeDescription`. What stands behind it is not looked at.
fn described(input: &mut Input<'_>) -> Result<Described, AnswerError> {
    let mut room = MAX_FIELDS;
    let mut types = vec![individual(input, &mut room)?];
    let referenced = input.count().ok_or(AnswerError::Malformed)?;
    if referenced >= MAX_TYPES {
        return Err(AnswerError::Long);
    }
    for _ in 0..referenced {
        types.push(individual(input, &mut room)?);
    }
    Ok(types)
}

fn individual(input: &mut Input<'_>, room: &mut usize) -> Result<(String, Vec<Field>), AnswerError> {
    let name = name(input).filter(|name| is_name(name)).ok_or(AnswerError::Malformed)?;
    let count = input.count().ok_or(AnswerError::Malformed)?;
    *room = room.checked_sub(count).ok_or(AnswerError::Long)?;
    let fields = (0..count).map(|_| field(input)).collect::<Option<_>>();
    Ok((name, fields.ok_or(AnswerError::Malformed)?))
}

fn field(input: &mut Input<'_>) -> Option<Field> {
    let own = name(input).filter(|name| is_word(name))?;
    let id = input.byte()?;
    let (capacity, string_capacity) = (capacity(input)?, capacity(input)?);
    let nested = name(input)?;
    // The default value is not part of a type.
    input.text()?;
    Some(Field { name: own, ty: FieldType { id, capacity, string_capacity, nested } })
}

fn capacity(input: &mut Input<'_>) -> Option<u32> {
    u32::try_from(input.number(u64::from_le_bytes, u64::from_be_bytes)?).ok()
}

fn name(input: &mut Input<'_>) -> Option<String> {
    input.text().filter(|name| name.len() <= MAX_NAME_BYTES).map(String::from)
}

/// Whether a text is the name of a type of ROS 2.
fn is_name(text: &str) -> bool {
    !text.contains(':') && TypeName::of_schema(&text.replace('/', "::")).is_ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::schema::arbitrary::Random;

    /// What a Python program writes that packs `std_msgs/msg/Header` by hand: little endian, with a
    /// default value, a source, and extra information.
    const HEADER: &str = "00010000010000000100000000000000140000007374645f6d7367732f6d73672f4865616465720002000000\
        060000007374616d7000010000000000000000000000000000000000000000001c0000006275696c74696e5f696e7465726661636573\
        2f6d73672f54696d65000100000000000000090000006672616d655f69640011000000000000000000000000000000000000010000000\
        00000000100000000000000010000001c0000006275696c74696e5f696e74657266616365732f6d73672f54696d65000200000004000000\
        7365630006000000000000000000000000000000000000000000000001000000000000000200000037000000080000006e616e6f73656300\
        07000000000000000000000000000000000000000100000000000000010000000000000001000000140000007374645f6d7367732f6d7367\
        2f48656164657200040000006d736700040000002320780001000000020000006b000000020000007600";

    /// The request of the same program, which also asks for sources.
    const REQUEST: &str = "00010000140000007374645f6d7367732f6d73672f48656164657200480000005249485330315f663439666233616\
        5326366303730663739333634356666373439363833616336623036323033653431633839316531373730316231636235393763653661303\
        10001";

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u32> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
        digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
    }

    fn query() -> TypeQuery {
        let hash = "RIHS01_f49fb3ae2cf070f793645ff749683ac6b06203e41c891e17701b1cb597ce6a01";
        TypeQuery { type_name: "std_msgs/msg/Header".into(), type_hash: hash.parse().expect("a hash") }
    }

    fn header() -> Schema {
        query().schema(&bytes(HEADER)).expect("a type")
    }

    #[test]
    fn the_bytes_of_another_program_are_understood() {
        let mut types = SchemaBuilder::new();
        let time = [Member::new("sec", Type::Int32), Member::new("nanosec", Type::Uint32)];
        let time = types.add(Def::structure("builtin_interfaces::msg::Time", time.into()));
        let members = [Member::new("stamp", Type::Def(time)), Member::new("frame_id", Type::string())];
        let root = types.add(Def::structure("std_msgs::msg::Header", members.into()));
        let expected = types.finish(Type::Def(root)).expect("a schema");
        assert_eq!(header().type_hash(), expected.type_hash());
        assert_eq!(TypeQuery::parse(&bytes(REQUEST)), Some(query()));
        let mut own = bytes(REQUEST);
        *own.last_mut().expect("a byte") = 0;
        assert_eq!(query().to_cdr(), own, "without sources");
    }

    #[test]
    fn every_kind_of_field_comes_back() {
        let mut types = SchemaBuilder::new();
        let inner = types.add(Def::structure("p::msg::Inner", vec![Member::new("a", Type::Octet)]));
        let elements = [
            Type::Def(inner),
            Type::Int8,
            Type::Uint64,
            Type::Float128,
            Type::Bool,
            Type::Char16,
            Type::string(),
            Type::String { bound: 9 },
            Type::WString { bound: 0 },
            Type::WString { bound: 7 },
        ];
        let shapes: [fn(Type) -> Type; 4] = [
            |element| element,
            |element| Type::array(element, [3]),
            |element| Type::Sequence { element: element.into(), bound: 5 },
            Type::sequence,
        ];
        let all = elements.iter().flat_map(|element| shapes.iter().map(|shape| shape(element.clone())));
        let members = all.zip(0..).map(|(ty, number)| Member::new(alloc::format!("m{number}"), ty)).collect();
        let root = types.add(Def::structure("p::msg::All", members));
        let schema = types.finish(Type::Def(root)).expect("a schema");
        let query = TypeQuery { type_name: "p/msg/All".into(), type_hash: TypeHash::of(&schema).expect("of ROS") };
        let got = query.schema(&description_of(&schema).expect("of ROS")).expect("a type");
        assert_eq!(got.type_hash(), schema.type_hash());
    }

    #[test]
    fn what_cannot_be_a_type_is_refused() {
        let with = |from: &str, to: &str| query().schema(&bytes(&HEADER.replacen(from, to, 1)));
        let field = |field: &str| Err(AnswerError::Field { of: "std_msgs/msg/Header".into(), field: field.into() });
        // The number 19 is a string of fixed length, which ROS 2 does not make, and the name of a
        // type is not among those described.
        assert_eq!(with("6672616d655f69640011", "6672616d655f69640013"), field("frame_id"));
        assert_eq!(with("6d73672f54696d6500", "6d73672f54696d6600"), field("stamp"));
        assert!(matches!(with("6672616d655f69640011", "6672616d655f69640012"), Err(AnswerError::Hash { .. })));
        assert_eq!(with("00010000", "00030000"), Err(AnswerError::Malformed), "another encapsulation");
        assert_eq!(with("4865616465720002000000", "48656164657200ffff0000"), Err(AnswerError::Long));
        assert_eq!(with("4865616465720002000000", "4865616465720000010000"), Err(AnswerError::Malformed));
        let refused = query().schema(&refusal(&"no".repeat(1000)));
        assert!(matches!(refused, Err(AnswerError::Refused(reason)) if reason.len() == 255));
    }

    #[test]
    fn a_type_that_contains_itself_is_refused() {
        let mut out = Output::new();
        out.put(&[1]);
        out.text("");
        let nested = FieldType { id: 1, capacity: 0, string_capacity: 0, nested: "p/msg/A".into() };
        put_individual(&mut out, "p/msg/A", &[Field { name: "a".into(), ty: nested }]);
        out.count(0);
        assert!(matches!(query().schema(&out.finish()), Err(AnswerError::Schema(SchemaError::Infinite { .. }))));
    }

    proptest! {
        #[test]
        fn hostile_answers_are_refused_or_have_the_hash(seed: u64, changes in 1..8_usize) {
            let (mut random, mut bytes) = (Random::new(seed), bytes(HEADER));
            for _ in 0..changes {
                let at = random.below(bytes.len());
                match random.below(4) {
                    0 => bytes.truncate(at),
                    1 => bytes[at] ^= 1 << random.below(8),
                    _ => bytes[at] = random.bits() as u8,
                }
                if bytes.is_empty() {
                    break;
                }
            }
            if let Ok(schema) = query().schema(&bytes) {
                prop_assert_eq!(TypeHash::of(&schema), Ok(query().type_hash));
            }
            let _ = TypeQuery::parse(&bytes);
        }
    }
}
