//! The two hashes of a schema: [`TypeHash`] and [`DocumentHash`]. `spec/schema.md` defines byte by
//! byte what they cover.

use alloc::vec::Vec;
use core::{fmt, str::FromStr};

use super::{
    Schema,
    encoding::{self, Content},
};

/// Identifies a *type*. Equal for the same type, whether it comes from IDL, a derive or a peer.
///
/// It consists of 128 bits of BLAKE3 over the type's canonical form, written as 32 hexadecimal
/// digits.
///
/// ```
/// use polywire_core::schema::{Def, Member, SchemaBuilder, Type, TypeHash};
///
/// let schema = |doc: &str, ty: Type| {
///     let mut types = SchemaBuilder::new();
///     let metres = types.add(Def::alias("Metres", Type::Float64));
///     let mut def = Def::structure("Height", vec![Member::new("value", if ty == Type::Float64 { Type::Def(metres) } else { ty })]);
///     def.doc = doc.into();
///     let id = types.add(def);
///     types.finish(Type::Def(id)).unwrap()
/// };
/// let hash: TypeHash = schema("", Type::Float64).type_hash();
/// assert_eq!(hash, schema("Above the ellipsoid.", Type::Float64).type_hash());
/// assert_ne!(hash, schema("", Type::Float32).type_hash());
/// assert_eq!(hash.to_string().parse(), Ok(hash));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypeHash([u8; 16]);

/// Identifies the exact bytes of an encoded schema, which a node fetches and checks on receipt. It
/// consists of 128 bits of BLAKE3.
///
/// ```
/// use polywire_core::schema::{Def, DocumentHash, Member, ParseHashError, Schema, SchemaBuilder, SchemaDecodeError, SchemaLimits, Type, TypeHash};
///
/// let mut types = SchemaBuilder::new();
/// let root = types.add(Def::structure("S", vec![Member::new("ab", Type::Bool)]));
/// let schema = types.finish(Type::Def(root)).unwrap();
///
/// // The hash identifies the document, which a receiver fetches and decodes.
/// let document = schema.to_bytes();
/// assert_eq!(schema.document_hash(), DocumentHash::of(&document));
/// assert_eq!(schema.document_hash().to_string(), "e9eb74f3ff9d61d295eb23a94fa0aebb");
/// assert_eq!(Schema::from_bytes(&document, &SchemaLimits::default()).as_ref(), Ok(&schema));
/// assert_eq!(Schema::from_bytes(b"PWX", &SchemaLimits::default()), Err(SchemaDecodeError::Magic));
///
/// // Neither the type hash nor the canonical form covers comments.
/// let hash: TypeHash = schema.type_hash();
/// assert_eq!(TypeHash::from_bytes(hash.to_bytes()), hash);
/// assert_eq!(schema.to_bytes_with_docs().len() - document.len(), 2);
/// assert!(schema.canonical_form().starts_with(b"PWT"));
/// assert_eq!("no hash".parse::<TypeHash>(), Err(ParseHashError));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocumentHash([u8; 16]);

/// The text is not a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a hash is 32 hexadecimal digits")]
pub struct ParseHashError;

impl Schema {
    /// The hash of the root type. It was computed when the schema was made.
    pub fn type_hash(&self) -> TypeHash {
        self.0.type_hash
    }

    /// The hash of the bytes that [`Schema::to_bytes`] returns. Every call computes it.
    pub fn document_hash(&self) -> DocumentHash {
        DocumentHash::of(&self.to_bytes())
    }

    /// The bytes over which the type hash is computed.
    pub fn canonical_form(&self) -> Vec<u8> {
        canonical_form(self)
    }
}

impl DocumentHash {
    /// The hash of an encoded schema.
    pub fn of(document: &[u8]) -> DocumentHash {
        DocumentHash(cut(document))
    }
}

impl TypeHash {
    pub(super) fn of(schema: &Schema) -> TypeHash {
        TypeHash(cut(&canonical_form(schema)))
    }
}

fn cut(bytes: &[u8]) -> [u8; 16] {
    let digest = blake3::hash(bytes);
    core::array::from_fn(|i| digest.as_bytes()[i])
}

