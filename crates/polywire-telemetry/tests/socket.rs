//! The node's local socket: what becomes of probes that programs declare.

use std::{
    io::{BufRead as _, BufReader, Lines, Read as _, Write as _},
    os::unix::{fs::PermissionsExt as _, net::UnixStream},
    time::Duration,
};

use polywire::{Node, Record, Subscriber, coding::Discovered};
use polywire_telemetry::{
    Agent, Identity, Moment, Plan, Runner, Setting,
    command::{Action, Command},
    socket::Socket,
    system::{self, Host},
};
use polywire_testing::{
    Folder,
    waiting::{SOON, until},
};
use serde_json::{Value, json};

/// A program that is connected.
struct Program(UnixStream, Lines<BufReader<UnixStream>>);

impl Program {
    fn new(path: &str) -> Program {
        let stream = UnixStream::connect(path).expect("it listens");
        stream.set_read_timeout(Some(SOON)).expect("set");
        let lines = BufReader::new(stream.try_clone().expect("cloned")).lines();
        Program(stream, lines)
    }

    fn write(&mut self, line: &Value) {
        writeln!(self.0, "{line}").expect("written");
    }

    fn told(&mut self) -> Value {
        serde_json::from_str(&self.1.next().expect("a line").expect("a text")).expect("JSON")
    }

    fn declare(&mut self, probe: &str, example: &Value) -> Value {
        self.write(&json!({ "probe": probe, "example": example }));
        self.told()
    }
}

fn agent(wire: &str, socket: &Socket) -> Agent {
    let identity = Identity::new("plant").expect("a name");
    let mut agent = Agent::new(Node::new(), identity, Host::this(), wire, Moment::default()).expect("a node");
    agent.add(Plan::of(system::find("clock").expect("known"))).expect("every system has it");
    agent.serve(socket);
    agent
}

fn samples(wire: &str, probe: &str) -> Subscriber<Record> {
    let coding = Discovered::new().expect("a coding");
    let topic = format!("probes/plant/{probe}");
    Node::new().subscribe_of(&topic, Some(wire), coding).expect("subscribes").open()
}

/// Sends samples until one comes.
fn first(program: &mut Program, samples: &Subscriber<Record>, line: &Value, member: &str) -> f64 {
    loop {
        program.write(line);
        if let Some(sample) = samples.recv_timeout(Duration::from_millis(50)) {
            return sample.value.f64(member).expect("a number");
        }
    }
}

#[test]
fn samples_come_in_order_and_a_type_has_one_owner() {
    let (folder, wire) = (Folder::new("socket"), "cdr@inproc/socket-order");
    let path = folder.file("plant.sock");
    let socket = Socket::open(path.as_ref()).expect("a socket");
    assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
    assert!(Socket::open(path.as_ref()).is_err(), "it is in use");
    let runner = Runner::start(agent(wire, &socket)).expect("a thread");
    let mut pump = Program::new(&path);
    assert_eq!(pump.declare("pump", &json!({ "bar": 2.5 }))["type"], "probes::pump");
    let received = samples(wire, "pump");
    assert_eq!(first(&mut pump, &received, &json!({ "probe": "pump", "value": { "bar": -1.5 } }), "bar"), -1.5);
    for number in 1..=500 {
        pump.write(&json!({ "probe": "pump", "value": { "bar": number } }));
    }
    let mut next = 1.0;
    while next <= 500.0 {
        let bar = received.recv_timeout(SOON).expect("a sample").value.f64("bar").expect("a number");
        assert!(bar == next || (bar == -1.5 && next == 1.0), "{bar} instead of {next}");
        next += f64::from(u8::from(bar == next));
    }

    // Another program with the same type, and one with another.
    let mut second = Program::new(&path);
    assert_eq!(second.declare("pump", &json!({ "bar": 1.0 }))["type"], "probes::pump");
    let mut third = Program::new(&path);
    let refused = third.declare("pump", &json!({ "bar": "high" }));
    assert_eq!((&refused["error"], &refused["line"]), (&json!("refused"), &json!(1)), "{refused}");
    let refused = third.declare("clock", &json!({ "bar": 1.0 }));
    assert!(refused["text"].as_str().is_some_and(|text| text.contains("which the node measures itself")), "{refused}");
    drop((pump, second));
    until("nobody sends it any more", || {
        third.declare("pump", &json!({ "bar": "high", "level": 7 }))["type"] == "probes::pump"
    });
    let received = samples(wire, "pump");
    let line = json!({ "probe": "pump", "value": { "bar": "low", "level": 8 } });
    loop {
        third.write(&line);
        // The subscriber may have seen the type before first.
        let sample = received.recv_timeout(Duration::from_millis(50));
        if sample.is_some_and(|sample| sample.value.i64("level").is_ok_and(|level| level == 8)) {
            break;
        }
    }
    drop((runner, socket));
    let mut rest = Vec::new();
    third.0.read_to_end(&mut rest).expect("the connection ends");
    assert!(!std::path::Path::new(&path).exists());
}

