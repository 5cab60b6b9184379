use alloc::{
    format,
    string::{String, ToString},
    vec,
    vec::Vec,
};

use super::*;
use crate::schema::{DocumentHash, Literal, SchemaBuilder, SchemaError, arbitrary::Random, random_schema};

fn read(bytes: &[u8]) -> Result<Schema, SchemaDecodeError> {
    Schema::from_bytes(bytes, &SchemaLimits::default())
}

#[test]
fn every_kind_of_schema_comes_back_whole() {
    for seed in 0..400 {
        let schema = random_schema(seed, 1 + seed as usize % 30);
        let bytes = schema.to_bytes_with_docs();
        let back = read(&bytes).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert_eq!(back, schema, "seed {seed}");
        assert_eq!(back.to_bytes_with_docs(), bytes, "seed {seed}");
        assert_eq!(back.type_hash(), schema.type_hash(), "seed {seed}");
        let bare = read(&schema.to_bytes()).unwrap();
        assert_eq!(bare.to_bytes(), schema.to_bytes(), "seed {seed}");
        assert_eq!(bare.type_hash(), schema.type_hash(), "seed {seed}: comments are outside the type hash");
        assert_eq!(bare.document_hash(), schema.document_hash(), "seed {seed}");
    }
}

#[test]
fn random_schemas_have_every_kind_in_them() {
    let mut kinds = alloc::collections::BTreeSet::new();
    let mut recursive = 0;
    for seed in 0..400 {
        let schema = random_schema(seed, 12);
        kinds.extend(schema.defs().iter().map(|d| d.kind_name()));
        let root = format!("{:?}", schema.root());
        recursive += usize::from(schema.defs().iter().any(|d| format!("{:?}", d.kind).contains(&root)));
    }
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), ["bitmask", "bitset", "enum", "struct", "typedef", "union"]);
    assert!(recursive > 20, "{recursive} recursive schemas");
}

#[test]
fn cut_anywhere_it_is_refused() {
    for seed in 0..40 {
        let bytes = random_schema(seed, 8).to_bytes();
        for len in 0..bytes.len() {
            assert!(read(&bytes[..len]).is_err(), "seed {seed}, cut to {len} of {}", bytes.len());
        }
        let longer: Vec<u8> = bytes.iter().copied().chain([0]).collect();
        assert_eq!(read(&longer), Err(SchemaDecodeError::Trailing { offset: bytes.len(), left: 1 }), "seed {seed}");
    }
}

#[test]
fn a_flipped_bit_gives_an_error_or_another_canonical_schema() {
    for seed in 0..40 {
        let bytes = random_schema(seed, 6).to_bytes();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            if let Ok(other) = read(&flipped) {
                let again = if flipped[4] == WITH_DOCS { other.to_bytes_with_docs() } else { other.to_bytes() };
                assert_eq!(again, flipped, "seed {seed}, bit {bit}");
                assert_ne!(DocumentHash::of(&flipped), DocumentHash::of(&bytes), "seed {seed}, bit {bit}");
            }
        }
    }
}

#[test]
fn noise_does_no_harm() {
    let mut random = Random::new(7);
    for round in 0..20_000 {
        let mut bytes = b"PWS\x01\x00".to_vec();
        // Mostly small bytes: tags, counts and lengths that prefix the decoder further.
        bytes.extend((0..random.below(60)).map(|_| random.bits() as u8 >> random.below(8)));
        if let Ok(schema) = read(&bytes) {
            assert_eq!(schema.to_bytes(), bytes, "round {round}");
        }
    }
}

fn strukt(members: Vec<Member>) -> Schema {
    let mut builder = SchemaBuilder::new();
    let id = builder.add(Def::structure("S", members));
    builder.finish(Type::Def(id)).unwrap()
}

#[test]
fn what_the_root_does_not_reach_is_left_out() {
    let mut builder = SchemaBuilder::new();
    builder.add(Def::structure("Unused", vec![]));
    let id = builder.add(Def::structure("S", vec![Member::new("a", Type::Bool)]));
    let schema = builder.finish(Type::Def(id)).unwrap();
    assert_eq!(schema.to_bytes(), strukt(vec![Member::new("a", Type::Bool)]).to_bytes());
    assert_eq!(schema.document_hash(), strukt(vec![Member::new("a", Type::Bool)]).document_hash());
}

