//! The lines that programs write to the socket: JSON objects.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use crate::identity::is_name;

/// Bytes of a line.
pub const MOST_LINE_BYTES: usize = 1 << 20;

/// What is wrong with a line or a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub(super) struct LineError {
    /// What kind of mistake it is.
    pub kind: Mistake,
    /// What is wrong, for people.
    pub text: String,
}

/// A kind of mistake. [`Mistake::name`] is what the socket tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mistake {
    /// The line is no JSON object, or has a member that no line has, or of another type.
    Syntax,
    /// A limit: the line or the message is too long.
    TooLong,
    /// The type that is declared is wrong.
    Type,
    /// The format is unknown, or does not fit the type.
    Format,
    /// The probe has not been declared on this connection.
    Undeclared,
    /// The value does not fit the type.
    Value,
    /// The node refuses the probe.
    Refused,
}

impl Mistake {
    /// Its name on the socket.
    pub fn name(self) -> &'static str {
        match self {
            Mistake::Syntax => "syntax",
            Mistake::TooLong => "too-long",
            Mistake::Type => "type",
            Mistake::Format => "format",
            Mistake::Undeclared => "undeclared",
            Mistake::Value => "value",
            Mistake::Refused => "refused",
        }
    }

    pub(super) fn because(self, text: impl ToString) -> LineError {
        LineError { kind: self, text: text.to_string() }
    }
}

/// A line, taken apart.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub probe: String,
    /// The type, if the line declares the probe.
    pub declares: Option<TypeOf>,
    /// The name of the type; of those that PDL defines, or for the one that an example makes.
    pub type_name: Option<String>,
    /// The format of messages.
    pub format: Option<String>,
    /// A sample in JSON.
    pub value: Option<Box<RawValue>>,
    /// The length of the message that follows the line.
    pub bytes: Option<usize>,
}

/// How a type is told.
#[derive(Debug)]
pub(super) enum TypeOf {
    Pdl(String),
    /// A sample, and the units of its members by their paths.
    Example(serde_json::Value, BTreeMap<String, String>),
    /// A schema in hexadecimal digits.
    Schema(String),
}

impl Line {
    pub fn parse(line: &[u8]) -> Result<Line, LineError> {
        let mut members: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(line)
            .map_err(|error| Mistake::Syntax.because(format!("no JSON object: {error}")))?;
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
        if let Some(name) = members.keys().next() {
            let known = ["probe", "pdl", "schema", "example", "units", "type", "format", "value", "bytes"];
            let hint = polywire::suggest::hint(name, known);
            return Err(Mistake::Syntax.because(format!("unknown member '{}'{hint}", cut(name))));
        }
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

/// The beginning of what somebody wrote, for an error.
pub(super) fn cut(text: &str) -> String {
    text.chars().take(100).collect()
}
