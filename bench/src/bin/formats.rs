//! Every format on every measured type: bytes and times, as multiples of hand-written CDR, and how
//! long each format's best peer takes.
//!
//! `cargo run --release -p polywire-bench --features peers --bin formats [--quick] [--json FILE]
//! [--markdown FILE] [--extract FILE] [TYPE..]`

use polywire_bench::{arguments::Arguments, codecs::formats::MEASUREMENTS, measure, report::Report};

fn main() -> std::io::Result<()> {
    let arguments = Arguments::parse();
    // The machine is described as it is, before this is kept on one of its cores.
    let mut report = Report::new(arguments.command("formats"));
    measure::pin(0);
    for (name, measure) in MEASUREMENTS {
        if arguments.wants(name) {
            report.groups.push(measure(arguments.effort()));
        }
    }
    arguments.deliver(&report)
}
