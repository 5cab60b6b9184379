//! Every published message arrives or is counted as lost, whatever fails. Subscribers are counted
//! wherever they are.

mod common;

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use common::{SOON, fifo::Fifo, until};
use polywire::{
    Node, NodeEvent, Publisher, Subscriber,
    coding::Bytes,
    engine::Event,
    qos::{Qos, Reliability},
};
use polywire_core::{
    envelope::{Announcement, Envelope, Id128},
    frame::{Answer, Frame, Hello, Start, Step, StreamDecoder, StreamEncoder},
    layout::Message as _,
    qos::Offer,
};
use polywire_derive::Message;

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Plant::Reading")]
struct Reading {
    count: u32,
}

fn at(endpoint: &str) -> String {
    format!("cdr@{endpoint}")
}

/// Forwards connections to an address. When it is cut, bytes that it has received and not forwarded
/// are lost, as in a relay that is killed.
struct Proxy {
    address: String,
    held: Arc<AtomicBool>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    fn to(address: &str) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let proxy = Proxy {
            address: listener.local_addr().expect("an address").to_string(),
            held: Arc::default(),
            streams: Arc::default(),
        };
        let (to, held, streams) = (address.to_owned(), proxy.held.clone(), proxy.streams.clone());
        thread::spawn(move || {
            for from in listener.incoming() {
                let from = from.expect("a caller");
                let to = TcpStream::connect(&to).expect("the other end");
                let clone = |stream: &TcpStream| stream.try_clone().expect("a clone");
                streams.lock().expect("streams").extend([clone(&from), clone(&to)]);
                for (from, to) in [(clone(&from), clone(&to)), (to, from)] {
                    let held = held.clone();
                    thread::spawn(move || forward(from, to, &held));
                }
            }
        });
        proxy
    }

    /// Stops forwarding, keeps receiving for a while, and then breaks all connections.
    fn cut(&self, time: Duration) {
        self.held.store(true, Ordering::SeqCst);
        thread::sleep(time);
        for stream in self.streams.lock().expect("streams").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.held.store(false, Ordering::SeqCst);
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, held: &AtomicBool) {
    let mut buffer = [0; 4096];
    let mut is_held = false;
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        // Once held, nothing more is forwarded on this connection.
        is_held |= held.load(Ordering::SeqCst);
        if !is_held && to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
}

#[test]
fn what_a_cut_link_loses_is_counted_at_both_ends() {
    let (here, there) = (Node::new(), Node::new());
    let endpoint = here.open("tcp-listen/127.0.0.1:0").expect("listens");
    let proxy = Proxy::to(endpoint.split_once('/').expect("an address").1);
    let readings: Subscriber<Reading> = here.subscriber_on("r", &at(&endpoint)).expect("subscriber");
    let events = there.events();
    let wire = at(&format!("tcp-connect/{}", proxy.address));
    let publisher: Publisher<Reading> = there.publisher_on("r", &wire).expect("publisher");
    assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
    let (mut published, mut unheard, mut received) = (0, 0, 0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..3 {
                thread::sleep(Duration::from_millis(150));
                proxy.cut(Duration::from_millis(30));
            }
        });
        let end = Instant::now() + Duration::from_millis(900);
        while Instant::now() < end {
            published += 1;
            let sent = publisher.publish(&Reading { count: published }).expect("published");
            unheard += u64::from(sent.subscribers == 0);
            thread::sleep(Duration::from_micros(300));
        }
    });
    // A last one over an intact link shows what is missing before it.
    assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
    published += 1;
    publisher.publish(&Reading { count: published }).expect("published");
    let mut last = 0;
    while last < published {
        last = readings.recv_timeout(SOON).expect("the last one comes").value.count;
        received += 1;
    }
    assert_eq!(received + readings.lost(), u64::from(published), "{} lost", readings.lost());
    assert!(readings.lost() > 0, "what the cuts took was not lost");
    // The sender counts at least as many: messages published to nobody, and unconfirmed ones.
    let unconfirmed = |event| match event {
        NodeEvent::Engine { event: Event::Unconfirmed { count, .. }, .. } => Some(count),
        _ => None,
    };
    let unconfirmed: u64 = std::iter::from_fn(|| events.try_recv()).filter_map(unconfirmed).sum();
    assert!(unconfirmed > 0 && unconfirmed + unheard >= readings.lost(), "{unconfirmed} and {unheard}");
}

