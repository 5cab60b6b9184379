//! Maintenance tasks of the repository, as functions that `cargo run -p xtask` and the tests call.

pub mod api;
