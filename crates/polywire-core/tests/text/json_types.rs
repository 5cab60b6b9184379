//! How each type is encoded as JSON and which other forms are accepted: the tables of
//! `spec/json.md`.

use super::json_support::{coders, evolved, text_of, value_of};
use polywire_core::{
    layout::{Char8, Char16, Float128, Message, Record, Shape},
    program::FaultKind,
    schema::{Case, Def, Member, SchemaBuilder, Type},
};
use polywire_derive::Message;
use std::collections::{BTreeMap, HashMap};

#[derive(Message, Default, Debug, PartialEq, Clone)]
struct Numbers {
    flag: bool,
    a: i8,
    b: u8,
    c: i16,
    d: u16,
    e: i32,
    f: u32,
    g: i64,
    h: u64,
    x: f32,
    y: f64,
}

fn numbers(text: &str) -> Result<Numbers, FaultKind> {
    value_of(text.as_bytes(), Numbers::default).map_err(|error| error.kind)
}

fn with_y(text: &str) -> Result<f64, FaultKind> {
    numbers(&format!("{{\"y\":{text}}}")).map(|numbers| numbers.y)
}

fn with_e(text: &str) -> Result<i32, FaultKind> {
    numbers(&format!("{{\"e\":{text}}}")).map(|numbers| numbers.e)
}

#[test]
fn numbers_are_written_in_the_order_of_the_type() {
    let value = Numbers {
        flag: true,
        a: -128,
        b: 255,
        c: -32768,
        d: 65535,
        e: i32::MIN,
        f: u32::MAX,
        g: i64::MIN,
        h: u64::MAX,
        x: 0.1,
        y: -0.0,
    };
    let text = "{\"flag\":true,\"a\":-128,\"b\":255,\"c\":-32768,\"d\":65535,\"e\":-2147483648,\"f\":4294967295,\
                \"g\":-9223372036854775808,\"h\":18446744073709551615,\"x\":0.1,\"y\":-0.0}";
    assert_eq!(text_of(&value, ""), text);
    assert_eq!(text_of(&value, "int64=number"), text);
    let quoted = text_of(&value, "int64=string");
    assert!(quoted.contains("\"g\":\"-9223372036854775808\",\"h\":\"18446744073709551615\""), "{quoted}");
    for text in [text, &quoted] {
        let back = numbers(text).unwrap();
        assert_eq!(back, value);
        assert!(back.y.is_sign_negative());
    }
}

#[test]
fn members_come_in_any_order_and_blanks_do_not_count() {
    let value = numbers(
        "\n{ \"y\" : 2.5e1 ,\r\n\t\"a\":-1 , \"note\" : [ {\"x\":[]}, null, \"\\u00e9\" ] , \"\\u0065\" : 7 } ",
    )
    .unwrap();
    assert_eq!(value, Numbers { y: 25.0, a: -1, e: 7, ..Numbers::default() });
    assert_eq!(numbers("{}").unwrap(), Numbers::default());
    assert_eq!(numbers("{\"a\":1,\"a\":2}").unwrap().a, 2);
}

#[test]
fn integers_are_exact() {
    let large = |text: &str| numbers(&format!("{{\"h\":{text}}}")).map(|numbers| numbers.h);
    assert_eq!(large("9007199254740993"), Ok(9007199254740993));
    assert_eq!(large("9007199254740993.0"), Ok(9007199254740993));
    assert_eq!(large("1.8446744073709551615e19"), Ok(u64::MAX));
    assert_eq!(large("18446744073709551616"), Err(FaultKind::OutOfRange));
    assert_eq!(large("-1"), Err(FaultKind::OutOfRange));
    assert_eq!(large("\"12\""), Ok(12));
    assert_eq!(large("\"1 2\""), Err(FaultKind::WrongKind));
    assert_eq!(large("\"\""), Err(FaultKind::WrongKind));
    assert_eq!(with_e("1e2"), Ok(100));
    assert_eq!(with_e("-0"), Ok(0));
    assert_eq!(with_e("2147483648"), Err(FaultKind::OutOfRange));
    assert_eq!(with_e("1.5"), Err(FaultKind::OutOfRange));
    assert_eq!(with_e("1e-1"), Err(FaultKind::OutOfRange));
    assert_eq!(with_e("true"), Err(FaultKind::WrongKind));
    assert_eq!(with_e("null"), Err(FaultKind::WrongKind));
    assert_eq!(with_e("{}"), Err(FaultKind::WrongKind));
    for text in ["01", "-01", "+1", "1.", ".5", "0x10", "1e", "--1", "-", "NaN", "1_000", "", "]", "nul"] {
        let refused = with_e(text).unwrap_err();
        assert!(matches!(refused, FaultKind::Syntax | FaultKind::WrongKind), "{text}: {refused:?}");
    }
}

