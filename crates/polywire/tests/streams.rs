//! Stream engines with misbehaving peers and with time-outs: real sockets, no codecs.

mod common;

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    sync::{Arc, Weak, atomic::Ordering, mpsc},
    thread,
    time::{Duration, Instant},
};

use common::{DOCUMENT, SOON, Tap, connections, find};
use polywire::engine::{self, Disconnect, EngineOptions, Event, Local, Overflow, Port};
use polywire_core::{
    envelope::{Announcement, ChannelId, Envelope, Id128},
    frame::{Answer, Frame, FrameError, Hello, Limits, Start, Step, StreamDecoder, StreamEncoder},
};
#[cfg(target_os = "linux")]
use {
    common::until,
    polywire_testing::waiting::{held, process_of},
};

fn options() -> EngineOptions {
    EngineOptions::default()
}

fn listening(options: EngineOptions) -> (Arc<Tap>, mpsc::Receiver<Event>) {
    Tap::open("tcp-listen", "127.0.0.1:0", options)
}

fn rejected(events: &mpsc::Receiver<Event>) -> Disconnect {
    find(events, |event| match event {
        Event::Rejected { reason, .. } => Some(reason),
        _ => None,
    })
}

fn disconnected(events: &mpsc::Receiver<Event>) -> Disconnect {
    find(events, |event| match event {
        Event::Disconnected { reason, .. } => Some(reason),
        _ => None,
    })
}

/// A peer written by hand, which has sent its hello.
fn stranger(node: &Tap) -> TcpStream {
    let mut stream = TcpStream::connect(node.address()).expect("connects");
    stream.write_all(&hello()).expect("sends");
    stream
}

fn hello() -> Vec<u8> {
    let mut hello = Vec::new();
    StreamEncoder::default().hello(&Hello { node: Id128([8; 16]), incarnation: 1 }, &mut hello);
    hello
}

/// True once the other end closed.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(SOON)).expect("a time-out");
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(e) => return e.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

#[test]
fn garbage_is_turned_away_and_others_are_served() {
    let (node, events) = listening(options());
    let tls = b"\x16\x03\x01\x02\x00\x01";
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], tls, &[0xFF; 64], &[0; 64]] {
        let mut stream = TcpStream::connect(node.address()).expect("connects");
        stream.write_all(garbage).expect("sends");
        match rejected(&events) {
            Disconnect::Untrusted(reason) => assert!(garbage == tls, "{reason}"),
            reason => {
                assert!(matches!(reason, Disconnect::Protocol(FrameError::NotPolywire { .. })), "{reason:?}");
            }
        }
        assert!(is_closed(&mut stream));
    }
    let (peer, _peer_events) = Tap::open("tcp-connect", &node.address(), options());
    let channel = peer.announce("t", 0);
    peer.wait(&peer.accepted, 1);
    peer.publish(channel, 1, b"fine");
    assert_eq!(node.wait(&node.count, 1), 1);
}

#[test]
fn what_breaks_the_protocol_ends_the_link_by_name() {
    let cases: [(&[u8], FrameError); 4] = [
        (&[0, 0, 0, 0], FrameError::Empty),
        (&[0xFF, 0xFF, 0xFF, 0xFF, 0x0F], FrameError::TooLong { what: "frame", got: 0xFFFF_FFFF, limit: 64 << 20 }),
        (&[1, 0x2A], FrameError::UnknownFrame { head: 0x2A }),
        (&[3, 0x80, 9, 0], FrameError::UnknownChannel(ChannelId(9))),
    ];
    let (node, events) = listening(options());
    for (bytes, expected) in cases {
        let mut stream = stranger(&node);
        stream.write_all(bytes).expect("sends");
        assert_eq!(disconnected(&events), Disconnect::Protocol(expected));
        assert!(is_closed(&mut stream));
    }
}

