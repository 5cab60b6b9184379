//! `polywire bench`: scenarios, exit codes, files and comparisons. No time is judged.

mod common;

use common::Folder;

const SCENARIO: &str = "name = 'Two formats'
seed = 3
effort = { repeats = 6, messages = 10, warm_up = 2, turn_ms = 0.01, emulated = 50 }
[[type]]
idl = 'weather.idl'
name = 'Report'
[axes]
codec = ['cdr', 'json']
network = ['none', 'lan']
[[criteria]]
metric = 'bytes'
where = { codec = 'cdr' }
at_most = 1000
";

#[test]
fn a_scenario_becomes_a_table_json_and_a_page() {
    let folder = Folder::new();
    folder.write("s.toml", SCENARIO);
    let shown = folder.run(&["bench", "s.toml", "-o", "a.json", "--html", "a.html"]).with(0).out;
    assert!(
        shown.contains("Two formats")
            && shown.contains("serialise")
            && shown.contains("met: bytes at most 1000, in 2 cases"),
        "{shown}"
    );
    let json: serde_json::Value = serde_json::from_str(&folder.read("a.json")).expect("JSON");
    assert_eq!(json["cases"].as_array().map(Vec::len), Some(4));
    assert_eq!((&json["scenario"]["seed"], &json["command"]), (&3.into(), &"polywire bench s.toml".into()));
    assert!(json["cases"][0]["metrics"]["allocations"]["value"].is_number(), "{json}");
    assert!(json["host"]["cores"].as_u64() > Some(0));
    let page = folder.read("a.html");
    assert!(page.contains("<svg ") && page.contains("CPU time by stage") && !page.contains("src="), "{page}");
    assert_eq!(
        folder.run(&["--json", "bench", "s.toml", "--repeats", "2"]).with(0).json()["cases"][0]["case"]["codec"],
        "cdr"
    );
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_a_comparison_finds_what_changed() {
    let folder = Folder::new();
    folder.write("s.toml", SCENARIO);
    folder.write("wider.toml", &SCENARIO.replace("'json'", "'json', 'cbor'"));
    folder.run(&["bench", "s.toml", "-o", "a.json"]).with(0);
    folder.run(&["bench", "wider.toml", "-o", "b.json"]).with(0);
    let comparison = folder.run(&["--json", "bench", "compare", "a.json", "b.json"]);
    let json = comparison.json();
    let bytes = |change: &&serde_json::Value| change["metric"] == "bytes";
    assert!(json["changes"].as_array().expect("a list").iter().find(bytes).is_none(), "{json}");
    assert_eq!(json["new"].as_array().map(Vec::len), Some(2), "{json}");
    let grown = folder.read("a.json").replace("\"value\": 5", "\"value\": 9").replace("\"low\": 5", "\"low\": 9");
    folder.write("worse.json", &grown.replace("\"high\": 5", "\"high\": 9"));
    let shown = folder.run(&["bench", "compare", "a.json", "worse.json"]).with(1).out;
    assert!(shown.contains("worse"), "{shown}");
    folder.run(&["bench", "compare", "a.json", "a.json"]).with(0);
}

#[test]
fn exit_codes_are_those_of_gates() {
    let folder = Folder::new();
    folder.write("s.toml", SCENARIO);
    folder.write("missed.toml", &SCENARIO.replace("at_most = 1000", "at_most = 1"));
    folder.write("wrong.toml", "nme = 1");
    folder.write("none.toml", &SCENARIO.replace("weather.idl", "nowhere.idl"));
    let missed = folder.run(&["bench", "missed.toml"]).with(1).out;
    assert!(missed.contains("MISSED: bytes at most 1"), "{missed}");
    assert!(folder.run(&["bench", "none.toml"]).with(2).out.contains("nowhere.idl"));
    assert!(folder.run(&["bench", "wrong.toml"]).with(3).errors.contains("nme"));
    folder.run(&["bench", "nowhere.toml"]).with(3);
    folder.run(&["bench"]).with(3);
    folder.run(&["bench", "compare", "a.json", "b.json"]).with(2);
}

#[test]
fn real_engines_have_their_other_end_in_another_process() {
    let folder = Folder::new();
    for mode in ["closed", "open", "throughput"] {
        let text = SCENARIO.replace("seed = 3", &format!("mode = '{mode}'"));
        let text =
            text.replace("['none', 'lan']", "['none']\nengine = ['tcp', 'raw-tcp', 'raw-udp']\nrate_hz = [1000]");
        folder.write("live.toml", &text.replace("'cdr', 'json'", "'cdr'"));
        let json = folder.run(&["--json", "bench", "live.toml"]).with(0).json();
        let cases = json["cases"].as_array().expect("a list");
        assert_eq!(cases.len(), 3);
        for case in cases {
            assert!(case["problem"].is_null(), "{mode}: {case}");
            assert!(
                case["metrics"]["peak_memory_bytes"]["value"].as_f64() > Some(1e6),
                "{mode}: another process: {case}"
            );
        }
    }
}
