//! Options of a compressor in a wire string, after its colon: `3,dict=weather.dict,min=200`.

use alloc::{
    format,
    string::{String, ToString},
};
use core::fmt;

use super::{Compressor, SettingsError};

/// Smallest message that is compressed by default, in bytes. For shorter ones the gain would be
/// less than a frame's head.
const MIN_BYTES: usize = 64;

/// Smallest message that is compressed with a dictionary by default. The dictionary may contain
/// most of a short message.
const MIN_BYTES_WITH_DICTIONARY: usize = 16;

/// Default for [`Settings::ratio_percent`].
const RATIO_PERCENT: u32 = 90;

/// The options of all compressors: the notation, and one line for listings, beginning with the
/// default.
pub static OPTIONS: &[(&str, &str)] = &[
    ("LEVEL", "a number, where the compressor has levels"),
    ("dict=FILE", "a dictionary, where the compressor takes one; 'polywire dict' trains them"),
    ("min=BYTES", "64, or 16 with a dictionary: shorter messages are sent as they are"),
    ("ratio=PERCENT", "90: messages that do not shrink to that much of their size are sent as they are"),
];

/// Options of a compressor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// The level. `None` stands for the compressor's default.
    pub level: Option<i32>,
    /// Smallest message that is compressed, in bytes. `None` stands for the default: see
    /// [`Settings::least_bytes`].
    pub min_bytes: Option<usize>,
    /// Messages that do not shrink to this percentage of their size are sent uncompressed.
    pub ratio_percent: u32,
    /// The dictionary: a file in a wire string, a hash in an announcement.
    pub dictionary: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { level: None, min_bytes: None, ratio_percent: RATIO_PERCENT, dictionary: None }
    }
}

impl Settings {
    /// Parses options, and refuses those that `compressor` does not take.
    ///
    /// ```
    /// use polywire_core::compress::{self, Settings};
    /// let zlib = compress::find("zlib").unwrap();
    /// assert_eq!(Settings::parse("9,min=200", zlib)?.level, Some(9));
    /// let error = Settings::parse("12", zlib).unwrap_err();
    /// assert_eq!(error.to_string(), "compressor 'zlib': invalid option '12': levels go from 1 to 9");
    /// # Ok::<(), compress::SettingsError>(())
    /// ```
    pub fn parse(text: &str, compressor: &dyn Compressor) -> Result<Settings, SettingsError> {
        let mut settings = Settings::default();
        let mut seen = [false; 4];
        for option in text.split(',').filter(|option| !option.is_empty()) {
            let (which, name) = settings.set(option, compressor)?;
            if core::mem::replace(&mut seen[which], true) {
                return Err(SettingsError::Twice { compressor: compressor.name().into(), option: name.into() });
            }
        }
        Ok(settings)
    }

    /// Sets one option. Returns its number and name.
    fn set<'a>(&mut self, option: &'a str, compressor: &dyn Compressor) -> Result<(usize, &'a str), SettingsError> {
        let wrong = |expected: String| {
            Err(SettingsError::Value { compressor: compressor.name().into(), option: option.into(), expected })
        };
        match option.split_once('=') {
            None if option.parse::<i64>().is_ok() => {
                let Some(levels) = compressor.properties().levels else {
                    return wrong("the compressor has no levels".into());
                };
                let level = option.parse().ok().filter(|level| (levels.least..=levels.most).contains(level));
                let Some(level) = level else {
                    return wrong(format!("levels go from {} to {}", levels.least, levels.most));
                };
                self.level = Some(level);
                Ok((0, "LEVEL"))
            }
            Some(("dict", name)) if !compressor.properties().dictionary || name.is_empty() => {
                match compressor.properties().dictionary {
                    true => wrong("a file is expected".into()),
                    false => Err(SettingsError::NoDictionary { compressor: compressor.name().into() }),
                }
            }
            Some(("dict", name)) => {
                self.dictionary = Some(name.into());
                Ok((1, "dict"))
            }
            Some(("min", bytes)) => match bytes.parse() {
                Ok(bytes) => {
                    self.min_bytes = Some(bytes);
                    Ok((2, "min"))
                }
                Err(_) => wrong("a number of bytes is expected".into()),
            },
            Some(("ratio", percent)) => match percent.parse() {
                Ok(percent @ 1..=100) => {
                    self.ratio_percent = percent;
                    Ok((3, "ratio"))
                }
                _ => wrong("percents from 1 to 100 are expected".into()),
            },
            _ => Err(SettingsError::Unknown { compressor: compressor.name().into(), option: option.into() }),
        }
    }

    /// Size in bytes of the smallest message that is compressed.
    ///
    /// ```
    /// use polywire_core::compress::Settings;
    /// let chosen = Settings { min_bytes: Some(10), ..Settings::default() };
    /// assert_eq!(chosen.least_bytes(false), 10);
    /// // With a dictionary, even short messages become smaller.
    /// assert!(Settings::default().least_bytes(true) < Settings::default().least_bytes(false));
    /// ```
    pub fn least_bytes(&self, with_dictionary: bool) -> usize {
        self.min_bytes.unwrap_or(if with_dictionary { MIN_BYTES_WITH_DICTIONARY } else { MIN_BYTES })
    }

    /// The text for an announcement: the compressor's name, and what a receiver needs or may want
    /// to know. `dictionary` is the hash of the dictionary's document, if there is one.
    ///
    /// ```
    /// use polywire_core::compress::{Settings, find};
    /// let (lz4, settings) = (find("lz4").unwrap(), Settings::default());
    /// assert_eq!(settings.announced(lz4, None), "lz4");
    /// assert_eq!(settings.announced(lz4, Some(&"0a1b")), "lz4:dict=0a1b");
    /// ```
    pub fn announced(&self, compressor: &dyn Compressor, dictionary: Option<&dyn fmt::Display>) -> String {
        let level = self.level.map(|level| level.to_string());
        let dictionary = dictionary.map(|hash| format!("dict={hash}"));
        let options = [level, dictionary].into_iter().flatten();
        options.fold(compressor.name().to_string(), |text, option| {
            let separator = if text.contains(':') { ',' } else { ':' };
            format!("{text}{separator}{option}")
        })
    }
}

/// The hash of the dictionary in a text made by [`Settings::announced`]. `None` if it has no
/// dictionary.
///
/// ```
/// use polywire_core::compress::announced_dictionary;
/// assert_eq!(announced_dictionary("zstd:3,dict=0a1b"), Some("0a1b"));
/// assert_eq!(announced_dictionary("zstd:3"), None);
/// ```
pub fn announced_dictionary(compressor: &str) -> Option<&str> {
    let (_, options) = compressor.split_once(':')?;
    options.split(',').find_map(|option| option.strip_prefix("dict="))
}
