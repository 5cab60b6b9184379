//! Reads the configuration file of a running command again, on SIGHUP.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::anyhow;
use polywire::{Config, ConfigError, Node};

use crate::{outcome::chain, stop, terminal::Terminal};

/// The environment variable that names the file if `--config` does not.
const VARIABLE: &str = "POLYWIRE_CONFIG";

/// Reloads the configuration of the node on SIGHUP. Prints on standard error what has changed, or
/// why nothing has.
pub fn on_hang_up(node: &Node, config: Option<PathBuf>) {
    let node = node.clone();
    stop::on_hang_up(move || {
        let terminal = Terminal::new(false);
        let Some(path) = &config else {
            return terminal.warning("SIGHUP: there is no configuration to read again: name a file with --config");
        };
        match reload(&node, path) {
            Ok(changed) if changed.is_empty() => terminal.note(&format!("{}: nothing has changed", path.display())),
            Ok(changed) => terminal.note(&format!("{}: {} changed", path.display(), changed.join(", "))),
            Err(error) => terminal.error(&chain(&error.context("cannot apply the configuration"))),
        }
    });
}

fn reload(node: &Node, path: &Path) -> anyhow::Result<Vec<String>> {
    node.reload(read(path)?).map_err(|error| anyhow!("{}: {error}", path.display()))
}

/// Returns the configuration of a command: the one in the given file, or the default.
pub fn given(path: Option<&PathBuf>) -> anyhow::Result<Config> {
    path.map_or_else(|| Ok(Config::default()), |path| read(path))
}

/// Reads the configuration in a file. Errors name the file.
pub fn read(path: &Path) -> anyhow::Result<Config> {
    Config::read(path).map_err(|error| match &error {
        // If the path is from the command line, the user needs no further hint.
        ConfigError::Read { .. } if env::var_os(VARIABLE).is_some_and(|named| named == path) => {
            anyhow!("{error}; the environment variable {VARIABLE} names this file")
        }
        ConfigError::Read { .. } => error.into(),
        _ => anyhow!("{}: {error}", path.display()),
    })
}
