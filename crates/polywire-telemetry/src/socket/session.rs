//! The protocol of a connection to the socket, without I/O: what a program writes becomes samples,
//! and mistakes are reported in lines to the program.

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    sync::Arc,
};

use polywire::{
    Record, Schema,
    codec::Decoder,
    coding::Dynamic,
    extend::program::Payload,
    schema::{Literal, SchemaLimits},
};
use polywire_idl::{Compiler, Dialect, emit};
use serde_json::json;

use super::{
    calls::{Calls, Wake},
    declared::DeclaredProbe,
    example,
    line::{Line, LineError, MAX_LINE_BYTES, MAX_TEXT, Mistake, Reply, Said, TypeOf, bytes_behind, check_members, cut},
    operation::Operation,
};
use crate::{Uuid, packet::MAX_PAYLOAD_BYTES, uplink::Format};

/// The maximum number of probes of a connection.
const MAX_PROBES: usize = 256;

/// The maximum size of the lines that wait for a program to read them, in bytes. Lines beyond it
/// are dropped and counted.
const MAX_OUTGOING_BYTES: usize = 64 << 10;

/// Passes a declared probe to the node. Returns the node's probe of this name, which may already
/// exist, or why the node refuses the declaration.
pub type Declare = Box<dyn FnMut(&str, DeclaredProbe) -> Result<Arc<DeclaredProbe>, String> + Send>;

/// The state of a connection. The program that drives it does the I/O and has the clock.
///
/// ```
/// use polywire_telemetry::socket::{DeclaredProbe, Session};
/// use std::sync::Arc;
/// // A node that admits every probe.
/// let declare = |_name: &str, probe: DeclaredProbe| Ok(Arc::new(probe));
/// let mut session = Session::new(Box::new(declare), Box::new(|| {}));
/// let mut answer = |lines: &str| {
///     session.take(lines.as_bytes());
///     String::from_utf8(session.outgoing().drain(..).collect())
/// };
/// let declaration = r#"{"probe":"pump","example":{"pressure":2.5}}"#;
/// assert_eq!(answer(&format!("{declaration}\n"))?, "{\"line\":1,\"probe\":\"pump\",\"type\":\"probes::pump\"}\n");
/// assert_eq!(answer("{\"probe\":\"pump\",\"value\":{\"pressure\":3}}\n")?, "", "a sample needs no answer");
/// assert!(answer("{\"probe\":\"fan\",\"value\":{}}\n")?.contains(r#""error":"undeclared""#));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Session {
    declare: Declare,
    calls: Arc<Calls>,
    probes: BTreeMap<String, Entry>,
    /// The received part of an incomplete line or message.
    begun: Vec<u8>,
    expects: Expects,
    /// The number of the last line, from 1.
    line: u64,
    /// The bytes to send to the program.
    outgoing: VecDeque<u8>,
    /// The number of lines for the program that were dropped for lack of room.
    dropped_lines: u64,
}

/// What the next bytes are.
enum Expects {
    Line,
    /// The rest of a line that is too long and is ignored.
    EndOfLine,
    /// A message of this probe, with this number of bytes.
    Message(String, usize),
    /// This number of bytes that are ignored, because the line before them was wrong.
    Waste(usize),
}

/// A probe, and the decoders of its messages.
struct Entry {
    probe: Arc<DeclaredProbe>,
    json: Decoder<Record>,
    format: Option<Decoder<Record>>,
}

impl Session {
    /// Makes the session of a new connection. `wake` is called whenever there is a call to send to
    /// the program ([`Session::outgoing`]).
    pub fn new(declare: Declare, wake: Wake) -> Session {
        Session {
            declare,
            calls: Arc::new(Calls::new(wake)),
            probes: BTreeMap::new(),
            begun: Vec::new(),
            expects: Expects::Line,
            line: 0,
            outgoing: VecDeque::new(),
            dropped_lines: 0,
        }
    }

