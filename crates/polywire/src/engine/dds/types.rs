//! Types of other programs. Their writers say in discovery how the type is hashed; the type itself
//! is asked for, and a channel is announced once it has come.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use polywire_core::{
    envelope::{Announcement, Id128},
    schema::{Schema, SchemaLimits, TypeObjects},
};
use polywire_dds::{Endpoint, Guid, Participant};

use super::rpc;

/// How long a type is waited for. After it, the writer's type is compared by its name alone.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long it is waited for the names of a participant's nodes of ROS 2.
const PATIENCE_FOR_NAMES: Duration = Duration::from_millis(500);

/// How often other programs are asked for a type.
const ASK: Duration = Duration::from_millis(250);

/// How often it is looked whether a type has come.
pub(super) const LOOK: Duration = Duration::from_millis(5);

/// The schema of another program's writer, and its encoding, which nodes fetch by its hash.
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

    /// The type of the values, if this one is around the values of a service of DDS-RPC.
    pub(super) fn of_values(&self) -> Option<Known> {
        let schema = rpc::value_schema(&self.schema)?;
        Some(Known { document: schema.to_bytes().into(), schema })
    }

    pub(super) fn name(&self) -> &str {
        self.schema.name()
    }

    /// Says in an announcement what the type is.
    pub(super) fn describe(&self, announcement: &mut Announcement) {
        announcement.schema = Id128::of_document(&self.document);
        announcement.type_hash = Id128(self.schema.type_hash().to_bytes());
    }
}

/// Writers whose types, or the names of whose nodes, have not come.
#[derive(Default)]
pub(super) struct Lookups(BTreeMap<Guid, Lookup>);

struct Lookup {
    writer: Endpoint,
    began: Instant,
    asked: Option<Instant>,
    /// `Some(None)` if the type will not come.
    found: Option<Option<Known>>,
}

impl Lookups {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn begin(&mut self, writer: &Endpoint) {
        let lookup = Lookup { writer: writer.clone(), began: Instant::now(), asked: None, found: None };
        self.0.entry(writer.guid).or_insert(lookup);
    }

    pub(super) fn forget(&mut self, writer: Guid) {
        self.0.remove(&writer);
    }

    /// The participants of the writers.
    pub(super) fn participants(&self) -> impl Iterator<Item = Guid> {
        self.0.values().map(|lookup| lookup.writer.participant)
    }

    /// Writers whose types have come, if `types` are read, and whose participants are among the
    /// `named` ones; and those that were waited for in vain or whose types cannot be read.
    pub(super) fn take(
        &mut self,
        us: &Participant,
        endpoint: &str,
        types: bool,
        named: &BTreeSet<Guid>,
    ) -> Vec<(Endpoint, Option<Known>)> {
        let mut done = Vec::new();
        self.0.retain(|_, lookup| {
            let is_named = named.contains(&lookup.writer.participant) || lookup.began.elapsed() >= PATIENCE_FOR_NAMES;
            if lookup.found.is_none() {
                lookup.found = if types { lookup.look(us, endpoint) } else { Some(None) };
            }
            let Some(found) = lookup.found.clone().filter(|_| is_named) else { return true };
            done.push((lookup.writer.clone(), found));
            false
        });
        done
    }
}

impl Lookup {
    /// `None` while the type is waited for, and `Some(None)` if it will not come.
    fn look(&mut self, us: &Participant, endpoint: &str) -> Option<Option<Known>> {
        let Some(types) = &self.writer.types else { return Some(None) };
        let is_due = self.asked.is_none_or(|asked| asked.elapsed() >= ASK);
        if is_due {
            self.asked = Some(Instant::now());
        }
        let why = match us.type_objects(types, is_due) {
            Ok(Some(objects)) => match Known::of(&objects) {
                Ok(known) => return Some(Some(known)),
                Err(error) => error,
            },
            Ok(None) if self.began.elapsed() < PATIENCE => return None,
            Ok(None) => "it did not come in time".into(),
            Err(error) => error.to_string(),
        };
        let Endpoint { topic, type_name, .. } = &self.writer;
        log::warn!("{endpoint}: the type {type_name} of '{topic}' is compared by its name alone: {why}");
        Some(None)
    }
}

/// What other programs are told of a type. `None` if it has no type information.
pub(super) fn told(endpoint: &str, schema: &Schema) -> Option<polywire_dds::TypeObjects> {
    match TypeObjects::of(schema) {
        Ok(TypeObjects { information, mapping }) => Some(polywire_dds::TypeObjects { information, mapping }),
        Err(error) => {
            log::warn!("{endpoint}: other programs are not told the type {}: {error}", schema.name());
            None
        }
    }
}
