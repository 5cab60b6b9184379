//! `xmllint` (libxml2) as the oracle: the documents of the codec `xml` are valid by the XML Schema
//! that is emitted for their type.

use std::process::Command;

use polywire_core::{
    codec::{self, Encoder, Options},
    layout::Shape,
    program::Backend,
    schema::{Schema, arbitrary::Random},
};
use polywire_idl::{Compiler, emit};
use polywire_testing::{Folder, random_record, random_schema, tools};

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
        let record = random_record(&mut random, &shape);
        let mut bytes = Vec::new();
        encoder.encode(&record, &mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    });
    let texts: Vec<String> = texts.collect();
    if let Some(Err(error)) = xmllint(xsd, &texts) {
        panic!("{error}\n{xsd}");
    }
}

/// Whether the texts are valid by a schema, or the errors of `xmllint`. `None` if there is no
/// `xmllint`.
fn xmllint(xsd: &str, texts: &[String]) -> Option<Result<(), String>> {
    if !tools::has_program("xmllint", "--version") {
        return None;
    }
    let folder = Folder::new("xsd");
    let schema = folder.write("types.xsd", xsd);
    let files = texts.iter().enumerate().map(|(i, text)| folder.write(&format!("{i}.xml"), text));
    let mut xmllint = Command::new("xmllint");
    xmllint.args(["--noout", "--schema", &schema]).args(files);
    Some(tools::output_of(&mut xmllint, b"").map(drop))
}
