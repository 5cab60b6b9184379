//! Where third-party conformance data is.

use std::{env, path::PathBuf};

/// A file or folder of the corpora: the environment says where they are, or they lie beside the
/// project. A test without its corpus is skipped, saying so.
pub fn corpus(name: &str) -> Option<PathBuf> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let beside = [root.join("../shared/corpora"), root.join("../../shared/corpora")];
    let named = env::var_os("POLYWIRE_CORPORA").map(PathBuf::from);
    let found = named.into_iter().chain(beside).map(|path| path.join(name)).find(|path| path.exists());
    if found.is_none() {
        eprintln!("skipped: no corpus '{name}'; POLYWIRE_CORPORA can name the folder of corpora");
    }
    found
}
