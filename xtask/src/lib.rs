//! Maintenance tasks of the repository, as functions that `cargo run -p xtask` and the tests call.

pub mod api;
pub mod dist;

use std::path::{Path, PathBuf};

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the root").to_path_buf()
}
