//! `polywire agent` and `polywire probe`: samples arrive, a probe changes while it runs, and the
//! node is the same after a restart.

use std::{
    collections::BTreeMap,
    fs,
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use polywire::{Node, service::Service};
use polywire_telemetry::{
    Agent, Identity, Moment, Runner, Uuid,
    intake::{Intake, IntakeLimits, Sample},
    packet::{NodePacket, PACKETS, PacketReply},
    system::Host,
};

use crate::common::{Folder, Running, told_to_manager, until};

/// Starts an agent with these arguments, and returns it with what it says first.
fn agent(folder: &Folder, arguments: &[&str]) -> (Running, String) {
    let mut agent = folder.start(&[&["agent", "--state", "a.state"], arguments].concat());
    let said = agent.line();
    (agent, said)
}

#[test]
fn samples_of_every_probe_arrive_at_a_process_without_their_types() {
    let folder = Folder::new();
    let here = folder.run(&["probe", "list", "--here", "--json"]).with(0).out;
    assert!(here.contains(r#""probe":"memory""#), "{here}");
    let (running, said) = agent(&folder, &["--name", "house", "--every", "0.02"]);
    for probe in ["processor", "memory", "network", "load", "uptime", "clock", "processes"] {
        assert!(said.contains(probe), "{said}");
        let topic = format!("probes/house/{probe}");
        let echo = folder.run(&["echo", &topic, "--count", "2", "--timeout", "60"]).with(0);
        assert_eq!(echo.out.lines().count(), 2, "{echo:?}");
    }
    running.end_by("TERM").with(0);
}

#[test]
fn a_probe_changes_while_it_runs() {
    let folder = Folder::new();
    folder.write(
        "agent.toml",
        "[agent]\nname = 'house'\n[probes.clock]\nevery = 3600\n[probes.own]\nprobe = 'processes'\npattern = 'polywire*'\n",
    );
    let (running, said) = agent(&folder, &["agent.toml", "--wire", "json"]);
    assert!(said.starts_with("node house (") && said.ends_with(": clock, own"), "{said}");
    let mut echo = folder.start(&["echo", "probes/house/clock", "--timeout", "60", "--count", "3"]);
    let set = |settings: &[&str]| folder.run(&[&["probe", "set", "house/clock", "--timeout", "60"], settings].concat());
    set(&["every=0.01", "wire=msgpack"]).with(0);
    for _ in 0..3 {
        assert!(echo.line().contains("offset_s"));
    }
    echo.end().with(0);
    let listed = folder.run(&["probe", "list", "--timeout", "60", "--json"]).with(0).out;
    assert!(listed.contains(r#""every_s":0.01"#) && listed.contains(r#""wire":"msgpack""#), "{listed}");
    // Nothing changes if a part is wrong.
    let wrong = set(&["every=7", "evry=1"]).with(2);
    assert!(wrong.errors.contains("unknown setting 'evry', did you mean 'every'?"), "{wrong:?}");
    set(&["enabled=false"]).with(0);
    let listed = folder.run(&["probe", "list", "--timeout", "60"]).with(0).out;
    let clock = listed.lines().find(|line| line.starts_with("house/clock ")).expect("a line");
    assert!(clock.contains("0.01 s") && clock.ends_with("stopped"), "{listed}");
    let described = folder.run(&["probe", "describe", "house/own", "--timeout", "60"]).with(0).out;
    assert!(described.contains("probe Processes : Rated") && described.contains("pattern=polywire*"), "{described}");
    let missing = folder.run(&["probe", "describe", "house/clok", "--timeout", "60"]).with(1);
    assert!(missing.errors.contains("node 'house' has no probe 'clok', did you mean 'clock'?"), "{missing:?}");
    running.end_by("TERM").with(0);
}

#[test]
fn several_probes_change_at_once_and_keep_it() {
    let folder = Folder::new();
    let probes = ["--probe", "clock", "--probe", "uptime"];
    let (house, _) = agent(&folder, &[&["--name", "house"], &probes[..]].concat());
    let barn = folder.start(&["agent", "--state", "b.state", "--name", "barn", "--probe", "clock"]);
    // Both nodes are there before they are asked.
    for topic in ["probes/house/clock", "probes/barn/clock"] {
        folder.run(&["echo", topic, "--count", "1", "--timeout", "60"]).with(0);
    }
    let set = |arguments: &[&str]| folder.run(&[&["probe"], arguments, &["--timeout", "60", "--json"]].concat());
    let targets = |ended: &crate::common::Ended| -> Vec<(String, bool)> {
        let json = ended.json();
        let all = json.as_array().expect("an array");
        let of = |one: &serde_json::Value| (one["target"].as_str().expect("a name").to_owned(), one["done"] == true);
        let mut all: Vec<(String, bool)> = all.iter().map(of).collect();
        all.sort();
        all
    };
    let all = set(&["set", "*/c*", "every=0.5", "--keep"]).with(0);
    assert_eq!(targets(&all), [("barn/clock".to_owned(), true), ("house/clock".to_owned(), true)]);
    let some = set(&["stop", "*/uptime", "--keep"]).with(0);
    assert_eq!(targets(&some), [("house/uptime".to_owned(), true)]);
    let refused = set(&["set", "house/clok", "every=1"]).with(2);
    assert_eq!(refused.json()[0]["refused"][0]["reason"], "unknown probe");
    let refused = set(&["set", "house", "budget=1"]).with(2);
    assert_eq!(refused.json()[0]["refused"][0]["setting"], "budget");
    assert!(set(&["set", "house/x*", "every=1"]).with(3).errors.contains("no probe fits 'house/x*'"));
    house.end_by("TERM").with(0);
    barn.end_by("TERM").with(0);
    // Each command is on record, also those that were refused.
    let audit = folder.read("a.audit");
    let problems: Vec<bool> = audit.lines().map(|line| line.contains(r#""problem":"""#)).collect();
    assert_eq!(problems, [true, true, false, false], "{audit}");
    let (again, _) = agent(&folder, &probes);
    let listed = folder.run(&["probe", "list", "--timeout", "60", "--json"]).with(0).json();
    let probes = listed[0]["probes"].as_array().expect("probes");
    let found: Vec<(f64, bool)> =
        probes.iter().map(|probe| (probe["every_s"].as_f64().expect("a time"), probe["enabled"] == true)).collect();
    assert_eq!(found, [(0.5, true), (10.0, false)], "{listed}");
    again.end_by("TERM").with(0);
    folder.write("a.kept", "[agent]\nbudget = 1\n");
    let ended = folder.run(&["agent", "--state", "a.state"]).with(2);
    assert!(ended.errors.contains("a.kept has no settings of a node ('budget' is no text)"), "{ended:?}");
}

/// How many parts to eject.
#[derive(Default, polywire::Message)]
#[polywire(name = "plant::Eject")]
struct Eject {
    parts: u32,
}

/// What is left.
#[derive(Default, polywire::Message)]
#[polywire(name = "plant::Ejected")]
struct Ejected {
    left: u32,
}

#[test]
fn a_command_of_an_application_is_described_and_called() {
    let folder = Folder::new();
    let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let (identity, wire) = (Identity::new("press").expect("a name"), format!("cdr@tcp-listen/{address}"));
    let mut agent = Agent::new(Node::new(), identity, Host::this(), &wire, Moment::default()).expect("an agent");
    let mut stock = 10_u32;
    let eject = move |eject: &Eject| {
        stock = stock.checked_sub(eject.parts).ok_or("there are fewer parts")?;
        Ok::<_, &str>(Ejected { left: stock })
    };
    agent.add_command("eject", "Ejects parts", eject).expect("declared");
    let runner = Runner::start(agent).expect("a thread");
    let at = format!("tcp-connect/{address}");
    let run = |arguments: &[&str]| folder.run(&[arguments, &["--wire", &at, "--timeout", "60"]].concat());
    assert!(run(&["probe", "list"]).with(0).out.contains("press/eject  Ejects parts"));
    let described = run(&["probe", "describe", "press/eject"]).with(0).out;
    assert!(described.contains("uint32 parts;") && described.contains("uint32 left;"), "{described}");
    assert_eq!(run(&["probe", "call", "press", "eject", r#"{"parts":2}"#]).with(0).out, "{\"left\":8}\n");
    let failed = run(&["probe", "call", "press", "eject", r#"{"parts":9}"#]).with(2);
    assert!(failed.errors.contains("eject: there are fewer parts"), "{failed:?}");
    let wrong = run(&["probe", "call", "press", "eject", r#"{"part":9}"#]).with(3);
    assert!(wrong.errors.contains("there is no member 'part'"), "{wrong:?}");
    let missing = run(&["probe", "call", "press", "ejct"]).with(1);
    assert!(missing.errors.contains("node 'press' has no command 'ejct', did you mean 'eject'?"), "{missing:?}");
    let listed = run(&["directory", "list", "--kind", "command", "--json"]).with(0).json();
    assert_eq!(listed[0]["places"][0], "telemetry/press/command/eject");
    drop(runner);
}

#[test]
fn the_directory_names_what_is_there_and_forgets_what_has_gone() {
    let folder = Folder::new();
    let (house, _) = agent(&folder, &["--name", "house", "--probe", "clock"]);
    let mut collecting = folder.start(&["collect", "--to", "jsonl=samples.jsonl"]);
    collecting.line();
    // Both are there before the list is made.
    folder.run(&["echo", "probes/*/clock", "--count", "1", "--timeout", "60"]).with(0);
    folder.run(&["echo", "probes/*/collector", "--count", "1", "--timeout", "60"]).with(0);
    let list = |more: &[&str]| folder.run(&[&["directory", "list", "--timeout", "60", "--json"], more].concat());
    let listed = list(&[]).with(0).json();
    let all: Vec<(&str, &str)> = listed
        .as_array()
        .expect("an array")
        .iter()
        .map(|entry| (entry["kind"].as_str().expect("a kind"), entry["name"].as_str().expect("a name")))
        .collect();
    for entry in [("node", "house"), ("probe", "house/clock"), ("type", "system::Clock")] {
        assert!(all.contains(&entry), "{all:?}");
    }
    assert!(all.iter().any(|(kind, _)| *kind == "collector"), "{all:?}");
    let shown = folder.run(&["directory", "show", "house", "--timeout", "60", "--json"]).with(0).json();
    assert_eq!((&shown["name"], &shown["probes"][0]["instance"]), (&"house".into(), &"clock".into()));
    let missing = folder.run(&["directory", "show", "hose", "--timeout", "60"]).with(1);
    assert!(missing.errors.contains("there is no node 'hose', did you mean 'house'?"), "{missing:?}");
    house.end_by("TERM").with(0);
    assert!(list(&["--kind", "node"]).with(1).errors.contains("there is nothing of this kind"));
    collecting.end_by("TERM").with(0);
}

#[test]
fn a_directory_tells_clients_elsewhere_who_comes_and_goes() {
    let folder = Folder::new();
    let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let (at, listen) = (format!("tcp-connect/{address}"), format!("tcp-listen/{address}"));
    let (mut house, _) = agent(&folder, &["--name", "house", "--probe", "clock"]);
    let mut barn = folder.start(&["agent", "--state", "b.state", "--name", "barn", "--probe", "clock"]);
    barn.line();
    let mut serving = folder.start(&["directory", "serve", &listen]);
    let came = [serving.line(), serving.line()];
    assert!(came.iter().any(|line| line.ends_with(" house")) && came.iter().any(|line| line.ends_with(" barn")));
    let nodes = || {
        let listed = folder.run(&["directory", "list", "--kind", "node", "--wire", &at, "--timeout", "60", "--json"]);
        let listed = listed.with(0).json();
        let nodes =
            listed.as_array().expect("an array").iter().map(|node| node["name"].as_str().expect("a name").to_owned());
        nodes.collect::<Vec<_>>()
    };
    assert_eq!(nodes(), ["barn", "house"]);
    // It does not say goodbye.
    house.child.kill().expect("killed");
    house.end();
    let gone = serving.line();
    assert!(gone.ends_with(" house has gone"), "{gone}");
    assert_eq!(nodes(), ["barn"]);
    serving.end_by("TERM").with(0);
    barn.end_by("TERM").with(0);
    let wrong = folder.run(&["directory", "serve", "local"]).with(3);
    assert!(wrong.errors.contains("clients need an address of their own"), "{wrong:?}");
}

#[test]
fn a_directory_does_not_serve_at_another_spelling_of_the_address_of_the_nodes() {
    let folder = Folder::new();
    let mut command = folder.command(&["directory", "serve", "local/78", "--for", "0.1"]);
    command.env("POLYWIRE_DOMAIN", "78");
    let wrong = Running::of(command).end().with(3);
    assert!(wrong.errors.contains("clients need an address of their own"), "{wrong:?}");
}

#[test]
fn directories_at_several_addresses_agree_over_zenoh() {
    if !cfg!(feature = "zenoh") {
        return;
    }
    let folder = Folder::new();
    let free = || TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let (router, places) = (free(), [free(), free()]);
    let client = format!("cdr@zenoh/client/tcp/{router}");
    let serve = |place: SocketAddr, wire: &str| {
        folder.start(&["directory", "serve", &format!("tcp-listen/{place}"), "--wire", wire])
    };
    let first = serve(places[0], &format!("cdr@zenoh/router?listen=tcp/{router},scouting=off"));
    // The others connect to it.
    while TcpStream::connect(router).is_err() {
        thread::sleep(Duration::from_millis(20));
    }
    let mut directories = [first, serve(places[1], &client)];
    let (house, _) = agent(&folder, &["--name", "house", "--probe", "clock", "--wire", &client]);
    for (serving, place) in directories.iter_mut().zip(&places) {
        assert!(serving.line().ends_with(" house"));
        let wire = format!("tcp-connect/{place}");
        let listed = folder.run(&["directory", "list", "--kind", "node", "--wire", &wire, "--timeout", "60", "--json"]);
        let listed = listed.with(0).json();
        assert_eq!((listed.as_array().map(Vec::len), &listed[0]["name"]), (Some(1), &"house".into()));
    }
    house.end_by("TERM").with(0);
    for mut serving in directories {
        assert!(serving.line().ends_with(" house has gone"));
        serving.end_by("TERM").with(0);
    }
}

#[test]
fn a_node_is_the_same_after_a_restart() {
    let folder = Folder::new();
    let (first, said) = agent(&folder, &["--name", "house", "--probe", "clock"]);
    first.end_by("TERM").with(0);
    let (second, again) = agent(&folder, &["--probe", "clock"]);
    assert_eq!(said, again);
    second.end_by("TERM").with(0);
    folder.write("a.state", "anything");
    let ended = folder.run(&["agent", "--state", "a.state"]).with(2);
    assert!(ended.errors.contains("a.state is no state file of a node"), "{ended:?}");
}

#[test]
fn it_tells_a_service_manager_when_it_is_ready() {
    let arguments = ["agent", "--state", "a.state", "--probe", "clock", "--for", "0.2"];
    assert_eq!(told_to_manager(&Folder::new(), &arguments), ["READY=1", "STOPPING=1"]);
}

#[test]
fn slips_are_told() {
    let folder = Folder::new();
    let says = |arguments: &[&str], code: i32, text: &str| {
        let ended = folder.run(arguments).with(code);
        assert!(ended.errors.contains(text), "{ended:?}");
    };
    says(&["agent", "--probe", "procesor"], 3, "unknown probe 'procesor', did you mean 'processor'?");
    says(&["agent", "--every", "0"], 3, "a number of seconds from 0.001 to 86400 is expected");
    says(&["agent", "--state", "x", "--name", "a/b"], 2, "'a/b' cannot be the name of a node");
    folder.write("wrong.toml", "[probes.load]\nevry = 1\n");
    says(&["agent", "wrong.toml"], 2, "[probes.load]: unknown setting 'evry', did you mean 'every'?");
    says(&["probe", "list", "--timeout", "0.1"], 1, "nobody is there");
    says(&["probe", "describe", "clok"], 3, "unknown probe 'clok', did you mean 'clock'?");
    says(&["probe", "run", "clock", "true"], 3, "NODE/INSTANCE is expected");
    says(&["probe", "run", "a/b c", "true"], 3, "'b c' cannot be the name of a node");
    says(&["probe", "run", "a/b", ""], 2, "parameter 'command' cannot be ''");
    says(&["probe", "start", "clock"], 3, "NODE/INSTANCE is expected");
    says(&["probe", "describe", "house/"], 1, "nobody is there");
    says(&["probe", "set", "a/b", "every"], 3, "NAME=VALUE is expected");
}

/// Accepts node packets until it has a sample of each of these instances; does not acknowledge the
/// last packet if `stores` is false.
fn collect(wire: &str, instances: &[&str], stores: bool) -> Vec<Sample> {
    let node = Node::new();
    let service: Service<NodePacket, PacketReply> =
        node.service(PACKETS, Some(wire)).expect("a service").open().expect("opened");
    let (mut intake, mut all) = (Intake::new(IntakeLimits::default()), Vec::<Sample>::new());
    let has = |all: &[Sample], name: &str| all.iter().any(|sample| sample.stream().description().instance == name);
    let is_over = |all: &[Sample]| instances.iter().all(|name| has(all, name));
    while !is_over(&all) {
        let request = service.recv_timeout(Duration::from_secs(120)).expect("a packet");
        let from = Uuid(request.info().source.link.peer.node.0);
        let accepted = match intake.take(request.value(), Some(from)) {
            Ok(accepted) => accepted,
            Err(rejection) => {
                request.reply(&rejection.reply().expect("there is room")).expect("replied");
                continue;
            }
        };
        all.extend(accepted.samples);
        intake.stored(accepted.ticket);
        if stores || !is_over(&all) {
            request.reply(&PacketReply::default()).expect("replied");
        }
    }
    node.flush(Duration::from_secs(60));
    all
}

#[test]
fn a_collector_that_was_away_gets_every_sample() {
    let folder = Folder::new();
    let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    folder.write(
        "agent.toml",
        &format!(
            "[agent]\nname = 'house'\ncollector = 'cdr+zstd@tcp-connect/{address}'\nsync = 0\n[probes.clock]\nevery = 0.02\n\
             keep = 5\nbatch = '100'\n[probes.load]\nevery = 0.01\nwire = 'fast'\npriority = 8\n[probes.uptime]\nkeep = 'none'\n"
        ),
    );
    let wire = format!("cdr@tcp-listen/{address}");
    // The collector sees samples, and dies without having stored them. So does the node.
    let (mut first, _) = agent(&folder, &["agent.toml"]);
    let seen = collect(&wire, &["load"], false);
    first.child.kill().expect("killed");
    first.end();
    assert!(fs::read_dir(folder.path().join("a.spool")).expect("a spool").count() > 1);
    // After its restart the node sends them again.
    let (second, said) = agent(&folder, &["agent.toml"]);
    let all = collect(&wire, &["load", "clock"], true);
    second.end_by("TERM").with(0);
    let load = |sample: &&Sample| sample.stream().description().instance == "load";
    let first_of =
        |samples: &[Sample]| samples.iter().find(load).map(|sample| (sample.position(), sample.payload().to_vec()));
    assert_eq!(first_of(&seen), first_of(&all));
    assert!(said.contains(&all[0].stream().node().to_string()), "{said}");
    let mut next = BTreeMap::new();
    for sample in all.iter().filter(load) {
        let expected = next.entry(sample.position().start).or_insert(0);
        assert_eq!((sample.position().sequence, sample.missing()), (*expected, 0));
        *expected += 1;
    }
    let value = all.iter().find(load).expect("a sample").decode().expect("decoded");
    assert!(value.f64("average_1min").is_ok(), "{value:?}");
    assert!(all.iter().all(|sample| sample.stream().description().instance != "uptime"));
    let wrong = folder.run(&["agent", "--state", "a.state", "--collector", "nothing@tcp/127.0.0.1:1"]).with(2);
    assert!(wrong.errors.contains("unknown codec 'nothing'"), "{wrong:?}");
}

#[test]
fn samples_that_are_sent_again_are_not_reported_as_lost() {
    let folder = Folder::new();
    let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    folder.write(
        "collect.toml",
        &format!(
            "[collector]\nendpoints = ['tcp/{address}']\nnodes = 'positions'\n[handlers.lines]\nkind = 'jsonl'\n\
             path = 'lines.jsonl'\noverflow = 'block'\nsync = 0.01\n"
        ),
    );
    let lines = folder.path().join("lines.jsonl");
    let stored = || fs::read_to_string(&lines).unwrap_or_default().lines().count();
    let wire = format!("tcp/{address}");
    let (agent, _) = agent(&folder, &["--probe", "clock", "--every", "0.3", "--collector", &wire]);
    let collector = folder.start(&["collect", "--file", "collect.toml"]);
    until("three samples", || stored() > 2);
    // This sample is acknowledged, and the next one not confirmed before the connection breaks.
    thread::sleep(Duration::from_millis(150));
    collector.signal("STOP");
    thread::sleep(Duration::from_millis(600));
    collector.end_by("KILL");
    let before = stored();
    let collector = folder.start(&["collect", "--file", "collect.toml"]);
    until("a sample that is sent again", || stored() > before);
    let ended = agent.end_by("TERM").with(0);
    assert!(!ended.errors.contains("may be lost"), "{ended:?}");
    collector.end_by("TERM").with(0);
}

/// Rows of the archive for a topic.
#[cfg(feature = "sqlite")]
fn archived(folder: &Folder, file: &str, topic: &str) -> usize {
    let query = format!(r#"SELECT _sequence FROM "system::Clock" WHERE _topic = '{topic}'"#);
    folder.run(&["query", file, &query, "--format", "csv"]).out.lines().count().saturating_sub(1)
}

#[cfg(feature = "sqlite")]
#[test]
fn one_command_measures_and_collects() {
    let folder = Folder::new();
    let (mut house, said) = agent(&folder, &["--name", "house", "--probe", "clock", "--every", "0.02", "--collect"]);
    assert!(said.starts_with("node house (") && said.ends_with(": clock"), "{said}");
    let said = house.line();
    assert!(said.starts_with("collects probes/** at auto@local: archive"), "{said}");
    // Other nodes are collected, too.
    let barn = folder.start(&["agent", "--state", "b.state", "--name", "barn", "--probe", "clock", "--every", "0.02"]);
    for topic in ["probes/house/clock", "probes/barn/clock"] {
        until(topic, || archived(&folder, "a.db", topic) >= 5);
    }
    // What the collector counts is a probe of the same node.
    let counts = folder.run(&["echo", "probes/house/collector", "--count", "1", "--timeout", "60"]).with(0).out;
    assert!(counts.contains(r#""name":"archive","kind":"sqlite""#), "{counts}");
    barn.end_by("TERM").with(0);
    let ended = house.end_by("TERM").with(0);
    let last = ended.out.lines().find(|line| line.starts_with("archive: ")).expect("its figures");
    assert!(last.contains(" 0 dropped, 0 refused, 0 waiting"), "{last}");
    let stored: usize = last.split(", ").nth(1).and_then(|part| part.split(' ').next()?.parse().ok()).expect("a count");
    assert!(stored >= archived(&folder, "a.db", "probes/house/clock") + archived(&folder, "a.db", "probes/barn/clock"));
    if cfg!(feature = "mcap") {
        assert!(folder.path().join("a.mcap").exists());
    }
    let has_page = folder.path().join("a.url").exists();
    assert_eq!((has_page, ended.out.contains("\npage: http://127.0.0.1:")), (cfg!(feature = "foxglove"), has_page));
    assert!(!has_page || !ended.out.contains('#'), "the secret is in the file alone: {}", ended.out);
}

#[test]
fn the_collector_of_a_node_has_a_file_of_its_own() {
    let folder = Folder::new();
    let wrong = |text: &str| {
        folder.write("c.toml", text);
        folder.run(&["agent", "--state", "a.state", "--collect=c.toml", "--for", "1"]).with(2).errors
    };
    assert!(wrong("[handlers.a]\nkind = 'jsnl'\n").contains("c.toml: line 2: [handlers.a]: unknown kind 'jsnl'"));
    assert!(!folder.path().join("a.jsonl").exists());
    let handler = |name: &str| format!("[handlers.{name}]\nkind = 'jsonl'\npath = '{name}.jsonl'\nsync = 0.01\n");
    folder.write("c.toml", &handler("a"));
    let probes = ["--name", "house", "--probe", "clock", "--every", "0.02", "--wire", "json@unix-listen/house.sock"];
    let (mut running, _) = agent(&folder, &[&probes[..], &["--collect=c.toml"]].concat());
    assert_eq!(running.line(), "collects probes/** at auto@unix-listen/house.sock: a");
    let has = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap_or_default().lines().count() > 5;
    until("a.jsonl", || has("a.jsonl"));
    folder.write("c.toml", &handler("b"));
    running.signal("HUP");
    assert_eq!(running.line_with("opened"), "opened b; closed a");
    until("b.jsonl", || has("b.jsonl"));
    folder
        .run(&["probe", "set", "house/clock", "wire=fast", "--wire", "unix-connect/house.sock", "--timeout", "60"])
        .with(0);
    running.end_by("TERM").with(0);
    // No sample is missing between the files, and over the change of the format.
    let lines = ["a.jsonl", "b.jsonl"].map(|name| folder.read(name)).concat();
    let clocks = lines.lines().filter(|line| line.contains("\"topic\":\"probes/house/clock\""));
    let numbers: Vec<u64> = clocks
        .map(|line| {
            let value: serde_json::Value = serde_json::from_str(line).expect("JSON");
            value["sequence"].as_u64().expect("a number")
        })
        .collect();
    assert!(numbers.windows(2).all(|two| two[1] == two[0] + 1), "{numbers:?}");
}
