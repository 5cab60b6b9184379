//! UDP as nodes use it: typed messages over multicast, broadcast and unicast, in every format, and
//! what strangers send to the port. On the loopback interface only.

mod common;

use std::{
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU16, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use common::{SOON, until};
use polywire::{Node, NodeEvent, Publisher, Subscriber, engine::Event};
use polywire_core::{
    envelope::{Announcement, ChannelId, Id128},
    frame::{Answer, Frame, Hello, Limits, Start, crc32c, parse_datagram_frame, put_datagram_frame},
    multicast::{Config, Event as Happened, Member, Reliability},
};
use polywire_derive::Message;

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Plant::Reading")]
struct Reading {
    count: u32,
    text: String,
}

fn reading(count: u32) -> Reading {
    // Some take several packets.
    let len = if count.is_multiple_of(50) { 20_000 } else { (count % 300) as usize };
    Reading { count, text: "x".repeat(len) }
}

/// A port number of its own for each test of each process.
fn port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    20_000 + (std::process::id() % 4000) as u16 * 8 + NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The interface for IPv6, on which few systems carry multicast without help.
fn interface() -> String {
    std::env::var("POLYWIRE_TEST_INTERFACE").unwrap_or_else(|_| "lo".into())
}

/// Whether the system sends to a group at all, from this interface.
fn is_possible(group: SocketAddr, interface: u32) -> bool {
    let socket = socket2::Socket::new(socket2::Domain::for_address(group), socket2::Type::DGRAM, None);
    let socket = socket.expect("a socket");
    let chosen = match group {
        SocketAddr::V4(_) => socket.set_multicast_if_v4(&Ipv4Addr::LOCALHOST),
        SocketAddr::V6(_) => socket.set_multicast_if_v6(interface),
    };
    let sent = chosen.and_then(|()| socket.send_to(b"x", &group.into()));
    if let Err(error) = &sent {
        println!("SKIPPED: {group}: {error}");
    }
    sent.is_ok()
}

fn publish(publisher: &Publisher<Reading>, count: u32) {
    publisher.publish(&reading(count)).expect("published");
}

fn receive(readings: &Subscriber<Reading>, counts: std::ops::RangeInclusive<u32>) {
    for count in counts {
        let sample = readings.recv_timeout(SOON).unwrap_or_else(|| panic!("no reading {count}"));
        assert_eq!(sample.value, reading(count));
    }
}

/// Two subscribers and a late one get everything in order.
fn deliver(endpoint: &str) {
    let wire = format!("cdr@{endpoint}");
    let nodes = [(); 3].map(|()| Node::new());
    let publisher: Publisher<Reading> = nodes[0].publisher_on("readings", &wire).expect("a publisher");
    let subscribers: Vec<Subscriber<Reading>> =
        nodes[1..].iter().map(|node| node.subscriber_on("readings", &wire).expect("a subscriber")).collect();
    assert_eq!(publisher.wait_for_subscribers(2, SOON), 2, "{endpoint}");
    (1..=200).for_each(|count| publish(&publisher, count));
    subscribers.iter().for_each(|readings| receive(readings, 1..=200));
    let late_node = Node::new();
    let late: Subscriber<Reading> = late_node.subscriber_on("readings", &wire).expect("a subscriber");
    assert_eq!(publisher.wait_for_subscribers(3, SOON), 3, "{endpoint}");
    (201..=300).for_each(|count| publish(&publisher, count));
    receive(&late, 201..=300);
    subscribers.iter().for_each(|readings| receive(readings, 201..=300));
    assert!(subscribers.iter().chain([&late]).all(|readings| readings.lost() == 0), "{endpoint}");
}

#[test]
fn a_multicast_group_shares_a_port_and_loses_nothing() {
    let group = SocketAddr::from(([239, 255, 77, 1], port()));
    if is_possible(group, 0) {
        deliver(&format!("udp-reliable/{group}?interface=127.0.0.1"));
    }
}

#[test]
fn a_multicast_group_of_ipv6_loses_nothing() {
    let (interface, port) = (interface(), port());
    let any = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let number = rustix::net::netdevice::name_to_index(&any, &interface).unwrap_or(0);
    let group = format!("[ff02::77:1]:{port}");
    if is_possible(group.parse().expect("a group"), number) {
        deliver(&format!("udp-reliable/{group}?interface={interface}"));
    }
}

/// Passes datagrams on between whoever calls it and a host, except each tenth in both directions.
fn lossy(host: SocketAddr) -> SocketAddr {
    let (front, back) = (UdpSocket::bind("127.0.0.1:0").expect("a socket"), UdpSocket::bind("127.0.0.1:0"));
    let back = back.expect("a socket");
    back.connect(host).expect("connected");
    let (address, caller) = (front.local_addr().expect("an address"), Arc::new(OnceLock::new()));
    for is_forward in [true, false] {
        let (front, back) = (front.try_clone().expect("a socket"), back.try_clone().expect("a socket"));
        let caller = caller.clone();
        thread::spawn(move || {
            let mut packet = [0; 65_536];
            for number in 1_u64.. {
                let came = match is_forward {
                    true => front.recv_from(&mut packet).map(|(len, from)| {
                        caller.get_or_init(|| from);
                        len
                    }),
                    false => back.recv(&mut packet),
                };
                // An error tells what became of a packet before.
                let Some(packet) = came.ok().and_then(|len| packet.get(..len)) else { continue };
                if number.is_multiple_of(10) {
                    continue;
                }
                let _ = match (is_forward, caller.get()) {
                    (true, _) => back.send(packet),
                    (false, Some(caller)) => front.send_to(packet, caller),
                    (false, None) => continue,
                };
            }
        });
    }
    address
}

#[test]
fn packets_that_are_lost_are_sent_again_and_counted() {
    let (publishing, subscribing) = (Node::new(), Node::new());
    let host = SocketAddr::from(([127, 0, 0, 1], port()));
    let readings: Subscriber<Reading> =
        subscribing.subscriber_on("readings", &format!("auto@udp-reliable/{host}")).expect("a subscriber");
    let wire = format!("cdr@udp-reliable/{}", lossy(host));
    let publisher: Publisher<Reading> = publishing.publisher_on("readings", &wire).expect("a publisher");
    assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
    (1..=500).for_each(|count| publish(&publisher, count));
    receive(&readings, 1..=500);
    assert_eq!(readings.lost(), 0);
    assert!(publishing.stats().retransmitted > 0, "a tenth of the packets was lost");
    assert!(publishing.stats().prometheus().contains("polywire_packets_retransmitted_total"));
}

#[test]
fn a_host_that_is_gone_is_reported() {
    let other = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let node = Node::new();
    let events = node.events();
    // The address is taken, so the node calls it.
    let endpoint = format!("udp/{}", other.local_addr().expect("an address"));
    assert_eq!(node.open(&endpoint).expect("a port"), endpoint);
    drop(other);
    let wanted = |event| matches!(event, NodeEvent::Engine { event: Event::Unreachable { .. }, .. });
    until("refusal", || events.recv_timeout(Duration::from_millis(10)).is_some_and(wanted));
}

#[test]
fn broadcast_loses_nothing() {
    deliver(&format!("udp-reliable/127.255.255.255:{}?broadcast", port()));
}

#[test]
fn a_host_serves_several_callers() {
    deliver(&format!("udp-reliable/127.0.0.1:{}", port()));
}

/// Deltas survive losses: each message refers to a key frame, and a late subscriber asks for one.
#[test]
fn best_effort_carries_deltas_and_counts_what_is_missing() {
    let wire = format!("fast@udp/127.255.255.255:{}?broadcast", port());
    let (here, there) = (Node::new(), Node::new());
    let publisher: Publisher<Reading> = here.publisher_on("readings", &wire).expect("a publisher");
    let readings: Subscriber<Reading> = there.subscriber_on("readings", &wire).expect("a subscriber");
    assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
    let (mut sent, mut last, mut came) = (0u32, 0, 0u32);
    until("fifty readings", || {
        sent += 1;
        publisher.publish(&Reading { count: sent, text: "x".into() }).expect("published");
        while let Some(sample) = readings.try_recv() {
            assert!(sample.value.count > last, "in order, once");
            (last, came) = (sample.value.count, came + 1);
        }
        came >= 50
    });
    assert!(u64::from(came) + readings.lost() + readings.undecodable() <= u64::from(sent));
}

#[test]
fn what_is_no_packet_is_dropped_and_told_to_nobody() {
    let node = Node::new();
    let endpoint = node.open("udp-reliable/127.0.0.1:0").expect("a port");
    let address = endpoint.split_once('/').expect("an address").1;
    let stranger = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    stranger.set_read_timeout(Some(Duration::from_millis(100))).expect("a time-out");
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0x55; 1400], &[0x55, 1, 1], &[]] {
        stranger.send_to(garbage, address).expect("sent");
        let mut answer = [0; 100];
        assert!(stranger.recv(&mut answer).is_err(), "nothing is sent to an address that is not proved");
    }
    // The port still works.
    let wire = format!("cdr@{endpoint}");
    let readings: Subscriber<Reading> = node.subscriber_on("readings", &wire).expect("a subscriber");
    let other = Node::new();
    let publisher: Publisher<Reading> = other.publisher_on("readings", &wire).expect("a publisher");
    assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
    publisher.publish(&reading(7)).expect("published");
    receive(&readings, 7..=7);
}

