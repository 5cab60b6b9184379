//! YAML 1.2: what is written, made of JSON; the plain scalars of its core schema; and a reader of
//! the part that we write ourselves.

mod plain;
mod rewrite;
mod simple;

pub(super) use plain::{Either, is_plain, put_plain};
pub(super) use rewrite::{block, flow};
pub(super) use simple::read;

/// Collections inside each other, whatever the [`Limits`](crate::program::Limits) allow.
pub(super) const MAX_DEPTH: usize = 1024;
