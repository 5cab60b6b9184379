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
const MOST_TYPES: usize = 1024;
const MOST_FIELDS: usize = 16_384;

/// Longest name of a type or field, in bytes.
const MOST_NAME_BYTES: usize = 255;

/// A question for the structure of a type.
///
/// ```
/// use polywire_core::ros::{TypeHash, TypeName, type_query::{AnswerError, TypeQuery, answer, refusal}};
/// use polywire_core::schema::{Def, Member, SchemaBuilder, Type};
/// let mut types = SchemaBuilder::new();
/// let id = types.add(Def::structure("std_msgs::msg::String", vec![Member::new("data", Type::string())]));
/// let schema = types.finish(Type::Def(id))?;
///
/// let query = TypeQuery { type_name: "std_msgs/msg/String".into(), type_hash: TypeHash::of(&schema)? };
/// assert_eq!(TypeQuery::parse(&query.to_cdr()), Some(query.clone()));
/// assert_eq!(query.schema(&answer(&schema)?), Ok(schema.clone()));
///
/// // Nobody has to be believed.
/// assert_eq!(query.schema(&refusal("no")), Err(AnswerError::Refused("no".into())));
/// assert_eq!(query.schema(b"?"), Err(AnswerError::Malformed));
/// let other = TypeQuery { type_hash: TypeHash::from_bytes([7; 32]), ..query };
/// assert_eq!(other.schema(&answer(&schema)?), Err(AnswerError::Hash { got: TypeHash::of(&schema)? }));
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
    #[error("the answer describes more than {MOST_TYPES} types or {MOST_FIELDS} fields")]
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
        let mut out = Output::default();
        out.text(&self.type_name);
        out.text(&self.type_hash.to_string());
        out.body.push(0);
        out.finish()
    }

    /// Reads a request in CDR behind its encapsulation header. `None` if it is malformed, or names
    /// no hash. The bytes may come from anybody.
    pub fn parse(request: &[u8]) -> Option<TypeQuery> {
        let mut input = Input::new(request)?;
        let (type_name, hash) = (input.name()?, input.name()?);
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
            return Err(AnswerError::Refused(reason.chars().take(MOST_NAME_BYTES).collect()));
        }
        let schema = built(&input.types()?)?;
        let got = TypeHash::of(&schema)?;
        match got == self.type_hash {
            true => Ok(schema),
            false => Err(AnswerError::Hash { got }),
        }
    }
}

/// The answer that describes a type, in CDR, little endian, behind its encapsulation header.
///
/// # Errors
/// If the type cannot be one of ROS 2.
pub fn answer(schema: &Schema) -> Result<Vec<u8>, TypeError> {
    let mut types = Types::default();
    let root = types.add(schema)?.to_string();
    let mut out = Output::default();
    out.body.push(1);
    out.text("");
    out.individual(&root, types.0.get(&root).map(Vec::as_slice).unwrap_or_default());
    out.count(types.0.len() - 1);
    types.0.iter().filter(|(name, _)| **name != root).for_each(|(name, fields)| out.individual(name, fields));
    // Neither sources nor extra information.
    out.count(0);
    out.count(0);
    Ok(out.finish())
}