#[test]
fn numbers_keep_every_bit() {
    let bits = [f64::NAN.to_bits() | 0xABC, (-0.0f64).to_bits(), 1, f64::MAX.to_bits()];
    let args = bits.map(|b| ("value".to_string(), Literal::Float(f64::from_bits(b)))).to_vec();
    let wide = [i128::MIN, i128::MAX, -1, 0, 64].map(|n| ("value".to_string(), Literal::Int(n)));
    let mut member = Member::new("a", Type::Float64).with_default(Literal::Float(-0.0));
    member.annotations = vec![Annotation { name: "x".into(), args: args.into_iter().chain(wide).collect() }];
    let back = read(&strukt(vec![member.clone()]).to_bytes()).unwrap();
    let back = back.members(DefId(0))[0].clone();
    for ((_, got), (_, want)) in back.annotations[0].args.iter().zip(&member.annotations[0].args) {
        match (got, want) {
            (Literal::Float(got), Literal::Float(want)) => assert_eq!(got.to_bits(), want.to_bits()),
            _ => assert_eq!(got, want),
        }
    }
    assert!(matches!(back.default, Some(Literal::Float(v)) if v.to_bits() == (-0.0f64).to_bits()));
}

#[test]
fn each_way_to_be_wrong_has_its_error() {
    let bytes = strukt(vec![Member::new("ab", Type::Bool)]).to_bytes();
    // P W S 1 0 | 1 definition | root: 15 0 | struct "S" appendable, no flags, no annotations | no
    // base | 1 member: "ab" flags bool, ..
    assert_eq!(bytes, b"PWS\x01\x00\x01\x15\x00\x01\x01S\x01\x00\x00\x00\x01\x02ab\x00\x01\x00");
    assert_eq!(DocumentHash::of(&bytes).to_string(), "e9eb74f3ff9d61d295eb23a94fa0aebb");
    let with = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        read(&bytes).unwrap_err()
    };
    assert_eq!(with(0, b'Q'), SchemaDecodeError::Magic);
    assert_eq!(with(3, 2), SchemaDecodeError::Version { got: 2 });
    assert_eq!(with(4, 2), SchemaDecodeError::Value { offset: 4, what: "known option", got: 2 });
    assert_eq!(with(6, 0x77), SchemaDecodeError::Value { offset: 6, what: "type", got: 0x77 });
    assert!(matches!(with(7, 1), SchemaDecodeError::Schema(SchemaError::Reference { .. })));
    assert_eq!(with(8, 9), SchemaDecodeError::Value { offset: 8, what: "kind of definition", got: 9 });
    assert_eq!(with(10, 0xFF), SchemaDecodeError::Utf8 { offset: 10 });
    assert_eq!(with(15, 99), SchemaDecodeError::Truncated { offset: bytes.len(), what: "members" });
    assert_eq!(with(19, 0x30), SchemaDecodeError::Value { offset: 19, what: "@try_construct", got: 3 });
    assert_eq!(
        with(12, 4),
        SchemaDecodeError::Value { offset: 12, what: "flags of a definition", got: 4 },
        "flags without a meaning"
    );
}

#[test]
fn an_overlong_number_is_not_canonical() {
    let bytes = strukt(vec![]).to_bytes();
    let mut overlong = bytes.clone();
    overlong.splice(7..8, [0x80, 0x00]);
    assert_eq!(read(&overlong), Err(SchemaDecodeError::NotCanonical { offset: 7 }));
}

#[test]
fn limits_hold_before_anything_is_built() {
    let small = SchemaLimits { bytes: 10, ..SchemaLimits::default() };
    let bytes = strukt(vec![Member::new("a", Type::Bool), Member::new("b", Type::Bool)]).to_bytes();
    let error = Schema::from_bytes(&bytes, &small).unwrap_err();
    assert_eq!(error, SchemaDecodeError::Limit { offset: 0, what: "bytes", got: bytes.len() as u64, max: 10 });
    let few = SchemaLimits { members: 1, ..SchemaLimits::default() };
    assert!(matches!(
        Schema::from_bytes(&bytes, &few),
        Err(SchemaDecodeError::Limit { what: "members", got: 2, max: 1, .. })
    ));
    let none = SchemaLimits { defs: 0, ..SchemaLimits::default() };
    assert!(matches!(Schema::from_bytes(&bytes, &none), Err(SchemaDecodeError::Limit { what: "definitions", .. })));
}

#[test]
fn deep_types_are_refused_before_the_stack_ends() {
    let mut bytes = b"PWS\x01\x00\x00".to_vec();
    for _ in 0..200_000 {
        bytes.extend([tag::SEQUENCE, 0]);
    }
    assert!(matches!(read(&bytes), Err(SchemaDecodeError::Limit { what: "types inside each other", .. })));
}

/// Largest number of bytes that [`super::decode::decode`] may allocate per byte of input.
const GROWTH: usize = 64;

