//! The two hashes of a schema. `spec/schema.md` defines what they cover, byte by byte.

use alloc::{collections::BTreeMap, vec::Vec};
use core::{fmt, str::FromStr};

use super::{
    BitField, Case, Def, DefId, DefKind, EnumLiteral, Literal, Member, Schema, TryConstruct, Type, array_shape,
    encoding::{put_signed, put_text, put_varint, tag},
};

/// Names a *type*: equal for the same type, whether it came from IDL, a derive or the wire.
///
/// 128 bits of BLAKE3 over the type's canonical form. Written as 32 hexadecimal digits.
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

/// Names the exact bytes of an encoded schema, as what is fetched and checked on receipt. 128 bits of BLAKE3.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocumentHash([u8; 16]);

/// A text that is no hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a hash is 32 hexadecimal digits")]
pub struct ParseHashError;

impl Schema {
    /// The hash of the type at the root. Computed when the schema was made.
    pub fn type_hash(&self) -> TypeHash {
        self.0.type_hash
    }

    /// The hash of the bytes that [`Schema::to_bytes`] gives; computed at each call.
    pub fn document_hash(&self) -> DocumentHash {
        DocumentHash::of(&self.to_bytes())
    }

    /// The bytes that the type hash is the hash of.
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
            /// The hash that these bytes are.
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                $name(bytes)
            }

            /// Its bytes, as they travel.
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

const HEADER: &[u8; 4] = b"PWT\x01";

fn canonical_form(schema: &Schema) -> Vec<u8> {
    let mut form = Form { schema, out: HEADER.to_vec(), numbers: BTreeMap::new(), order: Vec::new() };
    form.ty(schema.root());
    let mut next = 0;
    while let Some(id) = form.order.get(next).copied() {
        form.def(schema.def(id));
        next += 1;
    }
    form.out
}

/// The canonical form while it is written. A definition gets its number where it is first mentioned, and is written when all that
/// have smaller numbers are.
struct Form<'a> {
    schema: &'a Schema,
    out: Vec<u8>,
    numbers: BTreeMap<DefId, u64>,
    order: Vec<DefId>,
}

impl Form<'_> {
    fn ty(&mut self, ty: &Type) {
        let schema = self.schema;
        match schema.resolve(ty) {
            Type::String { bound } => self.tag_and(tag::STRING, *bound),
            Type::WString { bound } => self.tag_and(tag::WSTRING, *bound),
            Type::Sequence { element, bound } => {
                self.tag_and(tag::SEQUENCE, *bound);
                self.ty(element);
            }
            Type::Map { key, value, bound } => {
                self.tag_and(tag::MAP, *bound);
                self.ty(key);
                self.ty(value);
            }
            array @ Type::Array { .. } => {
                let (element, dims) = array_shape(schema, array);
                self.out.push(tag::ARRAY);
                self.count(dims.len());
                dims.iter().for_each(|dim| put_varint(&mut self.out, (*dim).into()));
                self.ty(element);
            }
            Type::Def(id) => {
                self.out.push(tag::DEF);
                let number = self.number(*id);
                put_varint(&mut self.out, number);
            }
            primitive => self.out.push(tag::of_primitive(primitive)),
        }
    }

    fn number(&mut self, id: DefId) -> u64 {
        let next = self.order.len() as u64;
        *self.numbers.entry(id).or_insert_with(|| {
            self.order.push(id);
            next
        })
    }

    fn def(&mut self, def: &Def) {
        self.out.push(tag::of_def(&def.kind));
        put_text(&mut self.out, &def.name);
        self.out.push(tag::of_extensibility(def.extensibility));
        match &def.kind {
            DefKind::Struct { base, members } => {
                self.base(*base);
                self.list(members, Self::member);
            }
            DefKind::Union { discriminator, key, cases } => {
                self.out.push((*key).into());
                self.ty(discriminator);
                self.list(cases, Self::case);
            }
            DefKind::Enum { bit_bound, literals } => {
                self.out.push(*bit_bound);
                self.list(literals, Self::enum_literal);
            }
            DefKind::Bitmask { bit_bound, flags } => {
                self.out.push(*bit_bound);
                self.list(flags, |form, flag| {
                    put_text(&mut form.out, &flag.name);
                    form.out.push(flag.position);
                });
            }
            DefKind::Bitset { base, fields } => {
                self.base(*base);
                self.list(fields, Self::bit_field);
            }
            // Typedefs are resolved wherever they are mentioned, so none is ever numbered.
            DefKind::Alias { .. } => {}
        }
    }

    fn base(&mut self, base: Option<DefId>) {
        let number = base.map_or(0, |id| self.number(id) + 1);
        put_varint(&mut self.out, number);
    }

    fn member(&mut self, member: &Member) {
        put_text(&mut self.out, &member.name);
        put_varint(&mut self.out, member.id.into());
        let flags = [
            member.explicit_id.is_some(),
            member.key,
            member.optional,
            member.must_understand,
            member.try_construct == TryConstruct::UseDefault,
            member.try_construct == TryConstruct::Trim,
            member.default.is_some(),
        ];
        self.out.push(tag::flags(flags));
        self.ty(&member.ty);
        if let Some(default) = &member.default {
            self.literal(default);
        }
    }

    fn literal(&mut self, literal: &Literal) {
        match literal {
            // All NaNs are one default: which one it is cannot be written in IDL.
            Literal::Float(value) if value.is_nan() => tag::put_literal(&mut self.out, &Literal::Float(f64::NAN.abs())),
            literal => tag::put_literal(&mut self.out, literal),
        }
    }

    fn case(&mut self, case: &Case) {
        self.out.push(case.is_default.into());
        let mut labels = case.labels.clone();
        labels.sort_unstable();
        self.list(&labels, |form, label| put_signed(&mut form.out, (*label).into()));
        self.member(&case.member);
    }

    fn enum_literal(&mut self, literal: &EnumLiteral) {
        put_text(&mut self.out, &literal.name);
        put_signed(&mut self.out, literal.value.into());
        self.out.push(literal.is_default.into());
    }

    fn bit_field(&mut self, field: &BitField) {
        put_text(&mut self.out, field.name.as_deref().unwrap_or_default());
        self.out.extend([field.position, field.width]);
        if field.name.is_some() {
            self.ty(&field.ty);
        }
    }

    fn list<T>(&mut self, items: &[T], mut item: impl FnMut(&mut Self, &T)) {
        self.count(items.len());
        items.iter().for_each(|it| item(self, it));
    }

    fn count(&mut self, n: usize) {
        put_varint(&mut self.out, n as u64);
    }

    fn tag_and(&mut self, tag: u8, bound: u32) {
        self.out.push(tag);
        put_varint(&mut self.out, bound.into());
    }
}
