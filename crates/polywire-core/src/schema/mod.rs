//! Types as data. A [`Schema`] describes a type that comes from IDL, PDL, a derive or a peer.
//!
//! A schema is a table of named definitions with a type at its root. It is immutable, and clones
//! share it. The kinds of definition are those of OMG IDL 4.2 with the annotations of DDS-XTypes
//! 1.3; `spec/schema.md` defines the compact encoding and the two hashes. Everything that needs a
//! type uses schemas: layouts, codecs, evolution rules, the IDL front end and the wire protocol.
//!
//! ```
//! use polywire_core::schema::{Def, Member, SchemaBuilder, Type};
//!
//! let mut types = SchemaBuilder::new();
//! let position = types.add(Def::structure("Geo::Position", vec![
//!     Member::new("latitude_deg", Type::Float64),
//!     Member::new("longitude_deg", Type::Float64),
//! ]));
//! let schema = types.finish(Type::Def(position)).unwrap();
//! assert_eq!(schema.name(), "Geo::Position");
//! ```

use alloc::{boxed::Box, string::String, sync::Arc, vec::Vec};
use core::fmt;

#[doc(hidden)]
pub mod arbitrary;
mod builder;
mod display;
mod encoding;
pub mod evolve;
mod hash;
mod literal;
mod measure;
mod sizes;
mod type_object;

pub(crate) use builder::part_count;
pub use builder::{MAX_MEMBER_ID, SchemaBuilder, SchemaError, SchemaLimits, hash_id};
pub use encoding::SchemaDecodeError;
pub use hash::{DocumentHash, ParseHashError, TypeHash};
use literal::Literals;
pub(crate) use measure::enum_range;
pub use measure::{array_len, array_shape, holder_bits};
pub(crate) use sizes::{recursive, uses};
pub use type_object::{TypeObjectError, TypeObjects};

/// Index of a definition in its schema's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DefId(pub u32);

/// A type: a primitive, a collection, or a reference to a definition.
///
/// A bound of zero means unbounded (OMG IDL 4.2, 7.4.1.4.4.3).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// `boolean`
    Bool,
    /// `octet`: eight uninterpreted bits. Sequences of it are blobs.
    Octet,
    /// `int8`
    Int8,
    /// `uint8`
    Uint8,
    /// `short`, `int16`
    Int16,
    /// `unsigned short`, `uint16`
    Uint16,
    /// `long`, `int32`
    Int32,
    /// `unsigned long`, `uint32`
    Uint32,
    /// `long long`, `int64`
    Int64,
    /// `unsigned long long`, `uint64`
    Uint64,
    /// `float`: IEEE 754 binary32
    Float32,
    /// `double`: IEEE 754 binary64
    Float64,
    /// `long double`: IEEE 754 binary128
    Float128,
    /// `char`: eight bits
    Char8,
    /// `wchar`: one UTF-16 code unit
    Char16,
    /// `string<bound>`: UTF-8; the bound counts bytes without the terminator
    String {
        /// Largest number of bytes; 0 is unbounded.
        bound: u32,
    },
    /// `wstring<bound>`: UTF-16 on the wire; the bound counts code units
    WString {
        /// Largest number of UTF-16 code units; 0 is unbounded.
        bound: u32,
    },
    /// `sequence<element, bound>`
    Sequence {
        /// Type of the elements.
        element: Box<Type>,
        /// Largest number of elements; 0 is unbounded.
        bound: u32,
    },
    /// `element name[d0][d1]..`, row-major
    Array {
        /// Type of the elements.
        element: Box<Type>,
        /// The dimensions, outermost first; none is zero.
        dims: Vec<u32>,
    },
    /// `map<key, value, bound>`
    Map {
        /// Type of the keys.
        key: Box<Type>,
        /// Type of the values.
        value: Box<Type>,
        /// Largest number of entries; 0 is unbounded.
        bound: u32,
    },
    /// A definition of the same schema.
    Def(DefId),
}

impl Type {
    /// All primitive types, in the order of their tags in schema documents.
    ///
    /// ```
    /// use polywire_core::schema::Type;
    /// assert!(Type::PRIMITIVES.iter().all(Type::is_primitive));
    /// ```
    pub const PRIMITIVES: [Type; 15] = [
        Type::Bool,
        Type::Octet,
        Type::Int8,
        Type::Uint8,
        Type::Int16,
        Type::Uint16,
        Type::Int32,
        Type::Uint32,
        Type::Int64,
        Type::Uint64,
        Type::Float32,
        Type::Float64,
        Type::Float128,
        Type::Char8,
        Type::Char16,
    ];

