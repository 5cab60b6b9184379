//! The topic names and patterns that the subscribers of this node want, and the prefixes that cover
//! them, since ZeroMQ filters by prefixes only.

use std::collections::{BTreeMap, BTreeSet};

use polywire_core::topic::Pattern;

/// The names and patterns, each with the number of its subscribers.
#[derive(Default)]
pub(super) struct Interest {
    names: BTreeMap<String, usize>,
    patterns: BTreeMap<Pattern, usize>,
    /// Counts the changes.
    pub(super) version: u64,
}

impl Interest {
    pub(super) fn add(&mut self, text: &str) {
        self.version += 1;
        match text.parse::<Pattern>() {
            Ok(pattern) if !pattern.is_name() => *self.patterns.entry(pattern).or_default() += 1,
            _ => *self.names.entry(text.into()).or_default() += 1,
        }
    }

    pub(super) fn remove(&mut self, text: &str) {
        self.version += 1;
        match text.parse::<Pattern>() {
            Ok(pattern) if !pattern.is_name() => less(&mut self.patterns, &pattern),
            _ => less(&mut self.names, text),
        }
    }

    pub(super) fn fits(&self, topic: &str) -> bool {
        self.names.contains_key(topic) || self.patterns.keys().any(|pattern| pattern.fits(topic))
    }

    /// Returns the prefixes to subscribe to.
    pub(super) fn prefixes(&self) -> BTreeSet<String> {
        let of_patterns = self.patterns.keys().map(|pattern| prefix(pattern.as_str()));
        self.names.keys().cloned().chain(of_patterns).collect()
    }
}

fn less<K: Ord + std::borrow::Borrow<Q>, Q: Ord + ?Sized>(counts: &mut BTreeMap<K, usize>, key: &Q) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

/// Returns the levels before the first wildcard, without a slash at the end: a `**` may stand for
/// no level, and then the topic has no slash there.
fn prefix(pattern: &str) -> String {
    let literal: Vec<&str> = pattern.split('/').take_while(|level| !level.contains('*')).collect();
    literal.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_wanted_by_what_is_in_front_of_the_wildcards() {
        let mut interest = Interest::default();
        let all = ["plant/pumps", "plant/pumps", "plant/*/pump", "plant/**", "*/x"];
        all.iter().for_each(|text| interest.add(text));
        let prefixes = |interest: &Interest| interest.prefixes().into_iter().collect::<Vec<_>>();
        assert_eq!(prefixes(&interest), ["", "plant", "plant/pumps"]);
        interest.remove("plant/**");
        interest.remove("*/x");
        interest.remove("plant/pumps");
        interest.remove("nobody's");
        assert_eq!(prefixes(&interest), ["plant", "plant/pumps"]);
        assert!(interest.fits("plant/pumps") && interest.fits("plant/3/pump"));
        assert!(!interest.fits("plant/pumps2") && !interest.fits("plants/3/pump"));
    }
}
