//! Untrusted templates. A peer needs only the name of a topic to send one, so parsing and binding
//! it must take bounded time, memory and stack.

use polywire_core::{
    codec::{
        Codec, Decoder, Encoder, LowerError, Options,
        fast::{
            FAST, Fast,
            template::{
                Field, FieldType, Group, Instruction, Name, Sequence, StaticCode, Template, TemplateError, TemplateSet,
            },
        },
    },
    layout::{Record, Shape},
    schema::{Def, Member, Schema, SchemaBuilder, Type},
};
use std::{
    thread,
    time::{Duration, Instant},
};

/// Runs it on as little stack as threads have by default.
fn small<R: Send + 'static>(run: impl FnOnce() -> R + Send + 'static) -> R {
    thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap().join().unwrap()
}

#[track_caller]
fn quickly<R>(run: impl FnOnce() -> R) -> R {
    let start = Instant::now();
    let result = run();
    assert!(start.elapsed() < Duration::from_secs(20), "it took {:?}", start.elapsed());
    result
}

fn refused(xml: String) -> TemplateError {
    quickly(|| small(move || TemplateSet::parse(&xml).unwrap_err()))
}

/// A structure of a number and a sequence of itself.
fn tree() -> Schema {
    let mut types = SchemaBuilder::new();
    let node = types.add(Def::structure("Node", vec![]));
    let members = vec![Member::new("n", Type::Uint32), Member::new("next", Type::sequence(Type::Def(node)))];
    types.replace(node, Def::structure("Node", members));
    let root = types.add(Def::structure("Root", vec![Member::new("top", Type::Def(node))]));
    types.finish(Type::Def(root)).unwrap()
}

#[test]
fn elements_with_many_attributes() {
    let attributes: String = (0..80_000).map(|i| format!(" a{i}=''")).collect();
    let error = refused(format!("<templates>\n <template name='T'{attributes}/></templates>"));
    assert_eq!((error.code, error.line, error.column), (StaticCode::Limit, 2, 2), "{error}");
    let attributes: String = (0..80_000).map(|i| format!(" xmlns:a{i}='u{i}'")).collect();
    assert_eq!(refused(format!("<templates{attributes}/>")).code, StaticCode::Limit);
}

#[test]
fn documents_with_many_namespaces() {
    let one = |i: usize| format!("<x:a xmlns:x='u{i}' xmlns:y{i}='v{i}'/>");
    let error = refused(format!("<templates>{}</templates>", (0..20_000).map(one).collect::<String>()));
    assert_eq!(error.code, StaticCode::Limit);
    assert!(error.what.contains("namespaces"), "{error}");
}

#[test]
fn elements_nested_behind_an_apparent_end() {
    for open in ["<group name='/>'>", "<group name='g' x=\"</group>\">", "<group><!-- /> --></x><x>"] {
        let xml = format!("<template name='T'>{}", open.repeat(100_000));
        let error = refused(xml);
        assert_eq!(error.code, StaticCode::Limit, "{error}");
    }
}

#[test]
fn documents_of_many_nodes_and_long_names() {
    let error = refused(format!("<template name='T'>{}</template>", "<a/>".repeat(1_900_000)));
    assert_eq!(error.code, StaticCode::Limit, "{error}");
    let long = "n".repeat(256);
    for what in [format!("name='{long}'"), format!("name='T' ns='{long}'"), format!("name='T' dictionary='{long}'")] {
        let error = refused(format!("<template {what}/>"));
        assert_eq!((error.code, error.line), (StaticCode::Limit, 1), "{error}");
        assert!(error.what.contains("256 bytes, allowed are 255"), "{error}");
    }
    assert!(TemplateSet::parse(&format!("<template name='{}'/>", &long[1..])).is_ok());
}

#[test]
fn references_that_lead_back_are_refused_with_their_place() {
    for (xml, line) in [
        ("<templates>\n<template name='A'><templateRef name='A'/></template></templates>", 2),
        (
            "<templates><template name='A'>\n<templateRef name='B'/></template>\n<template name='B'><templateRef name='A'/></template></templates>",
            1,
        ),
        // With something beside it, it is no reference to the type that contains itself.
        (
            "<templates>\n\n<template name='A'><uInt32 name='n'/><sequence name='next'><templateRef name='A'/><uInt32 name='c'/></sequence></template></templates>",
            3,
        ),
        (
            "<templates><template name='T' id='1'><templateRef name='A'/></template>\n<template name='A'><group name='g'><templateRef name='A'/><templateRef name='A'/></group></template></templates>",
            2,
        ),
    ] {
        let error = refused(xml.into());
        assert_eq!((error.code, error.line), (StaticCode::Endless, line), "{error}");
        assert!(error.what.contains("'A'"), "{error}");
    }
    // Twice is not without end.
    let twice = "<templates><template name='A'><templateRef name='B'/><group name='g'><templateRef name='B'/></group></template><template name='B'/></templates>";
    assert!(TemplateSet::parse(twice).is_ok());
}

