//! Relays that are processes of their own take over from each other, and reliable topics lose
//! nothing, whichever way the relay ends.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Lines, Read as _},
    process::{ChildStdout, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use polywire::{
    Config, Message, Node, NodeEvent, Publisher, Subscription,
    engine::Event,
    qos::{Qos, Reliability},
};
use polywire_testing::waiting::{Process, SOON, process_of, until};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Plant::Reading")]
struct Reading {
    #[polywire(key)]
    plant: u32,
    count: u64,
    label: String,
}

/// What one subscriber got of each topic: how many messages, and the last count.
#[derive(Clone, Default)]
struct Got(Arc<Mutex<BTreeMap<String, (u64, u64)>>>);

impl Got {
    fn of(&self, topic: &str) -> (u64, u64) {
        self.0.lock().expect("no panic").get(topic).copied().unwrap_or_default()
    }

    /// Subscribes, and checks that each count comes once and in order.
    fn subscribe(&self, node: &Node, topic: &str, wire: &str) -> Subscription {
        self.subscribe_with(node, topic, wire, Qos::default())
    }

    fn subscribe_with(&self, node: &Node, topic: &str, wire: &str, qos: Qos) -> Subscription {
        let got = self.clone();
        let subscribe = node.subscribe::<Reading>(topic, Some(wire)).expect("a subscriber");
        subscribe.qos(qos).expect("policies").on_message_inline(move |reading, info| {
            let mut all = got.0.lock().expect("no panic");
            let (messages, last) = all.entry(info.topic().into()).or_default();
            assert!(reading.count > *last, "{}: {} after {last}", info.topic(), reading.count);
            (*messages, *last) = (*messages + 1, reading.count);
        })
    }
}

/// Nobody is given up because the machine is busy.
const PATIENT: &str = "[engine]\npatience_ms = 60000\nlease_ms = 60000";

/// Not a test by itself: a relay. Says where it listens, and ends with its standard input.
#[test]
#[ignore = "run by another test"]
fn relay() {
    let [endpoint, config] = ["ENDPOINT", "CONFIG"].map(|name| std::env::var(format!("POLYWIRE_TEST_{name}")));
    let (endpoint, config) = (endpoint.expect("an endpoint"), config.expect("a configuration"));
    let node = Node::builder().config(Config::parse(&config).expect("valid")).build();
    let events = node.events();
    node.open(&endpoint).expect("opened");
    thread::spawn(move || {
        while let Some(event) = events.recv_timeout(SOON) {
            match event {
                NodeEvent::Engine { event: Event::Listening { endpoint }, .. } => println!("relays at {endpoint}"),
                NodeEvent::Engine { event: Event::Connected(_), .. } => println!("connected"),
                _ => {}
            }
        }
    });
    let _ = std::io::stdin().read(&mut [0]);
}

struct Relay {
    process: Process,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Relay {
    fn start(endpoint: &str, config: &str) -> Relay {
        let mut command = process_of("relay");
        command.env("POLYWIRE_TEST_ENDPOINT", endpoint).env("POLYWIRE_TEST_CONFIG", config);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("started");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        Relay { process: Process(child), lines }
    }

    /// Waits for a line with these words, and gives what follows them.
    fn says(&mut self, words: &str) -> String {
        let lines = self.lines.by_ref().map_while(Result::ok);
        let found = lines.filter_map(|line| Some(line.split_once(words)?.1.to_owned())).next();
        found.unwrap_or_else(|| panic!("the relay did not say: {words}"))
    }

    /// A relay at a port that the system chose, and its endpoint.
    fn first(config: &str) -> (Relay, String) {
        let mut relay = Relay::start("tcp/127.0.0.1:0", config);
        let endpoint = relay.says("relays at ");
        (relay, endpoint)
    }

    /// A relay that stands by at the endpoint.
    fn second(endpoint: &str) -> Relay {
        let mut relay = Relay::start(endpoint, PATIENT);
        relay.says("connected");
        relay
    }

    /// Ends it as a service manager does: it says goodbye.
    fn leave(mut self) {
        drop(self.process.0.stdin.take());
        assert!(self.process.0.wait().expect("it is there").success());
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process.0), signal).expect("it is there");
    }

    /// Suspends it, and waits until it does nothing more.
    fn suspend(&self) {
        self.signal(Signal::STOP);
        let stopped = waitpid(Some(Pid::from_child(&self.process.0)), WaitOptions::UNTRACED).expect("it is there");
        assert!(stopped.is_some_and(|(_, status)| status.stopped()));
    }
}