    /// Processes bytes that the program has written.
    pub fn take(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            bytes = match mem::replace(&mut self.expects, Expects::Line) {
                Expects::Line => self.take_line(bytes),
                Expects::EndOfLine => match bytes.iter().position(|byte| *byte == b'\n') {
                    Some(end) => &bytes[end + 1..],
                    None => {
                        self.expects = Expects::EndOfLine;
                        &[]
                    }
                },
                Expects::Message(probe, len) => self.take_message(probe, len, bytes),
                Expects::Waste(len) => {
                    let (waste, rest) = bytes.split_at(len.min(bytes.len()));
                    if waste.len() < len {
                        self.expects = Expects::Waste(len - waste.len());
                    }
                    rest
                }
            };
        }
    }

    /// Returns the bytes to send to the program: JSON lines. The caller drains the bytes that it
    /// has sent.
    pub fn outgoing(&mut self) -> &mut VecDeque<u8> {
        if self.outgoing.is_empty() && self.dropped_lines > 0 {
            let dropped = mem::take(&mut self.dropped_lines);
            self.queue_line(&json!({ "untold": dropped }));
        }
        // Calls are never dropped.
        while self.outgoing.len() < MAX_OUTGOING_BYTES
            && let Some(line) = self.calls.next_line()
        {
            self.outgoing.extend(line.bytes());
        }
        &mut self.outgoing
    }

    fn take_line<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let (part, rest) = end.map_or((bytes, &[][..]), |end| (&bytes[..end], &bytes[end + 1..]));
        if self.begun.len() + part.len() > MAX_LINE_BYTES {
            self.line += 1;
            self.begun = Vec::new();
            let error = Mistake::TooLong.because(format!("a line has at most {MAX_LINE_BYTES} bytes"));
            self.refuse("", &error);
            self.expects = if end.is_some() { Expects::Line } else { Expects::EndOfLine };
            return rest;
        }
        self.begun.extend_from_slice(part);
        if end.is_some() {
            self.line += 1;
            let line = mem::take(&mut self.begun);
            if !line.trim_ascii().is_empty() {
                self.handle(&line);
            }
        }
        rest
    }

    fn take_message<'a>(&mut self, probe: String, len: usize, bytes: &'a [u8]) -> &'a [u8] {
        let (part, rest) = bytes.split_at((len - self.begun.len()).min(bytes.len()));
        self.begun.extend_from_slice(part);
        if self.begun.len() < len {
            self.expects = Expects::Message(probe, len);
            return rest;
        }
        let message = mem::take(&mut self.begun);
        if let Err(error) = self.sample(&probe, &message, true) {
            self.refuse(&probe, &error);
        }
        rest
    }

    fn handle(&mut self, line: &[u8]) {
        let line = match Said::parse(line) {
            Ok(Said::Line(line)) => line,
            Ok(Said::Reply(reply)) => return self.reply(reply).unwrap_or_else(|error| self.refuse("", &error)),
            Err(error) => {
                if let Some(len) = bytes_behind(line).filter(|len| *len > 0) {
                    self.expects = Expects::Waste(len);
                }
                return self.refuse("", &error);
            }
        };
        let (probe, bytes) = (line.probe.clone(), line.bytes);
        let handled = self.obey(line);
        if let Err(error) = &handled {
            self.refuse(&probe, error);
        }
        if let Some(len) = bytes {
            self.expects = match handled {
                Ok(()) if len == 0 => self.take_empty(probe),
                Ok(()) => Expects::Message(probe, len),
                Err(_) if len == 0 => Expects::Line,
                Err(_) => Expects::Waste(len),
            };
        }
    }

    /// Passes the reply to a call to the node. After an invalid reply, the call continues to wait.
    fn reply(&mut self, Reply { number, answer }: Reply) -> Result<(), LineError> {
        let unknown = || Mistake::Reply.because(format!("no call {number} waits for a reply"));
        let operation = self.calls.operation(number).ok_or_else(unknown)?;
        let answer = match answer {
            Ok(value) => Ok(operation.read_reply(value.get().as_bytes())?),
            Err(text) => Err(text),
        };
        self.calls.answer(number, answer).then_some(()).ok_or_else(unknown)
    }

    fn take_empty(&mut self, probe: String) -> Expects {
        self.take_message(probe, 0, &[]);
        Expects::Line
    }

    fn obey(&mut self, line: Line) -> Result<(), LineError> {
        let Line { probe, declares, type_name, format, value, bytes } = line;
        if bytes.is_some_and(|bytes| bytes > MAX_PAYLOAD_BYTES) {
            return Err(Mistake::TooLong.because(format!("a message has at most {MAX_PAYLOAD_BYTES} bytes")));
        }
        if let Some(declares) = declares {
            self.declare(&probe, &declares, type_name.as_deref())?;
        }
        if let Some(format) = format {
            let entry = self.entry(&probe)?;
            entry.format = Some(decoder(&format, &entry.probe)?);
        }
        match (value, bytes) {
            (Some(value), _) => self.sample(&probe, value.get().as_bytes(), false),
            (None, Some(_)) if self.entry(&probe)?.format.is_none() => {
                Err(Mistake::Format.because("no line has told the 'format' of messages"))
            }
            _ => Ok(()),
        }
    }

    fn declare(&mut self, name: &str, declares: &TypeOf, type_name: Option<&str>) -> Result<(), LineError> {
        if self.probes.len() >= MAX_PROBES && !self.probes.contains_key(name) {
            return Err(Mistake::TooLong.because(format!("a connection has at most {MAX_PROBES} probes")));
        }
        let declared = declared(name, declares, type_name)?;
        // Otherwise the node would attribute the previous probe to another connection.
        if let Some(former) = self.probes.remove(name) {
            former.probe.programs().leave(&self.calls);
        }
        // The node may begin calls as soon as it has the probe.
        declared.programs().enter(&self.calls);
        let probe = (self.declare)(name, declared).map_err(|reason| Mistake::Refused.because(reason))?;
        probe.programs().enter(&self.calls);
        let json = decoder("json", &probe)?;
        let type_name = probe.shape().schema().name().to_owned();
        self.probes.insert(name.to_owned(), Entry { probe, json, format: None });
        self.queue_line(&json!({ "line": self.line, "probe": name, "type": type_name }));
        Ok(())
    }

    /// Passes a sample to the node.
    fn sample(&mut self, name: &str, message: &[u8], is_formatted: bool) -> Result<(), LineError> {
        let entry = self.entry(name)?;
        let wrong = |error: &dyn std::fmt::Display| Mistake::Value.because(error);
        let mut record = entry.probe.spare();
        let decoder = if is_formatted { entry.format.as_ref() } else { None };
        match decoder {
            Some(decoder) => decoder.decode_measured(Payload::Bytes(message), &mut record).map(drop),
            None => {
                check_members(message, entry.probe.shape().schema())?;
                entry.json.decode_measured(Payload::Bytes(message), &mut record).map(drop)
            }
        }
        .map_err(|error| wrong(&error))?;
        let dropped = entry.probe.push(record, message.len());
        if dropped > 0 {
            self.queue_line(&json!({ "line": self.line, "probe": name, "dropped": dropped }));
        }
        Ok(())
    }

    fn entry(&mut self, name: &str) -> Result<&mut Entry, LineError> {
        let undeclared =
            || Mistake::Undeclared.because("a line with 'pdl', 'example' or 'schema' must declare it first");
        self.probes.get_mut(name).ok_or_else(undeclared)
    }

    fn refuse(&mut self, probe: &str, error: &LineError) {
        let text: String = error.text.chars().take(MAX_TEXT).collect();
        let mut line = json!({ "line": self.line, "error": error.kind.name(), "text": text });
        if !probe.is_empty() {
            line["probe"] = probe.into();
        }
        self.queue_line(&line);
    }

    fn queue_line(&mut self, line: &serde_json::Value) {
        let text = line.to_string();
        if self.outgoing.len() + text.len() >= MAX_OUTGOING_BYTES {
            self.dropped_lines += 1;
            return;
        }
        self.outgoing.extend(text.bytes().chain([b'\n']));
    }
}

