//! Schemas, templates and dictionaries by hash: those of this node's publishers, and those fetched
//! from peers. Shared by all ports of a node.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use polywire_core::{
    codec::{Codec, LowerError},
    envelope::Id128,
    schema::{DocumentHash, Schema, SchemaLimits},
    session::Document,
};

/// The limit on the bytes of fetched documents that a node keeps. If a document would exceed it,
/// all fetched documents are dropped; they are fetched again when needed.
const FETCHED_BYTES: usize = 64 << 20;

/// The factor with which a document's bytes are counted again once it is parsed: schemas and
/// templates take more memory than their documents.
const PARSED: usize = 16;

/// The documents that a node has and sends to peers that ask.
#[derive(Default)]
pub(crate) struct Documents(Mutex<Known>);

type Configured = Result<Arc<dyn Codec>, LowerError>;

#[derive(Default)]
struct Known {
    own: BTreeMap<Id128, Arc<[u8]>>,
    fetched: BTreeMap<Id128, Arc<[u8]>>,
    fetched_bytes: usize,
    /// Documents parsed as schemas, or why that failed. Each is parsed once.
    schemas: BTreeMap<Id128, Result<Schema, String>>,
    /// Codecs by name, configured by a document, or why the document was refused.
    configured: BTreeMap<(&'static str, Id128), Configured>,
}

impl Documents {
    /// Keeps the schema of a publisher of this node, and returns the hash of its document.
    pub(crate) fn publish(&self, schema: &Schema) -> Id128 {
        let bytes = schema.to_bytes();
        let id = Id128(DocumentHash::of(&bytes).to_bytes());
        let mut known = self.lock();
        known.own.insert(id, bytes.into());
        known.schemas.insert(id, Ok(schema.clone()));
        id
    }

    /// Keeps another document of a publisher of this node, and returns its hash.
    pub(crate) fn publish_bytes(&self, bytes: Vec<u8>) -> Id128 {
        let id = Id128(DocumentHash::of(&bytes).to_bytes());
        self.lock().own.insert(id, bytes.into());
        id
    }

    /// Keeps a document that a peer sent.
    pub(crate) fn receive(&self, document: Document<'_>) {
        let mut known = self.lock();
        let bytes = document.bytes();
        if known.fetched_bytes.saturating_add(bytes.len()) > FETCHED_BYTES {
            known.forget_fetched();
        }
        if known.fetched.insert(document.id(), bytes.into()).is_none() {
            known.fetched_bytes += bytes.len();
        }
    }

    /// The document parsed as a schema. `None` if the node does not have the document.
    pub(crate) fn schema(&self, id: Id128) -> Option<Result<Schema, String>> {
        let bytes = {
            let known = self.lock();
            if let Some(schema) = known.schemas.get(&id) {
                return Some(schema.clone());
            }
            known.bytes(id)?
        };
        let schema = Schema::from_bytes(&bytes, &SchemaLimits::default());
        let schema = schema.map_err(|e| format!("the writer's document {id} is not a schema: {e}"));
        let mut known = self.lock();
        known.schemas.insert(id, schema.clone());
        known.parsed(id, bytes.len());
        Some(schema)
    }

    /// The codec configured by a document. `None` if the node does not have the document.
    pub(crate) fn configured(&self, codec: &'static dyn Codec, id: Id128) -> Option<Configured> {
        let bytes = {
            let known = self.lock();
            if let Some(configured) = known.configured.get(&(codec.name(), id)) {
                return Some(configured.clone());
            }
            known.bytes(id)?
        };
        let configured = codec.configured(&bytes);
        let mut known = self.lock();
        known.configured.insert((codec.name(), id), configured.clone());
        known.parsed(id, bytes.len());
        Some(configured)
    }

    pub(crate) fn bytes(&self, id: Id128) -> Option<Arc<[u8]>> {
        self.lock().bytes(id)
    }

