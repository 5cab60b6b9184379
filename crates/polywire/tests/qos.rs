//! Quality of service from end to end, on each engine built in: what is offered and requested, what
//! late joiners get, and which samples a subscriber takes.

use std::{thread, time::Duration};

use polywire::{
    Kind, Message, Node, NodeError, NodeEvent, Publisher, Sample, Subscriber,
    qos::{InstanceState, Qos},
};
use polywire_testing::{
    endpoints, free_path,
    waiting::{SOON, until},
};

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Plant::Pump")]
struct Pump {
    #[polywire(key)]
    id: u32,
    value: u64,
    label: String,
}

fn pump(id: u32, value: u64) -> Pump {
    Pump { id, value, label: format!("pump {id}") }
}

fn qos(text: &str) -> Qos {
    text.parse().expect(text)
}

/// Two nodes, and where they meet.
struct Place {
    writer: Node,
    reader: Node,
    write_at: String,
    read_at: String,
}

/// A place on each engine: within one node, between nodes of a process, over sockets.
fn places(test: &str) -> Vec<Place> {
    let between = |endpoint: String| {
        let (writer, reader) = (Node::new(), Node::new());
        let read_at = endpoints::second(&writer.open(&endpoint).expect("it opens"));
        Place { writer, reader, write_at: endpoint, read_at }
    };
    let path = |engine: &str| format!("{engine}/{}", free_path(engine).display());
    let own = Node::new();
    let at = format!("inproc/qos-own-{test}");
    #[allow(unused_mut, reason = "without further engines")]
    let mut places = vec![
        Place { writer: own.clone(), reader: own, write_at: at.clone(), read_at: at },
        between(format!("inproc/qos-{test}")),
        between("tcp/127.0.0.1:0".into()),
        between(path("unix")),
        between(path("local")),
        between("udp-reliable/127.0.0.1:0".into()),
    ];
    #[cfg(feature = "shm")]
    places.push(between(path("shm")));
    #[cfg(feature = "zeromq")]
    places.push(between("zeromq/bind/tcp://127.0.0.1:0".into()));
    #[cfg(feature = "dds")]
    places.push(between(format!("dds/{}?interface=127.0.0.1", polywire_testing::domains::lease())));
    #[cfg(feature = "zenoh")]
    places.push(between("zenoh/peer?scouting=off,listen=tcp/127.0.0.1:0".into()));
    places
}

impl Place {
    fn publisher(&self, format: &str, policies: &str) -> Publisher<Pump> {
        let publish =
            self.writer.publish::<Pump>("pumps", Some(&format!("{format}@{}", self.write_at))).expect("a wire");
        publish.qos(qos(policies)).expect(policies).open().expect("a publisher")
    }

    fn subscriber(&self, policies: &str) -> Subscriber<Pump> {
        let subscribe = self.reader.subscribe::<Pump>("pumps", Some(&format!("cdr@{}", self.read_at))).expect("a wire");
        subscribe.qos(qos(policies)).expect(policies).open()
    }
}

fn matched(publisher: &Publisher<Pump>) {
    assert!(publisher.wait_for_subscribers(1, SOON) >= 1, "{:?}", publisher.status());
}

fn publish(publisher: &Publisher<Pump>, all: &[(u32, u64)]) {
    for (id, value) in all {
        publisher.publish(&pump(*id, *value)).expect("published");
    }
}

fn next(subscriber: &Subscriber<Pump>) -> Sample<Pump> {
    subscriber.recv_timeout(SOON).expect("a sample")
}

fn values(subscriber: &Subscriber<Pump>, count: usize) -> Vec<u64> {
    (0..count).map(|_| next(subscriber).value.value).collect()
}

