//! A program that knows only DDS: Dust DDS. It says what `dds/peer.py` says in the modes of the
//! same names.
//!
//! ```text
//! polywire-dust-peer write DOMAIN TOPIC TYPE    waits for a reader, writes three samples, disposes of the first one if its type has a key
//! polywire-dust-peer keep DOMAIN TOPIC TYPE     writes three samples at once, and keeps them for late joiners
//! polywire-dust-peer read DOMAIN TOPIC TYPE     prints each sample that it reads
//! polywire-dust-peer strict DOMAIN TOPIC TYPE   requests a deadline, and prints the policy that does not match
//! ```
//!
//! TYPE is Pump, Note, Grown, Taller or Loose. It ends when its standard input does.

use std::{
    env,
    future::{self, Future},
    io, thread,
    time::Duration,
};

use dust_dds::{
    configuration::DustDdsConfigurationBuilder,
    dds_async::data_reader::DataReaderAsync,
    domain::{domain_participant::DomainParticipant, domain_participant_factory::DomainParticipantFactory},
    infrastructure::{
        error::DdsError,
        listener::NO_LISTENER,
        qos::{DataReaderQos, DataWriterQos, QosKind},
        qos_policy::{
            DataRepresentationQosPolicy, DeadlineQosPolicy, DurabilityQosPolicy, DurabilityQosPolicyKind,
            HistoryQosPolicy, HistoryQosPolicyKind, ReliabilityQosPolicy, ReliabilityQosPolicyKind,
            XCDR_DATA_REPRESENTATION, XCDR2_DATA_REPRESENTATION,
        },
        sample_info::{ANY_INSTANCE_STATE, ANY_SAMPLE_STATE, ANY_VIEW_STATE, InstanceStateKind},
        status::{NO_STATUS, RequestedIncompatibleQosStatus, StatusKind},
        time::DurationKind,
        type_support::DdsType,
    },
    subscription::data_reader_listener::DataReaderListener,
    topic_definition::topic::Topic,
    xtypes::type_support::TypeSupport,
};

/// A type of the tests.
trait Value: TypeSupport + Send + 'static {
    const NAME: &str;
    const IS_KEYED: bool = true;

    fn numbered(number: u16) -> Self;
    /// As Python's classes print themselves.
    fn text(&self) -> String;
}

#[derive(DdsType)]
#[dust_dds(name = "plant::Pump", extensibility = "final")]
struct Pump {
    #[dust_dds(key)]
    id: u32,
    level: f64,
    name: String,
}

impl Value for Pump {
    const NAME: &str = "plant::Pump";

    fn numbered(number: u16) -> Pump {
        Pump { id: number.into(), level: f64::from(number) / 2.0, name: format!("pump {number}") }
    }

    fn text(&self) -> String {
        format!("Pump(id={}, level={:?}, name='{}')", self.id, self.level, self.name)
    }
}

#[derive(DdsType)]
#[dust_dds(name = "plant::Note", extensibility = "final")]
struct Note {
    text: String,
    marks: Vec<i32>,
}

impl Value for Note {
    const NAME: &str = "plant::Note";
    const IS_KEYED: bool = false;

    fn numbered(number: u16) -> Note {
        let mark = i32::from(number);
        Note { text: format!("note {number}"), marks: vec![mark, -mark] }
    }

    fn text(&self) -> String {
        format!("Note(text='{}', marks={:?})", self.text, self.marks)
    }
}

#[derive(DdsType)]
#[dust_dds(name = "plant::Grown", extensibility = "appendable")]
struct Grown {
    #[dust_dds(key)]
    id: u32,
    level: f64,
}

impl Value for Grown {
    const NAME: &str = "plant::Grown";

    fn numbered(number: u16) -> Grown {
        Grown { id: number.into(), level: f64::from(number) / 2.0 }
    }

    fn text(&self) -> String {
        format!("Grown(id={}, level={:?})", self.id, self.level)
    }
}

#[derive(DdsType)]
#[dust_dds(name = "plant::Grown", extensibility = "appendable")]
struct Taller {
    #[dust_dds(key)]
    id: u32,
    level: f64,
    unit: String,
}

impl Value for Taller {
    const NAME: &str = "plant::Grown";

    fn numbered(number: u16) -> Taller {
        Taller { id: number.into(), level: f64::from(number) / 2.0, unit: "m".into() }
    }

    fn text(&self) -> String {
        format!("Taller(id={}, level={:?}, unit='{}')", self.id, self.level, self.unit)
    }
}

#[derive(DdsType)]
#[dust_dds(name = "plant::Loose", extensibility = "mutable")]
struct Loose {
    #[dust_dds(id = 0, key)]
    id: u32,
    #[dust_dds(id = 1)]
    level: f64,
    #[dust_dds(id = 2)]
    name: String,
}

impl Value for Loose {
    const NAME: &str = "plant::Loose";

    fn numbered(number: u16) -> Loose {
        Loose { id: number.into(), level: f64::from(number) / 2.0, name: format!("loose {number}") }
    }

    fn text(&self) -> String {
        format!("Loose(id={}, level={:?}, name='{}')", self.id, self.level, self.name)
    }
}

