//! Hostile peers, written by hand: how much they cost, and that other peers are not affected.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use polywire::{
    Message, Node, NodeLimits, Publisher, Record, Schema,
    codec::{BuildError, Codec, Decoder, Options},
    coding::{Coding, Discovered, Dynamic},
    extend::program::{CodecError, Payload},
    schema::{Def, DocumentHash, Member, SchemaBuilder, Type},
};
use polywire_core::{
    envelope::{Announcement, ChannelId, Envelope, Id128},
    frame::{Answer, Frame, Hello, Start, Step, StreamDecoder, StreamEncoder},
};

const SOON: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Pump")]
struct Pump {
    id: u32,
}

/// A peer of a node.
struct Peer {
    stream: TcpStream,
    encoder: StreamEncoder,
    decoder: StreamDecoder,
}

/// A frame that a peer receives. It borrows nothing.
#[derive(Clone, Debug, PartialEq)]
enum Got {
    Announce(ChannelId, Announcement),
    Answer(ChannelId, Answer),
    Want(Id128),
    Document(Id128, Option<Vec<u8>>),
    Data(Vec<u8>),
    Other,
}

impl Peer {
    /// The peer that a node connects to.
    fn accept(socket: &TcpListener, id: u8) -> Peer {
        Peer::greet(socket.accept().expect("a caller").0, id)
    }

    /// A peer that connects to a node.
    fn connect(endpoint: &str, id: u8) -> Peer {
        let address = endpoint.split_once('/').expect("an endpoint").1;
        Peer::greet(TcpStream::connect(address).expect("connects"), id)
    }

    fn greet(stream: TcpStream, id: u8) -> Peer {
        let mut peer = Peer { stream, encoder: StreamEncoder::default(), decoder: StreamDecoder::default() };
        let hello = Hello { node: Id128([id; 16]), incarnation: 1 };
        peer.send(|encoder, out| encoder.hello(&hello, out));
        peer
    }

    fn send(&mut self, write: impl FnOnce(&mut StreamEncoder, &mut Vec<u8>)) {
        let mut out = Vec::new();
        write(&mut self.encoder, &mut out);
        self.stream.write_all(&out).expect("sends");
    }

    fn announce(&mut self, schema: &Schema) -> ChannelId {
        let announcement = Announcement {
            topic: "pumps".into(),
            codec: "cdr".into(),
            type_name: schema.name().into(),
            schema: document_of(schema),
            ..Announcement::default()
        };
        let mut channel = ChannelId(0);
        self.send(|encoder, out| channel = encoder.announce(&announcement, Start::default(), out).expect("fits"));
        channel
    }

    fn supply(&mut self, document: Id128, bytes: Option<&[u8]>) {
        self.send(|encoder, out| encoder.control(&Frame::Document { document, bytes }, out));
    }

    fn data(&mut self, channel: ChannelId, sequence: u64, payload: &[u8]) {
        self.send(|encoder, out| {
            encoder.data(&Envelope::data(channel, sequence, 0), payload.len(), out).expect("fits");
            out.extend_from_slice(payload);
        });
    }

    fn position(&mut self, channel: ChannelId, sequence: u64, lost: u64) {
        let start = Start { sequence, timestamp_ns: 0 };
        self.send(|encoder, out| encoder.position(channel, start, lost, out).expect("fits"));
    }

    /// The next frame, if one comes in time. Reads byte by byte.
    fn next_within(&mut self, time: Duration) -> Option<Got> {
        let mut bytes = Vec::new();
        self.stream.set_read_timeout(Some(time)).expect("a time-out");
        loop {
            let mut byte = [0];
            self.stream.read_exact(&mut byte).ok()?;
            bytes.push(byte[0]);
            if let Step::Frame { frame, .. } = self.decoder.step(&bytes).expect("a frame") {
                return Some(match frame {
                    Frame::Announce { channel, announcement, .. } => Got::Announce(channel, *announcement),
                    Frame::Answer { channel, answer } => Got::Answer(channel, answer),
                    Frame::Want { document } => Got::Want(document),
                    Frame::Document { document, bytes } => Got::Document(document, bytes.map(<[u8]>::to_vec)),
                    Frame::Data(_, payload) => Got::Data(payload.to_vec()),
                    _ => Got::Other,
                });
            }
        }
    }

