//! The commands that inspect: `hz`, `bw`, `typeof`, `idl`, `codecs`, `completions`, `fast
//! learn`.

use std::path::{Path, PathBuf};

use crate::common::{Folder, Running, WEATHER, report};
use polywire::codec::CODECS;
use polywire::engine::ENGINES;
use polywire_idl::{Compiler, emit};
use serde_json::{Value, json};

const WIRE: [&str; 2] = ["--wire", "json@unix/t.sock"];

/// A publisher that runs until the test ends.
fn publishing(folder: &Folder, topic: &str, rate: &str) -> Running {
    let value = report(1);
    let arguments = ["pub", topic, value.as_str(), "--idl", "weather.idl", "--type", "Report", "--wait", "0"];
    folder.start(&[&arguments[..], &["--count", "1000000", "--rate", rate], &WIRE].concat())
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

#[test]
fn hz_and_bw_measure() {
    let folder = Folder::new();
    let _publisher = publishing(&folder, "weather", "100");
    let measure =
        |verb: &str, more: &[&str]| folder.run(&[&[verb, "weather", "--timeout", "100"], &WIRE[..], more].concat());
    let last = |out: &str| serde_json::from_str::<Value>(out.lines().last().expect("a line")).expect("JSON");

    let hz = last(&measure("hz", &["-n", "30", "--json"]).with(0).out);
    assert_eq!((&hz["messages"], &hz["window"]), (&json!(30), &json!(30)));
    let rate = hz["rate_hz"].as_f64().expect("a rate");
    assert!(rate > 0.1 && rate < 10_000.0, "{rate}");
    let of = |name: &str| hz[name].as_f64().expect("a number");
    assert!(of("interval_min_s") <= 1.0 / rate && 1.0 / rate <= of("interval_max_s"), "{hz}");
    let text = measure("hz", &["-n", "10", "--window", "5"]).with(0).out;
    assert!(text.contains(" Hz  min ") && text.contains("window 5"), "{text}");

    let bw = last(&measure("bw", &["-n", "20", "--json"]).with(0).out);
    // The report has the same length as the JSON codec's encoding of it.
    let bytes = report(1).len() as f64;
    assert_eq!((&bw["message_bytes_mean"], &bw["message_bytes_max"]), (&json!(bytes), &json!(bytes)));
    assert!(bw["bytes_per_second"].as_f64().is_some_and(|speed| speed > 0.0));
    assert!(measure("bw", &["-n", "3"]).with(0).out.contains("/s  mean "));
}

#[test]
fn hz_of_nothing_says_why() {
    let folder = Folder::new();
    let nothing = folder.run(&[&["hz", "weather", "--timeout", "0.2"], &WIRE[..]].concat()).with(1);
    assert!(nothing.errors.contains("no message on 'weather' at unix/t.sock for 0.2 s: nobody else is there"));
}

#[test]
fn typeof_prints_what_parses_to_the_same_type() {
    let folder = Folder::new();
    let _publisher = publishing(&folder, "weather", "10");
    let ask =
        |more: &[&str]| folder.run(&[&["typeof", "weather", "--timeout", "100"], &WIRE[..], more].concat()).with(0);
    folder.write("asked.idl", &ask(&["--save", "weather.schema"]).out);
    let hash_of = |arguments: &[&str]| {
        folder.run(&[&["typeof", "--json"], arguments].concat()).with(0).json()["type_hash"].clone()
    };
    let expected = hash_of(&["--idl", "weather.idl", "--type", "Report"]);
    assert_eq!(hash_of(&["--idl", "asked.idl", "--type", "weather::Report"]), expected);
    assert_eq!(hash_of(&["--idl", "weather.schema"]), expected);
    assert_eq!(hash_of(&["--idl", "weather.schema", "--type", "weather/Report"]), expected);
    let part = hash_of(&["--idl", "weather.idl", "--type", "Wind"]);
    assert_eq!(hash_of(&["--idl", "weather.schema", "--type", "Wind"]), part);
    let unknown = folder.run(&["typeof", "--idl", "weather.schema", "--type", "Snow"]).with(3).errors;
    assert!(
        unknown.contains("there is no type 'Snow'; there are ") && unknown.contains("weather::Report"),
        "{unknown}"
    );
    let hashes = ask(&["--hash"]).out;
    assert_eq!(hashes.lines().next(), Some(format!("type      {}", expected.as_str().expect("text")).as_str()));
    let nobody = folder.run(&[&["typeof", "other", "--timeout", "2"], &WIRE[..]].concat()).with(1);
    assert!(nobody.errors.contains("there are the topics weather"), "{}", nobody.errors);
}

#[test]
fn typeof_of_every_workload_comes_back() {
    let folder = Folder::new();
    for (name, least) in [("market_data.idl", 1), ("processor_probe.pdl", 1), ("avenue.idl", 2), ("codecs_test.pdl", 1)]
    {
        let path = file(&format!("workloads/{name}"));
        let document = Compiler::new().parse_file(path.to_str().expect("text")).expect("valid");
        let types: Vec<&str> = document.topic_types().map(|def| def.name.as_str()).collect();
        assert!(types.len() >= least, "{name}: {types:?}");
        for type_name in types {
            let from = ["typeof", "--json", "--type", type_name, "--idl"];
            let printed = folder.run(&[&from[..], &[path.to_str().expect("text")]].concat()).with(0).json();
            folder.write("again.idl", printed["idl"].as_str().expect("text"));
            let again = folder.run(&[&from[..], &["again.idl"]].concat()).with(0).json();
            assert_eq!(again["type_hash"], printed["type_hash"], "{type_name} of {name}");
        }
    }
}

#[test]
fn idl_check_says_what_is_wrong_and_where() {
    let folder = Folder::new();
    folder.write("bad.idl", "struct Track {\n  doubel speed;\n  sequence<long> s\n};\nstruct Other { Trakc t; };\n");
    let bad = folder.run(&["idl", "check", "weather.idl", "bad.idl"]).with(2);
    let expected = "\
bad.idl:2:3: error: there is no type 'doubel' here
   |
 2 |   doubel speed;
   |   ^^^^^^ did you mean 'double'?
bad.idl:3:19: error: expected ';'";
    assert!(bad.errors.starts_with(expected), "{}", bad.errors);
    assert!(bad.errors.contains("did you mean 'Track'?"), "{}", bad.errors);
    assert_eq!(bad.out, "2 files: 3 errors, 0 warnings\n");

    let found = folder.run(&["idl", "check", "bad.idl", "--json"]).with(2).json();
    let first = &found["diagnostics"][0];
    assert_eq!((&found["errors"], &first["line"], &first["column"]), (&json!(3), &json!(2), &json!(3)));
    assert_eq!((&first["severity"], &first["help"]), (&json!("error"), &json!("did you mean 'double'?")));

    assert_eq!(folder.run(&["idl", "check", "weather.idl"]).with(0).out, "1 file: 0 errors, 0 warnings\n");
    folder.run(&["idl", "check", "missing.idl"]).with(2);
    folder.run(&["idl", "check"]).with(3);
}

#[test]
fn idl_finds_includes_and_takes_macros() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path().join("lib")).expect("a folder");
    folder.write("lib/base.idl", "struct Base { long id; };\n");
    folder.write("a.idl", "#include \"base.idl\"\n#ifdef WIDE\nstruct A : Base { long v[SIZE]; };\n#endif\n");
    folder.run(&["idl", "check", "a.idl"]).with(2);
    let all = ["-I", "lib", "-D", "WIDE", "-D", "SIZE=3"];
    folder.run(&[&["idl", "check", "a.idl"], &all[..]].concat()).with(0);
    let idl = folder.run(&[&["typeof", "--idl", "a.idl", "--type", "A"], &all[..]].concat()).with(0).out;
    assert!(idl.contains("int32 v[3];"), "{idl}");
}

