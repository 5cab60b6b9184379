//! The identity of a node, kept over restarts in a file.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use crate::{Uuid, disk::replace_file};

/// The maximum length of a node's name, in bytes.
pub const MAX_NAME_BYTES: usize = 128;

/// The maximum size of a state file in bytes.
const MAX_BYTES: u64 = 4096;

/// The identity of a node.
///
/// ```
/// use polywire_telemetry::Identity;
///
/// let folder = std::env::temp_dir().join(format!("polywire-identity-{}", std::process::id()));
/// let file = folder.join("agent.toml");
/// let first = Identity::keep(&file, Some("pump-house"))?;
/// // After a restart the identity is the same, also if no name is given.
/// assert_eq!(Identity::keep(&file, None)?, first);
/// # std::fs::remove_dir_all(folder).unwrap();
/// # Ok::<(), polywire_telemetry::IdentityError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The human-readable name; part of the topics of the node's probes.
    pub name: String,
    /// The UUID, which no other node has.
    pub uuid: Uuid,
}

/// Why the identity of a node cannot be determined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The state file cannot be read or written.
    #[error("cannot use the state file {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        cause: io::Error,
    },
    /// The file is not a valid state file. Removing it gives the node a new identity.
    #[error("{} is no state file of a node: remove it, and the node gets a new UUID", path.display())]
    Contents {
        /// The file.
        path: PathBuf,
    },
    /// The name cannot be part of a topic.
    #[error("'{0}' cannot be the name of a node: from 1 to 128 letters, digits, '-', '_' and '.' are expected")]
    Name(String),
}

impl Identity {
    /// Makes the identity of a node with this name and a new UUID.
    pub fn new(name: &str) -> Result<Identity, IdentityError> {
        match is_name(name) {
            true => Ok(Identity { name: name.to_owned(), uuid: Uuid::random() }),
            false => Err(IdentityError::Name(name.to_owned())),
        }
    }

    /// Reads the identity from a state file. If the file does not exist, creates it with a new UUID
    /// and the given name, or the name of the host. A given name replaces the name in an existing
    /// file.
    pub fn keep(file: &Path, name: Option<&str>) -> Result<Identity, IdentityError> {
        let failed = |cause| IdentityError::File { path: file.to_owned(), cause };
        let kept = match read(file) {
            Ok(text) => Some(Identity::parse(&text).ok_or_else(|| IdentityError::Contents { path: file.to_owned() })?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
        };
        let named = match (name, &kept) {
            (None, Some(kept)) => return Ok(kept.clone()),
            (Some(name), _) => Identity::new(name)?,
            (None, None) => Identity::new(&host_name())?,
        };
        let identity = Identity { uuid: kept.as_ref().map_or(named.uuid, |kept| kept.uuid), ..named };
        if kept.as_ref() != Some(&identity) {
            replace_file(file, identity.to_text().as_bytes()).map_err(failed)?;
        }
        Ok(identity)
    }

    fn to_text(&self) -> String {
        format!("name = \"{}\"\nuuid = \"{}\"\n", self.name, self.uuid)
    }

    fn parse(text: &str) -> Option<Identity> {
        let value = |key: &str| {
            let rest = text.lines().find_map(|line| line.trim().strip_prefix(key)?.trim_start().strip_prefix('='))?;
            rest.trim().strip_prefix('"')?.strip_suffix('"')
        };
        Some(Identity { uuid: value("uuid")?.parse().ok()?, ..Identity::new(value("name")?).ok()? })
    }
}

/// Checks whether a text can be the name of a node or an instance, and so part of a topic.
pub(crate) fn is_name(text: &str) -> bool {
    let ok = |c: char| c.is_alphanumeric() || "-_.".contains(c);
    (1..=MAX_NAME_BYTES).contains(&text.len()) && text.chars().all(ok)
}

/// Returns the name of this host without the characters that a node's name cannot have; `host` if
/// nothing is left.
pub fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let kept: String = name.chars().filter(|c| c.is_alphanumeric() || "-_.".contains(*c)).take(64).collect();
    if kept.is_empty() { "host".to_owned() } else { kept }
}

fn read(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(file)?.take(MAX_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_new_name_keeps_the_uuid() {
        let folder = std::env::temp_dir().join(format!("polywire-identity-name-{}", std::process::id()));
        let file = folder.join("a/agent.toml");
        let first = Identity::keep(&file, Some("one")).expect("made");
        let second = Identity::keep(&file, Some("two")).expect("changed");
        assert_eq!((second.name.as_str(), second.uuid), ("two", first.uuid));
        assert_eq!(Identity::keep(&file, None).expect("kept"), second);
        let text = read(&file).expect("written");
        for end in 0..text.len() {
            fs::write(&file, &text[..end]).expect("cut");
            // Only the last line break may be missing.
            let whole = end + 1 == text.len();
            assert_eq!(matches!(Identity::keep(&file, None), Err(IdentityError::Contents { .. })), !whole, "{end}");
        }
        fs::write(&file, [0xff; 100]).expect("damaged");
        assert!(matches!(Identity::keep(&file, None), Err(IdentityError::File { .. })));
        fs::remove_dir_all(folder).expect("removed");
    }

    #[test]
    fn names_can_be_parts_of_topics() {
        for name in ["", "a b", "a/b", "*", "a\n", "\"", &"x".repeat(129)] {
            assert!(matches!(Identity::new(name), Err(IdentityError::Name(_))), "{name}");
        }
        assert!(Identity::new(&host_name()).is_ok());
    }
}