    /// The next frame that is not [`Got::Other`].
    fn next(&mut self) -> Got {
        std::iter::from_fn(|| self.next_within(SOON)).find(|got| *got != Got::Other).expect("a frame")
    }

    fn answer(&mut self) -> Answer {
        match self.next() {
            Got::Answer(_, answer) => answer,
            other => panic!("{other:?}"),
        }
    }
}

fn document_of(schema: &Schema) -> Id128 {
    Id128(DocumentHash::of(&schema.to_bytes()).to_bytes())
}

fn pump() -> Schema {
    Pump::shape().schema().clone()
}

/// Connects the node to a peer written by hand.
fn connected(node: &Node) -> (Peer, String) {
    let socket = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let endpoint = format!("tcp-connect/{}", socket.local_addr().expect("an address"));
    node.open(&endpoint).expect("opened");
    (Peer::accept(&socket, 3), format!("cdr@{endpoint}"))
}

/// Counts the decoders that are made.
#[derive(Clone)]
struct Counting(Discovered, Arc<AtomicUsize>, bool);

impl Coding for Counting {
    type Value = Record;
    type Encoder = <Discovered as Coding>::Encoder;
    type Decoder = Decoder<Record>;

    fn schema(&self) -> Option<&Schema> {
        None
    }

    fn default_value(&self) -> Record {
        self.0.default_value()
    }

    fn encoder(&self, codec: &dyn Codec, options: &Options) -> Result<Self::Encoder, BuildError> {
        self.0.encoder(codec, options)
    }

    fn decoder(&self, codec: &dyn Codec, options: &Options, writer: &Schema) -> Result<Decoder<Record>, BuildError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.decoder(codec, options, writer)
    }

    fn reader(&self) -> Option<usize> {
        self.2.then_some(0)
    }

    fn encode(encoder: &Self::Encoder, value: &Record, out: &mut Vec<u8>) -> Result<(), CodecError> {
        Discovered::encode(encoder, value, out)
    }

    fn decode_measured(
        decoder: &Decoder<Record>,
        payload: Payload<'_>,
        value: &mut Record,
    ) -> Result<usize, CodecError> {
        Discovered::decode_measured(decoder, payload, value)
    }
}

#[test]
fn a_type_that_is_announced_often_is_lowered_once() {
    for (shared, expected) in [(true, 1), (false, 2)] {
        let node = Node::new();
        let (mut peer, wire) = connected(&node);
        let made = Arc::new(AtomicUsize::new(0));
        let coding = Counting(Discovered::new().expect("a shape"), made.clone(), shared);
        let subscribe = || node.subscribe_of("pumps", Some(&wire), coding.clone()).expect("subscribes").open();
        let subscribers = [subscribe(), subscribe()];
        for _ in 0..40 {
            peer.announce(&pump());
        }
        assert_eq!(peer.next(), Got::Want(document_of(&pump())));
        peer.supply(document_of(&pump()), Some(&pump().to_bytes()));
        for _ in 0..40 {
            assert!(peer.answer().accepts());
        }
        assert_eq!(made.load(Ordering::Relaxed), expected, "for two subscribers, shared: {shared}");
        assert_eq!(subscribers[0].status().writers, 40);
    }
}

/// Each level contains the level below twice: few bytes, many members.
fn unfolding(levels: u32, name: &str) -> Schema {
    let mut types = SchemaBuilder::new();
    let pair = |of: Type| vec![Member::new("a", of.clone()), Member::new("b", of)];
    let mut last = types.add(Def::structure(format!("{name}0"), pair(Type::Octet)));
    for level in 1..levels {
        last = types.add(Def::structure(format!("{name}{level}"), pair(Type::Def(last))));
    }
    types.finish(Type::Def(last)).expect("a schema")
}

