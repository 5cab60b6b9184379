//! What can go wrong with a collector and its handlers.

use std::io;

use polywire::{NodeError, TopicError};

/// Why a handler cannot go on, or cannot take one entry.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandlerError {
    /// The handler cannot work now: the disk is full, a server is down. It is opened again later,
    /// and gets all entries again that it had not stored.
    #[error("{0}")]
    Failed(String),
    /// This entry cannot be handled, now or later. It is counted and left out.
    #[error("{0}")]
    Refused(String),
    /// The handler cannot work with these settings.
    #[error("{0}")]
    Setting(String),
}

impl HandlerError {
    /// What the system says about a file.
    pub fn file(path: &std::path::Path, cause: &io::Error) -> HandlerError {
        HandlerError::Failed(format!("{}: {cause}", path.display()))
    }
}

/// Why a collector cannot do what its configuration says.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CollectorError {
    /// A topic or an endpoint cannot be used.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// A pattern of topics is none.
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
    /// The file that keeps what nodes need not send again cannot be used.
    #[error("{}: {cause}", path.display())]
    Positions {
        /// The file.
        path: std::path::PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// The system has no more threads.
    #[error("cannot start a thread")]
    Thread(#[from] io::Error),
    /// A coding cannot be made.
    #[error("{0}")]
    Coding(String),
}
