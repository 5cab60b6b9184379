//! Limits on the memory that peers can make a node use, and the sizes of types that are compared
//! with them.

use std::collections::BTreeMap;

use polywire_core::schema::{DefId, DefKind, Schema, Type};

use crate::engine::LinkId;

/// Limits on the memory that peers can make a node use by announcements. A channel beyond a limit
/// is refused with an [`Exceeded`].
///
/// A decoder's size depends on the writer's type. The size of a type is counted in *members*: its
/// own members and the members of all types inside it, once for each place where they occur. A type
/// of 32 kB on the wire may have 65,536 members, and a decoder for that many members takes a
/// hundred megabytes.
///
/// ```
/// use polywire::{Node, NodeLimits};
/// # use std::time::Duration;
/// # #[derive(Default, polywire::Message)]
/// # struct Pump { id: u32, pressure_bar: f64 }
/// let mut limits = NodeLimits::default();
/// limits.type_members = 1;
/// let node = Node::builder().limits(limits).build();
/// let pumps = node.subscriber_on::<Pump>("pumps", "cdr@inproc/limits-doc")?;
/// let _publisher = node.publisher_on::<Pump>("pumps", "cdr@inproc/limits-doc")?;
/// assert!(pumps.status().mismatches[0].reason.contains("2 members, more than the 1 that a type may have"));
/// # Ok::<(), polywire::NodeError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeLimits {
    /// Members of one writer's type: 65,536 by default.
    pub type_members: u64,
    /// Members of all types of one link whose decoders are kept: 131,072 by default.
    pub link_members: u64,
    /// Members of all types of all links whose decoders are kept: 262,144 by default.
    pub node_members: u64,
    /// Bytes of announcements that all links together hold: 64 MiB by default.
    pub announced_bytes: usize,
}

impl Default for NodeLimits {
    fn default() -> Self {
        NodeLimits { type_members: 1 << 16, link_members: 1 << 17, node_members: 1 << 18, announced_bytes: 64 << 20 }
    }
}

/// A limit that an announcement exceeds.
///
/// ```
/// use polywire::node::Exceeded;
/// let exceeded = Exceeded::Type { members: 70_000, limit: 65_536 };
/// assert!(exceeded.to_string().starts_with("the writer's type has 70000 members, more than the 65536"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Exceeded {
    /// [`NodeLimits::type_members`].
    #[error(
        "the writer's type has {members} members, more than the {limit} that a type may have; \
         split the type, or raise `NodeLimits::type_members` on the subscriber's node"
    )]
    Type {
        /// Members of the type.
        members: u64,
        /// The limit.
        limit: u64,
    },
    /// [`NodeLimits::link_members`].
    #[error(
        "{link} uses decoders for types of {used} members, and {members} more would exceed the {limit} of a link; \
         retire topics there, or raise `NodeLimits::link_members` on the subscriber's node"
    )]
    Link {
        /// The link.
        link: LinkId,
        /// Members of types whose decoders are kept for the link.
        used: u64,
        /// Members of the type.
        members: u64,
        /// The limit.
        limit: u64,
    },
    /// [`NodeLimits::node_members`].
    #[error(
        "the node uses decoders for types of {used} members, and {members} more would exceed its {limit}; \
         retire topics, or raise `NodeLimits::node_members` on the subscriber's node"
    )]
    Node {
        /// Members of types whose decoders are kept.
        used: u64,
        /// Members of the type.
        members: u64,
        /// The limit.
        limit: u64,
    },
    /// [`NodeLimits::announced_bytes`].
    #[error(
        "the node holds announcements of {used} bytes, and {bytes} more would exceed its {limit}; \
         retire topics, or raise `NodeLimits::announced_bytes` on the subscriber's node"
    )]
    Announcements {
        /// Bytes held for all links.
        used: usize,
        /// Bytes of the announcement.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
}

