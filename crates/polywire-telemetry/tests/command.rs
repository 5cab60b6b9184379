//! Commands to nodes: what they change, what they refuse, what they leave on record, and what
//! outlives a restart.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use polywire::{
    Config, Message, Node, Overflow, Subscriber,
    service::{CallError, Client},
};
use polywire_telemetry::{
    Agent, Clocks, Counter, Identity, Moment, Plan, Probe, Runner, Setting, Uuid,
    command::{
        AUDIT, Action, AuditFile, AuditRecord, Command, CommandReply, MAX_SETTINGS, Reason, audit_qos, service_of,
    },
    system::{self, Host},
    uplink::{Carrier, Memory, Uplink, UplinkOptions},
};
use polywire_testing::{Folder, waiting::SOON};

/// Counts its samples.
#[derive(Default, Probe)]
#[probe(name = "plant::Ticks", uuid = "7a0d3f6e-40f1-4a4c-8a51-1d9a3c0c7b11", version = "1.0", every = 0.001)]
struct Ticks {
    ticks: Counter,
}

fn setting(name: &str, value: &str) -> Setting {
    Setting { name: name.to_owned(), value: value.to_owned() }
}

fn agent(node: Node, wire: &str) -> Agent {
    let identity = Identity::new("house").expect("a name");
    let mut agent = Agent::new(node, identity, Host::this(), wire, Moment::default()).expect("an agent");
    agent.add(Plan::of(system::find("clock").expect("a probe"))).expect("added");
    agent
}

/// The command to change the clock.
fn set(agent: &Agent, settings: &[(&str, &str)]) -> Command {
    let settings = settings.iter().map(|(name, value)| setting(name, value)).collect();
    let uuid = agent.description().uuid;
    Command { action: Action::Set, instance: "clock".to_owned(), settings, ..Command::to(&uuid) }
}

#[test]
fn everything_that_is_wrong_is_told_and_nothing_changes() {
    let mut agent = agent(Node::new(), "cdr@inproc/command-refused");
    let before = agent.description();
    let reasons = |reply: &CommandReply| -> Vec<(String, Reason)> {
        reply.refused.iter().map(|refusal| (refusal.setting.clone(), refusal.reason)).collect()
    };
    let several = set(&agent, &[("every", "never"), ("enabled", "false"), ("evry", "1"), ("thin", "x")]);
    let reply = agent.handle(&several);
    let expected = [("every", Reason::BadValue), ("evry", Reason::UnknownSetting), ("thin", Reason::BadValue)];
    assert_eq!(reasons(&reply), expected.map(|(name, reason)| (name.to_owned(), reason)));
    assert!(reply.problem().contains("unknown setting 'evry', did you mean 'every'?"), "{}", reply.problem());
    let elsewhere = set(&agent, &[("wire", "json@tcp-connect/192.0.2.1:7")]);
    let whole = |reason| [(String::new(), reason)];
    assert_eq!(reasons(&agent.handle(&elsewhere)), [("wire".to_owned(), Reason::Impossible)]);
    let other = Command { node: Uuid::random().to_string(), ..several.clone() };
    assert_eq!(reasons(&agent.handle(&other)), whole(Reason::WrongNode));
    let missing = Command { instance: "clok".to_owned(), ..several.clone() };
    assert_eq!(reasons(&agent.handle(&missing)), whole(Reason::UnknownProbe));
    let kept = Command { keep: true, ..set(&agent, &[("every", "1")]) };
    assert_eq!(reasons(&agent.handle(&kept)), whole(Reason::Impossible));
    let many = Command { settings: vec![setting("every", "1"); MAX_SETTINGS + 1], ..several.clone() };
    assert_eq!(reasons(&agent.handle(&many)), whole(Reason::Impossible));
    let budget = Command { instance: String::new(), settings: vec![setting("budget", "1")], ..several };
    assert_eq!(reasons(&agent.handle(&budget)), [("budget".to_owned(), Reason::UnknownSetting)]);
    assert_eq!(agent.description(), before);
}

#[test]
fn nobody_makes_a_node_run_another_program() {
    let mut agent = agent(Node::new(), "cdr@inproc/command-input");
    let mut plan = Plan { instance: "tank".to_owned(), ..Plan::of(system::find("command").expect("an input")) };
    plan.set("command", "echo level=1").expect("a parameter");
    agent.add(plan).expect("added");
    let tank = |settings: &[(&str, &str)]| Command { instance: "tank".to_owned(), ..set(&agent, settings) };
    let (command, every) = (tank(&[("command", "echo level=2"), ("timeout", "9")]), tank(&[("every", "2")]));
    let refused = agent.handle(&command);
    let reasons: Vec<(&str, Reason)> =
        refused.refused.iter().map(|refusal| (refusal.setting.as_str(), refusal.reason)).collect();
    assert_eq!(reasons, [("command", Reason::Impossible), ("timeout", Reason::Impossible)]);
    assert!(agent.handle(&every).is_done());
}

