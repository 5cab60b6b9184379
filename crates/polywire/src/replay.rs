//! What a message on a history channel is (`spec/qos.md`): for publishers that keep a history, and
//! for engines whose medium has such publishers.

use std::iter;

use polywire_core::envelope::{Envelope, ExtensionsBuf};

/// The extension of every message on a history channel, a [`Part`]. It must be understood.
pub(crate) const REPLAYED: u32 = 1;

/// What a message on a history channel is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    /// All that the publisher keeps follows, in the replay of this number and on the channels whose
    /// writers have these ids.
    Begin(u64, &'a [[u8; 16]]),
    /// A sample, with its sequence number when it was published.
    Sample(u64),
    /// That was all.
    End,
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

    /// `None` if the extension is missing or malformed.
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
    use polywire_core::envelope::ChannelId;

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
    }
}