/// A publisher that publishes 1, 2, 3, ... until it is told to end.
struct Source {
    stop: Arc<AtomicBool>,
    thread: thread::JoinHandle<(u64, Publisher<Reading>)>,
}

impl Source {
    fn start(publisher: Publisher<Reading>, pause: Option<Duration>) -> Source {
        let stop = Arc::<AtomicBool>::default();
        let stopped = stop.clone();
        let thread = thread::spawn(move || {
            let mut count = 0;
            while !stopped.load(Ordering::Relaxed) {
                count += 1;
                let reading = Reading { plant: 7, count, label: format!("reading {}", count / 8) };
                publisher.publish(&reading).expect("published");
                pause.into_iter().for_each(thread::sleep);
            }
            assert!(publisher.flush(SOON), "the last messages leave");
            (count, publisher)
        });
        Source { stop, thread }
    }

    /// Ends, and gives the last count.
    fn end(self) -> u64 {
        self.pause().0
    }

    /// Publishes no more. Gives the last count, and the publisher, which has the history.
    fn pause(self) -> (u64, Publisher<Reading>) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("no panic")
    }
}

fn reliable(node: &Node, topic: &str, wire: &str) -> Publisher<Reading> {
    publisher(node, topic, wire, Qos::default())
}

fn publisher(node: &Node, topic: &str, wire: &str, qos: Qos) -> Publisher<Reading> {
    let publish = node.publish::<Reading>(topic, Some(wire)).expect("a publisher");
    publish.qos(qos.reliability(Reliability::Reliable)).expect("policies").open().expect("opened")
}

/// Every event that tells of a loss.
fn losses(node: &Node) -> Arc<Mutex<Vec<String>>> {
    let (events, losses) = (node.events(), Arc::<Mutex<Vec<String>>>::default());
    let told = losses.clone();
    thread::spawn(move || {
        while let Some(event) = events.recv_timeout(SOON) {
            let is_loss = match &event {
                NodeEvent::Lost { .. } | NodeEvent::Undecodable { .. } => true,
                NodeEvent::Engine { event, .. } => {
                    matches!(event, Event::Unconfirmed { .. } | Event::Dropped { .. })
                }
                _ => false,
            };
            if is_loss {
                told.lock().expect("no panic").push(event.to_string());
            }
        }
    });
    losses
}

/// The topics of which a node says that a history did not come in time.
struct Missed(Arc<Mutex<Vec<String>>>);

impl Missed {
    fn of(node: &Node) -> Missed {
        let (events, missed) = (node.events(), Arc::<Mutex<Vec<String>>>::default());
        let told = missed.clone();
        thread::spawn(move || {
            while let Some(event) = events.recv_timeout(SOON) {
                if let NodeEvent::HistoryMissed { topic, .. } = event {
                    told.lock().expect("no panic").push(topic);
                }
            }
        });
        Missed(missed)
    }

    fn has(&self, topic: &str) -> bool {
        self.0.lock().expect("no panic").iter().any(|missed| missed == topic)
    }
}