#[test]
fn probes_stop_and_start() {
    let mut agent = agent(Node::new(), "cdr@inproc/command-stop");
    let command = |agent: &Agent, action| Command { action, ..set(agent, &[]) };
    assert!(agent.handle(&command(&agent, Action::Stop)).is_done());
    assert!(!agent.description().probes[0].enabled);
    assert_eq!(agent.wait(Moment::default()), Duration::MAX, "nothing is due");
    let reply = agent.handle(&command(&agent, Action::Start));
    assert!(reply.is_done() && reply.description.is_none() && agent.description().probes[0].enabled);
    let described = agent.handle(&command(&agent, Action::Describe)).description.expect("asked for");
    assert_eq!(described, agent.description());
}

#[test]
fn the_wire_changes_and_no_sample_is_lost() {
    let wire = "cdr@inproc/command-wire";
    let identity = Identity::new("plant").expect("a name");
    let uuid = identity.uuid.to_string();
    let mut agent = Agent::new(Node::new(), identity, Host::this(), wire, Moment::default()).expect("an agent");
    let ticks = Arc::new(Ticks::default());
    agent.add_application("ticks", &ticks).expect("added");
    let node = Node::new();
    let samples = node.subscribe::<TicksSample>("probes/plant/ticks", Some(wire)).expect("a topic");
    let samples = samples.queue(100_000).overflow(Overflow::DropNewest).open();
    let client: Client<Command, CommandReply> =
        node.client(&service_of("plant"), Some(wire)).expect("a client").open().expect("opened");
    let runner = Runner::start(agent).expect("a thread");
    let (mut next, mut formats) = (None, Vec::new());
    let mut check = |at_least: usize| {
        for _ in 0..at_least {
            let sample = samples.recv_timeout(SOON).expect("a sample");
            assert_eq!(sample.info.sequence, next.unwrap_or(sample.info.sequence), "a sample is missing");
            next = Some(sample.info.sequence + 1);
            let codec = sample.info.source.announcement.codec.clone();
            if formats.last() != Some(&codec) {
                formats.push(codec);
            }
        }
        formats.last().cloned().expect("a sample")
    };
    check(5);
    for wire in ["fast", "json", "cdr", "msgpack", "fast+lz4", "protobuf", "xml", "cdr"] {
        let settings = vec![setting("wire", wire)];
        let command = Command { action: Action::Set, instance: "ticks".to_owned(), settings, ..Command::to(&uuid) };
        assert!(client.call(&command, SOON).expect("a reply").is_done());
        let codec = wire.split('+').next().expect("a word");
        while check(1) != codec {}
        check(20);
    }
    assert_eq!(samples.lost(), 0);
    drop(runner);
}

#[test]
fn settings_are_kept_over_a_restart_if_that_is_asked_for() {
    let folder = Folder::new("command-kept");
    let path = folder.path().join("a.kept");
    let start = || {
        let identity = Identity::new("house").expect("a name");
        let wire = "cdr@inproc/command-kept";
        let clocks = Clocks::new();
        let options = UplinkOptions::default();
        let uplink = Uplink::new(identity.uuid, 7, Box::new(Memory::default()), options, clocks.now());
        let carrier = Carrier::start(&Node::new(), wire, uplink.expect("an uplink"), clocks).expect("a carrier");
        let mut agent = Agent::new(Node::new(), identity, Host::this(), wire, Moment::default()).expect("an agent");
        agent.keep_settings(&path).expect("a file");
        agent.send_to(carrier.handle()).expect("a collector");
        agent.add(Plan::of(system::find("clock").expect("a probe"))).expect("added");
        (agent, carrier)
    };
    let (mut first, _carrier) = start();
    let keep = |command: Command| Command { keep: true, ..command };
    assert!(first.handle(&keep(set(&first, &[("every", "0.25"), ("wire", "fast")]))).is_done());
    assert!(first.handle(&set(&first, &[("thin", "change")])).is_done());
    let budget =
        Command { instance: String::new(), settings: vec![setting("budget", "5000")], ..keep(set(&first, &[])) };
    assert!(first.handle(&budget).is_done());
    let wrong = Command { settings: vec![setting("budget", "0")], ..budget };
    assert_eq!(first.handle(&wrong).refused[0].reason, Reason::BadValue);
    drop(first);
    let (second, _carrier) = start();
    let described = second.description();
    assert_eq!(described.settings, [setting("budget", "5000")]);
    let clock = described.probes.iter().find(|probe| probe.instance == "clock").expect("there");
    assert_eq!((clock.every_s, clock.wire.as_str(), clock.thin.as_str()), (0.25, "fast", "off"));
    // The disk fails: it is done, and the reply says that it is not kept.
    let (mut third, _carrier) = start();
    fs::remove_file(&path).and_then(|()| fs::create_dir_all(path.join("in the way"))).expect("in the way");
    let reply = third.handle(&keep(set(&third, &[("every", "9")])));
    assert_eq!(reply.refused[0].reason, Reason::NotKept);
    let every = |agent: &Agent| agent.description().probes.iter().find(|p| p.instance == "clock").map(|p| p.every_s);
    assert_eq!(every(&third), Some(9.0));
}

