//! YAML 1.2: the values of JSON notation in YAML syntax. `spec/yaml.md` defines the mapping.

use alloc::{sync::Arc, vec::Vec};

use super::{
    BuiltIn, Evolution, LowerResult, OptionSpec, Options, Properties,
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
pub static YAML: BuiltIn = BuiltIn {
    encode: |options, schema, layout| encode(options, schema, layout, &BLOCK),
    ..yaml(
        "yaml",
        const {
            &about(
                "YAML in block style, with the names of members",
                "configuration, recordings that people read and edit",
            )
        },
    )
};

/// The codec `yaml-flow`, which writes flow style in one line.
pub static YAML_FLOW: BuiltIn = BuiltIn {
    encode: |options, schema, layout| encode(options, schema, layout, &FLOW),
    ..yaml(
        "yaml-flow",
        const {
            &about(
                "YAML in flow style (one line), with the names of members",
                "logs, scripts, YAML tools that want one line a message",
            )
        },
    )
};

const fn about(summary: &'static str, typical_use: &'static str) -> Properties {
    let specification = "YAML 1.2.2; spec/yaml.md";
    Properties { summary, text: true, self_describing: true, stateful: false, typical_use, specification }
}

const fn yaml(name: &'static str, properties: &'static Properties) -> BuiltIn {
    BuiltIn {
        name,
        properties,
        options: OPTIONS,
        evolution: Evolution::Names,
        encode: |options, schema, layout| encode(options, schema, layout, &BLOCK),
        decode: |options, writer, reader, layout| {
            let mut program = notation::decode(Style::of(options), writer, reader, layout)?;
            program.adapter = Some(&events::EVENTS);
            Ok(program)
        },
    }
}

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::new("enum", &["name", "number"], "enums by name (default) or as numbers"),
    OptionSpec::new("bytes", &["base64", "array"], "octets in base64 (default) or as a sequence of numbers"),
    OptionSpec::new("bitmask", &["number", "names"], "bitmasks as a number (default) or a sequence of names"),
    OptionSpec::new("null", &["omit", "write"], "absent members omitted (default) or written as null"),
];

fn encode(options: &Options, schema: &Schema, layout: &Arc<Layout>, region: &'static RegionDialect) -> LowerResult {
    let style = Style { form: Form::Bare, ..Style::of(options) };
    notation::encode(style, schema, layout, Some(region))
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
