//! The demonstration: every codec, three versions of a type, and the probes of this machine.

use std::{thread, time::Duration};

use crate::common::Folder;
use polywire::codec::CODECS;
use serde_json::{Value, json};

#[test]
fn both_versions_read_everything_in_every_codec() {
    let folder = Folder::new();
    let demo = |seconds| {
        let arguments = ["demo", "--seconds", seconds, "--json", "--svg", "a.svg", "--html", "a.html"];
        folder.run(&arguments).with(0).json()
    };
    let is_long_enough = |report: &Value| {
        let probes = report["probes"].as_array().expect("probes");
        let each = |wire: &str| {
            let row = probes.iter().find(|row| row["wire"] == wire);
            row.and_then(|row| row["bytes_per_sample"].as_f64()).unwrap_or(f64::NAN)
        };
        let have_samples = probes.iter().all(|row| row["samples"].as_u64().is_some_and(|samples| samples > 0));
        have_samples && each("fast") < each("json") / 2.0 && each("cdr") < each("json")
    };
    // On a busy machine, a short demonstration has few samples, and what a wire announces first is
    // a large part of their bytes.
    let mut report = demo("3");
    for longer in ["12", "48"] {
        if !is_long_enough(&report) {
            report = demo(longer);
        }
    }
    assert!(is_long_enough(&report), "{:#}", report["probes"]);
    assert_eq!((&report["ok"], &report["problems"]), (&json!(true), &json!([])));
    let wires = report["wires"].as_array().expect("wires");
    let names: Vec<&str> = CODECS.iter().map(|codec| codec.name()).collect();
    assert_eq!(wires.iter().map(|row| row["wire"].as_str().expect("text")).collect::<Vec<_>>(), names);
    for row in wires {
        let messages = &row["messages"];
        assert!(messages.as_u64().is_some_and(|messages| messages > 0), "{row}");
        for reader in ["older", "newer"] {
            assert_eq!(&row[reader]["messages"], messages, "{row}");
            let of = |name: &str| row[reader][name].as_f64().expect("a number");
            assert!(of("latency_us_p50") > 0.0 && of("latency_us_p50") <= of("latency_us_p99"), "{row}");
        }
        assert!(row["bytes_per_message"].as_f64().is_some_and(|bytes| bytes > 50.0), "{row}");
    }
    let probes = report["probes"].as_array().expect("probes");
    assert_eq!(probes.iter().map(|row| row["wire"].as_str().expect("text")).collect::<Vec<_>>(), names);
    for row in probes {
        assert!(row["samples"].as_u64().is_some_and(|samples| samples > 0), "{row}");
        for figure in ["bytes_per_sample", "cpu_us_per_sample"] {
            assert!(row[figure].as_f64().is_some_and(|figure| figure > 0.0), "{row}");
        }
    }
    let [older, newer] = report["readers"].as_array().expect("readers").as_slice() else { panic!("{report}") };
    assert_eq!((&older["verdict"], &newer["verdict"]), (&json!("always"), &json!("always")));
    assert_eq!((&older["defaults"], &newer["skips"]), (&json!(["swap_used_bytes"]), &json!(["uptime_s"])));
    same_figures(&report["published"], &older["last"], &["host", "sample", "memory_total_bytes", "memory_used_bytes"]);
    same_figures(&report["published"], &newer["last"], &["host", "sample", "memory_used_bytes", "load_1min"]);
    assert_eq!((&newer["last"]["site"], &older["last"]["swap_used_bytes"]), (&json!("nowhere"), &json!(0)));

    let (svg, html) = (folder.read("a.svg"), folder.read("a.html"));
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && html.contains(&svg));
    assert!(names.iter().all(|name| svg.contains(&format!(">{name}</text>"))), "{svg}");
    assert!(!html.contains("http://") || html.matches("http://").count() == 1, "the name space, and nothing to load");
}

fn same_figures(published: &Value, read: &Value, members: &[&str]) {
    for member in members {
        assert!(!published[member].is_null(), "{member} of {published}");
        assert_eq!(published[member], read[member], "{member}");
    }
}

