//! Runs scenarios whose figures are known in advance, and checks errors of wrong scenarios. The
//! tests check no times.

use polywire_measure::{Judgement, Results, Scenario, run, table};

fn measured(text: &str) -> Results {
    let scenario = Scenario::from_toml(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    run(&scenario, &mut |_| ()).unwrap_or_else(|error| panic!("{error}"))
}

const TYPE: &str = "[[type]]\nname = 'Point'\ntext = 'struct Point { double x; double y; unsigned long seq; };'\n";

const QUICK: &str =
    "effort = { repeats = 6, messages = 20, warm_up = 3, turn_ms = 0.01, emulated = 400, peer = 'thread' }\n";

#[test]
fn stages_have_the_figures_that_are_known() {
    let text = format!(
        "name = 'x'\n{QUICK}{TYPE}[axes]\ncodec = ['cdr', 'json', 'fast', 'fast@chained', 'json@chained']\ncompressor = ['none', 'zlib:9,min=1']\n"
    );
    let results = measured(&text);
    let cdr = results.find(|case| case.codec == "cdr" && case.compressor == "none").expect("a case");
    assert_eq!((cdr.metrics["bytes"].value, cdr.metrics["content_bytes"].value), (20.0, 20.0));
    assert_eq!((cdr.metrics["efficiency"].value, cdr.metrics["bytes"].confidence), (1.0, 1.0));
    assert!(cdr.metrics["serialise_ns"].value > 0.0 && cdr.metrics["deserialise_ns"].value > 0.0);
    assert!(!cdr.metrics.contains_key("compress_ns") && !cdr.metrics.contains_key("lost"));
    let bytes = |codec: &str| results.figure("bytes", |case| case.codec == codec && case.compressor == "none");
    assert!(bytes("fast@chained") < bytes("fast") && bytes("fast") < bytes("json"));
    let zlib = results.find(|case| case.codec == "json" && case.compressor != "none").expect("a case");
    assert!(zlib.metrics["ratio"].value < 2.0 && zlib.metrics["compress_ns"].value > 0.0);
    let wrong = results.find(|case| case.codec == "json@chained").expect("a case");
    assert!(wrong.metrics.is_empty() && wrong.problem.as_deref().is_some_and(|p| p.contains("no others")), "{wrong:?}");
    let table = table::terminal(&results);
    assert!(table.contains("left out: json@chained") && table.contains("#1"), "{table}");
}

/// The thesis's probe, whose strings never change.
const PROBE: &str = "[[type]]\ncodecs_test = [10, 30]\ntexts = { 'string_value_*' = 'Hello_World!' }\n";

const GIVEN: &str = "fast:template=../../workloads/codecs_test.fast.xml@chained";

#[test]
fn templates_are_given_or_learned() {
    let codecs = format!("codec = ['{GIVEN}', 'fast:template=learned@chained', 'fast@chained']\n");
    let results = measured(&format!("name = 'x'\n{QUICK}{PROBE}[axes]\n{codecs}"));
    let bytes = |codec: &str, fields: usize| {
        results.figure("bytes", |case| case.codec == codec && case.fields == fields).expect("it can be measured")
    };
    for fields in [10, 30] {
        let (given, learned, derived) =
            (bytes(GIVEN, fields), bytes("fast:template=learned@chained", fields), bytes("fast@chained", fields));
        assert!(given < derived && learned < derived, "{fields} fields: {given} {learned} {derived}");
    }
    // Templates also work over raw sockets, but not on Polywire's engines.
    let live = measured(&format!(
        "name = 'x'\nmode = 'closed'\n{QUICK}{PROBE}[axes]\nengine = ['raw-tcp', 'tcp']\ncodec = ['{GIVEN}']\n"
    ));
    for result in &live.cases {
        assert_eq!(result.problem.is_none(), result.case.engine == "raw-tcp", "{}: {:?}", result.case, result.problem);
    }
}

#[test]
fn recorded_values_come_in_their_order_and_again() {
    let folder = std::env::temp_dir().join(format!("polywire-measure-replay-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let line = |text: &str| format!("{{\"text\": \"{text}\"}}\n");
    std::fs::write(folder.join("day.jsonl"), [line("a"), "\n".into(), line("bcd"), line("efghi")].concat())
        .expect("written");
    std::fs::write(folder.join("bad.jsonl"), line("a") + "{").expect("written");
    let text = "name = 'x'\neffort = { repeats = 6, messages = 4, turn_ms = 0.01 }\n[[type]]\ntext = 'struct Line { string text; };'\n[axes]\nvalues = ['replay:day.jsonl', 'replay:bad.jsonl']\n";
    let mut scenario = Scenario::from_toml(text).expect("valid");
    scenario.folder.clone_from(&folder);
    let results = run(&scenario, &mut |_| ()).expect("measured");
    std::fs::remove_dir_all(&folder).expect("removed");
    // Texts of one, three, five and again one character.
    assert_eq!(results.cases[0].metrics["content_bytes"].value, 2.5, "{:?}", results.cases[0].problem);
    let bad = &results.cases[1].problem;
    assert!(bad.as_deref().is_some_and(|problem| problem.contains("bad.jsonl:2")), "{results:?}");
}

#[test]
fn packets_are_those_that_a_message_is_cut_into() {
    let results = measured(&format!(
        "name = 'x'\n{QUICK}[[type]]\nname = 'Blob'\ntext = 'struct Blob {{ octet bytes[3001]; }};'\n[axes]\nnetwork = ['none', 'mtu=1500', 'mtu=3001', 'delay=1ms']\n"
    ));
    let packets = |network: &str| results.figure("packets", |case| case.network == network);
    assert_eq!((packets("mtu=1500"), packets("mtu=3001")), (Some(3.0), Some(1.0)));
    assert_eq!((packets("none"), packets("delay=1ms")), (None, None));
}

#[test]
fn a_lossy_network_loses_what_it_should_and_deltas_survive_by_their_anchors() {
    let results = measured(&format!(
        "name = 'x'\n{QUICK}{TYPE}[axes]\ncodec = ['cdr', 'fast@chained', 'fast@anchored']\nnetwork = ['none', 'loss=20%,delay=5ms']\nsubscribers = [1, 2]\n"
    ));
    let of = |codec: &str, metric: &str, subscribers: usize| {
        let wanted = |case: &polywire_measure::Case| {
            case.codec == codec && case.network != "none" && case.subscribers == subscribers
        };
        results.figure(metric, wanted).unwrap_or_else(|| panic!("{codec} has no {metric}"))
    };
    for codec in ["cdr", "fast@chained", "fast@anchored"] {
        assert!((12.0..28.0).contains(&of(codec, "lost_percent", 1)), "{codec}: {}", of(codec, "lost_percent", 1));
        assert!(of(codec, "latency_p50_ns", 2) >= 4.99e6 && of(codec, "rtt_mean_ns", 1) >= 9.9e6);
        assert_eq!((of(codec, "sent", 1), of(codec, "sent", 2)), (400.0, 800.0));
    }
    assert_eq!(of("cdr", "undecodable", 1), 0.0);
    assert!(of("fast@chained", "undecodable", 1) > 200.0, "a chain breaks at the first loss");
    assert!(of("fast@anchored", "undecodable", 1) < 150.0, "{}", of("fast@anchored", "undecodable", 1));
}

#[test]
fn under_load_every_message_comes_back_whatever_the_buffers() {
    let results = measured(&format!(
        "name = 'x'\nmode = 'loaded'\n{QUICK}{TYPE}[axes]\nengine = ['tcp', 'unix', 'raw-tcp']\nsubscribers = [1, 2]\nbuffers = ['default', '64/4K/4K 512/8K/16K']\n"
    ));
    for result in &results.cases {
        let case = &result.case;
        if case.engine == "raw-tcp" {
            assert!(result.problem.is_some(), "{case}");
            continue;
        }
        assert_eq!(result.problem, None, "{case}");
        let figure = |metric: &str| result.metrics[metric].value;
        assert!(figure("throughput_hz") > 0.0 && figure("rtt_p99_ns") >= figure("rtt_p90_ns"), "{case}");
        assert_eq!((figure("lost"), figure("bytes")), (0.0, 20.0), "{case}");
    }
}

#[test]
fn topics_take_turns_and_nothing_is_lost_or_reordered() {
    let results = measured(&format!(
        "name = 'x'\nmode = 'open'\n{QUICK}{TYPE}[axes]\nengine = ['tcp', 'inproc', 'raw-tcp']\nrate_hz = [5000]\nsubscribers = [2]\ntopics = [1, 3, 7]\n"
    ));
    for result in &results.cases {
        if result.case.engine == "raw-tcp" && result.case.topics > 1 {
            assert!(result.problem.as_deref().is_some_and(|problem| problem.contains("topics")), "{}", result.case);
            continue;
        }
        assert_eq!(result.problem, None, "{}", result.case);
        for metric in ["lost", "duplicated", "reordered"] {
            assert_eq!(result.metrics[metric].value, 0.0, "{metric}: {}", result.case);
        }
    }
}

#[test]
fn bytes_are_those_that_travel() {
    let text = |codec: &str, engine: &str| {
        let text = format!(
            "name = 'x'\nmode = 'open'\n{QUICK}{TYPE}[axes]\ncodec = ['{codec}']\nengine = ['{engine}']\nrate_hz = [5000]\n"
        );
        measured(&text).cases[0].metrics["bytes"].value
    };
    // On a topic, each message refers to the previous one. On a bare socket, each message stands
    // alone unless the scenario requests otherwise.
    let (topic, alone) = (text("fast", "tcp"), text("fast", "raw-tcp"));
    assert!(topic < 0.8 * alone, "{topic} {alone}");
    assert!((topic - text("fast@chained", "raw-tcp")).abs() < 2.0);
    assert_eq!(text("cdr", "tcp"), 20.0);
}

#[test]
fn an_open_loop_counts_from_when_messages_were_due() {
    // Messages are due at 200,000 per second, but each takes much longer to encode. The backlog
    // grows, so the last message waits longest. With 150 messages, a brief pause of the machine
    // does not matter.
    let quick = QUICK.replace("messages = 20", "messages = 150");
    let text = format!(
        "name = 'x'\nmode = 'open'\n{quick}[[type]]\nname = 'Big'\ntext = 'struct Big {{ sequence<double> values; }};'\nlengths = {{ values = 3000 }}\n[axes]\ncodec = ['json']\nengine = ['raw-tcp']\nrate_hz = [200000]\n"
    );
    let results = measured(&text);
    let case = &results.cases[0];
    let (half, all) = (case.metrics["latency_p50_ns"].value, case.metrics["latency_max_ns"].value);
    assert!(case.problem.is_none() && all > 1.2 * half, "{half} {all}");
}

#[test]
fn criteria_are_judged() {
    let text = format!(
        "name = 'x'\n{QUICK}{TYPE}[axes]\ncodec = ['cdr', 'json', 'json@chained']\n
         [[criteria]]\nmetric = 'bytes'\nwhere = {{ codec = 'cdr' }}\nat_most = 20\n
         [[criteria]]\nmetric = 'bytes'\nwhere = {{ codec = 'json' }}\nat_most = 1.5\nrelative_to = {{ codec = 'cdr' }}\n
         [[criteria]]\nmetric = 'bytes'\nwhere = {{ codec = 'json@chained' }}\nat_most = 20\n"
    );
    let results = measured(&text);
    let states: Vec<Judgement> = results.verdicts.iter().map(|verdict| verdict.state).collect();
    assert_eq!(states, [Judgement::Met, Judgement::Missed, Judgement::Missing]);
    assert!(!results.holds());
    let again = Results::from_json(&results.to_json()).expect("its own JSON");
    assert_eq!(again.verdicts, results.verdicts);
    assert_eq!(again.cases[0].metrics, results.cases[0].metrics);
}

#[test]
fn scenarios_that_are_wrong_say_what() {
    let of = |criterion: &str| {
        format!("name = 'x'\n[[type]]\ncodecs_test = [10]\n[axes]\ncodec = ['cdr', 'json']\n[[criteria]]\n{criterion}")
    };
    for (text, word) in [
        ("name = 'x'", "type"),
        ("name = 'x'\nnmae = 1\n[[type]]\ncodecs_test = [10]", "nmae"),
        ("name = 'x'\n[[type]]\ncodecs_test = [10]\n[axes]\ncodec = []", "axis"),
        ("name = 'x'\n[[type]]\ncodecs_test = [10]\n[axes]\nrate_hz = [0]", "rate"),
        ("name = 'x'\n[[type]]\ncodecs_test = [10]\n[axes]\ntopics = [2]", "topics"),
        ("name = 'x'\nmode = 'open'\n[[type]]\ncodecs_test = [10]\n[axes]\nbuffers = ['8K']", "PROCESS/SEND/RECEIVE"),
        ("name = 'x'\nmode = 'closed'\n[[type]]\ncodecs_test = [10]\n[axes]\nnetwork = ['lan']", "link"),
        ("name = 'x'\n[[type]]\ncodecs_test = [10]\n[[criteria]]\nmetric = 'speed'\nat_most = 1", "speed"),
        ("name = 'x'\n[[type]]\ncodecs_test = [10]\n[[criteria]]\nmetric = 'bytes'", "at_most"),
        (
            "name = 'x'\n[[type]]\ncodecs_test = [10]\n[[criteria]]\nmetric = 'bytes'\nat_most = 1\nwhere = { x = '1' }",
            "'x'",
        ),
        ("name = 'x'\nmode = 'opne'\n[[type]]\ncodecs_test = [10]", "did you mean 'open'?"),
        ("name = 'x'\nefort = {}\n[[type]]\ncodecs_test = [10]", "did you mean 'effort'?"),
        ("name = 'x'\n[[type]]\ncodecs_test = [10]\n[axes]\ncodecs = ['cdr']", "did you mean 'codec'?"),
        ("name = 'x'\n[[type]]\ncodecs_test = [10]\n[axes]\ncodec = ['cdr', 'xcdr3']", "did you mean 'xcdr2'?"),
        ("name = 'x'\n[[type]]\ncodecs_test = [10]\n[axes]\ncodec = ['fast@chaned']", "did you mean 'chained'?"),
        (
            "name = 'x'\n[[type]]\ncodecs_test = [10]\n[axes]\ncodec = ['json:sideways']",
            "there is no option 'sideways'",
        ),
        ("name = 'x'\n[[type]]\ncodecs_test = [10]\n[axes]\ncompressor = ['zlbi']", "did you mean 'zlib'?"),
        ("name = 'x'\n[[type]]\ncodecs_test = [10]\n[axes]\ncompressor = ['zlib:99']", "levels go from"),
        ("name = 'x'\n[[type]]\ncodecs_test = [10]\n[axes]\nvalues = ['wandering']", "walking"),
        ("name = 'x'\n[[type]]\ncodecs_test = [10]\n[axes]\nnetwork = ['wan-hihg']", "wan-hihg"),
        (
            "name = 'x'\nmode = 'closed'\n[[type]]\ncodecs_test = [10]\n[axes]\nengine = ['raw-tpc']",
            "did you mean 'raw-tcp'?",
        ),
        (&of("metric = 'byets'\nat_most = 1"), "did you mean 'bytes'?"),
        (&of("metric = 'p50'\nat_most = 1"), "the heading of the metric 'latency_p50_ns'"),
        (&of("metric = 'bytes'\nat_most = 1\nwhere = { codec = 'jsno' }"), "did you mean 'json'?"),
        (&of("metric = 'bytes'\nat_most = 1\nrelative_to = { codec = 'xml' }"), "there are cdr, json"),
        (&of("metric = 'bytes'\nat_most = 1\nwhere = { codecs = 'json' }"), "did you mean 'codec'?"),
        (&of("metric = 'throughput_hz'\nat_least = 1"), "the mode 'stages' does not measure 'throughput_hz'"),
        (&of("metric = 'lost'\nat_most = 0"), "'lost' needs a network"),
        (&of("metric = 'ratio'\nat_most = 0"), "'ratio' needs a compressor"),
        (
            &of("metric = 'send_cpu_ns'\nat_most = 1")
                .replace("[axes]", "[axes]\nengine = ['inproc']")
                .replace("name = 'x'", "name = 'x'\nmode = 'open'"),
            "an engine other than inproc",
        ),
    ] {
        let error = Scenario::from_toml(text).expect_err(text).to_string();
        assert!(error.contains(word), "{text}: {error}");
    }
    for key in ["lengths = { mdEntires = 4 }", "texts = { 'mdEntires*' = 'x' }"] {
        let text = format!("name = 'x'\n[[type]]\ntext = 'struct A {{ sequence<long> mdEntries; }};'\n{key}");
        let error = run(&Scenario::from_toml(&text).expect("valid"), &mut |_| ()).expect_err(key).to_string();
        assert!(error.contains("A has no member 'mdEntires"), "{error}");
    }
    for (before, slip) in [
        ("[[type]]\nidl = 'none.idl'", ""),
        ("[[type]]\nidl = '../../workloads/market_data.idl'\nname = 'MarketData'\nreader = { idl = 'none.idl' }", ""),
        ("[[type]]\ncodecs_test = [10]", "values = ['replay:none.jsonl']"),
        ("[[type]]\ncodecs_test = [10]", "codec = ['fast:template=none.xml@chained']"),
        ("[[type]]\ncodecs_test = [10]", "compressor = ['lz4:dict=none.dict']"),
    ] {
        let scenario = Scenario::from_toml(&format!("name = 'x'\n{before}\n[axes]\n{slip}")).expect("valid");
        let error = run(&scenario, &mut |_| ()).expect_err(slip).to_string();
        assert!(error.contains("cannot read none."), "{slip}: {error}");
    }
    let many = "name = 'x'\n[[type]]\ncodecs_test = [10]\n[axes]\nrate_hz = [%]\nsubscribers = [%]"
        .replace('%', &"1,".repeat(100));
    assert!(Scenario::from_toml(&many).expect("valid").cases().is_err());
}

#[test]
fn the_scenarios_of_the_repository_are_scenarios() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let files = |folder: &std::path::Path| {
        std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path())
    };
    let mut count = 0;
    for file in files(&folder).chain(files(&folder.join("papers"))) {
        if file.extension().is_none_or(|ending| ending != "toml") {
            continue;
        }
        let scenario = Scenario::open(&file).unwrap_or_else(|error| panic!("{error}"));
        assert!(scenario.cases().expect("not too many").len() > 1, "{}", scenario.name);
        assert!(!scenario.criteria.is_empty() && !scenario.summary.is_empty(), "{}", scenario.name);
        count += 1;
    }
    assert!(count >= 10, "{count}");
}
