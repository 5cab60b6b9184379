//! The measured types of `workloads/`, and files in common styles.

use polywire_core::schema::{Def, DefKind, Extensibility, Literal, Member, Schema, Type};
use polywire_idl::{Compiler, Document};

fn workload(name: &str) -> Document {
    let path = format!("{}/../../workloads/{name}", env!("CARGO_MANIFEST_DIR"));
    Compiler::new().parse_file(&path).unwrap_or_else(|errors| panic!("{errors}"))
}

fn parse(name: &str, text: &str) -> Document {
    Compiler::new().parse_str(name, text).unwrap_or_else(|errors| panic!("{errors}"))
}

fn members<'a>(schema: &'a Schema, name: &str) -> Vec<&'a Member> {
    schema.members(schema.find(name).unwrap_or_else(|| panic!("no {name}")))
}

fn member<'a>(schema: &'a Schema, owner: &str, name: &str) -> &'a Member {
    members(schema, owner).into_iter().find(|m| m.name == name).unwrap_or_else(|| panic!("no {name}"))
}

fn def<'a>(schema: &'a Schema, name: &str) -> &'a Def {
    schema.def(schema.find(name).unwrap_or_else(|| panic!("no {name}")))
}

/// The thesis's probe with `fields` fields: its ten, again and again, with suffixes that count up.
fn codecs_test(fields: usize) -> String {
    let path = format!("{}/../../workloads/codecs_test.pdl", env!("CARGO_MANIFEST_DIR"));
    let ten = std::fs::read_to_string(path).unwrap();
    let start = ten.find("    boolean bool_value_1;").unwrap();
    let end = ten.find("  };").unwrap();
    let group = &ten[start..end];
    let groups = (1..=fields / 10).map(|i| group.replace("_1;", &format!("_{i};")));
    format!("{}{}{}", &ten[..start], groups.collect::<String>(), &ten[end..])
}

#[test]
fn market_data() {
    let document = workload("market_data.idl");
    assert!(document.warnings().is_empty(), "{}", document.warnings());
    let schema = document.schema("MarketData").unwrap();
    assert_eq!(schema.name(), "MiddlewareNewsBrief::MarketData");
    let names: Vec<&str> = schema.defs().iter().map(|d| d.name.rsplit("::").next().unwrap()).collect();
    assert_eq!(names, ["MarketDataEntry", "MarketDataEntries", "MarketData"], "just what is reachable");
    let list = members(&schema, "MarketData");
    assert_eq!(list.len(), 10);
    assert_eq!(list.iter().filter(|m| m.key).map(|m| m.name.as_str()).collect::<Vec<_>>(), ["securityID"]);
    assert_eq!((list[2].id, &list[2].ty, list[2].explicit_id), (2, &Type::Uint32, None));
    assert_eq!(members(&schema, "MarketDataEntry").len(), 19);
    assert_eq!(document.topic_types().count(), 4);
}

#[test]
fn avenue() {
    let document = workload("avenue.idl");
    assert!(document.warnings().is_empty(), "{}", document.warnings());
    let schema = document.schema("Avenue::FlightData").unwrap();
    assert_eq!(def(&schema, "FlightData").extensibility, Extensibility::Appendable);
    assert_eq!(member(&schema, "FlightData", "call_sign").ty, Type::String { bound: 7 });
    let address = member(&schema, "FlightData", "mode_s_address");
    assert!(address.optional && address.ty == Type::array(Type::Octet, [3]));
    assert_eq!(member(&schema, "FlightData", "extensions").ty, Type::map(Type::string(), Type::string()));
    // A comment after a member on its line does not belong to the next member.
    assert!(members(&schema, "FlightData").iter().all(|m| m.doc.is_empty()));
    let DefKind::Union { discriminator, cases, .. } = &def(&schema, "Wind").kind else { panic!() };
    assert_eq!(*discriminator, Type::Bool);
    assert_eq!(cases.iter().map(|c| c.labels.clone()).collect::<Vec<_>>(), [[1], [0]]);
    let DefKind::Bitmask { bit_bound: 32, flags } = &def(&schema, "SurveillanceEquipment").kind else { panic!() };
    assert_eq!(flags.iter().map(|f| f.position).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
}

#[test]
fn processor_probe() {
    let document = workload("processor_probe.pdl");
    let schema = document.schema("LinuxProcessorProbe").unwrap();
    assert_eq!(schema.name(), "OASIS::System::Processor::LinuxProcessorProbe");
    let names: Vec<&str> = members(&schema, "LinuxProcessorProbe").iter().map(|m| m.name.as_str()).collect();
    assert_eq!(
        names,
        ["idle_time", "system_time", "user_time", "nice_time", "iowait_time", "irq_time", "soft_irq_time"]
    );
    let base = def(&schema, "ProcessorProbe");
    assert!(base.nested, "an abstract probe is no topic");
    assert_eq!(base.annotations[0].name, "uuid");
    let uuid = Literal::String("7c3944f1-2176-4eaa-911c-ef5423a7e02d".into());
    assert_eq!(base.annotations[0].args, [("value".to_string(), uuid)]);
    assert_eq!(base.annotations[1].args, [("value".to_string(), Literal::String("1.0".into()))]);
    let topics: Vec<&str> = document.topic_types().map(|d| d.name.as_str()).collect();
    assert_eq!(topics, ["OASIS::System::Processor::LinuxProcessorProbe"]);
}

#[test]
fn switch_probe() {
    let document = workload("switch_probe.pdl");
    let schema = document.schema("OASIS/Network/Switch/SwitchProbe").unwrap();
    let port = schema.find("SwitchPort").unwrap();
    assert_eq!(member(&schema, "SwitchProbe", "ports").ty, Type::sequence(Type::Def(port)));
    assert_eq!(members(&schema, "SwitchPort").len(), 11);
}

#[test]
fn codecs_tests_of_all_sizes() {
    for fields in [10, 50, 100, 250, 500] {
        let document = parse("codecs_test.pdl", &codecs_test(fields));
        let schema = document.schema("Codecs_Test").unwrap();
        let list = members(&schema, "Codecs_Test");
        assert_eq!(list.len(), fields);
        assert_eq!(list[fields - 1].name, format!("uint64_value_{}", fields / 10));
        assert_eq!(list[fields - 1].id as usize, fields - 1);
    }
}

#[test]
fn probes_may_be_used_before_they_are_defined() {
    let text = "module M { probe B : A { vector<Later> list; real32 x; real64 y; }; probe A { int8 a; };
        struct Later { uint64 type; }; }";
    let schema = parse("m.pdl", text).schema("B").unwrap();
    let names: Vec<&str> = members(&schema, "B").iter().map(|m| m.name.as_str()).collect();
    assert_eq!(names, ["a", "list", "x", "y"]);
    assert_eq!(member(&schema, "B", "x").ty, Type::Float32);
}

