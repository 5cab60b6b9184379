//! A program as an embedded target has it, with `alloc` and nothing else: `cargo check -p
//! polywire-bare --target thumbv7em-none-eabihf` shows that neither the core nor derived code needs
//! more. Its test shows that it does what it should.
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

/// One of each kind of member that needs code of its own.
#[derive(Message, Clone, Debug, Default, PartialEq)]
#[polywire(name = "Bare::Probe")]
pub struct Probe {
    /// Of the sensor.
    #[polywire(key)]
    pub id: u32,
    /// For people.
    pub name: String,
    /// Newest last.
    pub readings: Vec<f64>,
    /// By name.
    pub limits: BTreeMap<String, i16>,
    /// While it is known.
    pub battery_percent: Option<u8>,
    /// What it does.
    pub mode: Mode,
}

/// What a probe does.
#[derive(Message, Clone, Copy, Debug, Default, PartialEq)]
#[repr(u32)]
pub enum Mode {
    /// Nothing.
    #[default]
    Off,
    /// Its work.
    Measuring = 4,
}

/// The value as it comes back from a codec; none if the codec cannot carry it.
pub fn through(codec: &dyn Codec, value: &Probe) -> Option<Probe> {
    let (options, mut bytes, mut read) = (Options::default(), Vec::new(), Probe::default());
    let encoder = Encoder::<Probe>::new(codec, &options).ok()?;
    encoder.encode(value, &mut bytes).ok()?;
    let decoder = Decoder::<Probe>::new(codec, &options, encoder.schema()).ok()?;
    decoder.decode(&bytes, &mut read).ok()?;
    Some(read)
}

/// A fresh value of a type that came as a document.
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
        let bytes = datagram(b"payload").expect("it is short");
        assert_eq!(DatagramDecoder::default().open(&bytes).expect("it is whole").count(), 2);
    }
}
