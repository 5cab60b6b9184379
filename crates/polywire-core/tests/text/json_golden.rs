//! The golden texts of `conformance/json`.

use super::{
    json_support::{text_of, value_of},
    text_support::{golden, vectors},
};
use polywire_core::layout::Message;
use serde_json::Value;
use std::fmt::Debug;

fn text<'a>(vector: &'a Value, key: &str) -> &'a str {
    vector[key].as_str().unwrap()
}

#[test]
fn golden_texts_are_written_and_read() {
    let vectors = vectors("json", "vectors.jsonl");
    assert!(vectors.len() >= 6);
    for vector in &vectors {
        match text(vector, "type") {
            "Golden::SystemTime" => holds::<golden::SystemTime>(vector),
            "Golden::ProcessorTimes" => holds::<golden::ProcessorTimes>(vector),
            "Golden::Elements" => holds::<golden::Elements>(vector),
            other => panic!("no type here stands for {other}"),
        }
    }
}

fn holds<T: Message + PartialEq + Debug + Default>(vector: &Value) {
    let (name, golden) = (text(vector, "name"), text(vector, "text"));
    let value = value_of(golden.as_bytes(), T::default).unwrap_or_else(|error| panic!("{name}: {error}"));
    // Vectors have octets as arrays.
    let tree: Value = serde_json::from_str(&text_of(&value, "bytes=array")).unwrap();
    assert_eq!(tree, vector["value"], "{name}");
    if vector["decode_only"] != Value::Bool(true) {
        assert_eq!(text_of(&value, ""), golden, "{name}");
    }
}

#[test]
fn what_the_vectors_refuse_is_refused() {
    let vectors = vectors("json", "refused.jsonl");
    assert!(vectors.len() >= 7);
    for vector in &vectors {
        let (name, bytes) = (text(vector, "name"), text(vector, "text").as_bytes());
        let refused = match text(vector, "type") {
            "Golden::SystemTime" => value_of(bytes, golden::SystemTime::default).is_err(),
            "Golden::Elements" => value_of(bytes, golden::Elements::default).is_err(),
            other => panic!("no type here stands for {other}"),
        };
        assert!(refused, "{name} is read");
    }
}