#[test]
fn what_is_requested_and_not_offered_is_told_on_both_sides() {
    for place in places("refused") {
        let (events, told) = (place.reader.events(), place.writer.events());
        let publisher = place.publisher("cdr", "reliability=best-effort,deadline=2s");
        let subscriber = place.subscriber("durability=transient-local,reliability=reliable,deadline=1s");
        until("the writer hears of it", || publisher.status().refusing == 1);
        let expected = "incompatible quality of service: \
            durability (policy 2): offered volatile, requested transient-local; \
            deadline (policy 4): offered 2s, requested 1s; \
            reliability (policy 11): offered best-effort, requested reliable";
        assert_eq!(publisher.status().refusals[0].reason, expected);
        let status = subscriber.status();
        assert_eq!((status.writers, status.unreadable, status.mismatches[0].reason.as_str()), (0, 1, expected));
        until(
            "the reader's event",
            || matches!(events.recv_timeout(SOON), Some(NodeEvent::Mismatch { reason, .. }) if reason == expected),
        );
        until(
            "the writer's event",
            || matches!(told.recv_timeout(SOON), Some(NodeEvent::Refused { reason, .. }) if reason == expected),
        );
        assert_eq!(publisher.publish(&pump(1, 1)).expect("published").refused, 1);

        // One that requests less gets the messages.
        let modest = place.subscriber("deadline=2s");
        matched(&publisher);
        publish(&publisher, &[(1, 2)]);
        assert_eq!((values(&modest, 1), subscriber.try_recv().is_none()), (vec![2], true));
    }
}

#[test]
fn partitions_see_their_own_and_refuse_nobody() {
    for place in places("partition") {
        let publisher = place.publisher("json", "partition=line/1,partition=hall");
        let (all, other, none) =
            (place.subscriber("partition=line/*"), place.subscriber("partition=line/2"), place.subscriber("default"));
        matched(&publisher);
        publish(&publisher, &[(1, 1), (1, 2)]);
        assert_eq!(values(&all, 2), [1, 2]);
        assert!(other.try_recv().is_none() && none.try_recv().is_none());
        assert_eq!((publisher.status().refusing, other.status().unreadable, none.status().unreadable), (0, 0, 0));
    }
}

#[test]
fn late_joiners_get_the_history_first_under_every_format() {
    for format in ["cdr", "json+zstd", "fast", "fast:mode=anchored", "protobuf"] {
        for place in places(&format!("history-{}", format.replace(['+', ':', '='], "-"))) {
            let publisher = place.publisher(format, "history=keep-last:2,durability=transient-local");
            let early = place.subscriber("durability=transient-local");
            matched(&publisher);
            publish(&publisher, &[(1, 1), (2, 2), (1, 3), (1, 4), (3, 5)]);
            assert_eq!(values(&early, 5), [1, 2, 3, 4, 5], "{format} at {}", place.read_at);

            let late = place.subscriber("durability=transient-local");
            let volatile = place.subscriber("default");
            // What is published meanwhile comes behind.
            publisher.wait_for_subscribers(3, SOON);
            publish(&publisher, &[(2, 6)]);
            let got: Vec<(u64, u64)> = (0..5).map(|_| next(&late)).map(|s| (s.info.sequence, s.value.value)).collect();
            assert_eq!(
                got,
                [(2, 2), (3, 3), (4, 4), (5, 5), (6, 6)].map(|(_, v)| (v, v)),
                "{format} at {}",
                place.read_at
            );
            assert_eq!((values(&volatile, 1), values(&early, 1)), (vec![6], vec![6]));
            let info = {
                publish(&publisher, &[(1, 7)]);
                next(&late).info
            };
            assert_eq!((info.sequence, info.source.announcement.writer), (7, publisher.writer()));
            let status = late.status();
            assert_eq!((status.lost, status.undecodable, status.writers >= 1), (0, 0, true), "{format}");
            assert!(late.try_recv().is_none() && early.recv_timeout(SOON).is_some());
        }
    }
}

#[test]
fn the_history_outlives_a_change_of_format() {
    for place in places("history-format") {
        let publisher = place.publisher("cdr", "history=keep-last:1,durability=transient-local");
        publish(&publisher, &[(1, 1), (2, 2)]);
        publisher.set_wire("fast").expect("another format");
        publish(&publisher, &[(2, 3), (3, 4)]);
        publisher.set_wire("json").expect("another format");
        publish(&publisher, &[(4, 5)]);
        let late = place.subscriber("durability=transient-local");
        assert_eq!(values(&late, 4), [1, 3, 4, 5], "{}", place.read_at);
        publisher.dispose(&pump(3, 0)).expect("disposed");
        assert_eq!(next(&late).info.kind, Kind::Dispose);
        let later = place.subscriber("durability=transient-local");
        assert_eq!(values(&later, 3), [1, 3, 5], "what has ended is not kept");
    }
}

