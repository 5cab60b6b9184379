//! Every error of the specification that a message can cause, by its name. A refused message leaves
//! the state unchanged.

use super::support::{Feed, backends, digits, template, unhex};
use polywire_core::{
    codec::{BuildError, Decoder, Encoder, LowerError, Options, fast::Fast, fast::template::TemplateSet},
    layout::{Record, Shape},
    program::{Backend, FaultKind},
    schema::{Def, Member, Schema, SchemaBuilder, Type},
};

/// Messages that are refused, each by a fresh reader.
fn refused(inside: &str, cases: &[(&str, FaultKind)]) {
    for backend in backends() {
        for (message, kind) in cases {
            let mut feed = Feed::new(&template(inside), backend);
            assert_eq!(feed.refused(message), Some(*kind), "{inside}, {message}, {backend:?}");
        }
    }
}

/// Values that cannot be written.
fn unwritable(inside: &str, value: &str, kind: FaultKind) {
    for backend in backends() {
        let mut feed = Feed::new(&template(inside), backend);
        let error = feed.encode(value).expect_err(inside);
        assert_eq!(error.kind, kind, "{inside}, {value}");
    }
}

/// Both ends may know the template by other means than a message's id.
#[test]
fn the_first_template_may_be_known() {
    let one = template("<uInt32 name='v'/>");
    let two =
        "<templates><template name='A' id='7'><uInt32 name='v'/></template><template name='B' id='8'/></templates>";
    for backend in backends() {
        for (xml, option, value) in [(&*one, "id=1", "{\"v\":1}"), (two, "id=7", "{\"A\":{\"v\":1}}")] {
            let mut feed = Feed::new(xml, backend);
            assert_eq!(feed.refused("80 81"), Some(FaultKind::NoPrevious), "{xml}, {backend:?}");
            let mut feed = Feed::try_new(xml, option, backend).expect("it lowers");
            assert_eq!(feed.decode(&unhex("80 81")).as_deref(), Ok(value), "{xml}, {backend:?}");
            feed.reader.reset();
            assert_eq!(feed.decode(&unhex("80 81")).as_deref(), Ok(value), "{xml}, {backend:?}");
            // An id is taken nevertheless, and holds from then on.
            if option == "id=7" {
                assert_eq!(feed.decode(&unhex("C0 88")).as_deref(), Ok("{\"B\":{}}"));
                assert_eq!(feed.decode(&unhex("80")).as_deref(), Ok("{\"B\":{}}"));
                assert_eq!(feed.decode(&unhex("C0 87 81")).as_deref(), Ok(value));
            }
            // Written, it is left out.
            let (codec, _) = Fast::feed(TemplateSet::parse(xml).expect("templates")).expect("a type");
            let options: Options = option.parse().expect("an option");
            let encoder = Encoder::for_shape_with_backend(&codec, &options, &feed.shape, backend).expect("it lowers");
            let mut bytes = Vec::new();
            encoder.encode(&feed.record(value), &mut bytes).expect("it encodes");
            assert_eq!(digits(&bytes), "80 81", "{xml}, {backend:?}");
        }
    }
    for (option, reason) in
        [("id=2", "no template has the id 2"), ("id=4294967296", "a number of 32 bits, not '4294967296'")]
    {
        let error = Feed::try_new(&one, option, Backend::Interpreter).err().expect(option);
        assert!(error.to_string().contains(reason), "{error}");
    }
}

