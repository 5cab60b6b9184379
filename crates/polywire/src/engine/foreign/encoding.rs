//! Encodings: formats as media types, followed by the name of the channel's type and the hash of
//! its schema (`spec/zenoh.md`, section 2).

use polywire_core::{
    envelope::{Announcement, Id128},
    qos::Offer,
    ros::TypeHash,
};

/// Formats with a widely known media type, and that media type.
const KNOWN: [(&str, &str); 6] = [
    ("cdr", "application/cdr"),
    ("json", "application/json"),
    ("cbor", "application/cbor"),
    ("protobuf", "application/protobuf"),
    ("xml", "application/xml"),
    ("yaml", "application/yaml"),
];
/// The media type of all other formats. The first part of its schema is `polywire-NAME`.
const OTHER: &str = "application/octet-stream";
const OTHER_SCHEMA: &str = "polywire-";
/// Other media types that foreign applications may use, and their formats.
const ALIASES: [(&str, &str); 3] = [("text/json", "json"), ("text/xml", "xml"), ("text/yaml", "yaml")];
/// Longest name of a type that is taken from a foreign encoding, in bytes.
const LONGEST: usize = 512;

/// Returns the encoding of a channel, such as `application/json;plant::Pump@0123..`.
pub(in crate::engine) fn of(announcement: &Announcement) -> String {
    let Announcement { codec, compressor, type_name, schema, .. } = announcement;
    let known = KNOWN.iter().find(|(name, _)| name == codec && compressor.is_empty());
    let mut text = match known {
        Some((_, media)) => (*media).to_owned(),
        None if compressor.is_empty() => format!("{OTHER};{OTHER_SCHEMA}{codec}"),
        None => format!("{OTHER};{OTHER_SCHEMA}{codec}+{compressor}"),
    };
    if !type_name.is_empty() {
        text.push(';');
        text.push_str(type_name);
        if !schema.is_zero() {
            text.push_str(&format!("@{schema}"));
        }
    }
    text
}

/// What the encoding of a foreign sample says.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::engine) struct SampleEncoding {
    /// The format; empty if the encoding leaves it to the subscriber. The media type of CDR does
    /// so, too: it does not say which version of CDR is used, and whether there is a header.
    pub(in crate::engine) codec: String,
    /// The options of the codec.
    pub(in crate::engine) options: String,
    /// The name of the type, or empty.
    pub(in crate::engine) type_name: String,
    /// The hash of the writer's schema, or zero.
    pub(in crate::engine) schema: Id128,
    /// The ROS 2 hash of the type, if the publisher states it.
    pub(in crate::engine) ros_type: Option<TypeHash>,
}

impl SampleEncoding {
    /// Returns the announcement of a channel whose messages have this encoding. Its writer id is
    /// zero.
    pub(in crate::engine) fn announcement(&self, topic: &str) -> Announcement {
        let SampleEncoding { codec, options, type_name, schema, ros_type } = self.clone();
        let offer = Offer { ros_type, ..Offer::default() }.to_bytes();
        Announcement { topic: topic.into(), codec, options, type_name, schema, offer, ..Announcement::default() }
    }
}

/// Reads the encoding of a foreign sample.
pub(in crate::engine) fn read(encoding: &str) -> SampleEncoding {
    let (media, schema) = encoding.split_once(';').unwrap_or((encoding, ""));
    if media == OTHER {
        let (name, schema) = schema.split_once(';').unwrap_or((schema, ""));
        let codec = name.strip_prefix(OTHER_SCHEMA).filter(|name| is_name(name)).unwrap_or_default();
        return of_type(codec, schema);
    }
    let mut known = KNOWN.iter().map(|(name, media)| (*media, *name)).chain(ALIASES);
    let codec = known.find(|(known, _)| *known == media).map(|(_, name)| name);
    of_type(codec.filter(|name| *name != "cdr").unwrap_or_default(), schema)
}

fn is_name(text: &str) -> bool {
    (1..=32).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

fn of_type(codec: &str, schema: &str) -> SampleEncoding {
    let (name, hash) = schema.split_once('@').unwrap_or((schema, ""));
    let fits = name.len() <= LONGEST && !name.contains(char::is_control);
    let type_name = if fits { name.into() } else { String::new() };
    let schema = super::id(hash).unwrap_or(Id128::ZERO);
    SampleEncoding { codec: codec.into(), type_name, schema, ..SampleEncoding::default() }
}

#[cfg(test)]
mod tests {
    use polywire_core::envelope::Id128;
    use proptest::prelude::*;

    use super::*;

    fn announced(codec: &str, compressor: &str, type_name: &str, schema: u8) -> Announcement {
        Announcement {
            codec: codec.into(),
            compressor: compressor.into(),
            type_name: type_name.into(),
            schema: Id128([schema; 16]),
            ..Announcement::default()
        }
    }

    #[test]
    fn formats_have_their_media_types() {
        let hash = "07".repeat(16);
        for (announcement, text) in [
            (announced("json", "", "plant::Pump", 7), format!("application/json;plant::Pump@{hash}")),
            (announced("cdr", "", "Pump", 0), "application/cdr;Pump".into()),
            (announced("cbor", "", "", 0), "application/cbor".into()),
            (announced("fast", "", "Pump", 0), "application/octet-stream;polywire-fast;Pump".into()),
            (announced("json", "zstd:3", "Pump", 0), "application/octet-stream;polywire-json+zstd:3;Pump".into()),
        ] {
            assert_eq!(of(&announcement), text);
        }
    }

    #[test]
    fn foreign_samples_say_what_they_are_or_leave_it_open() {
        let hash = "07".repeat(16);
        for (text, codec, name, byte) in [
            ("application/json", "json", "", 0),
            ("text/json;plant::Pump@0707", "json", "plant::Pump", 0),
            (&format!("text/json;plant::Pump@{hash}"), "json", "plant::Pump", 7),
            (&format!("application/cdr;plant::Pump@{hash}"), "", "plant::Pump", 7),
            ("application/protobuf;Pump", "protobuf", "Pump", 0),
            ("application/cdr", "", "", 0),
            ("zenoh/bytes", "", "", 0),
            ("application/octet-stream;polywire-bson;Pump", "bson", "Pump", 0),
            ("application/octet-stream;polywire-json+zstd:3", "", "", 0),
            ("application/json;a\nb", "json", "", 0),
            ("", "", "", 0),
        ] {
            let schema = Id128([byte; 16]);
            let expected =
                SampleEncoding { codec: codec.into(), type_name: name.into(), schema, ..SampleEncoding::default() };
            assert_eq!(read(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_text_is_some_encoding(text in "\\PC{0,60}") {
            let encoding = read(&text);
            prop_assert!(encoding.codec.is_empty() || is_name(&encoding.codec));
            prop_assert!(encoding.type_name.len() <= LONGEST);
        }
    }
}