#[test]
fn the_history_outlives_a_change_of_wires_that_fails() {
    for place in &places("history-failed")[..2] {
        let publisher = place.publisher("cdr", "history=keep-last:9,durability=transient-local");
        let fail = || {
            let wires = [format!("json@{}", place.write_at), format!("nosuch@{}-else", place.write_at)];
            publisher.set_wires(&[&wires[0], &wires[1]]).expect_err("no such format");
        };
        fail();
        publish(&publisher, &[(1, 1)]);
        fail();
        publish(&publisher, &[(1, 2)]);
        let late = place.subscriber("durability=transient-local");
        assert_eq!(values(&late, 2), [1, 2], "{}", place.read_at);
        assert_eq!(late.status().undecodable, 0);
    }
}

#[test]
fn expired_samples_make_room_in_the_history() {
    let place = &places("history-expired")[1];
    for (limits, second) in [("history=keep-all,max-samples=2", 1), ("history=keep-last:1,max-instances=2", 2)] {
        let publisher = place.publisher("cdr", &format!("durability=transient-local,lifespan=200ms,{limits}"));
        publish(&publisher, &[(1, 1), (second, 2)]);
        until("there is room", || publisher.publish(&pump(3, 3)).is_ok());
    }
}

#[test]
fn nothing_is_lost_or_doubled_while_late_joiners_come() {
    for place in places("history-stream") {
        let publisher = place.publisher("fast", "history=keep-last:1000000,durability=transient-local");
        let writer = thread::spawn(move || {
            (1..=3000).for_each(|value| publish(&publisher, &[(1, value)]));
            publisher
        });
        let late: Vec<_> = (0..3)
            .map(|_| {
                thread::sleep(Duration::from_millis(5));
                place.subscriber("durability=transient-local")
            })
            .collect();
        let publisher = writer.join().expect("it publishes");
        for subscriber in late {
            assert_eq!(values(&subscriber, 3000), (1..=3000).collect::<Vec<_>>(), "{}", place.read_at);
            assert_eq!(subscriber.status().lost, 0);
        }
        drop(publisher);
    }
}

#[test]
fn a_history_that_does_not_fit_is_refused() {
    let place = &places("history-limits")[1];
    let publisher =
        place.publisher("cdr", "history=keep-last:2,durability=transient-local,max-samples=3,max-instances=2");
    publish(&publisher, &[(1, 1), (1, 2), (1, 3), (2, 4)]);
    let error = publisher.publish(&pump(2, 5)).expect_err("four samples").to_string();
    assert!(error.contains("max-samples"), "{error}");
    let error = publisher.publish(&pump(3, 5)).expect_err("three instances").to_string();
    assert!(error.contains("max-instances"), "{error}");
    publish(&publisher, &[(1, 6)]);
    let unbounded = place.writer.publish::<Pump>("pumps", Some(&format!("cdr@{}", place.write_at))).expect("a wire");
    let error = unbounded.qos(qos("durability=transient-local")).err().expect("no bound");
    assert!(matches!(error, NodeError::Unsupported { .. }), "{error}");
}

#[test]
fn a_slow_subscriber_keeps_the_last_of_each_instance() {
    for place in places("keep-last") {
        let publisher = place.publisher("cdr", "default");
        let latest = place.subscriber("history=keep-last:2");
        matched(&publisher);
        publish(&publisher, &[(1, 1), (1, 2), (2, 3), (1, 4), (1, 5), (2, 6)]);
        until("all came", || latest.status().replaced == 2);
        assert_eq!(values(&latest, 4), [3, 4, 5, 6]);
        assert_eq!(latest.lost(), 0);
    }
}