#[test]
fn imports_and_includes_mix_the_languages() {
    let files = [
        ("lib/base.pdl", "module B { struct Point { real64 x; real64 y; }; }"),
        ("lib/more.idl", "#include \"base.pdl\"\nmodule B { typedef sequence<Point> Points; };"),
    ];
    let files: std::collections::BTreeMap<String, String> =
        files.into_iter().map(|(path, text)| (path.to_string(), text.to_string())).collect();
    let compiler = Compiler::new().loader(files).include_dir("lib");
    let text = "import \"lib/base.pdl\";\nimport \"more.idl\";\nprobe P { B::Points points; };";
    let document = compiler.parse_str("main.pdl", text).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(document.definitions().defs().len(), 3);
}

#[test]
fn generated_by_ros_2() {
    let text = r#"// generated from rosidl_adapter/resource/msg.idl.em
// with input from sensor_msgs/msg/BatteryState.msg
// generated code does not contain a copyright notice

#include "std_msgs/msg/Header.idl"

module sensor_msgs {
  module msg {
    typedef double double__9[9];
    module BatteryState_Constants {
      @verbatim (language="comment", text=
        "Constants are chosen to match the enums in the linux kernel" "\n"
        "defined in include/linux/power_supply.h as of version 3.7")
      const uint8 POWER_SUPPLY_STATUS_UNKNOWN = 0;
      const string NAME = "battery";
    };
    @verbatim (language="comment", text=
      "Describes the power state of the battery")
    struct BatteryState {
      std_msgs::msg::Header header;

      @verbatim (language="comment", text=
        "Voltage in Volts (Mandatory)")
      @unit (value="V")
      float voltage;

      sequence<float> cell_voltage;
      double__9 covariance;
      @default (value=3)
      uint8 status;
      octet data;
    };
  };
};
"#;
    let header = "module builtin_interfaces { module msg { struct Time { int32 sec; uint32 nanosec; }; }; };
        module std_msgs { module msg { struct Header { builtin_interfaces::msg::Time stamp; string frame_id; }; }; };";
    let loader = move |path: &str| Ok((path == "ros/std_msgs/msg/Header.idl").then(|| header.as_bytes().to_vec()));
    let document = Compiler::new().loader(loader).include_dir("ros").parse_str("msg/BatteryState.idl", text);
    let document = document.unwrap_or_else(|e| panic!("{e}"));
    let schema = document.schema("sensor_msgs/msg/BatteryState").unwrap();
    assert_eq!(def(&schema, "BatteryState").doc, "Describes the power state of the battery");
    let voltage = member(&schema, "BatteryState", "voltage");
    assert_eq!(voltage.doc, "Voltage in Volts (Mandatory)");
    assert_eq!(voltage.annotations[0].args, [("value".to_string(), Literal::String("V".into()))]);
    assert_eq!(member(&schema, "BatteryState", "status").default, Some(Literal::Int(3)));
    assert_eq!(document.constants()[0].name, "sensor_msgs::msg::BatteryState_Constants::POWER_SUPPLY_STATUS_UNKNOWN");
    assert_eq!(document.constants()[1].value, Literal::String("battery".into()));
}

