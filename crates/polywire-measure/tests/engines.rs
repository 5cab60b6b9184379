//! Checks every engine that the bench can measure, Polywire's own and others: each carries all
//! messages in every mode, or reports what is missing. The tests check no times.

use polywire_measure::{
    CaseResult, Results, Scenario,
    engines::{self, ENGINES},
    run,
    scenario::Mode,
    table,
};

use polywire_testing::tools;

const TYPE: &str = "[[type]]\nname = 'Point'\ntext = 'struct Point { double x; double y; unsigned long seq; };'\n";

const QUICK: &str = "effort = { repeats = 6, messages = 20, warm_up = 3, peer = 'thread' }\n";

/// Polywire's own engines.
const OURS: &[&str] = &["inproc", "local", "tcp", "unix", "udp-reliable"];

/// Those of a feature.
const OPTIONAL: &[(&str, bool)] = &[
    ("shm", cfg!(all(feature = "shm", target_os = "linux"))),
    ("shm-spin", cfg!(all(feature = "shm", target_os = "linux"))),
    ("dds", cfg!(feature = "dds")),
    ("zenoh", cfg!(feature = "zenoh")),
    ("zeromq", cfg!(feature = "zeromq")),
];

fn measured(mode: &str, effort: &str, axes: &str) -> Results {
    results(&format!("name = 'x'\nmode = '{mode}'\n{effort}{TYPE}[axes]\nrate_hz = [2000]\n{axes}"))
}

fn results(text: &str) -> Results {
    let scenario = Scenario::from_toml(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    run(&scenario, &mut |_| ()).unwrap_or_else(|error| panic!("{error}"))
}

fn value(result: &CaseResult, metric: &str) -> f64 {
    let measure = result.metrics.get(metric);
    measure.unwrap_or_else(|| panic!("{} has no {metric}: {:?}", result.case, result.problem)).value
}

/// Checks that no message is lost except in floods, and that every case has its figure.
fn check(mode: &str, engine: &str, metric: &str) {
    let results = measured(mode, QUICK, &format!("engine = ['{engine}']\nsubscribers = [1, 3]\n"));
    for result in &results.cases {
        assert_eq!(result.problem, None, "{mode}: {}", result.case);
        assert!(value(result, metric) > 0.0, "{mode}: {}", result.case);
        if results.scenario.mode != Mode::Throughput {
            let lost = &result.metrics["lost"].samples;
            assert!(lost.iter().all(|lost| *lost == 0.0), "{mode}: {}: {lost:?}", result.case);
        }
        assert_eq!(result.metrics[metric].samples.len(), 6, "{mode}: {}", result.case);
        assert_eq!(value(result, "bytes"), 20.0, "{mode}: {}", result.case);
    }
    assert!(table::terminal(&results).contains(engines::settings(engine).expect("it is known")));
}

const MODES: [(&str, &str); 3] =
    [("closed", "latency_p50_ns"), ("open", "latency_p99_ns"), ("throughput", "throughput_hz")];

#[test]
fn our_engines_and_bare_sockets_carry_closed_loops_open_loops_and_floods() {
    let optional = OPTIONAL.iter().filter(|(_, is_there)| *is_there).map(|(engine, _)| engine);
    for engine in OURS.iter().chain(optional).chain(&["raw-tcp", "raw-unix", "raw-udp"]) {
        MODES.iter().for_each(|(mode, metric)| check(mode, engine, metric));
    }
}

#[test]
fn a_message_that_takes_all_of_the_memory_is_sent_again_and_again() {
    let results = results(
        "name = 'x'\nmode = 'closed'\n\
         effort = { repeats = 2, messages = 5, warm_up = 1, megabytes = 1, peer = 'thread' }\n\
         [[type]]\nname = 'Blob'\ntext = 'struct Blob { sequence<octet> bytes; };'\nlengths = { bytes = 700_000 }\n\
         [axes]\nengine = ['tcp', 'raw-tcp']\n",
    );
    for result in &results.cases {
        assert_eq!(value(result, "bytes"), 700_004.0, "{}", result.case);
    }
}

#[test]
fn peers_that_are_built_in_carry_the_same() {
    for engine in ["raw-zeromq", "raw-zenoh", "raw-zenoh-attached", "raw-cyclone", "iceoryx2"] {
        if !engines::find(engine).expect("it is known").is_there() {
            eprintln!("{engine} is not built in: skipped");
            continue;
        }
        MODES.iter().for_each(|(mode, metric)| check(mode, engine, metric));
    }
}

#[test]
fn cyclone_dds_answers_and_is_flooded_by_its_own_program() {
    if !engines::find("cyclonedds").expect("it is known").is_there() {
        return tools::missing("the program 'ddsperf'");
    }
    let once = "effort = { repeats = 1, messages = 20 }\n";
    let axes = "engine = ['cyclonedds']\nsubscribers = [1, 2]\n";
    for result in &measured("closed", once, axes).cases {
        assert_eq!(result.problem, None, "{}", result.case);
        assert!(value(result, "latency_p50_ns") > 0.0 && value(result, "sent") > 0.0, "{}", result.case);
        assert!(value(result, "latency_p99_ns") >= value(result, "latency_p50_ns"), "{}", result.case);
        assert_eq!((value(result, "lost"), value(result, "bytes")), (0.0, 20.0));
    }
    let flood = measured("throughput", once, "engine = ['cyclonedds']\n");
    assert!(value(&flood.cases[0], "throughput_hz") > 0.0);
    let open = measured("open", once, "engine = ['cyclonedds']\n");
    assert!(open.cases[0].problem.as_deref().is_some_and(|problem| problem.contains("closed")), "{open:?}");
}

#[test]
fn an_engine_that_is_not_there_says_what_it_takes() {
    for engine in ENGINES.iter().filter(|engine| !engine.is_there()) {
        let results = measured("closed", QUICK, &format!("engine = ['{}']\n", engine.name));
        let problem = results.cases[0].problem.as_deref().unwrap_or_default();
        let word = match engine.name {
            "cyclonedds" => "cyclonedds-tools",
            "shm" | "shm-spin" => "feature `shm`",
            "dds" => "feature `dds`",
            "zenoh" => "feature `zenoh`",
            "zeromq" => "feature `zeromq`",
            _ => "feature `peers",
        };
        assert!(problem.contains(word), "{}: {problem}", engine.name);
    }
}

#[test]
fn topics_and_buffers_are_of_our_engines_alone() {
    for axes in ["topics = [2]\n", "buffers = ['8K/8K/8K']\n"] {
        for engine in ENGINES.iter().filter(|engine| engine.is_there()) {
            let results = measured("closed", QUICK, &format!("engine = ['{}']\n{axes}", engine.name));
            assert!(results.cases[0].problem.is_some(), "{}: {axes}", engine.name);
        }
    }
}

#[test]
fn every_subscriber_has_its_own_stream_of_messages_that_refer_to_each_other() {
    let results =
        measured("closed", QUICK, "engine = ['raw-tcp', 'raw-udp']\ncodec = ['fast@chained']\nsubscribers = [3]\n");
    for result in &results.cases {
        assert_eq!((result.problem.as_deref(), value(result, "lost")), (None, 0.0), "{}", result.case);
    }
}