#[test]
fn reliable_topics_lose_nothing_with_relays_that_are_killed_or_leave() {
    let (mut active, endpoint) = Relay::first(PATIENT);
    let mut standby = Relay::second(&endpoint);
    let place = endpoint.replace("tcp/", "tcp-connect/");
    let [cdr, fast] = ["cdr", "fast"].map(|format| format!("{format}@{place}"));
    // One reads the topics by their names, and one by a pattern.
    let nodes = [(); 2].map(|()| Node::new());
    let [named, all] = [Got::default(), Got::default()];
    let topics = ["plant/steady", "plant/deltas", "plant/flood", "plant/flood-of-deltas"];
    let subscriptions: Vec<_> = topics.iter().map(|topic| named.subscribe(&nodes[0], topic, &cdr)).collect();
    let pattern = all.subscribe(&nodes[1], "plant/*", &cdr);
    // What it keeps is soon so much that it has to wait for confirmations.
    let config = Config::parse(&format!("{PATIENT}\nqueue_bytes = 262144")).expect("valid");
    let writer = Node::builder().config(config).build();
    let told = [&writer, &nodes[0], &nodes[1]].map(losses);
    let sources = topics.map(|topic| {
        let wire = if topic.ends_with("deltas") { &fast } else { &cdr };
        let publisher = reliable(&writer, topic, wire);
        assert_eq!(publisher.wait_for_subscribers(2, SOON), 2);
        Source::start(publisher, (!topic.contains("flood")).then_some(Duration::from_millis(1)))
    });
    for round in 0..6 {
        let before = topics.map(|topic| [named.of(topic).1, all.of(topic).1]);
        let go_on =
            |(topic, [one, other]): (&&str, &[u64; 2])| named.of(topic).1 > one + 100 && all.of(topic).1 > other + 100;
        until("messages come", || topics.iter().zip(&before).all(go_on));
        match round % 2 {
            0 => active.signal(Signal::KILL),
            _ => active.leave(),
        }
        standby.says("relays at ");
        (active, standby) = (standby, Relay::second(&endpoint));
    }
    for (topic, source) in topics.iter().zip(sources) {
        let last = source.end();
        let got = || [named.of(topic), all.of(topic)];
        until("the last message", || got().iter().all(|(_, count)| *count == last));
        assert_eq!(got(), [(last, last); 2], "{topic}");
    }
    let lost = || subscriptions.iter().chain([&pattern]).map(|one| (one.lost(), one.undecodable()));
    assert!(lost().all(|counts| counts == (0, 0)), "{:?}", lost().collect::<Vec<_>>());
    let told: Vec<String> = told.iter().flat_map(|told| told.lock().expect("no panic").clone()).collect();
    assert_eq!(told, Vec::<String>::new());
}

#[test]
fn a_relay_that_is_suspended_and_then_killed_loses_nothing_either() {
    let (active, endpoint) = Relay::first("[engine]\nlease_ms = 200");
    let mut standby = Relay::second(&endpoint);
    let wire = format!("cdr@{}", endpoint.replace("tcp/", "tcp-connect/"));
    let (writer, reader) = (Node::new(), Node::new());
    let events = writer.events();
    let got = Got::default();
    let subscription = got.subscribe(&reader, "t", &wire);
    let publisher = reliable(&writer, "t", &wire);
    assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
    let source = Source::start(publisher, Some(Duration::from_millis(1)));
    let go_on = || {
        let before = got.of("t").1;
        until("messages come", || got.of("t").1 > before + 100);
    };
    let suspend = || {
        active.suspend();
        let is_silent = |event| matches!(event, NodeEvent::Engine { event: Event::Silent { .. }, .. });
        until("the lease lapses", || events.try_recv().is_some_and(is_silent));
    };
    go_on();
    suspend();
    // It holds the address meanwhile, so that nobody takes over.
    active.signal(Signal::CONT);
    go_on();
    suspend();
    active.signal(Signal::KILL);
    standby.says("relays at ");
    go_on();
    let last = source.end();
    until("the last message", || got.of("t").1 == last);
    assert_eq!((got.of("t"), subscription.lost()), ((last, last), 0));
}