/// What our own templates say of types that contain themselves.
#[test]
fn a_type_may_still_contain_itself() {
    let schema = tree();
    let xml = TemplateSet::for_schema(&schema).unwrap().to_xml();
    let fast = FAST.configured(xml.as_bytes()).unwrap();
    let shape = Shape::of(&schema).unwrap();
    let encoder = Encoder::for_shape(&*fast, &Options::default(), &shape).unwrap();
    let decoder = Decoder::for_shape(&*fast, &Options::default(), &schema, &shape).unwrap();
    let (mut record, mut read, mut bytes) = (Record::new(&shape), Record::new(&shape), Vec::new());
    record.resize("top.next", 2).unwrap();
    record.resize("top.next[1].next", 1).unwrap();
    record.set("top.next[1].next[0].n", 7).unwrap();
    encoder.encode(&record, &mut bytes).unwrap();
    decoder.decode(&bytes, &mut read).unwrap();
    assert_eq!(read, record);
    // But a feed of such templates has no type of its own.
    let error = small(move || Fast::feed(TemplateSet::parse(&xml).unwrap()).unwrap_err());
    assert!(error.to_string().contains("refers to itself"), "{error}");
}

/// What no document can say, a set that was made in code can.
#[test]
fn template_sets_that_were_never_parsed_are_bounded_as_well() {
    let refer = || Instruction::Static(Name::local("T"));
    let count = || Instruction::Field(Field::new("c", FieldType::U32));
    let next = Sequence {
        name: Name::local("next"),
        optional: false,
        type_ref: None,
        length: Field::new("next length", FieldType::U32),
        instructions: vec![refer(), count()],
    };
    let mut constant = count();
    if let Instruction::Field(field) = &mut constant {
        *field = Field::new("c", FieldType::U32)
            .with(polywire_core::codec::fast::template::OperatorKind::Constant)
            .starting(polywire_core::codec::fast::template::Initial::Int(1));
    }
    let next = Sequence { instructions: vec![refer(), constant], ..next };
    let number = Instruction::Field(Field::new("n", FieldType::U32));
    let inside = Template {
        name: Name::local("T"),
        instructions: vec![number.clone(), Instruction::Sequence(next.clone())],
        ..Template::default()
    };
    let top =
        Group { name: Name::local("top"), instructions: vec![number, Instruction::Sequence(next)], ..Group::default() };
    let root = Template {
        name: Name::local("Root"),
        id: Some(1),
        instructions: vec![Instruction::Group(top)],
        ..Template::default()
    };
    let set = TemplateSet { templates: vec![root, inside] };
    let bound = set.clone();
    let error = quickly(|| {
        small(move || {
            let schema = tree();
            Decoder::for_shape(&Fast::new(bound), &Options::default(), &schema, &Shape::of(&schema).unwrap())
                .err()
                .unwrap()
        })
    });
    assert!(error.to_string().contains("more than 128 nested values"), "{error}");
    let error = quickly(|| small(move || Fast::feed(set).unwrap_err()));
    assert!(matches!(&error, LowerError::Unsupported { what, .. } if what.contains("at most 64")), "{error}");
}

#[test]
fn references_that_double_end_in_time() {
    for leaf in ["", "<templateRef/>", "<uInt32 name='n'/>"] {
        let level = |i: usize| {
            let next = format!("<templateRef name='T{}'/>", i + 1);
            format!("<template name='T{i}'{}>{next}{next}</template>", if i == 0 { " id='1'" } else { "" })
        };
        let levels: String = (0..31).map(level).collect();
        let xml = format!("<templates>{levels}<template name='T31'>{leaf}</template></templates>");
        let error = quickly(|| small(move || Fast::feed(TemplateSet::parse(&xml).unwrap()).unwrap_err()));
        assert!(error.to_string().contains("too many instructions"), "{error}");
    }
}

#[test]
fn many_references_to_many_templates_end_in_time() {
    let templates: String = (0..4000).map(|i| format!("<template name='T{i}'/>")).collect();
    let refers = "<templateRef name='T3999'/>".repeat(60_000);
    let xml =
        format!("<templates>{templates}<template name='R' id='1'><uInt32 name='n'/>{refers}</template></templates>");
    let (_, schema) = quickly(|| Fast::feed(TemplateSet::parse(&xml).unwrap()).unwrap());
    assert_eq!(schema.name(), "R");
}

#[test]
fn many_fields_of_one_name_are_told_apart_in_time() {
    let fields = "<uInt32 name='n'/>".repeat(60_000);
    let xml = format!("<template name='R' id='1'>{fields}</template>");
    let (_, schema) = quickly(|| Fast::feed(TemplateSet::parse(&xml).unwrap()).unwrap());
    let Type::Def(root) = schema.root() else { panic!("it is a structure") };
    let names: Vec<&str> = schema.members(*root).iter().map(|member| &*member.name).collect();
    assert_eq!((names[0], names[1], names[59_999]), ("n", "n_2", "n_60000"));
}
