//! What a port hands to each of its links when it sends a message.

use std::time::Duration;

use crate::engine::Loan;

/// A payload to send.
pub(super) enum Payload<'a> {
    /// In a loan, with room in front for the header.
    Loan(&'a mut Loan),
    /// Anywhere.
    Bytes(&'a [u8]),
}

impl Payload<'_> {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Payload::Loan(loan) => loan.payload(),
            Payload::Bytes(bytes) => bytes,
        }
    }
}

/// The parts of a publication's timing that the port measures for its links.
#[derive(Clone, Copy, Default)]
pub(super) struct Round {
    /// Time since the port had sent its last publication to all links.
    pub(super) pause: Option<Duration>,
    /// Number of links.
    pub(super) links: u32,
}
