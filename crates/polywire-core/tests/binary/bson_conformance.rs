//! BSON compared with other implementations: golden vectors, MongoDB's corpus, pymongo.

use super::bson_support::{decode, encode};
use polywire_core::{codec::bson::validate, layout::Message, program::Limits};
use polywire_derive::Message;
use polywire_testing::{hex, tools, unhex};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

#[derive(Message, serde::Deserialize, Debug, Default, PartialEq)]
#[polywire(name = "Golden::SystemTime", final)]
struct SystemTime {
    system_time: i32,
}

#[derive(Message, serde::Deserialize, Debug, Default, PartialEq)]
#[polywire(name = "Golden::ProcessorTimes", final)]
struct ProcessorTimes {
    idle_time: i32,
    system_time: i32,
    user_time: i32,
}

#[derive(Message, serde::Deserialize, Debug, Default, PartialEq)]
#[polywire(name = "Golden::Place", final)]
struct Place {
    latitude_deg: f64,
    longitude_deg: f64,
}

#[derive(Message, serde::Deserialize, Debug, Default, PartialEq)]
#[polywire(name = "Golden::Elements", final)]
struct Elements {
    flag: bool,
    small: i32,
    large: i64,
    ratio: f64,
    text: String,
    place: Place,
    counts: Vec<i32>,
    #[polywire(idl = "sequence<octet>")]
    blob: Vec<u8>,
    remark: Option<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn lines(file: &str) -> Vec<Value> {
    let text = fs::read_to_string(root().join("conformance/bson").join(file)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn check_vector<T: Message + DeserializeOwned + PartialEq + std::fmt::Debug>(vector: &Value) {
    let value: T = serde_json::from_value(vector["value"].clone()).unwrap();
    let bytes = unhex(vector["hex"].as_str().unwrap());
    assert_eq!(decode::<T>(&bytes).as_ref(), Ok(&value), "{}", vector["name"]);
    if vector["decode_only"] != Value::Bool(true) {
        assert_eq!(hex(&encode(&value)), hex(&bytes), "{}", vector["name"]);
    }
}

fn check_refused<T: Message + PartialEq + std::fmt::Debug>(vector: &Value) {
    let bytes = unhex(vector["hex"].as_str().unwrap());
    assert!(decode::<T>(&bytes).is_err(), "{}: {}", vector["name"], vector["why"]);
}

#[test]
fn golden_vectors() {
    let vectors = lines("vectors.jsonl");
    assert!(vectors.len() >= 6);
    for vector in vectors {
        match vector["type"].as_str().unwrap() {
            "Golden::SystemTime" => check_vector::<SystemTime>(&vector),
            "Golden::ProcessorTimes" => check_vector::<ProcessorTimes>(&vector),
            "Golden::Elements" => check_vector::<Elements>(&vector),
            other => panic!("no Rust type stands for {other}"),
        }
    }
}

#[test]
fn refused_vectors() {
    let vectors = lines("refused.jsonl");
    assert!(vectors.len() >= 6);
    for vector in vectors {
        match vector["type"].as_str().unwrap() {
            "Golden::SystemTime" => check_refused::<SystemTime>(&vector),
            "Golden::Elements" => check_refused::<Elements>(&vector),
            other => panic!("no Rust type stands for {other}"),
        }
    }
}

#[test]
fn the_thesis_document() {
    let document = b"\x16\0\0\0\x10system_time\0\x41\x05\0\0\0";
    assert_eq!(encode(&SystemTime { system_time: 1345 }), document);
    // As printed, the document is a byte longer than its length: the rest is left to the caller.
    let printed = b"\x16\0\0\0\x10system_time\0\x41\x05\0\0\0\0";
    assert_eq!(decode(printed), Ok(SystemTime { system_time: 1345 }));
    assert!(validate(printed, &Limits::default()).is_err());
}

fn corpus() -> Option<Vec<Value>> {
    let files = fs::read_dir(polywire_testing::corpus("bson")?).unwrap();
    let paths = files.map(|file| file.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == "json"));
    Some(paths.map(|path| serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()).collect())
}

fn entries<'a>(file: &'a Value, key: &str) -> Vec<&'a Value> {
    file[key].as_array().map(|list| list.iter().collect()).unwrap_or_default()
}

