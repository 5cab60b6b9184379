//! Values of constant expressions, and the preprocessor.

use polywire_core::schema::Literal;
use polywire_idl::{Compiler, Document};

fn parse(compiler: &Compiler, text: &str) -> Document {
    compiler.parse_str("x.idl", text).unwrap_or_else(|errors| panic!("{errors}"))
}

fn value(ty: &str, expression: &str) -> Literal {
    let before = "module M { const long TEN = 10; enum E { A, @value(5) B }; bitmask F { P, @position(3) Q }; };\n";
    let text = format!("{before}const {ty} X = {expression};");
    parse(&Compiler::new(), &text).constants().last().unwrap().value.clone()
}

#[test]
fn operators_bind_as_in_c() {
    for (expression, expected) in [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("1 << 2 + 1", 8),
        ("7 & 3 | 8 ^ 1", 11),
        ("-7 / 2", -3),
        ("-7 % 3", -1),
        ("10 - 4 - 3", 3),
        ("0x10 + 010 + 10", 34),
        ("1 << 30 >> 28", 4),
        ("~0", -1),
        ("- - 5", 5),
        ("M::TEN * ::M::TEN", 100),
    ] {
        assert_eq!(value("long", expression), Literal::Int(expected), "{expression}");
    }
}

#[test]
fn types_decide_what_a_constant_is() {
    for (ty, expression, expected) in [
        ("unsigned long", "~0x0F", Literal::Int(0xFFFF_FFF0)),
        ("uint64", "18446744073709551615", Literal::Int(u64::MAX.into())),
        ("int64", "-9223372036854775808", Literal::Int(i64::MIN.into())),
        ("double", "1", Literal::Float(1.0)),
        ("float", "0.1", Literal::Float(f64::from(0.1f32))),
        ("double", ".5e1 - 1", Literal::Float(4.0)),
        ("boolean", "TRUE", Literal::Bool(true)),
        ("char", "'\\x41'", Literal::Char(65)),
        ("char", "'\\101'", Literal::Char(65)),
        ("wchar", "L'\\u20ac'", Literal::Char(0x20AC)),
        ("string", "\"a\" \"b\\t\\\"\"", Literal::String("ab\t\"".into())),
        ("M::E", "M::B", Literal::Enum("B".into())),
        ("M::E", "M::E::A", Literal::Enum("A".into())),
        ("M::E", "B", Literal::Enum("B".into())),
        ("M::F", "P | Q", Literal::Int(9)),
        ("octet", "M::F::Q", Literal::Int(8)),
    ] {
        assert_eq!(value(ty, expression), expected, "{ty} {expression}");
    }
}

fn kept(compiler: &Compiler, text: &str) -> Vec<String> {
    parse(compiler, text).constants().iter().map(|c| c.name.clone()).collect()
}

#[test]
fn conditions_select_branches() {
    let text = "
#define ONE 1
#define LEVEL (ONE + 2) // three
#define EMPTY
#if LEVEL == 3 && !defined(NOTHING) && defined EMPTY
const long A = LEVEL;
#if 0
it's not even \"IDL
# if 1
#  else
# endif
#elif LEVEL * 2 >= 7
const long WRONG = 1;
#elif (LEVEL << 1) == 12 >> 1 && 1 < 0
#else
const long B = 1;
#endif
#else
const long ALSO_WRONG = 1;
#endif
#undef ONE
#ifdef ONE
const long STILL_WRONG = 1;
#endif
#ifndef ONE
const long \\
  C = 2 EMPTY; /* # no directive
#error neither */
#endif
# 12 \"other.idl\"
#pragma unknown words
#ident \"x\"
";
    assert_eq!(kept(&Compiler::new(), text), ["A", "B", "C"]);
}

#[test]
fn definitions_and_directories_come_from_outside() {
    let loader = |path: &str| {
        Ok(match path {
            "inc/a.idl" => Some(b"#ifndef A\n#define A\n#include <sub/b.idl>\nconst long IN_A = N;\n#endif\n".to_vec()),
            "inc/sub/b.idl" => Some(b"#include \"../a.idl\"\n#include \"c.idl\"\nconst long IN_B = 1;\n".to_vec()),
            "inc/sub/c.idl" => Some("\u{feff}// \u{e9}\nconst long IN_C = 1;\n".as_bytes().to_vec()),
            _ => None,
        })
    };
    let compiler = Compiler::new().loader(loader).include_dir("inc").define("N", "40 + 2").define("WITH_MORE", "");
    let text = "#include \"a.idl\"\n#include <a.idl>\n#ifdef WITH_MORE\nconst long MORE = N;\n#endif\n";
    assert_eq!(kept(&compiler, text), ["IN_C", "IN_B", "IN_A", "MORE"]);
    assert_eq!(parse(&compiler, text).constants()[2].value, Literal::Int(42));
}

#[test]
fn a_condition_must_end_in_its_own_file() {
    let loader = |path: &str| Ok((path == "open.idl").then(|| b"#endif\n#if 1\n".to_vec()));
    let text = "#if 1\n#include \"open.idl\"\n#endif\n";
    let errors = Compiler::new().loader(loader).parse_str("x.idl", text).unwrap_err();
    let said: Vec<String> = errors.iter().map(|d| format!("{}:{}", d.location.file, d.message)).collect();
    assert_eq!(said, ["open.idl:#endif without #if", "open.idl:unterminated condition: the #endif is missing"]);
}

#[test]
fn comments_are_kept_where_they_belong() {
    let text = "
/// First line.
///   second.
struct A {
  long a; // about a, not b
  /* about b
   * and more */
  @key long b;

  // about nothing

  // ------------
  /** about c */
  long c, d;
};
// about D
const long D = 1;
";
    let document = parse(&Compiler::new(), text);
    let schema = document.definitions();
    assert_eq!(schema.defs()[0].doc, "First line.\n  second.");
    let id = document.find("A").unwrap();
    let docs: Vec<&str> = schema.members(id).iter().map(|m| m.doc.as_str()).collect();
    assert_eq!(docs, ["", "about b\nand more", "about c", "about c"]);
    assert_eq!(document.constants()[0].doc, "about D");
}