#[test]
fn one_format_over_a_unix_socket_in_words() {
    let folder = Folder::new();
    let arguments = ["demo", "--seconds", "1", "--wire", "cdr:be", "--at", "unix-listen/demo.sock", "--rate", "50"];
    let out = folder.run(&arguments).with(0).out;
    for text in ["at unix/demo.sock; processes: publisher ", "\ncdr:be ", "The older version reads it: always."] {
        assert!(out.contains(text), "{out}");
    }
    let page = out.contains("\nPage of the probes: http://127.0.0.1:");
    assert_eq!(page, cfg!(feature = "foxglove"), "{out}");
    assert!(page || out.contains("\nPage of the probes: this build has none; "), "{out}");
    assert!(out.contains("\nwire    samples  bytes each  CPU each\ncdr:be  "), "{out}");
    assert!(out.ends_with("messages in 1 format, and every shared member had the published value.\n"), "{out}");
    assert!(!out.contains('\u{1b}'), "no colour and no cursor movement into a pipe");
}

#[test]
fn bad_arguments_end_it_at_once() {
    let folder = Folder::new();
    folder.run(&["demo", "--wire", "jsn"]).with(3);
    folder.run(&["demo", "--wire", "cdr", "--wire", "cdr"]).with(3);
    folder.run(&["demo", "--at", "tcp-listen/256.0.0.1:0", "--seconds", "1"]).with(2);
}

#[test]
fn show_types_prints_idl() {
    let folder = Folder::new();
    folder.write("all.idl", &folder.run(&["demo", "--show-types"]).with(0).out);
    let text = folder.read("all.idl");
    assert_eq!(text.matches("struct Machine {").count(), 3);
    let files = folder.run(&["demo", "--show-types", "--json"]).with(0).json();
    assert!(files["machine.idl"].as_str().is_some_and(|text| text.contains("struct Machine {")), "{files}");
}

/// The page has the probes while the demonstration runs.
#[cfg(feature = "foxglove")]
#[test]
fn the_page_is_there_until_the_end() {
    use std::io::{Read as _, Write as _};
    let folder = Folder::new();
    let mut demo = folder.start(&["demo", "--seconds", "600", "--wire", "cdr"]);
    let line = demo.line_with("Page of the probes");
    let (_, address) = line.split_once("http://").expect("an address");
    let (address, secret) = address.split_once("/#").expect("a secret");
    assert_eq!(secret.len(), 32);
    let mut page = std::net::TcpStream::connect(address).expect("it listens");
    write!(page, "GET / HTTP/1.1\r\nHost: {address}\r\n\r\n").expect("sent");
    let mut text = String::new();
    page.read_to_string(&mut text).expect("read");
    assert!(text.starts_with("HTTP/1.1 200 OK") && text.contains("<title>Polywire</title>"), "{text}");
    assert_eq!(demo.end_by("TERM").signal(), Some(15));
    let until = std::time::Instant::now() + crate::common::SOON;
    while std::net::TcpStream::connect(address).is_ok() {
        assert!(std::time::Instant::now() < until, "the page outlives it");
        thread::sleep(Duration::from_millis(20));
    }
}

/// True if a process is running. A zombie does not count.
#[cfg(target_os = "linux")]
fn is_there(id: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    // A dead process stays listed in state Z until another process waits for it.
    !status.is_empty() && !status.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z'))
}

#[cfg(target_os = "linux")]
fn ids_of(first_line: &str) -> Vec<String> {
    let (_, processes) = first_line.split_once("processes: ").expect("processes");
    processes.split(", ").map(|process| process.rsplit(' ').next().expect("an id").to_owned()).collect()
}

#[cfg(target_os = "linux")]
fn ended_by(signal: &str) -> Option<i32> {
    let folder = Folder::new();
    let mut demo = folder.start(&["demo", "--seconds", "600"]);
    let ids = ids_of(&demo.line());
    assert_eq!(ids.len(), 4);
    assert!(ids.iter().all(|id| is_there(id)), "{ids:?}");
    let id = demo.child.id().to_string();
    assert!(std::process::Command::new("kill").args([signal, &id]).status().expect("kill runs").success());
    let ended = demo.end();
    let gone = || !ids.iter().any(|id| is_there(id));
    for _ in 0..6000 {
        if gone() {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    assert!(gone(), "{ids:?} outlive it");
    ended.code.or_else(|| ended.signal().map(|signal| 128 + signal))
}

#[cfg(target_os = "linux")]
#[test]
fn nothing_is_left_behind_by_ctrl_c() {
    assert_eq!(ended_by("-INT"), Some(130));
}

#[cfg(target_os = "linux")]
#[test]
fn nothing_is_left_behind_by_a_service_manager() {
    assert_eq!(ended_by("-TERM"), Some(143));
}

#[cfg(target_os = "linux")]
#[test]
fn nothing_is_left_behind_by_a_kill() {
    assert_eq!(ended_by("-KILL"), Some(128 + 9));
}
