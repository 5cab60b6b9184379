//! A recording's messages in every format.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use indicatif::ProgressBar;
use polywire::{
    Record,
    codec::{CODECS, DynDecoder, DynEncoder, Options},
    program::State,
};
use serde::Serialize;

use super::{super::Reset, Recording};
use crate::fast::codec::Codec;

/// Times that each format goes through the messages; the median is taken.
const TURNS: usize = 7;
/// A turn goes through the messages again until it has taken so long.
const TURN: Duration = Duration::from_millis(20);

/// What the messages take in a format, on average.
#[derive(Debug, Serialize)]
pub struct FormatFigures {
    pub format: String,
    pub bytes: f64,
    pub encode_ns: f64,
    pub decode_ns: f64,
}

/// Both directions of a format.
struct Coder {
    name: String,
    encoder: DynEncoder,
    decoder: DynDecoder,
    /// Of a stream: its two ends.
    states: Option<[State; 2]>,
    messages: Vec<Vec<u8>>,
    back: Record,
    turns: [Vec<f64>; 2],
}

/// Measures the recording's own format and all others, in turns.
pub fn measure(
    codec: &Codec,
    recording: &Recording,
    reset: Reset,
    bar: &ProgressBar,
) -> anyhow::Result<(Vec<FormatFigures>, Vec<String>)> {
    let records: Vec<&Record> = recording.messages.iter().map(|(record, _)| record).collect();
    let (mut coders, mut left_out) = (vec![], vec![]);
    // A stream whose frames reset it is not known message by message.
    let streams = matches!(reset, Reset::Template | Reset::Never);
    coders.push(Coder::recorded(codec, recording, streams)?);
    for other in CODECS {
        let made = Coder::new(codec, other.name(), &records);
        match made {
            Ok(coder) if coder.name != "fast" => coders.push(coder),
            Ok(coder) => coders.push(Coder { name: "fast, each message alone".into(), ..coder }),
            Err(error) => left_out.push(format!("{}: {error:#}", other.name())),
        }
    }
    for turn in 1..=TURNS {
        for coder in &mut coders {
            bar.set_message(format!("measures {}, turn {turn} of {TURNS}", coder.name));
            coder.turn(&records)?;
        }
    }
    Ok((coders.into_iter().map(Coder::figures).collect(), left_out))
}

impl Coder {
    /// The messages as they were recorded.
    fn recorded(codec: &Codec, recording: &Recording, streams: bool) -> anyhow::Result<Coder> {
        let (encoder, decoder) = codec.ends();
        let states = [encoder.state(), decoder.state()];
        let states = match states {
            [Some(encoding), Some(decoding)] if streams => Some([encoding, decoding]),
            _ => None,
        };
        let back = Record::new(codec.record().shape());
        let mut coder = Coder {
            name: if streams { "fast, as recorded".into() } else { "fast, its templates".into() },
            encoder,
            decoder,
            states,
            messages: recording.bytes.clone(),
            back,
            turns: Default::default(),
        };
        let records: Vec<&Record> = recording.messages.iter().map(|(record, _)| record).collect();
        coder.messages = coder.write(&records)?;
        Ok(coder)
    }

    fn new(codec: &Codec, name: &str, records: &[&Record]) -> anyhow::Result<Coder> {
        let shape = codec.record().shape();
        let codec = polywire::codec::find(name).context("it is in the table")?;
        let options = Options::default();
        let encoder = DynEncoder::new(codec, &options, shape)?;
        let decoder = DynDecoder::new(codec, &options, shape.schema(), shape)?;
        let (back, messages) = (Record::new(shape), Vec::new());
        let mut coder =
            Coder { name: name.into(), encoder, decoder, states: None, messages, back, turns: Default::default() };
        coder.messages = coder.write(records)?;
        for (bytes, record) in coder.messages.iter().zip(records) {
            coder.decoder.decode(bytes, &mut coder.back)?;
            anyhow::ensure!(coder.back == **record, "a message comes back as another value");
        }
        Ok(coder)
    }

    fn write(&mut self, records: &[&Record]) -> anyhow::Result<Vec<Vec<u8>>> {
        let write = |record: &&Record| {
            let mut out = Vec::new();
            self.encode(record, &mut out).map(|()| out)
        };
        records.iter().map(write).collect()
    }

    fn encode(&mut self, record: &Record, out: &mut Vec<u8>) -> anyhow::Result<()> {
        out.clear();
        match &mut self.states {
            Some([state, _]) => self.encoder.encode_with(state, true, record, out)?,
            None => self.encoder.encode(record, out)?,
        }
        Ok(())
    }

    fn turn(&mut self, records: &[&Record]) -> anyhow::Result<()> {
        let mut out = Vec::new();
        let ns = time(records.len(), || {
            self.states.iter_mut().flatten().for_each(State::reset);
            records.iter().try_for_each(|record| {
                self.encode(black_box(record), &mut out)?;
                black_box(&out);
                Ok(())
            })
        })?;
        self.turns[0].push(ns);
        let ns = time(records.len(), || {
            self.states.iter_mut().flatten().for_each(State::reset);
            for bytes in &self.messages {
                match &mut self.states {
                    Some([_, state]) => self.decoder.decode_with(state, true, black_box(bytes), &mut self.back)?,
                    None => self.decoder.decode(black_box(bytes), &mut self.back)?,
                };
                black_box(&self.back);
            }
            Ok(())
        })?;
        self.turns[1].push(ns);
        Ok(())
    }

    fn figures(self) -> FormatFigures {
        let bytes = self.messages.iter().map(Vec::len).sum::<usize>() as f64 / self.messages.len() as f64;
        let [encode_ns, decode_ns] = self.turns.map(median);
        FormatFigures { format: self.name, bytes, encode_ns, decode_ns }
    }
}

/// Nanoseconds a message.
fn time(messages: usize, mut round: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let (start, mut rounds) = (Instant::now(), 0usize);
    while rounds == 0 || start.elapsed() < TURN {
        round()?;
        rounds += 1;
    }
    Ok(start.elapsed().as_nanos() as f64 / (rounds * messages) as f64)
}

fn median(mut turns: Vec<f64>) -> f64 {
    turns.sort_by(f64::total_cmp);
    turns.get(turns.len() / 2).copied().unwrap_or(f64::NAN)
}
