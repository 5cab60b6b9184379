//! The errors of this crate.

/// Why a call failed.
///
/// ```
/// use polywire_dds::Error;
/// assert_eq!(Error::Text("a\0b".into()).to_string(), r#"DDS: the text "a\0b" has a zero byte"#);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A call failed.
    #[error("DDS: cannot {action}: {reason}")]
    Call {
        /// What failed: `create a writer`, ...
        action: &'static str,
        /// What Cyclone's return code means.
        reason: &'static str,
        /// Cyclone's return code.
        code: i32,
    },
    /// A text cannot be passed to Cyclone.
    #[error("DDS: the text {0:?} has a zero byte")]
    Text(String),
    /// The domain is open in this process with another configuration.
    #[error("DDS: domain {0} is open in this process with another configuration")]
    Configured(u32),
    /// The domain has no room for another process on this machine: each has an index, up to
    /// `Discovery/MaxAutoParticipantIndex` of Cyclone's configuration, from which its ports follow.
    #[error("DDS: domain {0} has no free participant index, so too many processes of this machine are in it")]
    Full(u32),
    /// DDS Security refuses a participant, for this reason.
    #[error("DDS Security: {0}")]
    Security(String),
    /// The certificate or the permissions of a participant with DDS Security have expired.
    #[error("DDS Security: the certificate or the permissions have expired")]
    Expired,
    /// A sample is larger than [`MAX_SAMPLE_BYTES`](crate::MAX_SAMPLE_BYTES).
    #[error("DDS: a sample of {bytes} bytes exceeds the limit of {most}")]
    Size {
        /// The sample's size in bytes.
        bytes: usize,
        /// The limit in bytes.
        most: usize,
    },
}

impl Error {
    /// Checks whether a write timed out because the writer's history had no room.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Error::Call { code: -10, .. })
    }

    /// Returns a code that is not negative. Other codes are errors.
    pub(crate) fn check(action: &'static str, code: i32) -> Result<i32, Error> {
        match code {
            0.. => Ok(code),
            _ => Err(Error::Call { action, reason: reason(code), code }),
        }
    }
}

fn reason(code: i32) -> &'static str {
    match code {
        -2 => "not supported",
        -3 => "a parameter is not valid",
        -4 => "a precondition is not met",
        -5 => "out of resources",
        -6 => "not enabled",
        -7 => "the policy cannot be changed",
        -8 => "policies contradict each other",
        -9 => "already deleted",
        -10 => "timed out",
        -11 => "no data",
        -12 => "not allowed here",
        -13 => "not allowed by the security rules",
        _ => "an error of the library, which its log explains",
    }
}
