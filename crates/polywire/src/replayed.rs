//! The extension that marks each message of a history channel, and its encoding. `spec/qos.md`
//! specifies the protocol.

use std::iter;

use polywire_core::envelope::{Envelope, ExtensionsBuf};

/// The id of the extension that every message of a history channel carries. Its value is a
/// [`Part`]. The receiver must understand the extension.
pub(crate) const REPLAYED: u32 = 1;

/// The most channels that a [`Part::Begin`] lists, so that the list fits into a message's
/// extensions. A publisher has more channels if it keeps samples in more formats. Subscribers do
/// not wait for the earliest channels, which are not listed.
pub(crate) const LISTED: usize = 60;

/// The meaning of a message on a history channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    /// A replay begins: all samples that the publisher keeps follow. The number identifies the
    /// replay. The ids are the writer ids of the history channels that it uses.
    Begin(u64, &'a [[u8; 16]]),
    /// A sample, with the sequence number under which it was published.
    Sample(u64),
    /// The replay has ended.
    End,
}

/// Begins a replay on the only history channel of a writer that is not a node's. `id` is the id of
/// the channel's writer, and `last` the sequence number of the channel's last message. Calls `send`
/// with the message's sequence number and its meaning.
///
/// Called before the samples are requested: subscribers that join later may have missed samples
/// that the answer does not have, and do not take this replay.
#[cfg(any(test, feature = "dds", feature = "zenoh"))]
pub(crate) fn begin(last: &mut u64, id: polywire_core::envelope::Id128, send: impl FnOnce(u64, Part<'_>)) {
    *last += 1;
    send(*last, Part::Begin(*last, &[id.0]));
}

/// Sends the samples of a replay that has begun, and ends it. Each sample comes with the number
/// under which it was published. Calls `send` for each message with its sequence number, its
/// meaning, and its sample.
#[cfg(any(test, feature = "dds", feature = "zenoh"))]
pub(crate) fn bring<T>(
    last: &mut u64,
    samples: impl IntoIterator<Item = (u64, T)>,
    mut send: impl FnMut(u64, Part<'_>, Option<T>),
) {
    let mut send = |part: Part<'_>, sample| {
        *last += 1;
        send(*last, part, sample);
    };
    samples.into_iter().for_each(|(published, sample)| send(Part::Sample(published), Some(sample)));
    send(Part::End, None);
}

impl<'a> Part<'a> {
    pub(crate) fn extension(self) -> ExtensionsBuf {
        let mut extensions = ExtensionsBuf::default();
        let (kind, number, ids): (_, _, &[_]) = match self {
            Part::Begin(replay, ids) => (0, Some(replay), ids),
            Part::Sample(published) => (1, Some(published), &[]),
            Part::End => (2, None, &[]),
        };
        let number = number.map(u64::to_le_bytes);
        let value = iter::once(kind).chain(number.into_iter().flatten()).chain(ids.iter().flatten().copied());
        let value: Vec<u8> = value.collect();
        extensions.push(REPLAYED, &value);
        extensions
    }

    /// Reads the extension of a message. `None` if the extension is missing or malformed.
    pub(crate) fn of(envelope: &Envelope<'a>) -> Option<Part<'a>> {
        let (_, value) = envelope.extensions.iter().find(|(id, _)| *id == REPLAYED)?;
        let (kind, rest) = value.split_first()?;
        let number = rest.split_first_chunk().map(|(number, rest)| (u64::from_le_bytes(*number), rest.as_chunks()));
        match (kind, number) {
            (0, Some((replay, (ids, [])))) => Some(Part::Begin(replay, ids)),
            (1, Some((published, ([], [])))) => Some(Part::Sample(published)),
            (2, None) if rest.is_empty() => Some(Part::End),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use polywire_core::envelope::{ChannelId, Id128};

    use super::*;

    #[test]
    fn the_extension_says_what_was_put() {
        let plain = Envelope::data(ChannelId(1), 1, 0);
        for part in [Part::Begin(1 << 40, &[[7; 16], [8; 16]]), Part::Sample(1 << 40), Part::End] {
            let extensions = part.extension();
            assert_eq!(Part::of(&Envelope { extensions: extensions.as_extensions(), ..plain }), Some(part));
        }
        let (long, odd) = ([1; 8 + 1 + 16], [0; 8 + 1 + 15]);
        for wrong in [&[][..], &[0], &[1, 2, 3], &[2, 0], &[3], &long, &odd] {
            let mut extensions = ExtensionsBuf::default();
            extensions.push(REPLAYED, wrong);
            assert_eq!(Part::of(&Envelope { extensions: extensions.as_extensions(), ..plain }), None, "{wrong:?}");
        }
        assert_eq!(Part::of(&plain), None);
        let most = Part::Begin(1, &[[7; 16]; LISTED]).extension();
        assert!(most.as_extensions().bytes().len() <= polywire_core::frame::Limits::default().extension_bytes);
    }

    #[test]
    fn a_history_begins_and_ends_and_its_messages_are_numbered() {
        let (mut last, mut sent) = (4, Vec::new());
        begin(&mut last, Id128([7; 16]), |sequence, part| sent.push(format!("{sequence} {part:?}")));
        bring(&mut last, [(1, "a"), (3, "b")], |sequence, part, sample| {
            sent.push(format!("{sequence} {part:?} {sample:?}"));
        });
        let begun = format!("5 Begin(5, {:?})", [[7_u8; 16]]);
        assert_eq!(sent, [&begun, "6 Sample(1) Some(\"a\")", "7 Sample(3) Some(\"b\")", "8 End None"]);
        assert_eq!(last, 8);
    }
}
