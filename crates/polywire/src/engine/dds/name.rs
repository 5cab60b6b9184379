//! Names of DDS topics for names of ours, and back.
//!
//! Cyclone DDS takes printable ASCII except blanks and `*?[]"'#$`. Every other byte, and `%`, is
//! written as `%` with two hexadecimal digits.

use std::fmt::Write as _;

const FORBIDDEN: &[u8] = b"*?[]\"'#$%";

/// The name of a topic in DDS.
pub(super) fn escape(topic: &str) -> String {
    let mut name = String::with_capacity(topic.len());
    for byte in topic.bytes() {
        if byte.is_ascii_graphic() && !FORBIDDEN.contains(&byte) {
            name.push(byte.into());
        } else {
            // Writing to a string does not fail.
            let _ = write!(name, "%{byte:02x}");
        }
    }
    name
}

/// The name of a topic of another program. A name that [`escape`] cannot have made stands for
/// itself.
pub(super) fn unescape(name: &str) -> String {
    unescaped(name).filter(|topic| escape(topic) == name).unwrap_or_else(|| name.into())
}

fn unescaped(name: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(name.len()), name.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        if *first == b'%' {
            let (digits, after) = after.split_at_checked(2)?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = after;
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        for (topic, name) in
            [("plant/pumps", "plant/pumps"), ("$nodes", "%24nodes"), ("50% a", "50%25%20a"), ("Kühl", "K%c3%bchl")]
        {
            assert_eq!(escape(topic), name);
            assert_eq!(unescape(name), topic);
        }
    }

    #[test]
    fn what_others_name_is_left_alone() {
        for name in ["a%", "a%4", "a%zz", "%ff", "%41", "rt/chatter", "a%C3%BC"] {
            assert_eq!(unescape(name), name);
        }
    }
}
