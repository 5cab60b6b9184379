//! The node's local socket: what becomes of probes that programs declare.

use std::{
    io::{BufRead as _, BufReader, Lines, Read as _, Write as _},
    os::unix::{fs::PermissionsExt as _, net::UnixStream},
    time::Duration,
};

use polywire::{
    Config, Message, Node, Record, Subscriber,
    coding::Discovered,
    service::{CallError, Client, Reply},
};
use polywire_telemetry::{
    Agent, Identity, Moment, Plan, Runner, Setting,
    command::{AUDIT, Action, AuditRecord, Command, audit_qos},
    socket::{LONGEST_CALL, MAX_CALLS, Socket},
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

    /// Reads a line of the node.
    fn read(&mut self) -> Value {
        serde_json::from_str(&self.1.next().expect("a line").expect("a text")).expect("JSON")
    }

    fn declare(&mut self, probe: &str, example: &Value) -> Value {
        self.write(&json!({ "probe": probe, "example": example }));
        self.read()
    }
}

fn agent(wire: &str, socket: &Socket) -> Agent {
    agent_of(Node::new(), wire, socket)
}

fn agent_of(node: Node, wire: &str, socket: &Socket) -> Agent {
    let identity = Identity::new("plant").expect("a name");
    let mut agent = Agent::new(node, identity, Host::this(), wire, Moment::default()).expect("a node");
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
fn samples_of_a_program_that_has_ended_outlive_its_type() {
    let (folder, wire) = (Folder::new("socket-former"), "cdr@inproc/socket-former");
    let path = folder.file("plant.sock");
    let socket = Socket::open(path.as_ref()).expect("a socket");
    let mut agent = agent(wire, &socket);
    let mut first = Program::new(&path);
    first.write(&json!({ "probe": "pump", "example": { "bar": 1.5 } }));
    let mut now = Moment::default();
    let mut turn = |agent: &mut Agent| {
        now.steady += Duration::from_millis(10);
        agent.turn(now);
    };
    until("it is admitted", || {
        turn(&mut agent);
        agent.description().probes.len() == 2
    });
    let received = samples(wire, "pump");
    until("a sample comes", || {
        first.write(&json!({ "probe": "pump", "value": { "bar": 1.5 } }));
        turn(&mut agent);
        received.recv_timeout(Duration::from_millis(20)).is_some()
    });
    // The node has no turn until the first program has ended and another type has come.
    first.write(&json!({ "probe": "pump", "value": { "bar": 9.5 } }));
    drop(first);
    std::thread::sleep(Duration::from_millis(200));
    let mut second = Program::new(&path);
    second.write(&json!({ "probe": "pump", "example": { "bar": 1.5, "level": 7 } }));
    std::thread::sleep(Duration::from_millis(200));
    turn(&mut agent);
    until("the last sample comes", || {
        turn(&mut agent);
        let sample = received.recv_timeout(Duration::from_millis(20));
        sample.is_some_and(|sample| sample.value.f64("bar") == Ok(9.5))
    });
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
    assert_eq!(program.read()["type"], "Tank");
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
    // The last sample may have come after the turn.
    until("all samples are taken", || {
        !agent.flush("tank", turn) || agent.description().probes[1].problem.contains("nothing has come")
    });
}

const TANK: &str = "module plant { probe Tank { real64 level;
    // Drains. Returns what ran out.
    // In litres.
    real64 drain(in real64 level, in string who);
    void reset(); }; };";

/// A request of `drain`, as a program in Rust has it.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "plant::Tank_drain_In", nested)]
struct Drain {
    level: f64,
    who: String,
}

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "plant::Tank_drain_Out", nested)]
struct Drained {
    return_: f64,
}

#[derive(Debug, Default, Message)]
#[polywire(name = "plant::Tank_reset_In", nested)]
struct Reset {}

#[derive(Debug, Default, Message)]
#[polywire(name = "plant::Tank_reset_Out", nested)]
struct ResetDone {}

fn drain(level: f64) -> Drain {
    Drain { level, who: "ann".to_owned() }
}

fn drains(wire: &str) -> Client<Drain, Drained> {
    let client = Node::new().client("telemetry/plant/command/tank.drain", Some(wire)).expect("a client");
    client.open().expect("opened")
}

impl Program {
    /// A program with a tank.
    fn with_tank(path: &str) -> Program {
        let mut program = Program::new(path);
        program.write(&json!({ "probe": "tank", "pdl": TANK }));
        assert_eq!(program.read()["type"], "plant::Tank");
        program
    }
}

/// Waits for a reply, and says why there is none.
fn outcome(reply: Reply<Drained>) -> Result<f64, String> {
    reply.wait().map(|reply| reply.value.return_).map_err(|error| error.to_string())
}

