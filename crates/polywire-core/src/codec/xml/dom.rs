//! The codec `xml-dom`: the same XML as the codec `xml`, but read into a tree first. It serves as a
//! comparison in benchmarks.

use alloc::sync::Arc;

use super::{
    OPTIONS, decode_program, encode_program,
    tokens::{build, emit},
};
use crate::{
    codec::{Codec, LowerResult, OptionSpec, Options, Properties},
    layout::Layout,
    program::{
        Input, Program, Status,
        adapter::{Adapter, Events},
    },
    schema::Schema,
};

/// The codec `xml-dom`.
pub static XML_DOM: XmlDom = XmlDom;

/// See [`XML_DOM`].
pub struct XmlDom;

impl Codec for XmlDom {
    fn name(&self) -> &'static str {
        "xml-dom"
    }

    fn properties(&self) -> &'static Properties {
        &Properties {
            summary: "the XML of codec xml, read into a tree first",
            text: true,
            self_describing: true,
            stateful: false,
            typical_use: "comparison of the two ways to read XML",
            specification: "XML 1.0, fifth edition; spec/xml.md",
        }
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn lower_encode(&self, options: &Options, schema: &Schema, layout: &Arc<Layout>) -> LowerResult {
        encode_program(options, schema, layout)
    }

    fn lower_decode(&self, _: &Options, writer: &Schema, reader: &Schema, layout: &Arc<Layout>) -> LowerResult {
        let mut program = decode_program(writer, reader, layout)?;
        program.adapter = Some(&TREE);
        Ok(program)
    }
}

static TREE: Adapter = Adapter { name: "xml tree", run: through_tree, only_after: None };

fn through_tree(_: &Program, input: &mut Input<'_>, events: &mut Events) -> Status {
    events.write(input, |input, output, delimiters, nodes| match build(input, nodes) {
        Ok(()) => emit(input, nodes, output, delimiters),
        Err(status) => status,
    })
}
