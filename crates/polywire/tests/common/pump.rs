//! A keyed type, and its values as a program without Polywire writes them: for the tests of engines
//! whose medium has such programs.

use polywire::Message;
use polywire_core::codec::{self, Options};

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Plant::Pump")]
pub struct Pump {
    #[polywire(key)]
    pub id: u32,
    pub label: String,
    pub pressures: Vec<f64>,
}

/// A type with the same name as the pumps', and another label.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Plant::Pump")]
pub struct OtherPump {
    #[polywire(key)]
    pub id: u32,
    pub label: f64,
}

pub fn pump(id: u32) -> Pump {
    Pump { id, label: format!("pump {id}"), pressures: vec![1.5, f64::from(id)] }
}

/// What a codec makes of a value.
pub fn encoded(format: &str, value: &Pump) -> Vec<u8> {
    let (codec, options) = (codec::find(format).expect("a codec"), Options::default());
    let encoder = codec::Encoder::<Pump>::new(codec, &options).expect("an encoder");
    let mut bytes = Vec::new();
    encoder.encode(value, &mut bytes).expect("it fits");
    bytes
}
