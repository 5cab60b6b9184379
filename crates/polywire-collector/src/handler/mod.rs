//! Handlers: the destinations of entries. Each kind has a file and a line in [`KINDS`].

#[cfg(any(feature = "foxglove", feature = "mcap"))]
mod coding;
mod context;
mod csv;
#[cfg(feature = "foxglove")]
mod dashboard;
mod file;
mod forward;
#[cfg(feature = "foxglove")]
mod foxglove;
mod jsonl;
#[cfg(feature = "mcap")]
mod mcap;
mod null;
mod otlp;
#[cfg(feature = "parquet")]
mod parquet;
mod prometheus;
#[cfg(any(feature = "foxglove", feature = "mcap"))]
mod ros2msg;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::fmt;

pub use context::HandlerContext;

use crate::{Entry, HandlerError, Setting, Settings};

/// The kinds of handlers of this build.
pub static KINDS: &[&Kind] = &[
    &null::KIND,
    &jsonl::KIND,
    &csv::KIND,
    &prometheus::KIND,
    &forward::KIND,
    &otlp::KIND,
    #[cfg(feature = "foxglove")]
    &foxglove::KIND,
    #[cfg(feature = "foxglove")]
    &dashboard::KIND,
    #[cfg(feature = "mcap")]
    &mcap::KIND,
    #[cfg(feature = "parquet")]
    &parquet::KIND,
    #[cfg(feature = "sqlite")]
    &sqlite::KIND,
];

/// Kinds that need a feature of this crate, and the feature.
pub(crate) const FEATURES: &[(&str, &str)] = &[
    ("dashboard", "foxglove"),
    ("foxglove", "foxglove"),
    ("mcap", "mcap"),
    ("parquet", "parquet"),
    ("sqlite", "sqlite"),
];

/// A destination of entries: it stores, shows or forwards them.
///
/// Each handler has a thread of its own, which is the only one that calls it, so it may block. If
/// it panics, it is dropped and opened again, as after an error.
pub trait Handler: Send {
    /// Handles an entry. After [`HandlerError::Refused`], the handler receives the next entry.
    /// After any other error but [`HandlerError::Delayed`] it is dropped, opened again later, and
    /// receives all entries again for which [`Handler::sync`] has not returned.
    fn write(&mut self, entry: &Entry) -> Result<(), HandlerError>;

    /// Stores all entries of earlier calls of [`Handler::write`]: when this returns, they survive
    /// the end of the process, and of the machine if the handler can ensure that. They are then
    /// acknowledged to their sources. Also called about once a second while no entries arrive.
    /// After [`HandlerError::Delayed`], it is called again after a pause, possibly with more
    /// entries written in between.
    fn sync(&mut self) -> Result<(), HandlerError>;
}

/// A kind of handler.
///
/// ```
/// use polywire::Node;
/// use polywire_collector::{Collector, CollectorConfig, Entry, Expects, Handler, HandlerError, Kind, Setting};
///
/// /// Prints the topics of entries.
/// struct Print(String);
///
/// impl Handler for Print {
///     fn write(&mut self, entry: &Entry) -> Result<(), HandlerError> {
///         println!("{}{}", self.0, entry.topic());
///         Ok(())
///     }
///
///     fn sync(&mut self) -> Result<(), HandlerError> {
///         Ok(())
///     }
/// }
///
/// static PRINT: Kind = Kind {
///     name: "print",
///     summary: "Prints topics",
///     settings: &[Setting { name: "prefix", expects: Expects::Text, summary: "text in front" }],
///     open: |settings, _| Ok(Box::new(Print(settings.text("prefix").unwrap_or("> ").to_owned()))),
/// };
///
/// let config = CollectorConfig::parse_with("[handlers.out]\nkind = 'print'\nprefix = '# '", &[&PRINT])?;
/// let mut collector = Collector::new(Node::new());
/// collector.add_handler(config.handlers[0].clone())?;
/// assert_eq!(collector.status()[0].kind, "print");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Kind {
    /// The name in the configuration.
    pub name: &'static str,
    /// One line for lists of kinds.
    pub summary: &'static str,
    /// The settings in the handler's table, beside those of all handlers.
    pub settings: &'static [Setting],
    /// Opens a handler. After [`HandlerError::Setting`], the configuration is rejected; after any
    /// other error, opening is tried again later. A handler that publishes uses the node of the
    /// context.
    pub open: OpenHandler,
}

type OpenHandler = fn(&Settings, &HandlerContext) -> Result<Box<dyn Handler>, HandlerError>;

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kind {}", self.name)
    }
}

/// Returns the names of all kinds.
pub(crate) fn names<'a>(own: &'a [&'static Kind]) -> impl Iterator<Item = &'a str> {
    KINDS.iter().chain(own).map(|kind| kind.name)
}

pub(crate) fn find(name: &str, own: &[&'static Kind]) -> Option<&'static Kind> {
    KINDS.iter().chain(own).copied().find(|kind| kind.name == name)
}