#[test]
fn what_strangers_types_cost_is_bounded() {
    let mut limits = NodeLimits::default();
    (limits.type_members, limits.link_members, limits.node_members) = (64, 128, 192);
    let node = Node::builder().limits(limits).build();
    let (mut peer, wire) = connected(&node);
    let any = node.subscribe_of("pumps", Some(&wire), Discovered::new().expect("a shape")).expect("subscribes").open();
    let mut announce = |schema: Schema| {
        peer.announce(&schema);
        if let Got::Want(document) = peer.next() {
            peer.supply(document, Some(&schema.to_bytes()));
        }
        peer.answer()
    };
    let refused = |answer: Answer| answer.reason().expect("a reason").to_owned();
    assert!(refused(announce(unfolding(7, "A"))).contains("128 members, more than the 64 that a type may have"));
    assert!(announce(unfolding(6, "B")).accepts());
    assert!(announce(unfolding(6, "C")).accepts());
    let reason = refused(announce(unfolding(1, "D")));
    assert!(reason.contains("types of 128 members, and 2 more would exceed the 128 of a link"), "{reason}");
    let status = any.status();
    assert_eq!((status.writers, status.unreadable, status.mismatches_total), (2, 2, 2));
    assert_eq!(status.mismatches[1].reason, reason);
    // Another link has its own share, until the node has none left.
    let (mut other, wire) = connected(&node);
    let _any = node.subscribe_of("pumps", Some(&wire), Discovered::new().expect("a shape")).expect("subscribes").open();
    for (schema, accepted) in [(unfolding(6, "E"), true), (unfolding(1, "F"), false)] {
        other.announce(&schema);
        other.next();
        other.supply(document_of(&schema), Some(&schema.to_bytes()));
        assert_eq!(other.answer().accepts(), accepted);
    }
}

#[test]
fn announcements_are_bounded() {
    let mut limits = NodeLimits::default();
    limits.announced_bytes = 10_000;
    let node = Node::builder().limits(limits).build();
    let (mut peer, _) = connected(&node);
    let answers: Vec<Answer> = (0..100)
        .map(|_| {
            peer.announce(&pump());
            peer.answer()
        })
        .collect();
    assert_eq!(answers[0], Answer::Decline);
    let reason = answers[99].reason().expect("refused");
    assert!(reason.contains("would exceed its 10000") && reason.contains("NodeLimits::announced_bytes"), "{reason}");
    // Retired channels make room.
    for channel in 1..=100 {
        peer.send(|encoder, out| encoder.retire(ChannelId(channel), out).expect("open"));
    }
    peer.announce(&pump());
    assert_eq!(peer.answer(), Answer::Decline);
}

#[test]
fn a_late_no_to_a_request_is_not_taken_for_one_to_the_next() {
    let node = Node::new();
    let (mut peer, wire) = connected(&node);
    let pumps = node.subscriber_on::<Pump>("pumps", &wire).expect("subscribes");
    let (document, bytes) = (document_of(&pump()), pump().to_bytes());
    let first = peer.announce(&pump());
    assert_eq!(peer.next(), Got::Want(document));
    // A relay reports that the writer leaves and that another one of the same type comes. Only then
    // it answers that it has no document of the first writer.
    peer.send(|encoder, out| encoder.retire(first, out).expect("open"));
    let second = peer.announce(&pump());
    peer.supply(document, None);
    assert_eq!(peer.next(), Got::Want(document), "it is asked for again");
    peer.supply(document, Some(&bytes));
    assert!(peer.answer().accepts());
    peer.data(second, 1, &[7, 0, 0, 0]);
    assert_eq!(pumps.recv_timeout(SOON).map(|sample| sample.value), Some(Pump { id: 7 }));
    assert_eq!(pumps.status().mismatches_total, 0);
}