    /// The keyword of IDL for the type, without its parameters. Definitions have names instead:
    /// for them, it is `definition`.
    ///
    /// ```
    /// use polywire_core::schema::Type;
    /// assert_eq!((Type::Octet.keyword(), Type::string().keyword()), ("octet", "string"));
    /// ```
    pub fn keyword(&self) -> &'static str {
        match self {
            Type::Bool => "boolean",
            Type::Octet => "octet",
            Type::Int8 => "int8",
            Type::Uint8 => "uint8",
            Type::Int16 => "int16",
            Type::Uint16 => "uint16",
            Type::Int32 => "int32",
            Type::Uint32 => "uint32",
            Type::Int64 => "int64",
            Type::Uint64 => "uint64",
            Type::Float32 => "float",
            Type::Float64 => "double",
            Type::Float128 => "long double",
            Type::Char8 => "char",
            Type::Char16 => "wchar",
            Type::String { .. } => "string",
            Type::WString { .. } => "wstring",
            Type::Sequence { .. } => "sequence",
            Type::Array { .. } => "array",
            Type::Map { .. } => "map",
            Type::Def(_) => "definition",
        }
    }

    /// `sequence<element>`, unbounded.
    pub fn sequence(element: Type) -> Type {
        Type::Sequence { element: Box::new(element), bound: 0 }
    }

    /// `string`, unbounded.
    pub fn string() -> Type {
        Type::String { bound: 0 }
    }

    /// `map<key, value>`, unbounded.
    pub fn map(key: Type, value: Type) -> Type {
        Type::Map { key: Box::new(key), value: Box::new(value), bound: 0 }
    }

    /// `element[dims]`.
    pub fn array(element: Type, dims: impl Into<Vec<u32>>) -> Type {
        Type::Array { element: Box::new(element), dims: dims.into() }
    }

    /// True for the fixed-size types that CDR calls primitive: no collection, string or definition.
    pub fn is_primitive(&self) -> bool {
        !matches!(
            self,
            Type::String { .. }
                | Type::WString { .. }
                | Type::Sequence { .. }
                | Type::Array { .. }
                | Type::Map { .. }
                | Type::Def(_)
        )
    }
}

/// How a type may evolve (XTypes 1.3, 7.2.2.4.4.4.8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Extensibility {
    /// `@final`: the list of members is fixed.
    Final,
    /// `@appendable`, the default of IDL 4.2: members may be added at the end.
    #[default]
    Appendable,
    /// `@mutable`: members are encoded with their ids.
    Mutable,
}

/// How members without an explicit id get one: `@autoid` (XTypes 1.3, 7.3.1.2.1.1).
///
/// ```
/// use polywire_core::schema::{hash_id, AutoId, Def, Member, SchemaBuilder, Type, MAX_MEMBER_ID};
/// let mut types = SchemaBuilder::new();
/// let def = Def { auto_id: AutoId::Hash, ..Def::structure("S", vec![Member::new("shapesize", Type::Int32)]) };
/// let id = types.add(def);
/// let schema = types.finish(Type::Def(id))?;
/// assert_eq!(schema.members(id)[0].id, hash_id("shapesize"));
/// assert!(hash_id("shapesize") <= MAX_MEMBER_ID);
/// # Ok::<(), polywire_core::schema::SchemaError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AutoId {
    /// One more than the id of the previous member.
    #[default]
    Sequential,
    /// The first 28 bits of the MD5 of the member's name.
    Hash,
}

/// What a reader does with a value that its type cannot hold: `@try_construct` (XTypes 1.3,
/// 7.2.2.7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TryConstruct {
    /// Refuse the message.
    #[default]
    Discard,
    /// Use the member's default value instead.
    UseDefault,
    /// Cut a string or sequence to its bound.
    Trim,
}

/// A constant: a default value, a label, or an annotation's argument.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// `TRUE` or `FALSE`
    Bool(bool),
    /// Any integer, octet or bitmask.
    Int(i128),
    /// Any floating-point number.
    Float(f64),
    /// A character, as its code point.
    Char(u32),
    /// A string or wide string.
    String(String),
    /// An enum literal, by name.
    Enum(String),
}

