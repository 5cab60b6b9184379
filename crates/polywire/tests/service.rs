//! Request and reply from end to end, on each engine built in.

use std::{
    future::poll_fn,
    io::{BufRead as _, BufReader, Read as _},
    pin::{Pin, pin},
    process::Stdio,
    sync::{Arc, mpsc},
    task::{Context, Poll, Wake, Waker},
    thread,
    time::Duration,
};

use futures_core::Stream;
use polywire::{
    Config, Message, Node,
    qos::Qos,
    service::{CallError, Client, Server, Service},
};
use polywire_core::rpc::{self, RemoteCode};
use polywire_testing::{
    endpoints, free_path,
    waiting::{Process, SOON, process_of, until},
};

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Add_Request")]
struct Add {
    a: i64,
    b: i64,
}

/// The request as a later version has it.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Add_Request")]
struct AddAndScale {
    b: i64,
    a: i64,
    scale: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Add_Response")]
struct Sum {
    sum: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Add_Response")]
struct OtherSum {
    sum: String,
}

type AddClient = Client<Add, Sum>;
type AddService = Service<Add, Sum>;

/// Two nodes, and where they meet.
struct Place {
    server: Node,
    client: Node,
    serve_at: String,
    call_at: String,
}

impl Place {
    fn serve(&self, name: &str, format: &str) -> AddService {
        let wire = format!("{format}@{}", self.serve_at);
        self.server.service(name, Some(&wire)).expect("a place").open().expect("a service")
    }

    fn adder(&self, name: &str, format: &str) -> Server {
        let wire = format!("{format}@{}", self.serve_at);
        let service = self.server.service::<Add, Sum>(name, Some(&wire)).expect("a place");
        let add = |add: &Add, _: &_| add.a.checked_add(add.b).map(|sum| Sum { sum }).ok_or("too large");
        service.on_request(2, add).expect("a server")
    }

