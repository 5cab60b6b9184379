//! Key hashes: sixteen bytes that identify the instances of a topic, as in DDS (XTypes 1.3, 7.6.8).
//!
//! A key hash consists of the members marked `@key` in the order of their ids, big endian and
//! without headers. A nested structure contributes its own keys, or all its members if it has none.
//! If the keys of some value of the type may exceed sixteen bytes, as with every unbounded string,
//! the hash is the MD5 of the keys for all values.
//!
//! ```
//! use polywire_core::codec::cdr::{CDR, key::KeyHasher};
//! # use polywire_core as polywire;
//!
//! #[derive(polywire_derive::Message)]
//! struct Track { #[polywire(key)] number: u16, speed: f64 }
//!
//! let mut hasher = KeyHasher::<Track>::new(&CDR).unwrap().expect("it has a key");
//! let hash = hasher.hash(&Track { number: 0x2F01, speed: 250.0 }).unwrap();
//! assert_eq!(hash, [0x2F, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
//! ```

use alloc::{sync::Arc, vec::Vec};
use core::cell::Cell;

use md5::{Digest, Md5};

use super::{Cdr, Dialect, OPTIONS, Version, scalar_of_def};
use crate::{
    codec::{
        BuildError, Codec, Encoder, OptionSpec, Options, Properties,
        lower::{EncodeDialect, EncodeWalk, LowerError, Lowered, MemberOut, UnionOut, encode, scalar_of},
    },
    layout::{Codable, Layout, Message, Record, Scalar, Shape},
    program::{CodecError, Order, Place, Program},
    schema::{DefId, DefKind, Member, Schema, Type, array_shape},
};

/// A key hash; see this module.
pub type KeyHash = [u8; KEY_HASH_LEN];

/// Length of a key hash in bytes.
pub const KEY_HASH_LEN: usize = 16;

/// Computes the key hashes of values of a Rust type ([`KeyHasher::new`]) or of records
/// ([`KeyHasher::for_shape`]).
///
/// ```
/// use polywire_core::codec::cdr::{CDR, key::KeyHasher};
/// use polywire_core::layout::{Record, Shape};
/// use polywire_core::schema::{Def, Member, SchemaBuilder, Type};
///
/// let mut types = SchemaBuilder::new();
/// let id = Member { key: true, ..Member::new("id", Type::Uint32) };
/// let pump = types.add(Def::structure("Pump", vec![id, Member::new("bar", Type::Float64)]));
/// let shape = Shape::of(&types.finish(Type::Def(pump))?)?;
/// let mut hasher = KeyHasher::for_shape(&CDR, &shape)?.expect("it has a key");
/// let hash = hasher.hash(&Record::from_json(&shape, r#"{"id": 7, "bar": 2.5}"#)?)?;
/// // A short key is its own hash: big-endian CDR, filled with zeros.
/// assert_eq!(hash, [0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
pub struct KeyHasher<V: Codable> {
    encoder: Encoder<V>,
    digest: KeyDigest,
}

impl<V: Codable> Clone for KeyHasher<V> {
    fn clone(&self) -> Self {
        KeyHasher { encoder: self.encoder.clone(), digest: self.digest.clone() }
    }
}

impl<M: Message> KeyHasher<M> {
    /// Makes a hasher for values that are sent in this version of CDR, whose alignment affects the
    /// hash. `None` for a type without keys.
    pub fn new(codec: &Cdr) -> Result<Option<KeyHasher<M>>, BuildError> {
        KeyHasher::compile(codec, M::shape().schema(), |keys| Encoder::new(keys, &Options::default()))
    }
}

impl KeyHasher<Record> {
    /// [`KeyHasher::new`] for records of `shape`.
    pub fn for_shape(codec: &Cdr, shape: &Arc<Shape>) -> Result<Option<KeyHasher<Record>>, BuildError> {
        KeyHasher::compile(codec, shape.schema(), |keys| Encoder::for_shape(keys, &Options::default(), shape))
    }
}

