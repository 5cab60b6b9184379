//! Measures every format on every measured type: bytes, times, times as multiples of hand-written
//! CDR, and the time of the fastest other library for the format. Runs on one core.
//!
//! `cargo run --release -p polywire-bench --features peers --bin formats [--quick] [--json FILE]
//! [--markdown FILE] [--extract FILE] [TYPE..]`

use polywire_bench::{Cores, codecs::formats::MEASUREMENTS, run};

fn main() -> std::io::Result<()> {
    run("formats", "Every format on every measured type", MEASUREMENTS, Cores::One)
}