#[test]
fn what_the_history_brings_after_a_cut_is_not_lost() {
    mend_by_history("r");
}

#[test]
fn what_the_history_brings_after_a_cut_comes_once_to_a_pattern() {
    mend_by_history("*");
}

/// Subscribes to the topic `r`, or a pattern that fits it. The history replaces what a cut takes.
fn mend_by_history(topic: &str) {
    let (here, there) = (Node::new(), Node::new());
    let endpoint = here.open("tcp-listen/127.0.0.1:0").expect("listens");
    let proxy = Proxy::to(endpoint.split_once('/').expect("an address").1);
    let requested = Qos::default().transient_local();
    let subscribe = here.subscribe::<Reading>(topic, Some(&at(&endpoint))).expect("subscriber");
    let readings = subscribe.qos(requested.clone()).expect("policies").open();
    let wire = at(&format!("tcp-connect/{}", proxy.address));
    let publish = there.publish::<Reading>("r", Some(&wire)).expect("publisher");
    let publisher = publish.qos(requested.keep_last(100)).expect("policies").open().expect("publisher");
    assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
    let mut published = 0;
    let mut publish = |count: u32| {
        for _ in 0..count {
            published += 1;
            publisher.publish(&Reading { count: published }).expect("published");
        }
    };
    let next = || readings.recv_timeout(SOON).expect("a reading").value.count;
    publish(10);
    assert!((1..=10).all(|count| next() == count));
    // These do not pass the proxy, and the link breaks. The history of 100 brings the last ones.
    proxy.held.store(true, Ordering::SeqCst);
    publish(150);
    proxy.cut(Duration::ZERO);
    assert!((61..=160).all(|count| next() == count));
    publish(1);
    assert_eq!(next(), 161);
    assert_eq!((readings.lost(), readings.undecodable()), (50, 0), "11 to 60 are in no history any more");
}

#[test]
fn what_a_pattern_holds_for_a_history_comes_even_if_the_link_breaks() {
    let here = Node::new();
    let endpoint = here.open("tcp-listen/127.0.0.1:0").expect("listens");
    let subscribe = here.subscribe_of("*", Some(&endpoint), Bytes::default()).expect("subscriber");
    let readings = subscribe.qos(Qos::default().transient_local()).expect("policies").open();
    // The peer offers a history, and breaks the link before it has announced the history's channel.
    let write = |encoder: &mut StreamEncoder, out: &mut Vec<u8>| {
        let offer = Offer { qos: Qos::default().transient_local(), ..Offer::default() }.to_bytes();
        let (writer, codec) = (Id128([7; 16]), "cdr".into());
        let announcement = Announcement { topic: "r".into(), writer, codec, offer, ..Announcement::default() };
        let channel = encoder.announce(&announcement, Start::default(), out).expect("fits");
        for sequence in 1..=3 {
            encoder.data(&Envelope::data(channel, sequence, 0), 1, out).expect("fits");
            out.push(7);
        }
    };
    let peer = stranger(endpoint.split_once('/').expect("an address").1, write, |_| Vec::new());
    until("the writer", || readings.status().writers == 1);
    thread::sleep(Duration::from_millis(200));
    peer.shutdown(Shutdown::Both).expect("the link breaks");
    until("the break", || here.links() == 0);
    // The subscriber waits for another link, and then for no history any more.
    for sequence in 1..=3 {
        assert_eq!(readings.recv_timeout(SOON).map(|sample| sample.info.sequence), Some(sequence));
    }
    assert_eq!(readings.lost(), 0);
}

