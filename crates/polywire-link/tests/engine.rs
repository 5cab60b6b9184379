//! Tests of nodes over the emulated engine: the effect of its links on topics, in real time.

use std::{
    collections::BTreeSet,
    thread,
    time::{Duration, Instant},
};

use polywire::{
    Config, Message, Node, NodeError, NodeEvent, Publisher, Sample, Subscriber,
    coding::Discovered,
    engine::{Disconnect, Engine as _, EngineError, Event},
    schema::arbitrary::Random,
};
use polywire_link::Emulated;

const SOON: Duration = Duration::from_secs(20);
/// Time between two messages of a topic.
const PAUSE: Duration = Duration::from_millis(4);

static NETWORK: Emulated = Emulated::new(1);

#[derive(Clone, Debug, Default, PartialEq, Message)]
struct Level {
    price: f64,
    size: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Message)]
struct Book {
    symbol: String,
    number: u64,
    last: f64,
    levels: Vec<Level>,
}

/// The books of a day, generated from a seed.
fn books(count: u64) -> Vec<Book> {
    let mut random = Random::new(7);
    let levels = (0..5).map(|i| Level { price: 100.0 + f64::from(i), size: 10 }).collect();
    let mut book = Book { symbol: "POLYWIRE".into(), last: 100.25, levels, ..Book::default() };
    let walk = |_| {
        book.number += 1;
        book.last += (random.below(9) as f64 - 4.0) / 4.0;
        if let Some(level) = book.levels.get_mut(random.below(5)) {
            level.size = random.below(1000) as u32;
        }
        book.clone()
    };
    (0..count).map(walk).collect()
}

fn node() -> Node {
    Node::builder().engine(&NETWORK).build()
}

fn subscribe(node: &Node, topic: &str, endpoint: &str) -> Subscriber<Book> {
    node.subscriber_on::<Book>(topic, &format!("auto@{endpoint}")).expect("subscriber")
}

fn publisher(node: &Node, topic: &str, wire: &str, endpoint: &str) -> Publisher<Book> {
    node.publisher_on(topic, &format!("{wire}@{endpoint}")).expect("publisher")
}

/// The messages received so far. Each value equals the one published under its number.
fn received(subscriber: &Subscriber<Book>, all: &[Book]) -> Vec<Sample<Book>> {
    let samples: Vec<_> = std::iter::from_fn(|| subscriber.try_recv()).collect();
    for sample in &samples {
        let number = sample.value.number as usize;
        assert_eq!(Some(&sample.value), all.get(number.wrapping_sub(1)), "a wrong value");
    }
    samples
}

/// The share of messages that arrived, and their average size in bytes.
fn fraction(subscriber: &Subscriber<Book>, all: &[Book]) -> (f64, f64) {
    let samples = received(subscriber, all);
    let numbers: BTreeSet<u64> = samples.iter().map(|sample| sample.value.number).collect();
    let bytes = samples.iter().map(|sample| sample.info.bytes).sum::<usize>() as f64 / samples.len().max(1) as f64;
    (numbers.len() as f64 / all.len() as f64, bytes)
}

/// Prints its results with `--nocapture`.
#[test]
fn over_links_that_lose_repeat_overtake_and_damage() {
    let links = [
        ("loss=30%", 0.4),
        ("delay=20ms,jitter=uniform:20ms,reorder=10%,duplicate=20%,loss=10%", 0.6),
        ("wan-high,corrupt=5%", 0.4),
        ("delay=15ms,loss=2%,down=1500ms..2500ms", 0.5),
    ];
    let all = books(1000);
    thread::scope(|scope| {
        for (model, least) in links {
            let all = &all;
            scope.spawn(move || over_a_link(model, least, all));
        }
    });
}

