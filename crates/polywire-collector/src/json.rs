//! Entries as JSON, and a cache for what handlers need for each type.

use std::{collections::HashMap, sync::Arc};

use polywire::{
    Record, Shape,
    codec::{Encoder, Options, json::JSON},
};

use crate::{Entry, HandlerError};

/// The maximum number of types in a cache.
const MAX_TYPES: usize = 1024;

/// A cache of a handler for each type that it encounters: encoders, columns, statements.
pub(crate) struct PerType<T>(HashMap<usize, (Arc<Shape>, T)>);

impl<T> Default for PerType<T> {
    fn default() -> PerType<T> {
        PerType(HashMap::new())
    }
}

impl<T> PerType<T> {
    /// Returns the cached value for the type, which `make` creates if necessary.
    pub fn get<E>(&mut self, shape: &Arc<Shape>, make: impl FnOnce() -> Result<T, E>) -> Result<&mut T, E> {
        // The map keeps the shape alive, so no other shape can have the same address.
        let address = Arc::as_ptr(shape).addr();
        if !self.0.contains_key(&address) {
            let made = make()?;
            if self.0.len() >= MAX_TYPES {
                self.0.clear();
            }
            self.0.insert(address, (shape.clone(), made));
        }
        match self.0.get_mut(&address) {
            Some((_, kept)) => Ok(kept),
            None => unreachable!("it was inserted"),
        }
    }
}

/// Writes records as JSON with the codec `json`, whose rules are in `spec/json.md`.
///
/// ```
/// # use polywire::{Message, Record, Shape};
/// use polywire_collector::{Entry, JsonText};
/// # #[derive(Default, Message)]
/// # #[polywire(name = "Pump")]
/// # struct Pump { id: u32 }
/// let record = Record::new(&Shape::of(Pump::shape().schema())?);
/// let entry = Entry::new(Default::default(), 1, 0, record);
/// let mut json = JsonText::default();
/// assert_eq!(json.value(&entry)?, r#"{"id":0}"#);
/// assert!(json.line(&entry)?.starts_with(r#"{"topic":"","type":"Pump","#));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Default)]
pub struct JsonText {
    encoders: PerType<Encoder<Record>>,
    bytes: Vec<u8>,
}

impl JsonText {
    /// Returns the value of an entry as JSON.
    pub fn value(&mut self, entry: &Entry) -> Result<&str, HandlerError> {
        self.bytes.clear();
        self.append(&entry.value)?;
        text(&self.bytes)
    }

    /// Returns an entry as one line without a line break: an object with the metadata and, last,
    /// the value.
    pub fn line(&mut self, entry: &Entry) -> Result<&str, HandlerError> {
        self.bytes.clear();
        let string = |text: &str| serde_json::to_string(text).unwrap_or_default();
        let head = format!(
            r#"{{"topic":{},"type":{},"writer":"{}","incarnation":{},"sequence":{},"timestamp_ns":{},"kind":"{}","value":"#,
            string(entry.topic()),
            string(entry.type_name()),
            entry.origin.writer,
            entry.origin.incarnation,
            entry.sequence,
            entry.timestamp_ns,
            entry.kind.name(),
        );
        self.bytes.extend_from_slice(head.as_bytes());
        self.append(&entry.value)?;
        self.bytes.push(b'}');
        text(&self.bytes)
    }

    fn append(&mut self, record: &Record) -> Result<(), HandlerError> {
        let refused = |error: String| HandlerError::Refused(format!("it has no JSON: {error}"));
        let make = || Encoder::for_shape(&JSON, &Options::default(), record.shape());
        let encoder = self.encoders.get(record.shape(), make).map_err(|error| refused(error.to_string()))?;
        encoder.encode(record, &mut self.bytes).map_err(|error| refused(error.to_string()))
    }
}

fn text(bytes: &[u8]) -> Result<&str, HandlerError> {
    std::str::from_utf8(bytes).map_err(|error| HandlerError::Refused(format!("it has no JSON: {error}")))
}
