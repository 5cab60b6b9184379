//! An index of a map's entries: finds an item in O(log² n) comparisons, whatever the order of
//! insertion, in one plain vector.
//!
//! The vector is a row of sorted runs. Their lengths are the powers of two in the binary
//! representation of the vector's length, longest first. Insertion works like adding one to that
//! number: the runs that carry are merged into one by sorting. Each item is therefore sorted at
//! most once for every power of two, and a search is a binary search in every run. There are no
//! hash collisions to provoke and no nodes to allocate.

use alloc::vec::Vec;
use core::cmp::Ordering;

use crate::layout::OutOfMemory;

/// Adds an item that is not in the index. After an error the index is unchanged.
pub(super) fn insert(
    index: &mut Vec<u32>,
    item: u32,
    mut compare: impl FnMut(u32, u32) -> Ordering,
) -> Result<(), OutOfMemory> {
    index.try_reserve(1).map_err(|_| OutOfMemory)?;
    index.push(item);
    let len = index.len();
    let run = len & len.wrapping_neg();
    index[len - run..].sort_unstable_by(|a, b| compare(*a, *b));
    Ok(())
}

/// Finds the item for which `compare` returns `Equal`.
pub(super) fn find(index: &[u32], mut compare: impl FnMut(u32) -> Ordering) -> Option<u32> {
    let mut rest = index;
    while let Some(power) = rest.len().checked_ilog2() {
        let (run, shorter) = rest.split_at(1 << power);
        if let Ok(found) = run.binary_search_by(|item| compare(*item)) {
            return Some(run[found]);
        }
        rest = shorter;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_found_in_whatever_order_they_came() {
        for step in [1u32, 7, 1999, 1998] {
            let keys: Vec<u32> = (0..2000).map(|i| i * step % 2003).collect();
            let mut index = Vec::new();
            for item in 0..keys.len() as u32 {
                let key = keys[item as usize];
                assert_eq!(find(&index, |i| keys[i as usize].cmp(&key)), None);
                insert(&mut index, item, |a, b| keys[a as usize].cmp(&keys[b as usize])).unwrap();
            }
            for (item, key) in keys.iter().enumerate() {
                assert_eq!(find(&index, |i| keys[i as usize].cmp(key)), Some(item as u32));
            }
        }
    }

    #[test]
    fn comparisons_stay_far_from_quadratic() {
        let mut compared = 0u64;
        let mut index = Vec::new();
        for item in 0..20_000u32 {
            // Descending keys are the worst order for an insertion sort.
            insert(&mut index, item, |a, b| {
                compared += 1;
                b.cmp(&a)
            })
            .unwrap();
        }
        assert!(compared < 20_000 * 15 * 15, "{compared}");
    }
}
