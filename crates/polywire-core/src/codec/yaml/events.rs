//! Converts a YAML message to JSON notation, in front of the decoding program. Documents in the
//! style of this library go through a fast reader of its own; all others go through
//! `saphyr-parser`, which passes the YAML test suite, event by event.

use alloc::{collections::BTreeMap, vec::Vec};

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, Tag};

use super::text::{self, Either};
use crate::{
    codec::lower::json::tokens::put_string,
    program::{
        FaultKind, Input, Output, Program, Status,
        adapter::{Adapter, Events, PositionMap},
        kernels::copy::put_again,
    },
};

pub(super) static EVENTS: Adapter = Adapter { name: "yaml events", run, only_after: None };

fn run(_: &Program, input: &mut Input<'_>, events: &mut Events) -> Status {
    rewrite(input, events, Either::Text)
}

/// Rewrites a message as JSON notation, which the program reads.
pub(super) fn rewrite(input: &mut Input<'_>, events: &mut Events, either: Either) -> Status {
    events.write(input, |input, output, positions, _| {
        let text = match printable(input) {
            Ok(text) => text,
            Err(status) => return status,
        };
        if let Some(status) = text::read(text, either, output, positions) {
            return status;
        }
        output.truncate(0);
        positions.clear();
        Status::of(all_of_yaml(input, text, either, output, positions))
    })
}

/// The message as text. Checks that it contains only characters that YAML allows (section 5.1), and
/// skips a byte order mark.
fn printable<'a>(input: &mut Input<'a>) -> Result<&'a str, Status> {
    let bytes = input.message();
    let fail = |input: &mut Input<'_>, at: usize, kind: FaultKind| {
        input.seek(at);
        Err(input.fail(kind, 0, bytes.get(at).copied().unwrap_or(0).into()))
    };
    let text = match core::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => return fail(input, error.valid_up_to(), FaultKind::BadText),
    };
    let unprintable = |pair: &(usize, char)| {
        matches!(pair.1, '\0'..='\u{8}' | '\u{B}' | '\u{C}' | '\u{E}'..='\u{1F}' | '\u{7F}'..='\u{84}' | '\u{86}'..='\u{9F}'
            | '\u{FFFE}' | '\u{FFFF}')
    };
    // Most messages contain no byte that needs a closer look.
    let suspicious = |b: &u8| (*b < b' ' && *b != b'\n') || matches!(*b, 0x7F | 0xC2 | 0xEF);
    if bytes.iter().any(suspicious)
        && let Some((at, _)) = text.char_indices().find(unprintable)
    {
        return fail(input, at, FaultKind::BadText);
    }
    Ok(text)
}

/// What an open collection expects next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Element,
    Key,
    Value,
}

struct Writer<'w, 'i, 'o, 'e> {
    input: &'w mut Input<'i>,
    output: &'w mut Output<'o>,
    positions: &'w mut PositionMap<'e>,
    levels: [Level; text::MAX_DEPTH],
    depth: usize,
    /// True if the innermost collection is still empty.
    first: bool,
    places: Places<'w>,
    either: Either,
    anchors: Anchors,
}

/// Largest number of bytes of JSON that the aliases of a message may write. Aliases that contain
/// aliases can multiply the size of a message.
const MAX_ALIASED: usize = 4 << 20;

/// The ranges of nodes with an anchor in the output.
#[derive(Default)]
struct Anchors {
    /// Start and end by the parser's number of the anchor.
    known: BTreeMap<usize, (usize, usize)>,
    /// Open collections with an anchor: depth, number of the anchor, start.
    open: Vec<(usize, usize, usize)>,
    /// Number of bytes that aliases have written.
    aliased: usize,
}

fn all_of_yaml(
    input: &mut Input<'_>,
    text: &str,
    either: Either,
    output: &mut Output<'_>,
    positions: &mut PositionMap<'_>,
) -> Result<(), Status> {
    input.charge(parser_bytes(text)).ok()?;
    let levels = [Level::Element; text::MAX_DEPTH];
    let places = Places { text, index: 0, byte: 0 };
    let anchors = Anchors::default();
    let mut writer = Writer { input, output, positions, levels, depth: 0, first: true, places, either, anchors };
    let mut documents = 0;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| writer.wrong(&error))?;
        documents += usize::from(matches!(event, Event::DocumentStart(_)));
        if documents > 1 {
            return Err(writer.fail(&span, FaultKind::Trailing));
        }
        writer.event(event, &span)?;
    }
    if documents == 0 {
        return Err(writer.input.fail(FaultKind::Truncated, 1, 0));
    }
    Ok(())
}

