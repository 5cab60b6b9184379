//! Hostile JSON: the corpus of parsing tests, deep nesting, limits, texts truncated at every byte.
//! Also, another library reads the texts that we write.

use super::{
    json_support::{backends, json, options, text_of, value_of},
    text_support::Format,
};
use polywire_core::{
    codec::{Decoder, Encoder, Options, json as codec},
    layout::Message,
    program::{FaultKind, Limits},
};
use polywire_derive::Message;
use polywire_testing::tools;
use std::{fs, process::Command};

#[test]
fn the_corpus_of_parsing_tests_is_judged_as_it_says() {
    let Some(corpus) = polywire_testing::corpus("json/test_parsing") else { return };
    let (read, mut seen) = (Format("json").reader::<Counter>(), 0);
    for entry in fs::read_dir(corpus).unwrap() {
        let path = entry.unwrap().path();
        let (name, text) = (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(&path).unwrap());
        let verdict = codec::validate(&text);
        match &name[..2] {
            "y_" => assert_eq!(verdict, Ok(()), "{name}"),
            "n_" => assert!(verdict.is_err(), "{name} is accepted"),
            _ => {}
        }
        // As an unknown member of a structure it is judged alike.
        let inside = [&b"{\"x\":"[..], &text, b"}"].concat();
        assert_eq!(read(&inside).is_ok(), codec::validate(&inside).is_ok(), "{name}");
        let _ = read(&text);
        seen += 1;
    }
    assert!(seen > 300, "only {seen} texts are in the corpus");
}

#[derive(Message, Default, Debug, PartialEq, Clone)]
struct Counter {
    counter: u32,
}

#[derive(Message, Default, Debug, PartialEq, Clone)]
struct Tree {
    value: u8,
    branches: Vec<Tree>,
}

#[test]
fn depth_is_limited_typed_or_not() {
    let nested = |n: usize| "[".repeat(n) + &"]".repeat(n);
    assert!(codec::validate(nested(64).as_bytes()).is_ok());
    assert_eq!(codec::validate(nested(65).as_bytes()).unwrap_err().kind, FaultKind::TooDeep);
    assert_eq!(codec::validate("[".repeat(100_000).as_bytes()).unwrap_err().kind, FaultKind::TooDeep);
    assert_eq!(codec::validate("{\"a\":".repeat(100_000).as_bytes()).unwrap_err().kind, FaultKind::TooDeep);
    let roomy = Limits { depth: 1_000_000, ..Limits::default() };
    assert!(codec::validate_within(nested(1024).as_bytes(), &roomy).is_ok());
    assert_eq!(codec::validate_within(nested(1025).as_bytes(), &roomy).unwrap_err().kind, FaultKind::TooDeep);

    let tree = |n: usize| "{\"branches\":[".repeat(n) + &"]}".repeat(n);
    assert!(value_of(tree(60).as_bytes(), Tree::default).is_ok());
    assert_eq!(value_of(tree(10_000).as_bytes(), Tree::default).unwrap_err().kind, FaultKind::TooDeep);
    let unknown = format!("{{\"unknown\":{}}}", nested(10_000));
    assert_eq!(value_of(unknown.as_bytes(), Tree::default).unwrap_err().kind, FaultKind::TooDeep);
}

#[derive(Message, Default, Debug, PartialEq, Clone)]
struct Growing {
    numbers: Vec<u64>,
    texts: Vec<String>,
    text: String,
}

#[test]
fn memory_and_elements_are_limited() {
    let limits = Limits { memory_bytes: 4096, elements: 1000, ..Limits::default() };
    let refused = |text: &str, limits: Limits| {
        for backend in backends() {
            let decoder =
                Decoder::<Growing>::with_backend(json(), &Options::default(), Growing::shape().schema(), backend);
            let mut value = Growing::default();
            let error = decoder.unwrap().with_limits(limits).decode(text.as_bytes(), &mut value).unwrap_err();
            assert_eq!(error.kind, FaultKind::Limit, "{}", &text[..40]);
        }
    };
    let many = |what: &str, n: usize| [what].repeat(n).join(",");
    refused(&format!("{{\"numbers\":[{}]}}", many("1", 1001)), Limits { memory_bytes: 1 << 20, ..limits });
    refused(&format!("{{\"numbers\":[{}]}}", many("1", 600)), limits);
    refused(&format!("{{\"texts\":[{}]}}", many("\"\"", 300)), limits);
    refused(&format!("{{\"text\":\"{}\"}}", "x".repeat(5000)), limits);
    refused(&format!("{{\"text\":\"\\n{}\"}}", "x".repeat(5000)), limits);
    refused(&format!("{{\"text\":\"{}\"}}", "x".repeat(5000)), Limits { message_bytes: 5000, ..Limits::default() });
}

