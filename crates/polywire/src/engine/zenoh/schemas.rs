//! Schemas by queries. Each node answers queries for the schemas that it has, in bytes or as text,
//! so that every Zenoh application can learn what a topic's messages are. And a node asks in the
//! same way for the schema that the encoding of a foreign sample names.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use polywire_core::envelope::{ChannelId, Id128};
use polywire_core::schema::{Schema, SchemaLimits};
use polywire_idl::emit::{EMITTERS, emitter};
use zenoh::{
    Wait,
    bytes::Encoding,
    query::{ConsolidationMode, Query, QueryTarget, Queryable, Reply},
};

use super::{
    super::LinkId,
    inbox::{Arrival, Inbox},
    key::last_schema,
    outgoing::{Outgoing, Put},
    port::Shared,
};

/// Queries that wait for an answer, at most. Others get none.
const MOST_QUERIES: usize = 64;
/// Longest parameters of a query that are looked at, in bytes.
const LONGEST: usize = 64;
/// The parameter that names the format of the answer.
const FORMAT: &str = "format";
/// The encoding of a schema document.
const DOCUMENT: &str = "application/octet-stream;polywire-schema";
/// How long nodes are asked for a schema. The messages of its channel wait as long.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of fetched schemas that are kept until the node wants them.
const MOST_KEPT: usize = 4 << 20;

/// What came of a query for a schema.
pub(super) enum Answered {
    /// This node has it already.
    Here,
    Document(Vec<u8>),
    Nobody,
}

/// The queries of others that wait, and the schemas that this node asks for.
pub(super) struct Schemas {
    most_asked: usize,
    queries: VecDeque<Query>,
    asked: BTreeSet<Id128>,
    /// Channels of foreign applications whose schema was asked for, with what came on them.
    unsettled: BTreeMap<ChannelId, Unsettled>,
    /// The links that want a schema that is asked for.
    wanted: BTreeMap<Id128, LinkId>,
    kept: BTreeMap<Id128, Vec<u8>>,
}

struct Unsettled {
    schema: Id128,
    link: LinkId,
    came: Vec<Arrival>,
}

impl Schemas {
    /// No more than so many schemas are asked for at a time.
    pub(super) fn new(most_asked: usize) -> Schemas {
        let (queries, asked, unsettled) = (VecDeque::new(), BTreeSet::new(), BTreeMap::new());
        Schemas { most_asked, queries, asked, unsettled, wanted: BTreeMap::new(), kept: BTreeMap::new() }
    }

    pub(super) fn next_query(&mut self) -> Option<Query> {
        self.queries.pop_front()
    }

    pub(super) fn has_queries(&self) -> bool {
        !self.queries.is_empty()
    }

    /// Passes on what came of foreign applications. What belongs to a channel whose schema must be
    /// asked for waits until that is known; its bytes count as waiting for the node.
    pub(super) fn pass(&mut self, link: LinkId, mut arrival: Arrival, out: &mut Outgoing, inbox: &mut Inbox) {
        let channel = match &mut arrival {
            Arrival::Announced(channel, _, announcement) => {
                let schema = announcement.schema;
                if !schema.is_zero() {
                    match self.ask(schema, out) {
                        true => drop(self.unsettled.insert(*channel, Unsettled { schema, link, came: Vec::new() })),
                        false => announcement.schema = Id128::ZERO,
                    }
                }
                *channel
            }
            Arrival::Foreign { channel, .. } | Arrival::Lost(channel, ..) => *channel,
            _ => return inbox.push(link, arrival),
        };
        match self.unsettled.get_mut(&channel) {
            Some(unsettled) => unsettled.came.push(arrival),
            None => inbox.push(link, arrival),
        }
    }

    /// The node wants a schema of a foreign application. It gets it before what came later.
    pub(super) fn want(&mut self, link: LinkId, schema: Id128, out: &mut Outgoing, inbox: &mut Inbox) {
        let kept = self.kept.get(&schema).cloned();
        match kept.is_none() && self.ask(schema, out) {
            true => drop(self.wanted.insert(schema, link)),
            false => inbox.push_first(link, Arrival::Document(schema, kept)),
        }
    }

    /// Asks for a schema, unless that is under way. False if there are too many.
    fn ask(&mut self, schema: Id128, out: &mut Outgoing) -> bool {
        if self.asked.contains(&schema) {
            return true;
        }
        let has_room = self.asked.len() < self.most_asked;
        if has_room {
            self.asked.insert(schema);
            out.push(Put::Ask { schema });
        }
        has_room
    }

    /// Channels of this schema are settled: if nobody has it, the subscriber's own type is taken.
    pub(super) fn learn(&mut self, schema: Id128, answer: Answered, inbox: &mut Inbox) {
        if !self.asked.remove(&schema) {
            return;
        }
        let is_known = !matches!(answer, Answered::Nobody);
        if let Answered::Document(bytes) = answer {
            if self.kept.values().map(Vec::len).sum::<usize>() + bytes.len() > MOST_KEPT {
                self.kept.clear();
            }
            self.kept.insert(schema, bytes);
        }
        if let Some(link) = self.wanted.remove(&schema) {
            inbox.push(link, Arrival::Document(schema, self.kept.get(&schema).cloned()));
        }
        let settled = |(channel, unsettled): (&ChannelId, &Unsettled)| (unsettled.schema == schema).then_some(*channel);
        let channels: Vec<ChannelId> = self.unsettled.iter().filter_map(settled).collect();
        for Unsettled { link, came, .. } in channels.iter().filter_map(|channel| self.unsettled.remove(channel)) {
            for mut arrival in came {
                if let (Arrival::Announced(_, _, announcement), false) = (&mut arrival, is_known) {
                    announcement.schema = Id128::ZERO;
                }
                inbox.push(link, arrival);
            }
        }
    }
}

