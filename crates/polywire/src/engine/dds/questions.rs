//! Questions of this node to ROS 2 nodes, for the types of what they publish, by the service that
//! `polywire_core::ros::type_query` describes, in the form that the middleware of ROS 2 on Cyclone
//! DDS uses.
//!
//! A question is sent when this node has matched both ends of the server, and the server has had
//! time to match this node.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use polywire_core::{
    envelope::Id128,
    ros::{
        TypeHash,
        type_query::{self, TypeQuery},
    },
    rpc,
    schema::Schema,
};
use polywire_dds::{Bytes, Error, Guid, Kind, Qos, Reader, Sample, Writer};

use super::{
    deferred::Task,
    inbox::{Item, Receiver},
    service::{Tag, tagged, untagged},
    state::Shared,
};

/// How long a server gets to match this node.
const SETTLE: Duration = Duration::from_millis(100);

/// The time after which an unanswered question is sent again: the server may not have matched this
/// node before.
const AGAIN: Duration = Duration::from_millis(500);

/// How long to wait for an answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// The interval between checks whether a question may be sent.
pub(super) const LOOK: Duration = Duration::from_millis(10);

/// The open questions, by the ROS 2 nodes that are asked.
#[derive(Default)]
pub(super) struct Questions {
    clients: BTreeMap<(Guid, String), Client>,
    /// The number of the last question.
    number: u64,
}

/// This node's writer and reader for the service of one ROS 2 node.
struct Client {
    writer: Writer,
    reader: Reader,
    /// Since when both ends of the server are matched.
    found: Option<Instant>,
    questions: Vec<Question>,
}

struct Question {
    query: TypeQuery,
    tag: Tag,
    began: Instant,
    asked: Option<Instant>,
}

/// The hash of a type, with the type or the reason why it is not known.
pub(super) type TypeResult = (TypeHash, Result<Schema, String>);

impl Questions {
    pub(super) fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// Asks a ROS 2 node of a participant for a type. Fails if DDS does, such as when DDS Security
    /// does not allow the service.
    pub(super) fn ask(&mut self, shared: &Shared, of: Guid, node: &str, query: TypeQuery) -> Result<(), Error> {
        self.number += 1;
        let tag = tag(shared.us.guid(), self.number);
        let question = Question { query, tag, began: Instant::now(), asked: None };
        let key = (of, node.to_owned());
        if let Some(client) = self.clients.get_mut(&key) {
            client.questions.push(question);
            return Ok(());
        }
        let client = Client::new(shared, node, question)?;
        self.clients.insert(key, client);
        Ok(())
    }

    /// Handles an answer. Any program may have sent it, to a question of any client.
    pub(super) fn answered(&mut self, shared: &Shared, sample: &Sample) -> Option<TypeResult> {
        let (tag, answer) = untagged(sample.bytes.sample(), true)?;
        let mut questions = self.clients.values_mut().map(|client| &mut client.questions);
        let question = questions.find_map(|all| {
            let at = all.iter().position(|question| question.tag == tag)?;
            Some(all.swap_remove(at))
        });
        let query = question?.query;
        let most = shared.options.limits.document_bytes;
        let result = match answer.len() > most {
            true => Err(format!("its answer has more than {most} bytes")),
            false => query.schema(&answer).map_err(|error| error.to_string()),
        };
        self.end_idle(shared);
        Some((query.type_hash, result))
    }

    /// Sends the questions that are due. Returns those that were not answered in time.
    pub(super) fn keep_time(&mut self, shared: &Shared, now: Instant) -> Vec<TypeResult> {
        let mut failed = Vec::new();
        for ((of, node), client) in &mut self.clients {
            client.send(shared, *of, now);
            let is_late = |question: &mut Question| now.duration_since(question.began) >= PATIENCE;
            failed.extend(client.questions.extract_if(.., is_late).map(|late| {
                (late.query.type_hash, Err(format!("the node {node} has not answered within {} s", PATIENCE.as_secs())))
            }));
        }
        self.end_idle(shared);
        failed
    }

    /// Forgets a participant that has gone. Returns the open questions to its nodes.
    pub(super) fn forget(&mut self, shared: &Shared, participant: Guid) -> Vec<TypeResult> {
        let gone = self.clients.iter_mut().filter(|((of, _), _)| *of == participant);
        let gone = gone.flat_map(|((_, node), client)| {
            let failed = move |question: Question| (question.query.type_hash, Err(format!("the node {node} has gone")));
            client.questions.drain(..).map(failed)
        });
        let gone = gone.collect();
        self.end_idle(shared);
        gone
    }

    /// Deletes writers and readers without open questions. The thread for deferred work does this,
    /// because it may take long.
    fn end_idle(&mut self, shared: &Shared) {
        for (_, Client { writer, reader, .. }) in self.clients.extract_if(.., |_, client| client.questions.is_empty()) {
            shared.deferred.add(Task::DropTypeClient(Box::new((writer, reader))));
        }
    }
}

impl Client {
    fn new(shared: &Shared, node: &str, question: Question) -> Result<Client, Error> {
        let service = format!("{}/{}", node.trim_start_matches('/'), type_query::NAME);
        let type_name = |part: &str| format!("{}{part}_", type_query::TYPE_NAME);
        let qos = Qos { reliable: Some(Duration::from_millis(100)), ..Qos::default() };
        let questions = shared.us.topic(&rpc::request_topic(&service), &type_name("Request"), false)?;
        let answers = shared.us.topic(&rpc::reply_topic(&service), &type_name("Response"), false)?;
        let receiver = Receiver { inbox: shared.inbox.clone(), item: |_, sample| Item::TypeReceived(sample) };
        let reader = answers.reader(&qos, Arc::new(receiver), |_| {})?;
        Ok(Client { writer: questions.writer(&qos, |_| {})?, reader, found: None, questions: vec![question] })
    }

    /// Sends the questions that are due, once the server has had time to find this node.
    fn send(&mut self, shared: &Shared, of: Guid, now: Instant) {
        let has = |ends: Vec<Guid>| ends.iter().any(|end| end.participant() == of);
        let is_found = self.found.is_some() || has(self.writer.readers()) && has(self.reader.writers());
        self.found = is_found.then(|| self.found.unwrap_or(now));
        if self.found.is_none_or(|found| now.duration_since(found) < SETTLE) {
            return;
        }
        for question in &mut self.questions {
            if question.asked.is_some_and(|asked| now.duration_since(asked) < AGAIN) {
                continue;
            }
            question.asked = Some(now);
            let written = Bytes::of_sample(&tagged(&question.query.to_cdr(), true, &question.tag)).and_then(|bytes| {
                let (kind, key_hash, sequence) = (Kind::Data, None, None);
                self.writer.write(&Sample { kind, is_key: false, bytes, key_hash, timestamp_ns: 0, sequence })
            });
            if let Err(error) = written {
                log::debug!("{}: a question for a type: {error}", shared.endpoint);
            }
        }
    }
}

/// Makes the tag that identifies a question: an answer reaches all clients that have asked the same
/// node.
fn tag(own: Guid, number: u64) -> Tag {
    let mut tag = [0; 16];
    let (client, last) = tag.split_at_mut(8);
    client.copy_from_slice(&Id128::of_document(&own.0).0[..8]);
    last.copy_from_slice(&number.to_le_bytes());
    tag
}
