//! Measures all codecs beside hand-written code and other libraries, and also the compressors and
//! the time to compile a program. Runs on one core.
//!
//! `cargo run --release -p polywire-bench --features peers --bin codecs [--quick] [--json FILE]
//! [--markdown FILE] [GROUP..]`

use polywire_bench::{arguments::Arguments, codecs::MEASUREMENTS, measure, report::Report};

fn main() -> std::io::Result<()> {
    let arguments = Arguments::parse();
    measure::pin(0);
    let mut report = Report::new(arguments.command("codecs"));
    for (name, measure) in MEASUREMENTS {
        if arguments.wants(name) {
            report.groups.push(measure(arguments.effort()));
        }
    }
    arguments.deliver(&report)
}