#[test]
fn idl_rust_and_every_other_emitter_write_what_the_library_writes() {
    let folder = Folder::new();
    let document = Compiler::new().parse_str("weather.idl", WEATHER).expect("valid");
    for emitter in emit::EMITTERS {
        let expected = (emitter.emit)(document.definitions(), document.constants()).expect("emitted");
        assert_eq!(folder.run(&["idl", "emit", emitter.name, "weather.idl"]).with(0).out, expected);
        assert_eq!(folder.run(&["idl", emitter.name, "weather.idl"]).with(0).out, expected);
        let help = folder.run(&["idl", "--help"]).with(0).out;
        assert!(help.contains(emitter.description), "{help}");
        let written = folder.run(&["idl", emitter.name, "weather.idl", "-o", "out", "--json"]).with(0).json();
        assert_eq!((&written["target"], &written["file"]), (&json!(emitter.name), &json!("out")));
        assert_eq!(folder.read("out"), expected);
    }
    let rust = folder.run(&["idl", "rust", "weather.idl", "-o", "weather.rs"]).with(0);
    assert_eq!(rust.out, "");
    assert!(folder.read("weather.rs").contains("pub struct Report {"));
    let one = folder.run(&["idl", "rust", "weather.idl", "--type", "Wind"]).with(0).out;
    assert!(one.contains("pub struct Wind") && !one.contains("Report"), "{one}");
    let slip = folder.run(&["idl", "rust", "weather.idl", "--type", "Wnid"]).with(3);
    assert!(slip.errors.contains("did you mean 'weather::Wind'?"), "{}", slip.errors);
    let target = folder.run(&["idl", "emit", "cobol", "weather.idl"]).with(3);
    assert!(target.errors.contains("possible values: "), "{}", target.errors);
}

