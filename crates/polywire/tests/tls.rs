//! TLS: who is let in, who is not and what both sides are told, and files that change.
#![cfg(feature = "tls")]

mod common;

use std::{
    fs::{self, Permissions},
    io::Write as _,
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    sync::{Arc, mpsc},
};

use common::{
    SOON, Tap, find,
    fleet::{Fleet, Member},
};
use polywire::{
    Config, Message, Node, NodeError,
    engine::{Disconnect, EngineError, EngineOptions, Event, Identity, IdentityError, Principal},
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
    // It does not trust the listener.
    let (_caller, at_caller) = connect(&other.member(&["pump"]), &listening);
    assert!(refused(&at_caller).contains("the peer's certificate was signed by no authority"));
    assert!(refused(&at_listener).contains("the peer does not know the authority"));
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
    find(&tcp_events, |event| matches!(event, Event::Rejected { reason: Disconnect::Protocol(_), .. }).then_some(()));
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
    assert!(matches!(open_error(&missing), IdentityError::Read { .. }));
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
