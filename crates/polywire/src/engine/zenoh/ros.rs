//! The mapping of ROS 2 to Zenoh, as its middleware rmw_zenoh defines it: the key of a topic in CDR
//! has the type and its hash, messages have a small attachment, and liveliness tokens announce
//! nodes and their ends. `spec/zenoh.md`, section 5, defines it.

use polywire_core::ros::{NameError, TypeError, TypeHash, TypeName, check_topic, node_name};
use polywire_core::schema::{Schema, SchemaLimits};
use polywire_core::{
    envelope::{Announcement, Envelope, Id128, Kind},
    frame::Start,
    qos::{Durability, Offer, Qos},
    rpc,
};
use twox_hash::XxHash3_128;

use super::{
    super::foreign::{encoding::SampleEncoding, visibility::is_private},
    policies,
};

/// Bytes of the encapsulation header in front of every payload.
pub(super) const HEADER: usize = 4;
/// The codec of topics of ROS 2, and its option for payloads that begin with their header.
pub(super) const CODEC: &str = "cdr";
pub(super) const WITH_HEADER: &str = "header";
const BIG_ENDIAN: &str = "be";
/// The number of Polywire's nodes in tokens, "PLYW", by which other Polywire nodes recognise them.
const OURS: u32 = 0x504c_5957;
/// In tokens, this stands for an empty text, and replaces a slash in names.
const NOTHING: &str = "%";
/// The depth in tokens of services, and of publishers that are not transient local.
pub(super) const DEPTH: u32 = 10;
/// Bytes of an attachment: sequence number, time, length of the writer's id, and the writer's id.
const ATTACHMENT: usize = 33;

/// Why a channel cannot be a topic of ROS 2.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unfit {
    #[error(transparent)]
    Name(#[from] NameError),
    #[error(transparent)]
    Type(#[from] TypeError),
    #[error("its schema is not there")]
    Schema,
}

/// A topic of ROS 2 with its type, as it stands in keys and tokens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Topic {
    /// The name of the topic, without the slash in front.
    pub(super) name: String,
    /// The type's name as in DDS.
    pub(super) type_name: String,
    /// The type's hash as text.
    pub(super) hash: String,
}

/// Whether a channel is one of ROS 2 as far as its announcement says: it is in CDR, and foreign
/// applications may read it. The topics of services are not, because rmw_zenoh has other keys for
/// services.
pub(super) fn uses_topic_key(announced: &Announcement) -> bool {
    announced.codec == CODEC
        && announced.compressor.is_empty()
        && announced.configuration.is_none()
        && rpc::service_of(&announced.topic).is_none()
        && !is_private(announced)
}

/// The header that the engine puts in front of a channel's payloads. `None` if they contain it.
pub(super) fn header(announced: &Announcement) -> Option<[u8; HEADER]> {
    (!announced.has_option(WITH_HEADER)).then_some([0, u8::from(!announced.has_option(BIG_ENDIAN)), 0, 0])
}

impl Topic {
    /// The topic of a channel of this node, whose schema is given.
    pub(super) fn of(announced: &Announcement, schema: Option<&Schema>) -> Result<Topic, Unfit> {
        check_topic(&announced.topic)?;
        let schema = schema.ok_or(Unfit::Schema)?;
        let type_name = TypeName::of_schema(schema.name())?.to_dds();
        Ok(Topic { name: announced.topic.clone(), type_name, hash: TypeHash::of(schema)?.to_string() })
    }

    /// A service with the types of its requests and replies, as a topic.
    pub(super) fn of_service(name: &str, request: Option<&[u8]>, reply: Option<&[u8]>) -> Result<Topic, Unfit> {
        check_topic(name)?;
        let schema = |bytes: Option<&[u8]>| Schema::from_bytes(bytes?, &SchemaLimits::default()).ok();
        let (Some(request), Some(reply)) = (schema(request), schema(reply)) else { return Err(Unfit::Schema) };
        let hash = TypeHash::of_service(&request, &reply)?.to_string();
        // Types that have a hash as a service also have the name of a service.
        let of_reply = TypeName::of_schema(reply.name())?;
        let service = of_reply.service().unwrap_or(of_reply);
        Ok(Topic { name: name.into(), type_name: service.to_dds(), hash })
    }

    /// Returns the topic of a key without its domain.
    pub(super) fn of_key(key: &str) -> Option<Topic> {
        let (rest, hash) = key.rsplit_once('/')?;
        let (name, type_name) = rest.rsplit_once('/')?;
        Topic::new(name, type_name, hash)
    }

