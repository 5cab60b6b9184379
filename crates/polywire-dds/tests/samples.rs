//! Two participants in one process: samples, ends of instances, policies and discovery.

#![cfg(feature = "cyclone")]

// The crate knows nothing of Polywire, and neither do its tests.
#[path = "../../../testing/src/domains.rs"]
mod domains;

use std::{
    net::UdpSocket,
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use polywire_dds::{
    Bytes, Change, Discovery, Durability, Endpoint, Guid, Kind, LOOPBACK, Participant, Qos, Receive, Representation,
    Sample, TypeObjects,
};

const SOON: Duration = Duration::from_secs(60);

fn pair() -> [Participant; 2] {
    let domain = domains::lease();
    [(); 2].map(|()| Participant::new(domain, Some(LOOPBACK), &Qos::default()).expect("a participant"))
}

fn reliable() -> Qos {
    Qos { reliable: Some(Duration::from_secs(10)), ..Qos::default() }
}

struct Inbox(mpsc::Sender<(Guid, Sample)>);

impl Receive for Inbox {
    fn receive(&self, writer: Guid, sample: Sample) -> bool {
        self.0.send((writer, sample)).is_ok()
    }
}

fn inbox() -> (Arc<Inbox>, mpsc::Receiver<(Guid, Sample)>) {
    let (sender, samples) = mpsc::channel();
    (Arc::new(Inbox(sender)), samples)
}

fn sample(kind: Kind, payload: &[u8], key: Option<u8>, timestamp_ns: i64) -> Sample {
    let bytes = Bytes::new([0, 1, 0, 0], payload).expect("bytes");
    Sample { kind, is_key: kind != Kind::Data, bytes, key_hash: key.map(|key| [key; 16]), timestamp_ns, sequence: None }
}

fn matched(changes: &mpsc::Receiver<Change>) {
    assert_eq!(changes.recv_timeout(SOON), Ok(Change::Matched { count: 1 }));
}

#[test]
fn samples_of_any_size_go_both_ways_in_order() {
    let [a, b] = pair();
    for (from, to) in [(&a, &b), (&b, &a)] {
        let (receiver, samples) = inbox();
        let reader = to.topic("t", "T", false).unwrap().reader(&reliable(), receiver, |_| {}).unwrap();
        let (sender, changes) = mpsc::channel();
        let topic = from.topic("t", "T", false).unwrap();
        let writer = topic
            .writer(&reliable(), move |change| {
                let _heard = sender.send(change);
            })
            .unwrap();
        matched(&changes);
        assert_eq!(writer.readers(), [reader.guid()]);
        assert_eq!(reader.writers(), [writer.guid()]);
        let all: Vec<Sample> = [0, 1, 3, 4, 1000, 100_000, 3_000_000]
            .into_iter()
            .zip(1..)
            .map(|(len, time)| sample(Kind::Data, &vec![len as u8; len], None, time))
            .collect();
        all.iter().for_each(|sample| writer.write(sample).expect("written"));
        for sent in all {
            let (by, came) = samples.recv_timeout(SOON).expect("a sample");
            assert_eq!((by, came.bytes.payload().len()), (writer.guid(), sent.bytes.payload().len()));
            assert_eq!(came, sent);
        }
        assert!(writer.wait_for_acknowledgments(SOON));
    }
}

#[test]
fn instances_end_with_their_key_hash() {
    let [a, b] = pair();
    let (receiver, samples) = inbox();
    let _reader = b.topic("t", "T", true).unwrap().reader(&reliable(), receiver, |_| {}).unwrap();
    let (sender, changes) = mpsc::channel();
    let writer = a
        .topic("t", "T", true)
        .unwrap()
        .writer(&reliable(), move |change| {
            let _heard = sender.send(change);
        })
        .unwrap();
    matched(&changes);
    let all = [
        sample(Kind::Data, b"\x01\0\0\0abcd", Some(1), 1),
        sample(Kind::Data, b"\x02\0\0\0abcd", Some(2), 2),
        sample(Kind::Dispose, b"\x01\0\0\0", Some(1), 3),
        sample(Kind::Unregister, b"\x02\0\0\0", Some(2), 4),
        Sample { is_key: false, ..sample(Kind::Dispose, b"\x02\0\0\0abcd", Some(2), 5) },
    ];
    for sent in all {
        writer.write(&sent).expect("written");
        assert_eq!(samples.recv_timeout(SOON).expect("a sample").1, sent);
    }
}

#[test]
fn a_full_receiver_holds_a_writer_up_and_loses_nothing() {
    struct Slow(mpsc::SyncSender<Sample>);
    impl Receive for Slow {
        fn receive(&self, _: Guid, sample: Sample) -> bool {
            self.0.try_send(sample).is_ok()
        }
    }
    let [a, b] = pair();
    let (sender, samples) = mpsc::sync_channel(3);
    let _reader = b.topic("t", "T", false).unwrap().reader(&reliable(), Arc::new(Slow(sender)), |_| {}).unwrap();
    let (sender, changes) = mpsc::channel();
    let brief = Qos { reliable: Some(Duration::from_millis(50)), ..Qos::default() };
    let writer = a
        .topic("t", "T", false)
        .unwrap()
        .writer(&brief, move |change| {
            let _heard = sender.send(change);
        })
        .unwrap();
    matched(&changes);
    let write = |time| writer.write(&sample(Kind::Data, &[0; 1000], None, time));
    let failed = (1..100).find_map(|time| write(time).err().map(|error| (time, error)));
    let (time, error) = failed.expect("no more room");
    assert!(error.is_timeout() && time == 4, "{time}: {error}");
    assert_eq!([1, 2, 3].map(|_| samples.recv_timeout(SOON).expect("a sample").timestamp_ns), [1, 2, 3]);
    write(9).expect("room again");
    assert!(samples.recv_timeout(SOON).is_ok());
}

#[test]
fn late_joiners_get_what_was_kept_for_them() {
    let [a, b] = pair();
    let qos = Qos { durability: Durability::TransientLocal, service_depth: Some(2), ..reliable() };
    let writer = a.topic("t", "T", false).unwrap().writer(&qos, |_| {}).unwrap();
    (1..=5).for_each(|time| writer.write(&sample(Kind::Data, b"1234", None, time)).expect("written"));
    let (receiver, samples) = inbox();
    let _reader = b.topic("t", "T", false).unwrap().reader(&qos, receiver, |_| {}).unwrap();
    assert_eq!([4, 5].map(|_| samples.recv_timeout(SOON).expect("a sample").1.timestamp_ns), [4, 5]);
}

#[test]
fn incompatible_policies_are_told_on_both_sides() {
    let [a, b] = pair();
    let (sender, told) = mpsc::channel();
    let (here, there) = (sender.clone(), sender);
    let writer = a.topic("t", "T", false).unwrap().writer(&Qos::default(), move |change| {
        let _heard = here.send(change);
    });
    let (receiver, _samples) = inbox();
    let reader = b.topic("t", "T", false).unwrap().reader(&reliable(), receiver, move |change| {
        let _heard = there.send(change);
    });
    for _ in 0..2 {
        assert_eq!(told.recv_timeout(SOON), Ok(Change::Incompatible { policy: 11 }));
    }
    drop((writer, reader));
}

#[test]
fn discovery_shows_policies_and_ends() {
    let [a, b] = pair();
    let (sender, discovered) = mpsc::channel();
    let _watch = b
        .watch(move |discovery| {
            let _heard = sender.send(discovery);
        })
        .expect("a watch");
    let qos = Qos {
        deadline: Some(Duration::from_millis(70)),
        exclusive: Some(-3),
        partitions: vec!["hall".into(), "yard*".into()],
        transport_priority: 5,
        user_data: b"about us".to_vec(),
        representations: vec![Representation::Xcdr2],
        ..reliable()
    };
    let writer = a.topic("plant/pumps", "plant::Pump", true).unwrap().writer(&qos, |_| {}).unwrap();
    let next = |wanted: &dyn Fn(&Discovery) -> bool| loop {
        let discovery = discovered.recv_timeout(SOON).expect("discovery");
        if wanted(&discovery) {
            return discovery;
        }
    };
    let Discovery::Writer(Endpoint { guid, participant, topic, type_name, qos: offered, types }) =
        next(&|discovery| matches!(discovery, Discovery::Writer(_)))
    else {
        unreachable!("a writer was waited for")
    };
    assert_eq!((guid, participant), (writer.guid(), a.guid()));
    assert_eq!((topic.as_str(), type_name.as_str(), types), ("plant/pumps", "plant::Pump", None));
    assert_eq!((offered.deadline, offered.exclusive, offered.reliable), (qos.deadline, qos.exclusive, qos.reliable));
    assert_eq!((offered.partitions, offered.user_data), (qos.partitions, qos.user_data));
    assert_eq!((offered.transport_priority, offered.representations), (5, qos.representations));
    drop(writer);
    assert_eq!(next(&|discovery| matches!(discovery, Discovery::Gone(_))), Discovery::Gone(guid));
}

#[test]
fn what_cannot_be_is_an_error() {
    let [a, _] = pair();
    assert!(a.topic("a\0b", "T", false).is_err());
    assert!(a.topic("no blanks", "T", false).is_err());
    assert!(Bytes::of_sample(b"ab").is_err());
    let number = domains::lease();
    let _open = Participant::new(number, Some(LOOPBACK), &Qos::default()).expect("a participant");
    let other = Participant::new(number, Some("<CycloneDDS/>"), &Qos::default()).map(|_| ());
    assert_eq!(other, Err(polywire_dds::Error::Configured(number)));
}

/// What the crate `log` was told.
static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Lines;

impl log::Log for Lines {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        LINES.lock().expect("nobody panicked").push(format!("{} {}", record.target(), record.args()));
    }

    fn flush(&self) {}
}

