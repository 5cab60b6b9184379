//! Compressed topics: every compressor over every kind of engine, changed while messages flow;
//! fetched dictionaries; peers that send invalid bytes.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    time::Duration,
};

use polywire::{Node, NodeEvent, Publisher, coding::Bytes};
use polywire_core::{
    codec::{Encoder, Options, cdr},
    compress::{COMPRESSORS, Packer, Settings, find},
    envelope::{Announcement, Envelope, Id128},
    frame::{Answer, Frame, Hello, Start, Step, StreamDecoder, StreamEncoder},
    layout::Message as _,
    schema::DocumentHash,
};
use polywire_derive::Message;
use polywire_testing::Folder;

const SOON: Duration = Duration::from_secs(20);

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Plant::Log")]
struct Log {
    lines: Vec<String>,
    count: u32,
}

/// An older version of it.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Plant::Log")]
struct OldLog {
    count: u32,
}

/// Some long and similar, some short, some empty.
fn log(count: u32) -> Log {
    let lines = (0..count % 40).map(|i| format!("boiler {i}: pressure {} bar", count % 7)).collect();
    Log { lines, count }
}

/// A node that listens and one that connects to it, over each kind of engine.
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

#[test]
fn every_compressor_over_every_engine_and_changed_on_the_way() {
    for (a, at_a, b, at_b) in pairs("compressors") {
        let new = a.subscriber_on::<Log>("r", &format!("auto@{at_a}")).expect("subscriber");
        let old = a.subscriber_on::<OldLog>("r", &format!("auto@{at_a}")).expect("subscriber");
        let publisher: Publisher<Log> = b.publisher_on("r", &format!("json+zlib@{at_b}")).expect("publisher");
        let beside = b.subscriber_on::<Log>("r", &format!("auto@{at_b}")).expect("subscriber");
        assert_eq!(publisher.wait_for_subscribers(3, SOON), 3, "{at_a}");
        let total = 60 * COMPRESSORS.len() as u32;
        for count in 0..total {
            if count % 30 == 0 {
                let which = count as usize / 30;
                let compressor = COMPRESSORS[which % COMPRESSORS.len()];
                let codec = ["json", "cdr", "bson", "xcdr2"][which % 4];
                let level = compressor.properties().levels.map(|levels| format!(":{}", levels.least));
                let wire = format!("{codec}+{}{}", compressor.name(), level.unwrap_or_default());
                publisher.set_wire(if which % 7 == 3 { codec } else { &wire }).expect("another wire");
            }
            publisher.publish(&log(count)).expect("published");
        }
        let mut compressors = std::collections::BTreeSet::new();
        for count in 0..total {
            for subscriber in [&new, &beside] {
                let sample = subscriber.recv_timeout(SOON).unwrap_or_else(|| panic!("{at_a}: message {count}"));
                assert_eq!((&sample.value, sample.info.sequence), (&log(count), u64::from(count) + 1));
                let announced = &sample.info.source.announcement.compressor;
                if !announced.is_empty() && announced != "rle" && sample.value.lines.len() > 30 {
                    assert!(sample.info.bytes < 900, "{announced}: {} bytes", sample.info.bytes);
                }
                compressors.insert(announced.split(':').next().map(str::to_owned));
            }
            assert_eq!(old.recv_timeout(SOON).map(|sample| sample.value), Some(OldLog { count }));
        }
        // All are announced but `none`, which is announced like no compression.
        assert_eq!(compressors.len(), COMPRESSORS.len(), "{at_a}: {compressors:?}");
        assert_eq!((new.undecodable(), old.undecodable(), beside.undecodable()), (0, 0, 0));
    }
}

#[test]
fn bytes_come_out_as_they_went_in() {
    for (a, at_a, b, at_b) in pairs("bytes-compressed") {
        let raw = a.subscribe_of("r", Some(&format!("auto@{at_a}")), Bytes::default()).expect("subscriber").open();
        let publisher = b.publisher_of("r", Some(&format!("cdr+lz4@{at_b}")), Bytes::default()).expect("publisher");
        publisher.wait_for_subscribers(1, SOON);
        for payload in [Vec::new(), vec![0], vec![1; 5000], (0..=255).collect()] {
            publisher.publish(&payload).expect("published");
            let sample = raw.recv_timeout(SOON).expect("message");
            assert_eq!(sample.value, payload);
            assert!(payload.len() < 1000 || sample.info.bytes < 100);
        }
    }
}

