//! Types with the same type hash are the same type: the verdict is *always*, each format decodes
//! one as the other, and the bytes are equal. The test derives schemas from random ones that differ
//! in everything that the hash leaves out.

use polywire_core::{
    codec::{BuildError, Decoder, LowerError},
    layout::{Record, Shape, Value},
    program::Backend,
    schema::{
        Annotation, Case, Def, DefId, DefKind, Literal, Member, Schema, SchemaBuilder, Type,
        arbitrary::Random,
        evolve::{Verdict, assess},
    },
};
use polywire_testing::{Coder, Wire, backends, plain_wires, random_record, random_schema, seeds, wires};
use std::sync::Arc;

/// The finding that this file began with: a grid, and rows of a named type.
#[test]
fn rows_behind_a_typedef_are_one_array() {
    let plain = polywire_testing::struct_of(vec![Member::new("m", Type::array(Type::Float32, [2, 3]))]);
    let mut types = SchemaBuilder::new();
    let row = types.add(Def::alias("Row", Type::array(Type::Float32, [3])));
    let root = types.add(Def::structure("Root", vec![Member::new("m", Type::array(Type::Def(row), [2]))]));
    let named = types.finish(Type::Def(root)).unwrap();
    assert_eq!(plain.type_hash(), named.type_hash());
    let rows = |from: f64| Value::List((0..3).map(|i| Value::Float(from + f64::from(i))).collect());
    for (writer, reader) in [(&plain, &named), (&named, &plain), (&named, &named)] {
        let (source, target) = (Shape::of(writer).unwrap(), Shape::of(reader).unwrap());
        let mut record = Record::new(&source);
        record.set("m", Value::List(vec![rows(1.0), rows(4.0)])).unwrap();
        assert_eq!(record.get("m[1][2]").unwrap().as_f64(), Some(6.0));
        for wire in wires() {
            for backend in backends() {
                let read = transferred(&wire, &record, &target, backend).unwrap().unwrap();
                assert_eq!(read.view(), record.view(), "{wire:?}, {backend:?}");
                assert_eq!(read.get("m[1][2]").unwrap().as_f64(), Some(6.0), "{wire:?}, {backend:?}");
            }
        }
    }
}

#[test]
fn random_types_of_one_hash_are_one_type() {
    let (mut structures, mut values) = (0, 0);
    for seed in seeds(60) {
        let old = random_schema(seed, 3 + seed as usize % 9);
        let Some(new) = written_otherwise(seed, &old) else { continue };
        assert_eq!(old.type_hash(), new.type_hash(), "seed {seed}");
        structures += usize::from(old.defs() != new.defs());
        for (writer, reader) in [(&old, &new), (&new, &old)] {
            assert_eq!(assess(writer, reader), Verdict::Always, "seed {seed}");
            let (Ok(source), Ok(target)) = (Shape::of(writer), Shape::of(reader)) else { continue };
            let record = random_record(&mut Random::new(seed), &source);
            for wire in wires() {
                let backend = if seed.is_multiple_of(10) { *backends().last().unwrap() } else { Backend::Interpreter };
                let Some(read) = transferred(&wire, &record, &target, backend) else { continue };
                let read = read.unwrap_or_else(|error| panic!("seed {seed}, {wire:?}: {error}\nof {record:?}"));
                assert_eq!(read.view(), record.view(), "seed {seed}, {wire:?}");
                values += 1;
            }
            same_bytes(seed, &record, &target);
        }
    }
    assert!(structures > 30 && values > 1500, "{structures} structures, {values} values");
}

/// The record, written and read as a value of another shape; `None` if the format cannot carry the
/// type.
fn transferred(wire: &Wire, record: &Record, target: &Arc<Shape>, backend: Backend) -> Option<Result<Record, String>> {
    let writer = record.shape();
    let built = Coder::new(wire, writer, Backend::Interpreter).and_then(|coder| {
        Ok((coder, Decoder::for_shape_with_backend(wire.codec, &wire.options, writer.schema(), target, backend)?))
    });
    let (coder, decoder) = match built {
        Ok(built) => built,
        Err(BuildError::Lower(LowerError::Unsupported { .. })) => return None,
        Err(error) => return Some(Err(error.to_string())),
    };
    // What the format cannot say, such as a NUL in a key of BSON, is another test's affair.
    let bytes = coder.encode(record).ok()?;
    let mut read = Record::new(target);
    Some(decoder.decode(&bytes, &mut read).map(|_| read).map_err(|error| error.to_string()))
}

/// Both types write the same. Where labels are in another order, a union may say its discriminator
/// or not.
fn same_bytes(seed: u64, record: &Record, target: &Arc<Shape>) {
    let reordered = labels_of(record.shape().schema()) != labels_of(target.schema());
    for wire in plain_wires().iter().filter(|_| !reordered) {
        let Some(Ok(read)) = transferred(wire, record, target, Backend::Interpreter) else { continue };
        let bytes = |record: &Record| Coder::new(wire, record.shape(), Backend::Interpreter).unwrap().encode(record);
        assert_eq!(bytes(&read), bytes(record), "seed {seed}, {wire:?}");
    }
}

