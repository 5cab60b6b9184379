//! The kind `forward`: sends messages to another collector in node packets.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, SystemTime},
};

use polywire::{Kind as Message, Node, Pattern, Record, Shape, Wire, codec::Encoder};
use polywire_telemetry::{
    Clocks, Identity, Uuid,
    packet::{MAX_DOCUMENT_BYTES, MAX_PAYLOAD_BYTES, StreamDescription},
    topic_of,
    uplink::{Carrier, CarrierError, Format, Memory, Rule, SpoolLosses, Uplink, UplinkHandle, UplinkOptions},
};

use super::{Handler, Kind};
use crate::{Entry, Expects, HandlerError, Origin, Setting, Settings, json::PerType};

/// How long one call of `sync` waits until the other collector has stored the samples. It is
/// shorter than the time that a handler has at its end.
const PATIENCE: Duration = Duration::from_secs(5);

/// The maximum number of pairs of origin and type whose stream is cached.
const MAX_KNOWN: usize = 4096;

/// The prefix of the topics of nodes' probes.
const PROBES: &str = "probes/";

pub(super) static KIND: Kind = Kind {
    name: "forward",
    summary: "Another collector, which stores before it acknowledges",
    settings: &[Setting {
        name: "to",
        expects: Expects::Required,
        summary: "wire of the other collector, such as cdr@tcp/127.0.0.1:7468",
    }],
    open: |settings, context| Ok(Box::new(Forward::open(settings, context.node())?)),
};

struct Forward {
    to: String,
    /// The name of the collector's node; empty if it cannot be that of a telemetry node.
    node: String,
    format: Format,
    carrier: Carrier,
    handle: UplinkHandle,
    encoders: PerType<Encoder<Record>>,
    /// A cache of the streams by origin and type.
    known: HashMap<StreamKey, Stream>,
    /// All streams, by topic and type.
    streams: BTreeMap<(String, Vec<u8>), u32>,
    payload: Vec<u8>,
}

/// An origin and a type. Both are addresses; the cached value keeps them allocated.
type StreamKey = (usize, usize);
type Stream = (Arc<Origin>, Arc<Shape>, u32);

impl Forward {
    fn open(settings: &Settings, node: &Node) -> Result<Forward, HandlerError> {
        let to = settings.text("to").unwrap_or_default().to_owned();
        let wrong = |error: &dyn std::fmt::Display| HandlerError::Setting(format!("'to': {error}"));
        let wire: Wire = to.parse().map_err(|error| wrong(&error))?;
        if wire.endpoint.is_none() {
            return Err(wrong(&"an endpoint is expected, such as tcp/127.0.0.1:7468"));
        }
        let format = Format::of(&wire).map_err(|error| wrong(&error))?;
        let clocks = Clocks::new();
        // Each start numbers its samples from 0.
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let start = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        let storage = Box::new(Memory::default());
        let uplink = Uplink::new(sender(node, &to), start, storage, UplinkOptions::default(), clocks.now())
            .map_err(|cause| HandlerError::Failed(cause.to_string()))?;
        let carrier = Carrier::start(node, &to, uplink, clocks).map_err(|error| match error {
            CarrierError::Node(error) => wrong(&error),
            error => HandlerError::Failed(error.to_string()),
        })?;
        Ok(Forward {
            to,
            node: if is_node(node.name()) { node.name().to_owned() } else { String::new() },
            format,
            handle: carrier.handle(),
            carrier,
            encoders: PerType::default(),
            known: HashMap::new(),
            streams: BTreeMap::new(),
            payload: Vec::new(),
        })
    }

    /// Returns the stream of an entry, and opens it if necessary.
    fn stream(&mut self, entry: &Entry) -> Result<u32, HandlerError> {
        let (origin, shape) = (&entry.origin, entry.value.shape());
        let key = (Arc::as_ptr(origin).addr(), Arc::as_ptr(shape).addr());
        if let Some((_, _, stream)) = self.known.get(&key) {
            return Ok(*stream);
        }
        let stream = self.open_stream(&origin.topic, shape.schema().to_bytes())?;
        if self.known.len() >= MAX_KNOWN {
            self.known.clear();
        }
        self.known.insert(key, (origin.clone(), shape.clone(), stream));
        Ok(stream)
    }

    /// Returns the stream of a topic and type. All writers of a topic share it.
    fn open_stream(&mut self, topic: &str, schema: Vec<u8>) -> Result<u32, HandlerError> {
        let key = (topic.to_owned(), schema);
        if let Some(stream) = self.streams.get(&key) {
            return Ok(*stream);
        }
        let (node, instance) = name(topic, &self.node);
        check(node, instance, &key.1)?;
        let mut description = StreamDescription {
            node: node.to_owned(),
            instance: instance.to_owned(),
            schema: key.1.clone(),
            ..StreamDescription::default()
        };
        self.format.describe(&mut description);
        let stream = self.handle.open(description, Rule::default());
        // When the handler is opened again, there is room for new streams.
        let stream = stream.map_err(|error| HandlerError::Failed(format!("{}: {error}", self.to)))?;
        self.streams.insert(key, stream);
        Ok(stream)
    }

