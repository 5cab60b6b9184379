//! The coding of messages for Foxglove and compatible tools, in files and live: the format, and the
//! schema that readers need.

use std::sync::Arc;

use polywire::{
    Record, Shape,
    codec::{
        Encoder, Options,
        cdr::{CDR, XCDR2},
    },
};

use super::ros2msg::ros2msg;
use crate::{Entry, Expects, HandlerError, JsonText, Setting, Settings, json_schema::json_schema};

/// The setting that selects the format.
pub(super) const FORMAT: Setting = Setting {
    name: "format",
    expects: Expects::Text,
    summary: "format of the messages: json, the default, cdr or xcdr2",
};

/// The names of formats in the configuration.
const FORMATS: [(&str, Format); 3] = [("json", Format::Json), ("cdr", Format::Cdr), ("xcdr2", Format::Xcdr2)];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Json,
    Cdr,
    Xcdr2,
}

impl Format {
    pub fn of(settings: &Settings) -> Result<Format, HandlerError> {
        let name = settings.text(FORMAT.name).unwrap_or("json");
        let found = FORMATS.iter().find(|(known, _)| *known == name).map(|(_, format)| *format);
        found.ok_or_else(|| HandlerError::Setting(format!("'format': json, cdr or xcdr2 is expected, not '{name}'")))
    }
}

/// The coding of the messages of a type.
pub(super) struct Coding {
    pub type_name: String,
    pub schema_encoding: &'static str,
    pub schema: String,
    pub message_encoding: &'static str,
    /// The type as IDL, if the schema lacks a part of it.
    #[cfg_attr(not(feature = "mcap"), expect(dead_code, reason = "a file has a place for it"))]
    pub idl: Option<String>,
    encoder: Option<Encoder<Record>>,
}

impl Coding {
    /// Makes the coding of a type. Uses JSON for a type whose names are not valid in IDL.
    pub fn of(format: Format, shape: &Arc<Shape>) -> Coding {
        match format {
            Format::Json => None,
            Format::Cdr | Format::Xcdr2 => Coding::cdr(format, shape),
        }
        .unwrap_or_else(|| Coding {
            type_name: shape.schema().name().to_owned(),
            schema_encoding: "jsonschema",
            schema: json_schema(shape.schema()),
            message_encoding: "json",
            idl: None,
            encoder: None,
        })
    }

    fn cdr(format: Format, shape: &Arc<Shape>) -> Option<Coding> {
        let codec = if format == Format::Cdr { &CDR } else { &XCDR2 };
        // As in DDS, the encapsulation header identifies the version of CDR.
        let options = Options::default().with("header", "");
        let encoder = Encoder::for_shape(codec, &options, shape).ok()?;
        let schema = shape.schema();
        let idl = polywire_idl::emit::idl(schema).ok()?;
        let as_ros = if format == Format::Cdr { ros2msg(schema) } else { None };
        Some(match as_ros {
            Some((type_name, text)) => Coding {
                type_name,
                schema_encoding: "ros2msg",
                schema: text,
                message_encoding: "cdr",
                idl: Some(idl),
                encoder: Some(encoder),
            },
            None => Coding {
                type_name: schema.name().to_owned(),
                schema_encoding: "omgidl",
                schema: idl,
                message_encoding: "cdr",
                idl: None,
                encoder: Some(encoder),
            },
        })
    }

    /// Encodes the value of an entry of this type. Replaces the contents of `bytes`.
    pub fn encode(&self, entry: &Entry, json: &mut JsonText, bytes: &mut Vec<u8>) -> Result<(), HandlerError> {
        bytes.clear();
        match &self.encoder {
            Some(encoder) => {
                let refused = |error| HandlerError::Refused(format!("it has no CDR: {error}"));
                encoder.encode(&entry.value, bytes).map_err(refused)
            }
            None => {
                bytes.extend_from_slice(json.value(entry)?.as_bytes());
                Ok(())
            }
        }
    }
}
