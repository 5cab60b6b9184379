//! Message sequences of random templates, compared with the crate `fastlib` in both directions.
//!
//! The templates avoid the errors of `fastlib`:
//!
//! - initial values of whole decimals,
//! - exponents with a default that has no value,
//! - differences of 64 bits out of range,
//! - the previous value after a tail that is null,
//! - optional differences of strings,
//! - in its encoder, the first value of an increment that has an initial value: without a previous
//!   value, the field that may be left out is the initial value itself, and not the next one (FAST
//!   1.1, 6.3.6).

use super::support::{Feed, digits, template};
use fastlib::{MessageFactory, TextMessageFactory, TextMessageVisitor, Value};
use polywire_core::{
    layout::{Record, StructRef, ValueRef},
    program::{Backend, FaultKind},
    schema::arbitrary::Random,
};
use polywire_testing::seeds;
use std::{
    fmt::Write,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// A field of a random template: its XML, and the state that makes its next value.
struct Field {
    name: String,
    optional: bool,
    kind: Kind,
}

enum Kind {
    Int { min: i128, max: i128, last: i128, increment: Increment },
    Text { last: String, constant: bool },
    Bytes { last: Vec<u8> },
    Decimal { last: i64, exponent: Option<i32> },
    Group(Vec<Field>),
    Sequence(Vec<Field>),
}

/// The state of a field's increment from an initial value.
#[derive(Clone, Copy, PartialEq)]
enum Increment {
    /// There was no message yet.
    Fresh,
    /// The first value is the one after the initial value, which their writer takes for written.
    Miscounted,
    /// There is none, or it had a value.
    Known,
}

fn operator(random: &mut Random, choices: &[&str], value: &str) -> String {
    let name = *random.choose(choices);
    let needed = matches!(name, "constant" | "default");
    match name {
        "" => String::new(),
        _ if needed || random.one_in(2) => format!("<{name} value='{value}'/>"),
        _ => format!("<{name}/>"),
    }
}

fn fields(random: &mut Random, depth: usize, xml: &mut String, next: &mut usize) -> Vec<Field> {
    (0..1 + random.below(6)).map(|_| field(random, depth, xml, next)).collect()
}

fn field(random: &mut Random, depth: usize, xml: &mut String, next: &mut usize) -> Field {
    *next += 1;
    let (name, optional) = (format!("f{next}"), random.one_in(3));
    let presence = if optional { " presence='optional'" } else { "" };
    // In `fastlib`, a null tail leaves the previous value unchanged; by the specification, it
    // becomes empty. For an optional difference it takes the string, too, as nullable, although the
    // length before it says whether there is one.
    let (tail, delta) = if optional { ("copy", "default") } else { ("tail", "delta") };
    let kind = match random.below(if depth > 2 { 6 } else { 8 }) {
        0..=2 => {
            let (tag, min, max): (&str, i128, i128) = *random.choose(&[
                ("int32", i32::MIN.into(), i32::MAX.into()),
                ("uInt32", 0, u32::MAX.into()),
                ("int64", -(1 << 60), 1 << 60),
                ("uInt64", 0, 1 << 60),
            ]);
            let operator = operator(random, &["", "constant", "default", "copy", "increment", "delta"], "7");
            let (min, max) = if operator.starts_with("<constant") { (7, 7) } else { (min, max) };
            write!(xml, "<{tag} name='{name}'{presence}>{operator}</{tag}>").unwrap();
            let increment = if operator.starts_with("<increment value") { Increment::Fresh } else { Increment::Known };
            Kind::Int { min, max, last: 7, increment }
        }
        3 => {
            let charset = if random.one_in(2) { " charset='unicode'" } else { "" };
            let operator = operator(random, &["", "constant", "default", "copy", delta, tail], "start");
            write!(xml, "<string name='{name}'{charset}{presence}>{operator}</string>").unwrap();
            Kind::Text { last: "start".into(), constant: operator.starts_with("<constant") }
        }
        4 => {
            let operator = operator(random, &["", "copy", delta, tail], "616263");
            write!(xml, "<byteVector name='{name}'{presence}>{operator}</byteVector>").unwrap();
            Kind::Bytes { last: b"abc".to_vec() }
        }
        5 if random.one_in(2) => {
            // It does not know the default of a whole decimal, nor what a copy begins with.
            let operator = operator(random, &["", "copy", "delta"], "12.5").replace("copy value='12.5'", "copy");
            write!(xml, "<decimal name='{name}'{presence}>{operator}</decimal>").unwrap();
            Kind::Decimal { last: 125, exponent: None }
        }
        5 => {
            // An exponent that is absent before there was one it asks an initial value of.
            let copy = if optional { "default" } else { "copy" };
            let exponent = operator(random, &["", "constant", "default", copy, "delta"], "-2");
            let mantissa = operator(random, &["", "default", "copy", "delta", "increment"], "100");
            write!(xml, "<decimal name='{name}'{presence}><exponent>{exponent}</exponent><mantissa>{mantissa}</mantissa></decimal>")
                .unwrap();
            Kind::Decimal { last: 100, exponent: exponent.starts_with("<constant").then_some(-2) }
        }
        6 => {
            write!(xml, "<group name='{name}'{presence}>").unwrap();
            let inside = fields(random, depth + 1, xml, next);
            xml.push_str("</group>");
            Kind::Group(inside)
        }
        _ => {
            let length = operator(random, &["", "copy", "delta", "increment", "default"], "1");
            write!(xml, "<sequence name='{name}'{presence}><length name='{name}_n'>{length}</length>").unwrap();
            let inside = fields(random, depth + 1, xml, next);
            xml.push_str("</sequence>");
            Kind::Sequence(inside)
        }
    };
    Field { name, optional, kind }
}

/// The next value of all fields, as JSON.
fn values(random: &mut Random, fields: &mut [Field], json: &mut String) {
    json.push('{');
    for field in fields {
        if field.optional && random.one_in(3) {
            // Null is a previous value, too: the empty one.
            if let Kind::Int { increment, .. } = &mut field.kind {
                *increment = Increment::Known;
            }
            continue;
        }
        if !json.ends_with('{') {
            json.push(',');
        }
        write!(json, "\"{}\":", field.name).unwrap();
        match &mut field.kind {
            Kind::Int { min, max, last, increment } => {
                let wanted = match random.below(6) {
                    0 => *last,
                    1 | 2 => *last + 1,
                    3 => *last - random.below(200) as i128,
                    4 => *last + random.below(100_000) as i128,
                    _ => *random.choose(&[*min, *max, 0, 63, 64, -64, -65, 127, 128]),
                };
                // One more than the largest is too much for it.
                *last = wanted.clamp(*min, (*max - 4).max(*min));
                *increment = match *increment == Increment::Fresh && *last == 7 + 1 {
                    true => Increment::Miscounted,
                    false => Increment::Known,
                };
                write!(json, "{last}").unwrap();
            }
            Kind::Text { last, constant } => {
                if !*constant {
                    change(random, last);
                }
                write!(json, "\"{last}\"").unwrap();
            }
            Kind::Bytes { last } => {
                // Letters, so that both print them alike.
                let mut text = String::from_utf8(last.clone()).unwrap();
                change(random, &mut text);
                *last = text.into_bytes();
                write!(json, "\"{}\"", base64(last)).unwrap();
            }
            Kind::Decimal { last, exponent } => {
                *last += *random.choose(&[0, 1, 1, -7, 500, -100_000]);
                if *last % 10 == 0 {
                    *last += 1;
                }
                let exponent = exponent.unwrap_or_else(|| *random.choose(&[-2, -2, -2, -1, 3, 0]));
                write!(json, "{{\"exponent\":{exponent},\"mantissa\":{last}}}").unwrap();
            }
            Kind::Group(inside) => values(random, inside, json),
            Kind::Sequence(inside) => {
                json.push('[');
                for i in 0..random.below(4) {
                    if i > 0 {
                        json.push(',');
                    }
                    values(random, inside, json);
                }
                json.push(']');
            }
        }
    }
    json.push('}');
}

fn change(random: &mut Random, text: &mut String) {
    match random.below(6) {
        0 | 1 => {}
        2 => text.push('x'),
        3 => drop(text.pop()),
        4 => text.insert(0, 'y'),
        _ => *text = random.choose(&["abcdef", "abcxyz", "zzz", "a"]).to_string(),
    }
}

fn base64(bytes: &[u8]) -> String {
    let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let word = (0..3).fold(0u32, |word, i| word << 8 | u32::from(chunk.get(i).copied().unwrap_or(0)));
        for i in 0..4 {
            let digit = digits[(word >> (18 - 6 * i)) as usize & 63] as char;
            text.push(if i <= chunk.len() { digit } else { '=' });
        }
    }
    text
}

