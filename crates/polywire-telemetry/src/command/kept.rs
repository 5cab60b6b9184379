//! Settings that outlive a restart, in a file of the node.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use crate::{Plan, Setting, disk::replace_file};

/// The maximum size of the file in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// The table of the file that has the settings of the node itself. The settings of a probe are in
/// `probes.INSTANCE`.
const NODE: &str = "agent";

/// Why a file of settings cannot be used.
///
/// ```
/// use polywire::Node;
/// use polywire_telemetry::{Agent, Identity, Moment, command::KeptError, system::Host};
///
/// let path = std::env::temp_dir().join(format!("polywire-kept-doc-{}", std::process::id()));
/// std::fs::write(&path, "[probes.clock]\nevery = 5\n")?;
/// let wire = "cdr@inproc/kept-doc";
/// let mut agent = Agent::new(Node::new(), Identity::new("house")?, Host::this(), wire, Moment::default())?;
/// assert!(matches!(agent.keep_settings(&path), Err(KeptError::Contents { .. })), "a setting is a text");
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeptError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        cause: io::Error,
    },
    /// The file does not contain settings of a node. Removing it restores the settings of the
    /// configuration.
    #[error("{} has no settings of a node ({problem}): remove it to return to the configuration", path.display())]
    Contents {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        problem: String,
    },
}

type Settings = BTreeMap<String, String>;

/// Settings by instance; the key of the node's own settings is empty.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    path: Option<PathBuf>,
    settings: BTreeMap<String, Settings>,
}

impl Kept {
    /// Reads a file. If it does not exist, there are no kept settings yet.
    pub fn open(path: &Path) -> Result<Kept, KeptError> {
        let mut text = String::new();
        match File::open(path).and_then(|file| file.take(MAX_BYTES).read_to_string(&mut text)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(KeptError::Read { path: path.to_owned(), cause: error });
            }
            _ => {}
        }
        let settings = parse(&text).map_err(|problem| KeptError::Contents { path: path.to_owned(), problem })?;
        Ok(Kept { path: Some(path.to_owned()), settings })
    }

    /// Returns whether a file was given.
    pub fn has_file(&self) -> bool {
        self.path.is_some()
    }

    /// Returns the settings of an instance, or those of the node itself if `instance` is empty.
    pub fn of(&self, instance: &str) -> Vec<Setting> {
        let setting = |(name, value): (&String, &String)| Setting { name: name.clone(), value: value.clone() };
        self.settings.get(instance).into_iter().flatten().map(setting).collect()
    }

    /// Applies the kept settings to the plan of a probe. Settings that are no longer valid are left
    /// out.
    pub fn apply(&self, plan: &mut Plan) {
        for Setting { name, value } in self.of(&plan.instance) {
            if let Err(error) = plan.set(&name, &value) {
                log::warn!("probe '{}': a setting that was kept is left out: {error}", plan.instance);
            }
        }
    }

    /// Adds settings. They are on the disk when this returns without an error.
    pub fn add(&mut self, instance: &str, settings: &[Setting]) -> io::Result<()> {
        let Some(path) = &self.path else { return Err(io::ErrorKind::NotFound.into()) };
        let mut all = self.settings.clone();
        let own = all.entry(instance.to_owned()).or_default();
        own.extend(settings.iter().map(|setting| (setting.name.clone(), setting.value.clone())));
        let text = to_text(&all);
        if text.len() as u64 > MAX_BYTES {
            return Err(io::Error::other(format!("it would have more than {MAX_BYTES} bytes")));
        }
        replace_file(path, text.as_bytes())?;
        self.settings = all;
        Ok(())
    }
}

fn parse(text: &str) -> Result<BTreeMap<String, Settings>, String> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| error.message().to_owned())?;
    let mut all = BTreeMap::new();
    for (key, value) in &table {
        match (key.as_str(), value) {
            (NODE, toml::Value::Table(own)) => drop(all.insert(String::new(), settings(own)?)),
            ("probes", toml::Value::Table(probes)) => {
                for (instance, value) in probes {
                    let own = value.as_table().ok_or_else(|| format!("'probes.{instance}' is no table"))?;
                    all.insert(instance.clone(), settings(own)?);
                }
            }
            _ => return Err(format!("'{key}' is no table of settings")),
        }
    }
    Ok(all)
}

fn settings(table: &toml::Table) -> Result<Settings, String> {
    let text = |(name, value): (&String, &toml::Value)| {
        let value = value.as_str().ok_or_else(|| format!("'{name}' is no text"))?;
        Ok((name.clone(), value.to_owned()))
    };
    table.iter().map(text).collect()
}

fn to_text(all: &BTreeMap<String, Settings>) -> String {
    let table = |own: &Settings| own.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
    let mut whole = toml::Table::new();
    let mut probes = toml::Table::new();
    for (instance, own) in all {
        match instance.as_str() {
            "" => whole.insert(NODE.to_owned(), toml::Value::Table(table(own))),
            instance => probes.insert(instance.to_owned(), toml::Value::Table(table(own))),
        };
    }
    whole.insert("probes".to_owned(), probes.into());
    whole.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(name: &str, value: &str) -> Setting {
        Setting { name: name.to_owned(), value: value.to_owned() }
    }

    #[test]
    fn settings_are_there_again_and_later_ones_count() {
        let folder = std::env::temp_dir().join(format!("polywire-kept-{}", std::process::id()));
        let path = folder.join("a.kept");
        let mut kept = Kept::open(&path).expect("nothing yet");
        let odd = "\"'\n[x]\u{7f} = é";
        kept.add("a.b-c", &[setting("every", "1"), setting("pattern", odd)]).expect("kept");
        kept.add("", &[setting("budget", "20000")]).expect("kept");
        kept.add("a.b-c", &[setting("every", "2")]).expect("kept");
        let again = Kept::open(&path).expect("read");
        assert_eq!(again.of("a.b-c"), [setting("every", "2"), setting("pattern", odd)]);
        assert_eq!(again.of(""), [setting("budget", "20000")]);
        assert!(again.of("agent").is_empty());
        let long = "x".repeat(MAX_BYTES as usize);
        assert!(kept.add("a", &[setting("pattern", &long)]).is_err());
        assert!(Kept::open(&path).expect("as before").of("a").is_empty());
        std::fs::remove_dir_all(folder).expect("removed");
    }

    #[test]
    fn other_contents_are_told() {
        assert!(parse("").is_ok_and(|all| all.is_empty()));
        for (text, problem) in [
            ("agent = 1", "'agent' is no table of settings"),
            ("[other]", "'other' is no table of settings"),
            ("[agent]\nbudget = 1", "'budget' is no text"),
            ("[probes]\nclock = 1", "'probes.clock' is no table"),
        ] {
            assert_eq!(parse(text).expect_err(text), problem);
        }
        assert!(parse("[probes").is_err());
    }
}
