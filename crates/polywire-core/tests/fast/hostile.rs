//! Message sequences with malformed messages: nothing panics, both back ends agree, and a refused
//! message leaves the state unchanged.

use polywire_core::{
    codec::{
        Decoder, Encoder, Options,
        fast::{FAST, Fast, template::TemplateSet},
    },
    layout::{Record, Shape},
    program::{Backend, FaultKind, Limits, State},
    schema::{Def, Extensibility, Member, Schema, SchemaBuilder, Type, arbitrary::Random},
};
use polywire_testing::{backends, mutated, random_record, random_schema, seeds};
use std::sync::Arc;

struct Ends {
    encoder: Encoder<Record>,
    decoder: Decoder<Record>,
    writer: State,
    reader: State,
}

fn ends(shape: &Arc<Shape>, backend: Backend) -> Option<Ends> {
    let encoder = Encoder::for_shape_with_backend(&FAST, &Options::default(), shape, backend).ok()?;
    let decoder = Decoder::for_shape_with_backend(&FAST, &Options::default(), shape.schema(), shape, backend).ok()?;
    let (writer, reader) = (encoder.state()?, decoder.state()?);
    Some(Ends { encoder, decoder, writer, reader })
}

#[test]
fn bad_messages_among_good_ones() {
    let (mut good, mut bad) = (0, 0);
    for seed in seeds(120) {
        let Ok(shape) = Shape::of(&random_schema(seed, 2 + seed as usize % 8)) else { continue };
        let backends = if seed % 3 == 0 { backends() } else { vec![Backend::Interpreter] };
        let mut all: Vec<Ends> = backends.into_iter().filter_map(|backend| ends(&shape, backend)).collect();
        let mut random = Random::new(seed);
        let mut last = random_record(&mut random, &shape);
        for _ in 0..20 {
            // Now and then the same again: that is what operators are for.
            if !random.one_in(3) {
                last = random_record(&mut random, &shape);
            }
            let written: Vec<Vec<u8>> = all
                .iter_mut()
                .map(|ends| {
                    let mut bytes = Vec::new();
                    ends.encoder.encode_with(&mut ends.writer, true, &last, &mut bytes).unwrap();
                    bytes
                })
                .collect();
            assert!(written.windows(2).all(|pair| pair[0] == pair[1]), "seed {seed}: {written:?}");
            let Some(message) = written.first() else { continue };
            for _ in 0..3 {
                let hostile = match random.below(3) {
                    0 => (0..random.below(30)).map(|_| random.bits() as u8).collect(),
                    _ => mutated(&mut random, message),
                };
                let outcomes: Vec<_> = all
                    .iter_mut()
                    .map(|ends| {
                        let mut record = Record::new(&shape);
                        let outcome = ends.decoder.decode_with(&mut ends.reader, false, &hostile, &mut record);
                        outcome.map(|taken| (taken, record)).map_err(|error| (error.kind, error.offset, error.path))
                    })
                    .collect();
                for pair in outcomes.windows(2) {
                    match (&pair[0], &pair[1]) {
                        // A NaN is not equal to itself.
                        (Ok(one), Ok(other)) => assert_eq!(format!("{one:?}"), format!("{other:?}"), "seed {seed}"),
                        (one, other) => assert_eq!(format!("{:?}", one.is_ok()), format!("{:?}", other.is_ok())),
                    }
                    if let (Err(one), Err(other)) = (&pair[0], &pair[1]) {
                        assert_eq!(one, other, "seed {seed}, {hostile:?}");
                    }
                }
                bad += outcomes.iter().filter(|outcome| outcome.is_err()).count();
            }
            for ends in &mut all {
                let mut back = Record::new(&shape);
                let taken = ends.decoder.decode_with(&mut ends.reader, true, message, &mut back).unwrap();
                assert_eq!((taken, &back), (message.len(), &last), "seed {seed}");
                good += 1;
            }
        }
    }
    assert!(good > 2000 && bad > 2000, "{good} good, {bad} bad");
}

/// Two bytes of a message may stand for a copy of the whole previous string. A reader that lacks
/// the member copies them too, and stores nothing that memory limits could bound.
#[test]
fn copies_of_previous_strings_are_bounded() {
    const LINES: usize = 500;
    let schema = |has_lines: bool| -> Schema {
        let mut types = SchemaBuilder::new();
        let line = types.add(Def::structure("Line", vec![Member::new("text", Type::string())]));
        let mut members = vec![Member::new("first", Type::string())];
        members.extend(has_lines.then(|| Member::new("lines", Type::sequence(Type::Def(line)))));
        let mut root = Def::structure("Root", members);
        root.extensibility = Extensibility::Appendable;
        let root = types.add(root);
        types.finish(Type::Def(root)).unwrap()
    };
    let templates = r#"<templates xmlns="http://www.fixprotocol.org/ns/fast/td/1.1"><template name="Root" id="1">
        <string name="first" charset="unicode"><copy key="s"/></string>
        <sequence name="lines"><string name="text" charset="unicode"><delta key="s"/></string></sequence>
        </template></templates>"#;
    let (codec, options) = (Fast::new(TemplateSet::parse(templates).unwrap()), Options::default());
    let (old, new) = (schema(true), schema(false));
    let (writer, reader) = (Shape::of(&old).unwrap(), Shape::of(&new).unwrap());
    let mut record = Record::new(&writer);
    let text = "x".repeat(1 << 14);
    record.set("first", text.as_str()).unwrap();
    record.resize("lines", LINES).unwrap();
    for i in 0..LINES {
        record.set(&format!("lines[{i}].text"), text.as_str()).unwrap();
    }
    let mut message = Vec::new();
    Encoder::for_shape(&codec, &options, &writer).unwrap().encode(&record, &mut message).unwrap();
    assert!(message.len() < text.len() + 3 * LINES);
    let all = LINES * text.len();
    for backend in backends() {
        let decode = |memory_bytes| {
            let limits = Limits { memory_bytes, ..Limits::default() };
            let decoder = Decoder::for_shape_with_backend(&codec, &options, &old, &reader, backend).unwrap();
            decoder.with_limits(limits).decode(&message, &mut Record::new(&reader)).map_err(|error| error.kind)
        };
        assert_eq!((decode(all - 1), decode(all)), (Err(FaultKind::Limit), Ok(message.len())), "{backend:?}");
    }
}
