//! Measures probes, nodes and a collector from end to end: over the thesis's line of 8 Mbit/s,
//! beside other agents for the same figures of the system, and with a thousand nodes. The other
//! processes are this program again.
//!
//! `cargo run --release -p polywire-bench --features telemetry --bin telemetry -- [--seconds N]
//! [--markdown FILE] [thesis] [peers] [nodes]`. `bench/telemetry/peers` installs the other agents.

fn main() -> std::process::ExitCode {
    polywire_bench::telemetry::run(std::env::args().skip(1).collect())
}