    fn new(name: &str, type_name: &str, hash: &str) -> Option<Topic> {
        let is_valid = check_topic(name).is_ok() && TypeName::of_dds(type_name).is_some();
        let is_valid = is_valid && hash.parse::<TypeHash>().is_ok();
        is_valid.then(|| Topic { name: name.into(), type_name: type_name.into(), hash: hash.into() })
    }

    /// Returns the format and the type of what foreign publishers of the topic write.
    pub(super) fn sample_encoding(&self) -> SampleEncoding {
        let type_name = TypeName::of_dds(&self.type_name).map(|name| name.to_schema()).unwrap_or_default();
        let ros_type = self.hash.parse().ok();
        SampleEncoding {
            codec: CODEC.into(),
            options: WITH_HEADER.into(),
            type_name,
            ros_type,
            ..SampleEncoding::default()
        }
    }
}

/// Whether an attachment has room for everything in a message's envelope.
pub(super) fn is_plain(envelope: &Envelope<'_>) -> bool {
    let is_bare = envelope.key_hash.is_none() && envelope.anchor.is_none();
    envelope.kind == Kind::Data && is_bare && envelope.extensions.bytes().is_empty()
}

/// The attachment of a message.
pub(super) fn attachment(writer: Id128, envelope: &Envelope<'_>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(ATTACHMENT);
    bytes.extend_from_slice(&envelope.sequence.to_le_bytes());
    bytes.extend_from_slice(&envelope.timestamp_ns.to_le_bytes());
    bytes.push(writer.0.len() as u8);
    bytes.extend_from_slice(&writer.0);
    bytes
}

/// Returns the GID that rmw_zenoh gives a publisher with this token: the XXH3 hash of 128 bits.
pub(super) fn gid(token: &str) -> Id128 {
    let hash = XxHash3_128::oneshot(token.as_bytes());
    // The lower half comes first, each in the byte order of the machine, which is little-endian.
    Id128(hash.to_le_bytes())
}

/// Returns the writer in an attachment, and the position of its message.
pub(super) fn parse_attachment(bytes: &[u8]) -> Option<(Id128, Start)> {
    let (sequence, rest) = bytes.split_first_chunk()?;
    let (timestamp, rest) = rest.split_first_chunk()?;
    let writer = rest.strip_prefix(&[16])?.try_into().ok()?;
    let (sequence, timestamp_ns) = (u64::from_le_bytes(*sequence), i64::from_le_bytes(*timestamp));
    Some((Id128(writer), Start { sequence, timestamp_ns }))
}

/// The liveliness tokens of a ROS 2 domain, as this node writes and reads them.
#[derive(Clone, Debug)]
pub(super) struct Graph {
    /// The prefix of all tokens of the domain.
    domain: String,
    /// The session's name.
    session: String,
    node: String,
}

/// The kinds of ends that tokens stand for, besides nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Publisher,
    Subscriber,
    Server,
    Client,
}

/// A publisher or subscriber of another application.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TheirEnd {
    pub(super) topic: Topic,
    pub(super) qos: Qos,
    /// Its node, with the namespace.
    pub(super) node: String,
    /// The prefix that all tokens of its node have, and no others.
    pub(super) node_token: String,
}

impl Graph {
    pub(super) fn new(domain: u32, session: String, node: &str) -> Graph {
        Graph { domain: format!("@ros2_lv/{domain}"), session, node: node_name(node) }
    }

    /// The name of this node.
    pub(super) fn node(&self) -> &str {
        &self.node
    }

    /// Returns the key expression of the tokens of all ends of a kind.
    pub(super) fn all(&self, end: End) -> String {
        format!("{}/*/*/*/{}/**", self.domain, end.text())
    }

    /// The token of this node.
    pub(super) fn token(&self) -> String {
        let Graph { domain, session, node } = self;
        format!("{domain}/{session}/{OURS}/{OURS}/NN/{NOTHING}/{NOTHING}/{node}")
    }

    /// The token of a publisher, subscriber, server or client with this number.
    pub(super) fn token_of(&self, end: End, number: u32, topic: &Topic, qos: &Qos) -> String {
        let Graph { domain, session, node } = self;
        let Topic { name, type_name, hash } = topic;
        let (end, name, qos) = (end.text(), name.replace('/', NOTHING), policies::text(qos));
        let who = format!("{domain}/{session}/{OURS}/{number}/{end}/{NOTHING}/{NOTHING}/{node}");
        format!("{who}/{NOTHING}{name}/{type_name}/{hash}/{qos}")
    }

