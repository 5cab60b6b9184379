//! Recursive types through the pointer of a union case: derived and dynamic, under every codec and
//! back end.

use polywire_core::{
    codec::{Decoder, Encoder},
    layout::{Message as _, MessageField as _, Record, Shape, Value},
};
use polywire_derive::Message;
use polywire_testing::{Coder, backends, plain_wires};

/// An expression: a number, or the negative of another.
#[derive(Message, Clone, Debug, PartialEq)]
#[polywire(name = "Term", switch = "long")]
enum Term {
    #[polywire(case(0))]
    Number(f64),
    #[polywire(case(1))]
    Negative(Box<Term>),
    #[polywire(case(2))]
    Sum(Vec<Term>),
}

fn nested(depth: u32) -> Term {
    (0..depth).fold(Term::Number(0.5), |term, i| match i % 3 {
        2 => Term::Sum(vec![term, Term::Number(i.into())]),
        _ => Term::Negative(Box::new(term)),
    })
}

#[derive(Message, Clone, Debug, PartialEq)]
struct Question {
    number: u32,
    term: Term,
}

#[test]
fn derived_values_come_back() {
    for wire in plain_wires() {
        for backend in backends() {
            let encoder = Encoder::<Question>::with_backend(wire.codec, &wire.options, backend).unwrap();
            let schema = encoder.schema();
            let decoder = Decoder::<Question>::with_backend(wire.codec, &wire.options, schema, backend).unwrap();
            let mut back = Question::default_value();
            for depth in [0, 1, 2, 7, 3, 0] {
                let question = Question { number: depth, term: nested(depth) };
                let mut bytes = Vec::new();
                encoder.encode(&question, &mut bytes).unwrap();
                decoder.decode(&bytes, &mut back).unwrap();
                assert_eq!(back, question, "{wire:?} {backend:?}");
            }
            let deep = Question { number: 0, term: nested(1000) };
            assert!(encoder.encode(&deep, &mut Vec::new()).is_err(), "{wire:?} {backend:?}");
        }
    }
}

#[test]
fn records_come_back() {
    let shape = Shape::of(Question::shape().schema()).unwrap();
    let term = Value::fields([("Negative", Value::fields([("Negative", Value::fields([("Number", 4.5)]))]))]);
    let mut record = Record::new(&shape);
    record.set("term", term).unwrap();
    assert_eq!(record.f64("term.Negative.Negative.Number").unwrap(), 4.5);
    for wire in plain_wires() {
        for backend in backends() {
            let coder = Coder::new(&wire, &shape, backend).unwrap();
            let bytes = coder.encode(&record).unwrap();
            let (back, _) = coder.decode(&bytes, &Record::new(&shape)).unwrap();
            assert_eq!(back, record, "{wire:?} {backend:?}");
        }
    }
}
