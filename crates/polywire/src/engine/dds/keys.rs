//! Disposed and unregistered instances, as DDS programs send them: a sample with only the members
//! of the key, or with only the hash of the key. Nodes send whole values, so this module adds the
//! other members, with their default values.

use std::{cell::OnceCell, collections::BTreeMap, sync::Arc};

use polywire_core::{
    codec::{
        self, Decoder, Encoder, Options,
        cdr::{
            CDR, XCDR2,
            key::{KeyHash, KeyHasher},
        },
    },
    layout::{Record, Shape},
    schema::{DefId, DefKind, Extensibility, Schema, SchemaBuilder, Type},
};
use polywire_dds::Sample;

use super::form::without_number;

/// Returns the payload of a sample whose writer is not a node's. The payload is empty if the key
/// cannot be read; the key hash then identifies the instance.
pub(super) fn payload(keys: Option<&Keys>, sample: &Sample) -> Vec<u8> {
    match sample.is_key {
        true => keys.and_then(|keys| keys.value(sample)).unwrap_or_default(),
        false => without_number(&sample.bytes),
    }
}

/// Makes whole values from keys.
pub(super) struct Keys {
    codec: String,
    schema: Schema,
    /// Made for the first key. `None` if no values can be made for the codec and the schema.
    values: OnceCell<Option<Values>>,
    /// Made for the first key that arrives only as its hash.
    hashed: OnceCell<Option<Hashed>>,
}

struct Values {
    shape: Arc<Shape>,
    decoder: Decoder<Record>,
    encoder: Encoder<Record>,
}

/// Reads keys from their hashes.
struct Hashed {
    decoder: Decoder<Record>,
    hashers: [KeyHasher<Record>; 2],
}

impl Keys {
    /// Makes whole values for the samples of a channel with this codec and schema.
    pub(super) fn new(codec: &str, schema: Schema) -> Keys {
        Keys { codec: codec.into(), schema, values: OnceCell::new(), hashed: OnceCell::new() }
    }

    /// Returns the value for a sample that has only its key, in the encoding of its codec. `None`
    /// if the key cannot be read.
    fn value(&self, sample: &Sample) -> Option<Vec<u8>> {
        let values = self.values.get_or_init(|| Values::new(&self.codec, &self.schema)).as_ref()?;
        let (mut record, mut value) = (Record::new(&values.shape), Vec::new());
        match sample.bytes.sample() {
            [_, _, _, _] => {
                let hashed = self.hashed.get_or_init(|| Hashed::new(&self.schema, &values.shape)).as_ref()?;
                hashed.decode(&sample.key_hash?, &mut record)?;
            }
            _ => _ = values.decoder.decode(&without_number(&sample.bytes), &mut record).ok()?,
        }
        values.encoder.encode(&record, &mut value).ok()?;
        Some(value)
    }
}

impl Values {
    fn new(codec: &str, schema: &Schema) -> Option<Values> {
        let codec = codec::find(codec)?;
        let shape = Shape::of(schema).ok()?;
        let header: Options = "header".parse().ok()?;
        let decoder = Decoder::for_shape(codec, &header, &key_schema(schema, Part::Sample)?, &shape).ok()?;
        let encoder = Encoder::for_shape(codec, &header, &shape).ok()?;
        Some(Values { shape, decoder, encoder })
    }
}

impl Hashed {
    fn new(schema: &Schema, shape: &Arc<Shape>) -> Option<Hashed> {
        let big_endian: Options = "be".parse().ok()?;
        let decoder = Decoder::for_shape(&XCDR2, &big_endian, &key_schema(schema, Part::Hash)?, shape).ok()?;
        let hasher = |codec| KeyHasher::for_shape(codec, shape).ok()?;
        Some(Hashed { decoder, hashers: [hasher(&CDR)?, hasher(&XCDR2)?] })
    }

    /// Sets the members of a key from its hash. `None` if the hash is a digest, or if the two
    /// versions of CDR give the key different hashes: the hash does not say which version it is of.
    fn decode(&self, hash: &KeyHash, record: &mut Record) -> Option<()> {
        self.decoder.decode(hash, record).ok()?;
        self.hashers.iter().all(|hasher| hasher.clone().hash(record).is_ok_and(|of| of == *hash)).then_some(())
    }
}

/// What a key type describes.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    /// The body of a sample with only a key.
    Sample,
    /// The hash of a key: structures are final, and their members are in the order of their ids.
    Hash,
}

/// Returns the key type of a schema (XTypes 1.3, 7.6.8): its key members, and of structures in them
/// that have keys, again only the key members. `None` if there is no key.
fn key_schema(schema: &Schema, part: Part) -> Option<Schema> {
    let mut types = SchemaBuilder::new();
    for def in schema.defs() {
        types.add(def.clone());
    }
    let Type::Def(root) = schema.resolve(schema.root()) else { return None };
    let root = key_type(schema, *root, part, &mut types, &mut BTreeMap::new())?;
    types.finish(Type::Def(root)).ok()
}

