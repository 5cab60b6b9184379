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

use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};
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
    schema::{DefId, DefKind, Extensibility, Member, Schema, Type, array_len, array_shape},
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
    /// True if the key of some value exceeds sixteen bytes, or may have headers.
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
        let mut largest = Largest { dialect: self.dialect(), schema, bytes: 0, whole: false, ends: BTreeMap::new() };
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

    fn context(&self) -> u64 {
        self.whole.get().into()
    }

    fn resume(&self, context: u64) -> bool {
        self.whole.set(context != 0);
        true
    }
}

/// Adds up the largest key. Each step returns `None` if the key exceeds a hash or is unbounded, or
/// if it has optional or mutable parts, whose headers are not counted: such keys are always
/// digested.
struct Largest<'s> {
    dialect: Dialect,
    schema: &'s Schema,
    bytes: usize,
    /// See [`KeyDialect::whole`].
    whole: bool,
    /// Where each definition ends that begins at a byte, because a key may contain it very often.
    ends: BTreeMap<(DefId, bool, usize), usize>,
}

impl Largest<'_> {
    fn add(&mut self, scalar: Scalar, count: usize) -> Option<()> {
        let start = self.bytes.next_multiple_of(usize::from(self.dialect.alignment(scalar)));
        self.bytes = scalar.size().checked_mul(count)?.checked_add(start)?;
        (self.bytes <= KEY_HASH_LEN).then_some(())
    }

    /// Adds a DHEADER if there is one.
    fn header(&mut self, delimited: bool) -> Option<()> {
        if delimited { self.add(Scalar::U32, 1) } else { Some(()) }
    }

    fn whole(&mut self, fill: impl FnOnce(&mut Self) -> Option<()>) -> Option<()> {
        let outer = core::mem::replace(&mut self.whole, true);
        let filled = fill(self);
        self.whole = outer;
        filled
    }

    fn definition(&mut self, id: DefId) -> Option<()> {
        let start = (id, self.whole, self.bytes);
        if let Some(end) = self.ends.get(&start) {
            self.bytes = *end;
            return Some(());
        }
        match &self.schema.def(id).kind {
            DefKind::Struct { .. } => self.structure(id)?,
            _ => self.union(id)?,
        }
        self.ends.insert(start, self.bytes);
        Some(())
    }

    fn structure(&mut self, id: DefId) -> Option<()> {
        let schema = self.schema;
        let mut members = schema.members(id);
        if self.whole {
            self.begin(id)?;
        } else {
            let keys = keys_of(schema, id);
            members = if keys.is_empty() { members } else { keys };
        }
        members.into_iter().try_for_each(|member| if member.optional { None } else { self.value(&member.ty) })
    }

    fn union(&mut self, id: DefId) -> Option<()> {
        let schema = self.schema;
        let DefKind::Union { discriminator, key, cases } = &schema.def(id).kind else { return None };
        if *key && !self.whole {
            return self.value(discriminator);
        }
        self.whole(|largest| {
            largest.begin(id)?;
            largest.value(discriminator)?;
            let (start, mut end) = (largest.bytes, largest.bytes);
            for case in cases {
                largest.bytes = start;
                largest.value(&case.member.ty)?;
                end = end.max(largest.bytes);
            }
            largest.bytes = end;
            Some(())
        })
    }

    /// Begins a complete structure or union.
    fn begin(&mut self, id: DefId) -> Option<()> {
        let def = self.schema.def(id);
        match def.extensibility {
            Extensibility::Mutable => None,
            _ => self.header(self.dialect.delimited(def)),
        }
    }

    /// Adds the elements of a collection, each of which has a value of each type.
    fn elements(&mut self, count: usize, types: &[&Type]) -> Option<()> {
        self.whole(|largest| {
            for _ in 0..count {
                let start = largest.bytes;
                types.iter().try_for_each(|ty| largest.value(ty))?;
                // There may be very many elements without bytes.
                if largest.bytes == start {
                    break;
                }
            }
            Some(())
        })
    }

    fn counted(&mut self, bound: u32, types: &[&Type]) -> Option<()> {
        self.header(self.dialect.delimited_elements(self.schema, types))?;
        self.add(Scalar::U32, 1)?;
        self.elements(usize::try_from(bound).ok()?, types)
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
            Type::Sequence { element, bound: bound @ 1.. } => self.counted(*bound, &[&**element]),
            Type::Map { key, value, bound: bound @ 1.. } => self.counted(*bound, &[&**key, &**value]),
            Type::Array { .. } => {
                let (inner, dims) = array_shape(schema, ty);
                self.header(self.dialect.delimited_elements(schema, &[inner]))?;
                self.elements(array_len(&dims)?, &[inner])
            }
            Type::Def(id) => match scalar_of_def(schema, *id) {
                Some(scalar) => self.add(scalar, 1),
                None => self.definition(*id),
            },
            primitive => self.add(scalar_of(primitive)?, 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::{boxed::Box, vec};

    use super::*;
    use crate::{
        codec::cdr::{CDR, XCDR2},
        schema::{Case, Def, SchemaBuilder},
    };

    const VERSIONS: [Version; 2] = [Version::One, Version::Two];

    /// A structure with a key of this type, which may refer to the definitions below.
    fn with_key(ty: Type) -> Schema {
        let mut types = SchemaBuilder::new();
        types.add(Def::enumeration("Letter", ["A", "B"]));
        let members = || vec![Member::new("x", Type::Int16), Member::new("y", Type::Octet)];
        for (name, extensibility) in [
            ("Fixed", Extensibility::Final),
            ("Growing", Extensibility::Appendable),
            ("Changing", Extensibility::Mutable),
        ] {
            types.add(Def { extensibility, ..Def::structure(name, members()) });
        }
        let cases = vec![Case::new([0], "wide", Type::Int64), Case::new([1], "narrow", Type::Octet)];
        types.add(Def { extensibility: Extensibility::Final, ..Def::union("Choice", Type::Int32, cases) });
        types.add(Def::structure("Nothing", vec![]));
        let root = types.add(Def::structure("Root", vec![Member::new("a", ty).as_key()]));
        types.finish(Type::Def(root)).expect("a valid schema")
    }

    const LETTER: Type = Type::Def(DefId(0));
    const FIXED: Type = Type::Def(DefId(1));
    const GROWING: Type = Type::Def(DefId(2));
    const CHANGING: Type = Type::Def(DefId(3));
    const CHOICE: Type = Type::Def(DefId(4));
    const NOTHING: Type = Type::Def(DefId(5));

    fn sequence(element: Type, bound: u32) -> Type {
        Type::Sequence { element: Box::new(element), bound }
    }

    fn map(key: Type, value: Type, bound: u32) -> Type {
        Type::Map { key: Box::new(key), value: Box::new(value), bound }
    }

    #[test]
    fn a_key_is_digested_only_if_one_of_the_type_exceeds_a_hash() {
        for (ty, digested) in [
            (Type::array(LETTER, [3]), [false, false]),
            (Type::array(LETTER, [4]), [false, true]),
            (Type::array(LETTER, [5]), [true, true]),
            (Type::array(Type::array(Type::Octet, [4]), [4]), [false, false]),
            (Type::array(FIXED, [3]), [false, false]),
            (Type::array(FIXED, [4]), [false, true]),
            (Type::array(GROWING, [2]), [false, true]),
            (Type::array(CHANGING, [1]), [true, true]),
            (CHANGING, [false, false]),
            (sequence(Type::Int32, 3), [false, false]),
            (sequence(Type::Int32, 4), [true, true]),
            (sequence(Type::Int32, 0), [true, true]),
            (sequence(Type::Int64, 1), [false, false]),
            (sequence(LETTER, 2), [false, false]),
            (sequence(LETTER, 3), [false, true]),
            (sequence(NOTHING, u32::MAX), [false, true]),
            (map(Type::Octet, Type::Int16, 3), [false, false]),
            (map(LETTER, Type::Int16, 1), [false, false]),
            (map(LETTER, Type::Int32, 2), [true, true]),
            (CHOICE, [false, false]),
            (Type::array(CHOICE, [1]), [false, false]),
            (Type::array(CHOICE, [2]), [true, true]),
        ] {
            let schema = with_key(ty.clone());
            let found = VERSIONS.map(|version| Keys { version }.digest(&schema).expect("a key").may_exceed);
            assert_eq!(found, digested, "{ty:?}");
        }
    }

    #[test]
    fn a_short_key_in_a_collection_is_its_own_hash() {
        let hash = |codec: &Cdr, ty: Type, json: &str| {
            let shape = Shape::of(&with_key(ty)).expect("a shape");
            let mut hasher = KeyHasher::for_shape(codec, &shape).expect("a hasher").expect("a key");
            hasher.hash(&Record::from_json(&shape, json).expect("a record")).expect("a hash")
        };
        let letters = r#"{"a": ["B", "A", "B"]}"#;
        let one = hash(&CDR, Type::array(LETTER, [3]), letters);
        assert_eq!(one, [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
        let two = hash(&XCDR2, Type::array(LETTER, [3]), letters);
        assert_eq!(two, [0, 0, 0, 12, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
        let one = hash(&CDR, sequence(Type::Int64, 1), r#"{"a": [7]}"#);
        assert_eq!(one, [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
        let two = hash(&XCDR2, sequence(Type::Int64, 1), r#"{"a": [7]}"#);
        assert_eq!(two, [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0]);
        let points = r#"{"a": [{"x": 1, "y": 2}, {"x": 3, "y": 4}]}"#;
        let one = hash(&CDR, Type::array(FIXED, [2]), points);
        assert_eq!(one, [0, 1, 2, 0, 0, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let digested = hash(&XCDR2, Type::array(LETTER, [4]), r#"{"a": ["B", "A", "B", "A"]}"#);
        let key = [0, 0, 0, 16, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
        let expected: KeyHash = Md5::digest(key).into();
        assert_eq!(digested, expected);
    }

    #[test]
    fn a_recursive_type_is_complete_only_inside_a_collection() {
        let mut types = SchemaBuilder::new();
        let node = || Type::Def(DefId(0));
        let members = vec![Member::new("id", Type::Octet).as_key(), Member::new("below", Type::sequence(node()))];
        types.add(Def::structure("Node", members));
        let members = vec![Member::new("a", node()).as_key(), Member::new("b", Type::sequence(node())).as_key()];
        let root = types.add(Def::structure("Root", members));
        let shape = Shape::of(&types.finish(Type::Def(root)).expect("a valid schema")).expect("a shape");
        let mut hasher = KeyHasher::for_shape(&CDR, &shape).expect("a hasher").expect("a key");
        let json = r#"{"a": {"id": 1, "below": []}, "b": [{"id": 2, "below": []}]}"#;
        let hash = hasher.hash(&Record::from_json(&shape, json).expect("a record")).expect("a hash");
        let expected: KeyHash = Md5::digest([1, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0]).into();
        assert_eq!(hash, expected);
    }
}