/// An annotation for which the schema has no field, kept as written.
#[derive(Clone, Debug, PartialEq)]
pub struct Annotation {
    /// Scoped name, without the `@`.
    pub name: String,
    /// Arguments in order. A single unnamed argument has the name `value`.
    pub args: Vec<(String, Literal)>,
}

/// A named definition.
#[derive(Clone, Debug, PartialEq)]
pub struct Def {
    /// Scoped name, `Module::Type`, without a leading `::`.
    pub name: String,
    /// The kind of definition with its parts.
    pub kind: DefKind,
    /// `@final`, `@appendable` or `@mutable`. Meaningless for aliases.
    pub extensibility: Extensibility,
    /// `@nested`: the type is not meant as a topic's type.
    pub nested: bool,
    /// `@autoid`, for the members of this definition.
    pub auto_id: AutoId,
    /// All other annotations, in order.
    pub annotations: Vec<Annotation>,
    /// The comment in front of the definition. Neither the type hash nor the equality of types
    /// covers it.
    pub doc: String,
}

/// The kinds of definition.
#[derive(Clone, Debug, PartialEq)]
pub enum DefKind {
    /// `struct Name : base { .. }`. A PDL probe is also a structure.
    Struct {
        /// The base structure, whose members come first.
        base: Option<DefId>,
        /// The structure's own members, in order.
        members: Vec<Member>,
    },
    /// `union Name switch (discriminator) { .. }`
    Union {
        /// A boolean, octet, integer, character or enum, or an alias of one.
        discriminator: Type,
        /// True if the discriminator is a key: `@key`.
        key: bool,
        /// The cases, in order.
        cases: Vec<Case>,
    },
    /// `enum Name { .. }`
    Enum {
        /// `@bit_bound`, 1 to 32. The size on the wire is the next of 8, 16 and 32 bits.
        bit_bound: u8,
        /// The literals, in order.
        literals: Vec<EnumLiteral>,
    },
    /// `bitmask Name { .. }`
    Bitmask {
        /// `@bit_bound`, 1 to 64. The size on the wire is the next of 8, 16, 32 and 64 bits.
        bit_bound: u8,
        /// The flags, in order.
        flags: Vec<Flag>,
    },
    /// `bitset Name : base { bitfield<..> .. }`, with at most 64 bits.
    Bitset {
        /// The base bitset, whose fields come first.
        base: Option<DefId>,
        /// The bitset's own fields, in order.
        fields: Vec<BitField>,
    },
    /// `typedef target Name`. Type hashes ignore aliases.
    Alias {
        /// The type that the alias names.
        target: Type,
    },
}

/// A member of a structure.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Name as declared.
    pub name: String,
    /// The effective member id: explicit, hashed or counted. [`SchemaBuilder::finish`] assigns it
    /// if `explicit_id` is `None`.
    pub id: u32,
    /// The id that `@id(n)` gives, or the hash of the name in `@hashid`.
    pub explicit_id: Option<u32>,
    /// Type of the value.
    pub ty: Type,
    /// `@key`
    pub key: bool,
    /// `@optional`
    pub optional: bool,
    /// `@must_understand`
    pub must_understand: bool,
    /// `@external`: the value lies behind a pointer in memory. Has no effect on the wire.
    pub external: bool,
    /// `@default(v)`: the value that a reader uses if the writer has none.
    pub default: Option<Literal>,
    /// `@try_construct`
    pub try_construct: TryConstruct,
    /// `@unit`, `@min`, `@max`, `@range` and all others, in order.
    pub annotations: Vec<Annotation>,
    /// The comment in front of the member.
    pub doc: String,
}

/// A case of a union.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Discriminator values in the order of declaration. Enum literals are given as their values,
    /// booleans as 0 and 1.
    pub labels: Vec<i64>,
    /// True if the case has the `default:` label.
    pub is_default: bool,
    /// Name, id and type of the case's value. It is never optional or a key.
    pub member: Member,
}

/// A literal of an enum.
#[derive(Clone, Debug, PartialEq)]
pub struct EnumLiteral {
    /// Name as declared.
    pub name: String,
    /// `@value`, or one more than the previous literal's value.
    pub value: i32,
    /// `@default_literal`
    pub is_default: bool,
    /// All other annotations.
    pub annotations: Vec<Annotation>,
}

/// A flag of a bitmask.
#[derive(Clone, Debug, PartialEq)]
pub struct Flag {
    /// Name as declared.
    pub name: String,
    /// `@position`, or one more than the previous flag's position.
    pub position: u8,
    /// All other annotations.
    pub annotations: Vec<Annotation>,
}

