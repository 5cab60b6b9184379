//! The lines that programs write to the socket: JSON objects.

use std::collections::BTreeMap;

use polywire::{
    Schema,
    schema::{DefKind, Type},
};
use serde_json::value::RawValue;

use crate::identity::is_name;

/// The maximum number of bytes of a line.
pub const MAX_LINE_BYTES: usize = 1 << 20;

/// The depth of lists, maps and structures up to which members are checked.
const DEEPEST: usize = 32;

/// The maximum number of characters of an error, in either direction.
pub(super) const MAX_TEXT: usize = 2000;

/// An error in a line or a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub(super) struct LineError {
    /// The kind of mistake.
    pub kind: Mistake,
    /// The human-readable description of the mistake.
    pub text: String,
}

/// A kind of mistake. The socket reports it as [`Mistake::name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mistake {
    /// The line is not a JSON object, or has a member that is unknown or has the wrong type.
    Syntax,
    /// The line or the message exceeds a limit.
    TooLong,
    /// The declared type is invalid.
    Type,
    /// The format is unknown, or does not fit the type.
    Format,
    /// The probe has not been declared on this connection.
    Undeclared,
    /// The value does not fit the type.
    Value,
    /// No call of this number waits for a reply.
    Reply,
    /// The node refuses the probe.
    Refused,
}

impl Mistake {
    /// Returns the name of the mistake in lines of the socket.
    pub fn name(self) -> &'static str {
        match self {
            Mistake::Syntax => "syntax",
            Mistake::TooLong => "too-long",
            Mistake::Type => "type",
            Mistake::Format => "format",
            Mistake::Undeclared => "undeclared",
            Mistake::Value => "value",
            Mistake::Reply => "reply",
            Mistake::Refused => "refused",
        }
    }

    pub(super) fn because(self, text: impl ToString) -> LineError {
        LineError { kind: self, text: text.to_string() }
    }
}

/// The contents of a line.
#[derive(Debug)]
pub(super) enum Said {
    Line(Line),
    Reply(Reply),
}

/// The reply to a call.
#[derive(Debug)]
pub(super) struct Reply {
    /// The number of the call.
    pub number: u64,
    /// The value, or why there is none.
    pub answer: Result<Box<RawValue>, String>,
}

/// A parsed line about a probe.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub probe: String,
    /// The type, if the line declares the probe.
    pub declares: Option<TypeOf>,
    /// The name of the type: selects one of those that PDL defines, or names the one that an
    /// example makes.
    pub type_name: Option<String>,
    /// The format of messages that follow lines.
    pub format: Option<String>,
    /// A sample in JSON.
    pub value: Option<Box<RawValue>>,
    /// The length of the message that follows the line.
    pub bytes: Option<usize>,
}

/// How a line specifies a type.
#[derive(Debug)]
pub(super) enum TypeOf {
    Pdl(String),
    /// An example of a sample, and the units of its members by their paths.
    Example(serde_json::Value, BTreeMap<String, String>),
    /// A schema in hexadecimal digits.
    Schema(String),
}

type Members = BTreeMap<String, Box<RawValue>>;

impl Said {
    pub fn parse(line: &[u8]) -> Result<Said, LineError> {
        let members: Members = serde_json::from_slice(line)
            .map_err(|error| Mistake::Syntax.because(format!("no JSON object: {error}")))?;
        match members.contains_key("reply") {
            true => Reply::of(members).map(Said::Reply),
            false => Line::of(members).map(Said::Line),
        }
    }
}

impl Reply {
    fn of(mut members: Members) -> Result<Reply, LineError> {
        let number = members.remove("reply").and_then(|number| serde_json::from_str(number.get()).ok());
        let number = number.ok_or_else(|| Mistake::Syntax.because("'reply' must be the number of a call"))?;
        let (value, error) = (members.remove("value"), members.remove("error"));
        check_unknown(&members, &["reply", "value", "error"])?;
        let answer = match (value, error) {
            (Some(value), None) => Ok(value),
            (None, Some(error)) => match serde_json::from_str::<String>(error.get()) {
                Ok(text) if text.is_empty() => Err("the program does not say why".to_owned()),
                Ok(text) => Err(text.chars().take(MAX_TEXT).collect()),
                Err(_) => return Err(Mistake::Syntax.because("'error' must be a text")),
            },
            _ => return Err(Mistake::Syntax.because("a reply has a 'value' or an 'error'")),
        };
        Ok(Reply { number, answer })
    }
}

