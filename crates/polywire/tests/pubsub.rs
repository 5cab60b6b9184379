//! Publish and subscribe with types, over every engine built in and one registered.

mod common;

use std::{
    collections::BTreeSet,
    mem::ManuallyDrop,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::{Duration, Instant},
};

use common::{SOON, fifo::Fifo, until};
use futures_core::Stream;
use polywire::{
    Config, Node, NodeEvent, Publisher,
    coding::{Bytes, Discovered, Dynamic},
    engine::Overflow,
};
use polywire_core::{
    envelope::{Announcement, Id128},
    frame::{Answer, Frame, Hello, Start, Step, StreamDecoder, StreamEncoder},
    layout::Message as _,
};
use polywire_derive::Message;

/// The publisher's type.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Plant::Reading")]
struct Reading {
    sensor: String,
    value: f64,
    count: u32,
}

/// The same type, as an older subscriber has it: one member fewer, another order.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Plant::Reading")]
struct OldReading {
    count: u32,
    sensor: String,
}

/// An incompatible type.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Plant::Reading")]
struct WrongReading {
    sensor: f64,
}

fn reading(count: u32) -> Reading {
    Reading { sensor: format!("boiler {}", count % 7), value: f64::from(count) / 2.0, count }
}

fn publish_all(publisher: &Publisher<Reading>, counts: std::ops::Range<u32>) {
    for count in counts {
        publisher.publish(&reading(count)).expect("published");
    }
}

/// Maps the endpoint that one node has opened to the endpoint that another node opens.
type ToOther = fn(&str) -> String;

/// Endpoints for a test that each engine can use: the one that opens first, and the one for all
/// others.
fn endpoints(test: &str) -> Vec<(String, ToOther)> {
    fn same(endpoint: &str) -> String {
        endpoint.into()
    }
    fn connecting(endpoint: &str) -> String {
        endpoint.replacen('/', "-connect/", 1)
    }
    let path = |kind: &str| format!("{}/pw-{test}-{kind}-{}.sock", std::env::temp_dir().display(), std::process::id());
    vec![
        (format!("inproc/{test}"), same),
        ("tcp-listen/127.0.0.1:0".into(), connecting),
        ("tcp-listen/[::1]:0".into(), connecting),
        (format!("unix-listen/{}", path("explicit")), connecting),
        (format!("unix/{}", path("either")), same),
        ("tcp/127.0.0.1:0".into(), same),
        (format!("fifo/{}", path("fifo")), same),
    ]
}

/// A node that listens and one that connects to it, and their endpoints.
fn pair(test: &str) -> impl Iterator<Item = (Node, String, Node, String)> {
    endpoints(test).into_iter().map(|(first, to_other)| {
        let [a, b] = std::array::from_fn(|_| Node::builder().engine(&Fifo).build());
        let bound = a.open(&first).expect("listens");
        let at_a = if first.ends_with(":0") { bound.clone() } else { first };
        (a, at_a, b, to_other(&bound))
    })
}

fn at(codec: &str, endpoint: &str) -> String {
    format!("{codec}@{endpoint}")
}

#[test]
fn values_arrive_in_order_and_old_types_read_them() {
    for (a, at_a, b, at_b) in pair("order") {
        let publisher: Publisher<Reading> = a.publisher_on("r", &at("cdr", &at_a)).expect("publisher");
        let new = b.subscriber_on::<Reading>("r", &at("auto", &at_b)).expect("subscriber");
        let old = b.subscriber_on::<OldReading>("r", &at("auto", &at_b)).expect("subscriber");
        assert_eq!(publisher.wait_for_subscribers(2, SOON), 2, "{at_a}");
        for count in 0..1000 {
            publisher.publish(&reading(count)).expect("published");
        }
        for count in 0..1000 {
            let sample = new.recv_timeout(SOON).unwrap_or_else(|| panic!("{at_a}: message {count}"));
            assert_eq!((sample.value, sample.info.sequence), (reading(count), u64::from(count) + 1));
            let sample = old.recv_timeout(SOON).expect("message");
            assert_eq!(sample.value, OldReading { count, sensor: reading(count).sensor });
            assert_eq!(sample.info.source.announcement.type_name, "Plant::Reading");
        }
        assert_eq!((new.lost(), old.lost()), (0, 0));
        a.close();
        b.close();
    }
}

#[test]
fn values_published_together_are_published_one_after_the_other() {
    for (a, at_a, b, at_b) in pair("together") {
        let here = a.subscriber_on::<Reading>("r", &at("auto", &at_a)).expect("subscriber");
        let there = b.subscriber_on::<OldReading>("r", &at("auto", &at_b)).expect("subscriber");
        let publisher: Publisher<Reading> = a.publisher_on("r", &at("cdr", &at_a)).expect("publisher");
        publisher.wait_for_subscribers(2, SOON);
        let peers = publisher.status().accepting;
        let mut last = 0;
        for (some, wire) in
            [(3, "json"), (1000, "cdr"), (1, "cdr"), (40, "fast"), (500, "fast"), (7, "cbor+lz4"), (0, "cdr")]
        {
            publisher.set_wire(wire).expect("another codec");
            publisher.publish(&reading(last)).expect("published");
            let values: Vec<_> = (last + 1..=last + some).map(reading).collect();
            let sent = publisher.publish_all(&values).expect("published");
            assert!(sent.peers >= some as usize && sent.peers <= peers * some as usize && sent.dropped == 0, "{at_a}");
            last += some + 1;
        }
        for count in 0..last {
            let sample = here.recv_timeout(SOON).unwrap_or_else(|| panic!("{at_a}: message {count}"));
            assert_eq!((sample.value, sample.info.sequence), (reading(count), u64::from(count) + 1));
            assert_eq!(there.recv_timeout(SOON).map(|sample| sample.value.count), Some(count), "{at_a}");
        }
        assert_eq!((here.lost(), there.lost(), here.undecodable(), there.undecodable()), (0, 0, 0, 0), "{at_a}");
        a.close();
        assert_eq!(publisher.publish_all(&[reading(0)]).map_err(|error| error.published), Err(0));
        b.close();
    }
}