fn encoded(value: &Log) -> Vec<u8> {
    let encoder = Encoder::<Log>::new(&cdr::CDR, &Options::default()).expect("it lowers");
    let mut out = Vec::new();
    encoder.encode(value, &mut out).expect("it encodes");
    out
}

#[test]
fn dictionaries_are_fetched_by_who_lacks_them() {
    let dictionary = encoded(&log(39));
    let folder = Folder::new("dictionary");
    let file = folder.write("log.dict", &dictionary);
    let hash = DocumentHash::of(&dictionary).to_string();
    let takers: Vec<&str> = COMPRESSORS.iter().filter(|c| c.properties().dictionary).map(|c| c.name()).collect();
    assert!(takers.contains(&"lz4"));
    for (a, at_a, b, at_b) in pairs("dictionaries") {
        for (round, taker) in takers.iter().enumerate() {
            let topic = format!("r{round}");
            let wire = format!("cdr+{taker}:dict={file}@{at_b}");
            let publisher: Publisher<Log> = b.publisher_on(&topic, &wire).expect("publisher");
            // A subscriber of bytes needs no schema, but it needs the dictionary.
            let raw = a.subscribe_of(&topic, Some(&format!("auto@{at_a}")), Bytes::default()).expect("opens").open();
            let new = a.subscriber_on::<Log>(&topic, &format!("auto@{at_a}")).expect("subscriber");
            publisher.wait_for_subscribers(1, SOON);
            for count in [9, 5, 8, 0, 38] {
                publisher.publish(&log(count)).expect("published");
                let sample = new.recv_timeout(SOON).unwrap_or_else(|| panic!("{at_a} {taker}: message {count}"));
                assert_eq!(sample.value, log(count));
                let announced = &sample.info.source.announcement.compressor;
                assert_eq!(*announced, format!("{taker}:dict={hash}"));
                let plain = encoded(&log(count));
                assert!(count == 0 || sample.info.bytes * 3 < plain.len(), "{taker}: {} bytes", sample.info.bytes);
                assert_eq!(raw.recv_timeout(SOON).map(|sample| sample.value), Some(plain));
            }
        }
    }
}

/// A peer written by hand, which sends and receives frames.
struct Peer {
    stream: TcpStream,
    encoder: StreamEncoder,
    decoder: StreamDecoder,
}

impl Peer {
    /// A peer of `node`, which subscribes to topic `r`.
    fn of(socket: &TcpListener) -> Peer {
        let (stream, _) = socket.accept().expect("a caller");
        stream.set_read_timeout(Some(SOON)).expect("a time-out");
        let mut peer = Peer { stream, encoder: StreamEncoder::default(), decoder: StreamDecoder::default() };
        let hello = Hello { node: Id128([3; 16]), incarnation: 1 };
        peer.send(|encoder, out| encoder.hello(&hello, out));
        assert!(matches!(peer.next(), Frame::Hello(_)));
        peer
    }

    fn send(&mut self, write: impl FnOnce(&mut StreamEncoder, &mut Vec<u8>)) {
        let mut out = Vec::new();
        write(&mut self.encoder, &mut out);
        self.stream.write_all(&out).expect("sends");
    }

