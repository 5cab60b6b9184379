//! How each type is encoded as XML, and which forms are accepted.

use super::text_support::{Format, assert_golden, assert_golden_record, everything};
use polywire_core::{
    layout::{Record, Shape},
    program::FaultKind,
    schema::{Def, Member, SchemaBuilder, Type, arbitrary::Random},
};
use polywire_derive::Message;

const XML: Format = Format("xml");
const DOM: Format = Format("xml-dom");

#[derive(Message, Debug, PartialEq, Clone, Default)]
#[polywire(name = "Geo::Place")]
struct Place {
    latitude_deg: f64,
    #[polywire(idl = "octet")]
    zone: u8,
}

#[derive(Message, Debug, PartialEq, Clone, Default)]
#[polywire(name = "Geo::Report")]
struct Report {
    station: String,
    good: bool,
    places: Vec<Place>,
    counts: Vec<i32>,
    #[polywire(idl = "sequence<octet>")]
    blob: Vec<u8>,
    names: Vec<String>,
    remark: Option<String>,
    grid: [[f32; 2]; 2],
}

fn report() -> Report {
    Report {
        station: "EDDM <\"&'> ]]>\r\n\t_x0041_ \u{1}\u{FFFF}ü".into(),
        good: true,
        places: vec![Place { latitude_deg: 48.5, zone: 7 }, Place::default()],
        counts: vec![1, -2, 3],
        blob: vec![0, 255, 16],
        names: vec!["a".into(), String::new()],
        remark: None,
        grid: [[1.0, f32::INFINITY], [f32::NEG_INFINITY, -0.0]],
    }
}

#[test]
fn members_are_elements() {
    let text = "<Geo.Report><station>EDDM &lt;\"&amp;'&gt; ]]&gt;&#13;\n\t_x005F_x0041_ _x0001__xFFFF_ü</station><good>true</good>\
        <places><item><latitude_deg>48.5</latitude_deg><zone>7</zone></item>\
        <item><latitude_deg>0.0</latitude_deg><zone>0</zone></item></places><counts>1 -2 3</counts><blob>AP8Q</blob>\
        <names><item>a</item><item></item></names><grid>1.0 INF -INF -0.0</grid></Geo.Report>";
    assert_golden(XML, "", &report(), text);
}

#[test]
fn members_of_one_value_are_attributes_if_asked() {
    let text = "<Geo.Report station=\"EDDM &lt;&quot;&amp;'&gt; ]]&gt;&#13;&#10;&#9;_x005F_x0041_ _x0001__xFFFF_ü\" good=\"true\">\
        <places><item latitude_deg=\"48.5\" zone=\"7\"></item><item latitude_deg=\"0.0\" zone=\"0\"></item></places>\
        <counts>1 -2 3</counts><blob>AP8Q</blob>\
        <names><item>a</item><item></item></names><grid>1.0 INF -INF -0.0</grid></Geo.Report>";
    assert_golden(XML, "members=attributes", &report(), text);
}

/// The text of a structure of integers with these names. Both readers read it.
fn as_attributes(names: impl IntoIterator<Item = String>) -> String {
    let names: Vec<String> = names.into_iter().collect();
    let mut types = SchemaBuilder::new();
    let members = names.iter().map(|name| Member::new(name.clone(), Type::Int32)).collect();
    let root = types.add(Def::structure("Many", members));
    let shape = Shape::of(&types.finish(Type::Def(root)).unwrap()).unwrap();
    let values: Vec<String> = names.iter().enumerate().map(|(i, name)| format!("\"{name}\":{i}")).collect();
    let record = Record::from_json(&shape, &format!("{{{}}}", values.join(","))).unwrap();
    let text = XML.write_record(&record, "members=attributes").unwrap();
    for format in [XML, DOM] {
        assert_eq!(format.read_record(&shape, text.as_bytes()).as_ref(), Ok(&record), "{text}");
    }
    text
}

#[test]
fn only_as_many_members_are_attributes_as_readers_accept() {
    let text = as_attributes((0..256).map(|i| format!("m{i}")));
    assert!(text.ends_with(" m254=\"254\" m255=\"255\"></Many>"), "{text}");
    let text = as_attributes((0..258).map(|i| format!("m{i}")));
    assert!(text.ends_with(" m255=\"255\"><m256>256</m256><m257>257</m257></Many>"), "{text}");
}

#[test]
fn a_member_with_the_name_of_a_namespace_is_an_element() {
    let text = as_attributes(["a", "xmlns", "b"].map(String::from));
    assert_eq!(text, "<Many a=\"0\" b=\"2\"><xmlns>1</xmlns></Many>");
}

