//! Untrusted schemas. Lowering and compiling them takes bounded time and memory, and their programs
//! run within the stack of an ordinary thread.

use polywire_core::{
    codec::{self, BuildError, Decoder, Encoder, LowerError, Options},
    layout::{Record, Shape},
    program::{Backend, CodecError, FaultKind},
    schema::{
        Case, Def, DefId, Extensibility, Literal, Member, Schema, SchemaBuilder, SchemaError, SchemaLimits, Type,
    },
};
use polywire_testing::{Coder, backends, plain_wires};
use std::time::{Duration, Instant};

fn m(name: impl Into<String>, ty: Type) -> Member {
    Member::new(name, ty)
}

/// The last definition is the root.
fn schema(defs: Vec<Def>) -> Schema {
    let mut builder = SchemaBuilder::new();
    let ids: Vec<DefId> = defs.into_iter().map(|def| builder.add(def)).collect();
    builder.finish(Type::Def(ids[ids.len() - 1])).unwrap()
}

fn mutable(mut def: Def, index: usize) -> Def {
    def.extensibility = [Extensibility::Final, Extensibility::Appendable, Extensibility::Mutable][index % 3];
    def
}

/// A structure that has the one before twice, and so on: 2^levels of the first.
fn doubling(levels: u32, first: Vec<Member>) -> Schema {
    let mut defs = vec![Def::structure("D0", first)];
    for level in 1..=levels {
        let before = Type::Def(DefId(level - 1));
        defs.push(Def::structure(format!("D{level}"), vec![m("a", before.clone()), m("b", before)]));
    }
    schema(defs)
}

/// Makes coders of it under every codec, if they can be had, and puts a fresh value through them.
#[track_caller]
fn try_it(what: &str, schema: &Schema) {
    let before = Instant::now();
    let shape = match Shape::of(schema) {
        Ok(shape) => shape,
        Err(_) => return,
    };
    assert!(before.elapsed() < Duration::from_secs(10), "{what}: the layout took {:?}", before.elapsed());
    for wire in plain_wires() {
        for backend in backends().into_iter().map(|b| if b == Backend::Jit { Backend::Auto } else { b }) {
            let before = Instant::now();
            let coder = Coder::new(&wire, &shape, backend);
            let took = before.elapsed();
            assert!(took < Duration::from_secs(60), "{what}, {wire:?}, {backend:?}: {took:?}");
            match coder {
                Ok(coder) => {
                    let fresh = Record::new(&shape);
                    if let Ok(message) = coder.encode(&fresh) {
                        assert_eq!(coder.decode(&message, &fresh).unwrap().0, fresh, "{what}, {wire:?}");
                    }
                }
                Err(BuildError::Lower(LowerError::Unsupported { .. }) | BuildError::Exec(_)) => {}
                Err(error) => panic!("{what}, {wire:?}: {error}"),
            }
        }
    }
}

#[test]
fn doubling_schemas_are_refused_in_time() {
    try_it("doubled octets", &doubling(13, vec![m("x", Type::Octet)]));
    let limits = SchemaLimits { fixed_bytes: u64::MAX, ..SchemaLimits::default() };
    for levels in [20, 40, 60] {
        let mut builder = SchemaBuilder::with_limits(limits);
        let mut last = builder.add(Def::structure("D0", vec![m("x", Type::sequence(Type::Octet))]));
        for level in 1..levels {
            let before = Type::Def(last);
            let def = Def::structure(format!("D{level}"), vec![m("a", before.clone()), m("b", before)]);
            last = builder.add(mutable(def, level));
        }
        if let Ok(schema) = builder.finish(Type::Def(last)) {
            try_it("doubled sequences", &schema);
        }
    }
    try_it("doubled nothing", &doubling(20, vec![]));
    for levels in [40, 60] {
        // These say 2^40 values without a byte: a schema that holds them is refused at some point.
        let mut builder = SchemaBuilder::new();
        let mut last = builder.add(Def::structure("D0", vec![]));
        for level in 1..levels {
            let before = Type::Def(last);
            last = builder.add(Def::structure(format!("D{level}"), vec![m("a", before.clone()), m("b", before)]));
        }
        let root = Def::structure("Root", vec![m("all", Type::sequence(Type::Def(last)))]);
        let root = builder.add(root);
        if let Ok(schema) = builder.finish(Type::Def(root)) {
            try_it("doubled nothing in a sequence", &schema);
        }
    }
}

