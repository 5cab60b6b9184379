//! Endpoints that are opened anew when the address of their host changes. Hosts are network
//! namespaces. Where those are not permitted, the tests report that and test nothing; with
//! `POLYWIRE_TEST_REQUIRE=all` in the environment they fail.
#![cfg(all(any(feature = "dds", feature = "zenoh"), target_os = "linux"))]

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use polywire::{Message, Node, Publisher, Subscriber};
use polywire_testing::{network::Network, waiting::Process};

/// Longer than anything takes on a slow machine that does other work, too. Zenoh and Cyclone DDS
/// give up a silent peer after 10 s.
const SOON: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, Default, PartialEq, Message)]
struct Reading {
    count: u64,
}

/// Not a test by itself: a node on a host. It publishes, and says what it hears and what happens.
#[test]
#[ignore = "run by other tests"]
fn member() {
    let variable = |name: &str| std::env::var(name).expect("it is set");
    let wire = format!("cdr@{}", variable("POLYWIRE_TEST_ENDPOINT"));
    let node = Node::new();
    let events = node.events();
    let readings: Subscriber<Reading> = node.subscriber_on(&variable("POLYWIRE_TEST_READ"), &wire).expect("it reads");
    let publisher: Publisher<Reading> =
        node.publisher_on(&variable("POLYWIRE_TEST_WRITE"), &wire).expect("it publishes");
    let (mut first, mut last, mut received) = (None, 0, 0);
    for count in 1.. {
        publisher.publish(&Reading { count }).expect("published");
        let next = Instant::now() + Duration::from_millis(20);
        while let Some(sample) = readings.recv_timeout(next.saturating_duration_since(Instant::now())) {
            let count = sample.value.count;
            assert!(first.is_none() || count > last, "{count} after {last}");
            first = first.or(Some(count));
            (last, received) = (count, received + 1);
        }
        while let Some(event) = events.try_recv() {
            println!("event {event}");
        }
        if count % 5 == 0 {
            println!("report {} {last} {received} {}", first.unwrap_or_default(), readings.lost());
        }
    }
}

/// What a node says of itself.
#[derive(Clone, Debug, Default)]
struct Report {
    /// The first and the last message, how many there were, and how many count as lost.
    first: u64,
    last: u64,
    received: u64,
    lost: u64,
    events: Vec<String>,
}

impl Report {
    fn take(&mut self, line: &str) {
        if let Some((_, event)) = line.split_once("event ") {
            self.events.push(event.into());
        } else if let Some((_, report)) = line.split_once("report ") {
            let numbers: Vec<u64> = report.split(' ').map(|number| number.parse().expect("a number")).collect();
            [self.first, self.last, self.received, self.lost] = numbers.try_into().expect("four numbers");
        }
    }

    fn with(&self, part: &str) -> usize {
        self.events.iter().filter(|event| event.contains(part)).count()
    }
}

struct Member {
    name: &'static str,
    report: Arc<Mutex<Report>>,
    _process: Process,
}

impl Member {
    /// Starts a node that reads what the other one publishes.
    fn start(network: &Network, host: usize, [name, other]: [&'static str; 2], endpoint: &str) -> Member {
        let mut command = network.command(host, std::env::current_exe().expect("this program"));
        command.args(["member", "--exact", "--ignored", "--nocapture"]);
        command.env("POLYWIRE_TEST_ENDPOINT", endpoint).env("POLYWIRE_JIT", "off");
        command.env("POLYWIRE_TEST_WRITE", name).env("POLYWIRE_TEST_READ", other);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("started");
        let (out, report) = (child.stdout.take().expect("piped"), Arc::<Mutex<Report>>::default());
        let told = report.clone();
        thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                told.lock().expect("no panic").take(&line);
            }
        });
        Member { name, report, _process: Process(child) }
    }

    fn report(&self) -> Report {
        self.report.lock().expect("no panic").clone()
    }

    /// Waits until it is so. Returns how long that has taken.
    fn until(&self, what: &str, is_so: impl Fn(&Report) -> bool) -> Duration {
        let began = Instant::now();
        while !is_so(&self.report()) {
            assert!(began.elapsed() < SOON, "{}: {what}: {:#?}", self.name, self.report());
            thread::sleep(Duration::from_millis(10));
        }
        began.elapsed()
    }

    /// Waits until it has received more.
    fn hears(&self) {
        let before = self.report().received;
        self.until("hears the other", |report| report.received > before);
    }

    /// Waits until each message from the first to the last was received once, or counts as lost.
    fn accounts_for_all(&self) {
        let is_all =
            |report: &Report| report.first > 0 && report.received + report.lost == report.last - report.first + 1;
        self.until("accounts for all messages", is_all);
    }
}

fn ip(commands: &str) {
    for command in commands.lines() {
        let ended = Command::new("ip").args(command.split_whitespace()).status().expect("it runs");
        assert!(ended.success(), "{command}");
    }
}

/// Two hosts exchange messages. One of them gets another address, and then another interface.
fn host_moves(test: &str, endpoint: &str) {
    let Some(network) = Network::of(test, 2) else { return };
    let (a, b) = (Member::start(&network, 1, ["a", "b"], endpoint), Member::start(&network, 2, ["b", "a"], endpoint));
    let meet = || {
        a.hears();
        b.hears();
    };
    meet();
    // An interface that neither node uses comes to stay.
    ip("-n h1 link add br9 type bridge\n-n h1 address add 10.77.0.1/16 dev br9\n-n h1 link set br9 up");
    let began = Instant::now();
    network.ip(2, "address del 10.9.0.2/24 dev eth0");
    network.ip(2, "address add 10.9.0.77/24 dev eth0");
    b.until("is told", |report| report.with("opened anew at 10.9.0.77:") == 1);
    meet();
    println!("{endpoint}: another address: {:.1} s", began.elapsed().as_secs_f64());
    let began = Instant::now();
    network.ip(2, "link delete eth0");
    ip("link add port9 type veth peer name eth1 netns h2
        link set port9 master bridge up
        -n h2 address add 10.9.0.78/24 dev eth1
        -n h2 link set eth1 up");
    b.until("is told", |report| report.with("opened anew at 10.9.0.78:") == 1);
    meet();
    println!("{endpoint}: another interface: {:.1} s", began.elapsed().as_secs_f64());
    for member in [&a, &b] {
        member.accounts_for_all();
        assert!(member.report().lost > 0, "{:#?}", member.report());
    }
    assert_eq!((a.report().with("opened anew"), b.report().with("opened anew")), (0, 2));
}

#[cfg(feature = "zenoh")]
#[test]
fn a_host_that_moves_is_met_again_by_scouting_over_zenoh() {
    host_moves("a_host_that_moves_is_met_again_by_scouting_over_zenoh", "zenoh/peer");
}

#[cfg(feature = "dds")]
#[test]
fn a_host_that_moves_is_met_again_over_dds() {
    host_moves("a_host_that_moves_is_met_again_over_dds", "dds/0");
}
