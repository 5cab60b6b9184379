//! Leases and heartbeats on links over byte streams, with a peer by hand.

mod common;

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use common::{SOON, Tap, find, until};
use polywire::engine::{EngineOptions, Event, Overflow};
use polywire_core::{
    envelope::Id128,
    frame::{Answer, Frame, Hello, Step, StreamDecoder, StreamEncoder},
};

fn listening(change: impl FnOnce(&mut EngineOptions)) -> (Arc<Tap>, mpsc::Receiver<Event>) {
    let mut options = EngineOptions::default();
    change(&mut options);
    Tap::open("tcp-listen", "127.0.0.1:0", options)
}

/// A peer by hand.
struct Stranger(TcpStream);

impl Stranger {
    fn of(node: &Tap) -> Stranger {
        let mut stranger = Stranger(TcpStream::connect(node.address()).expect("connects"));
        stranger.say(&[Frame::Hello(Hello { node: Id128([8; 16]), incarnation: 1 })]);
        stranger
    }

    fn say(&mut self, frames: &[Frame<'_>]) {
        let mut out = Vec::new();
        frames.iter().for_each(|frame| StreamEncoder::default().control(frame, &mut out));
        self.0.write_all(&out).expect("sends");
    }

    /// The frames that come, until there are so many for which `wanted` gives something.
    fn hear<T>(&mut self, many: usize, wanted: impl Fn(&Frame<'_>) -> Option<T>) -> Vec<T> {
        self.0.set_read_timeout(Some(SOON)).expect("a time-out");
        let (mut decoder, mut input, mut buffer, mut found) =
            (StreamDecoder::default(), Vec::new(), [0; 4096], Vec::new());
        while found.len() < many {
            let count = self.0.read(&mut buffer).expect("more comes");
            assert!(count > 0, "the node closed the link");
            input.extend_from_slice(&buffer[..count]);
            while let Step::Frame { frame, used } = decoder.step(&input).expect("frames") {
                found.extend(wanted(&frame));
                input.drain(..used);
            }
        }
        found
    }
}

fn lease(milliseconds: u64) -> Frame<'static> {
    Frame::Lease { milliseconds }
}

#[test]
fn a_node_promises_its_lease_and_keeps_it() {
    let (node, _events) = listening(|options| options.lease = Duration::from_millis(400));
    let mut stranger = Stranger::of(&node);
    let first = stranger.hear(4, |frame| match frame {
        Frame::Lease { milliseconds } => Some(*milliseconds),
        Frame::Heartbeat => Some(0),
        _ => None,
    });
    assert_eq!(first, [400, 0, 0, 0], "the lease comes first");
    // Without a lease, there is neither.
    let (node, _events) = listening(|options| options.lease = Duration::ZERO);
    let mut stranger = Stranger::of(&node);
    thread::sleep(Duration::from_millis(300));
    node.announce("t", 1);
    let before = stranger.hear(1, |frame| match frame {
        Frame::Lease { .. } | Frame::Heartbeat => Some(false),
        Frame::Announce { .. } => Some(true),
        _ => None,
    });
    assert_eq!(before, [true]);
}

#[test]
fn a_peer_that_falls_silent_is_told_and_counted_and_comes_back() {
    let (node, events) = listening(|_| {});
    let mut stranger = Stranger::of(&node);
    stranger.say(&[lease(200)]);
    for silences in 1..=2 {
        let told = find(&events, |event| match event {
            Event::Silent { lease, .. } => Some(lease),
            Event::Heard(_) => panic!("it says nothing"),
            _ => None,
        });
        assert_eq!(told, Duration::from_millis(200));
        assert_eq!(node.port().links()[0].silences, silences);
        stranger.say(&[Frame::Heartbeat]);
        find(&events, |event| matches!(event, Event::Heard(_)).then_some(()));
    }
    assert_eq!(node.port().links().len(), 1, "its link stays");
    // Whatever it says is a sign of life, and it may take its promise back.
    stranger.say(&[lease(0)]);
    thread::sleep(Duration::from_millis(600));
    let last = events.try_iter().filter(|event| matches!(event, Event::Silent { .. } | Event::Heard(_))).last();
    assert!(!matches!(last, Some(Event::Silent { .. })), "{last:?}");
}

#[test]
fn a_peer_that_promises_nothing_is_never_declared_silent() {
    let (node, events) = listening(|options| options.lease = Duration::from_millis(100));
    let _older = Stranger::of(&node);
    until("a link", || node.port().links().len() == 1);
    thread::sleep(Duration::from_millis(1000));
    assert!(!events.try_iter().any(|event| matches!(event, Event::Silent { .. })));
}

#[test]
fn nobody_waits_for_a_silent_peer() {
    // Whoever waited for it would wait for longer than this test may take.
    let patience = 10 * SOON;
    let (node, events) = listening(|options| {
        (options.overflow, options.queue_bytes) = (Overflow::Block { patience }, 64 << 10);
        options.send_buffer = Some(16 << 10);
    });
    let channel = node.announce("t", 1);
    let mut deaf = Stranger::of(&node);
    deaf.say(&[lease(300), Frame::Answer { channel, answer: Answer::Accept(1) }]);
    let (reader, _reader_events) = Tap::open("tcp-connect", &node.address(), EngineOptions::default());
    let answered = |tap: &Tap| tap.heard().answered == 2;
    until("both accept", || answered(&node));
    // More than all buffers hold. The first publication that finds them full waits for the lease.
    const LAST: u64 = 3000;
    let (began, mut dropped) = (Instant::now(), 0);
    for sequence in 1..=LAST {
        dropped += node.publish(channel, sequence, &[7; 4096]).dropped as u64;
    }
    assert!(dropped > 0 && began.elapsed() < SOON, "{dropped} dropped in {:?}", began.elapsed());
    assert_eq!(reader.wait(&reader.count, LAST), LAST, "the other one gets everything");
    find(&events, |event| matches!(event, Event::Silent { .. }).then_some(()));
    assert!(!node.port().flush(Instant::now() + 10 * SOON), "nor does a flush wait for it");
    assert!(began.elapsed() < 2 * SOON);
    // It reads again, and is waited for again.
    let (mut left, mut buffer) = (true, vec![0; 1 << 16]);
    deaf.0.set_read_timeout(Some(Duration::from_millis(500))).expect("a time-out");
    while left {
        left = deaf.0.read(&mut buffer).is_ok_and(|count| count > 0);
    }
    deaf.say(&[Frame::Heartbeat]);
    find(&events, |event| matches!(event, Event::Heard(_)).then_some(()));
    assert_eq!(node.publish(channel, LAST + 1, &[7; 4096]).dropped, 0);
}

#[test]
fn a_node_whose_subscriber_is_slow_is_not_silent() {
    let lease = Duration::from_secs(1);
    let options = |options: &mut EngineOptions| {
        (options.lease, options.queue_bytes) = (lease, 64 << 10);
        (options.send_buffer, options.receive_buffer) = (Some(16 << 10), Some(16 << 10));
        options.overflow = Overflow::DropNewest;
    };
    let (node, events) = listening(options);
    let mut other = EngineOptions::default();
    options(&mut other);
    let (reader, reader_events) = Tap::open("tcp-connect", &node.address(), other);
    let channel = node.announce("t", 1);
    node.wait(&node.accepted, 1);
    reader.is_stuck.store(true, std::sync::atomic::Ordering::SeqCst);
    // It takes nothing for three leases, and its buffers are full.
    for sequence in 1..=500 {
        node.publish(channel, sequence, &[7; 4096]);
    }
    thread::sleep(3 * lease);
    reader.is_stuck.store(false, std::sync::atomic::Ordering::SeqCst);
    reader.until("messages", |heard| (heard.messages.len() > 4).then_some(()));
    let silent = |events: &mpsc::Receiver<Event>| events.try_iter().any(|e| matches!(e, Event::Silent { .. }));
    // The reader does not hear the node meanwhile, since it does not read. That says nothing about
    // the node.
    assert!(!silent(&reader_events), "time in which it did not read counts");
    assert!(!silent(&events), "its heartbeats depend on its subscriber");
}