#[test]
fn a_full_domain_is_an_error_and_logged() {
    log::set_logger(&Lines).expect("no other logger");
    log::set_max_level(log::LevelFilter::Warn);
    let number = domains::lease();
    // The only process that may be in the domain, by the ports that DDSI-RTPS gives it.
    let port = 7400 + 250 * number as u16 + 10;
    let _other = UdpSocket::bind(("127.0.0.1", port)).expect("the port is free");
    let one = "<Discovery><ParticipantIndex>auto</ParticipantIndex>\
               <MaxAutoParticipantIndex>0</MaxAutoParticipantIndex></Discovery></Domain>";
    let configuration = LOOPBACK.replace("</Domain>", one);
    let joined = Participant::new(number, Some(&configuration), &Qos::default()).map(|_| ());
    assert_eq!(joined, Err(polywire_dds::Error::Full(number)));
    let lines = LINES.lock().expect("nobody panicked");
    let is_told = |line: &String| line.starts_with("cyclonedds ") && line.contains("participant index");
    assert!(lines.iter().any(is_told), "{lines:?}");
}

/// A type of `conformance/type-objects`.
fn described(name: &str) -> TypeObjects {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../conformance/type-objects/vectors.jsonl");
    let lines = std::fs::read_to_string(file).expect("vectors.jsonl");
    let line = lines.lines().find(|line| line.contains(&format!("\"{name}\""))).expect("the type");
    let octets = |key: &str| {
        let (_, rest) = line.split_once(&format!("\"{key}\": \"")).expect("the member");
        let digits = rest.split('"').next().expect("digits");
        let pairs = (0..digits.len() / 2).map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16));
        pairs.collect::<Result<_, _>>().expect("hexadecimal digits")
    };
    TypeObjects { information: octets("information"), mapping: octets("mapping") }
}