#[test]
fn what_the_history_brings_after_a_cut_behind_a_relay_is_not_lost() {
    let [relay, there, here] = [(); 3].map(|()| Node::new());
    let endpoint = relay.open("tcp/127.0.0.1:0").expect("listens");
    let proxy = Proxy::to(endpoint.split_once('/').expect("an address").1);
    let policies = Qos::default().transient_local().reliability(Reliability::Reliable);
    let wire = at(&format!("tcp-connect/{}", proxy.address));
    let subscribe = here.subscribe::<Reading>("r", Some(&wire)).expect("subscriber");
    let readings = subscribe.qos(policies.clone()).expect("policies").open();
    let wire = at(&endpoint.replacen("tcp/", "tcp-connect/", 1));
    let publish = there.publish::<Reading>("r", Some(&wire)).expect("publisher");
    let publisher = publish.qos(policies.keep_last(10_000)).expect("policies").open().expect("publisher");
    assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
    let mut published = 0;
    thread::scope(|scope| {
        let cuts = scope.spawn(|| {
            for _ in 0..3 {
                thread::sleep(Duration::from_millis(150));
                proxy.cut(Duration::from_millis(30));
            }
        });
        while !cuts.is_finished() {
            published += 1;
            publisher.publish(&Reading { count: published }).expect("published");
            thread::sleep(Duration::from_micros(300));
        }
    });
    for count in 1..=published {
        assert_eq!(readings.recv_timeout(SOON).map(|sample| sample.value.count), Some(count));
    }
    assert_eq!((readings.lost(), readings.undecodable()), (0, 0));
}

#[test]
fn a_link_that_ends_in_good_order_loses_nothing() {
    let (here, there) = (Node::new(), Node::new());
    let endpoint = here.open("tcp-listen/127.0.0.1:0").expect("listens");
    let connecting = endpoint.replacen("tcp/", "tcp-connect/", 1);
    let readings: Subscriber<Reading> = here.subscriber_on("r", &at(&endpoint)).expect("subscriber");
    let publisher: Publisher<Reading> = there.publisher_on("r", &at(&connecting)).expect("publisher");
    assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
    let codecs = ["cdr", "cdr:be", "xcdr2"];
    for count in 0..600 {
        if count % 20 == 0 {
            publisher.set_wire(codecs[count as usize / 20 % 3]).expect("another codec");
        }
        publisher.publish(&Reading { count }).expect("published");
    }
    let events = here.events();
    drop(publisher);
    there.close();
    for count in 0..600 {
        assert_eq!(readings.recv_timeout(SOON).map(|sample| sample.value), Some(Reading { count }));
    }
    assert_eq!(readings.lost(), 0);
    until("the goodbye", || here.links() == 0);
    let broke = |event: &NodeEvent| matches!(event, NodeEvent::Engine { event: Event::Unconfirmed { .. }, .. });
    assert!(!std::iter::from_fn(|| events.try_recv()).any(|event| broke(&event)));
}

#[test]
fn subscribers_are_counted_on_one_node_and_behind_a_relay() {
    let path = format!("{}/pw-count-{}.sock", std::env::temp_dir().display(), std::process::id());
    let engines = ["inproc/count".to_owned(), "tcp/127.0.0.1:0".into(), format!("unix/{path}"), format!("fifo/{path}")];
    for first in engines {
        let [hub, a, b, writer] = std::array::from_fn(|_| Node::builder().engine(&Fifo).build());
        let endpoint = hub.open(&first).expect("listens");
        let wire = at(&endpoint);
        let subscribe = |node: &Node| node.subscriber_on::<Reading>("r", &wire).expect("subscriber");
        let publisher: Publisher<Reading> = writer.publisher_on("r", &wire).expect("publisher");
        let (_one, two, _other) = (subscribe(&a), subscribe(&a), subscribe(&b));
        assert_eq!(publisher.wait_for_subscribers(3, SOON), 3, "{first}");
        let sent = publisher.publish(&Reading::default()).expect("published");
        assert_eq!((sent.subscribers, sent.held), (3, 0), "{first}");
        // One beside the publisher, and one on the hub.
        let (beside, _hubs) = (subscribe(&writer), subscribe(&hub));
        assert_eq!(publisher.wait_for_subscribers(5, SOON), 5, "{first}");
        drop((two, beside));
        until("two leave", || publisher.wait_for_subscribers(0, Duration::ZERO) == 3);
        assert_eq!(publisher.publish(&Reading::default()).expect("published").subscribers, 3, "{first}");
        b.close();
        until("a node leaves", || publisher.wait_for_subscribers(0, Duration::ZERO) == 2);
    }
}