/// A request and a reply.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "plant::Number")]
struct Number {
    value: i64,
}

#[test]
fn commands_of_an_application_answer_fail_and_panic() {
    let wire = "cdr@inproc/command-declared";
    let mut agent = agent(Node::new(), wire);
    let mut total = 0;
    agent
        .add_command("add", "Adds", move |number: &Number| match number.value {
            13 => panic!("unlucky"),
            value if value < 0 => Err(format!("{value} is less than nothing")),
            value => {
                total += value;
                Ok(Number { value: total })
            }
        })
        .expect("declared");
    let again = agent.add_command("add", "Adds", |number: &Number| Ok::<_, String>(number.clone()));
    assert!(again.is_err_and(|error| error.to_string() == "there is a command 'add' already"));
    let wrong = agent.add_command("a/b", "", |number: &Number| Ok::<_, String>(number.clone()));
    assert!(wrong.is_err());
    let folder = Folder::new("command-audit");
    let path = folder.path().join("a.audit");
    agent.audit_to(AuditFile::open(&path).expect("a file"));
    let node = Node::new();
    let client: Client<Number, Number> =
        node.client("telemetry/house/command/add", Some(wire)).expect("a client").open().expect("opened");
    let audit: Subscriber<AuditRecord> =
        node.subscribe(AUDIT, Some(wire)).expect("a topic").qos(audit_qos()).expect("policies").open();
    let runner = Runner::start(agent).expect("a thread");
    let call = |value| client.call(&Number { value }, SOON).map_err(|error| error.to_string());
    assert_eq!(call(2), Ok(Number { value: 2 }));
    assert_eq!(call(3), Ok(Number { value: 5 }));
    assert_eq!(call(-1), Err("-1 is less than nothing".to_owned()));
    assert_eq!(call(13), Err("the command panicked".to_owned()));
    assert_eq!(call(1), Ok(Number { value: 6 }));
    let records: Vec<AuditRecord> = (0..5).map(|_| audit.recv_timeout(SOON).expect("a record").value).collect();
    let problems: Vec<&str> = records.iter().map(|record| record.problem.as_str()).collect();
    assert_eq!(problems, ["", "", "-1 is less than nothing", "the command panicked", ""]);
    assert!(records.iter().map(|record| record.number).eq(1..=5));
    assert_eq!((records[0].request.as_str(), records[0].who.as_str()), ("{\"value\":2}", "this process"));
    // Somebody who comes late sees the same.
    let late: Subscriber<AuditRecord> =
        Node::new().subscribe(AUDIT, Some(wire)).expect("a topic").qos(audit_qos()).expect("policies").open();
    let again: Vec<AuditRecord> = (0..5).map(|_| late.recv_timeout(SOON).expect("a record").value).collect();
    assert_eq!(again, records);
    drop(runner);
    let text = fs::read_to_string(&path).expect("a file");
    assert_eq!(text.lines().count(), 5);
    assert!(text.lines().nth(2).is_some_and(|line| line.contains("-1 is less than nothing")), "{text}");
}

#[test]
fn who_has_no_right_changes_nothing() {
    let folder = Folder::new("command-access");
    let wire = |role: &str| format!("cdr@unix-{role}/{}", folder.file("a.sock"));
    let rules = "[[access.allow]]\nanyone = true\nrequest = ['telemetry/house/command/add']\nserve = ['**']\n";
    let node = Node::builder().config(Config::parse(rules).expect("rules")).build();
    let mut agent = agent(node, &wire("listen"));
    let called = Arc::new(AtomicBool::new(false));
    let noted = called.clone();
    agent
        .add_command("add", "Adds", move |number: &Number| {
            noted.store(true, Ordering::Release);
            Ok::<_, String>(number.clone())
        })
        .expect("declared");
    let command = set(&agent, &[("every", "1")]);
    let runner = Runner::start(agent).expect("a thread");
    let node = Node::new();
    let client: Client<Command, CommandReply> =
        node.client(&service_of("house"), Some(&wire("connect"))).expect("a client").open().expect("opened");
    let denied = loop {
        match client.call(&command, SOON) {
            Err(CallError::NoServer) => thread::yield_now(),
            other => break other,
        }
    };
    assert!(matches!(&denied, Err(CallError::Denied { reason }) if reason.contains("request")), "{denied:?}");
    let add: Client<Number, Number> =
        node.client("telemetry/house/command/add", Some(&wire("connect"))).expect("a client").open().expect("opened");
    assert_eq!(add.call(&Number { value: 7 }, SOON).expect("allowed"), Number { value: 7 });
    assert!(called.load(Ordering::Acquire));
    drop(runner);
}
