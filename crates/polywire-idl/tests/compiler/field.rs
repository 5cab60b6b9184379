//! IDL from the repositories of DDS and ROS 2. Common constructs that the standard does not allow
//! are accepted with a warning.

use polywire_core::schema::{DefKind, Literal, Type};
use polywire_idl::{Compiler, Document, emit};

/// Compiles a text, and checks that the emitted text compiles to the same types.
fn taken(text: &str) -> Document {
    let document = Compiler::new().parse_str("field.idl", text).unwrap_or_else(|errors| panic!("{errors}"));
    let idl =
        (emit::emitter("idl").unwrap().emit)(document.definitions(), document.constants()).expect("it can be written");
    let again = Compiler::new().parse_str("again.idl", &idl).unwrap_or_else(|errors| panic!("{errors}\n{idl}"));
    for def in document.topic_types() {
        let hash = |document: &Document| document.schema(&def.name).expect("it is there").type_hash();
        assert_eq!(hash(&document), hash(&again), "{}\n{idl}", def.name);
    }
    document
}

fn warns(document: &Document, text: &str) {
    assert!(document.warnings().to_string().contains(text), "no '{text}' in\n{}", document.warnings());
}

fn refused(text: &str) -> String {
    Compiler::new().parse_str("field.idl", text).expect_err("refused").to_string()
}

/// The recursion of OMG's type objects: a union, declared first, that structures hold by reference
/// and that holds the structures.
const IDENTIFIERS: &str = "
    union Identifier;
    @final struct Many { octet bound; @external Identifier element; };
    @final struct Table { @external Identifier key; @external Identifier element; };
    @mutable struct Later { };
    union Identifier switch (octet) {
        case 1: octet bound;
        case 2: Many many;
        case 3: Table table;
        case 4: @external Identifier same;
        default: Later later;
    };
    struct Named { string name; Identifier id; sequence<Identifier> others; };";

#[test]
fn a_union_may_contain_itself_behind_pointers() {
    let document = taken(IDENTIFIERS);
    assert_eq!(document.schema("Named").unwrap().defs().len(), 5);
    let shown =
        refused("union U; struct S { @external U u; }; union U switch (octet) { case 0: S s; case 1: long a; };");
    assert!(shown.contains("contains itself"), "the default has no end: {shown}");
    let shown = refused("union U; struct S { U u; }; union U switch (octet) { case 0: long a; case 1: S s; };");
    assert!(shown.contains("'U' is incomplete here"), "{shown}");
    let case =
        "union U; struct S { sequence<U> us; }; union U switch (long) { case 1: @external U u; default: long x; };";
    taken(case);
}

#[test]
fn words_of_annotations_may_be_joined() {
    let document = taken("@data_representation(XCDR1 | XCDR2) struct S { long a; };");
    let annotation = &document.definitions().defs()[0].annotations[0];
    assert_eq!(annotation.args, [("value".to_string(), Literal::Enum("XCDR1 | XCDR2".into()))]);
    assert!(document.warnings().is_empty(), "{}", document.warnings());
    taken("@data_representation(XCDR2 | 0xfffffff8) struct S { long a; };");
}

#[test]
fn a_file_may_end_in_a_declaration_of_an_annotation() {
    taken("struct S { long a; };\n@annotation mark { string text default \"\"; };\n");
    taken("module M { struct S { long a; }; @annotation mark { long n; }; };");
    assert!(refused("@annotation mark { long n;").contains("expected '}'"));
}

#[test]
fn dimensions_may_be_annotated() {
    let document = taken(
        "typedef string<4> Text @try_construct(TRIM)[3]; struct S { long a @try_construct(TRIM)[2], b[@try_construct(TRIM) 2]; };",
    );
    warns(&document, "@try_construct has no effect on the elements of a collection");
    assert!(refused("struct S { long a @key; };").contains("annotations of a member come before its type"));
}

#[test]
fn a_bitmask_may_be_a_discriminator() {
    let document = taken(
        "@bit_bound(12) bitmask Mode { FAST, @position(9) SAFE }; union U switch (Mode) { case FAST: long a; case SAFE: string b; };",
    );
    let id = document.find("U").unwrap();
    let DefKind::Union { discriminator, cases, .. } = &document.definitions().def(id).kind else { panic!("a union") };
    assert_eq!((discriminator, &cases[0].labels, &cases[1].labels), (&Type::Uint16, &vec![1], &vec![512]));
}

#[test]
fn strings_may_hold_nul_and_latin_1() {
    let document = taken(
        "const string NUL = \"a\\0b\"; const string LATIN = \"\\xe9t\\xE9\"; struct S { @default(\"\\xfc\") string s; };",
    );
    let values: Vec<&Literal> = document.constants().iter().map(|constant| &constant.value).collect();
    assert_eq!(values, [&Literal::String("a\0b".into()), &Literal::String("été".into())]);
    warns(&document, "a string cannot contain a NUL character");
    warns(&document, "it is read as Latin-1");
}

#[test]
fn characters_may_be_numbers() {
    let document = taken("const char PAD = 0x01; union U switch (char) { case 0: string a; case 'x': long b; };");
    assert_eq!(document.constants()[0].value, Literal::Char(1));
    warns(&document, "in IDL the value of a char is a character literal");
    assert!(refused("const char LARGE = 256;").contains("expected a constant of type 'char'"));
}

#[test]
fn names_like_keywords_give_warnings() {
    let document =
        taken("module M { const uint8 INT8 = 1; struct String { string data; long map, any; octet sequence[2]; }; };");
    warns(&document, "'INT8' differs only in case from the keyword 'int8'");
    warns(&document, "'map' is a keyword of OMG IDL");
    assert!(
        refused("struct S { long struct; }; struct map { long a; };")
            .contains("expected the name of the structure, found the keyword 'map'")
    );
    assert!(refused("struct S { long const double x; };").contains("found the keyword 'const'"));
}

#[test]
fn a_typedef_may_be_repeated() {
    let document = taken("typedef double double__36[36]; typedef double double__36[36]; struct S { double__36 a; };");
    warns(&document, "'double__36' is defined twice, as the same type");
    assert!(refused("typedef double T[3]; typedef double T[4]; struct S { T a; };").contains("'T' is already defined"));
    assert!(refused("typedef double T; typedef float T;").contains("'T' is already defined"));
}

#[test]
fn literals_may_have_values_as_in_c() {
    let document = taken("enum E { A = 1, B, C = 1 << 3 }; struct S { E e; };");
    let DefKind::Enum { literals, .. } = &document.definitions().defs()[0].kind else { panic!("an enum") };
    assert_eq!(literals.iter().map(|l| l.value).collect::<Vec<_>>(), [1, 2, 8]);
    warns(&document, "for other compilers write '@value(1) A'");
    assert!(refused("bitmask F { A = 4 };").contains("write '@position(..) A', counted from 0"));
}
