//! `polywire compat`: verdicts, exit codes, and that the verdicts are true.

use crate::common::{Ended, Folder, WEATHER};
use serde_json::{Value, json};

fn compare(folder: &Folder, arguments: &[&str]) -> Ended {
    folder.run(&[&["compat", "weather.idl", "newer.idl"], arguments].concat())
}

/// The verdict of a format in the JSON of the only type.
fn verdict<'a>(report: &'a Value, format: &str, direction: &str) -> &'a Value {
    let formats = report["types"][0]["formats"].as_array().expect("formats");
    let found = formats.iter().find(|entry| entry["format"] == format).expect("the format");
    &found[direction]["verdict"]
}

#[test]
fn the_exit_code_is_the_verdict() {
    let folder = Folder::new();
    folder.write("other.idl", "module weather { struct Report { string station; string temperature_c; }; };");
    for (arguments, code) in [
        (&["compat", "weather.idl", "weather.idl", "--format", "cdr"][..], 0),
        (&["compat", "weather.idl", "newer.idl", "--format", "cdr", "--direction", "backward"], 0),
        (&["compat", "weather.idl", "newer.idl", "--format", "cdr", "--direction", "forward"], 1),
        (&["compat", "weather.idl", "newer.idl", "--format", "cdr,json"], 1),
        (&["compat", "weather.idl", "other.idl", "--type", "Report"], 1),
        (&["compat", "weather.idl", "gone.idl"], 2),
        (&["compat", "weather.idl"], 3),
        (&["compat", "weather.idl", "newer.idl", "--format", "jsn"], 3),
        (&["compat", "weather.idl", "newer.idl", "--type", "Reprot"], 3),
    ] {
        folder.run(arguments).with(code);
    }
}

#[test]
fn findings_have_a_path_and_a_fix() {
    let folder = Folder::new();
    let report = compare(&folder, &["--type", "Report", "--json", "--format", "cdr,json"]).with(1).json();
    assert_eq!(report["compatible"], json!(false));
    let formats = report["types"][0]["formats"].as_array().expect("formats");
    assert_eq!(formats.len(), 2);
    assert_eq!(formats[0]["backward"], json!({ "verdict": "always", "findings": [] }));
    let findings = formats[0]["forward"]["findings"].as_array().expect("findings");
    let expected = json!({
        "path": "wind.speed_ms",
        "problem": "the writer has double, the reader float",
        "fix": "make the reader's type double",
    });
    assert!(findings.contains(&expected), "{findings:?}");
    let text = compare(&folder, &["--type", "Report"]).with(1).out;
    assert!(text.contains("wind.speed_ms: the writer has double, the reader float\n      to fix it: make"), "{text}");
    assert!(text.ends_with("1 type: not compatible\n"), "{text}");
}

#[test]
fn values_may_decide() {
    let folder = Folder::new();
    folder.write("more.idl", &WEATHER.replace("RAIN }", "RAIN, SNOW }"));
    let arguments = ["compat", "weather.idl", "more.idl", "--type", "Report", "--direction", "forward"];
    let text = folder.run(&arguments).with(0).out;
    assert!(text.contains("forward (old readers, new data): per value in cdr, xcdr2, json"), "{text}");
    assert!(text.contains("sky: ") && text.contains("the message is refused"), "{text}");
    folder.run(&[&arguments[..], &["--strict"]].concat()).with(1);
}

/// Without the writer's schema, positional formats understand less than those that name their
/// members.
#[test]
fn formats_differ_without_the_schema() {
    let folder = Folder::new();
    folder.write(
        "moved.idl",
        &WEATHER.replace("string station;\n    double temperature_c;", "double temperature_c;\n    string station;"),
    );
    let moved = ["compat", "weather.idl", "moved.idl", "--type", "Report", "--json"];
    folder.run(&moved).with(0);
    let report = folder.run(&[&moved[..], &["--without-schema"]].concat()).with(1).json();
    for direction in ["backward", "forward"] {
        assert_eq!(verdict(&report, "json", direction), "always");
        assert_eq!(verdict(&report, "msgpack", direction), "always");
        assert!(
            ["refused", "misread", "per_value"].iter().any(|bad| verdict(&report, "cdr", direction) == bad),
            "{report}"
        );
    }
    // Two equal types are compatible even without the schema.
    folder.run(&["compat", "weather.idl", "weather.idl", "--type", "Report", "--without-schema", "--strict"]).with(0);
}

