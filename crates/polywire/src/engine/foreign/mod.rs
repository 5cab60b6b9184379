//! Parts that engines share whose medium has foreign applications, which are programs that are not
//! Polywire nodes: which channels foreign applications may read (`visibility`), the names of
//! formats (`encoding`), the channels of foreign publishers (`writers`), and the ROS 2 types that
//! the node asks for (`types`).

#[cfg(any(feature = "zenoh", feature = "zeromq"))]
pub(super) mod encoding;
#[cfg(any(feature = "dds", feature = "zenoh"))]
mod types;
#[cfg(any(feature = "zenoh", feature = "zeromq"))]
pub(super) mod visibility;
#[cfg(any(feature = "zenoh", feature = "zeromq"))]
mod writers;

#[cfg(feature = "zenoh")]
use std::time::{SystemTime, UNIX_EPOCH};

#[cfg(any(feature = "zenoh", feature = "zeromq"))]
use polywire_core::envelope::Id128;

#[cfg(feature = "zenoh")]
pub(super) use encoding::SampleEncoding;
#[cfg(feature = "zenoh")]
pub(super) use types::keep;
#[cfg(any(feature = "dds", feature = "zenoh"))]
pub(super) use types::{Need, Types};
#[cfg(any(feature = "zenoh", feature = "zeromq"))]
pub(super) use writers::{News, Writers};

/// Converts a time to nanoseconds since 1970; 0 for earlier times.
#[cfg(feature = "zenoh")]
pub(super) fn since_1970(at: SystemTime) -> i64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

/// Parses an id of 32 lower-case hexadecimal digits, the form in which ids are printed.
#[cfg(any(feature = "zenoh", feature = "zeromq"))]
pub(super) fn id(text: &str) -> Option<Id128> {
    let is_hex = text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    let number = u128::from_str_radix(text, 16).ok().filter(|_| text.len() == 32 && is_hex);
    number.map(|number| Id128(number.to_be_bytes()))
}
