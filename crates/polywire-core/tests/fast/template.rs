//! Template documents: parsing, writing, and every error that can be detected without a message.

use polywire_core::codec::fast::template::{
    Dictionary, Field, FieldType, Initial, Instruction, Name, OperatorKind, StaticCode, TemplateError, TemplateLimits,
    TemplateSet,
};

fn refused(xml: &str) -> TemplateError {
    TemplateSet::parse(xml).expect_err(xml)
}

fn template(inside: &str) -> String {
    format!("<templates>\n<template name='T' id='1'>\n{inside}\n</template>\n</templates>")
}

#[test]
fn all_of_a_document_is_read() {
    let set = TemplateSet::parse(
        r#"<?xml version="1.0"?>
        <templates xmlns="http://www.fixprotocol.org/ns/fast/td/1.1" xmlns:x="urn:other"
                   xmlns:scp="http://www.fixprotocol.org/ns/fast/scp/1.1" ns="urn:n" templateNs="urn:t" dictionary="template">
          <x:note>for others</x:note>
          <template name="Head" dictionary="type"><typeRef name="Header"/><uInt32 name="seq"><increment key="k" ns="urn:k" value="5"/></uInt32></template>
          <template name="Body" id="3" scp:reset="yes" x:a="b">
            <templateRef name="Head"/>
            <string name="s" charset="unicode" presence="optional"><copy dictionary="mine" value="a&amp;b"/></string>
            <byteVector name="b"><length name="n"/><tail value="0a FF"/></byteVector>
            <decimal name="d" presence="optional"><exponent><default/></exponent><mantissa><delta value="-3"/></mantissa></decimal>
            <sequence name="q" presence="optional"><length name="q_n"><copy/></length>
              <group name="g"><int8 name="i"><constant value="-128"/></int8></group>
              <templateRef/>
            </sequence>
          </template>
        </templates>"#,
    )
    .unwrap();
    let (head, body) = (&set.templates[0], &set.templates[1]);
    assert_eq!(head.name, Name { namespace: "urn:t".into(), local: "Head".into() });
    assert_eq!((head.id, head.reset, body.id, body.reset), (None, false, Some(3), true));
    assert_eq!(head.type_ref.as_ref().map(|name| name.local.as_str()), Some("Header"));
    let Instruction::Field(seq) = &head.instructions[0] else { panic!("a field") };
    assert_eq!(seq.operator.dictionary, Dictionary::Type);
    assert_eq!(seq.operator.key, Some(Name { namespace: "urn:k".into(), local: "k".into() }));
    assert_eq!(seq.operator.initial, Some(Initial::Int(5)));
    assert_eq!(body.instructions[0], Instruction::Static(head.name.clone()));
    let Instruction::Field(s) = &body.instructions[1] else { panic!("a field") };
    assert_eq!((s.ty, s.optional), (FieldType::Unicode, true));
    assert_eq!(s.operator.dictionary, Dictionary::Named("mine".into()));
    assert_eq!(s.operator.initial, Some(Initial::Bytes((*b"a&b").into())));
    let Instruction::Field(b) = &body.instructions[2] else { panic!("a field") };
    assert_eq!(b.operator.initial, Some(Initial::Bytes([10, 255].into())));
    let Instruction::Field(d) = &body.instructions[3] else { panic!("a field") };
    assert_eq!(d.operator.kind, OperatorKind::Default);
    assert_eq!(d.mantissa.as_ref().and_then(|m| m.initial.clone()), Some(Initial::Int(-3)));
    let Instruction::Sequence(q) = &body.instructions[4] else { panic!("a sequence") };
    assert_eq!((q.length.optional, q.length.operator.kind), (true, OperatorKind::Copy));
    assert!(matches!(&q.instructions[..], [Instruction::Group(_), Instruction::Dynamic]));
    assert_eq!(TemplateSet::parse(&set.to_xml()).unwrap(), set, "{}", set.to_xml());
}