#[test]
fn packets_of_another_version_are_told() {
    let node = Node::new();
    let events = node.events();
    let endpoint = node.open("udp-reliable/127.0.0.1:0").expect("a port");
    let address = endpoint.split_once('/').expect("an address").1;
    let stranger = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let body = [&[0x55, 9][..], &[0; 40]].concat();
    let packet = [&body[..], &crc32c(&body).to_le_bytes()].concat();
    for _ in 0..3 {
        stranger.send_to(&packet, address).expect("sent");
    }
    let mut told = std::iter::from_fn(|| events.recv_timeout(SOON)).filter_map(|event| match event {
        NodeEvent::Engine { event: Event::Rejected { reason, total, .. }, .. } => Some((reason.to_string(), total)),
        _ => None,
    });
    for expected in [1, 2] {
        let (reason, total) = told.next().expect("an event");
        assert!(reason.contains("version 9") && total == expected, "{reason} {total}");
    }
}

/// The peer breaks a rule: no number of a channel is used twice.
#[test]
fn a_channel_that_is_announced_with_another_content_is_answered_again() {
    let node = Node::new();
    let endpoint = node.open("udp-reliable/127.0.0.1:0").expect("a port");
    let _readings: Subscriber<Reading> =
        node.subscriber_on("readings", &format!("auto@{endpoint}")).expect("a subscriber");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.connect(endpoint.split_once('/').expect("an address").1).expect("connected");
    socket.set_read_timeout(Some(Duration::from_millis(1))).expect("a time-out");
    let hello = Hello { node: Id128([9; 16]), incarnation: 1 };
    let mut peer = Member::new(Config { is_pair: true, ..Config::default() }, hello, 9);
    let (began, mut packet, mut buffer, mut answers) = (Instant::now(), Vec::new(), [0; 2000], Vec::new());
    // Nobody reads the first topic, and nobody can read the second one in this format.
    let mut topics = ["unread", "readings"].into_iter();
    until("an answer to each announcement", || {
        let (now, mut is_next) = (began.elapsed(), false);
        while let Ok(len) = socket.recv(&mut buffer) {
            let _ = peer.handle_datagram(&buffer[..len], now);
        }
        while let Some(happened) = peer.poll_event(now) {
            is_next |= matches!(happened, Happened::Up { .. });
            let Happened::Records { batch, .. } = happened else { continue };
            for record in batch.records() {
                if let Ok(Frame::Answer { answer, .. }) = parse_datagram_frame(record, &Limits::default()) {
                    answers.push(answer);
                    is_next = true;
                }
            }
        }
        if is_next && let Some(topic) = topics.next() {
            let announcement =
                Announcement { topic: topic.into(), codec: "no-such".into(), writer: hello.node, ..Default::default() };
            let announcement = Box::new(announcement);
            let mut frame = Vec::new();
            let announce = Frame::Announce { channel: ChannelId(1), start: Start::default(), announcement };
            put_datagram_frame(&announce, &mut frame);
            peer.send(None, Reliability::Reliable, &frame, 0, now).expect("it is short");
        }
        while peer.poll_transmit(now, &mut packet) {
            let _ = socket.send(&packet);
        }
        answers.len() >= 2
    });
    assert!(matches!(answers[..], [Answer::Decline, Answer::Refuse(_), ..]), "{answers:?}");
}