#[test]
fn expired_samples_are_not_delivered() {
    for place in places("lifespan") {
        let publisher = place.publisher("cdr", "lifespan=200ms,history=keep-last:9,durability=transient-local");
        let early = place.subscriber("default");
        matched(&publisher);
        publish(&publisher, &[(1, 1), (1, 2)]);
        thread::sleep(Duration::from_millis(300));
        let late = place.subscriber("durability=transient-local");
        publisher.wait_for_subscribers(2, SOON);
        // Both take this one, unless the machine stands still for longer than it lives.
        until("a fresh one", || {
            publish(&publisher, &[(1, 3)]);
            late.recv_timeout(Duration::from_millis(100)).is_some_and(|sample| sample.value.value == 3)
        });
        until("the fresh one", || {
            early.try_recv().is_some_and(|sample| sample.value.value == 3) || {
                publish(&publisher, &[(1, 3)]);
                false
            }
        });
        assert!(early.status().expired >= 2, "{:?}", early.status());
    }
}

#[test]
fn missed_deadlines_are_told_on_both_sides() {
    for place in places("deadline") {
        let (events, told) = (place.reader.events(), place.writer.events());
        let publisher = place.publisher("cdr", "deadline=100ms");
        let subscriber = place.subscriber("deadline=200ms");
        matched(&publisher);
        publish(&publisher, &[(1, 1), (2, 2)]);
        until("both sides count", || {
            subscriber.status().deadlines_missed >= 2 && publisher.status().deadlines_missed >= 2
        });
        for (events, expected) in [(events, false), (told, true)] {
            until("the event", || {
                let event = events.recv_timeout(SOON).expect("an event");
                matches!(event, NodeEvent::DeadlineMissed { offered, .. } if offered == expected)
            });
        }
        publisher.dispose(&pump(1, 0)).expect("disposed");
        publisher.dispose(&pump(2, 0)).expect("disposed");
        until("the ends come", || subscriber.recv_timeout(SOON).is_some_and(|s| s.info.kind == Kind::Dispose));
        let counts = publisher.status().deadlines_missed;
        thread::sleep(Duration::from_millis(300));
        assert_eq!(publisher.status().deadlines_missed, counts, "ended instances are not due");
    }
}

#[test]
fn the_strongest_writer_owns_an_instance_until_it_leaves() {
    for place in places("ownership") {
        let subscriber = place.subscriber("ownership=exclusive");
        let (weak, strong) =
            (place.publisher("cdr", "ownership=exclusive:1"), place.publisher("json", "ownership=exclusive:2"));
        matched(&weak);
        matched(&strong);
        publish(&strong, &[(1, 10)]);
        assert_eq!(values(&subscriber, 1), [10]);
        publish(&weak, &[(1, 11), (2, 12)]);
        assert_eq!(values(&subscriber, 1), [12], "nobody stronger writes pump 2");
        assert_eq!(subscriber.status().not_owner, 1);
        drop(strong);
        until("the weak one takes over", || {
            publish(&weak, &[(1, 13)]);
            subscriber.recv_timeout(Duration::from_millis(50)).is_some_and(|sample| sample.value.id == 1)
        });
        // A subscriber that shares ownership, the default, is not served by exclusive writers.
        let shared = place.subscriber("default");
        until("it is told", || shared.status().unreadable == 1);
        assert!(
            shared.status().mismatches[0].reason.contains("ownership (policy 6): offered exclusive, requested shared")
        );
    }
}

#[test]
fn a_filter_thins_each_instance_out() {
    for place in places("filter") {
        let publisher = place.publisher("cdr", "default");
        let thin = place.subscriber("time-based-filter=10s");
        matched(&publisher);
        publish(&publisher, &[(1, 1), (1, 2), (2, 3), (2, 4), (1, 5)]);
        assert_eq!(values(&thin, 2), [1, 3]);
        until("the others are counted", || thin.status().filtered == 3);
    }
}

#[test]
fn resource_limits_refuse_further_instances_until_one_ends() {
    for place in places("limits") {
        let publisher = place.publisher("cdr", "default");
        let two = place.subscriber("reliability=reliable,max-instances=2");
        matched(&publisher);
        publish(&publisher, &[(1, 1), (2, 2), (3, 3), (1, 4)]);
        assert_eq!(values(&two, 3), [1, 2, 4]);
        until("the third instance is counted", || two.status().rejected == 1);
        publisher.dispose(&pump(2, 5)).expect("disposed of");
        publish(&publisher, &[(3, 6)]);
        assert_eq!((next(&two).info.kind, next(&two).value.value), (Kind::Dispose, 6));
        assert_eq!((two.status().rejected, two.lost()), (1, 0));
    }
}

