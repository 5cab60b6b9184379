//! Measures every format on every measured type: bytes, times, times as multiples of hand-written
//! CDR, and the time of the fastest other library for the format. Runs on one core.
//!
//! `cargo run --release -p polywire-bench --features peers --bin formats [--quick] [--json FILE]
//! [--markdown FILE] [--extract FILE] [TYPE..]`

use polywire_bench::{arguments::Arguments, codecs::formats::MEASUREMENTS, measure, report::Report};

fn main() -> std::io::Result<()> {
    let arguments = Arguments::parse();
    // The report states the number of cores, which `pin` would reduce to one.
    let mut report = Report::new(arguments.command("formats"));
    measure::pin(0);
    for (name, measure) in MEASUREMENTS {
        if arguments.wants(name) {
            report.groups.push(measure(arguments.effort()));
        }
    }
    arguments.deliver(&report)
}
