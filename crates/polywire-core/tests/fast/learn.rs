//! Templates learned from samples: fewer bytes and the same values, for all samples.

use polywire_core::{
    codec::{
        Decoder, Encoder, Options,
        fast::{FAST, Fast, LearnOptions, learn, template::TemplateSet},
    },
    layout::{Record, Shape},
    program::{Backend, FaultKind},
    schema::{Def, Member, SchemaBuilder, Type, arbitrary::Random},
};
use polywire_testing::{random_record, random_schema};

#[test]
fn each_field_gets_the_operator_that_suits_it() {
    let mut types = SchemaBuilder::new();
    let members = vec![
        Member::new("count", Type::Uint32),
        Member::new("venue", Type::string()),
        Member::new("price", Type::Float64),
        Member::new("noise", Type::Float64),
        Member::new("time", Type::Uint64),
        Member::new("rare", Type::Int32).as_optional(),
    ];
    let root = types.add(Def::structure("Tick", members));
    let shape = Shape::of(&types.finish(Type::Def(root)).unwrap()).unwrap();
    let mut random = Random::new(1);
    let mut bits = 0x3FF0_0000_0000_0000;
    let samples: Vec<Record> = (0..500u32)
        .map(|i| {
            bits += random.below(1000) as u64;
            let mut record = Record::new(&shape);
            record.set("count", i).unwrap();
            record.set("venue", "XEUR").unwrap();
            record.set("price", 100.0 + f64::from(i % 7) / 4.0).unwrap();
            record.set("noise", f64::from_bits(bits)).unwrap();
            record.set("time", 1_700_000_000_000_000u64 + u64::from(i) * 1000 + random.below(100) as u64).unwrap();
            record
        })
        .collect();
    let learned = learn(&shape, &samples, &LearnOptions::default()).unwrap();
    let xml = learned.templates.to_xml();
    for part in [
        "<increment key=\"count\"",
        "<uInt64 name=\"noise\">",
        "<delta key=\"noise\"",
        "<delta key=\"time\"",
        "<decimal name=\"price\"",
    ] {
        assert!(xml.contains(part), "{part} in {xml}");
    }
    assert_eq!(learned.messages, samples.len());
    assert!(learned.learned_bytes * 10 < learned.derived_bytes * 8, "{learned:?}");
    // It is what a document says, too.
    assert_eq!(TemplateSet::parse(&xml).unwrap(), learned.templates);
}

/// A field with the same value in all samples takes no bytes, and can have no other value.
#[test]
fn constants_are_learned_only_on_request() {
    let mut types = SchemaBuilder::new();
    let mut members = vec![Member::new("count", Type::Uint32), Member::new("venue", Type::String { bound: 0 })];
    members.extend((0..6).map(|i| Member::new(format!("kind{i}"), Type::Uint8)));
    members.push(Member { optional: true, ..Member::new("note", Type::Uint8) });
    let root = types.add(Def::structure("Tick", members));
    let shape = Shape::of(&types.finish(Type::Def(root)).unwrap()).unwrap();
    let sample = |i: u32, venue: &str| {
        let mut record = Record::new(&shape);
        record.set("count", i).unwrap();
        record.set("venue", venue).unwrap();
        (0..6).for_each(|k| record.set(&format!("kind{k}"), 3u8).unwrap());
        // The last bit of the presence map, so that those before it count.
        record.set("note", 9 + (i % 3 / 2) as u8).unwrap();
        record
    };
    let samples: Vec<Record> = (0..50).map(|i| sample(i, "XEUR")).collect();
    let general = learn(&shape, &samples, &LearnOptions::default()).unwrap();
    let strict = learn(&shape, &samples, &LearnOptions { constants: true, ..LearnOptions::default() }).unwrap();
    let xml = strict.templates.to_xml();
    assert_eq!(xml.matches("<constant").count(), 7, "{xml}");
    assert!(strict.learned_bytes < general.learned_bytes, "{strict:?} {general:?}");
    assert_eq!((strict.messages, TemplateSet::parse(&xml).unwrap()), (50, strict.templates.clone()));
    let encoder = |set| Encoder::for_shape(&Fast::new(set), &Options::default(), &shape).unwrap();
    let (general, strict) = (encoder(general.templates), encoder(strict.templates));
    let mut bytes = Vec::new();
    general.encode(&sample(1, "XETR"), &mut bytes).unwrap();
    let refused = strict.encode(&sample(1, "XETR"), &mut bytes).unwrap_err();
    assert_eq!((refused.kind, &*refused.path), (FaultKind::NotEncodable, "venue"));
    strict.encode(&sample(1, "XEUR"), &mut bytes).unwrap();
    // What XML cannot say is no constant, and keeps a previous value of its own.
    let others: Vec<Record> = (0..50).map(|i| sample(i, "Z\u{fc}rich")).collect();
    let other = learn(&shape, &others, &LearnOptions { constants: true, ..LearnOptions::default() }).unwrap();
    let xml = other.templates.to_xml();
    assert!(xml.matches("<constant").count() == 6 && xml.contains("key=\"venue\""), "{xml}");
}

/// A learned template carries what its samples had not.
#[test]
fn learned_templates_carry_every_value() {
    let mut streams = 0;
    for seed in 0..60 {
        let Ok(shape) = Shape::of(&random_schema(seed, 3 + seed as usize % 9)) else { continue };
        let mut random = Random::new(seed);
        let samples: Vec<Record> = (0..12).map(|_| random_record(&mut random, &shape)).collect();
        let options = LearnOptions { interval: [0, 1, 5][seed as usize % 3], ..LearnOptions::default() };
        let Ok(learned) = learn(&shape, &samples, &options) else { continue };
        assert!(learned.learned_bytes <= learned.derived_bytes);
        let xml = learned.templates.to_xml();
        let parsed = TemplateSet::parse(&xml).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{xml}"));
        assert_eq!(parsed, learned.templates, "seed {seed}");
        for codec in [Fast::new(parsed), FAST.clone()] {
            let encoder =
                Encoder::for_shape_with_backend(&codec, &Options::default(), &shape, Backend::Interpreter).unwrap();
            let decoder = Decoder::for_shape_with_backend(
                &codec,
                &Options::default(),
                shape.schema(),
                &shape,
                Backend::Interpreter,
            )
            .unwrap();
            let (mut writer, mut reader) = (encoder.state().unwrap(), decoder.state().unwrap());
            let (mut bytes, mut back) = (Vec::new(), Record::new(&shape));
            let others: Vec<Record> = (0..12).map(|_| random_record(&mut random, &shape)).collect();
            for record in samples.iter().chain(&others) {
                bytes.clear();
                encoder
                    .encode_with(&mut writer, true, record, &mut bytes)
                    .unwrap_or_else(|e| panic!("seed {seed}: {e}"));
                let taken = decoder.decode_with(&mut reader, true, &bytes, &mut back);
                assert_eq!(taken.unwrap_or_else(|e| panic!("seed {seed}: {e}")), bytes.len());
                assert_eq!(back, *record, "seed {seed}");
                streams += 1;
            }
        }
    }
    assert!(streams > 1000, "{streams}");
}