#[test]
fn operations_are_commands_whose_calls_the_program_answers() {
    let (folder, wire) = (Folder::new("socket-calls"), "cdr@inproc/socket-calls");
    let path = folder.file("plant.sock");
    let socket = Socket::open(path.as_ref()).expect("a socket");
    let agent = agent(wire, &socket);
    let node = Node::new();
    let audit: Subscriber<AuditRecord> =
        node.subscribe(AUDIT, Some(wire)).expect("a topic").qos(audit_qos()).expect("policies").open();
    let runner = Runner::start(agent).expect("a thread");
    let mut program = Program::with_tank(&path);
    let client = drains(wire);
    client.wait_for_server(SOON).expect("it is served");
    let begin = |level| client.request(&drain(level), SOON).expect("sent");

    // Several at once, and the answers in another order.
    let replies = [begin(1.0), begin(2.0), begin(3.0)];
    let calls: Vec<Value> = (0..3).map(|_| program.read()).collect();
    let request = json!({ "level": 1.0, "who": "ann" });
    assert_eq!(calls[0], json!({ "call": 1, "probe": "tank", "command": "drain", "request": request }));
    program.write(&json!({ "reply": 3, "value": { "return_": 30.0 } }));
    program.write(&json!({ "reply": 1, "error": "the valve is stuck" }));
    program.write(&json!({ "reply": 2, "value": { "return_": "much" } }));
    assert_eq!(program.read()["error"], "value");
    program.write(&json!({ "reply": 2, "value": { "return_": 20.0 } }));
    let outcomes = replies.map(outcome);
    assert_eq!(outcomes, [Err("the valve is stuck".to_owned()), Ok(20.0), Ok(30.0)]);
    program.write(&json!({ "reply": 2, "value": {} }));
    assert_eq!(program.read()["error"], "reply");
    let records: Vec<AuditRecord> = (0..3).map(|_| audit.recv_timeout(SOON).expect("a record").value).collect();
    let stuck = records.iter().find(|record| !record.problem.is_empty()).expect("one has failed");
    assert_eq!((stuck.problem.as_str(), stuck.who.as_str()), ("the valve is stuck", "this process"));
    assert_eq!((stuck.service.as_str(), &stuck.request), ("telemetry/plant/command/tank.drain", &request.to_string()));

    // The program goes while calls are under way, then there is none, and then another one.
    let reply = begin(4.0);
    program.read();
    drop(program);
    assert_eq!(outcome(reply), Err("the program has gone before it replied; it may have done it".to_owned()));
    assert_eq!(outcome(begin(5.0)), Err("the program that declared the probe 'tank' has gone".to_owned()));
    let mut program = Program::with_tank(&path);
    let reply = begin(6.0);
    assert_eq!(program.read()["call"], 1, "the numbers are those of a connection");
    program.write(&json!({ "reply": 1, "value": { "return_": 60.0 } }));
    assert_eq!(outcome(reply), Ok(60.0));
    drop((runner, socket));
}

