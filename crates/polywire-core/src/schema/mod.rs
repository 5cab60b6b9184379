//! Types as data: what IDL, PDL, a derive or a peer says of a type, immutable and cheap to share.
//!
//! A [`Schema`] is a table of named definitions and the type at its root. The kinds are those of
//! OMG IDL 4.2 with the annotations of DDS-XTypes 1.3; `spec/schema.md` defines the compact
//! encoding and the two hashes.
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

pub use builder::{MAX_MEMBER_ID, SchemaBuilder, SchemaError, SchemaLimits, hash_id};
pub use encoding::SchemaDecodeError;
pub use hash::{DocumentHash, ParseHashError, TypeHash};
pub(crate) use measure::enum_range;
pub use measure::{array_len, array_shape, holder_bits};

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

/// How a type may evolve (XTypes 7.2.2.4.4.4.8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Extensibility {
    /// The members are the contract: `@final`.
    Final,
    /// Members may be added at the end: `@appendable`, and the default of IDL 4.2.
    #[default]
    Appendable,
    /// Members travel with their ids: `@mutable`.
    Mutable,
}

/// How ids are given to members that have none of their own (XTypes 7.3.1.2.1.1).
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
    /// One more than the previous member's.
    #[default]
    Sequential,
    /// The first 28 bits of the MD5 of the member's name.
    Hash,
}

/// What a reader does with a value that its type cannot hold (`@try_construct`, XTypes 7.2.2.7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TryConstruct {
    /// The message is refused.
    #[default]
    Discard,
    /// The member's default takes its place.
    UseDefault,
    /// A string or sequence is cut to the bound.
    Trim,
}

/// A constant: a default, a label, or an annotation's argument.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// `TRUE` or `FALSE`
    Bool(bool),
    /// Any integer, octet or bitmask.
    Int(i128),
    /// Any floating-point number.
    Float(f64),
    /// A character, as its code.
    Char(u32),
    /// A string or wide string.
    String(String),
    /// An enum literal by name.
    Enum(String),
}

/// An annotation that the schema has no field for, kept as written.
#[derive(Clone, Debug, PartialEq)]
pub struct Annotation {
    /// Scoped name, without the `@`.
    pub name: String,
    /// Arguments in order; the name of a lone unnamed argument is `value`.
    pub args: Vec<(String, Literal)>,
}

/// A named definition.
#[derive(Clone, Debug, PartialEq)]
pub struct Def {
    /// Scoped name, `Module::Type`, without a leading `::`.
    pub name: String,
    /// What it defines.
    pub kind: DefKind,
    /// `@final`, `@appendable` or `@mutable`; meaningless for aliases.
    pub extensibility: Extensibility,
    /// `@nested`: not meant as a topic's type.
    pub nested: bool,
    /// `@autoid`.
    pub auto_id: AutoId,
    /// Every other annotation, in order.
    pub annotations: Vec<Annotation>,
    /// The comment in front of it; outside both the type hash and equality of types.
    pub doc: String,
}

/// The kinds of definition.
#[derive(Clone, Debug, PartialEq)]
pub enum DefKind {
    /// `struct Name : base { .. }`; a PDL probe is one too.
    Struct {
        /// The structure whose members come first.
        base: Option<DefId>,
        /// Its own members, in order.
        members: Vec<Member>,
    },
    /// `union Name switch (discriminator) { .. }`
    Union {
        /// Boolean, octet, integer, char, enum, or an alias of one.
        discriminator: Type,
        /// The discriminator is `@key`.
        key: bool,
        /// The cases, in order.
        cases: Vec<Case>,
    },
    /// `enum Name { .. }`
    Enum {
        /// `@bit_bound`: 1 to 32; the wire size is the next of 8, 16, 32 bits.
        bit_bound: u8,
        /// The literals, in order.
        literals: Vec<EnumLiteral>,
    },
    /// `bitmask Name { .. }`
    Bitmask {
        /// `@bit_bound`: 1 to 64; the wire size is the next of 8, 16, 32, 64 bits.
        bit_bound: u8,
        /// The flags, in order.
        flags: Vec<Flag>,
    },
    /// `bitset Name : base { bitfield<..> .. }`, at most 64 bits
    Bitset {
        /// The bitset whose fields come first.
        base: Option<DefId>,
        /// Its own fields, in order.
        fields: Vec<BitField>,
    },
    /// `typedef target Name`: erased in the type hash.
    Alias {
        /// What it names.
        target: Type,
    },
}

/// A member of a structure.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Name as declared.
    pub name: String,
    /// The effective member id: explicit, hashed, or counted up. [`SchemaBuilder::finish`] gives it
    /// where `explicit_id` is none.
    pub id: u32,
    /// `@id(n)`, or the id that `@hashid` names.
    pub explicit_id: Option<u32>,
    /// Type of the value.
    pub ty: Type,
    /// `@key`
    pub key: bool,
    /// `@optional`
    pub optional: bool,
    /// `@must_understand`
    pub must_understand: bool,
    /// `@external`: held by reference in memory, nothing on the wire.
    pub external: bool,
    /// `@default(v)`: the value a reader takes where the writer has none.
    pub default: Option<Literal>,
    /// `@try_construct`
    pub try_construct: TryConstruct,
    /// `@unit`, `@min`, `@max`, `@range` and all others, in order.
    pub annotations: Vec<Annotation>,
    /// The comment in front of it.
    pub doc: String,
}

