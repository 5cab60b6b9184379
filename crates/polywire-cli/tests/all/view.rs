//! The commands that look at running systems: `list`, `node` and `top`.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    net::TcpListener,
    panic,
    process::{Command, Stdio},
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use polywire::{Message, Node};
use polywire_idl::Compiler;
use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use serde_json::{Value, json};

use crate::common::{Folder, Running, SOON, WEATHER, report};

/// A publisher that runs until the test ends.
fn publishing(folder: &Folder, topic: &str, more: &[&str]) -> Running {
    let value = report(1);
    let arguments = ["pub", topic, value.as_str(), "--idl", "weather.idl", "--type", "Report", "--wait", "0"];
    folder.start(&[&arguments[..], &["--count", "1000000", "--rate", "50"], more].concat())
}

/// What a command prints as JSON, as soon as it is as it should be. Nodes take a while to start.
fn once(folder: &Folder, arguments: &[&str], fits: impl Fn(&Value) -> bool) -> Value {
    let until = Instant::now() + SOON;
    loop {
        let shown = folder.run(&[arguments, &["--timeout", "100", "--json"]].concat()).with(0).json();
        if fits(&shown) {
            return shown;
        }
        assert!(Instant::now() < until, "polywire {}: {shown}", arguments.join(" "));
    }
}

fn rows(shown: &Value) -> &[Value] {
    shown.as_array().expect("rows")
}

#[test]
fn list_shows_who_publishes_and_subscribes() {
    let folder = Folder::new();
    let nothing = folder.run(&["list", "--timeout", "0.2"]).with(1);
    assert!(nothing.errors.contains("no topics or nodes at local"), "{}", nothing.errors);
    let _publishers = [publishing(&folder, "north", &["-w", "json"]), publishing(&folder, "south", &[])];
    let _subscriber = folder.start(&["echo", "north"]);
    let shown = once(&folder, &["list"], |shown| {
        rows(shown).len() == 3 && rows(shown).iter().all(|row| row["rate_hz"].as_f64().is_some_and(|rate| rate > 0.0))
    });
    let of = |name: &str| rows(&shown).iter().map(|row| row[name].clone()).collect::<Value>();
    assert_eq!(of("topic"), json!(["north", "north", "south"]));
    assert_eq!(of("kind"), json!(["publisher", "subscriber", "publisher"]));
    assert_eq!(of("codec"), json!(["json", null, "cdr"]));
    assert_eq!(of("reads"), json!([null, 1, null]));
    assert_eq!(rows(&shown)[0]["type"], "weather::Report");
    let schema = Compiler::new().parse_str("weather.idl", WEATHER).expect("valid").schema("Report").expect("there");
    assert_eq!(rows(&shown)[0]["type_hash"], json!(schema.type_hash().to_string()));
    assert_ne!(rows(&shown)[0]["id"], rows(&shown)[2]["id"]);
    let text = folder.run(&["list", "--timeout", "100"]).with(0).out;
    assert!(text.starts_with("TOPIC  KIND        TYPE             CODEC"), "{text}");
}

#[test]
fn list_says_why_two_do_not_talk_and_looks_at_several_endpoints() {
    let folder = Folder::new();
    let _publisher = publishing(&folder, "weather", &["-w", "unix/one.sock"]);
    let _other = publishing(&folder, "other", &["-w", "unix/two.sock"]);
    let reader = ["echo", "weather", "-w", "unix/one.sock", "--idl", "wrong.idl", "--type", "Report"];
    let _reader = folder.start(&reader);
    let places = ["list", "-e", "unix/one.sock", "-e", "unix/two.sock"];
    let shown = once(&folder, &places, |shown| {
        rows(shown).len() == 3 && rows(shown).iter().any(|row| row["mismatches"].is_array())
    });
    let mismatch = &rows(&shown).iter().find(|row| row["kind"] == "subscriber").expect("there")["mismatches"][0];
    let reason = mismatch["reason"].as_str().expect("a reason");
    assert!(reason.contains("temperature_c"), "{reason}");
    let text = folder.run(&[&places[..], &["--timeout", "100"]].concat()).with(0).out;
    assert!(
        text.lines().any(|line| line.starts_with("! weather: polywire-") && line.contains("temperature_c")),
        "{text}"
    );
    let wrong = folder.run(&["list", "-e", "json"]).with(3);
    assert!(wrong.errors.contains("ENGINE/ADDRESS is expected"), "{}", wrong.errors);
}

