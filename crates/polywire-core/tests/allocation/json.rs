//! JSON coders in the steady state allocate nothing, for all lengths of strings and sequences.

use polywire_core::codec::{Decoder, Encoder, Options, json::JSON};
use polywire_core::layout::Message;
use polywire_derive::Message;
use polywire_testing::allocator::Counts;
use polywire_testing::backends;

#[derive(Message, Default, Debug, PartialEq, Clone)]
struct Entry {
    name: String,
    price: f64,
    side: Option<u8>,
}

#[derive(Message, Default, Debug, PartialEq, Clone)]
struct Book {
    entries: Vec<Entry>,
    #[polywire(idl = "sequence<octet>")]
    blob: Vec<u8>,
    samples: Vec<f32>,
    matrix: [[i16; 2]; 2],
    note: Option<String>,
}

fn book(i: usize) -> Book {
    // The first is the largest of all.
    let n = 9 - i % 10;
    let entry = |k: usize| Entry { name: "x\n".repeat(k + n), price: k as f64 / 8.0, side: Some(k as u8) };
    Book {
        entries: (0..9).map(entry).collect(),
        blob: vec![1; 3 * n],
        samples: vec![0.1; n],
        matrix: [[1, 2], [3, n as i16]],
        note: Some("y".repeat(n)),
    }
}

#[test]
fn coders_allocate_nothing_in_the_steady_state() {
    let values: Vec<Book> = (0..40).map(book).collect();
    for backend in backends() {
        for with in ["", "pretty", "bytes=array,int64=string"] {
            let encoder = Encoder::<Book>::with_backend(&JSON, &with.parse().unwrap(), backend).unwrap();
            let schema = Book::shape().schema();
            let decoder = Decoder::<Book>::with_backend(&JSON, &Options::default(), schema, backend).unwrap();
            let (mut out, mut back) = (Vec::with_capacity(1 << 16), Book::default());
            for (i, value) in values.iter().enumerate() {
                let before = Counts::of_this_thread().requests;
                out.clear();
                encoder.encode(value, &mut out).unwrap();
                decoder.decode(&out, &mut back).unwrap();
                let allocated = Counts::of_this_thread().requests - before;
                assert!(i == 0 || allocated == 0, "{backend:?}, {with}: {allocated} allocations in round {i}");
                assert_eq!(back, *value);
            }
        }
    }
}
