//! Hostile files: none makes the compiler panic, hang or use unbounded memory.

use std::time::{Duration, Instant};

use polywire_core::schema::arbitrary::Random;
use polywire_idl::{Compiler, Diagnostics, Dialect, Limits, emit};
use proptest::prelude::*;

/// Real files to mutate.
fn corpus() -> Vec<String> {
    let root = format!("{}/../..", env!("CARGO_MANIFEST_DIR"));
    let mut texts = Vec::new();
    for folder in ["workloads", "conformance/idl-errors", "crates/polywire-idl/tests/golden"] {
        for entry in std::fs::read_dir(format!("{root}/{folder}")).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|e| e == "idl" || e == "pdl") {
                texts.push(std::fs::read_to_string(path).unwrap());
            }
        }
    }
    assert!(texts.len() > 15, "only {} files", texts.len());
    texts
}

/// Compiles in all languages; an accepted text must also be emitted again.
fn survive(text: &str) {
    let loader = |path: &str| Ok((path == "good.idl").then(|| b"struct Good { long x; };".to_vec()));
    for dialect in [Dialect::Idl, Dialect::Pdl, Dialect::Ros] {
        let compiler = Compiler::new().loader(loader);
        match compiler.parse_as("fuzz", text, dialect) {
            Ok(document) => {
                document.warnings().render(true);
                for emitter in emit::EMITTERS {
                    // A name or value that the target cannot express is an error, not a panic.
                    let _ = (emitter.emit)(document.definitions(), document.constants());
                }
            }
            Err(errors) => {
                assert!(errors.errors() > 0);
                assert!(errors.len() <= 2 * Limits::default().diagnostics);
                errors.render(true);
            }
        }
    }
}

