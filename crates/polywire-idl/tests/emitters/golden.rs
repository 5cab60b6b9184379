//! The output of the emitters: word for word for the workloads, and Rust that parses for random
//! schemas.
//!
//! `POLYWIRE_BLESS=1` rewrites `tests/golden`. Review it before you commit it.

use std::path::Path;

use polywire_core::schema::arbitrary::Random;
use polywire_idl::{Compiler, Document, emit};
use proptest::prelude::*;

const KINDS: &str = r#"
module Other { struct Inner { long x; }; };
module Kinds {
  /// How large things are.
  const unsigned long LARGE = 1 << 6;
  const string GREETING = "hello \"you\"";
  const float RATIO = 0.1;
  @bit_bound(8) enum Colour { @value(1) RED, @default_literal @value(4) DARK_GREEN };
  const Colour FAVOURITE = DARK_GREEN;
  @bit_bound(12) bitmask Flags { READ, @position(9) WRITE_BACK };
  bitset Base { bitfield<3> low; bitfield<1> bit; };
  bitset Status : Base { bitfield<4>; bitfield<5, int8> signed_part; };
  typedef sequence<octet, 16> Digest;
  @nested @final struct Header { @key long id; };
  @mutable @autoid(HASH)
  struct Everything : Header {
    /// Not a Rust name.
    @id(7) boolean type;
    boolean isEcho;
    @must_understand octet raw;
    char letter;
    wchar wide;
    wstring<4> text;
    long double precise;
    Digest digest;
    @external @optional Everything next;
    @external Header boxed;
    double matrix[2][LARGE];
    map<string<4>, sequence<short>, 10> table;
    @default(DARK_GREEN) Colour colour;
    @default(-5) @unit("m") @range(min = -10, max = 10) int16 depth;
    @default("x") @try_construct(TRIM) string<8> label;
    string self;
    Other::Inner inner;
  };
  @final union Choice switch (Colour) {
    case RED: long first;
    default: @id(9) float others[40];
  };
  union Number switch (@key octet) {
    case 1: case 2: @default(3) long some_number;
    case 3: string<9> text;
  };
};
"#;

fn kinds() -> Document {
    Compiler::new().parse_str("kinds.idl", KINDS).unwrap_or_else(|e| panic!("{e}"))
}

fn compare(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("POLYWIRE_BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, golden, "{name}: run with POLYWIRE_BLESS=1 and read the difference");
}

fn all(document: &Document, target: &str) -> String {
    let emitter = emit::emitter(target).unwrap();
    (emitter.emit)(document.definitions(), document.constants()).unwrap()
}

#[test]
fn workloads_are_written_as_recorded() {
    let workloads = ["avenue.idl", "market_data.idl", "processor_probe.pdl", "switch_probe.pdl", "codecs_test.pdl"];
    for name in workloads {
        let path = format!("{}/../../workloads/{name}", env!("CARGO_MANIFEST_DIR"));
        let document = Compiler::new().parse_file(&path).unwrap();
        let stem = name.split('.').next().unwrap();
        for target in ["rust", "idl", "proto"] {
            let extension = if target == "rust" { "rs" } else { target };
            compare(&format!("{stem}.{extension}"), &all(&document, target));
        }
    }
}

#[test]
fn every_kind_is_written_as_recorded() {
    compare("kinds.rs", &all(&kinds(), "rust"));
    compare("kinds.idl", &all(&kinds(), "idl"));
    compare("kinds.proto", &all(&kinds(), "proto"));
}

#[test]
fn repeated_annotations_are_one_entry_of_an_attribute() {
    let text = "struct S { @range(min = 0, max = 9) @min(1) @unit(\"m\") @unit(\"cm\") long x; };";
    let rust = all(&Compiler::new().parse_str("s.idl", text).unwrap(), "rust");
    assert!(rust.contains("#[polywire(unit = \"m\", min = 1, max = 9)]"), "{rust}");
}

/// The types are compiled, and their defaults compared, by the tests of `polywire`.
#[test]
fn defaults_are_written_as_recorded() {
    let path = format!("{}/tests/golden/defaults.idl", env!("CARGO_MANIFEST_DIR"));
    compare("defaults.rs", &all(&Compiler::new().parse_file(&path).unwrap(), "rust"));
}

#[test]
fn constants_come_back_from_idl() {
    let document = kinds();
    let again = Compiler::new().parse_str("again.idl", &all(&document, "idl")).unwrap_or_else(|e| panic!("{e}"));
    let values = |d: &Document| {
        let mut list: Vec<String> = d.constants().iter().map(|c| format!("{} {:?}", c.name, c.value)).collect();
        list.sort();
        list
    };
    assert_eq!(values(&document), values(&again));
    assert_eq!(values(&document).len(), 4);
}

#[test]
fn every_emitter_is_described() {
    for emitter in emit::EMITTERS {
        assert!(!emitter.description.is_empty());
        assert_eq!(emit::emitter(emitter.name).unwrap().name, emitter.name);
        assert!(!all(&kinds(), emitter.name).is_empty());
    }
    assert!(emit::emitter("cobol").is_none());
}

#[test]
fn rust_names_are_unique() {
    let text = "module a_b { struct foo_bar { long isEcho; long is_echo; long base; }; struct FooBar : foo_bar { string x; }; };
        module aB { struct Vec { sequence<long> vec; }; enum E { self, SELF, x }; };";
    let document = Compiler::new().parse_str("n.idl", text).unwrap();
    let rust = all(&document, "rust");
    for expected in [
        "pub mod a_b {",
        "pub mod a_b_2 {",
        "pub struct FooBar {",
        "pub struct FooBar2 {",
        "#[polywire(name = \"is_echo\")]\n        pub is_echo_2: i32,",
        "pub base: FooBar,",
        "pub vec: std::vec::Vec<i32>,",
        "Self_ = 0,",
    ] {
        assert!(rust.contains(expected), "{expected}\n{rust}");
    }
    syn::parse_file(&rust).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_schema_becomes_rust_that_parses(seed in any::<u64>()) {
        let schema = super::schemas::schema(&mut Random::new(seed));
        let rust = emit::rust(&schema).map_err(|e| TestCaseError::fail(e.to_string()))?;
        let file = syn::parse_file(&rust).map_err(|e| TestCaseError::fail(format!("{e}\n{rust}")))?;
        let types = count(&file.items);
        prop_assert_eq!(types, schema.defs().len());
    }
}

/// Type definitions, modules looked into.
fn count(items: &[syn::Item]) -> usize {
    let of = |item: &syn::Item| match item {
        syn::Item::Struct(_) | syn::Item::Enum(_) | syn::Item::Type(_) => 1,
        syn::Item::Mod(module) => module.content.as_ref().map_or(0, |(_, items)| count(items)),
        _ => 0,
    };
    items.iter().map(of).sum()
}

#[test]
fn dimensions_of_arrays_of_arrays_are_in_order() {
    let text = "typedef octet Row[2][3]; struct Grid { Row rows[4]; sequence<Row> list; };";
    let rust = all(&Compiler::new().parse_str("g.idl", text).unwrap(), "rust");
    assert!(rust.contains("#[polywire(idl = \"octet[4][2][3]\")]\n    pub rows: [Row; 4],"), "{rust}");
    assert!(rust.contains("#[polywire(idl = \"sequence<octet[2][3]>\")]\n    pub list: Vec<Row>,"), "{rust}");
}