/// A decoded message in one line.
#[derive(Default)]
struct Line(String);

impl MessageFactory for Line {
    fn start_template(&mut self, _: u32, _: &str) {}
    fn stop_template(&mut self) {}
    fn set_value(&mut self, _: u32, name: &str, value: Option<Value>) {
        let text = match value {
            None => return,
            Some(Value::UInt32(v)) => v.to_string(),
            Some(Value::Int32(v)) => v.to_string(),
            Some(Value::UInt64(v)) => v.to_string(),
            Some(Value::Int64(v)) => v.to_string(),
            Some(Value::Decimal(v)) => format!("{}e{}", v.mantissa, v.exponent),
            Some(Value::ASCIIString(v) | Value::UnicodeString(v)) => format!("{v:?}"),
            Some(Value::Bytes(v)) => format!("{v:?}"),
        };
        write!(self.0, "{name}={text};").unwrap();
    }
    fn start_sequence(&mut self, _: u32, name: &str, length: u32) {
        write!(self.0, "{name}*{length}[").unwrap();
    }
    fn start_sequence_item(&mut self, _: u32) {
        self.0.push('(');
    }
    fn stop_sequence_item(&mut self) {
        self.0.push(')');
    }
    fn stop_sequence(&mut self) {
        self.0.push(']');
    }
    fn start_group(&mut self, name: &str) {
        write!(self.0, "{name}(").unwrap();
    }
    fn stop_group(&mut self) {
        self.0.push(')');
    }
    fn start_template_ref(&mut self, _: &str, _: bool) {}
    fn stop_template_ref(&mut self) {}
}