#[test]
fn another_version_is_refused_by_name() {
    let (node, events) = listening(options());
    let mut hello = Vec::new();
    StreamEncoder::default().hello(&Hello { node: Id128::ZERO, incarnation: 1 }, &mut hello);
    hello[6] = 9;
    TcpStream::connect(node.address()).expect("connects").write_all(&hello).expect("sends");
    let expected = FrameError::UnsupportedVersion { got: 9, supported: 1 };
    assert_eq!(rejected(&events), Disconnect::Protocol(expected));
}

#[test]
fn a_silent_caller_is_sent_away_also_when_it_trickles() {
    let mut options = options();
    options.hello_timeout = Duration::from_millis(200);
    let (node, events) = listening(options);
    let mut silent = TcpStream::connect(node.address()).expect("connects");
    assert_eq!(rejected(&events), Disconnect::Silent);
    assert!(is_closed(&mut silent));
    let mut trickling = TcpStream::connect(node.address()).expect("connects");
    let is_sent_away = hello().iter().any(|byte| {
        thread::sleep(Duration::from_millis(40));
        trickling.write_all(&[*byte]).is_err()
    });
    assert!(is_sent_away, "each byte comes in time, but the whole hello does not");
    assert_eq!(rejected(&events), Disconnect::Silent);
}

/// A node that finds its path taken connects to see whether somebody listens, and so do tools that
/// watch a service.
/// As when a network names services that are no nodes.
#[test]
fn a_service_that_is_no_node_is_called_on_and_told_less_and_less_often() {
    let foreign = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut options = options();
    (options.reconnect_min, options.reconnect_max) = (Duration::from_millis(1), Duration::from_millis(1));
    let address = foreign.local_addr().expect("an address").to_string();
    let (_node, events) = Tap::open("tcp-connect", &address, options);
    for _ in 0..20 {
        let (mut caller, _) = foreign.accept().expect("it calls again");
        caller.write_all(b"SSH-2.0-OpenSSH_9.9\r\n").expect("sends");
        assert!(is_closed(&mut caller), "which follows the event");
    }
    let total = |event| match event {
        Event::Rejected { total, .. } => Some(total),
        _ => None,
    };
    let told: Vec<u64> = events.try_iter().filter_map(total).collect();
    assert_eq!(told, [1, 2, 4, 8, 16]);
}

#[test]
fn who_only_looks_whether_someone_listens_makes_no_noise() {
    let path = std::env::temp_dir().join(format!("polywire-look-{}.sock", std::process::id()));
    let path = path.to_str().expect("a plain path");
    let (_node, events) = Tap::open("unix-listen", path, options());
    find(&events, |event| matches!(event, Event::Listening { .. }).then_some(()));
    for _ in 0..3 {
        drop(UnixStream::connect(path).expect("someone listens"));
        let hello = Hello { node: Id128([9; 16]), incarnation: 1 };
        let refused = engine::find("unix-listen").expect("an engine").open(
            path,
            &Local { hello, name: "tap".into(), options: options() },
            Tap::nobody(),
        );
        assert!(refused.is_err(), "the path is taken");
    }
    // Callers are accepted in turn, so those before this one have been accepted; only their threads
    // may still report events.
    let mut garbage = UnixStream::connect(path).expect("someone listens");
    garbage.write_all(&[0xFF; 64]).expect("sends");
    assert!(matches!(rejected(&events), Disconnect::Protocol(_)), "the first noise is that of who said something");
    thread::sleep(Duration::from_millis(50));
    assert!(events.try_iter().next().is_none(), "and there is no other");
}

#[test]
fn a_connection_that_breaks_is_told_as_lost() {
    let (node, events) = listening(options());
    let stream = stranger(&node);
    find(&events, |event| matches!(event, Event::Connected(_)).then_some(()));
    stream.shutdown(Shutdown::Both).expect("shuts down");
    assert!(matches!(disconnected(&events), Disconnect::Lost(_)));
}

