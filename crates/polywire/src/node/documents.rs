//! Schemas and dictionaries by hash: our own, and those fetched.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use polywire_core::{
    envelope::Id128,
    schema::{DocumentHash, Schema, SchemaLimits},
};

/// Bytes of fetched documents that a node keeps; when they are used up, fetched ones are forgotten, and fetched again when needed.
const FETCHED_BYTES: usize = 64 << 20;

/// What a node can give to others and need not ask for.
#[derive(Default)]
pub(crate) struct Documents(Mutex<Known>);

#[derive(Default)]
struct Known {
    own: BTreeMap<Id128, Arc<[u8]>>,
    fetched: BTreeMap<Id128, Arc<[u8]>>,
    schemas: BTreeMap<Id128, Schema>,
    fetched_bytes: usize,
}

impl Documents {
    /// A schema of a publisher here; gives its document's hash.
    pub(crate) fn publish(&self, schema: &Schema) -> Id128 {
        let bytes = schema.to_bytes();
        let id = Id128(DocumentHash::of(&bytes).to_bytes());
        let mut known = self.lock();
        known.own.insert(id, bytes.into());
        known.schemas.insert(id, schema.clone());
        id
    }

    /// A document of a publisher here that is no schema; gives its hash.
    pub(crate) fn publish_bytes(&self, bytes: Vec<u8>) -> Id128 {
        let id = Id128(DocumentHash::of(&bytes).to_bytes());
        self.lock().own.insert(id, bytes.into());
        id
    }

    /// What a peer sent for `id`, checked; `schema` says whether it is to be one.
    pub(crate) fn receive(&self, id: Id128, bytes: &[u8], schema: bool) -> Result<(), String> {
        let hash = Id128(DocumentHash::of(bytes).to_bytes());
        if hash != id {
            return Err(format!("the document sent has the hash {hash}, not {id}"));
        }
        let schema = schema.then(|| Schema::from_bytes(bytes, &SchemaLimits::default()));
        let mut known = self.lock();
        if known.fetched_bytes.saturating_add(bytes.len()) > FETCHED_BYTES {
            known.forget_fetched();
        }
        if known.fetched.insert(id, bytes.into()).is_none() {
            known.fetched_bytes += bytes.len();
        }
        if let Some(schema) = schema {
            known.schemas.insert(id, schema.map_err(|e| format!("the schema document sent is none: {e}"))?);
        }
        Ok(())
    }

    pub(crate) fn schema(&self, id: Id128) -> Option<Schema> {
        self.lock().schemas.get(&id).cloned()
    }

    pub(crate) fn bytes(&self, id: Id128) -> Option<Arc<[u8]>> {
        let known = self.lock();
        known.own.get(&id).or_else(|| known.fetched.get(&id)).cloned()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn forget_fetched(&mut self) {
        self.fetched.clear();
        self.fetched_bytes = 0;
        let own = &self.own;
        self.schemas.retain(|id, _| own.contains_key(id));
    }
}
