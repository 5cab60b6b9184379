//! The limits on the cost of a message ([`Limits`]). `exec.rs`, `Input` and `Output` enforce them.
//! Types only.

/// The limits on the cost of decoding one message. Every decoder has one; the defaults suit
/// messages up to 64 MiB.
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
    /// Bytes that decoding may allocate for a value, counted where something grows. If a value has
    /// grown by more than this over several messages, its memory is freed before the next one.
    pub memory_bytes: usize,
    /// Bytes that decoding may allocate for each byte of the message, if that is more than
    /// [`Limits::free_bytes`]. Each element without bytes on the wire counts as a byte of memory.
    pub expansion: usize,
    /// Bytes that decoding any message may allocate.
    pub free_bytes: usize,
    /// Elements of one sequence or entries of one map.
    pub elements: u32,
    /// Nesting of values of a recursive type, and of brackets in text.
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
    /// Bytes that decoding a message of the given size may allocate.
    #[inline]
    pub fn memory(&self, message: usize) -> usize {
        message.saturating_mul(self.expansion).max(self.free_bytes).min(self.memory_bytes)
    }
}
