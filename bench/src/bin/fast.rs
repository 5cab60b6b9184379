//! Measures FAST streams of the measured types: bytes per message, and times as multiples of
//! hand-written CDR, for each type and template. The group `feed` compares with the crate
//! `fastlib`, for a reader that has only a template. Runs on one core.
//!
//! `cargo run --release -p polywire-bench --bin fast [--quick] [--json FILE] [--markdown FILE]
//! [TYPE..] [feed]`

use polywire_bench::{Cores, fast::MEASUREMENTS, run};

fn main() -> std::io::Result<()> {
    run("fast", "FAST streams compared with hand-written code", MEASUREMENTS, Cores::One)
}
