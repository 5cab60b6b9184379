//! The cards that nodes exchange over ZeroMQ: a node's identity, and the TCP port at which it
//! listens.
//!
//! A node that connects to a publisher subscribes to a topic that contains the node's own name. A
//! publisher that is a node publishes its card on this topic; any other publisher does nothing.

use polywire_core::{envelope::Id128, frame::Hello};

use super::super::local::{hello_of, name_of};

/// The prefix of a question's topic; the name of the asking node follows.
const ASKING: &str = "@polywire/1/";
/// "PLYW" and the version.
const MAGIC: &[u8; 5] = b"PLYW\x01";

/// A node's identity, and the TCP port at which it listens for other nodes: 0 if it does not listen
/// by TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Card {
    pub(super) hello: Hello,
    pub(super) port: u16,
}

/// Returns the topic to which this node subscribes in order to ask a publisher for its card.
pub(super) fn question(of: &Hello) -> String {
    format!("{ASKING}{}", name_of(of))
}

/// Returns whether a subscription is a node's question.
pub(super) fn is_question(topic: &[u8]) -> bool {
    let name = topic.strip_prefix(ASKING.as_bytes()).and_then(|name| std::str::from_utf8(name).ok());
    name.is_some_and(|name| hello_of(name).is_some())
}

impl Card {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let Card { hello, port } = self;
        [&MAGIC[..], &hello.node.0, &hello.incarnation.to_le_bytes(), &port.to_le_bytes()].concat()
    }

    /// Parses a card. Returns `None` if the bytes are no card, or a card of a later version.
    pub(super) fn parse(bytes: &[u8]) -> Option<Card> {
        let (node, rest) = bytes.strip_prefix(MAGIC)?.split_first_chunk()?;
        let (incarnation, rest) = rest.split_first_chunk()?;
        let port = <[u8; 2]>::try_from(rest).ok()?;
        let hello = Hello { node: Id128(*node), incarnation: u64::from_le_bytes(*incarnation) };
        Some(Card { hello, port: u16::from_le_bytes(port) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn cards_and_questions_come_back() {
        let card = Card { hello: Hello { node: Id128([7; 16]), incarnation: u64::MAX }, port: 7460 };
        let bytes = card.bytes();
        assert_eq!((bytes.len(), Card::parse(&bytes)), (31, Some(card)));
        assert!((0..bytes.len()).all(|len| Card::parse(&bytes[..len]).is_none()));
        assert_eq!(Card::parse(&[&bytes[..], b"x"].concat()), None);
        assert!(is_question(question(&card.hello).as_bytes()));
        for other in ["", "@polywire/1/", "@polywire/1/x-y", "plant/pumps"] {
            assert!(!is_question(other.as_bytes()), "{other}");
        }
    }

    proptest! {
        #[test]
        fn hostile_bytes_are_refused_or_read(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let claimed = [&MAGIC[..], &bytes].concat();
            if let Some(card) = Card::parse(&claimed) {
                prop_assert_eq!(card.bytes(), claimed);
            }
            prop_assert!(!is_question(&bytes));
        }
    }
}
