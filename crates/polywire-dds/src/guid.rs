//! GUIDs of participants, writers and readers.

use std::fmt;

/// The GUID of an entity, which is unique on the network: 12 bytes for the participant, and 4 for
/// the entity.
///
/// ```
/// use polywire_dds::Guid;
/// let writer = Guid([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 0, 1, 0x02]);
/// assert_eq!(writer.to_string(), "01020304-05060708-090a0b0c-00000102");
/// assert_eq!(writer.is_keyed(), Some(true));
/// assert_eq!(writer.participant().is_keyed(), None);
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Guid(pub [u8; 16]);

/// The entity id of every participant.
const PARTICIPANT: [u8; 4] = [0, 0, 1, 0xc1];

impl Guid {
    /// Makes a GUID from Cyclone's words, which are in the byte order of the machine.
    pub(crate) fn of_words(words: [u32; 4]) -> Guid {
        let mut bytes = [0; 16];
        bytes.chunks_exact_mut(4).zip(words).for_each(|(bytes, word)| bytes.copy_from_slice(&word.to_be_bytes()));
        Guid(bytes)
    }

    /// Returns the GUID of a writer's or reader's participant.
    pub fn participant(&self) -> Guid {
        let mut bytes = self.0;
        bytes[12..].copy_from_slice(&PARTICIPANT);
        Guid(bytes)
    }

    /// Returns whether the topic of a writer or reader has a key. `None` if the entity is neither.
    pub fn is_keyed(&self) -> Option<bool> {
        match self.0[15] & 0x3f {
            0x02 | 0x07 => Some(true),
            0x03 | 0x04 => Some(false),
            _ => None,
        }
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, word) in self.0.chunks_exact(4).enumerate() {
            f.write_str(if number == 0 { "" } else { "-" })?;
            word.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
