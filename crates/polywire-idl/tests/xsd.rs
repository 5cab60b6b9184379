//! What the codec `xml` writes is valid by the XML Schema that is emitted for its type, says
//! `xmllint` (libxml2).

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use polywire_core::{
    codec::{self, Encoder, Options},
    layout::Shape,
    program::Backend,
    schema::{
        Schema,
        arbitrary::{Random, random_schema},
    },
};
use polywire_idl::{Compiler, emit};

#[path = "../../polywire-core/tests/json_support/mod.rs"]
mod json_support;
#[path = "../../polywire-core/tests/common/tools.rs"]
mod tools;

const EVERYTHING: &str = r#"
module Geo {
  enum Sky { CLEAR, CLOUDY };
  bitmask Flags { READ, WRITE };
  bitset Status { bitfield<3> mode; bitfield<2, int8> trend; };
  union Wind switch (long) { case 1: float gust_kt; case 2: case 3: string note; default: Status other; };
  struct Place { double latitude_deg; char letter; wchar wide; };
  /// A report & what <it> holds.
  struct Report {
    @key string<8> station;
    Sky sky;
    Flags flags;
    Status status;
    Wind wind;
    @optional Place place;
    sequence<Place, 5> places;
    sequence<double, 20> numbers;
    long matrix[2][3];
    boolean bits[4];
    sequence<octet, 16> blob;
    octet digest[4];
    map<string, sequence<string> > names;
    long double precise;
    @optional @external Report next;
  };
};
"#;

#[test]
fn messages_are_valid() {
    let document = Compiler::new().parse_str("geo.idl", EVERYTHING).unwrap();
    let schema = document.schema("Geo::Report").unwrap();
    let xsd = emit::xsd(&schema).unwrap();
    assert!(xsd.contains("<xs:documentation>A report &amp; what &lt;it&gt; holds.</xs:documentation>"), "{xsd}");
    for options in ["", "declaration", "pretty"] {
        valid(&schema, &xsd, options, 40);
    }
    let bad = "<Geo.Report><station>x</station></Geo.Report>";
    if let Some(verdict) = xmllint(&xsd, &[bad.to_string()]) {
        assert!(verdict.is_err(), "half a report is valid");
    }
}

#[test]
fn random_types_have_schemas() {
    for seed in 0..25 {
        let schema = random_schema(seed, 3 + seed as usize % 9);
        let xsd = emit::xsd(&schema).unwrap();
        valid(&schema, &xsd, "", 4);
    }
}

fn valid(schema: &Schema, xsd: &str, options: &str, count: usize) {
    let Ok(shape) = Shape::of(schema) else { return };
    let options: Options = options.parse().unwrap();
    let encoder =
        Encoder::for_shape_with_backend(codec::find("xml").unwrap(), &options, &shape, Backend::Interpreter).unwrap();
    let mut random = Random::new(count as u64);
    let texts = (0..count).map(|_| {
        let record = json_support::random_record(&mut random, &shape);
        let mut bytes = Vec::new();
        encoder.encode(&record, &mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    });
    let texts: Vec<String> = texts.collect();
    if let Some(Err(error)) = xmllint(xsd, &texts) {
        panic!("{error}\n{xsd}");
    }
}

/// What xmllint says of the texts; none if there is no xmllint.
fn xmllint(xsd: &str, texts: &[String]) -> Option<Result<(), String>> {
    if !tools::has_program("xmllint", "--version") {
        return None;
    }
    let folder = scratch();
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let schema = write("types.xsd", xsd);
    let files: Vec<PathBuf> = texts.iter().enumerate().map(|(i, text)| write(&format!("{i}.xml"), text)).collect();
    let output = Command::new("xmllint").arg("--noout").arg("--schema").arg(&schema).args(&files).output();
    let output = output.unwrap();
    fs::remove_dir_all(&folder).unwrap();
    Some(match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    })
}

/// A folder of its own.
fn scratch() -> PathBuf {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("xsd-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).unwrap();
    folder
}