/// The answer that a type is not told, for this reason.
pub fn refusal(reason: &str) -> Vec<u8> {
    let mut out = Output::default();
    out.body.push(0);
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

/// Writes CDR of version 1, little endian.
#[derive(Default)]
struct Output {
    body: Vec<u8>,
}

impl Output {
    fn finish(self) -> Vec<u8> {
        [&[0, 1, 0, 0], &*self.body].concat()
    }

    fn align(&mut self, to: usize) {
        self.body.resize(self.body.len().next_multiple_of(to), 0);
    }

    fn count(&mut self, count: usize) {
        self.align(4);
        self.body.extend((count as u32).to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.count(text.len() + 1);
        self.body.extend(text.as_bytes());
        self.body.push(0);
    }

    fn individual(&mut self, name: &str, fields: &[Field]) {
        self.text(name);
        self.count(fields.len());
        for Field { name, ty: FieldType { id, capacity, string_capacity, nested } } in fields {
            self.text(name);
            self.body.push(*id);
            self.align(8);
            for capacity in [*capacity, *string_capacity] {
                self.body.extend(u64::from(capacity).to_le_bytes());
            }
            self.text(nested);
            // The default value.
            self.text("");
        }
    }
}

/// Reads CDR of version 1.
struct Input<'a> {
    body: &'a [u8],
    at: usize,
    is_little: bool,
}

impl<'a> Input<'a> {
    fn new(bytes: &'a [u8]) -> Option<Input<'a>> {
        let (header, body) = bytes.split_first_chunk::<4>()?;
        let is_little = match header {
            [0, 1, ..] => true,
            [0, 0, ..] => false,
            _ => return None,
        };
        Some(Input { body, at: 0, is_little })
    }

    /// A `TypeDescription`. What stands behind it is not looked at.
    fn types(&mut self) -> Result<Described, AnswerError> {
        let mut room = MOST_FIELDS;
        let mut types = vec![self.individual(&mut room)?];
        let referenced = self.count().ok_or(AnswerError::Malformed)?;
        if referenced >= MOST_TYPES {
            return Err(AnswerError::Long);
        }
        for _ in 0..referenced {
            types.push(self.individual(&mut room)?);
        }
        Ok(types)
    }

    fn individual(&mut self, room: &mut usize) -> Result<(String, Vec<Field>), AnswerError> {
        let name = self.name().filter(|name| is_name(name)).ok_or(AnswerError::Malformed)?;
        let count = self.count().ok_or(AnswerError::Malformed)?;
        *room = room.checked_sub(count).ok_or(AnswerError::Long)?;
        let fields = (0..count).map(|_| self.field()).collect::<Option<_>>();
        Ok((name, fields.ok_or(AnswerError::Malformed)?))
    }

    fn field(&mut self) -> Option<Field> {
        let name = self.name().filter(|name| is_word(name))?;
        let id = self.byte()?;
        let (capacity, string_capacity) = (self.capacity()?, self.capacity()?);
        let nested = self.name()?;
        // The default value is not part of a type.
        self.text()?;
        Some(Field { name, ty: FieldType { id, capacity, string_capacity, nested } })
    }

    fn capacity(&mut self) -> Option<u32> {
        let number = self.number(u64::from_le_bytes, u64::from_be_bytes)?;
        u32::try_from(number).ok()
    }

    fn count(&mut self) -> Option<usize> {
        let number = self.number(u32::from_le_bytes, u32::from_be_bytes)?;
        usize::try_from(number).ok()
    }

    fn number<const N: usize, T>(&mut self, little: fn([u8; N]) -> T, big: fn([u8; N]) -> T) -> Option<T> {
        self.at = self.at.next_multiple_of(N);
        let (number, _) = self.take(N)?.split_first_chunk()?;
        Some(if self.is_little { little(*number) } else { big(*number) })
    }

    fn name(&mut self) -> Option<String> {
        self.text().filter(|name| name.len() <= MOST_NAME_BYTES).map(String::from)
    }

    fn text(&mut self) -> Option<&'a str> {
        let len = self.count()?;
        core::str::from_utf8(self.take(len)?.strip_suffix(b"\0")?).ok()
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let taken = self.body.get(self.at..)?.get(..len)?;
        self.at += len;
        Some(taken)
    }
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
        let got = query.schema(&answer(&schema).expect("of ROS")).expect("a type");
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
        let mut out = Output::default();
        out.body.push(1);
        out.text("");
        let nested = FieldType { id: 1, capacity: 0, string_capacity: 0, nested: "p/msg/A".into() };
        out.individual("p/msg/A", &[Field { name: "a".into(), ty: nested }]);
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