#[test]
fn codecs_lists_both_tables() {
    let folder = Folder::new();
    let text = folder.run(&["codecs"]).with(0).out;
    let listed = folder.run(&["codecs", "--json"]).with(0).json();
    assert_eq!(listed["codecs"].as_array().map(Vec::len), Some(CODECS.len()));
    for (codec, entry) in CODECS.iter().zip(listed["codecs"].as_array().expect("codecs")) {
        assert_eq!(entry["name"], json!(codec.name()));
        let page = format!("{}: {}\n", codec.name(), codec.properties().summary);
        assert!(text.contains(&page), "{text}");
        for option in codec.options() {
            assert!(text.contains(&format!("  :{}", option.name)) && text.contains(option.help), "{text}");
        }
    }
    for engine in ENGINES {
        assert!(text.contains(&format!("  {}/{}", engine.name(), engine.example())), "{text}");
    }
    let one = folder.run(&["codecs", "json"]).with(0).out;
    assert!(one.starts_with("json: ") && !one.contains("bson: "), "{one}");
}

#[test]
fn learned_templates_come_as_json_too() {
    let folder = Folder::new();
    let lines: String = (0..80).map(|number| report(number) + "\n").collect();
    let learn = ["fast", "learn", "--idl", "weather.idl", "--type", "Report"];
    let xml = folder.run_with(&learn, &lines).with(0).out;
    let ended = folder.run_with(&[&learn[..], &["--json"]].concat(), &lines).with(0);
    assert_eq!((&ended.json()["templates"], &ended.json()["samples"]), (&json!(xml), &json!(70)));
    assert_eq!(ended.errors, "");
}

#[test]
fn verbose_tells_of_links_and_not_of_machine_code() {
    let folder = Folder::new();
    let value = report(1);
    let publish = ["pub", "weather", &value, "--idl", "weather.idl", "--type", "Report", "--wait", "0", "-vv"];
    let told = folder.run(&[&publish[..], &["--count", "100"], &WIRE].concat()).with(0).errors;
    assert!(told.contains("[info] unix/t.sock: listening on unix/t.sock"), "{told}");
    assert!(told.lines().all(|line| line.contains("unix/t.sock")), "{told}");
}

#[test]
fn every_shell_gets_completions() {
    let folder = Folder::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = folder.run(&["completions", shell]).with(0).out;
        for word in ["typeof", "completions", "wait-timeout"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
        let json = folder.run(&["completions", shell, "--json"]).with(0).json();
        assert_eq!((&json["shell"], &json["script"]), (&json!(shell), &json!(script)));
    }
}

#[test]
fn bad_arguments_have_their_own_exit_code() {
    let folder = Folder::new();
    for (arguments, expected) in [
        (&["pub", "weather"][..], "which type? add --idl FILE"),
        (&["pub", "weather", "--idl", "weather.idl"], "choose with --type one of weather::Wind, weather::Report"),
        (&["pub", "weather", "--idl", "weather.idl", "--type", "Reprot"], "did you mean 'weather::Report'?"),
        (&["echo", "weather", "--wire", "jsn"], "did you mean 'json'?"),
        (&["echo", "weather", "--wire", "cdr@tpc/127.0.0.1:1"], "did you mean 'tcp'?"),
        (&["echo", "weather", "--timeout", "nan"], "from 0 to 1e9 seconds"),
        (&["echo", "weather", "--wire", "cdr@tcp/nowhere"], "write for example 'tcp/"),
        (&["hz", "weather", "--wire", "tcp/127.0.0.1:99999"], "write for example 'tcp/"),
        (&["list", "--wire", "tcp/127.0.0.1"], "write for example 'tcp/"),
        (
            &["pub", "weather/*", "{}", "--idl", "weather.idl", "--type", "Wind", "--wire", "unix/t.sock"],
            "names of topics have no '*'; name one topic in full",
        ),
        (&["hz", "weather/#", "--wire", "unix/t.sock"], "have no '#'"),
        (&["typeof", "w?", "--wire", "unix/t.sock"], "have no '?'"),
        (&["pub", "", "{}", "--idl", "weather.idl", "--type", "Wind", "--wire", "unix/t.sock"], "a topic needs a name"),
        (&["typeof"], "whose type?"),
        (&["ehco"], "a similar subcommand exists: 'echo'"),
    ] {
        let ended = folder.run(arguments).with(3);
        assert!(ended.errors.contains(expected), "{arguments:?}: {}", ended.errors);
    }
    let help = folder.run(&["--help"]).with(0).out;
    assert!(help.contains("Exit codes:\n  0    success"), "{help}");
    folder.run(&["--version"]).with(0);
}