#[test]
fn a_publisher_that_has_ended_loses_nothing_and_one_that_is_not_reliable_does() {
    let (active, endpoint) = Relay::first(PATIENT);
    let mut standby = Relay::second(&endpoint);
    let wire = format!("cdr@{}", endpoint.replace("tcp/", "tcp-connect/"));
    // As long may it take until all is confirmed.
    let config = Config::parse("[engine]\nlinger_ms = 60000").expect("valid");
    let (writer, reader) = (Node::builder().config(config).build(), Node::new());
    let (events, got) = (writer.events(), Got::default());
    let subscriptions = ["reliable", "plain"].map(|topic| got.subscribe(&reader, topic, &wire));
    let assured = reliable(&writer, "reliable", &wire);
    let plain: Publisher<Reading> = writer.publisher_on("plain", &wire).expect("a publisher");
    let publish = |publisher: &Publisher<Reading>, count| {
        publisher.publish(&Reading { count, ..Reading::default() }).expect("published");
    };
    for publisher in [&assured, &plain] {
        assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
        publish(publisher, 1);
    }
    until("the first ones", || got.of("reliable").1 == 1 && got.of("plain").1 == 1);
    // The relay takes no more of them.
    active.suspend();
    (2..=10).for_each(|count| [&assured, &plain].iter().for_each(|publisher| publish(publisher, count)));
    drop(assured);
    active.signal(Signal::KILL);
    standby.says("relays at ");
    let is_over = |event| matches!(event, NodeEvent::Engine { event: Event::Disconnected { .. }, .. });
    until("the link ends", || events.try_recv().is_some_and(is_over));
    assert_eq!(plain.wait_for_subscribers(1, SOON), 1);
    publish(&plain, 11);
    until("the last ones", || got.of("reliable").1 == 10 && got.of("plain").1 == 11);
    assert_eq!((got.of("reliable").0, got.of("plain").0), (10, 2));
    assert_eq!(subscriptions.each_ref().map(Subscription::lost), [0, 9]);
    until("its channel ends", || subscriptions[0].status().writers == 0);
}

#[test]
fn late_subscribers_get_the_whole_history_while_relays_are_killed() {
    let (mut active, endpoint) = Relay::first(PATIENT);
    let mut standby = Relay::second(&endpoint);
    let place = endpoint.replace("tcp/", "tcp-connect/");
    let [cdr, fast] = ["cdr", "fast"].map(|format| format!("{format}@{place}"));
    let requested = Qos::default().transient_local();
    let offered = requested.clone().keep_last(100_000);
    let writer = Node::new();
    let topics = [("plain", &cdr), ("deltas", &fast)];
    let sources = topics.map(|(topic, wire)| {
        let publisher = publisher(&writer, topic, wire, offered.clone());
        Source::start(publisher, Some(Duration::from_millis(1)))
    });
    let join = || {
        let (node, got) = (Node::new(), Got::default());
        let missed = Missed::of(&node);
        let subscriptions = topics.map(|(topic, _)| got.subscribe_with(&node, topic, &cdr, requested.clone()));
        (node, got, subscriptions, missed)
    };
    let mut readers = vec![join()];
    for _ in 0..3 {
        let before: Vec<u64> = readers.iter().map(|(_, got, ..)| got.of("deltas").1).collect();
        let go_on = || readers.iter().zip(&before).all(|((_, got, ..), before)| got.of("deltas").1 > before + 100);
        until("messages come", go_on);
        // One joins shortly before the relay is killed, and one shortly after.
        readers.push(join());
        thread::sleep(Duration::from_millis(5));
        active.signal(Signal::KILL);
        readers.push(join());
        standby.says("relays at ");
        (active, standby) = (standby, Relay::second(&endpoint));
    }
    for (index, ((topic, _), source)) in topics.iter().zip(sources).enumerate() {
        let (last, _publisher) = source.pause();
        let got = || readers.iter().map(|(_, got, ..)| got.of(topic)).collect::<Vec<_>>();
        until("the last message", || got().iter().all(|(_, count)| *count == last));
        for (_, got, subscriptions, missed) in &readers {
            let subscription = &subscriptions[index];
            // On a very busy machine, the history does not come in time, and that is told.
            if !missed.has(topic) {
                assert_eq!((got.of(topic), subscription.lost()), ((last, last), 0), "{topic}");
            }
            assert_eq!(subscription.undecodable(), 0, "{topic}");
        }
    }
}
