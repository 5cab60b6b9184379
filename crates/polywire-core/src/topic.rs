//! Names of topics, and patterns that stand for several of them. `spec/wire-names.md` has the
//! rules.
//!
//! A name has levels with slashes between them: `plant/3/pump`. In a pattern, a level `*` stands
//! for any one level, and a level `**` for any number of levels, also none. This is the part of
//! Zenoh's key expressions that stands for whole levels.

use alloc::{
    string::{String, ToString as _},
    vec::Vec,
};
use core::{fmt, str::FromStr};

/// Longest name or pattern, in bytes.
pub const MAX_BYTES: usize = 1024;

/// Characters that other systems use as wildcards, and that neither names nor the literal levels of
/// patterns have.
const WILDCARDS: [char; 3] = ['*', '?', '#'];

/// Stands for one level.
const ONE: &str = "*";

/// Stands for any number of levels.
const ANY: &str = "**";

/// Why a text is no name of a topic, or no pattern of such names.
///
/// ```
/// use polywire_core::topic::{self, TopicError};
/// assert_eq!(topic::check("market/quotes"), Ok(()));
/// let error = topic::check("market/*").unwrap_err();
/// assert_eq!(error, TopicError::Character { topic: "market/*".into(), offset: 7, character: '*' });
/// let error = topic::check("/market").unwrap_err();
/// assert_eq!(error.to_string(), "topic \"/market\", at byte 0: a level is empty; leave out the slash there");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopicError {
    /// The name is empty.
    #[error("a topic needs a name")]
    Empty,
    /// The name is longer than [`MAX_BYTES`].
    #[error("the name of a topic has {bytes} bytes, and may have {MAX_BYTES}: it begins with {start:?}")]
    Long {
        /// Its length in bytes.
        bytes: usize,
        /// Its first characters.
        start: String,
    },
    /// The name begins or ends with a slash, or has two in a row.
    #[error("topic {topic:?}, at byte {offset}: a level is empty; leave out the slash there")]
    Level {
        /// The name as given.
        topic: String,
        /// Byte offset of the slash to leave out.
        offset: usize,
    },
    /// The name has a wildcard or a control character.
    #[error(
        "topic {topic:?}, at byte {offset}: names of topics have no {character:?}; name one topic in full, or \
         subscribe to a pattern, in which `*` and `**` stand for whole levels"
    )]
    Character {
        /// The name as given.
        topic: String,
        /// Byte offset of the character.
        offset: usize,
        /// The character.
        character: char,
    },
    /// Publishers of applications cannot have the name: topics that begin with `polywire/` are
    /// built in.
    #[error("topic {topic:?}: names that begin with 'polywire/' are for built-in topics; choose another one")]
    Reserved {
        /// The name as given.
        topic: String,
    },
}

/// Checks the name of a topic.
pub fn check(topic: &str) -> Result<(), TopicError> {
    check_levels(topic, |_| false)
}

/// Checks a name, except for the levels that are a `wildcard`.
fn check_levels(topic: &str, wildcard: impl Fn(&str) -> bool) -> Result<(), TopicError> {
    if topic.is_empty() {
        return Err(TopicError::Empty);
    }
    if topic.len() > MAX_BYTES {
        return Err(TopicError::Long { bytes: topic.len(), start: topic.chars().take(40).collect() });
    }
    let mut at = 0;
    for level in topic.split('/') {
        if level.is_empty() {
            let offset = at.min(topic.len() - 1);
            return Err(TopicError::Level { topic: topic.into(), offset });
        }
        let bad = |c: &(usize, char)| WILDCARDS.contains(&c.1) || c.1.is_control();
        if let Some((offset, character)) = level.char_indices().find(bad).filter(|_| !wildcard(level)) {
            return Err(TopicError::Character { topic: topic.into(), offset: at + offset, character });
        }
        at += level.len() + 1;
    }
    Ok(())
}

/// Stands for all topics whose names it fits. A name fits itself alone.
///
/// ```
/// use polywire_core::topic::Pattern;
/// let pumps: Pattern = "plant/*/pump".parse()?;
/// assert!(pumps.fits("plant/3/pump") && !pumps.fits("plant/3/4/pump"));
/// assert!(!pumps.is_name() && "plant/3/pump".parse::<Pattern>()?.is_name());
/// let all: Pattern = "plant/**".parse()?;
/// assert!(all.fits("plant") && all.fits("plant/3/4/pump") && !all.fits("plants"));
/// assert!(pumps.is_narrower_than(&all));
/// assert_eq!(all.as_str(), "plant/**");
/// assert!("plant/p*".parse::<Pattern>().is_err(), "wildcards stand for whole levels");
/// # Ok::<(), polywire_core::topic::TopicError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pattern(String);

