//! How each type is encoded as YAML and which forms are accepted; the YAML test suite; another
//! reader of our texts; hostile input.

use super::text_support::{Format, assert_golden, assert_golden_record, everything};
use polywire_core::{
    program::{FaultKind, Limits},
    schema::arbitrary::Random,
};
use polywire_derive::Message;
use polywire_testing::{corpus, tools};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const YAML: Format = Format("yaml");
const FLOW: Format = Format("yaml-flow");

#[derive(Message, Debug, PartialEq, Clone, Default)]
#[polywire(name = "Geo::Place")]
struct Place {
    latitude_deg: f64,
    name: String,
    tags: Vec<String>,
}

#[derive(Message, Debug, PartialEq, Clone, Default)]
#[polywire(name = "Geo::Report")]
struct Report {
    station: String,
    on: bool,
    places: Vec<Place>,
    counts: Vec<i32>,
    #[polywire(idl = "sequence<octet>")]
    blob: Vec<u8>,
    rows: Vec<Vec<f32>>,
    remark: Option<String>,
    inner: Place,
}

fn report() -> Report {
    let place = |name: &str| Place { latitude_deg: 48.5, name: name.into(), tags: vec!["no".into(), "a b".into()] };
    Report {
        station: "EDDM".into(),
        on: true,
        places: vec![place("- x"), place("12")],
        counts: vec![1, -2],
        blob: vec![0, 255, 16],
        rows: vec![vec![1.0, f32::NAN], vec![], vec![f32::NEG_INFINITY]],
        remark: Some("null".into()),
        inner: Place { name: "\u{85}\u{2028}\u{FEFF}\u{1}\"".into(), ..Place::default() },
    }
}

#[test]
fn block_style() {
    let text = r#"station: EDDM
"on": true
places:
  - latitude_deg: 48.5
    name: "- x"
    tags: ["no",a b]
  - latitude_deg: 48.5
    name: "12"
    tags: ["no",a b]
counts: [1,-2]
blob: AP8Q
rows:
  - [1.0,.nan]
  - []
  - [-.inf]
remark: "null"
inner:
  latitude_deg: 0.0
  name: "\u0085\u2028\ufeff\u0001\""
  tags: []"#;
    assert_golden(YAML, "", &report(), text);
}

#[test]
fn flow_style() {
    let text = r#"{station: EDDM,"on": true,places: [{latitude_deg: 48.5,name: "- x",tags: ["no",a b]},{latitude_deg: 48.5,name: "12",tags: ["no",a b]}],counts: [1,-2],blob: AP8Q,rows: [[1.0,.nan],[],[-.inf]],remark: "null",inner: {latitude_deg: 0.0,name: "\u0085\u2028\ufeff\u0001\"",tags: []}}"#;
    assert_golden(FLOW, "", &report(), text);
}

