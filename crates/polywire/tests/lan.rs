//! The engine `lan` between processes on several hosts, which are network namespaces. Where those
//! are not permitted, the tests report that and test nothing; with `POLYWIRE_TEST_REQUIRE=all` in
//! the environment they fail.
#![cfg(all(feature = "lan", target_os = "linux"))]

#[path = "common/fleet.rs"]
mod fleet;

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, UdpSocket},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use fleet::Fleet;
use polywire::{Config, Message, Node, PublishError, Publisher, Subscriber, engine::EngineError};
use polywire_testing::{network::Network, tools, waiting::Process};

/// Longer than anything takes on a slow machine that does other work, too.
const SOON: Duration = Duration::from_secs(90);

#[derive(Clone, Debug, Default, PartialEq, Message)]
struct Reading {
    from: String,
    count: u64,
}

/// Not a test by itself: a node on a host. It publishes, says whom it hears and what happens, and
/// leaves when its standard input ends.
#[test]
#[ignore = "run by other tests"]
fn member() {
    let variable = |name: &str| std::env::var(name).expect("it is set");
    let (wire, from) = (format!("cdr@{}", variable("POLYWIRE_TEST_ENDPOINT")), variable("POLYWIRE_TEST_NAME"));
    let node = Node::builder().config(Config::parse(&variable("POLYWIRE_TEST_CONFIG")).expect("valid")).build();
    let leaving = node.clone();
    thread::spawn(move || {
        let _ = std::io::stdin().read(&mut [0]);
        leaving.close();
        std::process::exit(0);
    });
    let events = node.events();
    let readings: Subscriber<Reading> = node.subscriber_on("readings", &wire).expect("a subscriber");
    let publisher: Publisher<Reading> = node.publisher_on("readings", &wire).expect("a publisher");
    let (mut counts, mut told) = (BTreeMap::new(), Instant::now());
    for count in 1.. {
        match publisher.publish(&Reading { from: from.clone(), count }) {
            // The thread above has closed the node, and ends the process next.
            Err(PublishError::Engine(EngineError::Closed)) => return thread::park(),
            published => drop(published.expect("published")),
        }
        while let Some(sample) = readings.recv_timeout(Duration::from_millis(20)) {
            counts.insert(sample.value.from.clone(), sample.value.count);
        }
        while let Some(event) = events.try_recv() {
            println!("event {event}");
        }
        if told.elapsed() > Duration::from_millis(100) {
            told = Instant::now();
            let counts: Vec<String> = counts.iter().map(|(from, count)| format!("{from}:{count}")).collect();
            println!("report {} {}", node.links(), counts.join(" "));
        }
    }
}

/// What a node says of itself.
#[derive(Clone, Debug, Default)]
struct Report {
    links: usize,
    /// The last count of each node that it has heard.
    counts: BTreeMap<String, u64>,
    events: Vec<String>,
}

impl Report {
    fn take(&mut self, line: &str) {
        if let Some((_, event)) = line.split_once("event ") {
            self.events.push(event.into());
        } else if let Some((_, report)) = line.split_once("report ") {
            let mut words = report.split(' ');
            self.links = words.next().and_then(|links| links.parse().ok()).unwrap_or_default();
            let counts = words.filter_map(|word| word.split_once(':'));
            self.counts = counts.map(|(from, count)| (from.into(), count.parse().expect("a count"))).collect();
        }
    }

    fn has(&self, part: &str) -> bool {
        self.events.iter().any(|event| event.contains(part))
    }
}

struct Member {
    name: &'static str,
    child: Child,
    report: Arc<Mutex<Report>>,
}

impl Member {
    fn start(network: &Network, host: usize, name: &'static str, endpoint: &str) -> Member {
        Member::with(network, host, name, endpoint, "")
    }

