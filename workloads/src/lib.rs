//! The types that Polywire is measured with, seeded generators of their values, and hand-written
//! codecs: the yardsticks that figures are multiples of, run beside ours in the same process and
//! pinned to one core.
//!
//! The yardsticks are frozen. They write XCDR1, little endian, without the encapsulation header:
//! one capacity check a message on encode; bounds, boolean and UTF-8 checks on decode, into a
//! reused value.
//!
//! ```
//! use polywire_workloads::{ProcessorProbe, Samples, cdr_decode};
//!
//! let samples = Samples::<ProcessorProbe>::generate(2);
//! let (mut bytes, mut back) = (Vec::new(), ProcessorProbe::default());
//! for sample in samples.iter() {
//!     sample.encode(&mut bytes);
//!     cdr_decode(&bytes, &mut back).unwrap();
//!     assert_eq!(back, *sample.message());
//! }
//! ```

pub mod cdr;
mod codecs_test;
pub mod fast;
pub mod flight_data;
mod floats;
mod linux_processor_probe;
mod market_data;
mod members;
mod processor_probe;

pub use cdr::{Cdr, Malformed};
pub use codecs_test::{CodecsTest10, CodecsTest50, CodecsTest100, CodecsTest250, CodecsTest500, fast_template};
pub use fast::{Fast, fast_decode};
pub use flight_data::FlightData;
pub use floats::Floats;
pub use linux_processor_probe::LinuxProcessorProbe;
pub use market_data::{MarketData, MarketDataEntry};
pub use processor_probe::ProcessorProbe;

/// A measured type: its values are the same on every machine.
pub trait Workload: Cdr + Default + Clone + PartialEq + std::fmt::Debug {
    /// The name in tables.
    const NAME: &'static str;
    /// How many messages a round of measuring cycles through.
    const MESSAGES: usize;

    /// `n` successive messages.
    fn generate(n: usize) -> Vec<Self>;
}

/// Messages that can be encoded safely at the speed of the yardstick: the greatest size is found
/// once, here.
#[derive(Clone, Debug)]
pub struct Samples<T> {
    messages: Vec<T>,
    bound: usize,
}

/// What the first measurements set aside for every type: the allocator treats all yardsticks'
/// buffers alike.
const LEAST_BOUND: usize = 1 << 17;

impl<T: Workload> Samples<T> {
    /// The first `n` messages of the workload.
    pub fn generate(n: usize) -> Self {
        let messages = T::generate(n);
        let bound = messages.iter().map(Cdr::bound).fold(LEAST_BOUND, usize::max);
        Samples { messages, bound }
    }

    /// The messages themselves.
    pub fn messages(&self) -> &[T] {
        &self.messages
    }

    /// The messages with what encoding them needs.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Sample<'_, T>> {
        self.messages.iter().map(|message| Sample { message, bound: self.bound })
    }
}

/// One of [`Samples`].
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a, T> {
    message: &'a T,
    bound: usize,
}

impl<'a, T: Workload> Sample<'a, T> {
    /// The message.
    pub fn message(&self) -> &'a T {
        self.message
    }

    /// Encodes the message over what `out` held.
    #[inline(always)]
    pub fn encode(&self, out: &mut Vec<u8>) {
        // SAFETY: `bound` is the greatest of the bounds of messages that nobody has changed since.
        unsafe { cdr_encode(self.message, self.bound, out) }
    }
}

/// Encodes into `out`, growing it when needed: one capacity check a message, as a library must
/// have.
///
/// # Safety
/// `bound` is at least `message.bound()` and no more than an allocation can have. Computing that
/// for each message would slow the yardstick, so it is a promise; [`Samples`] keeps it.
#[inline(never)]
pub unsafe fn cdr_encode<T: Cdr>(message: &T, bound: usize, out: &mut Vec<u8>) {
    out.clear();
    if out.capacity() < bound + cdr::SLACK {
        out.reserve(bound + cdr::SLACK);
    }
    // SAFETY: the buffer has room for the bound and the slack.
    let mut writer = unsafe { cdr::Writer::new(out.as_mut_ptr()) };
    message.encode(&mut writer);
    // SAFETY: the writer has initialised every byte up to its position.
    unsafe { out.set_len(writer.position()) }
}

/// Decodes with bounds, boolean and UTF-8 checks into a reused value, which is valid but
/// unspecified after an error.
///
/// # Errors
/// [`Malformed`] if the bytes are no message of the type.
#[inline(never)]
pub fn cdr_decode<T: Cdr>(bytes: &[u8], into: &mut T) -> Result<(), Malformed> {
    into.decode(&mut cdr::Reader::new(bytes))
}

/// xorshift64, of which every workload's values come.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// From `low` up to and without `high`.
    fn range(&mut self, low: i64, high: i64) -> i64 {
        low + (self.next() >> 11) as i64 % (high - low)
    }

    /// True in `percent` of the draws.
    fn chance(&mut self, percent: u64) -> bool {
        (self.next() >> 20) % 100 < percent
    }
}