#[cfg(feature = "dds")]
#[test]
fn list_shows_the_readers_of_dds_programs() {
    use polywire_testing::{domains, tools};

    if !tools::python_has("cyclonedds") {
        return;
    }
    let folder = Folder::new();
    let domain = domains::lease();
    let place = format!("dds/{domain}?interface=127.0.0.1");
    let _publisher = publishing(&folder, "plant/pumps", &["-w", &format!("cdr@{place}")]);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../polywire/tests/dds/peer.py");
    let mut reader = Command::new(tools::python())
        .args([script, "read", &domain.to_string(), "plant/pumps", "Pump"])
        .env("CYCLONEDDS_URI", tools::CYCLONE_ON_LOOPBACK)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("a reader");
    let shown = once(&folder, &["list", "-e", &place], |shown| {
        rows(shown).len() == 2 && rows(shown).iter().any(|row| row["mismatches"].is_array())
    });
    let row = rows(&shown).iter().find(|row| row["kind"] == "subscriber").expect("there");
    let told = ["topic", "type", "endpoint", "reads"].map(|name| row[name].clone());
    assert_eq!(told, [json!("plant/pumps"), json!("plant::Pump"), json!(place), json!(0)]);
    assert_eq!(row["qos"], "reliability=reliable,durability=transient-local");
    assert!(row["node"].as_str().expect("a name").starts_with(&format!("{place} ")), "{row}");
    let reason = "the writer has the type weather::Report, the reader plant::Pump";
    assert_eq!(row["mismatches"][0]["reason"], reason);
    let text = folder.run(&["list", "-e", &place, "--timeout", "100"]).with(0).out;
    assert!(text.lines().any(|line| line.starts_with("! plant/pumps: dds/") && line.ends_with(reason)), "{text}");
    reader.kill().expect("it runs");
    reader.wait().expect("it has ended");
}

#[derive(Clone, Default, Message)]
struct Weather {
    celsius: f64,
}

#[test]
fn list_ends_while_nodes_come_and_go() {
    let folder = Folder::new();
    let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let (at, listen) = (format!("tcp-connect/{address}"), format!("tcp-listen/{address}"));
    let stays = Node::new();
    let publish = stays.publish::<Weather>("weather", Some(&format!("cdr@{at}"))).expect("a wire");
    let _publisher = publish.open().expect("opened");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let node = Node::new();
                node.open(&at).expect("opened");
                thread::sleep(Duration::from_millis(200));
                node.close();
            }
        });
        let listed = folder.start(&["list", "--wire", &listen, "--timeout", "10", "--json"]);
        // The loop ends even if the command does not.
        let ended = panic::catch_unwind(panic::AssertUnwindSafe(|| listed.end()));
        is_over.store(true, Ordering::Relaxed);
        ended.expect("it ends").with(0);
    });
}

#[test]
fn list_goes_on_watching() {
    let folder = Folder::new();
    let mut watching = folder.start(&["list", "--watch", "--json", "--timeout", "0.1"]);
    assert_eq!(watching.line(), "[]");
    let publisher = publishing(&folder, "weather", &[]);
    while !watching.line().contains("\"weather\"") {}
    drop(publisher);
    while watching.line() != "[]" {}
}

#[test]
fn nodes_are_listed_and_described() {
    let folder = Folder::new();
    folder.write("hall.toml", "[node]\nname = 'hall'\n");
    let publisher = publishing(&folder, "weather", &["--config", "hall.toml"]);
    let _subscriber = folder.start(&["echo", "weather"]);
    let shown = once(&folder, &["node", "list"], |shown| rows(shown).len() == 2);
    let hall = rows(&shown).iter().find(|row| row["name"] == "hall").expect("the publisher");
    assert_eq!((&hall["process"], &hall["publishers"]), (&json!(publisher.child.id()), &json!(1)));
    assert_eq!(hall["version"], env!("CARGO_PKG_VERSION"));
    let other = rows(&shown).iter().find(|row| row["name"] != "hall").expect("the subscriber");
    let details = once(&folder, &["node", "info", other["name"].as_str().expect("a name")], |shown| {
        shown["subscribes"][0]["reads"] == json!(["hall"])
    });
    assert_eq!(details["subscribes"][0]["topic"], "weather");
    let text = folder.run(&["node", "info", "hall", "--timeout", "100"]).with(0).out;
    assert!(
        text.starts_with("node        hall\n") && text.contains("\npublishes\n  weather  weather::Report  cdr@"),
        "{text}"
    );
    let by_id = folder.run(&["node", "info", hall["id"].as_str().expect("an id"), "--timeout", "100"]).with(0).out;
    assert!(by_id.starts_with("node        hall\n"), "{by_id}");
    let nobody = folder.run(&["node", "info", "nobody", "--timeout", "100"]).with(1);
    assert!(nobody.errors.contains("there is no node 'nobody'; there are hall, polywire-"), "{}", nobody.errors);
}