/// Counts the members of a type and of the types inside it, once for each place where they occur.
/// The size of a program for the type grows with this number. An occurrence of a type inside itself
/// counts as one member, since the program calls itself recursively there.
pub(crate) fn members(schema: &Schema) -> u64 {
    let mut known = BTreeMap::new();
    // The definitions that are being counted, each in the one before: a family of recursive types
    // has long paths.
    let mut open = vec![Open::new(None, of_types(schema, [schema.root()]))];
    loop {
        let Some(counting) = open.last_mut() else { return 1 };
        match counting.parts.next() {
            Some(None) => counting.members = counting.members.saturating_add(1),
            Some(Some(id)) => match known.get(&id) {
                Some(members) => counting.members = counting.members.saturating_add(*members),
                None => {
                    known.insert(id, 1);
                    open.push(Open::new(Some(id), parts_of(schema, id)));
                }
            },
            None => {
                let (id, members) = (counting.id, counting.members.max(1));
                open.pop();
                let (Some(id), Some(outer)) = (id, open.last_mut()) else { return members };
                known.insert(id, members);
                outer.members = outer.members.saturating_add(members);
            }
        }
    }
}

/// A definition that is being counted. Without an id it is the root.
struct Open {
    id: Option<DefId>,
    /// A definition, or a single member.
    parts: std::vec::IntoIter<Option<DefId>>,
    members: u64,
}

impl Open {
    fn new(id: Option<DefId>, parts: Vec<Option<DefId>>) -> Open {
        Open { id, parts: parts.into_iter(), members: 0 }
    }
}

fn parts_of(schema: &Schema, id: DefId) -> Vec<Option<DefId>> {
    match &schema.def(id).kind {
        DefKind::Struct { .. } => of_types(schema, schema.members(id).into_iter().map(|member| &member.ty)),
        DefKind::Union { cases, .. } => of_types(schema, cases.iter().map(|case| &case.member.ty)),
        _ => Vec::new(),
    }
}

fn of_types<'a>(schema: &'a Schema, types: impl IntoIterator<Item = &'a Type>) -> Vec<Option<DefId>> {
    let mut parts = Vec::new();
    types.into_iter().for_each(|ty| add_parts(schema, ty, &mut parts));
    parts
}

fn add_parts(schema: &Schema, ty: &Type, parts: &mut Vec<Option<DefId>>) {
    match schema.resolve(ty) {
        Type::Sequence { element, .. } | Type::Array { element, .. } => add_parts(schema, element, parts),
        Type::Map { key, value, .. } => {
            add_parts(schema, key, parts);
            add_parts(schema, value, parts);
        }
        Type::Def(id) => parts.push(Some(*id)),
        _ => parts.push(None),
    }
}

#[cfg(test)]
mod tests {
    use polywire_core::schema::{Def, Member, SchemaBuilder};

    use super::*;

    #[test]
    fn members_are_counted_as_often_as_they_occur() {
        let mut types = SchemaBuilder::new();
        let pair = |of: Type| vec![Member::new("a", of.clone()), Member::new("b", of)];
        let mut last = types.add(Def::structure("L0", pair(Type::Octet)));
        for level in 1..=16 {
            last = types.add(Def::structure(format!("L{level}"), pair(Type::Def(last))));
        }
        let schema = types.finish(Type::Def(last)).expect("a schema");
        assert_eq!(members(&schema), 1 << 17);
    }

    #[test]
    fn a_type_that_contains_itself_is_counted_once() {
        let mut types = SchemaBuilder::new();
        let node = types.add(Def::structure("Node", Vec::new()));
        let next = Type::sequence(Type::Def(node));
        types.replace(node, Def::structure("Node", vec![Member::new("x", Type::Octet), Member::new("next", next)]));
        let schema = types.finish(Type::Def(node)).expect("a schema");
        assert_eq!(members(&schema), 2);
    }

    #[test]
    fn types_that_contain_each_other_are_counted_without_a_stack() {
        let mut types = SchemaBuilder::new();
        let types_in_all: u32 = 4000;
        for i in 0..types_in_all {
            let next = Type::sequence(Type::Def(DefId((i + 1) % types_in_all)));
            types.add(Def::structure(format!("N{i}"), vec![Member::new("x", Type::Octet), Member::new("next", next)]));
        }
        let schema = types.finish(Type::Def(DefId(0))).expect("a schema");
        let counting = std::thread::Builder::new().stack_size(256 << 10).spawn(move || members(&schema));
        assert_eq!(counting.expect("a thread").join().expect("no overflow"), u64::from(types_in_all) + 1);
    }
}
