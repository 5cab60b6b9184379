//! The command `polywire dict`: trains dictionaries for compressors.

use std::{fs, path::PathBuf};

use anyhow::Context as _;
use clap::Args;
use polywire::{
    Record, Wire,
    codec::{CODECS, Encoder},
    compress::{COMPRESSORS, Compressor, Packer, Settings, dictionary},
};
use serde::Serialize;

use crate::{
    outcome::{self, Misuse, Outcome},
    terminal::Terminal,
    topic::wire_without_endpoint,
    transcode::{
        format::Format,
        message::Next,
        progress,
        source::{self, Source},
    },
    types::{TypeArgs, count},
    verb::{Action, Verb},
};

/// How many bytes of samples are kept. More do not make a better dictionary.
const SAMPLE_BYTES: usize = 64 << 20;

/// One message in this many is held back from training. These messages show the effect of the
/// dictionary.
const HELD_BACK: usize = 8;

pub const VERB: Verb = Verb::group("dict", "Learns dictionaries for compressors", &[TRAIN]);

const TRAIN: Verb = Verb::new::<Train>(
    "train",
    "Learns a dictionary from messages, which makes other messages of the topic much smaller",
)
.details(
    "The messages are JSON lines or frames, as for transcode; `polywire echo TOPIC --count 5000` writes such \
         lines. The publisher names the dictionary in its wire: json+zstd:dict=FILE. Subscribers fetch it by \
         themselves.",
)
.example("polywire dict train many.json --idl weather.idl --codec json --size 1024 --output weather.dict");

#[derive(Args)]
struct Train {
    /// File with messages [default: standard input]
    input: Option<PathBuf>,
    #[command(flatten)]
    ty: TypeArgs,
    /// Codec that will write the messages, CODEC[:OPTIONS]
    #[arg(long, value_name = "CODEC", default_value = CODECS[0].name(), value_parser = wire_without_endpoint)]
    codec: Wire,
    /// Maximum size of the dictionary in bytes
    #[arg(long, value_name = "BYTES", default_value_t = dictionary::DEFAULT_BYTES, value_parser = size)]
    size: usize,
    /// File to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

/// Compressed sizes of the messages that were held back, with and without the dictionary.
#[derive(Serialize)]
struct Worth {
    compressor: &'static str,
    bytes: usize,
    with_dictionary: usize,
}

#[derive(Serialize)]
struct Summary {
    dictionary_bytes: usize,
    samples: usize,
    held_back: usize,
    held_back_bytes: usize,
    worth: Vec<Worth>,
}

impl Action for Train {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        let samples = self.samples(terminal)?;
        let held = |i: &usize| i % HELD_BACK == HELD_BACK - 1;
        let (unseen, seen): (Vec<_>, Vec<_>) = samples.iter().enumerate().partition(|(i, _)| held(i));
        let seen: Vec<&Vec<u8>> = seen.into_iter().map(|(_, sample)| sample).collect();
        let unseen: Vec<&Vec<u8>> = unseen.into_iter().map(|(_, sample)| sample).collect();
        let dictionary = dictionary::train(&seen, self.size)?;
        fs::write(&self.output, &dictionary).with_context(|| format!("cannot write {}", self.output.display()))?;
        let takers = COMPRESSORS.iter().copied().filter(|compressor| compressor.properties().dictionary);
        let summary = Summary {
            dictionary_bytes: dictionary.len(),
            samples: seen.len(),
            held_back: unseen.len(),
            held_back_bytes: unseen.iter().map(|sample| sample.len()).sum(),
            worth: takers.map(|taker| worth(taker, &dictionary, &unseen)).collect::<anyhow::Result<_>>()?,
        };
        self.show(&summary, terminal)?;
        Ok(Outcome::Fine)
    }
}

impl Train {
    /// Returns the messages of the input, encoded by the codec.
    fn samples(&self, terminal: &Terminal) -> anyhow::Result<Vec<Vec<u8>>> {
        if let Some(compressor) = &self.codec.compressor {
            return Err(
                Misuse(format!("a dictionary is learned from uncompressed messages: leave out +{compressor}")).into()
            );
        }
        let format = Format::of(&self.codec)?;
        let bar = progress(self.input.as_deref(), false)?;
        let schema = self.ty.schema(terminal)?;
        let mut source = Source::open(self.input.as_deref(), schema, source::Options::default(), &bar)?;
        let (mut samples, mut bytes) = (Vec::new(), 0);
        let mut encoder: Option<Encoder<Record>> = None;
        while let Some(next) = source.next()? {
            let (value, place) = match next {
                Next::Message(message) => (message.value, message.place),
                Next::Bad(why) => {
                    bar.suspend(|| terminal.warning(&why));
                    continue;
                }
            };
            let Some(value) = value else { continue };
            let fits = encoder.as_ref().filter(|encoder| std::sync::Arc::ptr_eq(encoder.shape(), value.shape()));
            let encoder = match fits {
                Some(_) => encoder.as_ref(),
                None => Some(&*encoder.insert(format.encoder(value.shape())?)),
            };
            let mut sample = Vec::new();
            if let Err(error) = encoder.context("it was just made")?.encode(value, &mut sample) {
                bar.suspend(|| terminal.warning(&format!("{place}: {error}")));
                continue;
            }
            bytes += sample.len();
            samples.push(sample);
            bar.set_message(samples.len().to_string());
            if bytes > SAMPLE_BYTES {
                break;
            }
        }
        bar.finish_and_clear();
        Ok(samples)
    }

    fn show(&self, summary: &Summary, terminal: &Terminal) -> anyhow::Result<()> {
        if terminal.json {
            return terminal.value(summary);
        }
        let (file, bytes) = (self.output.display(), summary.dictionary_bytes);
        terminal.line(&format!("{file}: {bytes} bytes, learned from {}", count(summary.samples, "message")))?;
        let percent = |bytes: usize| bytes * 100 / summary.held_back_bytes.max(1);
        for worth in &summary.worth {
            let (name, with, without) = (worth.compressor, percent(worth.with_dictionary), percent(worth.bytes));
            terminal.line(&format!(
                "{name}: compresses other messages to {with} % of their size, without the dictionary to {without} %"
            ))?;
        }
        Ok(())
    }
}

fn worth(taker: &'static dyn Compressor, dictionary: &[u8], samples: &[&Vec<u8>]) -> anyhow::Result<Worth> {
    let total = |dictionary: &[u8]| -> anyhow::Result<usize> {
        let mut packer = Packer::new(taker, &Settings::default(), dictionary)?;
        let (mut packed, mut total) = (Vec::new(), 0);
        for sample in samples {
            packed.clear();
            packer.pack(sample, &mut packed);
            total += packed.len();
        }
        Ok(total)
    };
    Ok(Worth { compressor: taker.name(), bytes: total(&[])?, with_dictionary: total(dictionary)? })
}

/// Parses the size of a dictionary. Peers accept no document above 1 MiB, and the trainer needs at
/// least 256 bytes.
fn size(text: &str) -> Result<usize, String> {
    let size = text.parse().ok().filter(|size| (256..=1 << 20).contains(size));
    size.ok_or_else(|| "a number from 256 to 1048576 is expected".into())
}
