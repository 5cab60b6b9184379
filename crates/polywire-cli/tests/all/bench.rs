//! `polywire bench`: scenarios, exit codes, files and comparisons. The tests do not judge times.

use std::collections::BTreeSet;

use crate::common::Folder;
use polywire_measure::scenario::Mode;

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
            && shown.contains("met: bytes at most 1000, in 2 cases: "),
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
    let mut worse: serde_json::Value = serde_json::from_str(&folder.read("a.json")).expect("JSON");
    for part in ["value", "low", "high"] {
        let part = &mut worse["cases"][0]["metrics"]["bytes"][part];
        *part = (part.as_f64().expect("a number") * 2.0).into();
    }
    folder.write("worse.json", &worse.to_string());
    let shown = folder.run(&["bench", "compare", "a.json", "worse.json"]).with(1).out;
    assert!(shown.starts_with("worse  bytes") && shown.contains("2.00x"), "{shown}");
    folder.run(&["bench", "compare", "a.json", "a.json"]).with(0);
    // If figures differ only in digits that the short form omits, all digits are shown.
    let mut closer: serde_json::Value = serde_json::from_str(&folder.read("a.json")).expect("JSON");
    for (name, value) in [("before", 107.4), ("after", 107.0)] {
        for part in ["value", "low", "high"] {
            closer["cases"][0]["metrics"]["bytes"][part] = value.into();
        }
        folder.write(&format!("{name}.json"), &closer.to_string());
    }
    let shown = folder.run(&["bench", "compare", "before.json", "after.json"]).with(0).out;
    assert!(shown.starts_with("better  bytes  107.4 -> 107  "), "{shown}");
    let mut failed: serde_json::Value = serde_json::from_str(&folder.read("a.json")).expect("JSON");
    failed["cases"][1]["problem"] = "no such host".into();
    folder.write("failed.json", &failed.to_string());
    let shown = folder.run(&["bench", "compare", "a.json", "failed.json"]).with(1).out;
    assert!(shown.contains("failed: ") && shown.contains("no such host"), "{shown}");
    folder.run(&["bench", "compare", "failed.json", "a.json"]).with(0);
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
    assert!(folder.run(&["bench", "none.toml"]).with(3).errors.contains("cannot read nowhere.idl"));
    folder.write("none.toml", &SCENARIO.replace("idl = 'weather.idl'", "text = 'struct Report { doubel x; };'"));
    assert!(folder.run(&["bench", "none.toml"]).with(2).out.contains("did you mean 'double'?"));
    assert!(folder.run(&["bench", "wrong.toml"]).with(3).errors.contains("nme"));
    folder.write("slip.toml", &SCENARIO.replace("'json'", "'jsno'"));
    assert!(folder.run(&["bench", "slip.toml"]).with(3).errors.contains("did you mean 'json'?"));
    folder.write("slip.toml", &SCENARIO.replace("metric = 'bytes'", "metric = 'throughput_hz'"));
    assert!(folder.run(&["bench", "slip.toml"]).with(3).errors.contains("does not measure 'throughput_hz'"));
    folder.run(&["bench", "nowhere.toml"]).with(3);
    folder.run(&["bench"]).with(3);
    folder.run(&["bench", "compare", "a.json", "b.json"]).with(2);
}

