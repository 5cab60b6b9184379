//! ROS 2 definitions: `.msg`, `.srv`, `.action`.

use std::collections::BTreeMap;

use polywire_core::schema::{Def, DefKind, Literal, Type};
use polywire_idl::{Compiler, Document, emit};

fn files(list: &[(&str, &str)]) -> BTreeMap<String, String> {
    list.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect()
}

fn compile(path: &str, list: &[(&str, &str)]) -> Document {
    Compiler::new().loader(files(list)).parse_file(path).unwrap_or_else(|errors| panic!("{errors}"))
}

fn refused(text: &str) -> String {
    Compiler::new().loader(files(&[])).parse_str("p/msg/M.msg", text).expect_err(text).to_string()
}

fn def<'a>(document: &'a Document, name: &str) -> &'a Def {
    document.definitions().defs().iter().find(|def| def.name == name).unwrap_or_else(|| panic!("no {name}"))
}

const STATUS: &str = "# What a robot says of itself.
# It says it often.

uint8 OK=0
uint8 FAILED = 0x10   # something is broken
string NAME=\"a # b\"
float32 RATIO=-1.5

std_msgs/Header header
# How it is.
uint8 level 16
string<=10[<=5] labels
float64[9] covariance
char letter 65
byte[] raw
bool on true  # switched on
wstring<=4 wide 'wide'
Part[] parts
geometry/msg/Point at
";

