//! Messages byte for byte: the examples in the appendix of the specification, and one for each rule
//! that implementers get wrong.

use super::support::{Feed, backends, digits, template, unhex};
use polywire_core::{
    codec::{Decoder, Encoder, Options, fast::FAST},
    layout::{Record, Shape},
    schema::{Def, Member, SchemaBuilder, Type},
};

/// Encodes and decodes the values one after the other; each with its bytes, presence map and
/// template id included.
fn stream(inside: &str, messages: &[(&str, &str)]) {
    for backend in backends() {
        let mut feed = Feed::new(&template(inside), backend);
        for (value, bytes) in messages {
            let written = feed.encode(value).unwrap_or_else(|error| panic!("{inside}, {value}: {error}"));
            assert_eq!(digits(&written), *bytes, "{inside}, {value}, {backend:?}");
            let read = feed.decode(&unhex(bytes)).unwrap_or_else(|error| panic!("{inside}, {bytes}: {error}"));
            assert_eq!(read, *value, "{inside}, {bytes}, {backend:?}");
        }
    }
}

/// The same of fields without an operator: the bytes of the field alone.
fn plain(field: &str, values: &[(&str, &str)]) {
    for (value, bytes) in values {
        stream(field, &[(value, &format!("C0 81 {bytes}"))]);
    }
}