    fn with(network: &Network, host: usize, name: &'static str, endpoint: &str, config: &str) -> Member {
        let mut command = network.command(host, std::env::current_exe().expect("this program"));
        command.args(["member", "--exact", "--ignored", "--nocapture"]);
        command.env("POLYWIRE_TEST_ENDPOINT", endpoint).env("POLYWIRE_TEST_NAME", name);
        command.env("POLYWIRE_TEST_CONFIG", config).env("POLYWIRE_JIT", "off");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("started");
        let (out, report) = (child.stdout.take().expect("piped"), Arc::<Mutex<Report>>::default());
        let told = report.clone();
        thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                told.lock().expect("no panic").take(&line);
            }
        });
        Member { name, child, report }
    }

    fn report(&self) -> Report {
        self.report.lock().expect("no panic").clone()
    }

    /// Waits until it is so.
    fn until(&self, what: &str, is_so: impl Fn(&Report) -> bool) {
        let until = Instant::now() + SOON;
        while !is_so(&self.report()) {
            assert!(Instant::now() < until, "{}: {what}: {:#?}", self.name, self.report());
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until it hears news of exactly these nodes, and has links to as many.
    fn hears(&self, others: &[&Member]) {
        let before = self.report().counts;
        self.until(&format!("links to {}", others.len()), |report| report.links == others.len());
        for other in others {
            self.until(&format!("hears {}", other.name), |report| {
                report.counts.get(other.name) > before.get(other.name)
            });
        }
    }

    fn leave(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().expect("ended").success());
    }

    fn kill(mut self) {
        self.child.kill().expect("it is there");
        self.child.wait().expect("ended");
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test by itself: a host that says when a node withdraws its record, as with a goodbye.
#[test]
#[ignore = "run by another test"]
fn listener() {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 5353)).expect("a port");
    let own = std::env::var("POLYWIRE_TEST_ADDRESS").expect("it is set").parse().expect("an address");
    socket.join_multicast_v4(&Ipv4Addr::new(224, 0, 0, 251), &own).expect("joined");
    println!("listens");
    let mut packet = [0; 9000];
    loop {
        let length = socket.recv(&mut packet).expect("a packet");
        // PTR, of the class IN, with a time to live of 0.
        let is_withdrawn = |window: &[u8]| window == [0, 12, 0, 1, 0, 0, 0, 0];
        let packet = &packet[..length];
        if packet.windows(9).any(|window| window == b"_polywire") && packet.windows(8).any(is_withdrawn) {
            println!("withdrawn");
        }
    }
}

#[test]
fn a_node_that_leaves_withdraws_its_record() {
    let Some(network) = Network::of("a_node_that_leaves_withdraws_its_record", 3) else { return };
    let mut command = network.command(3, std::env::current_exe().expect("this program"));
    command.args(["listener", "--exact", "--ignored", "--nocapture"]).stdout(Stdio::piped());
    let mut listener = command.env("POLYWIRE_TEST_ADDRESS", network.address(3)).spawn().expect("started");
    let mut lines = BufReader::new(listener.stdout.take().expect("piped")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("listens")));
    let (a, b) = (Member::start(&network, 1, "a", "lan"), Member::start(&network, 2, "b", "lan"));
    a.hears(&[&b]);
    b.leave();
    // Blocks for as long as nothing comes; the runner of tests ends that.
    assert!(lines.any(|line| line.contains("withdrawn")));
    listener.kill().expect("it is there");
    listener.wait().expect("ended");
}

/// Avahi on a host, with a bus of its own.
struct Avahi {
    network: Network,
    host: usize,
    _daemons: [Process; 2],
}

impl Avahi {
    /// Where the files of the bus are: the network has a `/run` of its own.
    const BUS: &str = "unix:path=/run/test-bus";

