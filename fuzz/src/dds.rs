//! A target for programs that know only DDS, and meet a node over the loopback interface: a
//! participant whose user data, topics, types, policies and samples are any, and another one with
//! what is valid. How participants talk is Cyclone's matter.

use crate::{
    nodes::{unharmed, use_node},
    talk::{self, HELLO, Pump},
};
use polywire::{Message, Node, coding::Discovered};
use polywire_core::{
    codec::{
        Encoder, Options,
        cdr::{CDR, XCDR2},
    },
    envelope::ChannelId,
    frame::{DatagramEncoder, Frame, Limits},
    ros::entities::{self, NodeEntities, ParticipantEntities},
    schema::{TypeObjects, arbitrary::Random},
};
use polywire_dds::{
    Bytes, Durability, Guid, Kind, LOOPBACK, Liveliness, Participant, Qos, Reader, Receive, Representation, Sample,
    Writer,
};
use polywire_testing::{domains, mutated, random_schema};
use std::{
    any::Any,
    collections::BTreeMap,
    sync::{
        Arc, LazyLock,
        mpsc::{self, Sender},
    },
    thread,
    time::{Duration, Instant},
};

/// No input takes that long.
const LONGEST: Duration = Duration::from_secs(15);
/// How long it is waited for readers that may never come.
const PATIENCE: Duration = Duration::from_millis(60);
/// Where control messages of nodes are sent, and the type of datagrams.
const CONTROL_TOPIC: &str = "polywire_letters";
const OCTETS: &str = "polywire::Octets";
/// What is sent last says this.
const LAST: &str = "the last";

/// The domain of the nodes, and the number under which this process is in it a second time: two
/// participants of one Cyclone do not talk over the network.
static DOMAINS: LazyLock<(u32, u32)> = LazyLock::new(|| (domains::lease(), domains::lease()));

/// A type of ROS 2.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "std_msgs::msg::String")]
struct Text {
    data: String,
}

/// The values of a service in ROS 2, and in DDS-RPC.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "plant::srv::Ask_Request")]
struct RosRequest {
    text: String,
}

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "plant::srv::Ask_Response")]
struct RosResponse {
    number: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "plant::Ask_Call")]
struct Request {
    text: String,
}

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "plant::Ask_Return")]
struct Response {
    number: i64,
}

/// Topics, and the types that the node expects there: by its own names, those of ROS 2, and those
/// of DDS-RPC.
const TOPICS: [&[(&str, &str)]; 3] = [
    &[
        ("plant/pump", "Plant::Pump"),
        ("plant/pump", "Plant::Pump"),
        ("plant/last", "Plant::Pump"),
        ("plant/%40x/%24", "Plant::Pump"),
        ("plant/%zz/%25", OCTETS),
        ("plant/1", OCTETS),
        ("polywire/nodes", OCTETS),
        (CONTROL_TOPIC, OCTETS),
    ],
    &[
        ("rt/plant/pump", "std_msgs::msg::dds_::String_"),
        ("rt/plant/last", "std_msgs::msg::dds_::String_"),
        (entities::TOPIC, entities::TYPE_NAME),
        ("rq/plant/askRequest", "plant::srv::dds_::Ask_Request_"),
        ("rr/plant/askReply", "plant::srv::dds_::Ask_Response_"),
        ("plant/1", OCTETS),
    ],
    &[
        ("plant/ask_Request", "plant::Ask_Request"),
        ("plant/ask_Request", "plant::Ask_Request"),
        ("plant/ask_Reply", "plant::Ask_Reply"),
        ("plant/pump", "Plant::Pump"),
    ],
];

const USER_DATA: &[&str] = &[
    "",
    "polywire channel=1 format=json",
    "polywire channel=2 format=cdr",
    "polywire=channel=3 format=cdr;",
    "typehash=RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18;",
    "enclave=/;polywire=node=07070707070707070707070707070707 incarnation=1;",
];

/// A topic, a type name, user data, policies, type information, and the parts of the type: those of
/// a writer or reader. Then how a sample is written, and the sample. Each with its length in front.
type Record<'a> = [&'a [u8]; 8];

