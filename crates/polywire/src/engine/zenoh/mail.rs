//! What one node writes to another alone: frames, and what keeps the link between them.
//!
//! A link begins when each end has learned the number that the other one has drawn for it, its
//! *epoch*. From then on mails are counted, so that an end notices if one is missing. It then draws
//! another epoch, and the link begins anew.

/// "PLYW" and the version.
const MAGIC: &[u8; 5] = b"PLYW\x01";
const HELLO: u8 = 0;
const FRAME: u8 = 1;
const MARK: u8 = 2;
const TAKEN: u8 = 3;
const JOIN: u8 = 4;
const LEAVE: u8 = 5;

/// A mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mail<'a> {
    /// The sender's epoch.
    pub(super) epoch: u64,
    /// The receiver's epoch as the sender knows it, or 0.
    pub(super) peer_epoch: u64,
    /// Counts the mails of the link from 1. 0 for a hello.
    pub(super) number: u64,
    pub(super) content: Content<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content<'a> {
    /// The sender's epoch. `asks`: the sender has no link and wants to hear the receiver's.
    Hello { asks: bool },
    /// A frame as it stands in a datagram (`spec/frame.md`).
    Frame(&'a [u8]),
    /// The sender has sent so many bytes over this link, and wants to hear when they are taken.
    Mark(u64),
    /// The sender has taken what came before this mark.
    Taken(u64),
    /// From here on the receiver takes messages from the keys of their topics.
    Join,
    /// From here on the receiver gets messages by mail.
    Leave,
}

impl Mail<'_> {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let (kind, body, number);
        let text: &[u8] = match self.content {
            Content::Hello { asks } => {
                (kind, body) = (HELLO, [u8::from(asks)]);
                &body
            }
            Content::Frame(frame) => {
                kind = FRAME;
                frame
            }
            Content::Mark(sent) => {
                (kind, number) = (MARK, sent.to_le_bytes());
                &number
            }
            Content::Taken(sent) => {
                (kind, number) = (TAKEN, sent.to_le_bytes());
                &number
            }
            Content::Join => {
                kind = JOIN;
                &[]
            }
            Content::Leave => {
                kind = LEAVE;
                &[]
            }
        };
        let mut bytes = Vec::with_capacity(MAGIC.len() + 25 + text.len());
        bytes.extend_from_slice(MAGIC);
        bytes.push(kind);
        [self.epoch, self.peer_epoch, self.number].iter().for_each(|n| bytes.extend_from_slice(&n.to_le_bytes()));
        bytes.extend_from_slice(text);
        bytes
    }

    /// Reads a mail. `None` if it is none, or one of a later version.
    pub(super) fn parse(bytes: &[u8]) -> Option<Mail<'_>> {
        let rest = bytes.strip_prefix(MAGIC)?;
        let (kind, rest) = rest.split_first()?;
        let (epoch, rest) = number(rest)?;
        let (peer_epoch, rest) = number(rest)?;
        let (number_of_mail, body) = number(rest)?;
        let content = match (*kind, body) {
            (HELLO, [asks @ (0 | 1)]) => Content::Hello { asks: *asks == 1 },
            (FRAME, frame) => Content::Frame(frame),
            (MARK, body) => Content::Mark(only(body)?),
            (TAKEN, body) => Content::Taken(only(body)?),
            (JOIN, []) => Content::Join,
            (LEAVE, []) => Content::Leave,
            _ => return None,
        };
        let is_hello = matches!(content, Content::Hello { .. });
        let mail = Mail { epoch, peer_epoch, number: number_of_mail, content };
        (epoch > 0 && is_hello == (number_of_mail == 0)).then_some(mail)
    }
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

    #[test]
    fn mails_come_back() {
        let contents =
            [Content::Frame(b"frame"), Content::Mark(7), Content::Taken(u64::MAX), Content::Join, Content::Leave];
        let hello = Mail { epoch: 1, peer_epoch: 0, number: 0, content: Content::Hello { asks: true } };
        let mails = contents.map(|content| Mail { epoch: 1, peer_epoch: 2, number: 3, content });
        for mail in mails.into_iter().chain([hello]) {
            let bytes = mail.bytes();
            assert_eq!(Mail::parse(&bytes), Some(mail));
            let is_frame = matches!(mail.content, Content::Frame(_));
            for len in (0..bytes.len()).filter(|len| !is_frame || *len < 30) {
                assert_eq!(Mail::parse(&bytes[..len]), None, "{mail:?} {len}");
            }
        }
    }

    #[test]
    fn contradictions_are_no_mails() {
        let mail = |number, content| Mail { epoch: 1, peer_epoch: 2, number, content }.bytes();
        assert_eq!(Mail::parse(&mail(1, Content::Hello { asks: false })), None, "a hello is not counted");
        assert_eq!(Mail::parse(&mail(0, Content::Join)), None, "and others are");
        let mut later = mail(1, Content::Join);
        later[4] = 2;
        assert_eq!(Mail::parse(&later), None);
    }

    proptest! {
        #[test]
        fn hostile_bytes_are_refused_or_read(kind in 0_u8..8, bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let mut claimed = MAGIC.to_vec();
            claimed.push(kind);
            claimed.extend(&bytes);
            if let Some(mail) = Mail::parse(&claimed) {
                prop_assert_eq!(mail.bytes(), claimed);
            }
            prop_assert!(Mail::parse(&bytes).is_none() || bytes.starts_with(MAGIC));
        }
    }
}