const RELIABLE: ReliabilityQosPolicy = ReliabilityQosPolicy {
    kind: ReliabilityQosPolicyKind::Reliable,
    max_blocking_time: DurationKind::Finite(dust_dds::infrastructure::time::Duration::new(10, 0)),
};
const KEPT: DurabilityQosPolicy = DurabilityQosPolicy { kind: DurabilityQosPolicyKind::TransientLocal };
const ALL: HistoryQosPolicy = HistoryQosPolicy { kind: HistoryQosPolicyKind::KeepAll };

fn main() {
    let [mode, domain, topic, of] = env::args().skip(1).collect::<Vec<_>>().try_into().expect("MODE DOMAIN TOPIC TYPE");
    thread::spawn(|| {
        io::stdin().lines().for_each(drop);
        std::process::exit(0);
    });
    let factory = DomainParticipantFactory::get_instance();
    // Dust DDS announces types with other hashes than Cyclone DDS computes, so readers that
    // announce them match no writer of Cyclone's.
    let is_told = matches!(mode.as_str(), "write" | "keep");
    let configuration = DustDdsConfigurationBuilder::new().enable_type_information(is_told).build();
    *factory.get_mut_configuration() = configuration.expect("a configuration");
    factory.get_mut_transport().set_interface_name(Some("lo".into()));
    let domain = domain.parse().expect("a domain is a number");
    let participant = factory.create_participant(domain, QosKind::Default, NO_LISTENER, NO_STATUS);
    let participant = participant.expect("a participant");
    match of.as_str() {
        "Pump" => run::<Pump>(&participant, &mode, &topic),
        "Note" => run::<Note>(&participant, &mode, &topic),
        "Grown" => run::<Grown>(&participant, &mode, &topic),
        "Taller" => run::<Taller>(&participant, &mode, &topic),
        "Loose" => run::<Loose>(&participant, &mode, &topic),
        other => panic!("there is no type '{other}'"),
    }
}

fn run<Of: Value>(participant: &DomainParticipant, mode: &str, topic: &str) {
    let topic = participant.create_topic::<Of>(topic, Of::NAME, QosKind::Default, NO_LISTENER, NO_STATUS);
    let topic = topic.expect("a topic");
    match mode {
        "write" | "keep" => write::<Of>(participant, &topic, mode == "write"),
        "read" | "strict" => read::<Of>(participant, &topic, mode == "strict"),
        other => panic!("there is no mode '{other}'"),
    }
}

fn write<Of: Value>(participant: &DomainParticipant, topic: &Topic, waits: bool) {
    let publisher = participant.create_publisher(QosKind::Default, NO_LISTENER, NO_STATUS).expect("a publisher");
    let qos = DataWriterQos { reliability: RELIABLE, durability: KEPT, history: ALL, ..DataWriterQos::default() };
    let writer = publisher.create_datawriter::<Of>(topic, QosKind::Specific(qos), NO_LISTENER, NO_STATUS);
    let writer = writer.expect("a writer");
    while waits && writer.get_matched_subscriptions().expect("readers").is_empty() {
        thread::sleep(Duration::from_millis(10));
    }
    for number in 1..=3 {
        writer.write(Of::numbered(number), None).expect("written");
    }
    if waits && Of::IS_KEYED {
        writer.dispose(Of::numbered(1), None).expect("disposed");
    }
    println!("ready");
    thread::park();
}

struct Told;

impl<Of: 'static> DataReaderListener<Of> for Told {
    fn on_requested_incompatible_qos(
        &mut self,
        _: DataReaderAsync<Of>,
        status: RequestedIncompatibleQosStatus,
    ) -> impl Future<Output = ()> + Send {
        println!("incompatible {}", status.last_policy_id);
        future::ready(())
    }
}

fn read<Of: Value>(participant: &DomainParticipant, topic: &Topic, is_strict: bool) {
    let subscriber = participant.create_subscriber(QosKind::Default, NO_LISTENER, NO_STATUS).expect("a subscriber");
    let mut qos = DataReaderQos { reliability: RELIABLE, durability: KEPT, history: ALL, ..DataReaderQos::default() };
    qos.representation =
        DataRepresentationQosPolicy { value: vec![XCDR_DATA_REPRESENTATION, XCDR2_DATA_REPRESENTATION] };
    if is_strict {
        let period = dust_dds::infrastructure::time::Duration::new(0, 10_000_000);
        qos.deadline = DeadlineQosPolicy { period: DurationKind::Finite(period) };
    }
    let reader = subscriber.create_datareader::<Of>(
        topic,
        QosKind::Specific(qos),
        Some(Told),
        &[StatusKind::RequestedIncompatibleQos],
    );
    let reader = reader.expect("a reader");
    println!("ready");
    loop {
        match reader.take(100, ANY_SAMPLE_STATE, ANY_VIEW_STATE, ANY_INSTANCE_STATE) {
            Err(DdsError::NoData) => thread::sleep(Duration::from_millis(10)),
            Err(error) => panic!("{error:?}"),
            Ok(samples) => {
                for sample in samples {
                    let state = match sample.sample_info.instance_state {
                        InstanceStateKind::Alive => "alive",
                        InstanceStateKind::NotAliveDisposed => "disposed",
                        InstanceStateKind::NotAliveNoWriters => "no writers",
                    };
                    match sample.data {
                        Some(value) => println!("{state} {}", value.text()),
                        None => println!("{state}"),
                    }
                }
            }
        }
    }
}