/// A number for what the node is, the user data of a participant, and records.
pub fn samples(random: &mut Random) -> Vec<u8> {
    let what = random.bits() as u8;
    let introduction = *random.choose(&[
        "",
        "polywire node=07070707070707070707070707070707 incarnation=1",
        "enclave=/;polywire=node=07070707070707070707070707070707 incarnation=1;",
        "enclave=/;",
    ]);
    let is_node = introduction.contains("node=");
    let mut input = vec![what];
    put(&mut input, &damaged(random, 16, introduction));
    let mut frames = Vec::new();
    talk::frames(random, &mut |frame| frames.push(datagram(frame)));
    for (channel, frame) in frames.into_iter().take(16) {
        let topics = TOPICS[if random.one_in(8) { random.below(3) } else { usize::from(what % 3) }];
        let is_control = is_node && channel.is_none() && !random.one_in(4);
        let (topic, of) = if is_control { (CONTROL_TOPIC, OCTETS) } else { *random.choose(topics) };
        let of = if random.one_in(12) { random.choose(topics).1 } else { of };
        let label = channel.filter(|_| is_node).map(|channel| format!("polywire channel={channel} format=json"));
        let label = label.unwrap_or_else(|| random.choose(USER_DATA).to_string());
        let policies = if random.one_in(4) { (0..14).map(|_| random.bits() as u8).collect() } else { Vec::new() };
        let (information, mapping) = types(random, of);
        let end = [topic.as_bytes(), of.as_bytes(), label.as_bytes(), &policies, &information, &mapping];
        let end = end.map(|part| damaged(random, 30, part));
        for _ in 0..1 + random.below(3) {
            end.iter().for_each(|part| put(&mut input, part));
            put(&mut input, &[random.below(16) as u8]);
            let sample = if of == OCTETS { frame.clone() } else { native(random, of) };
            put(&mut input, &damaged(random, 2, &sample));
        }
    }
    input
}

fn put(input: &mut Vec<u8>, part: &[u8]) {
    let part = &part[..part.len().min(u16::MAX.into())];
    input.extend((part.len() as u16).to_le_bytes());
    input.extend(part);
}

/// One in so many has defects.
fn damaged(random: &mut Random, one_in: usize, part: impl AsRef<[u8]>) -> Vec<u8> {
    if random.one_in(one_in) { mutated(random, part.as_ref()) } else { part.as_ref().to_vec() }
}

/// A sample of a node with this frame, and the frame's channel if it is a message.
fn datagram(frame: &Frame<'_>) -> (Option<ChannelId>, Vec<u8>) {
    let (encoder, mut bytes) = (DatagramEncoder::new(HELLO.node, HELLO.incarnation, Limits::default()), Vec::new());
    encoder.begin(&mut bytes);
    let channel = match frame {
        Frame::Data(envelope, payload) => {
            // What is refused is left out.
            let _ = encoder.data(envelope, payload, &mut bytes);
            Some(envelope.channel)
        }
        other => {
            encoder.control(other, &mut bytes);
            None
        }
    };
    encoder.finish(&mut bytes);
    (channel, [&[0, 1, 0, 0], &(bytes.len() as u32).to_le_bytes()[..], &bytes].concat())
}

/// What a writer says of a type: nothing, the truth, or something else.
fn types(random: &mut Random, of: &str) -> (Vec<u8>, Vec<u8>) {
    let objects = match random.below(8) {
        0 => TypeObjects::of(&random_schema(random.bits(), 1 + random.below(6))).ok(),
        1 if of == "Plant::Pump" => TypeObjects::of(Pump::shape().schema()).ok(),
        2 if of.contains("Ask") => TypeObjects::of(Request::shape().schema()).ok(),
        _ => None,
    };
    objects.map(|objects| (objects.information, objects.mapping)).unwrap_or_default()
}

/// A sample of a topic with this type.
fn native(random: &mut Random, of: &str) -> Vec<u8> {
    let pump = Pump { id: random.below(3) as u32, bar: 1.5, label: "main".into(), history: vec![1, -2] };
    let text = || encoded(&CDR, &Text { data: "hello".into() });
    let number = || encoded(&CDR, &Response { number: 7 });
    let name = [random.below(3) as u8; 16];
    match of {
        "Plant::Pump" if random.one_in(2) => encoded(&XCDR2, &pump),
        "Plant::Pump" => encoded(&CDR, &pump),
        "plant::srv::dds_::Ask_Request_" => behind(&name, &text()),
        "plant::srv::dds_::Ask_Response_" => behind(&name, &number()),
        "plant::Ask_Request" => behind(&request_header(name), &text()),
        "plant::Ask_Reply" => behind(&[&name[..], &[0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]].concat(), &number()),
        entities::TYPE_NAME => present(Guid(name)),
        _ => text(),
    }
}