/// An estimate of the memory that the parser needs. It keeps all tokens of a flow collection until
/// it knows that the collection is not a key. A token was measured to take up to 320 bytes while
/// the tokens move to a larger block; a delimiter and the scalar beside it are two tokens.
fn parser_bytes(text: &str) -> usize {
    let bytes = text.as_bytes();
    if !bytes.iter().any(|b| matches!(b, b'[' | b'{')) {
        return 0;
    }
    let is_mark = |b: &&u8| matches!(b, b',' | b'[' | b']' | b'{' | b'}' | b':' | b'?' | b'&' | b'!' | b'*');
    bytes.iter().filter(is_mark).count().saturating_mul(2 * 320)
}

impl Writer<'_, '_, '_, '_> {
    fn event(&mut self, event: Event<'_>, span: &Span) -> Result<(), Status> {
        match event {
            Event::Scalar(text, style, anchor, tag) => self.scalar(&text, style, anchor, tag.as_deref(), span),
            Event::SequenceStart(anchor, tag) => self.open(b"[", Level::Element, anchor, (tag.as_deref(), "seq"), span),
            Event::MappingStart(anchor, tag) => self.open(b"{", Level::Key, anchor, (tag.as_deref(), "map"), span),
            Event::SequenceEnd => self.close(b"]"),
            Event::MappingEnd => self.close(b"}"),
            Event::Alias(anchor) => self.alias(anchor, span),
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) | Event::DocumentEnd => {
                Ok(())
            }
        }
    }

    fn level(&self) -> Option<Level> {
        self.levels.get(self.depth.checked_sub(1)?).copied()
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Status> {
        self.output.put(bytes).ok()
    }

    /// Writes what precedes a value or key. Returns true for a key.
    fn begin(&mut self, span: &Span) -> Result<bool, Status> {
        let level = self.level();
        if !self.first && level != Some(Level::Value) {
            self.put(b",")?;
        }
        self.first = false;
        let source = self.places.byte_of(span.start.index());
        self.positions.note(self.output, source);
        Ok(level == Some(Level::Key))
    }

    /// Writes what follows a value or key.
    fn end(&mut self) -> Result<(), Status> {
        let next = match self.level() {
            Some(Level::Key) => {
                self.put(b":")?;
                Level::Value
            }
            Some(Level::Value) => Level::Key,
            _ => return Ok(()),
        };
        if let Some(level) = self.depth.checked_sub(1).and_then(|last| self.levels.get_mut(last)) {
            *level = next;
        }
        Ok(())
    }

    fn open(
        &mut self,
        bracket: &[u8],
        level: Level,
        anchor: usize,
        (tag, kind): (Option<&Tag>, &str),
        span: &Span,
    ) -> Result<(), Status> {
        if tag.is_some_and(|tag| !is_unspecific(tag) && !is_core(tag, kind)) {
            return Err(self.fail(span, FaultKind::Forbidden));
        }
        if self.begin(span)? {
            // Keys must be scalars.
            return Err(self.fail(span, FaultKind::WrongKind));
        }
        if anchor > 0 {
            self.anchors.open.push((self.depth, anchor, self.output.position()));
        }
        self.put(bracket)?;
        let Some(slot) = self.levels.get_mut(self.depth) else {
            let most = text::MAX_DEPTH as u64;
            return Err(self.input.fail(FaultKind::TooDeep, most, most + 1));
        };
        *slot = level;
        self.depth += 1;
        self.first = true;
        Ok(())
    }

    fn close(&mut self, bracket: &[u8]) -> Result<(), Status> {
        self.depth = self.depth.saturating_sub(1);
        self.first = false;
        self.put(bracket)?;
        if let Some((_, anchor, start)) = self.anchors.open.pop_if(|(depth, ..)| *depth == self.depth) {
            self.keep_anchor(anchor, start)?;
        }
        self.end()
    }

    /// Records the output since `start` as the node of an anchor.
    fn keep_anchor(&mut self, anchor: usize, start: usize) -> Result<(), Status> {
        self.input.charge(ANCHOR_BYTES).ok()?;
        self.anchors.known.insert(anchor, (start, self.output.position()));
        Ok(())
    }

    /// Writes the node of an anchor again.
    fn alias(&mut self, anchor: usize, span: &Span) -> Result<(), Status> {
        let is_key = self.begin(span)?;
        // An alias inside its own node would never end. A key that looks like a number has no text
        // for its anchor.
        let Some((start, end)) = self.anchors.known.get(&anchor).copied() else {
            return Err(self.fail(span, FaultKind::Forbidden));
        };
        if is_key && self.output.written().get(start) != Some(&b'"') {
            return Err(self.fail(span, FaultKind::WrongKind));
        }
        self.anchors.aliased = self.anchors.aliased.saturating_add(end - start);
        if self.anchors.aliased > MAX_ALIASED {
            let got = self.anchors.aliased as u64;
            let at = self.places.byte_of(span.start.index());
            self.input.seek(at.min(self.input.end()));
            return Err(self.input.fail(FaultKind::Limit, MAX_ALIASED as u64, got));
        }
        put_again(self.output, start..end).ok()?;
        self.end()
    }

    fn scalar(
        &mut self,
        text: &str,
        style: ScalarStyle,
        anchor: usize,
        tag: Option<&Tag>,
        span: &Span,
    ) -> Result<(), Status> {
        let is_key = self.begin(span)?;
        let start = self.output.position();
        let resolved = match tag {
            None => style == ScalarStyle::Plain,
            Some(tag) if is_unspecific(tag) || is_core(tag, "str") || is_core(tag, "binary") => false,
            Some(tag) if ["null", "bool", "int", "float"].iter().any(|kind| is_core(tag, kind)) => true,
            Some(_) => return Err(self.fail(span, FaultKind::Forbidden)),
        };
        if tag.is_some_and(|tag| is_core(tag, "binary")) {
            self.put(b"\"")?;
            for letters in text.split_ascii_whitespace() {
                // The kernel that reads base64 finds other errors. Quotes and escapes would end the
                // string.
                if letters.bytes().any(|b| matches!(b, b'"' | b'\\' | 0x7F..)) {
                    return Err(self.fail(span, FaultKind::Syntax));
                }
                self.put(letters.as_bytes())?;
            }
            self.put(b"\"")?;
        } else if resolved && !is_key {
            // The tag says that the scalar is a number.
            let either = if tag.is_some() { Either::Number } else { self.either };
            text::put_plain(self.output, text, either).ok()?;
        } else {
            put_string(self.output, text).ok()?;
        }
        // A key is written as a string, so its anchor can stand for a value only if the value is a
        // string, too.
        let same_as_value = !is_key || !resolved || text.starts_with(|c: char| c.is_alphabetic() && !is_word(text));
        if anchor > 0 && same_as_value {
            self.keep_anchor(anchor, start)?;
        }
        self.end()
    }

    #[cold]
    fn fail(&mut self, span: &Span, kind: FaultKind) -> Status {
        let at = self.places.byte_of(span.start.index());
        self.input.seek(at.min(self.input.end()));
        self.input.fail(kind, 0, 0)
    }

    #[cold]
    fn wrong(&mut self, error: &ScanError) -> Status {
        let at = self.places.byte_of(error.marker().index());
        self.input.seek(at.min(self.input.end()));
        let got = self.input.rest().first().copied().unwrap_or(0);
        self.input.fail(FaultKind::Syntax, 0, got.into())
    }
}