#[test]
fn in_the_style_of_cyclone() {
    let text = r#"
#ifndef TYPES_IDL
#define TYPES_IDL
#define MAX_LEN 8
#if defined(MAX_LEN) && MAX_LEN >= 8
#define WIDE
#endif
struct OldStyle {
  long id;
  string<MAX_LEN> name;
#ifdef WIDE
  long long value;
#else
  short value;
#endif
};
#pragma keylist OldStyle id name
#pragma DCPS_DATA_KEY "ignored it's fine"

struct Node;
typedef sequence<Node, 4> Children;
@mutable
struct Node {
  @id(10) @key @must_understand long id;
  @hashid("label") string label;
  @external @optional Children children;
  sequence<sequence<Node> > more;
};
enum Colour { @value(1) RED, GREEN, @default_literal @value(9) BLUE, BLACK };
@bit_bound(8) bitmask Flags { A, @position(5) B };
@final union Any switch (@key Colour) {
  case RED: case GREEN: long number;
  case Colour::BLUE: Flags flags[2];
  default: octet raw;
};
@annotation my_mark { string value default "x"; };
bitset Status { bitfield<3> low; bitfield<1>; bitfield<9, unsigned long> a, b; };
#endif
"#;
    let document = parse("types.idl", text);
    let schema = document.definitions();
    assert!(members(schema, "OldStyle").iter().map(|m| m.key).eq([true, true, false]));
    assert_eq!(member(schema, "OldStyle", "name").ty, Type::String { bound: 8 });
    assert_eq!(member(schema, "OldStyle", "value").ty, Type::Int64);
    assert_eq!(member(schema, "Node", "label").id, polywire_core::schema::hash_id("label"));
    let DefKind::Union { key: true, cases, .. } = &def(schema, "Any").kind else { panic!() };
    assert_eq!(cases.iter().map(|c| c.labels.as_slice()).collect::<Vec<_>>(), [&[1, 2][..], &[9], &[]]);
    let fields = schema.bit_fields(schema.find("Status").unwrap());
    let fields: Vec<_> = fields.iter().map(|f| (f.name.as_deref(), f.position, f.width, f.ty.clone())).collect();
    assert_eq!(
        fields,
        [
            (Some("low"), 0, 3, Type::Octet),
            (None, 3, 1, Type::Bool),
            (Some("a"), 4, 9, Type::Uint32),
            (Some("b"), 13, 9, Type::Uint32),
        ]
    );
}

#[test]
fn in_the_style_of_fast_dds() {
    let text = r#"
module HelloWorld {
    const unsigned long LENGTH = 1 << 4;
    const double RATIO = 3 / 2.0;
    const wstring GREETING = L"hello \u00e9";
    const octet MASK = ~0x0F & 0xFF;
    typedef struct Inner_ { @key long a, b; } Inner, InnerPair[2];
    @extensibility(MUTABLE) @autoid(HASH)
    struct Message : Inner {
        @default(5) @range(min = 0, max = 10) unsigned long index;
        @default("x") string<LENGTH> message;
        @optional map<string<4>, sequence<InnerPair, 3>, 10> table;
        long double precise;
        wchar wide;
        char grid[2][LENGTH + 1];
        @try_construct(TRIM) sequence<octet, LENGTH> data;
        unsigned long _module;
    };
};
"#;
    let document = parse("HelloWorld.idl", text);
    assert!(document.warnings().is_empty(), "{}", document.warnings());
    let values: Vec<&Literal> = document.constants().iter().map(|c| &c.value).collect();
    let expected = [Literal::Int(16), Literal::Float(1.5), Literal::String("hello \u{e9}".into()), Literal::Int(0xF0)];
    assert!(values.into_iter().eq(&expected));
    let schema = document.schema("Message").unwrap();
    let list = members(&schema, "Message");
    assert_eq!(list[0].name, "a");
    assert_eq!(list[2].id, polywire_core::schema::hash_id("index"));
    let range = [("min".to_string(), Literal::Int(0)), ("max".to_string(), Literal::Int(10))];
    assert_eq!(list[2].annotations[0].args, range);
    assert_eq!(member(&schema, "Message", "grid").ty, Type::array(Type::Char8, [2, 17]));
    assert_eq!(list.last().unwrap().name, "module");
}

#[test]
fn names_of_types() {
    let document = parse("x.idl", "module A { struct Same { long x; }; }; module B { struct Same { long x; }; };");
    assert_eq!(document.schema("B::Same").unwrap().name(), "B::Same");
    assert_eq!(document.schema("Same").unwrap_err().to_string(), "'Same' may be 'A::Same' or 'B::Same'");
    assert_eq!(document.schema("Sam").unwrap_err().to_string(), "there is no type 'Sam'; did you mean 'A::Same'?");
    assert_eq!(document.schema("Velocity").unwrap_err().to_string(), "there is no type 'Velocity'");
}
