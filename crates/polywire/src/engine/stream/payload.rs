//! The payload that a port hands to each of its links when it sends a message.

use crate::engine::Loan;

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
