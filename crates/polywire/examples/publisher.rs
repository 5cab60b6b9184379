//! Publishes a pump's state ten times a second, and changes the format while it runs.
//!
//! `cargo run -p polywire --example publisher [WIRE]`, beside `--example subscriber` or `--example
//! any_type` in another terminal.

use std::{env, error::Error, thread, time::Duration};

use polywire::{Message, Node};

#[derive(Clone, Debug, Default, PartialEq, Message)]
#[polywire(name = "Plant::Pump")]
struct Pump {
    #[polywire(key)]
    id: u32,
    pressure_bar: f64,
    #[polywire(default = 20.0)]
    temperature_c: f32,
}

fn main() -> Result<(), Box<dyn Error>> {
    let wire = env::args().nth(1).unwrap_or("cdr@local".into());
    run(&wire, 100)
}

/// Half of the messages travel in the wire's format, half as JSON.
pub fn run(wire: &str, messages: u32) -> Result<(), Box<dyn Error>> {
    let node = Node::new();
    let pumps = node.publisher_on::<Pump>("pumps", wire)?;
    let subscribers = pumps.wait_for_subscribers(1, Duration::from_secs(30));
    println!("{subscribers} subscribers");
    for number in 0..messages {
        if number == messages / 2 {
            pumps.set_wire("json")?;
        }
        let pump = Pump { id: number % 3, pressure_bar: 2.5 + f64::from(number), temperature_c: 21.5 };
        pumps.publish(&pump)?;
        thread::sleep(Duration::from_millis(100));
    }
    // Wait until all published messages have left.
    node.flush(Duration::from_secs(5));
    Ok(())
}