fn encoded<T: Message>(codec: &'static polywire_core::codec::cdr::Cdr, value: &T) -> Vec<u8> {
    let options: Options = "header".parse().expect("an option");
    let mut bytes = Vec::new();
    Encoder::new(codec, &options).expect("it takes the type").encode(value, &mut bytes).expect("it takes the value");
    bytes
}

/// A sample with these bytes in front of its value.
fn behind(name: &[u8], sample: &[u8]) -> Vec<u8> {
    let (header, value) = sample.split_at(4);
    [header, name, value].concat()
}

/// The header of DDS-RPC, with an empty name and padding.
fn request_header(client: [u8; 16]) -> Vec<u8> {
    [&client[..], &[0, 0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]].concat()
}

/// What a participant says of its nodes of ROS 2.
fn present(participant: Guid) -> Vec<u8> {
    let node = NodeEntities { namespace: "/".into(), name: "talker".into(), ..NodeEntities::default() };
    ParticipantEntities { participant: participant.0, nodes: vec![node] }.to_cdr()
}

fn read_parts(mut input: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, after) = input.split_first_chunk::<2>()?;
        let part = after.get(..usize::from(u16::from_le_bytes(*length))).unwrap_or(after);
        input = after.get(part.len()..).unwrap_or_default();
        Some(part)
    })
}

/// A node must take or drop what a participant says, without a panic in any of its threads, read
/// what is valid behind it, and close in time.
pub fn meet(input: &[u8]) {
    let (what, rest) = input.split_first().unwrap_or((&0, &[]));
    let naming = [Naming::Plain, Naming::Ros, Naming::Rpc][usize::from(*what % 3)];
    let mut parts = read_parts(rest);
    let user_data = parts.next().unwrap_or_default();
    let parts: Vec<&[u8]> = parts.collect();
    let (records, _) = parts.as_chunks();
    unharmed(|node| {
        let (sender, last) = mpsc::channel();
        let _uses = use_all(node, naming, &sender);
        let stranger = join(user_data);
        let other = join(&[]);
        let _introductions = (naming == Naming::Ros).then(|| [&stranger, &other].map(introduce));
        let ends = Ends::open(&stranger, records);
        let valid = naming.valid(&other);
        ends.wait();
        ends.write(records);
        assert!(node.foreign_readers().len() <= 2, "there are two programs");
        valid.iter().for_each(|(writer, bytes)| write(writer, 0, bytes));
        let mut missing: Vec<&str> = valid.iter().map(|_| LAST).collect();
        while !missing.is_empty() {
            let text = last.recv_timeout(LONGEST).expect("what is valid is read");
            missing.truncate(missing.len() - usize::from(text == LAST));
        }
    });
}

/// How the node names topics and types.
#[derive(Clone, Copy, PartialEq)]
enum Naming {
    Plain,
    Ros,
    Rpc,
}

/// Publishers, subscribers, a client and a server of a node. The last two end with the result.
fn use_all(node: &Node, naming: Naming, last: &Sender<String>) -> Box<dyn Any> {
    let options = ["", "&ros=true", "&rpc=true"][naming as usize];
    let endpoint = format!("dds/{}?interface=127.0.0.1{options}", DOMAINS.0);
    let at = &*format!("cdr@{endpoint}");
    match naming {
        Naming::Ros => {
            let all = node.subscribe_of("**", Some(&endpoint), Discovered::new().expect("a coding"));
            let all = all.expect("a subscriber").on_message_inline(|record, info| drop(format!("{record:?} {info:?}")));
            std::mem::forget(all);
            exchange::<Text>(node, at, |text| &text.data, last);
            serve::<RosRequest, RosResponse>(node, at, |request| &request.text, last)
        }
        _ => {
            use_node(node, &endpoint);
            exchange::<Pump>(node, at, |pump| &pump.label, last);
            serve::<Request, Response>(node, at, |request| &request.text, last)
        }
    }
}

/// Tells the text of what is read, and publishes. Both end with the node.
fn exchange<T: Message + Sync>(node: &Node, at: &str, text: fn(&T) -> &str, last: &Sender<String>) {
    let last = last.clone();
    let values = node.subscribe::<T>("plant/last", Some(at)).expect("a subscriber");
    // An error means that nobody waits any more.
    let values = values.on_message_inline(move |value, _| drop(last.send(text(value).to_owned())));
    let publisher = node.publisher_on::<T>("plant/pump", at).expect("a publisher");
    publisher.publish(&T::default_value()).expect("published");
    std::mem::forget((values, publisher));
}