/// Cuts, doubles, swaps and replaces pieces of a file, as characters and as words.
fn mutate(random: &mut Random, corpus: &[String]) -> String {
    const PIECES: [&str; 30] = [
        "{",
        "}",
        "(",
        ")",
        "<",
        ">",
        ";",
        ",",
        "::",
        "@",
        "=",
        "\"",
        "'",
        "/*",
        "*/",
        "//",
        "#define X X X\n",
        "#if 1\n",
        "#endif\n",
        "#include \"good.idl\"\n",
        "0x",
        "1e400",
        "99999999999999999999",
        "-",
        "~",
        "\\",
        "\u{e9}",
        "\0",
        "struct",
        "[",
    ];
    let mut text: Vec<char> = random.choose(corpus).chars().collect();
    for _ in 0..1 + random.below(8) {
        let at = random.below(text.len() + 1);
        let end = (at + random.below(40)).min(text.len());
        match random.below(5) {
            _ if random.one_in(20) => text.clear(),
            0 => drop(text.drain(at..end)),
            1 => {
                let piece = text[at..end].to_vec();
                let to = random.below(text.len() + 1);
                text.splice(to..to, piece);
            }
            2 => {
                let other: Vec<char> = random.choose(corpus).chars().collect();
                let from = random.below(other.len());
                let piece = other[from..(from + random.below(200)).min(other.len())].to_vec();
                text.splice(at..end, piece);
            }
            3 => text.truncate(at),
            _ => {
                let piece = random.choose(&PIECES).chars();
                text.splice(at..at, piece);
            }
        }
    }
    text.into_iter().collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        survive(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn random_words(seed in any::<u64>()) {
        const WORDS: [&str; 48] = [
            "module", "struct", "union", "switch", "case", "default", "enum", "bitmask", "bitset", "bitfield", "typedef",
            "const", "sequence", "map", "string", "long", "double", "A", "B", "A::B", "::A", "{", "}", "(", ")", "<", ">",
            "[", "]", ";", ",", ":", "=", "@key", "@id", "@default", "1", "-2", "0x7f", "1.5", "'c'", "\"s\"", "L\"w\"", "TRUE",
            "\n#define A B\n", "\n#pragma keylist A a\n", "probe", "octet",
        ];
        let mut random = Random::new(seed);
        let count = random.below(80);
        let text: Vec<&str> = (0..count).map(|_| *random.choose(&WORDS)).collect();
        survive(&text.join(" "));
    }
}

#[test]
fn mutated_files() {
    let corpus = corpus();
    for seed in 0..2500 {
        let text = mutate(&mut Random::new(seed), &corpus);
        let result = std::panic::catch_unwind(|| survive(&text));
        assert!(result.is_ok(), "seed {seed}:\n{text}");
    }
}

fn refused(text: &str) -> Diagnostics {
    let start = Instant::now();
    let errors = Compiler::new().parse_str("big.idl", text).unwrap_err();
    // Generous, for a loaded machine and a build without optimisation; quadratic time would be
    // minutes.
    assert!(start.elapsed() < Duration::from_secs(20), "took {:?}", start.elapsed());
    errors
}

fn assert_says(errors: &Diagnostics, part: &str) {
    assert!(errors.iter().any(|d| d.message.contains(part)), "no '{part}' in:\n{errors}");
}

#[test]
fn depth_is_limited() {
    let deep = 100_000;
    for (open, middle, close) in [
        ("module a { ", "", "}; "),
        ("const long x = (", "1", ")"),
        ("const long x = - ", "1;", ""),
        ("struct S { sequence<", "long", "> "),
        ("@a(", "1", ")"),
        ("struct S { ", "", "}; "),
    ] {
        refused(&format!("{}{middle}{}", open.repeat(deep), close.repeat(deep)));
    }
    let inside =
        |open: &str, close: &str| format!("struct S {{ {}long{} x; }};", open.repeat(deep), close.repeat(deep));
    assert_says(&refused(&inside("sequence<", ">")), "nested deeper");
    assert_says(&refused(&format!("const long x = {}1{};", "(".repeat(deep), ")".repeat(deep))), "nested deeper");
    assert_says(&refused(&format!("const long x = {}1;", "-".repeat(deep))), "nested deeper");
    assert_says(&refused(&format!("const long x = 1{};", " + 1".repeat(deep))), "operators");
    // Chains of operators inside each other make one tree.
    let nested = (0..60).fold("1".to_owned(), |inner, _| format!("({inner}{})", "+0".repeat(250)));
    assert_says(&refused(&format!("const long x = {nested};")), "operators");
    assert_says(&refused(&format!("struct S {{ long x{}; }};", "[1]".repeat(deep))), "nested deeper");
    assert_says(&refused(&format!("struct S {{ a{} x; }};", "::a".repeat(deep))), "nested deeper");
}

#[test]
fn macros_cannot_explode() {
    let doubling = |last: &str| {
        let levels: String = (0..40).map(|i| format!("#define M{i} M{} M{}\n", i + 1, i + 1)).collect();
        format!("{levels}#define M40 {last}\nM0\n")
    };
    assert_says(&refused(&doubling("x")), "the expansion of macros exceeds");
    assert_says(&refused(&doubling("")), "the expansion of macros exceeds");
    let chain: String = (0..5000).map(|i| format!("#define N{i} N{}\n", i + 1)).collect();
    assert_says(&refused(&format!("{chain}N0")), "the expansion of macros exceeds");
    // Neither in one condition nor in many.
    let long = format!("#define X 0{}\n", "+0".repeat(1000));
    assert_says(&refused(&format!("{long}#if {}\n#endif\n", "X ".repeat(2000))), "tokens in conditions");
    assert_says(&refused(&format!("{long}{}", "#if X\n#endif\n".repeat(2000))), "tokens in conditions");
    let selfish = "#define A B\n#define B A\nstruct A { long x; };\n#if A\n#endif\n";
    assert!(Compiler::new().parse_str("a.idl", selfish).is_ok());
}

#[test]
fn includes_terminate() {
    // Each file includes itself twice inside braces, where files are text and not read just once.
    let loader = |path: &str| Ok((path == "a.idl").then(|| b"#include \"a.idl\"\n#include \"a.idl\"\n".to_vec()));
    let compiler = Compiler::new().loader(loader);
    let errors = compiler.parse_str("main.idl", "module M {\n#include \"a.idl\"\n};").unwrap_err();
    assert_says(&errors, "includes are nested deeper");
    // At the top they are read once.
    let text = "#include \"a.idl\"\nstruct S { long x; };";
    assert!(compiler.parse_str("main.idl", text).is_ok());
}

#[test]
fn size_is_limited() {
    assert_says(&refused(&"; ".repeat(1_500_000)), "tokens");
    assert_says(&refused(&" ".repeat(17 << 20)), "larger than the limit");
    let many: String = (0..5000).map(|i| format!("struct S{i} {{ long x; }};\n")).collect();
    assert_says(&refused(&many), "definitions");
    let members =
        format!("struct S {{ long {}; }};", (0..70_000).map(|i| format!("m{i}")).collect::<Vec<_>>().join(", "));
    assert_says(&refused(&members), "members");
    assert_says(&refused(&format!("struct {} {{ long x; }};", "n".repeat(300))), "longer than the limit");
    assert_says(&refused("struct S { long x[65536][65536]; };"), "bytes of the fixed part");
}

#[test]
fn copied_texts_and_types_count_against_the_limit() {
    let text = "x".repeat(1 << 20);
    let names: Vec<String> = (0..60).map(|i| format!("m{i}")).collect();
    let unit = format!("struct S {{ @unit(\"{text}\") long {}; }};", names.join(", "));
    assert_says(&refused(&unit), "bytes in texts");
    let doc = format!("struct S {{\n/* {text} */\nlong {}; }};", names.join(", "));
    assert_says(&refused(&doc), "bytes in texts");
    let constants: String = (0..60).map(|i| format!("const string C{} = C{i};\n", i + 1)).collect();
    assert_says(&refused(&format!("const string C0 = \"{text}\";\n{constants}")), "bytes in texts");
}

#[test]
fn errors_are_limited() {
    let errors = refused(&"struct { wrong } ; ".repeat(10_000));
    assert_eq!(errors.len(), 50);
    assert!(errors.omitted() > 0);
    let unknown: String = (0..2000).map(|i| format!("struct S{i} {{ Unknown{i} x; }};\n")).collect();
    assert_eq!(refused(&unknown).len(), 50);
}

/// A diagnostic about two places costs the length of their line only if it is kept.
#[test]
fn many_equal_names_on_a_long_line_take_linear_time() {
    let (indent, members) = (" ".repeat(2 << 20), "long a; ".repeat(60_000));
    assert_says(&refused(&format!("struct S {{ {indent}{members}}};")), "duplicate member");
}

/// Lines of definitions of ROS 2, cut, doubled and swapped, and random pieces of them.
#[test]
fn random_definitions_of_ros() {
    const PIECES: [&str; 32] = [
        "int32",
        "uint8",
        "string",
        "<=",
        "wstring<=4",
        "[",
        "]",
        "[<=3]",
        "[]",
        "[0]",
        "[4294967296]",
        "Header",
        "geo/Point",
        "..",
        "/",
        "a",
        "B",
        "=",
        " ",
        "\n",
        "\n",
        "-1",
        "0x",
        "1e400",
        "'",
        "\"",
        "\\",
        "#",
        "---\n",
        "\u{e9}",
        "\t",
        "true",
    ];
    for seed in 0..3000 {
        let mut random = Random::new(seed);
        let text: String = (0..random.below(60)).map(|_| *random.choose(&PIECES)).collect();
        let path = *random.choose(&["p/msg/M.msg", "p/srv/M.srv", "M.action"]);
        let loader = |path: &str| Ok(path.ends_with("Point.msg").then(|| b"float64 x\nHeader h\n".to_vec()));
        match Compiler::new().loader(loader).parse_str(path, &text) {
            Ok(document) => assert!(emit::idl(document.definitions()).is_ok(), "{text}"),
            Err(errors) => assert!(errors.errors() > 0 && !errors.render(true).is_empty(), "{text}"),
        }
    }
}

#[test]
fn definitions_of_ros_are_limited() {
    let limits = Limits { tokens: 30, source_bytes: 100, ..Limits::default() };
    let compiler = Compiler::new().limits(limits);
    let of = |text: &str| compiler.parse_str("p/msg/M.msg", text);
    assert!(of(&"\n".repeat(10)).is_ok());
    assert_says(&of(&"\n".repeat(11)).unwrap_err(), "larger than the limit of 10 lines");
    assert_says(&of(&"#".repeat(101)).unwrap_err(), "larger than the limit of 100 bytes");
    let members: String = (0..70_000).map(|i| format!("int8 a{i}\n")).collect();
    assert_says(&Compiler::new().parse_str("p/msg/M.msg", &members).unwrap_err(), "more than the limit of");
}

#[test]
fn chains_of_packages_are_limited() {
    let loader = |path: &str| {
        let number: u32 = path
            .trim_matches(|c: char| !c.is_ascii_digit())
            .rsplit(|c: char| !c.is_ascii_digit())
            .next()
            .unwrap_or("0")
            .parse()
            .unwrap_or(0);
        Ok(Some(format!("M{} next\n", number + 1).into_bytes()))
    };
    let errors = Compiler::new().loader(loader).parse_str("p/msg/M.msg", "M1 next\n").unwrap_err();
    assert_says(&errors, "files are nested deeper than the limit of 32");
}