#[test]
fn thousands_of_members() {
    let types = [Type::Octet, Type::string(), Type::sequence(Type::Uint32), Type::Float64, Type::Bool];
    let wide = |n: usize| (0..n).map(|i| m(format!("m{i}"), types[i % types.len()].clone())).collect();
    try_it("1500 members", &schema(vec![Def::structure("S", wide(1500))]));
    try_it("1500 members, mutable", &schema(vec![mutable(Def::structure("S", wide(1500)), 2)]));
    let optional = |n: usize| (0..n).map(|i| m(format!("m{i}"), Type::Int16).as_optional()).collect();
    try_it("1000 optional members", &schema(vec![Def::structure("S", optional(1000))]));
    try_it(
        "60000 octets",
        &schema(vec![Def::structure("S", (0..60_000).map(|i| m(format!("m{i}"), Type::Octet)).collect())]),
    );
    let defs = (0..2000).map(|i| match i {
        0 => Def::structure("S0", vec![m("x", Type::Octet)]),
        _ => Def::structure(format!("S{i}"), vec![m("x", Type::sequence(Type::Def(DefId(i - 1))))]),
    });
    let mut defs: Vec<Def> = defs.collect();
    let all = (0..2000).map(|i| m(format!("m{i}"), Type::sequence(Type::Def(DefId(i))))).collect();
    defs.push(Def::structure("Root", all));
    let mut builder = SchemaBuilder::new();
    let ids: Vec<DefId> = defs.into_iter().map(|def| builder.add(def)).collect();
    if let Ok(schema) = builder.finish(Type::Def(ids[ids.len() - 1])) {
        try_it("a pyramid of sequences", &schema);
    }
}

#[test]
fn names_are_not_multiplied() {
    let long = "n".repeat(100_000);
    let inner = (0..2000).map(|i| m(format!("m{i}"), Type::string())).collect();
    let defs = vec![
        Def::structure("I", inner),
        Def::structure("S", vec![m(long.clone(), Type::Def(DefId(0))), m(format!("{long}2"), Type::Def(DefId(0)))]),
    ];
    try_it("long names", &schema(defs));
}

/// A type that contains itself through `levels` of collections, structures and options inside each
/// other.
fn recursive(levels: usize) -> Schema {
    let mut builder = SchemaBuilder::new();
    let root = DefId(levels as u32);
    let mut inside = Type::sequence(Type::Def(root));
    for level in 0..levels {
        let mut member = m("next", inside);
        member.optional = level % 2 == 0;
        inside = Type::Def(builder.add(mutable(Def::structure(format!("L{level}"), vec![member]), level)));
        if level % 3 == 0 {
            inside = Type::sequence(inside);
        }
    }
    let root = builder.add(Def::structure("Root", vec![m("all", inside)]));
    builder.finish(Type::Def(root)).unwrap()
}

/// The same through sequences of sequences alone.
fn nested(levels: usize) -> Schema {
    let mut builder = SchemaBuilder::new();
    let inside = (0..levels).fold(Type::Def(DefId(0)), |inside, _| Type::sequence(inside));
    let root = builder.add(Def::structure("Root", vec![m("all", inside)]));
    builder.finish(Type::Def(root)).unwrap()
}

fn deep_nested(record: &mut Record, levels: usize, depth: usize) {
    let mut path = String::new();
    for _ in 0..depth {
        path = if path.is_empty() { "all".to_string() } else { format!("{path}.all") };
        for _ in 0..levels {
            record.resize(&path, 1).unwrap();
            path.push_str("[0]");
        }
    }
}

