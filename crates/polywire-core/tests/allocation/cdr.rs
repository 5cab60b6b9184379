//! Allocations of CDR: none if the value has the memory already, and none for lengths that a
//! message claims but does not contain.

use polywire_core::{
    codec::{self, Decoder, Encoder},
    layout::Message,
    program::{Backend, FaultKind},
};
use polywire_derive::Message;
use polywire_testing::allocator::bytes_requested_by;

#[derive(Message, Default, Debug, PartialEq, Clone)]
struct Level {
    price: f64,
    venue: String,
}

#[derive(Message, Default, Debug, PartialEq, Clone)]
#[polywire(mutable)]
struct Extras {
    note: String,
    hint: Option<i32>,
    #[polywire(idl = "wstring")]
    wide: String,
}

#[derive(Message, Default, Debug, PartialEq, Clone)]
struct Book {
    #[polywire(key)]
    symbol: String,
    bids: Vec<Level>,
    ticks: Vec<f64>,
    flags: Vec<bool>,
    grid: [[i16; 3]; 2],
    last: Option<f64>,
    extras: Extras,
}

/// Lengths of strings vary with `i`, up to 30.
fn book(i: usize) -> Book {
    let text = |salt: usize| "abcdefghijklmnopqrstuvwxyzäöü"[..(i * 7 + salt * 5) % 26].to_string();
    Book {
        symbol: text(1),
        bids: (0..i % 5).map(|n| Level { price: n as f64, venue: text(n) }).collect(),
        ticks: vec![1.5; (i * 3) % 11],
        flags: vec![true; i % 4],
        grid: [[1, 2, 3], [4, 5, i as i16]],
        last: i.is_multiple_of(2).then_some(0.25),
        extras: Extras { note: text(2), hint: i.is_multiple_of(3).then_some(7), wide: text(3) },
    }
}

fn dialects() -> Vec<(&'static str, &'static str, Backend)> {
    let jit = Encoder::<Level>::with_backend(&codec::cdr::CDR, &Default::default(), Backend::Jit).is_ok();
    let backends = [Backend::Interpreter].into_iter().chain(jit.then_some(Backend::Jit));
    let wires = [("cdr", ""), ("cdr", "be,header"), ("xcdr2", ""), ("xcdr2", "be,header")];
    backends.flat_map(|backend| wires.map(|(codec, options)| (codec, options, backend))).collect()
}

fn decoder<T: Message>((codec, options, backend): (&str, &str, Backend)) -> Decoder<T> {
    let codec = codec::find(codec).unwrap();
    Decoder::with_backend(codec, &options.parse().unwrap(), T::shape().schema(), backend).unwrap()
}

fn encoder<T: Message>((codec, options, backend): (&str, &str, Backend)) -> Encoder<T> {
    Encoder::with_backend(codec::find(codec).unwrap(), &options.parse().unwrap(), backend).unwrap()
}

#[test]
fn the_steady_state_allocates_nothing() {
    for dialect in dialects() {
        let (encoder, decoder) = (encoder::<Book>(dialect), decoder::<Book>(dialect));
        let books: Vec<Book> = (0..60).map(book).collect();
        let (mut bytes, mut read) = (Vec::new(), Book::default());
        let mut messages = 0;
        let mut round = || {
            for book in &books {
                bytes.clear();
                encoder.encode(book, &mut bytes).unwrap();
                decoder.decode(&bytes, &mut read).unwrap();
                messages += 1;
            }
        };
        // A sequence that shrinks drops its elements, so strings inside them are not kept: only the
        // outer ones can be warm.
        round();
        let dropped: usize = books.iter().flat_map(|book| &book.bids).map(|level| level.venue.capacity()).sum();
        let bytes_allocated = bytes_requested_by(round);
        assert!(bytes_allocated <= 2 * dropped, "{dialect:?}: {bytes_allocated} bytes, {dropped} in elements");
        assert_eq!(messages, 120);
    }
}

#[test]
fn values_of_equal_shape_allocate_nothing_at_all() {
    for dialect in dialects() {
        let (encoder, decoder) = (encoder::<Book>(dialect), decoder::<Book>(dialect));
        let mut books: Vec<Book> = (0..26).map(book).collect();
        for (i, book) in books.iter_mut().enumerate() {
            book.bids = vec![Level { price: 1.0, venue: "x".repeat(40 - i) }; 3];
        }
        let (mut bytes, mut read) = (Vec::new(), Book::default());
        let mut round = || {
            for book in &books {
                bytes.clear();
                encoder.encode(book, &mut bytes).unwrap();
                decoder.decode(&bytes, &mut read).unwrap();
            }
        };
        round();
        round();
        assert_eq!(bytes_requested_by(round), 0, "{dialect:?}");
        assert_eq!(read, books[25]);
    }
}

#[derive(Message, Default, Debug, PartialEq)]
#[polywire(final)]
struct Doubles {
    values: Vec<f64>,
}

#[derive(Message, Default, Debug, PartialEq)]
#[polywire(final)]
struct Shorts {
    values: Vec<u16>,
}

#[derive(Message, Default, Debug, PartialEq)]
#[polywire(final)]
struct Levels {
    values: Vec<Level>,
}

#[derive(Message, Default, Debug, PartialEq)]
#[polywire(final)]
struct Text {
    text: String,
}

#[derive(Message, Default, Debug, PartialEq)]
#[polywire(final)]
struct Wide {
    #[polywire(idl = "wstring")]
    text: String,
}

#[derive(Message, Default, Debug, PartialEq)]
#[polywire(final)]
struct Counts {
    counts: std::collections::BTreeMap<u32, u32>,
}

fn claim<T: Message + Default>(dialect: (&str, &str, Backend), count: u32, kinds: &[FaultKind]) {
    let mut bytes = vec![0; 20];
    bytes[..4].copy_from_slice(&count.to_le_bytes());
    let decoder = decoder::<T>(dialect);
    let (mut value, mut error) = (T::default(), None);
    let bytes_allocated = bytes_requested_by(|| error = decoder.decode(&bytes, &mut value).err());
    let error = error.unwrap_or_else(|| panic!("{count:#x} was believed by {dialect:?}"));
    assert!(kinds.contains(&error.kind), "{dialect:?}: {error}");
    // The error itself names the field.
    assert!(bytes_allocated <= 64, "{dialect:?}: {bytes_allocated} bytes for {error}");
}

#[test]
fn lengths_that_lie_cost_nothing() {
    let kinds = [FaultKind::BadLength, FaultKind::Limit];
    for backend in [Backend::Interpreter, Backend::Auto] {
        // With a length in front of collections, the claim about that would be another.
        for dialect in [("cdr", "", backend)] {
            for count in [u32::MAX, 1 << 31, (1 << 29) + 1, (1 << 31) + 1, 1 << 20, 17] {
                claim::<Doubles>(dialect, count, &kinds);
                claim::<Shorts>(dialect, count, &kinds);
                claim::<Levels>(dialect, count, &kinds);
                claim::<Text>(dialect, count, &kinds);
                claim::<Wide>(dialect, count, &kinds);
                claim::<Counts>(dialect, count, &kinds);
            }
        }
    }
}