#[test]
fn a_document_that_nobody_has_is_refused_with_the_reason_and_read_when_it_comes() {
    let node = Node::builder().fetch_timeout(SOON).build();
    let (mut peer, wire) = connected(&node);
    let pumps = node.subscriber_on::<Pump>("pumps", &wire).expect("subscribes");
    let document = document_of(&pump());
    peer.announce(&pump());
    let began = Instant::now();
    let mut asked = 0;
    let reason = loop {
        match peer.next() {
            Got::Want(wanted) => {
                assert_eq!(wanted, document);
                asked += 1;
                peer.supply(document, None);
            }
            Got::Answer(_, answer) => break answer.reason().expect("a reason").to_owned(),
            other => panic!("{other:?}"),
        }
    };
    assert!(asked == 6 && began.elapsed() < SOON / 2, "{asked}");
    assert!(reason.contains(&document.to_string()) && reason.contains("may have left"), "{reason}");
    // Another channel, and this time the peer has the document: the first channel can be read, too.
    let second = peer.announce(&pump());
    assert_eq!(peer.next(), Got::Want(document));
    peer.supply(document, Some(&pump().to_bytes()));
    assert!(peer.answer().accepts() && peer.answer().accepts());
    peer.data(second, 1, &[7, 0, 0, 0]);
    assert!(pumps.recv_timeout(SOON).is_some());
}

#[test]
fn a_document_from_one_link_serves_the_channels_of_all() {
    let node = Node::new();
    let endpoint = node.open("tcp-listen/127.0.0.1:0").expect("listens");
    let pumps = node.subscriber_on::<Pump>("pumps", &format!("cdr@{endpoint}")).expect("subscribes");
    let (mut a, mut b) = (Peer::connect(&endpoint, 3), Peer::connect(&endpoint, 4));
    let document = document_of(&pump());
    a.announce(&pump());
    assert_eq!(a.next(), Got::Want(document));
    b.announce(&pump());
    assert_eq!(b.next(), Got::Want(document));
    a.supply(document, None);
    b.supply(document, Some(&pump().to_bytes()));
    assert!(b.answer().accepts() && a.answer().accepts());
    assert_eq!((pumps.status().writers, pumps.status().mismatches_total), (2, 0));
}

#[test]
fn a_relay_has_the_documents_of_writers_that_have_left() {
    let relay = Node::new();
    let endpoint = relay.open("tcp/127.0.0.1:0").expect("listens");
    let (mut reader, mut writer) = (Peer::connect(&endpoint, 3), Peer::connect(&endpoint, 4));
    let document = document_of(&pump());
    writer.announce(&pump());
    // The relay requests the document without a subscriber.
    assert_eq!(
        std::iter::from_fn(|| Some(writer.next())).find(|got| matches!(got, Got::Want(_))),
        Some(Got::Want(document))
    );
    writer.supply(document, Some(&pump().to_bytes()));
    let announced = reader.next();
    assert!(matches!(&announced, Got::Announce(_, a) if a.schema == document), "{announced:?}");
    writer.send(|encoder, out| encoder.control(&Frame::Bye, out));
    drop(writer);
    let until = Instant::now() + SOON;
    while relay.links() > 1 && Instant::now() < until {
        thread::sleep(Duration::from_millis(1));
    }
    reader.send(|encoder, out| encoder.control(&Frame::Want { document }, out));
    assert_eq!(reader.next(), Got::Document(document, Some(pump().to_bytes())));
}

#[test]
fn a_node_that_goes_supplies_its_documents_first() {
    let node = Node::new();
    let endpoint = node.open("tcp-listen/127.0.0.1:0").expect("listens");
    let publisher: Publisher<Pump> = node.publisher_on("pumps", &format!("cdr@{endpoint}")).expect("publishes");
    let mut peer = Peer::connect(&endpoint, 3);
    let Got::Announce(channel, _) = peer.next() else { panic!("an announcement comes first") };
    let until = Instant::now() + SOON;
    while node.links() == 0 && Instant::now() < until {
        thread::sleep(Duration::from_millis(1));
    }
    // It is held for the peer, which has not answered.
    assert_eq!(publisher.publish(&Pump { id: 7 }).expect("published").peers, 1);
    let going = thread::spawn(move || drop((publisher, node)));
    thread::sleep(Duration::from_millis(100));
    let document = document_of(&pump());
    peer.send(|encoder, out| encoder.control(&Frame::Want { document }, out));
    assert_eq!(peer.next(), Got::Document(document, Some(pump().to_bytes())));
    peer.send(|encoder, out| encoder.control(&Frame::Answer { channel, answer: Answer::Accept(1) }, out));
    assert_eq!(peer.next(), Got::Data(vec![7, 0, 0, 0]));
    going.join().expect("it goes");
}

