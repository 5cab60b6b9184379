//! Measures latency and throughput of publish/subscribe between two processes, beside bare sockets
//! and libzmq. The second process is this program again, started with the word [`CHILD`].
//!
//! `cargo run --release -p polywire-bench --features peers --bin transport [--quick] [--json FILE]
//! [--markdown FILE] [GROUP..]`

use polywire_bench::{
    Cores, run,
    transport::{CHILD, MEASUREMENTS, serve},
};

fn main() -> std::io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == CHILD) {
        serve(&words[1..]);
        return Ok(());
    }
    run("transport", "Latency and throughput between two processes", MEASUREMENTS, Cores::All)
}
