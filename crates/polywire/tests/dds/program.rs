//! Programs with DDS that tests start, and the domains that they meet in.

use std::{process::Command, time::Duration};

use polywire_testing::tools;
pub use polywire_testing::{domains::lease as domain, program::Program, tools::CYCLONE_ON_LOOPBACK as LOOPBACK};

pub const SOON: Duration = Duration::from_secs(60);

/// `peer.py` in a mode, on a topic with one of its types. `None` if Python has no Cyclone DDS.
pub fn peer(mode: &str, domain: u32, topic: &str, of: &str) -> Option<Command> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/dds/peer.py");
    let mut command = Command::new(tools::python());
    command.args([script, mode, &domain.to_string(), topic, of]);
    tools::python_has("cyclonedds").then_some(command)
}

/// Starts a program. If it has Cyclone DDS, it meets others on the loopback interface.
pub fn start(command: &mut Command) -> Program {
    Program::start(command.env("CYCLONEDDS_URI", LOOPBACK))
}