#[test]
fn no_more_peers_than_allowed() {
    let mut options = options();
    options.peers = 2;
    let (node, events) = listening(options);
    let (mut idle, _busy) = (stranger(&node), publishing(&node, "busy"));
    for _ in 0..2 {
        find(&events, |event| matches!(event, Event::Connected(_)).then_some(()));
    }
    node.wait(&node.announced, 1);
    // The peer that neither publishes nor subscribes makes room.
    let _third = publishing(&node, "third");
    assert_eq!(disconnected(&events), Disconnect::Displaced);
    assert!(is_closed(&mut idle));
    node.wait(&node.announced, 2);
    // Active peers do not make room.
    let mut fourth = stranger(&node);
    assert_eq!(rejected(&events), Disconnect::TooMany(2));
    assert!(is_closed(&mut fourth));
}

/// A publisher written by hand.
fn publishing(node: &Tap, topic: &str) -> TcpStream {
    let mut stream = stranger(node);
    stream.write_all(&announcements(&[topic])).expect("announces");
    stream
}

/// Announcements of the channels from 1 on.
fn announcements(topics: &[&str]) -> Vec<u8> {
    let (mut encoder, mut out) = (StreamEncoder::default(), Vec::new());
    for topic in topics {
        let announcement = Announcement { topic: (*topic).into(), ..Announcement::default() };
        encoder.announce(&announcement, Start::default(), &mut out).expect("fits");
    }
    out
}

/// Reads frames at a peer's end until `wanted` finds something in one.
fn read_until<T>(stream: &mut TcpStream, wanted: impl Fn(&Frame<'_>) -> Option<T>) -> T {
    stream.set_read_timeout(Some(SOON)).expect("a time-out");
    let (mut decoder, mut input, mut buffer) = (StreamDecoder::default(), Vec::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut buffer).expect("more comes");
        assert!(count > 0, "the node closed the link");
        input.extend_from_slice(&buffer[..count]);
        while let Step::Frame { frame, used } = decoder.step(&input).expect("frames") {
            if let Some(found) = wanted(&frame) {
                return found;
            }
            input.drain(..used);
        }
    }
}

#[test]
fn idle_peers_lock_nobody_out() {
    let mut options = options();
    options.peers = 4;
    let (node, _events) = listening(options);
    let idle: Vec<_> = (0..40).map(|_| stranger(&node)).collect();
    let (peer, _peer_events) = Tap::open("tcp-connect", &node.address(), EngineOptions::default());
    let channel = peer.announce("t", 0);
    assert_eq!(peer.wait(&peer.accepted, 1), 1);
    peer.publish(channel, 1, b"heard");
    assert_eq!(node.wait(&node.count, 1), 1);
    drop(idle);
}

#[test]
fn thousands_of_callers_lock_nobody_out() {
    let mut options = options();
    (options.peers, options.hello_timeout) = (64, Duration::from_millis(200));
    let (node, _events) = listening(options);
    let (early, _at_early) = Tap::open("tcp-connect", &node.address(), EngineOptions::default());
    let channel = early.announce("t", 0);
    assert_eq!(early.wait(&early.accepted, 1), 1);
    let call = |number: usize| {
        let mut stream = TcpStream::connect(node.address()).expect("connects");
        let hello = hello();
        let sent = [&[], &hello[..hello.len() / 2], &hello][number % 3];
        // The node may have closed the connection already.
        let _ = stream.write_all(sent);
        stream
    };
    // All are there at once, as far as the system allows this process to have files open.
    let _callers: Vec<TcpStream> = (0..connections()).map(call).collect();
    early.publish(channel, 1, b"meanwhile");
    assert_eq!(node.wait(&node.count, 1), 1);
    let (late, _at_late) = Tap::open("tcp-connect", &node.address(), EngineOptions::default());
    let channel = late.announce("t", 0);
    assert_eq!(late.wait(&late.accepted, 1), 1);
    late.publish(channel, 1, b"too");
    assert_eq!(node.wait(&node.count, 2), 2);
    assert!(node.port().links().len() <= 64);
}

