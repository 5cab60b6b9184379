//! Who a participant of DDS is in ROS 2: the messages of the topic [`TOPIC`], which every
//! participant of ROS 2 writes for late joiners as well, and writes again after each change.

use alloc::{format, string::String, vec::Vec};

use super::cdr::{Input, Output};

/// The topic in DDS.
pub const TOPIC: &str = "ros_discovery_info";

/// The name of its type in DDS.
pub const TYPE_NAME: &str = "rmw_dds_common::msg::dds_::ParticipantEntitiesInfo_";

/// Most nodes of a participant, and most writers and readers of a node, that are read.
const MAX_ENTITIES: usize = 4096;

/// Longest name of a node or namespace, in bytes.
const MAX_NAME_BYTES: usize = 256;

/// The GUID of a participant, writer or reader.
type Guid = [u8; 16];

/// A participant: `rmw_dds_common/msg/ParticipantEntitiesInfo`.
///
/// ```
/// use polywire_core::ros::entities::{NodeEntities, ParticipantEntities};
/// let node = NodeEntities { namespace: "/".into(), name: "talker".into(), ..NodeEntities::default() };
/// assert_eq!(node.full_name(), "/talker");
/// let told = ParticipantEntities { participant: [7; 16], nodes: vec![node] };
/// assert_eq!(ParticipantEntities::parse(&told.to_cdr()), Some(told));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParticipantEntities {
    /// The participant.
    pub participant: Guid,
    /// Its nodes.
    pub nodes: Vec<NodeEntities>,
}

/// A node of a participant: `rmw_dds_common/msg/NodeEntitiesInfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeEntities {
    /// Its namespace, `/` if it has none.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its readers.
    pub readers: Vec<Guid>,
    /// Its writers.
    pub writers: Vec<Guid>,
}

impl NodeEntities {
    /// The name with its namespace: `/robot/talker`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace.trim_end_matches('/'), self.name)
    }
}

impl ParticipantEntities {
    /// The message in CDR, little endian, behind its encapsulation header.
    pub fn to_cdr(&self) -> Vec<u8> {
        let mut out = Output::new();
        out.put(&self.participant);
        out.count(self.nodes.len());
        for NodeEntities { namespace, name, readers, writers } in &self.nodes {
            [namespace, name].into_iter().for_each(|text| out.text(text));
            for guids in [readers, writers] {
                out.count(guids.len());
                out.put(guids.as_flattened());
            }
        }
        out.finish()
    }

    /// Reads a message in CDR behind its encapsulation header. `None` if it is malformed, or has
    /// more than 4096 nodes, or writers or readers of a node. The bytes may come from anybody.
    ///
    /// Versions of ROS 2 before Iron have GUIDs of 24 bytes, of which the last 8 are zero. Such a
    /// message is read as well.
    pub fn parse(sample: &[u8]) -> Option<ParticipantEntities> {
        let input = Input::new(sample)?;
        [16, 24].into_iter().find_map(|guid_bytes| Reader { input, guid_bytes }.participant())
    }
}

/// Reads a message whose GUIDs have so many bytes.
struct Reader<'a> {
    input: Input<'a>,
    guid_bytes: usize,
}

impl Reader<'_> {
    fn participant(mut self) -> Option<ParticipantEntities> {
        let participant = self.guid()?;
        let nodes = self.many(Reader::node)?;
        // The other length of GUIDs leaves more than padding.
        (self.input.left() < 4).then_some(ParticipantEntities { participant, nodes })
    }

    fn node(&mut self) -> Option<NodeEntities> {
        let (namespace, name) = (self.text()?, self.text()?);
        let (readers, writers) = (self.many(Reader::guid)?, self.many(Reader::guid)?);
        Some(NodeEntities { namespace, name, readers, writers })
    }

    fn many<T>(&mut self, mut read: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.input.count().filter(|count| *count <= MAX_ENTITIES)?;
        (0..count).map(|_| read(self)).collect()
    }

    fn guid(&mut self) -> Option<Guid> {
        let (guid, rest) = self.input.take(self.guid_bytes)?.split_first_chunk()?;
        rest.iter().all(|byte| *byte == 0).then_some(*guid)
    }

    fn text(&mut self) -> Option<String> {
        self.input.text().filter(|text| text.len() <= MAX_NAME_BYTES).map(String::from)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;

    fn told() -> ParticipantEntities {
        let node = |name: &str, ends: u8| NodeEntities {
            namespace: "/robot".into(),
            name: name.into(),
            readers: (0..ends).map(|number| [number + 1; 16]).collect(),
            writers: vec![[9; 16]],
        };
        ParticipantEntities { participant: [3; 16], nodes: vec![node("a", 0), node("talker", 3)] }
    }

    #[test]
    fn the_bytes_are_those_of_cdr() {
        let node =
            NodeEntities { namespace: "/".into(), name: "ab".into(), writers: vec![[5; 16]], ..Default::default() };
        let bytes = ParticipantEntities { participant: [7; 16], nodes: vec![node] }.to_cdr();
        let expected = [
            &[0, 1, 0, 0][..],
            &[7; 16],
            &[1, 0, 0, 0],
            &[2, 0, 0, 0, b'/', 0, 0, 0],
            &[3, 0, 0, 0, b'a', b'b', 0, 0],
            &[0, 0, 0, 0, 1, 0, 0, 0],
            &[5; 16],
        ];
        assert_eq!(bytes, expected.concat());
    }

    #[test]
    fn messages_come_back() {
        let told = told();
        assert_eq!(told.nodes[1].full_name(), "/robot/talker");
        let mut bytes = told.to_cdr();
        assert_eq!(ParticipantEntities::parse(&bytes), Some(told.clone()));
        bytes.extend([0; 3]);
        assert_eq!(ParticipantEntities::parse(&bytes), Some(told), "behind padding");
        for len in 0..bytes.len() - 3 {
            assert_eq!(ParticipantEntities::parse(&bytes[..len]), None, "{len} bytes");
        }
    }

    #[test]
    fn messages_of_humble_and_in_big_endian_are_read() {
        let mut bytes = Vec::from([0, 0, 0, 0]);
        let guid = |byte: u8| [[byte; 24][..16].to_vec(), vec![0; 8]].concat();
        bytes.extend(guid(7));
        bytes.extend([0, 0, 0, 1, 0, 0, 0, 2, b'/', 0, 0, 0, 0, 0, 0, 2, b'n', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        bytes.extend(guid(9));
        let node = NodeEntities { namespace: "/".into(), name: "n".into(), readers: vec![], writers: vec![[9; 16]] };
        let expected = ParticipantEntities { participant: [7; 16], nodes: vec![node] };
        assert_eq!(ParticipantEntities::parse(&bytes), Some(expected));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0..200usize) {
            let _ = ParticipantEntities::parse(&bytes);
            let mut damaged = told().to_cdr();
            let at = at % damaged.len();
            damaged.splice(at..at, bytes);
            if let Some(read) = ParticipantEntities::parse(&damaged) {
                prop_assert_eq!(ParticipantEntities::parse(&read.to_cdr()), Some(read));
            }
        }
    }
}
