//! The buffer in which a payload is encoded.

use std::fmt;

/// A buffer that a port lends for one payload. The encoder appends to [`Loan::buffer`]. The engine
/// may reserve headroom in front, so that it can write a header and payload in one piece.
///
/// ```
/// use polywire::engine::Loan;
/// let mut loan = Loan::new(Vec::new(), 8);
/// loan.buffer().extend_from_slice(b"payload");
/// assert_eq!(loan.with_header(b"head "), Some(&b"head payload"[..]));
/// assert_eq!(loan.payload(), b"payload");
/// assert_eq!(loan.with_header(b"longer than the room"), None);
/// assert_eq!(loan.into_inner().len(), 8 + 7);
/// ```
pub struct Loan {
    bytes: Vec<u8>,
    start: usize,
}

impl Loan {
    /// Clears a buffer and reserves `headroom` bytes in front of the payload.
    #[inline]
    pub fn new(mut bytes: Vec<u8>, headroom: usize) -> Self {
        match bytes.len() < headroom {
            true => bytes.resize(headroom, 0),
            // The content of the headroom does not matter.
            false => bytes.truncate(headroom),
        }
        Loan { bytes, start: headroom }
    }

    /// Returns the buffer, including the headroom. Callers append the payload and remove nothing.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Returns the payload so far.
    pub fn payload(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }

    /// Puts `header` right in front of the payload and returns both in one piece, or `None` if the
    /// headroom is too small.
    pub fn with_header(&mut self, header: &[u8]) -> Option<&[u8]> {
        let at = self.start.checked_sub(header.len())?;
        self.bytes.get_mut(at..self.start)?.copy_from_slice(header);
        self.bytes.get(at..)
    }

    /// Returns the memory, for reuse.
    pub fn into_inner(self) -> Vec<u8> {
        self.bytes
    }
}

impl fmt::Debug for Loan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loan").field("payload", &self.payload().len()).finish()
    }
}
