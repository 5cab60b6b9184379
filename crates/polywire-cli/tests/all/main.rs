//! All tests of the command line, in one program: it is linked only once, and tests that wait run
//! in parallel with others.

mod common;

mod bench;
mod bridge;
#[cfg(feature = "foxglove")]
mod browser;
#[cfg(target_os = "linux")]
mod clocks;
mod collect;
mod compat;
#[cfg(feature = "foxglove")]
mod dashboard;
mod demo;
mod docs;
mod doctor;
mod engines;
mod fast;
mod hostile;
#[cfg(all(feature = "hosts", target_os = "linux"))]
mod hosts;
#[cfg(feature = "tls")]
mod identity;
mod instances;
mod link;
mod operations;
mod probes;
mod pub_echo;
mod readme;
mod relay;
mod reload;
mod services;
#[cfg(all(feature = "shm", target_os = "linux"))]
mod shm;
mod stop;
mod tools;
#[cfg(feature = "tracing")]
mod trace;
mod transcode;
mod trouble;
#[cfg(all(feature = "foxglove", feature = "hosts", feature = "mcap", feature = "sqlite", target_os = "linux"))]
mod two_hosts;
mod view;
