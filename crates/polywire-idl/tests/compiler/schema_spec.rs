//! The examples of `spec/schema.md`: their IDL has the bytes and hashes in the text.

use polywire_core::schema::Schema;
use polywire_idl::Compiler;

const SPEC: &str = include_str!("../../../../spec/schema.md");

/// The indented blocks between two lines of the text.
fn blocks(from: &str, to: &str) -> Vec<String> {
    let text = SPEC.split_once(from).expect("the section is there").1.split_once(to).expect("and ends").0;
    let (mut blocks, mut block) = (Vec::new(), String::new());
    for line in text.lines().chain([""]) {
        match line.strip_prefix("    ") {
            Some(line) => block += &format!("{line}\n"),
            None if block.is_empty() => {}
            None => blocks.push(std::mem::take(&mut block)),
        }
    }
    blocks
}

fn compile(idl: &str, name: &str) -> Schema {
    let document = Compiler::new().parse_str("spec.idl", idl).unwrap_or_else(|errors| panic!("{errors}"));
    document.schema(name).expect("the type is there")
}

fn bytes(hex: &str) -> Vec<u8> {
    hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).expect("a byte")).collect()
}

/// The first 16 bytes of BLAKE3, as section 3 says.
fn cut(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex()[..32].to_owned()
}

#[test]
fn golden_type_hashes() {
    let blocks = blocks("### Golden hashes\n", "\n## 4.");
    let [a, b] = blocks.as_chunks::<3>().0 else { panic!("{} blocks", blocks.len()) };
    for ([idl, hex, hash], name) in [(a, "Geo::Position"), (b, "Node")] {
        let schema = compile(idl, name);
        assert_eq!(schema.type_hash().to_string(), hash.trim(), "{name}");
        assert_eq!(cut(&bytes(hex)), hash.trim(), "the bytes of {name} in the text are those that are hashed");
    }
}

#[test]
fn the_golden_document() {
    let blocks = blocks("### One schema, one document\n", "\n### ");
    let [idl, hex, hash] = &blocks[..] else { panic!("{} blocks", blocks.len()) };
    let document = compile(idl, "S").to_bytes();
    assert_eq!(document, bytes(hex));
    assert_eq!(cut(&document), hash.trim());
    let schema = Schema::from_bytes(&document, &Default::default()).expect("it is canonical");
    assert_eq!(schema.document_hash().to_string(), hash.trim());
}
