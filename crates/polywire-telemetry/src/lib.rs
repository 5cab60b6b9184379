//! Telemetry of running systems over [Polywire](polywire).
//!
//! A *probe* measures something: the processor, a queue of an application, a command's output. Its
//! samples have a type with units, a UUID and a version, which a PDL file defines. A *node* runs
//! the probes of a host or an application and publishes their samples. `docs/telemetry.md` is the
//! guide, and `spec/telemetry.md` defines the messages.
//!
//! ```
//! use polywire_telemetry::{Moment, Probe as _, Settings, system::{self, Host}};
//!
//! // One sample of a probe that every system has.
//! let clock = system::find("clock")?;
//! let mut probe = (clock.open)(&Host::this(), &Settings::default())?;
//! probe.sample(Moment::default())?;
//! assert_eq!(probe.view().get("offset_s")?.as_f64(), Some(0.0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

// Derived code uses the name of this crate, also in the crate's own tests.
extern crate self as polywire_telemetry;

mod agent;
mod application;
mod clocks;
pub mod command;
mod config;
pub mod description;
mod disk;
mod error;
mod host;
pub mod http;
mod identity;
pub mod input;
pub mod intake;
mod json;
pub mod packet;
mod plan;
mod probe;
mod runner;
mod schedule;
pub mod socket;
pub mod system;
mod thin;
pub mod uplink;
mod uuid;

pub use agent::{Agent, AgentError, MAX_COMMANDS, MAX_DECLARED, MAX_PROBES};
pub use application::{Application, Bits, Cell, Counter, Distribution, Gauge, Histogram};
pub use clocks::Clocks;
pub use config::{AgentConfig, AgentConfigError};
pub use description::{CommandDescription, NodeDescription, ProbeDescription, Setting, fits, topic_of};
pub use disk::{LockedFile, replace_file};
pub use error::MeasureError;
pub use identity::{Identity, IdentityError, MAX_NAME_BYTES, host_name};
pub use plan::Plan;
pub use polywire_derive::Probe;
pub use probe::{Instrument, Measure, Moment, Parameter, Pdl, Probe, ProbeType, Samples, Settings};
pub use runner::Runner;
pub use schedule::Schedule;
pub use thin::{Thinner, Thinning, extrapolate};
pub use uuid::{Uuid, UuidError};

/// Used by the code that `#[derive(Probe)]` generates.
#[doc(hidden)]
pub mod __private {
    pub use polywire::{__private::layout, Message};

    pub use crate::application::{Line, not_by_name, pdl};
}
