//! The compact, self-contained encoding of a schema for the wire and for files, as `spec/schema.md`
//! defines it, and the canonical form of a type, which is hashed: the same encoding without what is
//! not part of the type.
//!
//! Only definitions that the root reaches are written, in the order of first mention. So a schema
//! has exactly one encoding, and [`DocumentHash`] identifies it. There is no table of strings: few
//! names are repeated, and a table would let a small document claim much memory.
//!
//! [`DocumentHash`]: super::DocumentHash

use alloc::{collections::BTreeMap, vec::Vec};

use super::{
    Annotation, AutoId, BitField, Case, Def, DefId, DefKind, EnumLiteral, Flag, Literal, Member, Schema, SchemaLimits,
    TryConstruct, Type, array_shape,
};

mod decode;
mod tag;
#[cfg(test)]
mod tests;

pub use decode::SchemaDecodeError;

const MAGIC: &[u8; 3] = b"PWS";
const VERSION: u8 = 1;

/// Bit of the header's options: the document contains comments.
const WITH_DOCS: u8 = 1;

impl Schema {
    /// Encodes the schema without comments, which receivers of messages do not need.
    ///
    /// ```
    /// use polywire_core::schema::{Schema, SchemaBuilder, SchemaLimits, Type};
    ///
    /// let schema = SchemaBuilder::new().finish(Type::sequence(Type::Float32)).unwrap();
    /// let bytes = schema.to_bytes();
    /// assert_eq!(Schema::from_bytes(&bytes, &SchemaLimits::default()).unwrap(), schema);
    /// ```
    pub fn to_bytes(&self) -> Vec<u8> {
        encode(self, false)
    }

    /// Encodes the schema with comments, for tools and archives.
    pub fn to_bytes_with_docs(&self) -> Vec<u8> {
        encode(self, true)
    }

    /// Decodes a schema. The bytes may come from a peer: they must keep `limits` and be the
    /// canonical encoding of their schema.
    pub fn from_bytes(bytes: &[u8], limits: &SchemaLimits) -> Result<Schema, SchemaDecodeError> {
        decode::decode(bytes, limits)
    }
}

fn encode(schema: &Schema, docs: bool) -> Vec<u8> {
    let (definitions, body) = written(schema, if docs { Content::WithDocs } else { Content::Document });
    let mut document = MAGIC.to_vec();
    document.extend([VERSION, if docs { WITH_DOCS } else { 0 }]);
    put_varint(&mut document, definitions as u64);
    document.extend(body);
    document
}

/// What is written of a schema.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// What makes the type: typedefs are resolved, and annotations are left out.
    Canonical,
    /// Everything but comments.
    Document,
    WithDocs,
}

/// Writes the root, and all definitions that it reaches. A definition gets its number where it is
/// first mentioned, and is written after all definitions with smaller numbers. Returns the number
/// of definitions, and the bytes.
pub(super) fn written(schema: &Schema, content: Content) -> (usize, Vec<u8>) {
    let mut writer = Writer { schema, content, out: Vec::new(), numbers: BTreeMap::new(), order: Vec::new() };
    writer.ty(schema.root());
    let mut next = 0;
    while let Some(id) = writer.order.get(next).copied() {
        writer.def(schema.def(id));
        next += 1;
    }
    (next, writer.out)
}

/// The canonical NaN.
const QUIET_NAN: u64 = 0x7FF8_0000_0000_0000;

struct Writer<'a> {
    schema: &'a Schema,
    content: Content,
    out: Vec<u8>,
    numbers: BTreeMap<DefId, u64>,
    order: Vec<DefId>,
}

