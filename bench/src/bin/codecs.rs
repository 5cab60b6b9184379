//! Measures all codecs beside hand-written code and other libraries, and also the compressors and
//! the time to compile a program. Runs on one core.
//!
//! `cargo run --release -p polywire-bench --features peers --bin codecs [--quick] [--json FILE]
//! [--markdown FILE] [GROUP..]`

use polywire_bench::{Cores, codecs::MEASUREMENTS, run};

fn main() -> std::io::Result<()> {
    run("codecs", "Codecs compared with hand-written code and other libraries", MEASUREMENTS, Cores::One)
}
