//! What a port hands to each of its links when it sends a message.

use crate::engine::Loan;

/// A payload to send.
pub(super) enum Payload<'a> {
    /// In a loan, with room in front for the header.
    Loan(&'a mut Loan),
    /// Anywhere.
    Bytes(&'a [u8]),
}

impl Payload<'_> {
    /// The header and the payload, in one piece if there is room in front of the payload.
    #[inline]
    pub(super) fn framed<'a>(&'a mut self, header: &'a [u8]) -> [&'a [u8]; 2] {
        match self {
            Payload::Bytes(bytes) => [header, bytes],
            Payload::Loan(loan) => match loan.has_room(header.len()) {
                true => [loan.with_header(header).unwrap_or_default(), &[]],
                false => [header, loan.payload()],
            },
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Payload::Loan(loan) => loan.payload(),
            Payload::Bytes(bytes) => bytes,
        }
    }
}
