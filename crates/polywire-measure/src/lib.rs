//! Measures typed messages: the costs of codecs, the speed of engines, the needs of large systems.
//!
//! A [`Scenario`] is the input: a cross product of types, value models, codecs, compressors,
//! engines, networks, rates and subscribers. [`run`] measures all cases in interleaved turns and
//! returns [`Results`]: figures with confidence intervals, distributions, the host, the seed.
//! Results are written as JSON, as a table ([`table`]) or as a page with plots ([`report`]), and
//! compared with other results ([`compare`]).
//!
//! ```
//! use polywire_measure::{Scenario, run, table};
//!
//! let scenario = Scenario::from_toml(
//!     r#"
//!     name = "Smallest"
//!     effort = { repeats = 3, messages = 5, turn_ms = 0.01 }
//!     [[type]]
//!     text = "struct Point { double x; double y; };"
//!     [axes]
//!     codec = ["cdr", "json"]
//!     [[criteria]]
//!     metric = "bytes"
//!     where = { codec = "cdr" }
//!     at_most = 16
//!     "#,
//! )?;
//! let results = run(&scenario, &mut |_| ())?;
//! let cdr = results.find(|case| case.codec == "cdr").unwrap();
//! assert_eq!(cdr.metrics["bytes"].value, 16.0);
//! assert!(results.verdicts[0].holds());
//! assert!(table::terminal(&results).contains("json") && table::page(&results).starts_with("# "));
//! # Ok::<(), polywire_measure::Error>(())
//! ```

pub mod buffers;
mod check;
mod coding;
pub mod compare;
mod emulated;
pub mod experiments;
mod host;
mod live;
pub mod metrics;
pub mod report;
mod results;
mod run;
pub mod scenario;
mod stages;
pub mod statistics;
mod subject;
pub mod table;
mod templates;
pub mod values;

pub use host::Host;
pub use live::{engines, serve};
pub use polywire_core::netsim;
pub use results::{CaseResult, Judgement, Measure, Results, Verdict};
pub use run::run;
pub use scenario::{Case, Scenario};

/// Why something could not be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The scenario is invalid.
    #[error("scenario: {0}")]
    Scenario(String),
    /// A type cannot be read or does not exist.
    #[error("type: {0}")]
    Type(String),
    /// Values cannot be made or read.
    #[error("values: {0}")]
    Values(String),
    /// A codec or compressor cannot carry the type.
    #[error("{wire}: {problem}")]
    Wire {
        /// Codec and compressor.
        wire: String,
        /// The reason.
        problem: String,
    },
    /// A decoded value differs from the encoded one. Nothing is timed then.
    #[error("{0}: the decoded value differs from the encoded one")]
    Differs(String),
    /// The other end of a real engine failed.
    #[error("{engine}: {problem}")]
    Engine {
        /// Which engine.
        engine: String,
        /// What failed.
        problem: String,
    },
    /// Results cannot be read, or results of different scenarios are compared.
    #[error("results: {0}")]
    Results(String),
}