#[test]
fn types_are_told_and_looked_up() {
    let [a, b] = pair();
    let (sender, discovered) = mpsc::channel();
    let _watch = b
        .watch(move |discovery| {
            let _heard = sender.send(discovery);
        })
        .expect("a watch");
    let keyed = described("plant::Keyed");
    let topic = a.described_topic("keyed", "plant::Keyed", true, &keyed).expect("a topic");
    let _writer = topic.writer(&reliable(), |_| {}).expect("a writer");
    let types = loop {
        match discovered.recv_timeout(SOON).expect("discovery") {
            Discovery::Writer(writer) if writer.topic == "keyed" => break writer.types.expect("type information"),
            _ => {}
        }
    };
    let found = b.type_objects(&types, true).expect("no error").expect("a type of this process is known at once");
    assert_eq!(found.information, keyed.information);
    assert!(!found.mapping.is_empty());
    // A topic of the same type that tells nothing is another one.
    let silent =
        a.topic("silent", "plant::Keyed", true).expect("a topic").writer(&reliable(), |_| {}).expect("a writer");
    let endpoint = loop {
        match discovered.recv_timeout(SOON).expect("discovery") {
            Discovery::Writer(writer) if writer.guid == silent.guid() => break writer,
            _ => {}
        }
    };
    assert_eq!(endpoint.types, None);
}

#[test]
fn a_type_that_cyclone_refuses_is_an_error() {
    let [a, _] = pair();
    let good = described("plant::Keyed");
    // The flags of the minimal structure, of which one must be set.
    let mut bad = good.clone();
    let flags = bad.mapping.windows(4).position(|bytes| bytes == [0xf1, 0x51, 0x01, 0x00]).expect("the flags") + 2;
    bad.mapping[flags] = 0;
    for _ in 0..3 {
        assert!(a.described_topic("bad", "plant::Keyed", true, &bad).is_err());
    }
    for at in 0..good.mapping.len() {
        let mut bad = good.clone();
        bad.mapping[at] ^= 0x07;
        // Whatever comes of it, nothing is released twice.
        let opened = a.described_topic(&format!("bad{at}"), "plant::Keyed", true, &bad);
        drop(opened);
    }
    assert!(a.described_topic("a\0b", "plant::Keyed", true, &good).is_err());
    assert!(a.described_topic("good", "plant::Keyed", true, &good).is_ok());
}