#[test]
fn indented_and_declared() {
    let value = Report { station: "x".into(), places: vec![Place::default()], ..Report::default() };
    let text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>
<Geo.Report>
  <station>x</station>
  <good>false</good>
  <places>
    <item>
      <latitude_deg>0.0</latitude_deg>
      <zone>0</zone>
    </item>
  </places>
  <counts></counts>
  <blob></blob>
  <names></names>
  <grid>0.0 0.0 0.0 0.0</grid>
</Geo.Report>";
    assert_golden(XML, "pretty,declaration", &value, text);
}

fn read(text: &str) -> Report {
    XML.read(text.as_bytes(), report).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Prolog, comments, instructions, CDATA sections, prefixes, blanks, other orders, both forms of
/// members at once.
#[test]
fn what_else_is_read() {
    let text = "\u{FEFF}<?xml version='1.0' encoding='utf-8' standalone='yes' ?><!-- x --><?p q?>
        <g:Geo.Report xmlns:g='urn:g' xmlns='urn:x' good = '1' g:station='not this'
           xsi:schemaLocation='a b'> <!-- a - b -->
          <g:names ><item/><item ><![CDATA[<a>&amp;]]>]]<!-- c -->&gt;&#x41;&#66;</item ></g:names >
          <unknown a='1'><b/>text<b>&lt;</b></unknown>
          <places/>
          <counts> 007\r\n+8 -009 </counts>
          <blob>AP
             8Q</blob>
          <station>a\r\nb\rc</station>
          <remark xsi:nil='true'/>
          <grid>.5 5. +1e2 NaN</grid>
        </g:Geo.Report><!-- behind -->\n";
    let expected = Report {
        station: "a\nb\nc".into(),
        good: true,
        places: vec![],
        counts: vec![7, 8, -9],
        blob: vec![0, 255, 16],
        names: vec!["".into(), "<a>&amp;]]>AB".into()],
        remark: None,
        grid: [[0.5, 5.0], [100.0, f32::NAN]],
    };
    assert_eq!(format!("{:?}", read(text)), format!("{expected:?}"));
    assert_eq!(format!("{:?}", DOM.read(text.as_bytes(), report).unwrap()), format!("{expected:?}"));
}

/// The tree has no comments and sections, so that less is refused; offsets are those of the message
/// all the same.
#[test]
fn through_a_tree() {
    let text = XML.write(&report(), "members=attributes,pretty");
    assert_eq!(DOM.write(&report(), "members=attributes,pretty"), text);
    assert_eq!(DOM.read(text.as_bytes(), Report::default), Ok(report()));
    let listed = "<Geo.Report><counts><!-- one -->1 <![CDATA[2]]>&#32;3</counts></Geo.Report>";
    assert_eq!(DOM.read(listed.as_bytes(), report).unwrap().counts, [1, 2, 3]);
    let bad = "<Geo.Report ><!-- a --><places ><item ><zone>256</zone></item></places></Geo.Report>";
    let error = DOM.read(bad.as_bytes(), report).unwrap_err();
    assert_eq!((error.kind, error.path.as_str()), (FaultKind::OutOfRange, "places[0].zone"));
    assert_eq!(&bad[error.offset..error.offset + 4], "zone");
    for bad in
        ["<Geo.Report><good>1</good>", "<Geo.Report a='1' a='2'/>", "<Geo.Report/>x", "<!DOCTYPE a><Geo.Report/>"]
    {
        let errors = [XML, DOM].map(|format| format.read(bad.as_bytes(), report).unwrap_err());
        assert_eq!(errors[0], errors[1], "{bad}");
    }
}

/// Strings of what escapes are made of come back through both readers, each escape replaced once.
#[test]
fn escapes_are_replaced_once() {
    const PIECES: [&str; 12] =
        ["_", "x", "_x", "0", "005F", "0001", "_x005F_", "_x0000_", "_x0041_", "\u{1}", "\u{FFFF}", "ü&<"];
    let mut random = Random::new(7);
    let text = |random: &mut Random| (0..1 + random.below(6)).map(|_| *random.choose(&PIECES)).collect::<String>();
    for _ in 0..5 {
        let names = (0..500).map(|_| text(&mut random)).collect();
        let value = Report { station: text(&mut random), names, ..Report::default() };
        for options in ["", "members=attributes"] {
            let text = XML.write(&value, options);
            assert_eq!(XML.read(text.as_bytes(), Report::default).as_ref(), Ok(&value), "{text}");
            assert_eq!(DOM.read(text.as_bytes(), Report::default).as_ref(), Ok(&value), "{text}");
        }
    }
}