macro_rules! hash_type {
    ($name:ident) => {
        impl $name {
            /// Makes a hash from its bytes.
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                $name(bytes)
            }

            /// The hash's bytes, as they are sent.
            pub const fn to_bytes(self) -> [u8; 16] {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl FromStr for $name {
            type Err = ParseHashError;

            fn from_str(text: &str) -> Result<Self, ParseHashError> {
                parse_hex(text).map($name).ok_or(ParseHashError)
            }
        }
    };
}

hash_type!(TypeHash);
hash_type!(DocumentHash);

fn parse_hex(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u8> = text.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect::<Option<_>>()?;
    let digits: [u8; 32] = digits.try_into().ok()?;
    Some(core::array::from_fn(|i| digits[2 * i] << 4 | digits[2 * i + 1]))
}

/// Names what is hashed, with a version: other rules would give other hashes.
const HEADER: &[u8] = b"PWT\x01";

fn canonical_form(schema: &Schema) -> Vec<u8> {
    let (_, body) = encoding::written(schema, Content::Canonical);
    [HEADER, &body[..]].concat()
}

#[cfg(test)]
mod tests {
    use alloc::{format, string::ToString, vec};

    use super::*;
    use crate::schema::{
        Annotation, AutoId, BitField, Case, Def, DefId, DefKind, EnumLiteral, Extensibility, Flag, Literal, Member,
        SchemaBuilder, TryConstruct, Type,
    };

    fn schema(defs: Vec<Def>, root: usize) -> Schema {
        let mut builder = SchemaBuilder::new();
        let ids: Vec<DefId> = defs.into_iter().map(|def| builder.add(def)).collect();
        builder.finish(Type::Def(ids[root])).unwrap()
    }

    fn one(def: Def) -> Schema {
        schema(vec![def], 0)
    }

    /// The first golden hash of spec/schema.md.
    #[test]
    fn golden_position() {
        let members = vec![
            Member::new("station", Type::Uint32).with_id(7).as_key(),
            Member::new("latitude_deg", Type::Float64),
            Member::new("name", Type::String { bound: 16 }).with_default(Literal::String("?".into())),
        ];
        let position = one(Def::structure("Geo::Position", members).with_extensibility(Extensibility::Final));
        let form = b"PWT\x01\x15\x00\
            \x01\x0dGeo::Position\x00\x00\x03\
            \x07station\x07\x03\x08\
            \x0clatitude_deg\x08\x00\x0c\
            \x04name\x09\x40\x10\x10\x05\x01?";
        assert_eq!(position.canonical_form(), form);
        assert_eq!(position.type_hash().to_string(), "8348e9fe8910f1367a443e8faf419b09");
    }

    /// The second golden hash of spec/schema.md: a recursive type of many kinds.
    #[test]
    fn golden_node() {
        let mut literals = vec![EnumLiteral::new("OFF", 0), EnumLiteral::new("ON", -1), EnumLiteral::new("AUTO", 5)];
        literals[1].is_default = true;
        let defs = vec![
            Def::structure("Base", vec![Member::new("f", Type::Def(DefId(4)))]),
            Def::structure(
                "Node",
                vec![
                    Member::new("children", Type::Def(DefId(2))).as_optional(),
                    Member::new("u", Type::Def(DefId(3))),
                    Member::new("m", Type::map(Type::Def(DefId(5)), Type::array(Type::array(Type::Bool, [3]), [2]))),
                ],
            )
            .with_base(DefId(0))
            .with_extensibility(Extensibility::Mutable),
            Def::alias("Nodes", Type::Sequence { element: Type::Def(DefId(1)).into(), bound: 300 }),
            Def::union(
                "U",
                Type::Def(DefId(5)),
                vec![Case::new([0, -1], "a", Type::Char16), Case::default("b", Type::Def(DefId(6)))],
            ),
            Def::bitmask("F", 12, ["X", "Y"]),
            Def::new("E", DefKind::Enum { bit_bound: 8, literals }),
            Def::bitset("S", vec![BitField::new("lo", 3), BitField { name: None, ..BitField::new("", 2) }]),
        ];
        let node = schema(defs, 1);
        let form = b"PWT\x01\x15\x00\
            \x01\x04Node\x02\x02\x03\
            \x08children\x01\x04\x12\xac\x02\x15\x00\
            \x01u\x02\x00\x15\x02\
            \x01m\x03\x00\x14\x00\x15\x03\x13\x02\x02\x03\x01\
            \x01\x04Base\x01\x00\x01\x01f\x00\x00\x15\x04\
            \x02\x01U\x01\x00\x15\x03\x02\
            \x00\x02\x01\x00\x01a\x01\x00\x0f\
            \x01\x00\x01b\x02\x00\x15\x05\
            \x03\x01E\x01\x08\x03\x03OFF\x00\x00\x02ON\x01\x01\x04AUTO\x0a\x00\
            \x04\x01F\x01\x0c\x02\x01X\x00\x01Y\x01\
            \x05\x01S\x01\x00\x02\x02lo\x00\x03\x02\x00\x03\x02";
        assert_eq!(node.canonical_form(), form);
        assert_eq!(node.type_hash().to_string(), "02c11eabf94b368cf6223dbad01e649f");
    }

    #[test]
    fn what_is_no_part_of_the_type_changes_nothing() {
        let plain = || Member::new("a", Type::array(Type::Float32, [2, 3])).with_id(5);
        let want = one(Def::structure("S", vec![plain()])).type_hash();
        let mut def = Def::structure("S", vec![plain()]);
        def.nested = true;
        def.doc = "A comment.".into();
        def.auto_id = AutoId::Hash;
        let annotation = Annotation { name: "unit".into(), args: vec![("value".into(), Literal::String("m".into()))] };
        def.annotations = vec![annotation.clone()];
        if let DefKind::Struct { members, .. } = &mut def.kind {
            members[0].doc = "Another.".into();
            members[0].external = true;
            members[0].annotations = vec![annotation];
        }
        assert_eq!(one(def).type_hash(), want);
        let by_alias = Member::new("a", Type::array(Type::Def(DefId(1)), [2])).with_id(5);
        let defs = vec![
            Def::structure("Unreached", vec![]),
            Def::alias("Row", Type::array(Type::Def(DefId(3)), [3])),
            Def::structure("S", vec![by_alias]),
            Def::alias("Real", Type::Float32),
        ];
        assert_eq!(schema(defs, 2).type_hash(), want);
    }

    #[test]
    fn a_default_has_one_form() {
        let with =
            |ty: Type, default| one(Def::structure("S", vec![Member::new("a", ty).with_default(default)])).type_hash();
        assert_eq!(with(Type::Float64, Literal::Int(1)), with(Type::Float64, Literal::Float(1.0)));
        assert_eq!(with(Type::Float32, Literal::Float(0.1)), with(Type::Float32, Literal::Float(f64::from(0.1f32))));
        assert_eq!(with(Type::Bool, Literal::Int(1)), with(Type::Bool, Literal::Bool(true)));
        assert_eq!(with(Type::Char8, Literal::Int(65)), with(Type::Char8, Literal::Char(65)));
        let nan = |bits: u64| with(Type::Float64, Literal::Float(f64::from_bits(bits)));
        assert_eq!(nan(0x7FF8_0000_0000_0000), nan(0xFFF0_0000_0000_0001));
        assert_ne!(with(Type::Float64, Literal::Float(0.0)), with(Type::Float64, Literal::Float(-0.0)));
        assert_ne!(
            with(Type::Int32, Literal::Int(0)),
            one(Def::structure("S", vec![Member::new("a", Type::Int32)])).type_hash()
        );
    }

    #[test]
    fn whatever_is_part_of_the_type_changes_the_hash() {
        let base = || Member::new("a", Type::Int32);
        let strukt = |member: Member| one(Def::structure("S", vec![member]));
        let member = |change: fn(&mut Member)| {
            let mut member = base();
            change(&mut member);
            strukt(member)
        };
        let all = [
            strukt(base()),
            one(Def::structure("T", vec![base()])),
            one(Def::structure("S", vec![base()]).with_extensibility(Extensibility::Final)),
            one(Def::structure("S", vec![base(), Member::new("b", Type::Int32)])),
            one(Def::structure("S", vec![Member::new("b", Type::Int32), base()])),
            schema(vec![Def::structure("B", vec![base()]), Def::structure("S", vec![]).with_base(DefId(0))], 1),
            one(Def { auto_id: AutoId::Hash, ..Def::structure("S", vec![base()]) }),
            member(|m| m.name = "b".into()),
            member(|m| m.explicit_id = Some(0)),
            member(|m| m.explicit_id = Some(1)),
            member(|m| m.key = true),
            member(|m| m.optional = true),
            member(|m| m.must_understand = true),
            member(|m| m.try_construct = TryConstruct::UseDefault),
            member(|m| m.try_construct = TryConstruct::Trim),
            member(|m| m.default = Some(Literal::Int(1))),
            member(|m| m.default = Some(Literal::Int(2))),
            member(|m| m.ty = Type::Uint32),
            member(|m| m.ty = Type::string()),
            member(|m| m.ty = Type::String { bound: 1 }),
            member(|m| m.ty = Type::WString { bound: 1 }),
            member(|m| m.ty = Type::sequence(Type::Int32)),
            member(|m| m.ty = Type::Sequence { element: Type::Int32.into(), bound: 1 }),
            member(|m| m.ty = Type::array(Type::Int32, [2])),
            member(|m| m.ty = Type::array(Type::Int32, [3])),
            member(|m| m.ty = Type::map(Type::Int32, Type::Int32)),
        ];
        assert_all_differ(&all);
    }

    #[test]
    fn so_do_labels_literals_flags_and_fields() {
        let case = |labels: &[i64], name: &str| Case::new(labels, name, Type::Bool);
        let keyed = |key| DefKind::Union { discriminator: Type::Int32, key, cases: vec![case(&[1, 2], "a")] };
        let literal = |value, is_default| EnumLiteral { is_default, ..EnumLiteral::new("L", value) };
        let enumeration =
            |bit_bound, l: EnumLiteral| one(Def::new("D", DefKind::Enum { bit_bound, literals: vec![l] }));
        let bits = |bit_bound, position| {
            let flags = vec![Flag { name: "f".into(), position, annotations: vec![] }];
            one(Def::new("D", DefKind::Bitmask { bit_bound, flags }))
        };
        let padded = |width| BitField { name: None, ..BitField::new("", width) };
        let all = [
            one(Def::new("D", keyed(false))),
            one(Def::new("D", keyed(true))),
            one(Def::union("D", Type::Int32, vec![case(&[1], "a")])),
            one(Def::union("D", Type::Int32, vec![case(&[1], "a"), case(&[2], "b")])),
            one(Def::union("D", Type::Int32, vec![Case::default("a", Type::Bool)])),
            one(Def::union("D", Type::Int16, vec![Case::default("a", Type::Bool)])),
            enumeration(32, literal(0, false)),
            enumeration(32, literal(1, false)),
            enumeration(32, literal(0, true)),
            enumeration(8, literal(0, false)),
            bits(8, 0),
            bits(8, 1),
            bits(9, 0),
            one(Def::bitset("D", vec![BitField::new("a", 3)])),
            one(Def::bitset("D", vec![BitField::new("a", 4)])),
            one(Def::bitset("D", vec![padded(2), BitField::new("a", 3)])),
            one(Def::bitset("D", vec![BitField { ty: Type::Uint32, ..BitField::new("a", 3) }])),
        ];
        assert_all_differ(&all);
        let swapped = one(Def::union("D", Type::Int32, vec![case(&[2, 1], "a")]));
        assert_eq!(swapped.type_hash(), all[0].type_hash(), "the order of a case's labels does not matter");
    }

    fn assert_all_differ(schemas: &[Schema]) {
        for (i, a) in schemas.iter().enumerate() {
            for (j, b) in schemas.iter().enumerate().filter(|(j, _)| *j != i) {
                assert_ne!(a.type_hash(), b.type_hash(), "{i} and {j}");
            }
        }
    }

    #[test]
    fn a_hash_is_read_as_it_is_written() {
        let hash = one(Def::structure("S", vec![])).type_hash();
        assert_eq!(hash.to_string().len(), 32);
        assert_eq!(format!("{hash}").to_uppercase().parse(), Ok(hash));
        assert_eq!(TypeHash::from_bytes(hash.to_bytes()), hash);
        let text = hash.to_string();
        for wrong in [
            "",
            &text[1..],
            &format!("{text}0"),
            &text.replace(|c: char| c.is_ascii_digit(), "g"),
            "é".repeat(16).as_str(),
        ] {
            assert_eq!(wrong.parse::<TypeHash>(), Err(ParseHashError), "{wrong}");
        }
    }
}