impl<V: Codable> KeyHasher<V> {
    fn compile(
        codec: &Cdr,
        schema: &Schema,
        encoder: impl FnOnce(&Keys) -> Result<Encoder<V>, BuildError>,
    ) -> Result<Option<Self>, BuildError> {
        let keys = Keys { version: codec.version };
        let Some(digest) = keys.digest(schema) else { return Ok(None) };
        Ok(Some(KeyHasher { encoder: encoder(&keys)?, digest }))
    }

    /// The hash of a value's key. Fails if the key cannot be encoded.
    ///
    /// # Panics
    /// If a record's shape is not the same `Arc` as the hasher's, even if it is equal.
    pub fn hash(&mut self, value: &V) -> Result<KeyHash, CodecError> {
        self.digest.key.clear();
        self.encoder.encode(value, &mut self.digest.key)?;
        Ok(self.digest.finish())
    }
}

/// Turns an encoded key into a hash.
#[derive(Clone)]
struct KeyDigest {
    /// The encoded key of the current value. Kept to reuse its memory.
    key: Vec<u8>,
    /// True if the key of some value exceeds sixteen bytes.
    may_exceed: bool,
}

impl KeyDigest {
    fn finish(&self) -> KeyHash {
        let mut hash = [0; KEY_HASH_LEN];
        match hash.get_mut(..self.key.len()) {
            Some(head) if !self.may_exceed => head.copy_from_slice(&self.key),
            _ => hash = Md5::digest(&self.key).into(),
        }
        hash
    }
}

/// A write-only format that consists of the key members.
struct Keys {
    version: Version,
}

impl Keys {
    /// `None` for a type without keys.
    fn digest(&self, schema: &Schema) -> Option<KeyDigest> {
        let Type::Def(root) = schema.resolve(schema.root()) else { return None };
        let mut largest = Largest { dialect: self.dialect(), schema, bytes: 0 };
        let bounded = match &schema.def(*root).kind {
            DefKind::Struct { .. } if keys_of(schema, *root).is_empty() => return None,
            DefKind::Struct { .. } => largest.structure(*root),
            DefKind::Union { key: true, discriminator, .. } => largest.value(discriminator),
            _ => return None,
        };
        Some(KeyDigest { key: Vec::new(), may_exceed: bounded.is_none() })
    }

    fn dialect(&self) -> Dialect {
        Dialect { version: self.version, order: Order::Big, older: false }
    }
}

impl Codec for Keys {
    fn name(&self) -> &'static str {
        "key"
    }

    fn properties(&self) -> &'static Properties {
        &super::CDR_PROPERTIES
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn lower_encode(&self, _: &Options, schema: &Schema, layout: &Arc<Layout>) -> Result<Program, LowerError> {
        encode::lower(&KeyDialect { plain: self.dialect(), whole: Cell::new(false) }, schema, layout)
    }

    fn lower_decode(&self, _: &Options, _: &Schema, _: &Schema, _: &Arc<Layout>) -> Result<Program, LowerError> {
        Err(LowerError::Option("keys can only be written".into()))
    }
}

/// The key members of a structure, in the order of their ids.
fn keys_of(schema: &Schema, id: DefId) -> Vec<&Member> {
    let mut keys: Vec<&Member> = schema.members(id).into_iter().filter(|member| member.key).collect();
    keys.sort_by_key(|member| member.id);
    keys
}

/// CDR, but with only the keys of each structure.
struct KeyDialect {
    plain: Dialect,
    /// True inside a collection or union, whose structures are written completely.
    whole: Cell<bool>,
}

impl KeyDialect {
    fn whole<R>(&self, fill: impl FnOnce() -> R) -> R {
        let outer = self.whole.replace(true);
        let filled = fill();
        self.whole.set(outer);
        filled
    }
}

impl EncodeDialect for KeyDialect {
    fn scalar(&self, walk: &mut EncodeWalk<'_>, ty: &Type, wire: Scalar, place: Place) -> Lowered {
        self.plain.scalar(walk, ty, wire, place)
    }

    fn enumeration(&self, walk: &mut EncodeWalk<'_>, id: DefId, wire: Scalar, place: Place) -> Lowered {
        self.plain.enumeration(walk, id, wire, place)
    }

