//! Records: what members exchange. Several share a packet, and each says whom it is for.

use alloc::vec::Vec;

use super::MemberId;
use crate::frame::varint;

/// Records that came together, in the order in which they were sent.
///
/// ```
/// use std::time::Duration;
/// use polywire_core::multicast::{Batch, Event};
/// fn payloads(event: &Event) -> Vec<&[u8]> {
///     let Event::Records { batch, .. } = event else { return Vec::new() };
///     let batch: &Batch = batch;
///     batch.records().collect()
/// }
/// assert!(payloads(&Event::Down { peer: Default::default(), reason: polywire_core::multicast::Reason::Silent, unconfirmed: 0 }).is_empty());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    bytes: Vec<u8>,
    me: MemberId,
}

impl Batch {
    /// `bytes` has passed [`are_valid`].
    pub(super) fn new(bytes: Vec<u8>, me: MemberId) -> Batch {
        Batch { bytes, me }
    }

    /// The records for this member.
    pub fn records(&self) -> impl Iterator<Item = &[u8]> {
        let mine = |(to, _): &(MemberId, &[u8])| *to == MemberId::ALL || *to == self.me;
        Split(&self.bytes).filter(mine).map(|(_, record)| record)
    }
}

/// A record with its header, for one member or for all.
pub(super) fn with_header(to: Option<MemberId>, record: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(record.len() + 16);
    out.push(u8::from(to.is_some()));
    if let Some(MemberId(to)) = to {
        out.extend_from_slice(&to.to_le_bytes());
    }
    varint::put(&mut out, record.len() as u64);
    out.extend_from_slice(record);
    out
}

/// Whether the bytes are whole records.
pub(super) fn are_valid(bytes: &[u8]) -> bool {
    let mut split = Split(bytes);
    while split.next().is_some() {}
    split.0.is_empty()
}

/// The bytes that are not read yet. It stops in front of what is no record.
struct Split<'a>(&'a [u8]);

impl<'a> Iterator for Split<'a> {
    type Item = (MemberId, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (flag, rest) = self.0.split_first()?;
        let (to, rest) = match flag {
            0 => (MemberId::ALL, rest),
            1 => rest.split_first_chunk().map(|(to, rest)| (MemberId(u64::from_le_bytes(*to)), rest))?,
            _ => return None,
        };
        let (len, rest) = varint::split(rest)?;
        let (record, rest) = rest.split_at_checked(usize::try_from(len).ok()?)?;
        self.0 = rest;
        Some((to, record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_for_others_are_passed_over_and_what_is_cut_is_invalid() {
        let records = [(None, "all"), (Some(MemberId(2)), "other"), (Some(MemberId(1)), "me"), (None, "")];
        let bytes: Vec<u8> = records.iter().flat_map(|(to, text)| with_header(*to, text.as_bytes())).collect();
        assert!(are_valid(&bytes) && are_valid(&[]));
        assert!((1..bytes.len()).filter(|end| are_valid(&bytes[..*end])).count() == 3);
        let batch = Batch::new(bytes, MemberId(1));
        assert_eq!(batch.records().collect::<Vec<_>>(), [&b"all"[..], b"me", b""]);
    }
}
