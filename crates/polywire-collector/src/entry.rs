//! What handlers receive: a message with its metadata.

use std::sync::Arc;

use polywire::{
    Kind, Record, Sample,
    extend::{envelope::Id128, layout::ValueRef},
};

/// The origin of messages: a writer of a topic in one incarnation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The topic.
    pub topic: String,
    /// The id of the writer.
    pub writer: Id128,
    /// Distinguishes the writer's sequence numbers from those before its restart.
    pub incarnation: u64,
}

/// A message with its metadata. Its type is the schema of the value.
///
/// ```
/// use polywire::{Record, Shape};
/// use polywire_collector::{Entry, Origin};
/// use std::sync::Arc;
/// # #[derive(Default, polywire::Message)]
/// # #[polywire(name = "plant::Pump")]
/// # struct Pump { id: u32 }
/// # use polywire::Message;
/// let record = Record::new(&Shape::of(Pump::shape().schema())?);
/// let origin = Arc::new(Origin { topic: "plant/pump".into(), ..Origin::default() });
/// let entry = Entry::new(origin, 1, 1_700_000_000_000_000_000, record);
/// assert_eq!((entry.type_name(), entry.kind.name()), ("plant::Pump", "data"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Entry {
    /// Topic and writer.
    pub origin: Arc<Origin>,
    /// Sequence number of the writer's message, from 1.
    pub sequence: u64,
    /// Time of publication by the writer's clock, in nanoseconds since 1970.
    pub timestamp_ns: i64,
    /// The kind: data, or the end of an instance. In the latter case only the key members are
    /// valid.
    pub kind: Kind,
    /// The value, in the type of its writer.
    pub value: Record,
    /// The approximate memory of the entry in bytes; the limits of queues count it.
    pub bytes: usize,
}

impl Entry {
    /// Makes an entry with data.
    pub fn new(origin: Arc<Origin>, sequence: u64, timestamp_ns: i64, value: Record) -> Entry {
        let bytes = size_of::<Entry>() + value.shape().layout().default_bytes() + memory(value.view());
        Entry { origin, sequence, timestamp_ns, kind: Kind::Data, value, bytes }
    }

    /// Makes the entry of a message that a subscriber received.
    pub(crate) fn of(sample: Sample<Record>, origin: Arc<Origin>) -> Entry {
        let Sample { value, info } = sample;
        Entry { kind: info.kind, ..Entry::new(origin, info.sequence, info.timestamp_ns, value) }
    }

    /// Returns the topic.
    pub fn topic(&self) -> &str {
        &self.origin.topic
    }

    /// Returns the scoped name of the type.
    pub fn type_name(&self) -> &str {
        self.value.shape().schema().name()
    }

    /// Returns the key members as text, `id=7,place=a`; empty for a type without a key.
    pub(crate) fn instance(&self) -> String {
        let ValueRef::Struct(structure) = self.value.view() else { return String::new() };
        let keys = structure.fields().into_iter().filter(|(member, _)| member.key);
        keys.map(|(member, value)| format!("{}={}", member.name, plain(value))).collect::<Vec<_>>().join(",")
    }
}

/// Returns a value as text, without quotes.
pub(crate) fn plain(value: ValueRef<'_>) -> String {
    value.as_str().map_or_else(|| format!("{value:?}"), str::to_owned)
}

/// Returns the approximate memory that a value has allocated, in bytes. Small list elements count
/// as a word each.
fn memory(value: ValueRef<'_>) -> usize {
    match value {
        ValueRef::Str(text) => text.len(),
        ValueRef::List(list) => match (list.as_bytes(), list.at(0).is_some_and(|first| is_plain(&first))) {
            (Some(bytes), _) => bytes.len(),
            (None, true) => list.len().saturating_mul(8),
            (None, false) => list.iter().map(|element| 32 + memory(element)).sum(),
        },
        ValueRef::Struct(value) => value.fields().into_iter().map(|(_, value)| memory(value)).sum(),
        ValueRef::Union(value) => value.case().map_or(0, |(_, value)| memory(value)),
        ValueRef::Map(map) => map.entries().into_iter().map(|(key, value)| 64 + memory(key) + memory(value)).sum(),
        _ => 0,
    }
}

fn is_plain(value: &ValueRef<'_>) -> bool {
    !matches!(value, ValueRef::Str(_) | ValueRef::List(_) | ValueRef::Struct(_) | ValueRef::Union(_) | ValueRef::Map(_))
}
