//! The command `polywire fast learn`: learns a FAST template for a type from messages.

use std::{fs, path::PathBuf, sync::Arc};

use anyhow::{Context as _, bail};
use clap::Args;
use polywire::{
    Record, Shape,
    codec::{
        Encoder, Options,
        fast::{Fast, LearnOptions, learn, template::TemplateSet},
    },
};
use serde::Serialize;

use crate::{
    outcome::{self, Misuse, Outcome},
    terminal::Terminal,
    transcode::{
        message::Next,
        progress, same_file,
        source::{self, Source},
    },
    types::{TypeArgs, count},
    verb::{Action, Verb},
};

/// One part of this many is held back from learning: the last one. It shows the effect of the
/// template.
const PARTS: usize = 8;

/// Maximum number of messages that are read.
const MAX_MESSAGES: usize = 100_000;

pub const VERB: Verb = Verb::new::<Learn>("learn", "Learns a template of your own type from messages")
    .details(
        "The input is that of `polywire transcode`: JSON lines, with the type in --idl, or frames. The command \
         chooses for each field the operator and the initial value that take the fewest bytes. It prints the \
         template as XML, and the size that messages held back from learning have with it. A wire names the \
         template as `fast:template=FILE`.",
    )
    .example("polywire fast learn day.json --idl weather.idl --output weather.xml");

#[derive(Args)]
pub struct Learn {
    /// File of messages in the order in which they were sent [default: standard input]
    input: Option<PathBuf>,
    #[command(flatten)]
    ty: TypeArgs,
    /// Messages from one key frame to the next, as in the option key_interval of a wire; 0 means
    /// that only the first message is a key frame
    #[arg(long, value_name = "N", default_value_t = 0)]
    key_interval: usize,
    /// Turns integers and strings that never change into constants. They take no bytes, and
    /// messages with other values are refused
    #[arg(long)]
    constants: bool,
    /// File to write [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Prints no progress and no summary
    #[arg(short, long)]
    quiet: bool,
}

/// The result of learning, and its effect on the messages that were held back.
#[derive(Debug, Serialize)]
struct Summary {
    samples: usize,
    held_back: usize,
    /// Held-back messages that the template cannot represent.
    refused: usize,
    /// Bytes of the other held-back messages with the learned template.
    learned_bytes: usize,
    /// Bytes of the other held-back messages with the template derived from the type alone.
    derived_bytes: usize,
}

/// The output as JSON if no file is written.
#[derive(Serialize)]
struct Learned<'a> {
    /// The templates as XML.
    templates: &'a str,
    #[serde(flatten)]
    summary: &'a Summary,
}

impl Action for Learn {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        if let (Some(input), Some(output)) = (&self.input, &self.output)
            && same_file(input, output)
        {
            return Err(Misuse(format!("{} would be written while it is read", output.display())).into());
        }
        let messages = self.messages(terminal)?;
        let [first, ..] = &messages[..] else { bail!("there are no messages to learn from") };
        let shape = first.shape().clone();
        let (seen, unseen) = messages.split_at(messages.len() - messages.len() / PARTS);
        let options = LearnOptions { interval: self.key_interval, constants: self.constants };
        let templates = learn(&shape, seen, &options)?.templates;
        let mut summary =
            Summary { samples: seen.len(), held_back: unseen.len(), refused: 0, learned_bytes: 0, derived_bytes: 0 };
        self.compare(&shape, &templates, unseen, &mut summary)?;
        let xml = templates.to_xml();
        match &self.output {
            None if terminal.json => terminal.value(&Learned { templates: &xml, summary: &summary })?,
            None => terminal.text(&xml)?,
            Some(path) => fs::write(path, &xml).with_context(|| format!("cannot write {}", path.display()))?,
        }
        self.show(&summary, terminal)?;
        Ok(Outcome::Fine)
    }
}

impl Learn {
    fn messages(&self, terminal: &Terminal) -> anyhow::Result<Vec<Record>> {
        let bar = progress(self.input.as_deref(), self.quiet)?;
        let schema = self.ty.schema(terminal)?;
        let mut source = Source::open(self.input.as_deref(), schema, source::Options::default(), &bar)?;
        let mut messages: Vec<Record> = Vec::new();
        while let Some(next) = source.next()?
            && messages.len() < MAX_MESSAGES
        {
            match next {
                Next::Message(message) => messages.extend(message.value.cloned()),
                Next::Bad(why) => bar.suspend(|| terminal.warning(&why)),
            }
            bar.set_message(messages.len().to_string());
        }
        bar.finish_and_clear();
        let first = messages.first().map(|first| first.shape().clone());
        let is_other = |record: &Record| first.as_ref().is_some_and(|first| !Arc::ptr_eq(first, record.shape()));
        if messages.iter().any(is_other) {
            bail!("the file has messages of several types: choose one topic with `polywire transcode --topic`");
        }
        Ok(messages)
    }

    /// Encodes the messages as a stream with each of the two templates, and adds up the bytes.
    fn compare(
        &self,
        shape: &Arc<Shape>,
        templates: &TemplateSet,
        messages: &[Record],
        summary: &mut Summary,
    ) -> anyhow::Result<()> {
        let encoder = |codec: &Fast| Encoder::for_shape(codec, &Options::default(), shape);
        let (learned, derived) = (encoder(&Fast::new(templates.clone()))?, encoder(&Fast::default())?);
        let state = |encoder: &Encoder<Record>| encoder.state().context("FAST keeps a state");
        let (mut ours, mut plain) = (state(&learned)?, state(&derived)?);
        let (mut written, mut without) = (Vec::new(), Vec::new());
        for (number, message) in messages.iter().enumerate() {
            if self.key_interval > 0 && number % self.key_interval == 0 {
                ours.reset();
                plain.reset();
            }
            written.clear();
            without.clear();
            derived.encode_with(&mut plain, true, message, &mut without)?;
            match learned.encode_with(&mut ours, true, message, &mut written) {
                Ok(()) => {
                    summary.learned_bytes += written.len();
                    summary.derived_bytes += without.len();
                }
                Err(_) => summary.refused += 1,
            }
        }
        Ok(())
    }

    fn show(&self, summary: &Summary, terminal: &Terminal) -> anyhow::Result<()> {
        let Summary { samples, held_back, refused, learned_bytes, derived_bytes } = summary;
        let percent = learned_bytes * 100 / (*derived_bytes).max(1);
        let mut text = format!(
            "learned from {}; the other {held_back} take {learned_bytes} bytes, {percent} % of the {derived_bytes} with the template derived from the type",
            count(*samples, "message"),
        );
        if *refused > 0 {
            text += &format!("; {refused} of them do not fit the template, because a constant has another value");
        }
        match (self.quiet, &self.output) {
            (true, _) => Ok(()),
            (_, Some(_)) if terminal.json => terminal.value(summary),
            (_, Some(path)) => Ok(terminal.line(&format!("{}: {text}", path.display()))?),
            (_, None) if terminal.json => Ok(()),
            (_, None) => {
                eprintln!("{text}");
                Ok(())
            }
        }
    }
}
