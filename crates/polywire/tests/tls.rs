//! TLS: who is let in, who is not and what both sides are told, and files that change.
#![cfg(feature = "tls")]

mod common;

use std::{
    fs::{self, Permissions},
    io::{ErrorKind, Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use common::{
    SOON, Tap, connections, find,
    fleet::{Fleet, Member},
    until,
};
use polywire::{
    Config, Message, Node, NodeError,
    engine::{Disconnect, EngineError, EngineOptions, Event, Identity, IdentityError, Principal},
};
use polywire_core::{
    envelope::Id128,
    frame::{Hello, StreamEncoder},
};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};

const LOOPBACK: &str = "127.0.0.1";

fn options(member: &Member) -> EngineOptions {
    let mut options = EngineOptions::default();
    options.identity = Identity::new(&member.certificate, &member.key, &member.authority);
    options
}

fn listen(member: &Member) -> (Arc<Tap>, mpsc::Receiver<Event>) {
    Tap::open("tls-listen", "127.0.0.1:0", options(member))
}

fn connect(member: &Member, to: &Tap) -> (Arc<Tap>, mpsc::Receiver<Event>) {
    Tap::open("tls-connect", &to.address(), options(member))
}

fn connected(events: &mpsc::Receiver<Event>) -> Principal {
    find(events, |event| match event {
        Event::Connected(link) => Some(link.principal),
        _ => None,
    })
}

/// Why a connection did not become a link, in words.
fn refused(events: &mpsc::Receiver<Event>) -> String {
    find(events, |event| match event {
        Event::Rejected { reason: reason @ Disconnect::Untrusted(_), .. } => Some(reason.to_string()),
        Event::Unreachable { reason, .. } => Some(reason),
        _ => None,
    })
}

fn open_error(member: &Member) -> IdentityError {
    let mut config = Config::default();
    config.engine = options(member);
    match Node::builder().config(config).build().open("tls-listen/127.0.0.1:0") {
        Err(NodeError::Engine(EngineError::Identity { cause, .. })) => cause,
        other => panic!("{other:?}"),
    }
}

#[test]
fn both_sides_know_who_the_other_is() {
    let fleet = Fleet::new();
    let (listening, at_listener) = listen(&fleet.member(&["Hall-1", LOOPBACK]));
    let (_connecting, at_caller) = connect(&fleet.member(&["pump-3"]), &listening);
    assert_eq!(connected(&at_listener), Principal::Certificate("pump-3".into()));
    assert_eq!(connected(&at_caller), Principal::Certificate("hall-1".into()));
}

#[test]
fn a_stranger_is_refused_and_both_sides_say_what_to_do() {
    let (fleet, other) = (Fleet::new(), Fleet::new());
    let (listening, at_listener) = listen(&fleet.member(&["hall", LOOPBACK]));
    // It trusts the listener, and has a certificate of another authority.
    let mut stranger = other.member(&["pump"]);
    let both = [&other, &fleet].map(|fleet| fs::read(fleet.folder.join("authority.pem")).expect("read")).concat();
    stranger.authority = other.folder.join("both.pem");
    fs::write(&stranger.authority, both).expect("written");
    let (_caller, at_caller) = connect(&stranger, &listening);
    assert!(refused(&at_listener).contains("the peer's certificate was signed by no authority that is known here"));
    assert!(refused(&at_caller).contains("the peer does not know the authority that signed this node's certificate"));
    // It does not trust the listener. The other one goes on calling.
    let (_caller, at_caller) = connect(&other.member(&["pump"]), &listening);
    assert!(refused(&at_caller).contains("the peer's certificate was signed by no authority"));
    while !refused(&at_listener).contains("the peer does not know the authority") {}
    assert_eq!(listening.port().links().len(), 0);
}

#[test]
fn whoever_speaks_something_else_is_told_apart() {
    let fleet = Fleet::new();
    let (listening, events) = listen(&fleet.member(&["hall", LOOPBACK]));
    let mut plain = TcpStream::connect(listening.address()).expect("connects");
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("sent");
    assert!(refused(&events).contains("does not speak TLS"));
    let (tcp, tcp_events) = Tap::open("tcp-listen", "127.0.0.1:0", EngineOptions::default());
    let (_caller, events) = connect(&fleet.member(&["pump"]), &tcp);
    assert!(refused(&events).contains("does not speak TLS"));
    assert!(refused(&tcp_events).contains("the peer speaks TLS, and this node does not"));
}

#[test]
fn the_certificate_must_be_for_the_host_that_was_called() {
    let fleet = Fleet::new();
    let (listening, _events) = listen(&fleet.member(&["hall", "10.1.2.3"]));
    let (_caller, events) = connect(&fleet.member(&["pump"]), &listening);
    let reason = refused(&events);
    assert!(reason.contains("is not for 127.0.0.1, but for hall, 10.1.2.3"), "{reason}");
    assert!(reason.ends_with("--host 127.0.0.1"), "{reason}");
    let error = Node::new().open("tls/0.0.0.0:0").expect_err("it could connect nowhere").to_string();
    assert!(error.contains("tls-listen/"), "{error}");
}

#[test]
fn a_certificate_without_a_name_is_nobody() {
    let fleet = Fleet::new();
    let (listening, events) = listen(&fleet.member(&["hall", LOOPBACK]));
    let (_caller, _events) = connect(&fleet.member(&["10.0.0.9"]), &listening);
    assert!(refused(&events).contains("no DNS name"));
}

#[test]
fn what_is_wrong_with_the_files_is_said_when_a_port_opens() {
    let fleet = Fleet::new();
    let good = fleet.member(&["good"]);
    let mode = |mode| fs::set_permissions(&good.key, Permissions::from_mode(mode)).expect("permitted");
    mode(0o640);
    let error = open_error(&good);
    assert!(matches!(error, IdentityError::Mode { mode: 0o640, .. }), "{error}");
    assert!(error.to_string().contains("chmod 600"), "{error}");
    mode(0o600);

    let missing = Member { certificate: fleet.folder.join("nowhere.pem"), ..good.clone() };
    let error = open_error(&missing);
    assert!(matches!(error, IdentityError::Read { .. }), "{error}");
    assert!(
        error.to_string().ends_with("; 'certificate' in the section [identity] of the configuration names this file")
    );
    let swapped = Member { key: fleet.member(&["other"]).key, ..good.clone() };
    let error = open_error(&swapped).to_string();
    assert!(error.contains("is not the key of the certificate in"), "{error}");
    let garbage = fleet.folder.join("garbage.pem");
    fs::write(&garbage, "no PEM").expect("written");
    let error = open_error(&Member { authority: garbage, ..good.clone() }).to_string();
    assert!(error.contains("has no certificate in PEM"), "{error}");
    let elsewhere = Fleet::new();
    let error = open_error(&Member { authority: elsewhere.folder.join("authority.pem"), ..good }).to_string();
    assert!(error.contains("was signed by no authority of"), "{error}");

    let past = fleet.member_with(&["past"], |params| params.not_after = rcgen::date_time_ymd(2020, 2, 29));
    let error = open_error(&past).to_string();
    assert!(error.contains("this certificate expired at 2020-02-29T00:00:00Z, and the clock here says 2"), "{error}");
    let future = fleet.member_with(&["future"], |params| params.not_before = rcgen::date_time_ymd(2999, 1, 1));
    let error = open_error(&future).to_string();
    assert!(error.contains("this certificate is valid from 2999-01-01T00:00:00Z on"), "{error}");
}

#[test]
fn files_that_change_are_used_from_the_next_handshake_on() {
    let fleet = Fleet::new();
    let files = fleet.member(&["before", LOOPBACK]);
    let (listening, _events) = listen(&files);
    let name = |number: usize| {
        let (_caller, events) = connect(&fleet.member(&[&format!("pump-{number}")]), &listening);
        connected(&events)
    };
    assert_eq!(name(1), Principal::Certificate("before".into()));
    let renewed = fleet.member(&["after", LOOPBACK]);
    // First the certificate, without its key: the old pair stays in use.
    fs::copy(&renewed.certificate, &files.certificate).expect("copied");
    assert_eq!(name(2), Principal::Certificate("before".into()));
    fs::copy(&renewed.key, &files.key).expect("copied");
    assert_eq!(name(3), Principal::Certificate("after".into()));
    fs::remove_file(&files.certificate).expect("removed");
    assert_eq!(name(4), Principal::Certificate("after".into()));
}

/// As a fleet moves to another authority: at first both are trusted, in the end the new one alone.
#[test]
fn an_authority_is_replaced_without_a_restart() {
    let (fleet, other) = (Fleet::new(), Fleet::new());
    let files = fleet.member(&["hall", LOOPBACK]);
    let (listening, events) = listen(&files);
    let authority = |fleet: &Fleet| fs::read_to_string(fleet.folder.join("authority.pem")).expect("a certificate");
    let both = authority(&fleet) + &authority(&other);
    // The callers trust both all the time.
    let [old, new] = [(&fleet, "old"), (&other, "new")].map(|(signed_by, name)| {
        let member = signed_by.member(&[name]);
        let trusted = member.certificate.with_file_name("both.pem");
        fs::write(&trusted, &both).expect("written");
        Member { authority: trusted, ..member }
    });
    // A caller that is turned away calls again, so its rejection may be told more than once.
    let is_let_in = |member: &Member| {
        let (_caller, _events) = connect(member, &listening);
        find(&events, |event| matches!(event, Event::Connected(_)).then_some(()));
    };
    let is_turned_away = |member: &Member| {
        let (_caller, _events) = connect(member, &listening);
        let is_let_in = find(&events, |event| match event {
            Event::Connected(_) => Some(true),
            Event::Rejected { reason: Disconnect::Untrusted(_), .. } => Some(false),
            _ => None,
        });
        assert!(!is_let_in);
    };
    is_let_in(&old);
    is_turned_away(&new);
    fs::write(&files.authority, &both).expect("written");
    is_let_in(&old);
    is_let_in(&new);
    let renewed = other.member(&["hall", LOOPBACK]);
    fs::copy(&renewed.certificate, &files.certificate).expect("copied");
    fs::copy(&renewed.key, &files.key).expect("copied");
    fs::write(&files.authority, authority(&other)).expect("written");
    is_turned_away(&old);
    is_let_in(&new);
}

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Pump")]
struct Pump {
    id: u32,
}

#[test]
fn typed_messages_travel_and_large_ones_too() {
    let fleet = Fleet::new();
    let node = |member: Member| {
        let mut config = Config::default();
        config.engine = options(&member);
        Node::builder().config(config).build()
    };
    let (here, there) = (node(fleet.member(&["here", LOOPBACK])), node(fleet.member(&["there"])));
    let endpoint = here.open("tls-listen/127.0.0.1:0").expect("listens");
    assert!(endpoint.starts_with("tls/127.0.0.1:"), "{endpoint}");
    let pumps = here.subscriber_on::<Pump>("pumps", &format!("json@{endpoint}")).expect("subscribes");
    let calling = endpoint.replace("tls/", "tls-connect/");
    let publisher = there.publisher_on::<Pump>("pumps", &format!("cdr@{calling}")).expect("publishes");
    assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
    for id in 0..1000 {
        publisher.publish(&Pump { id }).expect("published");
    }
    assert!(there.flush(SOON));
    let received: Vec<u32> = (0..1000).map(|_| pumps.recv_timeout(SOON).expect("a message").value.id).collect();
    assert!(received.into_iter().eq(0..1000));
    assert_eq!(here.discovered()[0].link.principal, Principal::Certificate("there".into()));

    // Larger than any buffer on the way.
    let (listening, _events) = listen(&fleet.member(&["tap", LOOPBACK]));
    let (caller, _events) = connect(&fleet.member(&["caller"]), &listening);
    let channel = caller.announce("large", 1);
    caller.until("answer", |heard| (heard.answered == 1).then_some(()));
    let payload: Vec<u8> = (0..20 << 20).map(|i: u32| (i % 253) as u8).collect();
    caller.publish(channel, 1, &payload);
    let message = listening.until("message", |heard| heard.messages.first().cloned());
    assert!(message.payload == payload);
}

#[test]
fn a_relay_lets_through_what_its_rules_allow() {
    let fleet = Fleet::new();
    let node = |names: &[&str], rules: &str| {
        let mut config = Config::parse(rules).expect("a configuration");
        config.engine = options(&fleet.member(names));
        Node::builder().config(config).build()
    };
    let rules = "
        [[access.allow]]
        certificates = ['pump-*']
        publish = ['plant/**']
        [[access.allow]]
        certificates = ['hall']
        subscribe = ['**']";
    let relay = node(&["relay", LOOPBACK], rules);
    let endpoint = relay.open("tls/127.0.0.1:0").expect("listens");
    let wire = format!("cdr@{endpoint}");
    let (pump, hall, other) = (node(&["pump-1"], ""), node(&["hall"], ""), node(&["pump-2"], ""));
    let allowed = hall.subscriber_on::<Pump>("plant/1", &wire).expect("subscribes");
    let silent = hall.subscriber_on::<Pump>("hall/1", &wire).expect("subscribes");
    let refused = other.subscriber_on::<Pump>("plant/1", &wire).expect("subscribes");
    let plant = pump.publisher_on::<Pump>("plant/1", &wire).expect("opens");
    let not_its = pump.publisher_on::<Pump>("hall/1", &wire).expect("opens");
    assert_eq!(plant.wait_for_subscribers(1, SOON), 1);
    until("pump-1 is told", || not_its.status().refusing == 1);
    until("pump-2 is told", || refused.status().mismatches_total == 1);
    assert!(refused.status().mismatches[0].reason.contains("no rule allows 'pump-2' to subscribe to it"));
    let sent = plant.publish(&Pump { id: 7 }).expect("published");
    assert_eq!(sent.subscribers, 1, "the hall's alone");
    not_its.publish(&Pump { id: 8 }).expect("published to nobody");
    assert_eq!(allowed.recv_timeout(SOON).expect("relayed").value.id, 7);
    assert!(silent.recv_timeout(Duration::from_millis(50)).is_none() && refused.try_recv().is_none());
    until("both are counted", || relay.denied() >= 2);
}

/// A client that trusts the authority of a member, and shows the certificate of the member or none.
fn client(member: &Member, shows: bool) -> ClientConnection {
    let certificates = |path| CertificateDer::pem_file_iter(path).expect("a file").map(|one| one.expect("PEM"));
    let mut roots = RootCertStore::empty();
    certificates(&member.authority).for_each(|authority| roots.add(authority).expect("an authority"));
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().expect("TLS 1.3").with_root_certificates(roots);
    let mut config = if shows {
        let key = PrivateKeyDer::from_pem_file(&member.key).expect("a key");
        config.with_client_auth_cert(certificates(&member.certificate).collect(), key).expect("they fit")
    } else {
        config.with_no_client_auth()
    };
    config.alpn_protocols = vec![b"polywire".to_vec()];
    let host = ServerName::try_from(LOOPBACK).expect("a name");
    ClientConnection::new(Arc::new(config), host).expect("a client")
}

/// What a client says first.
fn client_hello() -> Vec<u8> {
    let fleet = Fleet::new();
    let mut bytes = Vec::new();
    client(&fleet.member(&["stranger"]), false).write_tls(&mut bytes).expect("written");
    bytes
}

/// A die that falls the same way in every run.
struct Die(u64);

impl Die {
    fn throw(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }
}

/// Whether the other end closes, or breaks off, soon.
fn is_closed(mut stream: &TcpStream) -> bool {
    stream.set_read_timeout(Some(SOON)).expect("set");
    loop {
        match stream.read(&mut [0; 4096]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(e) => return !matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }
}

fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

#[test]
fn strangers_cost_little_and_lock_nobody_out() {
    let fleet = Fleet::new();
    let mut small = options(&fleet.member(&["hall", LOOPBACK]));
    (small.peers, small.hello_timeout) = (64, Duration::from_secs(3));
    let (listening, _events) = Tap::open("tls-listen", "127.0.0.1:0", small);
    let (caller, _at_caller) = connect(&fleet.member(&["early"]), &listening);
    let channel = caller.announce("t", 1);
    caller.until("answer", |heard| (heard.answered == 1).then_some(()));
    let (hello, before) = (client_hello(), resident_bytes());
    let call = |number: usize| {
        let mut stream = TcpStream::connect(listening.address()).expect("connects");
        // It may have been closed already.
        let _ = match number % 4 {
            0 => Ok(()),
            1 => stream.write_all(&hello),
            2 => stream.write_all(&hello[..hello.len() / 2]),
            _ => stream.write_all(&[number as u8; 300]),
        };
        stream
    };
    let strangers: Vec<TcpStream> = (0..connections()).map(call).collect();
    let cost = resident_bytes().saturating_sub(before);
    // 64 at a time, of which each has a thread, buffers and a handshake under way.
    assert!(cost < 100 << 20, "{cost} bytes");
    caller.publish(channel, 1, b"meanwhile");
    listening.until("message", |heard| heard.messages.first().cloned());
    let (late, _at_late) = connect(&fleet.member(&["late"]), &listening);
    let channel = late.announce("t", 2);
    late.until("answer", |heard| (heard.answered == 1).then_some(()));
    late.publish(channel, 1, b"too");
    listening.until("message", |heard| heard.messages.get(1).cloned());
    // Half a hello, and one byte after the other, do not hold a place either.
    assert!(strangers.iter().all(is_closed));
    assert_eq!(listening.port().links().len(), 2);
}

#[test]
fn a_caller_that_dribbles_is_sent_away_in_time() {
    let fleet = Fleet::new();
    let mut hasty = options(&fleet.member(&["hall", LOOPBACK]));
    hasty.hello_timeout = Duration::from_millis(300);
    let (listening, events) = Tap::open("tls-listen", "127.0.0.1:0", hasty);
    let mut stream = TcpStream::connect(listening.address()).expect("connects");
    // A byte every 20 ms would keep a time-out for each read from ever passing.
    let dribbled = client_hello().iter().any(|byte| {
        thread::sleep(Duration::from_millis(20));
        stream.write_all(&[*byte]).is_err()
    });
    assert!(dribbled || is_closed(&stream));
    find(&events, |event| matches!(event, Event::Rejected { reason: Disconnect::Silent, .. }).then_some(()));
}

#[test]
fn damaged_handshakes_are_turned_away() {
    let fleet = Fleet::new();
    let (listening, events) = listen(&fleet.member(&["hall", LOOPBACK]));
    let (hello, mut die) = (client_hello(), Die(1));
    for _ in 0..300 {
        let mut damaged = hello.clone();
        for _ in 0..=die.throw(4) {
            let at = die.throw(damaged.len());
            damaged[at] ^= 1 << die.throw(8);
        }
        damaged.truncate(damaged.len() - die.throw(2) * die.throw(40));
        let mut stream = TcpStream::connect(listening.address()).expect("connects");
        let _ = stream.write_all(&damaged);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        assert!(is_closed(&stream));
    }
    assert!(events.try_iter().all(|event| !matches!(event, Event::Connected(_))));
    let (_caller, events) = connect(&fleet.member(&["pump"]), &listening);
    connected(&events);
}

/// Bytes of a record in front of its content: type, version, length.
const HEADER: usize = 5;

/// The type of a record that says nothing any more, and that the other side ignores.
const CHANGE_CIPHER_SPEC: u8 = 20;

#[derive(Clone, Copy, Debug)]
enum Harm {
    Flip,
    Insert,
    Cut,
    CutAndEnd,
    Swap,
    Repeat,
}

const HARMS: [Harm; 6] = [Harm::Flip, Harm::Insert, Harm::Cut, Harm::CutAndEnd, Harm::Swap, Harm::Repeat];

/// One direction of a connection, which does harm to a record on its way.
struct Way {
    /// To which record, without those that say nothing, and what.
    harm: Option<(usize, Harm)>,
    die: Die,
    waiting: Vec<u8>,
    /// The record that the next one overtakes.
    held: Vec<u8>,
    count: usize,
    has_harmed: bool,
    has_ended: bool,
}

impl Way {
    fn new(harm: Option<(usize, Harm)>, die: &mut Die) -> Way {
        let die = Die(die.throw(usize::MAX) as u64);
        let (waiting, held) = (Vec::new(), Vec::new());
        Way { harm, die, waiting, held, count: 0, has_harmed: false, has_ended: false }
    }

    /// What comes out at the other end when these bytes go in.
    fn pass(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.waiting.extend_from_slice(bytes);
        let mut out = Vec::new();
        while let Some(header) = self.waiting.first_chunk::<HEADER>() {
            let length = HEADER + usize::from(u16::from_be_bytes([header[3], header[4]]));
            if self.waiting.len() < length {
                break;
            }
            let record = self.waiting.drain(..length).collect();
            out.extend(self.record(record));
        }
        out
    }

    fn record(&mut self, mut record: Vec<u8>) -> Vec<u8> {
        if self.has_ended {
            return Vec::new();
        }
        if record[0] == CHANGE_CIPHER_SPEC {
            return record;
        }
        self.count += 1;
        let Some((_, harm)) = self.harm.filter(|(number, _)| number + 1 == self.count) else {
            return [record, std::mem::take(&mut self.held)].concat();
        };
        self.has_harmed = true;
        let at = self.die.throw(record.len());
        match harm {
            // Nobody looks at the version in front of a record (RFC 8446, section 5.1).
            Harm::Flip => record[if (1..=2).contains(&at) { HEADER } else { at }] ^= 1 << self.die.throw(8),
            Harm::Insert => drop(record.splice(at..at, vec![!record[at]; 1 + self.die.throw(8)])),
            Harm::Cut => record.truncate(at),
            Harm::CutAndEnd => (self.has_ended, record) = (true, record[..at].to_vec()),
            Harm::Swap => self.held = std::mem::take(&mut record),
            Harm::Repeat => record = record.repeat(2),
        }
        record
    }
}

/// Carries out a handshake and introduces itself as a node does.
fn greet(mut client: ClientConnection, mut stream: &TcpStream, there: &mut Way, back: &mut Way) {
    let mut hello = Vec::new();
    StreamEncoder::default().hello(&Hello { node: Id128([8; 16]), incarnation: 1 }, &mut hello);
    client.writer().write_all(&hello).expect("kept until the end of the handshake");
    let mut has_failed = false;
    loop {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).expect("written");
        }
        let is_sent = stream.write_all(&there.pass(&bytes)).is_ok();
        if !is_sent || has_failed || there.has_ended || back.has_ended || !client.is_handshaking() {
            return;
        }
        // Whoever waits for the rest of a damaged record waits for nothing.
        let is_harmed = there.has_harmed || back.has_harmed;
        let patience = if is_harmed { Duration::from_millis(20) } else { SOON };
        stream.set_read_timeout(Some(patience)).expect("set");
        let mut bytes = [0; 4096];
        let Ok(count @ 1..) = stream.read(&mut bytes) else { return };
        let passed = back.pass(&bytes[..count]);
        let mut passed = &passed[..];
        while !has_failed && !passed.is_empty() {
            client.read_tls(&mut passed).expect("taken");
            has_failed = client.process_new_packets().is_err();
        }
    }
}

