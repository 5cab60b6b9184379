//! The errors of probes.

use std::io;

use polywire::suggest;

/// Why a probe cannot be opened, or has no sample.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// The system does not have this file, or does not permit reading it.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: String,
        /// The error of the operating system.
        #[source]
        cause: io::Error,
    },
    /// The file has a form that this version does not know.
    #[error("{path}: {expected} is expected")]
    Form {
        /// The file.
        path: String,
        /// What was expected in it.
        expected: &'static str,
    },
    /// An input has no figures.
    #[error("{what}: {problem}")]
    Input {
        /// The source of the input.
        what: String,
        /// Why there are no figures.
        problem: String,
    },
    /// There is no probe or parameter of this name.
    #[error("{0}")]
    Unknown(String),
    /// A parameter has an invalid value.
    #[error("parameter '{parameter}' cannot be '{value}': {expected} is expected")]
    Value {
        /// The parameter.
        parameter: String,
        /// The value that was given.
        value: String,
        /// The values that are valid.
        expected: String,
    },
}

impl MeasureError {
    /// Makes the error for an unknown word; it suggests the nearest known one.
    pub(crate) fn unknown<'a>(what: &str, word: &str, known: impl IntoIterator<Item = &'a str>) -> MeasureError {
        MeasureError::Unknown(format!("unknown {what} '{word}'{}", suggest::hint(word, known)))
    }
}
