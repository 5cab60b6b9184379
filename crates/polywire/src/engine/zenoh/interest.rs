//! The keys that this node listens to: those of the channels that it has accepted, and those of the
//! topics of its subscribers. No key is declared that another one includes, so that each sample
//! comes once; where two patterns overlap, the first of them takes it.

use std::collections::{HashMap, HashSet};

use zenoh::key_expr::{OwnedKeyExpr, keyexpr};

/// The keys, counted, and what stands for those that are declared.
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
    /// Listens to a key. `declare` makes what is missing.
    pub(super) fn add(&mut self, key: OwnedKeyExpr, declare: impl Fn(&OwnedKeyExpr) -> Option<S>) {
        let count = self.wanted.entry(key).or_default();
        *count += 1;
        if *count == 1 {
            self.update(declare);
        }
    }

    /// Listens to a key no longer, unless it was added more often.
    pub(super) fn remove(&mut self, key: &OwnedKeyExpr, declare: impl Fn(&OwnedKeyExpr) -> Option<S>) {
        let Some(count) = self.wanted.get_mut(key) else { return };
        *count -= 1;
        if *count == 0 {
            self.wanted.remove(key);
            self.update(declare);
        }
    }

    /// Whether samples of a key come.
    pub(super) fn covers(&self, key: &keyexpr) -> bool {
        self.declared.keys().any(|declared| declared.includes(key))
    }

    pub(super) fn clear(&mut self) {
        *self = Interest::default();
    }

    /// New ones are declared before old ones end, so that nothing is missed.
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

    /// Those declared that may overlap: exact keys do not.
    pub(super) fn wild(&self) -> Vec<OwnedKeyExpr> {
        let mut wild: Vec<_> = self.declared.keys().filter(|key| key.is_wild()).cloned().collect();
        wild.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
        wild
    }
}

/// Whether the sample of a key is for this one of those declared, of which these may overlap.
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
