//! A target for applications that know only Zenoh, and meet a node: they publish to it with any
//! key, encoding and attachment, claim to be nodes or applications of ROS 2 by liveliness tokens,
//! or answer and ask queries for schemas. How sessions talk is Zenoh's matter.

use crate::{
    nodes::{unharmed, use_node},
    talk::{self, HELLO, Pump},
};
use polywire::{Message, Node, coding::Discovered, engine};
use polywire_core::{
    envelope::{ChannelId, Envelope, Id128, Kind},
    frame::{Frame, put_datagram_frame},
    schema::arbitrary::Random,
};
use polywire_testing::mutated;
use std::{
    sync::mpsc::{self, Receiver},
    time::{Duration, Instant},
};
use zenoh::{Config, Session, Wait, bytes::Encoding, key_expr::OwnedKeyExpr, liveliness::LivelinessToken};

/// No input takes that long.
const LONGEST: Duration = Duration::from_secs(15);
/// What attachments and mails of nodes begin with.
const MAGIC: &[u8] = b"PLYW\x01";
/// Where nodes meet.
const OURS: &str = "@polywire/1";
/// What is sent last.
const LAST: &str = "plant/last";
const LAST_OF_ROS: &str =
    "0/plant/last/std_msgs::msg::dds_::String_/RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18";
/// A node's endpoint, and one for ROS 2.
const PLAIN: &str = "zenoh/peer?scouting=off,listen=tcp/127.0.0.1:0";
const ROS: &str = "zenoh/peer?scouting=off,ros=true,domain=0,listen=tcp/127.0.0.1:0";

/// A type of ROS 2.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "std_msgs::msg::String")]
struct Text {
    data: String,
}

/// A key, an encoding, an attachment and a payload, each with its length in front.
type Sample<'a> = [&'a [u8]; 4];

/// A number for what the application does, and samples.
pub fn samples(random: &mut Random) -> Vec<u8> {
    let mut input = vec![random.bits() as u8];
    let mut frames = Vec::new();
    talk::frames(random, &mut |frame| {
        let mut bytes = Vec::new();
        put_datagram_frame(frame, &mut bytes);
        frames.push(bytes);
    });
    frames.truncate(16);
    for frame in frames {
        let sample = [key(random), encoding(random), attachment(random), payload(random, frame)];
        for part in sample {
            let part = if random.one_in(6) { mutated(random, &part) } else { part };
            input.extend((part.len() as u16).to_le_bytes());
            input.extend(part);
        }
    }
    input
}

fn key(random: &mut Random) -> Vec<u8> {
    let text = *random.choose(&[
        "plant/pump",
        "plant/%40x/%24/%25",
        "plant/%41/100%",
        "plant/@x",
        "@polywire/1/node/07070707070707070707070707070707-2",
        "@polywire/1/mail/07070707070707070707070707070707-1",
        "@polywire/1/schema/00112233445566778899aabbccddeeff",
        "@ros2_lv/0/8b209175/0/10/MP/%/%/talker/%a%chatter/std_msgs::msg::dds_::String_/RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18/::,7:,:,:,,",
        "@ros2_lv/0/8b209175/0/1/NN/%/%/talker",
        LAST_OF_ROS,
    ]);
    text.into()
}

fn encoding(random: &mut Random) -> Vec<u8> {
    let text = *random.choose(&[
        "application/json",
        "application/cdr;Plant::Pump@00112233445566778899aabbccddeeff",
        "application/octet-stream;polywire-fast+zstd",
        "text/json;x@",
        "",
    ]);
    text.into()
}

/// Nothing, that of a node's message, or that of ROS 2.
fn attachment(random: &mut Random) -> Vec<u8> {
    let writer = [random.below(4) as u8; 16];
    match random.below(4) {
        0 => Vec::new(),
        1 => [&7_i64.to_le_bytes()[..], &9_i64.to_le_bytes(), &[16], &writer].concat(),
        _ => {
            let mut bytes = [MAGIC, &writer].concat();
            let mut envelope = Envelope::data(ChannelId(random.below(6) as u32), random.below(9) as u64, 5);
            envelope.kind = *random.choose(&[Kind::Data, Kind::Data, Kind::Dispose, Kind::Request, Kind::Reply]);
            envelope.key_hash = random.one_in(3).then_some(Id128([9; 16]));
            put_datagram_frame(&Frame::Data(envelope, &[]), &mut bytes);
            bytes
        }
    }
}

fn payload(random: &mut Random, frame: Vec<u8>) -> Vec<u8> {
    match random.below(4) {
        0 => br#"{"id":3,"bar":1.5}"#.to_vec(),
        1 => b"\0\x01\0\0\x06\0\0\0hello\0".to_vec(),
        _ => frame,
    }
}

