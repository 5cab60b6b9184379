//! Topics in FAST, a format whose messages refer to earlier ones: over every kind of engine, with
//! losses, full queues, restarts and hostile peers.

use std::{
    collections::BTreeMap,
    io::{ErrorKind, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use polywire::{
    Config, DynPublisher, Node, NodeEvent, Publisher, Sample, Subscriber,
    coding::{Bytes, Discovered, Dynamic},
};
use polywire_core::{
    codec::{
        Encoder, Options,
        fast::{FAST, Fast, LearnOptions, learn, template::TemplateSet},
    },
    envelope::{Announcement, Envelope, Id128},
    frame::{Answer, Frame, Hello, Start, Step, StreamDecoder, StreamEncoder},
    layout::Message as _,
    schema::arbitrary::Random,
};
use polywire_derive::Message;
use polywire_testing::Folder;

const SOON: Duration = Duration::from_secs(20);

#[derive(Clone, Debug, Default, PartialEq, Message)]
struct Level {
    price: f64,
    size: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Market::Book")]
struct Book {
    symbol: String,
    number: u64,
    last: f64,
    traded: i64,
    levels: Vec<Level>,
}

/// An older version of it.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Market::Book")]
struct OldBook {
    number: u64,
    last: f64,
}

/// The books of a day, from a fixed seed: message `n` is the same in every call.
fn books(count: u64) -> Vec<Book> {
    let mut random = Random::new(7);
    let levels = (0..4).map(|i| Level { price: 100.0 + f64::from(i), size: 10 }).collect();
    let mut book = Book { symbol: "POLYWIRE".into(), last: 100.25, levels, ..Book::default() };
    let walk = |_| {
        book.number += 1;
        book.traded += random.below(500) as i64;
        book.last += (random.below(9) as f64 - 4.0) / 4.0;
        let level = random.below(4);
        book.levels[level].price += 0.25;
        book.levels[level].size = random.below(1000) as u32;
        book.clone()
    };
    (0..count).map(walk).collect()
}

/// A node that listens and one that connects to it, over each kind of engine built in.
fn pairs(test: &str) -> Vec<(Node, String, Node, String)> {
    let socket = format!("{}/pw-{test}-{}.sock", std::env::temp_dir().display(), std::process::id());
    let endpoints = [format!("inproc/{test}"), "tcp/127.0.0.1:0".into(), format!("unix/{socket}")];
    let pair = |endpoint: String| {
        let (a, b) = (Node::new(), Node::new());
        let bound = a.open(&endpoint).expect("listens");
        (a, bound.clone(), b, bound)
    };
    endpoints.into_iter().map(pair).collect()
}

fn subscribe(node: &Node, topic: &str, endpoint: &str) -> Subscriber<Book> {
    node.subscriber_on::<Book>(topic, &format!("auto@{endpoint}")).expect("subscriber")
}

fn publisher(node: &Node, topic: &str, wire: &str, endpoint: &str) -> Publisher<Book> {
    node.publisher_on(topic, &format!("{wire}@{endpoint}")).expect("publisher")
}

fn publish(publisher: &Publisher<Book>, book: &Book) {
    publisher.publish(book).expect("published");
}

/// Checks that a sample has the value that was published with its number.
fn check(sample: &Sample<Book>, all: &[Book]) {
    let number = sample.value.number as usize;
    assert_eq!(Some(&sample.value), all.get(number.wrapping_sub(1)), "a wrong value");
}

/// Publishes one message after the other until the subscriber receives one, and returns it.
fn publish_until_one_comes(
    publisher: &Publisher<Book>,
    rest: &mut impl Iterator<Item = Book>,
    subscriber: &Subscriber<Book>,
) -> Sample<Book> {
    for book in rest {
        publisher.publish(&book).expect("published");
        if let Some(sample) = subscriber.recv_timeout(Duration::from_millis(5)) {
            return sample;
        }
    }
    panic!("no message came");
}

#[test]
fn deltas_are_small_and_true_beside_other_topics() {
    let all = books(300);
    for (a, at_a, b, at_b) in pairs("beside") {
        let wires =
            [("fast", "chained"), ("fast:mode=anchored,key_interval=50", "anchored"), ("cdr", ""), ("json", "")];
        let topics: Vec<_> = wires
            .iter()
            .enumerate()
            .map(|(i, (wire, mode))| {
                let topic = format!("books{i}");
                let there = subscribe(&a, &topic, &at_a);
                let publisher = publisher(&b, &topic, wire, &at_b);
                let beside = subscribe(&b, &topic, &at_b);
                let old = a.subscriber_on::<OldBook>(&topic, &format!("auto@{at_a}")).expect("subscriber");
                assert_eq!(publisher.wait_for_subscribers(3, SOON), 3, "{at_a}");
                (publisher, [there, beside], old, *mode)
            })
            .collect();
        // In turn, so that other streams' messages come between those of one stream.
        for book in &all {
            topics.iter().for_each(|(publisher, ..)| publish(publisher, book));
        }
        let mut bytes = Vec::new();
        for (_, subscribers, old, mode) in &topics {
            for subscriber in subscribers {
                let (mut total, mut keys) = (0, Vec::new());
                for book in &all {
                    let sample = subscriber.recv_timeout(SOON).expect("message");
                    assert_eq!(&sample.value, book, "{at_a} {mode}");
                    total += sample.info.bytes;
                    match (*mode, sample.info.anchor) {
                        (_, Some(anchor)) if anchor == sample.info.sequence => keys.push(anchor),
                        ("anchored", Some(anchor)) => assert_eq!(keys.last(), Some(&anchor)),
                        (_, anchor) => assert_eq!(anchor, None, "{mode}"),
                    }
                }
                let expected: &[u64] = match *mode {
                    "chained" => &[1, 101, 201],
                    "anchored" => &[1, 51, 101, 151, 201, 251],
                    _ => &[],
                };
                assert_eq!(keys, expected, "{at_a} {mode}");
                assert_eq!((subscriber.undecodable(), subscriber.lost()), (0, 0));
                bytes.push(total);
            }
            for book in &all {
                let expected = OldBook { number: book.number, last: book.last };
                assert_eq!(old.recv_timeout(SOON).map(|sample| sample.value), Some(expected));
            }
        }
        let [chained, _, anchored, _, cdr, _, json, _] = bytes[..] else { panic!("four topics, two subscribers") };
        assert!(chained * 4 < cdr && anchored * 4 < cdr && cdr < json, "{at_a}: {bytes:?}");
    }
}

#[test]
fn who_joins_late_gets_a_key_frame() {
    let all = books(200);
    for mode in ["chained", "anchored"] {
        for (a, at_a, b, at_b) in pairs(&format!("late-{mode}")) {
            let publisher = publisher(&b, "r", &format!("fast:key_interval=0,mode={mode}"), &at_b);
            let first = subscribe(&a, "r", &at_a);
            assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
            let (early, late) = all.split_at(100);
            early.iter().for_each(|book| publish(&publisher, book));
            // Another one at the writer's own node, which the publisher learns at once.
            let second = subscribe(&b, "r", &at_b);
            assert_eq!(publisher.wait_for_subscribers(2, SOON), 2);
            late.iter().for_each(|book| publish(&publisher, book));
            let mut keys = Vec::new();
            for book in &all {
                let sample = first.recv_timeout(SOON).expect("message");
                assert_eq!(&sample.value, book);
                keys.extend(sample.info.anchor.filter(|anchor| *anchor == sample.info.sequence));
            }
            assert_eq!(keys, [1, 101], "{at_a} {mode}");
            for book in late {
                assert_eq!(second.recv_timeout(SOON).map(|sample| sample.value).as_ref(), Some(book), "{at_a} {mode}");
            }
            assert_eq!((first.undecodable(), second.undecodable()), (0, 0), "{at_a} {mode}");
            // A third subscriber, on a node that has already accepted the channel.
            let third = subscribe(&a, "r", &at_a);
            let mut more = books(100_000).into_iter().skip(200);
            let sample = publish_until_one_comes(&publisher, &mut more, &third);
            assert!(sample.value.number > 200);
        }
    }
}

#[test]
fn the_format_changes_while_deltas_flow() {
    let (all, wires) = (
        books(300),
        [
            "fast",
            "cdr",
            "fast:mode=anchored,key_interval=7",
            "json",
            "fast:key_interval=3+lz4",
            "fast:deviations=ignore",
        ],
    );
    for (a, at_a, b, at_b) in pairs("changes") {
        let there = subscribe(&a, "r", &at_a);
        let publisher = publisher(&b, "r", "cdr", &at_b);
        let beside = subscribe(&b, "r", &at_b);
        assert_eq!(publisher.wait_for_subscribers(2, SOON), 2, "{at_a}");
        for (i, book) in all.iter().enumerate() {
            if i % 10 == 5 {
                publisher.set_wire(wires[i / 10 % wires.len()]).expect("another wire");
            }
            publisher.publish(book).expect("published");
        }
        for subscriber in [&there, &beside] {
            for book in &all {
                assert_eq!(subscriber.recv_timeout(SOON).map(|sample| sample.value).as_ref(), Some(book), "{at_a}");
            }
            assert_eq!(subscriber.undecodable(), 0);
        }
    }
}

#[test]
fn writers_restart_and_several_write_one_topic() {
    let all = books(100_000);
    for (a, at_a, first, at_b) in pairs("writers") {
        drop(first);
        let subscriber = subscribe(&a, "r", &at_a);
        for _ in 0..3 {
            let nodes = [Node::new(), Node::new()];
            let publishers: Vec<_> = nodes.iter().map(|node| publisher(node, "r", "fast", &at_b)).collect();
            for publisher in &publishers {
                assert!(publisher.wait_for_subscribers(1, SOON) >= 1, "{at_a}");
            }
            // The first publisher begins later in the day, so that a delta applied to the other's
            // state would be wrong.
            for i in 0..50 {
                publishers[0].publish(&all[5000 + i]).expect("published");
                publishers[1].publish(&all[i]).expect("published");
            }
            let mut next: BTreeMap<Id128, u64> = BTreeMap::new();
            for _ in 0..100 {
                let sample = subscriber.recv_timeout(SOON).expect("message");
                check(&sample, &all);
                let sequence = next.entry(sample.info.source.announcement.writer).or_default();
                *sequence += 1;
                assert_eq!(sample.info.sequence, *sequence, "{at_a}");
            }
            nodes.iter().for_each(Node::close);
        }
        assert_eq!(subscriber.undecodable(), 0);
    }
}

#[test]
fn a_queue_that_drops_costs_messages_and_nothing_else() {
    let all = books(60_000);
    for (overflow, mode) in [
        ("drop-oldest", "anchored"),
        ("drop-newest", "anchored"),
        ("drop-oldest", "chained"),
        ("drop-newest", "chained"),
    ] {
        let engine =
            format!("[engine]\noverflow = '{overflow}'\nqueue_bytes = 4000\nsend_buffer = 4096\nreceive_buffer = 4096");
        let node = || Node::builder().config(Config::parse(&engine).expect("valid")).build();
        let (a, b) = (node(), node());
        let bound = a.open("tcp-listen/127.0.0.1:0").expect("listens");
        let events = b.events();
        let (slow, got) = (Arc::new(AtomicBool::new(true)), Arc::new(Mutex::new(Vec::<Sample<Book>>::new())));
        let (still_slow, into) = (slow.clone(), got.clone());
        let subscription = b
            .subscribe::<Book>("r", Some(&format!("auto@{}", bound.replacen('/', "-connect/", 1))))
            .expect("subscriber")
            .on_message_inline(move |book, info| {
                if still_slow.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_micros(300));
                }
                into.lock().expect("no panic").push(Sample { value: book.clone(), info: info.clone() });
            });
        // With a dropping policy, messages are anchored by default; if they are chained, the reader
        // must detect gaps.
        let wire = if mode == "anchored" { "fast" } else { "fast:mode=chained" };
        let publisher = publisher(&a, "r", wire, &bound);
        assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
        let mut dropped = 0;
        for (i, book) in all.iter().enumerate() {
            let sent = publisher.publish(book).expect("published");
            dropped += sent.dropped;
            if i == all.len() / 2 {
                slow.store(false, Ordering::Relaxed);
                assert!(publisher.flush(SOON));
            }
            if i > all.len() / 2 && i % 100 == 0 {
                thread::sleep(Duration::from_millis(1));
            }
        }
        assert!(publisher.flush(SOON));
        let until = Instant::now() + SOON;
        let total = || got.lock().expect("no panic").len() as u64 + subscription.lost() + subscription.undecodable();
        while total() < all.len() as u64 && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        // Every message counts: as read, as lost, or as undecodable.
        assert_eq!(total(), all.len() as u64, "{overflow} {mode}");
        let got = std::mem::take(&mut *got.lock().expect("no panic"));
        got.iter().for_each(|sample| check(sample, &all));
        assert!(subscription.lost() > 0 && (overflow == "drop-oldest" || dropped > 0), "{overflow} {mode}");
        assert!(got.len() > all.len() / 20, "{overflow} {mode}: {} of {}", got.len(), all.len());
        let anchors = got.iter().any(|sample| sample.info.anchor.is_some_and(|anchor| anchor != sample.info.sequence));
        assert_eq!(anchors, mode == "anchored", "{overflow} {mode}");
        let told: Vec<_> = std::iter::from_fn(|| events.try_recv()).collect();
        let undecodable = told.iter().any(|event| matches!(event, NodeEvent::Undecodable { .. }));
        assert_eq!(undecodable, subscription.undecodable() > 0, "{overflow} {mode}");
    }
}

#[test]
fn learned_templates_are_fetched_through_a_relay() {
    let all = books(400);
    let folder = Folder::new("book");
    let wire = format!("fast:template={}", folder.write("book.xml", learned(&all[..100]).to_xml()));
    // The node that listens relays; it has no subscriber of its own.
    let (relay, writer, reader) = (Node::new(), Node::new(), Node::new());
    let bound = relay.open("tcp/127.0.0.1:0").expect("listens");
    let publisher = publisher(&writer, "r", &wire, &bound);
    let subscriber = subscribe(&reader, "r", &bound);
    let derived = self::publisher(&writer, "derived", "fast", &bound);
    let plain = subscribe(&reader, "derived", &bound);
    assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
    assert_eq!(derived.wait_for_subscribers(1, SOON), 1);
    let mut bytes = [0, 0];
    for book in &all[..200] {
        for (i, (publisher, subscriber)) in [(&publisher, &subscriber), (&derived, &plain)].into_iter().enumerate() {
            publisher.publish(book).expect("published");
            let sample = subscriber.recv_timeout(SOON).expect("message");
            assert_eq!(&sample.value, book);
            assert_eq!(sample.info.source.announcement.configuration.is_some(), i == 0);
            assert!(!sample.info.source.announcement.options.contains("template"), "the file is the writer's own");
            bytes[i] += sample.info.bytes;
        }
    }
    assert!(bytes[0] < bytes[1], "what was learned pays: {bytes:?}");
    // A second node behind the relay, long after the writer was accepted: the relay passes on its
    // request for a key frame.
    let another = Node::new();
    let late = subscribe(&another, "r", &bound);
    let any = Discovered::new().expect("a shape");
    let any = another.subscribe_of("r", Some(&format!("auto@{bound}")), any).expect("subscriber").open();
    let mut more = all[200..].iter().cloned();
    let sample = publish_until_one_comes(&publisher, &mut more, &late);
    check(&sample, &all);
    let record = any.recv_timeout(SOON).expect("message").value;
    assert_eq!(record.u64("number"), Ok(sample.value.number));
}

fn learned(books: &[Book]) -> TemplateSet {
    let shape = Book::shape();
    let coding = Dynamic::of(shape.schema()).expect("a shape");
    let cdr = polywire_core::codec::find("cdr").expect("it is there");
    let encoder = Encoder::<Book>::new(cdr, &Options::default()).expect("it lowers");
    let decoder = polywire_core::codec::Decoder::for_shape(cdr, &Options::default(), shape.schema(), coding.shape());
    let decoder = decoder.expect("it lowers");
    let records: Vec<_> = books
        .iter()
        .map(|book| {
            let (mut bytes, mut record) = (Vec::new(), polywire_core::layout::Record::new(coding.shape()));
            encoder.encode(book, &mut bytes).expect("it encodes");
            decoder.decode(&bytes, &mut record).expect("it decodes");
            record
        })
        .collect();
    learn(coding.shape(), &records, &LearnOptions { interval: 100, ..LearnOptions::default() })
        .expect("it learns")
        .templates
}

const FEED: &str = r#"<templates xmlns="http://www.fixprotocol.org/ns/fast/td/1.1">
  <template name="Quote" id="1">
    <uInt32 name="seq"><increment value="1"/></uInt32>
    <string name="symbol"><copy/></string>
    <decimal name="px"><exponent><default value="-2"/></exponent><mantissa><delta/></mantissa></decimal>
  </template>
  <template name="Status" id="2"><string name="text"/></template>
</templates>"#;

#[test]
fn a_feed_is_published_by_its_template_alone() {
    let (folder, topic) = (Folder::new("feed"), "feed");
    let file = folder.write("feed.xml", FEED);
    for (a, at_a, b, at_b) in pairs("feed") {
        let (_, schema) = Fast::feed(TemplateSet::parse(FEED).expect("templates")).expect("a type");
        let coding = Dynamic::of(&schema).expect("a shape");
        let wire = format!("fast:template={file}@{at_b}");
        let publisher: DynPublisher = b.publisher_of(topic, Some(&wire), coding).expect("publisher");
        let any = Discovered::new().expect("a shape");
        let any = a.subscribe_of(topic, Some(&format!("auto@{at_a}")), any).expect("subscriber").open();
        let raw = a.subscribe_of(topic, Some(&format!("auto@{at_a}")), Bytes::default()).expect("subscriber").open();
        assert_eq!(publisher.wait_for_subscribers(2, SOON), 2);
        let mut sizes = Vec::new();
        for seq in 1..=20_u32 {
            let mut record = publisher.default_value();
            record.set("Quote.seq", seq).expect("a case");
            record.set("Quote.symbol", "POLY").expect("a member");
            record.set("Quote.px.exponent", -2).expect("a member");
            record.set("Quote.px.mantissa", 10_000 + i64::from(seq)).expect("a member");
            publisher.publish(&record).expect("published");
            assert_eq!(any.recv_timeout(SOON).expect("message").value, record, "{at_a}");
            sizes.push(raw.recv_timeout(SOON).expect("message").value.len());
        }
        // A presence map and one byte of price. Of two subscribers that join at once, the second
        // may have requested a key frame that comes a little later.
        let renewed = sizes[1..].iter().filter(|size| **size != 2).count();
        assert!(sizes[0] == 9 && renewed <= 1, "{at_a}: {sizes:?}");
    }
    let node = Node::new();
    let wrong = folder.write("wrong.xml", "<template name='T' id='1'><int32 name='a'><tail/></int32></template>");
    let refused = |wire: &str| node.publisher_on::<Book>(topic, wire).err().expect("refused").to_string();
    let error = refused(&format!("fast:template={wrong}@inproc/feed-none"));
    assert!(error.contains("[S2] line 1, column 43") && error.contains("wrong.xml"), "{error}");
    let error = refused("fast:template=/nowhere.xml@inproc/feed-none");
    assert!(error.starts_with("template document '/nowhere.xml': "), "{error}");
    let error = refused("fast:key_interval=often@inproc/feed-none");
    assert!(error.contains("option 'key_interval' has the value 'often'; allowed: N"), "{error}");
}

/// A peer written by hand, which subscribes to nothing and publishes on topic `r`.
struct Peer {
    stream: TcpStream,
    encoder: StreamEncoder,
    decoder: StreamDecoder,
    inbox: Vec<u8>,
}

impl Peer {
    fn of(socket: &TcpListener) -> Peer {
        let (stream, _) = socket.accept().expect("a caller");
        stream.set_read_timeout(Some(SOON)).expect("a time-out");
        let (encoder, decoder) = (StreamEncoder::default(), StreamDecoder::default());
        let mut peer = Peer { stream, encoder, decoder, inbox: Vec::new() };
        peer.send(|encoder, out| encoder.hello(&Hello { node: Id128([3; 16]), incarnation: 1 }, out));
        peer
    }

    fn send(&mut self, write: impl FnOnce(&mut StreamEncoder, &mut Vec<u8>)) {
        let mut out = Vec::new();
        write(&mut self.encoder, &mut out);
        self.stream.write_all(&out).expect("sends");
    }

    fn send_data(&mut self, envelope: &Envelope<'_>, payload: &[u8]) {
        self.send(|encoder, out| {
            encoder.data(envelope, payload.len(), out).expect("fits");
            out.extend_from_slice(payload);
        });
    }

    /// All answers up to the first one for the channel `last`.
    fn answers(&mut self, last: u32) -> Vec<(u32, Answer)> {
        let mut answers = Vec::new();
        loop {
            answers.extend(self.parsed());
            if answers.last().is_some_and(|(channel, _)| *channel == last) {
                return answers;
            }
            assert!(self.read(), "no answer came");
        }
    }

    /// The answers that have come. Does not wait.
    fn answers_so_far(&mut self) -> Vec<(u32, Answer)> {
        self.stream.set_nonblocking(true).expect("a socket");
        while self.read() {}
        self.stream.set_nonblocking(false).expect("a socket");
        self.parsed()
    }

    /// Takes in what has come. False if nothing comes in time.
    fn read(&mut self) -> bool {
        let mut bytes = [0; 4096];
        match self.stream.read(&mut bytes) {
            Ok(count) => {
                assert!(count > 0, "the node has closed");
                self.inbox.extend_from_slice(&bytes[..count]);
                true
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
                false
            }
        }
    }

    fn parsed(&mut self) -> Vec<(u32, Answer)> {
        let mut answers = Vec::new();
        while let Step::Frame { frame, used } = self.decoder.step(&self.inbox).expect("well-formed") {
            if let Frame::Answer { channel, answer } = frame {
                answers.push((channel.0, answer));
            }
            self.inbox.drain(..used);
        }
        answers
    }
}

#[test]
fn a_peer_that_sends_nonsense_gets_few_requests_and_no_value_is_wrong() {
    let (all, socket) = (books(2000), TcpListener::bind("127.0.0.1:0").expect("binds"));
    let node = Node::new();
    let endpoint = format!("tcp-connect/{}", socket.local_addr().expect("an address"));
    let subscriber = subscribe(&node, "r", &endpoint);
    let mut peer = Peer::of(&socket);
    let announcement = Announcement {
        topic: "r".into(),
        codec: "fast".into(),
        type_name: "Market::Book".into(),
        type_hash: Id128(Book::shape().schema().type_hash().to_bytes()),
        ..Announcement::default()
    };
    let mut channel = Default::default();
    peer.send(|encoder, out| channel = encoder.announce(&announcement, Start::default(), out).expect("fits"));
    assert_eq!(peer.answers(1), [(1, Answer::Renew(1))], "who opens a stream asks for a key frame");
    let encoder = Encoder::<Book>::new(&FAST, &Options::default()).expect("it lowers");
    let (mut random, mut state) = (Random::new(1), encoder.state().expect("it is stateful"));
    let (mut sequence, mut sent) = (0, 0);
    let mut send_nonsense = |peer: &mut Peer, book: &Book| {
        let mut payload = Vec::new();
        encoder.encode_with(&mut state, true, book, &mut payload).expect("it encodes");
        sequence += 1 + random.below(3) as u64;
        // Deltas without any key frame, with random anchors: nobody has the messages to which they
        // refer.
        let anchor = match random.below(5) {
            0 => None,
            1 => Some(sequence + 1 + random.below(100) as u64),
            2 => Some(u64::MAX),
            _ => Some(random.below(sequence as usize) as u64),
        };
        if random.one_in(4) {
            let at = random.below(payload.len());
            payload[at] ^= 1 << random.below(8);
        }
        let envelope = Envelope { anchor, ..Envelope::data(channel, sequence, 0) };
        peer.send_data(&envelope, &payload);
        sent += 1;
        sequence
    };
    for book in &all {
        send_nonsense(&mut peer, book);
    }
    // The first request came above. A further one comes with the first message after a pause.
    let (mut further, late, mut last) = (Vec::new(), Instant::now() + SOON, 0);
    while further.is_empty() {
        assert!(Instant::now() < late, "no further request came");
        last = send_nonsense(&mut peer, &all[0]);
        thread::sleep(Duration::from_millis(1));
        further.extend(peer.answers_so_far());
    }
    // A channel whose configuration document is missing.
    let configured = Announcement { configuration: Some(Id128([9; 16])), ..announcement.clone() };
    peer.send(|encoder, out| {
        encoder.announce(&configured, Start::default(), out).expect("fits");
    });
    peer.send(|encoder, out| encoder.control(&Frame::Document { document: Id128([9; 16]), bytes: None }, out));
    further.extend(peer.answers(2));
    let requests = further.iter().filter(|(channel, _)| *channel == 1).count();
    assert!((1..20).contains(&requests), "{requests} requests for {sent} messages");
    assert!(matches!(&further.last(), Some((2, Answer::Refuse(_)))), "{further:?}");
    assert_eq!((subscriber.undecodable(), subscriber.try_recv().is_none()), (sent, true));
    // With the first key frame, the channel becomes readable.
    let (sequence, mut payload) = (last + 1, Vec::new());
    encoder.encode(&all[3], &mut payload).expect("it encodes");
    peer.send_data(&Envelope { anchor: Some(sequence), ..Envelope::data(channel, sequence, 0) }, &payload);
    assert_eq!(subscriber.recv_timeout(SOON).map(|sample| sample.value).as_ref(), Some(&all[3]));
}
