//! Search for repetitions, and their reproduction, for the formats of the LZ77 family: `lz77`,
//! `lz4` and `lzo`.

use alloc::{vec, vec::Vec};

/// Length of the shortest match.
pub(super) const MIN_MATCH: usize = 4;

const HASH_BITS: u32 = 14;

/// No position: the end of a chain.
const NOWHERE: u32 = 0;

/// Finds earlier occurrences of four bytes. It is reused for many messages without being cleared.
pub(super) struct Matcher {
    /// For each hash, the last position, counted from the first message. Positions before `base`
    /// are invalid.
    heads: Vec<u32>,
    /// For each position modulo the length, the previous position with the same hash. Empty if only
    /// the last position is tried.
    chain: Vec<u32>,
    /// Largest number of positions tried for a match.
    tries: u32,
    max_distance: usize,
    /// The position of the first byte of the current message.
    base: u32,
    /// Like `heads`, for the dictionary. Positions count from 1.
    dictionary_heads: Vec<u32>,
    dictionary_len: usize,
}

/// A repetition of earlier bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Match {
    pub(super) distance: usize,
    pub(super) length: usize,
}

/// Where matches may lie, in bytes from the end of the data.
#[derive(Clone, Copy)]
pub(super) struct Margins {
    /// The last match begins at least this many bytes before the end.
    pub(super) begin: usize,
    /// The last match ends at least this many bytes before the end.
    pub(super) end: usize,
}

impl Matcher {
    /// Makes a matcher for distances up to `max_distance`, which must be at least 1. With chains, a
    /// power of two less 1 uses memory best.
    pub(super) fn new(max_distance: usize, tries: u32) -> Matcher {
        let chain = if tries > 1 { vec![NOWHERE; (max_distance + 1).next_power_of_two()] } else { Vec::new() };
        let heads = vec![NOWHERE; 1 << HASH_BITS];
        let (dictionary_heads, dictionary_len) = (Vec::new(), 0);
        Matcher { heads, chain, tries, max_distance, base: 1, dictionary_heads, dictionary_len }
    }

    /// Sets a dictionary: all data will begin with these bytes, which are not compressed.
    pub(super) fn with_dictionary(mut self, dictionary: &[u8]) -> Matcher {
        self.dictionary_heads = vec![NOWHERE; 1 << HASH_BITS];
        self.dictionary_len = dictionary.len();
        for (at, four) in dictionary.windows(MIN_MATCH).enumerate() {
            let four = u32::from_le_bytes([four[0], four[1], four[2], four[3]]);
            self.dictionary_heads[hash(four)] = at as u32 + 1;
        }
        self
    }

    /// Compresses `data` after the dictionary. Calls `emit` with the bytes between two matches and
    /// the match after them. Returns the bytes after the last match.
    pub(super) fn parse<'a>(
        &mut self,
        data: &'a [u8],
        margins: Margins,
        mut emit: impl FnMut(&'a [u8], Match),
    ) -> &'a [u8] {
        self.begin(data.len());
        let last = data.len().saturating_sub(margins.begin.max(MIN_MATCH));
        let until = data.len() - margins.end.min(data.len());
        let (mut anchor, mut at, mut misses) = (self.dictionary_len, self.dictionary_len, 0);
        while at < last {
            let Some(found) = self.find(data, at, until) else {
                // Where nothing has matched for long, it searches in larger steps.
                misses += 1;
                at += 1 + (misses >> 6);
                continue;
            };
            emit(&data[anchor..at], found);
            self.learn(data, at + 1, (at + found.length).min(last));
            at += found.length;
            (anchor, misses) = (at, 0);
        }
        &data[anchor..]
    }

    fn begin(&mut self, len: usize) {
        if self.base.checked_add(len as u32).is_none_or(|end| end > u32::MAX / 2) {
            self.heads.fill(NOWHERE);
            self.chain.fill(NOWHERE);
            self.base = 1;
        }
    }

    /// Ends a message: its positions become invalid.
    pub(super) fn end(&mut self, len: usize) {
        self.base += len as u32;
    }

    /// The longest match among those tried.
    #[inline]
    fn find(&mut self, data: &[u8], at: usize, until: usize) -> Option<Match> {
        let four = four_at(data, at);
        let slot = hash(four);
        let mut candidate = self.heads[slot];
        self.insert(slot, at);
        let mut best: Option<Match> = None;
        for _ in 0..self.tries {
            let before = candidate.checked_sub(self.base).map(|before| before as usize);
            let Some(before) = before.filter(|before| *before < at && at - before <= self.max_distance) else { break };
            if four_at(data, before) == four {
                let length = common(data, before, at, until);
                if best.is_none_or(|best| length > best.length) {
                    best = Some(Match { distance: at - before, length });
                }
            }
            if self.chain.is_empty() {
                break;
            }
            let older = self.chain[(self.base as usize + before) % self.chain.len()];
            // A slot that was reused leads to a later position of another chain.
            if older >= candidate {
                break;
            }
            candidate = older;
        }
        best.or_else(|| self.find_in_dictionary(data, at, until, four)).filter(|found| found.length >= MIN_MATCH)
    }

    fn find_in_dictionary(&self, data: &[u8], at: usize, until: usize, four: u32) -> Option<Match> {
        let before = self.dictionary_heads.get(hash(four))?.checked_sub(1)? as usize;
        let near = at - before <= self.max_distance && four_at(data, before) == four;
        near.then(|| Match { distance: at - before, length: common(data, before, at, until) })
    }

    /// Inserts positions inside a match. With one try only the last ones are inserted, which are
    /// the most useful.
    #[inline]
    fn learn(&mut self, data: &[u8], from: usize, to: usize) {
        let from = if self.chain.is_empty() { from.max(to.saturating_sub(2)) } else { from };
        for at in from..to {
            let slot = hash(four_at(data, at));
            self.insert(slot, at);
        }
    }

    #[inline]
    fn insert(&mut self, slot: usize, at: usize) {
        let position = self.base + at as u32;
        let older = core::mem::replace(&mut self.heads[slot], position);
        let len = self.chain.len();
        if len > 0 {
            self.chain[position as usize % len] = older;
        }
    }
}

/// Copies `length` bytes from `distance` bytes before `at`, byte by byte if the ranges overlap. The
/// caller has checked that both ranges lie within `output`.
#[inline]
pub(super) fn repeat(output: &mut [u8], at: usize, distance: usize, length: usize) {
    let start = at - distance;
    if distance >= length {
        output.copy_within(start..start + length, at);
        return;
    }
    for i in 0..length {
        output[at + i] = output[start + i];
    }
}

#[inline]
fn four_at(data: &[u8], at: usize) -> u32 {
    data.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |four| u32::from_le_bytes(*four))
}

#[inline]
fn hash(four: u32) -> usize {
    (four.wrapping_mul(0x9E37_79B1) >> (32 - HASH_BITS)) as usize
}

/// Number of equal bytes at both positions. The later range ends before `until`.
#[inline]
fn common(data: &[u8], before: usize, at: usize, until: usize) -> usize {
    let Some(here) = data.get(at..until.max(at)) else { return 0 };
    let there = &data[before..before + here.len()];
    let (mut length, mut pairs) = (0, here.chunks_exact(8).zip(there.chunks_exact(8)));
    let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |eight| u64::from_le_bytes(*eight));
    for (a, b) in &mut pairs {
        let differs = word(a) ^ word(b);
        if differs != 0 {
            return length + differs.trailing_zeros() as usize / 8;
        }
        length += 8;
    }
    length + here[length..].iter().zip(&there[length..]).take_while(|(a, b)| a == b).count()
}
