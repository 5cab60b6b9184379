//! Sorts a map's entries in place, without allocating: both halves are sorted, and then merged by
//! rotation.

use super::format::Format;
use crate::{
    codec::lower::kinds::{Format as _, Head},
    program::{Input, Limits, Output, Status},
};

/// Sorts the entries of the map written since `start` by the bytes of their keys.
pub(super) fn sort(output: &mut Output<'_>, start: usize) -> Status {
    let Some(map) = output.written().get_mut(start..) else { return Status::Ok };
    let limits = limits();
    let mut input = Input::new(map, &limits);
    let Ok(Head::Map(extent)) = Format::head(&mut input) else { return Status::Ok };
    let (begin, count) = (input.position(), extent.count as usize);
    let entries = map.get_mut(begin..).unwrap_or_default();
    if !is_sorted(entries) {
        sort_entries(entries, count);
    }
    Status::Ok
}

/// Limits for reading what was just written: it is well-formed and no deeper than the encoder could
/// go.
fn limits() -> Limits {
    Limits { depth: 1 << 14, ..Limits::default() }
}

/// Length of the first `count` entries in bytes.
fn len(entries: &[u8], count: usize) -> usize {
    let limits = limits();
    let mut input = Input::new(entries, &limits);
    for _ in 0..2 * count {
        if Format::skip(&mut input).is_err() {
            break;
        }
    }
    input.position()
}

fn key(entry: &[u8]) -> &[u8] {
    let limits = limits();
    let mut input = Input::new(entry, &limits);
    let _ = Format::skip(&mut input);
    entry.get(..input.position()).unwrap_or_default()
}

fn is_sorted(mut entries: &[u8]) -> bool {
    let mut previous: &[u8] = &[];
    while !entries.is_empty() {
        let next = key(entries);
        if next < previous || next.is_empty() {
            return false;
        }
        previous = next;
        entries = entries.get(len(entries, 1)..).unwrap_or_default();
    }
    true
}

fn sort_entries(entries: &mut [u8], count: usize) {
    if count < 2 {
        return;
    }
    let half = count / 2;
    let middle = len(entries, half);
    let (left, right) = entries.split_at_mut(middle);
    sort_entries(left, half);
    sort_entries(right, count - half);
    merge(entries, middle, (half, count - half));
}

/// Merges two sorted parts; the second begins at `middle`. The upper half of the larger part
/// changes places with the entries of the other part that are less than it. Then both sides are
/// merged in turn.
fn merge(entries: &mut [u8], middle: usize, (left, right): (usize, usize)) {
    if left == 0 || right == 0 {
        return;
    }
    let (first, second) = entries.split_at(middle);
    if left + right == 2 {
        if key(second) < key(first) {
            entries.rotate_left(middle);
        }
        return;
    }
    let (from, kept, to, moved) = match left >= right {
        true => {
            let kept = left / 2;
            let from = len(first, kept);
            let (moved, to) = less(second, right, key(&first[from..]));
            (from, kept, middle + to, moved)
        }
        false => {
            let moved = right / 2;
            let to = len(second, moved);
            let (kept, from) = less(first, left, key(&second[to..]));
            (from, kept, middle + to, moved)
        }
    };
    entries[from..to].rotate_left(middle - from);
    let split = from + (to - middle);
    let (lower, upper) = entries.split_at_mut(split);
    merge(lower, from, (kept, moved));
    merge(upper, middle - from, (left - kept, right - moved));
}

/// Number of the `count` sorted entries that have a key less than `than`, and their length in
/// bytes.
fn less(entries: &[u8], count: usize, than: &[u8]) -> (usize, usize) {
    let mut at = 0;
    for i in 0..count {
        let rest = entries.get(at..).unwrap_or_default();
        if key(rest) >= than {
            return (i, at);
        }
        at += len(rest, 1);
    }
    (count, at)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn entries_are_sorted_by_the_bytes_of_their_keys() {
        for count in 0..60u64 {
            let mut keys: Vec<u64> = (0..count).map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (i % 50)).collect();
            keys.dedup();
            let (mut bytes, limits) = (Vec::new(), Limits::default());
            let mut output = Output::new(&mut bytes, &limits);
            assert_eq!(Format::put_map(&mut output, keys.len() as u64), Status::Ok);
            for key in &keys {
                assert_eq!(Format::put_unsigned(&mut output, *key), Status::Ok);
                assert_eq!(Format::put_text(&mut output, &"x".repeat(*key as usize % 40)), Status::Ok);
            }
            let status = sort(&mut output, 0);
            assert_eq!(output.finish(status), Status::Ok);
            keys.sort();
            let mut input = Input::new(&bytes, &limits);
            assert_eq!(Format::head(&mut input).map(|head| matches!(head, Head::Map(_))), Ok(true));
            for key in keys {
                assert_eq!(Format::head(&mut input), Ok(Head::Unsigned(key)));
                assert_eq!(Format::name(&mut input).map(|name| name.map(<[u8]>::len)), Ok(Some(key as usize % 40)));
            }
            assert_eq!(input.remaining(), 0);
        }
    }
}
