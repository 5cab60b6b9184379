//! Smoke test of the benchmarks: every measurement runs with the least effort, and its own checks
//! of the candidates pass. The test judges no figure. It starts child processes and opens sockets
//! of this machine.

use polywire_bench::{codecs, fast, measure::Effort, report::Report, transport};

/// This is a single test because measurements pin threads and listen on sockets that are named
/// after the process.
#[test]
fn everything_is_measured() {
    transport::set_program(env!("CARGO_BIN_EXE_transport"));
    let mut report = Report::new("A test", "a test".into());
    // All types run the same code. These two are the smallest and the one with every kind of
    // member.
    let formats = codecs::formats::MEASUREMENTS.iter();
    let formats = formats.filter(|(name, _)| ["LinuxProcessorProbe", "FlightData"].contains(name));
    let measurements = formats.chain(codecs::MEASUREMENTS).chain(fast::MEASUREMENTS).chain(transport::MEASUREMENTS);
    for (_, measure) in measurements {
        report.groups.push(measure(Effort::QUICK));
    }
    for row in report.groups.iter().flat_map(|group| &group.rows) {
        assert!(!row.figures.is_empty(), "{} {}", row.workload, row.operation);
        for figure in &row.figures {
            assert!(figure.ns.is_finite() && figure.ns > 0.0, "{} {}: {figure:?}", row.workload, row.operation);
        }
    }
    let (terminal, markdown) = (report.terminal(), report.markdown());
    for group in &report.groups {
        assert!(terminal.contains(group.title) && markdown.contains(&format!("## {}", group.title)));
    }
    let extract = report.put_between_marks("before\n<!-- table -->\nold\n<!-- end of table -->\nbehind").unwrap();
    assert!(
        extract.starts_with("before\n<!-- table -->\n| format | bytes | encode | times hand-written |"),
        "{extract}"
    );
    assert!(extract.contains("\n| cdr | 56 | ") && !extract.contains("old"), "{extract}");
    assert!(extract.ends_with("<!-- end of table -->\nbehind") && report.put_between_marks("no marks").is_none());
    assert!(markdown.contains("| MarketData (510 B) | encode |"), "{markdown}");
    assert!(serde_json::to_string(&report).unwrap().contains("\"workload\":\"MarketData\""));
}