/// Memory charged for an anchor, in bytes.
const ANCHOR_BYTES: usize = 64;

/// True for unquoted text that is null or a boolean.
fn is_word(text: &str) -> bool {
    ["null", "true", "false"].iter().any(|word| text.eq_ignore_ascii_case(word))
}

/// The tag `!`: a string, mapping or sequence, whatever the text looks like.
fn is_unspecific(tag: &Tag) -> bool {
    (tag.handle.is_empty() && tag.suffix == "!") || (tag.handle == "!" && tag.suffix.is_empty())
}

fn is_core(tag: &Tag, kind: &str) -> bool {
    (tag.is_yaml_core_schema() && tag.suffix == kind)
        || tag.handle.is_empty() && tag.suffix.strip_prefix("tag:yaml.org,2002:") == Some(kind)
}

/// Converts the parser's character positions to byte offsets. They mostly increase.
struct Places<'t> {
    text: &'t str,
    index: usize,
    byte: usize,
}

impl Places<'_> {
    fn byte_of(&mut self, index: usize) -> usize {
        if index < self.index {
            (self.index, self.byte) = (0, 0);
        }
        let rest = self.text.get(self.byte..).unwrap_or_default();
        let ahead = rest.char_indices().nth(index - self.index).map_or(rest.len(), |(at, _)| at);
        (self.index, self.byte) = (index, self.byte + ahead);
        self.byte
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::{String, ToString};

    use super::*;
    use crate::{
        codec::{
            Encoder, Options,
            yaml::{YAML, YAML_FLOW},
        },
        layout::{Record, Shape, Value},
        program::{Backend, Limits},
        schema::{Def, Member, SchemaBuilder, Type, arbitrary::Random},
    };

    /// The message as JSON, by the fast reader if `simple` is true, otherwise by the parser.
    fn json_of(text: &str, simple: bool) -> Option<serde_json::Value> {
        let limits = Limits::default();
        let mut input = Input::new(text.as_bytes(), &limits);
        let mut events = Events::default();
        let mut known = true;
        let status = events.write(&mut input, |input, output, positions, _| {
            if let Err(status) = printable(input) {
                return status;
            }
            match simple {
                true => text::read(text, Either::Number, output, positions).unwrap_or_else(|| {
                    known = false;
                    Status::Ok
                }),
                false => Status::of(all_of_yaml(input, text, Either::Number, output, positions)),
            }
        });
        let parsed = |text: &[u8]| {
            serde_json::from_slice(text).unwrap_or_else(|error| {
                assert!(error.to_string().contains("number out of range"), "{error}");
                serde_json::Value::Null
            })
        };
        (known && status == Status::Ok).then(|| parsed(events.text()))
    }

    /// A text in this library's style, with nested structures, sequences and all kinds of strings.
    fn text(random: &mut Random, style: &'static dyn crate::codec::Codec) -> String {
        let mut types = SchemaBuilder::new();
        let inner = types.add(Def::structure(
            "Inner",
            [Member::new("name", Type::string()), Member::new("no", Type::sequence(Type::Float64))].into(),
        ));
        let rows = Type::sequence(Type::sequence(Type::string()));
        let root = types.add(Def::structure(
            "Root",
            [
                Member::new("items", Type::sequence(Type::Def(inner))),
                Member::new("rows", rows),
                Member::new("inner", Type::Def(inner)).as_optional(),
                Member::new("map", Type::map(Type::string(), Type::sequence(Type::Def(inner)))),
                Member::new("last", Type::Bool),
            ]
            .into(),
        ));
        let shape = Shape::of(&types.finish(Type::Def(root)).unwrap()).unwrap();
        let words =
            ["a", "no", "12", "a b", "x: y", "- z", "ü\u{2028}", "\u{1}\\\"", "", " s ", "#", "0x1F", "\u{FEFF}\u{7F}"];
        let word = |random: &mut Random| Value::Text((*random.choose(&words)).into());
        let inner = |random: &mut Random| {
            let numbers =
                (0..random.below(3)).map(|_| Value::Float(*random.choose(&[1.5, f64::NAN, -1e300]))).collect();
            Value::fields([("name", word(random)), ("no", Value::List(numbers))])
        };
        let mut record = Record::new(&shape);
        record.set("items", Value::List((0..random.below(3)).map(|_| inner(random)).collect())).unwrap();
        let row = |random: &mut Random| Value::List((0..random.below(3)).map(|_| word(random)).collect());
        record.set("rows", Value::List((0..random.below(4)).map(|_| row(random)).collect())).unwrap();
        if random.one_in(2) {
            record.set("inner", inner(random)).unwrap();
        }
        let entries = (0..random.below(3)).map(|_| {
            let key = word(random);
            (key, Value::List((0..random.below(3)).map(|_| inner(random)).collect()))
        });
        record.set("map", Value::Entries(entries.collect())).unwrap();
        let encoder =
            Encoder::for_shape_with_backend(style, &Options::default(), &shape, Backend::Interpreter).unwrap();
        let mut bytes = Vec::new();
        encoder.encode(&record, &mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    /// The YAML parser accepts every text that the fast reader accepts, with the same result.
    #[test]
    fn both_readers_agree() {
        let mut random = Random::new(5);
        let (mut both, mut neither) = (0, 0);
        for _ in 0..600 {
            for style in [&YAML, &YAML_FLOW] {
                let text = text(&mut random, style);
                assert_eq!(json_of(&text, true), json_of(&text, false), "{text}");
                assert!(json_of(&text, true).is_some(), "{text}");
                for _ in 0..12 {
                    let bad = mutated(&mut random, &text);
                    match json_of(&bad, true) {
                        Some(simple) => {
                            assert_eq!(json_of(&bad, false), Some(simple), "{bad}");
                            both += 1;
                        }
                        None => {
                            let _ = json_of(&bad, false);
                            neither += 1;
                        }
                    }
                }
            }
        }
        assert!(both > 1000 && neither > 1000, "{both}, {neither}");
    }

    fn mutated(random: &mut Random, text: &str) -> String {
        let pieces = [
            "", "\n", " ", "  ", "-", "- ", ":", ": ", "\"", "{", "}", "[", "]", ",", "#", "'", "a", "1", "\\", "?",
            "&a", "*a", "!", "|", "---", "\t",
        ];
        let mut chars: Vec<char> = text.chars().collect();
        for _ in 0..1 + random.below(2) {
            let at = random.below(chars.len() + 1);
            let to = (at + random.below(3)).min(chars.len());
            chars.splice(at..to, random.choose(&pieces).chars());
        }
        chars.into_iter().collect()
    }
}