#[test]
fn types_pair_by_name_and_may_come_and_go() {
    let folder = Folder::new();
    folder.write("one.idl", "struct A { long a; }; struct B { long b; };");
    folder.write("two.idl", "struct A { long a; }; struct C { long c; };");
    let report = folder.run(&["compat", "one.idl", "two.idl", "--json", "--format", "json"]).with(1).json();
    assert_eq!((&report["removed"], &report["added"]), (&json!(["B"]), &json!(["C"])));
    folder.run(&["compat", "one.idl", "two.idl", "--type", "A"]).with(0);
    // With one type on each side, the names need not be equal.
    folder.write("renamed.idl", "struct Better { long a; };");
    folder.write("named.idl", "struct Good { long a; };");
    let text = folder.run(&["compat", "named.idl", "renamed.idl"]).with(0).out;
    assert!(text.starts_with("Better, formerly Good\n"), "{text}");
}

#[test]
fn all_sources_of_types_do() {
    let folder = Folder::new();
    folder.run(&["typeof", "--idl", "weather.idl", "--type", "Report", "--save", "report.schema"]).with(0);
    folder.run(&["compat", "report.schema", "weather.idl", "--type", "Report"]).with(0);
    folder.write("old.pdl", "probe Pump { real64 pressure; };");
    folder.write("new.idl", "struct Pump { double pressure; @default(1) long state; };");
    folder.run(&["compat", "old.pdl", "new.idl"]).with(0);
    for (version, text) in [("v1", "float64 x\n"), ("v2", "float64 x\nfloat64 y 1.0\n")] {
        std::fs::create_dir_all(folder.path().join(version).join("geo/msg")).expect("a folder");
        folder.write(&format!("{version}/geo/msg/Point.msg"), text);
    }
    let text = folder.run(&["compat", "v1/geo/msg/Point.msg", "v2/geo/msg/Point.msg"]).with(0).out;
    assert!(text.starts_with("geo::msg::Point\n  backward (new readers, old data): always in cdr,"), "{text}");
}

/// Definitions of ROS 2 are types for every command, and are written as IDL.
#[test]
fn definitions_of_ros_2_are_types() {
    let folder = Folder::new();
    std::fs::create_dir_all(folder.path().join("robot/msg")).expect("a folder");
    folder.write("robot/msg/State.msg", "std_msgs/Header header\nuint8 OK=0\nuint8 level 3\nstring<=5[] tags\n");
    folder.write("states.json", "{\"level\":7,\"tags\":[\"a\"]}\n{}\n");
    let read = folder.run(&["transcode", "states.json", "--idl", "robot/msg/State.msg", "--quiet"]).with(0).out;
    let header = r#"{"header":{"stamp":{"sec":0,"nanosec":0},"frame_id":""},"#;
    assert_eq!(read, format!("{header}\"level\":7,\"tags\":[\"a\"]}}\n{header}\"level\":3,\"tags\":[]}}\n"));
    let idl = folder.run(&["idl", "emit", "idl", "robot/msg/State.msg"]).with(0).out;
    for part in ["module robot {", "const uint8 OK = 0;", "sequence<string<5>> tags;", "std_msgs::msg::Header header;"]
    {
        assert!(idl.contains(part), "{part}: {idl}");
    }
    folder.write("state.idl", &idl);
    let hash = |file: &str| folder.run(&["typeof", "--idl", file, "--type", "State", "--hash"]).with(0).out;
    assert_eq!(hash("robot/msg/State.msg"), hash("state.idl"));
    let rust = folder.run(&["idl", "rust", "robot/msg/State.msg"]).with(0).out;
    assert!(rust.contains("name = \"robot::msg::State\""), "{rust}");
    // From inside the package, so that the path does not contain its name.
    let mut inside = folder.command(&["idl", "check", "msg/State.msg"]);
    let ended = inside.current_dir(folder.path().join("robot")).output().expect("it runs");
    assert!(ended.status.success() && ended.stderr.is_empty(), "{}", String::from_utf8_lossy(&ended.stderr));
}