#[test]
fn what_is_taken_is_confirmed() {
    let (node, _events) = listening(options());
    let mut stream = publishing(&node, "t");
    stream.write_all(&[4, 0x80, 1, 0, b'x'].repeat(300)).expect("sends");
    let confirmed = |frame: &Frame<'_>| match frame {
        Frame::Taken { messages: 300 } => Some(()),
        Frame::Taken { messages } => {
            assert!(*messages < 300);
            None
        }
        _ => None,
    };
    read_until(&mut stream, confirmed);
}

#[test]
fn what_a_broken_link_had_not_confirmed_is_told() {
    let (node, events) = listening(options());
    let channel = node.announce("t", 0);
    for (confirmed, expected) in [(2, Some(5)), (7, None)] {
        let before = node.accepted.load(Ordering::SeqCst);
        let mut stream = stranger(&node);
        stream.write_all(&[3, 3, 1, 0]).expect("accepts");
        node.wait(&node.accepted, before + 1);
        (1..=7).for_each(|sequence| assert_eq!(node.publish(channel, 10 * before + sequence, b"x").subscribers, 1));
        let mut taken = vec![2, 0x40, confirmed];
        // When this answer has been handled, so has the confirmation before it.
        taken.extend([3, 3, 1, 0]);
        stream.write_all(&taken).expect("confirms");
        node.wait(&node.accepted, before + 2);
        stream.shutdown(Shutdown::Both).expect("breaks");
        let told = find(&events, |event| match event {
            Event::Unconfirmed { count, .. } => Some(Some(count)),
            Event::Disconnected { .. } => Some(None),
            _ => None,
        });
        assert_eq!(told, expected);
        if told.is_some() {
            disconnected(&events);
        }
    }
}

#[test]
fn what_a_peer_has_not_read_when_the_port_closes_is_told() {
    let mut options = options();
    options.linger = Duration::from_millis(50);
    let (node, events) = listening(options);
    let channel = node.announce("t", 0);
    let mut stream = stranger(&node);
    stream.write_all(&[3, 3, 1, 0]).expect("accepts");
    node.wait(&node.accepted, 1);
    (1..=7).for_each(|sequence| assert_eq!(node.publish(channel, sequence, b"x").subscribers, 1));
    // It stays connected and does not answer the goodbye.
    node.port().close();
    let told = find(&events, |event| match event {
        Event::Unconfirmed { count, .. } => Some(count),
        Event::Disconnected { .. } => Some(0),
        _ => None,
    });
    assert_eq!(told, 7);
    assert_eq!(disconnected(&events), Disconnect::Closed);
}

#[test]
fn several_slow_peers_hold_up_the_close_no_longer_than_one() {
    let mut options = options();
    (options.overflow, options.linger) = (Overflow::DropNewest, Duration::from_secs(1));
    options.send_buffer = Some(64 << 10);
    let (node, _events) = listening(options);
    let channel = node.announce("t", 0);
    let _deaf: Vec<TcpStream> = (0..8).map(|_| deaf(&node)).collect();
    assert_eq!(node.wait(&node.accepted, 8), 8);
    let payload = vec![5; 64 << 10];
    (1..=48).for_each(|sequence| assert_eq!(node.publish(channel, sequence, &payload).peers, 8));
    let began = Instant::now();
    node.port().close();
    assert!(began.elapsed() < Duration::from_millis(7500), "{:?}", began.elapsed());
}

