//! In the steady state nothing is allocated, neither by the interpreter nor by machine code, for
//! derived types and records, as long as strings and sequences are not longer than earlier ones.

use polywire_core::{
    codec::{
        Decoder, Encoder, Options,
        fast::{Fast, template::TemplateSet},
    },
    layout::{Message, Record, Shape, Value},
    schema::{Member, Type},
};
use polywire_derive::Message;
use polywire_testing::allocator::Counts;
use polywire_testing::{backends, plain_wires, struct_of};

#[test]
fn the_allocator_counts() {
    let before = Counts::of_this_thread().requests;
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(Counts::of_this_thread().requests, before + 2);
}

#[derive(Message, Debug, Clone, PartialEq)]
struct Entry {
    price: f64,
    name: String,
    flag: bool,
    numbers: Vec<u32>,
}

#[derive(Message, Debug, Clone, PartialEq)]
struct Book {
    title: String,
    #[polywire(idl = "wstring")]
    subtitle: String,
    bounded: u16,
    entries: Vec<Entry>,
    image: Vec<u8>,
    grid: [[f32; 3]; 2],
    last: String,
}

/// Strings of `n` bytes and lists of `n` numbers.
fn book(n: usize) -> Book {
    let text = |n: usize| "x".repeat(n);
    let entry = |i: usize| Entry {
        price: i as f64,
        name: text((n + 7 * i) % 41),
        flag: i.is_multiple_of(2),
        numbers: (0..(n as u32 + 3) % 17).collect(),
    };
    Book {
        title: text(n),
        subtitle: text(40 - n),
        bounded: n as u16,
        entries: (0..4).map(entry).collect(),
        image: vec![7; n],
        grid: [[1.0, 2.0, 3.0]; 2],
        last: text((3 * n) % 41),
    }
}

#[test]
fn derived_types_allocate_nothing_in_the_steady_state() {
    let books: Vec<Book> = (0..41).map(book).collect();
    for wire in plain_wires() {
        for backend in backends() {
            let encoder = Encoder::<Book>::with_backend(wire.codec, &wire.options, backend).unwrap();
            let schema = Book::shape().schema();
            let decoder = Decoder::<Book>::with_backend(wire.codec, &wire.options, schema, backend).unwrap();
            let (mut message, mut back) = (Vec::new(), book(40));
            // Twice: the first time warms everything up.
            for round in 0..2 {
                let before = Counts::of_this_thread().requests;
                let mut equal = true;
                for value in &books {
                    message.clear();
                    encoder.encode(value, &mut message).unwrap();
                    decoder.decode(&message, &mut back).unwrap();
                    equal &= back == *value;
                }
                assert!(equal, "{wire:?}, {backend:?}");
                let requests = Counts::of_this_thread().requests - before;
                assert!(round == 0 || requests == 0, "{wire:?}, {backend:?}: {requests} requests for memory");
            }
        }
    }
}

