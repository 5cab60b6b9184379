//! The settings of a handler: those that a kind has, and their values in the configuration.

use std::{collections::BTreeMap, time::Duration};

use polywire::suggest;

/// What the value of a setting must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expects {
    /// A text.
    Text,
    /// A text that must be present and not empty.
    Required,
    /// A whole number from 0.
    Count,
    /// A time in seconds, from 0 to 1e9.
    Seconds,
    /// `true` or `false`.
    Truth,
}

/// A setting of a kind of handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The key in the table.
    pub name: &'static str,
    /// What the value must be.
    pub expects: Expects,
    /// What the setting does, with unit and default.
    pub summary: &'static str,
}

/// The values of a handler's settings. A setting that is not set is `None`.
///
/// ```
/// use polywire_collector::{CollectorConfig, Settings};
///
/// let config = CollectorConfig::parse("
///     [handlers.files]
///     kind = 'jsonl'
///     path = 'samples.jsonl'
///     rotate_seconds = 3600
/// ")?;
/// let settings: &Settings = &config.handlers[0].settings;
/// assert_eq!((settings.text("path"), settings.seconds("rotate_seconds").unwrap().as_secs()), (Some("samples.jsonl"), 3600));
/// assert_eq!((settings.count("rotate_bytes"), settings.truth("zstd")), (None, None));
/// # Ok::<(), polywire_collector::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings(BTreeMap<&'static str, SettingValue>);

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SettingValue {
    Text(String),
    Whole(i64),
    Number(f64),
    Truth(bool),
    Other,
}

impl Settings {
    /// Returns the value of a setting that is a text.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.0.get(name)? {
            SettingValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the value of a setting that is a whole number.
    pub fn count(&self, name: &str) -> Option<u64> {
        match self.0.get(name)? {
            SettingValue::Whole(number) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    /// Returns the value of a setting that is a time.
    pub fn seconds(&self, name: &str) -> Option<Duration> {
        self.0.get(name).and_then(SettingValue::seconds)
    }

    /// Returns the value of a setting that is true or false.
    pub fn truth(&self, name: &str) -> Option<bool> {
        match self.0.get(name)? {
            SettingValue::Truth(truth) => Some(*truth),
            _ => None,
        }
    }

    /// Sets a value. The error says what is expected.
    pub(crate) fn set(&mut self, known: &[Setting], name: &str, value: SettingValue) -> Result<(), String> {
        let Some(setting) = known.iter().find(|setting| setting.name == name) else {
            let names = known.iter().map(|setting| setting.name).chain(COMMON);
            return Err(format!("unknown setting '{name}'{}", suggest::hint(name, names)));
        };
        value.fits(setting.expects).map_err(|expected| format!("'{name}': {expected} is expected"))?;
        self.0.insert(setting.name, value);
        Ok(())
    }

    /// Returns the first required setting that is missing.
    pub(crate) fn missing(&self, known: &[Setting]) -> Option<&'static str> {
        let required = known.iter().filter(|setting| setting.expects == Expects::Required);
        required.map(|setting| setting.name).find(|name| !self.0.contains_key(name))
    }
}

/// The settings that every handler has.
pub(crate) const COMMON: [&str; 6] = ["kind", "topics", "queue", "queue_bytes", "overflow", "sync"];

impl SettingValue {
    pub(crate) fn seconds(&self) -> Option<Duration> {
        let seconds = match self {
            SettingValue::Whole(number) => *number as f64,
            SettingValue::Number(number) => *number,
            _ => return None,
        };
        (0.0..=1e9).contains(&seconds).then(|| Duration::from_secs_f64(seconds))
    }

    fn fits(&self, expects: Expects) -> Result<(), &'static str> {
        let (fits, expected) = match expects {
            Expects::Text => (matches!(self, SettingValue::Text(_)), "a text"),
            Expects::Required => (matches!(self, SettingValue::Text(text) if !text.is_empty()), "a text, not empty,"),
            Expects::Count => (matches!(self, SettingValue::Whole(0..)), "a whole number from 0"),
            Expects::Seconds => (self.seconds().is_some(), "a number of seconds from 0 to 1e9"),
            Expects::Truth => (matches!(self, SettingValue::Truth(_)), "true or false"),
        };
        if fits { Ok(()) } else { Err(expected) }
    }
}