/// Makes the probe that a line declares.
fn declared(name: &str, declares: &TypeOf, type_name: Option<&str>) -> Result<DeclaredProbe, LineError> {
    let wrong = |error: &dyn std::fmt::Display| Mistake::Type.because(error);
    let mut operations = Vec::new();
    let schema = match declares {
        TypeOf::Pdl(text) => {
            let files = BTreeMap::<String, String>::new();
            let document = Compiler::new().loader(files).parse_as("pdl", text, Dialect::Pdl);
            let document = document.map_err(|errors| wrong(&errors.render(false)))?;
            let own = || document.own_topic_types().map(|def| def.name.clone()).last();
            let name = type_name.map(str::to_owned).or_else(own);
            let name = name.ok_or_else(|| Mistake::Type.because("the text defines no type of samples"))?;
            operations = Operation::all(&document, &name)?;
            document.schema(&name).map_err(|error| wrong(&error))?
        }
        TypeOf::Example(example, units) => {
            let own = || format!("probes::{}", name.replace(['-', '.'], "_"));
            example::schema_of(&type_name.map_or_else(own, str::to_owned), example, units)?
        }
        TypeOf::Schema(digits) => {
            let bytes = bytes_of(digits).ok_or_else(|| Mistake::Type.because("'schema' must be hexadecimal digits"))?;
            Schema::from_bytes(&bytes, &SchemaLimits::default()).map_err(|error| wrong(&error))?
        }
    };
    let annotation = |name: &str| {
        let polywire::schema::Type::Def(root) = schema.root() else { return None };
        let found = schema.def(*root).annotations.iter().find(|annotation| annotation.name == name)?;
        found.args.iter().find_map(|(_, value)| match value {
            Literal::String(text) => Some(text.clone()),
            _ => None,
        })
    };
    // A type without a UUID is identified by its type hash.
    let uuid = annotation("uuid").and_then(|uuid| uuid.parse().ok());
    let uuid = uuid.unwrap_or_else(|| Uuid(schema.type_hash().to_bytes()));
    let version = annotation("version").unwrap_or_else(|| "1.0".to_owned());
    let pdl = match declares {
        TypeOf::Pdl(text) => text.clone(),
        // Names in a foreign schema may be invalid in IDL.
        _ => emit::idl(&schema).unwrap_or_default(),
    };
    let dynamic = Dynamic::of(&schema).map_err(|error| wrong(&error))?;
    Ok(DeclaredProbe::new(dynamic, uuid, version, pdl).with_operations(operations))
}