#[test]
fn small_and_large_values_follow_each_other() {
    let sizes = [0, 10, 4000, 4200, 60_000, 3, 300_000, 20_000, 1, 5000, 100];
    let value = |size: usize| Reading { sensor: "x".repeat(size), ..Reading::default() };
    for (a, at_a, b, at_b) in pair("sizes") {
        let there = b.subscriber_on::<Reading>("r", &at("auto", &at_b)).expect("subscriber");
        let publisher: Publisher<Reading> = a.publisher_on("r", &at("cdr", &at_a)).expect("publisher");
        assert_eq!(publisher.wait_for_subscribers(1, SOON), 1, "{at_a}");
        for size in sizes {
            let sent = publisher.publish(&value(size)).expect("published");
            assert_eq!((sent.peers, sent.dropped), (1, 0), "{at_a}: {size}");
        }
        for (number, size) in (1..).zip(sizes) {
            let sample = there.recv_timeout(SOON).unwrap_or_else(|| panic!("{at_a}: {size}"));
            assert_eq!((sample.info.sequence, sample.value == value(size)), (number, true), "{at_a}: {size}");
        }
        a.close();
        b.close();
    }
}

#[test]
fn a_callback_gets_what_came_together_and_may_end_it() {
    for (a, at_a, b, at_b) in pair("callback-together") {
        let publisher: Publisher<Reading> = a.publisher_on("r", &at("cdr", &at_a)).expect("publisher");
        let (send, came) = mpsc::channel();
        let own = Arc::new(Mutex::new(None));
        let to_drop = own.clone();
        let subscribe = b.subscribe::<Reading>("r", Some(&at("auto", &at_b))).expect("subscriber");
        let subscription = subscribe.on_message_inline(move |value, info| {
            send.send((value.clone(), info.sequence)).expect("waited for");
            if value.count == 5000 {
                drop(to_drop.lock().expect("own").take());
            }
        });
        *own.lock().expect("own") = Some(subscription);
        publisher.wait_for_subscribers(1, SOON);
        let values: Vec<_> = (0..10_000).map(reading).collect();
        for some in values.chunks(777) {
            publisher.publish_all(some).expect("published");
        }
        for count in 0..=5000 {
            let expected = (reading(count), u64::from(count) + 1);
            assert_eq!(came.recv_timeout(SOON), Ok(expected), "{at_a}: message {count}");
        }
        // Nothing more comes, though it may have come together with the last one.
        assert!(came.recv_timeout(Duration::from_millis(50)).is_err(), "{at_a}");
    }
}

#[test]
fn a_publisher_changes_its_codec_and_nobody_notices() {
    for (a, at_a, b, at_b) in pair("switch") {
        let subscriber = a.subscriber_on::<Reading>("r", &at("auto", &at_a)).expect("subscriber");
        let publisher: Publisher<Reading> = b.publisher_on("r", &at("cdr", &at_b)).expect("publisher");
        // The first message for the other node: the subscriber may not have answered yet, and held
        // messages leave in order.
        let mut first = 0;
        until("there is a peer", || {
            first += 1;
            publisher.publish(&reading(0)).expect("published").peers > 0
        });
        for count in 1..300 {
            if count % 10 == 5 {
                publisher.set_wire(["xcdr2", "cdr:be", "cdr"][count as usize / 10 % 3]).expect("another codec");
            }
            publisher.publish(&reading(count)).expect("published");
        }
        let mut codecs = BTreeSet::new();
        for count in 0..300 {
            let sample = subscriber.recv_timeout(SOON).unwrap_or_else(|| panic!("{at_a}: message {count}"));
            assert_eq!((sample.value.count, sample.info.sequence), (count, u64::from(count) + first));
            let announced = &sample.info.source.announcement;
            codecs.insert(format!("{}:{}", announced.codec, announced.options));
        }
        assert_eq!(codecs.len(), 3, "{at_a}: {codecs:?}");
        assert_eq!(subscriber.undecodable(), 0);
    }
}

#[test]
fn what_is_published_before_anyone_answers_is_not_lost() {
    for (a, at_a, b, at_b) in pair("early").filter(|(_, at_a, ..)| !at_a.starts_with("inproc")) {
        let subscriber = a.subscriber_on::<Reading>("r", &at("auto", &at_a)).expect("subscriber");
        let publisher: Publisher<Reading> = b.publisher_on("r", &at("cdr", &at_b)).expect("publisher");
        let connected = Instant::now();
        while publisher.publish(&reading(7)).expect("published").peers == 0 {
            assert!(connected.elapsed() < SOON);
            thread::sleep(Duration::from_millis(1));
        }
        assert!(publisher.flush(SOON));
        b.close();
        assert_eq!(subscriber.recv_timeout(SOON).map(|sample| sample.value), Some(reading(7)), "{at_a}");
    }
}