/// Documents from before the specification 1.1, whose elements are the same.
#[test]
fn the_older_namespace_is_read_as_far_as_it_means_the_same() {
    let inside = r#"<template name="Tick" id="1" dictionary="template"><typeRef name="Order"/>
          <string name="SecurityID" id="48"><copy/></string>
          <decimal name="px"><exponent><default value="-2"/></exponent><mantissa><delta/></mantissa></decimal>
          <sequence name="entries"><length name="n"/><int64 name="size" presence="optional"><delta/></int64></sequence>
          <templateRef/>
        </template>"#;
    let older = r#"xmlns="http://www.fixprotocol.org/ns/template-definition" ns="urn:n" templateNs="urn:t""#;
    let newer = r#"xmlns="http://www.fixprotocol.org/ns/fast/td/1.1" ns="urn:n" templateNs="urn:t""#;
    let document = |namespace: &str| format!("<templates {namespace}>\n{inside}\n</templates>");
    let set = TemplateSet::parse(&document(older)).unwrap();
    assert_eq!(set, TemplateSet::parse(&document(newer)).unwrap());
    assert!(set.to_xml().contains("http://www.fixprotocol.org/ns/fast/td/1.1"), "{}", set.to_xml());
    assert_eq!(TemplateSet::parse(&document(&format!("{older} version=\"2.26\""))).unwrap(), set);
    assert_eq!(refused(&document(&format!("{newer} version=\"2.26\""))).code, StaticCode::S1);

    let single =
        TemplateSet::parse(r#"<template xmlns="http://www.fixprotocol.org/ns/template-definition" name="T"/>"#);
    assert_eq!(single.unwrap().templates.len(), 1);
    // What only older documents have is named.
    let vector = document(older).replace("<templateRef/>", "\n<uInt32Vector name=\"v\"/>");
    let error = refused(&vector);
    assert_eq!((error.code, error.line), (StaticCode::S1, 7), "{error}");
    assert!(error.to_string().contains("there is no instruction 'uInt32Vector'"), "{error}");
    // Another namespace is none of templates.
    assert!(
        refused(&document(&older.replace("template-definition", "templates")))
            .to_string()
            .contains("not a template document")
    );
}

#[test]
fn every_static_error_has_its_name_and_place() {
    let cases = [
        ("<uInt32 name='a'", StaticCode::S1, 4),
        ("<uint32 name='a'/>", StaticCode::S1, 3),
        ("<uInt32/>", StaticCode::S1, 3),
        ("<uInt32 name='a' presence='perhaps'/>", StaticCode::S1, 3),
        ("<uInt32 name='a' size='4'/>", StaticCode::S1, 3),
        ("<uInt32 name='a'>text</uInt32>", StaticCode::S1, 3),
        ("<uInt32 name='a'>\n<copy/>\n<delta/></uInt32>", StaticCode::S1, 5),
        ("<decimal name='a'>\n<copy/>\n<mantissa/></decimal>", StaticCode::S1, 4),
        ("<string name='a' charset='ebcdic'/>", StaticCode::S1, 3),
        ("<sequence name='a'><length/><length/></sequence>", StaticCode::S1, 3),
        ("<decimal name='a'><increment/></decimal>", StaticCode::S2, 3),
        ("<uInt32 name='a'><tail/></uInt32>", StaticCode::S2, 3),
        ("<string name='a'>\n<increment/></string>", StaticCode::S2, 4),
        ("<uInt8 name='a'><copy value='256'/></uInt8>", StaticCode::S3, 3),
        ("<uInt32 name='a'><copy value='-1'/></uInt32>", StaticCode::S3, 3),
        ("<decimal name='a'><copy value='1.2.3'/></decimal>", StaticCode::S3, 3),
        ("<decimal name='a'><exponent><copy value='64'/></exponent></decimal>", StaticCode::S3, 3),
        ("<byteVector name='a'><copy value='abc'/></byteVector>", StaticCode::S3, 3),
        ("<string name='a'><copy value='ü'/></string>", StaticCode::S3, 3),
        ("<uInt32 name='a'><constant/></uInt32>", StaticCode::S4, 3),
        ("<uInt32 name='a'><default/></uInt32>", StaticCode::S5, 3),
        ("<decimal name='a'><exponent><default/></exponent></decimal>", StaticCode::S5, 3),
        ("<decimal name='a' presence='optional'><mantissa><default/></mantissa></decimal>", StaticCode::S5, 3),
        ("<group name='a'>\n<templateRef name='U'/></group>", StaticCode::D8, 4),
    ];
    for (inside, code, line) in cases {
        let error = refused(&template(inside));
        assert_eq!((error.code, error.line), (code, line), "{inside}: {error}");
    }
    assert_eq!(refused("<templates><template name='T'/><template name='T'/></templates>").code, StaticCode::S1);
    assert_eq!(refused("<a xmlns='urn:b'/>").code, StaticCode::S1);
    // An optional exponent may have a default without a value: the decimal is absent then.
    TemplateSet::parse(&template("<decimal name='a' presence='optional'><exponent><default/></exponent></decimal>"))
        .unwrap();
}

#[test]
fn an_untrusted_document_is_held_to_limits() {
    let entity = "<!DOCTYPE a [<!ENTITY b 'c'>]><templates/>";
    assert_eq!(refused(entity).code, StaticCode::S1);
    let deep = template(&("<group name='g'>".repeat(100) + &"</group>".repeat(100)));
    assert_eq!(refused(&deep).code, StaticCode::Limit);
    let hidden = template(&"<group name='g'><!-- </ </ -->".repeat(200_000));
    assert_eq!(refused(&hidden).code, StaticCode::Limit);
    let many = template(&"<uInt32 name='a'/>".repeat(11));
    let limits = TemplateLimits { instructions: 10, ..TemplateLimits::default() };
    assert_eq!(TemplateSet::parse_within(&many, &limits).unwrap_err().code, StaticCode::Limit);
    let limits = TemplateLimits { bytes: 100, ..TemplateLimits::default() };
    assert_eq!(TemplateSet::parse_within(&many, &limits).unwrap_err().code, StaticCode::Limit);
    let long = template("<string name='a'><copy value='0123456789'/></string>");
    let limits = TemplateLimits { initial_bytes: 9, ..TemplateLimits::default() };
    assert_eq!(TemplateSet::parse_within(&long, &limits).unwrap_err().code, StaticCode::Limit);
    assert_eq!(Field::new("a", FieldType::U32).ty.element(), "uInt32");
}