/// Records also keep what they do not use: elements, entries and absent values.
#[test]
fn records_allocate_nothing_in_the_steady_state() {
    let entry = Type::map(Type::string(), Type::sequence(Type::string()));
    let shape = Shape::of(&struct_of(vec![
        Member::new("title", Type::string()),
        Member::new("maybe", Type::sequence(Type::string())).as_optional(),
        Member::new("map", entry),
        Member::new("rows", Type::sequence(Type::sequence(Type::Float64))),
    ]))
    .unwrap();
    let record = |n: usize| {
        let mut record = Record::new(&shape);
        let text = |i: usize| Value::Text("y".repeat((n + 5 * i) % 31));
        record.set("title", text(0)).unwrap();
        if !n.is_multiple_of(3) {
            record.set("maybe", Value::List((0..n % 5).map(text).collect())).unwrap();
        }
        let entry = |i: usize| (Value::Text(format!("key{i}")), Value::List((0..i).map(text).collect()));
        record.set("map", Value::Entries((0..n % 4).map(entry).collect())).unwrap();
        let row = |i: usize| Value::List((0..i).map(|i| Value::Float(i as f64)).collect());
        record.set("rows", Value::List((0..n % 6).map(row).collect())).unwrap();
        record
    };
    let records: Vec<Record> = (0..60).map(record).collect();
    for wire in plain_wires() {
        for backend in backends() {
            let encoder = Encoder::for_shape_with_backend(wire.codec, &wire.options, &shape, backend).unwrap();
            let decoder =
                Decoder::for_shape_with_backend(wire.codec, &wire.options, shape.schema(), &shape, backend).unwrap();
            let (mut message, mut back) = (Vec::new(), Record::new(&shape));
            // Spare elements and used ones change places, so it takes a few rounds until all have
            // held the longest value.
            for round in 0..6 {
                let before = Counts::of_this_thread().requests;
                for record in &records {
                    message.clear();
                    encoder.encode(record, &mut message).unwrap();
                    decoder.decode(&message, &mut back).unwrap();
                }
                let requests = Counts::of_this_thread().requests - before;
                assert!(round < 5 || requests == 0, "{wire:?}, {backend:?}: {requests} requests for memory");
            }
            for record in &records {
                message.clear();
                encoder.encode(record, &mut message).unwrap();
                decoder.decode(&message, &mut back).unwrap();
                assert_eq!(back, *record, "{wire:?}, {backend:?}");
            }
        }
    }
}

/// If messages without a field come between others, as resets do in a feed, the memory of the
/// others is kept.
#[test]
fn feeds_with_resets_allocate_nothing_in_the_steady_state() {
    let xml = r#"<templates xmlns="http://www.fixprotocol.org/ns/fast/td/1.1">
        <template name="Reset" id="1" reset="Y"/>
        <template name="Quotes" id="2">
            <string name="venue"/>
            <sequence name="levels">
                <length name="n"/>
                <string name="symbol"><copy/></string>
                <byteVector name="key"><copy/></byteVector>
                <decimal name="limit" presence="optional"><copy/></decimal>
                <int64 name="size" presence="optional"/>
                <decimal name="price" presence="optional"/>
            </sequence>
        </template>
    </templates>"#;
    let (codec, schema) = Fast::feed(TemplateSet::parse(xml).unwrap()).unwrap();
    let shape = Shape::of(&schema).unwrap();
    let mut records = [Record::new(&shape), Record::new(&shape)];
    let reset = Decoder::for_shape(&codec, &Options::default(), &schema, &shape).unwrap();
    reset.decode(&[0xC0, 0x81], &mut records[0]).unwrap();
    records[1].set("Quotes.venue", "a venue with a long name").unwrap();
    records[1].resize("Quotes.levels", 5).unwrap();
    for i in 0..5 {
        let level = |name: &str| format!("Quotes.levels[{i}].{name}");
        records[1].set(&level("symbol"), "a symbol with a long name").unwrap();
        records[1].set(&level("key"), Value::Bytes(vec![i as u8 / 2; 20])).unwrap();
        if i % 2 == 0 {
            records[1].set(&level("size"), i as i64).unwrap();
            records[1].set(&level("price.exponent"), -2).unwrap();
            records[1].set(&level("price.mantissa"), 100 + i as i64).unwrap();
        }
    }
    for backend in backends().into_iter().rev() {
        let encoder = Encoder::for_shape_with_backend(&codec, &Options::default(), &shape, backend).unwrap();
        let decoder = Decoder::for_shape_with_backend(&codec, &Options::default(), &schema, &shape, backend).unwrap();
        let (mut writer, mut reader) = (encoder.state().unwrap(), decoder.state().unwrap());
        let (mut message, mut back) = (Vec::new(), Record::new(&shape));
        for round in 0..20 {
            let mut requests = 0;
            for record in &records {
                message.clear();
                let before = Counts::of_this_thread().requests;
                encoder.encode_with(&mut writer, true, record, &mut message).unwrap();
                decoder.decode_with(&mut reader, true, &message, &mut back).unwrap();
                requests += Counts::of_this_thread().requests - before;
                assert_eq!(back, *record);
            }
            assert!(round < 10 || requests == 0, "{backend:?}: {requests} requests for memory");
        }
    }
}