#[test]
fn a_mismatch_is_told_on_both_sides() {
    for (a, at_a, b, at_b) in pair("mismatch") {
        let (events_a, events_b) = (a.events(), b.events());
        let _publisher: Publisher<Reading> = a.publisher_on("r", &at("cdr", &at_a)).expect("publisher");
        let _subscriber = b.subscriber_on::<WrongReading>("r", &at("auto", &at_b)).expect("subscriber");
        let find = |events: &polywire::Events, wanted: fn(&NodeEvent) -> bool| {
            let until = Instant::now() + SOON;
            std::iter::from_fn(|| events.recv_timeout(until.saturating_duration_since(Instant::now()))).find(wanted)
        };
        let here = find(&events_b, |event| matches!(event, NodeEvent::Mismatch { .. })).expect("told the subscriber");
        let there = find(&events_a, |event| matches!(event, NodeEvent::Refused { .. })).expect("told the publisher");
        assert!(here.to_string().contains("sensor"), "{here}");
        assert!(there.to_string().contains("sensor"), "{there}");
    }
}

#[test]
fn a_mismatch_is_in_what_publisher_and_subscriber_give() {
    for (a, at_a, b, at_b) in pair("status") {
        let publisher: Publisher<Reading> = a.publisher_on("r", &at("cdr", &at_a)).expect("publisher");
        assert_eq!(publisher.status(), polywire::PublisherStatus::default(), "{at_a}");
        let wrong = b.subscriber_on::<WrongReading>("r", &at("cdr", &at_b)).expect("subscriber");
        let until = Instant::now() + SOON;
        while publisher.status().refusing == 0 && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        let status = publisher.status();
        assert_eq!((status.accepting, status.refusing, status.refused_total), (0, 1, 1), "{at_a}");
        assert!(status.refusals[0].reason.contains("sensor") && !status.refusals[0].peer.is_empty(), "{status:?}");
        let sent = publisher.publish(&reading(1)).expect("published");
        assert_eq!((sent.peers, sent.refused), (0, 1), "{at_a}");
        let status = wrong.status();
        assert_eq!((status.writers, status.unreadable, status.mismatches_total), (0, 1, 1), "{at_a}");
        assert_eq!(status.mismatches[0].writer, publisher.writer());
        assert!(status.mismatches[0].reason.contains("sensor"), "{status:?}");
        // Another subscriber on the same node, which can read the messages.
        let right = b.subscriber_on::<Reading>("r", &at("cdr", &at_b)).expect("subscriber");
        assert_eq!(publisher.wait_for_subscribers(1, SOON), 1, "{at_a}");
        let sent = publisher.publish(&reading(1)).expect("published");
        assert_eq!((sent.peers, sent.refused), (1, 1), "{at_a}");
        assert!(right.recv_timeout(SOON).is_some());
        assert_eq!(right.status().writers, 1);
        drop(wrong);
        while publisher.status().refusing > 0 && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(publisher.publish(&reading(1)).expect("published").refused, 0, "{at_a}");
    }
}

#[test]
fn callbacks_publish_close_and_subscribe_from_within() {
    for (a, at_a, b, at_b) in pair("within") {
        let there: Publisher<Reading> = a.publisher_on("ping", &at("cdr", &at_a)).expect("publisher");
        let back: Publisher<Reading> = b.publisher_on("pong", &at("cdr", &at_b)).expect("publisher");
        let _echo = b.subscribe::<Reading>("ping", Some(&at("auto", &at_b))).expect("subscriber").on_message_inline(
            move |value, _| {
                back.publish(value).expect("published");
            },
        );
        let (done, rounds) = mpsc::channel();
        let there = Arc::new(there);
        let again = there.clone();
        let own = Arc::new(Mutex::new(None));
        let to_drop = own.clone();
        let inner = a.clone();
        let wire = at("auto", &at_a);
        let subscription = a.subscribe::<Reading>("pong", Some(&wire)).expect("subscriber").on_message_inline({
            let wire = wire.clone();
            move |value, _| {
                if value.count < 100 {
                    again.publish(&reading(value.count + 1)).expect("published");
                } else {
                    drop(inner.subscriber_on::<Reading>("other", &wire).expect("subscribes"));
                    drop(to_drop.lock().expect("own").take());
                    done.send(value.count).expect("waited for");
                }
            }
        });
        *own.lock().expect("own") = Some(subscription);
        there.wait_for_subscribers(1, SOON);
        there.publish(&reading(0)).expect("published");
        assert_eq!(rounds.recv_timeout(SOON), Ok(100), "{at_a}");
        // The callback dropped its own subscription: no call comes any more.
        there.publish(&reading(50)).expect("published");
        assert!(rounds.recv_timeout(Duration::from_millis(50)).is_err());
    }
}

