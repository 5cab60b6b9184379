//! JSON between readers and writers of different versions, and roots that are not structures.

use super::json_support::{coders, evolved, text_of};
use polywire_core::{layout::Message, program::FaultKind};
use polywire_derive::Message;

/// The same types in two versions, each in a module of its own, since names must be the same.
mod old {
    use super::Message;

    #[derive(Message, Debug, PartialEq, Clone, Default)]
    pub struct Entry {
        pub price: f32,
        pub size: i16,
        pub gone: Vec<String>,
    }

    #[derive(Message, Debug, PartialEq, Clone, Copy, Default)]
    #[repr(i32)]
    pub enum Side {
        #[default]
        Buy,
        Sell,
        Cross,
    }

    #[derive(Message, Debug, PartialEq, Clone, Default)]
    #[polywire(mutable)]
    pub struct Book {
        pub counter: u16,
        pub gone: Option<Entry>,
        pub note: Option<String>,
        pub entries: Vec<Entry>,
        pub samples: Vec<u16>,
        pub side: Side,
    }
}

mod new {
    use super::Message;

    #[derive(Message, Debug, PartialEq, Clone, Default)]
    pub struct Entry {
        pub price: f64,
        pub size: i64,
        #[polywire(default = 4)]
        pub level: u8,
    }

    #[derive(Message, Debug, PartialEq, Clone, Copy, Default)]
    #[repr(i32)]
    pub enum Side {
        Buy,
        Sell,
        #[polywire(default_literal)]
        #[default]
        Other = 9,
    }

    #[derive(Message, Debug, PartialEq, Clone, Default)]
    #[polywire(mutable)]
    pub struct Book {
        pub side: Side,
        pub entries: Vec<Entry>,
        pub counter: u64,
        pub added: Option<u8>,
        #[polywire(default = "none")]
        pub note: String,
        pub samples: Vec<u32>,
    }
}

#[test]
fn a_newer_reader_understands_an_older_writer() {
    let entry = old::Entry { price: 0.1, size: -3, gone: vec!["x".into()] };
    let value = old::Book {
        counter: 7,
        gone: Some(entry.clone()),
        note: None,
        entries: vec![entry],
        samples: vec![1, 65535],
        side: old::Side::Cross,
    };
    let text = text_of(&value, "");
    let read = evolved::<new::Book>(old::Book::shape().schema(), text.as_bytes(), new::Book::default).unwrap();
    let entry = new::Entry { price: f64::from(0.1f32), size: -3, level: 4 };
    let expected = new::Book {
        side: new::Side::Other,
        entries: vec![entry],
        counter: 7,
        added: None,
        note: "none".into(),
        samples: vec![1, 65535],
    };
    assert_eq!(read, expected);
}

#[test]
fn values_must_be_of_the_writers_type() {
    let read = |text: &str| {
        evolved::<new::Book>(old::Book::shape().schema(), text.as_bytes(), new::Book::default).map_err(|e| e.kind)
    };
    assert_eq!(read("{\"counter\":65536}"), Err(FaultKind::OutOfRange));
    assert_eq!(read("{\"samples\":[65536]}"), Err(FaultKind::OutOfRange));
    assert_eq!(read("{\"side\":\"Other\"}").map(|book| book.side), Ok(new::Side::Other));
    // What the reader lacks must be JSON, but no more.
    assert!(read("{\"gone\":{\"price\":\"none\"}}").is_ok());
    assert_eq!(read("{\"gone\":{\"price\":tru}}"), Err(FaultKind::Syntax));
}

#[test]
fn an_older_reader_understands_a_newer_writer() {
    let value = new::Book {
        counter: 9,
        added: Some(1),
        note: "x".into(),
        samples: vec![],
        entries: vec![new::Entry::default()],
        side: new::Side::Sell,
    };
    let text = text_of(&value, "");
    #[derive(Message, Debug, PartialEq, Clone, Default)]
    #[polywire(mutable, name = "Book")]
    struct Older {
        counter: u64,
        note: Option<String>,
    }
    let read = evolved::<Older>(new::Book::shape().schema(), text.as_bytes(), Older::default).unwrap();
    assert_eq!(read, Older { counter: 9, note: Some("x".into()) });
}

#[test]
fn a_root_need_not_be_a_structure() {
    use polywire_core::{
        layout::{Record, Shape, Value},
        schema::{SchemaBuilder, Type},
    };
    let roots = [
        (Type::sequence(Type::Int32), Value::from(vec![1, -2]), "[1,-2]"),
        (Type::string(), Value::from("a\"b"), "\"a\\\"b\""),
        (Type::Float64, Value::from(2.5), "2.5"),
    ];
    for (ty, value, text) in roots {
        let Ok(schema) = SchemaBuilder::new().finish(ty) else { continue };
        let shape = Shape::of(&schema).unwrap();
        for (encoder, decoder) in coders(&shape, "") {
            let mut record = Record::new(&shape);
            record.set("", value.clone()).unwrap();
            let mut out = Vec::new();
            encoder.encode(&record, &mut out).unwrap();
            assert_eq!(String::from_utf8_lossy(&out), text);
            let mut back = Record::new(&shape);
            decoder.decode(format!(" {text}\n").as_bytes(), &mut back).unwrap();
            assert_eq!(back, record);
            assert!(decoder.decode(format!("{text},").as_bytes(), &mut back).is_err());
        }
    }
}