/// The peer accepts the channel, and then takes nothing any more.
#[test]
fn what_a_peer_has_not_confirmed_when_the_port_closes_is_told() {
    let node = Node::new();
    let events = node.events();
    let endpoint = node.open("udp-reliable/127.0.0.1:0").expect("a port");
    let publisher: Publisher<Reading> = node.publisher_on("readings", &format!("cdr@{endpoint}")).expect("a publisher");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.connect(endpoint.split_once('/').expect("an address").1).expect("connected");
    socket.set_read_timeout(Some(Duration::from_millis(1))).expect("a time-out");
    let hello = Hello { node: Id128([9; 16]), incarnation: 1 };
    let mut peer = Member::new(Config { is_pair: true, ..Config::default() }, hello, 9);
    let (began, mut packet, mut buffer) = (Instant::now(), Vec::new(), [0; 2000]);
    until("a subscriber", || {
        let now = began.elapsed();
        while let Ok(len) = socket.recv(&mut buffer) {
            let _ = peer.handle_datagram(&buffer[..len], now);
        }
        while let Some(happened) = peer.poll_event(now) {
            let Happened::Records { batch, .. } = happened else { continue };
            for record in batch.records() {
                if let Ok(Frame::Announce { channel, announcement, .. }) =
                    parse_datagram_frame(record, &Limits::default())
                    && announcement.topic == "readings"
                {
                    let mut frame = Vec::new();
                    put_datagram_frame(&Frame::Answer { channel, answer: Answer::Accept(1) }, &mut frame);
                    peer.send(None, Reliability::Reliable, &frame, 0, now).expect("it is short");
                }
            }
        }
        while peer.poll_transmit(now, &mut packet) {
            let _ = socket.send(&packet);
        }
        publisher.wait_for_subscribers(1, Duration::ZERO) == 1
    });
    // Some do not fit into the window.
    (0..5).for_each(|_| publish(&publisher, 1));
    for _ in 0..5 {
        publisher.publish(&Reading { count: 1, text: "x".repeat(1 << 20) }).expect("published");
    }
    node.close();
    let told = std::iter::from_fn(|| events.recv_timeout(SOON)).find_map(|event| match event {
        NodeEvent::Engine { event: Event::Unconfirmed { count, .. }, .. } => Some(count),
        NodeEvent::Engine { event: Event::Disconnected { .. }, .. } => Some(0),
        _ => None,
    });
    assert_eq!(told, Some(10));
}