/// A case of a union.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Discriminator values, ascending as declared; enum literals as their values, booleans as 0
    /// and 1.
    pub labels: Vec<i64>,
    /// Has the `default:` label.
    pub is_default: bool,
    /// Name, id and type; never optional or key.
    pub member: Member,
}

/// A literal of an enum.
#[derive(Clone, Debug, PartialEq)]
pub struct EnumLiteral {
    /// Name as declared.
    pub name: String,
    /// `@value`, or one more than the literal before.
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
    /// `@position`, or one more than the flag before.
    pub position: u8,
    /// All other annotations.
    pub annotations: Vec<Annotation>,
}

/// A field of a bitset.
#[derive(Clone, Debug, PartialEq)]
pub struct BitField {
    /// Name, or none for padding.
    pub name: Option<String>,
    /// First bit, counted from the least significant; [`SchemaBuilder::finish`] gives it.
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

    /// An enum of 32 bits; literals count from 0.
    pub fn enumeration<N: Into<String>>(name: impl Into<String>, literals: impl IntoIterator<Item = N>) -> Def {
        let literals = literals.into_iter().zip(0..).map(|(name, value)| EnumLiteral::new(name, value)).collect();
        Def::new(name, DefKind::Enum { bit_bound: 32, literals })
    }

    /// A bitmask; flags count from bit 0.
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
    /// If it is of another kind.
    pub fn with_base(mut self, id: DefId) -> Def {
        match &mut self.kind {
            DefKind::Struct { base, .. } | DefKind::Bitset { base, .. } => *base = Some(id),
            _ => panic!("only a structure or a bitset has a base"),
        }
        self
    }
}

impl Member {
    /// A mandatory member without annotations; its id is counted when the schema is finished.
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
    /// A case chosen by `labels`.
    pub fn new(labels: impl Into<Vec<i64>>, name: impl Into<String>, ty: Type) -> Case {
        Case { labels: labels.into(), is_default: false, member: Member::new(name, ty) }
    }

    /// The case chosen by every other discriminator.
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
    /// A named field of `width` bits, of the smallest unsigned type that holds it.
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

/// A type with every definition it needs. Immutable; a clone shares.
///
/// Two schemas are equal when their definitions and roots are, comments and order included; for
/// equality of *types* compare hashes.
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
/// // Typedefs are looked through, members of bases come first.
/// assert_eq!(schema.resolve(schema.root()), &Type::Def(schema.find("Plant::Pump").unwrap()));
/// let root: DefId = schema.find("Plant::Pump").unwrap();
/// let names: Vec<&str> = schema.members(root).iter().map(|member| &*member.name).collect();
/// assert_eq!(names, ["id", "alarms", "version", "drive", "level"]);
/// assert_eq!(schema.def(root).kind_name(), "struct");
/// assert_eq!((schema.type_name(&schema.members(root)[1].ty).as_str(), schema.members(root)[1].ty.is_primitive()), ("Plant::Alarms", false));
/// assert_eq!(schema.bit_fields(version).len(), 2);
/// assert_eq!(schema.holder_size(alarms), Some(2));
///
/// // Any definition can be a root.
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
    /// Shared by all schemas that one builder's definitions make, one for each root.
    defs: Arc<[Def]>,
    root: Type,
    type_hash: TypeHash,
}

impl Schema {
    /// From definitions that [`SchemaBuilder::finish`] has checked.
    fn from_checked(defs: impl Into<Arc<[Def]>>, root: Type) -> Schema {
        let mut schema = Schema(Arc::new(Inner { defs: defs.into(), root, type_hash: TypeHash::from_bytes([0; 16]) }));
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

    /// All definitions; those a definition refers to may come before or after it.
    pub fn defs(&self) -> &[Def] {
        &self.0.defs
    }

    /// A definition by index.
    ///
    /// # Panics
    /// If `id` is of another schema and out of range here.
    pub fn def(&self, id: DefId) -> &Def {
        &self.0.defs[id.0 as usize]
    }

    /// A definition by scoped name, or, if just one ends so, by its last part.
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

    /// The scoped name of the root; empty when the root is no definition.
    pub fn name(&self) -> &str {
        match self.root() {
            Type::Def(id) => &self.def(*id).name,
            _ => "",
        }
    }

    /// `ty` with typedefs followed until something else is reached.
    pub fn resolve<'a>(&'a self, mut ty: &'a Type) -> &'a Type {
        while let Type::Def(id) = ty {
            match &self.def(*id).kind {
                DefKind::Alias { target } => ty = target,
                _ => break,
            }
        }
        ty
    }

    /// The definition that `ty` is, typedefs followed; none for primitives and collections.
    pub fn def_of(&self, ty: &Type) -> Option<&Def> {
        match self.resolve(ty) {
            Type::Def(id) => Some(self.def(*id)),
            _ => None,
        }
    }

    /// Members of a structure with those of its bases in front (XTypes 7.2.2.4.5); empty for other
    /// kinds.
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

    /// Fields of a bitset with those of its bases in front; empty for other kinds.
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

    /// The same definitions with another root.
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
