//! The retention of archives: settings of handlers that remove their oldest messages.

use std::time::Duration;

use crate::{Expects, Setting, Settings};

/// The settings of the retention.
pub(crate) const RETENTION: [Setting; 2] = [
    Setting {
        name: "keep_bytes",
        expects: Expects::Count,
        summary: "removes the oldest if there are more bytes; 0, the default, never",
    },
    Setting {
        name: "keep_seconds",
        expects: Expects::Seconds,
        summary: "removes what is older; 0, the default, never",
    },
];

/// The limits of what is kept.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Retention {
    pub bytes: Option<u64>,
    pub time: Option<Duration>,
}

impl Retention {
    pub fn of(settings: &Settings) -> Retention {
        Retention {
            bytes: settings.count("keep_bytes").filter(|bytes| *bytes > 0),
            time: settings.seconds("keep_seconds").filter(|time| !time.is_zero()),
        }
    }

    pub fn is_for_ever(&self) -> bool {
        self.bytes.is_none() && self.time.is_none()
    }
}