#[test]
fn output_is_limited() {
    for with in ["", "pretty"] {
        for backend in backends() {
            let limits = Limits { message_bytes: 100_000, ..Limits::default() };
            let encoder =
                Encoder::<Growing>::with_backend(json(), &options(with), backend).unwrap().with_limits(limits);
            let mut out = b"before".to_vec();
            let value = Growing { text: "\u{1}".repeat(20_000), ..Growing::default() };
            assert_eq!(encoder.encode(&value, &mut out).unwrap_err().kind, FaultKind::Limit);
            assert_eq!(out, b"before");
        }
    }
}

#[test]
fn nothing_but_blanks_may_follow() {
    for (text, offset) in [("{\"counter\":1} x", 14), ("{}{}", 2), ("{},", 2), ("{}\u{feff}", 2)] {
        let error = value_of(text.as_bytes(), Counter::default).unwrap_err();
        assert_eq!((error.kind, error.offset), (FaultKind::Trailing, offset), "{text}");
    }
    assert!(value_of(b"{} \n\t\r ", Counter::default).is_ok());
    assert!(value_of(b"{}\0", Counter::default).is_err());
    assert!(value_of("\u{feff}{}".as_bytes(), Counter::default).is_err());
    for text in ["", " ", "null", "[]", "1", "\"\""] {
        assert!(value_of(text.as_bytes(), Counter::default).is_err(), "{text}");
    }
}

#[test]
fn every_cut_is_refused_where_it_is() {
    let value = Growing { numbers: vec![1, 22, 333], texts: vec!["a\n".into(), "ü".into()], text: "\u{1F600}".into() };
    let (text, read) = (text_of(&value, ""), Format("json").reader::<Growing>());
    for len in 0..text.len() {
        let error = read(&text.as_bytes()[..len]).unwrap_err();
        assert!(error.offset <= len, "{error}");
    }
    assert_eq!(read(text.as_bytes()).unwrap(), value);
}

#[test]
fn errors_name_field_and_offset() {
    let error = value_of(b"{\"numbers\":[1,2,-3]}", Growing::default).unwrap_err();
    assert_eq!((error.kind, error.path.as_str(), error.offset), (FaultKind::OutOfRange, "numbers", 16));
    let error = value_of(b"{\"texts\":[\"a\",\"b\",3]}", Growing::default).unwrap_err();
    assert_eq!((error.kind, error.path.as_str(), error.offset), (FaultKind::WrongKind, "texts[2]", 18));
    let error = value_of(b"{\"branches\":[{},{\"branches\":[{\"value\":256}]}]}", Tree::default).unwrap_err();
    assert_eq!((error.kind, error.offset), (FaultKind::OutOfRange, 38));
}

#[test]
fn long_and_odd_names_are_told_apart() {
    for name in ["counte", "counterr", "Counter", "", "\\u0063ounter2", &"x".repeat(600), &"\\n".repeat(600)] {
        let text = format!("{{\"{name}\":99,\"counter\":1}}");
        assert_eq!(value_of(text.as_bytes(), Counter::default).unwrap().counter, 1, "{name}");
    }
    for name in ["\\u0063ounter", "c\\u006funter\" ", "counter\"\t\n "] {
        let quote = if name.contains('"') { "" } else { "\"" };
        let text = format!("{{\"{name}{quote}:5}}");
        assert_eq!(value_of(text.as_bytes(), Counter::default).unwrap().counter, 5, "{name}");
    }
}

#[test]
fn python_reads_what_is_written() {
    if !tools::python_has("json") {
        return;
    }
    let value =
        Growing { numbers: vec![u64::MAX], texts: vec!["\u{0}\"\\\u{7f}ü😀".into()], text: "\u{2028}".into() };
    let script = "import json,sys; v = json.loads(sys.argv[1]); \
                  sys.exit(v != {'numbers': [2**64-1], 'texts': ['\\0\"\\\\\\x7fü😀'], 'text': '\\u2028'})";
    for with in ["", "pretty"] {
        let status = Command::new(tools::python()).args(["-c", script, &text_of(&value, with)]).status().unwrap();
        assert!(status.success(), "Python reads it otherwise");
    }
}
