//! Serde's traits for the parts of FlightData where serde's derived code would differ from
//! Polywire's mappings in `spec/`. With these, other libraries can read Polywire's messages and
//! vice versa. In human-readable formats, enums are names and octets are base64; in the others,
//! they are numbers and bytes.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, Error, MapAccess, Visitor},
    ser::SerializeStruct,
};

use super::{CoordinationState, FlightRules, Wind};

macro_rules! literals {
    ($enum:ident: $($literal:ident $name:literal,)+) => {
        impl Serialize for $enum {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                if !serializer.is_human_readable() {
                    return serializer.serialize_i32(*self as i32);
                }
                serializer.serialize_str(match self {
                    $($enum::$literal => $name,)+
                })
            }
        }

        impl<'de> Deserialize<'de> for $enum {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$enum, D::Error> {
                const NAMES: &[&str] = &[$($name),+];
                if !deserializer.is_human_readable() {
                    let value = i32::deserialize(deserializer)?;
                    let literal = [$($enum::$literal),+].into_iter().find(|literal| *literal as i32 == value);
                    return literal.ok_or_else(|| D::Error::custom("no literal has this value"));
                }
                let name = Text::deserialize(deserializer)?;
                match &*name.0 {
                    $($name => Ok($enum::$literal),)+
                    other => Err(D::Error::unknown_variant(other, NAMES)),
                }
            }
        }
    };
}

literals! {
    FlightRules:
    Visual "VISUAL",
    Instrument "INSTRUMENT",
    VisualThenInstrument "VISUAL_THEN_INSTRUMENT",
    InstrumentThenVisual "INSTRUMENT_THEN_VISUAL",
}

literals! {
    CoordinationState:
    Initial "INITIAL",
    Notified "NOTIFIED",
    Coordinated "COORDINATED",
    Transferred "TRANSFERRED",
    Redundant "REDUNDANT",
}

/// Text that borrows from the input if possible.
#[derive(Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// A structure with one member, named after the case. `quick-xml` cannot write what serde derives
/// for an enum as an element.
impl Serialize for Wind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut wind = serializer.serialize_struct("Wind", 1)?;
        match self {
            Wind::GustKt(speed) => wind.serialize_field("gust_kt", speed)?,
            Wind::MeanKt(speed) => wind.serialize_field("mean_kt", speed)?,
        }
        wind.end()
    }
}

impl<'de> Deserialize<'de> for Wind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Wind, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "snake_case")]
        enum Case {
            GustKt,
            MeanKt,
        }

        struct Cases;

        impl<'de> Visitor<'de> for Cases {
            type Value = Wind;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("one case of Wind")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Wind, A::Error> {
                let case = map.next_key()?.ok_or_else(|| A::Error::invalid_length(0, &self))?;
                let wind = match case {
                    Case::GustKt => Wind::GustKt(map.next_value()?),
                    Case::MeanKt => Wind::MeanKt(map.next_value()?),
                };
                match map.next_key::<Case>()? {
                    None => Ok(wind),
                    Some(_) => Err(A::Error::invalid_length(2, &self)),
                }
            }
        }

        deserializer.deserialize_struct("Wind", &["gust_kt", "mean_kt"], Cases)
    }
}

pub(super) mod character {
    use polywire_core::layout::Char8;

    use super::*;

    /// Writes the character as text, because some formats write a `char` as a number.
    pub fn serialize<S: Serializer>(character: &Char8, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(char::from(*character).encode_utf8(&mut [0; 4]))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Char8, D::Error> {
        let character = Text::deserialize(deserializer)?.0.parse::<char>().ok();
        let character = character.and_then(|character| character.try_into().ok());
        character.ok_or_else(|| D::Error::custom("the text is not one character of one byte"))
    }
}

pub(super) mod octets {
    use base64::{Engine, engine::general_purpose::STANDARD};

    use super::*;

    pub fn serialize<S: Serializer>(octets: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        match serializer.is_human_readable() {
            true => serializer.serialize_str(&STANDARD.encode(octets)),
            false => serializer.serialize_bytes(octets),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        if deserializer.is_human_readable() {
            return STANDARD.decode(&*Text::deserialize(deserializer)?.0).map_err(D::Error::custom);
        }
        deserializer.deserialize_byte_buf(Octets)
    }

    struct Octets;

    impl de::Visitor<'_> for Octets {
        type Value = Vec<u8>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("octets")
        }

        fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
            Ok(bytes.to_vec())
        }

        fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<Vec<u8>, E> {
            Ok(bytes)
        }
    }
}

/// An optional array of octets. An absent one is left out (`skip_serializing_if`), so these
/// functions never meet `null`.
pub(super) mod address {
    use super::*;

    pub fn serialize<S: Serializer>(address: &Option<[u8; 3]>, serializer: S) -> Result<S::Ok, S::Error> {
        octets::serialize(address.as_ref().map_or(&[], <[u8; 3]>::as_slice), serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<[u8; 3]>, D::Error> {
        let octets = octets::deserialize(deserializer)?;
        <[u8; 3]>::try_from(octets).map(Some).map_err(|other| D::Error::invalid_length(other.len(), &"three octets"))
    }
}
