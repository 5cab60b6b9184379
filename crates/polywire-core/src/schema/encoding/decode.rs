//! Decodes an encoded schema. The bytes may come from any peer.

use alloc::{
    boxed::Box,
    string::{String, ToString},
    vec::Vec,
};

use super::{MAGIC, VERSION, WITH_DOCS, tag};
use crate::schema::{
    Annotation, BitField, Case, Def, DefId, DefKind, EnumLiteral, Flag, Literal, Member, Schema, SchemaBuilder,
    SchemaError, SchemaLimits, TryConstruct, Type, builder::MAX_TYPE_DEPTH,
};

/// Why bytes are not an encoded schema. Offsets are in bytes from the start of the document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaDecodeError {
    /// The bytes do not begin like an encoded schema.
    #[error("not an encoded schema: it must begin with 'PWS'")]
    Magic,
    /// A version that this library does not support.
    #[error("a schema of encoding version {got}; this library reads version {VERSION}")]
    Version {
        /// The version of the document.
        got: u8,
    },
    /// The bytes end too early.
    #[error("byte {offset}: the schema ends where {what} is expected")]
    Truncated {
        /// The offset of the end.
        offset: usize,
        /// What was expected there.
        what: &'static str,
    },
    /// There are bytes after the schema.
    #[error("byte {offset}: the schema has ended, and {left} bytes are left")]
    Trailing {
        /// The offset of the schema's end.
        offset: usize,
        /// Number of bytes after it.
        left: usize,
    },
    /// A byte or number without a meaning at this place.
    #[error("byte {offset}: {got} is not a valid {what}")]
    Value {
        /// The offset of the value.
        offset: usize,
        /// What was expected.
        what: &'static str,
        /// The value.
        got: u64,
    },
    /// A name or text is not UTF-8.
    #[error("byte {offset}: not UTF-8")]
    Utf8 {
        /// The offset of the first invalid byte.
        offset: usize,
    },
    /// A limit is exceeded.
    #[error("byte {offset}: {got} {what}, allowed are {max}")]
    Limit {
        /// The offset of the number.
        offset: usize,
        /// What is counted.
        what: &'static str,
        /// The number.
        got: u64,
        /// The limit.
        max: u64,
    },
    /// The bytes can be decoded, but are not the canonical encoding of the schema.
    #[error("byte {offset}: not the canonical encoding of this schema")]
    NotCanonical {
        /// The offset of the first byte that differs from the canonical encoding.
        offset: usize,
    },
    /// The definitions contradict each other or exceed a limit.
    #[error(transparent)]
    Schema(#[from] SchemaError),
}

type Result<T> = core::result::Result<T, SchemaDecodeError>;

pub(super) fn decode(bytes: &[u8], limits: &SchemaLimits) -> Result<Schema> {
    let mut reader = Reader { bytes, at: 0, docs: false, members: 0, limits };
    reader.check("bytes", bytes.len() as u64, limits.bytes as u64)?;
    reader.header()?;
    let defs = reader.count("definitions")?;
    reader.check("definitions", defs as u64, limits.defs as u64)?;
    let root = reader.ty(0)?;
    let mut builder = SchemaBuilder::with_limits(*limits);
    for _ in 0..defs {
        builder.add(reader.def()?);
    }
    let (offset, left) = (reader.at, bytes.len() - reader.at);
    if left > 0 {
        return Err(SchemaDecodeError::Trailing { offset, left });
    }
    let docs = reader.docs;
    let schema = builder.finish(root)?;
    match first_difference(bytes, &super::encode(&schema, docs)) {
        Some(offset) => Err(SchemaDecodeError::NotCanonical { offset }),
        None => Ok(schema),
    }
}

fn first_difference(a: &[u8], b: &[u8]) -> Option<usize> {
    let common = a.iter().zip(b).position(|(a, b)| a != b);
    common.or((a.len() != b.len()).then(|| a.len().min(b.len())))
}

/// Reads forward only. Allocations never run ahead of the bytes that fill them, so memory stays
/// within a constant multiple of the input.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    docs: bool,
    members: usize,
    limits: &'a SchemaLimits,
}

impl<'a> Reader<'a> {
    fn header(&mut self) -> Result<()> {
        if self.take(3, "'PWS'")? != MAGIC {
            return Err(SchemaDecodeError::Magic);
        }
        match self.byte("the version")? {
            VERSION => {}
            got => return Err(SchemaDecodeError::Version { got }),
        }
        let offset = self.at;
        match self.byte("the options")? {
            0 => {}
            WITH_DOCS => self.docs = true,
            got => return Err(value(offset, "known option", got.into())),
        }
        Ok(())
    }