    fn start(network: Network, host: usize) -> Avahi {
        let policy = "<allow user='*'/><allow own='*'/><allow send_destination='*'/><allow receive_sender='*'/>";
        let bus = format!("<listen>{}</listen><policy context='default'>{policy}</policy>", Avahi::BUS);
        fs::write("/run/bus.conf", format!("<busconfig><type>system</type>{bus}</busconfig>")).expect("written");
        fs::write("/run/avahi.conf", "[server]\nhost-name=browser\nuse-ipv6=no\n").expect("written");
        fs::create_dir("/run/avahi-daemon").expect("a folder for its process number");
        let mut command = network.command(host, "dbus-daemon");
        command.args(["--nofork", "--config-file=/run/bus.conf", "--print-address"]).stdout(Stdio::piped());
        let mut bus = Process(command.spawn().expect("started"));
        let mut address = String::new();
        BufReader::new(bus.0.stdout.take().expect("piped")).read_line(&mut address).expect("an address");
        assert!(address.starts_with(Avahi::BUS), "{address}");
        let mut command = network.command(host, "avahi-daemon");
        command.args(["--no-drop-root", "--no-chroot", "--no-rlimits", "-f", "/run/avahi.conf"]);
        let daemon = Process(command.env("DBUS_SYSTEM_BUS_ADDRESS", Avahi::BUS).spawn().expect("started"));
        Avahi { network, host, _daemons: [bus, daemon] }
    }

    /// The nodes that it shows: the address, the port and the TXT pairs of each.
    fn nodes(&self) -> BTreeMap<String, (String, String, BTreeMap<String, String>)> {
        let mut command = self.network.command(self.host, "avahi-browse");
        command.args(["-rpt", "_polywire._tcp"]).env("DBUS_SYSTEM_BUS_ADDRESS", Avahi::BUS);
        let shown = String::from_utf8(command.output().expect("it runs").stdout).expect("text");
        let of = |line: &str| {
            let Ok([_, _, _, label, _, _, _, address, port, txt]) =
                <[&str; 10]>::try_from(Vec::from_iter(line.split(';')))
            else {
                panic!("{line}");
            };
            let pairs = txt.trim_matches('"').split("\" \"").filter_map(|pair| pair.split_once('='));
            let pairs = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
            (label.to_owned(), (address.to_owned(), port.to_owned(), pairs))
        };
        shown.lines().filter(|line| line.starts_with("=;eth0;IPv4;")).map(of).collect()
    }

    /// What it shows as soon as that is so many nodes.
    fn until(&self, count: usize) -> BTreeMap<String, (String, String, BTreeMap<String, String>)> {
        let until = Instant::now() + SOON;
        loop {
            let nodes = self.nodes();
            if nodes.len() == count {
                return nodes;
            }
            assert!(Instant::now() < until, "{count} expected: {nodes:#?}");
        }
    }
}

#[test]
fn avahi_shows_nodes_until_they_leave() {
    if !["avahi-daemon", "avahi-browse", "dbus-daemon"].iter().all(|name| tools::has_program(name, "--version")) {
        return;
    }
    let Some(network) = Network::of("avahi_shows_nodes_until_they_leave", 2) else { return };
    // One beside the daemon, which has the port of mDNS as well, and one on another host.
    let near = Member::start(&network, 1, "near", "lan/7?port=7461");
    let far = Member::start(&network, 2, "far", "lan/8?port=7462");
    let addresses = [1, 2].map(|host| network.address(host));
    let avahi = Avahi::start(network, 1);
    let shown = avahi.until(2);
    for (address, port, domain) in [(&addresses[0], "7461", "7"), (&addresses[1], "7462", "8")] {
        let of_port = shown.iter().find(|(_, (_, its, _))| its == port);
        let (label, (at, _, pairs)) = of_port.unwrap_or_else(|| panic!("{port}: {shown:#?}"));
        assert_eq!(at, address);
        // Avahi escapes the colon and the space.
        let node = label.split_once(&format!("\\058{port}\\032")).expect("MACHINE:PORT NODE").1;
        assert!(node.len() == 32 && u128::from_str_radix(node, 16).is_ok(), "{label}");
        let fixed = [("txtvers", "1"), ("frames", "1"), ("node", node), ("domain", domain), ("tls", "0")];
        for (key, value) in fixed.into_iter().chain([("ver", env!("CARGO_PKG_VERSION"))]) {
            assert_eq!(pairs.get(key).map(String::as_str), Some(value), "{key}: {pairs:?}");
        }
        assert!(u64::from_str_radix(&pairs["inc"], 16).is_ok_and(|incarnation| incarnation > 0), "{pairs:?}");
        assert_eq!(pairs.len(), 7, "{pairs:?}");
    }
    far.leave();
    assert!(avahi.until(1).values().all(|(_, port, _)| port == "7461"));
    near.leave();
    avahi.until(0);
}

