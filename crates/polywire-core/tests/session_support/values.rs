//! Values and their formats: plain CDR, and FAST with messages that refer to others.

use polywire_core::{
    codec::{
        self, Decoder, Encoder, Options,
        fast::FAST,
        stateful::{Mode, StatefulReader, StatefulWriter},
    },
    envelope::{Id128, Kind},
    program::Backend,
    schema::arbitrary::Random,
};
use polywire_derive::Message;

#[derive(Clone, Debug, Default, PartialEq, Message)]
pub struct Track {
    #[polywire(key)]
    number: u32,
    name: String,
    speed: f64,
    seen: u64,
}

/// How a channel's messages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Plain,
    Stateful(Mode),
}

/// A message as it was published.
#[derive(Clone, Debug, PartialEq)]
pub struct Sent {
    pub kind: Kind,
    pub key_hash: Option<Id128>,
    /// The request that a reply names.
    pub reply_to: Option<u64>,
    pub value: Track,
}

/// The coders that all nodes share.
pub struct Codecs {
    fast: (Encoder<Track>, Decoder<Track>),
    cdr: (Encoder<Track>, Decoder<Track>),
}

impl Codecs {
    pub fn new() -> Codecs {
        let options = Options::default();
        let pair = |codec: &dyn codec::Codec| {
            let encoder = Encoder::with_backend(codec, &options, Backend::Auto).expect("an encoder");
            let decoder = Decoder::with_backend(codec, &options, encoder.schema(), Backend::Auto).expect("a decoder");
            (encoder, decoder)
        };
        Codecs { fast: pair(&FAST), cdr: pair(codec::find("cdr").expect("a codec")) }
    }

    pub fn writer(&self, format: Format) -> Option<StatefulWriter> {
        let Format::Stateful(mode) = format else { return None };
        Some(StatefulWriter::new(self.fast.0.state().expect("FAST has state"), mode, 10))
    }

    pub fn reader(&self, stateful: bool) -> Option<StatefulReader> {
        stateful.then(|| StatefulReader::new(self.fast.1.state().expect("FAST has state")))
    }

    /// Encodes a message, and returns its anchor.
    pub fn encode(
        &self,
        stream: Option<&mut StatefulWriter>,
        sequence: u64,
        value: &Track,
        payload: &mut Vec<u8>,
    ) -> Option<u64> {
        match stream {
            None => {
                self.cdr.0.encode(value, payload).expect("it fits");
                None
            }
            Some(stream) => stream
                .write(sequence, |state, keep| self.fast.0.encode_with(state, keep, value, payload))
                .expect("it fits"),
        }
    }

    /// Decodes a message. False if it refers to a message that is missing.
    pub fn decode(
        &self,
        stream: Option<&mut StatefulReader>,
        sequence: u64,
        anchor: Option<u64>,
        payload: &[u8],
        value: &mut Track,
    ) -> bool {
        use codec::stateful::StatefulError;
        let Some(stream) = stream else {
            self.cdr.1.decode(payload, value).expect("the checksum was right");
            return true;
        };
        match stream.read(sequence, anchor, |state, keep| self.fast.1.decode_with(state, keep, payload, value)) {
            Ok(_) => true,
            Err(StatefulError::Decode(error)) => panic!("message {sequence} came complete: {error}"),
            Err(_) => false,
        }
    }
}

impl Track {
    pub fn walk(&mut self, random: &mut Random) {
        self.seen += 1;
        self.speed += random.below(9) as f64 / 4.0;
        self.number = random.below(4) as u32;
        if random.one_in(10) {
            self.name = ["LH 400", "BA 117", ""][random.below(3)].into();
        }
    }

    /// A hash of the key. Any hash will do here.
    pub fn key_hash(&self) -> Id128 {
        Id128::of_document(&self.number.to_be_bytes())
    }
}