    fn ty(&mut self, depth: usize) -> Result<Type> {
        self.check("types inside each other", depth as u64, MAX_TYPE_DEPTH as u64)?;
        let offset = self.at;
        let tag = self.byte("a type")?;
        Ok(match tag {
            tag::STRING => Type::String { bound: self.number("bound")? },
            tag::WSTRING => Type::WString { bound: self.number("bound")? },
            tag::SEQUENCE => Type::Sequence { bound: self.number("bound")?, element: self.boxed_ty(depth)? },
            tag::ARRAY => {
                let dims = self.list("dimensions", |reader| reader.number("dimension"))?;
                Type::Array { dims, element: self.boxed_ty(depth)? }
            }
            tag::MAP => {
                let bound = self.number("bound")?;
                Type::Map { bound, key: self.boxed_ty(depth)?, value: self.boxed_ty(depth)? }
            }
            tag::DEF => Type::Def(DefId(self.number("definition")?)),
            _ => tag::primitive(tag).ok_or(value(offset, "type", tag.into()))?,
        })
    }

    fn boxed_ty(&mut self, depth: usize) -> Result<Box<Type>> {
        self.ty(depth + 1).map(Box::new)
    }

    fn def(&mut self) -> Result<Def> {
        let kind_offset = self.at;
        let kind = self.byte("a definition")?;
        let name = self.text()?;
        let offset = self.at;
        let extensibility = self.byte("an extensibility")?;
        let extensibility =
            tag::extensibility(extensibility).ok_or(value(offset, "extensibility", extensibility.into()))?;
        let [nested, hash] = self.flags("flags of a definition")?;
        let annotations = self.annotations()?;
        let doc = self.doc()?;
        let kind = self.kind(kind, kind_offset)?;
        Ok(Def { name, kind, extensibility, nested, auto_id: tag::auto_id(hash), annotations, doc })
    }

    fn kind(&mut self, kind: u8, offset: usize) -> Result<DefKind> {
        Ok(match kind {
            tag::STRUCT => DefKind::Struct { base: self.base()?, members: self.members(Self::member)? },
            tag::UNION => {
                DefKind::Union { key: self.bool()?, discriminator: self.ty(0)?, cases: self.members(Self::case)? }
            }
            tag::ENUM => {
                DefKind::Enum { bit_bound: self.byte("@bit_bound")?, literals: self.members(Self::enum_literal)? }
            }
            tag::BITMASK => DefKind::Bitmask { bit_bound: self.byte("@bit_bound")?, flags: self.members(Self::flag)? },
            tag::BITSET => DefKind::Bitset { base: self.base()?, fields: self.members(Self::bit_field)? },
            tag::ALIAS => DefKind::Alias { target: self.ty(0)? },
            _ => return Err(value(offset, "kind of definition", kind.into())),
        })
    }

    fn base(&mut self) -> Result<Option<DefId>> {
        Ok(self.number("base")?.checked_sub(1).map(DefId))
    }

    fn member(&mut self) -> Result<Member> {
        let name = self.text()?;
        let offset = self.at;
        let [explicit, key, optional, must_understand, use_default, trim, default, external] =
            self.flags("flags of a member")?;
        let try_construct: Option<TryConstruct> = tag::try_construct(use_default, trim);
        Ok(Member {
            name,
            id: 0,
            explicit_id: if explicit { Some(self.number("member id")?) } else { None },
            key,
            optional,
            must_understand,
            external,
            try_construct: try_construct.ok_or(value(offset, "@try_construct", 3))?,
            ty: self.ty(0)?,
            default: if default { Some(self.literal()?) } else { None },
            annotations: self.annotations()?,
            doc: self.doc()?,
        })
    }

    fn case(&mut self) -> Result<Case> {
        let is_default = self.bool()?;
        let labels = self.members(|reader| reader.signed("label"))?;
        Ok(Case { is_default, labels, member: self.member()? })
    }

    fn enum_literal(&mut self) -> Result<EnumLiteral> {
        Ok(EnumLiteral {
            name: self.text()?,
            value: self.signed("value")?,
            is_default: self.bool()?,
            annotations: self.annotations()?,
        })
    }

    fn flag(&mut self) -> Result<Flag> {
        Ok(Flag { name: self.text()?, position: self.byte("@position")?, annotations: self.annotations()? })
    }

    fn bit_field(&mut self) -> Result<BitField> {
        let name = Some(self.text()?).filter(|name| !name.is_empty());
        let width = self.byte("a width")?;
        Ok(BitField { name, position: 0, width, ty: self.ty(0)?, annotations: self.annotations()? })
    }

    fn annotations(&mut self) -> Result<Vec<Annotation>> {
        self.list("annotations", |reader| {
            let name = reader.text()?;
            let args = reader.list("arguments", |reader| Ok((reader.text()?, reader.literal()?)))?;
            Ok(Annotation { name, args })
        })
    }