#[test]
fn top_prints_once_and_as_json() {
    let folder = Folder::new();
    let _publishers = [publishing(&folder, "north", &[]), publishing(&folder, "south", &[])];
    let _subscriber = folder.start(&["echo", "north"]);
    let arguments = ["top", "--once", "--sort", "topic"];
    let shown = once(&folder, &arguments, |shown| {
        shown["topics"].as_array().is_some_and(|topics| topics.len() == 2)
            && shown["topics"][0]["latency_p99_ns"].is_u64()
            && shown["nodes"].as_array().is_some_and(|nodes| nodes.len() == 3)
    });
    let north = &shown["topics"][0];
    assert_eq!((&north["topic"], &north["publishers"], &north["subscribers"]), (&json!("north"), &json!(1), &json!(1)));
    assert!(north["rate_hz"].as_f64().is_some_and(|rate| rate > 0.0) && north["lost"] == 0, "{north}");
    assert!(shown["nodes"][0]["memory_bytes"].as_u64().is_some_and(|bytes| bytes > 100_000), "{shown}");
    let filtered = folder.run(&[&arguments[..], &["--filter", "sou", "--timeout", "100"]].concat()).with(0).out;
    assert!(
        filtered.starts_with("NODE ") && filtered.contains("\nsouth  ") && !filtered.contains("\nnorth  "),
        "{filtered}"
    );
}

#[test]
fn top_draws_on_a_terminal_and_gives_it_back() {
    let folder = Folder::new();
    let _publishers = [publishing(&folder, "north", &[]), publishing(&folder, "south", &[])];
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
    grantpt(&master).and_then(|()| unlockpt(&master)).expect("unlocked");
    tcsetwinsize(&master, Winsize { ws_row: 20, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 }).expect("a size");
    let name = ptsname(&master, Vec::new()).expect("a name").into_string().expect("text");
    let side = || Stdio::from(File::options().read(true).write(true).open(&name).expect("the other side"));
    let mut command: Command = folder.command(&["top", "--every", "0.2"]);
    command.env_remove("NO_COLOR").env("TERM", "xterm").stdin(side()).stdout(side()).stderr(Stdio::null());
    let mut child = command.spawn().expect("started");
    drop(command);
    let mut keys = File::from(master);
    let mut reader = keys.try_clone().expect("a second handle");
    let (send, drawn) = mpsc::channel();
    thread::spawn(move || {
        let mut part = [0; 4096];
        // The last side to close ends the reading.
        while let Ok(read @ 1..) = reader.read(&mut part) {
            let _ = send.send(String::from_utf8_lossy(&part[..read]).into_owned());
        }
    });
    let mut screen = String::new();
    let mut see = |what: &str, fits: &dyn Fn(&str) -> bool| {
        let until = Instant::now() + SOON;
        loop {
            let last = screen.rsplit("\u{1b}[H").next().unwrap_or_default();
            if fits(last) {
                return screen.clone();
            }
            let left = until.saturating_duration_since(Instant::now());
            screen += &drawn.recv_timeout(left).unwrap_or_else(|_| panic!("no {what}: {screen:?}"));
        }
    };
    let all = see("topics", &|last| last.contains("north") && last.contains("south"));
    assert!(all.contains("\u{1b}[?1049h"), "{all:?}");
    keys.write_all(b"t/sou").expect("typed");
    see("the filter", &|last| {
        last.contains("Topic  filter: sou_") && last.contains("south") && !last.contains("north")
    });
    keys.write_all(b"\n").expect("typed");
    see("its end", &|last| last.contains("filter: sou  ") && last.contains("\u{1b}[J"));
    keys.write_all(b"q").expect("typed");
    see("the shell's screen", &|last| last.contains("\u{1b}[?1049l"));
    assert!(child.wait().expect("it ends").success());
}