/// A peer written by hand. It declines every channel and answers every other frame with `reply`.
fn stranger(
    address: &str,
    first: impl FnOnce(&mut StreamEncoder, &mut Vec<u8>),
    mut reply: impl FnMut(&Frame<'_>) -> Vec<u8> + Send + 'static,
) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("connects");
    let (mut encoder, mut out) = (StreamEncoder::default(), Vec::new());
    encoder.hello(&Hello { node: Id128([8; 16]), incarnation: 1 }, &mut out);
    first(&mut encoder, &mut out);
    stream.write_all(&out).expect("sends");
    let mut reading = stream.try_clone().expect("a clone");
    thread::spawn(move || {
        let (mut decoder, mut input, mut buffer) = (StreamDecoder::default(), Vec::new(), [0; 4096]);
        while let Ok(count @ 1..) = reading.read(&mut buffer) {
            input.extend_from_slice(&buffer[..count]);
            while let Ok(Step::Frame { frame, used }) = decoder.step(&input) {
                let _ = reading.write_all(&match frame {
                    Frame::Announce { channel, .. } => frame_of(&Frame::Answer { channel, answer: Answer::Decline }),
                    frame => reply(&frame),
                });
                input.drain(..used);
            }
        }
    });
    stream
}

fn frame_of(frame: &Frame<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    StreamEncoder::default().control(frame, &mut out);
    out
}

fn document(document: Id128, bytes: Option<&[u8]>) -> Vec<u8> {
    frame_of(&Frame::Document { document, bytes })
}

#[test]
fn a_relay_fetches_documents_past_those_that_have_them_not() {
    let (relay, writer) = (Node::new(), Node::new());
    let endpoint = relay.open("tcp/127.0.0.1:0").expect("listens");
    let address = endpoint.split_once('/').expect("an address").1;
    let schema = Id128(Reading::shape().schema().document_hash().to_bytes());
    let claim = |encoder: &mut StreamEncoder, out: &mut Vec<u8>| {
        let announcement = Announcement { topic: "junk".into(), schema, ..Announcement::default() };
        encoder.announce(&announcement, Start::default(), out).expect("fits");
    };
    // They claim to have the writer's schema. Then they deny it, send other bytes, or send nothing.
    let wanted = |frame: &Frame<'_>| matches!(frame, Frame::Want { .. });
    let _denies = stranger(address, claim, move |frame| match wanted(frame) {
        true => document(schema, None),
        false => Vec::new(),
    });
    let _lies = stranger(address, claim, move |frame| match wanted(frame) {
        true => document(schema, Some(b"not it")),
        false => Vec::new(),
    });
    let _silent = stranger(address, claim, |_| Vec::new());
    until("three strangers", || relay.discovered().len() == 3);
    // Another peer denies the document again and again, without having been asked.
    let mut denying = stranger(address, |_, _| {}, |_| Vec::new());
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let spam = thread::spawn(move || {
        while !stopped.load(Ordering::SeqCst) && denying.write_all(&document(schema, None).repeat(50)).is_ok() {
            thread::sleep(Duration::from_millis(1));
        }
    });
    let publisher: Publisher<Reading> = writer.publisher_on("r", &at(&endpoint)).expect("publisher");
    until("the writer", || relay.discovered().len() == 4);
    for _ in 0..3 {
        let newcomer = Node::new();
        let readings: Subscriber<Reading> = newcomer.subscriber_on("r", &at(&endpoint)).expect("subscriber");
        assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
        publisher.publish(&Reading { count: 7 }).expect("published");
        assert_eq!(readings.recv_timeout(SOON).map(|sample| sample.value.count), Some(7));
        newcomer.close();
        until("it leaves", || publisher.wait_for_subscribers(0, Duration::ZERO) == 0);
    }
    stop.store(true, Ordering::SeqCst);
    spam.join().expect("no panic");
}