#[test]
fn what_waits_for_another_relay_is_told_when_it_is_given_up() {
    for how in ["close", "retire", "decline"] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
        let address = listener.local_addr().expect("an address").to_string();
        let mut options = options();
        options.linger = Duration::from_millis(100);
        let (node, events) = Tap::open("tcp-connect", &address, options);
        let channel = node.announce("t", 0);
        node.port().assure(channel);
        let relay = |answer| {
            let (mut stream, _) = listener.accept().expect("a caller");
            let (encoder, mut frames) = (StreamEncoder::default(), hello());
            encoder.control(&Frame::Relay, &mut frames);
            encoder.control(&Frame::Answer { channel: ChannelId(1), answer }, &mut frames);
            stream.write_all(&frames).expect("relays");
            stream
        };
        let first = relay(Answer::Accept(1));
        node.wait(&node.accepted, 1);
        (1..=3).for_each(|sequence| assert_eq!(node.publish(channel, sequence, b"x").subscribers, 1));
        drop(first);
        disconnected(&events);
        assert_eq!(node.publish(channel, 4, b"x").held, 1, "it waits for another relay");
        let _second = match how {
            "close" => {
                node.port().close();
                None
            }
            "retire" => {
                node.port().retire(channel);
                None
            }
            // Nobody subscribes to the channel through the next relay.
            _ => Some(relay(Answer::Decline)),
        };
        let told = find(&events, |event| match event {
            Event::Unconfirmed { count, .. } => Some(count),
            _ => None,
        });
        assert_eq!(told, 4, "{how}");
    }
}

#[test]
fn a_relay_answers_when_the_last_link_that_has_not_answered_leaves() {
    let engine = engine::find("tcp").expect("an engine");
    let (relay, events) = Tap::on(engine, "127.0.0.1:0", options(), false);
    let quiet = stranger(&relay);
    find(&events, |event| matches!(event, Event::Connected(_)).then_some(()));
    let mut publishing = publishing(&relay, "t");
    relay.answer(1, Answer::Decline);
    quiet.shutdown(Shutdown::Both).expect("leaves");
    let declined = |frame: &Frame<'_>| matches!(frame, Frame::Answer { answer: Answer::Decline, .. }).then_some(());
    read_until(&mut publishing, declined);
}

#[test]
fn peers_of_ipv4_are_shown_as_such_by_a_listener_for_both() {
    let (node, events) = Tap::open("tcp-listen", "*:0", options());
    let address = node.address();
    let (_, port) = address.rsplit_once(':').expect("a port");
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).expect("connects");
    stream.write_all(b"garbage, and more of it").expect("sends");
    let address = find(&events, |event| match event {
        Event::Rejected { address, .. } => Some(address),
        _ => None,
    });
    assert!(address.starts_with("127.0.0.1:"), "{address}");
}

#[cfg(unix)]
#[test]
fn who_can_neither_connect_nor_listen_is_told_both_reasons() {
    let (_node, events) = Tap::open("unix", "/no/such/folder/a.sock", options());
    let reason = find(&events, |event| match event {
        Event::Unreachable { reason, .. } => Some(reason),
        _ => None,
    });
    assert!(reason.contains("nor listen there") && reason.ends_with("its folder must exist"), "{reason}");
}

#[test]
fn documents_that_nobody_reads_cost_little() {
    let (node, _events) = listening(options());
    let mut stream = stranger(&node);
    let want: Vec<u8> = [17, 6].into_iter().chain([7; 16]).collect();
    const WANTED: usize = 64;
    stream.write_all(&want.repeat(WANTED)).expect("asks");
    let until = Instant::now() + Duration::from_secs(1);
    while Instant::now() < until {
        let queued: usize = node.port().links().iter().map(|link| link.queued_bytes).sum();
        assert!(queued <= 3 << 20, "{queued} bytes wait");
        thread::sleep(Duration::from_millis(10));
    }
    // All of them arrive once the peer reads.
    stream.set_read_timeout(Some(SOON)).expect("a time-out");
    let (mut left, mut buffer) = (WANTED * DOCUMENT.len(), vec![0; 1 << 16]);
    while left > 0 {
        let count = stream.read(&mut buffer).expect("more comes");
        assert!(count > 0, "the node closed the link");
        left = left.saturating_sub(count);
    }
}