/// A case has exactly the metrics of its mode, with another process, a compressor and a network.
/// Criteria are checked against this list.
#[test]
fn modes_measure_what_they_say() {
    let folder = Folder::new();
    for mode in Mode::ALL {
        let head =
            SCENARIO.split("[axes]").next().expect("a head").replace("seed = 3", &format!("mode = '{}'", mode.name()));
        let axes = match mode {
            Mode::Stages => "network = ['lan']\ncompressor = ['zlib']",
            _ => "engine = ['tcp']\nrate_hz = [1000]",
        };
        folder.write("mode.toml", &format!("{head}[axes]\n{axes}\n"));
        let json = folder.run(&["--json", "bench", "mode.toml"]).with(0).json();
        let metrics = json["cases"][0]["metrics"].as_object().expect("figures");
        let measured: BTreeSet<&str> = metrics.keys().map(String::as_str).collect();
        let said: BTreeSet<&str> = mode.metrics().map(|(name, _)| name).collect();
        assert_eq!(measured, said, "{}", mode.name());
    }
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

#[test]
fn the_papers_experiments_become_pages() {
    let folder = Folder::new();
    // Only the article's experiment, because the others compile too many programs for a test. And
    // only some of its engines.
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let scenario = std::fs::read_to_string(format!("{root}/scenarios/papers/article.toml")).expect("the scenario");
    let few = |line: &str| match line.starts_with("engine = ") {
        true => "engine = ['raw-tcp', 'tcp', 'raw-unix', 'unix', 'raw-zenoh']".into(),
        false => line.replace("../../workloads", &format!("{root}/workloads")),
    };
    folder.write("article.toml", &scenario.lines().map(few).collect::<Vec<String>>().join("\n"));
    folder.run(&["bench", "papers", "article", "--quick", "--scenarios", ".", "-o", "out"]).with(0);
    let page = folder.read("out/article.md");
    assert!(page.contains("polywire bench papers article") && page.contains("| raw-tcp |"), "{page}");
    assert!(page.contains("`raw-tcp`: bare TCP"), "{page}");
    assert!(page.contains("## 8 subscribers") && page.contains("times bare TCP"), "{page}");
    let json: serde_json::Value = serde_json::from_str(&folder.read("out/article.json")).expect("JSON");
    assert_eq!(json["cases"].as_array().map(Vec::len), Some(3 * 5 * 3));
    folder.run(&["bench", "papers", "article", "--redraw", "-o", "out"]).with(0);
    assert_eq!(folder.read("out/article.md"), page);
    folder.run(&["bench", "papers", "nothing"]).with(3);
    let missing = folder.run(&["bench", "papers", "article"]).with(3).errors;
    assert!(missing.contains("scenarios/papers/article.toml") && missing.contains("--scenarios"), "{missing}");
}

#[test]
fn the_model_of_large_systems_becomes_a_page() {
    let folder = Folder::new();
    let head = "mode = 'throughput'\neffort = { repeats = 1, messages = 40, warm_up = 2, peer = 'process' }\n";
    let packets = "[[type]]\ntext = 'struct Packet { sequence<octet> bytes; };'\nlabel = '9 B'\nlengths = { bytes = 9 }\n[[type]]\ntext = 'struct Packet { sequence<octet> bytes; };'\nlabel = '900 B'\nlengths = { bytes = 900 }\n";
    let probe = "[[type]]\ncodecs_test = [10, 25, 100]\n";
    let scenarios = [
        ("subscribers", packets, "engine = ['tcp']\nsubscribers = [1, 2, 4]"),
        ("fields", probe, "engine = ['tcp']"),
        ("topics", &probe[..].replace("10, 25, 100", "10"), "engine = ['tcp']\ntopics = [1, 3, 10]"),
        ("engines", packets, "engine = ['tcp', 'unix', 'inproc', 'raw-udp']\nsubscribers = [1, 2]"),
    ];
    for (name, types, axes) in scenarios {
        folder.write(&format!("{name}.toml"), &format!("name = '{name}'\n{head}{types}[axes]\n{axes}\n"));
    }
    folder.run(&["bench", "scaling", "--scenarios", ".", "-o", "out"]).with(0);
    let page = folder.read("out/scaling.md");
    // Cases that were held out of the fit are marked and judged separately: two sizes to two
    // subscribers, 25 fields, three topics.
    assert!(page.contains("| 2 * | ") && page.contains("| sender | held out | 4 | "), "{page}");
    assert!(page.contains("polywire bench scaling") && page.contains("(scaling/scaling-1.svg)"), "{page}");
    assert!(
        page.contains("1000 publishers") && page.contains("| 10000 | ") && page.contains("## Conclusions"),
        "{page}"
    );
    assert!(page.contains("subscriber with 1 and with 4 of them is ") && page.contains(" its lowest value "), "{page}");
    assert!(page.contains("1000 messages of 250 bytes a second from one publisher: TCP keeps up for "), "{page}");
    assert!(folder.read("out/scaling/scaling-2.svg").starts_with("<svg "));
}
