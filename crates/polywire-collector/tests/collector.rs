//! Handlers beside each other: one that is slow, fails or panics holds up no other, nothing that
//! was acknowledged is missing, and a new configuration loses nothing.

mod common;

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use common::{Folder, Number, Numbers, SOON, until};
use polywire::Node;
use polywire_collector::{
    Collector, CollectorConfig, CollectorError, Entry, Expects, Handler, HandlerError, Kind, Setting,
};
use serde_json::{Value, json};

/// A handler that does what its setting `mode` says.
struct Odd {
    mode: String,
    got: Vec<u64>,
}

/// How many of the numbers from 1 on the odd handlers have stored, and how often they were opened.
static STORED: Mutex<Vec<u64>> = Mutex::new(Vec::new());
static OPENED: AtomicU64 = AtomicU64::new(0);

/// What the handler that delays was given, and how often it was asked to store.
struct Delayed {
    written: Vec<u64>,
    calls: u64,
    opened: u64,
}

static DELAYED: Mutex<Delayed> = Mutex::new(Delayed { written: Vec::new(), calls: 0, opened: 0 });

static ODD: Kind = Kind {
    name: "odd",
    summary: "Fails, panics or hangs",
    settings: &[Setting { name: "mode", expects: Expects::Required, summary: "what it does" }],
    open: |settings, _| {
        let mode = settings.text("mode").unwrap_or_default().to_owned();
        let times = if mode == "fails" { OPENED.fetch_add(1, Ordering::Relaxed) } else { 0 };
        if mode == "delays" {
            DELAYED.lock().expect("not poisoned").opened += 1;
        }
        match mode.as_str() {
            "wrong" => Err(HandlerError::Setting("it is wrong".into())),
            "fails" if times < 2 => Err(HandlerError::Failed("the server is down".into())),
            _ => Ok(Box::new(Odd { mode, got: Vec::new() })),
        }
    },
};

impl Handler for Odd {
    fn write(&mut self, entry: &Entry) -> Result<(), HandlerError> {
        let number = entry.value.u64("number").expect("a number");
        match self.mode.as_str() {
            "slow" => thread::sleep(Duration::from_millis(20)),
            "refuses" if number.is_multiple_of(2) => return Err(HandlerError::Refused("it is even".into())),
            "panics" if number == 5 => panic!("five is too much"),
            "fails" if number == 7 && OPENED.fetch_add(1, Ordering::Relaxed) < 4 => {
                return Err(HandlerError::Failed("the disk is full".into()));
            }
            _ => {}
        }
        self.got.push(number);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), HandlerError> {
        match self.mode.as_str() {
            "fails" => STORED.lock().expect("not poisoned").append(&mut self.got),
            "delays" => {
                let mut delayed = DELAYED.lock().expect("not poisoned");
                delayed.written.append(&mut self.got);
                delayed.calls += 1;
                if delayed.calls % 2 == 1 && delayed.calls < 10 {
                    return Err(HandlerError::Delayed("the other end is slow".into()));
                }
            }
            _ => self.got.clear(),
        }
        Ok(())
    }
}

fn config(text: &str) -> CollectorConfig {
    CollectorConfig::parse_with(text, &[&ODD]).expect("valid")
}

/// A collector at an endpoint of its own, with these handlers.
fn collector(name: &str, handlers: &str) -> Collector {
    let mut collector = Collector::new(Node::new());
    collector.reload(&config(&format!("[collector]\nendpoints = ['inproc/{name}']\n{handlers}"))).expect("valid");
    collector
}

/// A collector whose handlers have stored the numbers from 1 to `last`.
fn collector_that_stores(name: &str, handlers: &str, last: u64) -> Collector {
    let mut collector = collector(name, handlers);
    let (numbers, counts) = Numbers::new(last);
    collector.add_source(Box::new(numbers)).expect("a thread");
    until("all is stored", || counts.acknowledged.load(Ordering::Acquire) == last);
    collector
}

#[test]
fn a_slow_handler_holds_up_no_other() {
    let handlers = "[handlers.quick]\nkind = 'null'\nsync = 0\n\
        [handlers.slow]\nkind = 'odd'\nmode = 'slow'\nqueue = 2\nsync = 0\noverflow = 'drop-oldest'";
    let mut collector = collector("slow", handlers);
    let (numbers, counts) = Numbers::new(500);
    collector.add_source(Box::new(numbers)).expect("a thread");
    until("the quick handler has everything", || collector.status()[0].stored == 500);
    until("all is stored or dropped", || counts.acknowledged.load(Ordering::Acquire) == 500);
    let slow = &collector.status()[1];
    assert_eq!((slow.received, slow.stored + slow.dropped), (500, 500));
    assert!(slow.dropped > 0, "{slow:?}");
}