#[test]
fn an_inline_callback_publishes_to_topics_that_it_reads() {
    const ROUNDS: u32 = 100;
    let (here, there) = (Node::new(), Node::new());
    let wire = at("cdr", &here.open("tcp-listen/127.0.0.1:0").expect("listens"));
    let sums: Arc<Publisher<Reading>> = Arc::new(here.publisher_on("plant/sum", &wire).expect("publisher"));
    let (send, came) = mpsc::channel();
    let publish = sums.clone();
    let subscribe = here.subscribe::<Reading>("plant/**", Some(&wire)).expect("subscriber");
    let subscription = subscribe.on_message_inline(move |value, info| {
        send.send((info.topic().to_string(), value.count)).expect("waited for");
        match info.topic() {
            "plant/boiler" => publish_all(&publish, 2 * value.count..2 * value.count + 2),
            // Each call publishes for the next one.
            _ if (2 * ROUNDS - 1..20_000).contains(&value.count) => {
                publish_all(&publish, value.count + 1..value.count + 2);
            }
            _ => {}
        }
    });
    sums.wait_for_subscribers(1, SOON);
    let wire = wire.replace("tcp/", "tcp-connect/");
    let boilers: Publisher<Reading> = there.publisher_on("plant/boiler", &wire).expect("publisher");
    boilers.wait_for_subscribers(1, SOON);
    let values: Vec<_> = (0..ROUNDS).map(reading).collect();
    boilers.publish(&values[0]).expect("published");
    boilers.publish_all(&values[1..]).expect("published");
    // A callback that hangs would hold up the drop too.
    let all = ManuallyDrop::new((subscription, sums, boilers, there, here));
    let (mut boiler, mut sum) = (0, 0);
    for _ in 0..ROUNDS + 20_001 {
        let (topic, count) = came.recv_timeout(SOON).expect("a message");
        let next = if topic == "plant/boiler" { &mut boiler } else { &mut sum };
        assert_eq!(count, *next, "{topic}");
        *next += 1;
    }
    assert_eq!((boiler, sum), (ROUNDS, 20_001));
    drop(ManuallyDrop::into_inner(all));
}

#[test]
fn a_panic_of_an_inline_callback_does_not_stop_local_delivery() {
    let (node, wire) = (Node::new(), "cdr@inproc/panic");
    let publisher = node.publisher_on::<Reading>("r", wire).expect("publisher");
    let (send, came) = mpsc::channel();
    let subscribe = node.subscribe::<Reading>("r", Some(wire)).expect("subscriber");
    let _subscription = subscribe.on_message_inline(move |value, _| {
        assert_ne!(value.count, 1, "as the test wants");
        send.send(value.count).expect("waited for");
    });
    publisher.wait_for_subscribers(1, SOON);
    assert!(catch_unwind(AssertUnwindSafe(|| publisher.publish(&reading(1)))).is_err());
    publish_all(&publisher, 2..4);
    assert_eq!([(); 2].map(|()| came.recv_timeout(SOON)), [Ok(2), Ok(3)]);
}

#[test]
fn a_panic_of_an_inline_callback_holds_up_no_writer_at_two_endpoints() {
    let (node, [one, other]) = (Node::new(), ["cdr@inproc/panic-one", "cdr@inproc/panic-other"]);
    let publish_at = node.publish::<Reading>("r", Some(one)).and_then(|both| both.also(other));
    let publisher = publish_at.expect("two endpoints").open().expect("publisher");
    let (send, came) = mpsc::channel();
    let subscribe = node.subscribe::<Reading>("r", Some(one)).and_then(|both| both.also(other));
    let _subscription = subscribe.expect("two endpoints").on_message_inline(move |value, _| {
        assert_ne!(value.count, 2, "as the test wants");
        send.send(value.count).expect("waited for");
    });
    publisher.wait_for_subscribers(1, SOON);
    publish_all(&publisher, 1..2);
    assert_eq!(came.recv_timeout(SOON), Ok(1));
    // The thread that panics delivers nothing afterwards.
    let _ = thread::scope(|scope| scope.spawn(|| publish_all(&publisher, 2..3)).join());
    publish_all(&publisher, 3..5);
    assert_eq!([(); 2].map(|()| came.recv_timeout(SOON)), [Ok(3), Ok(4)]);
}

#[test]
fn a_node_hears_itself() {
    for (a, at_a, _, _) in pair("self") {
        let publisher: Publisher<Reading> = a.publisher_on("r", &at("cdr", &at_a)).expect("publisher");
        let (sender, received) = mpsc::channel();
        let _queued = a.subscribe::<Reading>("r", Some(&at("auto", &at_a))).expect("subscriber").on_message({
            let sender = sender.clone();
            move |value, _| sender.send(value.clone()).expect("waited for")
        });
        publisher.publish(&reading(1)).expect("published");
        assert_eq!(received.recv_timeout(SOON), Ok(reading(1)), "{at_a}");
    }
}

#[test]
fn publishers_that_open_at_once_all_find_their_subscriber() {
    for (a, at_a, _b, _) in pair("at-once") {
        let _subscriber = a.subscriber_on::<Reading>("r", &at("auto", &at_a)).expect("subscriber");
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let publisher: Publisher<Reading> = a.publisher_on("r", &at("cdr", &at_a)).expect("publisher");
                        assert_eq!(publisher.wait_for_subscribers(1, SOON), 1, "{at_a}");
                        assert_eq!(publisher.status().accepting, 1, "{at_a}");
                    }
                });
            }
        });
    }
}

