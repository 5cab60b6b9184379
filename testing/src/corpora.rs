//! Finds third-party conformance data, which is not part of this repository.

use std::{env, path::PathBuf};

/// The path of a file or folder of the corpora. It is looked for in the folder that the environment
/// variable `POLYWIRE_CORPORA` names, then in `shared/corpora` beside the project or one level
/// above. If there is none, this function prints that the test is skipped and returns `None`.
pub fn corpus(name: &str) -> Option<PathBuf> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let beside = [root.join("../shared/corpora"), root.join("../../shared/corpora")];
    let named = env::var_os("POLYWIRE_CORPORA").map(PathBuf::from);
    let found = named.into_iter().chain(beside).map(|path| path.join(name)).find(|path| path.exists());
    if found.is_none() {
        eprintln!("skipped: no corpus '{name}'; set POLYWIRE_CORPORA to the folder of the corpora");
    }
    found
}