#[test]
fn a_source_is_held_up_if_that_is_asked_for() {
    let handlers = "[handlers.slow]\nkind = 'odd'\nmode = 'slow'\nqueue = 2\nsync = 0\noverflow = 'block'";
    let collector = collector_that_stores("block", handlers, 30);
    assert_eq!((collector.status()[0].stored, collector.status()[0].dropped), (30, 0));
}

#[test]
fn bytes_that_a_handler_is_storing_are_bounded() {
    let handlers = "[handlers.null]\nkind = 'null'\nqueue_bytes = 1000\nsync = 3600\noverflow = 'block'";
    let mut collector = collector("bytes", handlers);
    let (numbers, counts) = Numbers::new(100);
    collector.add_source(Box::new(numbers)).expect("a thread");
    until("most is stored before the time", || counts.acknowledged.load(Ordering::Acquire) >= 80);
}

#[test]
fn what_a_failing_handler_had_not_stored_comes_again() {
    let handlers = "[handlers.odd]\nkind = 'odd'\nmode = 'fails'\noverflow = 'block'\nsync = 0";
    let collector = collector_that_stores("fails", handlers, 20);
    assert_eq!(*STORED.lock().expect("not poisoned"), (1..=20).collect::<Vec<_>>(), "once and in order");
    let status = &collector.status()[0];
    assert!(status.failures >= 2 && status.stored == 20 && status.problem.is_empty(), "{status:?}");
}

#[test]
fn a_handler_that_delays_stays_open_and_gets_nothing_again() {
    let handlers = "[handlers.odd]\nkind = 'odd'\nmode = 'delays'\noverflow = 'block'\nsync = 0";
    let collector = collector_that_stores("delays", handlers, 20);
    let delayed = DELAYED.lock().expect("not poisoned");
    assert_eq!((&delayed.written, delayed.opened), (&(1..=20).collect(), 1), "once and in order");
    drop(delayed);
    until("it works", || collector.status()[0].problem.is_empty());
    let status = &collector.status()[0];
    assert!(status.failures >= 1 && status.stored == 20, "{status:?}");
}

#[test]
fn an_entry_that_cannot_be_handled_is_counted() {
    let handlers = "[handlers.panics]\nkind = 'odd'\nmode = 'panics'\nsync = 0\n\
        [handlers.refuses]\nkind = 'odd'\nmode = 'refuses'\nsync = 0";
    let mut collector = collector("panics", handlers);
    let (numbers, counts) = Numbers::new(10);
    collector.add_source(Box::new(numbers)).expect("a thread");
    until("all is handled", || counts.acknowledged.load(Ordering::Acquire) == 10);
    let [panics, refuses] = &collector.status()[..] else { panic!("there are two") };
    assert_eq!((panics.stored, panics.refused, panics.failures), (9, 1, 3));
    assert_eq!((refuses.stored, refuses.refused), (5, 5));
    let (ended, _) = collector.stop(SOON);
    assert!(ended);
}

#[test]
fn a_handler_that_cannot_be_is_told_with_its_line() {
    let mut collector = Collector::new(Node::new());
    let text = "[collector]\nendpoints = ['inproc/wrong']\n[handlers.a]\nkind = 'null'\n[handlers.b]\nkind = 'odd'\nmode = 'wrong'";
    let error = collector.reload(&config(text)).expect_err("wrong");
    assert!(matches!(&error, CollectorError::Handler { line: 5, .. }), "{error:?}");
    assert_eq!(error.to_string(), "line 5: [handlers.b]: it is wrong");
    assert_eq!(collector.status().len(), 1, "the other one works");
}

#[test]
fn handlers_come_and_go_while_it_runs() {
    let folder = Folder::new("reload");
    let path = |name: &str| folder.file(name).display().to_string();
    let lines = |name: &str, rest: &str| {
        format!("[handlers.{name}]\nkind = 'jsonl'\npath = '{}'\nsync = 0\noverflow = 'block'\n{rest}\n", path(name))
    };
    let head = "[collector]\nendpoints = ['inproc/reload']\n";
    let mut collector = Collector::new(Node::new());
    collector.reload(&config(&format!("{head}{}{}", lines("a", ""), lines("b", "")))).expect("valid");
    let (numbers, counts) = Numbers::new(20_000);
    collector.add_source(Box::new(numbers)).expect("a thread");
    until("some are stored", || counts.acknowledged.load(Ordering::Acquire) > 100);
    // The first stays, the second changes, and there is a third one.
    let text = format!("{head}{}{}{}", lines("a", ""), lines("b", "queue = 7"), lines("c", ""));
    let changes = collector.reload(&config(&text)).expect("valid");
    assert_eq!((changes.opened, changes.closed), (vec!["b".to_owned(), "c".to_owned()], vec!["b".to_owned()]));
    let changes = collector.reload(&config(&text)).expect("valid");
    assert_eq!((changes.opened, changes.closed), (Vec::new(), Vec::new()));
    until("all is stored", || counts.acknowledged.load(Ordering::Acquire) == 20_000);
    let (ended, status) = collector.stop(SOON);
    assert!(ended && status.iter().all(|status| status.dropped == 0), "{status:?}");
    assert_eq!(folder.read("a").lines().count(), 20_000);
    assert_eq!(folder.read("b").lines().count(), 20_000, "nothing comes between its two forms");
    let third = folder.read("c").lines().count();
    assert!((1..20_000).contains(&third), "{third}");
}

