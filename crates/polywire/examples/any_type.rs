//! Receives the messages of a topic, of any type and in any format, and prints them as JSON. The
//! types come from the publishers.
//!
//! `cargo run -p polywire --example any_type [WIRE]`

use std::{env, error::Error, time::Duration};

use polywire::{Node, coding::Discovered};

fn main() -> Result<(), Box<dyn Error>> {
    let wire = env::args().nth(1).unwrap_or("cdr@local".into());
    run(&wire, 100)?;
    Ok(())
}

/// Prints at most this many messages and returns the text. Ends after a pause of ten seconds.
pub fn run(wire: &str, messages: usize) -> Result<Vec<String>, Box<dyn Error>> {
    let node = Node::new();
    let any = node.subscribe_of("pumps", Some(wire), Discovered::new()?)?.open();
    let mut printed = Vec::new();
    while printed.len() < messages {
        let Some(sample) = any.recv_timeout(Duration::from_secs(10)) else { break };
        let text = sample.value.to_json()?;
        println!("{} {text}", sample.info.source.announcement.type_name);
        printed.push(text);
    }
    Ok(printed)
}
