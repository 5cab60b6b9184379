//! Benchmarks of Polywire beside hand-written code and other libraries (the *peers*). The library
//! is used by the programs in `bin/` and by a smoke test.
//!
//! ```text
//! cargo run --release -p polywire-bench --features peers --bin formats
//! cargo run --release -p polywire-bench --features peers --bin codecs
//! cargo run --release -p polywire-bench --bin fast
//! cargo run --release -p polywire-bench --features peers --bin transport
//! cargo run --release -p polywire-bench --features telemetry --bin telemetry
//! ```
//! The candidates take turns in one run, so that other load on the machine affects all of them
//! alike. Each ratio compares turns that are next to each other. Before anything is timed, each
//! candidate's results are checked, where possible against those of the others. A *bar* is a limit
//! on a candidate's time in comparison with the first candidate; the report marks figures that miss
//! it.
//!
//! The programs write files only where `--json`, `--markdown` and `--extract` say, except for a
//! temporary folder in which the peer in C++ is built. The transport benchmark starts a child
//! process and connects to it over TCP and Unix-domain sockets of this machine.

pub mod arguments;
pub mod codecs;
pub mod fast;
pub mod measure;
pub mod process;
pub mod report;
#[cfg(feature = "telemetry")]
pub mod telemetry;
pub mod transport;

use arguments::Arguments;
use measure::Effort;
use report::{Group, Report};

/// A measurement with the name that selects it on the command line.
pub type Measurement = (&'static str, fn(Effort) -> Group);

/// The cores that a benchmark program may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cores {
    /// The first one, so that the system moves nothing between cores.
    One,
    /// All, for measurements with threads or processes.
    All,
}

/// Runs one of the programs in `bin/`: the groups that its arguments name. `title` is the heading
/// of its report.
pub fn run(program: &str, title: &'static str, measurements: &[Measurement], cores: Cores) -> std::io::Result<()> {
    let arguments = Arguments::parse();
    // The report states the number of cores, which `pin` would reduce to one.
    let mut report = Report::new(title, arguments.command(program));
    if cores == Cores::One {
        measure::pin(0);
    }
    for (name, measure) in measurements {
        if arguments.wants(name) {
            report.groups.push(measure(arguments.effort()));
        }
    }
    arguments.deliver(&report)
}
