//! What the codecs of third parties in these tests have in common. They are in safe code only.
#![forbid(unsafe_code)]

use polywire_core::{
    codec::{self, Codec, LowerError, OptionSpec, Options, Properties},
    layout::Layout,
    program::{Direction, Program},
    schema::Schema,
};
use std::sync::Arc;

/// The part that is a codec's own.
pub trait Lower: Send + Sync {
    const NAME: &'static str;
    /// The codec whose properties it has.
    const LIKE: &'static str;

    fn program(&self, direction: Direction, layout: &Arc<Layout>) -> Program;
}

/// A codec without options.
pub struct Foreign<L>(pub L);

impl<L: Lower> Codec for Foreign<L> {
    fn name(&self) -> &'static str {
        L::NAME
    }

    fn properties(&self) -> &'static Properties {
        codec::find(L::LIKE).unwrap().properties()
    }

    fn options(&self) -> &'static [OptionSpec] {
        &[]
    }

    fn lower_encode(&self, _: &Options, _: &Schema, layout: &Arc<Layout>) -> Result<Program, LowerError> {
        Ok(self.0.program(Direction::Encode, layout))
    }

    fn lower_decode(&self, _: &Options, _: &Schema, _: &Schema, layout: &Arc<Layout>) -> Result<Program, LowerError> {
        Ok(self.0.program(Direction::Decode, layout))
    }
}
