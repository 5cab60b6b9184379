//! Writes the type with five hundred members, which no macro of ours can name.

use std::{env, fmt::Write, fs, path::Path};

const MEMBERS: [(&str, &str); 10] = [
    ("bool", "bool"),
    ("String", "string"),
    ("i8", "char"),
    ("u8", "uchar"),
    ("i16", "int16"),
    ("u16", "uint16"),
    ("i32", "int32"),
    ("u32", "uint32"),
    ("i64", "int64"),
    ("u64", "uint64"),
];

fn main() {
    let names = || (1..=50).flat_map(|group| MEMBERS.map(|(kind, name)| (kind, format!("{name}_value_{group}"))));
    let mut text = String::from(
        "#[derive(Message, Serialize, Deserialize, Clone, Debug, PartialEq, Default)]\n#[polywire(final)]\npub struct CodecsTest500 {\n",
    );
    for (kind, name) in names() {
        writeln!(text, "pub {name}: {kind},").expect("writing to a string does not fail");
    }
    text += "}\nimpl From<&workloads::CodecsTest500> for CodecsTest500 {\nfn from(w: &workloads::CodecsTest500) -> Self {\nCodecsTest500 {\n";
    for (_, name) in names() {
        writeln!(text, "{name}: w.{name}.clone(),").expect("writing to a string does not fail");
    }
    text += "}\n}\n}\n";
    let out = env::var("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&out).join("codecs_test.rs"), text).expect("the output folder can be written");
    println!("cargo::rerun-if-changed=build.rs");
}