#[test]
fn topics_reach_the_handlers_that_want_them() {
    let folder = Folder::new("topics");
    let path = |name: &str| folder.file(name).display().to_string();
    let text = format!(
        "[collector]\ntopics = ['plant/**', 'plant/a']\nendpoints = ['inproc/topics-a', 'inproc/topics-b']\n\
         serve = ['json@inproc/topics-served']\n\
         [handlers.all]\nkind = 'jsonl'\npath = '{}'\n\
         [handlers.one]\nkind = 'csv'\npath = '{}'\ntopics = ['*/b']",
        path("all.jsonl"),
        path("tables"),
    );
    let mut collector = Collector::new(Node::new());
    collector.reload(&config(&text)).expect("valid");
    let served = Node::new().subscriber_on::<Number>("plant/b", "inproc/topics-served").expect("a subscriber");
    let node = Node::new();
    let a = node.publisher_on::<Number>("plant/a", "cdr@inproc/topics-a").expect("a publisher");
    let b = node.publisher_on::<Number>("plant/b", "msgpack@inproc/topics-b").expect("a publisher");
    let other = node.publisher_on::<Number>("other", "cdr@inproc/topics-a").expect("a publisher");
    assert!(a.wait_for_subscribers(2, SOON) >= 2 && b.wait_for_subscribers(2, SOON) >= 2);
    for number in 1..=3 {
        let number = Number { number, text: "a, \"b\"".into() };
        for publisher in [&a, &b, &other] {
            publisher.publish(&number).expect("published");
        }
    }
    let sample = served.recv_timeout(SOON).expect("it is served");
    assert_eq!((sample.value.number, sample.info.source.announcement.codec.as_str()), (1, "json"));
    until("all came", || collector.status()[0].received == 6);
    let (ended, status) = collector.stop(SOON);
    assert!(ended && (status[0].stored, status[1].stored) == (6, 3), "{status:?}");
    let lines = folder.read("all.jsonl");
    let end = r#","kind":"data","value":{"number":3,"text":"a, \"b\""}}"#;
    let last = lines.lines().rfind(|line| line.contains(r#""topic":"plant/b","type":"test::Number","writer":""#));
    assert!(last.expect("a line").ends_with(end), "{lines}");
    let table = fs::read_to_string(folder.file("tables").join("test.Number.csv")).expect("a table");
    let rows: Vec<&str> = table.lines().collect();
    assert_eq!(rows[0], "_topic,_writer,_incarnation,_sequence,_timestamp_ns,_kind,number,text");
    assert!(
        rows.len() == 4 && rows[3].starts_with("plant/b,") && rows[3].ends_with(r#",data,3,"a, ""b""""#),
        "{table}"
    );
}

/// Those that come later are not waited for.
#[test]
fn a_topic_that_never_pauses_does_not_hold_up_the_end() {
    let text = "[collector]\ntopics = ['busy']\nendpoints = ['inproc/busy']\n[handlers.none]\nkind = 'null'";
    let mut collector = Collector::new(Node::new());
    collector.reload(&config(text)).expect("valid");
    let publisher = Node::new().publisher_on::<Number>("busy", "cdr@inproc/busy").expect("a publisher");
    assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
    let ends = AtomicBool::new(false);
    let took = thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Acquire) {
                publisher.publish(&Number::default()).expect("published");
                thread::sleep(Duration::from_millis(10));
            }
        });
        until("some came", || collector.status()[0].received > 3);
        let start = Instant::now();
        assert!(collector.stop(SOON).0);
        ends.store(true, Ordering::Release);
        start.elapsed()
    });
    assert!(took < SOON / 2, "{took:?}");
}