impl Shared {
    /// Answers queries for schemas from now on.
    pub(super) fn serve_schemas(self: &Arc<Self>) -> zenoh::Result<Queryable<()>> {
        let asked = Arc::downgrade(self);
        let queryable = self.session.declare_queryable(self.keys.schemas());
        let queryable = queryable.callback(move |query| {
            if let Some(shared) = asked.upgrade() {
                let mut state = shared.lock();
                // A query that is dropped here has ended without an answer.
                if state.schemas.queries.len() < MOST_QUERIES {
                    state.schemas.queries.push_back(query);
                }
                shared.wake(state);
            }
        });
        queryable.wait()
    }

    /// Without a lock: the session may wait for the network.
    pub(super) fn answer_query(&self, query: &Query) {
        let Some(schema) = last_schema(query.key_expr().as_str()) else { return };
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

    /// Asks all nodes for a schema, without a lock.
    pub(super) fn ask(&self, schema: Id128) {
        let shared = self.this.clone();
        if self.sink.document(schema).is_some() {
            return learn(&shared, schema, Answered::Here);
        }
        let (most, question) = (self.local.options.limits.document_bytes, Question::new(shared, schema));
        let query = self.session.get(self.keys.schema(schema)).target(QueryTarget::All).timeout(PATIENCE);
        let query = query.consolidation(ConsolidationMode::None).callback(move |reply| question.replied(&reply, most));
        if let Err(error) = query.wait() {
            log::debug!("{}: cannot ask for a schema: {error}", self.endpoint);
        }
    }
}

/// A query that is under way. When it ends, nobody has answered.
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

/// A schema in a format, and its encoding.
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
    use polywire_core::{
        envelope::Announcement,
        frame::Start,
        schema::{Def, Member, SchemaBuilder, Type},
    };
    use zenoh::bytes::ZBytes;

    use super::*;

    const SCHEMA: Id128 = Id128([7; 16]);
    const LINK: LinkId = LinkId(1);

    fn announced(channel: u32, schema: Id128) -> Arrival {
        let announcement = Announcement { schema, ..Announcement::default() };
        Arrival::Announced(ChannelId(channel), Start::default(), Box::new(announcement))
    }

    fn message(channel: u32) -> Arrival {
        Arrival::Foreign { channel: ChannelId(channel), at: Start::default(), payload: ZBytes::new() }
    }

    /// What is in the inbox, in words.
    fn taken(inbox: &mut Inbox) -> Vec<String> {
        std::iter::from_fn(|| inbox.pop())
            .map(|arrived| match arrived.what {
                Arrival::Announced(channel, _, a) => {
                    format!("{channel} {}", if a.schema.is_zero() { "-" } else { "+" })
                }
                Arrival::Foreign { channel, .. } => format!("{channel} message"),
                Arrival::Document(_, bytes) => format!("{bytes:?}"),
                _ => "something else".into(),
            })
            .collect()
    }

    #[test]
    fn messages_wait_for_their_schema_and_others_do_not() {
        let (mut schemas, mut out, mut inbox) = (Schemas::new(1), Outgoing::new(100), Inbox::default());
        for arrival in [announced(1, SCHEMA), message(1), announced(2, Id128::ZERO), message(2), message(1)] {
            schemas.pass(LINK, arrival, &mut out, &mut inbox);
        }
        assert!(matches!(out.pop(), Some(Put::Ask { schema: SCHEMA })) && out.pop().is_none());
        assert_eq!(taken(&mut inbox), ["2 -", "2 message"]);
        schemas.pass(LINK, announced(3, Id128([8; 16])), &mut out, &mut inbox);
        assert_eq!(taken(&mut inbox), ["3 -"], "one is asked for at a time");
        schemas.learn(SCHEMA, Answered::Document(vec![1]), &mut inbox);
        schemas.learn(SCHEMA, Answered::Nobody, &mut inbox);
        assert_eq!(taken(&mut inbox), ["1 +", "1 message", "1 message"]);
        inbox.push(LINK, message(1));
        schemas.want(LINK, SCHEMA, &mut out, &mut inbox);
        assert_eq!(taken(&mut inbox), ["Some([1])", "1 message"]);
    }

    #[test]
    fn a_schema_that_nobody_has_leaves_the_type_to_the_subscriber() {
        let (mut schemas, mut out, mut inbox) = (Schemas::new(8), Outgoing::new(100), Inbox::default());
        schemas.pass(LINK, announced(1, SCHEMA), &mut out, &mut inbox);
        schemas.want(LINK, SCHEMA, &mut out, &mut inbox);
        schemas.learn(SCHEMA, Answered::Nobody, &mut inbox);
        assert_eq!(taken(&mut inbox), ["None", "1 -"]);
    }

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
