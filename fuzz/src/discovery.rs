//! Targets for what nodes say of themselves: descriptions on a built-in topic, DNS-SD records, and
//! what participants and nodes of ROS 2 say.

use crate::talk::{self, Description};
use polywire::engine::lan::Advertised;
use polywire_core::{
    codec::{Decoder, Encoder, Options, cdr::CDR},
    directory::{Directory, EndpointData, Limits, NodeData, PublisherData, RefusalData, SubscriberData},
    envelope::Id128,
    ros::{
        self, TypeHash, TypeName,
        entities::{NodeEntities, ParticipantEntities},
        type_query::{self, AnswerError, TypeQuery},
    },
    schema::{Def, Member, SchemaBuilder, Type, arbitrary::Random},
};
use polywire_testing::mutated;
use std::{net::SocketAddr, sync::OnceLock};

const LIMITS: Limits = Limits { reports: 3, report_bytes: 4 << 10, bytes: 6 << 10, events: 20 };

/// Descriptions with defects: each with a number for its writer and its length in front.
pub fn description_bytes(random: &mut Random) -> Vec<u8> {
    let (mut input, encoder) = (Vec::new(), encoder());
    for _ in 0..random.below(20) {
        let (mut bytes, description) = (Vec::new(), talk::description(random));
        encoder.encode(&description, &mut bytes).expect("it takes the value");
        if random.one_in(3) {
            bytes = mutated(random, &bytes);
        }
        input.push(random.bits() as u8);
        input.extend((bytes.len() as u16).to_le_bytes());
        input.extend(bytes);
    }
    input
}

/// A directory takes or refuses the descriptions, keeps its limits, and tells the same nodes by its
/// events as it has in the end.
pub fn collect(input: &[u8]) {
    static DECODER: OnceLock<Decoder<Description>> = OnceLock::new();
    let decoder = || Decoder::new(&CDR, &Options::default(), encoder().schema()).expect("it takes the type");
    let decoder = DECODER.get_or_init(decoder);
    let (mut directory, mut rest) = (Directory::new(LIMITS), input);
    while let Some(([number, low, high], after)) = rest.split_first_chunk() {
        let bytes = after.get(..usize::from(u16::from_le_bytes([*low, *high]))).unwrap_or(after);
        rest = &after[bytes.len()..];
        let writer = Id128([number % 5; 16]);
        if number % 8 == 7 {
            directory.handle_end(writer);
        }
        let mut description = Description::default();
        if decoder.decode(bytes, &mut description).is_ok() {
            // What exceeds the limits is refused.
            let _ = directory.handle_report(writer, number % 2 == 0, node_of(&description));
        }
        let snapshot = directory.snapshot();
        let kept: usize = snapshot.nodes().map(|node| node.size()).sum();
        assert!(snapshot.nodes().count() <= LIMITS.reports && kept <= LIMITS.bytes, "it keeps {kept} bytes");
        assert!(!format!("{:?}", snapshot.pairs().collect::<Vec<_>>()).is_empty());
    }
    let events = std::iter::from_fn(|| directory.poll_event()).count();
    assert!(events <= LIMITS.events + 1, "{events} events waited");
}

/// What a participant of ROS 2 says over DDS: its nodes, user data, or a name.
pub fn ros_bytes(random: &mut Random) -> Vec<u8> {
    let guids = |random: &mut Random| (0..random.below(4)).map(|_| [random.bits() as u8; 16]).collect();
    let bytes = match random.below(3) {
        0 => {
            let node = |random: &mut Random| NodeEntities {
                namespace: "/robot".into(),
                name: format!("node_{}", random.below(10)),
                readers: guids(random),
                writers: guids(random),
            };
            let nodes = (0..random.below(4)).map(|_| node(random)).collect();
            ParticipantEntities { participant: [random.bits() as u8; 16], nodes }.to_cdr()
        }
        1 => (TypeHash::from_bytes([random.bits() as u8; 32]).to_user_data() + "enclave=/;x=1;").into_bytes(),
        _ => b"rt/example_interfaces::srv::dds_::AddTwoInts_Request_".to_vec(),
    };
    if random.one_in(10) { bytes } else { mutated(random, &bytes) }
}