#[test]
fn nodes_on_three_hosts_find_each_other_and_notice_who_leaves() {
    let Some(network) = Network::of("nodes_on_three_hosts_find_each_other_and_notice_who_leaves", 3) else { return };
    let start = |host, name, endpoint| Member::start(&network, host, name, endpoint);
    let (a, b, c) = (start(1, "a", "lan"), start(1, "b", "lan/0"), start(2, "c", "lan"));
    let (d, elsewhere) = (start(3, "d", "lan"), start(2, "elsewhere", "lan/5"));
    a.hears(&[&b, &c, &d]);
    b.hears(&[&a, &c, &d]);
    c.hears(&[&a, &b, &d]);
    d.hears(&[&a, &b, &c]);
    // Who listens on this machine alone is found by those of this machine alone.
    let inside = start(3, "inside", "lan/0?interface=lo");
    inside.hears(&[&d]);
    d.hears(&[&a, &b, &c, &inside]);
    assert!(!inside.report().has("IS OPEN TO OTHER MACHINES") && a.report().has("IS OPEN TO OTHER MACHINES"));
    inside.leave();
    b.leave();
    a.until("told of a goodbye", |report| report.has("closed by the peer"));
    c.hears(&[&a, &d]);
    d.kill();
    c.hears(&[&a]);
    // A node that was killed is called in vain, and comes back as another.
    let d = start(3, "d2", "lan");
    a.hears(&[&c, &d]);
    d.hears(&[&a, &c]);
    assert_eq!((elsewhere.report().links, a.report().counts.contains_key("elsewhere")), (0, false));
    assert!(!a.report().has("ignored"), "{:#?}", a.report());
}

#[test]
fn nodes_of_a_host_without_a_network_find_each_other() {
    let Some(network) = Network::of("nodes_of_a_host_without_a_network_find_each_other", 1) else { return };
    network.ip(1, "link delete eth0");
    let (a, b) = (Member::start(&network, 1, "a", "lan"), Member::start(&network, 1, "b", "lan"));
    a.hears(&[&b]);
    b.hears(&[&a]);
}

#[test]
fn nodes_find_each_other_over_ipv6_alone() {
    let Some(network) = Network::of("nodes_find_each_other_over_ipv6_alone", 3) else { return };
    for host in 1..=3 {
        network.ip(host, &format!("address del 10.9.0.{host}/24 dev eth0"));
    }
    // Some addresses are unique beyond the link, others are those of the link alone.
    network.ip(1, "address add fd09::1/64 dev eth0 nodad");
    network.ip(2, "address add fd09::2/64 dev eth0 nodad");
    let start = |host, name| Member::start(&network, host, name, "lan");
    let (a, b, c) = (start(1, "a"), start(2, "b"), start(3, "c"));
    a.hears(&[&b, &c]);
    b.hears(&[&a, &c]);
    c.hears(&[&a, &b]);
    // Without multicast.
    let d = Member::start(&network, 1, "d", "lan/4?multicast=off");
    let e = Member::start(&network, 2, "e", "lan/4?multicast=off,peer=[fd09::1]:7465");
    d.hears(&[&e]);
    e.hears(&[&d]);
}

#[test]
fn a_link_outlives_an_interface_that_goes_down_and_comes_back() {
    let Some(network) = Network::of("a_link_outlives_an_interface_that_goes_down_and_comes_back", 2) else { return };
    let lease = "[engine]\nlease_ms = 1000";
    let start = |host, name| Member::with(&network, host, name, "lan/0?interface=eth0", lease);
    let (a, b) = (start(1, "a"), start(2, "b"));
    a.hears(&[&b]);
    b.hears(&[&a]);
    network.ip(2, "link set eth0 down");
    a.until("misses the other", |report| report.has("nothing was heard of the peer"));
    network.ip(2, "link set eth0 up");
    a.hears(&[&b]);
    b.hears(&[&a]);
    // A node that comes afterwards is found, too, so the group was joined again.
    let c = start(1, "c");
    b.hears(&[&a, &c]);
    c.hears(&[&a, &b]);
}