fn read_samples(mut input: &[u8]) -> Vec<Sample<'_>> {
    let mut part = || {
        let (length, after) = input.split_first_chunk::<2>()?;
        let part = after.get(..usize::from(u16::from_le_bytes(*length))).unwrap_or(after);
        input = after.get(part.len()..).unwrap_or_default();
        Some(part)
    };
    std::iter::from_fn(|| Some([part()?, part()?, part()?, part()?])).take(64).collect()
}

/// A node must take or drop what an application says, without a panic in any of its threads, read
/// what is valid behind it, and close in time.
pub fn meet(input: &[u8]) {
    // Fuzzers without the engine have nothing to try.
    if engine::find("zenoh").is_none() {
        return;
    }
    let (what, samples) = input.split_first().unwrap_or((&0, &[]));
    let samples = read_samples(samples);
    unharmed(|node| match what % 4 {
        0 => publish(node, &samples),
        1 => claim_to_be_a_node(node, &samples),
        2 => be_of_ros(node, &samples),
        _ => ask_and_answer(node, &samples),
    });
}

fn publish(node: &Node, samples: &[Sample<'_>]) {
    let meeting = Meeting::begin(node);
    samples.iter().for_each(|sample| put(&meeting.session, sample));
    meeting.end();
}

fn claim_to_be_a_node(node: &Node, samples: &[Sample<'_>]) {
    let meeting = Meeting::begin(node);
    let (sender, mails) = mpsc::channel();
    // The last of all: the node says hello first.
    let (id, number) = (Id128([0xff; 16]), HELLO.incarnation);
    let mailbox = meeting.session.declare_subscriber(format!("{OURS}/mail/{id}-{number:x}"));
    let mailbox = mailbox.callback(move |mail| drop(sender.send(mail.payload().to_bytes().into_owned())));
    let mailbox = mailbox.wait().expect("a mailbox");
    let token = meeting.session.liveliness().declare_token(format!("{OURS}/node/{id}-{number:x}"));
    let token = token.wait().expect("a token");
    let tokens = samples.iter().filter_map(|sample| declare(&meeting.session, sample[0]));
    let tokens: Vec<LivelinessToken> = tokens.collect();
    let hello = mails.recv_timeout(LONGEST).expect("the node writes to who is there");
    let (from, rest) = hello.get(MAGIC.len()..).and_then(<[u8]>::split_first_chunk).expect("a name");
    let (incarnation, theirs) = rest.split_first_chunk().expect("a number");
    let theirs = theirs.get(..8).expect("the node's epoch");
    let to = format!("{OURS}/mail/{}-{:x}", Id128(*from), u64::from_le_bytes(*incarnation));
    let me = [&id.0[..], &number.to_le_bytes()].concat();
    let mail = |kind: u8, number: u64, body: &[u8]| {
        let (number, length) = (number.to_le_bytes(), (body.len() as u64).to_le_bytes());
        let mail = [MAGIC, &me, &1_u64.to_le_bytes(), theirs, &number, &[kind], &length, body].concat();
        meeting.session.put(&to, mail).wait().expect("it is put");
    };
    mail(0, 0, &[1]);
    mail(4, 1, &[]);
    for (sample, number) in samples.iter().zip(2..) {
        let [_, encoding, attachment, payload] = *sample;
        // Most are a node's frames with the next number.
        match encoding.first().is_some_and(|first| first % 8 == 0) {
            true => meeting.session.put(&to, [MAGIC, &me, payload].concat()).wait().expect("it is put"),
            false => mail(1, number, payload),
        }
        if attachment.starts_with(MAGIC) {
            put(&meeting.session, &[b"plant/pump", encoding, attachment, payload]);
        }
    }
    drop((mailbox, token, tokens));
    meeting.end();
}

fn be_of_ros(node: &Node, samples: &[Sample<'_>]) {
    let endpoint = node.open(ROS).expect("a port");
    let (sender, last) = mpsc::channel();
    let texts = node.subscribe::<Text>(LAST, Some(&format!("cdr@{endpoint}"))).expect("a subscriber");
    let _texts = texts.on_message_inline(move |text, _| {
        let _ = sender.send(text.data.clone());
    });
    let all = node.subscribe_of("**", Some(&endpoint), Discovered::new().expect("a coding")).expect("a subscriber");
    let _all = all.on_message_inline(|record, info| drop(format!("{record:?} {info:?}")));
    let session = call(&endpoint);
    let publisher = session.declare_publisher(LAST_OF_ROS).wait().expect("a publisher");
    wait_until(|| publisher.matching_status().wait().expect("a status").matching());
    let tokens: Vec<LivelinessToken> = samples.iter().filter_map(|sample| declare(&session, sample[0])).collect();
    samples.iter().for_each(|sample| put(&session, sample));
    publisher.put(b"\0\x01\0\0\x05\0\0\0last\0").wait().expect("it is put");
    // Damaged samples of the same topic may be valid, too.
    while last.recv_timeout(LONGEST).expect("what is valid is read") != "last" {}
    drop(tokens);
    session.close().wait().expect("it closes");
}

fn ask_and_answer(node: &Node, samples: &[Sample<'_>]) {
    let meeting = Meeting::begin(node);
    let answers: Vec<Vec<u8>> = samples.iter().map(|sample| sample[3].to_vec()).collect();
    let queryable = meeting.session.declare_queryable(format!("{OURS}/schema/*")).callback(move |query| {
        for answer in answers.iter().take(3) {
            let _ = query.reply(query.key_expr(), answer.clone()).wait();
        }
    });
    let queryable = queryable.wait().expect("a queryable");
    for sample @ [key, encoding, _, payload] in samples {
        put(&meeting.session, sample);
        let selector = format!("{OURS}/schema/00112233445566778899aabbccddeeff?{}", String::from_utf8_lossy(key));
        let get = meeting.session.get(selector).payload(*payload).timeout(Duration::from_millis(20));
        // What is no selector is not asked.
        let _ = get.encoding(Encoding::from(&*String::from_utf8_lossy(encoding))).callback(|_| ()).wait();
    }
    drop(queryable);
    meeting.end();
}

/// A session that has met a node with publishers and subscribers of all kinds.
struct Meeting {
    session: Session,
    last: Receiver<u32>,
    _pumps: polywire::Subscription,
}

impl Meeting {
    fn begin(node: &Node) -> Meeting {
        let endpoint = node.open(PLAIN).expect("a port");
        use_node(node, &endpoint);
        let (sender, last) = mpsc::channel();
        let pumps = node.subscribe::<Pump>(LAST, Some(&format!("json@{endpoint}"))).expect("a subscriber");
        let pumps = pumps.on_message_inline(move |pump, _| {
            let _ = sender.send(pump.id);
        });
        let session = call(&endpoint);
        let publisher = session.declare_publisher(LAST).wait().expect("a publisher");
        wait_until(|| publisher.matching_status().wait().expect("a status").matching());
        drop(publisher);
        Meeting { session, last, _pumps: pumps }
    }

    /// What is valid is read, whatever came before.
    fn end(self) {
        let put = self.session.put(LAST, br#"{"id":7}"#).encoding(Encoding::APPLICATION_JSON);
        put.congestion_control(zenoh::qos::CongestionControl::Block).wait().expect("it is put");
        assert_eq!(self.last.recv_timeout(LONGEST), Ok(7), "what is valid is read");
        self.session.close().wait().expect("it closes");
    }
}

/// A session with the node of an endpoint alone.
fn call(endpoint: &str) -> Session {
    let locator = endpoint.split_once("listen=").expect("where it listens").1;
    let mut config = Config::default();
    let connect = format!("[\"{locator}\"]");
    let settings = [
        ("mode", "\"peer\""),
        ("scouting/multicast/enabled", "false"),
        ("listen/endpoints", "[]"),
        ("connect/endpoints", &connect),
    ];
    settings.iter().for_each(|(key, value)| config.insert_json5(key, value).expect("valid"));
    zenoh::open(config).wait().expect("a session")
}

/// Puts a sample, if its key is one.
fn put(session: &Session, [key, encoding, attachment, payload]: &Sample<'_>) {
    let Some(key) = key_of(key).filter(|key| !key.is_wild()) else { return };
    let put = session.put(key, *payload).congestion_control(zenoh::qos::CongestionControl::Block);
    let put = put.encoding(Encoding::from(&*String::from_utf8_lossy(encoding)));
    match attachment.is_empty() {
        true => put.wait().expect("it is put"),
        false => put.attachment(*attachment).wait().expect("it is put"),
    }
}

/// A liveliness token, if its key is one.
fn declare(session: &Session, key: &[u8]) -> Option<LivelinessToken> {
    let key = key_of(key).filter(|key| key.starts_with('@') && !key.is_wild())?;
    session.liveliness().declare_token(key).wait().ok()
}

fn key_of(bytes: &[u8]) -> Option<OwnedKeyExpr> {
    OwnedKeyExpr::autocanonize(str::from_utf8(bytes).ok()?.to_owned()).ok()
}

fn wait_until(is_so: impl Fn() -> bool) {
    let until = Instant::now() + LONGEST;
    while !is_so() {
        assert!(Instant::now() < until, "the node has not been met");
        std::thread::sleep(Duration::from_millis(1));
    }
}
