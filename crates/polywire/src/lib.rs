//! Typed publish/subscribe in which the wire is a run-time choice.

pub mod engine;
