//! The codec `xml-dom`: the same XML as the codec `xml`, but read into a tree first. It serves as a
//! comparison in benchmarks.

use super::{
    OPTIONS, decode_program, encode_program,
    tokens::{build, emit},
};
use crate::{
    codec::{BuiltIn, Evolution, Properties},
    program::{
        Input, Program, Status,
        adapter::{Adapter, Events},
    },
};

/// The codec `xml-dom`.
pub static XML_DOM: BuiltIn = BuiltIn {
    name: "xml-dom",
    properties: &Properties {
        summary: "the XML of codec xml, read into a tree first",
        text: true,
        self_describing: true,
        stateful: false,
        typical_use: "comparison of the two ways to read XML",
        specification: "XML 1.0, fifth edition; spec/xml.md",
    },
    options: OPTIONS,
    evolution: Evolution::Names,
    encode: encode_program,
    decode: |_, writer, reader, layout| {
        let mut program = decode_program(writer, reader, layout)?;
        program.adapter = Some(&TREE);
        Ok(program)
    },
};

static TREE: Adapter = Adapter { name: "xml tree", run: through_tree, only_after: None };

fn through_tree(_: &Program, input: &mut Input<'_>, events: &mut Events) -> Status {
    events.write(input, |input, output, delimiters, nodes| match build(input, nodes) {
        Ok(()) => emit(input, nodes, output, delimiters),
        Err(status) => status,
    })
}
