//! A target for applications that know only ZeroMQ, and meet a node: they publish to it, claim to
//! be nodes, or subscribe to what it publishes. Their connections follow ZMTP 3.0, which is
//! libzmq's matter; what the frames say is any.

use crate::{
    nodes::{unharmed, use_node},
    talk::Pump,
};
use polywire::{Node, engine};
use polywire_core::{
    codec::{Encoder, Options, cbor::CBOR, json::JSON},
    schema::arbitrary::Random,
};
use polywire_testing::mutated;
use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::{Duration, Instant},
};

/// No input takes that long.
const LONGEST: Duration = Duration::from_secs(15);
/// What nodes ask publishers, in front of their names.
const QUESTION: &[u8] = b"@polywire/1/";
/// The topic of what is sent last.
const LAST: &str = "plant/last";

/// A number for what the application does, and messages: each the number of its frames, and the
/// frames with their lengths in front.
pub fn message_frames(random: &mut Random) -> Vec<u8> {
    let mut input = vec![random.bits() as u8];
    for _ in 0..random.below(12) {
        let frames = message(random);
        input.push(frames.len() as u8);
        for frame in frames {
            input.extend((frame.len() as u16).to_le_bytes());
            input.extend(frame);
        }
    }
    input
}

fn message(random: &mut Random) -> Vec<Vec<u8>> {
    let topics = ["plant/pump", "plant/valve", "plant/a/b", "plant", "polywire/nodes", "@polywire/1/0-0"];
    let encodings = ["application/json", "text/json;Plant::Pump@07", "application/octet-stream;polywire-cbor", ""];
    let pump = Pump { id: random.bits() as u32, label: "main".into(), history: vec![1, -1], ..Pump::default() };
    let payload = match random.below(3) {
        0 => b"PLYW\x01aaaaaaaaaaaaaaaabbbbbbbbcc".to_vec(),
        1 => encoded(&Encoder::new(&CBOR, &Options::default()).expect("it takes the type"), &pump),
        _ => encoded(&Encoder::new(&JSON, &Options::default()).expect("it takes the type"), &pump),
    };
    let mut frames = vec![topics[random.below(topics.len())].into(), payload];
    frames.push(encodings[random.below(encodings.len())].into());
    frames.push(Vec::new());
    frames.truncate(1 + random.below(4));
    frames.into_iter().map(|frame| if random.one_in(4) { mutated(random, &frame) } else { frame }).collect()
}

fn encoded(encoder: &Encoder<Pump>, pump: &Pump) -> Vec<u8> {
    let mut bytes = Vec::new();
    encoder.encode(pump, &mut bytes).expect("it takes the value");
    bytes
}

fn read_messages(mut input: &[u8]) -> Vec<Vec<&[u8]>> {
    let mut messages = Vec::new();
    while let Some((count, rest)) = input.split_first() {
        input = rest;
        let frames = std::iter::from_fn(|| {
            let (length, after) = input.split_first_chunk::<2>()?;
            let frame = after.get(..usize::from(u16::from_le_bytes(*length))).unwrap_or(after);
            input = after.get(frame.len()..).unwrap_or_default();
            Some(frame)
        });
        let frames: Vec<&[u8]> = frames.take(usize::from(*count % 8)).collect();
        messages.extend(Some(frames).filter(|frames| !frames.is_empty()));
    }
    messages
}

/// A node must take or drop what an application sends, without a panic in any of its threads, read
/// what is valid behind it, and close in time.
pub fn meet(input: &[u8]) {
    // Fuzzers without the engine have nothing to try.
    if engine::find("zeromq").is_none() {
        return;
    }
    let (what, messages) = input.split_first().unwrap_or((&0, &[]));
    let messages = read_messages(messages);
    unharmed(|node| match what % 4 {
        0 | 1 => publish(node, &messages),
        2 => claim_to_be_a_node(node, &messages),
        _ => subscribe(node, &messages),
    });
}

