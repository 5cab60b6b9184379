//! Two nodes over an engine outside the library: named pipes.
//!
//! `cargo run -p polywire --example fifo`

mod engine;

use std::{error::Error, time::Duration};

use polywire::{Message, Node};

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Plant::Pump")]
struct Pump {
    #[polywire(key)]
    id: u32,
    pressure_bar: f64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let node = || Node::builder().engine(&engine::Fifo).build();
    let wire = format!("cdr@fifo/{}/polywire-{}.fifo", std::env::temp_dir().display(), std::process::id());
    let (here, there) = (node(), node());
    let pumps = here.subscriber_on::<Pump>("pumps", &wire)?;
    let publisher = there.publisher_on::<Pump>("pumps", &wire)?;
    publisher.wait_for_subscribers(1, Duration::from_secs(10));
    for id in 0..3 {
        publisher.publish(&Pump { id, pressure_bar: 2.5 })?;
        println!("{:?}", pumps.recv().map(|sample| sample.value));
    }
    Ok(())
}