/// A field of a bitset.
#[derive(Clone, Debug, PartialEq)]
pub struct BitField {
    /// Name. `None` for padding.
    pub name: Option<String>,
    /// First bit, counted from the least significant. [`SchemaBuilder::finish`] assigns it.
    pub position: u8,
    /// Number of bits, 1 to 64.
    pub width: u8,
    /// Type of the value: boolean, octet or integer.
    pub ty: Type,
    /// All annotations.
    pub annotations: Vec<Annotation>,
}

impl Def {
    fn new(name: impl Into<String>, kind: DefKind) -> Def {
        Def {
            name: name.into(),
            kind,
            extensibility: Extensibility::default(),
            nested: false,
            auto_id: AutoId::default(),
            annotations: Vec::new(),
            doc: String::new(),
        }
    }

    /// An appendable structure without a base.
    pub fn structure(name: impl Into<String>, members: Vec<Member>) -> Def {
        Def::new(name, DefKind::Struct { base: None, members })
    }

    /// An appendable union.
    pub fn union(name: impl Into<String>, discriminator: Type, cases: Vec<Case>) -> Def {
        Def::new(name, DefKind::Union { discriminator, key: false, cases })
    }

    /// An enum with a bit bound of 32. The literals get the values 0, 1, 2 and so on.
    pub fn enumeration<N: Into<String>>(name: impl Into<String>, literals: impl IntoIterator<Item = N>) -> Def {
        let literals = literals.into_iter().zip(0..).map(|(name, value)| EnumLiteral::new(name, value)).collect();
        Def::new(name, DefKind::Enum { bit_bound: 32, literals })
    }

    /// A bitmask. The flags get the bits 0, 1, 2 and so on.
    pub fn bitmask<N: Into<String>>(name: impl Into<String>, bit_bound: u8, flags: impl IntoIterator<Item = N>) -> Def {
        let flag = |(name, position): (N, u8)| Flag { name: name.into(), position, annotations: Vec::new() };
        let flags = flags.into_iter().zip(0..).map(flag).collect();
        Def::new(name, DefKind::Bitmask { bit_bound, flags })
    }

    /// A bitset without a base.
    pub fn bitset(name: impl Into<String>, fields: Vec<BitField>) -> Def {
        Def::new(name, DefKind::Bitset { base: None, fields })
    }

    /// A typedef.
    pub fn alias(name: impl Into<String>, target: Type) -> Def {
        Def::new(name, DefKind::Alias { target })
    }

    /// The same definition with another extensibility.
    pub fn with_extensibility(mut self, extensibility: Extensibility) -> Def {
        self.extensibility = extensibility;
        self
    }

    /// The same structure or bitset with a base.
    ///
    /// # Panics
    /// If the definition is of another kind.
    pub fn with_base(mut self, id: DefId) -> Def {
        match &mut self.kind {
            DefKind::Struct { base, .. } | DefKind::Bitset { base, .. } => *base = Some(id),
            _ => panic!("only a structure or a bitset has a base"),
        }
        self
    }
}

impl Member {
    /// A mandatory member without annotations. [`SchemaBuilder::finish`] assigns its id.
    pub fn new(name: impl Into<String>, ty: Type) -> Member {
        Member {
            name: name.into(),
            id: 0,
            explicit_id: None,
            ty,
            key: false,
            optional: false,
            must_understand: false,
            external: false,
            default: None,
            try_construct: TryConstruct::default(),
            annotations: Vec::new(),
            doc: String::new(),
        }
    }

    /// The same member with `@id(id)`.
    pub fn with_id(mut self, id: u32) -> Member {
        self.explicit_id = Some(id);
        self
    }

    /// The same member as `@key`.
    pub fn as_key(mut self) -> Member {
        self.key = true;
        self
    }

    /// The same member as `@optional`.
    pub fn as_optional(mut self) -> Member {
        self.optional = true;
        self
    }

    /// The same member with `@default(value)`.
    pub fn with_default(mut self, value: Literal) -> Member {
        self.default = Some(value);
        self
    }
}

impl Case {
    /// A case that `labels` select.
    pub fn new(labels: impl Into<Vec<i64>>, name: impl Into<String>, ty: Type) -> Case {
        Case { labels: labels.into(), is_default: false, member: Member::new(name, ty) }
    }