    fn encode(&mut self, record: &Record) -> Result<(), HandlerError> {
        let refused = |error: &dyn std::fmt::Display| HandlerError::Refused(format!("it cannot be forwarded: {error}"));
        let Forward { format, encoders, payload, .. } = self;
        let make = || Encoder::for_shape(format.codec(), format.options(), record.shape());
        let encoder = encoders.get(record.shape(), make).map_err(|error| refused(&error))?;
        payload.clear();
        encoder.encode(record, payload).map_err(|error| refused(&error))?;
        match payload.len() > MAX_PAYLOAD_BYTES {
            true => Err(refused(&format!("{} bytes are more than {MAX_PAYLOAD_BYTES}", payload.len()))),
            false => Ok(()),
        }
    }
}

impl Handler for Forward {
    fn write(&mut self, entry: &Entry) -> Result<(), HandlerError> {
        if entry.kind != Message::Data {
            return Err(HandlerError::Refused("node packets have no ends of instances".into()));
        }
        self.encode(&entry.value)?;
        let stream = self.stream(entry)?;
        self.handle.offer(stream, &self.payload, entry.timestamp_ns);
        Ok(())
    }

    /// Waits until the handlers of the other collector have stored all samples.
    fn sync(&mut self) -> Result<(), HandlerError> {
        let is_stored = self.carrier.flush(PATIENCE);
        let status = self.handle.status();
        let tell = |reason: &str| format!("{}: {reason}", self.to);
        match status.spool == SpoolLosses::default() {
            _ if status.refused > 0 => Err(HandlerError::Failed(tell("the collector refuses messages"))),
            false => Err(HandlerError::Failed(tell("there is more than can wait for it"))),
            // The uplink still has them, and the other collector knows them by their numbers.
            true if !is_stored => Err(HandlerError::Delayed(tell("the collector has not stored everything"))),
            true => Ok(()),
        }
    }
}

/// Returns the UUID of the sender: constant for a pair of node and target collector, and different
/// for each target collector.
fn sender(node: &Node, to: &str) -> Uuid {
    let mut id = node.hello().node.0;
    for (at, byte) in to.bytes().enumerate() {
        let place = at % id.len();
        id[place] = id[place].rotate_left(1) ^ byte;
    }
    Uuid(id)
}

/// Returns the node and the instance of a topic. Probes keep their names at the other collector;
/// other topics become instances of this node.
fn name<'a>(topic: &'a str, node: &'a str) -> (&'a str, &'a str) {
    let of_probe = topic.strip_prefix(PROBES).and_then(|rest| rest.split_once('/'));
    of_probe.filter(|(node, _)| is_node(node)).unwrap_or((node, topic))
}

/// Returns whether a node can have this name.
fn is_node(name: &str) -> bool {
    Identity::new(name).is_ok()
}

/// Refuses a stream that the other collector would refuse together with the packet.
fn check(node: &str, instance: &str, schema: &[u8]) -> Result<(), HandlerError> {
    // The other collector puts a UUID in place of an empty name.
    let uuid = Uuid::of(0).to_string();
    let topic = topic_of(if node.is_empty() { uuid.as_str() } else { node }, instance);
    if let Err(error) = topic.parse::<Pattern>() {
        return Err(HandlerError::Refused(format!("it cannot be forwarded: {error}")));
    }
    match schema.len() > MAX_DOCUMENT_BYTES {
        true => Err(HandlerError::Refused(format!("its type has more than {MAX_DOCUMENT_BYTES} bytes"))),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_keep_their_names() {
        assert_eq!(name("probes/pump-house/load", "here"), ("pump-house", "load"));
        assert_eq!(name("probes/pump-house/a/b", "here"), ("pump-house", "a/b"));
        assert_eq!(name("plant/pump", "here"), ("here", "plant/pump"));
        assert_eq!(name("probes/load", "here"), ("here", "probes/load"));
        assert_eq!(name("probes/a b/load", "here"), ("here", "probes/a b/load"));
        assert!(check("here", "plant/pump", b"").is_ok() && check("", "plant/pump", b"").is_ok());
        for (node, instance, schema) in
            [("here", "x".repeat(1015), 0), ("", "x".repeat(990), 0), ("here", "pump".into(), MAX_DOCUMENT_BYTES + 1)]
        {
            assert!(matches!(check(node, &instance, &vec![0; schema]), Err(HandlerError::Refused(_))), "{instance}");
        }
        let node = Node::new();
        assert_ne!(sender(&node, "tcp/127.0.0.1:1"), sender(&node, "tcp/127.0.0.1:2"));
        assert_eq!(sender(&node, "a"), sender(&node, "a"));
    }
}
