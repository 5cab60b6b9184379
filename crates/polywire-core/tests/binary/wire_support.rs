//! Helpers of the tests of binary formats.

use polywire_core::{
    layout::Message,
    program::{CodecError, Limits},
    schema::Schema,
};
use polywire_derive::Message;
pub use polywire_testing::{Wire, backends, hex, unhex};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::{
    fmt::Debug,
    fs,
    path::{Path, PathBuf},
};

/// The bytes of a value, or why there are none; the same from every back end.
pub fn try_encode<T: Message>(with: &str, value: &T) -> Result<Vec<u8>, CodecError> {
    Wire::parse(with).encode(value)
}

pub fn encode<T: Message>(with: &str, value: &T) -> Vec<u8> {
    try_encode(with, value).unwrap()
}

/// Decodes a message of `writer`. The result is the same on every back end.
pub fn decode_within<T: Message + Debug>(
    with: &str,
    writer: &Schema,
    bytes: &[u8],
    limits: Limits,
) -> Result<T, CodecError> {
    Wire::parse(with).decode_all(writer, bytes, limits, T::default_value)
}

pub fn decode<T: Message + Debug>(with: &str, bytes: &[u8]) -> Result<T, CodecError> {
    decode_within(with, T::shape().schema(), bytes, Limits::default())
}

/// Encodes, decodes, and compares.
pub fn round_trip<T: Message + PartialEq + Debug>(with: &str, value: &T) -> Vec<u8> {
    let bytes = encode(with, value);
    assert_eq!(decode::<T>(with, &bytes).as_ref(), Ok(value), "{with}");
    bytes
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The text of a file of the corpora.
pub fn corpus(file: &str) -> Option<String> {
    Some(fs::read_to_string(polywire_testing::corpus(file)?).unwrap())
}

pub fn lines(file: &str) -> Vec<Value> {
    let text = fs::read_to_string(root().join("conformance").join(file)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[derive(Message, serde::Deserialize, serde::Serialize, Debug, Default, PartialEq, Clone)]
#[polywire(name = "Golden::SystemTime", final)]
pub struct SystemTime {
    pub system_time: i32,
}

#[derive(Message, serde::Deserialize, serde::Serialize, Debug, Default, PartialEq, Clone)]
#[polywire(name = "Golden::ProcessorTimes", final)]
pub struct ProcessorTimes {
    pub idle_time: i32,
    pub system_time: i32,
    pub user_time: i32,
}

#[derive(Message, serde::Deserialize, serde::Serialize, Debug, Default, PartialEq, Clone)]
#[polywire(name = "Golden::Place", final)]
pub struct Place {
    pub latitude_deg: f64,
    pub longitude_deg: f64,
}

#[derive(Message, serde::Deserialize, serde::Serialize, Debug, Default, PartialEq, Clone)]
#[polywire(name = "Golden::Elements", final)]
pub struct Elements {
    pub flag: bool,
    pub small: i32,
    pub large: i64,
    pub ratio: f64,
    pub text: String,
    pub place: Place,
    pub counts: Vec<i32>,
    #[polywire(idl = "sequence<octet>")]
    pub blob: Vec<u8>,
    pub remark: Option<String>,
}

/// Checks the vectors of a codec, and returns how many there are.
pub fn golden(codec: &str) -> usize {
    let vectors = lines(&format!("{codec}/vectors.jsonl"));
    for vector in &vectors {
        match vector["type"].as_str().unwrap() {
            "Golden::SystemTime" => check_vector::<SystemTime>(codec, vector),
            "Golden::ProcessorTimes" => check_vector::<ProcessorTimes>(codec, vector),
            "Golden::Elements" => check_vector::<Elements>(codec, vector),
            other => panic!("no Rust type stands for {other}"),
        }
    }
    vectors.len()
}

fn check_vector<T: Message + DeserializeOwned + PartialEq + Debug>(codec: &str, vector: &Value) {
    let value: T = serde_json::from_value(vector["value"].clone()).unwrap();
    let bytes = unhex(vector["hex"].as_str().unwrap());
    assert_eq!(decode::<T>(codec, &bytes).as_ref(), Ok(&value), "{}", vector["name"]);
    if vector["decode_only"] != Value::Bool(true) {
        assert_eq!(hex(&encode(codec, &value)), hex(&bytes), "{}", vector["name"]);
    }
}

/// A little of everything that serde can carry too.
#[derive(Message, serde::Deserialize, serde::Serialize, Debug, Default, PartialEq, Clone)]
pub struct Mixed {
    pub flag: bool,
    pub a: i8,
    pub b: i16,
    pub c: i32,
    pub d: i64,
    pub e: u8,
    pub f: u16,
    pub g: u32,
    pub h: u64,
    pub x: f32,
    pub y: f64,
    pub text: String,
    pub part: Place,
    pub parts: Vec<Place>,
    pub numbers: Vec<i64>,
    pub ratios: Vec<f32>,
    pub names: Vec<String>,
    pub flags: Vec<bool>,
    pub map: std::collections::BTreeMap<String, u32>,
    pub maybe: Option<i32>,
    pub note: Option<String>,
    pub triple: [f64; 3],
}

/// Values at and around the borders between the lengths of numbers and texts.
pub fn mixed(n: u32) -> Mixed {
    let large = 1u64.checked_shl(n).unwrap_or(u64::MAX).wrapping_sub(u64::from(n % 3));
    let text = |len: u32| "x".repeat(len as usize);
    Mixed {
        flag: n % 2 == 1,
        a: large as i8,
        b: large as i16,
        c: large as i32,
        d: large as i64,
        e: large as u8,
        f: large as u16,
        g: large as u32,
        h: large,
        x: n as f32 / 8.0,
        y: f64::from(n) * 1e10 + 0.1,
        text: text(n * 5),
        part: Place { latitude_deg: 1.5, longitude_deg: -0.5 - f64::from(n) },
        parts: vec![Place::default(); n as usize % 20],
        numbers: (0..n).map(|i| (1i64 << (i % 63)).wrapping_neg()).collect(),
        ratios: vec![0.25; n as usize % 40],
        names: (0..n % 18).map(text).collect(),
        flags: (0..n % 5).map(|i| i % 2 == 0).collect(),
        map: (0..n % 20).map(|i| (text(i), i << 12)).collect(),
        maybe: n.is_multiple_of(2).then_some(-(n as i32)),
        note: n.is_multiple_of(3).then(|| "Gr\u{fc}\u{df}e".into()),
        triple: [1.0, f64::from(n), -2.5],
    }
}