#[test]
fn one_link_does_not_use_up_a_relays_channels() {
    let mut few = options();
    few.limits.channels = 8;
    let (hub, events) = Tap::open("tcp", "127.0.0.1:0", few);
    let names: Vec<String> = (0..8).map(|i| format!("junk {i}")).collect();
    let mut greedy = stranger(&hub);
    greedy.write_all(&announcements(&names.iter().map(String::as_str).collect::<Vec<_>>())).expect("announces");
    hub.wait(&hub.announced, 8);
    let address = hub.address();
    let (behind, _behind_events) = Tap::open("tcp", &address, options());
    let (a, _a_events) = Tap::open("tcp", &address, options());
    let channel = a.announce("t", 0);
    // Publish until the node behind the hub receives a message.
    let until = Instant::now() + SOON;
    let mut sequence = 0;
    while behind.count.load(Ordering::SeqCst) == 0 && Instant::now() < until {
        sequence += 1;
        a.publish(channel, sequence, b"x");
        thread::sleep(Duration::from_millis(5));
    }
    assert!(behind.count.load(Ordering::SeqCst) > 0, "the newcomer's channel is relayed");
    let (topic, reason) = find(&events, |event| match event {
        Event::Withheld { topic, reason, total: 1, .. } => Some((topic, reason)),
        _ => None,
    });
    assert_eq!(topic, "junk 7", "the newest of the link with the most");
    assert!(reason.contains("limit of channels"), "{reason}");
    // Its writer learns that only the hub itself has the channel.
    let answer = read_until(&mut greedy, |frame| match frame {
        Frame::Answer { channel: ChannelId(8), answer: Answer::Partial(1, reason) } => Some(reason.clone()),
        _ => None,
    });
    assert_eq!(answer, reason);
}

/// A subscriber written by hand that accepts channel 1 and then never reads.
fn deaf(node: &Tap) -> TcpStream {
    let mut stream = stranger(node);
    stream.write_all(&[3, 3, 1, 0]).expect("accepts");
    stream
}

#[test]
fn a_peer_that_never_reads_holds_nobody_up_for_long() {
    for overflow in
        [Overflow::DropOldest, Overflow::DropNewest, Overflow::Block { patience: Duration::from_millis(100) }]
    {
        let mut options = options();
        options.overflow = overflow;
        options.queue_bytes = 1 << 20;
        options.send_buffer = Some(64 << 10);
        let (node, events) = listening(options);
        let channel = node.announce("t", 0);
        let deaf = deaf(&node);
        let (reader, _reader_events) = Tap::open("tcp-connect", &node.address(), EngineOptions::default());
        node.wait(&node.accepted, 2);
        let (start, total, payload) = (Instant::now(), 2000, [5; 16 << 10]);
        for sequence in 1..=total {
            node.publish(channel, sequence, &payload);
            // At a pace that a peer which reads can follow.
            while reader.count.load(Ordering::SeqCst) + 20 < sequence && start.elapsed() < SOON {
                thread::yield_now();
            }
        }
        // Waiting for each message that was dropped would have taken longer.
        assert!(start.elapsed() < SOON / 2, "{overflow:?}: {:?}", start.elapsed());
        assert_eq!(reader.wait(&reader.count, total), total, "{overflow:?}");
        assert_eq!(reader.lost.load(Ordering::SeqCst), 0);
        let dropped = find(&events, |event| match event {
            Event::Dropped { count, topic, .. } => Some((count, topic)),
            _ => None,
        });
        assert!(dropped.0 >= 1 && dropped.1 == "t", "{overflow:?}: {dropped:?}");
        let stats = node.port().links();
        assert!(stats.iter().any(|link| link.dropped > 500), "{overflow:?}: {stats:?}");
        assert!(stats.iter().all(|link| link.queued_bytes <= (1 << 20) + (17 << 10)));
        drop(deaf);
    }
}

