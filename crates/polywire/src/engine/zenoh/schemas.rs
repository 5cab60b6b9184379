//! Schemas that are asked for: the queries of others that wait for an answer, and the channels of
//! foreign applications that wait for the schema which their encoding names. The module `queries`
//! sends answers and queries.

use std::collections::{BTreeMap, VecDeque};

use polywire_core::{
    envelope::{Announcement, ChannelId, Id128},
    frame::Start,
};
use zenoh::query::Query;

use super::{
    super::{LinkId, foreign::keep},
    inbox::{Arrival, Inbox},
    outgoing::{Outgoing, Put},
};

/// The most queries that wait for an answer. Further ones get none.
const MAX_QUERIES: usize = 64;

/// The result of a query for a schema.
pub(super) enum Answered {
    /// This node has the schema already.
    Here,
    Document(Vec<u8>),
    Nobody,
}

/// The queries of others that wait, and the schemas that this node asks for.
pub(super) struct Schemas {
    most_asked: usize,
    queries: VecDeque<Query>,
    asked: BTreeMap<Id128, Waiting>,
    kept: BTreeMap<Id128, Vec<u8>>,
}

/// What waits for a schema that is asked for.
#[derive(Default)]
struct Waiting {
    /// The link for which the node wants the schema as a document.
    wanted: Option<LinkId>,
    /// Channels of foreign applications, as announced. The inbox holds what arrives on them.
    channels: Vec<(LinkId, ChannelId, Start, Box<Announcement>)>,
}

impl Schemas {
    /// At most `most_asked` schemas are asked for at a time.
    pub(super) fn new(most_asked: usize) -> Schemas {
        Schemas { most_asked, queries: VecDeque::new(), asked: BTreeMap::new(), kept: BTreeMap::new() }
    }

    /// Queues a query of another session. Returns the query if too many wait: it ends unanswered.
    pub(super) fn asked(&mut self, query: Query) -> Option<Query> {
        if self.queries.len() >= MAX_QUERIES {
            return Some(query);
        }
        self.queries.push_back(query);
        None
    }

    pub(super) fn next_query(&mut self) -> Option<Query> {
        self.queries.pop_front()
    }

    pub(super) fn has_queries(&self) -> bool {
        !self.queries.is_empty()
    }

    /// Passes an arrival of foreign applications to the inbox. A channel whose schema must be asked
    /// for waits until the schema is known.
    pub(super) fn pass(&mut self, link: LinkId, arrival: Arrival, out: &mut Outgoing, inbox: &mut Inbox) {
        let Arrival::Announced(channel, start, mut announcement) = arrival else { return inbox.push(link, arrival) };
        let schema = Some(announcement.schema).filter(|schema| !schema.is_zero());
        match schema.and_then(|schema| self.ask(schema, out)) {
            Some(waiting) => {
                inbox.hold(link, channel);
                waiting.channels.push((link, channel, start, announcement));
            }
            None => {
                announcement.schema = Id128::ZERO;
                inbox.push(link, Arrival::Announced(channel, start, announcement));
            }
        }
    }

    /// Handles the node's request for a schema of a foreign application. If no query is necessary
    /// or possible, the node receives the answer before all other arrivals.
    pub(super) fn want(&mut self, link: LinkId, schema: Id128, out: &mut Outgoing, inbox: &mut Inbox) {
        if !self.kept.contains_key(&schema)
            && let Some(waiting) = self.ask(schema, out)
        {
            waiting.wanted = Some(link);
        } else {
            inbox.push_first(link, Arrival::Document(schema, self.kept.get(&schema).cloned()));
        }
    }

    /// Asks for a schema, unless a query for it is under way. `None` if too many are under way.
    fn ask(&mut self, schema: Id128, out: &mut Outgoing) -> Option<&mut Waiting> {
        if !self.asked.contains_key(&schema) {
            if self.asked.len() >= self.most_asked {
                return None;
            }
            out.push(Put::Ask { schema });
        }
        Some(self.asked.entry(schema).or_default())
    }

    /// Handles the result of a query, and announces the channels that have waited for the schema.
    /// If nobody has it, they have no schema, and the subscriber's own type is used.
    pub(super) fn learn(&mut self, schema: Id128, answer: Answered, inbox: &mut Inbox) {
        let Some(Waiting { wanted, channels }) = self.asked.remove(&schema) else { return };
        let is_known = !matches!(answer, Answered::Nobody);
        if let Answered::Document(bytes) = answer {
            keep(&mut self.kept, schema, bytes);
        }
        if let Some(link) = wanted {
            inbox.push(link, Arrival::Document(schema, self.kept.get(&schema).cloned()));
        }
        for (link, channel, start, mut announcement) in channels {
            if !is_known {
                announcement.schema = Id128::ZERO;
            }
            inbox.push(link, Arrival::Announced(channel, start, announcement));
            inbox.settle(link, channel);
        }
    }
}

#[cfg(test)]
mod tests {
    use polywire_core::envelope::Envelope;
    use zenoh::bytes::ZBytes;

    use super::{
        super::inbox::{Message, Origin},
        *,
    };

    const SCHEMA: Id128 = Id128([7; 16]);
    const LINK: LinkId = LinkId(1);

    fn announced(channel: u32, schema: Id128) -> Arrival {
        let announcement = Announcement { schema, ..Announcement::default() };
        Arrival::Announced(ChannelId(channel), Start::default(), Box::new(announcement))
    }

    fn message(channel: u32) -> Arrival {
        Arrival::Message(Message::new(&Envelope::data(ChannelId(channel), 0, 0), &ZBytes::new(), Origin::Foreign))
    }

    /// Empties the inbox, and describes in words what was in it.
    fn taken(inbox: &mut Inbox) -> Vec<String> {
        std::iter::from_fn(|| inbox.pop())
            .map(|arrived| match arrived.what {
                Arrival::Announced(channel, _, a) => {
                    format!("{channel} {}", if a.schema.is_zero() { "-" } else { "+" })
                }
                Arrival::Message(message) => format!("{} message", message.channel()),
                Arrival::Retired(channel, _) => format!("{channel} ends"),
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
        inbox.push(LINK, Arrival::Retired(ChannelId(1), None));
        assert!(matches!(out.pop(), Some(Put::Ask { schema: SCHEMA })) && out.pop().is_none());
        assert_eq!(taken(&mut inbox), ["2 -", "2 message"]);
        assert!(inbox.bytes() > 0, "what is held counts");
        schemas.pass(LINK, announced(3, Id128([8; 16])), &mut out, &mut inbox);
        assert_eq!(taken(&mut inbox), ["3 -"], "one is asked for at a time");
        schemas.learn(SCHEMA, Answered::Document(vec![1]), &mut inbox);
        schemas.learn(SCHEMA, Answered::Nobody, &mut inbox);
        assert_eq!(taken(&mut inbox), ["1 +", "1 message", "1 message", "1 ends"]);
        assert_eq!(inbox.bytes(), 0);
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
}
