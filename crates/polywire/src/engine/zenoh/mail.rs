//! Mails: what one node sends to one other node. A mail has frames, and contents that maintain the
//! link between both nodes.
//!
//! Each end draws a number for the link, its *epoch*. The link begins when both ends know the
//! other's epoch. From then on mails are numbered, so that an end notices a missing mail. That end
//! then draws another epoch, and a new link begins.

use polywire_core::{envelope::Id128, frame::Hello};

use super::key::Name;

/// "PLYW" and the version.
const MAGIC: &[u8; 5] = b"PLYW\x01";
const HELLO: u8 = 0;
const FRAME: u8 = 1;
const MARK: u8 = 2;
const ACK: u8 = 3;
const JOIN: u8 = 4;
const LEAVE: u8 = 5;
/// Bytes in front of each content: its kind and its length.
const HEAD: usize = 9;

/// Returns the sender of a mail, and the rest of the mail. `None` if the bytes are no mail, or a
/// mail of a later version.
pub(super) fn signed(bytes: &[u8]) -> Option<(Name, &[u8])> {
    let (node, rest) = bytes.strip_prefix(MAGIC)?.split_first_chunk()?;
    let (incarnation, mail) = number(rest)?;
    Some((Name(Hello { node: Id128(*node), incarnation }), mail))
}

/// A mail without its sender, which precedes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mail<'a> {
    /// The sender's epoch.
    pub(super) epoch: u64,
    /// The receiver's epoch as the sender knows it, or 0.
    pub(super) peer_epoch: u64,
    /// Counts the mails of the link from 1. 0 for a hello.
    pub(super) number: u64,
    /// The contents, each with its kind and its length.
    contents: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content<'a> {
    /// The mail is a hello, which has the sender's epoch. `asks`: the sender has no link and asks
    /// for the receiver's epoch.
    Hello { asks: bool },
    /// A frame as it stands in a datagram (`spec/frame.md`).
    Frame(&'a [u8]),
    /// The sender has sent this many bytes over this link, and asks for [`Content::Ack`] when the
    /// receiver has handed them over.
    Mark(u64),
    /// The sender has handed over everything that arrived before this mark.
    Ack(u64),
    /// From here on the receiver reads messages from the keys of their topics.
    Join,
    /// From here on the receiver gets messages by mail.
    Leave,
}

impl Content<'_> {
    /// Returns the bytes that the content takes in a mail, at most.
    pub(super) fn size(&self) -> usize {
        HEAD + if let Content::Frame(frame) = self { frame.len() } else { size_of::<u64>() }
    }

    /// Appends the content to a mail.
    pub(super) fn put(&self, mail: &mut Vec<u8>) {
        let number;
        let (kind, body): (u8, &[u8]) = match self {
            Content::Hello { asks: true } => (HELLO, &[1]),
            Content::Hello { asks: false } => (HELLO, &[0]),
            Content::Frame(frame) => (FRAME, frame),
            Content::Mark(sent) | Content::Ack(sent) => {
                number = sent.to_le_bytes();
                (if matches!(self, Content::Mark(_)) { MARK } else { ACK }, &number)
            }
            Content::Join => (JOIN, &[]),
            Content::Leave => (LEAVE, &[]),
        };
        mail.push(kind);
        mail.extend_from_slice(&(body.len() as u64).to_le_bytes());
        mail.extend_from_slice(body);
    }
}

/// Returns the bytes of a mail with one content. More contents may be appended, unless the content
/// is a hello.
pub(super) fn begin(from: Name, epochs: [u64; 2], number: u64, content: Content<'_>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(MAGIC.len() + size_of::<Name>() + 3 * size_of::<u64>() + content.size());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&from.0.node.0);
    let numbers = [from.0.incarnation, epochs[0], epochs[1], number];
    numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
    content.put(&mut bytes);
    bytes
}

impl<'a> Mail<'a> {
    /// Reads the bytes behind the sender of a mail. `None` if they are not valid.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Mail<'a>> {
        let (epoch, rest) = number(bytes)?;
        let (peer_epoch, rest) = number(rest)?;
        let (number, contents) = number(rest)?;
        let mail = Mail { epoch, peer_epoch, number, contents };
        let is_valid = |(content, _): (Content<'_>, _)| number > 0 && !matches!(content, Content::Hello { .. });
        let mut rest = contents;
        while let Some((_, behind)) = split(rest).filter(|one| is_valid(*one)) {
            rest = behind;
        }
        let is_hello = number == 0 && matches!(split(contents), Some((Content::Hello { .. }, [])));
        (epoch > 0 && (is_hello || rest.is_empty() && !contents.is_empty())).then_some(mail)
    }