/// An escape may come in pieces: it is looked for after the parser.
#[test]
fn escapes_are_found_in_parsed_text() {
    for (text, meant) in [
        ("_&#120;0001_", "\u{1}"),
        ("&#x5F;x005F&#95;", "_"),
        ("_x<![CDATA[00]]>01_", "\u{1}"),
        ("_x00<!-- x -->01_x0002_", "\u{1}x0002_"),
        ("_x0041_x0001_", "_x0041\u{1}"),
        ("__x_x0001", "__x_x0001"),
        ("_x00\r\n01_", "_x00\n01_"),
        ("_x0001", "_x0001"),
    ] {
        for format in [XML, DOM] {
            let whole = format!("<Geo.Report><station>{text}</station></Geo.Report>");
            assert_eq!(format.read(whole.as_bytes(), Report::default).unwrap().station, meant, "{text}");
        }
    }
    let attribute = "<Geo.Report station='_&#120;0001_ &#95;x005F_'/>";
    for format in [XML, DOM] {
        assert_eq!(format.read(attribute.as_bytes(), Report::default).unwrap().station, "\u{1} _");
    }
}

#[test]
fn absent_members_have_their_defaults() {
    assert_eq!(read("<Geo.Report/>"), Report::default());
    assert_eq!(read("<Geo.Report></Geo.Report>"), Report::default());
    assert_eq!(read("<Geo.Report><station> </station></Geo.Report>").station, " ");
    assert_eq!(read("<Geo.Report station=' a\n\tb\r\nc '/>").station, " a  b c ");
}

#[test]
fn what_is_refused_and_where() {
    let inside = |text: &str| format!("<Geo.Report>{text}</Geo.Report>");
    let cases = [
        (inside("<counts>1 x</counts>"), FaultKind::WrongKind, "counts", 22),
        (inside("<counts>1 2147483648</counts>"), FaultKind::OutOfRange, "counts", 22),
        (inside("<grid>e3 0 0 0</grid>"), FaultKind::WrongKind, "grid", 18),
        (inside("<counts>1<!-- -->2</counts>"), FaultKind::Syntax, "counts", 20),
        (inside("<good>yes</good>"), FaultKind::WrongKind, "good", 17),
        (inside("<good><b/></good>"), FaultKind::WrongKind, "good", 18),
        (inside("<places>text</places>"), FaultKind::Syntax, "places", 20),
        (inside("<places><other/></places>"), FaultKind::Syntax, "places", 21),
        (inside("<places><item><zone>256</zone></item></places>"), FaultKind::OutOfRange, "places[0].zone", 31),
        (inside("<grid>1 2 3</grid>"), FaultKind::Count, "grid", 30),
        (inside("<blob>AP*Q</blob>"), FaultKind::Syntax, "blob", 20),
        (inside("<station>&other;</station>"), FaultKind::Syntax, "station", 22),
        (inside("<station>a]]></station>"), FaultKind::Syntax, "station", 24),
        (inside("<station>\u{1}</station>"), FaultKind::Syntax, "station", 21),
        (inside("<station>\u{FFFE}</station>"), FaultKind::BadText, "station", 21),
        (inside("<station>&#0;</station>"), FaultKind::BadText, "station", 21),
        (inside("<station></good>"), FaultKind::Syntax, "station", 23),
        (inside("<x a='1' a='2'/>"), FaultKind::DuplicateMember, "", 20),
        ("<Other/>".into(), FaultKind::WrongKind, "", 1),
        ("<Geo.Report good='1' good='0'/>".into(), FaultKind::DuplicateMember, "", 20),
        ("<Geo.Report/><Geo.Report/>".into(), FaultKind::Trailing, "", 13),
        ("<!DOCTYPE Geo.Report><Geo.Report/>".into(), FaultKind::Forbidden, "", 0),
        ("<?xml version='1.1'?><Geo.Report/>".into(), FaultKind::Forbidden, "", 15),
        ("<?xml version='1.0' encoding='UTF-16'?><Geo.Report/>".into(), FaultKind::Forbidden, "", 30),
        ("".into(), FaultKind::Truncated, "", 0),
        ("{}".into(), FaultKind::Syntax, "", 0),
    ];
    for (text, kind, path, offset) in cases {
        let error = XML.read(text.as_bytes(), report).expect_err(&text);
        assert_eq!((error.kind, error.path.as_str(), error.offset), (kind, path, offset), "{text}: {error}");
    }
}

#[test]
fn a_tag_with_eighty_thousand_attributes_is_refused_at_once() {
    let attributes: String = (0..80_000).map(|i| format!(" a{i}=''")).collect();
    for text in [format!("<Geo.Report{attributes}/>"), format!("<Geo.Report><x{attributes}/></Geo.Report>")] {
        let error = XML.read(text.as_bytes(), report).unwrap_err();
        assert_eq!((error.kind, error.expected), (FaultKind::Limit, 256));
    }
}