/// Tells the text of requests, and asks.
fn serve<Q: Message + Sync, R: Message + Send>(
    node: &Node,
    at: &str,
    text: fn(&Q) -> &str,
    last: &Sender<String>,
) -> Box<dyn Any> {
    let last = last.clone();
    let service = node.service::<Q, R>("plant/ask", Some(at)).expect("a service");
    let server = service.on_request(1, move |request, _| {
        let _ = last.send(text(request).to_owned());
        Ok::<_, String>(R::default_value())
    });
    let client = node.client::<Q, R>("plant/ask", Some(at)).expect("a service").open().expect("a client");
    let replies = client.request_all(&Q::default_value(), LONGEST);
    Box::new((replies, client, server.expect("a server")))
}

/// A participant in another Cyclone of this process.
fn join(user_data: &[u8]) -> Participant {
    let (domain, number) = *DOMAINS;
    let outside = format!("<Discovery><ExternalDomainId>{domain}</ExternalDomainId></Discovery></Domain>");
    let qos = Qos { user_data: user_data.into(), ..Qos::default() };
    Participant::new(number, Some(&LOOPBACK.replace("</Domain>", &outside)), &qos).expect("a participant")
}

fn reliable() -> Qos {
    let reliable = Some(Duration::from_millis(100));
    Qos {
        reliable,
        durability: Durability::TransientLocal,
        keep_last: Some(8),
        service_depth: Some(8),
        ..Qos::default()
    }
}

impl Naming {
    /// Writers that the node reads, with what it reads.
    fn valid(self, of: &Participant) -> Vec<(Writer, Vec<u8>)> {
        let pump = || encoded(&CDR, &Pump { label: LAST.into(), ..Pump::default() });
        let text = || encoded(&CDR, &Text { data: LAST.into() });
        let samples = match self {
            Naming::Plain => vec![("plant/last", "Plant::Pump", pump())],
            Naming::Rpc => vec![
                ("plant/last", "Plant::Pump", pump()),
                ("plant/ask_Request", "plant::Ask_Request", behind(&request_header([9; 16]), &text())),
            ],
            Naming::Ros => vec![
                ("rt/plant/last", "std_msgs::msg::dds_::String_", text()),
                ("rq/plant/askRequest", "plant::srv::dds_::Ask_Request_", behind(&[9; 16], &text())),
            ],
        };
        let open = |(topic, type_name, bytes): (&str, &str, Vec<u8>)| {
            let writer = of
                .topic(topic, type_name, type_name == "Plant::Pump")
                .expect("a topic")
                .writer(&reliable(), |_| {})
                .expect("a writer");
            let until = Instant::now() + LONGEST;
            while writer.readers().is_empty() {
                assert!(Instant::now() < until, "the node does not read {topic}");
                thread::sleep(Duration::from_millis(1));
            }
            (writer, bytes)
        };
        samples.into_iter().map(open).collect()
    }
}

/// What every participant of ROS 2 writes. Without, it would be waited for.
fn introduce(participant: &Participant) -> Writer {
    let topic = participant.topic(entities::TOPIC, entities::TYPE_NAME, false).expect("a topic");
    let writer = topic.writer(&reliable(), |_| {}).expect("a writer");
    write(&writer, 0, &present(participant.guid()));
    writer
}

struct Nobody;

impl Receive for Nobody {
    fn receive(&self, _: Guid, _: Sample) -> bool {
        true
    }
}

/// The writers and readers of a participant.
struct Ends<'a> {
    writers: BTreeMap<&'a [&'a [u8]], Writer>,
    _readers: Vec<Reader>,
}