/// Makes the decoder for messages of a probe in this format.
fn decoder(format: &str, probe: &DeclaredProbe) -> Result<Decoder<Record>, LineError> {
    let wrong = |error: &dyn std::fmt::Display| Mistake::Format.because(error);
    let wire: polywire::Wire = format.parse().map_err(|error| wrong(&error))?;
    if wire.endpoint.is_some() || wire.compressor.is_some() || format.contains("template") {
        return Err(Mistake::Format.because(format!("'{}': a format alone is expected, such as cdr", cut(format))));
    }
    let format = Format::of(&wire).map_err(|error| wrong(&error))?;
    let shape = probe.shape();
    Decoder::for_shape(format.codec(), format.options(), shape.schema(), shape).map_err(|error| wrong(&error))
}

fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = digits.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect::<Option<_>>()?;
    let pairs = digits.chunks_exact(2);
    pairs.remainder().is_empty().then(|| pairs.map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Mutex,
        mpsc::{Receiver, TryRecvError},
    };

    use polywire::codec::Encoder;
    use proptest::prelude::*;
    use serde_json::Value;

    use super::{
        super::calls::{Answer, MAX_CALLS},
        *,
    };

    type Admitted = Arc<Mutex<BTreeMap<String, Arc<DeclaredProbe>>>>;

    /// Makes a session whose node admits every probe except `mine`.
    fn session() -> (Session, Admitted) {
        let admitted = Admitted::default();
        let known = admitted.clone();
        let declare = move |name: &str, declared: DeclaredProbe| {
            if name == "mine" {
                return Err("there is a probe 'mine' already".to_owned());
            }
            let declared = Arc::new(declared);
            known.lock().expect("known").insert(name.to_owned(), declared.clone());
            Ok(declared)
        };
        (Session::new(Box::new(declare), Box::new(|| {})), admitted)
    }

    /// Takes the lines that wait for the program.
    fn sent_lines(session: &mut Session) -> Vec<Value> {
        let bytes: Vec<u8> = session.outgoing().drain(..).collect();
        bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
    }

    const PDL: &str = "module plant { [uuid(152a9bd8-6a03-4d4c-85ef-e720829573c4); version(1.3)] \
                       probe Tank { @unit(\\\"m\\\") real64 level; uint32 serial; }; };";

    /// A conversation with each kind of line, and a message in CDR.
    fn conversation() -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(
            b"{\"probe\":\"pump\",\"example\":{\"bar\":2.5,\"on\":true},\"units\":{\"bar\":\"bar\"}}\n",
        );
        bytes.extend_from_slice(b"{\"probe\":\"pump\",\"value\":{\"bar\":3,\"on\":false}}\n\n");
        bytes.extend_from_slice(format!("{{\"probe\":\"tank\",\"pdl\":\"{PDL}\",\"format\":\"cdr\"}}\n").as_bytes());
        bytes.extend_from_slice(b"{\"probe\":\"tank\",\"bytes\":12}\n");
        bytes.extend_from_slice(&[&1.5f64.to_le_bytes()[..], &7u32.to_le_bytes()[..]].concat());
        bytes.extend_from_slice(b"\n{\"probe\":\"pump\",\"value\":{\"bar\":\"high\"}}\n");
        bytes
            .extend_from_slice(b"{\"probe\":\"tank\",\"bytes\":2}\nxx{\"probe\":\"tank\",\"value\":{\"level\":2.5}}\n");
        bytes
    }

    fn check_conversation(session: &mut Session, admitted: &Admitted) {
        let lines = sent_lines(session);
        let short = |line: &Value| (line["line"].as_u64(), line["error"].as_str().unwrap_or_default().to_owned());
        let expected = [(1, ""), (4, ""), (7, "value"), (8, "value")];
        let expected = expected.map(|(line, error)| (Some(line), error.to_owned()));
        assert_eq!(lines.iter().map(short).collect::<Vec<_>>(), expected, "{lines:?}");
        assert_eq!((&lines[0]["type"], &lines[1]["type"]), (&"probes::pump".into(), &"plant::Tank".into()));
        let admitted = admitted.lock().expect("known");
        let (pump, tank) = (&admitted["pump"], &admitted["tank"]);
        assert_eq!((pump.len(), tank.len()), (1, 2));
        assert_eq!(tank.uuid.to_string(), "152a9bd8-6a03-4d4c-85ef-e720829573c4");
        assert_eq!((tank.version.as_str(), pump.version.as_str()), ("1.3", "1.0"));
        assert!(pump.pdl.contains("@unit(\"bar\")") && tank.pdl.contains("probe Tank"), "{}", pump.pdl);
        let mut probe = tank.probe();
        probe.sample(crate::Moment::default()).expect("a sample");
        assert_eq!(probe.view().get("level").expect("a member").as_f64(), Some(1.5));
        assert_eq!(probe.view().get("serial").expect("a member").as_u64(), Some(7));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// The result does not depend on how the bytes are split.
        #[test]
        fn a_program_declares_probes_and_sends_samples(cuts in prop::collection::vec(any::<u16>(), 0..20)) {
            let bytes = conversation();
            let mut places: Vec<usize> = cuts.iter().map(|cut| usize::from(*cut) % bytes.len()).collect();
            places.sort_unstable();
            let (mut session, admitted) = session();
            let mut before = 0;
            for place in places.into_iter().chain([bytes.len()]) {
                session.take(&bytes[before..place]);
                before = place;
            }
            check_conversation(&mut session, &admitted);
        }
    }

    #[test]
    fn mistakes_are_reported_with_their_kind() {
        let digits = |schema: &Schema| schema.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let schema = example::schema_of("T", &serde_json::json!({ "a": 1 }), &BTreeMap::new()).expect("a type");
        let lines = [
            ("nonsense", "syntax", "no JSON object"),
            ("[1]", "syntax", "no JSON object"),
            ("{}", "syntax", "'probe' is missing"),
            (r#"{"probe":"a/b","value":1}"#, "syntax", "a probe cannot have this name"),
            (r#"{"probe":"p"}"#, "syntax", "neither declares the probe nor has a sample"),
            (r#"{"probe":"p","valu":1}"#, "syntax", "unknown member 'valu', did you mean 'value'?"),
            (r#"{"probe":"p","value":1,"bytes":0}"#, "syntax", "not both"),
            (r#"{"probe":"p","bytes":-1}"#, "syntax", "'bytes' must be the length"),
            (r#"{"probe":"p","pdl":"x","schema":"00"}"#, "syntax", "one of 'pdl', 'example' and 'schema'"),
            (r#"{"probe":"p","value":1}"#, "undeclared", "must declare it first"),
            (r#"{"probe":"p","format":"cdr"}"#, "undeclared", "must declare it first"),
            (r#"{"probe":"p","pdl":"probe"}"#, "type", "expected"),
            (r#"{"probe":"p","pdl":"typedef long A;"}"#, "type", "defines no type of samples"),
            (r##"{"probe":"p","pdl":"#include \"/etc/passwd\"\nprobe P { long a; };"}"##, "type", "/etc/passwd"),
            (r#"{"probe":"p","schema":"0"}"#, "type", "hexadecimal digits"),
            (r#"{"probe":"p","schema":"ff"}"#, "type", ""),
            (r#"{"probe":"p","example":{"a":null}}"#, "type", "'a' is null"),
            (r#"{"probe":"mine","example":{"a":1}}"#, "refused", "there is a probe 'mine' already"),
            (r#"{"probe":"p","example":{"a":1},"value":{"b":1}}"#, "value", "the type has no member 'b'"),
            (r#"{"probe":"p","value":{"a":1.5}}"#, "value", ""),
            (r#"{"probe":"p","bytes":1}"#, "format", "no line has told the 'format'"),
            // The byte that follows the line is ignored.
            (r#"x{"probe":"p","format":"protobof"}"#, "format", ""),
            (r#"{"probe":"p","format":"cdr@tcp/127.0.0.1:1"}"#, "format", "a format alone is expected"),
            (r#"{"probe":"p","format":"fast:template=/etc/passwd"}"#, "format", "a format alone is expected"),
            (r#"{"probe":"p","format":"cdr","bytes":99999999999}"#, "too-long", "at most 1048576 bytes"),
        ];
        let (mut session, _) = session();
        for (at, (line, kind, text)) in lines.iter().enumerate() {
            session.take(format!("{line}\n").as_bytes());
            let found = sent_lines(&mut session);
            let found =
                found.iter().find(|sent| sent["error"].is_string()).unwrap_or_else(|| panic!("{line}: {found:?}"));
            assert_eq!(
                (found["line"].as_u64(), found["error"].as_str()),
                (Some(at as u64 + 1), Some(*kind)),
                "{found}"
            );
            assert!(found["text"].as_str().is_some_and(|found| found.contains(text)), "{line}: {found}");
        }
        // A type as an encoded schema, and the limits of lines.
        let (mut session, admitted) = super::tests::session();
        session
            .take(format!("{{\"probe\":\"p\",\"schema\":\"{}\",\"value\":{{\"a\":7}}}}\n", digits(&schema)).as_bytes());
        assert_eq!(admitted.lock().expect("known")["p"].len(), 1);
        session.take(&vec![b' '; 2 * MAX_LINE_BYTES]);
        session.take(b"\n{\"probe\":\"p\",\"value\":{\"a\":8}}\n");
        let found = sent_lines(&mut session);
        assert_eq!((found.len(), &found[1]["error"], found[1]["line"].as_u64()), (2, &"too-long".into(), Some(2)));
        assert_eq!(admitted.lock().expect("known")["p"].len(), 2, "the next line counts");
    }

    const OPERATIONS: &str =
        "probe Tank { real64 level; uint8 drain(in real64 level, inout string who); void reset(); };";

    /// Makes a session that has declared a probe with operations.
    fn operated() -> (Session, Arc<DeclaredProbe>) {
        let (mut session, admitted) = session();
        session.take(format!("{{\"probe\":\"tank\",\"pdl\":\"{OPERATIONS}\"}}\n").as_bytes());
        assert_eq!(sent_lines(&mut session)[0]["type"], "Tank");
        let tank = admitted.lock().expect("known")["tank"].clone();
        (session, tank)
    }

    /// Begins a call of an operation.
    fn begin(tank: &DeclaredProbe, at: usize, request: &str) -> Result<(u64, Receiver<Answer>), String> {
        tank.programs().latest().ok_or("nobody is there")?.begin("tank", &tank.operations()[at], request)
    }

    #[test]
    fn calls_are_sent_and_their_replies_are_read() {
        let (mut session, tank) = operated();
        assert_eq!(tank.operations().iter().map(|o| o.name.as_str()).collect::<Vec<_>>(), ["drain", "reset"]);
        assert_eq!(tank.operations()[1].summary, "The operation reset");
        let (first, drained) = begin(&tank, 0, r#"{"level":0.5,"who":"ann"}"#).expect("begun");
        let (second, reset) = begin(&tank, 1, "{}").expect("begun");
        let lines = sent_lines(&mut session);
        let drain =
            json!({ "call": 1, "probe": "tank", "command": "drain", "request": { "level": 0.5, "who": "ann" } });
        let other = json!({ "call": 2, "probe": "tank", "command": "reset", "request": {} });
        assert_eq!((lines.as_slice(), first, second), ([drain, other].as_slice(), 1, 2));
        session.take(b"{\"reply\":2,\"value\":{}}\n{\"value\":{\"who\":\"bob\",\"return_\":7},\"reply\":1}\n");
        let drained = drained.try_recv().expect("answered").expect("a value");
        assert_eq!((drained.u64("return_"), drained.str("who")), (Ok(7), Ok("bob")));
        assert!(reset.try_recv().expect("answered").is_ok());
        let (_, stuck) = begin(&tank, 1, "{}").expect("begun");
        let (_, silent) = begin(&tank, 1, "{}").expect("begun");
        let long = "x".repeat(3 * MAX_TEXT);
        session.take(format!("{{\"reply\":3,\"error\":\"{long}\"}}\n{{\"reply\":4,\"error\":\"\"}}\n").as_bytes());
        assert_eq!(stuck.try_recv().expect("answered").err(), Some("x".repeat(MAX_TEXT)));
        assert_eq!(silent.try_recv().expect("answered").err().as_deref(), Some("the program does not say why"));
        assert_eq!(sent_lines(&mut session), [] as [Value; 0], "a call that has ended is not sent");
    }

    #[test]
    fn wrong_replies_are_reported_and_change_nothing() {
        let (mut session, tank) = operated();
        let (_, done) = begin(&tank, 0, "{}").expect("begun");
        let (_, answered) = begin(&tank, 0, "{}").expect("begun");
        sent_lines(&mut session);
        let lines = [
            (r#"{"reply":1,"value":{"return_":1}}"#, "", ""),
            (r#"{"reply":1,"value":{"return_":1}}"#, "reply", "no call 1 waits for a reply"),
            (r#"{"reply":3,"value":{}}"#, "reply", "no call 3"),
            (r#"{"reply":0,"error":"x"}"#, "reply", "no call 0"),
            (r#"{"reply":18446744073709551616,"value":{}}"#, "syntax", "the number of a call"),
            (r#"{"reply":-2,"value":{}}"#, "syntax", "the number of a call"),
            (r#"{"reply":"2","value":{}}"#, "syntax", "the number of a call"),
            (r#"{"reply":2}"#, "syntax", "a 'value' or an 'error'"),
            (r#"{"reply":2,"value":{},"error":"x"}"#, "syntax", "a 'value' or an 'error'"),
            (r#"{"reply":2,"error":7}"#, "syntax", "'error' must be a text"),
            (r#"{"reply":2,"valu":{}}"#, "syntax", "unknown member 'valu', did you mean 'value'?"),
            (r#"{"reply":2,"probe":"tank","value":{}}"#, "syntax", "unknown member 'probe'"),
            (r#"{"reply":2,"value":{"retrun_":1}}"#, "value", "no member 'retrun_', did you mean 'return_'?"),
            (r#"{"reply":2,"value":{"return_":256}}"#, "value", ""),
            (r#"{"reply":2,"value":{"return_":"much"}}"#, "value", ""),
            (r#"{"reply":2,"value":7}"#, "value", ""),
            (r#"{"reply":2,"value":null}"#, "value", ""),
            (r#"{"probe":"tank","reply":2}"#, "syntax", "unknown member 'probe'"),
        ];
        for (line, kind, text) in lines {
            session.take(format!("{line}\n").as_bytes());
            let found = sent_lines(&mut session);
            let found: Vec<(&str, &str)> = found
                .iter()
                .map(|sent| (sent["error"].as_str().unwrap_or("?"), sent["text"].as_str().unwrap_or_default()))
                .collect();
            match kind {
                "" => assert_eq!(found, [], "{line}"),
                _ => assert!(matches!(found[..], [(k, t)] if k == kind && t.contains(text)), "{line}: {found:?}"),
            }
        }
        assert!(done.try_recv().expect("answered").is_ok() && done.try_recv().is_err());
        assert!(answered.try_recv().is_err(), "it still waits");
        session.take(b"{\"reply\":2,\"value\":{\"return_\":9}}\n");
        assert_eq!(answered.try_recv().expect("answered").expect("a value").u64("return_"), Ok(9));
    }

    #[test]
    fn calls_are_bounded_and_fail_when_the_program_has_gone() {
        let (mut session, tank) = operated();
        let failed = |request: &str| begin(&tank, 0, request).map(|_| ()).expect_err("refused");
        assert!(failed(&format!("\"{}\"", "x".repeat(MAX_LINE_BYTES))).contains("the request is too long"));
        let half = format!("\"{}\"", "x".repeat(MAX_LINE_BYTES / 2));
        let (first, _answer) = begin(&tank, 0, &half).expect("begun");
        assert!(failed(&half).contains("the program has not read"));
        let calls = tank.programs().latest().expect("there");
        calls.forget(first);
        assert_eq!(sent_lines(&mut session).len(), 0, "a call that has failed is not sent");
        let answers: Vec<_> = (0..MAX_CALLS).map(|_| begin(&tank, 0, "{}").expect("begun")).collect();
        assert_eq!(failed("{}"), "the program has 16 calls under way already");
        calls.forget(answers[0].0);
        assert!(begin(&tank, 0, "{}").is_ok());
        drop(calls);
        // Another program with the same probe receives the calls while it is connected.
        let (mut other, operations) =
            (Session::new(Box::new(|_, probe| Ok(Arc::new(probe))), Box::new(|| {})), tank.clone());
        other.declare = Box::new(move |_, _| Ok(operations.clone()));
        other.take(format!("{{\"probe\":\"tank\",\"pdl\":\"{OPERATIONS}\"}}\n").as_bytes());
        sent_lines(&mut other);
        begin(&tank, 1, "{}").expect("begun");
        assert_eq!((sent_lines(&mut other)[0]["call"].as_u64(), sent_lines(&mut session).len()), (Some(1), MAX_CALLS));
        drop(other);
        assert_eq!(failed("{}"), "the program has 16 calls under way already");
        // After declaring another type under this name, a program receives no more calls.
        session.take(b"{\"probe\":\"tank\",\"example\":{\"a\":1}}\n");
        assert_eq!(failed("{}"), "nobody is there");
        assert_eq!(answers[1].1.try_recv().err(), Some(TryRecvError::Empty), "calls before it still wait");
        drop(session);
        assert_eq!(answers[1].1.try_recv().err(), Some(TryRecvError::Disconnected));
    }

    #[test]
    fn operations_are_limited() {
        let (mut session, _) = session();
        let pdl = |operations: usize, parameters: usize| {
            let parameters: Vec<String> = (0..parameters).map(|at| format!("in string p{at}")).collect();
            let one = |at: usize| format!("void o{at}({});", parameters.join(","));
            format!("probe P {{ real64 x; {} }};", (0..operations).map(one).collect::<String>())
        };
        let mut declare = |pdl: &str| {
            session.take(format!("{}\n", json!({ "probe": "p", "pdl": pdl })).as_bytes());
            sent_lines(&mut session)[0].clone()
        };
        assert_eq!(declare(&pdl(64, 2))["type"], "P");
        assert_eq!(declare(&pdl(65, 0))["error"], "too-long");
        assert_eq!(declare(&pdl(40, 1000))["error"], "too-long");
        assert_eq!(declare("probe P { void o(real64 x); };")["error"], "type");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// A program may write anything while calls wait for its replies.
        #[test]
        fn hostile_replies_do_no_harm(defects in prop::collection::vec((any::<u16>(), any::<u8>()), 0..20)) {
            let (mut session, tank) = operated();
            let _answers: Vec<_> = (0..MAX_CALLS).map(|at| begin(&tank, at % 2, "{}").expect("begun")).collect();
            let lines: String = (0..MAX_CALLS + 2)
                .map(|at| format!("{{\"reply\":{at},\"value\":{{\"return_\":{at},\"who\":\"x\"}}}}\n"))
                .collect();
            let mut lines = lines.into_bytes();
            for (at, byte) in defects {
                let at = usize::from(at) % lines.len();
                lines[at] = byte;
            }
            session.take(&lines);
            session.take(b"\n");
            for line in sent_lines(&mut session) {
                prop_assert!(line["call"].is_u64() || line["error"].is_string(), "{}", line);
            }
            // The connection can still be used.
            session.take(b"\n{\"probe\":\"tank\",\"value\":{\"level\":1.5}}\n");
            prop_assert_eq!(tank.len(), 1);
        }
    }

    #[test]
    fn the_message_behind_a_wrong_line_is_left_out() {
        let (mut session, admitted) = session();
        session.take(b"{\"probe\":\"p\",\"example\":{\"a\":1}}\n");
        session.take(b"{\"probe\":\"p\",\"valu\":1,\"bytes\":3}\nx\nx{\"probe\":\"p\",\"bytes\":2,\"value\":{}}\nx");
        session.take(b"\n{\"probe\":\"p\",\"value\":{\"a\":2}}\n{\"reply\":1,\"bytes\":1}\n\n");
        session.take(b"{\"probe\":\"p\",\"value\":{\"a\":3}}\n");
        let lines = sent_lines(&mut session);
        let told: Vec<_> = lines.iter().map(|line| (line["line"].as_u64(), line["error"].as_str())).collect();
        let wrong = |line| (Some(line), Some("syntax"));
        assert_eq!(told, [(Some(1), None), wrong(2), wrong(3), wrong(5)], "{lines:?}");
        assert_eq!(admitted.lock().expect("known")["p"].len(), 2);
    }

    #[test]
    fn members_that_nested_types_lack_are_mistakes() {
        let (mut session, admitted) = session();
        let pdl = "struct I { long a; }; struct L { sequence<I> more; }; union U switch (long) { case 1: I i; }; \
                   probe P { I one; sequence<L> list; I grid[1][1]; map<string, I> named; U either; };";
        session.take(format!("{}\n", json!({ "probe": "p", "pdl": pdl })).as_bytes());
        assert_eq!(sent_lines(&mut session)[0]["type"], "P");
        let whole = |inner: Value| {
            json!({ "one": inner, "list": [{ "more": [inner] }], "grid": [[inner]], "named": { "k": inner },
                    "either": { "i": inner } })
        };
        session.take(format!("{}\n", json!({ "probe": "p", "value": whole(json!({ "a": 1 })) })).as_bytes());
        assert_eq!((sent_lines(&mut session), admitted.lock().expect("known")["p"].len()), (vec![], 1));
        let wrong = whole(json!({ "aa": 1 }));
        for (member, value) in wrong.as_object().expect("an object") {
            let line = json!({ "probe": "p", "value": { member.as_str(): value } });
            session.take(format!("{line}\n").as_bytes());
            let found = sent_lines(&mut session);
            assert!(found[0]["text"].as_str().is_some_and(|text| text.contains("no member 'aa'")), "{found:?}");
        }
    }

    #[test]
    fn every_format_is_read() {
        let (mut session, admitted) = session();
        session.take(b"{\"probe\":\"p\",\"example\":{\"level\":1.5,\"name\":\"x\",\"list\":[1]}}\n");
        let probe = admitted.lock().expect("known")["p"].clone();
        let mut record = Record::new(probe.shape());
        record.set("level", 2.5).expect("set");
        record.set("name", "pump").expect("set");
        for codec in polywire::codec::CODECS {
            let encoder = Encoder::for_shape(*codec, &Default::default(), probe.shape()).expect("an encoder");
            let mut message = Vec::new();
            encoder.encode(&record, &mut message).expect("encoded");
            let line = format!("{{\"probe\":\"p\",\"format\":\"{}\",\"bytes\":{}}}\n", codec.name(), message.len());
            session.take(&[line.as_bytes(), &message].concat());
            let mut taken = probe.probe();
            taken.sample(crate::Moment::default()).unwrap_or_else(|error| panic!("{}: {error}", codec.name()));
            assert_eq!(taken.view().get("level").expect("a member").as_f64(), Some(2.5), "{}", codec.name());
        }
        assert_eq!(sent_lines(&mut session).len(), 1, "no errors");
    }

    #[test]
    fn lines_for_a_program_that_does_not_read_are_dropped() {
        let (mut session, _) = session();
        session.take(&b"x\n".repeat(10_000));
        assert!(session.outgoing().len() <= MAX_OUTGOING_BYTES);
        sent_lines(&mut session);
        let lines = sent_lines(&mut session);
        assert!(lines[0]["untold"].as_u64().is_some_and(|dropped| dropped > 9000), "{lines:?}");
    }
}
