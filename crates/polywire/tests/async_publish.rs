//! Publishing by futures: a full queue holds up the future and not the thread.

use std::{
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::{Duration, Instant},
};

use futures_core::Stream;
use polywire::{AsyncPublisher, Config, Message, Node, Overflow, PublishError, Subscriber};

/// Longer than anything takes that a test waits for.
const SOON: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, Default, PartialEq, Message)]
struct Pump {
    id: u32,
    filling: Vec<u8>,
}

fn pump(id: u32) -> Pump {
    Pump { id, filling: vec![7; 10_000] }
}

struct Unpark(AtomicBool, thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
        self.1.unpark();
    }
}

/// Runs futures on this thread, as the smallest of all runtimes. Fails if nothing wakes it.
fn run<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let unpark = Arc::new(Unpark(AtomicBool::new(false), thread::current()));
    let waker = Waker::from(unpark.clone());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        let until = Instant::now() + SOON;
        while !unpark.0.swap(false, Ordering::Acquire) {
            assert!(Instant::now() < until, "it is woken");
            thread::park_timeout(SOON);
        }
    }
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// A publisher, and a subscriber whose queue takes two messages and then holds the publisher up.
fn narrow(name: &str) -> (AsyncPublisher<Pump>, Subscriber<Pump>) {
    let (node, wire) = (Node::new(), format!("cdr@inproc/async-{name}"));
    let subscribe = node.subscribe::<Pump>("pumps", Some(&wire)).expect("a place");
    let subscribe = subscribe.queue(2).overflow(Overflow::Block { patience: Duration::from_secs(3600) });
    let publisher = node.publisher_on::<Pump>("pumps", &wire).expect("a publisher");
    let subscriber = subscribe.open();
    (publisher.into_async().expect("a thread"), subscriber)
}

#[test]
fn a_full_queue_does_not_block_the_thread() {
    let (publisher, subscriber) = narrow("full");
    for id in 0..2 {
        assert_eq!(run(publisher.publish(pump(id))).expect("published").peers, 1);
    }
    let mut waiting = publisher.publish(pump(2));
    assert!(poll(&mut waiting).is_pending(), "there is no room");
    let ids = (0..3).map(|_| subscriber.recv_timeout(SOON).expect("a message").value.id);
    assert_eq!(ids.collect::<Vec<_>>(), [0, 1, 2]);
    run(waiting).expect("published");
}

#[test]
fn a_future_that_is_dropped_takes_its_value_back() {
    let (publisher, subscriber) = narrow("drop");
    (0..2).for_each(|id| assert!(run(publisher.publish(pump(id))).is_ok()));
    drop(publisher.publish(pump(10)));
    let [mut first, mut second, mut third] = [2, 3, 4].map(|id| publisher.publish(pump(id)));
    assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending() && poll(&mut third).is_pending());
    drop(second);
    let ids: Vec<u32> = (0..4).map(|_| subscriber.recv_timeout(SOON).expect("a message").value.id).collect();
    assert_eq!(ids, [0, 1, 2, 4]);
    run(async { (first.await.expect("published"), third.await.expect("published")) });
    assert!(subscriber.try_recv().is_none());
}

#[test]
fn values_of_one_future_wait_for_room_together() {
    let (publisher, subscriber) = narrow("all");
    let mut waiting = publisher.publish_all((0..4).map(pump).collect());
    assert!(poll(&mut waiting).is_pending(), "there is room for two");
    let never: Vec<Pump> = vec![pump(10), pump(11)];
    let mut taken_back = publisher.publish_all(never);
    assert!(poll(&mut taken_back).is_pending(), "others come before");
    drop(taken_back);
    let mut last = publisher.publish(pump(4));
    assert!(poll(&mut last).is_pending());
    let ids: Vec<u32> = (0..5).map(|_| subscriber.recv_timeout(SOON).expect("a message").value.id).collect();
    assert_eq!(ids, [0, 1, 2, 3, 4]);
    assert_eq!(run(waiting).expect("published").peers, 4);
    assert_eq!(run(last).expect("published").peers, 1);
    assert_eq!(run(publisher.publish_all(Vec::new())).expect("nothing to do").peers, 0);
    assert!(subscriber.try_recv().is_none());
}