    pub(crate) fn has(&self, id: Id128) -> bool {
        let known = self.lock();
        known.own.contains_key(&id) || known.fetched.contains_key(&id)
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, Known> {
        self.0.lock()
    }
}

impl Known {
    fn bytes(&self, id: Id128) -> Option<Arc<[u8]>> {
        self.own.get(&id).or_else(|| self.fetched.get(&id)).cloned()
    }

    fn parsed(&mut self, id: Id128, bytes: usize) {
        if self.fetched.contains_key(&id) {
            self.fetched_bytes = self.fetched_bytes.saturating_add(bytes.saturating_mul(PARSED));
        }
    }

    fn forget_fetched(&mut self) {
        self.fetched.clear();
        self.fetched_bytes = 0;
        let own = &self.own;
        self.schemas.retain(|id, _| own.contains_key(id));
        self.configured.retain(|(_, id), _| own.contains_key(id));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use polywire_core::{
        codec::{OptionSpec, Options, Properties, cdr::CDR},
        layout::Layout,
        program::Program,
    };

    use super::*;

    /// Refuses each document, and counts them.
    struct Refusing(AtomicUsize);

    impl Codec for Refusing {
        fn name(&self) -> &'static str {
            "refusing"
        }

        fn properties(&self) -> &'static Properties {
            CDR.properties()
        }

        fn options(&self) -> &'static [OptionSpec] {
            &[]
        }

        fn configured(&self, _: &[u8]) -> Result<Arc<dyn Codec>, LowerError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Err(LowerError::Option("it says nothing".into()))
        }

        fn lower_encode(&self, _: &Options, _: &Schema, _: &Arc<Layout>) -> Result<Program, LowerError> {
            Err(LowerError::Option("nothing is written".into()))
        }

        fn lower_decode(&self, _: &Options, _: &Schema, _: &Schema, _: &Arc<Layout>) -> Result<Program, LowerError> {
            Err(LowerError::Option("nothing is read".into()))
        }
    }

    static REFUSING: Refusing = Refusing(AtomicUsize::new(0));

    fn id_of(bytes: &[u8]) -> Id128 {
        Id128(DocumentHash::of(bytes).to_bytes())
    }

    fn verified(bytes: &[u8]) -> Document<'_> {
        Document::verify(id_of(bytes), bytes).expect("the hash is right")
    }

    #[test]
    fn a_document_that_is_refused_is_parsed_once() {
        let documents = Documents::default();
        let id = id_of(b"no template");
        assert!(documents.configured(&REFUSING, id).is_none());
        documents.receive(verified(b"no template"));
        for _ in 0..3 {
            let refused = documents.configured(&REFUSING, id).expect("the document is there").err();
            assert_eq!(refused, Some(LowerError::Option("it says nothing".into())));
        }
        assert_eq!(REFUSING.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn fetched_documents_are_forgotten_before_they_are_too_many() {
        let documents = Documents::default();
        let id_of_size = |size: usize, fill: u8| {
            let bytes = vec![fill; size];
            documents.receive(verified(&bytes));
            id_of(&bytes)
        };
        let kept = documents.publish_bytes(b"our own".to_vec());
        let first = id_of_size(FETCHED_BYTES / 4, 1);
        let second = id_of_size(FETCHED_BYTES / 4, 2);
        assert!(documents.has(first) && documents.has(second));
        // A parsed document counts more, even if it is not a schema.
        assert!(documents.schema(second).is_some_and(|schema| schema.is_err()));
        let third = id_of_size(1, 3);
        assert!(!documents.has(first) && !documents.has(second) && documents.has(third) && documents.has(kept));
    }

    #[test]
    fn what_is_no_schema_is_known_to_be_none() {
        let documents = Documents::default();
        let id = id_of(b"no schema");
        let other = Document::verify(id, b"something else").expect_err("another hash");
        assert!(other.to_string().contains("has the hash"));
        assert!(documents.schema(id).is_none());
        documents.receive(verified(b"no schema"));
        assert!(documents.schema(id).expect("it is there").expect_err("no schema").contains("is not a schema"));
        assert_eq!(documents.lock().schemas.len(), 1);
        documents.lock().forget_fetched();
        assert!(documents.schema(id).is_none() && documents.lock().schemas.is_empty());
    }
}