    /// The case that all other discriminator values select.
    pub fn default(name: impl Into<String>, ty: Type) -> Case {
        Case { labels: Vec::new(), is_default: true, member: Member::new(name, ty) }
    }
}

impl EnumLiteral {
    /// A literal without annotations.
    pub fn new(name: impl Into<String>, value: i32) -> EnumLiteral {
        EnumLiteral { name: name.into(), value, is_default: false, annotations: Vec::new() }
    }
}

impl BitField {
    /// A named field of `width` bits, with the smallest unsigned type that can hold it.
    pub fn new(name: impl Into<String>, width: u8) -> BitField {
        let ty = match width {
            1 => Type::Bool,
            0 | 2..=8 => Type::Octet,
            9..=16 => Type::Uint16,
            17..=32 => Type::Uint32,
            _ => Type::Uint64,
        };
        BitField { name: Some(name.into()), position: 0, width, ty, annotations: Vec::new() }
    }
}

/// A type with every definition that it needs. Immutable; a clone shares the data.
///
/// Two schemas are equal if their definitions and roots are equal, including comments and order. To
/// compare *types*, compare [type hashes](Schema::type_hash).
///
/// ```
/// use polywire_core::schema::{
///     Annotation, BitField, Case, Def, DefId, DefKind, EnumLiteral, Extensibility, Flag, Literal, Member, SchemaBuilder,
///     TryConstruct, Type,
/// };
///
/// let mut types = SchemaBuilder::new();
/// let mode = types.add(Def::enumeration("Plant::Mode", ["OFF", "MANUAL"]));
/// let alarms = types.add(Def::bitmask("Plant::Alarms", 16, ["LEAK", "HEAT"]));
/// let version = types.add(Def::bitset("Plant::Version", vec![BitField::new("major", 3), BitField::new("minor", 5)]));
/// let drive = types.add(Def::union("Plant::Drive", Type::Def(mode), vec![
///     Case::new([0], "reason", Type::string()),
///     Case::default("speed_rpm", Type::array(Type::Float32, [2])),
/// ]));
/// let device = types.add(Def::structure("Plant::Device", vec![Member::new("id", Type::Uint32).with_id(7).as_key()]));
/// let mut level = Member::new("level", Type::Int16).with_default(Literal::Int(-1));
/// level.try_construct = TryConstruct::UseDefault;
/// level.annotations.push(Annotation { name: "unit".into(), args: vec![("value".into(), Literal::String("m".into()))] });
/// let pump = types.add(
///     Def::structure("Plant::Pump", vec![
///         Member::new("alarms", Type::Def(alarms)),
///         Member::new("version", Type::Def(version)),
///         Member::new("drive", Type::Def(drive)).as_optional(),
///         level,
///     ])
///     .with_base(device)
///     .with_extensibility(Extensibility::Mutable),
/// );
/// let alias = types.add(Def::alias("Plant::Main", Type::Def(pump)));
/// let schema = types.finish(Type::Def(alias))?;
///
/// // Typedefs are resolved, and inherited members come first.
/// assert_eq!(schema.resolve(schema.root()), &Type::Def(schema.find("Plant::Pump").unwrap()));
/// let root: DefId = schema.find("Plant::Pump").unwrap();
/// let names: Vec<&str> = schema.members(root).iter().map(|member| &*member.name).collect();
/// assert_eq!(names, ["id", "alarms", "version", "drive", "level"]);
/// assert_eq!(schema.def(root).kind_name(), "struct");
/// assert_eq!((schema.type_name(&schema.members(root)[1].ty).as_str(), schema.members(root)[1].ty.is_primitive()), ("Plant::Alarms", false));
/// assert_eq!(schema.bit_fields(version).len(), 2);
/// assert_eq!(schema.holder_size(alarms), Some(2));
///
/// // Any definition can be the root.
/// let alone = schema.with_root(mode);
/// let DefKind::Enum { literals, .. } = &alone.def_of(alone.root()).unwrap().kind else { panic!("it is an enum") };
/// assert_eq!((alone.defs().len(), &literals[1]), (7, &EnumLiteral::new("MANUAL", 1)));
/// let DefKind::Bitmask { flags, .. } = &schema.def(alarms).kind else { panic!("it is a bitmask") };
/// let heat: &Flag = &flags[1];
/// assert_eq!((heat.name.as_str(), heat.position), ("HEAT", 1));
/// # Ok::<(), polywire_core::schema::SchemaError>(())
/// ```
#[derive(Clone)]
pub struct Schema(Arc<Inner>);

