//! The option `rpc` of the engine `dds`: clients and servers of DDS-RPC's basic service mapping.
//!
//! `rpc.py` has those that know only DDS. What sends malformed samples writes bytes.

use std::{
    process::Command,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use polywire::{Node, service::CallError};
use polywire_core::rpc::RemoteCode;
use polywire_dds::{Bytes, Guid, Kind, LOOPBACK, Participant, Qos, Receive, Sample};
use polywire_derive::Message;
use polywire_testing::tools;

use crate::program::{self, Program, SOON, domain};

/// How long a client waits before it asks once more.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "plant::Add_Call", final)]
struct Add {
    unit: u8,
    number: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "plant::Add_Return", final)]
struct Sum {
    sum: i64,
    text: String,
}

fn wire(format: &str, domain: u32) -> String {
    format!("{format}@dds/{domain}?interface=127.0.0.1&rpc=true")
}

fn add(request: &Add) -> Result<Sum, String> {
    let sum = request.number + i64::from(request.unit);
    if request.number < 0 { Err("negative".into()) } else { Ok(Sum { sum, text: "sum".into() }) }
}

/// `None` if this machine has no such Python package.
fn python(mode: &str, domain: u32, version: &str) -> Option<Program> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/dds/rpc.py");
    let mut command = Command::new(tools::python());
    command.args([script, mode, &domain.to_string(), version]);
    tools::python_has("cyclonedds").then(|| program::start(&mut command))
}

fn code(called: Result<Sum, CallError>) -> Option<RemoteCode> {
    match called {
        Err(CallError::Remote(error)) => Some(error.code),
        _ => None,
    }
}

#[test]
fn a_server_of_dds_rpc_is_called() {
    for (format, version) in [("cdr", "1"), ("xcdr2", "2")] {
        let domain = domain();
        let Some(server) = python("serve", domain, version) else { return };
        assert_eq!(server.line(), "ready");
        let node = Node::new();
        let client = node.client::<Add, Sum>("plant/add", Some(&wire(format, domain))).expect("a service");
        let client = client.open().expect("a client");
        for number in 1..=2 {
            let sum = client.call(&Add { unit: 7, number }, SOON).expect("a reply");
            assert_eq!(sum, Sum { sum: number * (number + 1) / 2, text: "so far".into() }, "{format}");
        }
        let refused = client.call(&Add { unit: 7, number: -1 }, SOON);
        assert_eq!(code(refused), Some(RemoteCode::InvalidArgument), "{format}");
    }
}

#[test]
fn a_client_of_dds_rpc_calls() {
    for (format, version) in [("cdr", "1"), ("xcdr2", "2")] {
        let domain = domain();
        let node = Node::new();
        let service = node.service::<Add, Sum>("plant/add", Some(&wire(format, domain))).expect("a service");
        let _server = service.on_request(1, |request, _| add(request)).expect("a server");
        let Some(client) = python("call", domain, version) else { return };
        assert_eq!(client.line(), "True REMOTE_EX_OK 43 sum", "{format}");
        assert_eq!(client.line(), "True REMOTE_EX_UNKNOWN_EXCEPTION 0 ", "{format}");
    }
}

#[test]
fn nodes_call_each_other_by_dds_rpc() {
    for format in ["cdr", "xcdr2:be", "cdr:header"] {
        let domain = domain();
        let (here, there) = (Node::new(), Node::new());
        let service = here.service::<Add, Sum>("plant/add", Some(&wire(format, domain))).expect("a service");
        let _server = service.on_request(1, |request, _| add(request)).expect("a server");
        let client = there.client::<Add, Sum>("plant/add", Some(&wire(format, domain))).expect("a service");
        let client = client.open().expect("a client");
        let sum = client.call(&Add { unit: 2, number: 40 }, SOON).expect("a reply");
        assert_eq!(sum, Sum { sum: 42, text: "sum".into() }, "{format}");
        assert_eq!(code(client.call(&Add { unit: 2, number: -1 }, SOON)), Some(RemoteCode::Failed), "{format}");
    }
}

/// Sends on what comes.
struct Samples(mpsc::Sender<Vec<u8>>);

impl Receive for Samples {
    fn receive(&self, _writer: Guid, sample: Sample) -> bool {
        // An error means that nobody waits for it any more.
        let _ = self.0.send(sample.bytes.sample().to_vec());
        true
    }
}