fn labels_of(schema: &Schema) -> Vec<Vec<i64>> {
    let mut all: Vec<(String, Vec<i64>)> = Vec::new();
    for def in schema.defs() {
        if let DefKind::Union { cases, .. } = &def.kind {
            all.extend(cases.iter().map(|case| (format!("{}.{}", def.name, case.member.name), case.labels.clone())));
        }
    }
    all.sort();
    all.into_iter().map(|(_, labels)| labels).collect()
}

/// The same type, otherwise written: typedefs come and go, arrays of arrays are split and joined,
/// definitions and labels are in another order, and comments, annotations and pointers are others.
/// `None` if the result is not a valid schema, such as a type that contains itself.
fn written_otherwise(seed: u64, schema: &Schema) -> Option<Schema> {
    let mut writer = Writer { random: Random::new(seed ^ 0xA5A5), schema, builder: SchemaBuilder::new(), aliases: 0 };
    let count = schema.defs().len() as u32;
    // All ids are known before any definition is written. The last comes first.
    for _ in 0..count {
        writer.builder.add(Def::structure("", vec![]));
    }
    for id in 0..count {
        let def = writer.def(schema.def(DefId(id)).clone());
        writer.builder.replace(moved(schema, DefId(id)), def);
    }
    let root = writer.ty(schema.root());
    let root = match root {
        Type::Def(_) => root,
        _ => return None,
    };
    writer.builder.finish(root).ok()
}

fn moved(schema: &Schema, id: DefId) -> DefId {
    DefId(schema.defs().len() as u32 - 1 - id.0)
}

struct Writer<'a> {
    random: Random,
    schema: &'a Schema,
    builder: SchemaBuilder,
    aliases: u32,
}

impl Writer<'_> {
    fn def(&mut self, mut def: Def) -> Def {
        def.nested = self.random.one_in(2);
        def.doc = if self.random.one_in(2) { "Another comment.".into() } else { String::new() };
        let value = ("value".to_string(), Literal::Int(self.random.below(100) as i128));
        def.annotations = vec![Annotation { name: "note".into(), args: vec![value] }];
        match &mut def.kind {
            DefKind::Struct { base, members } => {
                *base = base.map(|base| moved(self.schema, base));
                members.iter_mut().for_each(|member| self.member(member));
            }
            DefKind::Union { discriminator, cases, .. } => {
                *discriminator = self.ty(discriminator);
                for Case { labels, member, .. } in cases {
                    if self.random.one_in(4) {
                        labels.reverse();
                    }
                    self.member(member);
                }
            }
            DefKind::Bitset { base, .. } => *base = base.map(|base| moved(self.schema, base)),
            DefKind::Alias { target } => *target = self.ty(target),
            _ => {}
        }
        def
    }

    fn member(&mut self, member: &mut Member) {
        member.ty = self.ty(&member.ty);
        member.doc = String::new();
        member.annotations.clear();
        if self.random.one_in(4) {
            member.external = !member.external;
        }
    }

    fn ty(&mut self, ty: &Type) -> Type {
        let inlined = if self.random.one_in(2) { self.schema.resolve(ty) } else { ty };
        let written = match inlined {
            Type::Def(id) => Type::Def(moved(self.schema, *id)),
            Type::Sequence { element, bound } => Type::Sequence { element: self.ty(element).into(), bound: *bound },
            Type::Map { key, value, bound } => {
                let (key, value) = (self.ty(key).into(), self.ty(value).into());
                Type::Map { key, value, bound: *bound }
            }
            Type::Array { element, dims } => self.array(element, dims),
            primitive => primitive.clone(),
        };
        if self.random.one_in(4) { self.named(written) } else { written }
    }

    /// One array of several dimensions may be arrays of arrays, and the other way round.
    fn array(&mut self, element: &Type, dims: &[u32]) -> Type {
        match (dims, self.schema.resolve(element)) {
            ([outer, inner @ ..], _) if !inner.is_empty() && self.random.one_in(2) => {
                let row = self.array(element, inner);
                let row = if self.random.one_in(2) { self.named(row) } else { row };
                Type::array(row, [*outer])
            }
            (_, Type::Array { element, dims: inner }) if self.random.one_in(2) => {
                Type::array(self.ty(element), [dims, inner].concat())
            }
            _ => Type::array(self.ty(element), dims),
        }
    }

    fn named(&mut self, ty: Type) -> Type {
        self.aliases += 1;
        Type::Def(self.builder.add(Def::alias(format!("Alias{}", self.aliases), ty)))
    }
}
