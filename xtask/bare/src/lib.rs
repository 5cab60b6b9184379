//! A library like one for an embedded target: it uses `alloc`, but not `std`. Checking it with
//! `cargo check -p polywire-bare --target thumbv7em-none-eabihf`, as `.ci/run` does, shows that
//! neither `polywire-core` nor derived code needs `std`. Its test runs on the host and checks its
//! functions.
#![no_std]

extern crate alloc;

use alloc::{collections::BTreeMap, string::String, vec::Vec};

use polywire_core::{
    codec::{Codec, Decoder, Encoder, Options},
    envelope::{Announcement, Envelope},
    frame::{DatagramEncoder, FrameError, Limits, Start},
    layout::{Record, Shape},
    schema::Schema,
};
use polywire_derive::Message;

/// A structure with one member of each kind for which the derive generates different code.
#[derive(Message, Clone, Debug, Default, PartialEq)]
#[polywire(name = "Bare::Probe")]
pub struct Probe {
    /// The number of the sensor.
    #[polywire(key)]
    pub id: u32,
    /// The name of the sensor, for people.
    pub name: String,
    /// The measured values, the newest last.
    pub readings: Vec<f64>,
    /// The limits of the values by name.
    pub limits: BTreeMap<String, i16>,
    /// The charge of the battery, if it is known.
    pub battery_percent: Option<u8>,
    /// The current activity of the sensor.
    pub mode: Mode,
}

/// The activity of a sensor.
#[derive(Message, Clone, Copy, Debug, Default, PartialEq)]
#[repr(u32)]
pub enum Mode {
    /// It does nothing.
    #[default]
    Off,
    /// It measures.
    Measuring = 4,
}

/// Encodes and decodes the value. `None` if the codec does not support the type or the value.
pub fn through(codec: &dyn Codec, value: &Probe) -> Option<Probe> {
    let (options, mut bytes, mut read) = (Options::default(), Vec::new(), Probe::default());
    let encoder = Encoder::<Probe>::new(codec, &options).ok()?;
    encoder.encode(value, &mut bytes).ok()?;
    let decoder = Decoder::<Probe>::new(codec, &options, encoder.schema()).ok()?;
    decoder.decode(&bytes, &mut read).ok()?;
    Some(read)
}

/// A record with default values, of the type that `document` encodes. `None` if it is malformed.
pub fn record(document: &[u8]) -> Option<Record> {
    let schema = Schema::from_bytes(document, &Default::default()).ok()?;
    Record::try_new(&Shape::of(&schema).ok()?).ok()
}

/// A datagram with one message.
pub fn datagram(payload: &[u8]) -> Result<Vec<u8>, FrameError> {
    let mut encoder = DatagramEncoder::new(Default::default(), 1, Limits::default());
    let (channel, mut bytes) = (encoder.open()?, Vec::new());
    encoder.begin(&mut bytes);
    encoder.announce(channel, Start::default(), &Announcement::default(), &mut bytes);
    encoder.data(&Envelope::data(channel, 1, 0), payload, &mut bytes)?;
    encoder.finish(&mut bytes);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use polywire_core::{codec::CODECS, frame::DatagramDecoder, layout::Message};

    use super::*;

    #[test]
    fn it_does_what_it_should() {
        let limits = BTreeMap::from([(String::from("low"), -5)]);
        let value = Probe { id: 7, readings: [1.5, -0.25].into(), limits, mode: Mode::Measuring, ..Probe::default() };
        for codec in CODECS {
            assert_eq!(through(*codec, &value).as_ref(), Some(&value), "{}", codec.name());
        }
        let record = record(&Probe::shape().schema().to_bytes()).expect("a derived type has a document");
        assert_eq!(record.u64("id"), Ok(0));
        let bytes = datagram(b"payload").expect("a short payload fits");
        assert_eq!(DatagramDecoder::default().open(&bytes).expect("the datagram is valid").count(), 2);
    }
}