/// A value of it that goes as deep as it can.
fn deep(record: &mut Record, levels: usize, depth: usize) {
    let mut path = String::new();
    for _ in 0..depth {
        let start = if path.is_empty() { "all".to_string() } else { format!("{path}.all") };
        path = start;
        for level in (0..levels).rev() {
            if level % 3 == 0 {
                record.resize(&path, 1).unwrap();
                path.push_str("[0]");
            }
            path.push_str(".next");
        }
        record.resize(&path, 1).unwrap();
        path.push_str("[0]");
    }
}

/// As many levels as limits allow, in a thread with the least stack that threads usually have.
#[test]
fn the_stack_suffices_for_what_the_limits_allow() {
    // Who makes a value that is deeper than that needs a stack for it.
    in_a_thread(256 << 20, || {
        for levels in [1, 6, 20, 30] {
            try_depths(&recursive(levels), |record, depth| deep(record, levels, depth));
            try_depths(&nested(levels), |record, depth| deep_nested(record, levels, depth));
        }
    });
}

/// Definitions of which each has the next one, by turns in a sequence, a map and a case of a union.
/// The last one has `last`.
fn chain(levels: u32, last: &Type) -> Vec<Def> {
    let def = |level: u32| {
        let next = if level + 1 < levels { Type::Def(DefId(level + 1)) } else { last.clone() };
        match level % 3 {
            0 => Def::structure(format!("S{level}"), vec![m("x", Type::sequence(next))]),
            1 => Def::structure(format!("M{level}"), vec![m("x", Type::map(Type::Int32, next))]),
            _ => Def::union(format!("U{level}"), Type::Int32, vec![Case::new([1], "x", Type::sequence(next))]),
        }
    };
    (0..levels).map(def).collect()
}

/// The first definition is the root.
fn finish(defs: Vec<Def>, limits: SchemaLimits) -> Result<Schema, SchemaError> {
    let mut builder = SchemaBuilder::with_limits(limits);
    defs.into_iter().for_each(|def| {
        builder.add(def);
    });
    builder.finish(Type::Def(DefId(0)))
}

#[test]
fn the_nesting_of_types_is_limited_wherever_it_goes() {
    in_a_thread(256 << 10, || {
        let limits = SchemaLimits::default();
        for last in &[Type::Octet, Type::sequence(Type::Def(DefId(3999)))] {
            assert!(finish(chain(20, &Type::Octet), limits).is_ok());
            let refused = finish(chain(4000, last), limits);
            assert!(matches!(refused, Err(SchemaError::Range { what: "depth", .. })), "{refused:?}");
        }
        let derived = (1..4000).map(|i| Def::structure(format!("S{i}"), vec![]).with_base(DefId(i - 1)));
        let refused = finish([Def::structure("S0", vec![])].into_iter().chain(derived.clone()).collect(), limits);
        assert!(matches!(refused, Err(SchemaError::Range { what: "depth", .. })), "{refused:?}");
        // Bases and parts in place count also where types contain each other.
        let of_last = Def::structure("S0", vec![m("x", Type::sequence(Type::Def(DefId(3999))))]);
        let refused = finish([of_last].into_iter().chain(derived).collect(), limits);
        assert!(matches!(refused, Err(SchemaError::Range { what: "depth", .. })), "{refused:?}");
        let in_place = (0..3999).map(|i| Def::structure(format!("S{i}"), vec![m("x", Type::Def(DefId(i + 1)))]));
        let of_first = Def::structure("S3999", vec![m("x", Type::sequence(Type::Def(DefId(0))))]);
        let refused = finish(in_place.chain([of_first]).collect(), limits);
        assert!(matches!(refused, Err(SchemaError::Range { what: "depth", .. })), "{refused:?}");
    });
    let node = |name: &str, to: [u32; 3]| {
        let member = |to: u32| m(format!("to{to}"), Type::sequence(Type::Def(DefId(to))));
        Def::structure(name, to.map(member).into())
    };
    let of_each_other = vec![node("A", [0, 1, 2]), node("B", [2, 1, 0]), node("C", [1, 0, 2])];
    assert!(finish(of_each_other, SchemaLimits { depth: 6, ..SchemaLimits::default() }).is_ok());
}

