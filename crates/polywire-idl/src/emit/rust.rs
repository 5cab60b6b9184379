//! Rust.
use super::{EmitError, Emitter};
use crate::document::Constant;
use polywire_core::schema::Schema;
pub(super) const EMITTER: Emitter = Emitter { name: "rust", description: "x", emit };
fn emit(_: &Schema, _: &[Constant]) -> Result<String, EmitError> {
    Ok(String::new())
}