#[test]
fn the_corpus_is_walked_and_skipped() {
    let Some(files) = corpus() else { return };
    let mut walked = 0;
    for case in files.iter().flat_map(|file| entries(file, "valid")) {
        for key in ["canonical_bson", "degenerate_bson", "converted_bson"] {
            let Some(text) = case[key].as_str() else { continue };
            let bytes = unhex(text);
            assert_eq!(validate(&bytes, &Limits::default()), Ok(()), "{}: {key}", case["description"]);
            // Whatever it holds is unknown to this type, unless by chance it has the member.
            assert_eq!(decode::<Nothing>(&bytes), Ok(Nothing {}), "{}: {key}", case["description"]);
            walked += 1;
        }
    }
    assert!(walked > 600, "{walked}");
}

#[derive(Message, Debug, Default, PartialEq)]
struct Nothing {}

#[derive(Message, Debug, Default, PartialEq)]
struct DecimalText {
    d: String,
}

#[derive(Message, Debug, Default, PartialEq)]
struct DecimalNumber {
    d: f64,
}

#[test]
fn the_corpus_of_decimals_is_read_as_text_and_numbers() {
    let Some(files) = corpus() else { return };
    let mut read = 0;
    let decimals = files.iter().filter(|file| file["bson_type"] == "0x13");
    for case in decimals.flat_map(|file| entries(file, "valid")) {
        let json: Value = serde_json::from_str(case["canonical_extjson"].as_str().unwrap()).unwrap();
        let text = json["d"]["$numberDecimal"].as_str().unwrap();
        let bytes = unhex(case["canonical_bson"].as_str().unwrap());
        assert_eq!(decode::<DecimalText>(&bytes), Ok(DecimalText { d: text.into() }), "{}", case["description"]);
        let number: f64 = text.parse().unwrap();
        match decode::<DecimalNumber>(&bytes) {
            Ok(DecimalNumber { d }) => assert!(d == number || d.is_nan() && number.is_nan(), "{text}: {d}"),
            Err(error) => assert!(number.is_infinite() && !text.ends_with("Infinity"), "{text}: {error}"),
        }
        read += 1;
    }
    assert!(read > 500, "{read}");
}

#[derive(Message, Debug, Default, PartialEq)]
struct Time {
    a: i64,
}

#[test]
fn the_corpus_of_times_is_read_as_milliseconds() {
    let Some(files) = corpus() else { return };
    let mut read = 0;
    for case in files.iter().filter(|file| file["bson_type"] == "0x09").flat_map(|file| entries(file, "valid")) {
        let json: Value = serde_json::from_str(case["canonical_extjson"].as_str().unwrap()).unwrap();
        let a: i64 = json["a"]["$date"]["$numberLong"].as_str().unwrap().parse().unwrap();
        let bytes = unhex(case["canonical_bson"].as_str().unwrap());
        assert_eq!(decode::<Time>(&bytes), Ok(Time { a }), "{}", case["description"]);
        read += 1;
    }
    assert!(read >= 5, "{read}");
}

#[test]
fn invalid_documents_of_the_corpus_are_refused() {
    let Some(files) = corpus() else { return };
    let wrong: Vec<&Value> = files.iter().flat_map(|file| entries(file, "decodeErrors")).collect();
    assert!(wrong.len() > 70, "{}", wrong.len());
    for case in wrong {
        let bytes = unhex(case["bson"].as_str().unwrap());
        assert!(validate(&bytes, &Limits::default()).is_err(), "{}", case["description"]);
        // Skipping looks at less, and must survive it all the same.
        let _ = decode::<Nothing>(&bytes);
    }
}

/// Reads documents in hex, a line each, and prints them as pymongo writes them.
const ECHO: &str = "
import sys, bson
for line in sys.stdin:
    print(bson.encode(bson.decode(bytes.fromhex(line))).hex())
";

#[test]
fn pymongo_reads_and_writes_the_same() {
    // Not another package of that name.
    if !tools::python_has("pymongo, bson") {
        return;
    }
    let elements = |n: i32| Elements {
        counts: (0..n).collect(),
        large: i64::from(n) << 40,
        remark: (n % 2 == 0).then(|| format!("{n}")),
        ..Elements::default()
    };
    let documents: Vec<Vec<u8>> = (0..120).map(|n| encode(&elements(n))).collect();
    let text: String = documents.iter().map(|document| hex(document) + "\n").collect();
    let echoed = tools::output_of(Command::new(tools::python()).args(["-c", ECHO]), text.as_bytes()).unwrap();
    assert_eq!(String::from_utf8(echoed).unwrap(), text);
}
