//! The golden vectors of CDR, which Cyclone DDS and Fast CDR made, or which follow the
//! specification. `conformance/cdr/README.md` says how.
//!
//! Each vector is decoded, compared with its value, and encoded again. The vectors listed in
//! `expected-failures.txt` must fail.

use polywire_testing::{backends, hex, unhex};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

use polywire_core::{
    codec::{self, Decoder, Encoder, Options, cdr::key::KeyHasher},
    layout::{Record, Shape},
    program::Backend,
    schema::Schema,
};
use polywire_idl::{Compiler, Document};
use serde_json::Value as Json;

mod values;

use values::{differs, value_of};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../conformance/cdr")
}

fn lines(file: &str) -> Vec<Json> {
    let text = std::fs::read_to_string(folder().join(file)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Names of the vectors that are another implementation's mistakes.
fn expected_failures() -> BTreeSet<String> {
    let text = std::fs::read_to_string(folder().join("expected-failures.txt")).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split(": ").next().unwrap().to_string()).collect()
}

/// The files that vectors name, parsed once.
#[derive(Default)]
struct Types {
    documents: BTreeMap<String, Document>,
}

impl Types {
    fn schema(&mut self, idl: &str, name: &str) -> Schema {
        let document = self.documents.entry(idl.to_string()).or_insert_with(|| {
            let path = folder().join(idl);
            Compiler::new().parse_file(path.to_str().unwrap()).unwrap_or_else(|errors| panic!("{errors}"))
        });
        document.schema(name).unwrap()
    }
}

struct Vector {
    json: Json,
    schema: Schema,
    codec: &'static dyn codec::Codec,
    options: Options,
    bytes: Vec<u8>,
}

impl Vector {
    fn new(types: &mut Types, json: Json) -> Vector {
        let schema = types.schema(json["idl"].as_str().unwrap(), json["type"].as_str().unwrap());
        let codec = match json["encoding"].as_str().unwrap() {
            "xcdr1" => codec::find("cdr").unwrap(),
            _ => codec::find("xcdr2").unwrap(),
        };
        let options = format!("{},header", json["order"].as_str().unwrap()).parse().unwrap();
        let bytes = unhex(json["hex"].as_str().unwrap());
        Vector { json, schema, codec, options, bytes }
    }

    fn decode(&self, shape: &Arc<Shape>, backend: Backend) -> Result<Record, String> {
        // The header says the order of the bytes, so one decoder reads the vectors of both.
        let options = "header".parse().unwrap();
        let decoder = Decoder::for_shape_with_backend(self.codec, &options, &self.schema, shape, backend);
        let decoder = decoder.map_err(|error| format!("no decoder: {error}"))?;
        let mut record = Record::new(shape);
        let used = decoder.decode(&self.bytes, &mut record).map_err(|error| format!("not decoded: {error}"))?;
        match used == self.bytes.len() {
            true => Ok(record),
            false => Err(format!("{used} bytes of {} were read", self.bytes.len())),
        }
    }

    fn encode(&self, record: &Record, backend: Backend) -> Result<(), String> {
        let encoder = Encoder::for_shape_with_backend(self.codec, &self.options, record.shape(), backend);
        let encoder = encoder.map_err(|error| format!("no encoder: {error}"))?;
        let mut bytes = vec![];
        encoder.encode(record, &mut bytes).map_err(|error| format!("not encoded: {error}"))?;
        match bytes == self.bytes {
            true => Ok(()),
            false => Err(format!("encoded\n  {} for\n  {}", hex(&bytes), hex(&self.bytes))),
        }
    }

    fn check(&self, types: &mut Types, backend: Backend) -> Result<(), String> {
        let shape = Shape::of(&self.schema).map_err(|error| format!("no shape: {error}"))?;
        let record = self.decode(&shape, backend)?;
        if let Some(difference) = differs(&record.view(), &self.json["value"]) {
            return Err(format!("decoded otherwise: {difference}"));
        }
        if self.json["decode_only"] != true {
            self.encode(&record, backend)?;
        }
        if let Some(value) = value_of(&self.schema, self.schema.root(), &self.json["value"]) {
            let mut made = Record::new(&shape);
            made.set("", value).map_err(|error| format!("not made: {error}"))?;
            if made != record {
                return Err(format!("{made:?} was made, {record:?} was decoded"));
            }
        }
        if let Some(hash) = self.json["keyhash"].as_str() {
            self.check_key(&record, hash)?;
        }
        self.check_other_version(types, backend)
    }

    fn check_key(&self, record: &Record, hash: &str) -> Result<(), String> {
        let codec = if self.json["encoding"] == "xcdr1" { &codec::cdr::CDR } else { &codec::cdr::XCDR2 };
        let mut hasher = KeyHasher::for_shape(codec, record.shape()).map_err(|error| format!("no hasher: {error}"))?;
        let got =
            hasher.as_mut().ok_or("it has no key")?.hash(record).map_err(|error| format!("not hashed: {error}"))?;
        match hex(&got) == hash {
            true => Ok(()),
            false => Err(format!("the key hash is {}, not {hash}", hex(&got))),
        }
    }

    /// The same bytes as a reader of another version of the type sees them.
    fn check_other_version(&self, types: &mut Types, backend: Backend) -> Result<(), String> {
        let Some(other) = self.json.get("read_as") else { return Ok(()) };
        let schema = types.schema(self.json["idl"].as_str().unwrap(), other["type"].as_str().unwrap());
        let record = self.decode(&Shape::of(&schema).unwrap(), backend).map_err(|why| format!("as {other}: {why}"))?;
        differs(&record.view(), &other["value"]).map_or(Ok(()), |why| Err(format!("as {other}: {why}")))
    }
}

#[test]
fn vectors_are_read_and_written() {
    let (mut types, failing) = (Types::default(), expected_failures());
    let (mut wrong, mut total) = (vec![], 0);
    for backend in backends() {
        for json in lines("vectors.jsonl") {
            let name = json["name"].as_str().unwrap().to_string();
            let result = Vector::new(&mut types, json).check(&mut types, backend);
            total += 1;
            match (result, failing.contains(&name)) {
                (Ok(()), false) | (Err(_), true) => {}
                (Ok(()), true) => wrong.push(format!("{name}: is no failure any more")),
                (Err(why), false) => wrong.push(format!("{name} ({backend:?}): {why}")),
            }
        }
    }
    assert!(total >= 513, "there are only {total} vectors");
    assert!(wrong.is_empty(), "{} of {total} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn invalid_values_are_refused() {
    let mut types = Types::default();
    for backend in backends() {
        for json in lines("refused.jsonl") {
            let (name, why) = (json["name"].to_string(), json["why"].to_string());
            let vector = Vector::new(&mut types, json);
            let read = vector.decode(&Shape::of(&vector.schema).unwrap(), backend);
            assert!(read.is_err_and(|error| error.starts_with("not decoded")), "{name} ({backend:?}) though {why}");
        }
    }
}

#[test]
fn every_truncation_is_refused_and_no_flipped_bit_hurts() {
    let (mut types, failing) = (Types::default(), expected_failures());
    for backend in backends() {
        for json in lines("vectors.jsonl") {
            let name = json["name"].as_str().unwrap().to_string();
            if !failing.contains(&name) {
                truncate_and_flip(&Vector::new(&mut types, json), &name, backend);
            }
        }
    }
}

fn truncate_and_flip(vector: &Vector, name: &str, backend: Backend) {
    let shape = Shape::of(&vector.schema).unwrap();
    let decoder =
        Decoder::for_shape_with_backend(vector.codec, &vector.options, &vector.schema, &shape, backend).unwrap();
    let mut record = Record::new(&shape);
    // What the tools do not count is padding too.
    let padding = usize::from(vector.bytes[3] & 3);
    for len in 0..vector.bytes.len() - padding {
        assert!(decoder.decode(&vector.bytes[..len], &mut record).is_err(), "{name} cut to {len} ({backend:?})");
    }
    for bit in 0..8 * vector.bytes.len() {
        let mut bytes = vector.bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let _ = decoder.decode(&bytes, &mut record);
    }
    decoder.decode(&vector.bytes, &mut record).unwrap();
    assert_eq!(differs(&record.view(), &vector.json["value"]), None, "{name} after all that");
}