#[test]
fn counts_of_lost_messages_are_believed_as_far_as_the_sequence_numbers_go() {
    let node = Node::new();
    let (mut peer, wire) = connected(&node);
    let pumps = node.subscriber_on::<Pump>("pumps", &wire).expect("subscribes");
    let channel = peer.announce(&pump());
    peer.next();
    peer.supply(document_of(&pump()), Some(&pump().to_bytes()));
    assert!(peer.answer().accepts());
    peer.position(channel, 5, u64::MAX);
    peer.position(channel, 5, u64::MAX);
    peer.data(channel, 6, &[7, 0, 0, 0]);
    peer.position(channel, 9, 2);
    peer.data(channel, 10, &[7, 0, 0, 0]);
    for _ in 0..2 {
        assert!(pumps.recv_timeout(SOON).is_some());
    }
    // The numbers 7 to 9 are missing, although the peer reports 2 losses.
    assert_eq!(pumps.lost(), 5 + 3);
    // A writer may claim any number; the sum saturates.
    peer.position(channel, u64::MAX - 1, u64::MAX);
    let again = peer.announce(&pump());
    assert!(peer.answer().accepts());
    peer.position(again, u64::MAX - 1, u64::MAX);
    peer.data(again, u64::MAX, &[7, 0, 0, 0]);
    assert!(pumps.recv_timeout(SOON).is_some());
    assert_eq!(pumps.lost(), u64::MAX);
}

#[test]
fn what_waits_is_bounded_by_the_memory_that_it_takes() {
    let mut types = SchemaBuilder::new();
    let empty = types.add(Def::structure("Row", Vec::new()));
    let rows = types.add(Def::structure("Rows", vec![Member::new("rows", Type::sequence(Type::Def(empty)))]));
    let writer = types.finish(Type::Def(rows)).expect("a schema");
    let mut types = SchemaBuilder::new();
    let wide = types.add(Def::structure("Row", (0..8).map(|i| Member::new(format!("x{i}"), Type::Float64)).collect()));
    let rows = types.add(Def::structure("Rows", vec![Member::new("rows", Type::sequence(Type::Def(wide)))]));
    let reader = types.finish(Type::Def(rows)).expect("a schema");

    let node = Node::new();
    let (mut peer, wire) = connected(&node);
    let coding = Dynamic::of(&reader).expect("a shape");
    let subscribe = node.subscribe_of("pumps", Some(&wire), coding).expect("subscribes");
    let rows = subscribe.queue_bytes(1 << 20).overflow(polywire::engine::Overflow::DropOldest).open();
    let channel = peer.announce(&writer);
    peer.next();
    peer.supply(document_of(&writer), Some(&writer.to_bytes()));
    assert!(peer.answer().accepts());
    // Four bytes on the wire, 64 kB in memory.
    for sequence in 1..=100 {
        peer.data(channel, sequence, &1000u32.to_le_bytes());
    }
    let until = Instant::now() + SOON;
    while rows.lost() < 80 && Instant::now() < until {
        thread::sleep(Duration::from_millis(1));
    }
    thread::sleep(Duration::from_millis(50));
    let waiting = std::iter::from_fn(|| rows.try_recv()).count() as u64;
    assert!((8..=17).contains(&waiting), "{waiting} of about 64 kB each wait");
    assert_eq!(rows.lost() + waiting, 100);
}