/// What a participant of ROS 2 says is refused, or comes back when it is written again.
pub fn read_ros(input: &[u8]) {
    if let Some(read) = ParticipantEntities::parse(input) {
        assert_eq!(ParticipantEntities::parse(&read.to_cdr()), Some(read));
    }
    if let Some(hash) = TypeHash::of_user_data(input) {
        assert_eq!(TypeHash::of_user_data(hash.to_user_data().as_bytes()), Some(hash));
    }
    let text = String::from_utf8_lossy(input);
    if let Some(topic) = ros::topic_of_dds(&text) {
        assert_eq!(ros::dds_topic(topic).as_deref(), Ok(&*text));
    }
    for name in [TypeName::of_dds(&text), TypeName::of_schema(&text).ok()].into_iter().flatten() {
        assert_eq!(TypeName::of_dds(&name.to_dds()), Some(name));
        assert_eq!(TypeName::of_schema(&name.to_schema()), Ok(name));
    }
    // What is a node's name is a topic's, too, unless it is too long.
    let node = ros::node_name(&text);
    assert!(node.len() <= 255 && (node.len() > 240 || ros::check_topic(&node).is_ok()), "{node}");
}

/// What a node of ROS 2 answers to a question for a type.
pub fn answer_bytes(random: &mut Random) -> Vec<u8> {
    let mut types = SchemaBuilder::new();
    let mut nested = types.add(Def::structure("p::msg::First", vec![Member::new("a", Type::Octet)]));
    for number in 0..random.below(4) {
        let elements = [Type::Def(nested), Type::Uint8, Type::Float64, Type::string(), Type::String { bound: 9 }];
        let member = |random: &mut Random, name: usize| {
            let element = random.choose(&elements).clone();
            let ty = match random.below(4) {
                0 => Type::array(element, [3]),
                1 => Type::Sequence { element: element.into(), bound: 5 },
                2 => Type::sequence(element),
                _ => element,
            };
            Member::new(format!("m{name}"), ty)
        };
        let members = (0..1 + random.below(5)).map(|name| member(random, name)).collect();
        nested = types.add(Def::structure(format!("p::msg::T{number}"), members));
    }
    let schema = types.finish(Type::Def(nested)).expect("a schema");
    let request = query(TypeHash::of(&schema).expect("of ROS 2")).to_cdr();
    let bytes = match random.below(4) {
        0 => type_query::answer(&request, |_| Err("it is not used")),
        1 => query(TypeHash::from_bytes([7; 32])).to_cdr(),
        _ => type_query::answer(&request, |_| Ok(schema)),
    };
    if random.one_in(10) { bytes } else { mutated(random, &bytes) }
}

fn query(type_hash: TypeHash) -> TypeQuery {
    TypeQuery { type_name: "p/msg/T".into(), type_hash }
}

/// An answer is refused, or describes the type that was asked for. So are questions.
pub fn read_answer(input: &[u8]) {
    if let Some(query) = TypeQuery::parse(input) {
        assert_eq!(TypeQuery::parse(&query.to_cdr()), Some(query));
    }
    // The first one does not know the hash, and is told it.
    if let Err(AnswerError::Hash { got }) = query(TypeHash::from_bytes([0; 32])).schema(input) {
        let schema = query(got).schema(input).expect("it has this hash");
        assert_eq!(TypeHash::of(&schema), Ok(got));
        let told = type_query::answer(&query(got).to_cdr(), |_| Ok(schema.clone()));
        let again = query(got).schema(&told).expect("the same");
        assert_eq!(again.type_hash(), schema.type_hash());
    }
}

fn encoder() -> &'static Encoder<Description> {
    static ENCODER: OnceLock<Encoder<Description>> = OnceLock::new();
    ENCODER.get_or_init(|| Encoder::new(&CDR, &Options::default()).expect("it takes the type"))
}

fn node_of(said: &Description) -> NodeData {
    let publisher = |of: &talk::Publisher| PublisherData {
        id: Id128(of.id),
        topic: of.topic.clone(),
        type_name: of.type_name.clone(),
        type_hash: Id128(of.type_hash),
        wire: of.wire.clone(),
        qos: of.qos.parse().unwrap_or_default(),
        accepting: of.accepting,
        refusing: of.refusing,
    };
    let refusal = |of: &talk::Refusal| RefusalData { writer: Id128(of.writer), reason: of.reason.clone() };
    let subscriber = |of: &talk::Subscriber| SubscriberData {
        id: Id128(of.id),
        topic: of.topic.clone(),
        type_name: of.type_name.clone(),
        type_hash: Id128(of.type_hash),
        endpoint: of.endpoint.clone(),
        qos: of.qos.parse().unwrap_or_default(),
        reads: of.reads.iter().map(|id| Id128(*id)).collect(),
        refuses: of.refuses.iter().map(refusal).collect(),
    };
    let endpoint = |of: &talk::Endpoint| EndpointData { endpoint: of.endpoint.clone(), links: of.links };
    NodeData {
        id: Id128(said.id),
        incarnation: said.incarnation,
        revision: said.revision,
        name: said.name.clone(),
        host: said.host.clone(),
        process: said.process,
        user: said.user.clone(),
        version: said.version.clone(),
        endpoints: said.endpoints.iter().map(endpoint).collect(),
        publishers: said.publishers.iter().map(publisher).collect(),
        subscribers: said.subscribers.iter().map(subscriber).collect(),
        omitted: said.omitted,
    }
}

