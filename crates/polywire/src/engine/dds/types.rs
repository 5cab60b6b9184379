//! Types of other programs. In discovery, their writers and readers publish only hashes of the
//! type; the type itself must be requested.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use polywire_core::{
    envelope::{Announcement, Id128},
    schema::{
        Schema, SchemaLimits, TypeObjects,
        evolve::{Rules, Verdict, assess_with},
    },
};
use polywire_dds::{Endpoint, Guid, Participant};

use super::rpc;

/// How long to wait for a type. After that, the writer's type is compared by its name alone.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long to wait for the names of a participant's ROS 2 nodes.
const PATIENCE_FOR_NAMES: Duration = Duration::from_millis(500);

/// The interval between requests for a type.
const ASK: Duration = Duration::from_millis(250);

/// The maximum number of reasons that are reported for one type.
const REASONS: usize = 3;

/// The interval between checks whether a type has arrived.
pub(super) const LOOK: Duration = Duration::from_millis(5);

/// The schema of another program's type, and its encoding, which nodes fetch by its hash.
#[derive(Clone)]
pub(super) struct Known {
    schema: Schema,
    pub(super) document: Arc<[u8]>,
}

impl Known {
    fn of(objects: &polywire_dds::TypeObjects) -> Result<Known, String> {
        let polywire_dds::TypeObjects { information, mapping } = objects.clone();
        let schema = TypeObjects { information, mapping }.schema(&SchemaLimits::default());
        let schema = schema.map_err(|error| error.to_string())?;
        Ok(Known { document: schema.to_bytes().into(), schema })
    }

    /// Parses the type in a document. `None` if the document is malformed.
    pub(super) fn of_document(document: &[u8]) -> Option<Known> {
        let schema = Schema::from_bytes(document, &SchemaLimits::default()).ok()?;
        Some(Known { document: document.into(), schema })
    }

    /// Returns the type of the values, if this is a request or reply type of DDS-RPC.
    pub(super) fn of_values(&self) -> Option<Known> {
        let schema = rpc::value_schema(&self.schema)?;
        Some(Known { document: schema.to_bytes().into(), schema })
    }

    /// Returns why a reader of this type cannot read a writer's type, by the rules of XTypes.
    /// `None` if it can.
    pub(super) fn why_not(&self, writer: &Schema) -> Option<String> {
        let Verdict::Refused(reasons) = assess_with(writer, &self.schema, Rules { strict_xtypes: true }) else {
            return None;
        };
        let reasons: Vec<String> = reasons.iter().take(REASONS).map(|reason| reason.to_string()).collect();
        Some(reasons.join("; ").replace("\n    ", "; "))
    }

    pub(super) fn name(&self) -> &str {
        self.schema.name()
    }

    /// Sets the hashes of the type in an announcement.
    pub(super) fn describe(&self, announcement: &mut Announcement) {
        announcement.schema = Id128::of_document(&self.document);
        announcement.type_hash = Id128(self.schema.type_hash().to_bytes());
    }
}

/// Writers or readers that wait for their types, or for the names of their ROS 2 nodes.
#[derive(Default)]
pub(super) struct Lookups(BTreeMap<Guid, Lookup>);

struct Lookup {
    end: Endpoint,
    began: Instant,
    asked: Option<Instant>,
    found: Option<Found>,
}

/// A type, or why it cannot be obtained. `Ok(None)` if the program does not publish it.
pub(super) type Found = Result<Option<Known>, String>;

impl Lookups {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Begins a lookup. If there is one for the writer or reader already, notes its new policies.
    pub(super) fn begin(&mut self, end: &Endpoint) {
        let lookup = Lookup { end: end.clone(), began: Instant::now(), asked: None, found: None };
        self.0.entry(end.guid).and_modify(|lookup| lookup.end = end.clone()).or_insert(lookup);
    }

    pub(super) fn forget(&mut self, end: Guid) {
        self.0.remove(&end);
    }

    pub(super) fn has(&self, end: Guid) -> bool {
        self.0.contains_key(&end)
    }

    /// Returns the participants of the waiting writers and readers.
    pub(super) fn participants(&self) -> impl Iterator<Item = Guid> {
        self.0.values().map(|lookup| lookup.end.participant)
    }

    /// Takes the writers and readers whose lookups have ended. A lookup ends when the type has
    /// arrived, cannot be read, has not arrived in time, or is not wanted (`types` is false), and
    /// when the participant is among the `named` ones or its names have not arrived in time.
    pub(super) fn take(&mut self, us: &Participant, types: bool, named: &BTreeSet<Guid>) -> Vec<(Endpoint, Found)> {
        let mut done = Vec::new();
        self.0.retain(|_, lookup| {
            let is_named = named.contains(&lookup.end.participant) || lookup.began.elapsed() >= PATIENCE_FOR_NAMES;
            if lookup.found.is_none() {
                lookup.found = if types { lookup.look(us) } else { Some(Ok(None)) };
            }
            let Some(found) = lookup.found.clone().filter(|_| is_named) else { return true };
            done.push((lookup.end.clone(), found));
            false
        });
        done
    }
}

impl Lookup {
    /// Looks for the type, and requests it if a request is due. `None` if it has not arrived yet.
    fn look(&mut self, us: &Participant) -> Option<Found> {
        let Some(types) = &self.end.types else { return Some(Ok(None)) };
        let is_due = self.asked.is_none_or(|asked| asked.elapsed() >= ASK);
        if is_due {
            self.asked = Some(Instant::now());
        }
        match us.type_objects(types, is_due) {
            Ok(Some(objects)) => Some(Known::of(&objects).map(Some)),
            Ok(None) if self.began.elapsed() < PATIENCE => None,
            Ok(None) => Some(Err("it did not come in time".into())),
            Err(error) => Some(Err(error.to_string())),
        }
    }
}

/// Returns what is published of a type to other programs. `None` if it has no type information.
pub(super) fn told(endpoint: &str, schema: &Schema) -> Option<polywire_dds::TypeObjects> {
    match TypeObjects::of(schema) {
        Ok(TypeObjects { information, mapping }) => Some(polywire_dds::TypeObjects { information, mapping }),
        Err(error) => {
            log::warn!("{endpoint}: other programs are not told the type {}: {error}", schema.name());
            None
        }
    }
}