/// Rejects members that no line has.
fn check_unknown(members: &Members, known: &[&'static str]) -> Result<(), LineError> {
    let Some(name) = members.keys().next() else { return Ok(()) };
    let hint = polywire::suggest::hint(name, known.iter().copied());
    Err(Mistake::Syntax.because(format!("unknown member '{}'{hint}", cut(name))))
}

impl Line {
    fn of(mut members: Members) -> Result<Line, LineError> {
        let mut text = |name: &str| -> Result<Option<String>, LineError> {
            let Some(value) = members.remove(name) else { return Ok(None) };
            let text = serde_json::from_str(value.get());
            text.map(Some).map_err(|_| Mistake::Syntax.because(format!("'{name}' must be a text")))
        };
        let (probe, type_name, format) = (text("probe")?, text("type")?, text("format")?);
        let (pdl, schema) = (text("pdl")?, text("schema")?);
        let probe = probe.ok_or_else(|| Mistake::Syntax.because("'probe' is missing, the name of the probe"))?;
        if !is_name(&probe) {
            let expected = "1 to 128 letters, digits, '-', '_' and '.'";
            return Err(Mistake::Syntax.because(format!("a probe cannot have this name: {expected} are expected")));
        }
        let value = members.remove("value");
        let bytes = members.remove("bytes");
        let bytes = bytes.map(|bytes| bytes.get().parse::<usize>()).transpose();
        let bytes = bytes.map_err(|_| Mistake::Syntax.because("'bytes' must be the length of a message"))?;
        let (example, units) = (members.remove("example"), members.remove("units"));
        let known = ["probe", "pdl", "schema", "example", "units", "type", "format", "value", "bytes", "reply"];
        check_unknown(&members, &known)?;
        if value.is_some() && bytes.is_some() {
            return Err(Mistake::Syntax.because("a line has a 'value' or is followed by 'bytes', not both"));
        }
        let has_units = units.is_some();
        let units = units.map_or(Ok(BTreeMap::new()), |units| serde_json::from_str(units.get()));
        let units = units.map_err(|_| Mistake::Syntax.because("'units' must be an object of texts"))?;
        let declares = match (pdl, schema, example) {
            (None, None, None) => None,
            (Some(pdl), None, None) => Some(TypeOf::Pdl(pdl)),
            (None, Some(schema), None) => Some(TypeOf::Schema(schema)),
            (None, None, Some(example)) => {
                let example = serde_json::from_str(example.get()).map_err(|error| Mistake::Syntax.because(error))?;
                Some(TypeOf::Example(example, units))
            }
            _ => return Err(Mistake::Syntax.because("a type is told by one of 'pdl', 'example' and 'schema'")),
        };
        if has_units && !matches!(declares, Some(TypeOf::Example(..))) {
            return Err(Mistake::Syntax.because("'units' belong to an 'example'"));
        }
        if declares.is_none() && value.is_none() && bytes.is_none() && format.is_none() {
            return Err(Mistake::Syntax.because("the line neither declares the probe nor has a sample"));
        }
        Ok(Line { probe, declares, type_name, format, value, bytes })
    }
}

/// Returns the length of the message behind a line that is wrong.
pub(super) fn bytes_behind(line: &[u8]) -> Option<usize> {
    let members: Members = serde_json::from_slice(line).ok()?;
    members.get("bytes")?.get().parse().ok()
}

/// Rejects members that the type, or a type in it, does not have. A decoder would skip them, but
/// they are a mistake of the program.
pub(super) fn check_members(message: &[u8], schema: &Schema) -> Result<(), LineError> {
    check_value(message, schema, schema.root(), 0)
}

fn check_value(value: &[u8], schema: &Schema, ty: &Type, depth: usize) -> Result<(), LineError> {
    if depth > DEEPEST {
        return Ok(());
    }
    let ty = schema.resolve(ty);
    let inner = |value: &RawValue, ty: &Type| check_value(value.get().as_bytes(), schema, ty, depth + 1);
    match ty {
        // If the JSON is of another kind, the decoder reports what is expected, here and below.
        Type::Sequence { element, .. } if has_members(schema, element) => {
            check_elements(value, 1, &|value| inner(value, element))
        }
        Type::Array { element, dims } if has_members(schema, element) => {
            check_elements(value, dims.len(), &|value| inner(value, element))
        }
        Type::Map { value: of, .. } if has_members(schema, of) => {
            let entries: BTreeMap<String, &RawValue> = serde_json::from_slice(value).unwrap_or_default();
            entries.values().try_for_each(|value| inner(value, of))
        }
        Type::Def(id) => {
            let members: BTreeMap<String, &RawValue> = serde_json::from_slice(value).unwrap_or_default();
            match &schema.def(*id).kind {
                DefKind::Struct { .. } => {
                    let known = schema.members(*id);
                    members.iter().try_for_each(|(name, value)| {
                        match known.iter().find(|member| member.name == *name) {
                            Some(member) => inner(value, &member.ty),
                            None => {
                                let hint = polywire::suggest::hint(name, known.iter().map(|known| known.name.as_str()));
                                Err(Mistake::Value.because(format!("the type has no member '{}'{hint}", cut(name))))
                            }
                        }
                    })
                }
                DefKind::Union { cases, .. } => cases.iter().try_for_each(|case| {
                    members.get(&case.member.name).map_or(Ok(()), |value| inner(value, &case.member.ty))
                }),
                _ => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// Checks the elements of a list. An array with several dimensions is a list of lists.
fn check_elements(
    list: &[u8],
    dimensions: usize,
    check: &dyn Fn(&RawValue) -> Result<(), LineError>,
) -> Result<(), LineError> {
    let elements: Vec<&RawValue> = serde_json::from_slice(list).unwrap_or_default();
    elements.iter().try_for_each(|element| match dimensions > 1 {
        true => check_elements(element.get().as_bytes(), dimensions - 1, check),
        false => check(element),
    })
}

/// Returns whether values of a type may have members.
fn has_members(schema: &Schema, ty: &Type) -> bool {
    match schema.resolve(ty) {
        Type::Sequence { element, .. } | Type::Array { element, .. } => has_members(schema, element),
        Type::Map { value, .. } => has_members(schema, value),
        Type::Def(id) => matches!(schema.def(*id).kind, DefKind::Struct { .. } | DefKind::Union { .. }),
        _ => false,
    }
}

/// Returns the beginning of a text from a program, for an error.
pub(super) fn cut(text: &str) -> String {
    text.chars().take(100).collect()
}
