//! The traits through which the links of a port call subscribers and publishers, and [`Source`],
//! the origin of a message.

use std::{collections::BTreeSet, sync::Arc};

use polywire_core::{
    directory::SubscriberData,
    envelope::{Announcement, ChannelId, Envelope, Id128},
    qos::{Offer, OfferError, Qos},
    ros::TypeHash,
    schema::Schema,
};

use super::inner::Inner;
use crate::{
    engine::{LinkInfo, Properties, SharedPayload},
    stats::TopicStats,
};

/// The interface through which links call a subscriber.
pub(crate) trait Route: Send + Sync {
    /// Returns the subscriber for a topic: itself or, if it has a pattern, its part for this topic.
    /// `None` if the subscriber does not want the topic.
    fn of_topic(&self, topic: &str) -> Option<Arc<dyn Route>>;
    /// Whether the subscriber wants the topic.
    fn wants(&self, topic: &str) -> bool;
    /// The subscriber's topic, or its pattern.
    fn topic(&self) -> &str;
    /// Whether this subscriber is `whole`, or the part of `whole` for one topic.
    fn is_of(&self, whole: &Arc<dyn Route>) -> bool;
    /// The type that the subscriber reads. `None` if it reads every type.
    fn schema(&self) -> Option<&Schema> {
        None
    }
    /// Whether the subscriber needs the writer's schema to read its messages.
    fn needs_schema(&self) -> bool;
    /// Whether the subscriber needs the schema of a writer whose type has this ROS 2 hash, because
    /// it reads every type, or a type with another hash.
    fn lacks(&self, told: TypeHash) -> bool {
        self.needs_schema() && self.schema().and_then(|own| TypeHash::of(own).ok()) != Some(told)
    }
    /// Whether a channel concerns the subscriber: its partitions match those of the writer and, if
    /// the channel carries a history, the subscriber waits for it. If not, no refusal is reported.
    fn concerns(&self, announcement: &Announcement, offer: &Offer) -> bool;
    /// Follows a writer that announces that its topic moves to other endpoints. Does not block.
    fn follow(&self, source: &Source, endpoints: &[String]);
    /// Opens a channel over an engine with the properties `medium`. Fails with the reason if the
    /// subscriber cannot read the channel. `schema` is `None` if the writer announced no schema, or
    /// the subscriber needs none.
    fn open(
        &self,
        node: &Arc<Inner>,
        source: &Source,
        medium: Properties,
        offer: &Offer,
        schema: Option<&Schema>,
    ) -> Result<Arc<dyn Slot>, String>;
    /// Reports that the subscriber cannot read a channel.
    fn refused(&self, source: &Source, reason: &str);
    /// Reports that `count` messages arrived before it was decided that the subscriber reads their
    /// channel.
    fn missed(&self, count: u64);
    /// Reports that the node has closed: no more messages are delivered.
    fn node_closed(&self);
    /// Describes the subscriber, without its endpoint and its writers. `None` if the subscriber
    /// does not belong to the application.
    fn describe(&self) -> Option<SubscriberData>;
    /// The subscriber's counts. `None` if the subscriber does not belong to the application.
    fn stats(&self) -> Option<TopicStats>;
}