fn over_a_link(model: &str, least: f64, books: &[Book]) {
    let (a, b) = (node(), node());
    let endpoint = format!("emulated/topics {model}");
    let topics: Vec<_> =
        ["fast:key_interval=20", "cdr", "json", "fast:key_interval=0", "fast:mode=chained,key_interval=20"]
            .iter()
            .map(|wire| {
                let publisher = publisher(&a, wire, wire, &endpoint);
                let subscriber = subscribe(&b, wire, &endpoint);
                assert_eq!(publisher.wait_for_subscribers(1, SOON), 1, "{model}");
                (publisher, subscriber)
            })
            .collect();
    let mut late = None;
    for (i, book) in books.iter().enumerate() {
        if i == books.len() / 2 {
            late = Some(subscribe(&b, "fast:key_interval=20", &endpoint));
        }
        for (publisher, _) in &topics {
            publisher.publish(book).expect("published");
        }
        thread::sleep(PAUSE);
    }
    assert!(a.flush(SOON), "{model}");
    let delivered: Vec<_> = topics.iter().map(|(_, subscriber)| fraction(subscriber, books)).collect();
    for ((publisher, _), (delivered, bytes)) in topics.iter().zip(&delivered) {
        println!("{model:<68} {:<26} {:>5.1} % {bytes:>6.1} bytes each", publisher.topic(), 100.0 * delivered);
    }
    let [fast, cdr, _json, asked, chained] = delivered[..] else { panic!("five topics") };
    assert!(fast.0 > least, "{model}: {} delivered", fast.0);
    assert!(fast.0 <= cdr.0 + 0.1 && fast.1 * 3.0 < cdr.1, "{model}: {fast:?} {cdr:?}");
    // Key frames on request only: this works although requests are lost like messages.
    assert!(asked.0 > 0.3, "{model}: {} delivered", asked.0);
    // Such links need anchors. In chained mode little arrives, but no wrong value.
    assert!(chained.0 < fast.0, "{model}: {} delivered", chained.0);
    let joined = late.map(|late| fraction(&late, books).0).expect("it has joined");
    assert!(joined > least / 2.0 - 0.1 && joined <= 0.51, "{model}: {joined} delivered");
    assert!(topics[0].1.undecodable() > 0, "{model}: what cannot be read is counted");
}

/// The seed alone decides which messages arrive.
#[test]
fn a_packet_meets_the_same_fate_in_each_run() {
    static ANOTHER: Emulated = Emulated::new(2);
    let all = books(200);
    let run = |network: &'static Emulated| {
        let node = || Node::builder().engine(network).build();
        let (a, b, endpoint) = (node(), node(), "emulated/fates delay=1ms,loss=30%,duplicate=10%,corrupt=5%");
        let publisher = publisher(&a, "r", "cdr", endpoint);
        let subscriber = subscribe(&b, "r", endpoint);
        assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
        all.iter().for_each(|book| assert_eq!(publisher.publish(book).expect("published").peers, 1));
        assert!(a.flush(SOON));
        let mut came: Vec<u64> = received(&subscriber, &all).iter().map(|sample| sample.value.number).collect();
        // The order in which copies and other packets arrive depends on when they were sent.
        came.sort_unstable();
        came
    };
    let first = run(&NETWORK);
    assert!((80..180).contains(&first.len()), "{} of 200 came", first.len());
    assert_eq!(run(&NETWORK), first);
    assert_ne!(run(&ANOTHER), first);
}

/// Announcements, answers, and the schema that a subscriber without a type requests always arrive.
#[test]
fn a_link_that_loses_everything_brings_nodes_together() {
    let (a, b, endpoint) = (node(), node(), "emulated/deaf loss=100%");
    let publisher = publisher(&a, "r", "cdr", endpoint);
    let any = Discovered::new().expect("a shape");
    let any = b.subscribe_of("r", Some(&format!("auto@{endpoint}")), any).expect("subscriber").open();
    assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
    for book in books(10) {
        assert_eq!(publisher.publish(&book).expect("published").peers, 1);
    }
    assert!(a.flush(SOON) && any.try_recv().is_none());
    drop(any);
    let until = Instant::now() + SOON;
    while publisher.publish(&Book::default()).expect("published").peers > 0 {
        assert!(Instant::now() < until, "nobody subscribes any more");
    }
}