#[test]
fn a_host_whose_address_changes_is_linked_again() {
    let Some(network) = Network::of("a_host_whose_address_changes_is_linked_again", 2) else { return };
    let lease = "[engine]\nlease_ms = 1000";
    let start = |host, name, endpoint: &str| Member::with(&network, host, name, endpoint, lease);
    let (a, b) = (start(1, "a", "lan"), start(2, "b", "lan"));
    let base = start(1, "base", "tcp-listen/0.0.0.0:7480");
    let robot = start(2, "robot", &format!("tcp-connect/{}:7480", network.address(1)));
    let (host, caller) = (start(1, "host", "udp/0.0.0.0:7481"), start(2, "caller", "udp/10.9.0.1:7481"));
    let meet = || {
        for (one, other) in [(&a, &b), (&base, &robot), (&host, &caller)] {
            one.hears(&[other]);
            other.hears(&[one]);
        }
    };
    meet();
    network.ip(2, "address del 10.9.0.2/24 dev eth0");
    network.ip(2, "address add 10.9.0.77/24 dev eth0");
    for moved in [&b, &robot] {
        moved.until("told why its link ended", |report| report.has("does not have the link's address any more"));
    }
    meet();
    base.until("told why its link ended", |report| report.has("replaced by another connection"));
    // A link whose address is only away for a while goes on.
    let silences =
        |member: &Member| member.report().events.iter().filter(|event| event.contains("nothing was heard")).count();
    let before = [&a, &base].map(silences);
    network.ip(1, "address del 10.9.0.1/24 dev eth0");
    for (away, before) in [&a, &base].into_iter().zip(before) {
        away.until("misses the other", |_| silences(away) > before);
    }
    thread::sleep(Duration::from_secs(3));
    network.ip(1, "address add 10.9.0.1/24 dev eth0");
    meet();
    assert!(!a.report().has("the link's address") && !base.report().has("the link's address"));
}

#[test]
fn a_name_is_resolved_at_each_attempt_to_connect() {
    let Some(network) = Network::of("a_name_is_resolved_at_each_attempt_to_connect", 3) else { return };
    // The test has mounts of its own.
    let names = |base: &str| fs::write("/run/hosts", base).expect("written");
    names("");
    let mounted = Command::new("mount").args(["--bind", "/run/hosts", "/etc/hosts"]).status().expect("it runs");
    assert!(mounted.success());
    let robot = Member::start(&network, 1, "robot", "tcp-connect/base:7480");
    robot.until("told that there is no such name", |report| report.has("'base' cannot be resolved"));
    let base = Member::start(&network, 2, "base", "tcp-listen/0.0.0.0:7480");
    names(&format!("{} base", network.address(2)));
    robot.hears(&[&base]);
    base.leave();
    let other = Member::start(&network, 3, "other", "tcp-listen/0.0.0.0:7480");
    names(&format!("{} base", network.address(3)));
    robot.hears(&[&other]);
}

#[test]
fn where_no_multicast_passes_nodes_are_named() {
    let Some(network) = Network::of("where_no_multicast_passes_nodes_are_named", 3) else { return };
    network.drop_multicast();
    let start = |host, name, endpoint: &str| Member::start(&network, host, name, endpoint);
    // Nobody is there yet, which is told.
    let a = start(1, "a", &format!("lan/3?peer={}", network.address(2)));
    a.until("told that nobody answers", |report| report.has("10.9.0.2:7464: Connection refused"));
    let (b, c) = (start(2, "b", "lan/3?multicast=off"), start(3, "c", "lan/3"));
    a.hears(&[&b]);
    b.hears(&[&a]);
    let named = format!("lan/3?multicast=off,port=9000,peer={}:7464", network.address(1));
    let d = start(3, "d", &named);
    d.hears(&[&a]);
    assert_eq!(c.report().links, 0, "who names nobody meets nobody");
}