#[test]
fn instances_have_states() {
    for place in places("instances") {
        let publisher = place.publisher("cdr", "default");
        let at = format!("cdr@{}", place.read_at);
        let subscriber = place.reader.subscribe::<Pump>("pumps", Some(&at)).expect("a wire").instances().open();
        matched(&publisher);
        publish(&publisher, &[(1, 1), (2, 2)]);
        publisher.dispose(&pump(1, 0)).expect("disposed");
        let states: Vec<_> =
            (0..3).map(|_| next(&subscriber).info).map(|info| (info.key_hash, info.instance)).collect();
        let [(one, alive), (two, _), (disposed, state)] = states[..] else { panic!("three") };
        assert_eq!((alive, state), (Some(InstanceState::Alive), Some(InstanceState::Disposed)));
        assert!(one == disposed && one != two);
        drop(publisher);
        let last = next(&subscriber).info;
        assert_eq!((last.instance, last.key_hash, last.kind), (Some(InstanceState::NoWriters), two, Kind::Unregister));
    }
}

#[test]
fn a_change_of_format_is_no_end_of_a_writer() {
    for place in places("instances-format") {
        let publisher = place.publisher("cdr", "ownership=exclusive:5");
        let subscriber = place.subscriber("ownership=exclusive");
        matched(&publisher);
        publish(&publisher, &[(1, 1)]);
        publisher.set_wire("msgpack").expect("another format");
        publish(&publisher, &[(1, 2)]);
        assert_eq!(values(&subscriber, 2), [1, 2]);
        let weak = place.publisher("cdr", "ownership=exclusive:1");
        matched(&weak);
        publish(&weak, &[(1, 3)]);
        publish(&publisher, &[(1, 4)]);
        assert_eq!(values(&subscriber, 1), [4]);
    }
}

#[test]
fn policies_of_the_other_side_and_of_no_engine_are_refused() {
    let node = Node::new();
    let publish = || node.publish::<Pump>("pumps", Some("cdr@inproc/qos-unsupported")).expect("a wire");
    let subscribe = || node.subscribe::<Pump>("pumps", Some("cdr@inproc/qos-unsupported")).expect("a wire");
    for (error, policy) in [
        (publish().qos(qos("time-based-filter=1s")).err(), "time-based-filter"),
        (publish().qos(qos("lease=9ms")).err(), "lease"),
        (subscribe().qos(qos("lifespan=1s")).err(), "lifespan"),
        (subscribe().qos(qos("lease=9ms")).err(), "lease"),
    ] {
        let error = error.expect(policy);
        assert!(matches!(&error, NodeError::Unsupported { policy: got, .. } if got == policy), "{error}");
    }
    let contradicts = Qos::default().deadline(Duration::from_secs(1)).time_based_filter(Duration::from_secs(2));
    assert!(matches!(subscribe().qos(contradicts).err(), Some(NodeError::Qos(_))));
}

#[test]
fn configured_policies_are_offered_and_requested() {
    let config = "[topics.pumps]\nwire = 'cdr@inproc/qos-config'\n[topics.pumps.qos]\n\
        history = 'keep-last:1'\ndurability = 'transient-local'\nlifespan = '1h'\ntime_based_filter = '1ns'";
    let node = Node::builder().config(polywire::Config::parse(config).expect("valid")).build();
    let publisher = node.publisher::<Pump>("pumps").expect("a publisher");
    publish(&publisher, &[(1, 1), (1, 2)]);
    let late = node.subscriber::<Pump>("pumps").expect("a subscriber");
    assert_eq!(values(&late, 1), [2]);
    assert_eq!(
        next_after(&publisher, &late).source.qos().expect("an offer"),
        qos("history=keep-last:1,durability=transient-local,lifespan=1h")
    );
}

fn next_after(publisher: &Publisher<Pump>, subscriber: &Subscriber<Pump>) -> polywire::Info {
    publish(publisher, &[(1, 3)]);
    next(subscriber).info
}
