//! Requests for documents that a relay passes on from one link to another. A table; it does no I/O.

use std::collections::{BTreeMap, VecDeque};

use polywire_core::envelope::Id128;

use crate::engine::LinkId;

/// Number of links asked for a document at the same time, so that one that never answers does not
/// block those that wait for it.
const AT_A_TIME: usize = 3;

/// Which links wait for which document, and which links were asked for it.
#[derive(Default)]
pub(super) struct Fetches {
    fetches: BTreeMap<Id128, Fetch>,
    /// The documents that each link waits for, the oldest first.
    by_link: BTreeMap<LinkId, VecDeque<Id128>>,
}

#[derive(Default)]
struct Fetch {
    waiting: Vec<LinkId>,
    /// Links that have not answered yet.
    asked: Vec<LinkId>,
    tried: Vec<LinkId>,
}

/// The result of [`Fetches::want`].
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Links to ask.
    pub(super) ask: Vec<LinkId>,
    /// A document that the link no longer waits for, because it waits for too many.
    pub(super) forgotten: Option<Id128>,
}

/// The result of an answer, or of the end of a link.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answered {
    /// Ask another link.
    Ask(LinkId),
    /// Pass the answer to these links; nobody waits any more.
    Give(Vec<LinkId>),
    /// Nothing for now.
    Wait,
}

impl Fetches {
    /// Notes that a link wants a document. `None` if no other link can be asked. A link waits for
    /// `most` documents at a time; if it wants more, the oldest is forgotten.
    pub(super) fn want(
        &mut self,
        document: Id128,
        by: LinkId,
        most: usize,
        sources: impl FnOnce() -> Vec<LinkId>,
    ) -> Option<Wanted> {
        let mut wanted = Wanted::default();
        match self.fetches.get_mut(&document) {
            Some(fetch) if fetch.waiting.contains(&by) => return Some(wanted),
            Some(fetch) => fetch.waiting.push(by),
            None => {
                let mut fetch = Fetch { waiting: vec![by], ..Fetch::default() };
                let mut sources = sources();
                sources.retain(|source| *source != by);
                while let Some(source) = fetch.next(&sources).filter(|_| fetch.asked.len() < AT_A_TIME) {
                    fetch.ask(source);
                    wanted.ask.push(source);
                }
                if wanted.ask.is_empty() {
                    return None;
                }
                self.fetches.insert(document, fetch);
            }
        }
        let own = self.by_link.entry(by).or_default();
        own.push_back(document);
        if own.len() > most {
            wanted.forgotten = own.pop_front();
        }
        if let Some(forgotten) = wanted.forgotten {
            self.stop_waiting(forgotten, by);
        }
        Some(wanted)
    }

    /// Returns whether this link was asked and has not answered.
    pub(super) fn is_asked(&self, document: Id128, from: LinkId) -> bool {
        self.fetches.get(&document).is_some_and(|fetch| fetch.asked.contains(&from))
    }

    /// Notes that a link has answered: with the document, or without.
    pub(super) fn answered(
        &mut self,
        document: Id128,
        from: LinkId,
        has: bool,
        sources: impl FnOnce() -> Vec<LinkId>,
    ) -> Answered {
        let Some(fetch) = self.fetches.get_mut(&document) else { return Answered::Wait };
        fetch.asked.retain(|asked| *asked != from);
        if !has {
            let next = fetch.next(&sources());
            if let Some(source) = next {
                fetch.ask(source);
                return Answered::Ask(source);
            }
            if !fetch.asked.is_empty() {
                return Answered::Wait;
            }
        }
        let waiting = self.fetches.remove(&document).map(|fetch| fetch.waiting).unwrap_or_default();
        waiting.iter().for_each(|link| self.forget(document, *link));
        Answered::Give(waiting)
    }

    /// Removes a link, which waits for nothing and answers nothing any more. Returns what to do for
    /// the documents that it was asked for.
    pub(super) fn leave(&mut self, link: LinkId, sources: impl Fn(Id128) -> Vec<LinkId>) -> Vec<(Id128, Answered)> {
        for document in self.by_link.remove(&link).unwrap_or_default() {
            self.stop_waiting(document, link);
        }
        let asked = self.fetches.iter().filter(|(_, fetch)| fetch.asked.contains(&link));
        let asked: Vec<Id128> = asked.map(|(document, _)| *document).collect();
        let next = |document| (document, self.answered(document, link, false, || sources(document)));
        asked.into_iter().map(next).collect()
    }

