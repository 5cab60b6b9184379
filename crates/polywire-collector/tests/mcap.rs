//! MCAP files with messages in CDR: other libraries decode them, and queries read them.

mod common;

use std::{fs, path::PathBuf, process::Command, sync::Arc};

use common::Folder;
use polywire::{Node, Record, Shape, extend::envelope::Id128, schema::Schema};
use polywire_collector::{Archive, ArchiveValue as Value, CollectorConfig, Entry, HandlerContext, Origin};
use polywire_idl::Compiler;
use polywire_testing::tools;

/// The first type is one that ROS 2 has, the second is not.
const IDL: &str = "module plant { module msg {
    struct Part { double weight; string name; };
    @appendable struct Pump { @key unsigned long id; boolean on; sequence<Part> parts; double pressures[2]; octet raw; };
    enum Colour { RED, BLUE };
    @appendable struct Valve { Part part; Colour colour; sequence<double> pressures; boolean open; };
    @mutable struct Lamp { @optional long Level; Colour colour; wstring label; map<string, long> counts; };
}; };";

fn schema(name: &str) -> Schema {
    Compiler::new().parse_str("plant.idl", IDL).expect("valid").schema(name).expect("it is there")
}

fn entry(name: &str, topic: &str, number: u64, set: impl FnOnce(&mut Record)) -> Entry {
    let mut record = Record::new(&Shape::of(&schema(name)).expect("a shape"));
    set(&mut record);
    let origin = Origin { topic: topic.to_owned(), writer: Id128([7; 16]), incarnation: 3 };
    Entry::new(Arc::new(origin), number, 1_700_000_000_000_000_000 + number as i64, record)
}

fn pump(number: u64) -> Entry {
    entry("plant::msg::Pump", "plant/pump", number, |record| {
        record.set("id", 7).expect("set");
        record.set("on", true).expect("set");
        record.resize("parts", 1).expect("set");
        record.set("parts[0].weight", 2.5).expect("set");
        record.set("parts[0].name", "valve").expect("set");
        record.set("pressures[1]", -1.5).expect("set");
        record.set("raw", 255u8).expect("set");
    })
}

fn lamp(number: u64) -> Entry {
    entry("plant::msg::Lamp", "plant/lamp", number, |record| {
        record.set("Level", 5).expect("set");
        record.set("colour", "BLUE").expect("set");
        record.set("label", "hall").expect("set");
        record.set("counts[\"a\"]", 1).expect("set");
    })
}

fn valve(number: u64) -> Entry {
    entry("plant::msg::Valve", "plant/valve", number, |record| {
        record.set("part.name", "inlet").expect("set");
        record.set("part.weight", 2.5).expect("set");
        record.set("colour", "BLUE").expect("set");
        record.resize("pressures", 2).expect("set");
        record.set("pressures[1]", -1.5).expect("set");
        record.set("open", true).expect("set");
    })
}

/// Writes a file in this format, and returns its path.
fn write(folder: &Folder, format: &str) -> PathBuf {
    write_all(folder, format, &[pump(1), lamp(2), pump(3)])
}

fn write_all(folder: &Folder, format: &str, entries: &[Entry]) -> PathBuf {
    let path = folder.file(&format!("{format}.mcap"));
    let text = format!("[handlers.a]\nkind = 'mcap'\npath = '{}'\nformat = '{format}'", path.display());
    let plan = CollectorConfig::parse(&text).expect("valid").handlers.remove(0);
    let mut handler = (plan.kind.open)(&plan.settings, &HandlerContext::new(Node::new())).expect("opened");
    entries.iter().for_each(|entry| handler.write(entry).expect("written"));
    handler.sync().expect("stored");
    path
}

fn rows(archive: &Archive, sql: &str) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    let add = |_: &[String], row: &[Value]| {
        rows.push(row.to_vec());
        true
    };
    archive.query(sql, add).unwrap_or_else(|error| panic!("{sql}: {error}"));
    rows
}

