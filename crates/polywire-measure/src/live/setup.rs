//! The settings that both ends of a case need. The sender passes them to the other end as JSON.

use std::{
    process,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use polywire::{Record, Schema, Shape, schema::SchemaLimits};
use serde::{Deserialize, Serialize};

use crate::{Case, Error, Scenario, scenario::Mode, subject::Subject, templates};

/// The settings that the other end needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Setup {
    pub engine: String,
    pub codec: String,
    /// The codec's templates in XML, if it has some.
    pub templates: Option<String>,
    pub compressor: String,
    /// Schemas of both versions, as bytes.
    pub writer: Vec<u8>,
    pub reader: Vec<u8>,
    /// The address at which the sender listens.
    pub address: String,
    pub subscribers: usize,
    pub topics: usize,
    pub buffers: String,
    /// Messages are sent back, not counted.
    pub echo: bool,
}

impl Setup {
    /// Creates a setup. The sender's address is not known yet.
    pub fn of(scenario: &Scenario, case: &Case, subject: &Subject) -> Result<Setup, Error> {
        Ok(Setup {
            engine: case.engine.clone(),
            codec: case.codec.clone(),
            templates: templates::of(scenario, case, subject)?,
            compressor: case.compressor.clone(),
            writer: subject.shape.schema().to_bytes(),
            reader: subject.reader.schema().to_bytes(),
            address: String::new(),
            subscribers: case.subscribers,
            topics: case.topics,
            buffers: case.buffers.clone(),
            echo: matches!(scenario.mode, Mode::Closed | Mode::Loaded),
        })
    }
}

/// The shapes of both versions.
pub fn shapes(setup: &Setup) -> Result<(Arc<Shape>, Arc<Shape>), String> {
    let shape = |bytes: &[u8]| {
        let schema = Schema::from_bytes(bytes, &SchemaLimits::default()).map_err(|error| error.to_string())?;
        Shape::of(&schema).map_err(|error| error.to_string())
    };
    Ok((shape(&setup.writer)?, shape(&setup.reader)?))
}

/// A DDS domain that no other case of this process uses, and most likely none of another process.
/// The ports of the domains 1 to 100 are below the ephemeral ports of Linux, which begin at 32768.
pub fn free_domain() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = process::id().wrapping_add(COUNT.fetch_add(1, Ordering::Relaxed));
    (1 + number % 100).to_string()
}

/// Maximum number of different values, which the messages of a case have in turn.
const MAX_RECORDS: usize = 256;

/// The type of a case and its values.
pub fn subject_of(scenario: &Scenario, case: &Case) -> Result<(Subject, Vec<Record>), Error> {
    let subject = Subject::of(scenario, case)?;
    let records = subject.records(scenario, case, scenario.effort.messages.min(MAX_RECORDS))?;
    Ok((subject, records))
}