#[test]
fn no_document_unfolds_into_much_more_memory() {
    let unnamed = || Annotation { name: String::new(), args: vec![] };
    let args = vec![(String::new(), Literal::Int(0)); 3000];
    let annotated = |annotations| with_annotations(Member::new("a", Type::Bool), annotations);
    let deep = (0..20).fold(Type::Bool, |ty, _| Type::sequence(ty));
    let labels: Vec<i64> = (0..3000).collect();
    let documents = [
        strukt(vec![annotated((0..3000).map(|_| unnamed()).collect())]),
        strukt(vec![annotated(vec![Annotation { name: String::new(), args }])]),
        strukt((0..3000).map(|i| Member::new(format!("{i}"), deep.clone())).collect()),
        strukt((0..60_000).map(|i| Member::new(format!("{i}"), Type::Bool)).collect()),
        strukt((0..3000).map(|i| Member::new(format!("{i}"), Type::array(Type::Bool, [1; 32]))).collect()),
        union(Type::Int64, labels.clone(), vec![]),
        union(Type::Def(DefId(1)), labels, (0..3000).map(|i| EnumLiteral::new(format!("l{i}"), i)).collect()),
    ];
    for schema in &documents {
        let bytes = schema.to_bytes();
        let back = read(&bytes).unwrap();
        let held = heap_bytes(&back);
        assert!(held <= GROWTH * bytes.len(), "{held} bytes from {}", bytes.len());
    }
    for seed in 0..100 {
        let bytes = random_schema(seed, 20).to_bytes_with_docs();
        let held = heap_bytes(&read(&bytes).unwrap());
        assert!(held <= GROWTH * bytes.len(), "seed {seed}: {held} bytes from {}", bytes.len());
    }
}

fn with_annotations(mut member: Member, annotations: Vec<Annotation>) -> Member {
    member.annotations = annotations;
    member
}

fn union(discriminator: Type, labels: Vec<i64>, literals: Vec<EnumLiteral>) -> Schema {
    let mut builder = SchemaBuilder::new();
    let id = builder.add(Def::union("U", discriminator, vec![Case::new(labels, "a", Type::Bool)]));
    if !literals.is_empty() {
        let mut def = Def::enumeration("E", ["X"]);
        def.kind = DefKind::Enum { bit_bound: 32, literals };
        builder.add(def);
    }
    builder.finish(Type::Def(id)).unwrap()
}

/// Bytes that a schema has on the heap, including unused capacity of vectors.
fn heap_bytes(schema: &Schema) -> usize {
    size_of_val(schema.defs()) + schema.defs().iter().map(def_bytes).sum::<usize>() + type_bytes(schema.root())
}

fn def_bytes(def: &Def) -> usize {
    let parts = match &def.kind {
        DefKind::Struct { members, .. } => vec_bytes(members, member_bytes),
        DefKind::Union { discriminator, cases, .. } => {
            let case_bytes = |case: &Case| vec_bytes(&case.labels, |_| 0) + member_bytes(&case.member);
            type_bytes(discriminator) + vec_bytes(cases, case_bytes)
        }
        DefKind::Enum { literals, .. } => vec_bytes(literals, |l| l.name.capacity() + annotation_bytes(&l.annotations)),
        DefKind::Bitmask { flags, .. } => vec_bytes(flags, |f| f.name.capacity() + annotation_bytes(&f.annotations)),
        DefKind::Bitset { fields, .. } => vec_bytes(fields, |f| annotation_bytes(&f.annotations) + type_bytes(&f.ty)),
        DefKind::Alias { target } => type_bytes(target),
    };
    def.name.capacity() + def.doc.capacity() + annotation_bytes(&def.annotations) + parts
}

fn member_bytes(member: &Member) -> usize {
    let text = member.name.capacity() + member.doc.capacity();
    let default = member.default.as_ref().map_or(0, literal_bytes);
    text + default + type_bytes(&member.ty) + annotation_bytes(&member.annotations)
}

fn type_bytes(ty: &Type) -> usize {
    match ty {
        Type::Sequence { element, .. } => size_of::<Type>() + type_bytes(element),
        Type::Array { element, dims } => size_of::<Type>() + type_bytes(element) + vec_bytes(dims, |_| 0),
        Type::Map { key, value, .. } => 2 * size_of::<Type>() + type_bytes(key) + type_bytes(value),
        _ => 0,
    }
}

fn annotation_bytes(annotations: &Vec<Annotation>) -> usize {
    let arg_bytes = |(name, value): &(String, Literal)| name.capacity() + literal_bytes(value);
    vec_bytes(annotations, |a| a.name.capacity() + vec_bytes(&a.args, arg_bytes))
}

fn literal_bytes(literal: &Literal) -> usize {
    match literal {
        Literal::String(text) | Literal::Enum(text) => text.capacity(),
        _ => 0,
    }
}

fn vec_bytes<T>(items: &Vec<T>, of: impl Fn(&T) -> usize) -> usize {
    items.capacity() * size_of::<T>() + items.iter().map(of).sum::<usize>()
}
