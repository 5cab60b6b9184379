//! The payload that a port hands to each of its links when it sends a message.

use polywire_core::envelope::Envelope;

use crate::engine::{Batch, Loan};

/// A payload to send.
pub(super) enum Payload<'a> {
    /// In a loan, with room in front for the header.
    Loan(&'a mut Loan),
    /// In any other memory.
    Bytes(&'a [u8]),
}

impl Payload<'_> {
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Payload::Loan(loan) => loan.payload(),
            Payload::Bytes(bytes) => bytes,
        }
    }
}

/// Messages in the order in which they are sent.
pub(super) trait Messages {
    fn len(&self) -> usize;
    /// Returns the message at an index, with its payload.
    fn get(&self, index: usize) -> Option<(Envelope<'_>, &[u8])>;
}

impl Messages for Batch<'_> {
    #[inline]
    fn len(&self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn get(&self, index: usize) -> Option<(Envelope<'_>, &[u8])> {
        self.get(index)
    }
}

impl Messages for [(Envelope<'_>, &[u8])] {
    #[inline]
    fn len(&self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn get(&self, index: usize) -> Option<(Envelope<'_>, &[u8])> {
        self.get(index).copied()
    }
}