#[test]
fn a_slow_peer_gets_the_newest_and_hears_what_it_missed() {
    for overflow in [Overflow::DropOldest, Overflow::DropNewest] {
        let mut options = options();
        options.overflow = overflow;
        options.queue_bytes = 100_000;
        options.send_buffer = Some(16 << 10);
        let (node, _events) = listening(options);
        let channel = node.announce("t", 0);
        let mut receiving = EngineOptions::default();
        receiving.receive_buffer = Some(16 << 10);
        let (slow, _slow_events) = Tap::open("tcp-connect", &node.address(), receiving);
        node.wait(&node.accepted, 1);
        let held = slow.heard();
        let total = 2000;
        (1..=total).for_each(|sequence| {
            node.publish(channel, sequence, &[1; 1000]);
        });
        drop(held);
        assert!(node.port().flush(Instant::now() + SOON), "{overflow:?}");
        let until = Instant::now() + SOON;
        let all = || slow.count.load(Ordering::SeqCst) + slow.lost.load(Ordering::SeqCst);
        while all() < total && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(all(), total, "{overflow:?}: every message arrived or was told as lost");
        assert!(slow.lost.load(Ordering::SeqCst) > 1000);
        assert_eq!(node.port().links()[0].dropped, slow.lost.load(Ordering::SeqCst));
        let received = &slow.heard().messages;
        assert!(received.is_sorted_by_key(|message| message.sequence));
        let newest = received.last().map(|message| message.sequence == total);
        assert_eq!(newest, Some(overflow == Overflow::DropOldest));
    }
}

#[test]
fn payloads_of_every_size_arrive_whole() {
    // On a machine that is busy with other tests, the reader may take nothing for a while. That is
    // not tested here; but a writer that slept until its patience ended would not finish in time.
    let mut patient = options();
    patient.overflow = Overflow::Block { patience: SOON };
    let (node, _events) = listening(patient);
    let channel = node.announce("t", 0);
    let (peer, _peer_events) = Tap::open("tcp-connect", &node.address(), options());
    node.wait(&node.accepted, 1);
    let sizes = [0, 1, 7, 8, 127, 128, 1000, 16_383, 65_536, 131_072, 1 << 20, (5 << 20) + 3, 1, 33 << 20, 2];
    for (i, size) in sizes.iter().enumerate() {
        let payload: Vec<u8> = (0..*size).map(|j| (i + j) as u8).collect();
        node.publish(channel, i as u64 + 1, &payload);
    }
    peer.wait(&peer.count, sizes.len() as u64);
    let received = &peer.heard().messages;
    assert_eq!(received.iter().map(|message| message.payload.len()).collect::<Vec<_>>(), sizes);
    for (i, message) in received.iter().enumerate() {
        assert!(message.payload.iter().enumerate().all(|(j, byte)| *byte == (i + j) as u8), "message {i}");
    }
    let too_large = vec![0; (64 << 20) + 1];
    let refused = node.port().send(&Envelope::data(channel, 99, 0), &too_large);
    assert!(refused.is_err_and(|e| e.to_string().contains("67108864")));
}

#[test]
fn links_come_back_after_the_listener_restarts() {
    let (first, _first_events) = listening(options());
    let address = first.address();
    let (peer, events) = Tap::open("tcp-connect", &address, options());
    let channel = peer.announce("t", 0);
    peer.wait(&peer.accepted, 1);
    first.port().close();
    assert_eq!(disconnected(&events), Disconnect::Bye);
    find(&events, |event| matches!(event, Event::Unreachable { .. }).then_some(()));
    let (second, _second_events) = Tap::open("tcp-listen", &address, options());
    assert_eq!(peer.wait(&peer.accepted, 2), 2);
    peer.publish(channel, 2, b"again");
    assert_eq!(second.wait(&second.count, 1), 1);
}