    fn announce(&mut self, compressor: &str) -> Frame<'static> {
        let announcement = Announcement {
            topic: "r".into(),
            codec: "cdr".into(),
            type_name: "Plant::Log".into(),
            type_hash: Id128(Log::shape().schema().type_hash().to_bytes()),
            compressor: compressor.into(),
            ..Announcement::default()
        };
        self.send(|encoder, out| {
            encoder.announce(&announcement, Start::default(), out).expect("fits");
        });
        self.next()
    }

    fn data(&mut self, channel: u32, sequence: u64, payload: &[u8]) {
        self.send(|encoder, out| {
            let envelope = Envelope::data(polywire_core::envelope::ChannelId(channel), sequence, 0);
            encoder.data(&envelope, payload.len(), out).expect("fits");
            out.extend_from_slice(payload);
        });
    }

    /// Reads one frame byte by byte, and skips signs of life. The result borrows nothing.
    fn next(&mut self) -> Frame<'static> {
        let mut bytes = Vec::new();
        loop {
            let mut byte = [0];
            self.stream.read_exact(&mut byte).expect("a byte");
            bytes.push(byte[0]);
            if let Step::Frame { frame, .. } = self.decoder.step(&bytes).expect("a frame") {
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
}

fn refused(frame: &Frame<'_>, expected: &str) {
    let Frame::Answer { answer: Answer::Refuse(reason), .. } = frame else { panic!("{frame:?}") };
    assert!(reason.contains(expected), "{reason}");
}

#[test]
fn what_cannot_be_unpacked_is_refused_or_counted() {
    let socket = TcpListener::bind("127.0.0.1:0").expect("binds");
    let address = socket.local_addr().expect("an address");
    let node = Node::builder().fetch_timeout(Duration::from_secs(2)).build();
    let events = node.events();
    let subscriber = node.subscriber_on::<Log>("r", &format!("auto@tcp-connect/{address}")).expect("subscriber");
    let mut peer = Peer::of(&socket);

    refused(&peer.announce("zlob:1"), "did you mean 'zlib'?");
    refused(&peer.announce("lz4:dict=xyz"), "'xyz' is not the hash");
    let unknown = Id128([5; 16]);
    let asked = peer.announce(&format!("lz4:dict={unknown}"));
    assert_eq!(asked, Frame::Want { document: unknown });
    refused(&peer.next(), "did not come in time");
    assert_eq!(peer.announce(&format!("lz4:dict={unknown}")), Frame::Want { document: unknown });
    peer.send(|encoder, out| encoder.control(&Frame::Document { document: unknown, bytes: Some(b"nonsense") }, out));
    refused(&peer.next(), "hash");
    assert_eq!(peer.announce(&format!("lz4:dict={unknown}")), Frame::Want { document: unknown });
    // The node asks again, since a relay may have the document a little later.
    let answer = loop {
        peer.send(|encoder, out| encoder.control(&Frame::Document { document: unknown, bytes: None }, out));
        match peer.next() {
            Frame::Want { document } => assert_eq!(document, unknown),
            answer => break answer,
        }
    };
    refused(&answer, "does not have");

    // Options from a later version are ignored.
    let accepted = peer.announce("lz4:99,shiny=yes");
    assert!(matches!(accepted, Frame::Answer { answer: Answer::Accept(1), .. }), "{accepted:?}");
    let lz4 = find("lz4").expect("in the table");
    let mut good = Vec::new();
    Packer::new(lz4, &Settings::default(), &[]).expect("a state").pack(&encoded(&log(39)), &mut good);
    let bombs: [&[u8]; 6] =
        [&[0x80], &[0xFF; 11], &[0xFF, 0xFF, 0xFF, 0x7F, 1, 2], &[0x80, 0x80, 0x80, 0x01, 0, 0], &[9, 1], &[]];
    let mut sequence = 0;
    for bad in bombs {
        for payload in [bad, &good] {
            sequence += 1;
            peer.data(6, sequence, payload);
        }
        let sample = subscriber.recv_timeout(SOON).expect("the good one");
        assert_eq!((sample.value, sample.info.sequence), (log(39), sequence));
    }
    assert_eq!(subscriber.undecodable(), bombs.len() as u64);
    let told: Vec<String> = std::iter::from_fn(|| events.try_recv())
        .filter_map(|event| match event {
            NodeEvent::Undecodable { reason, .. } => Some(reason),
            _ => None,
        })
        .collect();
    assert!(told.first().is_some_and(|reason| reason.contains("size in front")), "{told:?}");
}
