//! What a message may cost.

/// What decoding one message may cost. Every decoder has one; the defaults suit messages up to 64
/// MiB.
///
/// ```
/// use polywire_core::program::Limits;
/// let limits = Limits { memory_bytes: 1 << 28, expansion: 1024, free_bytes: 1 << 20, ..Limits::default() };
/// assert_eq!((limits.memory(4), limits.memory(1 << 16), limits.memory(1 << 24)), (1 << 20, 1 << 26, 1 << 28));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a message, in and out.
    pub message_bytes: usize,
    /// Bytes that decoding may allocate for a value, counted where something grows. A value that
    /// messages have made grow by more in all gives its memory back before the next one.
    pub memory_bytes: usize,
    /// Bytes that decoding may allocate for each byte of the message, once they are more than
    /// [`Limits::free_bytes`]. Elements without a byte on the wire count as a byte of memory each.
    pub expansion: usize,
    /// Bytes that decoding any message may allocate.
    pub free_bytes: usize,
    /// Elements of one sequence or entries of one map.
    pub elements: u32,
    /// Values of a recursive type inside each other, and brackets in text.
    pub depth: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            message_bytes: 64 << 20,
            memory_bytes: 256 << 20,
            expansion: 1024,
            free_bytes: 1 << 20,
            elements: 1 << 26,
            depth: 64,
        }
    }
}

impl Limits {
    /// Bytes that decoding a message of so many bytes may allocate.
    #[inline]
    pub fn memory(&self, message: usize) -> usize {
        message.saturating_mul(self.expansion).max(self.free_bytes).min(self.memory_bytes)
    }
}
