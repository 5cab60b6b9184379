//! The errors of a collector and its handlers.

use std::io;

use polywire::{NodeError, TopicError};

/// Why a handler cannot continue, or cannot handle one entry.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandlerError {
    /// The handler cannot work now: the disk is full, or a server is down. It is opened again
    /// later, and receives all entries again that it had not stored.
    #[error("{0}")]
    Failed(String),
    /// What the handler was given is not stored yet, and will be without being given again. The
    /// handler stays open, and [`Handler::sync`](crate::Handler::sync) is called again after a
    /// pause.
    #[error("{0}")]
    Delayed(String),
    /// The entry cannot be handled, now or later. It is counted and left out.
    #[error("{0}")]
    Refused(String),
    /// The handler cannot work with these settings.
    #[error("{0}")]
    Setting(String),
}

impl HandlerError {
    /// Makes the error of the operating system for a file.
    pub fn file(path: &std::path::Path, cause: &io::Error) -> HandlerError {
        HandlerError::Failed(format!("{}: {cause}", path.display()))
    }
}

/// Why a collector cannot apply its configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CollectorError {
    /// A topic or an endpoint cannot be used.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// A pattern of topics is invalid.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// A handler cannot work with its settings.
    #[error("line {line}: [handlers.{name}]: {reason}")]
    Handler {
        /// The handler.
        name: String,
        /// The line of its table, from 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// The file with the positions of stored samples of nodes cannot be used.
    #[error("{}: {cause}", path.display())]
    Positions {
        /// The file.
        path: std::path::PathBuf,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// The system has no more threads.
    #[error("cannot start a thread")]
    Thread(#[from] io::Error),
    /// A coding cannot be made.
    #[error("{0}")]
    Coding(String),
}
