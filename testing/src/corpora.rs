//! Third-party conformance data.

use std::{env, path::PathBuf};

/// The path of a file or folder of the corpora: below the folder that `POLYWIRE_CORPORA` names, or
/// below `shared/corpora` beside the project. `None` if there is no such file; then the test is
/// skipped, which this function prints.
pub fn corpus(name: &str) -> Option<PathBuf> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let beside = [root.join("../shared/corpora"), root.join("../../shared/corpora")];
    let named = env::var_os("POLYWIRE_CORPORA").map(PathBuf::from);
    let found = named.into_iter().chain(beside).map(|path| path.join(name)).find(|path| path.exists());
    if found.is_none() {
        eprintln!("skipped: no corpus '{name}'; POLYWIRE_CORPORA can name the folder of corpora");
    }
    found
}