#[test]
fn the_node_never_waits_for_a_program() {
    let (folder, wire) = (Folder::new("socket-slow"), "cdr@inproc/socket-slow");
    let path = folder.file("plant.sock");
    let socket = Socket::open(path.as_ref()).expect("a socket");
    let mut agent = agent(wire, &socket);
    let mut now = Moment::default();
    let mut turn = |agent: &mut Agent, step: Duration| {
        now.steady += step;
        agent.turn(now);
    };
    let tick = Duration::from_millis(1);
    let mut program = Program::new(&path);
    program.write(&json!({ "probe": "tank", "pdl": TANK }));
    until("it is admitted", || {
        turn(&mut agent, tick);
        agent.description().commands.len() == 2
    });
    let commands = agent.description().commands;
    let short: Vec<(&str, &str)> = commands.iter().map(|c| (c.name.as_str(), c.summary.as_str())).collect();
    assert_eq!(short, [("tank.drain", "Drains. Returns what ran out"), ("tank.reset", "The operation reset")]);
    let taken = agent.add_command("tank.drain", "", |_: &Drain| Ok::<_, String>(Drained::default()));
    assert!(taken.is_err_and(|error| error.to_string() == "there is a command 'tank.drain' already"));
    assert_eq!(program.read()["type"], "plant::Tank");

    // It does not answer: calls beyond the limit fail at once, the others when their time is over.
    let client = drains(wire);
    client.wait_for_server(SOON).expect("it is served");
    let begin = |level| client.request(&drain(level), LONGEST_CALL * 4).expect("sent");
    let mut replies: Vec<Reply<Drained>> = (0..=MAX_CALLS).map(|_| begin(0.0)).collect();
    let refused = replies.pop().expect("the last one");
    let refused = std::thread::spawn(move || outcome(refused));
    until("it is refused", || {
        turn(&mut agent, tick);
        refused.is_finished()
    });
    let refused = refused.join().expect("no panic");
    assert_eq!(refused, Err("the program has 16 calls under way already".to_owned()));
    for number in 1..=MAX_CALLS {
        assert_eq!(program.read()["call"], number);
    }
    turn(&mut agent, LONGEST_CALL);
    for reply in replies {
        assert!(outcome(reply).is_err_and(|text| text.contains("has not replied within 60 s")));
    }
    program.write(&json!({ "reply": 1, "value": { "return_": 1.0 } }));
    assert_eq!(program.read()["error"], "reply", "it is too late");
    let reply = begin(7.0);
    let answered = std::thread::spawn(move || outcome(reply));
    let asked = std::thread::spawn(move || {
        assert_eq!(program.read()["call"], MAX_CALLS + 1);
        program.write(&json!({ "reply": MAX_CALLS + 1, "value": { "return_": 7.0 } }));
        program
    });
    until("it is answered", || {
        turn(&mut agent, tick);
        answered.is_finished()
    });
    assert_eq!(answered.join().expect("no panic"), Ok(7.0));
    let mut program = asked.join().expect("no panic");

    // Another type takes the place of the probe while a call is under way, and its commands go.
    let reply = begin(8.0);
    let failed = std::thread::spawn(move || outcome(reply));
    let declares = std::thread::spawn(move || {
        assert_eq!(program.read()["call"], MAX_CALLS + 2);
        program.write(&json!({ "probe": "tank", "example": { "level": 1.5 } }));
        assert_eq!(program.read()["type"], "probes::tank");
        program.write(&json!({ "reply": MAX_CALLS + 2, "value": {} }));
        assert_eq!(program.read()["error"], "reply");
    });
    until("it fails", || {
        turn(&mut agent, tick);
        failed.is_finished() && declares.is_finished()
    });
    declares.join().expect("no panic");
    assert_eq!(failed.join().expect("no panic"), Err("another probe has taken the place of 'tank'".to_owned()));
    assert_eq!(agent.description().commands, []);
    let mut program = Program::new(&path);
    until("nobody sends it any more", || {
        program.write(&json!({ "probe": "tank", "pdl": TANK.replace("void reset();", "void fill();") }));
        turn(&mut agent, tick);
        agent.description().commands.iter().any(|command| command.name == "tank.fill")
    });
    let names: Vec<String> = agent.description().commands.into_iter().map(|command| command.name).collect();
    assert_eq!(names, ["tank.drain", "tank.fill"]);
    agent.add_command("pump.go", "", |_: &Drain| Ok::<_, String>(Drained::default())).expect("declared");
    let mut refused = Program::new(&path);
    let long = "x".repeat(126);
    for probe in ["pump", &long] {
        refused.write(&json!({ "probe": probe, "pdl": "probe P { real64 x; void go(); };" }));
        let reader = std::thread::spawn(move || {
            let line = refused.read();
            (refused, line)
        });
        until("it is refused", || {
            turn(&mut agent, tick);
            reader.is_finished()
        });
        let (program, line) = reader.join().expect("no panic");
        assert_eq!(line["error"], "refused", "{line}");
        refused = program;
    }
    assert_eq!(agent.description().probes.len(), 2, "the clock and the tank");
}

#[test]
fn rules_of_access_name_the_commands_of_programs() {
    let folder = Folder::new("socket-access");
    let wire = |role: &str| format!("cdr@unix-{role}/{}", folder.file("a.sock"));
    let rules = "[[access.allow]]\nanyone = true\nrequest = ['telemetry/plant/command/tank.drain']\nserve = ['**']\n";
    let path = folder.file("plant.sock");
    let socket = Socket::open(path.as_ref()).expect("a socket");
    let node = Node::builder().config(Config::parse(rules).expect("rules")).build();
    let runner = Runner::start(agent_of(node, &wire("listen"), &socket)).expect("a thread");
    let mut program = Program::with_tank(&path);
    let client = drains(&wire("connect"));
    client.wait_for_server(SOON).expect("it is served");
    let reply = client.request(&drain(1.0), SOON).expect("sent");
    program.read();
    program.write(&json!({ "reply": 1, "value": { "return_": 10.0 } }));
    assert_eq!(outcome(reply), Ok(10.0));
    let reset: Client<Reset, ResetDone> = Node::new()
        .client("telemetry/plant/command/tank.reset", Some(&wire("connect")))
        .expect("a client")
        .open()
        .expect("opened");
    let denied = loop {
        match reset.call(&Reset {}, SOON) {
            Err(CallError::NoServer) => std::thread::yield_now(),
            other => break other,
        }
    };
    assert!(matches!(&denied, Err(CallError::Denied { reason }) if reason.contains("request")), "{denied:?}");
    // The program has not seen it.
    program.write(&json!({ "probe": "tank", "value": 7 }));
    assert_eq!(program.read()["error"], "value");
    drop((runner, socket));
}