/// The pairs of a node's TXT record.
const PAIRS: [&[u8]; 7] = [
    b"txtvers=1",
    b"frames=1",
    b"node=abababababababababababababababab",
    b"inc=1234",
    b"domain=7",
    b"tls=0",
    b"ver=0.1.0",
];

/// The strings of a TXT record with defects, each with its length in front, and then addresses.
pub fn record_bytes(random: &mut Random) -> Vec<u8> {
    let mut input = Vec::new();
    for pair in PAIRS.iter().filter(|_| !random.one_in(40)) {
        input.extend(text(pair));
    }
    input.push(0);
    input.extend((0..random.below(40)).map(|_| random.bits() as u8));
    if random.one_in(2) { mutated(random, &input) } else { input }
}

/// A record is refused with a reason, or what it says is within bounds.
pub fn read_record(input: &[u8]) {
    let (mut strings, mut rest) = (Vec::new(), input);
    while let Some((length, after)) = rest.split_first().filter(|(length, _)| **length > 0) {
        let string = after.get(..usize::from(*length)).unwrap_or(after);
        rest = &after[string.len()..];
        strings.push(string);
    }
    let value = |key: &str| strings.iter().find_map(|string| string.strip_prefix(key.as_bytes())?.strip_prefix(b"="));
    let address = |bytes: &[u8; 6]| {
        let [a, b, c, d, port @ ..] = *bytes;
        SocketAddr::from(([a, b, c, d], u16::from_be_bytes(port)))
    };
    let addresses = rest.as_chunks().0.iter().map(address).collect();
    match Advertised::read("plant:7461 ab", value, addresses) {
        Err(reason) => assert!(!reason.is_empty()),
        Ok(node) => {
            assert!(node.domain <= 232 && node.version.chars().count() <= 32, "{node:?}");
            assert!(!node.version.contains(char::is_control), "{node:?}");
            assert!((1..=8).contains(&node.addresses.len()), "{node:?}");
        }
    }
}

/// A packet of multicast DNS that answers for a node, with defects.
pub fn packet_bytes(random: &mut Random) -> Vec<u8> {
    const SERVICE: &[&[u8]] = &[b"_polywire", b"_tcp", b"local"];
    let instance: Vec<&[u8]> = [&b"plant:7461 ab"[..]].iter().chain(SERVICE).copied().collect();
    let host: &[&[u8]] = &[b"ab-7461", b"local"];
    let server = [&[0, 0, 0, 0, 0x1D, 0x25][..], &name(host)].concat();
    let pairs: Vec<u8> = PAIRS.iter().flat_map(|pair| text(pair)).collect();
    let answers = [
        answer(SERVICE, 12, &name(&instance)),
        answer(&instance, 33, &server),
        answer(&instance, 16, &pairs),
        answer(host, 1, &[192, 0, 2, 1]),
        answer(host, 28, &[0xFE; 16]),
        // A name that points back into the packet, or at itself.
        answer(SERVICE, 12, &[0xC0, random.below(64) as u8]),
    ];
    let mut packet = vec![0, 0, 0x84, 0, 0, 0, 0, answers.len() as u8, 0, 0, 0, 0];
    packet.extend(answers.concat());
    if random.one_in(8) { packet } else { mutated(random, &packet) }
}

/// The library that speaks multicast DNS parses or refuses the packet.
pub fn read_packet(input: &[u8]) {
    mdns_sd::fuzz_api::parse_packet(input);
}

fn answer(owner: &[&[u8]], kind: u8, data: &[u8]) -> Vec<u8> {
    // Of the Internet class, the newest, for two minutes.
    let fixed = [0, kind, 0x80, 1, 0, 0, 0, 120, 0, data.len() as u8];
    [&name(owner)[..], &fixed, data].concat()
}

fn name(labels: &[&[u8]]) -> Vec<u8> {
    labels.iter().flat_map(|label| text(label)).chain([0]).collect()
}

fn text(bytes: &[u8]) -> Vec<u8> {
    [&[bytes.len() as u8], bytes].concat()
}
