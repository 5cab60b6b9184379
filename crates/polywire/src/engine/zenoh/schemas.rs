//! What waits for schemas: the queries of others, and the channels of foreign applications whose
//! encoding names a schema that this node asks for. `queries` answers and asks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use polywire_core::envelope::{ChannelId, Id128};
use zenoh::query::Query;

use super::{
    super::LinkId,
    inbox::{Arrival, Inbox},
    outgoing::{Outgoing, Put},
};

/// Queries that wait for an answer, at most. Others get none.
const MOST_QUERIES: usize = 64;
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

    /// A query of somebody else. Gives it back if too many wait: it ends without an answer.
    pub(super) fn asked(&mut self, query: Query) -> Option<Query> {
        if self.queries.len() >= MOST_QUERIES {
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
            Arrival::Message(message) => message.channel(),
            Arrival::Lost(channel, ..) => *channel,
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

#[cfg(test)]
mod tests {
    use polywire_core::{
        envelope::{Announcement, Envelope},
        frame::Start,
    };
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

    /// What is in the inbox, in words.
    fn taken(inbox: &mut Inbox) -> Vec<String> {
        std::iter::from_fn(|| inbox.pop())
            .map(|arrived| match arrived.what {
                Arrival::Announced(channel, _, a) => {
                    format!("{channel} {}", if a.schema.is_zero() { "-" } else { "+" })
                }
                Arrival::Message(message) => format!("{} message", message.channel()),
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
}