#[test]
fn a_handshake_that_is_damaged_on_its_way_makes_no_link() {
    let fleet = Fleet::new();
    let (listening, events) = listen(&fleet.member(&["hall", LOOPBACK]));
    let (member, mut die) = (fleet.member(&["pump"]), Die(1));
    // Calls, and waits for what becomes of it.
    let call = |shows, mut there: Way, mut back: Way| {
        let stream = TcpStream::connect(listening.address()).expect("connects");
        greet(client(&member, shows), &stream, &mut there, &mut back);
        let is_harmed = there.has_harmed || back.has_harmed;
        if is_harmed {
            // Unless it has closed the connection already.
            let _ = stream.shutdown(std::net::Shutdown::Write);
        }
        let is_link = find(&events, |event| match event {
            Event::Connected(_) => Some(true),
            Event::Rejected { .. } => Some(false),
            _ => None,
        });
        assert!(is_link || is_closed(&stream));
        (is_link, is_harmed, there.count, back.count)
    };
    let (is_link, _, from_client, from_node) = call(true, Way::new(None, &mut die), Way::new(None, &mut die));
    assert!(is_link && from_client >= 3 && from_node >= 2, "{from_client} {from_node}");
    let mut harmed = 0;
    for number in 0..300 {
        let (shows, is_there) = (number % 5 != 0, die.throw(2) == 0);
        // The hello is another test's. What comes twice has come once.
        let (first, count) = if is_there { (1, from_client) } else { (0, from_node) };
        let record = first + die.throw(count - first);
        let harm = HARMS[die.throw(HARMS.len() - usize::from(record + 1 == count))];
        let of = |is_its: bool| is_its.then_some((record, harm));
        let (there, back) = (Way::new(of(is_there), &mut die), Way::new(of(!is_there), &mut die));
        let (is_link, is_harmed, ..) = call(shows, there, back);
        let what = format!("{number}: {harm:?} of record {record}, to the node: {is_there}, known: {shows}");
        assert_eq!(is_link, shows && !is_harmed, "{what}");
        assert!(is_harmed || !shows, "{what}");
        harmed += usize::from(is_harmed);
        // A good peer is served, and the next rejection is told.
        let (is_link, ..) = call(true, Way::new(None, &mut die), Way::new(None, &mut die));
        assert!(is_link, "after {what}");
    }
    assert!(harmed > 250, "{harmed}");
    until("all are gone", || listening.port().links().is_empty());
    let (_caller, events) = connect(&fleet.member(&["late"]), &listening);
    connected(&events);
}
