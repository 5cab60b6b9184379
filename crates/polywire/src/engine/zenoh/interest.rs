//! The keys that this node listens to: those of the channels that it has accepted, and those of the
//! topics of its subscribers. A key that another one includes is not declared, so that each sample
//! arrives once. Where two patterns overlap, the sample counts for the first of them.

use std::collections::{HashMap, HashSet};

use zenoh::key_expr::{OwnedKeyExpr, keyexpr};

/// The keys that are wanted, with their counts, and the subscribers of the keys that are declared.
pub(super) struct Interest<S> {
    wanted: HashMap<OwnedKeyExpr, usize>,
    declared: HashMap<OwnedKeyExpr, S>,
}

impl<S> Default for Interest<S> {
    fn default() -> Self {
        Interest { wanted: HashMap::new(), declared: HashMap::new() }
    }
}

impl<S> Interest<S> {
    /// Adds a key. `declare` makes the subscribers that are missing.
    pub(super) fn add(&mut self, key: OwnedKeyExpr, declare: impl Fn(&OwnedKeyExpr) -> Option<S>) {
        let count = self.wanted.entry(key).or_default();
        *count += 1;
        if *count == 1 {
            self.update(declare);
        }
    }

    /// Removes a key, unless it was added more often. `declare` makes subscribers that are missing.
    pub(super) fn remove(&mut self, key: &OwnedKeyExpr, declare: impl Fn(&OwnedKeyExpr) -> Option<S>) {
        let Some(count) = self.wanted.get_mut(key) else { return };
        *count -= 1;
        if *count == 0 {
            self.wanted.remove(key);
            self.update(declare);
        }
    }

    /// Whether samples of a key arrive, because a declared key includes it.
    pub(super) fn covers(&self, key: &keyexpr) -> bool {
        self.declared.keys().any(|declared| declared.includes(key))
    }

    pub(super) fn clear(&mut self) {
        *self = Interest::default();
    }

    /// Declares new keys before it ends old ones, so that no sample is missed.
    fn update(&mut self, declare: impl Fn(&OwnedKeyExpr) -> Option<S>) {
        let wild: Vec<&OwnedKeyExpr> = self.wanted.keys().filter(|key| key.is_wild()).collect();
        let is_covered = |key: &OwnedKeyExpr| wild.iter().any(|other| *other != key && other.includes(key));
        let needed: HashSet<&OwnedKeyExpr> = self.wanted.keys().filter(|key| !is_covered(key)).collect();
        for key in &needed {
            if !self.declared.contains_key(*key)
                && let Some(declared) = declare(key)
            {
                self.declared.insert((*key).clone(), declared);
            }
        }
        self.declared.retain(|key, _| needed.contains(key));
    }

    /// Returns the declared keys that may overlap, in order. Keys without wildcards do not overlap.
    pub(super) fn wild(&self) -> Vec<OwnedKeyExpr> {
        let mut wild: Vec<_> = self.declared.keys().filter(|key| key.is_wild()).cloned().collect();
        wild.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
        wild
    }
}

/// Whether a sample of `key` counts for `declared`. `wild` are the declared keys that may overlap.
pub(super) fn is_for(wild: &[OwnedKeyExpr], declared: &keyexpr, key: &keyexpr) -> bool {
    !declared.is_wild() || wild.iter().find(|other| other.intersects(key)).is_none_or(|first| **first == *declared)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> OwnedKeyExpr {
        OwnedKeyExpr::new(text).expect("a key expression")
    }

    fn declared(interest: &Interest<()>) -> Vec<&str> {
        let mut all: Vec<_> = interest.declared.keys().map(|key| key.as_str()).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn each_sample_comes_once() {
        let mut interest = Interest::default();
        let declare = |_: &OwnedKeyExpr| Some(());
        for text in ["a/b", "a/b", "a/c", "x/*"] {
            interest.add(key(text), declare);
        }
        assert_eq!(declared(&interest), ["a/b", "a/c", "x/*"]);
        interest.add(key("a/**"), declare);
        assert_eq!(declared(&interest), ["a/**", "x/*"]);
        interest.remove(&key("a/b"), declare);
        interest.remove(&key("a/**"), declare);
        assert_eq!(declared(&interest), ["a/b", "a/c", "x/*"], "it was added twice");
        interest.remove(&key("a/b"), declare);
        interest.remove(&key("nobody's"), declare);
        assert_eq!(declared(&interest), ["a/c", "x/*"]);
        interest.add(key("*/y"), declare);
        let takers = |sample: &str| {
            let sample = key(sample);
            let all = interest.declared.keys().filter(|key| key.intersects(&sample));
            all.filter(|declared| is_for(&interest.wild(), declared, &sample)).count()
        };
        assert_eq!(["x/y", "x/z", "z/y", "a/c"].map(takers), [1; 4]);
        interest.clear();
        assert_eq!(declared(&interest), [""; 0]);
    }
}