    fn text(&self, walk: &mut EncodeWalk<'_>, ty: &Type, place: Place) -> Lowered {
        self.plain.text(walk, ty, place)
    }

    fn sequence(&self, walk: &mut EncodeWalk<'_>, element: &Type, bound: u32, place: Place) -> Lowered {
        self.whole(|| self.plain.sequence(walk, element, bound, place))
    }

    fn array(&self, walk: &mut EncodeWalk<'_>, element: &Type, dims: &[u32], place: Place) -> Lowered {
        self.whole(|| self.plain.array(walk, element, dims, place))
    }

    fn map(&self, walk: &mut EncodeWalk<'_>, key: &Type, value: &Type, bound: u32, place: Place) -> Lowered {
        self.whole(|| self.plain.map(walk, key, value, bound, place))
    }

    fn structure(&self, walk: &mut EncodeWalk<'_>, id: DefId, members: &[MemberOut<'_>]) -> Lowered {
        if self.whole.get() {
            return self.plain.structure(walk, id, members);
        }
        let mut keys: Vec<MemberOut<'_>> = members.iter().filter(|out| out.member.key).copied().collect();
        if keys.is_empty() {
            keys = members.to_vec();
        } else {
            keys.sort_by_key(|out| out.member.id);
        }
        keys.iter().try_for_each(|key| self.plain.put_plain_member(walk, key))
    }

    fn union(&self, walk: &mut EncodeWalk<'_>, union: &UnionOut<'_>) -> Lowered {
        match walk.schema().def(union.id).kind {
            DefKind::Union { key: true, .. } if !self.whole.get() => walk.union_arms(
                union,
                |walk, _, _| {
                    self.plain.put_discriminator(walk, union.wire, false);
                    Ok(())
                },
                |walk| {
                    self.plain.put_discriminator(walk, union.wire, false);
                    Ok(())
                },
            ),
            _ => self.whole(|| self.plain.union(walk, union)),
        }
    }
}

/// Adds up the largest key. Each step returns `None` if the key exceeds a hash or is unbounded.
struct Largest<'s> {
    dialect: Dialect,
    schema: &'s Schema,
    bytes: usize,
}

impl Largest<'_> {
    fn add(&mut self, scalar: Scalar, count: usize) -> Option<()> {
        let start = self.bytes.next_multiple_of(usize::from(self.dialect.alignment(scalar)));
        self.bytes = scalar.size().checked_mul(count)?.checked_add(start)?;
        (self.bytes <= KEY_HASH_LEN).then_some(())
    }

    fn structure(&mut self, id: DefId) -> Option<()> {
        let keys = keys_of(self.schema, id);
        let keys = if keys.is_empty() { self.schema.members(id) } else { keys };
        // An optional member has a flag or header that is not counted, so a key with one is always
        // digested.
        keys.into_iter().try_for_each(|member| if member.optional { None } else { self.value(&member.ty) })
    }

    fn value(&mut self, ty: &Type) -> Option<()> {
        let schema = self.schema;
        match schema.resolve(ty) {
            Type::String { bound: bound @ 1.. } => {
                self.add(Scalar::U32, 1)?;
                self.add(Scalar::U8, usize::try_from(*bound).ok()?.checked_add(1)?)
            }
            Type::WString { bound: bound @ 1.. } => {
                self.add(Scalar::U32, 1)?;
                self.add(Scalar::U16, usize::try_from(*bound).ok()?)
            }
            Type::Array { .. } => {
                let (inner, dims) = array_shape(schema, ty);
                let count = dims.iter().try_fold(1usize, |n, dim| n.checked_mul(*dim as usize))?;
                self.add(scalar_of(schema.resolve(inner))?, count)
            }
            Type::Def(id) => match (scalar_of_def(schema, *id), &schema.def(*id).kind) {
                (Some(scalar), _) => self.add(scalar, 1),
                (None, DefKind::Struct { .. }) => self.structure(*id),
                (None, _) => None,
            },
            primitive => self.add(scalar_of(primitive)?, 1),
        }
    }
}