#[test]
fn floats_are_the_nearest_of_their_type() {
    assert_eq!(with_y("0.1"), Ok(0.1));
    assert_eq!(with_y("1"), Ok(1.0));
    assert_eq!(with_y("123456789012345678901234567890"), Ok(123456789012345678901234567890.0));
    assert_eq!(with_y("4.9e-324"), Ok(5e-324));
    assert_eq!(with_y("1e-400"), Ok(0.0));
    assert_eq!(with_y("1e400"), Err(FaultKind::OutOfRange));
    assert_eq!(with_y("\"Infinity\""), Ok(f64::INFINITY));
    assert_eq!(with_y("\"-Infinity\""), Ok(f64::NEG_INFINITY));
    assert!(with_y("\"NaN\"").unwrap().is_nan());
    assert_eq!(with_y("\"nan\""), Err(FaultKind::WrongKind));
    for (text, value) in
        [("\"1.5\"", 1.5), ("\"-99.50\"", -99.5), ("\"1e3\"", 1000.0), ("\"+.5\"", 0.5), ("\"007\"", 7.0)]
    {
        assert_eq!(with_y(text), Ok(value), "{text}");
    }
    for text in ["\"\"", "\"1.5 \"", "\"0x1F\"", "\"1_000\"", "\"1.5.2\"", "\"--1\"", "\"e3\"", "\".\""] {
        assert_eq!(with_y(text), Err(FaultKind::WrongKind), "{text}");
    }
    assert_eq!(with_y("\"1e400\""), Err(FaultKind::OutOfRange));
    let single = |text: &str| numbers(&format!("{{\"x\":{text}}}")).map(|numbers| numbers.x);
    assert_eq!(single("16777217"), Ok(16777216.0));
    assert_eq!(single("1e39"), Err(FaultKind::OutOfRange));
    let text = text_of(&Numbers { x: f32::NAN, y: f64::NEG_INFINITY, ..Numbers::default() }, "");
    assert!(text.ends_with("\"x\":\"NaN\",\"y\":\"-Infinity\"}"), "{text}");
}

#[derive(Message, Debug, PartialEq, Clone, Default)]
struct Texts {
    text: String,
    #[polywire(idl = "wstring<3>")]
    wide: String,
    letter: Char8,
    unit: Char16,
    long: Float128,
}

fn texts(text: &str) -> Result<Texts, FaultKind> {
    value_of(text.as_bytes(), Texts::default).map_err(|error| error.kind)
}

#[test]
fn strings_escape_what_they_must() {
    let all: String = (0..0x30u8).map(char::from).chain("\\\u{7f}ü€😀".chars()).collect();
    let value =
        Texts { text: all, wide: "😀x".into(), letter: Char8(0xE9), unit: Char16(0xD83D), long: Float128::from(1.0) };
    let text = text_of(&value, "");
    let escaped = r##"{"text":"\u0000\u0001\u0002\u0003\u0004\u0005\u0006\u0007\b\t\n\u000b\f\r\u000e\u000f\u0010\u0011\u0012\u0013\u0014\u0015\u0016\u0017\u0018\u0019\u001a\u001b\u001c\u001d\u001e\u001f !\"#$%&'()*+,-./\\"##;
    assert!(text.starts_with(escaped), "{text}");
    assert!(text.ends_with("\u{7f}ü€😀\",\"wide\":\"😀x\",\"letter\":\"é\",\"unit\":55357,\"long\":\"0x3fff0000000000000000000000000000\"}"), "{text}");
    assert_eq!(texts(&text).unwrap(), value);
}

