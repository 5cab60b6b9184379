//! Schemas as DDS programs tell each other types: the TypeObjects of DDS-XTypes 1.3 (7.3.4).
//!
//! A type is a set of TypeObjects, one for each definition, which refer to each other by hashes of
//! their bytes. Each comes in two forms. The *complete* one has names; the *minimal* one has hashes
//! of names, and is what programs compare. Discovery carries the `TypeInformation`, which has the
//! hashes alone; the objects lie in the `TypeMapping`, and programs ask each other for them.
//! [`TypeObjects`] has both as DDS encodes them: XCDR2, little endian, without a header.
//!
//! What a TypeObject has no place for is lost: default values, comments, and annotations apart from
//! `@unit`, `@min` and `@max`. Recursive types have none here, because Cyclone DDS does not know
//! the strongly connected components that XTypes makes of them.
//!
//! Flags that XTypes leaves open are set as Cyclone DDS does: enums and bitmasks tell whether they
//! are final or appendable, and a key is always to be understood.

use alloc::{string::String, vec::Vec};

use super::{Schema, SchemaError, SchemaLimits};

mod input;
mod output;
mod read;
mod write;

/// A type as DDS describes it.
///
/// ```
/// use polywire_core::schema::{Def, Member, SchemaBuilder, SchemaLimits, Type, TypeObjects};
///
/// let mut types = SchemaBuilder::new();
/// let pump = types.add(Def::structure("plant::Pump", vec![
///     Member::new("id", Type::Uint32).as_key(),
///     Member::new("name", Type::string()),
/// ]));
/// let schema = types.finish(Type::Def(pump))?;
/// let described = TypeObjects::of(&schema)?;
/// let read = described.schema(&SchemaLimits::default())?;
/// assert_eq!((read.name(), read.type_hash()), ("plant::Pump", schema.type_hash()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeObjects {
    /// The `TypeInformation`: the hashes of the type and of those that it needs.
    pub information: Vec<u8>,
    /// The `TypeMapping`: the TypeObjects by their hashes.
    pub mapping: Vec<u8>,
}

impl TypeObjects {
    /// Describes a type whose root is a definition.
    ///
    /// # Errors
    /// If the type is recursive, or has a name or label for which a TypeObject has no room.
    pub fn of(schema: &Schema) -> Result<TypeObjects, TypeObjectError> {
        write::write(schema)
    }

    /// The type that is described. The bytes may come from anybody.
    ///
    /// # Errors
    /// If the bytes are malformed, if an object is missing, or if the type exceeds `limits`.
    pub fn schema(&self, limits: &SchemaLimits) -> Result<Schema, TypeObjectError> {
        read::read(self, limits)
    }
}

/// Why a type has no TypeObjects, or TypeObjects are no type. Offsets are in bytes from the start
/// of the `TypeInformation` or `TypeMapping`.
///
/// ```
/// use polywire_core::schema::{SchemaLimits, TypeObjectError, TypeObjects};
/// let error = TypeObjects::default().schema(&SchemaLimits::default()).unwrap_err();
/// assert_eq!(error, TypeObjectError::Truncated { offset: 0, what: "a length" });
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TypeObjectError {
    /// A type contains itself.
    #[error("'{name}' contains itself, and DDS programs do not tell each other recursive types")]
    Recursive {
        /// The definition.
        name: String,
    },
    /// A type that cannot be that of a topic.
    #[error("only a named type has type information")]
    Root,
    /// A name is longer than DDS allows.
    #[error("a name has {bytes} bytes, and DDS allows {MAX_NAME_BYTES}: '{name}'")]
    Name {
        /// The name.
        name: String,
        /// Its length in bytes.
        bytes: usize,
    },
    /// A label of a union does not fit 32 bits.
    #[error("union '{name}' has the label {label}, which does not fit the 32 bits of a TypeObject")]
    Label {
        /// The union.
        name: String,
        /// The label.
        label: i64,
    },
    /// The bytes end too early.
    #[error("byte {offset}: the type information ends where {what} is expected")]
    Truncated {
        /// The offset of the end.
        offset: usize,
        /// What was expected there.
        what: &'static str,
    },
    /// A number without a meaning at this place.
    #[error("byte {offset}: {got} is not a valid {what}")]
    Value {
        /// The offset behind the number.
        offset: usize,
        /// What was expected.
        what: &'static str,
        /// The number.
        got: u64,
    },
    /// A name is not UTF-8.
    #[error("byte {offset}: not UTF-8")]
    Utf8 {
        /// The offset of the name.
        offset: usize,
    },
    /// A limit is exceeded.
    #[error("{got} {what}, allowed are {max}")]
    Limit {
        /// What is counted.
        what: &'static str,
        /// The number.
        got: u64,
        /// The limit.
        max: u64,
    },
    /// A type refers to a TypeObject that is not there.
    #[error("the TypeObject {0:x?} is missing")]
    Missing([u8; 14]),
    /// The definitions contradict each other or exceed a limit.
    #[error(transparent)]
    Schema(#[from] SchemaError),
}

/// The longest name of a type or member, in bytes.
const MAX_NAME_BYTES: usize = 256;

/// The first 14 bytes of the MD5 of a TypeObject.
type Hash = [u8; 14];

/// The two forms of a TypeObject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Minimal,
    Complete,
}