#[test]
fn a_family_of_hundreds_of_recursive_types_is_accepted() {
    in_a_thread(2 << 20, || {
        let schema = finish(chain(300, &Type::sequence(Type::Def(DefId(0)))), SchemaLimits::default()).unwrap();
        let shape = Shape::of(&schema).unwrap();
        for name in ["cdr", "xcdr2", "cbor", "msgpack", "json"] {
            let (codec, options) = (codec::find(name).unwrap(), Options::default());
            let encoder = Encoder::for_shape_with_backend(codec, &options, &shape, Backend::Interpreter);
            let decoder = Decoder::for_shape_with_backend(codec, &options, &schema, &shape, Backend::Interpreter);
            assert!(encoder.is_ok(), "{name}: {:?}", encoder.err());
            assert!(decoder.is_ok(), "{name}: {:?}", decoder.err());
        }
    });
}

/// Makes coders of a schema, which may be refused but must not take long.
fn in_time(what: &str, name: &str, schema: &Schema) {
    let before = Instant::now();
    let shape = Shape::of(schema).unwrap();
    let (codec, options) = (codec::find(name).unwrap(), Options::default());
    let encoder = Encoder::for_shape_with_backend(codec, &options, &shape, Backend::Interpreter).err();
    let decoder = Decoder::for_shape_with_backend(codec, &options, schema, &shape, Backend::Interpreter).err();
    for error in [encoder, decoder].into_iter().flatten() {
        let refused = matches!(error, BuildError::Lower(LowerError::Unsupported { .. }) | BuildError::Exec(_));
        assert!(refused, "{what}, {name}: {error}");
    }
    assert!(before.elapsed() < Duration::from_secs(8), "{what}, {name}: {:?}", before.elapsed());
}

#[test]
fn very_many_labels_and_literals_take_no_time_out_of_proportion() {
    let union = |cases| Def::union("U", Type::Int32, cases);
    let labels = |n: i64| vec![Case::new((0..n).collect::<Vec<i64>>(), "c", Type::Octet)];
    let cases: Vec<Case> = (0..30_000).map(|i| Case::new([i], format!("c{i}"), Type::Octet)).collect();
    let many = |of: Member| {
        let member = |i| Member { name: format!("m{i}"), ..of.clone() };
        Def::structure("S", (0..15_000).map(member).collect())
    };
    let literals = Def::enumeration("E", (0..15_000).map(|i| format!("L{i}")));
    let last = m("", Type::Def(DefId(0))).with_default(Literal::Enum("L14999".into()));
    for name in ["cdr", "xcdr2", "cbor", "json"] {
        in_time("60000 labels", name, &schema(vec![union(labels(60_000))]));
        in_time("30000 cases", name, &schema(vec![union(cases.clone())]));
        in_time("15000 unions", name, &schema(vec![union(labels(15_000)), many(m("", Type::Def(DefId(0))))]));
        in_time("15000 enums", name, &schema(vec![literals.clone(), many(m("", Type::Def(DefId(0))))]));
        in_time("15000 enums with defaults", name, &schema(vec![literals.clone(), many(last.clone())]));
    }
}