#[test]
fn strings_of_every_length_come_back() {
    for len in 0..100 {
        for odd in ["", "\n", "ü"] {
            let value = Texts { text: "x".repeat(len) + odd + &"y".repeat(len / 3), ..Texts::default() };
            assert_eq!(texts(&text_of(&value, "")).unwrap(), value);
        }
    }
}

#[test]
fn escapes_are_read_in_pairs() {
    let text = |text: &str| texts(&format!("{{\"text\":\"{text}\"}}")).map(|texts| texts.text);
    assert_eq!(text(r#"\ud83d\uDE00\/\b\u00fc"#).unwrap(), "😀/\u{8}ü");
    for lone in [r"\ud83d", r"\ud83dx", r"\ud83d\n", r"\ud83d\u0041", r"\ude00\ud83d", r"\udfff"] {
        assert_eq!(text(lone), Err(FaultKind::BadText), "{lone}");
    }
    for wrong in [r"\x41", r"\u12", r"\u12g4", "\u{1}", "\n", r"\u+123", r"\ud83d\u12g4"] {
        assert_eq!(text(wrong), Err(FaultKind::Syntax), "{wrong:?}");
    }
    assert_eq!(value_of(b"{\"text\":\"a\xFF\"}", Texts::default).unwrap_err().kind, FaultKind::BadText);
    assert_eq!(value_of(b"{\"text\":\"\xC3\\u0041\"}", Texts::default).unwrap_err().offset, 9);
}

#[test]
fn characters_are_one_character() {
    let letter = |text: &str| texts(&format!("{{\"letter\":{text}}}")).map(|texts| texts.letter.0);
    assert_eq!(letter("\"a\""), Ok(b'a'));
    assert_eq!(letter("\"\\u00ff\""), Ok(0xFF));
    assert_eq!(letter("7"), Ok(7));
    assert_eq!(letter("\"€\""), Err(FaultKind::OutOfRange));
    assert_eq!(letter("\"ab\""), Err(FaultKind::WrongKind));
    assert_eq!(letter("\"\""), Err(FaultKind::WrongKind));
    assert_eq!(texts("{\"wide\":\"abcd\"}"), Err(FaultKind::Bound));
    assert_eq!(texts("{\"wide\":\"😀😀\"}"), Err(FaultKind::Bound));
}

#[test]
fn long_doubles_are_digits_or_exact_numbers() {
    let long = |text: &str| texts(&format!("{{\"long\":{text}}}")).map(|texts| texts.long);
    assert_eq!(long("-2.5"), Ok(Float128::from(-2.5)));
    assert_eq!(long("0.1"), Err(FaultKind::OutOfRange));
    assert_eq!(long("\"0x3FFF0000000000000000000000000001\""), Ok(Float128::from_bits(0x3FFF << 112 | 1)));
    assert_eq!(long("\"0x3FFF\""), Err(FaultKind::WrongKind));
    assert_eq!(long("\"Infinity\""), Ok(Float128::from(f64::INFINITY)));
}

#[derive(Message, Clone, Copy, Default, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(i32)]
enum Colour {
    #[default]
    Red = 1,
    Green = 5,
    #[polywire(name = "DEEP_BLUE")]
    Blue = -7,
}

#[derive(Message, Clone, Copy, Default, Debug, PartialEq)]
#[polywire(bitmask(bit_bound = 16, MODE_A = 0, MODE_C = 9))]
struct Modes(pub u16);

#[derive(Message, Clone, Copy, Default, Debug, PartialEq)]
#[polywire(bitset(on(1), level(3, "int8"), _(2), mode(10)))]
struct Setting(pub u16);

#[derive(Message, Clone, Default, Debug, PartialEq)]
struct Named {
    colour: Colour,
    modes: Modes,
    setting: Setting,
    colours: Vec<Colour>,
}

fn named(text: &str) -> Result<Named, FaultKind> {
    value_of(text.as_bytes(), Named::default).map_err(|error| error.kind)
}

#[test]
fn enums_bitmasks_and_bitsets_have_names() {
    // level is -2, on is 1, mode is 5.
    let setting = Setting(1 | 6 << 1 | 5 << 6);
    let value = Named { colour: Colour::Blue, modes: Modes(0x203), setting, colours: vec![Colour::Red, Colour::Green] };
    let text = "{\"colour\":\"DEEP_BLUE\",\"modes\":515,\"setting\":{\"on\":1,\"level\":-2,\"mode\":5},\"colours\":[\"Red\",\"Green\"]}";
    assert_eq!(text_of(&value, ""), text);
    let other = text_of(&value, "enum=number,bitmask=names");
    assert_eq!(
        other,
        "{\"colour\":-7,\"modes\":[\"MODE_A\",\"MODE_C\",2],\"setting\":{\"on\":1,\"level\":-2,\"mode\":5},\"colours\":[1,5]}"
    );
    assert_eq!(named(text).unwrap(), value);
    assert_eq!(named(&other).unwrap(), value);
    let number = setting.0;
    assert_eq!(named(&format!("{{\"setting\":{number}}}")).unwrap().setting, setting);
    assert_eq!(named("{\"setting\":{\"mode\":3,\"else\":[1],\"on\":true}}").unwrap().setting, Setting(1 | 3 << 6));
    assert_eq!(named("{\"modes\":[]}").unwrap().modes, Modes(0));
}

#[test]
fn unknown_names_and_numbers_are_refused() {
    assert_eq!(named("{\"colour\":\"Yellow\"}"), Err(FaultKind::UnknownLiteral));
    assert_eq!(named("{\"colour\":2}"), Err(FaultKind::UnknownLiteral));
    assert_eq!(named("{\"modes\":[\"MODE_B\"]}"), Err(FaultKind::UnknownLiteral));
    assert_eq!(named("{\"modes\":65536}"), Err(FaultKind::OutOfRange));
    assert_eq!(named("{\"setting\":{\"level\":4}}"), Err(FaultKind::OutOfRange));
    assert_eq!(named("{\"setting\":{\"on\":2}}"), Err(FaultKind::OutOfRange));
    assert_eq!(named("{\"colours\":[\"Red\",]}"), Err(FaultKind::Syntax));
}

#[derive(Message, Clone, Default, Debug, PartialEq)]
struct Lists {
    #[polywire(idl = "sequence<octet, 5>")]
    blob: Vec<u8>,
    #[polywire(idl = "octet[4]")]
    fixed: [u8; 4],
    bytes: Vec<u8>,
    matrix: [[i16; 3]; 2],
    cube: [[[String; 1]; 2]; 2],
    floats: Vec<f32>,
    nested: Vec<Vec<u64>>,
    flags: Vec<bool>,
    #[polywire(idl = "sequence<string<4>, 2>")]
    few: Vec<String>,
}

fn lists(text: &str) -> Result<Lists, FaultKind> {
    value_of(text.as_bytes(), full_lists).map_err(|error| error.kind)
}

fn full_lists() -> Lists {
    let s = |text: &str| [String::from(text)];
    Lists {
        blob: vec![0, 255, 16],
        fixed: [1, 2, 3, 4],
        bytes: vec![7, 8],
        matrix: [[1, 2, 3], [-4, -5, -6]],
        cube: [[s("a,]"), s("\"[\\")], [s(""), s("d")]],
        floats: vec![1.5, -0.0, 3.0e9],
        nested: vec![vec![], vec![1], vec![2, u64::MAX]],
        flags: vec![true, false],
        few: vec!["abcd".into()],
    }
}

#[test]
fn lists_nest_and_octets_are_base64() {
    let value = full_lists();
    let text = "{\"blob\":\"AP8Q\",\"fixed\":\"AQIDBA==\",\"bytes\":[7,8],\"matrix\":[[1,2,3],[-4,-5,-6]],\
                \"cube\":[[[\"a,]\"],[\"\\\"[\\\\\"]],[[\"\"],[\"d\"]]],\"floats\":[1.5,-0.0,3000000000.0],\
                \"nested\":[[],[1],[2,18446744073709551615]],\"flags\":[true,false],\"few\":[\"abcd\"]}";
    assert_eq!(text_of(&value, ""), text);
    assert_eq!(lists(text).unwrap(), value);
    let arrays = text_of(&value, "bytes=array,int64=string");
    assert!(arrays.starts_with("{\"blob\":[0,255,16],\"fixed\":[1,2,3,4],"), "{arrays}");
    assert!(arrays.contains("[[],[\"1\"],[\"2\",\"18446744073709551615\"]]"), "{arrays}");
    assert_eq!(lists(&arrays).unwrap(), value);
}

#[test]
fn lists_of_another_length_or_shape_are_refused() {
    assert_eq!(lists("{\"fixed\":[1,2,3]}"), Err(FaultKind::Count));
    assert_eq!(lists("{\"fixed\":[1,2,3,4,5]}"), Err(FaultKind::Count));
    assert_eq!(lists("{\"fixed\":\"AQID\"}"), Err(FaultKind::Count));
    assert_eq!(lists("{\"blob\":\"AQIDBAUG\"}"), Err(FaultKind::Bound));
    assert_eq!(lists("{\"blob\":\"AQI*\"}"), Err(FaultKind::Syntax));
    assert_eq!(lists("{\"blob\":\"AQIDB\"}"), Err(FaultKind::Syntax));
    assert_eq!(lists("{\"few\":[\"a\",\"b\",\"c\"]}"), Err(FaultKind::Bound));
    assert_eq!(lists("{\"few\":[\"abcde\"]}"), Err(FaultKind::Bound));
    for shape in ["[[1,2],[3,4],[5,6]]", "[[1,2,3]]", "[[1,2,3],[4,5]]", "[[1,2,3],[4,5,6],[]]", "[[],[]]", "[]"] {
        assert_eq!(lists(&format!("{{\"matrix\":{shape}}}")), Err(FaultKind::Count), "{shape}");
    }
    assert_eq!(lists("{\"matrix\":[1,2,3,4,5,6]}"), Err(FaultKind::Count));
    assert_eq!(lists("{\"matrix\":[1,2]}"), Err(FaultKind::WrongKind));
    assert_eq!(lists("{\"matrix\":[[1,2,3],[4,5,[6]]]}"), Err(FaultKind::WrongKind));
    assert_eq!(lists("{\"floats\":[1,]}"), Err(FaultKind::Syntax));
    assert_eq!(lists("{\"floats\":[1 2]}"), Err(FaultKind::Syntax));
    let blanks = " { \"matrix\" : [ [ 1 , 2 , 3 ] , [ 4 , 5 , 6 ] ] , \"floats\" : [ ] , \"nested\" : [ [ 1 ] ] } ";
    assert_eq!(lists(blanks).unwrap().matrix, [[1, 2, 3], [4, 5, 6]]);
}

#[derive(Message, Clone, Default, Debug, PartialEq)]
struct Maps {
    by_name: BTreeMap<String, i32>,
    by_number: BTreeMap<i64, Vec<u32>>,
    by_flag: HashMap<bool, String>,
    by_colour: BTreeMap<Colour, bool>,
    by_unit: BTreeMap<Char16, u8>,
    by_letter: BTreeMap<Char8, u8>,
}

#[test]
fn keys_of_maps_are_strings() {
    let value = Maps {
        by_name: [("".into(), 1), ("a\"b".into(), -2)].into(),
        by_number: [(-9223372036854775808, vec![]), (3, vec![1, 2])].into(),
        by_flag: [(true, "yes".into())].into(),
        by_colour: [(Colour::Blue, true)].into(),
        by_unit: [(Char16(0x41), 1), (Char16(0xDC00), 2)].into(),
        by_letter: [(Char8(b'A'), 1)].into(),
    };
    let text = "{\"by_name\":{\"\":1,\"a\\\"b\":-2},\"by_number\":{\"-9223372036854775808\":[],\"3\":[1,2]},\
                \"by_flag\":{\"true\":\"yes\"},\"by_colour\":{\"DEEP_BLUE\":true},\"by_unit\":{\"A\":1,\"56320\":2},\
                \"by_letter\":{\"A\":1}}";
    assert_eq!(text_of(&value, ""), text);
    let read = |text: &str| value_of(text.as_bytes(), Maps::default).map_err(|error| error.kind);
    assert_eq!(read(text).unwrap(), value);
    assert_eq!(read("{\"by_name\":{\"a\":1,\"\\u0061\" : 2}}").unwrap().by_name, [("a".into(), 2)].into());
    assert_eq!(read("{\"by_colour\":{\"5\":true}}").unwrap().by_colour, [(Colour::Green, true)].into());
    assert_eq!(read("{\"by_number\":{3:[]}}"), Err(FaultKind::Syntax));
    assert_eq!(read("{\"by_unit\":{65:1}}"), Err(FaultKind::Syntax));
    assert_eq!(read("{\"by_letter\":{65:1}}"), Err(FaultKind::Syntax));
    assert_eq!(read("{\"by_letter\":{\"65\":1}}").unwrap().by_letter, value.by_letter);
    assert_eq!(read("{\"by_number\":{\"x\":[]}}"), Err(FaultKind::WrongKind));
    assert_eq!(read("{\"by_name\":{\"a\"}}"), Err(FaultKind::Syntax));
    assert_eq!(read("{\"by_name\":[]}"), Err(FaultKind::WrongKind));
}

#[derive(Message, Clone, Default, Debug, PartialEq)]
struct Optionals {
    first: Option<i32>,
    second: Option<String>,
}

#[derive(Message, Clone, Default, Debug, PartialEq)]
struct Mixed {
    before: Option<Box<i32>>,
    always: u8,
    after: Option<Optionals>,
    #[polywire(key)]
    key: u8,
    last: Option<bool>,
}

#[test]
fn absent_members_are_left_out() {
    let empty = Mixed::default();
    assert_eq!(text_of(&empty, ""), "{\"always\":0,\"key\":0}");
    assert_eq!(text_of(&empty, "null=write"), "{\"before\":null,\"always\":0,\"after\":null,\"key\":0,\"last\":null}");
    let full = Mixed {
        before: Some(Box::new(5)),
        always: 1,
        after: Some(Optionals { first: None, second: Some("x".into()) }),
        key: 2,
        last: Some(false),
    };
    let text = "{\"before\":5,\"always\":1,\"after\":{\"second\":\"x\"},\"key\":2,\"last\":false}";
    assert_eq!(text_of(&full, ""), text);
    assert_eq!(text_of(&Optionals::default(), ""), "{}");
    assert_eq!(text_of(&Optionals { first: Some(1), second: None }, ""), "{\"first\":1}");
    for (text, value) in [(text, &full), ("{\"key\":0,\"last\":null,\"after\": null }", &empty)] {
        assert_eq!(value_of(text.as_bytes(), || full.clone()).unwrap(), *value);
    }
    let missing = value_of(b"{}", Mixed::default).unwrap_err();
    assert_eq!((missing.kind, missing.path.as_str()), (FaultKind::MissingMember, "key"));
}

#[derive(Message, Clone, Debug, PartialEq)]
#[polywire(switch_type = "Colour")]
enum Measure {
    #[polywire(case("Red", "Green"))]
    Count(i32),
    #[polywire(default)]
    Text(String),
}

#[derive(Message, Clone, Debug, PartialEq)]
#[polywire(switch = "int32")]
enum Wind {
    #[polywire(case(1))]
    GustKt(f32),
    #[polywire(case(3))]
    Calm(Optionals),
}

#[derive(Message, Clone, Debug, PartialEq)]
struct Unions {
    measure: Measure,
    wind: Vec<Wind>,
}

#[test]
fn unions_are_their_case() {
    let value = Unions { measure: Measure::Count(7), wind: vec![Wind::GustKt(1.5), Wind::Calm(Optionals::default())] };
    let names: Vec<String> = match &Unions::shape().schema().defs().iter().find(|d| d.name == "Wind").unwrap().kind {
        polywire_core::schema::DefKind::Union { cases, .. } => cases.iter().map(|c| c.member.name.clone()).collect(),
        other => panic!("{other:?}"),
    };
    let (gust, calm) = (&names[0], &names[1]);
    let text = text_of(&value, "");
    assert!(text.ends_with(&format!("\"wind\":[{{\"{gust}\":1.5}},{{\"{calm}\":{{}}}}]}}")), "{text}");
    let read = |text: &str| value_of(text.as_bytes(), || value.clone()).map_err(|error| error.kind);
    assert_eq!(read(&text).unwrap(), value);
    let wind = |text: &str| read(&format!("{{\"wind\":[{text}]}}")).map(|unions| unions.wind);
    assert_eq!(wind(&format!(" {{ \"$discriminator\" : 1 , \"{gust}\" : 2 }} ")), Ok(vec![Wind::GustKt(2.0)]));
    assert_eq!(wind(&format!("{{\"$discriminator\":3,\"{gust}\":2}}")), Err(FaultKind::UnknownCase));
    assert_eq!(wind("{\"$discriminator\":1}"), Err(FaultKind::MissingMember));
    assert_eq!(wind(&format!("{{\"{gust}\":2,\"$discriminator\":1}}")), Err(FaultKind::UnknownCase));
    assert_eq!(wind("{\"storm\":2}"), Err(FaultKind::UnknownCase));
    assert_eq!(wind("{}"), Err(FaultKind::UnknownCase));
    let default = Unions { measure: Measure::Text("x".into()), wind: vec![] };
    let text = text_of(&default, "");
    assert!(text.starts_with("{\"measure\":{\"$discriminator\":\"DEEP_BLUE\","), "{text}");
    assert_eq!(read(&text).unwrap(), default);
    assert_eq!(read(&text_of(&default, "enum=number")).unwrap(), default);
    assert_eq!(read(&text.replace("\"$discriminator\":\"DEEP_BLUE\",", "")).unwrap(), default);
}

#[test]
fn a_member_follows_the_comma_behind_a_discriminator() {
    let mut types = SchemaBuilder::new();
    let wind = types.add(Def::union("Wind", Type::Int32, vec![Case::new([1], "gust_kt", Type::Int32)]));
    let root = types.add(Def::structure("Report", vec![Member::new("wind", Type::Def(wind))]));
    let shape = Shape::of(&types.finish(Type::Def(root)).unwrap()).unwrap();
    for (_, decoder) in coders(&shape, "") {
        let read = |union: &str| {
            let text = format!("{{\"wind\":{union}}}");
            decoder.decode(text.as_bytes(), &mut Record::new(&shape)).err().map(|error| error.kind)
        };
        assert_eq!(read("{\"$discriminator\":9}"), None);
        assert_eq!(read("{\"$discriminator\": 1 , \"gust_kt\":5}"), None);
        for text in ["{\"$discriminator\":9,}", "{\"$discriminator\":1,}", "{\"$discriminator\":9,,}"] {
            assert_eq!(read(text), Some(FaultKind::Syntax), "{text}");
        }
    }
}

#[derive(Message, Clone, Debug, PartialEq)]
#[polywire(switch = "int64")]
enum Large {
    #[polywire(case(1))]
    One(u8),
    #[polywire(case(9007199254740993, -5))]
    Many(i64),
    #[polywire(default)]
    Other(bool),
}

/// `int64=string` is for whoever has doubles only; a discriminator of 64 bits is no exception.
#[test]
fn discriminators_of_64_bits_are_strings_if_asked() {
    #[derive(Message, Clone, Debug, PartialEq)]
    struct Holder {
        large: Large,
    }
    let text = "{\"large\":{\"$discriminator\":\"0\",\"Other\":true}}";
    let holder = Holder { large: Large::Other(true) };
    assert_eq!(text_of(&holder, "int64=string"), text);
    assert_eq!(text_of(&holder, ""), text.replace("\"0\"", "0"));
    let read = |text: &str| value_of(text.as_bytes(), || holder.clone()).map_err(|error| error.kind);
    assert_eq!(read(text), Ok(holder.clone()));
    let large = |text: &str| read(&format!("{{\"large\":{text}}}")).map(|holder| holder.large);
    assert_eq!(large("{\"$discriminator\":\"-5\",\"Many\":\"7\"}"), Ok(Large::Many(7)));
    assert_eq!(large("{\"$discriminator\":\"9007199254740993\",\"Many\":7}"), Ok(Large::Many(7)));
    assert_eq!(large("{\"$discriminator\":\"x\",\"Many\":7}"), Err(FaultKind::WrongKind));
}

#[derive(Message, Clone, Debug, PartialEq, Default)]
struct Decimal {
    exponent: i32,
    mantissa: i64,
}

#[derive(Message, Clone, Debug, PartialEq, Default)]
struct Trade {
    price: Decimal,
    fee: Option<Decimal>,
    levels: Vec<Decimal>,
}

fn trade(exponent: i32, mantissa: i64) -> Trade {
    Trade { price: Decimal { exponent, mantissa }, ..Trade::default() }
}

/// Both parts are kept: the places say the exponent.
#[test]
fn decimals_are_numbers() {
    for (exponent, mantissa, text) in [
        (-2, 9950, "99.50"),
        (0, 26, "26"),
        (-2, -5, "-0.05"),
        (-2, 0, "0.00"),
        (-1, i64::MIN, "-922337203685477580.8"),
        (-18, i64::MAX, "9.223372036854775807"),
        (-18, 1, "0.000000000000000001"),
        (-19, 1, "1e-19"),
        (3, 26, "26e+3"),
        (i32::MIN, -1, "-1e-2147483648"),
        (i32::MAX, 0, "0e+2147483647"),
    ] {
        let (value, text) = (trade(exponent, mantissa), format!("{{\"price\":{text},\"levels\":[]}}"));
        if exponent.unsigned_abs() < 1 << 30 {
            assert_eq!(value_of(text.as_bytes(), Trade::default), Ok(value.clone()), "{text}");
        }
        assert_eq!(text_of(&value, ""), text);
    }
    let value =
        Trade { fee: Some(Decimal { exponent: -1, mantissa: 5 }), levels: vec![Decimal::default(); 2], ..trade(0, 1) };
    let text = "{\"price\":1,\"fee\":0.5,\"levels\":[0,0]}";
    assert_eq!(text_of(&value, ""), text);
    assert_eq!(value_of(text.as_bytes(), Trade::default), Ok(value));
}

#[test]
fn decimals_are_read_in_all_forms() {
    let read = |text: &str| {
        let text = format!("{{\"price\":{text}}}");
        value_of(text.as_bytes(), Trade::default)
            .map(|trade| (trade.price.exponent, trade.price.mantissa))
            .map_err(|e| e.kind)
    };
    for (text, parts) in [
        ("{\"exponent\":-2,\"mantissa\":9950}", (-2, 9950)),
        ("{\"mantissa\":9950}", (0, 9950)),
        (" 26e0 ", (0, 26)),
        ("2.60e1", (-1, 260)),
        ("\"99.50\"", (-2, 9950)),
        ("\"-.5\"", (-1, -5)),
        ("0.0000000000000000000000001", (-25, 1)),
        ("-0.0", (-1, 0)),
    ] {
        assert_eq!(read(text), Ok(parts), "{text}");
    }
    for text in ["9223372036854775808", "1e3000000000", "0.12345678901234567890"] {
        assert_eq!(read(text), Err(FaultKind::OutOfRange), "{text}");
    }
    for text in ["true", "[1]", "\"x\"", "\"\""] {
        assert_eq!(read(text), Err(FaultKind::WrongKind), "{text}");
    }
    // A reader that does not have the member passes over it.
    #[derive(Message, Clone, Debug, PartialEq, Default)]
    struct Other {
        levels: Vec<Decimal>,
    }
    let other = evolved(Trade::shape().schema(), b"{\"price\":1.5,\"levels\":[2]}", Other::default).unwrap();
    assert_eq!(other.levels, [Decimal { exponent: 0, mantissa: 2 }]);
    // One whose parts are wider has them, too.
    #[derive(Message, Clone, Debug, PartialEq, Default)]
    struct Wider {
        exponent: i64,
        mantissa: i64,
        note: u8,
    }
    #[derive(Message, Clone, Debug, PartialEq, Default)]
    struct WiderTrade {
        price: Wider,
    }
    let wider = evolved(Trade::shape().schema(), b"{\"price\":-1.5}", WiderTrade::default).unwrap();
    assert_eq!(wider.price, Wider { exponent: -1, mantissa: -15, note: 0 });
}

#[test]
fn a_line_is_a_message_unless_it_is_pretty() {
    let value = Mixed { after: Some(Optionals { first: Some(1), second: Some("a\n{,".into()) }), ..Mixed::default() };
    assert!(!text_of(&value, "").contains('\n'));
    let pretty =
        "{\n  \"always\": 0,\n  \"after\": {\n    \"first\": 1,\n    \"second\": \"a\\n{,\"\n  },\n  \"key\": 0\n}";
    assert_eq!(text_of(&value, "pretty"), pretty);
    assert_eq!(text_of(&Optionals::default(), "pretty"), "{}");
    assert_eq!(value_of(pretty.as_bytes(), Mixed::default).unwrap(), value);
}