/// The configuration of a member of a fleet.
fn identity(member: &fleet::Member) -> String {
    let path = |path: &std::path::Path| path.display().to_string();
    format!(
        "[identity]\ncertificate = '{}'\nkey = '{}'\nauthority = '{}'",
        path(&member.certificate),
        path(&member.key),
        path(&member.authority)
    )
}

#[test]
fn with_certificates_a_stranger_is_refused_and_both_sides_are_told() {
    let name = "with_certificates_a_stranger_is_refused_and_both_sides_are_told";
    let Some(network) = Network::of(name, 3) else { return };
    let (fleet, others) = (Fleet::new(), Fleet::new());
    let rules = "\n[[access.allow]]\ncertificates = ['pump-*']\npublish = ['**']\nsubscribe = ['**']";
    let start = |host, name, endpoint: &str, config: &str| Member::with(&network, host, name, endpoint, config);
    // Certificates without a name of a host: DNS-SD knows addresses alone.
    let a = start(1, "a", "lan", &(identity(&fleet.member(&["pump-1"])) + rules));
    let b = start(2, "b", "lan", &(identity(&fleet.member(&["pump-2"])) + rules));
    a.hears(&[&b]);
    b.hears(&[&a]);
    assert!(!a.report().has("IS OPEN TO OTHER MACHINES"), "{:#?}", a.report());
    // Of the fleet, but no rule allows it anything.
    let valve = start(3, "valve", "lan", &identity(&fleet.member(&["valve-1"])));
    a.until("a rule is applied", |report| report.has("no rule allows 'valve-1'"));
    valve.leave();
    let stranger = start(3, "stranger", "lan", &identity(&others.member(&["pump-3"])));
    stranger.until("told why", |report| {
        report.has("no authority that is known here") || report.has("does not know the authority")
    });
    a.until("told why", |report| {
        report.has("no authority that is known here") || report.has("does not know the authority")
    });
    assert_eq!(stranger.report().links, 0);
    stranger.leave();
    // Without TLS: found by DNS-SD, and by its address.
    let plain = start(3, "plain", "lan", "");
    plain.until("told why", |report| report.has("it uses TLS, and this node has no identity"));
    a.until("told why", |report| report.has("it does not use TLS, and this node does"));
    let named = start(3, "named", &format!("lan/0?multicast=off,peer={}", network.address(1)), "");
    named.until("told why", |report| report.has("the peer speaks TLS, and this node does not"));
    a.until("told why", |report| report.has("the peer does not speak TLS"));
    assert_eq!((plain.report().links, named.report().links), (0, 0));
    b.hears(&[&a]);
}

/// The records of one instance of the service: PTR, SRV, TXT and A.
fn records(name: &str, port: u16, address: Ipv4Addr, pairs: &[&[u8]]) -> Vec<u8> {
    let label = |text: &[u8]| [&[text.len() as u8], text].concat();
    let service = [label(b"_polywire"), label(b"_tcp"), label(b"local"), vec![0]].concat();
    let (instance, host) = (
        [label(name.as_bytes()), service.clone()].concat(),
        [label(name.replace([' ', ':'], "-").as_bytes()), label(b"local"), vec![0]].concat(),
    );
    let record = |owner: &[u8], kind: u16, class: u16, data: &[u8]| {
        let head = [kind.to_be_bytes(), class.to_be_bytes(), [0, 0], 120u16.to_be_bytes()].concat();
        [owner, &head, &(data.len() as u16).to_be_bytes(), data].concat()
    };
    let target = [&[0, 0, 0, 0][..], &port.to_be_bytes(), &host].concat();
    let text: Vec<u8> = pairs.iter().flat_map(|pair| label(pair)).collect();
    [
        record(&service, 12, 1, &instance),
        record(&instance, 33, 0x8001, &target),
        record(&instance, 16, 0x8001, &text),
        record(&host, 1, 0x8001, &address.octets()),
    ]
    .concat()
}