#[test]
fn it_takes_as_long_as_the_link_does() {
    let (a, b, endpoint) = (node(), node(), "emulated/slow delay=100ms");
    let publisher = publisher(&a, "r", "cdr", endpoint);
    let subscriber = subscribe(&b, "r", endpoint);
    assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
    let start = Instant::now();
    publisher.publish(&Book::default()).expect("published");
    assert!(!a.flush(Duration::from_millis(10)), "it is under way");
    assert!(subscriber.recv_timeout(SOON).is_some() && start.elapsed() >= Duration::from_millis(100));
    assert!(a.flush(SOON));
}

#[test]
fn what_is_under_way_is_bounded() {
    let config = Config::parse("[engine]\nqueue_bytes = 10000").expect("valid");
    let a = Node::builder().engine(&NETWORK).config(config).build();
    let (b, endpoint, all) = (node(), "emulated/full delay=200ms", books(500));
    let publisher = publisher(&a, "r", "cdr", endpoint);
    let subscriber = subscribe(&b, "r", endpoint);
    assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
    let dropped: usize = all.iter().map(|book| publisher.publish(book).expect("published").dropped).sum();
    assert!(a.flush(SOON));
    let came = received(&subscriber, &all);
    let bytes: usize = came.iter().map(|sample| sample.info.bytes).sum();
    assert!(came.len() + dropped == 500 && bytes < 10_000 && came.len() > 20, "{} came, {dropped} dropped", came.len());
}

#[test]
fn a_node_says_goodbye_behind_what_it_sent() {
    let (a, b, c, endpoint) = (node(), node(), node(), "emulated/bye delay=50ms");
    let publisher = publisher(&a, "r", "cdr", endpoint);
    let subscribers = [subscribe(&b, "r", endpoint), subscribe(&c, "r", endpoint)];
    assert_eq!(publisher.wait_for_subscribers(2, SOON), 2);
    assert_eq!((a.links(), b.links(), c.links()), (2, 2, 2));
    let events = b.events();
    publisher.publish(&Book { number: 1, ..Book::default() }).expect("published");
    a.close();
    assert!(subscribers.iter().all(|subscriber| subscriber.recv_timeout(SOON).is_some()));
    let bye =
        |event| matches!(event, NodeEvent::Engine { event: Event::Disconnected { reason: Disconnect::Bye, .. }, .. });
    assert!(std::iter::from_fn(|| events.recv_timeout(SOON)).any(bye));
    assert_eq!(b.links(), 1);
    assert!(publisher.publish(&Book::default()).map_or(true, |sent| sent.peers == 0), "nobody is there any more");
    // A callback may close its own node.
    let (d, closing) = (node(), node());
    let own = closing.clone();
    let subscription = closing.subscribe::<Book>("q", Some(&format!("auto@{endpoint}"))).expect("subscriber");
    let _subscription = subscription.on_message_inline(move |_, _| own.close());
    let publisher = self::publisher(&d, "q", "cdr", endpoint);
    assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
    let events = d.events();
    publisher.publish(&Book::default()).expect("published");
    assert!(std::iter::from_fn(|| events.recv_timeout(SOON)).any(bye));
}

#[test]
fn addresses_that_are_none_are_named() {
    for (address, reason) in [("name", "a name and a model"), (" loss=1%", "no name"), ("name loss=much", "loss")] {
        let error = node().open(&format!("emulated/{address}")).expect_err(address);
        let NodeError::Engine(EngineError::Address { engine, .. }) = &error else { panic!("{address}: {error}") };
        assert!(*engine == NETWORK.name() && error.to_string().contains(reason), "{error}");
    }
}