/// Their operations are made once and called. A type that is not that large has none to call.
#[test]
fn a_large_union_with_many_uses_is_accepted() {
    let cases = |of_case: i64| {
        let labels = |case: i64| (case * of_case..(case + 1) * of_case).collect::<Vec<i64>>();
        (0..300 / of_case).map(|case| Case::new(labels(case), format!("c{case}"), Type::Uint16)).collect::<Vec<_>>()
    };
    let of = |cases: Vec<Case>, members: usize| {
        let member = |i| m(format!("m{i}"), Type::Def(DefId(0)));
        let root = Def::structure("S", (0..members).map(member).collect());
        schema(vec![Def::union("U", Type::Int32, cases), root])
    };
    for of_case in [1, 30] {
        let schema = of(cases(of_case), 1000);
        let shape = Shape::of(&schema).unwrap();
        let mut value = Record::new(&shape);
        for (member, number) in [("m0", 0), ("m500", 1), ("m999", 299 / of_case)] {
            value.set(&format!("{member}.c{number}"), 7u16).unwrap();
        }
        for name in ["cdr", "xcdr2", "cbor", "msgpack", "json", "yaml", "xml"] {
            let (codec, options) = (codec::find(name).unwrap(), Options::default());
            let encoder = Encoder::for_shape_with_backend(codec, &options, &shape, Backend::Interpreter).unwrap();
            let decoder = Decoder::for_shape_with_backend(codec, &options, &schema, &shape, Backend::Interpreter);
            let (mut bytes, mut back) = (Vec::new(), Record::new(&shape));
            encoder.encode(&value, &mut bytes).unwrap();
            decoder.unwrap().decode(&bytes, &mut back).unwrap();
            assert_eq!(back, value, "{name}");
        }
    }
    for (members, routines) in [(20, 0), (1000, 1)] {
        let schema = of(cases(30), members);
        let shape = Shape::of(&schema).unwrap();
        let program = codec::find("cdr").unwrap().lower_decode(&Options::default(), &schema, &schema, shape.layout());
        assert_eq!(program.unwrap().routines.len(), routines, "{members} members");
    }
}

/// The walks have a limit of their own. The length of a program's paths limits families of types
/// that contain each other.
#[test]
fn deep_types_are_refused_by_the_walks() {
    in_a_thread(2 << 20, || {
        let limits = SchemaLimits { depth: usize::MAX, ..SchemaLimits::default() };
        for last in [Type::Octet, Type::sequence(Type::Def(DefId(0)))] {
            let schema = finish(chain(3000, &last), limits).unwrap();
            let shape = Shape::of(&schema).unwrap();
            for name in ["cdr", "xcdr2", "cbor", "msgpack"] {
                let (codec, options) = (codec::find(name).unwrap(), Options::default());
                let refused = |error: Option<BuildError>| {
                    matches!(error, Some(BuildError::Lower(LowerError::Unsupported { .. })))
                };
                let encoder = Encoder::for_shape_with_backend(codec, &options, &shape, Backend::Interpreter);
                assert!(refused(encoder.err()), "{name}");
                let decoder = Decoder::for_shape_with_backend(codec, &options, &schema, &shape, Backend::Interpreter);
                assert!(refused(decoder.err()), "{name}");
            }
        }
    });
}

fn in_a_thread<R: Send>(stack: usize, run: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        std::thread::Builder::new().stack_size(stack).spawn_scoped(scope, run).unwrap().join().unwrap()
    })
}

fn try_depths(schema: &Schema, fill: impl Fn(&mut Record, usize)) {
    let shape = Shape::of(schema).unwrap();
    let records: Vec<Record> = [1, 2, 3, 30, 61, 70]
        .into_iter()
        .map(|depth| {
            let mut record = Record::new(&shape);
            fill(&mut record, depth);
            record
        })
        .collect();
    for wire in plain_wires() {
        for backend in backends() {
            let Ok(coder) = Coder::new(&wire, &shape, backend) else { continue };
            let mut carried = 0;
            for record in &records {
                let there_and_back = || {
                    let message = coder.encode(record)?;
                    let (back, _) = coder.decode(&message, &Record::new(&shape))?;
                    Ok::<bool, CodecError>(back == *record)
                };
                match in_a_thread(2 << 20, there_and_back) {
                    Ok(same) => {
                        assert!(same, "{wire:?}, {backend:?}");
                        carried += 1;
                    }
                    Err(error) => assert_eq!(error.kind, FaultKind::TooDeep, "{wire:?}, {backend:?}: {error}"),
                }
            }
            assert!(carried > 0, "{wire:?}, {backend:?}");
        }
    }
}