/// A stranger at the broadcast address counts the packets.
#[test]
fn what_is_published_together_leaves_in_one_packet() {
    let port = port();
    let wire = format!("cdr@udp/127.255.255.255:{port}?broadcast");
    let (here, there) = (Node::new(), Node::new());
    let publishers: Vec<Publisher<Reading>> = ["a", "b", "c", "d", "e"]
        .iter()
        .map(|topic| here.publisher_on(&format!("together/{topic}"), &wire).expect("a publisher"))
        .collect();
    let readings: Subscriber<Reading> = there.subscriber_on("together/*", &wire).expect("a subscriber");
    publishers.iter().for_each(|publisher| assert_eq!(publisher.wait_for_subscribers(1, SOON), 1));
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).expect("a socket");
    socket.set_reuse_address(true).expect("shared");
    socket.bind(&SocketAddr::from(([127, 255, 255, 255], port)).into()).expect("bound");
    let stranger = UdpSocket::from(socket);
    stranger.set_read_timeout(Some(SOON)).expect("a time-out");
    here.together(|| publishers.iter().for_each(|publisher| publish(publisher, 7)));
    (0..5).for_each(|_| assert_eq!(readings.recv_timeout(SOON).expect("a reading").value, reading(7)));
    // Packets without a number tell of members; best effort has packets of its own.
    let mut bytes = [0; 2000];
    let mut texts = || {
        let len = stranger.recv(&mut bytes).expect("a packet");
        bytes[..len].windows(7).filter(|part| part == b"xxxxxxx").count()
    };
    let first = std::iter::repeat_with(&mut texts).find(|count| *count > 0);
    assert_eq!(first, Some(5), "one packet has all texts");
}

#[test]
fn a_node_that_leaves_says_goodbye() {
    let wire = format!("cdr@udp/127.255.255.255:{}?broadcast", port());
    let (here, there) = (Node::new(), Node::new());
    let events = here.events();
    let publisher: Publisher<Reading> = here.publisher_on("readings", &wire).expect("a publisher");
    let readings: Subscriber<Reading> = there.subscriber_on("readings", &wire).expect("a subscriber");
    assert_eq!(publisher.wait_for_subscribers(1, SOON), 1);
    drop(readings);
    there.close();
    let gone = |event| matches!(event, NodeEvent::Engine { event: Event::Disconnected { .. }, .. });
    until("goodbye", || events.recv_timeout(Duration::from_millis(10)).is_some_and(gone));
    assert_eq!(here.links(), 0);
}
