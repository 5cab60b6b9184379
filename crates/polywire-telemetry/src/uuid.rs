//! UUIDs of probes and nodes.

use std::{fmt, str::FromStr};

use polywire::extend::envelope::Id128;

/// A UUID (RFC 9562), written as 8-4-4-4-12 hexadecimal digits.
///
/// ```
/// use polywire_telemetry::Uuid;
///
/// let uuid: Uuid = "B049990B-17AA-4ca2-8806-E89329963788".parse()?;
/// assert_eq!(uuid.to_string(), "b049990b-17aa-4ca2-8806-e89329963788");
/// assert!("b049990b17aa".parse::<Uuid>().is_err());
/// # Ok::<(), polywire_telemetry::UuidError>(())
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

/// The text is not a UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a UUID is expected, such as b049990b-17aa-4ca2-8806-e89329963788")]
pub struct UuidError;

impl Uuid {
    /// Returns a UUID with these 128 bits, such as
    /// `Uuid::of(0xb049990b_17aa_4ca2_8806_e89329963788)`.
    pub const fn of(bits: u128) -> Uuid {
        Uuid(bits.to_be_bytes())
    }

    /// Makes a random UUID (version 4). The randomness is that of [`polywire::Node`], which draws a
    /// random identity for every new node.
    pub fn random() -> Uuid {
        let mut bytes = polywire::Node::new().hello().node.0;
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Uuid(bytes)
    }
}

impl From<Uuid> for Id128 {
    fn from(uuid: Uuid) -> Id128 {
        Id128(uuid.0)
    }
}

impl FromStr for Uuid {
    type Err = UuidError;

    fn from_str(text: &str) -> Result<Uuid, UuidError> {
        let lengths = text.split('-').map(str::len);
        if !lengths.eq([8, 4, 4, 4, 12]) || !text.bytes().all(|b| b == b'-' || b.is_ascii_hexdigit()) {
            return Err(UuidError);
        }
        u128::from_str_radix(&text.replace('-', ""), 16).map(Uuid::of).map_err(|_| UuidError)
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            let dash = if [4, 6, 8, 10].contains(&i) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_ones_differ_and_say_so() {
        let (a, b) = (Uuid::random(), Uuid::random());
        assert_ne!(a, b);
        assert_eq!((a.0[6] >> 4, a.0[8] >> 6), (4, 2));
        assert_eq!(a.to_string().parse(), Ok(a));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "-", "b049990b-17aa-4ca2-8806-e8932996378g", "+049990b-17aa-4ca2-8806-e89329963788", "{}"] {
            assert_eq!(text.parse::<Uuid>(), Err(UuidError), "{text}");
        }
    }
}