/// A participant that writes bytes on one of the topics of `plant/add`, and reads bytes of the
/// other.
struct Raw {
    writer: polywire_dds::Writer,
    samples: mpsc::Receiver<Vec<u8>>,
    _reader: polywire_dds::Reader,
    _participant: Participant,
}

impl Raw {
    fn new(domain: u32, writes: &str, reads: &str) -> Raw {
        let qos = Qos { reliable: Some(Duration::from_secs(1)), ..Qos::default() };
        let participant = Participant::new(domain, Some(LOOPBACK), &Qos::default()).expect("a participant");
        let topic = |end: &str| {
            participant.topic(&format!("plant/add_{end}"), &format!("plant::Add_{end}"), false).expect("a topic")
        };
        let (sender, samples) = mpsc::channel();
        let writer = topic(writes).writer(&qos, |_| {}).expect("a writer");
        let _reader = topic(reads).reader(&qos, Arc::new(Samples(sender)), |_| {}).expect("a reader");
        Raw { writer, samples, _reader, _participant: participant }
    }

    fn write(&self, stream: &[u8]) {
        let bytes = Bytes::new([0, 1, 0, 0], stream).expect("bytes");
        let sample = Sample { kind: Kind::Data, is_key: false, bytes, key_hash: None, timestamp_ns: 0, sequence: None };
        self.writer.write(&sample).expect("written");
    }

    /// Waits until the other end reads what this one writes.
    fn wait_for_reader(&self) {
        while self.writer.readers().is_empty() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// What the node has counted of a topic.
fn undecodable(node: &Node, topic: &str) -> u64 {
    node.stats().topic(topic).expect("it is counted").undecodable
}

#[test]
fn malformed_requests_are_ignored_and_counted() {
    let domain = domain();
    let node = Node::new();
    let service = node.service::<Add, Sum>("plant/add", Some(&wire("cdr", domain))).expect("a service");
    let _server = service.on_request(1, |request, _| add(request)).expect("a server");
    let client = Raw::new(domain, "Request", "Reply");
    client.wait_for_reader();
    let identity = [&[9; 16][..], &[1, 0, 0, 0, 2, 0, 0, 0]].concat();
    let request = [&identity[..], &[1, 0, 0, 0, 0, 2, 0, 0, 40, 0, 0, 0, 0, 0, 0, 0]].concat();
    for len in [0, 3, 24, 28, 29, 39] {
        client.write(&request[..len]);
    }
    client.write(&[&identity[..], &[0xff; 16]].concat());
    client.write(&request);
    let reply = client.samples.recv_timeout(SOON).expect("a reply");
    assert_eq!(undecodable(&node, "rq/plant/addRequest"), 7);
    assert_eq!(
        reply[4..],
        [&identity[..], &[0; 8], &[42, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, b's', b'u', b'm', 0]].concat()
    );
}

#[test]
fn malformed_replies_are_counted_and_those_to_others_ignored() {
    let domain = domain();
    let server = Raw::new(domain, "Reply", "Request");
    let node = Node::new();
    let client = node.client::<Add, Sum>("plant/add", Some(&wire("cdr", domain))).expect("a service");
    let client = client.open().expect("a client");
    client.wait_for_server(SOON).expect("a server");
    server.wait_for_reader();
    // The client may not know yet who reads its requests.
    let until = Instant::now() + SOON;
    let (reply, request) = loop {
        let reply = client.request(&Add { unit: 2, number: 40 }, SOON).expect("sent");
        match server.samples.recv_timeout(PATIENCE) {
            Ok(request) => break (reply, request),
            Err(_) => assert!(Instant::now() < until, "a request"),
        }
    };
    let identity = &request[4..28];
    let value = [5, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
    let valid = [identity, &[0; 8], &value].concat();
    for len in [0, 3, 24, 27, 28, 44] {
        server.write(&valid[..len]);
    }
    server.write(&[&[8; 24][..], &[0; 8], &value].concat());
    let mut later = valid.clone();
    later[20] += 1;
    server.write(&later);
    server.write(&valid);
    assert_eq!(reply.wait().expect("a reply").value, Sum { sum: 5, text: String::new() });
    assert_eq!(undecodable(&node, "rr/plant/addReply"), 6);
    let reply = client.request(&Add { unit: 2, number: 41 }, SOON).expect("sent");
    let request = server.samples.recv_timeout(SOON).expect("a request");
    server.write(&[&request[4..28], &99u32.to_le_bytes()].concat());
    assert_eq!(code(reply.wait().map(|reply| reply.value)), Some(RemoteCode::Failed), "an unknown exception");
}
