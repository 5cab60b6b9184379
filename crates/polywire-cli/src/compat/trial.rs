//! Tries how a reader without the writer's schema decodes the writer's values, for `compat
//! --without-schema`.

use std::{path::Path, sync::Arc};

use polywire::{
    Record, Shape,
    codec::{Codec, Decoder, Encoder, Options},
    extend::program::CodecError,
    schema::Schema,
};
use polywire_measure::{scenario::TypeSpec, values::ValueModel};
use serde_json::{Map, Value};

use super::{Finding, Judgement, Word};
use crate::text::JsonText;

/// How many values of each value model are tried.
const VALUES: usize = 64;

/// An encoder of the writer, and two decoders of the reader.
pub struct Trial {
    encoder: Encoder<Record>,
    /// Has the writer's schema.
    knowing: Decoder<Record>,
    /// Assumes that the reader's own schema is the writer's.
    alone: Decoder<Record>,
    writer: Arc<Shape>,
    reader: Arc<Shape>,
}

/// How the decoder without the schema reads a value, compared with the one that has it.
#[derive(Clone, PartialEq)]
enum Fate {
    Same,
    Refused(Finding),
    Other(Finding),
}

impl Trial {
    /// Fails if the format cannot carry the types.
    pub fn new(codec: &'static dyn Codec, writer: &Schema, reader: &Schema) -> anyhow::Result<Trial> {
        let options = Options::default();
        // Nodes decode with this option if they do not have the writer's schema.
        let older = codec.options().iter().any(|option| option.name == "older");
        let assuming = if older { "older".parse()? } else { Options::default() };
        let (writer, reader) = (Shape::of(writer)?, Shape::of(reader)?);
        Ok(Trial {
            encoder: Encoder::for_shape(codec, &options, &writer)?,
            knowing: Decoder::for_shape(codec, &options, writer.schema(), &reader)?,
            alone: Decoder::for_shape(codec, &assuming, reader.schema(), &reader)?,
            writer,
            reader,
        })
    }

    /// Returns the verdict for a reader that knows only its own type. It is never better than the
    /// verdict by the rules.
    pub fn without_schema(&self, by_rules: Judgement) -> Judgement {
        let fates: Vec<Fate> = self.values().iter().filter_map(|value| self.fate(value).ok()).collect();
        let misread =
            fates.iter().find_map(|fate| if let Fate::Other(found) = fate { Some(found.clone()) } else { None });
        let refused =
            fates.iter().find_map(|fate| if let Fate::Refused(found) = fate { Some(found.clone()) } else { None });
        match (misread, refused) {
            (Some(found), _) => Judgement { verdict: Word::Misread, findings: vec![found] },
            (None, Some(found)) if fates.contains(&Fate::Same) => {
                let some = Finding { problem: format!("some of the values tried: {}", found.problem), ..found };
                let findings = by_rules.findings.into_iter().chain([some]).collect();
                Judgement { verdict: Word::PerValue, findings }
            }
            (None, Some(found)) => Judgement { verdict: Word::Refused, findings: vec![found] },
            (None, None) if fates.is_empty() => {
                Judgement::refused("no value could be written, so none was tried".into())
            }
            (None, None) => by_rules,
        }
    }

    /// Returns the default value, values from the whole range, and values that change in small
    /// steps.
    fn values(&self) -> Vec<Record> {
        let spec = TypeSpec::default();
        let of = |model: ValueModel| model.records(&self.writer, VALUES, 1, &spec, Path::new(".")).unwrap_or_default();
        let fresh = Record::new(&self.writer);
        [vec![fresh], of(ValueModel::Random), of(ValueModel::Walking)].concat()
    }

    /// Decodes a value with both decoders. Fails if the writer cannot encode the value.
    fn fate(&self, value: &Record) -> anyhow::Result<Fate> {
        let mut bytes = Vec::new();
        self.encoder.encode(value, &mut bytes)?;
        let expected = self.read(&self.knowing, &bytes);
        Ok(match (expected, self.read(&self.alone, &bytes)) {
            (Ok(expected), Ok(got)) => difference("", &expected, &got).map_or(Fate::Same, Fate::Other),
            // Both decoders refuse the value.
            (Err(_), Err(_)) => Fate::Same,
            (Ok(_), Err(error)) => Fate::Refused(refusal(&error)),
            (Err(error), Ok(_)) => {
                let Finding { path, problem, fix } = refusal(&error);
                Fate::Other(Finding { path, problem: format!("it is read but should be refused: {problem}"), fix })
            }
        })
    }

    fn read(&self, decoder: &Decoder<Record>, bytes: &[u8]) -> anyhow::Result<Value> {
        let mut record = Record::new(&self.reader);
        decoder.decode(bytes, &mut record)?;
        Ok(serde_json::from_str(&JsonText::default().of(&record, None)?)?)
    }
}

const FIX: &str = "give the reader the writer's schema, or use a format that names or numbers the members";

fn refusal(error: &anyhow::Error) -> Finding {
    let text = format!("{error:#}");
    let path = error.downcast_ref::<CodecError>().map(|error| error.path.clone()).unwrap_or_default();
    let problem = text.strip_prefix(&format!("{path}: ")).unwrap_or(&text).to_owned();
    Finding { path, problem, fix: Some(FIX.into()) }
}

/// Returns the first member in which two values differ.
fn difference(path: &str, a: &Value, b: &Value) -> Option<Finding> {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let inner = |name: &String| if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            let of = |map: &Map<String, Value>, name: &String| map.get(name).cloned().unwrap_or_default();
            a.keys().chain(b.keys()).find_map(|name| difference(&inner(name), &of(a, name), &of(b, name)))
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            (0..).zip(a.iter().zip(b)).find_map(|(i, (a, b))| difference(&format!("{path}[{i}]"), a, b))
        }
        _ if a == b => None,
        _ => {
            let problem = format!("{} is read as {}", shown(a), shown(b));
            Some(Finding { path: path.to_owned(), problem, fix: Some(FIX.into()) })
        }
    }
}

/// How many characters of a value are shown.
const SHOWN: usize = 60;

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "nothing".into(),
        value => value.to_string().chars().take(SHOWN).collect(),
    }
}