/// A file from a stranger cannot include files outside its folder.
#[test]
fn an_include_reaches_no_secret() {
    let folder = Folder::new();
    folder.write(".env", "hunter2 swordfish\n");
    folder
        .write("a.idl", "#include \".env\"\n#include \"/dev/zero\"\n#include \"/etc/passwd\"\nstruct A { long a; };\n");
    let ended = folder.run(&["idl", "check", "a.idl"]).with(2);
    assert!(!ended.errors.contains("hunter2") && !ended.errors.contains("root:"), "{}", ended.errors);
    assert_eq!(ended.errors.matches("lies outside the folder of the first file").count(), 2, "{}", ended.errors);
}

/// Values of a union that contains itself behind pointers, as in OMG's type objects, come back
/// equal from every format that can carry them.
#[test]
fn recursive_unions_travel() {
    let folder = Folder::new();
    let idl = "union Id; @final struct Many { octet bound; @external Id element; };
        @final struct Table { @external Id key; @external Id element; }; @mutable struct Later { };
        union Id switch (octet) { case 1: octet bound; case 2: Many many; case 3: Table table; case 4: @external Id same; default: Later later; };
        struct Named { string name; Id id; sequence<Id> others; };";
    folder.write("id.idl", idl);
    let value = concat!(
        r#"{"name":"n","id":{"many":{"bound":3,"element":{"same":{"bound":7}}}},"#,
        r#""others":[{"table":{"key":{"bound":1},"element":{"many":{"bound":2,"element":{"$discriminator":0,"later":{}}}}}}]}"#,
        "\n"
    );
    folder.write("id.json", value);
    let codecs = folder.run(&["codecs", "--json"]).with(0).json();
    let mut carried = 0;
    for codec in codecs["codecs"].as_array().expect("codecs").iter().filter_map(|codec| codec["name"].as_str()) {
        let types = ["--idl", "id.idl", "--type", "Named", "--quiet"];
        let there =
            folder.run(&[&["transcode", "id.json", "--to", codec, "--output", "id.frames"], &types[..]].concat());
        if there.code == Some(0) {
            assert_eq!(folder.run(&["transcode", "id.frames", "--quiet"]).with(0).out, value, "{codec}");
            carried += 1;
        } else {
            assert_eq!(codec, "fast", "{}", there.errors);
        }
    }
    assert!(carried >= 12, "{carried}");
}

/// Types can come from a pipe, as with `<(command)`.
#[cfg(unix)]
#[test]
fn types_may_come_through_a_pipe() {
    let folder = Folder::new();
    let ended = folder.run_with(&["idl", "check", "/dev/stdin"], "struct A { long a; };").with(0);
    assert!(ended.out.starts_with("1 file: 0 errors"), "{}", ended.out);
    folder.run_with(&["idl", "check", "/dev/stdin"], "struct A {").with(2);
}

/// Fifty warnings do not hide the one error, on terminals or in JSON.
#[test]
fn errors_come_before_warnings() {
    let folder = Folder::new();
    let members: String = (0..80).map(|i| format!("@unknown_{i}(1) long a{i}; long A{i};\n")).collect();
    folder.write("a.idl", &format!("struct S {{\n{members}}};\n"));
    folder.write("b.idl", &format!("struct S {{\n{members}doubel last; }};\n"));
    let ended = folder.run(&["idl", "check", "a.idl", "b.idl"]).with(2);
    assert!(ended.errors.contains("there is no type 'doubel' here"), "{}", ended.errors);
    assert!(ended.errors.lines().count() < 150, "{}", ended.errors);
    let report = folder.run(&["idl", "check", "a.idl", "b.idl", "--json"]).with(2).json();
    assert_eq!(report["errors"], json!(1));
    assert_eq!(report["diagnostics"][0]["severity"], json!("error"));
    assert_eq!(report["diagnostics"][1]["severity"], json!("warning"));
    folder.run(&["idl", "check", "a.idl"]).with(0);
    folder.run(&["idl", "check", "a.idl", "--strict"]).with(2);
}