    fn literal(&mut self) -> Result<Literal> {
        let offset = self.at;
        Ok(match self.byte("a literal")? {
            tag::BOOL => Literal::Bool(self.bool()?),
            tag::INT => Literal::Int(self.wide_signed()?),
            tag::FLOAT => {
                let mut bits = [0; 8];
                bits.copy_from_slice(self.take(8, "a number")?);
                Literal::Float(f64::from_bits(u64::from_le_bytes(bits)))
            }
            tag::CHAR => Literal::Char(self.number("character")?),
            tag::TEXT => Literal::String(self.text()?),
            tag::LITERAL => Literal::Enum(self.text()?),
            got => return Err(value(offset, "kind of literal", got.into())),
        })
    }

    fn doc(&mut self) -> Result<String> {
        if self.docs { self.text() } else { Ok(String::new()) }
    }

    /// A list of items that count towards [`SchemaLimits::members`].
    fn members<T>(&mut self, item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let offset = self.at;
        let items = self.count("members")?;
        self.at = offset;
        self.members = self.members.saturating_add(items);
        self.check("members", self.members as u64, self.limits.members as u64)?;
        self.list("members", item)
    }

    fn list<T>(&mut self, what: &'static str, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let count = self.count(what)?;
        (0..count).map(|_| item(self)).collect()
    }

    /// Reads a count. Each item takes at least one byte, so a count greater than the number of
    /// bytes left is reported at once as a truncated document.
    fn count(&mut self, what: &'static str) -> Result<usize> {
        let count = self.varint(what)?;
        match usize::try_from(count) {
            Ok(count) if count <= self.bytes.len() - self.at => Ok(count),
            _ => Err(SchemaDecodeError::Truncated { offset: self.bytes.len(), what }),
        }
    }

    fn number(&mut self, what: &'static str) -> Result<u32> {
        let offset = self.at;
        let number = self.varint(what)?;
        u32::try_from(number).map_err(|_| value(offset, what, number))
    }

    fn signed<T: TryFrom<i128>>(&mut self, what: &'static str) -> Result<T> {
        let offset = self.at;
        let number = self.wide_signed()?;
        T::try_from(number).map_err(|_| value(offset, what, number as u64))
    }

    fn varint(&mut self, what: &'static str) -> Result<u64> {
        let offset = self.at;
        let number = self.wide_varint(what)?;
        u64::try_from(number).map_err(|_| value(offset, what, number as u64))
    }

    fn wide_signed(&mut self) -> Result<i128> {
        let number = self.wide_varint("a number")?;
        Ok((number >> 1) as i128 ^ -((number & 1) as i128))
    }

    /// Overlong forms are found when the schema is compared with its canonical encoding.
    fn wide_varint(&mut self, what: &'static str) -> Result<u128> {
        let offset = self.at;
        let mut number = 0u128;
        for shift in (0..128).step_by(7) {
            let byte = self.byte(what)?;
            let bits = u128::from(byte & 0x7F);
            if bits << shift >> shift != bits {
                break;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(value(offset, "number of 128 bits", u64::MAX))
    }

    fn bool(&mut self) -> Result<bool> {
        let offset = self.at;
        match self.byte("a boolean")? {
            0 => Ok(false),
            1 => Ok(true),
            got => Err(value(offset, "boolean", got.into())),
        }
    }

    fn flags<const N: usize>(&mut self, what: &'static str) -> Result<[bool; N]> {
        let offset = self.at;
        let byte = self.byte(what)?;
        match u32::from(byte) >> N {
            0 => Ok(core::array::from_fn(|i| byte >> i & 1 == 1)),
            _ => Err(value(offset, what, byte.into())),
        }
    }

    fn text(&mut self) -> Result<String> {
        let len = self.count("text")?;
        let offset = self.at;
        let bytes = self.take(len, "text")?;
        let text = core::str::from_utf8(bytes);
        text.map(str::to_string).map_err(|e| SchemaDecodeError::Utf8 { offset: offset + e.valid_up_to() })
    }

    fn byte(&mut self, what: &'static str) -> Result<u8> {
        self.take(1, what).map(|bytes| bytes[0])
    }

    fn take(&mut self, len: usize, what: &'static str) -> Result<&'a [u8]> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        match rest.split_at_checked(len) {
            Some((bytes, _)) => {
                self.at += len;
                Ok(bytes)
            }
            None => Err(SchemaDecodeError::Truncated { offset: self.bytes.len(), what }),
        }
    }

    fn check(&self, what: &'static str, got: u64, max: u64) -> Result<()> {
        match got <= max {
            true => Ok(()),
            false => Err(SchemaDecodeError::Limit { offset: self.at, what, got, max }),
        }
    }
}

fn value(offset: usize, what: &'static str, got: u64) -> SchemaDecodeError {
    SchemaDecodeError::Value { offset, what, got }
}
