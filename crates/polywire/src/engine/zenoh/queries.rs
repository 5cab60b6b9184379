//! Queries for schemas. Each node answers queries for the schemas that it has, in bytes or as text,
//! so that every Zenoh application can learn the type of a topic's messages. A node sends the same
//! query to learn the schema that the encoding of a foreign sample names.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use polywire_core::envelope::Id128;
use polywire_core::schema::{Schema, SchemaLimits};
use polywire_idl::emit::{EMITTERS, emitter};
use zenoh::{
    Wait,
    bytes::Encoding,
    query::{ConsolidationMode, Query, QueryTarget, Queryable, Reply},
    sample::Locality,
};

use super::{key::last_schema, port::Shared, schemas::Answered};

/// The longest parameters of a query that are read, in bytes.
const LONGEST: usize = 64;
/// The parameter that names the format of the answer.
const FORMAT: &str = "format";
/// The encoding of a schema document.
const DOCUMENT: &str = "application/octet-stream;polywire-schema";
/// The time-out of a query for a schema. The messages of the schema's channel wait as long.
const PATIENCE: Duration = Duration::from_secs(2);

impl Shared {
    /// Answers queries for schemas from now on.
    pub(super) fn serve_schemas(self: &Arc<Self>) -> zenoh::Result<Queryable<()>> {
        let asked = Arc::downgrade(self);
        let queryable = self.session.declare_queryable(self.keys.schemas());
        let queryable = queryable.callback(move |query| {
            if let Some(shared) = asked.upgrade() {
                shared.schema_asked(query);
            }
        });
        queryable.wait()
    }

    /// Queues a query for a schema or a type. Called by Zenoh's threads.
    pub(super) fn schema_asked(&self, query: Query) {
        let mut state = self.lock();
        let too_many = state.schemas.asked(query);
        self.wake(state);
        // The query ends without a lock, because the session may call back.
        drop(too_many);
    }

    /// Answers a query for a schema or a type. Called without a lock, because the session may wait
    /// for the network, and call back when the query ends.
    pub(super) fn answer_query(&self, query: Query) {
        let Some(schema) = last_schema(query.key_expr().as_str()) else { return self.answer_type_query(&query) };
        let Some(document) = self.sink.document(schema) else { return };
        let answer = match query.parameters().as_str().len() {
            0..=LONGEST => answer(&document, query.parameters().get(FORMAT)),
            _ => Err(format!("the parameters are longer than {LONGEST} bytes")),
        };
        let sent = match answer {
            Ok((encoding, bytes)) => query.reply(self.keys.schema(schema), bytes).encoding(encoding).wait(),
            Err(reason) => query.reply_err(reason).encoding(Encoding::TEXT_PLAIN).wait(),
        };
        if let Err(error) = sent {
            log::debug!("{}: an answer to a query: {error}", self.endpoint);
        }
    }

    /// Asks all nodes for a schema. Called without a lock.
    pub(super) fn ask(&self, schema: Id128) {
        let shared = self.this.clone();
        if self.sink.document(schema).is_some() {
            return learn(&shared, schema, Answered::Here);
        }
        let (most, question) = (self.local.options.limits.document_bytes, Question::new(shared, schema));
        let query = self.session.get(self.keys.schema(schema)).target(QueryTarget::All).timeout(PATIENCE);
        let query = query.allowed_destination(Locality::Remote).consolidation(ConsolidationMode::None);
        let query = query.callback(move |reply| question.replied(&reply, most));
        if let Err(error) = query.wait() {
            log::debug!("{}: cannot ask for a schema: {error}", self.endpoint);
        }
    }
}

/// A query for a schema that is under way. If it ends without an answer, nobody has the schema.
struct Question {
    shared: Weak<Shared>,
    schema: Id128,
    is_answered: AtomicBool,
}

impl Question {
    fn new(shared: Weak<Shared>, schema: Id128) -> Question {
        Question { shared, schema, is_answered: AtomicBool::new(false) }
    }

    /// Takes the first answer that is the schema.
    fn replied(&self, reply: &Reply, most: usize) {
        let Ok(sample) = reply.result() else { return };
        if sample.payload().len() > most {
            return;
        }
        let bytes = sample.payload().to_bytes().into_owned();
        if Id128::of_document(&bytes) == self.schema && !self.is_answered.swap(true, Ordering::AcqRel) {
            learn(&self.shared, self.schema, Answered::Document(bytes));
        }
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        if !*self.is_answered.get_mut() {
            learn(&self.shared, self.schema, Answered::Nobody);
        }
    }
}

fn learn(shared: &Weak<Shared>, schema: Id128, answer: Answered) {
    if let Some(shared) = shared.upgrade() {
        let mut state = shared.lock();
        state.learn(schema, answer);
        shared.wake(state);
    }
}

/// Returns the encoding of a schema in a format, and its bytes.
fn answer(document: &[u8], format: Option<&str>) -> Result<(String, Vec<u8>), String> {
    let Some(format) = format else { return Ok((DOCUMENT.into(), document.to_vec())) };
    let Some(emitter) = emitter(format) else {
        let names: Vec<&str> = EMITTERS.iter().map(|emitter| emitter.name).collect();
        return Err(format!("there is no such format: without the parameter, or with {}", names.join(", ")));
    };
    let schema = Schema::from_bytes(document, &SchemaLimits::default()).map_err(|error| error.to_string())?;
    let text = (emitter.emit)(&schema, &[]).map_err(|error| error.to_string())?;
    Ok((format!("text/plain;{}", emitter.name), text.into_bytes()))
}

#[cfg(test)]
mod tests {
    use polywire_core::schema::{Def, Member, SchemaBuilder, Type};

    use super::*;

    #[test]
    fn schemas_are_given_as_bytes_and_as_text() {
        let mut types = SchemaBuilder::new();
        let root = types.add(Def::structure("Pump", vec![Member::new("level", Type::Bool)]));
        let document = types.finish(Type::Def(root)).expect("valid").to_bytes();
        assert_eq!(answer(&document, None), Ok((DOCUMENT.into(), document.clone())));
        let (encoding, text) = answer(&document, Some("idl")).expect("text");
        let text = String::from_utf8(text).expect("UTF-8");
        assert!(encoding == "text/plain;idl" && text.contains("boolean level"), "{encoding} {text}");
        for (document, format) in [(&document[..], "cobol"), (&[], "idl"), (&[0xff; 40], "idl")] {
            assert!(answer(document, Some(format)).is_err(), "{format}");
        }
    }
}