#[test]
fn a_value_that_cannot_be_published_ends_the_values_of_its_future() {
    #[derive(Clone, Default, Message)]
    struct Text {
        #[polywire(idl = "string<3>")]
        text: String,
    }
    let node = Node::new();
    let texts = node.subscriber_on::<Text>("texts", "cdr@inproc/async-error").expect("a subscriber");
    let publisher = node.publisher_on::<Text>("texts", "cdr@inproc/async-error").expect("a publisher");
    let publisher: AsyncPublisher<Text> = publisher.into_async().expect("a thread");
    let all = ["one", "four", "two"].map(|text| Text { text: text.into() });
    let error = run(publisher.publish_all(all.to_vec())).expect_err("one is too long");
    assert!(matches!(error.cause, PublishError::Encode(_)) && error.published == 1);
    assert!(matches!(run(publisher.publish(all[1].clone())), Err(PublishError::Encode(_))));
    assert_eq!(run(publisher.publish(all[2].clone())).expect("published").peers, 1);
    assert_eq!([texts.recv().unwrap().value.text, texts.recv().unwrap().value.text], ["one", "two"]);
}

#[test]
fn all_values_arrive_in_order_over_sockets() {
    let config = "[engine]\nqueue_bytes = 65536\nsend_buffer = 16384\nreceive_buffer = 16384\npatience_ms = 600000";
    let node = || Node::builder().config(Config::parse(config).expect("valid")).build();
    let (here, there) = (node(), node());
    let endpoint = here.open("tcp-listen/127.0.0.1:0").expect("listens");
    let wire = format!("cdr@{endpoint}");
    let pumps: Subscriber<Pump> = here.subscriber_on("pumps", &wire).expect("a subscriber");
    let publisher = there.publisher_on::<Pump>("pumps", &wire.replace("tcp/", "tcp-connect/")).expect("a publisher");
    let publisher = publisher.into_async().expect("a thread");
    assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
    let reading = thread::spawn(move || {
        let mut pumps = pumps;
        run(async {
            let mut ids = Vec::new();
            while ids.len() < 200 {
                let next = std::future::poll_fn(|context| Pin::new(&mut pumps).poll_next(context)).await;
                ids.push(next.expect("a message").value.id);
            }
            ids
        })
    });
    run(async {
        for id in (0..200).step_by(10) {
            publisher.publish(pump(id)).await.expect("published");
            publisher.publish_all((id + 1..id + 10).map(pump).collect()).await.expect("published");
        }
    });
    assert_eq!(reading.join().expect("it ends"), (0..200).collect::<Vec<_>>());
    there.close();
    assert!(matches!(run(publisher.publish(pump(0))), Err(PublishError::Engine(_))));
    assert_eq!(run(publisher.publish_all(vec![pump(0)])).expect_err("closed").published, 0);
}

#[test]
fn a_publication_that_panics_ends_all_futures() {
    let (node, wire) = (Node::new(), "cdr@inproc/async-panic");
    let subscribe = node.subscribe::<Pump>("pumps", Some(wire)).expect("a place");
    let _subscription = subscribe.on_message_inline(|value, _| assert_ne!(value.id, 1, "as the test wants"));
    let publisher = node.publisher_on::<Pump>("pumps", wire).expect("a publisher");
    let publisher = publisher.into_async().expect("a thread");
    assert_eq!(run(publisher.publish(pump(0))).expect("published").peers, 1);
    for id in 1..4 {
        assert!(matches!(run(publisher.publish(pump(id))), Err(PublishError::Engine(_))), "{id}");
    }
}

#[test]
fn the_ports_are_closed_when_an_asynchronous_publisher_was_the_last_handle() {
    for _ in 0..20 {
        let node = Node::new();
        let endpoint = node.open("tcp-listen/127.0.0.1:0").expect("listens");
        let publisher = node.publisher_on::<Pump>("pumps", &format!("cdr@{endpoint}")).expect("a publisher");
        let publisher = publisher.into_async().expect("a thread");
        run(publisher.publish(pump(0))).expect("published");
        drop(node);
        drop(publisher);
        Node::new().open(&endpoint.replace("tcp/", "tcp-listen/")).expect("the address is free");
    }
}
