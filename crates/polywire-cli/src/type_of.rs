//! The command `polywire typeof`: prints the type of a topic, or of a file, as IDL.

use std::{
    fs,
    path::PathBuf,
    sync::mpsc::{self, Sender},
    time::Duration,
};

use anyhow::{Context as _, bail};
use clap::Args;
use polywire::{
    codec::{BuildError, Codec, Options},
    extend::program::{CodecError, Payload},
    schema::Schema,
};
use polywire::{coding::Coding, engine::Overflow};
use polywire_idl::emit;
use serde::Serialize;

use crate::{
    echo::nothing_came,
    outcome::{self, Misuse, Outcome},
    seconds::Seconds,
    terminal::Terminal,
    topic::{WireArgs, place},
    types::TypeArgs,
    verb::{Action, Verb},
    watch::Watch,
};

/// How long to wait for further writers of the topic.
const QUIET: Duration = Duration::from_millis(300);

pub const VERB: Verb = Verb::new::<Typeof>("typeof", "Prints a type as IDL that parses to the same type")
    .details("The type comes from a writer of the topic, or with --idl from a file.")
    .example("polywire typeof weather --timeout 60");

#[derive(Args)]
pub struct Typeof {
    /// Topic whose writer is asked for its type
    #[arg(conflicts_with = "idl")]
    topic: Option<String>,
    #[command(flatten)]
    ty: TypeArgs,
    #[command(flatten)]
    wire: WireArgs,
    /// How long to wait for a writer
    #[arg(short, long, value_name = "SECONDS", default_value = "5")]
    timeout: Seconds,
    /// Prints the two hashes instead of the type
    #[arg(long)]
    hash: bool,
    /// Also saves the schema to this file, for --idl FILE.schema
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

#[derive(Serialize)]
struct Printed<'a> {
    #[serde(rename = "type")]
    name: &'a str,
    type_hash: String,
    document_hash: String,
    idl: String,
}

impl Action for Typeof {
    fn run(self, terminal: &Terminal) -> outcome::Result {
        let schema = match (&self.topic, self.ty.schema(terminal)?) {
            (_, Some(schema)) => schema,
            (Some(topic), None) => self.ask(topic, terminal)?,
            (None, None) => return Err(Misuse("whose type? give a TOPIC, or --idl FILE".into()).into()),
        };
        if let Some(path) = &self.save {
            let saved = fs::write(path, schema.to_bytes_with_docs());
            saved.with_context(|| format!("cannot write {}", path.display()))?;
        }
        let (type_hash, document_hash) = (schema.type_hash().to_string(), schema.document_hash().to_string());
        let idl = emit::idl(&schema)?;
        if terminal.json {
            terminal.value(&Printed { name: schema.name(), type_hash, document_hash, idl })?;
        } else if self.hash {
            terminal.text(&format!("type      {type_hash}\ndocument  {document_hash}\n"))?;
        } else {
            terminal.text(&idl)?;
        }
        Ok(Outcome::Fine)
    }
}

impl Typeof {
    /// Subscribes to the topic, which makes the node fetch the writers' schemas.
    fn ask(&self, topic: &str, terminal: &Terminal) -> anyhow::Result<Schema> {
        let (node, wires) = self.wire.open(topic)?;
        let mut watch = Watch::new(&node);
        let (found, schemas) = mpsc::channel();
        let subscribe = wires.subscribe(&node, topic, Ask(found))?;
        let _subscriber = subscribe.queue(1).overflow(Overflow::DropOldest).open();
        let first = schemas.recv_timeout(self.timeout.0);
        if first.is_err() {
            watch.poll(terminal);
        }
        let Ok(schema) = first else {
            if watch.mismatches > 0 {
                bail!("the writer of '{topic}' has not given its type");
            }
            return Err(nothing_came(topic, &place(&wires), &self.timeout.to_string(), &node).into());
        };
        let mut hashes = vec![schema.type_hash()];
        while let Ok(other) = schemas.recv_timeout(QUIET) {
            if !hashes.contains(&other.type_hash()) {
                hashes.push(other.type_hash());
                let text = format!("another writer of '{topic}' has {} {}", other.name(), other.type_hash());
                terminal.warning(&text);
            }
        }
        Ok(schema)
    }
}

/// A coding that passes on the writers' schemas and ignores messages.
#[derive(Clone)]
struct Ask(Sender<Schema>);

impl Coding for Ask {
    type Value = ();
    type Encoder = ();
    type Decoder = ();

    fn schema(&self) -> Option<&Schema> {
        None
    }

    fn default_value(&self) {}

    fn encoder(&self, _: &dyn Codec, _: &Options) -> Result<(), BuildError> {
        Ok(())
    }

    fn decoder(&self, _: &dyn Codec, _: &Options, writer: &Schema) -> Result<(), BuildError> {
        // Fails if the command has its answer and no longer receives.
        let _ = self.0.send(writer.clone());
        Ok(())
    }

    fn encode((): &(), (): &(), _: &mut Vec<u8>) -> Result<(), CodecError> {
        Ok(())
    }

    fn decode_measured((): &(), _: Payload<'_>, (): &mut ()) -> Result<usize, CodecError> {
        Ok(0)
    }
}
