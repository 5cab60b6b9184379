//! The service by which ROS 2 nodes query this node's types, in the form that the middleware of ROS
//! 2 on Cyclone DDS uses. `polywire_core::ros::type_query` has the messages.

use std::{sync::Arc, time::Duration};

use polywire_core::{
    ros::{
        TypeName,
        type_query::{self, TypeQuery},
    },
    rpc,
    schema::Schema,
};
use polywire_dds::{Bytes, Error, Guid, Kind, Qos, Reader, Sample, Writer};

use super::{
    super::late,
    inbox::{Item, Receiver},
    service::{tagged, untagged},
    state::Shared,
};

/// The writer of answers and the reader of questions.
pub(super) struct Descriptions {
    writer: Writer,
    reader: Reader,
}

impl Descriptions {
    /// Opens the service of the ROS 2 node with this name. Fails if DDS Security does not allow it.
    pub(super) fn new(shared: &Shared, node: &str) -> Result<Descriptions, Error> {
        let service = format!("{node}/{}", type_query::NAME);
        let type_name = |part: &str| format!("{}{part}_", type_query::TYPE_NAME);
        let qos =
            Qos { reliable: Some(Duration::from_millis(100)), keep_last: Some(late::DEFAULT_DEPTH), ..Qos::default() };
        let receiver = Receiver { inbox: shared.inbox.clone(), item: |_, sample| Item::TypeRequested(sample) };
        let questions = shared.us.topic(&rpc::request_topic(&service), &type_name("Request"), false)?;
        let answers = shared.us.topic(&rpc::reply_topic(&service), &type_name("Response"), false)?;
        let reader = questions.reader(&qos, Arc::new(receiver), |_| {})?;
        Ok(Descriptions { writer: answers.writer(&qos, |_| {})?, reader })
    }

    pub(super) fn writer(&self) -> Guid {
        self.writer.guid()
    }

    pub(super) fn reader(&self) -> Guid {
        self.reader.guid()
    }

    /// Answers a question, which any program may have sent.
    pub(super) fn asked(&self, shared: &Shared, sample: &Sample) {
        let Some((tag, request)) = untagged(sample.bytes.sample(), true) else { return };
        let answer =
            type_query::answer(&request, |query| published(shared, query).ok_or("this node does not publish the type"));
        let written = Bytes::of_sample(&tagged(&answer, true, &tag)).and_then(|bytes| {
            let (kind, key_hash, sequence) = (Kind::Data, None, None);
            self.writer.write(&Sample { kind, is_key: false, bytes, key_hash, timestamp_ns: 0, sequence })
        });
        if let Err(error) = written {
            log::debug!("{}: an answer to a question for a type: {error}", shared.endpoint);
        }
    }
}

/// Returns the queried type, if this node publishes it.
fn published(shared: &Shared, query: &TypeQuery) -> Option<Schema> {
    let schemas: Vec<_> = {
        let state = shared.state.lock();
        let is_it = |type_name: &str| TypeName::of_dds(type_name).is_some_and(|of| of.to_string() == query.type_name);
        let channels = state.channels.values().filter(|channel| is_it(&channel.type_name));
        channels.map(|channel| channel.announcement.schema).collect()
    };
    query.type_hash.find(schemas.into_iter().filter_map(|schema| shared.sink.document(schema)))
}