/// A decimal as JSON has it: with as many places as the exponent says, or with an exponent.
fn decimal(exponent: i32, mantissa: i64) -> String {
    let places = exponent.unsigned_abs() as usize;
    let (sign, digits) = (if mantissa < 0 { "-" } else { "" }, mantissa.unsigned_abs());
    let number = match exponent {
        0 => mantissa.to_string(),
        -18..0 => {
            let text = format!("{digits:0width$}", width = places + 1);
            let (whole, fraction) = text.split_at(text.len() - places);
            format!("{sign}{whole}.{fraction}")
        }
        _ => format!("{mantissa}e{exponent:+}"),
    };
    format!(r#"{{"v":{number}}}"#)
}

#[test]
fn types_of_the_appendix() {
    plain(
        "<int32 name='v' presence='optional'/>",
        &[("{}", "80"), (r#"{"v":942755}"#, "39 45 A4"), (r#"{"v":-942755}"#, "46 3A DD")],
    );
    plain(
        "<int32 name='v'/>",
        &[
            (r#"{"v":942755}"#, "39 45 A3"),
            (r#"{"v":-7942755}"#, "7C 1B 1B 9D"),
            (r#"{"v":-8193}"#, "7F 3F FF"),
            (r#"{"v":64}"#, "00 C0"),
        ],
    );
    plain(
        "<uInt32 name='v' presence='optional'/>",
        &[
            ("{}", "80"),
            (r#"{"v":0}"#, "81"),
            (r#"{"v":1}"#, "82"),
            (r#"{"v":942755}"#, "39 45 A4"),
            (r#"{"v":4294967295}"#, "10 00 00 00 80"),
        ],
    );
    plain("<uInt32 name='v'/>", &[(r#"{"v":0}"#, "80"), (r#"{"v":1}"#, "81"), (r#"{"v":942755}"#, "39 45 A3")]);
    plain(
        "<string name='v' presence='optional'/>",
        &[("{}", "80"), (r#"{"v":"ABC"}"#, "41 42 C3"), (r#"{"v":""}"#, "00 80"), (r#"{"v":"\u0000"}"#, "00 00 80")],
    );
    plain(
        "<string name='v'/>",
        &[(r#"{"v":"ABC"}"#, "41 42 C3"), (r#"{"v":""}"#, "80"), (r#"{"v":"\u0000"}"#, "00 80")],
    );
    plain(
        "<byteVector name='v' presence='optional'/>",
        &[("{}", "80"), (r#"{"v":"QUJD"}"#, "84 41 42 43"), (r#"{"v":""}"#, "81")],
    );
    plain("<byteVector name='v'/>", &[(r#"{"v":"QUJD"}"#, "83 41 42 43"), (r#"{"v":""}"#, "80")]);
    plain("<string charset='unicode' name='v'/>", &[(r#"{"v":"ü"}"#, "82 C3 BC")]);
}

#[test]
fn decimals_of_the_appendix() {
    let value = decimal;
    let mandatory = |e, m, bytes| plain("<decimal name='v'/>", &[(value(e, m).as_str(), bytes)]);
    let optional = |e, m, bytes| plain("<decimal name='v' presence='optional'/>", &[(value(e, m).as_str(), bytes)]);
    mandatory(2, 942755, "82 39 45 A3");
    mandatory(1, 9427550, "81 04 3F 34 DE");
    mandatory(-2, 942755, "FE 39 45 A3");
    optional(2, 942755, "83 39 45 A3");
    optional(-2, 942755, "FE 39 45 A3");
    optional(-2, -942755, "FE 46 3A DD");
    optional(-3, -8193, "FD 7F 3F FF");
    plain("<decimal name='v' presence='optional'/>", &[("{}", "80")]);
    // With operators of its parts, bit by bit.
    stream(
        "<decimal name='v' presence='optional'><exponent><copy/></exponent><mantissa><delta/></mantissa></decimal>",
        &[
            (&value(-2, 942755), "E0 81 FE 39 45 A3"),
            (&value(-2, 942751), "80 FC"),
            (&value(-2, 942746), "80 FB"),
            ("{}", "A0 80"),
            ("{}", "80"),
            (&value(-2, 942746), "A0 FE 80"),
        ],
    );
    stream(
        "<decimal name='v'><exponent><constant value='-2'/></exponent><mantissa><copy/></mantissa></decimal>",
        &[(&value(-2, 942755), "E0 81 39 45 A3"), (&value(-2, 942755), "80")],
    );
}

#[test]
fn operators_of_the_appendix() {
    stream("<uInt32 name='v'><constant value='0'/></uInt32>", &[(r#"{"v":0}"#, "C0 81"), (r#"{"v":0}"#, "80")]);
    stream(
        "<uInt32 name='v' presence='optional'><constant value='7'/></uInt32>",
        &[(r#"{"v":7}"#, "E0 81"), ("{}", "80")],
    );
    stream(
        "<uInt32 name='v'><default value='0'/></uInt32>",
        &[(r#"{"v":0}"#, "C0 81"), (r#"{"v":1}"#, "A0 81"), (r#"{"v":0}"#, "80")],
    );
    stream("<uInt32 name='v' presence='optional'><default/></uInt32>", &[("{}", "C0 81"), (r#"{"v":1}"#, "A0 82")]);
    stream("<uInt32 name='v' presence='optional'><default value='5'/></uInt32>", &[("{}", "E0 81 80")]);
    stream(
        "<string name='v'><copy/></string>",
        &[(r#"{"v":"CME"}"#, "E0 81 43 4D C5"), (r#"{"v":"CME"}"#, "80"), (r#"{"v":"ISE"}"#, "A0 49 53 C5")],
    );
    stream(
        "<string name='v' presence='optional'><copy/></string>",
        &[("{}", "C0 81"), ("{}", "80"), (r#"{"v":"CME"}"#, "A0 43 4D C5"), ("{}", "A0 80")],
    );
    stream(
        "<uInt32 name='v'><increment value='1'/></uInt32>",
        &[(r#"{"v":1}"#, "C0 81"), (r#"{"v":2}"#, "80"), (r#"{"v":10}"#, "A0 8A"), (r#"{"v":3}"#, "A0 83")],
    );
    stream(
        "<int32 name='v'><delta/></int32>",
        &[
            (r#"{"v":942755}"#, "C0 81 39 45 A3"),
            (r#"{"v":942750}"#, "80 FB"),
            (r#"{"v":942745}"#, "80 FB"),
            (r#"{"v":942745}"#, "80 80"),
        ],
    );
    let value = decimal;
    stream(
        "<decimal name='v'><delta/></decimal>",
        &[
            (&value(-2, 942755), "C0 81 FE 39 45 A3"),
            (&value(-2, 942751), "80 80 FC"),
            (&value(-2, 942746), "80 80 FB"),
        ],
    );
    stream(
        "<decimal name='v'><delta value='12000'/></decimal>",
        &[(&value(2, 121), "C0 81 FF 00 ED"), (&value(1, 1215), "80 FF 08 C6"), (&value(2, 122), "80 81 77 BB")],
    );
    stream(
        "<string name='v'><delta/></string>",
        &[
            (r#"{"v":"GEH6"}"#, "C0 81 80 47 45 48 B6"),
            (r#"{"v":"GEM6"}"#, "80 82 4D B6"),
            (r#"{"v":"ESM6"}"#, "80 FD 45 D3"),
            (r#"{"v":"RSESM6"}"#, "80 FF 52 D3"),
        ],
    );
    stream(
        "<string name='v'><tail/></string>",
        &[
            (r#"{"v":"GEH6"}"#, "E0 81 47 45 48 B6"),
            (r#"{"v":"GEM6"}"#, "A0 4D B6"),
            (r#"{"v":"GEM6"}"#, "80"),
            (r#"{"v":"LONGER"}"#, "A0 4C 4F 4E 47 45 D2"),
        ],
    );
}

/// Sections 6.3.7 and 6.3.8: the base value of tails and deltas of strings, for every state of the
/// previous value.
#[test]
fn tails_and_deltas_of_strings() {
    let v = |text: &str| format!(r#"{{"v":"{text}"}}"#);
    // Null leaves the previous value empty (section 10.5.1): the base is the initial value then,
    // and without a tail the field is absent (6.3.8). That mFAST and the crate `fastlib` go back to
    // the initial value is theirs.
    stream(
        "<string name='v' presence='optional'><tail value='abc'/></string>",
        &[
            (&v("abc"), "C0 81"),
            ("{}", "A0 80"),
            ("{}", "80"),
            ("{}", "80"),
            (&v("abX"), "A0 D8"),
            (&v("abX"), "80"),
            (&v("longer"), "A0 6C 6F 6E 67 65 F2"),
        ],
    );
    stream(
        "<string name='v' presence='optional'><tail value='abc'/></string>",
        &[("{}", "E0 81 80"), ("{}", "80"), (&v("abc"), "A0 00 80")],
    );
    stream(
        "<byteVector name='v' presence='optional'><tail value='616263'/></byteVector>",
        &[("{}", "E0 81 80"), ("{}", "80"), (r#"{"v":"YWJY"}"#, "A0 82 58"), ("{}", "A0 80"), ("{}", "80")],
    );
    stream(
        "<string name='v' presence='optional'><tail/></string>",
        &[("{}", "C0 81"), (&v("ab"), "A0 61 E2"), ("{}", "A0 80"), (&v("c"), "A0 E3")],
    );
    stream(
        "<string charset='unicode' name='v'><tail/></string>",
        &[(&v("GEH6"), "E0 81 84 47 45 48 36"), (&v("GEM6"), "A0 82 4D 36")],
    );
    // Null leaves the previous value of a delta as it is. The length is nullable, the characters
    // are not; a negative length counts from -1.
    stream(
        "<string name='v' presence='optional'><delta value='ab'/></string>",
        &[
            ("{}", "C0 81 80"),
            (&v("abc"), "80 81 E3"),
            ("{}", "80 80"),
            (&v("abd"), "80 82 E4"),
            (&v("xabd"), "80 FF F8"),
            (&v("Zbd"), "80 FD DA"),
            (&v("Zbd"), "80 81 80"),
        ],
    );
    stream(
        "<string charset='unicode' name='v'><delta/></string>",
        &[(&v("GEH6"), "C0 81 80 84 47 45 48 36"), (&v("GEM6"), "80 82 82 4D 36")],
    );
}

/// Encodings that other writers may choose although they are not the shortest, and their effects.
#[test]
fn tails_and_deltas_longer_than_necessary() {
    let v = |text: &str| format!(r#"{{"v":"{text}"}}"#);
    let read = |inside: &str, messages: &[(&str, &str)]| {
        for backend in backends() {
            let mut feed = Feed::new(&template(inside), backend);
            for (bytes, value) in messages {
                assert_eq!(feed.decode(&unhex(bytes)).as_deref(), Ok(*value), "{inside}, {bytes}, {backend:?}");
            }
        }
    };
    // An empty tail takes nothing away; one as long as the base, or longer, takes it all.
    read(
        "<string name='v'><tail value='abc'/></string>",
        &[("E0 81 80", &v("abc")), ("A0 78 79 FA", &v("xyz")), ("A0 31 32 33 B4", &v("1234")), ("A0 80", &v("1234"))],
    );
    read("<string name='v' presence='optional'><tail value='abc'/></string>", &[("E0 81 00 80", &v("abc"))]);
    // All of the base taken from either end, and put back.
    read(
        "<string name='v'><delta value='abc'/></string>",
        &[
            ("C0 81 83 80", &v("")),
            ("80 80 61 E2", &v("ab")),
            ("80 FD 80", &v("")),
            ("80 FF 61 E2", &v("ab")),
            ("80 82 61 E2", &v("ab")),
        ],
    );
}

/// The thesis's listing, with the presence maps that the rules ask for: a delta takes no bit of it.
#[test]
fn listing_of_the_thesis() {
    stream(
        "<uInt64 name='idle'><delta/></uInt64><uInt64 name='system'><delta/></uInt64><uInt64 name='user'><delta/></uInt64>",
        &[
            (r#"{"idle":1234,"system":3451,"user":2341}"#, "C0 81 09 D2 1A FB 12 A5"),
            (r#"{"idle":1256,"system":3460,"user":2356}"#, "80 96 89 8F"),
        ],
    );
}

#[test]
fn segments_have_maps_only_if_something_inside_needs_a_bit() {
    let sequence = "<sequence name='s'><length name='n'><copy/></length><uInt32 name='a'><delta/></uInt32></sequence>";
    stream(sequence, &[(r#"{"s":[{"a":1},{"a":3}]}"#, "E0 81 82 81 82"), (r#"{"s":[{"a":4},{"a":5}]}"#, "80 81 81")]);
    let mapped = "<sequence name='s' presence='optional'><uInt32 name='a'><copy/></uInt32>\
                  <sequence name='t'><length><constant value='1'/></length><string name='b'/></sequence></sequence>";
    stream(
        mapped,
        &[
            (r#"{"s":[{"a":1,"t":[{"b":"x"}]},{"a":1,"t":[{"b":""}]}]}"#, "C0 81 83 C0 81 F8 80 80"),
            ("{}", "80 80"),
            (r#"{"s":[]}"#, "80 81"),
        ],
    );
    // A decimal's own operators count.
    let group = "<group name='g' presence='optional'><decimal name='d'><exponent><copy/></exponent></decimal></group>";
    stream(group, &[(r#"{"g":{"d":0.5}}"#, "E0 81 C0 FF 85"), (r#"{"g":{"d":0.6}}"#, "A0 80 86"), ("{}", "80")]);
    stream("<group name='g'><uInt32 name='a'/></group>", &[(r#"{"g":{"a":1}}"#, "C0 81 81")]);
}

#[test]
fn maps_of_any_length() {
    for count in [1, 5, 6, 7, 54, 55, 56, 57, 62, 63, 120, 300] {
        let fields: String = (0..count).map(|i| format!("<uInt32 name='f{i}'><copy value='0'/></uInt32>")).collect();
        for backend in backends() {
            for last in [0, 1.min(count - 1), count / 2, count - 1] {
                let mut feed = Feed::new(&template(&fields), backend);
                let value = |i| u32::from(i == last);
                let json: Vec<String> = (0..count).map(|i| format!(r#""f{i}":{}"#, value(i))).collect();
                let json = format!("{{{}}}", json.join(","));
                let bytes = feed.encode(&json).unwrap();
                // The template's id is the first bit.
                assert_eq!(bytes.len(), (last + 1) / 7 + 1 + 2, "{count} {last}");
                assert_eq!(feed.decode(&bytes).unwrap(), json, "{count} {last} {backend:?}");
            }
        }
    }
}

#[test]
fn several_templates_and_messages_inside_messages() {
    let xml = "<templates>\
        <template name='Head'><uInt32 name='seq'><increment value='1'/></uInt32></template>\
        <template name='A' id='1'><templateRef name='Head'/><string name='s'><copy/></string></template>\
        <template name='B' id='2'><templateRef name='Head'/><templateRef/></template></templates>";
    for backend in backends() {
        let mut feed = Feed::new(xml, backend);
        let a = r#"{"A":{"seq":1,"s":"x"}}"#;
        let nested = r#"{"B":{"seq":2,"message":{"A":{"seq":3,"s":"x"}}}}"#;
        let messages = [
            (a, "D0 81 F8"),
            // The inner message's id is another than the outer's.
            (nested, "C0 82 C0 81"),
            (r#"{"A":{"seq":4,"s":"y"}}"#, "90 F9"),
        ];
        for (value, bytes) in messages {
            let value = if feed.json(&feed.record(value)) == value { value } else { panic!("{value}") };
            assert_eq!(digits(&feed.encode(value).unwrap()), bytes, "{value}");
            assert_eq!(feed.decode(&unhex(bytes)).unwrap(), value, "{bytes}");
        }
    }
}

#[test]
fn dictionaries_and_keys() {
    // Two fields that share a key share the previous value; two dictionaries do not.
    stream(
        "<uInt32 name='a'><copy key='k'/></uInt32><uInt32 name='b'><copy key='k'/></uInt32>\
         <uInt32 name='c'><copy key='k' dictionary='mine'/></uInt32><uInt32 name='d'><copy key='k' dictionary='template'/></uInt32>",
        &[(r#"{"a":5,"b":5,"c":5,"d":5}"#, "EC 81 85 85 85"), (r#"{"a":6,"b":5,"c":5,"d":5}"#, "B0 86 85")],
    );
    let xml = "<templates>\
        <template name='A' id='1'><typeRef name='X'/><uInt32 name='v'><copy dictionary='template'/></uInt32><uInt32 name='w'><copy dictionary='type'/></uInt32></template>\
        <template name='B' id='2'><typeRef name='X'/><uInt32 name='v'><copy dictionary='template'/></uInt32><uInt32 name='w'><copy dictionary='type'/></uInt32></template></templates>";
    for backend in backends() {
        let mut feed = Feed::new(xml, backend);
        assert_eq!(digits(&feed.encode(r#"{"A":{"v":1,"w":1}}"#).unwrap()), "F0 81 81 81");
        assert_eq!(digits(&feed.encode(r#"{"B":{"v":1,"w":1}}"#).unwrap()), "E0 82 81");
        assert_eq!(digits(&feed.encode(r#"{"A":{"v":1,"w":1}}"#).unwrap()), "C0 81");
    }
}

#[test]
fn a_template_may_reset() {
    let xml = "<templates><template name='A' id='1'><uInt32 name='v'><copy/></uInt32></template>\
               <template name='R' id='9' reset='Y'/></templates>";
    for backend in backends() {
        let mut feed = Feed::new(xml, backend);
        let messages = [
            (r#"{"A":{"v":3}}"#, "E0 81 83"),
            (r#"{"A":{"v":3}}"#, "80"),
            (r#"{"R":{}}"#, "C0 89"),
            (r#"{"A":{"v":3}}"#, "E0 81 83"),
        ];
        for (value, bytes) in messages {
            assert_eq!(digits(&feed.encode(value).unwrap()), bytes, "{value}");
            assert_eq!(feed.decode(&unhex(bytes)).unwrap(), value, "{bytes}");
        }
    }
}

#[test]
fn a_member_may_have_the_name_of_a_bits_field() {
    let mut types = SchemaBuilder::new();
    let members = vec![Member::new("x", Type::Float64), Member::new("x_bits", Type::Uint32)];
    let root = types.add(Def::structure("S", members));
    let schema = types.finish(Type::Def(root)).unwrap();
    let (shape, options) = (Shape::of(&schema).unwrap(), Options::default());
    for backend in backends() {
        let encoder = Encoder::for_shape_with_backend(&FAST, &options, &shape, backend).unwrap();
        let decoder = Decoder::for_shape_with_backend(&FAST, &options, &schema, &shape, backend).unwrap();
        let (mut writer, mut reader) = (encoder.state().unwrap(), decoder.state().unwrap());
        // The second number is no exact decimal.
        for json in [r#"{"x": 1.5, "x_bits": 7}"#, r#"{"x": 5e-324, "x_bits": 8}"#] {
            let (record, mut bytes, mut read) =
                (Record::from_json(&shape, json).unwrap(), Vec::new(), Record::new(&shape));
            encoder.encode_with(&mut writer, true, &record, &mut bytes).unwrap();
            decoder.decode_with(&mut reader, true, &bytes, &mut read).unwrap();
            assert_eq!(read, record, "{json}, {backend:?}");
        }
    }
}