#[test]
fn dynamic_errors() {
    refused(
        "<uInt32 name='v'/>",
        &[
            ("C0 81 10 00 00 00 80", FaultKind::IntegerRange),
            ("C0 81", FaultKind::Truncated),
            ("C0 81 01", FaultKind::Truncated),
            ("C0 82 81", FaultKind::UnknownTemplate),
            ("80 81", FaultKind::NoPrevious),
            ("40", FaultKind::Truncated),
            ("", FaultKind::Truncated),
        ],
    );
    refused("<int8 name='v'/>", &[("C0 81 01 80", FaultKind::IntegerRange), ("C0 81 7E FF", FaultKind::IntegerRange)]);
    refused(
        "<uInt64 name='v'/>",
        &[
            ("C0 81 02 00 00 00 00 00 00 00 00 80", FaultKind::IntegerRange),
            ("C0 81 01 01 01 01 01 01 01 01 01 01 01 01 81", FaultKind::IntegerRange),
            ("C0 81 01 01 01 01 01 01 01 01 01 01 01 01 01", FaultKind::IntegerRange),
        ],
    );
    refused("<uInt32 name='v'><copy/></uInt32>", &[("C0 81", FaultKind::NoPrevious)]);
    refused("<uInt32 name='v'><increment/></uInt32>", &[("C0 81", FaultKind::NoPrevious)]);
    refused("<string name='v'><tail/></string>", &[("C0 81", FaultKind::NoPrevious)]);
    // Null sets the shared value empty; whoever needs one then fails.
    let shared = |second: &str| {
        format!(
            "<uInt32 name='a' presence='optional'><copy key='k'/></uInt32><uInt32 name='b'><{second} key='k'/></uInt32>"
        )
    };
    refused(&shared("copy"), &[("E0 81 80", FaultKind::EmptyPrevious)]);
    refused(&shared("increment"), &[("E0 81 80", FaultKind::EmptyPrevious)]);
    refused(&shared("delta"), &[("E0 81 80 81", FaultKind::EmptyPrevious)]);
    // The same key, another type.
    let typed = "<uInt32 name='a'><copy key='k'/></uInt32><int32 name='b'><copy key='k'/></int32>";
    refused(typed, &[("E0 81 81", FaultKind::PreviousType)]);
    let typed = "<uInt32 name='a'><copy key='k'/></uInt32><string name='b'><delta key='k'/></string>";
    refused(typed, &[("E0 81 81 80 80", FaultKind::PreviousType)]);
    refused(
        "<string name='v'><delta value='ab'/></string>",
        &[
            ("C0 81 83 C1", FaultKind::Subtraction),
            ("C0 81 FC C1", FaultKind::Subtraction),
            ("C0 81 10 00 00 00 80 C1", FaultKind::Subtraction),
        ],
    );
    unwritable("<string name='v'><tail value='abc'/></string>", r#"{"v":"ab"}"#, FaultKind::NotEncodable);
    unwritable("<uInt32 name='v'><constant value='3'/></uInt32>", r#"{"v":2}"#, FaultKind::NotEncodable);
    let decimal = "<decimal name='v'><exponent><constant value='-1'/></exponent></decimal>";
    unwritable(decimal, r#"{"v":{"exponent":-2,"mantissa":1}}"#, FaultKind::NotEncodable);
    unwritable("<string name='v'/>", r#"{"v":"\u0000a"}"#, FaultKind::NotEncodable);
}

#[test]
fn reportable_errors() {
    use FaultKind::*;
    let cases: [(&str, &str, FaultKind, Option<&str>); 12] = [
        ("<decimal name='v'/>", "C0 81 00 C0 81", DecimalRange, Some(r#"{"v":1e+64}"#)),
        ("<string charset='unicode' name='v'/>", "C0 81 82 C3 C3", CombinedText, Some(r#"{"v":"��"}"#)),
        (
            "<string charset='unicode' name='v'><delta value='ü'/></string>",
            "C0 81 81 80",
            CombinedText,
            Some(r#"{"v":"�"}"#),
        ),
        ("<uInt8 name='v'><delta value='255'/></uInt8>", "C0 81 81", DeltaRange, Some(r#"{"v":0}"#)),
        (
            "<int64 name='v'><delta value='-9223372036854775808'/></int64>",
            "C0 81 FF",
            DeltaRange,
            Some(r#"{"v":9223372036854775807}"#),
        ),
        ("<uInt32 name='v'/>", "C0 81 00 81", OverlongInteger, Some(r#"{"v":1}"#)),
        ("<int32 name='v'/>", "C0 81 7F FF", OverlongInteger, Some(r#"{"v":-1}"#)),
        ("<uInt32 name='v'/>", "40 80 81 81", OverlongMap, Some(r#"{"v":1}"#)),
        ("<uInt32 name='v'/>", "E0 81 81", UnusedBits, Some(r#"{"v":1}"#)),
        ("<uInt32 name='v'/>", "40 00 00 00 00 00 00 00 00 81 81 81", UnusedBits, Some(r#"{"v":1}"#)),
        ("<string name='v'/>", "C0 81 00 C1", OverlongText, Some(r#"{"v":"A"}"#)),
        ("<decimal name='v'/>", "C0 81 10 00 00 00 80 81", DecimalRange, None),
    ];
    for backend in backends() {
        for (inside, message, kind, value) in &cases {
            refused(inside, &[(message, *kind)]);
            let mut ignoring = Feed::try_new(&template(inside), "deviations=ignore", backend).unwrap();
            assert_eq!(ignoring.decode(&unhex(message)).ok().as_deref(), *value, "{inside}, {message}");
            assert!(ignoring.reader.take_reports().is_empty());
            let mut reporting = Feed::try_new(&template(inside), "deviations=report", backend).unwrap();
            assert_eq!(reporting.decode(&unhex(message)).ok().as_deref(), *value, "{inside}, {message}");
            let reports: Vec<FaultKind> = reporting.reader.take_reports().iter().map(|report| report.kind).collect();
            assert_eq!(reports, if value.is_some() { vec![*kind] } else { vec![] }, "{inside}, {message}");
        }
    }
    unwritable("<string name='v'/>", r#"{"v":"ü"}"#, NotAscii);
    unwritable("<decimal name='v'/>", r#"{"v":{"exponent":64,"mantissa":1}}"#, DecimalRange);
}

/// Invalid text that was accepted once is still invalid when it is repeated.
#[test]
fn accepted_invalid_text_is_replaced_each_time() {
    for (inside, first) in [
        ("<string charset='unicode' name='v'><copy/></string>", "E0 81 82 C3 C3"),
        ("<string charset='unicode' name='v' presence='optional'><copy/></string>", "E0 81 83 C3 C3"),
    ] {
        for backend in backends() {
            let mut feed = Feed::try_new(&template(inside), "deviations=ignore", backend).unwrap();
            for message in [first].into_iter().chain(["80"; 100]) {
                assert_eq!(
                    feed.decode(&unhex(message)).unwrap(),
                    "{\"v\":\"\u{fffd}\u{fffd}\"}",
                    "{inside}, {message}, {backend:?}"
                );
            }
        }
    }
}

/// A text that nobody reads is a text all the same.
#[test]
fn skipped_texts_are_checked() {
    for backend in backends() {
        let xml = template("<string charset='unicode' name='v' presence='optional'><copy/></string><uInt32 name='n'/>");
        let set = TemplateSet::parse(&xml).unwrap();
        let mut types = SchemaBuilder::new();
        let root = types.add(Def::structure("T", vec![Member::new("n", Type::Uint32)]));
        let shape = Shape::of(&types.finish(Type::Def(root)).unwrap()).unwrap();
        let decoder =
            Decoder::for_shape_with_backend(&Fast::new(set), &Options::default(), shape.schema(), &shape, backend)
                .unwrap();
        let (mut state, mut record) = (decoder.state().unwrap(), Record::new(&shape));
        for (message, is_well) in [("E0 81 83 C3 BC 85", true), ("A0 83 C3 C3 85", false), ("80 85", true)] {
            let outcome = decoder.decode_with(&mut state, true, &unhex(message), &mut record);
            assert_eq!(outcome.is_ok(), is_well, "{message}, {backend:?}");
            state.mend();
        }
    }
}

/// The largest values of nullable integers take a bit more than the type has; increments wrap, and
/// that is no error.
#[test]
fn whole_ranges() {
    for backend in backends() {
        for (ty, min, max) in [
            ("int8", i128::from(i8::MIN), i128::from(i8::MAX)),
            ("uInt16", 0, i128::from(u16::MAX)),
            ("int32", i128::from(i32::MIN), i128::from(i32::MAX)),
            ("uInt32", 0, i128::from(u32::MAX)),
            ("int64", i128::from(i64::MIN), i128::from(i64::MAX)),
            ("uInt64", 0, i128::from(u64::MAX)),
        ] {
            for operator in ["", "<copy/>", "<delta/>", "<increment/>", "<default value='1'/>"] {
                for presence in ["mandatory", "optional"] {
                    let field = format!("<{ty} name='v' presence='{presence}'>{operator}</{ty}>");
                    let mut feed = Feed::new(&template(&field), backend);
                    for value in [max, min, max, min, min + 1, max - 1, max, min, 0, 1] {
                        let json = format!(r#"{{"v":{value}}}"#);
                        let bytes = feed.encode(&json).unwrap();
                        assert_eq!(feed.decode(&bytes).unwrap(), json, "{field} {}", digits(&bytes));
                        // Behind the largest comes the smallest.
                        if operator == "<increment/>" && value == min && presence == "mandatory" {
                            assert!(bytes.len() <= 12);
                        }
                    }
                }
            }
        }
        let mut feed = Feed::new(&template("<uInt8 name='v'><increment value='255'/></uInt8>"), backend);
        assert_eq!(digits(&feed.encode(r#"{"v":255}"#).unwrap()), "C0 81");
        assert_eq!(digits(&feed.encode(r#"{"v":0}"#).unwrap()), "80");
    }
}

#[test]
fn a_refused_message_leaves_the_state_unchanged() {
    let inside = "<uInt32 name='a'><delta/></uInt32><string name='s'><copy/></string><uInt32 name='b'><copy/></uInt32>";
    for backend in backends() {
        let mut feed = Feed::new(&template(inside), backend);
        let first = feed.encode(r#"{"a":10,"s":"x","b":1}"#).unwrap();
        feed.decode(&first).unwrap();
        // The last field is too large: the first two were changed already.
        let error = feed.decode(&unhex("B0 85 F9 10 00 00 00 80")).unwrap_err();
        assert_eq!((error.kind, error.path.as_str()), (FaultKind::IntegerRange, "b"));
        assert!(feed.reader.is_broken());
        let next = feed.encode(r#"{"a":11,"s":"x","b":1}"#).unwrap();
        assert_eq!(feed.decode(&next).unwrap_err().kind, FaultKind::BrokenChain);
        feed.reader.mend();
        assert_eq!(feed.decode(&next).unwrap(), r#"{"a":11,"s":"x","b":1}"#);
        // A message that is not to be kept leaves nothing behind at either end.
        for value in [20, 30] {
            let json = format!(r#"{{"a":{value},"s":"other","b":9}}"#);
            let (record, mut bytes) = (feed.record(&json), Vec::new());
            feed.encoder.encode_with(&mut feed.writer, false, &record, &mut bytes).unwrap();
            let mut back = Record::new(&feed.shape);
            feed.decoder.decode_with(&mut feed.reader, false, &bytes, &mut back).unwrap();
            assert_eq!(feed.json(&back), json);
        }
        let next = feed.encode(r#"{"a":12,"s":"x","b":1}"#).unwrap();
        assert_eq!(digits(&next), "80 81");
        assert_eq!(feed.decode(&next).unwrap(), r#"{"a":12,"s":"x","b":1}"#);
        // A reset makes the next message one that anybody can read.
        feed.writer.reset();
        let key = feed.encode(r#"{"a":13,"s":"x","b":1}"#).unwrap();
        let mut late = Feed::new(&template(inside), backend);
        assert_eq!(late.decode(&key).unwrap(), r#"{"a":13,"s":"x","b":1}"#);
    }
}

#[test]
fn a_writer_continues_after_an_error() {
    let inside = "<uInt32 name='a'><delta/></uInt32><string name='s'><copy/></string>\
                  <string name='t' charset='unicode'><tail/></string>";
    for backend in backends() {
        let mut feed = Feed::new(&template(inside), backend);
        let good = |a: u32| format!(r#"{{"a":{a},"s":"x","t":"abc"}}"#);
        let first = feed.encode(&good(1)).unwrap();
        feed.decode(&first).unwrap();
        let error = feed.encode(r#"{"a":7,"s":"y","t":"ab"}"#).unwrap_err();
        assert_eq!((error.kind, error.path.as_str()), (FaultKind::NotEncodable, "t"));
        let next = feed.encode(&good(2)).unwrap();
        assert_eq!(digits(&next), "80 81");
        assert_eq!(feed.decode(&next).unwrap(), good(2));
    }
}

#[test]
fn strings_are_kept_within_a_limit() {
    for backend in backends() {
        let mut feed = Feed::new(&template("<string name='v'><delta/></string>"), backend);
        feed.reader.limit_texts(100);
        let long = |n: usize| format!(r#"{{"v":"{}"}}"#, "a".repeat(n));
        for n in [50, 100] {
            let bytes = feed.encode(&long(n)).unwrap();
            feed.decode(&bytes).unwrap();
        }
        let bytes = feed.encode(&long(101)).unwrap();
        assert_eq!(feed.decode(&bytes).unwrap_err().kind, FaultKind::Limit);
    }
}

fn struct_of(member: Member) -> Schema {
    let mut types = SchemaBuilder::new();
    let root = types.add(Def::structure("T", vec![member]));
    types.finish(Type::Def(root)).unwrap()
}

#[test]
fn types_that_a_field_cannot_be() {
    let why = |inside: &str, ty: Type| {
        let codec = Fast::new(TemplateSet::parse(&template(inside)).unwrap());
        let shape = Shape::of(&struct_of(Member::new("v", ty))).unwrap();
        match Encoder::for_shape_with_backend(&codec, &Options::default(), &shape, Backend::Interpreter) {
            Err(BuildError::Lower(LowerError::Unsupported { path, what })) => format!("{path}: {what}"),
            other => panic!("{inside}: {:?}", other.map(|_| ())),
        }
    };
    assert!(why("<string name='v'/>", Type::Int32).contains("[D1]"));
    assert!(why("<uInt32 name='v'/>", Type::string()).contains("[D1]"));
    assert!(why("<byteVector name='v'/>", Type::Int32).contains("[D10]"));
    assert!(why("<uInt32 name='w'/>", Type::Uint32).contains("no member"));
    assert!(why("<sequence name='v'><uInt32 name='a'/></sequence>", Type::Uint32).contains("[D1]"));
}

/// A decimal that an application takes as an integer (R5), and one that it takes as a double.
#[test]
fn decimals_as_numbers() {
    let set = || TemplateSet::parse(&template("<decimal name='v'/>")).unwrap();
    let decode = |ty: Type, options: &str, bytes: &str| {
        let shape = Shape::of(&struct_of(Member::new("v", ty))).unwrap();
        let decoder = polywire_core::codec::Decoder::for_shape_with_backend(
            &Fast::new(set()),
            &options.parse().unwrap(),
            shape.schema(),
            &shape,
            Backend::Interpreter,
        )
        .unwrap();
        let mut record = Record::new(&shape);
        decoder.decode(&unhex(bytes), &mut record).map(|_| format!("{record:?}")).map_err(|error| error.kind)
    };
    assert!(decode(Type::Int32, "", "C0 81 82 85").unwrap().contains("500"));
    assert!(decode(Type::Int32, "", "C0 81 FE 03 F4").unwrap().contains('5'));
    assert_eq!(decode(Type::Int32, "", "C0 81 FE 85"), Err(FaultKind::NotInteger));
    assert!(decode(Type::Int32, "deviations=ignore", "C0 81 FE 03 F5").unwrap().contains('5'));
    assert!(decode(Type::Float64, "", "C0 81 FE 85").unwrap().contains("0.05"));
    assert_eq!(decode(Type::Int32, "", "C0 81 BF 85"), Err(FaultKind::NotInteger));
}

/// The exponent of a decimal that becomes a number is checked once, whatever its operator is.
#[test]
fn exponents_of_numbers() {
    let forms = [
        ("", "C0"),
        ("<copy/>", "E0"),
        ("<delta/>", "C0"),
        ("<default value='0.5'/>", "E0"),
        ("<exponent><copy/></exponent>", "E0"),
        ("<exponent><default value='-2'/></exponent>", "E0"),
        ("<exponent><default value='-2'/></exponent><mantissa><copy/></mantissa>", "F0"),
        ("<exponent><delta/></exponent><mantissa><copy/></mantissa>", "E0"),
    ];
    let cases = [
        (Type::Float64, "C1", "81", "1e-63", true),
        (Type::Float64, "C0", "81", "1e-64", false),
        (Type::Float64, "BF", "81", "1e63", true),
        (Type::Float64, "00 C0", "81", "1e64", false),
        (Type::Int64, "C1", "80", "0", true),
        (Type::Int64, "C0", "80", "0", false),
    ];
    for ((inside, map), backend) in forms.into_iter().flat_map(|form| backends().into_iter().map(move |b| (form, b))) {
        let codec = Fast::new(TemplateSet::parse(&template(&format!("<decimal name='v'>{inside}</decimal>"))).unwrap());
        for (ty, exponent, mantissa, number, is_well) in &cases {
            let shape = Shape::of(&struct_of(Member::new("v", ty.clone()))).unwrap();
            let decode = |options: &str, exponent: &str| {
                let options: Options = options.parse().unwrap();
                let decoder =
                    Decoder::for_shape_with_backend(&codec, &options, shape.schema(), &shape, backend).unwrap();
                let (mut state, mut record) = (decoder.state().unwrap(), Record::new(&shape));
                let message = unhex(&format!("{map} 81 {exponent} {mantissa}"));
                let outcome = decoder.decode_with(&mut state, true, &message, &mut record);
                let reports: Vec<FaultKind> = state.take_reports().iter().map(|report| report.kind).collect();
                outcome.map(|_| (format!("{record:?}"), reports)).map_err(|error| error.kind)
            };
            let what = format!("{inside}, {number}, {backend:?}");
            let refused = decode("", exponent).err();
            assert_eq!(refused, (!is_well).then_some(FaultKind::DecimalRange), "{what}");
            for (options, reported) in [("deviations=ignore", false), ("deviations=report", true)] {
                let (value, reports) = decode(options, exponent).expect(&what);
                assert!(value.contains(number), "{what}, {value}");
                let expected = if reported && !is_well { vec![FaultKind::DecimalRange] } else { vec![] };
                assert_eq!(reports, expected, "{what}");
                // One that has more than 32 bits is never let pass, but a sum of 32 bits may wrap.
                let wraps = inside.starts_with("<exponent><delta/>");
                assert_eq!(decode(options, "10 00 00 00 80").is_err(), !wraps, "{what}");
            }
        }
    }
}