    fn client(&self, name: &str, format: &str) -> AddClient {
        let wire = format!("{format}@{}", self.call_at);
        self.client.client(name, Some(&wire)).expect("a place").open().expect("a client")
    }
}

fn path(name: &str) -> String {
    free_path(name).display().to_string()
}

/// A place on each engine: within one node, between nodes of a process, over sockets.
fn places(test: &str) -> Vec<Place> {
    let between = |endpoint: String| {
        let (server, client) = (Node::new(), Node::new());
        let call_at = endpoints::second(&server.open(&endpoint).expect("it opens"));
        Place { server, client, serve_at: endpoint, call_at }
    };
    let own = Node::new();
    let at = format!("inproc/service-own-{test}");
    #[allow(unused_mut, reason = "without further engines")]
    let mut places = vec![
        Place { server: own.clone(), client: own, serve_at: at.clone(), call_at: at },
        between(format!("inproc/service-{test}")),
        between("tcp/127.0.0.1:0".into()),
        between(format!("unix/{}", path(test))),
        between(format!("local/{}-local", path(test))),
        between("udp-reliable/127.0.0.1:0".into()),
    ];
    #[cfg(feature = "shm")]
    places.push(between(format!("shm/{}-shm", path(test))));
    #[cfg(feature = "zeromq")]
    places.push(between("zeromq/bind/tcp://127.0.0.1:0".into()));
    #[cfg(feature = "dds")]
    places.push(between(format!("dds/{}?interface=127.0.0.1", polywire_testing::domains::lease())));
    #[cfg(feature = "zenoh")]
    places.push(between("zenoh/peer?scouting=off,listen=tcp/127.0.0.1:0".into()));
    places
}

fn near(test: &str) -> Place {
    places(test).swap_remove(1)
}

fn add(a: i64, b: i64) -> Add {
    Add { a, b }
}

#[test]
fn calls_are_answered_on_every_engine() {
    for place in places("all") {
        let at = place.serve_at.clone();
        let client = place.client("add", "cdr");
        let _server = place.adder("add", "json");
        for a in 0..20 {
            assert_eq!(client.call(&add(a, 1), SOON).expect(&at), Sum { sum: a + 1 }, "{at}");
        }
        let Err(CallError::Remote(error)) = client.call(&add(i64::MAX, 1), SOON) else { panic!("{at}") };
        assert_eq!((error.code, error.text.as_str()), (RemoteCode::Failed, "too large"), "{at}");
        assert_eq!(client.servers().len(), 1, "{at}");
    }
}

#[test]
fn every_format_carries_calls_also_stateful_and_compressed() {
    let place = near("formats");
    for format in ["cdr", "xcdr2", "json", "protobuf", "msgpack", "fast", "fast:mode=chained", "json+zlib", "fast+zlib"]
    {
        let _server = place.adder(format, format);
        // Each of them reads some of the replies only.
        let clients = [place.client(format, format), place.client(format, format)];
        for a in 0..6 {
            let client = &clients[usize::from(a % 3 == 0)];
            assert_eq!(client.call(&add(a, 5), SOON).expect(format), Sum { sum: a + 5 }, "{format}");
        }
        let Err(CallError::Remote(_)) = clients[0].call(&add(i64::MAX, 1), SOON) else { panic!("{format}") };
        assert_eq!(clients[0].call(&add(1, 1), SOON).expect(format), Sum { sum: 2 }, "{format}");
    }
}

#[test]
fn several_calls_are_under_way_and_answered_in_any_order() {
    for place in places("order") {
        let at = place.serve_at.clone();
        let (service, client) = (place.serve("add", "cdr"), place.client("add", "cdr"));
        client.wait_for_server(SOON).expect(&at);
        let replies: Vec<_> = (0..50).map(|a| client.request(&add(a, 0), SOON).expect(&at)).collect();
        let mut requests: Vec<_> = (0..50).map(|_| service.recv_timeout(SOON).expect(&at)).collect();
        requests.reverse();
        for request in requests {
            let sum = request.value().a + request.value().b;
            request.reply(&Sum { sum }).expect(&at);
        }
        for (a, reply) in replies.into_iter().enumerate() {
            let sample = reply.wait().expect(&at);
            assert_eq!(sample.value.sum, a as i64, "{at}");
            assert_eq!(sample.info.source.announcement.writer, service.id(), "{at}");
        }
    }
}

#[test]
fn types_evolve_as_those_of_topics() {
    let place = near("evolve");
    let wire = format!("json@{}", place.serve_at);
    let service = place.server.service::<AddAndScale, Sum>("add", Some(&wire)).expect("a place");
    let scaled = |add: &AddAndScale, _: &_| Ok::<_, String>(Sum { sum: (add.a + add.b) * add.scale.unwrap_or(10) });
    let _server = service.on_request(1, scaled).expect("a server");
    assert_eq!(place.client("add", "json").call(&add(1, 2), SOON).expect("a reply"), Sum { sum: 30 });
}

#[test]
fn types_that_do_not_match_are_told_at_once() {
    for (number, place) in places("mismatch").into_iter().enumerate() {
        let at = place.serve_at.clone();
        let wire = format!("cdr@{}", place.serve_at);
        // Either the server cannot read the requests, or the client the replies.
        let (_requests, _replies);
        if number % 2 == 0 {
            _requests = place.server.service::<OtherSum, Sum>("add", Some(&wire)).expect("a place").open();
        } else {
            _replies = place.server.service::<Add, OtherSum>("add", Some(&wire)).expect("a place").open();
        }
        let client = place.client("add", "cdr");
        let Err(CallError::Refused { reason }) = client.call(&add(1, 2), SOON) else { panic!("{at}") };
        let expected = if number % 2 == 0 { "" } else { "the writer has string, the reader int64" };
        assert!(reason.contains(expected) && !reason.is_empty(), "{at}: {reason}");
    }
}

#[test]
fn a_refusal_is_forgotten_when_its_server_has_gone() {
    let place = near("forget");
    let wire = format!("cdr@{}", place.serve_at);
    let other = place.server.service::<Add, OtherSum>("add", Some(&wire)).expect("a place").open().expect("a service");
    let client = place.client("add", "cdr");
    assert!(matches!(client.call(&add(1, 2), SOON), Err(CallError::Refused { .. })));
    drop(other);
    assert!(matches!(client.request(&add(1, 2), SOON), Err(CallError::NoServer)));
    let _server = place.adder("add", "cdr");
    assert_eq!(client.call(&add(1, 2), SOON).expect("a reply"), Sum { sum: 3 });
}

#[test]
fn who_has_no_server_or_gets_no_reply_is_told() {
    let place = near("errors");
    let client = place.client("add", "cdr");
    assert!(matches!(client.call(&add(1, 2), Duration::from_millis(20)), Err(CallError::NoServer)));
    assert!(matches!(client.request(&add(1, 2), SOON), Err(CallError::NoServer)));
    let service = place.serve("add", "cdr");
    assert!(matches!(client.call(&add(1, 2), Duration::from_millis(20)), Err(CallError::TimedOut)));
    let late = service.recv_timeout(SOON).expect("the request");
    until("the call is cancelled", || late.is_cancelled());
    late.reply(&Sum { sum: 3 }).expect("skipped");
    assert_eq!(client.request(&add(1, 2), SOON).map(|_| ()).err().map(|e| e.to_string()), None);
    drop(service.recv_timeout(SOON).expect("the request that was dropped"));
    let reply = client.request(&add(1, 2), SOON).expect("sent");
    drop(service.recv_timeout(SOON).expect("the request"));
    let Err(CallError::Remote(error)) = reply.wait() else { panic!("an error") };
    assert_eq!(error.text, "the server dropped the request");
    let reply = client.request(&add(1, 2), SOON).expect("sent");
    service.recv_timeout(SOON).expect("the request").fail("no");
    assert_eq!(reply.wait().expect_err("failed").to_string(), "no");
    let reply = client.request(&add(1, 2), SOON).expect("sent");
    drop(client);
    assert!(matches!(reply.wait(), Err(CallError::Closed)));
}

#[test]
fn a_panic_of_the_callback_is_an_error_of_its_call_alone() {
    let place = near("panic");
    let wire = format!("cdr@{}", place.serve_at);
    let service = place.server.service::<Add, Sum>("add", Some(&wire)).expect("a place");
    let divide = |add: &Add, _: &_| Ok::<_, String>(Sum { sum: add.a.checked_div(add.b).expect("a divisor") });
    let _server = service.on_request(1, divide).expect("a server");
    let client = place.client("add", "cdr");
    let Err(CallError::Remote(error)) = client.call(&add(1, 0), SOON) else { panic!("an error") };
    assert_eq!((error.code, error.text.as_str()), (RemoteCode::Failed, "the server panicked"));
    assert_eq!(client.call(&add(6, 2), SOON).expect("a reply"), Sum { sum: 3 });
}

#[test]
fn calls_are_bounded_on_both_sides() {
    let place = near("bounds");
    let wire = format!("cdr@{}", place.serve_at);
    let service = place.server.service::<Add, Sum>("add", Some(&wire)).expect("a place").concurrent(2);
    let service = service.open().expect("a service");
    let client = place.client.client::<Add, Sum>("add", Some(&wire)).expect("a place").pending(4);
    let client = client.open().expect("a client");
    client.wait_for_server(SOON).expect("a server");
    let mut replies: Vec<_> = (0..4).map(|a| client.request(&add(a, 0), SOON).expect("sent")).collect();
    assert!(matches!(client.request(&add(9, 0), SOON), Err(CallError::TooMany { limit: 4 })));
    for busy in replies.drain(2..) {
        let Err(CallError::Remote(error)) = busy.wait() else { panic!("it is busy") };
        assert_eq!(error.code, RemoteCode::Busy);
    }
    for _ in 0..2 {
        let request = service.recv_timeout(SOON).expect("a request");
        let sum = request.value().a;
        request.reply(&Sum { sum }).expect("sent");
    }
    let sums = replies.into_iter().map(|reply| reply.wait().expect("a reply").value.sum);
    assert_eq!(sums.collect::<Vec<_>>(), [0, 1]);
    let reply = client.request(&add(9, 0), SOON).expect("there is room again");
    service.recv_timeout(SOON).expect("a request").reply(&Sum { sum: 9 }).expect("sent");
    assert_eq!(reply.wait().expect("a reply").value.sum, 9);
}

#[test]
fn a_server_that_closes_fails_its_calls_at_once() {
    for place in places("closes") {
        let at = place.serve_at.clone();
        let (service, client) = (place.serve("add", "cdr"), place.client("add", "cdr"));
        client.wait_for_server(SOON).expect(&at);
        let [taken, waiting] = [1, 2].map(|a| client.request(&add(a, 0), SOON).expect(&at));
        let request = service.recv_timeout(SOON).expect(&at);
        drop(service);
        // The client sees the server as long as it may reply to the request that it took.
        let late = client.request(&add(3, 0), SOON).expect(&at);
        for refused in [waiting, late] {
            let error = refused.wait().expect_err(&at);
            assert!(matches!(error, CallError::Remote(_) | CallError::ServerGone { .. }), "{at}: {error}");
        }
        drop(request);
        let error = taken.wait().expect_err(&at);
        assert!(matches!(error, CallError::Remote(_) | CallError::ServerGone { .. }), "{at}: {error}");
        until("the server is forgotten", || client.servers().is_empty());
    }
}

#[test]
fn a_call_that_waits_for_a_server_reaches_the_one_that_comes() {
    for place in places("comes") {
        let at = place.serve_at.clone();
        // The nodes know each other, so that requests have been announced when the server comes.
        let _first = place.adder("first", "cdr");
        place.client("first", "cdr").wait_for_server(SOON).expect(&at);
        for round in 0..20 {
            let name = format!("late-{round}");
            let client = place.client(&name, "cdr");
            let call = thread::spawn(move || client.call(&add(1, 2), SOON));
            let _server = place.adder(&name, "cdr");
            assert_eq!(call.join().expect("no panic").expect(&at).sum, 3, "{at}, round {round}");
        }
    }
}

#[test]
fn a_server_sees_that_nobody_waits() {
    for place in places("cancel") {
        let at = place.serve_at.clone();
        let (service, client) = (place.serve("add", "cdr"), place.client("add", "cdr"));
        client.wait_for_server(SOON).expect(&at);
        let [dropped, kept] = [1, 2].map(|a| client.request(&add(a, 0), SOON).expect(&at));
        let [first, second] = [(); 2].map(|()| service.recv_timeout(SOON).expect(&at));
        assert!(!first.is_cancelled() && !second.is_cancelled(), "{at}");
        drop(dropped);
        until("the call is cancelled", || first.is_cancelled());
        assert!(!second.is_cancelled(), "{at}");
        drop(client);
        until("the client has gone", || second.is_cancelled());
        drop(kept);
    }
}

#[test]
fn one_of_several_servers_answers_or_all_do() {
    for place in places("several") {
        let at = place.serve_at.clone();
        let services = [place.serve("add", "cdr"), place.serve("add", "cdr"), place.serve("add", "cdr")];
        let client = place.client("add", "cdr");
        until("all servers", || client.servers().len() == 3);
        // Each gets one of three calls.
        let replies: Vec<_> = (0..3).map(|a| client.request(&add(a, 0), SOON).expect(&at)).collect();
        for service in &services {
            service.recv_timeout(SOON).expect(&at).reply(&Sum { sum: 1 }).expect(&at);
        }
        replies.into_iter().for_each(|reply| assert_eq!(reply.wait().expect(&at).value.sum, 1));
        assert!(services.iter().all(|service| service.recv_timeout(Duration::ZERO).is_none()), "{at}");
        // All get one call.
        let replies = client.request_all(&add(0, 0), SOON).expect(&at);
        for (sum, service) in services.iter().enumerate() {
            service.recv_timeout(SOON).expect(&at).reply(&Sum { sum: sum as i64 }).expect(&at);
        }
        let mut sums: Vec<_> = replies.map(|reply| reply.expect(&at).value.sum).collect();
        sums.sort();
        assert_eq!(sums, [0, 1, 2], "{at}");
        // What is missing at the end is an error.
        let mut replies = client.request_all(&add(0, 0), Duration::from_millis(100)).expect(&at);
        assert!(matches!(replies.next(), Some(Err(CallError::TimedOut))), "{at}");
        assert!(replies.next().is_none(), "{at}");
    }
}

#[test]
fn calls_pass_a_relay() {
    let relay = Node::new();
    let endpoint = relay.open("tcp/127.0.0.1:0").expect("it listens");
    let place = Place { server: Node::new(), client: Node::new(), serve_at: endpoint.clone(), call_at: endpoint };
    let client = place.client("add", "cdr");
    let server = place.adder("add", "cdr");
    assert_eq!(client.call(&add(1, 2), SOON).expect("a reply"), Sum { sum: 3 });
    drop(server);
    until("the server is forgotten", || client.servers().is_empty());
}

#[test]
fn rules_say_who_may_call_and_serve() {
    let who = rustix::process::getuid().as_raw();
    let node = |rule: &str| {
        let rules = format!("[[access.allow]]\nusers = [{who}]\npublish = ['**']\nsubscribe = ['**']\n{rule}");
        Node::builder().config(Config::parse(&rules).expect("rules")).build()
    };
    for (rule, allowed) in [("request = ['plant/*']", true), ("serve = ['plant/*']", false)] {
        let endpoint = format!("unix/{}-{allowed}", path("access"));
        let place = Place { server: node(rule), client: Node::new(), serve_at: endpoint.clone(), call_at: endpoint };
        let _server = place.adder("plant/add", "cdr");
        let client = place.client("plant/add", "cdr");
        match client.call(&add(1, 2), SOON) {
            Ok(sum) => assert!(allowed && sum.sum == 3),
            Err(CallError::Denied { reason }) => {
                let text = format!("access denied: no rule allows 'user {who}' to request service 'plant/add'");
                assert!(!allowed && reason == text, "{reason}");
            }
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn policies_without_a_meaning_are_refused() {
    let place = near("policies");
    let builder = || place.client.client::<Add, Sum>("add", Some(&place.call_at)).expect("a place");
    let lifespan = Qos::services().lifespan(Duration::from_secs(1));
    assert!(builder().qos(lifespan).is_err());
    assert!(builder().qos(Qos::services().partition(["a"])).is_ok());
    let client = builder().qos(Qos::services().partition(["a"])).expect("valid").open().expect("a client");
    let _server = place.adder("add", "cdr");
    assert!(matches!(client.call(&add(1, 2), Duration::from_millis(50)), Err(CallError::NoServer)));
}

#[test]
fn requests_and_replies_are_topics_that_can_be_watched() {
    let place = near("watch");
    let wire = format!("cdr@{}", place.serve_at);
    let requests = place.server.subscriber_on::<Add>(&rpc::request_topic("add"), &wire).expect("subscribes");
    let replies = place.server.subscriber_on::<Sum>(&rpc::reply_topic("add"), &wire).expect("subscribes");
    let _server = place.adder("add", "cdr");
    place.client("add", "cdr").call(&add(1, 2), SOON).expect("a reply");
    assert_eq!(requests.recv_timeout(SOON).expect("the request").value, add(1, 2));
    assert_eq!(replies.recv_timeout(SOON).expect("the reply").value, Sum { sum: 3 });
}

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread, as the smallest of all runtimes.
fn run<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park_timeout(SOON),
        }
    }
}

async fn next<S: Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
    poll_fn(|context| Pin::new(&mut *stream).poll_next(context)).await
}

#[test]
fn clients_and_servers_are_futures_and_streams() {
    for place in places("async") {
        let at = place.serve_at.clone();
        let (mut service, client) = (place.serve("add", "cdr"), place.client("add", "cdr"));
        let server = thread::spawn(move || {
            run(async {
                for _ in 0..2 {
                    let request = next(&mut service).await.expect("a request");
                    let sum = request.value().a + request.value().b;
                    request.reply(&Sum { sum }).expect("sent");
                }
            });
            service
        });
        run(async {
            client.ready(SOON).await.expect(&at);
            assert_eq!(client.call_async(&add(1, 2), SOON).await.expect(&at), Sum { sum: 3 });
            let mut replies = client.request_all(&add(3, 4), SOON).expect(&at);
            assert_eq!(next(&mut replies).await.expect("one").expect(&at).value, Sum { sum: 7 });
            assert!(next(&mut replies).await.is_none());
        });
        let service = server.join().expect("it ends");
        // A call that is dropped while it waits is cancelled.
        let dropped = add(1, 2);
        let mut call = Box::pin(client.call_async(&dropped, SOON));
        assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let request = service.recv_timeout(SOON).expect("the request");
        drop(call);
        until("the call is cancelled", || request.is_cancelled());
    }
}

/// Not a test by itself: a process that serves and never answers. Ends with its standard input.
#[test]
#[ignore = "run by another test"]
fn server_process() {
    let wire = std::env::var("POLYWIRE_TEST_WIRE").expect("a wire");
    let node = Node::new();
    let service: AddService = node.service("add", Some(&wire)).expect("a place").open().expect("a service");
    println!("ready");
    thread::spawn(move || service.iter().for_each(std::mem::forget));
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
fn a_server_that_is_killed_fails_its_calls_at_once() {
    let wire = format!("cdr@local/{}", path("killed"));
    let mut command = process_of("server_process");
    command.env("POLYWIRE_TEST_WIRE", &wire);
    let mut process = Process(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts"));
    let (send, ready) = mpsc::channel();
    let out = BufReader::new(process.0.stdout.take().expect("an output"));
    thread::spawn(move || {
        let mut lines = out.lines().map_while(Result::ok);
        let _ = send.send(lines.any(|line| line.contains("ready")));
        lines.for_each(drop);
    });
    assert!(ready.recv_timeout(SOON).expect("it says so"));
    let node = Node::new();
    let client: AddClient = node.client("add", Some(&wire)).expect("a place").open().expect("a client");
    client.wait_for_server(SOON).expect("a server");
    let reply = client.request(&add(1, 2), Duration::from_secs(3600)).expect("sent");
    process.0.kill().expect("killed");
    assert!(matches!(reply.wait(), Err(CallError::ServerGone { .. })));
}