#[test]
fn bytes_are_received_as_they_are() {
    for (a, at_a, b, at_b) in pair("bytes") {
        let publisher: Publisher<Reading> = a.publisher_on("r", &at("cdr", &at_a)).expect("publisher");
        let raw = b.subscribe_of("r", Some(&at("auto", &at_b)), Bytes::default()).expect("subscriber").open();
        publisher.wait_for_subscribers(1, SOON);
        publisher.publish(&reading(3)).expect("published");
        let sample = raw.recv_timeout(SOON).expect("message");
        assert_eq!(sample.value.len(), sample.info.bytes);
        assert!(sample.value.windows(6).any(|window| window == b"boiler"));
    }
}

#[test]
fn records_are_published_and_received_as_any_type() {
    for (a, at_a, b, at_b) in pair("records") {
        let coding = Dynamic::of(Reading::shape().schema()).expect("a shape");
        let publisher = a.publisher_of("r", Some(&at("json", &at_a)), coding).expect("publisher");
        let typed = b.subscriber_on::<OldReading>("r", &at("auto", &at_b)).expect("subscriber");
        let old = Dynamic::of(OldReading::shape().schema()).expect("a shape");
        let dynamic = b.subscribe_of("r", Some(&at("auto", &at_b)), old).expect("subscriber").open();
        let any = Discovered::new().expect("a shape");
        let any = b.subscribe_of("r", Some(&at("auto", &at_b)), any).expect("subscriber").open();
        publisher.wait_for_subscribers(1, SOON);
        let mut record = publisher.default_value();
        record.set("sensor", "boiler").expect("a member");
        record.set("value", 2.5).expect("a member");
        record.set("count", 9_u32).expect("a member");
        publisher.publish(&record).expect("published");
        let expected = OldReading { count: 9, sensor: "boiler".into() };
        assert_eq!(typed.recv_timeout(SOON).map(|sample| sample.value), Some(expected), "{at_a}");
        let read = dynamic.recv_timeout(SOON).expect("message").value;
        assert_eq!((read.u64("count"), read.str("sensor")), (Ok(9), Ok("boiler")));
        assert!(read.f64("value").is_err(), "the older type has no such member");
        let read = any.recv_timeout(SOON).expect("message").value;
        assert_eq!((read.u64("count"), read.f64("value")), (Ok(9), Ok(2.5)));
    }
}

#[test]
fn a_schema_that_does_not_come_is_refused_in_time() {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
    let address = socket.local_addr().expect("an address");
    let node = Node::builder().fetch_timeout(Duration::from_secs(2)).build();
    let events = node.events();
    let subscriber = node.subscriber_on::<Reading>("r", &format!("auto@tcp-connect/{address}")).expect("subscriber");
    let (mut peer, _) = socket.accept().expect("a caller");
    let (mut encoder, mut out) = (StreamEncoder::default(), Vec::new());
    encoder.hello(&Hello { node: Id128([3; 16]), incarnation: 1 }, &mut out);
    let unknown = Id128([5; 16]);
    let announcement =
        Announcement { topic: "r".into(), codec: "cdr".into(), schema: unknown, ..Announcement::default() };
    encoder.announce(&announcement, Start::default(), &mut out).expect("fits");
    std::io::Write::write_all(&mut peer, &out).expect("sends");
    let mut decoder = StreamDecoder::default();
    assert!(matches!(next_frame(&mut peer, &mut decoder), Frame::Hello(_)));
    assert_eq!(next_frame(&mut peer, &mut decoder), Frame::Want { document: unknown });
    let answer = next_frame(&mut peer, &mut decoder);
    assert!(matches!(&answer, Frame::Answer { answer: Answer::Refuse(r), .. } if r.contains("in time")), "{answer:?}");
    // A document with another hash counts as missing.
    out.clear();
    encoder.announce(&announcement, Start::default(), &mut out).expect("fits");
    std::io::Write::write_all(&mut peer, &out).expect("sends");
    assert_eq!(next_frame(&mut peer, &mut decoder), Frame::Want { document: unknown });
    out.clear();
    encoder.control(&Frame::Document { document: unknown, bytes: Some(b"nonsense") }, &mut out);
    std::io::Write::write_all(&mut peer, &out).expect("sends");
    let answer = next_frame(&mut peer, &mut decoder);
    assert!(matches!(&answer, Frame::Answer { answer: Answer::Refuse(r), .. } if r.contains("hash")), "{answer:?}");
    let told = std::iter::from_fn(|| events.try_recv()).filter(|e| matches!(e, NodeEvent::Mismatch { .. })).count();
    assert_eq!(told, 2);
    assert!(subscriber.try_recv().is_none());
}

