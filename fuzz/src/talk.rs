//! What a peer may say: announcements of all kinds of channels, messages, answers, documents. Most
//! of it is right in itself, with some damage in the payloads; the order is any.

use polywire::{
    Message,
    directory::{NODE_TOPIC, STATS_TOPIC},
    stats::NodeStats,
};
use polywire_core::{
    codec::{Encoder, Options, find},
    envelope::{Announcement, ChannelId, Envelope, Id128, Kind},
    frame::{Answer, Frame, Hello, Start},
    qos::{Offer, Qos},
    schema::arbitrary::Random,
};
use polywire_testing::mutated;

/// How the peer introduces itself.
pub const HELLO: Hello = Hello { node: Id128([7; 16]), incarnation: 1 };

/// A type of an application.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Plant::Pump")]
pub struct Pump {
    #[polywire(key)]
    pub id: u32,
    pub bar: f64,
    pub label: String,
    pub history: Vec<i64>,
}

/// The same type as another version has it.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Plant::Pump")]
struct Older {
    #[polywire(key)]
    id: u32,
    bar: f64,
}

/// The description of a node, as `spec/directory.md` defines it.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Polywire::Node")]
pub struct Description {
    #[polywire(key)]
    pub id: [u8; 16],
    pub incarnation: u64,
    pub revision: u64,
    pub name: String,
    pub host: String,
    pub process: u32,
    pub user: String,
    pub version: String,
    pub endpoints: Vec<Endpoint>,
    pub publishers: Vec<Publisher>,
    pub subscribers: Vec<Subscriber>,
    pub omitted: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Polywire::Endpoint")]
pub struct Endpoint {
    pub endpoint: String,
    pub links: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Polywire::Publisher")]
pub struct Publisher {
    pub id: [u8; 16],
    pub topic: String,
    pub type_name: String,
    pub type_hash: [u8; 16],
    pub wire: String,
    pub qos: String,
    pub accepting: u32,
    pub refusing: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Polywire::Subscriber")]
pub struct Subscriber {
    pub id: [u8; 16],
    pub topic: String,
    pub type_name: String,
    pub type_hash: [u8; 16],
    pub endpoint: String,
    pub qos: String,
    pub reads: Vec<[u8; 16]>,
    pub refuses: Vec<Refusal>,
}

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Polywire::Refusal")]
pub struct Refusal {
    pub writer: [u8; 16],
    pub reason: String,
}

/// A channel that the peer has announced, and how many messages it has had.
struct Open {
    id: ChannelId,
    carries: Carries,
    codec: &'static str,
    sequence: u64,
}

#[derive(Clone, Copy)]
enum Carries {
    Pumps,
    Older,
    Nodes,
    Stats,
    Nothing,
}

/// Hands the frames of a conversation to `put`.
pub fn frames(random: &mut Random, put: &mut dyn FnMut(&Frame<'_>)) {
    let (mut open, mut last) = (Vec::new(), 0);
    for _ in 0..3 + random.below(30) {
        match random.below(10) {
            0..3 => {
                last += 1;
                open.push(announce(random, ChannelId(last), put));
            }
            3..7 if !open.is_empty() => {
                let at = random.below(open.len());
                tell(random, &mut open[at], put);
            }
            7 if !open.is_empty() => {
                let at = random.below(open.len());
                let channel = open[at].id;
                let start = Start { sequence: random.below(9) as u64, timestamp_ns: 0 };
                match random.one_in(2) {
                    true => put(&Frame::Position { channel, start, lost: random.below(3) as u64 }),
                    false => {
                        open.remove(at);
                        put(&Frame::Retire { channel });
                    }
                }
            }
            _ => answer(random, put),
        }
    }
}

/// Announces a channel and hands over its schema, which the node asks for if it wants the channel.
fn announce(random: &mut Random, channel: ChannelId, put: &mut dyn FnMut(&Frame<'_>)) -> Open {
    let (carries, topic) = *random.choose(&[
        (Carries::Pumps, "plant/pump"),
        (Carries::Older, "plant/pump"),
        (Carries::Pumps, "plant/1/2"),
        (Carries::Nodes, NODE_TOPIC),
        (Carries::Nodes, NODE_TOPIC),
        (Carries::Stats, STATS_TOPIC),
        (Carries::Nothing, "polywire/interest"),
        (Carries::Nothing, "plant//*"),
    ]);
    let codec = match carries {
        Carries::Pumps | Carries::Older => *random.choose(&["cdr", "json", "protobuf", "fast", "bson", "nonsense"]),
        _ => "cdr",
    };
    let document = schema(carries);
    let mut announcement = Announcement {
        topic: topic.into(),
        writer: Id128([random.below(4) as u8; 16]),
        incarnation: random.below(2) as u64,
        schema: if document.is_empty() { Id128::ZERO } else { Id128::of_document(&document) },
        codec: codec.into(),
        compressor: random.choose(&["", "", "", "zstd:3", "lz4", "zip"]).to_string(),
        offer: offer(random),
        ..Announcement::default()
    };
    if random.one_in(8) {
        announcement.offer = mutated(random, &announcement.offer);
    }
    put(&Frame::Announce { channel, start: Start::default(), announcement: Box::new(announcement.clone()) });
    if !document.is_empty() && !random.one_in(8) {
        let damaged = if random.one_in(8) { mutated(random, &document) } else { document };
        put(&Frame::Document { document: announcement.schema, bytes: Some(&damaged) });
    }
    Open { id: channel, carries, codec, sequence: 0 }
}

/// The quality of service of a channel, or what makes it the history of a writer, or its signs of
/// life, or says where it has moved to.
fn offer(random: &mut Random) -> Vec<u8> {
    let writer = Some(Id128([random.below(4) as u8; 16]));
    let qos = Qos::default().transient_local().exclusive(random.below(3) as i32);
    let offer = match random.below(8) {
        0 => Offer { qos, ..Offer::default() },
        1 => Offer { qos, history_of: writer, ..Offer::default() },
        2 => Offer { liveliness_of: writer, ..Offer::default() },
        3 => Offer { moved_to: vec!["scripted/0".into()], ..Offer::default() },
        _ => Offer::default(),
    };
    offer.to_bytes()
}

/// A message of a channel.
fn tell(random: &mut Random, open: &mut Open, put: &mut dyn FnMut(&Frame<'_>)) {
    open.sequence += 1 + random.below(2) as u64;
    let mut payload = payload(random, open);
    if random.one_in(2) {
        payload = mutated(random, &payload);
    }
    let mut envelope = Envelope::data(open.id, open.sequence, random.bits() as i64);
    if random.one_in(4) {
        envelope.kind = *random.choose(&[Kind::Dispose, Kind::Unregister, Kind::Request, Kind::Reply]);
    }
    envelope.key_hash = random.one_in(3).then(|| Id128([random.below(3) as u8; 16]));
    envelope.anchor = random.one_in(4).then_some(open.sequence);
    put(&Frame::Data(envelope, &payload));
}

fn payload(random: &mut Random, open: &Open) -> Vec<u8> {
    let pump = Pump { id: random.below(3) as u32, bar: 1.5, label: "main".into(), history: vec![1, -2, 3] };
    match open.carries {
        Carries::Pumps => encoded(open.codec, &pump),
        Carries::Older => encoded(open.codec, &Older { id: pump.id, bar: pump.bar }),
        Carries::Nodes => encoded("cdr", &description(random)),
        Carries::Stats => encoded("cdr", &NodeStats::default()),
        Carries::Nothing => Vec::new(),
    }
}

/// What a node says of itself. There are few nodes, so they contradict each other.
pub fn description(random: &mut Random) -> Description {
    let id = |random: &mut Random| [random.below(3) as u8; 16];
    let qos = |random: &mut Random| random.choose(&["", "reliability=reliable", "deadline=0s", "x=y,,"]).to_string();
    let publisher = |random: &mut Random| Publisher {
        id: id(random),
        topic: random.choose(&["plant/pump", "t", "\u{1b}[2J", ""]).to_string(),
        wire: "cdr@tcp/127.0.0.1:1".into(),
        qos: qos(random),
        ..Publisher::default()
    };
    let subscriber = |random: &mut Random| Subscriber {
        id: id(random),
        topic: random.choose(&["plant/pump", "plant/**", "t"]).to_string(),
        qos: qos(random),
        reads: (0..random.below(3)).map(|_| id(random)).collect(),
        refuses: vec![Refusal { writer: id(random), reason: "no".into() }],
        ..Subscriber::default()
    };
    Description {
        id: id(random),
        incarnation: random.below(2) as u64,
        revision: random.below(5) as u64,
        name: random.choose(&["plant", "", "\u{202e}"]).to_string(),
        endpoints: vec![Endpoint { endpoint: "local/0".into(), links: 3 }],
        publishers: (0..random.below(4)).map(|_| publisher(random)).collect(),
        subscribers: (0..random.below(4)).map(|_| subscriber(random)).collect(),
        ..Description::default()
    }
}

/// What a peer says about the node's channels, and about nothing in particular.
fn answer(random: &mut Random, put: &mut dyn FnMut(&Frame<'_>)) {
    let (channel, count) = (ChannelId(random.below(6) as u32), random.below(3) as u32);
    let document = *random.choose(&[Id128::of_document(&schema(Carries::Pumps)), Id128([9; 16])]);
    put(&match random.below(12) {
        0 | 1 => Frame::Answer { channel, answer: Answer::Accept(count) },
        2 => Frame::Answer { channel, answer: Answer::Renew(count) },
        3 => Frame::Answer { channel, answer: Answer::Decline },
        4 => Frame::Answer { channel, answer: Answer::Refuse("no".into()) },
        5 => Frame::Answer { channel, answer: Answer::Partial(count, "not all".into()) },
        6 => Frame::Want { document },
        7 => Frame::Document { document, bytes: None },
        8 => Frame::Taken { messages: random.below(9) as u64 },
        9 => Frame::Lease { milliseconds: *random.choose(&[0, 1, 60_000, u64::MAX]) },
        10 => Frame::Relay,
        _ => Frame::Heartbeat,
    });
}

fn schema(carries: Carries) -> Vec<u8> {
    fn of<T: Message>() -> Vec<u8> {
        encoder::<T>("cdr").schema().to_bytes()
    }
    match carries {
        Carries::Pumps => of::<Pump>(),
        Carries::Older => of::<Older>(),
        Carries::Nodes => of::<Description>(),
        Carries::Stats => of::<NodeStats>(),
        Carries::Nothing => Vec::new(),
    }
}

fn encoder<T: Message>(codec: &str) -> Encoder<T> {
    let codec = find(codec).or_else(|| find("cdr")).expect("a codec");
    Encoder::new(codec, &Options::default()).expect("it takes the type")
}

fn encoded<T: Message>(codec: &str, value: &T) -> Vec<u8> {
    let mut payload = Vec::new();
    encoder::<T>(codec).encode(value, &mut payload).expect("it takes the value");
    payload
}