fn line(record: &StructRef<'_>, out: &mut String) {
    for (member, value) in record.fields() {
        let name = &member.name;
        match value {
            ValueRef::Absent => {}
            ValueRef::Str(text) => write!(out, "{name}={text:?};").unwrap(),
            ValueRef::Struct(inner) if inner.field("mantissa").is_some() => {
                let part = |name| inner.field(name).and_then(|v| v.as_i64()).unwrap();
                write!(out, "{name}={}e{};", part("mantissa"), part("exponent")).unwrap();
            }
            ValueRef::Struct(inner) => {
                write!(out, "{name}(").unwrap();
                line(&inner, out);
                out.push(')');
            }
            ValueRef::List(list) if list.as_bytes().is_some() => {
                write!(out, "{name}={:?};", list.as_bytes().unwrap()).unwrap();
            }
            ValueRef::List(list) => {
                write!(out, "{name}*{}[", list.len()).unwrap();
                for element in list.iter() {
                    let ValueRef::Struct(inner) = element else { panic!("elements are structures") };
                    out.push('(');
                    line(&inner, out);
                    out.push(')');
                }
                out.push(']');
            }
            ValueRef::Uint(v) => write!(out, "{name}={v};").unwrap(),
            other => write!(out, "{name}={};", other.as_i64().unwrap()).unwrap(),
        }
    }
}

