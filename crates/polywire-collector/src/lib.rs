//! Collects the messages of a [Polywire](polywire) system, and passes them to files, databases and
//! services.
//!
//! A [`Collector`] receives [entries](Entry), which are messages with their metadata, from
//! *sources*: subscriptions to patterns of topics, or any implementation of [`Source`]. It passes
//! each entry to its *handlers*. Each handler has a queue and a thread of its own, so a slow or
//! failing handler delays no other one, unless its overflow policy is to block. A handler reports
//! what it has stored, and the collector acknowledges to its sources what all handlers have stored.
//!
//! Handlers are of the kinds in [`KINDS`], or a program's own ([`Kind`]). `docs/collect.md` is the
//! guide, with all kinds and their settings.
//!
//! ```
//! use polywire::Node;
//! use polywire_collector::{Collector, CollectorConfig};
//! use std::{fs, time::Duration};
//! # #[derive(Default, polywire::Message)]
//! # struct Pump { id: u32 }
//!
//! let folder = std::env::temp_dir().join(format!("polywire-collector-doc-{}", std::process::id()));
//! let file = folder.join("pumps.jsonl");
//! let config = CollectorConfig::parse(&format!("
//!     [collector]
//!     topics = ['plant/**']
//!     endpoints = ['inproc/collector-doc']
//!
//!     [handlers.files]
//!     kind = 'jsonl'
//!     path = '{}'
//! ", file.display()))?;
//! let mut collector = Collector::new(Node::new());
//! collector.reload(&config)?;
//!
//! let pumps = Node::new().publisher_on::<Pump>("plant/pump", "cdr@inproc/collector-doc")?;
//! pumps.wait_for_subscribers(1, Duration::from_secs(60));
//! pumps.publish(&Pump { id: 7 })?;
//! while collector.status()[0].stored == 0 {
//!     std::thread::yield_now();
//! }
//! collector.stop(Duration::from_secs(60));
//! assert!(fs::read_to_string(&file)?.contains(r#""value":{"id":7}"#));
//! # fs::remove_dir_all(folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod alerts;
#[cfg(feature = "sqlite")]
mod archive;
mod collector;
#[cfg(feature = "parquet")]
mod columnar;
mod columns;
mod config;
mod entry;
mod error;
mod files;
pub mod handler;
mod json;
#[cfg(any(feature = "foxglove", feature = "mcap"))]
mod json_schema;
mod nodes;
mod numbers;
mod probe;
mod queue;
#[cfg(any(feature = "parquet", feature = "sqlite"))]
mod retention;
mod settings;
mod source;
#[cfg(any(feature = "parquet", feature = "sqlite"))]
mod table;
mod worker;

pub use alerts::{
    ALERTS, Alert, AlertPlan, AlertState, AlertValue, Condition, ConditionError, MAX_ALERTS, Severity, alerts_qos,
};
#[cfg(feature = "sqlite")]
pub use archive::{Archive, ArchiveCheck, ArchiveError, ArchiveValue, Series};
pub use collector::{Changes, Collector, HandlerStatus};
pub use columns::{CellValue, Column, Columns, MAX_COLUMNS};
pub use config::{CollectorConfig, ConfigError, HandlerPlan, MAX_HANDLERS};
pub use entry::{Entry, Origin};
pub use error::{CollectorError, HandlerError};
pub use handler::{Handler, HandlerContext, KINDS, Kind};
pub use json::JsonText;
pub use probe::{CollectorProbe, CollectorSample, HandlerSample};
pub use settings::{Expects, Setting, Settings};
pub use source::{Numbered, Source};