    /// The token of a channel of this node. `kept` is its depth if the channel is transient local.
    pub(super) fn token_of_channel(&self, number: u32, topic: &Topic, announced: &Announcement, kept: u32) -> String {
        // This node has made the offer, so it is valid.
        let offered = Offer::parse(&announced.offer).unwrap_or_default().qos;
        let depth = if offered.durability == Durability::TransientLocal { kept } else { DEPTH };
        self.token_of(End::Publisher, number, topic, &offered.keep_last(depth))
    }

    /// The publisher or subscriber of another application that has this token.
    pub(super) fn theirs(&self, end: End, token: &str) -> Option<TheirEnd> {
        let mut parts = token.strip_prefix(&*self.domain)?.strip_prefix('/')?.split('/');
        let (session, node_number, _) = (parts.next()?, parts.next()?, parts.next()?);
        let is_it = node_number.parse() != Ok(OURS) && parts.next()? == end.text();
        let (_, namespace, node) = (parts.next()?, parts.next()?, parts.next()?);
        let (name, type_name, hash, qos) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let name = name.strip_prefix(NOTHING)?.replace(NOTHING, "/");
        let topic = Topic::new(&name, type_name, hash).filter(|_| is_it)?;
        let node = format!("{}/{node}", namespace.trim_end_matches(NOTHING).replace(NOTHING, "/"));
        let node_token = format!("{}/{session}/{node_number}", self.domain);
        Some(TheirEnd { topic, qos: policies::read(qos), node, node_token })
    }
}

impl End {
    fn text(self) -> &'static str {
        match self {
            End::Publisher => "MP",
            End::Subscriber => "MS",
            End::Server => "SS",
            End::Client => "SC",
        }
    }
}

#[cfg(test)]
mod tests {
    use polywire_core::{
        envelope::ChannelId,
        qos::Reliability,
        schema::{Def, Member, SchemaBuilder, Type},
    };
    use proptest::prelude::*;

    use super::*;

    /// The hash of `std_msgs/msg/String`.
    const STRING: &str = "RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18";

    fn announced(topic: &str, codec: &str) -> Announcement {
        Announcement { topic: topic.into(), codec: codec.into(), ..Announcement::default() }
    }

    fn string() -> Schema {
        let mut types = SchemaBuilder::new();
        let root = types.add(Def::structure("std_msgs::msg::String", vec![Member::new("data", Type::string())]));
        types.finish(Type::Def(root)).expect("valid")
    }

    #[test]
    fn topics_are_keys_as_the_design_of_rmw_zenoh_has_them() {
        let topic = Topic::of(&announced("robot1/chatter", "cdr"), Some(&string())).expect("one of ROS 2");
        let key = format!("robot1/chatter/std_msgs::msg::dds_::String_/{STRING}");
        assert_eq!(format!("{}/{}/{}", topic.name, topic.type_name, topic.hash), key);
        assert_eq!(Topic::of_key(&key), Some(topic.clone()));
        let SampleEncoding { codec, options, type_name, schema, ros_type } = topic.sample_encoding();
        assert_eq!((&*codec, &*options, &*type_name), ("cdr", "header", "std_msgs::msg::String"));
        assert!(schema.is_zero() && ros_type.is_some_and(|hash| hash.to_string() == STRING));
        for wrong in ["", "chatter", "a/b/c", &key.replace("RIHS01", "RIHS02"), &key.replace("dds_", "dds")] {
            assert_eq!(Topic::of_key(wrong), None, "{wrong}");
        }
        for (topic, schema) in [("1a", Some(string())), ("chatter", None)] {
            assert!(Topic::of(&announced(topic, "cdr"), schema.as_ref()).is_err(), "{topic}");
        }
    }

    #[test]
    fn what_is_in_cdr_and_for_everybody_is_a_topic_of_ros() {
        assert!(uses_topic_key(&announced("chatter", "cdr")));
        assert!(!uses_topic_key(&announced("chatter", "json")) && !uses_topic_key(&announced("polywire/nodes", "cdr")));
        assert!(!uses_topic_key(&Announcement { compressor: "zstd".into(), ..announced("chatter", "cdr") }));
        assert!(!uses_topic_key(&announced(&rpc::request_topic("add"), "cdr")));
        let with = |options: &str| header(&Announcement { options: options.into(), ..announced("a", "cdr") });
        assert_eq!(
            [with(""), with("be"), with("header"), with("header,be")],
            [Some([0, 1, 0, 0]), Some([0, 0, 0, 0]), None, None]
        );
    }