    /// Returns the contents in order.
    pub(super) fn contents(self) -> impl Iterator<Item = Content<'a>> {
        let mut rest = self.contents;
        std::iter::from_fn(move || {
            let (content, behind) = split(rest)?;
            rest = behind;
            Some(content)
        })
    }
}

/// Returns the first content, and the bytes of the others.
fn split(bytes: &[u8]) -> Option<(Content<'_>, &[u8])> {
    let (kind, rest) = bytes.split_first()?;
    let (length, rest) = number(rest)?;
    let (body, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    let content = match (*kind, body) {
        (HELLO, [asks @ (0 | 1)]) => Content::Hello { asks: *asks == 1 },
        (FRAME, frame) => Content::Frame(frame),
        (MARK, body) => Content::Mark(only(body)?),
        (ACK, body) => Content::Ack(only(body)?),
        (JOIN, []) => Content::Join,
        (LEAVE, []) => Content::Leave,
        _ => return None,
    };
    Some((content, rest))
}

fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    bytes.split_first_chunk().map(|(number, rest)| (u64::from_le_bytes(*number), rest))
}

fn only(bytes: &[u8]) -> Option<u64> {
    number(bytes).filter(|(_, rest)| rest.is_empty()).map(|(number, _)| number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FROM: Name = Name(Hello { node: Id128([8; 16]), incarnation: 3 });

    fn parse(bytes: &[u8]) -> Option<Mail<'_>> {
        signed(bytes).and_then(|(from, mail)| Mail::parse(mail).filter(|_| from == FROM))
    }

    fn bytes(number: u64, contents: &[Content<'_>]) -> Vec<u8> {
        let mut bytes = begin(FROM, [1, 2], number, contents[0]);
        contents[1..].iter().for_each(|content| content.put(&mut bytes));
        bytes
    }

    #[test]
    fn mails_come_back() {
        let contents =
            [Content::Frame(b"frame"), Content::Mark(7), Content::Ack(u64::MAX), Content::Join, Content::Leave];
        let hello = [Content::Hello { asks: true }];
        let mails = [(3, &contents[..]), (3, &contents[..1]), (3, &contents[3..4]), (0, &hello[..])];
        for (number, contents) in mails {
            let bytes = bytes(number, contents);
            let mail = parse(&bytes).expect("a mail");
            assert_eq!((mail.epoch, mail.peer_epoch, mail.number), (1, 2, number));
            assert_eq!(mail.contents().collect::<Vec<_>>(), contents);
            let whole = (0..bytes.len()).filter(|len| parse(&bytes[..*len]).is_some());
            assert_eq!(whole.count(), contents.len() - 1, "cut between contents");
        }
    }

    #[test]
    fn contradictions_are_no_mails() {
        let hello = Content::Hello { asks: false };
        assert_eq!(parse(&bytes(1, &[hello])), None, "a hello is not counted");
        assert_eq!(parse(&bytes(0, &[Content::Join])), None, "and others are");
        assert_eq!(parse(&bytes(0, &[hello, hello])), None, "it stands alone");
        assert_eq!(parse(&bytes(1, &[Content::Join, hello])), None);
        let mut later = bytes(1, &[Content::Join]);
        later[4] = 2;
        assert_eq!(parse(&later), None);
    }

    proptest! {
        #[test]
        fn hostile_bytes_are_refused_or_read(
            number in 0_u64..2, kind in 0_u8..8, body in proptest::collection::vec(any::<u8>(), 0..60)
        ) {
            let mut claimed = bytes(number, &[Content::Join]);
            claimed.truncate(claimed.len() - HEAD);
            claimed.push(kind);
            claimed.extend((body.len() as u64).to_le_bytes());
            claimed.extend(&body);
            if let Some(mail) = parse(&claimed) {
                prop_assert_eq!(bytes(mail.number, &mail.contents().collect::<Vec<_>>()), claimed);
            }
            prop_assert!(signed(&body).is_none() || body.starts_with(MAGIC));
        }
    }
}