impl<'a> Ends<'a> {
    /// Opens those of records. Cyclone refuses some.
    fn open(of: &Participant, records: &'a [Record<'a>]) -> Ends<'a> {
        let (mut writers, mut readers) = (BTreeMap::new(), Vec::new());
        for record in records {
            let [topic, type_name, user_data, policies, information, mapping, ..] = *record;
            let (Ok(topic), Ok(type_name)) = (str::from_utf8(topic), str::from_utf8(type_name)) else { continue };
            let end = &record[..6];
            if writers.contains_key(end) {
                continue;
            }
            let mut policies = policies.iter().copied();
            let flags = policies.next().unwrap_or_default();
            let is_keyed = (type_name == "Plant::Pump") != (flags & 2 != 0);
            let types = polywire_dds::TypeObjects { information: information.into(), mapping: mapping.into() };
            let topic = match information.is_empty() {
                true => of.topic(topic, type_name, is_keyed),
                false => of.described_topic(topic, type_name, is_keyed, &types),
            };
            let Ok(topic) = topic else { continue };
            let qos = Qos { user_data: user_data.into(), ..qos_of(flags, policies) };
            if flags & 1 == 0 {
                writers.extend(topic.writer(&qos, |_| {}).ok().map(|writer| (end, writer)));
            } else {
                readers.extend(topic.reader(&qos, Arc::new(Nobody), |_| {}));
            }
        }
        Ends { writers, _readers: readers }
    }

    /// Waits until all writers have readers, but not long.
    fn wait(&self) {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until && self.writers.values().any(|writer| writer.readers().is_empty()) {
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn write(&self, records: &[Record<'_>]) {
        for record in records {
            if let Some(writer) = self.writers.get(&record[..6]) {
                write(writer, record[6].first().copied().unwrap_or_default(), record[7]);
            }
        }
        let until = Instant::now() + PATIENCE;
        for writer in self.writers.values() {
            // Some readers never take what was written.
            let _ = writer.wait_for_acknowledgments(until.saturating_duration_since(Instant::now()));
        }
    }
}

/// Policies of any numbers. Without numbers, those of a reliable writer that nodes read, in every
/// partition.
fn qos_of(flags: u8, mut numbers: impl Iterator<Item = u8>) -> Qos {
    let Some(first) = numbers.next() else { return Qos { partitions: vec!["*".into(), "".into()], ..reliable() } };
    let mut next = || numbers.next().unwrap_or_default();
    let duration = |number: u8| Some(Duration::from_nanos(1 << (number % 64))).filter(|_| number > 0);
    Qos {
        reliable: Some(Duration::from_millis(20)).filter(|_| flags & 4 == 0),
        durability: [Durability::Volatile, Durability::TransientLocal, Durability::Transient, Durability::Persistent]
            [usize::from(first % 4)],
        keep_last: Some(u32::from(next() % 4)).filter(|depth| *depth > 0),
        service_depth: Some(1),
        deadline: duration(next()),
        latency_budget: duration(next()).unwrap_or_default(),
        lifespan: duration(next()),
        liveliness: [Liveliness::Automatic, Liveliness::ManualByParticipant, Liveliness::ManualByTopic]
            [usize::from(next() % 3)],
        // A shorter one would keep the participant busy with signs of life.
        lease: duration(next()).map(|lease| lease.max(Duration::from_millis(5))),
        exclusive: Some(i32::from(next() as i8)).filter(|_| flags & 8 != 0),
        partitions: match next() % 5 {
            0 => vec!["*".into()],
            1 => vec!["a?[b".into(), "\u{7f}".into(), "\"}".into()],
            2 => (0..200).map(|number| number.to_string()).collect(),
            _ => Vec::new(),
        },
        by_source: flags & 16 != 0,
        transport_priority: i32::from(next() as i8),
        user_data: Vec::new(),
        representations: match next() % 5 {
            0 => vec![Representation::Xcdr2],
            1 => vec![Representation::Other(7), Representation::Xcdr1],
            2 => vec![Representation::Other(-1); 300],
            _ => Vec::new(),
        },
    }
}

/// Writes a sample: a value, or an end of its instance, with a key alone, with its hash.
fn write(writer: &Writer, how: u8, bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().next_multiple_of(4).max(4), 0);
    let kind = [Kind::Data, Kind::Data, Kind::Dispose, Kind::Unregister][usize::from(how % 4)];
    let is_keyed = writer.guid().is_keyed() == Some(true);
    let sample = Sample {
        kind,
        is_key: how & 4 != 0 && kind != Kind::Data && is_keyed,
        bytes: Bytes::of_sample(&bytes).expect("it is long enough"),
        key_hash: (how & 8 != 0 && is_keyed).then_some([how; 16]),
        timestamp_ns: i64::from(how) << 55,
        sequence: None,
    };
    // An error means that there is no room.
    let _ = writer.write(&sample);
}
