//! Writers that announce neither format nor schema, as programs do that are not Polywire nodes: the
//! topic's wire and the subscriber's type are assumed.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use polywire::{
    Kind, Node, NodeEvent, Subscriber,
    coding::Discovered,
    engine::{
        Engine, EngineError, LinkId, LinkInfo, LinkSink, LinkStats, Loan, Local, Port, Principal, Properties, Sent,
        Sink,
    },
};
use polywire_core::{
    codec::{Encoder, cdr},
    envelope::{Announcement, ChannelId, Envelope, Id128},
    frame::{Answer, Hello, Start},
    layout::Message as _,
};
use polywire_derive::Message;

const SOON: Duration = Duration::from_secs(10);

/// An engine without peers; the test acts as the peer.
struct Foreign {
    name: &'static str,
    node: Mutex<Option<Arc<dyn LinkSink>>>,
    answers: Mutex<Vec<Answer>>,
    /// An answer to channel 1 waits for it.
    gate: Mutex<()>,
}

impl Foreign {
    fn new(name: &'static str) -> &'static Foreign {
        Box::leak(Box::new(Foreign { name, node: Mutex::default(), answers: Mutex::default(), gate: Mutex::default() }))
    }

    fn node(&self) -> Arc<dyn LinkSink> {
        self.node.lock().expect("a lock").clone().expect("an opened port")
    }

    fn writes(&self, codec: &str, options: &str) {
        self.announces(ChannelId(1), "t", codec, options);
    }

    fn announces(&self, channel: ChannelId, topic: &str, codec: &str, options: &str) {
        let (topic, codec, options) = (topic.to_string(), codec.to_string(), options.to_string());
        let announcement = Announcement { topic, codec, options, ..Announcement::default() };
        self.node().announced(channel, Start::default(), &announcement);
    }

    fn sends(&self, sequence: u64, payload: &[u8]) {
        self.sends_on(ChannelId(1), sequence, payload);
    }

    fn sends_on(&self, channel: ChannelId, sequence: u64, payload: &[u8]) {
        self.node().message(&Envelope::data(channel, sequence, 0), payload);
        self.node().drained();
    }

    fn last_answer(&self) -> Option<Answer> {
        self.answers.lock().expect("a lock").last().cloned()
    }

    /// Has a thread of the node decide on the channel of a topic of its own until the gate is open.
    fn decides_elsewhere(&'static self, node: &Node) -> (MutexGuard<'static, ()>, JoinHandle<Subscriber<Newer>>) {
        self.announces(ChannelId(1), "another", "", "");
        assert_eq!(self.last_answer(), Some(Answer::Decline));
        let (gate, node, wire) = (self.gate.lock().expect("a lock"), node.clone(), format!("cdr@{}/here", self.name));
        let subscribing = thread::spawn(move || node.subscriber_on::<Newer>("another", &wire).expect("subscriber"));
        let until = Instant::now() + SOON;
        while self.last_answer() != Some(Answer::Accept(1)) {
            assert!(Instant::now() < until, "the thread decides");
            thread::sleep(Duration::from_millis(1));
        }
        (gate, subscribing)
    }

    /// Writes while a thread of the node decides: nothing comes before that has ended.
    fn writes_meanwhile<T>(
        &'static self,
        node: &Node,
        subscriber: &Subscriber<T>,
        write: impl FnOnce() + Send + 'static,
    ) {
        let (gate, subscribing) = self.decides_elsewhere(node);
        let writing = thread::spawn(write);
        thread::sleep(Duration::from_millis(100));
        assert!(subscriber.try_recv().is_none(), "nobody has decided");
        drop(gate);
        writing.join().expect("written");
        subscribing.join().expect("a subscriber");
    }
}

impl Engine for &'static Foreign {
    fn name(&self) -> &'static str {
        self.name
    }

    fn summary(&self) -> &'static str {
        "a peer of another make"
    }

    fn example(&self) -> &'static str {
        "here"
    }

    fn properties(&self) -> Properties {
        Properties { reliable: true, ordered: true, multicast: false, largest_payload: None, matches: false }
    }

    fn open(&self, _: &str, _: &Local, sink: Arc<dyn Sink>) -> Result<Arc<dyn Port>, EngineError> {
        let peer = Hello::default();
        let link = LinkInfo { id: LinkId(u64::MAX), peer, address: "there".into(), principal: Principal::Anonymous };
        *self.node.lock().expect("a lock") = Some(sink.link(&link));
        Ok(Arc::new(ForeignPort(self)))
    }
}