/// Messages have the same rows in each format.
#[test]
fn queries_read_every_format() {
    let folder = Folder::new("mcap-formats");
    let text = |text: &str| Value::Text(text.to_owned());
    for format in ["json", "cdr", "xcdr2"] {
        let archive = Archive::open(&write(&folder, format)).expect("an archive");
        let check = archive.check().expect("checked");
        assert_eq!((check.rows, check.damage), (3, Vec::new()), "{format}");
        let name = "plant::msg::Pump";
        let found = rows(&archive, &format!("SELECT _topic, _sequence, id, \"on\", parts, raw FROM \"{name}\""));
        let pump = |number| {
            let parts = r#"[{"weight":2.5,"name":"valve"}]"#;
            // JSON's objects have no order.
            let parts = if format == "json" { r#"[{"name":"valve","weight":2.5}]"# } else { parts };
            [
                text("plant/pump"),
                Value::Integer(number),
                Value::Integer(7),
                Value::Integer(1),
                text(parts),
                Value::Integer(255),
            ]
        };
        assert_eq!(found, [pump(1), pump(3)], "{format}");
        let found = rows(&archive, "SELECT Level, colour, label, counts FROM \"plant::msg::Lamp\"");
        assert_eq!(found, [[Value::Integer(5), text("BLUE"), text("hall"), text("{\"a\":1}")]], "{format}");
        let series = archive.series("plant/lamp", "Level", i64::MIN..=i64::MAX, 100).expect("a series");
        assert_eq!(series.points, [(1_700_000_000_000_000_002, 5.0)], "{format}");
    }
}

/// What Foxglove's library for ROS 2 decodes.
const READER: &str = r#"
import sys
from mcap.reader import make_reader
from mcap_ros2.decoder import DecoderFactory
reader = make_reader(open(sys.argv[1], "rb"), decoder_factories=[DecoderFactory()])
for schema, channel, message in reader.iter_messages():
    print(channel.topic, schema.name, schema.encoding, channel.message_encoding, message.data[:2].hex())
for schema, channel, message, value in reader.iter_decoded_messages(topics=["plant/pump"]):
    part = value.parts[0]
    print(value.id, value.on, len(value.parts), part.weight, part.name, list(value.pressures), value.raw)
"#;

#[test]
fn libraries_of_foxglove_decode_cdr() {
    if !tools::python_has("mcap_ros2.decoder") {
        return;
    }
    let folder = Folder::new("mcap-ros");
    let path = write(&folder, "cdr");
    let read = tools::output_of(Command::new(tools::python()).args(["-c", READER]).arg(path), b"").expect("it reads");
    let pump = "plant/pump plant/msg/Pump ros2msg cdr 0001\n";
    let value = "7 True 1 2.5 valve [0.0, -1.5] 255\n";
    let lamp = "plant/lamp plant::msg::Lamp omgidl cdr 0003\n";
    assert_eq!(String::from_utf8(read).expect("a text"), [pump, lamp, pump, value, value].concat());
}

/// What Foxglove's own decoder for IDL makes of messages: lines of a schema, the name of the type
/// and the bytes, as JSON.
const DECODER: &str = r#"
const { parseIDL } = require("@foxglove/omgidl-parser");
const { MessageReader } = require("@foxglove/omgidl-serialization");
for (const line of require("fs").readFileSync(0, "utf8").trim().split("\n")) {
  const { idl, name, bytes } = JSON.parse(line);
  const value = new MessageReader(name, parseIDL(idl)).readMessage(Buffer.from(bytes, "hex"));
  console.log(JSON.stringify(value, (_, of) => (ArrayBuffer.isView(of) ? [...of] : of)));
}
"#;

/// The library leaves out the length in front of a list of structures, has no maps and no wide
/// texts, so these are not among it.
#[test]
fn foxglove_decodes_xcdr2() {
    let node = || {
        let mut node = Command::new("node");
        node.env("NODE_PATH", concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/foreign/node/node_modules"));
        node
    };
    let is_there = node().args(["-e", "require('@foxglove/omgidl-serialization')"]).output();
    if !is_there.is_ok_and(|output| output.status.success()) {
        tools::missing("Node's module '@foxglove/omgidl-serialization'");
        return;
    }
    let folder = Folder::new("mcap-omgidl");
    let bytes = fs::read(write_all(&folder, "xcdr2", &[valve(1), valve(2)])).expect("a file");
    let mut lines = String::new();
    for message in mcap::MessageStream::new(&bytes).expect("readable").flatten() {
        let schema = message.channel.schema.as_ref().expect("there is one");
        assert_eq!((schema.encoding.as_str(), message.channel.message_encoding.as_str()), ("omgidl", "cdr"));
        let idl = std::str::from_utf8(&schema.data).expect("a text");
        let bytes: String = message.data.iter().map(|byte| format!("{byte:02x}")).collect();
        lines += &format!("{}\n", serde_json::json!({ "idl": idl, "name": schema.name, "bytes": bytes }));
    }
    let read = tools::output_of(node().args(["-e", DECODER]), lines.as_bytes()).expect("it reads");
    let valve = r#"{"part":{"weight":2.5,"name":"inlet"},"colour":1,"pressures":[0,-1.5],"open":true}"#;
    assert_eq!(String::from_utf8(read).expect("a text"), format!("{valve}\n{valve}\n"));
}

#[test]
fn hostile_files_are_told() {
    let folder = Folder::new("mcap-hostile");
    let path = write(&folder, "xcdr2");
    let whole = fs::read(&path).expect("a file");
    for at in (8..whole.len()).step_by(11) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x55;
        fs::write(&path, &damaged).expect("written");
        // Chunks have checksums; what is around them can only be read or not.
        let archive = Archive::open(&path).expect("it has the name");
        let check = archive.check().expect("it returns");
        assert!(check.rows <= 3);
    }
    fs::write(&path, "something else").expect("written");
    assert_eq!(Archive::open(&path).expect("it has the name").check().expect("checked").damage.len(), 1);
}

#[test]
fn other_formats_are_refused() {
    let folder = Folder::new("mcap-setting");
    let text = format!("[handlers.a]\nkind = 'mcap'\npath = '{}'\nformat = 'xml'", folder.file("a.mcap").display());
    let plan = CollectorConfig::parse(&text).expect("the handler checks it").handlers.remove(0);
    let error = (plan.kind.open)(&plan.settings, &HandlerContext::new(Node::new())).err().expect("refused").to_string();
    assert_eq!(error, "'format': json, cdr or xcdr2 is expected, not 'xml'");
}