struct Inner {
    /// Shared by all schemas that have the same definitions but different roots.
    defs: Arc<[Def]>,
    root: Type,
    type_hash: TypeHash,
    literals: Vec<Literals>,
}

impl Schema {
    /// Makes a schema from definitions that [`SchemaBuilder::finish`] has checked.
    fn from_checked(defs: impl Into<Arc<[Def]>>, root: Type) -> Schema {
        let defs: Arc<[Def]> = defs.into();
        let (literals, type_hash) = (Literals::of_all(&defs), TypeHash::from_bytes([0; 16]));
        let mut schema = Schema(Arc::new(Inner { defs, root, type_hash, literals }));
        let type_hash = TypeHash::of(&schema);
        if let Some(inner) = Arc::get_mut(&mut schema.0) {
            inner.type_hash = type_hash;
        }
        schema
    }

    /// The type at the root.
    pub fn root(&self) -> &Type {
        &self.0.root
    }

    /// All definitions. References may point to earlier and to later definitions.
    pub fn defs(&self) -> &[Def] {
        &self.0.defs
    }

    /// A definition by index.
    ///
    /// # Panics
    /// If `id` is out of range, because it belongs to another schema.
    pub fn def(&self, id: DefId) -> &Def {
        &self.0.defs[id.0 as usize]
    }

    /// Finds a definition by its scoped name, or by its last part if that is unambiguous.
    pub fn find(&self, name: &str) -> Option<DefId> {
        let defs = self.0.defs.iter().enumerate();
        if let Some((i, _)) = defs.clone().find(|(_, d)| d.name == name) {
            return Some(DefId(i as u32));
        }
        let mut same_tail = defs.filter(|(_, d)| d.name.rsplit("::").next() == Some(name));
        match (same_tail.next(), same_tail.next()) {
            (Some((i, _)), None) => Some(DefId(i as u32)),
            _ => None,
        }
    }

    /// The scoped name of the root. Empty if the root is not a definition.
    pub fn name(&self) -> &str {
        match self.root() {
            Type::Def(id) => &self.def(*id).name,
            _ => "",
        }
    }

    /// Resolves aliases: returns the first type behind them that is not an alias.
    pub fn resolve<'a>(&'a self, mut ty: &'a Type) -> &'a Type {
        while let Type::Def(id) = ty {
            match &self.def(*id).kind {
                DefKind::Alias { target } => ty = target,
                _ => break,
            }
        }
        ty
    }

    /// The definition that `ty` refers to, with aliases resolved. `None` for primitives and
    /// collections.
    pub fn def_of(&self, ty: &Type) -> Option<&Def> {
        match self.resolve(ty) {
            Type::Def(id) => Some(self.def(*id)),
            _ => None,
        }
    }

    /// The members of a structure with inherited members first (XTypes 1.3, 7.2.2.4.5). Empty for
    /// other kinds.
    pub fn members(&self, id: DefId) -> Vec<&Member> {
        match &self.def(id).kind {
            DefKind::Struct { base, members } => {
                let mut all = base.map(|base| self.members(base)).unwrap_or_default();
                all.extend(members);
                all
            }
            _ => Vec::new(),
        }
    }

    /// The fields of a bitset with inherited fields first. Empty for other kinds.
    pub fn bit_fields(&self, id: DefId) -> Vec<&BitField> {
        match &self.def(id).kind {
            DefKind::Bitset { base, fields } => {
                let mut all = base.map(|base| self.bit_fields(base)).unwrap_or_default();
                all.extend(fields);
                all
            }
            _ => Vec::new(),
        }
    }

    /// A schema with the same definitions and another root.
    pub fn with_root(&self, id: DefId) -> Schema {
        Schema::from_checked(self.0.defs.clone(), Type::Def(id))
    }
}

impl PartialEq for Schema {
    fn eq(&self, other: &Schema) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || (self.0.root == other.0.root && self.0.defs == other.0.defs)
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schema").field("root", self.root()).field("defs", &self.defs()).finish()
    }
}

/// A random schema of `polywire-testing`, which has types of this library as others use it.
#[cfg(test)]
pub(crate) fn random_schema(seed: u64, size: usize) -> Schema {
    let bytes = polywire_testing::random_schema(seed, size).to_bytes_with_docs();
    Schema::from_bytes(&bytes, &SchemaLimits::default()).expect("an encoded schema can be read")
}