#[test]
fn a_message_is_what_its_idl_is() {
    let list = [
        ("ws/robot/msg/Status.msg", STATUS),
        ("ws/robot/msg/Part.msg", "string name \"it's\"\nint64 count -3\n"),
        ("ws/geometry/msg/Point.msg", "float64 x\nfloat64 y\n"),
    ];
    let document = compile("ws/robot/msg/Status.msg", &list);
    assert!(document.warnings().is_empty(), "{}", document.warnings());
    let idl = "
        module builtin_interfaces { module msg { struct Time { int32 sec; uint32 nanosec; }; }; };
        module std_msgs { module msg { struct Header { builtin_interfaces::msg::Time stamp; string frame_id; }; }; };
        module geometry { module msg { struct Point { double x; double y; }; }; };
        module robot { module msg {
          module Status_Constants { const uint8 OK = 0; const uint8 FAILED = 16; const string NAME = \"a # b\"; const float RATIO = -1.5; };
          struct Part { @default(\"it's\") string name; @default(-3) int64 count; };
          struct Status {
            std_msgs::msg::Header header;
            @default(16) uint8 level;
            sequence<string<10>, 5> labels;
            double covariance[9];
            @default(65) uint8 letter;
            sequence<octet> raw;
            @default(TRUE) boolean on;
            @default(\"wide\") wstring<4> wide;
            sequence<Part> parts;
            geometry::msg::Point at;
          };
        }; };";
    let from_idl = Compiler::new().parse_str("status.idl", idl).unwrap_or_else(|errors| panic!("{errors}"));
    let hash = |document: &Document| document.schema("robot::msg::Status").unwrap().type_hash();
    assert_eq!(hash(&document), hash(&from_idl));
    let constants = |document: &Document| -> Vec<String> {
        document.constants().iter().map(|c| format!("{} {:?}", c.name, c.value)).collect()
    };
    assert_eq!(constants(&document), constants(&from_idl));
    assert_eq!(document.own_topic_types().map(|def| &*def.name).collect::<Vec<_>>(), ["robot::msg::Status"]);
    let status = def(&document, "robot::msg::Status");
    assert_eq!(status.doc, "What a robot says of itself.\nIt says it often.");
    let DefKind::Struct { members, .. } = &status.kind else { panic!("a structure") };
    assert_eq!((members[1].doc.as_str(), members[6].doc.as_str()), ("How it is.", "switched on"));
    assert_eq!(document.constants()[1].doc, "something is broken");

    // The emitted text parses to the same types.
    for emitter in emit::EMITTERS {
        let text = (emitter.emit)(document.definitions(), document.constants());
        assert!(text.is_ok() || emitter.name == "proto", "{}: {text:?}", emitter.name);
    }
    let again = emit::idl(document.definitions()).unwrap();
    assert_eq!(hash(&Compiler::new().parse_str("again.idl", &again).unwrap()), hash(&document), "{again}");
}

#[test]
fn services_and_actions_have_their_parts() {
    let service = "uint32 WAIT=1\nint64 a\n---\nint64 sum\nuint8 CODE=7\n";
    let document = compile("demo/srv/Add.srv", &[("demo/srv/Add.srv", service)]);
    let names: Vec<&str> = document.own_topic_types().map(|def| def.name.as_str()).collect();
    assert_eq!(names, ["demo::srv::Add_Request", "demo::srv::Add_Response"]);
    let names: Vec<&str> = document.constants().iter().map(|constant| constant.name.as_str()).collect();
    assert_eq!(names, ["demo::srv::Add_Request_Constants::WAIT", "demo::srv::Add_Response_Constants::CODE"]);

    let empty = compile("std_srvs/srv/Empty.srv", &[("std_srvs/srv/Empty.srv", "---\n")]);
    let DefKind::Struct { members, .. } = &def(&empty, "std_srvs::srv::Empty_Response").kind else {
        panic!("a structure")
    };
    assert_eq!((members[0].name.as_str(), &members[0].ty), ("structure_needs_at_least_one_member", &Type::Uint8));

    let action = compile(
        "demo/action/Turn.action",
        &[("demo/action/Turn.action", "float32 theta\n---\nfloat32 delta\n---\nfloat32 left\n")],
    );
    let names: Vec<&str> = action.own_topic_types().map(|def| def.name.as_str()).collect();
    assert_eq!(names, ["demo::action::Turn_Goal", "demo::action::Turn_Result", "demo::action::Turn_Feedback"]);

    let shown = Compiler::new().loader(files(&[])).parse_str("demo/srv/A.srv", "int64 a\n").unwrap_err().to_string();
    assert!(shown.contains("a .srv file has 2 parts separated by '---', but this one has 1"), "{shown}");
}

#[test]
fn packages_are_found_by_folder() {
    let point = ("share/geo/msg/Point.msg", "float64 x\n");
    let user = ("mine/app/msg/Use.msg", "geo/Point at\n");
    let with = |dir: &str| Compiler::new().loader(files(&[point, user])).include_dir(dir).parse_file(user.0);
    assert!(with("share").is_ok());
    assert!(with("share/geo").is_ok(), "the folder of the package itself");
    let shown = with("elsewhere").unwrap_err().to_string();
    assert!(shown.contains("mine/app/msg/Use.msg:1:1: error: there is no message 'geo/Point'"), "{shown}");
    assert!(shown.contains("add the folder that contains the package 'geo' with -I"), "{shown}");
    assert!(shown.contains("looked for mine/geo/msg/Point.msg, elsewhere/geo/msg/Point.msg"), "{shown}");

    // A file that lies nowhere in particular.
    let alone = compile("Use.msg", &[("Use.msg", "Other other\n"), ("Other.msg", "int8 a\n")]);
    assert!(alone.warnings().to_string().contains("not PACKAGE/msg/NAME.msg"), "{}", alone.warnings());
    assert_eq!(alone.own_topic_types().map(|def| &*def.name).collect::<Vec<_>>(), ["msg::Use"]);

    let circle = [("p/msg/A.msg", "B b\n"), ("p/msg/B.msg", "A[] a\n")];
    let shown = Compiler::new().loader(files(&circle)).parse_file("p/msg/A.msg").unwrap_err().to_string();
    assert!(shown.contains("contains itself, which ROS 2 does not allow"), "{shown}");
}

#[test]
fn idl_does_not_include_definitions() {
    let list = files(&[("a.idl", "#include \"M.msg\"\nstruct A { long a; };"), ("M.msg", "int8 a\n")]);
    let shown = Compiler::new().loader(list).parse_file("a.idl").unwrap_err().to_string();
    assert!(shown.contains("a.idl:1:1: error: a definition of ROS 2 cannot be included"), "{shown}");
}

#[test]
fn errors_have_their_locations() {
    for (text, expected) in [
        ("int23 a\n", "p/msg/M.msg:1:1: error: there is no type 'int23'"),
        ("int32\n", "expected a name of letters, digits and '_' after the type"),
        ("int32 a-b\n", "p/msg/M.msg:1:7: error: expected a name"),
        ("int32[x] a\n", "p/msg/M.msg:1:7: error: expected a number"),
        ("int32[0] a\n", "the length of an array is 0"),
        ("uint8 a 256\n", "256 does not fit into 'uint8'"),
        ("uint8 A=-1\n", "-1 does not fit into 'uint8'"),
        ("bool a maybe\n", "p/msg/M.msg:1:8: error: expected true or false"),
        ("string a \"open\n", "expected a closing quote"),
        ("string<=2 a 'abc'\n", "the string has length 3, but its bound is 2"),
        ("int32 a\nfloat32 a\n", "p/msg/M.msg:2:9: error: duplicate member 'a'"),
        ("int32[2] A=1\n", "a constant must be a boolean, a number or a string"),
        ("a/b/c/D x\n", "there is no type 'a/b/c/D'"),
        ("../x/Y a\n", "there is no type '../x/Y'"),
        ("int8 a\n---\nint8 b\n", "a .msg file has 1 parts"),
    ] {
        let shown = refused(text);
        assert!(shown.contains(expected), "{text}{shown}");
    }
    assert!(refused("int23 a\n").contains("did you mean 'int32'?"));
    let document = compile("p/msg/M.msg", &[("p/msg/M.msg", "int8[3] a [1, 2, 3]\nint8[] b []\n")]);
    assert_eq!(document.warnings().warnings(), 2, "{}", document.warnings());
}

#[test]
fn defaults_are_values_of_their_type() {
    let text = "float32 f 1\nuint64 u 0xFFFFFFFFFFFFFFFF\nbool b 0\nstring s plain text  # comment\nfloat64 e 1e-3\n";
    let document = compile("p/msg/M.msg", &[("p/msg/M.msg", text)]);
    let DefKind::Struct { members, .. } = &def(&document, "p::msg::M").kind else { panic!("a structure") };
    let defaults: Vec<&Literal> = members.iter().filter_map(|member| member.default.as_ref()).collect();
    let expected = [
        Literal::Float(1.0),
        Literal::Int(u64::MAX.into()),
        Literal::Bool(false),
        Literal::String("plain text".into()),
        Literal::Float(0.001),
    ];
    assert_eq!(defaults, expected.iter().collect::<Vec<_>>());
}
