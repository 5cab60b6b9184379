//! Measures the messages of a recording in every format: their bytes, and the time to encode and
//! decode them.

use std::{
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use indicatif::ProgressBar;
use polywire::{
    Record, Shape,
    codec::{CODECS, Codec as Wire, Decoder, Encoder, Options},
    extend::program::State,
};
use serde::Serialize;

use super::{super::Reset, Recording};
use crate::fast::codec::Codec;

/// Number of turns for each format. The median is reported.
const TURNS: usize = 7;
/// Minimum duration of a turn. Until then, it repeats the messages.
const TURN: Duration = Duration::from_millis(20);

/// The average cost of a message in a format.
#[derive(Debug, Serialize)]
pub struct FormatFigures {
    pub format: &'static str,
    pub bytes: f64,
    pub encode_ns: f64,
    pub decode_ns: f64,
}

/// Both directions of a format.
struct Coder {
    name: &'static str,
    encoder: Encoder<Record>,
    decoder: Decoder<Record>,
    /// The states of encoder and decoder, if messages refer to earlier ones.
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
    // A recording has no frame boundaries here. If they reset the dictionaries, each message stands
    // alone instead.
    let own = match reset {
        Reset::Template | Reset::Never => Coder::new("fast, as recorded", codec.ends(), true, &records)?,
        Reset::Message | Reset::Packet => Coder::new("fast, its templates", codec.ends(), false, &records)?,
    };
    let (mut coders, mut left_out) = (vec![own], vec![]);
    for other in CODECS {
        let name = if other.name() == "fast" { "fast, each message alone" } else { other.name() };
        let made = ends(*other, codec.record().shape()).and_then(|ends| Coder::new(name, ends, false, &records));
        match made {
            Ok(coder) => coders.push(coder),
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

/// Returns encoder and decoder of a codec without options.
pub fn ends(codec: &dyn Wire, shape: &Arc<Shape>) -> anyhow::Result<(Encoder<Record>, Decoder<Record>)> {
    let options = Options::default();
    Ok((Encoder::for_shape(codec, &options, shape)?, Decoder::for_shape(codec, &options, shape.schema(), shape)?))
}

impl Coder {
    /// Encodes all messages; with `streams`, messages can refer to earlier ones. Fails if a message
    /// is decoded to another value.
    fn new(
        name: &'static str,
        (encoder, decoder): (Encoder<Record>, Decoder<Record>),
        streams: bool,
        records: &[&Record],
    ) -> anyhow::Result<Coder> {
        let states = encoder.state().zip(decoder.state()).filter(|_| streams).map(|(writer, reader)| [writer, reader]);
        let back = Record::new(decoder.shape());
        let mut coder = Coder { name, encoder, decoder, states, messages: Vec::new(), back, turns: Default::default() };
        coder.messages = coder.write(records)?;
        for (at, record) in records.iter().enumerate() {
            coder.decode(at)?;
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

    /// Decodes the message at this index into the reused value.
    fn decode(&mut self, at: usize) -> anyhow::Result<()> {
        let bytes = black_box(&self.messages[at]);
        match &mut self.states {
            Some([_, state]) => self.decoder.decode_with(state, true, bytes, &mut self.back)?,
            None => self.decoder.decode(bytes, &mut self.back)?,
        };
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
            (0..records.len()).try_for_each(|at| {
                self.decode(at)?;
                black_box(&self.back);
                Ok(())
            })
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

/// Nanoseconds per message.
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
