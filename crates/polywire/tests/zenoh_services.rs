//! Services over the engine `zenoh`, with applications that know only Zenoh or ROS 2: they query
//! our servers, and our clients query theirs.
#![cfg(feature = "zenoh")]

use std::{
    io::{BufRead, BufReader},
    process::{Child, ChildStdout, Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use polywire::{
    Node,
    service::{CallError, Client, Server},
};
use polywire_core::rpc::RemoteCode;
use polywire_testing::{
    endpoints::PLAIN_ZENOH,
    ros::{Add, Sum},
    tools,
    waiting::{SOON, until},
};
use zenoh::{
    Config, Session, Wait,
    bytes::Encoding,
    query::{Query, QueryTarget, Queryable, Reply},
};

/// The type of the service and its hash, as `spec/ros.md` has them.
const ROS_TYPE: &str = "example_interfaces::srv::dds_::AddTwoInts_";
const ROS_HASH: &str = "RIHS01_e118de6bf5eeb66a2491b5bda11202e7b68f198d6f67922cf30364858239c81a";

/// A node that is met by its locator alone: its endpoint and locator.
fn alone(node: &Node, options: &str) -> (String, String) {
    let endpoint = format!("zenoh/peer?scouting=off,{options}listen=tcp/127.0.0.1:0");
    let endpoint = node.open(&endpoint).expect("it opens");
    let locator = endpoint.split_once("listen=").expect("where it listens").1.to_owned();
    (endpoint, locator)
}

fn calling(locator: &str, options: &str) -> String {
    format!("zenoh/peer?scouting=off,{options}listen=tcp/127.0.0.1:0,connect={locator}")
}

/// A session that is not Polywire's.
fn plain(locator: &str) -> Session {
    let mut config = Config::default();
    let connect = format!("[\"{locator}\"]");
    for (key, value) in PLAIN_ZENOH.into_iter().chain([("connect/endpoints", &*connect)]) {
        config.insert_json5(key, value).expect("valid");
    }
    zenoh::open(config).wait().expect("a session")
}

/// Adds, and refuses to add to a negative number.
fn serve(node: &Node, wire: &str) -> Server {
    let service = node.service::<Add, Sum>("plant/add", Some(wire)).expect("a service");
    let add = |add: &Add, _: &_| match add.a {
        0.. => Ok(Sum { sum: add.a + add.b }),
        _ => Err("too little"),
    };
    service.on_request(2, add).expect("a server")
}

fn client(node: &Node, wire: &str) -> Client<Add, Sum> {
    node.client::<Add, Sum>("plant/add", Some(wire)).and_then(|client| client.open()).expect("a client")
}

/// Waits until somebody answers queries for this key.
fn until_served(session: &Session, key: &str, target: QueryTarget) {
    let querier = session.declare_querier(key.to_owned()).target(target).wait().expect("a querier");
    until("it is served", || querier.matching_status().wait().expect("a status").matching());
}

/// The replies to a query.
fn ask(session: &Session, key: &str, payload: &[u8], encoding: &str) -> Vec<Result<String, String>> {
    let query = session.get(key.to_owned()).payload(payload).encoding(Encoding::from(encoding)).timeout(SOON);
    let text = |reply: Reply| match reply.result() {
        Ok(sample) => Ok(format!("{} {}", sample.key_expr(), String::from_utf8_lossy(&sample.payload().to_bytes()))),
        Err(error) => Err(String::from_utf8_lossy(&error.payload().to_bytes()).into_owned()),
    };
    query.wait().expect("a query").into_iter().map(text).collect()
}

#[test]
fn a_plain_application_calls_a_server() {
    let node = Node::new();
    let (endpoint, locator) = alone(&node, "");
    let _server = serve(&node, &format!("json@{endpoint}"));
    let session = plain(&locator);
    until_served(&session, "plant/add", QueryTarget::BestMatching);
    let json = "application/json";
    let sum = |sum: i64| [Ok(format!("plant/add {{\"sum\":{sum}}}"))];
    assert_eq!(ask(&session, "plant/add", br#"{"a":2,"b":3}"#, json), sum(5));
    assert_eq!(ask(&session, "plant/*", br#"{"a":2,"b":4}"#, "zenoh/bytes"), sum(6), "in the server's format");
    let cbor = [&b"\xa2aa\x19\x01\x00ab\x01"[..]].concat();
    assert_eq!(ask(&session, "plant/add", &cbor, "application/cbor"), sum(257));
    assert_eq!(ask(&session, "plant/add", br#"{"a":-1}"#, json), [Err("too little".into())]);
    for broken in [&b""[..], b"{", b"\xff\xfe"] {
        let [Err(reason)] = &ask(&session, "plant/add", broken, json)[..] else { panic!("{broken:?} is answered") };
        assert!(!reason.is_empty());
    }
    // Many at a time, each with its own reply.
    let (sender, replies) = mpsc::channel();
    for number in 0..200 {
        let sender = sender.clone();
        let query = session.get("plant/add").payload(format!(r#"{{"a":{number}}}"#)).timeout(SOON);
        let told = move |reply: Reply| drop(sender.send((number, reply)));
        query.encoding(Encoding::APPLICATION_JSON).callback(told).wait().expect("a query");
    }
    for _ in 0..200 {
        let (number, reply) = replies.recv_timeout(SOON).expect("a reply");
        let sample = reply.into_result().expect("a value");
        assert_eq!(&*sample.payload().to_bytes(), format!(r#"{{"sum":{number}}}"#).as_bytes());
        assert!(sample.encoding().to_string().starts_with("application/json;"), "{}", sample.encoding());
    }
}

#[test]
fn queries_end_with_their_server() {
    let node = Node::new();
    let (endpoint, locator) = alone(&node, "");
    let service = node.service::<Add, Sum>("plant/add", Some(&format!("json@{endpoint}"))).expect("a service");
    let service = service.open().expect("a server");
    let session = plain(&locator);
    until_served(&session, "plant/add", QueryTarget::BestMatching);
    let (sender, replies) = mpsc::channel();
    let query = session.get("plant/add").payload(r#"{"a":1}"#).encoding(Encoding::APPLICATION_JSON).timeout(SOON);
    query.callback(move |reply| drop(sender.send(reply))).wait().expect("a query");
    let request = service.recv_timeout(SOON).expect("a request");
    drop((service, request));
    let reply = replies.recv_timeout(SOON).expect("an error");
    assert!(reply.result().is_err_and(|error| error.payload().to_bytes().starts_with(b"the server")));
    // Nobody listens any more.
    let querier = session.declare_querier("plant/add").wait().expect("a querier");
    until("it is not served", || !querier.matching_status().wait().expect("a status").matching());
    assert_eq!(ask(&session, "plant/add", b"{}", "application/json"), []);
}

/// Serves in JSON without knowing Polywire.
fn queryable(session: &Session, answer: impl Fn(&Query) + Send + Sync + 'static) -> Queryable<()> {
    session.declare_queryable("plant/add").callback(move |query| answer(&query)).wait().expect("a queryable")
}

/// The sum of the numbers in a request, which must be JSON.
fn sum_of(query: &Query) -> i64 {
    assert!(query.encoding().is_some_and(|encoding| encoding.to_string().starts_with("application/json;")));
    let request = query.payload().expect("a request").try_to_string().expect("text").into_owned();
    let numbers = request.strip_prefix(r#"{"a":"#).and_then(|rest| rest.strip_suffix('}')?.split_once(r#","b":"#));
    let (a, b) = numbers.expect("both numbers");
    a.parse::<i64>().expect("a number") + b.parse::<i64>().expect("a number")
}

#[test]
fn a_client_calls_a_plain_application() {
    let node = Node::new();
    let (endpoint, locator) = alone(&node, "");
    let client = client(&node, &format!("json@{endpoint}"));
    assert!(matches!(client.call(&Add::default(), Duration::from_millis(50)), Err(CallError::NoServer)));
    let session = plain(&locator);
    let there = queryable(&session, |query| {
        let sum = sum_of(query);
        let reply = |text: String| query.reply("plant/add", text);
        let done = match sum {
            1 => query.reply_err("not one").wait(),
            2 => Ok(()),
            3 => reply("\x08".into()).encoding(Encoding::APPLICATION_CBOR).wait(),
            4 => reply("{".into()).wait(),
            // The second one does not count.
            5 => reply(r#"{"sum":5}"#.into()).wait().and_then(|()| reply(r#"{"sum":6}"#.into()).wait()),
            sum => reply(format!(r#"{{"sum":{sum}}}"#)).encoding(Encoding::APPLICATION_JSON).wait(),
        };
        done.expect("a reply");
    });
    let call = |a: i64| client.call(&Add { a, b: 0 }, SOON);
    assert_eq!(call(7).expect("a reply"), Sum { sum: 7 });
    assert_eq!(client.servers().len(), 1);
    let Err(CallError::Remote(error)) = call(1) else { panic!("an error") };
    assert_eq!((error.code, &*error.text), (RemoteCode::Failed, "not one"));
    for (a, part) in [(2, "nobody has answered"), (3, "in cbor")] {
        let Err(CallError::Remote(error)) = call(a) else { panic!("an error") };
        assert!(error.code == RemoteCode::Unsupported && error.text.contains(part), "{error}");
    }
    assert!(matches!(call(4), Err(CallError::Undecodable { .. })));
    assert_eq!(call(5).expect("a reply"), Sum { sum: 5 });
    let replies: Vec<_> = (10..200).map(|a| (a, client.request(&Add { a, b: 1 }, SOON).expect("it is sent"))).collect();
    replies.into_iter().for_each(|(a, reply)| assert_eq!(reply.wait().expect("a reply").value.sum, a + 1));
    let all: Vec<_> = client.request_all(&Add { a: 8, b: 0 }, SOON).expect("it is sent").collect();
    assert!(matches!(&all[..], [Ok(sample)] if sample.value.sum == 8), "{all:?}");
    there.undeclare().wait().expect("it ends");
    until("the server is gone", || client.servers().is_empty());
    assert!(matches!(call_for(&client, Duration::from_millis(50)), Err(CallError::NoServer)));
}

fn call_for(client: &Client<Add, Sum>, time: Duration) -> Result<Sum, CallError> {
    client.call(&Add { a: 9, b: 0 }, time)
}

#[test]
fn a_call_that_nobody_answers_ends_in_time_or_with_its_server() {
    let node = Node::new();
    let (endpoint, locator) = alone(&node, "");
    let client = client(&node, &format!("json@{endpoint}"));
    let session = plain(&locator);
    let (sender, kept) = mpsc::channel();
    let there = queryable(&session, move |query| drop(sender.send(query.clone())));
    client.wait_for_server(SOON).expect("a server");
    assert!(matches!(call_for(&client, Duration::from_millis(100)), Err(CallError::TimedOut)));
    // A reply that is late is nobody's.
    let query = kept.recv_timeout(SOON).expect("a query");
    query.reply("plant/add", r#"{"sum":1}"#).wait().expect("a reply");
    drop(query);
    let reply = client.request(&Add::default(), SOON).expect("it is sent");
    let query = kept.recv_timeout(SOON).expect("a query");
    drop(there);
    session.close().wait().expect("it closes");
    assert!(matches!(reply.wait(), Err(CallError::ServerGone { .. } | CallError::Remote(_))));
    drop(query);
}

#[test]
fn nodes_call_nodes_by_messages_and_leave_queryables_alone() {
    let (here, there) = (Node::new(), Node::new());
    let (endpoint, locator) = alone(&here, "");
    let session = plain(&locator);
    let (sender, asked) = mpsc::channel();
    let _other = queryable(&session, move |query| drop(sender.send(query.clone())));
    let _servers = [serve(&here, &format!("json@{endpoint}")), serve(&here, &format!("cdr@{endpoint}"))];
    let client = client(&there, &format!("json@{}", calling(&locator, "")));
    until("both are known", || client.servers().len() == 2);
    let sums = |client: &Client<Add, Sum>| {
        let replies = client.request_all(&Add { a: 1, b: 2 }, SOON).expect("it is sent");
        replies.map(|reply| reply.expect("a reply").value.sum).collect::<Vec<_>>()
    };
    assert_eq!(sums(&client), [3, 3]);
    // Past the time after which a queryable counts as somebody else's.
    std::thread::sleep(Duration::from_millis(800));
    assert_eq!((client.servers().len(), sums(&client)), (2, vec![3, 3]));
    assert!(asked.try_recv().is_err(), "the queryable was not asked");
}

/// A payload of ROS 2, and an attachment.
fn cdr(values: &[i64]) -> Vec<u8> {
    let values = values.iter().flat_map(|value| value.to_le_bytes());
    [0, 1, 0, 0].into_iter().chain(values).collect()
}

fn attachment(sequence: i64, gid: u8) -> Vec<u8> {
    [&sequence.to_le_bytes()[..], &1_700_000_000_000_000_000_i64.to_le_bytes(), &[16], &[gid; 16]].concat()
}

fn ros_key() -> String {
    format!("7/plant/add/{ROS_TYPE}/{ROS_HASH}")
}

/// Waits for a token of liveliness that ends like this.
fn until_token(session: &Session, end: &str) {
    let tokens = || session.liveliness().get("@ros2_lv/7/**").wait().expect("a query").into_iter();
    let is_it = |reply: Reply| reply.result().is_ok_and(|sample| sample.key_expr().as_str().ends_with(end));
    until("there is the token", || tokens().any(is_it));
}

#[test]
fn a_server_is_a_service_of_ros() {
    let node = Node::builder().name("hall-7").build();
    let (endpoint, locator) = alone(&node, "ros=true,domain=7,");
    let _server = serve(&node, &format!("cdr@{endpoint}"));
    let session = plain(&locator);
    until_token(&session, &format!("/SS/%/%/hall_7/%plant%add/{ROS_TYPE}/{ROS_HASH}/1:2:1,10:,:,:,,"));
    until_served(&session, &ros_key(), QueryTarget::AllComplete);
    let ask = |payload: Vec<u8>, attachment: Option<Vec<u8>>| {
        let query = session.get(ros_key()).payload(payload).target(QueryTarget::AllComplete).timeout(SOON);
        query.attachment(attachment).wait().expect("a query").into_iter().collect::<Vec<Reply>>()
    };
    let replies = ask(cdr(&[40, 2]), Some(attachment(17, 9)));
    let [reply] = &replies[..] else { panic!("{replies:?}") };
    let sample = reply.result().expect("a value");
    assert_eq!(&*sample.payload().to_bytes(), cdr(&[42]));
    let attached = sample.attachment().expect("one").to_bytes().into_owned();
    assert_eq!((&attached[..8], &attached[16..]), (&17_i64.to_le_bytes()[..], &[&[16][..], &[9; 16]].concat()[..]));
    assert!(ask(cdr(&[-1, 2]), Some(attachment(18, 9)))[0].result().is_err());
    assert!(ask(vec![0, 1, 0, 0, 1, 2, 3], Some(attachment(19, 9)))[0].result().is_err(), "it is cut off");
    assert!(ask(cdr(&[1, 2]), None).is_empty() && ask(cdr(&[1, 2]), Some(vec![7; 32])).is_empty());
}

#[test]
fn a_client_calls_a_service_of_ros() {
    let node = Node::builder().name("caller").build();
    let (endpoint, locator) = alone(&node, "ros=true,domain=7,");
    let client = client(&node, &format!("cdr@{endpoint}"));
    let session = plain(&locator);
    until_token(&session, &format!("/SC/%/%/caller/%plant%add/{ROS_TYPE}/{ROS_HASH}/1:2:1,10:,:,:,,"));
    let add = |query: Query| {
        let payload = query.payload().expect("a request").to_bytes().into_owned();
        let attached = query.attachment().expect("one").to_bytes().into_owned();
        assert_eq!((payload.len(), &payload[..4], attached.len()), (20, &[0, 1, 0, 0][..], 33));
        let number = |at: usize| i64::from_le_bytes(payload[at..at + 8].try_into().expect("eight bytes"));
        query.reply(ros_key(), cdr(&[number(4) + number(12)])).attachment(attached).wait().expect("a reply");
    };
    let _there = session.declare_queryable(ros_key()).complete(true).callback(add).wait().expect("a queryable");
    for a in 1..100 {
        assert_eq!(client.call(&Add { a, b: 2 }, SOON).expect("a reply"), Sum { sum: a + 2 });
    }
}

#[test]
fn services_that_ros_cannot_have_are_refused() {
    let node = Node::new();
    let (endpoint, _) = alone(&node, "ros=true,domain=7,");
    let open = |service: &str, wire: String| {
        node.service::<Sum, Add>(service, Some(&wire)).and_then(|service| service.open()).map(drop)
    };
    let error = open("plant/add", format!("cdr@{endpoint}")).expect_err("they are the wrong way round");
    assert!(error.to_string().contains("AddTwoInts"), "{error}");
    assert!(open("plant/add", format!("json@{endpoint}")).is_ok(), "it is for nodes alone");
}

/// A Python program with what it needs to know of a node; its output.
fn python(code: &str, locator: &str) -> (Child, BufReader<ChildStdout>) {
    let mut command = Command::new(tools::python());
    let command = command.args(["-u", "-c", code, locator]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let output = BufReader::new(child.stdout.take().expect("its output"));
    (child, output)
}

fn line(output: &mut impl BufRead) -> String {
    let mut line = String::new();
    output.read_line(&mut line).expect("a line");
    line.trim_end().to_owned()
}

const PYTHON: &str = r#"
import json, sys, time, zenoh
config = zenoh.Config.from_json5('{connect: {endpoints: ["%s"]}, scouting: {multicast: {enabled: false}}}' % sys.argv[1])
with zenoh.open(config) as session:
    def ask(request):
        for reply in session.get("plant/add", payload=json.dumps(request), encoding="application/json"):
            return reply.ok.payload.to_string() if reply.ok else "error: " + reply.err.payload.to_string()
    while not (said := ask({"a": 2, "b": 3})):
        time.sleep(0.05)
    print(said)
    print(ask({"a": -2, "b": 3}))
    def double(query):
        request = json.loads(query.payload.to_string())
        if request["a"] < 0:
            query.reply_err("negative")
        else:
            query.reply("plant/add", json.dumps({"sum": 2 * (request["a"] + request["b"])}), encoding="application/json")
    queryable = session.declare_queryable("python/add", double)
    print("serves")
    sys.stdin.read()
"#;

#[test]
fn a_python_client_calls_a_server_and_a_client_calls_python() {
    if !tools::python_has("zenoh") {
        return;
    }
    let node = Node::new();
    let (endpoint, locator) = alone(&node, "");
    let wire = format!("json@{endpoint}");
    let _server = serve(&node, &wire);
    let code = PYTHON.replace(r#"query.reply("plant/add""#, r#"query.reply("python/add""#);
    let (mut child, mut output) = python(&code, &locator);
    assert_eq!(line(&mut output), r#"{"sum":5}"#);
    assert_eq!(line(&mut output), "error: too little");
    assert_eq!(line(&mut output), "serves");
    let client = node.client::<Add, Sum>("python/add", Some(&wire)).and_then(|client| client.open());
    let client = client.expect("a client");
    assert_eq!(client.call(&Add { a: 2, b: 3 }, SOON).expect("a reply"), Sum { sum: 10 });
    let Err(CallError::Remote(error)) = client.call(&Add { a: -2, b: 3 }, SOON) else { panic!("an error") };
    assert_eq!(error.text, "negative");
    drop(child.stdin.take());
    assert!(child.wait().expect("it ends").success());
}

/// Does the same by a library that knows ROS 2.
const ROS_PYTHON: &str = r#"
import os, sys, time
from zenoh_ros2_sdk import ROS2ServiceClient, ROS2ServiceServer
of = dict(srv_type="example_interfaces/srv/AddTwoInts", request_definition="int64 a\nint64 b\n",
          response_definition="int64 sum\n", domain_id=7, router_ip="127.0.0.1", router_port=int(sys.argv[1]))
client = ROS2ServiceClient("/plant/add", timeout=5.0, **of)
for _ in range(100):
    if reply := client.call(a=2, b=3):
        break
    time.sleep(0.05)
print(reply.sum)
answer = lambda request: server.response_msg_class(sum=2 * (request.a + request.b))
server = ROS2ServiceServer("/python/add", callback=answer, **of)
print("serves")
sys.stdin.read()
os._exit(0) # The library's session would keep the interpreter.
"#;

#[test]
fn a_python_library_for_ros_calls_a_server_and_a_client_calls_it() {
    if !tools::python_has("zenoh_ros2_sdk") {
        return;
    }
    let node = Node::new();
    let (endpoint, locator) = alone(&node, "ros=true,domain=7,");
    let wire = format!("cdr@{endpoint}");
    let _server = serve(&node, &wire);
    let (mut child, mut output) = python(ROS_PYTHON, locator.rsplit(':').next().expect("a port"));
    let until = Instant::now() + SOON;
    let mut said = line(&mut output);
    while said != "5" {
        assert!(Instant::now() < until && !said.is_empty(), "Python says {said}");
        said = line(&mut output);
    }
    while line(&mut output) != "serves" {}
    let client = node.client::<Add, Sum>("python/add", Some(&wire)).and_then(|client| client.open());
    let client = client.expect("a client");
    assert_eq!(client.call(&Add { a: 2, b: 3 }, SOON).expect("a reply"), Sum { sum: 10 });
    drop(child.stdin.take());
    assert!(child.wait().expect("it ends").success());
}