/// A response of multicast DNS about these instances.
fn response(instances: &[Vec<u8>]) -> Vec<u8> {
    let [high, low] = (4 * instances.len() as u16).to_be_bytes();
    [&[0, 0, 0x84, 0, 0, 0, high, low, 0, 0, 0, 0][..], &instances.concat()].concat()
}

/// Not a test by itself: a host that claims to be many nodes, all of them wrong in some way.
#[test]
#[ignore = "run by another test"]
fn attacker() {
    let own: Ipv4Addr = "10.9.0.2".parse().expect("an address");
    let web = TcpListener::bind((own, 8080)).expect("a port");
    thread::spawn(move || {
        for mut caller in web.incoming().flatten() {
            let _ = caller.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let socket = UdpSocket::bind((own, 0)).expect("a port");
    /// Instances of a packet: a few kilobytes.
    const TOGETHER: usize = 20;
    let (mut round, mut waiting) = (0u32, Vec::new());
    loop {
        for number in 0..500 {
            let (node, name) = (format!("node={round:016x}{number:016x}"), format!("node {round} {number}"));
            let sound: [&[u8]; 6] = [b"txtvers=1", b"frames=1", node.as_bytes(), b"inc=1", b"domain=0", b"tls=0"];
            let newer: [&[u8]; 6] = [b"txtvers=1", b"frames=9", node.as_bytes(), b"inc=1", b"domain=0", b"tls=0"];
            waiting.push(match number % 5 {
                0 => records(&name, 80, own, &[b"garbage", b"=", &[0xff; 100], b"node=zz", b"txtvers"]),
                1 => records(&name, 9, Ipv4Addr::new(10, 9, 0, 77), &sound),
                2 => records(&name, 8080, own, &sound),
                3 => records(&name, 9, Ipv4Addr::LOCALHOST, &sound),
                _ => records(&name, 8080, own, &newer),
            });
            if waiting.len() == TOGETHER {
                let packet = response(&std::mem::take(&mut waiting));
                let _ = socket.send_to(&packet, ("224.0.0.251", 5353));
                let _ = socket.send_to(&packet[..packet.len() / 2], ("224.0.0.251", 5353));
                // Not so fast that the receiver's buffer drops most of it.
                thread::sleep(Duration::from_millis(5));
            }
        }
        round += 1;
        println!("round {round}");
    }
}

/// A figure of a process's status, such as `VmRSS` in kB.
fn figure(child: &Child, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it is there");
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).expect("a line");
    line.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a number")
}

#[test]
fn hostile_records_are_counted_and_cost_little() {
    let Some(network) = Network::of("hostile_records_are_counted_and_cost_little", 3) else { return };
    let few = "[engine]\npeers = 64\nconnect_timeout_ms = 500";
    let a = Member::with(&network, 1, "a", "lan", few);
    let mut command = network.command(2, std::env::current_exe().expect("this program"));
    command.args(["attacker", "--exact", "--ignored", "--nocapture"]).stdout(Stdio::piped());
    let mut attacker = command.spawn().expect("started");
    let rounds = BufReader::new(attacker.stdout.take().expect("piped")).lines().map_while(Result::ok);
    for _ in rounds.filter(|line| line.contains("round")).take(500) {
        if a.report().has("all are forgotten") {
            break;
        }
        assert!(figure(&a.child, "Threads") < 150, "calls wait for an answer, but only so many");
        assert!(figure(&a.child, "VmRSS") < 300_000, "kB");
    }
    a.until("the cache is dropped", |report| report.has("all are forgotten"));
    // Nodes that come meanwhile are found, by one side or the other.
    let b = Member::with(&network, 3, "b", "lan", few);
    b.hears(&[&a]);
    a.hears(&[&b]);
    attacker.kill().expect("it is there");
    attacker.wait().expect("ended");
    let reasons = ["TXT record", "nodes already", "no address"];
    assert!(reasons.iter().any(|reason| a.report().has(reason)), "{:#?}", a.report());
}