/// The file has what is there now, also if nothing comes any more.
#[test]
fn numbers_for_prometheus_go_when_nobody_publishes_them() {
    let folder = Folder::new("prometheus");
    let path = folder.file("a.prom").display().to_string();
    let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port");
    let handlers =
        format!("[handlers.prom]\nkind = 'prometheus'\npath = '{path}'\nserve = '{address}'\nsync = 0\nexpire = 4");
    let mut collector = collector("prometheus", &handlers);
    let (numbers, _) = Numbers::new(3);
    collector.add_source(Box::new(numbers)).expect("a thread");
    let read = || fs::read_to_string(&path).unwrap_or_default();
    let expected = "# TYPE test_Number_number gauge\ntest_Number_number{topic=\"test/numbers\",member=\"number\"} 3\n";
    let served = || {
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("sent");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("a reply");
        reply.split_once("\r\n\r\n").expect("a body").1.to_owned()
    };
    until("the number is there", || read() == expected && served() == expected);
    until("the number is gone", || read().is_empty() && served().is_empty());
    drop(collector);
    assert!(TcpStream::connect(address).is_err(), "it ends with the handler");
}

#[test]
fn metrics_are_served_at_this_machine_alone() {
    for (setting, expected) in [
        ("serve = '0.0.0.0:0'", "line 3: [handlers.a]: 'serve': other machines could reach it"),
        ("serve = 'here'", "line 3: [handlers.a]: 'serve': an address such as 127.0.0.1:9464 is expected, not 'here'"),
        ("path = '127.0.0.1:0'", "line 3: [handlers.a]: 'path': 127.0.0.1:0 is an address; 'serve' serves"),
        ("", "line 3: [handlers.a]: 'path' or 'serve' is missing"),
    ] {
        let text = format!("[collector]\nendpoints = ['inproc/metrics']\n[handlers.a]\nkind = 'prometheus'\n{setting}");
        let error = Collector::new(Node::new()).reload(&config(&text)).expect_err(setting).to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

/// Takes requests, and answers the first one with a failure. Returns their bodies.
fn metrics_server(listener: &TcpListener, requests: usize) -> Vec<Value> {
    let mut bodies = Vec::new();
    for number in 0..requests {
        let (mut stream, _) = listener.accept().expect("a request");
        let (mut request, mut part) = (Vec::new(), [0; 4096]);
        let body = loop {
            let read = stream.read(&mut part).expect("a part");
            assert!(read > 0, "the request ends early");
            request.extend_from_slice(&part[..read]);
            let Some(end) = request.windows(4).position(|end| end == b"\r\n\r\n") else { continue };
            if let Ok(body) = serde_json::from_slice(&request[end + 4..]) {
                break body;
            }
        };
        let head = String::from_utf8_lossy(&request);
        assert!(
            head.starts_with("POST /v1/metrics HTTP/1.0\r\n") && head.contains("Content-Type: application/json\r\n")
        );
        let status = if number == 0 { "503 Service Unavailable" } else { "200 OK" };
        let reply = format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\n{{}}");
        stream.write_all(reply.as_bytes()).expect("sent");
        bodies.push(body);
    }
    bodies
}

#[test]
fn numbers_reach_a_server_of_opentelemetry_in_the_end() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let server = thread::spawn(move || metrics_server(&listener, 2));
    let handlers = format!("[handlers.export]\nkind = 'otlp'\nto = 'http://{address}'\noverflow = 'block'\nsync = 60");
    let mut collector = collector("otlp", &handlers);
    let (numbers, counts) = Numbers::new(3);
    collector.add_source(Box::new(numbers)).expect("a thread");
    until("all came", || counts.given.load(Ordering::Acquire) == 3);
    let (ended, status) = collector.stop(SOON);
    assert!(ended && (status[0].stored, status[0].failures) == (3, 1), "{status:?}");
    let bodies = server.join().expect("it ends");
    assert_eq!(bodies[0], bodies[1], "what was not taken comes again");
    let resource = &bodies[1]["resourceMetrics"][0];
    assert_eq!(resource["resource"]["attributes"][0]["key"], "service.name");
    let metrics = &resource["scopeMetrics"][0]["metrics"];
    let expected = json!({
        "name": "test.Number.number",
        "gauge": { "dataPoints": [{
            "timeUnixNano": "3",
            "asInt": "3",
            "attributes": [{ "key": "topic", "value": { "stringValue": "test/numbers" } }],
        }] },
    });
    assert_eq!((metrics.as_array().map(Vec::len), &metrics[2]), (Some(3), &expected));
}

#[test]
fn a_collector_stops_with_patience_of_any_length() {
    let mut collector = collector("patience", "[handlers.none]\nkind = 'null'");
    let (ended, _) = collector.stop(Duration::MAX);
    assert!(ended);
}
