//! Measures Polywire beside hand-written code and other libraries. The candidates take turns in one
//! run, so that other load on the machine hits all of them alike; ratios are taken turn by turn.
//!
//! ```text
//! cargo run --release -p polywire-bench --features peers --bin formats
//! cargo run --release -p polywire-bench --features peers --bin codecs
//! cargo run --release -p polywire-bench --bin fast
//! cargo run --release -p polywire-bench --features peers --bin transport
//! ```
//!
//! Each candidate's results are compared with those of the others before anything is timed.

pub mod arguments;
pub mod codecs;
pub mod fast;
pub mod measure;
pub mod report;
pub mod transport;