struct ForeignPort(&'static Foreign);

impl Port for ForeignPort {
    fn endpoint(&self) -> String {
        format!("{}/here", self.0.name)
    }

    fn announce(&self, _: &Announcement, _: Start) -> Result<ChannelId, EngineError> {
        Ok(ChannelId(1))
    }

    fn reserve(&self, size: usize) -> Loan {
        Loan::new(Vec::with_capacity(size), 0)
    }

    fn commit(&self, _: &Envelope<'_>, _: Loan) -> Result<Sent, EngineError> {
        Ok(Sent::default())
    }

    fn retire(&self, _: ChannelId) {}

    fn answer(&self, _: LinkId, channel: ChannelId, answer: Answer) {
        self.0.answers.lock().expect("a lock").push(answer);
        if channel == ChannelId(1) {
            drop(self.0.gate.lock());
        }
    }

    fn want(&self, _: LinkId, _: Id128) {}

    fn supply(&self, _: LinkId, _: Id128, _: Option<&[u8]>) {}

    fn flush(&self, _: Instant) -> bool {
        true
    }

    fn links(&self) -> Vec<LinkStats> {
        Vec::new()
    }

    fn close(&self) {}
}

/// The type of the foreign writer.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Sensor", appendable)]
struct Older {
    #[polywire(key)]
    id: u32,
    value: f64,
}

/// The type that the subscriber assumes.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Sensor", appendable)]
struct Newer {
    #[polywire(key)]
    id: u32,
    value: f64,
    #[polywire(default = "none")]
    unit: String,
}

fn encoded<T: polywire::Message>(codec: &cdr::Cdr, options: &str, value: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    let encoder = Encoder::<T>::new(codec, &options.parse().expect("options")).expect("an encoder");
    encoder.encode(value, &mut bytes).expect("encoded");
    bytes
}

#[test]
fn a_key_frame_is_requested_once_for_each_subscriber() {
    let engine = Foreign::new("foreign-k");
    let node = Node::builder().engine(Box::leak(Box::new(engine))).build();
    let subscribe = || node.subscriber_on::<Newer>("t", "fast@foreign-k/here").expect("subscriber");
    let _first = subscribe();
    engine.writes("fast", "");
    assert_eq!(engine.last_answer(), Some(Answer::Renew(1)));
    let second = subscribe();
    assert_eq!(engine.last_answer(), Some(Answer::Renew(2)));
    // It is decided anew, but the first subscriber's request is under way.
    drop(second);
    assert_eq!(engine.last_answer(), Some(Answer::Accept(1)));
}

#[test]
fn a_writer_without_schema_and_format_is_read_as_the_topic_says() {
    let engine = Foreign::new("foreign-a");
    let node = Node::builder().engine(Box::leak(Box::new(engine))).build();
    let subscriber = node.subscriber_on::<Newer>("t", "xcdr2:header@foreign-a/here").expect("subscriber");
    engine.writes("", "");
    assert_eq!(engine.last_answer(), Some(Answer::Accept(1)));

    let whole = Newer { id: 1, value: 0.5, unit: "bar".into() };
    engine.sends(1, &encoded(&cdr::XCDR2, "be,header", &whole));
    engine.sends(2, &encoded(&cdr::XCDR2, "le,header", &Older { id: 2, value: 1.5 }));
    engine.sends(3, &encoded(&cdr::CDR, "header", &whole));
    let first = subscriber.recv_timeout(SOON).expect("a message");
    assert_eq!((first.value, first.info.kind), (whole, Kind::Data));
    let second = subscriber.recv_timeout(SOON).expect("a message");
    assert_eq!(second.value, Newer { id: 2, value: 1.5, unit: "none".into() });
    assert_eq!((subscriber.try_recv().map(|s| s.value), subscriber.undecodable()), (None, 1));
}

#[test]
fn a_format_that_is_announced_stands() {
    let engine = Foreign::new("foreign-b");
    let node = Node::builder().engine(Box::leak(Box::new(engine))).build();
    let subscriber = node.subscriber_on::<Newer>("t", "json@foreign-b/here").expect("subscriber");
    engine.writes("cdr", "be");
    engine.sends(1, &encoded(&cdr::CDR, "be", &Older { id: 3, value: 2.5 }));
    let sample = subscriber.recv_timeout(SOON).expect("a message");
    assert_eq!(sample.value, Newer { id: 3, value: 2.5, unit: "none".into() });
}

#[test]
fn another_schema_than_the_subscribers_may_be_assumed() {
    let engine = Foreign::new("foreign-c");
    let node = Node::builder().engine(Box::leak(Box::new(engine))).build();
    let events = node.events();
    let wire = Some("cdr@foreign-c/here");
    let unknown = node.subscribe_of("t", wire, Discovered::new().expect("records")).expect("subscriber").open();
    engine.writes("", "");
    assert!(matches!(engine.last_answer(), Some(Answer::Refuse(reason)) if reason.contains("schema is unknown")));
    let told = std::iter::from_fn(|| events.try_recv());
    assert!(told.into_iter().any(|event| matches!(event, NodeEvent::Mismatch { .. })));
    drop(unknown);

    let subscribe = node.subscribe_of("t", wire, Discovered::new().expect("records")).expect("subscriber");
    let subscriber = subscribe.assume(Older::shape().schema().clone()).open();
    engine.sends(1, &encoded(&cdr::CDR, "", &Older { id: 4, value: 3.5 }));
    let record = subscriber.recv_timeout(SOON).expect("a message").value;
    assert_eq!(record.f64("value").expect("a member"), 3.5);
}

#[test]
fn messages_of_a_new_writer_wait_for_the_thread_that_decides() {
    let engine = Foreign::new("foreign-d");
    let node = Node::builder().engine(Box::leak(Box::new(engine))).build();
    let subscriber = node.subscriber_on::<Newer>("t", "cdr@foreign-d/here").expect("subscriber");
    engine.writes_meanwhile(&node, &subscriber, || {
        engine.announces(ChannelId(2), "t", "", "");
        engine.sends_on(ChannelId(2), 1, &encoded(&cdr::CDR, "", &Newer { id: 5, ..Newer::default() }));
    });
    assert_eq!(subscriber.recv_timeout(SOON).map(|sample| sample.value.id), Some(5));
    assert_eq!(subscriber.lost(), 0);
}

#[test]
fn messages_behind_a_document_wait_for_the_thread_that_decides() {
    let engine = Foreign::new("foreign-f");
    let node = Node::builder().engine(Box::leak(Box::new(engine))).build();
    let wire = Some("cdr@foreign-f/here");
    let subscribe = node.subscribe_of("t", wire, Discovered::new().expect("records")).expect("subscriber");
    let subscriber = subscribe.open();
    let document = Newer::shape().schema().to_bytes();
    let schema = Id128::of_document(&document);
    let announcement = Announcement { topic: "t".into(), codec: "cdr".into(), schema, ..Announcement::default() };
    engine.node().announced(ChannelId(2), Start::default(), &announcement);
    engine.writes_meanwhile(&node, &subscriber, move || {
        engine.node().supplied(schema, Some(&document));
        engine.sends_on(ChannelId(2), 1, &encoded(&cdr::CDR, "", &Newer { id: 5, ..Newer::default() }));
    });
    let record = subscriber.recv_timeout(SOON).expect("a message").value;
    assert_eq!((record.u64("id"), subscriber.lost()), (Ok(5), 0));
}

#[test]
fn messages_that_cannot_wait_for_a_decision_are_lost_and_counted() {
    let engine = Foreign::new("foreign-e");
    let node = Node::builder().engine(Box::leak(Box::new(engine))).build();
    let subscriber = node.subscriber_on::<Newer>("t", "cdr@foreign-e/here").expect("subscriber");
    let (gate, subscribing) = engine.decides_elsewhere(&node);
    let sends = |sequence| {
        let value = Newer { id: sequence as u32, ..Newer::default() };
        engine.sends_on(ChannelId(2), sequence, &encoded(&cdr::CDR, "", &value));
    };
    engine.announces(ChannelId(2), "t", "", "");
    (1..=2).for_each(sends);
    assert_eq!(subscriber.lost(), 0, "nobody knows who reads it");
    drop(gate);
    subscribing.join().expect("a subscriber");
    sends(3);
    assert_eq!(subscriber.recv_timeout(SOON).map(|sample| sample.value.id), Some(3));
    assert_eq!(subscriber.lost(), 2);
}