fn publish(node: &Node, messages: &[Vec<&[u8]>]) {
    let (listener, address) = listen();
    let endpoint = format!("zeromq/connect/{address}?nodes=off");
    use_node(node, &endpoint);
    let (sender, last) = mpsc::channel();
    let pumps = node.subscribe::<Pump>(LAST, Some(&format!("json@{endpoint}"))).expect("a subscriber");
    let _pumps = pumps.on_message_inline(move |pump, _| {
        let _ = sender.send(pump.id);
    });
    let mut peer = Peer::greet(listener.accept().expect("the node calls").0, "PUB");
    peer.wait_for(LAST.as_bytes());
    messages.iter().for_each(|frames| peer.send(frames));
    peer.send(&[LAST.as_bytes(), br#"{"id":7}"#]);
    assert_eq!(last.recv_timeout(LONGEST), Ok(7), "what is valid is read");
}

fn claim_to_be_a_node(node: &Node, messages: &[Vec<&[u8]>]) {
    let (listener, address) = listen();
    use_node(node, &format!("zeromq/connect/{address}"));
    let mut peers: Vec<Peer> =
        (0..2).map(|_| Peer::greet(listener.accept().expect("the node calls").0, "PUB")).collect();
    // One of the two asks.
    let asked = peers.iter_mut().find_map(|peer| peer.read_question(Duration::from_millis(200)));
    let asked = asked.unwrap_or_else(|| QUESTION.to_vec());
    for frames in messages {
        let answer = [&[&*asked], frames.get(1..).unwrap_or_default()].concat();
        peers.iter_mut().for_each(|peer| [frames, &answer].iter().for_each(|frames| peer.send(frames)));
    }
}

fn subscribe(node: &Node, messages: &[Vec<&[u8]>]) {
    let endpoint = node.open("zeromq/bind/tcp://127.0.0.1:0").expect("a port");
    use_node(node, &endpoint);
    let publisher = node.publisher_on::<Pump>(LAST, &format!("json@{endpoint}")).expect("a publisher");
    let address = endpoint.rsplit('/').next().expect("an address");
    let mut peer = Peer::greet(TcpStream::connect(address).expect("the node listens"), "SUB");
    for frames in messages {
        // An end of a subscription, a beginning, or something else.
        let kind = (frames[0].len() % 3) as u8;
        let first = [&[kind], frames[0]].concat();
        peer.send(&[&[&*first], &frames[1..]].concat());
    }
    peer.send(&[&[&[1], LAST.as_bytes()].concat()]);
    let until = Instant::now() + LONGEST;
    while !peer.has_read(LAST.as_bytes(), Duration::from_millis(5)) {
        assert!(Instant::now() < until, "what is subscribed to comes");
        publisher.publish(&Pump::default()).expect("published");
    }
}

fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    (listener, format!("tcp://{address}"))
}

/// An application's end of a connection.
struct Peer {
    stream: TcpStream,
    came: Vec<u8>,
}

impl Peer {
    /// Says what ZMTP 3.0 wants to hear first, with the mechanism NULL.
    fn greet(mut stream: TcpStream, kind: &str) -> Peer {
        let mut greeting = [0; 64];
        (greeting[0], greeting[9], greeting[10]) = (0xff, 0x7f, 3);
        greeting[12..16].copy_from_slice(b"NULL");
        let property = [b"\x0bSocket-Type\0\0\0", &[kind.len() as u8][..], kind.as_bytes()].concat();
        let ready = [b"\x05READY", &*property].concat();
        stream.write_all(&[&greeting[..], &[4, ready.len() as u8], &ready].concat()).expect("the node reads");
        let mut peer = Peer { stream, came: Vec::new() };
        // Before, libzmq takes messages for a part of the greeting.
        peer.wait_for(b"READY");
        peer
    }

    /// Sends a message. The node may have ended the connection.
    fn send(&mut self, frames: &[&[u8]]) {
        let mut bytes = Vec::new();
        for (at, frame) in frames.iter().enumerate() {
            let more = u8::from(at + 1 < frames.len());
            bytes.push(2 | more);
            bytes.extend((frame.len() as u64).to_be_bytes());
            bytes.extend_from_slice(frame);
        }
        let _ = self.stream.write_all(&bytes);
    }

    /// Whether the node has sent these bytes, after at most this time.
    fn has_read(&mut self, wanted: &[u8], time: Duration) -> bool {
        let mut more = [0; 4096];
        self.stream.set_read_timeout(Some(time)).expect("a time-out");
        let count = self.stream.read(&mut more).unwrap_or_default();
        self.came.extend_from_slice(&more[..count]);
        self.came.windows(wanted.len()).any(|window| window == wanted)
    }

    fn wait_for(&mut self, wanted: &[u8]) {
        let until = Instant::now() + LONGEST;
        while !self.has_read(wanted, Duration::from_millis(50)) {
            assert!(Instant::now() < until, "the node has not sent what it should");
        }
    }

    /// The topic under which the node wants an answer. `None` if it does not ask here.
    fn read_question(&mut self, time: Duration) -> Option<Vec<u8>> {
        let until = Instant::now() + time;
        while !self.has_read(QUESTION, Duration::from_millis(10)) {
            if Instant::now() > until {
                return None;
            }
        }
        let at = self.came.windows(QUESTION.len()).position(|window| window == QUESTION)?;
        // In front of it are the length of the frame and the kind of subscription.
        let length = usize::from(*self.came.get(at.checked_sub(2)?)?).checked_sub(1)?;
        self.came.get(at..at + length).map(<[u8]>::to_vec)
    }
}
