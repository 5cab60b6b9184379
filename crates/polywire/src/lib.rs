//! Typed publish/subscribe in which the wire is a run-time choice.

pub mod config;
pub mod engine;
mod suggest;
pub mod wire;
