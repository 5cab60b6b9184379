//! Publishes values of a type that is read from IDL at run time, without a Rust type.
//!
//! `cargo run -p polywire --example dynamic [WIRE]`

use std::{env, error::Error, time::Duration};

use polywire::{Node, Record, coding::Dynamic};
use polywire_idl::Compiler;

const IDL: &str = "
module Plant {
  enum Mode { OFF, MANUAL, AUTO };
  struct Pump { @key unsigned long id; double pressure_bar; Mode mode; };
};";

fn main() -> Result<(), Box<dyn Error>> {
    let wire = env::args().nth(1).unwrap_or("cdr@local".into());
    run(&wire)
}

/// Publishes one pump, set member by member, and one read from JSON.
pub fn run(wire: &str) -> Result<(), Box<dyn Error>> {
    let document = Compiler::new().parse_str("pump.idl", IDL)?;
    let pump = Dynamic::of(&document.schema("Plant::Pump")?)?;
    let node = Node::new();
    let pumps = node.publisher_of("pumps", Some(wire), pump.clone())?;
    pumps.wait_for_subscribers(1, Duration::from_secs(30));

    // A value by its members' paths ..
    let mut record = pumps.default_value();
    record.set("id", 7)?;
    record.set("pressure_bar", 2.5)?;
    pumps.publish(&record)?;

    // .. or from JSON.
    let record = Record::from_json(pump.shape(), r#"{"id":8,"pressure_bar":3.25,"mode":"AUTO"}"#)?;
    pumps.publish(&record)?;
    node.flush(Duration::from_secs(5));
    Ok(())
}