#[test]
fn other_kinds() {
    let golden = |options: &str, json: &str, block: &str, flow: &str| {
        assert_golden_record(YAML, options, json, block);
        assert_golden_record(FLOW, options, json, flow);
    };
    golden("", r#"{}"#, "{}", "{}");
    golden("", r#"{"map":{"no":-2}}"#, "map:\n  \"no\": -2", "{map: {\"no\": -2}}");
    golden("", r#"{"sky":"no"}"#, "sky: \"no\"", "{sky: \"no\"}");
    golden("enum=number", r#"{"sky":"no"}"#, "sky: 1", "{sky: 1}");
    golden("bitmask=names", r#"{"colours":9}"#, "colours: [RED,8]", "{colours: [RED,8]}");
    golden("", r#"{"status":{"mode":5,"valid":1}}"#, "status:\n  mode: 5\n  valid: 1", "{status: {mode: 5,valid: 1}}");
    golden("", r#"{"wind":{"note":"x"}}"#, "wind:\n  note: x", "{wind: {note: x}}");
    golden(
        "",
        r#"{"wind":{"$discriminator":3,"note":"x"}}"#,
        "wind:\n  \"$discriminator\": 3\n  note: x",
        "{wind: {\"$discriminator\": 3,note: x}}",
    );
    golden("", r#"{"texts":["","é"]}"#, "texts: [\"\",\"é\"]", "{texts: [\"\",\"é\"]}");
    golden(
        "",
        r#"{"real":"Infinity","text":"Infinity"}"#,
        "text: \"Infinity\"\nreal: .inf",
        "{text: \"Infinity\",real: .inf}",
    );
    let key = "k".repeat(1200);
    let json = format!(r#"{{"map":{{"{key}":1}}}}"#);
    golden("", &json, &format!("map:\n  ? {key}\n  : 1"), &format!("{{map: {{? {key} : 1}}}}"));
}

/// Everything of YAML that is not a matter of style only.
#[test]
fn what_else_is_read() {
    let texts = [
        "%YAML 1.2\n---\n# comment\nstation: 'EDDM' # more\non: True\ncounts:\n- 0x1\n- -2\nremark: ~\n...\n",
        "\u{FEFF}{station: \"E\\x44DM\", 'on': true, counts: [ +1 , -2,], }",
        "!!map\nstation: !!str EDDM\non: !!bool true\ncounts: !!seq [!!int 1, -0002]\nunknown: {? [a, b] : c}\n",
        "station: >-\n  EDDM\non: &flag true\ncounts: [1,\n  -2]\nblob: !!binary |\n  \n",
        "counts: [0o1, -2.0]\nstation: EDDM\non: true",
    ];
    let expected = Report { station: "EDDM".into(), on: true, counts: vec![1, -2], ..Report::default() };
    for (i, text) in texts.iter().enumerate() {
        for format in [YAML, FLOW] {
            let read = format.read(text.as_bytes(), report);
            if i == 2 {
                // The values here cannot have a collection as a key, not even in a skipped value.
                assert_eq!(read.unwrap_err().kind, FaultKind::WrongKind);
                continue;
            }
            assert_eq!(read.unwrap_or_else(|error| panic!("{text}: {error}")), expected, "{text}");
        }
    }
}

#[test]
fn floats_by_all_their_names() {
    let read = |text: &str| YAML.read_record(&everything(), format!("real: {text}").as_bytes());
    for (text, value) in
        [(".inf", f64::INFINITY), ("-.INF", f64::NEG_INFINITY), ("1.", 1.0), (".5", 0.5), ("1e3", 1000.0), ("12", 12.0)]
    {
        assert_eq!(read(text).unwrap().f64("real").unwrap(), value, "{text}");
    }
    assert!(read(".nan").unwrap().f64("real").unwrap().is_nan());
    for text in ["inf", "1_000", "1:30", "yes", "0x1.8", "1 2"] {
        assert!(read(text).is_err(), "{text}");
    }
}

/// YAML 1.1 takes a number with an exponent for one only if it has a point and the exponent a sign.
#[test]
fn floats_are_floats_to_yaml_1_1_too() {
    for (json, text) in [
        ("1e16", "1.0e+16"),
        ("5e-324", "5.0e-324"),
        ("-1e300", "-1.0e+300"),
        ("1.5e300", "1.5e+300"),
        ("1.25", "1.25"),
        ("1e-7", "1.0e-7"),
    ] {
        let value = format!("{{\"real\":{json}}}");
        assert_golden_record(YAML, "", &value, &format!("real: {text}"));
        assert_golden_record(FLOW, "", &value, &format!("{{real: {text}}}"));
    }
    let rows = Report { rows: vec![vec![1e16, -1e-20, 0.5]], ..Report::default() };
    assert!(YAML.write(&rows, "").contains("rows:\n  - [1.0e+16,-1.0e-20,0.5]"), "{}", YAML.write(&rows, ""));
}

/// A decimal keeps its two parts, even if an exponent needs a point.
#[test]
fn decimals_keep_their_parts() {
    #[derive(Message, Debug, PartialEq, Clone, Default)]
    struct Decimal {
        exponent: i32,
        mantissa: i64,
    }
    #[derive(Message, Debug, PartialEq, Clone, Default)]
    struct Trade {
        price: Decimal,
        levels: Vec<Decimal>,
    }
    for (exponent, mantissa, text) in [(-2, 9950, "99.50"), (0, 26, "26"), (3, 26, "26.e+3"), (-30, -1, "-1.e-30")] {
        let decimal = Decimal { exponent, mantissa };
        let value = Trade { price: decimal.clone(), levels: vec![decimal] };
        assert_golden(YAML, "", &value, &format!("price: {text}\nlevels: [{text}]"));
        assert_golden(FLOW, "", &value, &format!("{{price: {text},levels: [{text}]}}"));
    }
    let fifteen = Decimal { exponent: 0, mantissa: 15 };
    let read = YAML.read(b"price: 0o17\nlevels: [0o17]", Trade::default);
    assert_eq!(read, Ok(Trade { price: fifteen.clone(), levels: vec![fifteen] }));
}

/// Scalars that are strings in YAML 1.1 and numbers in YAML 1.2 are read as either: PyYAML writes
/// such strings without quotes.
#[test]
fn numbers_of_yaml_1_2_alone_may_be_strings() {
    for text in ["0o7", "1e3", "1E5", "12e03", "1.5e3", ".5e3", "08", "089", "-.5", "+.5"] {
        for format in [YAML, FLOW] {
            let read = format.read(format!("{{station: {text}}}").as_bytes(), report);
            assert_eq!(read.unwrap_or_else(|error| panic!("{text}: {error}")).station, text);
        }
    }
    for (text, value) in [("0o17", 15), ("1e3", 1000), ("08", 8), ("1.5e3", 1500), ("+1e3", 1000)] {
        for format in [YAML, FLOW] {
            let read = format.read(format!("{{counts: [1, {text}]}}").as_bytes(), report).unwrap();
            assert_eq!(read.counts, [1, value], "{text}");
        }
    }
    for (text, value) in
        [("0o17", 15.0), ("1e3", 1000.0), ("-.5", -0.5), (".5e3", 500.0), ("08", 8.0), ("+1e-3", 0.001)]
    {
        let read = YAML.read_record(&everything(), format!("real: {text}").as_bytes()).unwrap();
        assert_eq!(read.f64("real").unwrap(), value, "{text}");
    }
    let sky = |text: &str| YAML.read_record(&everything(), format!("sky: {text}").as_bytes()).unwrap();
    assert_eq!(sky("0o1"), sky("1"));
    // Without a type it is what YAML 1.2 says.
    let json = polywire_core::codec::yaml::to_json(b"[0o17, 1e3, 08]", &Limits::default()).unwrap();
    assert_eq!(json, b"[15,1e3,8]");
    for text in ["12", "0x1F", "017", "1.5", "1.0e+3", "true", "~"] {
        assert!(YAML.read(format!("station: {text}").as_bytes(), report).is_err(), "{text}");
    }
}

#[test]
fn aliases_repeat_what_they_stand_for() {
    let place = Place { latitude_deg: 48.5, name: "a".into(), tags: vec!["x".into(), "x".into()] };
    let expected =
        Report { station: "x".into(), places: vec![place.clone(), place.clone()], inner: place, ..Report::default() };
    for text in [
        // As PyYAML writes objects that are shared.
        "station: x\nplaces:\n- &id001\n  latitude_deg: 48.5\n  name: a\n  tags:\n  - x\n  - x\n- *id001\ninner: *id001\n",
        "{station: &s x, places: [&p {latitude_deg: 48.5, name: a, tags: [*s , *s ]}, *p ], inner: *p }",
        "&k station: &x x\nplaces: &p [{latitude_deg: &d 48.5, name: a, tags: &t [*x , *x ]}, {latitude_deg: *d , name: a, tags: *t }]\n\
         inner: {latitude_deg: 48.5, name: a, tags: *t }\nunknown: {*k : *p }",
    ] {
        for format in [YAML, FLOW] {
            assert_eq!(
                format.read(text.as_bytes(), report).unwrap_or_else(|e| panic!("{text}: {e}")),
                expected,
                "{text}"
            );
        }
    }
    // Errors inside have the alias's place.
    let bad = "station: &a [x]\nremark: *a";
    let error = YAML.read(bad.as_bytes(), report).unwrap_err();
    assert_eq!((error.kind, error.path.as_str(), error.offset), (FaultKind::WrongKind, "station", 9));
    let bad = "unknown: &a [x]\nremark: *a";
    let error = YAML.read(bad.as_bytes(), report).unwrap_err();
    assert_eq!((error.kind, error.path.as_str(), error.offset), (FaultKind::WrongKind, "remark", 24));
}

/// A billion laughs: nine levels of ten aliases each. The work ends at the bound on what aliases
/// write.
#[test]
fn aliases_repeat_within_a_bound() {
    let mut text = "a0: &a0 [ha, ha, ha, ha, ha, ha, ha, ha, ha, ha]\n".to_string();
    for level in 1..10 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        text += &format!("a{level}: &a{level} [{aliases} ]\n");
    }
    for format in [YAML, FLOW] {
        // So short a message may not cost as much as the bound; with more memory the bound holds.
        assert_eq!(format.read(text.as_bytes(), report).unwrap_err().kind, FaultKind::Limit);
        let limits = Limits { free_bytes: 64 << 20, ..Limits::default() };
        let error = format.read_within::<Report>(text.as_bytes(), limits).unwrap_err();
        assert_eq!((error.kind, error.expected), (FaultKind::Limit, 4 << 20), "{error}");
    }
    let limits = Limits { memory_bytes: 100_000, ..Limits::default() };
    assert_eq!(YAML.read_within::<Report>(text.as_bytes(), limits).unwrap_err().kind, FaultKind::Limit);
}

#[test]
fn what_is_refused_and_where() {
    let cases = [
        ("counts: [1, x]", FaultKind::WrongKind, "counts", 12),
        ("counts: [1, 2147483648]", FaultKind::OutOfRange, "counts", 12),
        ("station: 12", FaultKind::WrongKind, "station", 9),
        ("station: ü\non: 7", FaultKind::WrongKind, "on", 16),
        ("places:\n  - name: a\n  - name: [b]", FaultKind::WrongKind, "places[1].name", 30),
        ("station: &a [x, *a]", FaultKind::Forbidden, "", 16),
        ("station: *a", FaultKind::Syntax, "", 9),
        ("station: &a [x]\n? *a\n: 1", FaultKind::WrongKind, "", 18),
        ("station: !mine x", FaultKind::Forbidden, "", 9),
        ("station: a\n---\nstation: b", FaultKind::Trailing, "", 11),
        ("", FaultKind::Truncated, "", 0),
        ("station: [a", FaultKind::Syntax, "", 11),
        ("station: \u{1}", FaultKind::BadText, "", 9),
    ];
    for (text, kind, path, offset) in cases {
        for format in [YAML, FLOW] {
            let error = format.read(text.as_bytes(), report).expect_err(text);
            assert_eq!((error.kind, error.path.as_str(), error.offset), (kind, path, offset), "{text}: {error}");
        }
    }
}

#[derive(Message, Default, Debug, PartialEq, Clone)]
struct Tree {
    value: u8,
    name: String,
    branches: Vec<Tree>,
}

fn tree() -> Tree {
    let leaf = Tree { value: 7, name: "\u{1}ü: -".into(), branches: vec![] };
    Tree { branches: vec![leaf.clone(), Tree { branches: vec![leaf.clone()], ..leaf.clone() }], ..leaf }
}

#[test]
fn texts_cut_at_every_byte_do_no_harm() {
    for format in [YAML, FLOW] {
        let (text, read) = (format.write(&tree(), "").into_bytes(), format.reader::<Tree>());
        for len in 0..text.len() {
            match read(&text[..len]) {
                // A block that ends early may be a whole one of less.
                Ok(_) => assert_eq!(format.0, "yaml"),
                Err(error) => assert!(error.offset <= len, "{error}"),
            }
        }
    }
}

#[test]
fn flipped_bytes_do_no_harm() {
    let mut random = Random::new(12);
    for format in [YAML, FLOW] {
        let (text, read) = (format.write(&tree(), "").into_bytes(), format.reader::<Tree>());
        for at in 0..text.len() {
            for _ in 0..24 {
                let mut bad = text.clone();
                bad[at] = *random.choose(b"<>&;/\"'=! \n\t\0-]?x0\x80\xFF:*&|>{}[],%@`#~");
                let _ = read(&bad);
            }
        }
    }
}

#[test]
fn depth_is_limited_typed_or_not() {
    let nested = |n: usize| format!("{{branches: [{}]}}", "{branches: [".repeat(n) + &"]}".repeat(n));
    let unknown = |n: usize| format!("x: {}", "[".repeat(n) + &"]".repeat(n));
    let lines = |n: usize| (0..n).map(|i| format!("{}x:\n", " ".repeat(i))).collect::<String>();
    let dashes = |n: usize| format!("x:\n  {}1", "- ".repeat(n));
    for format in [YAML, FLOW] {
        assert!(format.read(nested(10).as_bytes(), Tree::default).is_ok());
        for text in [nested(10_000), unknown(10_000), lines(2_000), dashes(10_000)] {
            let error = format.read(text.as_bytes(), Tree::default).unwrap_err();
            assert!(matches!(error.kind, FaultKind::TooDeep | FaultKind::Syntax), "{error}");
        }
    }
}

#[test]
fn memory_stays_within_its_limit() {
    let limits = Limits { memory_bytes: 10_000, ..Limits::default() };
    let long = format!("name: {}", "x".repeat(20_000));
    for format in [YAML, FLOW] {
        assert_eq!(format.read_within::<Tree>(long.as_bytes(), limits).unwrap_err().kind, FaultKind::Limit);
    }
    // The offsets of a thousand scalars take more than their text. Only some of them are recorded
    // then.
    let scalars = format!("{{unknown: [{}1]}}", "1,".repeat(999));
    assert_eq!(YAML.read_within::<Tree>(scalars.as_bytes(), limits), Ok(Tree::default()));
    let wrong = scalars.replace("1]}", "1], name: [}");
    assert!(YAML.read_within::<Tree>(wrong.as_bytes(), limits).is_err());
}

/// Texts of the suite that are wrong are refused; of those that are right all are read that are one
/// document without tags of their own and collections as keys, and mean what the suite says.
#[test]
fn the_suite_is_judged_as_it_says() {
    let Some(suite) = corpus("yaml") else { return };
    let (mut read, mut refused) = (0, 0);
    for folder in folders(&suite) {
        let Ok(yaml) = fs::read(folder.join("in.yaml")) else { continue };
        let inside = wrapped(&yaml);
        let name = folder.strip_prefix(&suite).unwrap().display().to_string();
        let outcome = polywire_core::codec::yaml::to_json(&yaml, &Limits::default());
        if folder.join("error").exists() {
            assert!(outcome.is_err(), "{name} is accepted");
            refused += 1;
            continue;
        }
        let events = fs::read_to_string(folder.join("test.event")).unwrap();
        let json = fs::read_to_string(folder.join("in.json")).unwrap_or_default();
        match outcome {
            Ok(json_read) => {
                let ours: serde_json::Value =
                    serde_json::from_slice(&json_read).unwrap_or_else(|e| panic!("{name}: {e}"));
                // Base64 comes without the line breaks of its block.
                let binary = events.contains("tag:yaml.org,2002:binary");
                if let (false, Ok(theirs)) = (binary, serde_json::from_str::<serde_json::Value>(&json)) {
                    assert_eq!(ours, theirs, "{name}");
                    read += 1;
                }
            }
            Err(error) => {
                let by_name = matches!(error.kind, FaultKind::Forbidden | FaultKind::WrongKind | FaultKind::Trailing);
                let empty = error.kind == FaultKind::Truncated && !events.contains("+DOC");
                assert!(by_name || empty, "{name}: {error}\n{}", String::from_utf8_lossy(&yaml));
            }
        }
        // As an unknown member of a structure.
        let _ = YAML.read(&inside, Tree::default);
    }
    assert!(read > 180 && refused > 80, "{read} read, {refused} refused");
}

/// Indented under a key.
fn wrapped(yaml: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(yaml);
    let lines = text.lines().map(|line| format!("  {line}\n"));
    format!("x:\n{}", lines.collect::<String>()).into_bytes()
}

fn folders(suite: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![suite.to_path_buf()];
    while let Some(folder) = open.pop() {
        open.extend(fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()));
        found.push(folder);
    }
    found.sort();
    found
}

/// PyYAML, which reads YAML 1.1, finds the same values of the same kinds in the texts that we
/// write.
#[test]
fn pyyaml_reads_what_we_write() {
    let words = [
        "no",
        "y",
        "on",
        "~",
        "null",
        "1",
        "0x1F",
        "1_000",
        "1:20",
        "2001-12-14",
        "<<",
        "=",
        ".inf",
        "1e5",
        "12e03",
        "a: b",
        "a #b",
        "- a",
        "? a",
        "&a",
        "*a",
        "!a",
        "%a",
        "@a",
        "`a",
        "'a'",
        "\"",
        "\\",
        " a",
        "a ",
        "a\nb",
        "a\tb",
        "\u{1}",
        "\u{7f}",
        "\u{85}",
        "\u{2028}",
        "\u{feff}",
        "ü",
        "😀",
        "",
        "EDDM",
        "a b c",
        "x-y/z.w+v",
        "None",
        "NaN",
        "_",
        "__",
        "e",
        "E",
        "true",
        "FALSE",
        "Off",
        "0o7",
        "1e3",
        "08",
        "-.5",
    ];
    if !tools::python_has("yaml") {
        return;
    }
    let reals = [0.5, 1e16, 5e-324, -1e300, 1e-7, 1.5e300];
    for (format, real) in [YAML, FLOW].into_iter().flat_map(|format| reals.map(|real| (format, real))) {
        let json = serde_json::json!({ "texts": words.to_vec(), "map": {"no": 1, "a b": 2, "": 3}, "real": real, "big": -9007199254740993i64 });
        let record = polywire_core::layout::Record::from_json(&everything(), &json.to_string()).unwrap();
        let text = format.write_record(&record, "").unwrap();
        assert_eq!(format.read_record(&everything(), text.as_bytes()).unwrap(), record);
        let script = "import sys, json, yaml\nprint(json.dumps(yaml.safe_load(sys.stdin.buffer.read())))";
        let mut python = Command::new(tools::python());
        let output = tools::output_of(python.args(["-c", script]), text.as_bytes());
        let output = output.unwrap_or_else(|error| panic!("{error}\n{text}"));
        let read: serde_json::Value = serde_json::from_slice(&output).unwrap();
        assert_eq!(read, json, "{text}");
    }
}
