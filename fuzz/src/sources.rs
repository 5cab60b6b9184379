//! Targets for text that people write: IDL, PDL, ROS 2 definitions, names of wires, and
//! configurations.

use polywire::{Config, Wire};
use polywire_core::schema::{Schema, arbitrary::Random};
use polywire_idl::{Compiler, emit};
use polywire_testing::mutated;
use std::{
    fs,
    path::{Path, PathBuf},
};

const FOLDERS: [&str; 6] = [
    "workloads",
    "conformance/idl-errors",
    "conformance/cdr/idl",
    "conformance/json",
    "conformance/bson",
    "crates/polywire-idl/tests/golden",
];

/// Words of IDL and PDL that are inserted at random places.
const WORDS: &[&str] = &[
    "struct S {",
    "};",
    "union U switch (",
    "case 1:",
    "default:",
    "sequence<",
    "map<",
    "string<",
    "wstring",
    "@key ",
    "@default(",
    "@bit_bound(",
    "@unit(\"m\")",
    "#define A B\n",
    "#ifdef A\n",
    "#if (1 << 63) / 0\n",
    "#endif\n",
    "#include \"x\"\n",
    "const long c = ",
    "-9223372036854775808 / -1",
    "99999999999999999999999999",
    "1e400",
    "enum E {",
    "bitmask",
    "bitset",
    "bitfield<",
    "typedef",
    "module m {",
    "probe p : q {",
    "abstract",
    "void f(in ",
    "out real64 x, inout ",
    "[uuid(",
    "vector<",
    "::",
    "[4294967296]",
    "[[",
    "((((((((",
    "/*",
    "\"",
    "'",
    "\\\n",
    "\u{FEFF}",
    "ü",
];

pub fn idl_text(random: &mut Random) -> Vec<u8> {
    text(random, "idl")
}

pub fn pdl_text(random: &mut Random) -> Vec<u8> {
    text(random, "pdl")
}

/// Random lines of ROS 2 message and service definitions.
pub fn ros_text(random: &mut Random) -> Vec<u8> {
    const LINES: [&str; 12] = [
        "# A comment",
        "int32 a",
        "uint8 OK=0x10",
        "string NAME=\"a # b\"",
        "float64[9] m",
        "string<=8[<=4] tags",
        "wstring w 'x'",
        "bool on true # comment",
        "std_msgs/Header header",
        "Header h",
        "other/Thing[] things",
        "---",
    ];
    let count = random.below(12);
    let text: String = (0..count).map(|_| format!("{}\n", random.choose(&LINES))).collect();
    if random.one_in(2) { mutated(random, text.as_bytes()) } else { text.into_bytes() }
}

pub fn compile_ros(input: &[u8]) {
    ["p/msg/M.msg", "p/srv/S.srv"].iter().for_each(|name| compile(name, input));
}

pub fn compile_idl(input: &[u8]) {
    compile("fuzz.idl", input);
}

pub fn compile_pdl(input: &[u8]) {
    compile("fuzz.pdl", input);
}

/// An IDL or PDL file of this repository, or the end of one, with defects.
fn text(random: &mut Random, ending: &str) -> Vec<u8> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let entries = FOLDERS.iter().filter_map(|folder| fs::read_dir(root.join(folder)).ok()).flatten();
    let is_source = |path: &PathBuf| path.extension().is_some_and(|e| e == ending);
    let mut files: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).filter(is_source).collect();
    files.sort();
    let text = fs::read(random.choose(&files)).unwrap_or_default();
    let from = if random.one_in(2) { random.below(text.len()) } else { 0 };
    let mut text = text[from..].to_vec();
    for _ in 0..random.below(4) {
        let at = random.below(text.len() + 1);
        let word = random.choose(WORDS).repeat(if random.one_in(20) { 200 } else { 1 });
        text.splice(at..at, word.into_bytes());
    }
    if random.one_in(2) { mutated(random, &text) } else { text }
}

/// Compiles a text. The result must be diagnostics, or schemas that keep their type hash when they
/// are written as IDL and read again.
fn compile(name: &str, input: &[u8]) {
    let compiler = Compiler::new().loader(|_: &str| Ok(None));
    match compiler.parse_str(name, &String::from_utf8_lossy(input)) {
        Err(errors) => assert!(!errors.render(false).is_empty()),
        Ok(document) => {
            let names: Vec<String> = document.definitions().defs().iter().map(|def| def.name.to_string()).collect();
            names
                .iter()
                .filter_map(|name| document.schema(name).ok())
                .for_each(|schema| comes_back(&compiler, &schema));
        }
    }
}

fn comes_back(compiler: &Compiler, schema: &Schema) {
    let Ok(text) = emit::idl(schema) else { return };
    let again = match compiler.parse_str("again.idl", &text) {
        Ok(document) => document.schema(schema.name()).expect("the written text defines the type"),
        Err(errors) => panic!("the written IDL cannot be read:\n{errors}\n{text}"),
    };
    assert_eq!(again.type_hash(), schema.type_hash(), "{text}");
}

pub fn wire_text(random: &mut Random) -> Vec<u8> {
    const WIRES: &[&str] = &[
        "cdr",
        "json+zstd:3@tcp/127.0.0.1:7460",
        "xcdr2:be,header@unix//run/robot.sock",
        "auto@inproc/a@b/c",
        "bson@tcp-listen/[::1]:0",
    ];
    let wire = *random.choose(WIRES);
    mutated(random, wire.as_bytes())
}

/// Parses the name of a wire. It must be refused, or print as text that parses to the same wire.
pub fn read_wire(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    match text.parse::<Wire>() {
        Ok(wire) => assert_eq!(wire.to_string().parse::<Wire>().as_ref(), Ok(&wire), "{text:?}"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    let _ = text.parse::<polywire_core::codec::Options>();
}

pub fn config_text(random: &mut Random) -> Vec<u8> {
    const CONFIG: &str = "[node]\nwire = 'cdr@tcp/127.0.0.1:7460'\n[engine]\nqueue_bytes = 4194304\noverflow = 'block'\n\
                          patience_ms = 5000\n[topics.'market/quotes']\nwire = 'json+zstd:3'\nqueue = 256\n";
    const WORDS: &[&str] =
        &["-1", "18446744073709551616", "nan", "''", "[", "{", "[[topics]]\n", "wrie = 1\n", "\u{1}"];
    let mut text = CONFIG.to_owned();
    if random.one_in(2) {
        let word = *random.choose(WORDS);
        text.insert_str(random.below(text.len()), word);
    }
    mutated(random, text.as_bytes())
}

pub fn read_config(input: &[u8]) {
    if let Err(error) = Config::parse(&String::from_utf8_lossy(input)) {
        assert!(!error.to_string().is_empty());
    }
}
