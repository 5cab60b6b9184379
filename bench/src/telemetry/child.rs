//! The processes at the other end: nodes and collectors. Each says a line when it is ready, and
//! ends when its standard input ends.

use std::{
    env, fs,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::TcpListener,
    process::{self, Command, Stdio},
    time::Duration,
};

use polywire::{Config, Node};
use polywire_collector::{Collector, CollectorConfig};
use polywire_telemetry::{
    Agent, Clocks, Identity, Moment, Plan, Runner, Uuid,
    system::{self, Host},
    uplink::{Carrier, Memory, Uplink, UplinkOptions},
};

use super::{peers, thesis};
use crate::process::cpu_time;

/// The first argument with which this program runs as another end.
pub(super) const WORD: &str = "child";

/// The variable with the configuration of another end's node.
const CONFIG: &str = "POLYWIRE_BENCH_CONFIG";

/// The probes of the system whose figures the other agents have, too.
const PROBES: [&str; 5] = ["processor", "memory", "disks", "network", "load"];

/// How long a process may take until it is ready.
const READY: Duration = Duration::from_secs(60);

/// Runs the other end that the words name.
pub(super) fn serve(words: &[String]) {
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["collector", config] => collector(config),
        ["system", wire, every] => system(wire, every, None),
        ["kept", wire, every, collector, batch] => system(wire, every, Some((collector, batch))),
        ["peers", seconds] => peers::alone(seconds.parse().expect("seconds")),
        ["codecs", wire, fields] => thesis::node(wire, fields),
        ref other => panic!("unknown arguments of the other end: {other:?}"),
    }
}

/// Says that this end is ready, and blocks until the parent closes standard input or ends.
pub(super) fn stay() {
    println!("ready");
    io::stdout().flush().expect("the parent reads standard output");
    let _ = io::stdin().lock().read_to_end(&mut Vec::new());
}

/// A collector with a configuration.
fn collector(config: &str) {
    let mut collector = Collector::new(Node::builder().config(node_config()).build());
    collector.reload(&CollectorConfig::parse(config).expect("a configuration")).expect("it opens");
    stay();
    let (is_stored, status) = collector.stop(Duration::from_secs(60));
    assert!(is_stored, "{status:?}");
    println!(
        "{}",
        serde_json::json!(status.iter().map(|one| (one.name.clone(), one.stored, one.dropped)).collect::<Vec<_>>())
    );
}

/// A node with probes of the system, as `polywire agent` runs them: for those who listen, or with
/// the wire of a collector and what it sends there together.
fn system(wire: &str, every: &str, kept: Option<(&str, &str)>) {
    let (node, mut agent) = agent(wire, "bench");
    let carrier = kept.map(|(collector, _)| {
        let (clocks, options) = (Clocks::new(), UplinkOptions::default());
        let uplink = Uplink::new(Uuid::random(), 1, Box::new(Memory::default()), options, clocks.now());
        Carrier::start(&node, collector, uplink.expect("an uplink"), clocks).expect("a carrier")
    });
    carrier.iter().for_each(|carrier| agent.send_to(carrier.handle()).expect("sent"));
    for name in PROBES {
        let mut plan = Plan::of(system::find(name).expect("a probe"));
        plan.set("every", every).expect("a time");
        kept.iter().for_each(|(_, batch)| plan.set("batch", batch).expect("a batch"));
        agent.add(plan).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let _runner = Runner::start(agent).expect("a thread");
    stay();
}

/// A node without probes, and what it publishes by.
pub(super) fn agent(wire: &str, name: &str) -> (Node, Agent) {
    let identity = Identity::new(name).expect("a name");
    let node = Node::builder().config(node_config()).id(identity.uuid.into()).name(name).build();
    let agent = Agent::new(node.clone(), identity, Host::this(), wire, Moment::default()).expect("an agent");
    (node, agent)
}

/// The configuration that [`Process::start`] gave.
fn node_config() -> Config {
    let text = env::var(CONFIG).unwrap_or_default();
    Config::parse(&text).expect("a configuration")
}

/// A running process. Dropping it ends the process.
pub(super) struct Process {
    child: process::Child,
}

impl Process {
    /// Starts this program as another end, whose node has a configuration, and waits until it is
    /// ready.
    pub fn start(words: &[&str], config: &str) -> Process {
        let mut command = Command::new(env::current_exe().expect("the path of this program"));
        command.arg(WORD).args(words).env(CONFIG, config).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let out = child.stdout.as_mut().expect("a pipe");
        let mut line = String::new();
        BufReader::with_capacity(1, out).read_line(&mut line).expect("it says that it is ready");
        assert_eq!(line, "ready\n");
        Process { child }
    }

    /// Starts another program, and waits until something listens at a port of this machine.
    pub fn other(program: &str, arguments: &[&str], port: Option<u16>) -> Option<Process> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().ok()?;
        let until = std::time::Instant::now() + READY;
        while port.is_some_and(|port| std::net::TcpStream::connect(("127.0.0.1", port)).is_err()) {
            assert!(std::time::Instant::now() < until, "{program} does not listen");
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(Process { child })
    }

    pub fn cpu(&self) -> Duration {
        cpu_time(self.child.id())
    }

    /// The most memory that it has used, in bytes.
    pub fn peak(&self) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
        line.split_whitespace().next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) << 10
    }

    /// Ends one of the other ends in good order, and returns its last line.
    pub fn end(mut self) -> String {
        drop(self.child.stdin.take());
        let mut text = String::new();
        self.child.stdout.take().expect("a pipe").read_to_string(&mut text).expect("text");
        assert!(self.child.wait().expect("it ends").success(), "it failed: {text}");
        text.lines().last().unwrap_or_default().to_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that nobody uses now.
pub(super) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}