fn line_of(record: &Record) -> String {
    let ValueRef::Struct(inner) = record.view() else { panic!("a template is a structure") };
    let mut out = String::new();
    line(&inner, &mut out);
    out
}

#[test]
fn both_read_what_the_other_writes() {
    let (mut messages, mut back) = (0, 0);
    for seed in seeds(400) {
        let mut random = Random::new(seed);
        let mut inside = String::new();
        let mut fields = fields(&mut random, 0, &mut inside, &mut 0);
        // Their reader wants a number for each instruction.
        let numbered = inside.replace(" name='f", " id='@' name='f");
        let parts: Vec<&str> = numbered.split('@').collect();
        let mut xml = parts[0].to_string();
        for (i, part) in parts.iter().enumerate().skip(1) {
            write!(xml, "{i}{part}").unwrap();
        }
        let xml = template(&xml);
        let mut feed = Feed::new(&xml, Backend::Interpreter);
        let mut theirs = fastlib::Decoder::new_from_xml(&xml).unwrap_or_else(|error| panic!("{xml}: {error}"));
        let mut text_of = fastlib::Decoder::new_from_xml(&xml).unwrap();
        let mut writer = fastlib::Encoder::new_from_xml(&xml).unwrap();
        let mut ours = feed.decoder.state().unwrap();
        // Its encoder reads a text, which contains neither the exponent of a decimal nor the ends
        // of groups and sequences.
        let mut in_step = !["<decimal", "<sequence", "<group"].iter().any(|tag| inside.contains(tag));
        for _ in 0..12 {
            let mut json = String::new();
            values(&mut random, &mut fields, &mut json);
            let record = feed.record(&json);
            let bytes = match feed.encode(&json) {
                Ok(bytes) => bytes,
                // A tail cannot make a value shorter; an empty previous value has no difference.
                Err(error) if matches!(error.kind, FaultKind::NotEncodable | FaultKind::EmptyPrevious) => continue,
                Err(error) => panic!("seed {seed}: {xml}\n{json}: {error}"),
            };
            let context = || format!("seed {seed}: {xml}\n{json}\n{}", digits(&bytes));
            assert_eq!(feed.decode(&bytes).unwrap_or_else(|e| panic!("{}: {e}", context())), feed.json(&record));
            let mut read = Line::default();
            // It panics on sums that do not fit; then this stream ends.
            let outcome = catch_unwind(AssertUnwindSafe(|| theirs.decode_slice(&bytes, &mut read)));
            let Ok(outcome) = outcome else { break };
            outcome.unwrap_or_else(|error| panic!("{}: {error}", context()));
            assert_eq!(read.0, line_of(&record), "{}", context());
            messages += 1;
            // Compare the messages that it writes, as long as it can.
            let mut text = TextMessageFactory::new();
            text_of.decode_slice(&bytes, &mut text).unwrap();
            // After a miscounted increment its dictionary differs from ours. It is not asked to
            // write groups and sequences.
            let miscounted = |field: &Field| matches!(field.kind, Kind::Int { increment: Increment::Miscounted, .. });
            in_step &= !fields.iter().any(miscounted);
            if !in_step {
                continue;
            }
            let written = catch_unwind(AssertUnwindSafe(|| {
                TextMessageVisitor::from_text(&text.text).and_then(|mut visitor| writer.encode_vec(&mut visitor))
            }));
            let Ok(Ok(written)) = written else {
                in_step = false;
                continue;
            };
            let mut again = Record::new(&feed.shape);
            let decoded = feed.decoder.decode_with(&mut ours, true, &written, &mut again);
            decoded.unwrap_or_else(|error| panic!("{}\ntheirs {}: {error}", context(), digits(&written)));
            assert_eq!(line_of(&again), line_of(&record), "{}\n{}", context(), digits(&written));
            back += 1;
        }
    }
    assert!(messages > 2500 && back > 200, "{messages} messages, {back} of theirs");
}