impl Form {
    /// The `EquivalenceKind`.
    const fn kind(self) -> u8 {
        match self {
            Form::Minimal => 0xF1,
            Form::Complete => 0xF2,
        }
    }
}

/// The `EquivalenceKind` of collections whose elements have no hash.
const BOTH: u8 = 0xF3;

/// The members of a `TypeInformation`.
const MINIMAL_ID: u32 = 0x1001;
const COMPLETE_ID: u32 = 0x1002;

/// `TypeKind`, and the kinds of `TypeIdentifier` beyond it.
mod kind {
    use crate::schema::Type;

    pub(super) const NONE: u8 = 0x00;
    pub(super) const STRING8: u8 = 0x20;
    pub(super) const STRING16: u8 = 0x21;
    pub(super) const ALIAS: u8 = 0x30;
    pub(super) const ENUM: u8 = 0x40;
    pub(super) const BITMASK: u8 = 0x41;
    pub(super) const STRUCTURE: u8 = 0x51;
    pub(super) const UNION: u8 = 0x52;
    pub(super) const BITSET: u8 = 0x53;
    pub(super) const SEQUENCE: u8 = 0x60;
    pub(super) const ARRAY: u8 = 0x61;
    pub(super) const MAP: u8 = 0x62;
    pub(super) const STRING8_SMALL: u8 = 0x70;
    pub(super) const STRING8_LARGE: u8 = 0x71;
    pub(super) const STRING16_SMALL: u8 = 0x72;
    pub(super) const STRING16_LARGE: u8 = 0x73;
    pub(super) const SEQUENCE_SMALL: u8 = 0x80;
    pub(super) const SEQUENCE_LARGE: u8 = 0x81;
    pub(super) const ARRAY_SMALL: u8 = 0x90;
    pub(super) const ARRAY_LARGE: u8 = 0x91;
    pub(super) const MAP_SMALL: u8 = 0xA0;
    pub(super) const MAP_LARGE: u8 = 0xA1;

    const PRIMITIVES: [(u8, Type); 15] = [
        (0x01, Type::Bool),
        (0x02, Type::Octet),
        (0x03, Type::Int16),
        (0x04, Type::Int32),
        (0x05, Type::Int64),
        (0x06, Type::Uint16),
        (0x07, Type::Uint32),
        (0x08, Type::Uint64),
        (0x09, Type::Float32),
        (0x0A, Type::Float64),
        (0x0B, Type::Float128),
        (0x0C, Type::Int8),
        (0x0D, Type::Uint8),
        (0x10, Type::Char8),
        (0x11, Type::Char16),
    ];

    pub(super) fn of_primitive(ty: &Type) -> Option<u8> {
        PRIMITIVES.iter().find(|(_, primitive)| primitive == ty).map(|(kind, _)| *kind)
    }

    pub(super) fn primitive(kind: u8) -> Option<Type> {
        PRIMITIVES.iter().find(|(known, _)| *known == kind).map(|(_, primitive)| primitive.clone())
    }
}

/// Flags of types.
mod type_flag {
    pub(super) const FINAL: u16 = 1;
    pub(super) const APPENDABLE: u16 = 1 << 1;
    pub(super) const MUTABLE: u16 = 1 << 2;
    pub(super) const NESTED: u16 = 1 << 3;
    pub(super) const AUTO_ID_HASH: u16 = 1 << 4;
}

/// Flags of members, elements, discriminators and literals.
mod member_flag {
    pub(super) const DISCARD: u16 = 1;
    pub(super) const USE_DEFAULT: u16 = 1 << 1;
    pub(super) const TRIM: u16 = DISCARD | USE_DEFAULT;
    pub(super) const EXTERNAL: u16 = 1 << 2;
    pub(super) const OPTIONAL: u16 = 1 << 3;
    pub(super) const MUST_UNDERSTAND: u16 = 1 << 4;
    pub(super) const KEY: u16 = 1 << 5;
    pub(super) const DEFAULT: u16 = 1 << 6;
}