#[test]
fn deep_nesting_is_refused() {
    let text = format!("<Geo.Report><x>{}", "<a>".repeat(10_000));
    assert_eq!(XML.read(text.as_bytes(), report).unwrap_err().kind, FaultKind::TooDeep);
}

#[test]
fn other_kinds() {
    let golden = |options: &str, json: &str, inside: &str| {
        let text = format!("<Everything>{inside}</Everything>");
        assert_golden_record(XML, options, json, &text);
    };
    golden(
        "",
        r#"{"map":{"a":1,"":-2}}"#,
        "<map><entry><key>a</key><value>1</value></entry><entry><key></key><value>-2</value></entry></map>",
    );
    golden("", r#"{"sky":"no"}"#, "<sky>no</sky>");
    golden("enum=number", r#"{"sky":"no"}"#, "<sky>1</sky>");
    golden("", r#"{"colours":9}"#, "<colours>9</colours>");
    golden("bitmask=names", r#"{"colours":9}"#, "<colours>RED 8</colours>");
    golden("bitmask=names", r#"{"colours":0}"#, "<colours></colours>");
    golden("", r#"{"status":{"mode":5,"valid":1}}"#, "<status mode=\"5\" valid=\"1\"></status>");
    golden("", r#"{"wind":{"gust_kt":1.5}}"#, "<wind><gust_kt>1.5</gust_kt></wind>");
    golden("", r#"{"wind":{"note":"x"}}"#, "<wind><note>x</note></wind>");
    golden("", r#"{"wind":{"$discriminator":3,"note":"x"}}"#, "<wind discriminator=\"3\"><note>x</note></wind>");
    golden("", r#"{"wind":{"$discriminator":9,"other":true}}"#, "<wind discriminator=\"9\"><other>true</other></wind>");
    golden("", r#"{"letter":"\u0001","wide":55296}"#, "<letter>_x0001_</letter><wide>_xD800_</wide>");
    golden("", r#"{"letter":" ","wide":"<"}"#, "<letter> </letter><wide>&lt;</wide>");
    golden("", r#"{"rows":[[1,2],[],[3]]}"#, "<rows><item>1 2</item><item></item><item>3</item></rows>");
    golden("", r#"{"long":1.5}"#, "<long>0x3fff8000000000000000000000000000</long>");
    assert_golden_record(
        XML,
        "members=attributes",
        r#"{"sky":"CLEAR","colours":1,"status":{"mode":0,"valid":0},"letter":"<","text":"'\""}"#,
        "<Everything sky=\"CLEAR\" colours=\"1\" letter=\"&lt;\" text=\"'&quot;\"><status mode=\"0\" valid=\"0\"></status></Everything>",
    );
}

#[test]
fn other_forms_of_the_same() {
    let same = |one: &str, other: &str| {
        let read = |text: &str| XML.read_record(&everything(), format!("<Everything>{text}</Everything>").as_bytes());
        assert_eq!(read(one).unwrap(), read(other).unwrap(), "{other}");
    };
    same("<sky>no</sky>", "<sky> 1 </sky>");
    same("<colours>3</colours>", "<colours> BLUE 1 </colours>");
    same("<status mode='5' valid='1'/>", "<status mode='5' other='7' valid='true'></status>");
    same("<status mode='5' valid='1'/>", "<status>13</status>");
    same("<wind discriminator='2'><note>x</note></wind>", "<wind> <note>x</note ><!-- --> </wind>");
    same(
        "<map><entry><key>a</key><value>1</value></entry></map>",
        "<map>\n<p:entry a='1'> <key>a</key><?x?><value>1</value > </p:entry>\n</map>",
    );
    same("<map/>", "<map>  </map>");
    same("<long>1.5</long>", "<long>0x3fff8000000000000000000000000000</long>");
    same("<text/>", "<text></text>");
    let refused = |text: &str| {
        let whole = format!("<Everything>{text}</Everything>");
        assert!(XML.read_record(&everything(), whole.as_bytes()).is_err(), "{text}");
    };
    for text in [
        "<wind/>",
        "<wind><other2>1</other2></wind>",
        "<wind discriminator='1'><note>x</note></wind>",
        "<wind><note>x</note><note>y</note></wind>",
        "<wind><note>x</note></wnd>",
        "<map><entry><value>1</value><key>a</key></entry></map>",
        "<map><entry><key>a</key></entry></map>",
        "<map><entry><key>a</key><value>1</value></map>",
        "<map><entry/></map>",
        "<status mode='8' valid='1'/>",
        "<status mode='1'>1</status>",
        "<letter></letter>",
        "<letter>ab</letter>",
        "<letter>\u{100}</letter>",
        "<sky>yes</sky>",
        "<colours>GREEN</colours>",
        "<rows><item>1 2</item>3</rows>",
    ] {
        refused(text);
    }
}