/// Returns the key type of a structure. `None` if it has no key. `made` has the key types that
/// exist already, or are being made.
fn key_type(
    schema: &Schema,
    id: DefId,
    part: Part,
    types: &mut SchemaBuilder,
    made: &mut BTreeMap<DefId, Option<DefId>>,
) -> Option<DefId> {
    if let Some(made) = made.get(&id) {
        return *made;
    }
    made.insert(id, None);
    let mut def = schema.def(id).clone();
    let DefKind::Struct { base, members } = &mut def.kind else { return None };
    *members = schema.members(id).into_iter().filter(|member| member.key).cloned().collect();
    *base = None;
    if members.is_empty() {
        return None;
    }
    if part == Part::Hash {
        def.extensibility = Extensibility::Final;
        members.sort_by_key(|member| member.id);
    }
    for member in members {
        if let Type::Def(inner) = schema.resolve(&member.ty)
            && let Some(keys) = key_type(schema, *inner, part, types, made)
        {
            member.ty = Type::Def(keys);
        }
        member.explicit_id = Some(member.id);
    }
    def.name.push_str("::polywire::Key");
    let keys = types.add(def);
    made.insert(id, Some(keys));
    Some(keys)
}

#[cfg(test)]
mod tests {
    use polywire_core::schema::{Def, Member};
    use polywire_dds::{Bytes, Kind};

    use super::*;

    fn key(name: &str, ty: Type) -> Member {
        Member { key: true, ..Member::new(name, ty) }
    }

    /// Makes a type whose key has a structure with a key of its own, and a structure without one.
    fn schema(extensibility: Extensibility) -> Schema {
        let mut types = SchemaBuilder::new();
        let mut add =
            |name: &str, members| Type::Def(types.add(Def::structure(name, members).with_extensibility(extensibility)));
        let place = add("Place", vec![Member::new("hall", Type::Uint8), key("row", Type::Uint16)]);
        let size = add("Size", vec![Member::new("x", Type::Uint8), Member::new("y", Type::Uint8)]);
        let level = Member::new("level", Type::Float64);
        let root = add("Pump", vec![level, key("place", place), key("size", size), key("name", Type::string())]);
        types.finish(root).expect("a schema")
    }

    fn sample(bytes: Bytes, key_hash: Option<KeyHash>) -> Sample {
        Sample { kind: Kind::Dispose, is_key: true, bytes, key_hash, timestamp_ns: 0, sequence: None }
    }

    /// Returns, in JSON, the value for a key that arrives only as its hash.
    fn of_hash(schema: &Schema, hash: KeyHash) -> Option<String> {
        let bytes = Bytes::new([0; 4], &[]).expect("bytes");
        let value = Keys::new("cdr", schema.clone()).value(&sample(bytes, Some(hash)))?;
        let shape = Shape::of(schema).expect("a shape");
        let mut record = Record::new(&shape);
        let header = "header".parse().expect("options");
        Decoder::for_shape(&CDR, &header, schema, &shape)
            .expect("a decoder")
            .decode(&value, &mut record)
            .expect("decoded");
        Some(record.to_json().expect("JSON"))
    }

    /// Makes a type with these key members, and a level.
    fn keyed(members: Vec<Member>) -> Schema {
        let mut types = SchemaBuilder::new();
        let members = [vec![Member::new("level", Type::Uint8)], members].concat();
        let root = Type::Def(types.add(Def::structure("Pump", members).with_extensibility(Extensibility::Mutable)));
        types.finish(root).expect("a schema")
    }

    #[test]
    fn a_hash_becomes_a_value_if_it_is_the_key() {
        let short = keyed(vec![key("row", Type::Uint16), key("id", Type::Uint32)]);
        let hash = [0, 7, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(of_hash(&short, hash).as_deref(), Some(r#"{"level":0,"row":7,"id":16909060}"#));
        let by_id = |name: &str, ty, id| Member { explicit_id: Some(id), ..key(name, ty) };
        let sorted = keyed(vec![by_id("id", Type::Uint32, 9), by_id("row", Type::Uint16, 8)]);
        assert_eq!(of_hash(&sorted, hash).as_deref(), Some(r#"{"level":0,"id":16909060,"row":7}"#));
        let trailing = [0, 7, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 1];
        assert_eq!(of_hash(&short, trailing), None);
        let digest = keyed(vec![key("name", Type::string())]);
        assert_eq!(of_hash(&digest, hash), None);
        // Its second member is at another place in each version of CDR.
        let ambiguous = keyed(vec![key("id", Type::Uint32), key("time", Type::Uint64)]);
        assert_eq!(of_hash(&ambiguous, [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0]), None);
    }

    #[test]
    fn a_key_becomes_a_value() {
        for codec in ["cdr", "xcdr2"] {
            for extensibility in [Extensibility::Final, Extensibility::Appendable, Extensibility::Mutable] {
                let whole = schema(extensibility);
                let encoded = |schema: &Schema, json: &str| {
                    let shape = Shape::of(schema).expect("a shape");
                    let codec = codec::find(codec).expect("a codec");
                    let options = "header".parse().expect("options");
                    let encoder = Encoder::for_shape(codec, &options, &shape).expect("an encoder");
                    let mut bytes = Vec::new();
                    encoder.encode(&Record::from_json(&shape, json).expect("a value"), &mut bytes).expect("encoded");
                    bytes
                };
                let key = r#"{"place":{"row":7},"size":{"x":1,"y":2},"name":"north"}"#;
                let key = encoded(&key_schema(&whole, Part::Sample).expect("keys"), key);
                let bytes = Bytes::new([key[0], key[1], key[2], key[3]], &key[4..]).expect("bytes");
                let keys = Keys::new(codec, whole.clone());
                let json = r#"{"place":{"row":7},"size":{"x":1,"y":2},"name":"north"}"#;
                assert_eq!(keys.value(&sample(bytes, None)), Some(encoded(&whole, json)), "{codec} {extensibility:?}");
                let cut = Bytes::new([key[0], key[1], 0, 0], &key[4..6]).expect("bytes");
                assert_eq!(keys.value(&sample(cut, None)), None, "{codec} {extensibility:?}");
            }
        }
    }
}