#[test]
fn the_node_describes_declared_probes_and_takes_commands_for_them() {
    let (folder, wire) = (Folder::new("socket-set"), "cdr@inproc/socket-set");
    let path = folder.file("plant.sock");
    let socket = Socket::open(path.as_ref()).expect("a socket");
    let mut agent = agent(wire, &socket);
    let mut program = Program::new(&path);
    let pdl = "[uuid(152a9bd8-6a03-4d4c-85ef-e720829573c4); version(2.1)] probe Tank { @unit(\"m\") real64 level; };";
    program.write(&json!({ "probe": "tank", "pdl": pdl, "value": { "level": 1.0 } }));
    let mut turn = Moment::default();
    until("it is admitted", || {
        turn.steady += Duration::from_millis(10);
        agent.turn(turn);
        agent.description().probes.len() == 2
    });
    let described = agent.description().probes.remove(1);
    assert_eq!((described.instance.as_str(), described.probe.as_str()), ("tank", "socket"));
    assert_eq!(described.uuid, "152a9bd8-6a03-4d4c-85ef-e720829573c4");
    assert_eq!((described.version.as_str(), described.pdl.as_str()), ("2.1", pdl));
    assert_eq!(program.told()["type"], "Tank");
    let uuid = agent.description().uuid;
    let mut set = |name: &str, value: &str| {
        let settings = vec![Setting { name: name.into(), value: value.into() }];
        let command = Command { action: Action::Set, instance: "tank".into(), settings, ..Command::to(&uuid) };
        agent.handle(&command).problem()
    };
    assert!(set("every", "0.1").contains("a program sends the samples"));
    assert_eq!((set("thin", "change"), set("wire", "json"), set("enabled", "false")), Default::default());
    let received = samples(wire, "tank");
    program.write(&json!({ "probe": "tank", "value": { "level": 2.0 } }));
    for _ in 0..20 {
        turn.steady += Duration::from_millis(10);
        agent.turn(turn);
        assert!(received.recv_timeout(Duration::from_millis(5)).is_none(), "it is stopped");
    }
    let uuid = agent.description().uuid;
    assert!(agent.handle(&Command { action: Action::Start, instance: "tank".into(), ..Command::to(&uuid) }).is_done());
    let mut level = 3.0;
    let sample = loop {
        level += 1.0;
        program.write(&json!({ "probe": "tank", "value": { "level": level } }));
        turn.steady += Duration::from_millis(10);
        agent.turn(turn);
        if let Some(sample) = received.recv_timeout(Duration::from_millis(20)) {
            break sample;
        }
    };
    assert!(sample.value.f64("level").expect("a number") >= 4.0);
    assert!(!agent.flush("tank", turn) || agent.description().probes[1].problem.contains("nothing has come"));
}