/// A subscriber's end of one channel. The default methods fit a channel whose messages do not refer
/// to each other, and whose losses are not counted.
pub(crate) trait Slot: Send + Sync {
    /// Delivers a message. `wire_bytes` is the payload's size before it was unpacked. `shared` is
    /// `Some` if the payload may be kept by reference instead of copied.
    fn deliver(&self, envelope: &Envelope<'_>, payload: &[u8], wire_bytes: usize, shared: Option<SharedPayload<'_>>);
    /// Delivers messages that arrived together and are not compressed.
    fn deliver_together(&self, messages: &[(Envelope<'_>, &[u8])]) {
        messages.iter().for_each(|(envelope, payload)| self.deliver(envelope, payload, payload.len(), None));
    }
    /// Whether each message is taken during the call that delivers it, as by a callback.
    fn is_inline(&self) -> bool {
        false
    }
    /// Whether the slot takes payloads as they arrived, still compressed.
    fn takes_packed(&self) -> bool {
        false
    }
    /// Reports a message that cannot be decompressed, or whose fields the engine cannot read.
    fn undecodable(&self, _sequence: u64, _reason: &dyn ToString) {}
    /// Whether messages may refer to earlier ones.
    fn is_stream(&self) -> bool {
        false
    }
    /// Whether the next messages cannot be read without a key frame, or the channel carries a
    /// history that has not arrived yet.
    fn needs_key_frame(&self) -> bool {
        false
    }
    /// Whether the channel carries the history or the liveliness assertions of another channel's
    /// writer.
    fn is_auxiliary(&self) -> bool {
        false
    }
    /// Whether the history of this channel's writer is missing and wanted.
    fn wants_history(&self) -> bool {
        false
    }
    /// Whether this channel's messages wait for a history, or this channel carries a history for
    /// which messages of another channel wait.
    fn has_barrier(&self) -> bool {
        false
    }
    /// Whether the subscriber has begun or ceased to want a history since the last call.
    fn history_changed(&self) -> bool {
        false
    }
    /// Reports that the sender dropped `count` messages up to and including this sequence number.
    /// With a count of 0, the channel's messages begin after this sequence number.
    fn lost(&self, _sequence: u64, _count: u64) {}
    /// Reports that the peer's writer knows that this channel is read. May be called repeatedly.
    fn accepted(&self) {}
    /// Reports whether the writer is alive, according to the engine. May be called repeatedly.
    fn liveliness_changed(&self, _is_alive: bool) {}
    /// Reports that the link of the channel has ended. The writer may return over another link.
    fn broke(&self) {}
    /// Reports that everything that has arrived so far was delivered.
    fn drained(&self) {}
}

/// The writers that a subscriber reads, and those that it cannot read. A writer counts once,
/// however many channels it has.
#[derive(Debug, Default)]
pub(crate) struct Matches {
    pub(crate) reads: BTreeSet<WriterKey>,
    pub(crate) refuses: BTreeSet<WriterKey>,
}

/// Identifies a writer: by its id or, if the id is zero, by its link and channel.
pub(crate) type WriterKey = (Id128, u64, ChannelId);

/// The interface through which links request a publisher's history.
pub(crate) trait Replay: Send + Sync {
    /// Requests the history for a subscriber. Does not block.
    fn request(&self);
}

/// Is notified of the answers to a channel of this node.
pub(crate) trait Watcher: Send + Sync {
    /// Reports that a peer has answered, or has changed its answer. Does not block.
    fn answered(&self);
}

/// The origin of messages: a writer, and the link to it.
#[derive(Clone, Debug)]
pub struct Source {
    /// The writer's announcement.
    pub announcement: Arc<Announcement>,
    /// The link over which the announcement arrived.
    pub link: Arc<LinkInfo>,
}

impl Source {
    /// Whether the channel carries messages as they are published. False for a channel that carries
    /// a history or assertions, or only announces where its writer has moved to.
    pub(super) fn is_publisher(&self) -> bool {
        let is_beside = |offer: &Offer| offer.is_auxiliary() || !offer.moved_to.is_empty();
        !Offer::parse(&self.announcement.offer).is_ok_and(|offer| is_beside(&offer))
    }

    /// The quality of service that the writer offers. Fails if the offer is malformed, or has a
    /// policy that must be understood and that this node does not know.
    ///
    /// ```
    /// use polywire::{Node, qos::Qos};
    /// # #[derive(Default, polywire::Message)]
    /// # struct Pump { id: u32 }
    /// # let node = Node::new();
    /// # let pumps = node.subscribe::<Pump>("pumps", Some("cdr@inproc/source-qos-doc"))?.qos(Qos::default().exclusive(0))?.open();
    /// let publish = node.publish::<Pump>("pumps", Some("cdr@inproc/source-qos-doc"))?;
    /// let publisher = publish.qos(Qos::default().exclusive(3))?.open()?;
    /// publisher.publish(&Pump { id: 7 })?;
    /// assert_eq!(pumps.recv().unwrap().info.source.qos()?, Qos::default().exclusive(3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn qos(&self) -> Result<Qos, OfferError> {
        Offer::parse(&self.announcement.offer).map(|offer| offer.qos)
    }
}
