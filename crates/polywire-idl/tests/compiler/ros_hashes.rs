//! The hashes of ROS 2's own types, which ROS 2 publishes with its packages, from their
//! definitions.

use std::collections::BTreeMap;

use polywire_core::{
    ros::{TypeHash, TypeName},
    schema::Schema,
};
use polywire_idl::Compiler;

/// Definitions that others use.
const FILES: &[(&str, &str)] = &[
    ("builtin_interfaces/msg/Time", "int32 sec\nuint32 nanosec"),
    ("builtin_interfaces/msg/Duration", "int32 sec\nuint32 nanosec"),
    ("std_msgs/msg/Header", "builtin_interfaces/Time stamp\nstring frame_id"),
    ("geometry_msgs/msg/Vector3", "float64 x 0\nfloat64 y 0\nfloat64 z 0"),
    ("geometry_msgs/msg/Quaternion", "float64 x 0\nfloat64 y 0\nfloat64 z 0\nfloat64 w 1"),
    ("geometry_msgs/msg/Transform", "Vector3 translation\nQuaternion rotation"),
    ("geometry_msgs/msg/TransformStamped", "std_msgs/Header header\nstring child_frame_id\nTransform transform"),
    ("sensor_msgs/msg/PointField", "uint8 INT8 = 1\nstring name\nuint32 offset\nuint8 datatype\nuint32 count"),
    ("test_msgs/msg/BasicTypes", BASIC_TYPES),
    ("test_msgs/msg/Constants", "bool BOOL_CONST=true\nint64 INT64_CONST=-40000000"),
    ("test_msgs/msg/Defaults", BASIC_TYPES),
];

const BASIC_TYPES: &str = "
bool bool_value
byte byte_value
char char_value
float32 float32_value
float64 float64_value
int8 int8_value
uint8 uint8_value
int16 int16_value
uint16 uint16_value
int32 int32_value
uint32 uint32_value
int64 int64_value
uint64 uint64_value";

/// Types with their definitions and the hashes that ROS 2 publishes.
const TYPES: &[(&str, &str, &str)] = &[
    (
        "std_msgs/msg/String",
        "string data",
        "df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18",
    ),
    ("std_msgs/msg/Empty", "", "20b625256f32d5dbc0d04fee44f43c41e51c70d3502f84b4a08e7a9c26a96312"),
    (
        "std_msgs/msg/Header",
        "builtin_interfaces/Time stamp\nstring frame_id",
        "f49fb3ae2cf070f793645ff749683ac6b06203e41c891e17701b1cb597ce6a01",
    ),
    (
        "geometry_msgs/msg/Twist",
        "Vector3 linear\nVector3 angular",
        "9c45bf16fe0983d80e3cfe750d6835843d265a9a6c46bd2e609fcddde6fb8d2a",
    ),
    (
        "sensor_msgs/msg/Imu",
        "std_msgs/Header header
         geometry_msgs/Quaternion orientation
         float64[9] orientation_covariance
         geometry_msgs/Vector3 angular_velocity
         float64[9] angular_velocity_covariance
         geometry_msgs/Vector3 linear_acceleration
         float64[9] linear_acceleration_covariance",
        "7d9a00ff131080897a5ec7e26e315954b8eae3353c3f995c55faf71574000b5b",
    ),
    (
        "sensor_msgs/msg/PointCloud2",
        "std_msgs/Header header\nuint32 height\nuint32 width\nPointField[] fields\nbool is_bigendian\nuint32 point_step
         uint32 row_step\nuint8[] data\nbool is_dense",
        "9198cabf7da3796ae6fe19c4cb3bdd3525492988c70522628af5daa124bae2b5",
    ),
    (
        "sensor_msgs/msg/Range",
        "std_msgs/Header header\nuint8 ULTRASOUND=0\nuint8 radiation_type\nfloat32 field_of_view\nfloat32 min_range
         float32 max_range\nfloat32 range\nfloat32 variance",
        "b42b62562e93cbfe9d42b82fe5994dfa3d63d7d5c90a317981703f7388adff3a",
    ),
    (
        "rosgraph_msgs/msg/Clock",
        "builtin_interfaces/Time clock",
        "692f7a66e93a3c83e71765d033b60349ba68023a8c689a79e48078bcb5c58564",
    ),
    (
        "rcl_interfaces/msg/Log",
        "byte DEBUG=10\nbuiltin_interfaces/Time stamp\nuint8 level\nstring name\nstring msg\nstring file\nstring function
         uint32 line",
        "e28ce254ca8abc06abf92773b74602cdbf116ed34fbaf294fb9f81da9f318eac",
    ),
    (
        "tf2_msgs/msg/TFMessage",
        "geometry_msgs/TransformStamped[] transforms",
        "e369d0f05a23ae52508854b66f6aa0437f3449d652e8cbf22d5abe85d020f087",
    ),
    (
        "test_msgs/msg/Builtins",
        "builtin_interfaces/Duration duration_value\nbuiltin_interfaces/Time time_value",
        "9e61888e7521dda35c21ac6b6cabbcaff8dae88b6d67b25b9078fdb9abf56303",
    ),
    ("test_msgs/msg/BasicTypes", BASIC_TYPES, "7c300afd4e796798d49bdd6cdaa0fa87fa0ed2ba3217d977e1faa87070d797ab"),
    (
        "test_msgs/msg/Nested",
        "BasicTypes basic_types_value",
        "f964f9dc322022b7a681ee6933ee5c3c788025b942fedb7f4d7c018ed840cf86",
    ),
    (
        "test_msgs/msg/Strings",
        "string string_value
         string string_value_default1 \"Hello\"
         string string_value_default2
         string string_value_default3
         string string_value_default4
         string string_value_default5
         string<=22 bounded_string_value
         string<=22 bounded_string_value_default1 'Hello'
         string<=22 bounded_string_value_default2
         string<=22 bounded_string_value_default3
         string<=22 bounded_string_value_default4
         string<=22 bounded_string_value_default5",
        "eee55533636293ac7c94c62432eedb5777eb849847d2a17b4dcead8c4a20ab32",
    ),
    (
        "test_msgs/msg/WStrings",
        "wstring wstring_value
         wstring wstring_value_default1
         wstring wstring_value_default2
         wstring wstring_value_default3
         wstring[3] array_of_wstrings
         wstring[<=3] bounded_sequence_of_wstrings
         wstring[] unbounded_sequence_of_wstrings",
        "5a2c8ddb2054600023b9a180652f2ba895373217cad4b1f0fc1258c9e4424a79",
    ),
];

