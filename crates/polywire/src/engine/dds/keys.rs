//! The ends of instances, as programs of DDS send them: a sample with the members of the key alone.
//! Nodes send whole values, so the other members are added here, with their default values.

use std::{cell::OnceCell, collections::BTreeMap, sync::Arc};

use polywire_core::{
    codec::{self, Decoder, Encoder, Options},
    layout::{Record, Shape},
    schema::{DefId, DefKind, Schema, SchemaBuilder, Type},
};
use polywire_dds::Sample;

use super::form::without_number;

/// The payload of a sample whose writer is no node's. It is empty if a key cannot be read; the hash
/// says which one it is.
pub(super) fn payload(keys: Option<&Keys>, sample: &Sample) -> Vec<u8> {
    match sample.is_key {
        true => keys.and_then(|keys| keys.value(sample)).unwrap_or_default(),
        false => without_number(&sample.bytes),
    }
}

/// Makes values of keys.
pub(super) struct Keys {
    codec: String,
    schema: Schema,
    /// Made for the first key. `None` if there are no values for it.
    values: OnceCell<Option<Values>>,
}

struct Values {
    shape: Arc<Shape>,
    decoder: Decoder<Record>,
    encoder: Encoder<Record>,
}

impl Keys {
    /// For the samples of a channel in a codec, whose schema is this one.
    pub(super) fn new(codec: &str, schema: Schema) -> Keys {
        Keys { codec: codec.into(), schema, values: OnceCell::new() }
    }

    /// The value of a sample that has its key alone, as its codec makes it. `None` if the key
    /// cannot be read.
    fn value(&self, sample: &Sample) -> Option<Vec<u8>> {
        let values = self.values.get_or_init(|| Values::new(&self.codec, &self.schema)).as_ref()?;
        let (mut record, mut value) = (Record::new(&values.shape), Vec::new());
        values.decoder.decode(&without_number(&sample.bytes), &mut record).ok()?;
        values.encoder.encode(&record, &mut value).ok()?;
        Some(value)
    }
}

impl Values {
    fn new(codec: &str, schema: &Schema) -> Option<Values> {
        let codec = codec::find(codec)?;
        let shape = Shape::of(schema).ok()?;
        let header: Options = "header".parse().ok()?;
        let decoder = Decoder::for_shape(codec, &header, &key_schema(schema)?, &shape).ok()?;
        let encoder = Encoder::for_shape(codec, &header, &shape).ok()?;
        Some(Values { shape, decoder, encoder })
    }
}

/// The type of the keys (XTypes 1.3, 7.6.8): the members that are keys, also of the structures in
/// them that have keys. `None` if there is no key.
fn key_schema(schema: &Schema) -> Option<Schema> {
    let mut types = SchemaBuilder::new();
    for def in schema.defs() {
        types.add(def.clone());
    }
    let Type::Def(root) = schema.resolve(schema.root()) else { return None };
    let root = key_type(schema, *root, &mut types, &mut BTreeMap::new())?;
    types.finish(Type::Def(root)).ok()
}

/// The type of the keys of a structure. `None` if it has none. `made` has those that are there
/// already, or are being made.
fn key_type(
    schema: &Schema,
    id: DefId,
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
    for member in members {
        if let Type::Def(inner) = schema.resolve(&member.ty)
            && let Some(keys) = key_type(schema, *inner, types, made)
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
    use polywire_core::schema::{Def, Extensibility, Member};
    use polywire_dds::{Bytes, Kind};

    use super::*;

    fn key(name: &str, ty: Type) -> Member {
        Member { key: true, ..Member::new(name, ty) }
    }

    /// A type with a structure that has a key of its own, and one that has none, in its key.
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
                let key = encoded(&key_schema(&whole).expect("keys"), key);
                let bytes = Bytes::new([key[0], key[1], key[2], key[3]], &key[4..]).expect("bytes");
                let sample = Sample {
                    kind: Kind::Dispose,
                    is_key: true,
                    bytes,
                    key_hash: None,
                    timestamp_ns: 0,
                    sequence: None,
                };
                let keys = Keys::new(codec, whole.clone());
                let json = r#"{"place":{"row":7},"size":{"x":1,"y":2},"name":"north"}"#;
                assert_eq!(keys.value(&sample), Some(encoded(&whole, json)), "{codec} {extensibility:?}");
                let cut = Bytes::new([key[0], key[1], 0, 0], &key[4..6]).expect("bytes");
                assert_eq!(keys.value(&Sample { bytes: cut, ..sample }), None, "{codec} {extensibility:?}");
            }
        }
    }
}
