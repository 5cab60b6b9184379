//! YAML 1.2: the values of JSON notation in YAML syntax. `spec/yaml.md` defines the mapping.
//!
//! ```
//! use polywire_core::codec::{Decoder, Encoder, Options, yaml::YAML};
//!
//! #[derive(Debug, Default, PartialEq, polywire_derive::Message)]
//! struct Pump { id: u32, name: String }
//!
//! let (pump, options, mut bytes) = (Pump { id: 7, name: "P".into() }, Options::default(), Vec::new());
//! let encoder = Encoder::<Pump>::new(&YAML, &options)?;
//! encoder.encode(&pump, &mut bytes)?;
//! assert_eq!(bytes, b"id: 7\nname: P");
//! let mut read = Pump::default();
//! Decoder::new(&YAML, &options, encoder.schema())?.decode(&bytes, &mut read)?;
//! assert_eq!(read, pump);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use alloc::{sync::Arc, vec::Vec};

use super::{
    Codec, LowerResult, OptionSpec, Options, Properties,
    lower::json::{self as notation, Form, Style},
};
use crate::{
    layout::Layout,
    program::{Cursor, Input, Limits, Output, RegionDialect, Status, adapter::Events, io::CodecError},
    schema::Schema,
};

mod events;
mod text;

/// The codec `yaml`, which writes block style.
pub static YAML: Yaml =
    Yaml { name: "yaml", summary: "YAML in block style, with the names of members", region: &BLOCK };

/// The codec `yaml-flow`, which writes flow style in one line.
pub static YAML_FLOW: Yaml =
    Yaml { name: "yaml-flow", summary: "YAML in flow style (one line), with the names of members", region: &FLOW };

/// See [`YAML`] and [`YAML_FLOW`].
pub struct Yaml {
    name: &'static str,
    summary: &'static str,
    region: &'static RegionDialect,
}

impl Codec for Yaml {
    fn name(&self) -> &'static str {
        self.name
    }

    fn properties(&self) -> &'static Properties {
        const fn about(summary: &'static str, typical_use: &'static str) -> Properties {
            let specification = "YAML 1.2.2; spec/yaml.md";
            Properties { summary, text: true, self_describing: true, stateful: false, typical_use, specification }
        }
        const BLOCK_STYLE: Properties = about(YAML.summary, "configuration, recordings that people read and edit");
        const FLOW_STYLE: Properties =
            about(YAML_FLOW.summary, "logs, scripts, YAML tools that want one line a message");
        if self.name == YAML.name { &BLOCK_STYLE } else { &FLOW_STYLE }
    }

    fn options(&self) -> &'static [OptionSpec] {
        const {
            &[
                OptionSpec::new("enum", &["name", "number"], "enums by name (default) or as numbers"),
                OptionSpec::new(
                    "bytes",
                    &["base64", "array"],
                    "octets in base64 (default) or as a sequence of numbers",
                ),
                OptionSpec::new(
                    "bitmask",
                    &["number", "names"],
                    "bitmasks as a number (default) or a sequence of names",
                ),
                OptionSpec::new("null", &["omit", "write"], "absent members omitted (default) or written as null"),
            ]
        }
    }

    fn lower_encode(&self, options: &Options, schema: &Schema, layout: &Arc<Layout>) -> LowerResult {
        let style = Style { form: Form::Bare, ..Style::of(options) };
        notation::encode(style, schema, layout, Some(self.region))
    }

    fn lower_decode(&self, options: &Options, writer: &Schema, reader: &Schema, layout: &Arc<Layout>) -> LowerResult {
        let mut program = notation::decode(Style::of(options), writer, reader, layout)?;
        program.adapter = Some(&events::EVENTS);
        Ok(program)
    }
}

/// Converts a YAML document to JSON notation, as the decoders do. The input must be one document
/// with scalar keys and without custom tags.
///
/// ```
/// use polywire_core::{codec::yaml, program::Limits};
///
/// let json = yaml::to_json(b"- station: EDDM\n  level: 0x1F\n", &Limits::default()).unwrap();
/// assert_eq!(json, br#"[{"station":"EDDM","level":31}]"#);
/// ```
pub fn to_json(bytes: &[u8], limits: &Limits) -> Result<Vec<u8>, CodecError> {
    let mut events = Events::default();
    Input::inspect(bytes, limits, |input| events::rewrite(input, &mut events, text::Either::Number))?;
    Ok(events.text().to_vec())
}

/// Converts the JSON notation written inside to block style.
static BLOCK: RegionDialect = RegionDialect::rewriting("yaml block", put_block);

/// Converts the JSON notation written inside to flow style.
static FLOW: RegionDialect = RegionDialect::rewriting("yaml flow", put_flow);

extern "C" fn put_block(output: &mut Output<'_>, _: u64, cursor: &mut Cursor) -> Status {
    text::block(output, cursor.0[0] as usize)
}

extern "C" fn put_flow(output: &mut Output<'_>, _: u64, cursor: &mut Cursor) -> Status {
    text::flow(output, cursor.0[0] as usize)
}