/// The members of `test_msgs/msg/BoundedSequences`, and with other brackets those of others.
fn collections(brackets: &str) -> String {
    let primitives = BASIC_TYPES.lines().filter_map(|line| line.split_once(' ')).map(|(ty, _)| ty);
    let types: Vec<&str> = primitives.chain(["string"]).collect();
    let plain = types.iter().map(|ty| format!("{ty}{brackets} {ty}_values\n"));
    let nested = ["BasicTypes basic_types", "Constants constants", "Defaults defaults"].map(|nested| {
        let (ty, name) = nested.split_once(' ').expect("a type and a name");
        format!("{ty}{brackets} {name}_values\n")
    });
    let defaults = types.iter().map(|ty| format!("{ty}{brackets} {ty}_values_default\n"));
    plain.chain(nested).chain(defaults).collect()
}

fn compile(name: &str, ending: &str, text: &str, of: &str) -> Schema {
    let files = FILES.iter().map(|(name, text)| (format!("{name}.msg"), text.to_string()));
    let path = format!("{name}.{ending}");
    let files: BTreeMap<String, String> = files.chain([(path.clone(), text.to_string())]).collect();
    let document = Compiler::new().loader(files).parse_file(&path).unwrap_or_else(|errors| panic!("{errors}"));
    document.schema(of).unwrap_or_else(|error| panic!("{of}: {error:?}"))
}

fn message(name: &str, text: &str) -> Schema {
    let schema = compile(name, "msg", text, &name.replace('/', "::"));
    assert_eq!(TypeName::of_schema(schema.name()).expect("a name of ROS 2").to_string(), name);
    schema
}

fn hash(schema: &Schema) -> String {
    TypeHash::of(schema).unwrap_or_else(|error| panic!("{error}")).to_string()
}

#[test]
fn messages_have_the_hashes_of_ros() {
    for (name, text, expected) in TYPES {
        assert_eq!(hash(&message(name, text)), format!("RIHS01_{expected}"), "{name}");
    }
}

#[test]
fn collections_have_the_hashes_of_ros() {
    let of = |name: &str, brackets: &str| {
        let text = collections(brackets) + "int32 alignment_check\n";
        hash(&message(&format!("test_msgs/msg/{name}"), &text))
    };
    assert_eq!(of("Arrays", "[3]"), "RIHS01_8a321b80dae8c44dfd1ce558eaf1b1cd5ebbe5950863ed675836535511a7f91a");
    assert_eq!(
        of("BoundedSequences", "[<=3]"),
        "RIHS01_fb361a3b3827c76a142c2190126a20a92e7e510e047f880141a7e9ef867961ed"
    );
    assert_eq!(
        of("UnboundedSequences", "[]"),
        "RIHS01_a63975514293a2c6b24a807675bcbd9180bda1995dd4ee10f2698d45ff77db05"
    );
    let constants = message("test_msgs/msg/Constants", "bool BOOL_CONST=true\n");
    assert_eq!(hash(&constants), "RIHS01_983e7ae7099d65b3030c31c2890b0ec2b332484fae9f28c68e01340c8f61edcf");
}

#[test]
fn services_have_the_hashes_of_ros() {
    let of = |part: &str| {
        let text = "int64 a\nint64 b\n---\nint64 sum\n";
        compile(
            "example_interfaces/srv/AddTwoInts",
            "srv",
            text,
            &format!("example_interfaces::srv::AddTwoInts_{part}"),
        )
    };
    let service = TypeHash::of_service(&of("Request"), &of("Response")).expect("a service of ROS 2");
    assert_eq!(service.to_string(), "RIHS01_e118de6bf5eeb66a2491b5bda11202e7b68f198d6f67922cf30364858239c81a");
}