impl Pattern {
    /// Whether a name fits. The time is at most proportional to the product of both lengths.
    pub fn fits(&self, topic: &str) -> bool {
        let (patterns, levels): (Vec<&str>, Vec<&str>) = (self.0.split('/').collect(), topic.split('/').collect());
        // Where to go on if what follows the last `**` does not fit: at most one retry a level.
        let (mut p, mut l, mut retry) = (0, 0, None);
        while l < levels.len() {
            match patterns.get(p) {
                Some(&ANY) => {
                    retry = Some((p + 1, l));
                    p += 1;
                }
                Some(own) if *own == ONE || *own == levels[l] => (p, l) = (p + 1, l + 1),
                _ => match retry {
                    Some((after, from)) => {
                        retry = Some((after, from + 1));
                        (p, l) = (after, from + 1);
                    }
                    None => return false,
                },
            }
        }
        patterns[p..].iter().all(|rest| *rest == ANY)
    }

    /// Whether it has no wildcard, so that it stands for one topic.
    pub fn is_name(&self) -> bool {
        !self.0.split('/').any(is_wildcard)
    }

    /// Whether this pattern is to be preferred where both fit: it has more levels that are no
    /// wildcards, or as many and fewer `**`. Patterns that are equal in both are ordered as text.
    pub fn is_narrower_than(&self, other: &Pattern) -> bool {
        self.rank() > other.rank()
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn rank(&self) -> (usize, core::cmp::Reverse<usize>, &str) {
        let literal = self.0.split('/').filter(|level| !is_wildcard(level)).count();
        let any = self.0.split('/').filter(|level| *level == ANY).count();
        (literal, core::cmp::Reverse(any), &self.0)
    }
}

fn is_wildcard(level: &str) -> bool {
    level == ONE || level == ANY
}

/// So that maps by pattern can be asked for a text.
impl core::borrow::Borrow<str> for Pattern {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl FromStr for Pattern {
    type Err = TopicError;

    fn from_str(text: &str) -> Result<Pattern, TopicError> {
        check_levels(text, is_wildcard)?;
        Ok(Pattern(text.to_string()))
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use proptest::prelude::*;

    use super::*;

    fn fits(pattern: &str, topic: &str) -> bool {
        pattern.parse::<Pattern>().expect("a pattern").fits(topic)
    }

    #[test]
    fn topics_fit_patterns_level_by_level() {
        let fitting = [
            ("a/b", "a/b"),
            ("a/*", "a/b"),
            ("*/b", "a/b"),
            ("**", "a"),
            ("**", "a/b/c"),
            ("a/**", "a"),
            ("a/**", "a/b/c"),
            ("**/c", "a/b/c"),
            ("a/**/d", "a/d"),
            ("a/**/d", "a/b/c/d"),
            ("a/**/c/*/e", "a/c/x/c/d/e"),
            ("**/**", "a"),
        ];
        for (pattern, topic) in fitting {
            assert!(fits(pattern, topic), "{pattern} {topic}");
        }
        let others = [
            ("a", "b"),
            ("a", "a/b"),
            ("a/*", "a"),
            ("a/*", "a/b/c"),
            ("**/c", "a/b"),
            ("a/**/d", "a/b"),
            ("a/**", "ab"),
        ];
        for (pattern, topic) in others {
            assert!(!fits(pattern, topic), "{pattern} {topic}");
        }
        // Not exponential.
        assert!(!fits(&format!("{}b", "**/a/".repeat(50)), &"a/".repeat(2000)));
    }

    #[test]
    fn names_and_patterns_are_checked() {
        let wrong = ["", "/a", "a/", "a//b", "a/b*", "a***", "***", "a?", "#", "a\n"];
        for text in wrong {
            assert!(text.parse::<Pattern>().is_err() && check(text).is_err(), "{text:?}");
        }
        let offset = |text: &str| match check(text) {
            Err(TopicError::Level { offset, .. } | TopicError::Character { offset, .. }) => offset,
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(["/a", "a/", "a//b", "a/b*"].map(offset), [0, 1, 2, 3]);
        assert_eq!(check(&"a".repeat(MAX_BYTES)), Ok(()));
        assert!(matches!(check(&"ä".repeat(MAX_BYTES)), Err(TopicError::Long { bytes: 2048, .. })));
        assert!(check("a b.c-d_e/Ä").is_ok());
    }

    #[test]
    fn narrow_patterns_are_preferred() {
        let mut all: Vec<Pattern> =
            ["**", "a/*", "a/**", "a/b", "*/b"].iter().map(|text| text.parse().expect("a pattern")).collect();
        all.sort_by(|a, b| b.is_narrower_than(a).cmp(&a.is_narrower_than(b)));
        assert_eq!(all.iter().map(Pattern::as_str).collect::<Vec<_>>(), ["a/b", "a/*", "*/b", "a/**", "**"]);
    }

    fn naive(patterns: &[&str], levels: &[&str]) -> bool {
        match (patterns, levels) {
            ([], []) => true,
            ([ANY, rest @ ..], _) => (0..=levels.len()).any(|skipped| naive(rest, &levels[skipped..])),
            ([first, rest @ ..], [level, levels @ ..]) => (*first == ONE || first == level) && naive(rest, levels),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn matching_agrees_with_the_definition(
            pattern in prop::collection::vec(prop::sample::select(vec!["a", "b", ONE, ANY]), 1..7),
            levels in prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 1..7),
        ) {
            prop_assert_eq!(fits(&pattern.join("/"), &levels.join("/")), naive(&pattern, &levels));
        }
    }
}
