//! Measures FAST streams of the measured types: bytes per message, and times as multiples of
//! hand-written CDR, for each type and template. The group `feed` compares with the crate
//! `fastlib`, for a reader that has only a template. Runs on one core.
//!
//! `cargo run --release -p polywire-bench --bin fast [--quick] [--json FILE] [--markdown FILE]
//! [TYPE..] [feed]`

use polywire_bench::{arguments::Arguments, fast::MEASUREMENTS, measure, report::Report};

fn main() -> std::io::Result<()> {
    let arguments = Arguments::parse();
    measure::pin(0);
    let mut report = Report::new(arguments.command("fast"));
    for (name, measure) in MEASUREMENTS {
        if arguments.wants(name) {
            report.groups.push(measure(arguments.effort()));
        }
    }
    arguments.deliver(&report)
}
