//! `protoc` (Debian's protobuf-compiler) as the oracle for the emitter `proto` and for the bytes of
//! the codec `protobuf`.

use std::{path::Path, process::Command};

use polywire_core::{
    codec::{Decoder, Encoder, Options, protobuf::PROTOBUF},
    layout::{Record, Shape},
    program::Backend,
    schema::{Schema, arbitrary::Random},
};
use polywire_idl::{Compiler, emit};
use polywire_testing::{Folder, random_record, random_schema, tools};

fn protoc_is_there() -> bool {
    tools::has_program("protoc", "--version")
}

/// A `.proto` file.
struct File(Folder);

impl File {
    fn new(name: &str, text: &str) -> File {
        let folder = Folder::new(name);
        folder.write("types.proto", text);
        File(folder)
    }

    /// The standard output of `protoc` for an argument and standard input, or its errors.
    fn protoc(&self, argument: &str, input: &[u8]) -> Result<Vec<u8>, String> {
        let mut protoc = Command::new("protoc");
        protoc.current_dir(self.0.path()).arg(argument).arg("types.proto");
        tools::output_of(&mut protoc, input)
    }

    fn accept(&self, text: &str) {
        if let Err(errors) = self.protoc("--descriptor_set_out=types.bin", b"") {
            panic!("{errors}\n{text}");
        }
    }
}

#[test]
fn protoc_takes_what_is_written_for_the_workloads() {
    if !protoc_is_there() {
        return;
    }
    for name in ["avenue.idl", "market_data.idl", "processor_probe.pdl", "switch_probe.pdl", "codecs_test.pdl"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workloads").join(name);
        let document = Compiler::new().parse_file(path.to_str().unwrap()).unwrap();
        let text = emit::proto(document.definitions()).unwrap();
        File::new(name, &text).accept(&text);
    }
}

#[test]
fn protoc_takes_what_is_written_for_any_schema() {
    if !protoc_is_there() {
        return;
    }
    let (mut taken, mut refused) = (0, 0);
    for seed in 0..60 {
        for schema in [super::schemas::schema(&mut Random::new(seed)), random_schema(seed, 8)] {
            match emit::proto(&schema) {
                Ok(text) => {
                    File::new("any", &text).accept(&text);
                    taken += 1;
                }
                Err(emit::EmitError::Value { .. } | emit::EmitError::Name { .. }) => refused += 1,
                Err(other) => panic!("{other}"),
            }
        }
    }
    assert!(taken > 60, "{taken} of {}", taken + refused);
}

/// The full name of a schema's root message.
fn message_name(schema: &Schema, text: &str) -> Option<String> {
    let package = text.lines().find_map(|line| line.strip_prefix("package ")?.strip_suffix(';'));
    let parts: Vec<&str> = schema.name().split("::").collect();
    let inside = package.map_or(0, |package| package.split('.').count());
    let name = parts.get(inside..)?.join("_");
    text.contains(&format!("message {name} {{")).then(|| match package {
        Some(package) => format!("{package}.{name}"),
        None => name,
    })
}

/// `protoc` decodes our messages, and we decode the messages that it writes from them to the same
/// value. If the fields' numbers ascend, the bytes are equal.
#[test]
fn protoc_reads_and_writes_the_same() {
    if !protoc_is_there() {
        return;
    }
    let mut echoed = 0;
    for seed in 0..60 {
        let schema = random_schema(seed, 7);
        let (Ok(text), Ok(shape)) = (emit::proto(&schema), Shape::of(&schema)) else { continue };
        let Some(name) = message_name(&schema, &text) else { continue };
        let backend = Backend::Interpreter;
        let Ok(encoder) = Encoder::for_shape_with_backend(&PROTOBUF, &Options::default(), &shape, backend) else {
            continue;
        };
        let decoder =
            Decoder::for_shape_with_backend(&PROTOBUF, &Options::default(), &schema, &shape, backend).unwrap();
        let file = File::new("echo", &text);
        let mut random = Random::new(seed);
        for _ in 0..3 {
            let record = random_record(&mut random, &shape);
            let mut ours = Vec::new();
            encoder.encode(&record, &mut ours).unwrap();
            let said =
                file.protoc(&format!("--decode={name}"), &ours).unwrap_or_else(|e| panic!("{seed}: {e}\n{text}"));
            let theirs =
                file.protoc(&format!("--encode={name}"), &said).unwrap_or_else(|e| panic!("{seed}: {e}\n{text}"));
            let mut back = Record::new(&shape);
            decoder.decode(&theirs, &mut back).unwrap_or_else(|e| panic!("{seed}: {e}\n{text}"));
            assert_eq!(back, record, "{seed}: {}\n{text}", String::from_utf8_lossy(&said));
            // An unknown field would be said by its number.
            let numbered = |line: &str| line.trim_start().starts_with(|c: char| c.is_ascii_digit());
            assert!(
                !String::from_utf8_lossy(&said).lines().any(numbered),
                "{seed}: {}",
                String::from_utf8_lossy(&said)
            );
            echoed += 1;
        }
    }
    assert!(echoed > 60, "{echoed}");
}
