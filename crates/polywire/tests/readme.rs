//! The Rust of README.md compiles and does what stands there: this file has its lines, in their
//! order.

const README: &str = include_str!("../../../README.md");

mod shown {
    use polywire::{Message, Node};

    #[derive(Clone, Debug, Default, PartialEq, Message)]
    #[polywire(name = "Plant::Pump")]
    pub struct Pump {
        #[polywire(key)]
        pub id: u32,
        pub pressure_bar: f64,
    }

    pub fn run() -> Result<Option<polywire::Sample<Pump>>, Box<dyn std::error::Error>> {
        let node = Node::new();
        let pumps = node.subscriber_on::<Pump>("pumps", "cdr@local")?;
        let publisher = node.publisher_on::<Pump>("pumps", "cdr@local")?;
        publisher.publish(&Pump { id: 7, pressure_bar: 2.5 })?;
        publisher.set_wire("json")?; // from the next message on; no subscriber notices
        let sample = pumps.recv();
        Ok(sample)
    }
}

#[test]
fn it_runs() {
    let sample = shown::run().expect("nothing fails").expect("the node is there");
    assert_eq!(sample.value, shown::Pump { id: 7, pressure_bar: 2.5 });
}

/// Words of Rust, without what only one of the two writes: visibility, and where lines break.
fn words(text: &str) -> Vec<&str> {
    let tokens = text.split(|c: char| c.is_whitespace() || ",;{}".contains(c)).filter(|word| !word.is_empty());
    tokens.filter(|word| *word != "pub").collect()
}

#[test]
fn it_is_what_stands_there() {
    let shown = README.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a block of Rust");
    let source = include_str!("readme.rs");
    let mut ours = words(source).into_iter();
    for word in words(shown) {
        assert!(ours.any(|own| own == word), "'{word}' is not here, or not in this place");
    }
}
