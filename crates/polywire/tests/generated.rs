//! Rust types generated from IDL, the golden files of `polywire-idl`, compile, and have the same
//! type hashes as the IDL.
//!
//! `POLYWIRE_BLESS=1` writes the generated files again.

use std::{fs, path::Path};

use polywire::codec::{Encoder, Options, json::JSON};
use polywire::{Message, Record, Shape};
use polywire_idl::{Compiler, Document, emit};

#[path = "../../polywire-idl/tests/golden/avenue.rs"]
#[rustfmt::skip]
#[allow(dead_code, clippy::module_inception)]
mod avenue;
#[path = "../../polywire-idl/tests/golden/defaults.rs"]
#[rustfmt::skip]
#[allow(dead_code, clippy::module_inception)]
mod defaults;
#[path = "../../polywire-idl/tests/golden/market_data.rs"]
#[rustfmt::skip]
#[allow(dead_code, clippy::module_inception)]
mod market_data;
#[path = "../../polywire-idl/tests/golden/processor_probe.rs"]
#[rustfmt::skip]
#[allow(dead_code, clippy::module_inception)]
mod processor_probe;
#[path = "../../polywire-idl/tests/golden/switch_probe.rs"]
#[rustfmt::skip]
#[allow(dead_code, clippy::module_inception)]
mod switch_probe;

fn document(file: &str) -> Document {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workloads").join(file);
    let parsed = Compiler::new().parse_file(path.to_str().expect("the path is text"));
    parsed.unwrap_or_else(|errors| panic!("{}", errors.render(false)))
}

/// Checks that the generator still writes the code that these tests were compiled with.
fn is_current(file: &str) {
    let document = document(file);
    let text = emit::rust(document.definitions()).expect("it can be said in Rust");
    let stem = file.split('.').next().expect("it has a stem");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../polywire-idl/tests/golden").join(format!("{stem}.rs"));
    if std::env::var_os("POLYWIRE_BLESS").is_some() {
        fs::write(&path, &text).expect("the file can be written");
    }
    let committed = fs::read_to_string(&path).expect("the file is there");
    assert_eq!(committed, text, "{}: run with POLYWIRE_BLESS=1 and look at the difference", path.display());
}

fn is_same<T: Message>(file: &str, name: &str) {
    let from_idl = document(file).schema(name).expect("the type is there");
    let derived = T::shape().schema();
    assert_eq!(derived.type_hash(), from_idl.type_hash(), "{name}:\n{derived:#?}\n{from_idl:#?}");
}

#[test]
fn generated_files_are_current() {
    for file in ["avenue.idl", "market_data.idl", "processor_probe.pdl", "switch_probe.pdl"] {
        is_current(file);
    }
}

#[test]
fn generated_types_have_the_hash_of_the_idl() {
    is_same::<avenue::avenue::FlightData>("avenue.idl", "Avenue::FlightData");
    is_same::<market_data::middleware_news_brief::MarketData>("market_data.idl", "MarketData");
    is_same::<market_data::middleware_news_brief::QuoteRequest>("market_data.idl", "QuoteRequest");
    is_same::<processor_probe::oasis::system::processor::LinuxProcessorProbe>(
        "processor_probe.pdl",
        "LinuxProcessorProbe",
    );
    is_same::<switch_probe::oasis::network::switch::SwitchProbe>("switch_probe.pdl", "SwitchProbe");
}

#[test]
fn the_measured_types_have_the_hash_of_the_idl() {
    is_same::<polywire_workloads::MarketData>("market_data.idl", "MarketData");
    is_same::<polywire_workloads::ProcessorProbe>("processor_probe.pdl", "ProcessorProbe");
    is_same::<polywire_workloads::LinuxProcessorProbe>("processor_probe.pdl", "LinuxProcessorProbe");
    is_same::<polywire_workloads::CodecsTest10>("codecs_test.pdl", "Codecs_Test");
    is_same::<polywire_workloads::FlightData>("avenue.idl", "Avenue::FlightData");
}

#[test]
fn a_generated_type_travels_in_every_codec() {
    use avenue::avenue::{FlightData, FlightRules, Meteo, SurveillanceEquipment, Waypoint, Wind};
    let flight = FlightData {
        call_sign: "DLH4AB".into(),
        flight_id: u64::MAX,
        rules: FlightRules::InstrumentThenVisual,
        equipment: SurveillanceEquipment(0b1_0101),
        mode_s_address: Some([0x3C, 0x65, 0x1F]),
        route: vec![
            Waypoint { designator: "LALIN".into(), level_ft: Some(-7), ..Default::default() },
            Waypoint::default(),
        ],
        meteo: vec![Meteo { temperature_c: -56, direction_deg: 271.5, wind: Wind::GustKt(88.25) }],
        extensions: [("stand".to_string(), "B17".to_string())].into(),
        radar_image: (0..=255).collect(),
        ..Default::default()
    };
    for codec in polywire::codec::CODECS {
        let options = Default::default();
        let encoder = polywire::codec::Encoder::<FlightData>::new(*codec, &options).expect("it lowers");
        let decoder =
            polywire::codec::Decoder::<FlightData>::new(*codec, &options, encoder.schema()).expect("it lowers");
        let (mut bytes, mut back) = (Vec::new(), FlightData::default());
        encoder.encode(&flight, &mut bytes).expect("it encodes");
        decoder.decode(&bytes, &mut back).unwrap_or_else(|error| panic!("{}: {error}", codec.name()));
        assert_eq!(back, flight, "{}", codec.name());
    }
}

/// Checks that `Default` of a type written by `idl rust` is the initial value of records and
/// decoders.
fn default_is_fresh<T: Message + Default + PartialEq + std::fmt::Debug>() {
    assert_eq!(T::default(), T::default_value());
    let json = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    let mut ours = Vec::new();
    Encoder::<T>::new(&JSON, &Options::default())
        .expect("an encoder")
        .encode(&T::default(), &mut ours)
        .expect("encoded");
    let shape = Shape::of(T::shape().schema()).expect("a shape");
    let record = Record::new(&shape);
    let mut fresh = Vec::new();
    Encoder::for_shape(&JSON, &Options::default(), &shape)
        .expect("an encoder")
        .encode(&record, &mut fresh)
        .expect("encoded");
    assert_eq!(json(ours), json(fresh));
}

#[test]
fn defaults_are_those_of_records() {
    use defaults::defaults::{ByDefault, ByFirst, ByLiteral, ByZero, Everything, Leaf, Recursive};
    default_is_fresh::<ByDefault>();
    default_is_fresh::<ByZero>();
    default_is_fresh::<ByLiteral>();
    default_is_fresh::<Recursive>();
    default_is_fresh::<Leaf>();
    assert_eq!(ByDefault::default(), ByDefault::B(String::new()));
    assert_eq!(ByZero::default(), ByZero::B(7.0));
    assert_eq!(Recursive::default(), Recursive::X(0));
    // If the discriminator selects no case, a record has none; a Rust enum has the first.
    assert_eq!(ByFirst::default(), ByFirst::A(false));
    let everything = Everything::default();
    assert_eq!((everything.leaf.n, everything.leaf.label.as_str(), everything.leaf.absent), (5, "text", None));
    assert_eq!(everything.level, defaults::defaults::Level::Low);
}
