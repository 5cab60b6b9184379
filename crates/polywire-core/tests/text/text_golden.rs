//! The golden texts of `conformance/xml` and `conformance/yaml`.

use super::text_support::{Format, golden, vectors};
use polywire_core::{layout::Message, program::CodecError};
use serde_json::Value;
use std::fmt::Debug;

fn text<'a>(vector: &'a Value, key: &str) -> &'a str {
    vector[key].as_str().unwrap()
}

/// Folder, format, and the key of what it writes.
const FORMATS: [(&str, Format, &str); 4] = [
    ("xml", Format("xml"), "text"),
    ("xml", Format("xml-dom"), "text"),
    ("yaml", Format("yaml"), "text"),
    ("yaml", Format("yaml-flow"), "flow"),
];

#[test]
fn golden_texts_are_written_and_read() {
    for (folder, format, key) in FORMATS {
        let vectors = vectors(folder, "vectors.jsonl");
        assert!(vectors.len() >= 4);
        for vector in &vectors {
            match text(vector, "type") {
                "Golden::SystemTime" => holds::<golden::SystemTime>(format, key, vector),
                "Golden::ProcessorTimes" => holds::<golden::ProcessorTimes>(format, key, vector),
                "Golden::Elements" => holds::<golden::Elements>(format, key, vector),
                other => panic!("no type here stands for {other}"),
            }
        }
    }
}

fn holds<T: Message + PartialEq + Debug + Default>(format: Format, key: &str, vector: &Value) {
    let name = text(vector, "name");
    let value = format.read(text(vector, "text").as_bytes(), T::default).unwrap_or_else(|e| panic!("{name}: {e}"));
    // Vectors have octets as arrays.
    let tree: Value = serde_json::from_str(&Format("json").write(&value, "bytes=array")).unwrap();
    assert_eq!(tree, vector["value"], "{name}");
    if vector["decode_only"] != Value::Bool(true) {
        let golden = text(vector, key);
        assert_eq!(format.write(&value, ""), golden, "{name}");
        assert_eq!(format.read(golden.as_bytes(), T::default), Ok(value), "{name}");
    }
}

#[test]
fn what_the_vectors_refuse_is_refused() {
    for (folder, format, _) in FORMATS {
        let vectors = vectors(folder, "refused.jsonl");
        assert!(vectors.len() >= 8);
        for vector in &vectors {
            let bytes = text(vector, "text").as_bytes();
            let error: Option<CodecError> = match text(vector, "type") {
                "Golden::SystemTime" => format.read(bytes, golden::SystemTime::default).err(),
                "Golden::Elements" => format.read(bytes, golden::Elements::default).err(),
                other => panic!("no type here stands for {other}"),
            };
            assert!(error.is_some(), "{} is read", text(vector, "name"));
        }
    }
}
