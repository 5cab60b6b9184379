//! `polywire agent` and `polywire probe`: samples arrive, a probe changes while it runs, and the
//! node is the same after a restart.

use std::{collections::BTreeMap, fs, net::TcpListener, process::Command, time::Duration};

use polywire::{Node, service::Service};
use polywire_telemetry::{
    Uuid,
    intake::{Intake, IntakeLimits, Sample},
    packet::{NodePacket, PACKETS, PacketReply},
};

use crate::common::{Ended, Folder, Running, told_to_manager};

fn terminated(running: Running) -> Ended {
    let id = running.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().expect("kill runs").success());
    running.end()
}

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
    says(&["probe", "set", "clock", "every=1"], 3, "NODE/INSTANCE is expected");
    says(&["probe", "set", "a/b", "every"], 3, "NAME=VALUE is expected");
}

/// Takes node packets until it has a sample, and one of each of these instances; acknowledges nothing
/// if `stores` is false.
fn collect(wire: &str, instances: &[&str], stores: bool) -> Vec<Sample> {
    let node = Node::new();
    let service: Service<NodePacket, PacketReply> =
        node.service(PACKETS, Some(wire)).expect("a service").open().expect("opened");
    let (mut intake, mut all) = (Intake::new(IntakeLimits::default()), Vec::<Sample>::new());
    let is_there =
        |all: &[Sample], name: &&str| all.iter().any(|sample| sample.stream().description().instance == **name);
    while all.is_empty() || !instances.iter().all(|name| is_there(&all, name)) {
        let request = service.recv_timeout(Duration::from_secs(120)).expect("a packet");
        let from = Uuid(request.info().source.link.peer.node.0);
        let taken = match intake.take(request.value(), Some(from)) {
            Ok(taken) => taken,
            Err(rejection) => {
                request.reply(&rejection.reply().expect("there is room")).expect("replied");
                continue;
            }
        };
        all.extend(taken.samples);
        intake.stored(taken.ticket);
        if stores {
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
    let seen = collect(&wire, &[], false);
    first.child.kill().expect("killed");
    first.end();
    assert!(fs::read_dir(folder.path().join("a.spool")).expect("a spool").count() > 1);
    // After its restart the node sends them again.
    let (second, said) = agent(&folder, &["agent.toml"]);
    let all = collect(&wire, &["load", "clock"], true);
    terminated(second).with(0);
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