    #[test]
    fn attachments_have_number_time_and_writer() {
        let envelope = Envelope::data(ChannelId(9), 7, -2);
        let bytes = attachment(Id128([0xab; 16]), &envelope);
        let expected = [&7_i64.to_le_bytes()[..], &(-2_i64).to_le_bytes(), &[16], &[0xab; 16]].concat();
        assert_eq!(bytes, expected);
        let start = Start { sequence: 7, timestamp_ns: -2 };
        assert_eq!(parse_attachment(&bytes), Some((Id128([0xab; 16]), start)));
        assert!((0..33).all(|len| parse_attachment(&bytes[..len]).is_none()));
        assert_eq!(parse_attachment(&[&bytes[..], &[0]].concat()), None);
        assert!(is_plain(&envelope));
        assert!(!is_plain(&Envelope { kind: Kind::Dispose, ..envelope }));
        assert!(!is_plain(&Envelope { key_hash: Some(Id128::ZERO), ..envelope }));
    }

    #[test]
    fn tokens_tell_nodes_and_ends() {
        let graph = Graph::new(2, "aac3178e".into(), "hall-7");
        assert_eq!(graph.token(), "@ros2_lv/2/aac3178e/1347180887/1347180887/NN/%/%/hall_7");
        let topic = Topic::of(&announced("a/chatter", "cdr"), Some(&string())).expect("one of ROS 2");
        let best_effort = Qos::default().reliability(Reliability::BestEffort).keep_last(3);
        let token = graph.token_of(End::Subscriber, 5, &topic, &best_effort);
        let rest = format!("%a%chatter/std_msgs::msg::dds_::String_/{STRING}");
        assert_eq!(token, format!("@ros2_lv/2/aac3178e/1347180887/5/MS/%/%/hall_7/{rest}/2:2:1,3:,:,:,,"));
        // The token of the talker in rmw_zenoh's design.
        let theirs = format!("@ros2_lv/2/8b209175/0/10/MP/%/%/talker/{rest}/::,7:,:,:,,");
        assert_eq!(
            graph.theirs(End::Publisher, &theirs).map(|end| (end.topic, end.qos)),
            Some((topic.clone(), policies::read("::,7:,:,:,,")))
        );
        let theirs_reads = theirs.replace("/MP/%/%/", "/MS/%/%hall%north/");
        let reader = graph.theirs(End::Subscriber, &theirs_reads).expect("a subscriber");
        assert_eq!((&reader.topic, reader.node.as_str()), (&topic, "/hall/north/talker"));
        assert_eq!(reader.node_token, "@ros2_lv/2/8b209175/0");
        assert_eq!(graph.theirs(End::Subscriber, &theirs.replace("/MP/", "/MS/")).expect("one").node, "/talker");
        assert_eq!((graph.theirs(End::Subscriber, &theirs), graph.theirs(End::Subscriber, &token)), (None, None));
        let own = graph.token_of_channel(1, &topic, &announced("a/chatter", "cdr"), 32);
        for other in [&own, &theirs.replace("/MP/", "/MS/"), &theirs.replace("lv/2", "lv/22"), "@ros2_lv/2"] {
            assert_eq!(graph.theirs(End::Publisher, other), None, "{other}");
        }
    }

    /// The expected bytes are those of rmw_zenoh's own function, for tokens below and above the 240
    /// bytes from which it has another algorithm.
    #[test]
    fn gids_are_those_of_rmw_zenoh() {
        let token = format!(
            "@ros2_lv/2/8b209175/0/10/MP/%/%/talker/%a%chatter/std_msgs::msg::dds_::String_/{STRING}/::,7:,:,:,,"
        );
        assert_eq!(gid(&token).to_string(), "bab274d660cf1b16a35e3b0ca7cb6ac8");
        assert_eq!(gid(&token.repeat(2)).to_string(), "6fa99ebbf26eba58f0d8bae17d056356");
    }

    proptest! {
        #[test]
        fn hostile_keys_tokens_and_attachments_are_refused_or_read(
            text in "[@/%:,a-zA-Z0-9_]{0,90}",
            bytes in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            if let Some(topic) = Topic::of_key(&text) {
                prop_assert_eq!(format!("{}/{}/{}", topic.name, topic.type_name, topic.hash), text.clone());
            }
            let graph = Graph::new(2, "1".into(), "n");
            let _ = graph.theirs(End::Publisher, &format!("@ros2_lv/2/1/0/1/MP/%/%/n/{text}"));
            if let Some((writer, start)) = parse_attachment(&bytes) {
                let envelope = Envelope::data(polywire_core::envelope::ChannelId(1), start.sequence, start.timestamp_ns);
                prop_assert_eq!(attachment(writer, &envelope), bytes);
            }
        }
    }
}
