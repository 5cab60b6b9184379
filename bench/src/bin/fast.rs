//! FAST streams of the measured types: bytes a message and time as a multiple of hand-written CDR,
//! for each type and template, and of the `fastlib` crate on a foreign feed.
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
