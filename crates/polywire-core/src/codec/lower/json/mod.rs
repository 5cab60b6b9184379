//! Values in JSON notation, as `spec/json.md` defines it. The codec `json` uses these dialects
//! directly; `yaml` converts its documents from and to this notation. It reads schemas and makes
//! programs.

use alloc::{sync::Arc, vec, vec::Vec};

use super::LowerError;
use crate::{
    codec::Options,
    layout::Layout,
    program::{Block, Limits, Op, OpKind, Output, PathId, Program, RegionDialect, Status},
    schema::Schema,
};

mod decimal;
mod decode;
mod delimiters;
mod encode;
mod scalars;
pub(crate) mod tokens;

pub use delimiters::PRETTY;
pub use scalars::Form;

/// Options of the notation. They matter for writing only, because reading accepts every form.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// The form of numbers.
    pub form: Form,
    /// Write enums as numbers.
    pub enum_numbers: bool,
    /// Write octets as arrays of numbers.
    pub byte_arrays: bool,
    /// Write bitmasks as arrays of names.
    pub flag_names: bool,
    /// Write absent members as `null`.
    pub write_null: bool,
}

impl Style {
    /// Reads the options.
    pub fn of(options: &Options) -> Style {
        let is = |name, value| options.value(name) == Some(value);
        Style {
            form: if is("int64", "string") { Form::Quoted } else { Form::Value },
            enum_numbers: is("enum", "number"),
            byte_arrays: is("bytes", "array"),
            flag_names: is("bitmask", "names"),
            write_null: is("null", "write"),
        }
    }
}

/// Makes the program that writes values in one line. At the end of the region `rewritten`, if it is
/// given, the text is rewritten as a whole.
pub fn encode(
    style: Style,
    schema: &Schema,
    layout: &Arc<Layout>,
    rewritten: Option<&'static RegionDialect>,
) -> Result<Program, LowerError> {
    let mut program = super::encode::lower(&encode::Dialect(style), schema, layout)?;
    if let Some(dialect) = rewritten {
        let body = core::mem::take(&mut program.root);
        let kind = OpKind::Region { dialect, argument: 0, body };
        program.root = Block(vec![Op { path: PathId(0), kind }]);
    }
    Ok(program)
}

/// Makes the program that reads values.
pub fn decode(style: Style, writer: &Schema, reader: &Schema, layout: &Arc<Layout>) -> Result<Program, LowerError> {
    let mut program = super::decode::lower(&decode::Dialect(style), writer, reader, layout)?;
    program.root.0.push(Op { path: PathId(0), kind: OpKind::Action(&delimiters::END, 0) });
    Ok(program)
}

/// A text as a JSON string with quotes, for names that become part of a program.
fn quoted(text: &str) -> Vec<u8> {
    let (mut bytes, limits) = (Vec::new(), Limits::default());
    let mut output = Output::new(&mut bytes, &limits);
    let status = tokens::put_string(&mut output, text);
    // This fails only for names longer than a message; then the member cannot be written either.
    let _: Status = output.finish(status);
    bytes
}