#[test]
fn another_takes_the_hubs_place() {
    let (hub, _hub_events) = Tap::open("tcp", "127.0.0.1:0", options());
    let address = hub.address();
    let (a, _a_events) = Tap::open("tcp", &address, options());
    let (b, _b_events) = Tap::open("tcp", &address, options());
    let channel = a.announce("t", 0);
    a.wait(&a.accepted, 1);
    // Publish repeatedly: the hub accepts for its own node, too, perhaps before `b` has connected
    // or reconnected.
    let mut sequence = 0;
    let mut publish_until = |count: u64| {
        let until = Instant::now() + SOON;
        while b.count.load(Ordering::SeqCst) < count && Instant::now() < until {
            sequence += 1;
            a.publish(channel, sequence, b"x");
            thread::sleep(Duration::from_millis(5));
        }
        b.count.load(Ordering::SeqCst)
    };
    let before = publish_until(1);
    assert!(before >= 1);
    hub.port().close();
    // More messages than can have been under way.
    assert!(publish_until(before + 100) >= before + 100);
}

#[test]
fn closing_delivers_what_was_sent_before() {
    let (node, events) = listening(options());
    let (peer, _peer_events) = Tap::open("tcp-connect", &node.address(), options());
    let channel = peer.announce("t", 0);
    peer.wait(&peer.accepted, 1);
    (1..=5000).for_each(|sequence| {
        peer.publish(channel, sequence, &[3; 500]);
    });
    peer.port().close();
    assert_eq!(disconnected(&events), Disconnect::Bye);
    assert_eq!(node.count.load(Ordering::SeqCst), 5000);
}

/// In a process of its own, because other tests open sockets meanwhile.
#[cfg(target_os = "linux")]
#[test]
fn nothing_is_left_behind() {
    assert!(process_of("ports_come_and_go").status().expect("started").success());
}

/// Not a test by itself: opens and closes ports, and counts the descriptors.
#[cfg(target_os = "linux")]
#[test]
#[ignore = "run by another test"]
fn ports_come_and_go() {
    let round = || {
        let (node, _events) = listening(options());
        let peers: Vec<_> = (0..4).map(|_| Tap::open("tcp-connect", &node.address(), options())).collect();
        let channel = node.announce("t", 0);
        node.wait(&node.accepted, 4);
        node.publish(channel, 1, b"x");
        for (peer, _) in &peers {
            assert_eq!(peer.wait(&peer.count, 1), 1);
        }
        let weak: Vec<Weak<dyn Port>> =
            peers.iter().map(|(peer, _)| Arc::downgrade(peer.port())).chain([Arc::downgrade(node.port())]).collect();
        let start = Instant::now();
        drop(peers);
        drop(node);
        assert!(start.elapsed() < SOON);
        // A thread that holds its port for a moment releases it when it ends.
        while weak.iter().any(|port| port.upgrade().is_some()) {
            assert!(start.elapsed() < SOON, "a port is still held");
            thread::sleep(Duration::from_millis(1));
        }
    };
    round();
    let [_, before] = held();
    (0..10).for_each(|_| round());
    until("all sockets are closed", || held()[1] <= before);
}

#[test]
fn a_declared_length_is_not_believed() {
    let limits = Limits { frame_bytes: 1 << 30, ..Limits::default() };
    let mut options = options();
    options.limits = limits;
    let (node, _events) = listening(options);
    let mut streams: Vec<_> = (0..20).map(|_| stranger(&node)).collect();
    let before = resident_bytes();
    for stream in &mut streams {
        stream.write_all(&[0xFF, 0xFF, 0xFF, 0xFF, 0x03, 0x80]).expect("sends");
    }
    thread::sleep(Duration::from_millis(100));
    assert!(resident_bytes() < before + (100 << 20));
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}