impl Writer<'_> {
    fn is_canonical(&self) -> bool {
        self.content == Content::Canonical
    }

    fn ty(&mut self, ty: &Type) {
        let schema = self.schema;
        match if self.is_canonical() { schema.resolve(ty) } else { ty } {
            Type::String { bound } => self.tag_and(tag::STRING, *bound),
            Type::WString { bound } => self.tag_and(tag::WSTRING, *bound),
            Type::Sequence { element, bound } => {
                self.tag_and(tag::SEQUENCE, *bound);
                self.ty(element);
            }
            array @ Type::Array { element, dims } => {
                let (element, dims) = match self.is_canonical() {
                    true => array_shape(schema, array),
                    false => (&**element, dims.clone()),
                };
                self.out.push(tag::ARRAY);
                self.list(&dims, |writer, dim| put_varint(&mut writer.out, (*dim).into()));
                self.ty(element);
            }
            Type::Map { key, value, bound } => {
                self.tag_and(tag::MAP, *bound);
                self.ty(key);
                self.ty(value);
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
        if !self.is_canonical() {
            self.out.push(tag::flags([def.nested, def.auto_id == AutoId::Hash]));
        }
        self.annotations(&def.annotations);
        self.doc(&def.doc);
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
                self.list(flags, Self::flag);
            }
            DefKind::Bitset { base, fields } => {
                self.base(*base);
                self.list(fields, Self::bit_field);
            }
            // In the canonical form no typedef is ever numbered.
            DefKind::Alias { target } => self.ty(target),
        }
    }

    fn base(&mut self, base: Option<DefId>) {
        let number = base.map_or(0, |id| self.number(id) + 1);
        put_varint(&mut self.out, number);
    }

    fn member(&mut self, member: &Member) {
        put_text(&mut self.out, &member.name);
        if self.is_canonical() {
            put_varint(&mut self.out, member.id.into());
        }
        self.out.push(tag::flags([
            member.explicit_id.is_some(),
            member.key,
            member.optional,
            member.must_understand,
            member.try_construct == TryConstruct::UseDefault,
            member.try_construct == TryConstruct::Trim,
            member.default.is_some(),
            member.external && !self.is_canonical(),
        ]));
        if let Some(id) = member.explicit_id.filter(|_| !self.is_canonical()) {
            put_varint(&mut self.out, id.into());
        }
        self.ty(&member.ty);
        match &member.default {
            // All NaNs are the same default, because IDL cannot express which NaN is meant.
            Some(Literal::Float(value)) if value.is_nan() && self.is_canonical() => {
                tag::put_literal(&mut self.out, &Literal::Float(f64::from_bits(QUIET_NAN)));
            }
            Some(default) => tag::put_literal(&mut self.out, default),
            None => {}
        }
        self.annotations(&member.annotations);
        self.doc(&member.doc);
    }

    fn case(&mut self, case: &Case) {
        self.out.push(case.is_default.into());
        let mut labels = case.labels.clone();
        if self.is_canonical() {
            labels.sort_unstable();
        }
        self.list(&labels, |writer, label| put_signed(&mut writer.out, (*label).into()));
        self.member(&case.member);
    }

    fn enum_literal(&mut self, literal: &EnumLiteral) {
        put_text(&mut self.out, &literal.name);
        put_signed(&mut self.out, literal.value.into());
        self.out.push(literal.is_default.into());
        self.annotations(&literal.annotations);
    }

    fn flag(&mut self, flag: &Flag) {
        put_text(&mut self.out, &flag.name);
        self.out.push(flag.position);
        self.annotations(&flag.annotations);
    }

    fn bit_field(&mut self, field: &BitField) {
        put_text(&mut self.out, field.name.as_deref().unwrap_or_default());
        if self.is_canonical() {
            self.out.push(field.position);
        }
        self.out.push(field.width);
        if field.name.is_some() || !self.is_canonical() {
            self.ty(&field.ty);
        }
        self.annotations(&field.annotations);
    }

    fn annotations(&mut self, annotations: &[Annotation]) {
        if self.is_canonical() {
            return;
        }
        self.list(annotations, |writer, annotation| {
            put_text(&mut writer.out, &annotation.name);
            writer.list(&annotation.args, |writer, (name, value)| {
                put_text(&mut writer.out, name);
                tag::put_literal(&mut writer.out, value);
            });
        });
    }

    fn doc(&mut self, doc: &str) {
        if self.content == Content::WithDocs {
            put_text(&mut self.out, doc);
        }
    }

    fn list<T>(&mut self, items: &[T], mut item: impl FnMut(&mut Self, &T)) {
        put_varint(&mut self.out, items.len() as u64);
        items.iter().for_each(|it| item(self, it));
    }

    fn tag_and(&mut self, tag: u8, bound: u32) {
        self.out.push(tag);
        put_varint(&mut self.out, bound.into());
    }
}

/// Writes seven bits per byte, least significant first. All bytes but the last have the top bit
/// set.
fn put_varint(out: &mut Vec<u8>, value: u64) {
    put_wide_varint(out, value.into());
}

/// Writes a signed number with its sign in the least significant bit, so that small numbers are
/// short.
fn put_signed(out: &mut Vec<u8>, value: i128) {
    put_wide_varint(out, (value << 1 ^ value >> 127) as u128);
}

fn put_wide_varint(out: &mut Vec<u8>, mut value: u128) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Writes the length in bytes, then UTF-8.
fn put_text(out: &mut Vec<u8>, text: &str) {
    put_varint(out, text.len() as u64);
    out.extend(text.as_bytes());
}
