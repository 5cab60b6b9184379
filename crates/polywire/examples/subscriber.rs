//! Receives pumps with a version of the type that is older than the publisher's, and prints them.
//!
//! `cargo run -p polywire --example subscriber [WIRE]`. The format in WIRE is for publishers alone;
//! a subscriber reads all.

use std::{env, error::Error, time::Duration};

use polywire::{Message, Node};

/// Members in another order, and without the temperature.
#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Plant::Pump")]
pub struct Pump {
    /// The pressure, in bar.
    pub pressure_bar: f64,
    /// Names the pump.
    #[polywire(key)]
    pub id: u32,
}

fn main() -> Result<(), Box<dyn Error>> {
    let wire = env::args().nth(1).unwrap_or("cdr@local".into());
    run(&wire, 100)?;
    Ok(())
}

/// Receives at most this many messages and returns them. Ends after a pause of ten seconds.
pub fn run(wire: &str, messages: usize) -> Result<Vec<Pump>, Box<dyn Error>> {
    let node = Node::new();
    let pumps = node.subscriber_on::<Pump>("pumps", wire)?;
    let mut received = Vec::new();
    while received.len() < messages {
        let Some(sample) = pumps.recv_timeout(Duration::from_secs(10)) else { break };
        println!("{} {:?}, {} bytes", sample.info.source.announcement.codec, sample.value, sample.info.bytes);
        received.push(sample.value);
    }
    println!("{} lost, {} undecodable", pumps.lost(), pumps.undecodable());
    Ok(received)
}