/// Reads one frame byte by byte, and skips signs of life. The result borrows nothing.
fn next_frame(peer: &mut std::net::TcpStream, decoder: &mut StreamDecoder) -> Frame<'static> {
    peer.set_read_timeout(Some(SOON)).expect("a time-out");
    let mut bytes = Vec::new();
    loop {
        let mut byte = [0];
        std::io::Read::read_exact(peer, &mut byte).expect("a byte");
        bytes.push(byte[0]);
        if let Step::Frame { frame, .. } = decoder.step(&bytes).expect("a frame") {
            match frame {
                Frame::Lease { .. } | Frame::Heartbeat => bytes.clear(),
                Frame::Hello(hello) => return Frame::Hello(hello),
                Frame::Want { document } => return Frame::Want { document },
                Frame::Answer { channel, answer } => return Frame::Answer { channel, answer },
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn the_hub_relays_between_those_who_connected() {
    for endpoint in [
        "tcp/127.0.0.1:0".to_owned(),
        format!("unix/{}/pw-hub-{}.sock", std::env::temp_dir().display(), std::process::id()),
    ] {
        let hub = Node::new();
        let bound = hub.open(&endpoint).expect("binds");
        let (from, to, wrong) = (Node::new(), Node::new(), Node::new());
        let wire = at("cdr", &bound);
        let events = from.events();
        let publisher: Publisher<Reading> = from.publisher_on("r", &wire).expect("publisher");
        let subscriber = to.subscriber_on::<OldReading>("r", &wire).expect("subscriber");
        assert_eq!(publisher.wait_for_subscribers(1, SOON), 1, "{endpoint}");
        let _wrong = wrong.subscriber_on::<WrongReading>("r", &wire).expect("subscriber");
        let until = Instant::now() + SOON;
        let next = || events.recv_timeout(until.saturating_duration_since(Instant::now()));
        let refused = std::iter::from_fn(next).find(|event| matches!(event, NodeEvent::Refused { .. }));
        assert!(refused.is_some(), "{endpoint}: the writer hears of the one who cannot read");
        for count in 0..100 {
            publisher.publish(&reading(count)).expect("published");
        }
        for count in 0..100 {
            assert_eq!(subscriber.recv_timeout(SOON).map(|sample| sample.value.count), Some(count), "{endpoint}");
        }
        let local = hub.subscriber_on::<Reading>("r", &wire).expect("subscriber");
        thread::sleep(Duration::from_millis(50));
        publisher.publish(&reading(5)).expect("published");
        // The hub may still deliver to itself what it has relayed to the others before.
        let values = std::iter::from_fn(|| local.recv_timeout(SOON).map(|sample| sample.value));
        assert!(values.take(100).any(|value| value == reading(5)));
    }
}

#[test]
fn many_publishers_and_subscribers_on_one_topic() {
    for (a, at_a, b, at_b) in pair("many") {
        let publishers: Vec<Publisher<Reading>> = ["cdr", "xcdr2", "cdr:be"]
            .iter()
            .map(|codec| a.publisher_on("r", &at(codec, &at_a)).expect("publisher"))
            .collect();
        let subscribers: Vec<_> =
            (0..3).map(|_| b.subscriber_on::<Reading>("r", &at("auto", &at_b)).expect("subscriber")).collect();
        for publisher in &publishers {
            assert_eq!(publisher.wait_for_subscribers(3, SOON), 3, "{at_a}");
        }
        thread::scope(|scope| {
            for publisher in &publishers {
                scope.spawn(move || {
                    publish_all(publisher, 0..500);
                });
            }
        });
        for subscriber in &subscribers {
            let mut next = [0; 3];
            for _ in 0..1500 {
                let sample = subscriber.recv_timeout(SOON).expect("message");
                let from = publishers.iter().position(|p| p.writer() == sample.info.source.announcement.writer);
                let next = &mut next[from.expect("one of them")];
                assert_eq!(sample.value.count, *next);
                *next += 1;
            }
        }
    }
}

#[test]
fn a_subscriber_that_does_not_keep_up_loses_only_its_own() {
    for (a, at_a, b, at_b) in pair("slow") {
        let publisher: Publisher<Reading> = a.publisher_on("r", &at("cdr", &at_a)).expect("publisher");
        let events = b.events();
        let subscribe = || b.subscribe::<Reading>("r", Some(&at("auto", &at_b))).expect("subscriber");
        let slow = subscribe().queue(10).overflow(Overflow::DropOldest).open();
        let fast = subscribe().open();
        publisher.wait_for_subscribers(1, SOON);
        publish_all(&publisher, 0..1000);
        for count in 0..1000 {
            assert_eq!(fast.recv_timeout(SOON).map(|sample| sample.value.count), Some(count));
        }
        let kept: Vec<_> = std::iter::from_fn(|| slow.try_recv()).map(|sample| sample.value.count).collect();
        assert_eq!(kept, (990..1000).collect::<Vec<_>>(), "{at_a}");
        assert_eq!(slow.lost(), 990);
        assert!(std::iter::from_fn(|| events.try_recv()).any(|event| matches!(event, NodeEvent::Lost { .. })));
    }
}

#[test]
fn streams_and_iterators() {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let node = Node::new();
    let publisher: Publisher<Reading> = node.publisher_on("r", "cdr@inproc/streams").expect("publisher");
    let mut subscriber = node.subscriber_on::<Reading>("r", "auto@inproc/streams").expect("subscriber");
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    assert!(Pin::new(&mut subscriber).poll_next(&mut context).is_pending());
    let sender = thread::spawn(move || {
        publish_all(&publisher, 0..10);
        publisher
    });
    let mut counts = Vec::new();
    while counts.len() < 5 {
        match Pin::new(&mut subscriber).poll_next(&mut context) {
            Poll::Ready(Some(sample)) => counts.push(sample.value.count),
            Poll::Ready(None) => panic!("closed"),
            Poll::Pending => thread::park_timeout(SOON),
        }
    }
    let publisher = sender.join().expect("publishes");
    subscriber.close();
    publisher.publish(&reading(99)).expect("published");
    counts.extend(subscriber.iter().map(|sample| sample.value.count));
    assert_eq!(counts, (0..10).collect::<Vec<_>>());
}

#[test]
fn wires_come_from_the_configuration() {
    let config =
        "[node]\nwire = 'cdr@inproc/configured'\n[topics.r]\nwire = 'xcdr2'\nqueue = 2\noverflow = 'drop-newest'";
    let node = Node::builder().config(Config::parse(config).expect("valid")).build();
    let publisher = node.publisher::<Reading>("r").expect("publisher");
    let subscriber = node.subscriber::<Reading>("r").expect("subscriber");
    publish_all(&publisher, 0..5);
    let sample = subscriber.recv_timeout(SOON).expect("message");
    assert_eq!((sample.value.count, sample.info.source.announcement.codec.as_str()), (0, "xcdr2"));
    assert_eq!(subscriber.recv_timeout(SOON).map(|sample| sample.value.count), Some(1));
    assert!(subscriber.try_recv().is_none());
    assert_eq!(subscriber.lost(), 3);
}

#[test]
fn mistaken_wires_are_named() {
    let node = Node::new();
    let error = |wire: &str| node.publisher_on::<Reading>("r", wire).err().expect(wire).to_string();
    assert!(error("crd@inproc/x").contains("did you mean 'cdr'?"));
    assert!(error("cdr@tpc/x").contains("did you mean 'tcp'?"));
    assert!(error("cdr@tcp/localhost").contains("the port is missing"));
    assert!(error("cdr@tcp-listen/192.0.2.1:9").contains("cannot listen"));
    assert!(error("cdr+zlob@inproc/x").contains("unknown compressor 'zlob', did you mean 'zlib'?"));
    assert!(error("cdr+zlib:12@inproc/x").contains("levels go from 1 to 9"));
    assert!(error("cdr+lzo:dict=x@inproc/x").contains("takes no dictionary"));
    assert!(error("cdr+lz4:dict=/no/such/file@inproc/x").contains("/no/such/file"));
    assert!(node.publisher::<Reading>("r").err().expect("no wire").to_string().contains("has no wire"));
}

#[test]
fn parts_of_wires_mean_the_same_in_code_as_on_the_command_line() {
    let endpoint = Node::new().open("tcp-listen/127.0.0.1:0").expect("a free port");
    let config = Config::parse("[node]\nwire = 'bson@inproc/parts'\n[topics.q]\nwire = 'json'").expect("valid");
    let node = Node::builder().config(config).build();
    let codec_and_place = |topic: &str, wire: &str| {
        let publisher: Publisher<Reading> = node.publisher_on(topic, wire).expect(wire);
        publisher.set_wire(wire).expect("its own wire is the one that it has");
        let all = node.subscribe_of(topic, Some(wire), Bytes::default()).expect(wire).open();
        publisher.publish(&reading(1)).expect("published");
        all.recv_timeout(SOON).expect("a message").info.source.announcement.codec.clone()
    };
    // An endpoint alone takes the codec that is configured.
    assert_eq!(codec_and_place("r", &endpoint), "bson");
    assert_eq!(codec_and_place("q", &endpoint), "json");
    assert_eq!(codec_and_place("q", "cdr"), "cdr");
    assert!(node.open("inproc/parts").is_ok() && node.links() == 0);
    // Without a configuration, an endpoint alone takes the first codec, and a codec alone takes the
    // default endpoint.
    let plain = Node::new();
    let publisher: Publisher<Reading> = plain.publisher_on("r", "inproc/plain").expect("an endpoint alone");
    let all = plain.subscribe_of("r", Some("inproc/plain"), Bytes::default()).expect("the same").open();
    publisher.publish(&reading(1)).expect("published");
    assert_eq!(all.recv_timeout(SOON).expect("a message").info.source.announcement.codec, "cdr");
}

#[test]
fn an_endpoint_may_be_named_in_several_ways() {
    for (a, at_a, ..) in pair("keeps") {
        let publisher: Publisher<Reading> = a.publisher_on("r", &at("cdr", &at_a)).expect("publisher");
        for same in [at("json", &at_a), at_a.clone(), a.open(&at_a).expect("open"), "xcdr2".into()] {
            publisher.set_wire(&same).unwrap_or_else(|error| panic!("{same}: {error}"));
        }
    }
}

#[test]
fn nothing_is_published_after_close_and_subscribers_end() {
    for (a, at_a, b, at_b) in pair("closed") {
        let publisher: Publisher<Reading> = a.publisher_on("r", &at("cdr", &at_a)).expect("publisher");
        let there = b.subscriber_on::<Reading>("r", &at("cdr", &at_b)).expect("subscriber");
        let here = a.subscriber_on::<Reading>("r", &at("cdr", &at_a)).expect("subscriber");
        assert!(publisher.wait_for_subscribers(2, SOON) >= 1, "{at_a}");
        publisher.publish(&reading(1)).expect("published");
        a.close();
        for _ in 0..2 {
            let error = publisher.publish(&reading(2)).expect_err("the node is closed");
            assert!(matches!(error, polywire::PublishError::Engine(polywire::engine::EngineError::Closed)), "{at_a}");
            assert!(publisher.set_wire("json").is_err(), "{at_a}");
        }
        assert_eq!(here.recv().map(|sample| sample.value.count), Some(1), "{at_a}");
        assert!(here.recv().is_none(), "{at_a}: it waits for nothing more");
        assert_eq!(there.recv_timeout(SOON).map(|sample| sample.value.count), Some(1), "{at_a}");
        assert!(there.recv_timeout(Duration::from_millis(50)).is_none());
    }
}

/// Two members of which one is large at a time.
#[derive(Clone, Debug, Default, PartialEq, Message)]
struct Turns {
    a: Vec<u8>,
    b: Vec<u8>,
}

#[test]
fn a_value_that_is_used_again_keeps_its_memory_as_far_as_the_limit_allows() {
    for (limit, kept) in [(1 << 20, 0), (16 << 20, 2 << 20)] {
        let node = Node::new();
        let publisher: Publisher<Turns> = node.publisher_on("t", "cdr@inproc/turns").expect("publisher");
        let (send, capacities) = mpsc::channel();
        let subscribe = || node.subscribe::<Turns>("t", Some("inproc/turns")).expect("subscribes").queue_bytes(limit);
        let inline = send.clone();
        let _inline = subscribe().on_message_inline(move |value, _| inline.send(value.a.capacity()).expect("sent"));
        let large = Turns { a: vec![7; 2 << 20], b: Vec::new() };
        publisher.publish(&large).expect("published");
        publisher.publish(&Turns { a: Vec::new(), b: vec![7; 100] }).expect("published");
        let soon = |what: &str| capacities.recv_timeout(SOON).expect(what);
        assert!(soon("the large one") >= 2 << 20);
        let capacity = soon("the small one");
        assert!(if kept == 0 { capacity == 0 } else { capacity >= kept }, "{capacity} with a limit of {limit}");
    }
}

#[test]
fn nothing_is_lost_at_full_speed() {
    for (a, at_a, b, at_b) in pair("speed") {
        let publisher: Publisher<Reading> = a.publisher_on("r", &at("cdr", &at_a)).expect("publisher");
        let received = Arc::new(AtomicU64::new(0));
        let count_here = received.clone();
        let subscribe = b.subscribe::<Reading>("r", Some(&at("auto", &at_b))).expect("subscriber");
        let subscription = subscribe.on_message(move |value, info| {
            let before = count_here.fetch_add(1, Ordering::Relaxed);
            assert_eq!((u64::from(value.count), info.sequence), (before, before + 1));
        });
        let subscription = subscription.expect("a thread");
        publisher.wait_for_subscribers(1, SOON);
        let total = 50_000;
        publish_all(&publisher, 0..total);
        assert!(publisher.flush(SOON));
        let until = Instant::now() + SOON;
        while received.load(Ordering::Relaxed) < u64::from(total) && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(received.load(Ordering::Relaxed), u64::from(total), "{at_a}");
        assert_eq!((subscription.lost(), subscription.undecodable()), (0, 0));
    }
}

/// Messages of a flood share times, but none has one from before a pause.
#[test]
fn a_message_after_a_pause_has_a_time_of_its_own() {
    let (here, there) = (Node::new(), Node::new());
    let wire = format!("cdr@{}", here.open("tcp-listen/127.0.0.1:0").expect("listens"));
    let readings = here.subscriber_on::<Reading>("rare", &wire).expect("a subscriber");
    let wire = wire.replace("tcp/", "tcp-connect/");
    let publisher = |topic| there.publisher_on::<Reading>(topic, &wire).expect("a publisher");
    let (rare, flood) = (publisher("rare"), publisher("flood"));
    assert_eq!(rare.wait_for_subscribers(1, SOON), 1);
    let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time").as_nanos() as i64;
    let (pause, most) = (Duration::from_millis(1200), Duration::from_secs(1).as_nanos() as i64);
    for count in 0..3 {
        (0..2000).for_each(|_| assert!(flood.publish(&reading(0)).is_ok()));
        let before = now();
        rare.publish(&reading(count)).expect("published");
        let after = now();
        let info = readings.recv_timeout(SOON).expect("a message").info;
        assert!((before - most..=after).contains(&info.timestamp_ns), "{} ns", before - info.timestamp_ns);
        thread::sleep(pause);
    }
}

#[test]
fn time_outs_may_be_longer_than_any_clock_runs() {
    let mut config = Config::default();
    config.engine.linger = Duration::MAX;
    config.engine.overflow = Overflow::Block { patience: Duration::MAX };
    let (node, wire) = (Node::builder().config(config).build(), "cdr@inproc/time-outs");
    let readings = node.subscriber_on::<Reading>("r", wire).expect("a subscriber");
    let publisher = node.publisher_on::<Reading>("r", wire).expect("a publisher");
    publisher.publish(&reading(1)).expect("published");
    assert!(publisher.flush(Duration::MAX) && node.flush(Duration::MAX));
    assert_eq!(readings.recv_timeout(Duration::MAX).map(|sample| sample.value), Some(reading(1)));
    let service = node.service::<Reading, Reading>("s", Some(wire)).and_then(|service| service.open());
    let service = service.expect("a service");
    service.close();
    assert!(service.recv_timeout(Duration::MAX).is_none());
    node.close();
    assert!(readings.recv_timeout(Duration::MAX).is_none());
}
