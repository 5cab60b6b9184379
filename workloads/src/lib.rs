//! The types with which Polywire is measured, seeded generators of their values, and hand-written
//! codecs, the *yardsticks*: benchmarks report times as multiples of theirs. Benchmarks and tests
//! use this crate. It does no I/O and starts no threads.
//!
//! The yardsticks are frozen: a test pins their bytes. They encode XCDR1, little endian, without
//! the encapsulation header, and check the buffer's capacity once per message. They decode into a
//! reused value and check bounds, booleans and UTF-8.
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

/// A measured type. Its values come from a fixed seed, so they are the same in every run.
pub trait Workload: Cdr + Default + Clone + PartialEq + std::fmt::Debug {
    /// The name in tables.
    const NAME: &'static str;
    /// The number of messages that a benchmark encodes or decodes in a round.
    const MESSAGES: usize;

    /// `n` successive messages.
    fn generate(n: usize) -> Vec<Self>;
}

/// Messages with an upper bound of their encoded sizes. Because the bound is computed only once,
/// [`Sample::encode`] is safe and still has the speed of the yardstick.
#[derive(Clone, Debug)]
pub struct Samples<T> {
    messages: Vec<T>,
    bound: usize,
}

/// The least bound in bytes. With it the buffers of all types have at least this size, so the
/// allocator treats them alike, as it did in the first measurements.
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

    /// The messages with the bound that encoding needs.
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

    /// Encodes the message to `out`, and discards the previous contents of `out`.
    #[inline(always)]
    pub fn encode(&self, out: &mut Vec<u8>) {
        // SAFETY: `bound` is the greatest bound of the messages, which cannot change afterwards.
        unsafe { cdr_encode(self.message, self.bound, out) }
    }
}

/// Encodes to `out`, which grows if necessary. A library must check the capacity too, so this
/// yardstick does it, once per message.
///
/// # Safety
/// `bound` must be at least `message.bound()`, and `bound + SLACK` at most `isize::MAX`. The
/// function does not compute the bound, because that would slow it down. [`Samples`] meets this
/// condition.
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

/// Decodes into a reused value, and checks bounds, booleans and UTF-8. After an error the value is
/// valid but unspecified.
///
/// # Errors
/// [`Malformed`] if the bytes are not a message of the type.
#[inline(never)]
pub fn cdr_decode<T: Cdr>(bytes: &[u8], into: &mut T) -> Result<(), Malformed> {
    into.decode(&mut cdr::Reader::new(bytes))
}

/// The random number generator of all workloads: xorshift64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number from `low` (included) to `high` (excluded).
    fn range(&mut self, low: i64, high: i64) -> i64 {
        low + (self.next() >> 11) as i64 % (high - low)
    }

    /// True with a probability of `percent` per cent.
    fn chance(&mut self, percent: u64) -> bool {
        (self.next() >> 20) % 100 < percent
    }
}
