//! The traits by which the links of a port and a subscriber call each other, and [`Source`], which
//! says where a message comes from.

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
    engine::{Held, LinkInfo, Properties},
    stats::TopicStats,
};

/// A subscriber, as links see it.
pub(crate) trait Route: Send + Sync {
    /// The subscriber for a topic: itself, or the part of it that a pattern has for this topic.
    /// `None` if it does not want the topic.
    fn of_topic(&self, topic: &str) -> Option<Arc<dyn Route>>;
    /// Whether it wants the topic.
    fn wants(&self, topic: &str) -> bool;
    /// The topic, or the pattern.
    fn topic(&self) -> &str;
    /// Whether it is the other one, or the part of it for one topic.
    fn is_of(&self, whole: &Arc<dyn Route>) -> bool;
    /// The type that it reads. `None` if it takes every type.
    fn schema(&self) -> Option<&Schema> {
        None
    }
    /// Whether the subscriber needs the writer's schema to read its messages.
    fn needs_schema(&self) -> bool;
    /// Whether it needs the schema of a writer whose type has this hash in ROS 2: it takes every
    /// type, or reads another one.
    fn lacks(&self, told: TypeHash) -> bool {
        self.needs_schema() && self.schema().and_then(|own| TypeHash::of(own).ok()) != Some(told)
    }
    /// Whether the subscriber has to do with a channel: it is in a partition of the writer, and
    /// waits for the history if the channel brings one. If not, nobody is told.
    fn concerns(&self, announcement: &Announcement, offer: &Offer) -> bool;
    /// A writer announces that the topic moves to other endpoints. Does not block.
    fn follow(&self, source: &Source, endpoints: &[String]);
    /// Opens a channel over an engine of these properties, or says why it cannot be read. `schema`
    /// is `None` if the writer announced no schema.
    fn open(
        &self,
        node: &Arc<Inner>,
        source: &Source,
        medium: Properties,
        offer: &Offer,
        schema: Option<&Schema>,
    ) -> Result<Arc<dyn Slot>, String>;
    /// The subscriber cannot read a channel.
    fn refused(&self, source: &Source, reason: &str);
    /// So many messages came before it was known that the subscriber reads their channel.
    fn missed(&self, count: u64);
    /// The node has closed: nothing more is delivered.
    fn node_closed(&self);
    /// The subscriber, without its endpoint and without what it reads. `None` if it is none of the
    /// application.
    fn describe(&self) -> Option<SubscriberData>;
    /// What it counts.
    fn stats(&self) -> Option<TopicStats>;
}

/// A subscriber's end of one channel. What a method answers by default is true of a channel whose
/// messages stand alone, and of which no loss is counted.
pub(crate) trait Slot: Send + Sync {
    /// Delivers a message. `wire_bytes` is the payload's size before it was unpacked. `held` is
    /// `Some` if the payload may be held instead of copied.
    fn deliver(&self, envelope: &Envelope<'_>, payload: &[u8], wire_bytes: usize, held: Option<Held<'_>>);
    /// Delivers messages that came together, which are not packed.
    fn deliver_together(&self, messages: &[(Envelope<'_>, &[u8])]) {
        messages.iter().for_each(|(envelope, payload)| self.deliver(envelope, payload, payload.len(), None));
    }
    /// Whether a callback takes each message during the call.
    fn is_inline(&self) -> bool {
        false
    }
    /// Whether it takes payloads as they came, still packed.
    fn takes_packed(&self) -> bool {
        false
    }
    /// A message came that cannot be unpacked.
    fn undecodable(&self, _sequence: u64, _reason: &dyn ToString) {}
    /// Whether messages may refer to earlier ones.
    fn is_stream(&self) -> bool {
        false
    }
    /// Whether the next messages cannot be read without a key frame, or the channel brings a
    /// history that has not come yet.
    fn needs_key_frame(&self) -> bool {
        false
    }
    /// Whether the channel goes with another one: it brings its history, or signs of life.
    fn is_auxiliary(&self) -> bool {
        false
    }
    /// Whether the history of this channel's writer is missing and wanted.
    fn wants_history(&self) -> bool {
        false
    }
    /// Whether messages wait for a history, on this channel or by it.
    fn is_gated(&self) -> bool {
        false
    }
    /// Whether a history is wanted, or wanted no more, since the last call.
    fn history_changed(&self) -> bool {
        false
    }
    /// The sender dropped `count` messages up to and including this one. With a count of 0, its
    /// messages begin after this one.
    fn lost(&self, _sequence: u64, _count: u64) {}
    /// The peer's writer knows that this channel is read; it may hear so again.
    fn accepted(&self) {}
    /// Whether the writer is alive, as the engine tells; it may say so again.
    fn lives(&self, _is_alive: bool) {}
    /// The link of the channel has ended. The writer may come back over another one.
    fn broke(&self) {}
    /// Everything that has come so far was delivered.
    fn drained(&self) {}
}

/// The writers that a subscriber reads, and those that it cannot read. A writer counts once,
/// however many channels it has.
#[derive(Debug, Default)]
pub(crate) struct Matches {
    pub(crate) reads: BTreeSet<WriterKey>,
    pub(crate) refuses: BTreeSet<WriterKey>,
}

/// A writer; one without an id is told apart by its link and channel.
pub(crate) type WriterKey = (Id128, u64, ChannelId);

/// A publisher's history, as links see it.
pub(crate) trait Replay: Send + Sync {
    /// A subscriber asks for it. Does not block.
    fn request(&self);
}

/// Hears of the answers to a channel of this node.
pub(crate) trait Watcher: Send + Sync {
    /// A peer has answered, or has answered otherwise than before. Does not block.
    fn answered(&self);
}

/// Where messages come from.
#[derive(Clone, Debug)]
pub struct Source {
    /// The writer's announcement.
    pub announcement: Arc<Announcement>,
    /// The link it came over.
    pub link: Arc<LinkInfo>,
}

impl Source {
    /// Whether the channel has messages as they are published, and does not go with another
    /// one, and does not only say where its writer has moved to.
    pub(super) fn is_publisher(&self) -> bool {
        let is_beside = |offer: &Offer| offer.is_auxiliary() || !offer.moved_to.is_empty();
        !Offer::parse(&self.announcement.offer).is_ok_and(|offer| is_beside(&offer))
    }

    /// The quality of service that the writer offers. Fails if it is malformed, or has a policy
    /// that must be understood and is not known here.
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