    fn stop_waiting(&mut self, document: Id128, link: LinkId) {
        if let Some(fetch) = self.fetches.get_mut(&document) {
            fetch.waiting.retain(|waiting| *waiting != link);
            if fetch.waiting.is_empty() {
                self.fetches.remove(&document);
            }
        }
    }

    fn forget(&mut self, document: Id128, link: LinkId) {
        if let Some(own) = self.by_link.get_mut(&link) {
            own.retain(|other| *other != document);
            if own.is_empty() {
                self.by_link.remove(&link);
            }
        }
    }
}

impl Fetch {
    fn next(&self, sources: &[LinkId]) -> Option<LinkId> {
        sources.iter().copied().find(|source| !self.tried.contains(source) && !self.waiting.contains(source))
    }

    fn ask(&mut self, source: LinkId) {
        self.asked.push(source);
        self.tried.push(source);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: Id128 = Id128([7; 16]);
    const A: LinkId = LinkId(1);
    const B: LinkId = LinkId(2);
    const C: LinkId = LinkId(3);
    const D: LinkId = LinkId(4);
    const E: LinkId = LinkId(5);

    fn ask(links: &[LinkId]) -> Option<Wanted> {
        Some(Wanted { ask: links.to_vec(), forgotten: None })
    }

    #[test]
    fn who_was_not_asked_is_not_heard() {
        let mut fetches = Fetches::default();
        assert_eq!(fetches.want(DOCUMENT, A, 8, || vec![B]), ask(&[B]));
        assert!(fetches.is_asked(DOCUMENT, B) && !fetches.is_asked(DOCUMENT, C) && !fetches.is_asked(Id128::ZERO, B));
        // A second link waits for the same answer.
        assert_eq!(fetches.want(DOCUMENT, D, 8, || unreachable!("it is asked for already")), ask(&[]));
        assert_eq!(fetches.answered(DOCUMENT, B, true, Vec::new), Answered::Give(vec![A, D]));
        assert!(!fetches.is_asked(DOCUMENT, B) && fetches.by_link.is_empty());
    }

    #[test]
    fn others_are_asked_when_one_has_it_not_or_goes() {
        let sources = || vec![B, A, B, C, D, E];
        let mut fetches = Fetches::default();
        assert_eq!(fetches.want(DOCUMENT, A, 8, sources), ask(&[B, C, D]));
        assert_eq!(fetches.answered(DOCUMENT, C, false, sources), Answered::Ask(E));
        assert_eq!(fetches.answered(DOCUMENT, E, false, sources), Answered::Wait);
        assert_eq!(fetches.leave(B, |_| sources()), [(DOCUMENT, Answered::Wait)]);
        assert_eq!(fetches.answered(DOCUMENT, D, false, sources), Answered::Give(vec![A]), "nobody has it");
        assert_eq!(fetches.want(DOCUMENT, A, 8, || vec![A]), None, "nobody else to ask");
    }

    #[test]
    fn a_link_waits_for_so_many_and_keeps_nobody_else_from_waiting() {
        let (mut fetches, document) = (Fetches::default(), |i| Id128([i; 16]));
        (0..4).for_each(|i| assert_eq!(fetches.want(document(i), A, 4, || vec![B]), ask(&[B])));
        let more = fetches.want(document(4), A, 4, || vec![B]).expect("asked");
        assert_eq!((more.ask, more.forgotten), (vec![B], Some(document(0))));
        assert_eq!(fetches.want(document(9), C, 4, || vec![B]), ask(&[B]));
        assert_eq!(fetches.answered(document(0), B, true, Vec::new), Answered::Wait);
        assert_eq!(fetches.leave(A, |_| Vec::new()), []);
        assert_eq!((fetches.fetches.len(), fetches.by_link.len()), (1, 1));
    }
}
